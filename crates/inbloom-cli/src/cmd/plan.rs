//! `inbloom plan`: what a filter would cost, every kind side by side, before anything is built.

use std::process::ExitCode;

use anyhow::{Result, bail};
use inbloom::{Error, Kind, Plan, Span};
use serde_json::{Value, json};

use crate::sizing::{Sizing, kind_parser, particulars};
use crate::{numbers, output};

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

    // Last: its heading holds for all options that follow.
    #[command(flatten)]
    sizing: Sizing,
}

const AFTER_HELP: &str = "\
Give what you know, the rest is computed: keys and rate, keys and memory, memory and rate, ...
Without any of -p, --bytes, --bits-per-key and --tier the rate is 0.01.

Columns: memory and bytes are the same size, rounded and exact; probes are the bits tested per key,
lines the cache lines that takes; merge, remove and grow say what the kind can do later. What
only one kind has (--universe, --window, --width, ...) is left to that kind. A window is that of the
last -n keys unless --window says otherwise. A scalable filter is shown at the size it starts with.

Examples:
  inbloom plan -n 10e9 -p 1e-4             how large for ten billion keys, one in 10,000 wrong?
  inbloom plan -n 10e9 --bytes 25GB        which rate in 25 GB?
  inbloom plan --bytes 64MiB -p 0.001      how many keys fit?
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

