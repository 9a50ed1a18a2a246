//! `inbloom plan`: what a filter would cost, every kind side by side, before anything is built.

use std::process::ExitCode;

use anyhow::{Result, bail};
use inbloom::{Kind, Plan, Span};
use inbloom_server::calculator::{
    COLUMNS, Comparison, Question, Scope, probes, rate_at, row_as_json, rows_as_json,
};
use inbloom_server::units;
use serde_json::{Value, json};

use crate::sizing::{Sizing, kind_parser};
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

    /// Memory to use, in bits, not bytes: 10M, 3G (3 * 10^9 bits are 375 MB)
    #[arg(short = 'm', long, value_name = "M", value_parser = parse_bits, group = "memory")]
    bits: Option<u64>,

    // Last: its heading holds for all options that follow.
    #[command(flatten)]
    sizing: Sizing,
}

const AFTER_HELP: &str = "\
Pass what you know, and the rest is computed: any two of keys (-n), rate (-p), memory (-m or --bytes)
and probes (-k). -n alone takes the rate 0.01. -k alone takes the rate 2^-k, for which k probes are
best in a classic filter, unless -n and the memory are both given. -p and -k together give the bits
per key, not the total.

Columns: 'memory' and 'bytes' are the same size, rounded and exact. 'probes' are the bits tested per
key, 'lines' the cache lines they are in. 'merge', 'remove' and 'grow' say what the kind can do.
Options of one kind (--universe, --window, --width, ...) only apply to that kind. Without --window, a
window has the last -n keys. A scalable filter is shown at its first size. --json and --csv use the
same names; a kind that cannot be planned has the reason as 'refused'.

On the server, the row 'blocked' is BF.RESERVE with NONSCALING. Without NONSCALING the filter takes
more memory, about 12% at a rate of 0.001, so that it can grow later.

Sizes are read as in Redis and printed in thousands: 3GB is 3GiB, and is printed as 3.22 GB. 3G is
printed as 3.00 GB.

Examples:
  inbloom plan -n 10e9 -p 1e-4             the size for ten billion keys at a rate of 1e-4
  inbloom plan -n 10e9 --bytes 25G         the rate in 25 GB
  inbloom plan --bytes 64MiB -p 0.001      the number of keys that fit
  inbloom plan -n 1M -m 10M -k 7           the rate with 10 million bits and 7 probes
  inbloom plan -p 0.001 -k 8               the bits per key
  inbloom plan -n 1M --csv > plan.csv
  inbloom plan -n 1M --tier middle
  inbloom plan --kind bitmap --universe 10M
  inbloom plan --kind window --window 7d -n 50M --generations 7

Exit status:
  0  at least one kind can be planned
  2  no kind can be planned; the reasons are on standard error";

/// Width of the first column: the kinds that refuse are not part of the aligned table.
const KIND_WIDTH: usize = 8;

/// Shares of the planned number of keys at which the curve shows the rate.
const CURVE: [f64; 6] = [0.25, 0.5, 0.75, 1.0, 1.5, 2.0];

pub fn run(args: &Args) -> Result<ExitCode> {
    let bytes = args.sizing.bytes.or(args.bits.map(|bits| bits / 8));
    let question = Sizing { bytes, ..args.sizing }.question();
    let comparison = match args.kind {
        Some(kind) => question.only(kind),
        None => question.compare(),
    };
    if let Some(refusal) = comparison.refusal(&question) {
        bail!(refusal);
    }
    let text = match (args.json, args.csv) {
        (true, _) => format!("{:#}\n", json!({ "kinds": rows_as_json(&comparison) })),
        (_, true) => as_csv(&comparison),
        _ => as_text(&comparison, &question),
    };
    output::print(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn parse_bits(text: &str) -> Result<u64, String> {
    match units::parse_count(text)? {
        0..8 => Err("expected at least 8, which is a byte".to_string()),
        bits => Ok(bits),
    }
}

fn as_text(comparison: &Comparison, given: &Question) -> String {
    let Comparison { scope, rows } = comparison;
    let scope = *scope;
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
fn general_remark(scope: Scope, given: &Question) -> Option<String> {
    match (scope, given.rate_of_probes(), given.probes) {
        (Scope::OneKey, ..) => Some(
            "This is the same for any large number of keys; pass -n or --bytes to see the totals"
                .to_string(),
        ),
        (_, Some(rate), Some(probes)) => Some(format!(
            "-k {probes} stands for the rate 2^-{probes} = {}, for which it is the best number in \
             a classic filter",
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
    // The target rates of kinds differ only if they follow from the memory. Then that of the
    // default kind is used.
    let default = plans.iter().find(|plan| plan.kind() == Kind::default());
    let Some(promised) = default.or(plans.first()).map(|plan| plan.rate()) else {
        return String::new();
    };
    let drawn = |plan: &&Plan| format!("{} {}", plan.kind().labels().letter, plan.kind());
    let mut legend: Vec<String> = plans.iter().map(drawn).collect();
    if plans.len() > 1 {
        legend.push("* several".to_string());
    }
    legend.push("--- target rate".to_string());
    format!("{}\n{:>11}{}\n", plot::draw(&curves, promised), "", legend.join("   "))
}

/// What the columns do not say of a kind.
fn remark(plan: &Plan) -> Option<String> {
    let kind = plan.kind();
    match plan.span() {
        _ if kind.can_grow() && plan.growth() == 0 => {
            Some(format!("{kind} with growth 0 takes no more than these keys"))
        }
        _ if kind.can_grow() => Some(format!(
            "{kind} starts at this size and grows by {} when it is full, at the same rate",
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
            Some(format!("{kind} keeps {span}, and drops the oldest in {steps} steps"))
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

fn as_csv(comparison: &Comparison) -> String {
    let mut text = format!("{}\n", COLUMNS.join(","));
    for row in &comparison.rows {
        let fields = row_as_json(row, comparison.scope);
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
