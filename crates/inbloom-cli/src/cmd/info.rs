//! `inbloom info`: one screen about a filter's file.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use inbloom::Filter;
use serde_json::json;

use crate::{filter_file, numbers, output};

/// Show a filter's parameters, how full it is, and its current rate against the promise
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// The filter's file
    filter: PathBuf,

    /// Print one JSON object
    #[arg(long)]
    json: bool,

    /// Read the whole file and check all its checksums
    #[arg(long)]
    verify: bool,
}

const AFTER_HELP: &str = "\
Examples:
  inbloom info seen.ib
  inbloom info --verify seen.ib                      is the file undamaged?
  inbloom info --json seen.ib | jq .current_rate

Exit status:
  0  the file is a filter, and undamaged as far as was checked
  2  it is not, or cannot be read";

pub fn run(args: &Args) -> Result<ExitCode> {
    let filter = filter_file::open(&args.filter)?;
    if args.verify {
        filter_file::verify(&args.filter)?;
    }
    let metadata = fs::metadata(&args.filter);
    let file_bytes = metadata.with_context(|| format!("cannot read {:?}", args.filter))?.len();
    let text = match args.json {
        true => format!("{:#}\n", as_json(&filter, file_bytes, args.verify)),
        false => as_text(&filter, file_bytes, args.verify),
    };
    output::print(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn as_text(filter: &Filter, file_bytes: u64, verified: bool) -> String {
    let plan = filter.plan();
    let estimate = filter.estimated_items();
    let (exact, rate, share) = (numbers::exact, numbers::rate, numbers::share);
    let mut text = String::new();
    let mut row = |label: &str, value: &str| text.push_str(&format!("{label:<15} {value}\n"));

    row("kind", plan.kind().name());
    row("planned keys", &exact(plan.items()));
    row("promised rate", &rate(plan.rate()));
    row("bits", &exact(plan.bits()));
    row(
        "memory",
        &format!("{} bytes, {:.2} bits per planned key", exact(plan.bytes()), plan.bits_per_key()),
    );
    row("probes", &format!("{} per key", plan.probes()));
    row("cache lines", &format!("{} per query", plan.cache_lines()));
    row("hash", filter.hasher().name());

    row("keys told new", &exact(filter.inserted()));
    let (items, error) = (estimate.items.round() as u64, estimate.error.ceil() as u64);
    row("estimated keys", &format!("{} +- {}", exact(items), exact(error)));
    row("bits set", &format!("{} ({})", exact(filter.ones()), share(filter.fill())));
    row("current rate", &format!("{}, {}", rate(filter.rate()), verdict(filter)));

    let auto_clear = filter.auto_clear().map(|limit| format!("above {} of bits set", share(limit)));
    row("auto-clear", &auto_clear.unwrap_or("never".to_string()));
    row("normalization", &printable(filter.normalization()));
    row("note", &printable(filter.note()));
    row("file size", &format!("{} bytes", exact(file_bytes)));
    row("checksums", if verified { "all good" } else { "header good; --verify checks the rest" });
    text
}

/// The current rate against the promise. At the planned number of keys the fill scatters around its
/// expectation, so half of all good filters are a little above it: that is not worth an alarm.
fn verdict(filter: &Filter) -> &'static str {
    let plan = filter.plan();
    let estimate = filter.estimated_items();
    if filter.rate() <= plan.rate() {
        "within the promise"
    } else if estimate.items - 3.0 * estimate.error <= plan.items() as f64 {
        "at the promise, within chance"
    } else {
        "ABOVE the promise: it holds more keys than planned"
    }
}

fn as_json(filter: &Filter, file_bytes: u64, verified: bool) -> serde_json::Value {
    let plan = filter.plan();
    let estimate = filter.estimated_items();
    json!({
        "kind": plan.kind().to_string(),
        "planned_items": plan.items(),
        "promised_rate": plan.rate(),
        "bits": plan.bits(),
        "bits_per_key": plan.bits_per_key(),
        "bytes": plan.bytes(),
        "probes": plan.probes(),
        "cache_lines": plan.cache_lines(),
        "hash": filter.hasher().name(),
        "inserted": filter.inserted(),
        "estimated_items": estimate.items,
        "estimated_items_error": estimate.error,
        "ones": filter.ones(),
        "fill": filter.fill(),
        "current_rate": filter.rate(),
        "auto_clear": filter.auto_clear(),
        "normalization": filter.normalization(),
        "note": filter.note(),
        "file_bytes": file_bytes,
        "verified": verified,
    })
}

/// Text from a file that may be a stranger's: no control character reaches the terminal.
fn printable(text: &str) -> String {
    if text.is_empty() {
        return "none".to_string();
    }
    let shown = |c: char| match c.is_control() {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    };
    text.chars().map(shown).collect()
}
