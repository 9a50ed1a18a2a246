//! `inbloom plan`: what a filter would cost, every kind side by side, before anything is built.

use std::process::ExitCode;

use anyhow::{Result, bail};
use inbloom::{Error, Kind, Plan, Span};
use inbloom_server::units;
use serde_json::{Value, json};

use crate::sizing::{Sizing, kind_parser, particulars};
use crate::{numbers, output, plot};

/// Compute size, probes and rate of every kind from what is given
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Only this kind
    #[arg(long, value_parser = kind_parser())]
    kind: Option<Kind>,

    /// Print one JSON object
    #[arg(long)]
    json: bool,

    /// Print comma-separated values: a line of names, and one for each kind
    #[arg(long, conflicts_with = "json")]
    csv: bool,

    /// Memory to use, in bits: --bytes is an eighth of it, rounded down
    #[arg(short = 'm', long, value_name = "M", value_parser = parse_bits, group = "memory")]
    bits: Option<u64>,

    // Last: its heading holds for all options that follow.
    #[command(flatten)]
    sizing: Sizing,
}

const AFTER_HELP: &str = "\
Give what you know, the rest is computed: any two of keys (-n), rate (-p), memory (-m or --bytes)
and probes (-k). -n alone is for the rate 0.01. -k without -p, --bits-per-key and --tier stands for
the rate 2^-k, at which k probes are best for a classic filter; unless -n and the memory are both
given, from which the rate follows. -p and -k together say what a key takes, not how much in all.

Columns: memory and bytes are the same size, rounded and exact; probes are the bits tested per key,
lines the cache lines that takes; merge, remove and grow say what the kind can do later. What
only one kind has (--universe, --window, --width, ...) is left to that kind. A window is that of the
last -n keys unless --window says otherwise. A scalable filter is shown at the size it starts with.
The names of --json and --csv are the same; a kind that cannot do it has its reason as 'refused'.

Examples:
  inbloom plan -n 10e9 -p 1e-4             how large for ten billion keys, one in 10,000 wrong?
  inbloom plan -n 10e9 --bytes 25G         which rate in 25 GB?
  inbloom plan --bytes 64MiB -p 0.001      how many keys fit?
  inbloom plan -n 1M -m 10M -k 7           which rate with 10 million bits and 7 probes?
  inbloom plan -p 0.001 -k 8               how many bits for each key?
  inbloom plan -n 1M --csv > plan.csv
  inbloom plan -n 1M --tier middle
  inbloom plan --kind bitmap --universe 10M
  inbloom plan --kind window --window 7d -n 50M --generations 7

Exit status:
  0  at least one kind can do it
  2  none can; the reasons are on standard error";

/// Width of the first column: the kinds that refuse are not part of the aligned table.
const KIND_WIDTH: usize = 8;

/// Shares of the planned number of keys at which the curve shows the rate.
const CURVE: [f64; 6] = [0.25, 0.5, 0.75, 1.0, 1.5, 2.0];

/// The number of keys at which bits per key are shown if there is no number: as good as any large
/// one, since they differ only in small filters.
const MANY: u64 = 1_000_000_000;

