//! Very many very small filters: what each takes, and whether the cost of one depends on how many
//! there are.

use std::error::Error;
use std::time::{Duration, Instant};
use std::{io, thread};

use super::client::{Client, wrong};
use super::process::Server;
use super::script::{self, Cost, Expected, Script, Shape, Tally};
use crate::{report, workload};

/// Items of each, which is what it is reserved for.
const ITEMS: u64 = 100;
pub(super) const RATE: f64 = 0.01;

/// Commands in a pipeline.
const DEPTH: usize = 100;

/// Filters for which requests are made before they are sent: with their items, 60 MB of them.
const STEP: u64 = 20_000;

/// Queries, one item of one filter each.
const QUERIES: u64 = 200_000;

/// What a filter may take beside its name, in bytes.
const MOST_BYTES: f64 = 400.0;

/// Expired filters that are not gone after so long stay.
const PATIENCE: Duration = Duration::from_secs(120);

/// What was measured with so many filters.
struct Row {
    filters: u64,
    /// None where memory of earlier filters was used again, so that it does not tell.
    bytes: Option<f64>,
    reserve: Cost,
    fill: Cost,
    query: Cost,
    expire: Cost,
    /// From the first PEXPIRE until all were gone.
    gone_after: Duration,
}

/// The counts of filters, the largest first: only the first one begins with fresh memory.
pub(crate) fn run(server: &Server, counts: &[u64]) -> Result<(), Box<dyn Error>> {
    let mut client = server.connect()?;
    if !client.knows("BF.EXISTS bench:x x")? {
        println!("{} does not know BF.*: small filters are not measured", server.name);
        return Ok(());
    }
    let mut rows = Vec::new();
    for &filters in counts {
        eprintln!("small filters: {}", report::count(filters));
        rows.push(cycle(server, &mut client, filters, rows.is_empty())?);
    }
    print(&rows);
    Ok(())
}

/// The name of a filter: 16 bytes.
fn name(number: u64) -> String {
    format!("bench:{number:010}")
}

/// An item of a filter, or one that none has.
fn identity(filter: u64, item: u64) -> u64 {
    filter * ITEMS + item
}

/// Creates, fills, asks and expires so many filters.
fn cycle(server: &Server, client: &mut Client, filters: u64, is_first: bool) -> io::Result<Row> {
    let keys_before = client.ask_number("DBSIZE")?;
    let memory_before = server.process.resident()?;
    let (reserve, fill) = make(server, client, filters)?;
    let memory = server.process.resident()?.saturating_sub(memory_before);

    let queries = queries(filters, 0..QUERIES);
    let query = script::measure(server.process, std::slice::from_mut(client), &[queries])?;
    query.tally.check(RATE)?;

    let (worked, start) = (server.process.worked()?, Instant::now());
    let mut expire = in_steps(server, client, filters, &|numbers| {
        let mut script = Script::new(Shape::Single, DEPTH);
        for number in numbers {
            script.push(&[b"PEXPIRE", name(number).as_bytes(), b"1"], Expected::Surely(true));
        }
        script
    })?;
    loop {
        let keys = client.ask_number("DBSIZE")?;
        if keys <= keys_before {
            break;
        }
        if start.elapsed() > PATIENCE {
            let left = keys - keys_before;
            return Err(wrong(format!("{left} filters of {filters} have not expired")));
        }
        thread::sleep(Duration::from_millis(20));
    }
    // With what the server did to remove them, in between and afterwards.
    expire.processor = server.process.worked()?.saturating_sub(worked);
    let gone_after = start.elapsed();

    let bytes = memory as f64 / filters as f64 - name(0).len() as f64;
    let bytes = is_first.then_some(bytes);
    Ok(Row { filters, bytes, reserve, fill, query, expire, gone_after })
}

/// Reserves and fills so many filters, and tells what each of both cost.
pub(super) fn make(server: &Server, client: &mut Client, filters: u64) -> io::Result<(Cost, Cost)> {
    let rate = RATE.to_string();
    let items = ITEMS.to_string();
    let reserve = in_steps(server, client, filters, &|numbers| {
        let mut script = Script::new(Shape::Single, DEPTH);
        for number in numbers {
            let name = name(number);
            let words: [&[u8]; 4] =
                [b"BF.RESERVE", name.as_bytes(), rate.as_bytes(), items.as_bytes()];
            script.push(&words, Expected::Ok);
        }
        script
    })?;
    // One command at a time, as its hundred items fill a packet.
    let fill = in_steps(server, client, filters, &|numbers| {
        let mut script = Script::new(Shape::Array, 1);
        for number in numbers {
            let items = (0..ITEMS as usize)
                .map(|item| (script::key(identity(number, item as u64)), Expected::Usually(true)));
            script.push_many(&[b"BF.MADD", name(number).as_bytes()], items);
        }
        script
    })?;
    Ok((reserve, fill))
}

/// Queries of so many filters, the even ones for items and the odd ones for absent ones.
pub(super) fn queries(filters: u64, numbers: std::ops::Range<u64>) -> Script {
    let mut queries = Script::new(Shape::Single, DEPTH);
    for number in numbers {
        let filter = workload::mix(number) % filters;
        let (key, expected) = if number.is_multiple_of(2) {
            let item = workload::mix(!number) % ITEMS;
            (script::key(identity(filter, item)), Expected::Surely(true))
        } else {
            (script::absent_key(number), Expected::Usually(false))
        };
        queries.push(&[b"BF.EXISTS", name(filter).as_bytes(), &key], expected);
    }
    queries
}

/// Plays scripts for all filters, a part of them at a time.
fn in_steps(
    server: &Server,
    client: &mut Client,
    filters: u64,
    script: &dyn Fn(std::ops::Range<u64>) -> Script,
) -> io::Result<Cost> {
    let mut sum = Cost { processor: Duration::ZERO, wall: Duration::ZERO, tally: Tally::default() };
    for begin in (0..filters).step_by(STEP as usize) {
        let script = script(begin..filters.min(begin + STEP));
        let step = script::measure(server.process, std::slice::from_mut(client), &[script])?;
        sum.processor += step.processor;
        sum.wall += step.wall;
        sum.tally += step.tally;
    }
    sum.tally.check(RATE)?;
    Ok(sum)
}

fn print(rows: &[Row]) {
    println!(
        "\nfilters of {ITEMS} items at {}%, names of {} bytes: ns of server CPU per filter",
        RATE * 100.0,
        name(0).len()
    );
    println!(
        "{:<10}{:>14}{:>14}{:>18}{:>12}{:>20}{:>10}{:>16}  note",
        "filters",
        "bytes each",
        "BF.RESERVE",
        "BF.MADD of 100",
        "BF.EXISTS",
        "PEXPIRE and expiry",
        "gone s",
        "goal"
    );
    for row in rows {
        let filters = row.filters as f64;
        let per_filter = |cost: &Cost| cost.processor.as_nanos() as f64 / filters;
        let bytes = row.bytes.map_or("-".to_string(), |bytes| format!("{bytes:.1}"));
        let goal = row.bytes.map_or(String::new(), |bytes| super::at_most(bytes, MOST_BYTES));
        println!(
            "{:<10}{bytes:>14}{:>14.1}{:>18.1}{:>12.1}{:>20.1}{:>10.2}{goal:>16}  {}",
            report::count(row.filters),
            per_filter(&row.reserve),
            per_filter(&row.fill),
            row.query.ns(),
            per_filter(&row.expire),
            row.gone_after.as_secs_f64(),
            row.query.tally.note(RATE)
        );
    }
    println!("bytes: resident memory of the server after less before, without the name");
}
