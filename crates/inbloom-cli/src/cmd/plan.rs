//! `inbloom plan`: what a filter would cost, every kind side by side, before anything is built.

use std::process::ExitCode;

use anyhow::{Result, bail};
use inbloom::{Kind, Plan};
use serde_json::{Value, json};

use crate::sizing::{Sizing, kind_parser};
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
lines the cache lines that takes; merge, remove and grow say what the kind can do later.

Examples:
  inbloom plan -n 10e9 -p 1e-4             how large for ten billion keys, one in 10,000 wrong?
  inbloom plan -n 10e9 --bytes 25GB        which rate in 25 GB?
  inbloom plan --bytes 64MiB -p 0.001      how many keys fit?
  inbloom plan -n 1M --tier middle
  inbloom plan --kind bitmap --universe 10M

Exit status:
  0  at least one kind can do it
  2  none can; the reasons are on standard error";

/// Width of the first column: the kinds that refuse are not part of the aligned table.
const KIND_WIDTH: usize = 7;

/// Shares of the planned number of keys at which the curve shows the rate.
const CURVE: [f64; 6] = [0.25, 0.5, 0.75, 1.0, 1.5, 2.0];

pub fn run(args: &Args) -> Result<ExitCode> {
    let rows: Vec<Row> = match args.kind {
        Some(kind) => vec![Row { kind, plan: args.sizing.plan(kind) }],
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
/// its universe and has no rate, the others have no universe.
fn compared(args: &Args, kind: Kind) -> inbloom::Result<Plan> {
    let Sizing { items, universe, .. } = args.sizing;
    let sizing = match kind {
        Kind::Bitmap => Sizing { items, universe, ..Sizing::default() },
        _ => Sizing { universe: None, ..args.sizing },
    };
    sizing.plan(kind)
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
    // The curve of an exact kind, or for no keys, is flat at 0.
    let rises = |plan: &&Plan| plan.rate() > 0.0 && plan.items() > 0;
    let curves: Vec<&Plan> = plans.into_iter().filter(rises).collect();
    if !curves.is_empty() {
        text.push_str("\nRate when the filter holds more or fewer keys than planned:\n\n");
        text.push_str(&align(&curve(&curves)));
    }
    text
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
            plan.probes().to_string(),
            plan.cache_lines().to_string(),
            numbers::rate(plan.rate()),
            yes_or_no(kind.can_merge()),
            yes_or_no(kind.can_remove()),
            yes_or_no(kind.can_grow()),
        ]);
    }
    lines
}

/// A line per share of the planned keys: the rate of each kind, and a bar for the last kind's.
fn curve(plans: &[&Plan]) -> Vec<Vec<String>> {
    let Some(last) = plans.last() else { return Vec::new() };
    let lowest = rate_at_share(last, CURVE[0]);
    let mut head = vec!["keys".to_string()];
    head.extend(plans.iter().map(|plan| plan.kind().to_string()));
    head.push(format!(" {}, log scale", last.kind()));
    let mut lines = vec![head];
    for share in CURVE {
        let mut line = vec![format!("{:.0}%", share * 100.0)];
        line.extend(plans.iter().map(|plan| numbers::rate(rate_at_share(plan, share))));
        line.push(format!(" {}", bar(rate_at_share(last, share), lowest)));
        lines.push(line);
    }
    lines
}

fn rate_at_share(plan: &Plan, share: f64) -> f64 {
    plan.rate_at(plan.items() as f64 * share)
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
        json!({ "items": items, "rate": plan.rate_at(items) })
    };
    json!({
        "kind": plan.kind().to_string(),
        "items": plan.items(),
        "rate": plan.rate(),
        "bits": plan.bits(),
        "bits_per_key": plan.bits_per_key(),
        "bytes": plan.bytes(),
        "probes": plan.probes(),
        "cache_lines": plan.cache_lines(),
        "merge": plan.kind().can_merge(),
        "remove": plan.kind().can_remove(),
        "grow": plan.kind().can_grow(),
        "curve": CURVE.map(point),
    })
}