pub fn run(args: &Args) -> Result<ExitCode> {
    let given =
        Sizing { bytes: args.sizing.bytes.or(args.bits.map(|bits| bits / 8)), ..args.sizing };
    let scope = if tells_only_bits_per_key(&given) { Scope::OneKey } else { Scope::AllKeys };
    let sizing = match scope {
        Scope::OneKey => Sizing { items: Some(MANY), ..given },
        Scope::AllKeys => given,
    };
    let rows: Vec<Row> = match args.kind {
        Some(kind) => vec![Row { kind, plan: with_window(sizing, kind).plan(kind) }],
        None => Kind::offered().map(|kind| Row { kind, plan: compared(sizing, kind) }).collect(),
    };
    if rows.iter().all(|row| row.plan.is_err()) {
        bail!(refusals(&rows, &given));
    }
    let text = match (args.json, args.csv) {
        (true, _) => format!("{:#}\n", as_json(&rows, scope)),
        (_, true) => as_csv(&rows, scope),
        _ => as_text(&rows, scope, &given),
    };
    output::print(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// What was asked about: a filter of so many keys, or what each key takes.
#[derive(Clone, Copy, PartialEq)]
enum Scope {
    AllKeys,
    OneKey,
}

/// Probes and a rate, or probes and bits per key, hold for any number of keys.
fn tells_only_bits_per_key(sizing: &Sizing) -> bool {
    let per_key = sizing.rate.is_some() || sizing.bits_per_key.is_some() || sizing.tier.is_some();
    let total = sizing.items.is_some() || sizing.bytes.is_some() || sizing.window.is_some();
    sizing.probes.is_some() && per_key && !total
}

fn parse_bits(text: &str) -> Result<u64, String> {
    match units::parse_count(text)? {
        0..8 => Err("expected at least 8, which is a byte".to_string()),
        bits => Ok(bits),
    }
}

/// One kind with its plan, or with why it has none.
struct Row {
    kind: Kind,
    plan: inbloom::Result<Plan>,
}

/// The plan of one kind among others, which is given only what concerns it: a bitmap is sized by
/// its universe and has no rate, the others have no universe, and so on.
fn compared(all: Sizing, kind: Kind) -> inbloom::Result<Plan> {
    let Sizing { items, universe, window, generations, width, growth, tightening, .. } = all;
    let common = Sizing {
        universe: None,
        window: None,
        generations: None,
        width: None,
        growth: None,
        tightening: None,
        ..all
    };
    if kind.can_grow() && items.is_none() {
        // It could start with any number, but a comparison needs one.
        return Err(Error::Underspecified { kind, needs: "the number of items to start with" });
    }
    let sizing = if kind.is_exact() {
        Sizing { items, universe, ..Sizing::default() }
    } else if kind.chooses_width() {
        Sizing { width, ..common }
    } else if kind.can_grow() {
        Sizing { growth, tightening, ..common }
    } else if kind.forgets() {
        Sizing { window, generations, ..common }
    } else {
        common
    };
    with_window(sizing, kind).plan(kind)
}

/// A window that is not said to reach back further is one of the keys it is planned for.
fn with_window(sizing: Sizing, kind: Kind) -> Sizing {
    match kind.forgets() {
        true => Sizing { window: sizing.window.or(sizing.items.map(Span::Items)), ..sizing },
        false => sizing,
    }
}

fn refusals(rows: &[Row], given: &Sizing) -> String {
    let lacks = |row: &Row| matches!(row.plan, Err(Error::Underspecified { .. }));
    let Sizing { items, bytes, universe, window, .. } = *given;
    let has_size = items.or(bytes).or(universe).is_some() || window.is_some();
    if !has_size && rows.iter().any(lacks) {
        let known = match given.rate.is_some() || given.probes.is_some() {
            true => "this tells how often a filter may be wrong, not how large it is",
            false => "nothing tells how large a filter is",
        };
        return format!(
            "{known}: add the number of keys (-n 1M) or the memory (--bytes 64MiB, -m 512M){}",
            if rows.iter().any(|row| row.kind.is_exact()) {
                ", or for a bitmap the number of possible integers (--universe 10M)"
            } else {
                ""
            }
        );
    }
    let refusal = |row: &Row| match &row.plan {
        Err(reason) => format!("\n  {}: {reason}", row.kind),
        Ok(_) => String::new(),
    };
    format!("no kind can be planned from this{}", rows.iter().map(refusal).collect::<String>())
}

fn as_text(rows: &[Row], scope: Scope, given: &Sizing) -> String {
    let plans: Vec<&Plan> = rows.iter().filter_map(|row| row.plan.as_ref().ok()).collect();
    let table = align(&table(&plans, scope));
    let mut lines = table.lines();
    let mut text = format!("{}\n", lines.next().unwrap_or_default());
    for row in rows {
        let line = match &row.plan {
            Ok(_) => lines.next().unwrap_or_default().to_string(),
            Err(reason) => refusal(row.kind, &reason.to_string()),
        };
        text.push_str(&line);
        text.push('\n');
    }
    let remarks: Vec<String> = plans
        .iter()
        .filter(|_| scope == Scope::AllKeys)
        .filter_map(|plan| remark(plan))
        .chain(general_remark(scope, given))
        .map(|remark| format!("{remark}\n"))
        .collect();
    if !remarks.is_empty() {
        text.push_str(&format!("\n{}", remarks.concat()));
    }
    // The curve of an exact kind, or for no keys, is flat at 0, and of one that grows or is built
    // from its keys at its rate.
    let rises = |plan: &&Plan| {
        let flat = plan.growth() > 0 || plan.kind().is_static();
        plan.rate() > 0.0 && plan.items() > 0 && !flat
    };
    let curves: Vec<&Plan> = plans.into_iter().filter(rises).collect();
    if !curves.is_empty() {
        text.push_str("\nRate when the filter holds more or fewer keys than planned:\n\n");
        text.push_str(&align(&curve(&curves)));
        text.push('\n');
        text.push_str(&plot_of(&curves));
    }
    text
}

/// A row that says why there is none, on several lines if need be.
fn refusal(kind: Kind, reason: &str) -> String {
    const WIDTH: usize = 100;
    let mut lines = vec![format!("{kind:<KIND_WIDTH$} ")];
    for word in reason.split(' ') {
        let line = lines.last_mut().expect("there is one");
        if line.len() + 1 + word.len() <= WIDTH {
            line.push_str(&format!(" {word}"));
        } else {
            lines.push(format!("{:KIND_WIDTH$}  {word}", ""));
        }
    }
    lines.join("\n")
}

/// What was concluded from what was given.
fn general_remark(scope: Scope, given: &Sizing) -> Option<String> {
    match (scope, given.rate_of_probes(), given.probes) {
        (Scope::OneKey, ..) => Some(
            "This holds for any large number of keys; with -n or --bytes the totals are shown too"
                .to_string(),
        ),
        (_, Some(rate), Some(probes)) => Some(format!(
            "-k {probes} stands for the rate 2^-{probes}, {}, at which it is best for a classic \
             filter",
            numbers::rate(rate),
        )),
        _ => None,
    }
}

/// The curves as a plot, each drawn with a letter of its kind's name.
fn plot_of(plans: &[&Plan]) -> String {
    let curves: Vec<plot::Curve> = plans
        .iter()
        .map(|plan| plot::Curve {
            letter: plan.kind().labels().letter,
            rate: Box::new(|share| rate_at(plan, plan.items() as f64 * share)),
        })
        .collect();
    // Kinds differ in their promise only if it follows from the memory: then the default kind's.
    let default = plans.iter().find(|plan| plan.kind() == Kind::default());
    let Some(promised) = default.or(plans.first()).map(|plan| plan.rate()) else {
        return String::new();
    };
    let drawn = |plan: &&Plan| format!("{} {}", plan.kind().labels().letter, plan.kind());
    let mut legend: Vec<String> = plans.iter().map(drawn).collect();
    if plans.len() > 1 {
        legend.push("* several".to_string());
    }
    legend.push("--- the promise".to_string());
    format!("{}\n{:>11}{}\n", plot::draw(&curves, promised), "", legend.join("   "))
}

/// What the columns do not say of a kind.
fn remark(plan: &Plan) -> Option<String> {
    let kind = plan.kind();
    match plan.span() {
        _ if kind.can_grow() && plan.growth() == 0 => {
            Some(format!("{kind} takes no more than these keys, since it may not grow"))
        }
        _ if kind.can_grow() => Some(format!(
            "{kind} starts at this size; what is full grows by {}, at the same rate",
            plan.growth()
        )),
        _ if kind.is_static() => Some(format!(
            "{kind} is built once from all its keys (static), and takes at most this size"
        )),
        Some(span) => {
            let span = match span {
                Span::Items(items) => format!("the last {} keys", numbers::exact(items)),
                Span::Millis(_) => span.to_string(),
            };
            let steps = plan.generations();
            Some(format!("{kind} keeps {span}, and forgets in {steps} steps"))
        }
        None => None,
    }
}

fn table(plans: &[&Plan], scope: Scope) -> Vec<Vec<String>> {
    let yes_or_no = |can: bool| if can { "yes" } else { "no" }.to_string();
    let totals = |cells: Vec<String>| if scope == Scope::AllKeys { cells } else { Vec::new() };
    let line =
        |kind: String, keys: String, per_key: String, size: [String; 2], rest: Vec<String>| {
            [vec![kind], totals(vec![keys]), vec![per_key], totals(size.to_vec()), rest].concat()
        };
    let named = |names: &[&str]| names.iter().map(ToString::to_string).collect();
    let mut lines = vec![line(
        "kind".to_string(),
        "keys".to_string(),
        "bits/key".to_string(),
        ["memory".to_string(), "bytes".to_string()],
        named(&["probes", "lines", "rate", "merge", "remove", "grow", "static"]),
    )];
    for plan in plans {
        let kind = plan.kind();
        lines.push(line(
            format!("{kind:<KIND_WIDTH$}"),
            numbers::count(plan.items()),
            format!("{:.2}", plan.bits_per_key()),
            [numbers::bytes(plan.bytes()), numbers::exact(plan.bytes())],
            vec![
                probes(plan).map_or("-".to_string(), |probes| probes.to_string()),
                plan.cache_lines().to_string(),
                numbers::rate(plan.rate()),
                yes_or_no(kind.can_merge()),
                yes_or_no(kind.can_remove()),
                yes_or_no(kind.can_grow()),
                yes_or_no(kind.is_static()),
            ],
        ));
    }
    lines
}

/// The bits tested per key, in kinds that test bits; the others compare fingerprints.
fn probes(plan: &Plan) -> Option<u32> {
    plan.kind().has_probes().then_some(plan.probes())
}

/// A line per share of the planned keys: the rate of each kind.
fn curve(plans: &[&Plan]) -> Vec<Vec<String>> {
    let mut head = vec!["keys".to_string()];
    head.extend(plans.iter().map(|plan| plan.kind().to_string()));
    let mut lines = vec![head];
    for share in CURVE {
        let mut line = vec![format!("{:.0}%", share * 100.0)];
        line.extend(plans.iter().map(|plan| {
            rate_at(plan, plan.items() as f64 * share).map_or("full".to_string(), numbers::rate)
        }));
        lines.push(line);
    }
    lines
}

/// The rate with so many keys; None if the filter refuses some of them, because it is full.
fn rate_at(plan: &Plan, items: f64) -> Option<f64> {
    let most = plan.capacity().map_or(f64::INFINITY, |capacity| capacity as f64);
    (items <= most).then(|| plan.rate_at(items))
}

/// Pads every column to its longest cell: the first to the right, numbers to the left.
fn align(lines: &[Vec<String>]) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        lines.iter().filter_map(|line| line.get(column)).map(String::len).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    // Two blanks between columns, or one where that would be more than 100 characters.
    let gap = if widths.iter().map(|width| width + 2).sum::<usize>() > 102 { " " } else { "  " };
    let mut text = String::new();
    for line in lines {
        let mut padded = String::new();
        for (column, cell) in line.iter().enumerate() {
            let width = widths[column];
            match column == 0 {
                true => padded.push_str(&format!("{cell:<width$}  ")),
                false => padded.push_str(&format!("{cell:>width$}{gap}")),
            }
        }
        text.push_str(padded.trim_end());
        text.push('\n');
    }
    text
}

fn as_json(rows: &[Row], scope: Scope) -> Value {
    let kinds: Vec<Value> = rows
        .iter()
        .map(|row| match &row.plan {
            Ok(plan) => {
                let mut fields = plan_as_json(plan, scope);
                let point = |share: f64| {
                    let items = plan.items() as f64 * share;
                    let shown = total(scope, json!(items));
                    json!({ "share": share, "items": shown, "rate": rate_at(plan, items) })
                };
                fields["curve"] = json!(CURVE.map(point));
                fields
            }
            Err(reason) => json!({ "kind": row.kind.to_string(), "refused": reason.to_string() }),
        })
        .collect();
    json!({ "kinds": kinds })
}

/// A number that depends on how many keys there are, if they were asked about.
fn total(scope: Scope, value: Value) -> Value {
    if scope == Scope::AllKeys { value } else { Value::Null }
}

fn plan_as_json(plan: &Plan, scope: Scope) -> Value {
    let mut fields = json!({
        "kind": plan.kind().to_string(),
        "items": total(scope, json!(plan.items())),
        "rate": plan.rate(),
        "bits": total(scope, json!(plan.bits())),
        "bits_per_key": plan.bits_per_key(),
        "bytes": total(scope, json!(plan.bytes())),
        "probes": probes(plan),
        "cache_lines": plan.cache_lines(),
        "merge": plan.kind().can_merge(),
        "remove": plan.kind().can_remove(),
        "grow": plan.kind().can_grow(),
        "static": plan.kind().is_static(),
        "forget": plan.span().is_some(),
    });
    for (name, value) in particulars(plan) {
        fields[name] = value;
    }
    fields
}

/// The columns of --csv: the fields of --json but the curve, and why a kind was refused.
const COLUMNS: [&str; 20] = [
    "kind",
    "items",
    "rate",
    "bits",
    "bits_per_key",
    "bytes",
    "probes",
    "cache_lines",
    "merge",
    "remove",
    "grow",
    "static",
    "forget",
    "width",
    "growth",
    "tightening",
    "window_ms",
    "window_keys",
    "generations",
    "refused",
];

fn as_csv(rows: &[Row], scope: Scope) -> String {
    let mut text = format!("{}\n", COLUMNS.join(","));
    for row in rows {
        let fields = match &row.plan {
            Ok(plan) => plan_as_json(plan, scope),
            Err(reason) => json!({ "kind": row.kind.to_string(), "refused": reason.to_string() }),
        };
        let cells: Vec<String> = COLUMNS.iter().map(|name| csv_cell(&fields[*name])).collect();
        text.push_str(&format!("{}\n", cells.join(",")));
    }
    text
}

/// A value as a cell, quoted where it must be (RFC 4180).
fn csv_cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) if text.contains([',', '"', '\n']) => {
            format!("\"{}\"", text.replace('"', "\"\""))
        }
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
