//! The goals that inbloom set itself, each computed from the numbers of one run.
//!
//! All are ratios at a target of 0.1%: of fastbloom's time to ours, or of the limit's time to ours.
//! After them comes every number of the table at which a peer that accepts inserts was faster than
//! inbloom at an equal or lower rate, so that no cell can be overlooked.

use std::io::{self, Write};

use crate::limit::HUGE_PAGES;
use crate::ours::BLOCKED;
use crate::race::Op;
use crate::report::{LINE, Row, count};

const RATE: f64 = 0.001;
const FASTBLOOM: &str = "fastbloom";

/// A ratio that should be at least so large.
struct Goal {
    kind: &'static str,
    items: u64,
    ours: &'static str,
    who: &'static str,
    theirs: &'static str,
    at_least: f64,
}

/// The goals, in the words of a table: (kind, members, our op, their op, ratio).
fn goals() -> Vec<Goal> {
    const K100: u64 = 100_000;
    const M10: u64 = 10_000_000;
    const M300: u64 = 300_000_000;
    let peer = |kind, items, ours: Op, theirs: Op, at_least| Goal {
        kind,
        items,
        ours: ours.name(),
        who: FASTBLOOM,
        theirs: theirs.name(),
        at_least,
    };
    let limit = |items, ours: Op| Goal {
        kind: "digest",
        items,
        ours: ours.name(),
        who: HUGE_PAGES,
        theirs: LINE,
        at_least: 0.75,
    };
    let mut goals = vec![
        peer("digest", K100, Op::Hit, Op::Hit, 4.0),
        peer("digest", K100, Op::Miss, Op::Miss, 4.0),
        peer("digest", M10, Op::Hit, Op::Hit, 3.0),
        peer("digest", M10, Op::Miss, Op::Miss, 2.0),
        peer("digest", M10, Op::HitBatch, Op::Hit, 10.0),
        peer("digest", M10, Op::MixedBatch, Op::Mixed, 10.0),
        peer("digest", M10, Op::MissBatch, Op::Miss, 5.0),
        peer("digest", M300, Op::HitBatch, Op::Hit, 12.0),
        peer("digest", M300, Op::MixedBatch, Op::Mixed, 12.0),
        peer("digest", M300, Op::MissBatch, Op::Miss, 7.0),
        peer("digest", M10, Op::InsertBatch, Op::Insert, 6.0),
    ];
    for items in [M10, M300] {
        goals.extend([Op::HitBatch, Op::MissBatch, Op::MixedBatch].map(|op| limit(items, op)));
    }
    for items in [K100, M10] {
        goals.extend([
            peer("url", items, Op::Hit, Op::Hit, 3.0),
            peer("url", items, Op::Miss, Op::Miss, 3.0),
            peer("url", items, Op::HitBatch, Op::Hit, 3.0),
            peer("url", items, Op::MissBatch, Op::Miss, 3.0),
            peer("url", items, Op::InsertBatch, Op::Insert, 3.0),
        ]);
    }
    goals
}

/// Prints every goal with the ratio that was measured, then the cells that a peer won.
pub(crate) fn print(rows: &[Row], out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "\nratios, {} against others at {}%", BLOCKED, RATE * 100.0)?;
    let mut not_run = 0;
    for goal in goals() {
        let find = |who: &str, op: &str| {
            let is_it = |row: &&Row| {
                (row.kind, row.items, row.target) == (goal.kind, goal.items, RATE)
                    && row.who == who
                    && row.op == op
            };
            rows.iter().find(is_it).map(|row| row.ns)
        };
        let (Some(ours), Some(theirs)) = (find(BLOCKED, goal.ours), find(goal.who, goal.theirs))
        else {
            not_run += 1;
            continue;
        };
        let ratio = theirs / ours;
        let verdict = if ratio >= goal.at_least { "met" } else { "MISSED" };
        writeln!(
            out,
            "{:<7}{:>5}  {:<13}{:<26}{theirs:>8.2} / {ours:>6.2} = {ratio:>6.2}  of {:>5}  {verdict}",
            goal.kind,
            count(goal.items),
            goal.ours,
            format!("{} {}", goal.who, goal.theirs),
            goal.at_least
        )?;
    }
    if not_run > 0 {
        writeln!(out, "not run: {not_run} more")?;
    }
    print_lost(rows, out)
}

/// Numbers at which somebody else was faster, at a rate that is not higher than the target.
fn print_lost(rows: &[Row], out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "\ncells in which a peer that accepts inserts was faster, call for call")?;
    let mut lost = 0;
    for row in rows {
        let is_peer = !row.who.starts_with("inbloom") && !row.who.starts_with("xorf");
        let is_equal = row.measured_rate.is_some_and(|rate| rate < row.target * 1.25);
        if !is_peer || !is_equal {
            continue;
        }
        let same_race = rows.iter().filter(|other| {
            (other.kind, other.items, other.target) == (row.kind, row.items, row.target)
                && other.who.starts_with("inbloom")
                && threads(other.who) == threads(row.who)
        });
        let fastest = |op: &str| {
            let times = same_race.clone().filter(|other| other.op == op).map(|other| other.ns);
            times.min_by(f64::total_cmp)
        };
        let Some(ours) = fastest(row.op) else { continue };
        if row.ns < ours {
            lost += 1;
            let in_batches = match fastest(&format!("{}-batch", row.op)) {
                Some(batch) => format!(" (in batches {batch:.2})"),
                None => String::new(),
            };
            writeln!(
                out,
                "{} {} {}% {}: {} {:.2}, inbloom {ours:.2}{in_batches}",
                row.kind,
                count(row.items),
                row.target * 100.0,
                row.op,
                row.who,
                row.ns
            )?;
        }
    }
    if lost == 0 {
        writeln!(out, "none")?;
    }
    Ok(())
}

/// The part of a name that says how many threads took part, if it does.
fn threads(who: &str) -> Option<&str> {
    who.split_once(", ").map(|(_, threads)| threads)
}
