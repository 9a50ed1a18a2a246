//! `inbloom info` of a filter on Redis, and of all filters on a server.

use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use inbloom::Estimate;
use inbloom_redis::{Address, Listed, RedisFilter, Server};
use serde_json::{Value, json};

use super::{Args, printable, wrapped};
use crate::output::problem;
use crate::{filter_file, numbers, output};

/// Describes one filter.
pub fn one(args: &Args, address: &Address) -> Result<ExitCode> {
    ensure!(
        !args.histogram,
        problem(
            "--histogram only works for a file",
            format!("copy the filter into one: inbloom pull {address} FILE")
        )
    );
    let filter = args.redis.open(address, args.open.key()?.as_ref())?;
    let named = || address.to_string();
    let occupied = filter.occupied().with_context(named)?;
    let left = filter.time_to_live().with_context(named)?;
    let text = match args.json {
        true => format!("{:#}\n", as_json(address, &filter, occupied, left)),
        false => as_text(address, &filter, occupied, left),
    };
    output::print(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn as_text(
    address: &Address,
    filter: &RedisFilter,
    occupied: u64,
    left: Option<Duration>,
) -> String {
    let (plan, client) = (filter.plan(), filter.client());
    let Estimate { items, error } = plan.estimate(occupied);
    let (exact, rate) = (numbers::exact, numbers::rate);
    let servers = match client.is_cluster() {
        true => format!("a cluster of {}", numbers::counted(client.masters() as u64, "master")),
        false => "one server".to_owned(),
    };
    let now = plan.rate_at(items);
    let verdict = match () {
        () if now <= plan.rate() => "within the target",
        () if items - 3.0 * error <= plan.items() as f64 => "at the target, within chance",
        () => "ABOVE the target: it holds more keys than planned",
    };
    let expires =
        left.map_or("never".to_owned(), |left| format!("in {} s", numbers::exact(left.as_secs())));
    let rows = [
        ("address", format!("{address}, {servers}")),
        ("kind", plan.kind().name().to_owned()),
        ("planned keys", exact(plan.items())),
        ("target rate", rate(plan.rate())),
        ("bits", exact(plan.bits())),
        (
            "memory",
            format!(
                "{} bytes in {}, {:.2} bits per planned key",
                exact(plan.bytes()),
                numbers::counted(filter.chunks(), "value"),
                plan.bits_per_key()
            ),
        ),
        ("probes", format!("{} per key", plan.probes())),
        ("hash", filter_file::shown(filter.hasher())),
        (
            "estimated keys",
            format!("{} +- {}", exact(items.round() as u64), exact(error.ceil() as u64)),
        ),
        ("bits set", format!("{} ({})", exact(occupied), numbers::share(plan.fill_at(items)))),
        ("current rate", format!("{}, {verdict}", rate(now))),
        ("expires", expires),
        ("normalization", printable(filter.normalization()).into_owned()),
        ("note", printable(filter.note()).into_owned()),
    ];
    rows.iter().map(|(label, value)| wrapped(label, value)).collect()
}

fn as_json(
    address: &Address,
    filter: &RedisFilter,
    occupied: u64,
    left: Option<Duration>,
) -> Value {
    let (plan, client) = (filter.plan(), filter.client());
    let Estimate { items, error } = plan.estimate(occupied);
    json!({
        "address": address.to_string(),
        "cluster": client.is_cluster(),
        "masters": client.masters(),
        "values": filter.chunks(),
        "created": seconds(filter.created()),
        "expires_in_seconds": left.map(|left| left.as_secs_f64()),
        "kind": plan.kind().to_string(),
        "planned_items": plan.items(),
        "target_rate": plan.rate(),
        "bits": plan.bits(),
        "bits_per_key": plan.bits_per_key(),
        "bytes": plan.bytes(),
        "probes": plan.probes(),
        "hash": filter.hasher().name(),
        "hash_seed": filter.hasher().seed(),
        "estimated_items": items,
        "estimated_items_error": error,
        "occupied": occupied,
        "fill": plan.fill_at(items),
        "current_rate": plan.rate_at(items),
        "normalization": filter.normalization(),
        "note": filter.note(),
    })
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Lists the filters of a server or cluster.
pub fn all(args: &Args, server: &Server) -> Result<ExitCode> {
    ensure!(
        !args.histogram,
        problem(
            "--histogram only works for a file",
            "copy the filter into one with 'inbloom pull'"
        )
    );
    let client = args.redis.connect(server)?;
    let filters = RedisFilter::list(&client).with_context(|| server.to_string())?;
    let text = match args.json {
        true => {
            let listed: Vec<Value> = filters.iter().map(row_as_json).collect();
            format!("{:#}\n", Value::from(listed))
        }
        false => filters.iter().map(row_as_text).collect(),
    };
    output::print(text.as_bytes())?;
    if filters.is_empty() {
        output::say(format_args!("{server} has no filters"));
    }
    Ok(ExitCode::SUCCESS)
}

fn row_as_text(filter: &Listed) -> String {
    let plan = &filter.plan;
    let name = String::from_utf8_lossy(&filter.name);
    format!(
        "{}\t{} planned\trate {}\t{}{}\n",
        output::printable(&name),
        numbers::keys(plan.items()),
        numbers::rate(plan.rate()),
        numbers::bytes(plan.bytes()),
        if filter.is_lost { "\tlost: delete it" } else { "" },
    )
}

fn row_as_json(filter: &Listed) -> Value {
    json!({
        "name": String::from_utf8_lossy(&filter.name),
        "planned_items": filter.plan.items(),
        "target_rate": filter.plan.rate(),
        "bytes": filter.plan.bytes(),
        "created": seconds(filter.created),
        "lost": filter.is_lost,
    })
}
