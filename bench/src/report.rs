//! What a race prints: one JSON object for every number, or a table.

use std::io::{self, Write};

use crate::limit::Limit;
use crate::race::{Entrant, Op};
use crate::workload::Key;

/// What the limit is called in the `op` column: one random cache line read.
pub(crate) const LINE: &str = "line";

#[derive(Clone, Copy)]
pub(crate) enum Format {
    Text,
    Json,
}

/// One number, and all that is needed to read it.
pub(crate) struct Row {
    pub(crate) who: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) items: u64,
    pub(crate) target: f64,
    /// None for the limit, which answers nothing.
    pub(crate) measured_rate: Option<f64>,
    pub(crate) bits_per_key: f64,
    pub(crate) op: &'static str,
    pub(crate) ns: f64,
    note: String,
}

impl Row {
    // No field holds a character that JSON would want escaped.
    fn json(&self) -> String {
        let rate = self.measured_rate.map_or("null".to_string(), |rate| rate.to_string());
        format!(
            r#"{{"who":"{}","kind":"{}","n":{},"target":{},"measured_rate":{rate},"bits_per_key":{:.3},"op":"{}","ns":{:.3},"note":"{}"}}"#,
            self.who,
            self.kind,
            self.items,
            self.target,
            self.bits_per_key,
            self.op,
            self.ns,
            self.note,
        )
    }
}

/// All numbers of a race: of the limits the best pipeline for each kind of pages, then the entrants.
pub(crate) fn rows<K: Key>(
    kind: &'static str,
    items: u64,
    target: f64,
    entrants: &[Entrant<K>],
    limits: &[Limit<'_>],
) -> Vec<Row> {
    let mut rows: Vec<Row> = limits
        .chunk_by(|left, right| left.who() == right.who())
        .filter_map(|group| group.iter().min_by(|left, right| left.ns().total_cmp(&right.ns())))
        .map(|limit| Row {
            who: limit.who(),
            kind,
            items,
            target,
            measured_rate: None,
            bits_per_key: limit.bytes() as f64 * 8.0 / items as f64,
            op: LINE,
            ns: limit.ns(),
            note: limit.pipeline(),
        })
        .collect();
    for entrant in entrants {
        rows.extend(Op::ALL.into_iter().filter_map(|op| {
            Some(Row {
                who: entrant.who,
                kind,
                items,
                target,
                measured_rate: Some(entrant.measured_rate()),
                bits_per_key: entrant.bits() as f64 / items as f64,
                op: op.name(),
                ns: entrant.ns(op)?,
                note: entrant.note.to_string(),
            })
        }));
    }
    rows
}

/// Prints the rows of one race.
pub(crate) fn print(rows: &[Row], format: Format, out: &mut impl Write) -> io::Result<()> {
    match format {
        Format::Json => rows.iter().try_for_each(|row| writeln!(out, "{}", row.json()))?,
        Format::Text => print_table(rows, out)?,
    }
    // A run takes long: a person who watches it sees each race when it is over.
    out.flush()
}

fn print_table(rows: &[Row], out: &mut impl Write) -> io::Result<()> {
    let Some(first) = rows.first() else { return Ok(()) };
    let (kind, items, target) = (first.kind, count(first.items), first.target * 100.0);
    writeln!(out, "\n{kind}, {items} members, {target}%: ns per key")?;
    write!(out, "{:<28}{:>9}{:>9}", "", "rate", "bits/key")?;
    for op in Op::ALL {
        write!(out, "{:>13}", op.name())?;
    }
    writeln!(out, "  note")?;
    for group in rows.chunk_by(|left, right| left.who == right.who) {
        let row = &group[0];
        let Some(rate) = row.measured_rate else {
            writeln!(out, "{:<28}{:>31.2}  {}", row.who, row.ns, row.note)?;
            continue;
        };
        write!(out, "{:<28}{:>8.4}%{:>9.2}", row.who, rate * 100.0, row.bits_per_key)?;
        for op in Op::ALL {
            match group.iter().find(|row| row.op == op.name()) {
                Some(row) => write!(out, "{:>13.2}", row.ns)?,
                None => write!(out, "{:>13}", "-")?,
            }
        }
        writeln!(out, "  {}", row.note)?;
    }
    Ok(())
}

/// 100000 as 100K, 10000000 as 10M.
pub(crate) fn count(items: u64) -> String {
    match items {
        _ if items.is_multiple_of(1_000_000) => format!("{}M", items / 1_000_000),
        _ if items.is_multiple_of(1_000) => format!("{}K", items / 1_000),
        _ => items.to_string(),
    }
}