pub fn run(args: &Args) -> Result<ExitCode> {
    let rows: Vec<Row> = match args.kind {
        Some(kind) => vec![Row { kind, plan: with_window(args.sizing, kind).plan(kind) }],
        None => Kind::ALL.iter().map(|&kind| Row { kind, plan: compared(args, kind) }).collect(),
    };
    if rows.iter().all(|row| row.plan.is_err()) {
        bail!(refusals(&rows));
    }
    let text = match args.json {
        true => format!("{:#}\n", as_json(&rows)),
        false => as_text(&rows),
    };
    output::print(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// One kind with its plan, or with why it has none.
struct Row {
    kind: Kind,
    plan: inbloom::Result<Plan>,
}

/// The plan of one kind among others, which is given only what concerns it: a bitmap is sized by
/// its universe and has no rate, the others have no universe, and so on.
fn compared(args: &Args, kind: Kind) -> inbloom::Result<Plan> {
    let Sizing { items, universe, window, generations, width, growth, .. } = args.sizing;
    let common = Sizing {
        universe: None,
        window: None,
        generations: None,
        width: None,
        growth: None,
        ..args.sizing
    };
    if kind == Kind::Scalable && items.is_none() {
        // It could start with any number, but a comparison needs one.
        return Err(Error::Underspecified { kind, needs: "the number of items to start with" });
    }
    let sizing = match kind {
        Kind::Bitmap => Sizing { items, universe, ..Sizing::default() },
        Kind::Counting => Sizing { width, ..common },
        Kind::Scalable => Sizing { growth, ..common },
        Kind::Window => Sizing { window, generations, ..common },
        _ => common,
    };
    with_window(sizing, kind).plan(kind)
}

/// A window that is not said to reach back further is one of the keys it is planned for.
fn with_window(sizing: Sizing, kind: Kind) -> Sizing {
    match kind {
        Kind::Window => {
            Sizing { window: sizing.window.or(sizing.items.map(Span::Items)), ..sizing }
        }
        _ => sizing,
    }
}

fn refusals(rows: &[Row]) -> String {
    let refusal = |row: &Row| match &row.plan {
        Err(reason) => format!("\n  {}: {reason}", row.kind),
        Ok(_) => String::new(),
    };
    format!("no kind can be planned from this{}", rows.iter().map(refusal).collect::<String>())
}

fn as_text(rows: &[Row]) -> String {
    let plans: Vec<&Plan> = rows.iter().filter_map(|row| row.plan.as_ref().ok()).collect();
    let table = align(&table(&plans));
    let mut lines = table.lines();
    let mut text = format!("{}\n", lines.next().unwrap_or_default());
    for row in rows {
        let line = match &row.plan {
            Ok(_) => lines.next().unwrap_or_default().to_string(),
            Err(reason) => format!("{:<KIND_WIDTH$}  {reason}", row.kind),
        };
        text.push_str(&line);
        text.push('\n');
    }
    for remark in plans.iter().filter_map(|plan| remark(plan)) {
        text.push_str(&format!("\n{remark}"));
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    // The curve of an exact kind, or for no keys, is flat at 0, and of a growing one at its rate.
    let rises = |plan: &&Plan| plan.rate() > 0.0 && plan.items() > 0 && plan.growth() == 0;
    let curves: Vec<&Plan> = plans.into_iter().filter(rises).collect();
    if !curves.is_empty() {
        text.push_str("\nRate when the filter holds more or fewer keys than planned:\n\n");
        text.push_str(&align(&curve(&curves)));
    }
    text
}

/// What the columns do not say of a kind.
fn remark(plan: &Plan) -> Option<String> {
    match (plan.kind(), plan.span()) {
        (Kind::Scalable, _) if plan.growth() == 0 => {
            Some("scalable takes no more than these keys, since it may not grow".to_string())
        }
        (Kind::Scalable, _) => Some(format!(
            "scalable starts at this size; what is full grows by {}, at the same rate",
            plan.growth()
        )),
        (Kind::Window, Some(span)) => {
            let span = match span {
                Span::Items(items) => format!("the last {} keys", numbers::exact(items)),
                Span::Millis(_) => span.to_string(),
            };
            let steps = plan.generations();
            Some(format!("window keeps {span}, and forgets in {steps} steps"))
        }
        _ => None,
    }
}

fn table(plans: &[&Plan]) -> Vec<Vec<String>> {
    let head = [
        "kind", "keys", "bits/key", "memory", "bytes", "probes", "lines", "rate", "merge",
        "remove", "grow",
    ];
    let yes_or_no = |can: bool| if can { "yes" } else { "no" }.to_string();
    let mut lines = vec![head.map(str::to_string).to_vec()];
    for plan in plans {
        let kind = plan.kind();
        lines.push(vec![
            format!("{kind:<KIND_WIDTH$}"),
            numbers::count(plan.items()),
            format!("{:.2}", plan.bits_per_key()),
            numbers::bytes(plan.bytes()),
            numbers::exact(plan.bytes()),
            probes(plan).map_or("-".to_string(), |probes| probes.to_string()),
            plan.cache_lines().to_string(),
            numbers::rate(plan.rate()),
            yes_or_no(kind.can_merge()),
            yes_or_no(kind.can_remove()),
            yes_or_no(kind.can_grow()),
        ]);
    }
    lines
}

/// The bits tested per key, in kinds that test bits; the others compare fingerprints.
fn probes(plan: &Plan) -> Option<u32> {
    let fingerprints = matches!(plan.kind(), Kind::Cuckoo | Kind::Scalable);
    (!fingerprints).then_some(plan.probes())
}

/// A line per share of the planned keys: the rate of each kind, and a bar for the default kind's,
/// or if it is not there the last one's.
fn curve(plans: &[&Plan]) -> Vec<Vec<String>> {
    let default = plans.iter().find(|plan| plan.kind() == Kind::Blocked);
    let Some(shown) = default.or(plans.last()) else { return Vec::new() };
    let at_share = |plan: &Plan, share: f64| rate_at(plan, plan.items() as f64 * share);
    let lowest = at_share(shown, CURVE[0]).unwrap_or(shown.rate());
    let mut head = vec!["keys".to_string()];
    head.extend(plans.iter().map(|plan| plan.kind().to_string()));
    head.push(format!(" {}, log scale", shown.kind()));
    let mut lines = vec![head];
    for share in CURVE {
        let mut line = vec![format!("{:.0}%", share * 100.0)];
        let shown_rate =
            |plan: &&Plan| at_share(plan, share).map_or("full".to_string(), numbers::rate);
        line.extend(plans.iter().map(shown_rate));
        let marks = at_share(shown, share).map_or(String::new(), |rate| bar(rate, lowest));
        line.push(format!(" {marks}"));
        lines.push(line);
    }
    lines
}

/// The rate with so many keys; None if the filter refuses some of them, because it is full.
fn rate_at(plan: &Plan, items: f64) -> Option<f64> {
    let refuses = match plan.kind() {
        Kind::Cuckoo => true,
        Kind::Scalable => plan.growth() == 0,
        _ => false,
    };
    let most = if refuses { plan.items_at(1.0) as f64 } else { f64::INFINITY };
    (items <= most).then(|| plan.rate_at(items))
}

/// One mark at `lowest`, a full bar at 1, equal lengths for equal factors between.
fn bar(rate: f64, lowest: f64) -> String {
    const WIDTH: f64 = 30.0;
    let length = WIDTH * (1.0 - rate.ln() / lowest.ln());
    "#".repeat(1 + length.clamp(0.0, WIDTH) as usize)
}

/// Pads every column to its longest cell: the first and the bars to the right, numbers to the left.
fn align(lines: &[Vec<String>]) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        lines.iter().filter_map(|line| line.get(column)).map(String::len).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for line in lines {
        let mut padded = String::new();
        for (column, cell) in line.iter().enumerate() {
            let width = widths[column];
            match column == 0 || cell.starts_with(' ') {
                true => padded.push_str(&format!("{cell:<width$}  ")),
                false => padded.push_str(&format!("{cell:>width$}  ")),
            }
        }
        text.push_str(padded.trim_end());
        text.push('\n');
    }
    text
}

fn as_json(rows: &[Row]) -> Value {
    let kinds: Vec<Value> = rows
        .iter()
        .map(|row| match &row.plan {
            Ok(plan) => plan_as_json(plan),
            Err(reason) => json!({ "kind": row.kind.to_string(), "refused": reason.to_string() }),
        })
        .collect();
    json!({ "kinds": kinds })
}

fn plan_as_json(plan: &Plan) -> Value {
    let point = |share: f64| {
        let items = plan.items() as f64 * share;
        json!({ "items": items, "rate": rate_at(plan, items) })
    };
    let mut fields = json!({
        "kind": plan.kind().to_string(),
        "items": plan.items(),
        "rate": plan.rate(),
        "bits": plan.bits(),
        "bits_per_key": plan.bits_per_key(),
        "bytes": plan.bytes(),
        "probes": probes(plan),
        "cache_lines": plan.cache_lines(),
        "merge": plan.kind().can_merge(),
        "remove": plan.kind().can_remove(),
        "grow": plan.kind().can_grow(),
        "forget": plan.span().is_some(),
        "curve": CURVE.map(point),
    });
    for (name, value) in particulars(plan) {
        fields[name] = value;
    }
    fields
}
