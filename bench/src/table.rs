//! Which races are run: kinds of keys, numbers of members, rates, contestants.

use std::error::Error;
use std::hash::Hash;
use std::io;

use clap::{Args, ValueEnum};
use inbloom::{AsKey, Digest};

use crate::limit::Limit;
use crate::memory::Pages;
use crate::ours::{BLOCKED, BLOOM};
use crate::race::{self, Entrant, Op};
use crate::report::{self, Format, Row};
use crate::sizing::{Candidate, Sizes};
use crate::workload::{Integer, Key, Workload};
use crate::{goals, ours, peers, shared};

/// From this many members on only digests are used, and only the three fastest structures that
/// accept inserts: the others would take hours, and their order is known from 10 million.
const LARGE: u64 = 100_000_000;

/// Below this many members, threads would mostly be started and stopped.
const SHARED: u64 = 1_000_000;

/// The rate at which sharing between threads is measured.
const SHARED_RATE: f64 = 0.001;

/// What `--quick` runs.
const QUICK: [(Kind, u64); 3] =
    [(Kind::Digest, 100_000), (Kind::Digest, 10_000_000), (Kind::Url, 100_000)];
const QUICK_RATE: f64 = 0.001;
const QUICK_ROUNDS: usize = 3;

/// Those that take part in large and in quick races, in all their variants.
const FASTEST: [&str; 5] = [BLOCKED, BLOOM, "inbloom shared", "fastbloom", "sbbf-rs-safe"];

/// Options of `core`.
#[derive(Args)]
pub(crate) struct Options {
    /// One JSON object per line instead of tables; the goals then go to stderr.
    #[arg(long)]
    json: bool,
    /// Three rounds of the fastest contestants at 0.1%, digests and some URLs: under a minute.
    #[arg(long, conflicts_with_all = ["items", "rates", "kinds", "rounds"])]
    quick: bool,
    /// Numbers of members.
    #[arg(long = "n", value_delimiter = ',', value_parser = count, default_value = "100K,10M,300M")]
    items: Vec<u64>,
    /// Target rates of false positives.
    #[arg(long, value_delimiter = ',', default_value = "0.01,0.001,0.0001")]
    rates: Vec<f64>,
    /// What is raced.
    #[arg(long, value_delimiter = ',', default_value = "digest,u64,url,shared,removable,growing")]
    kinds: Vec<Kind>,
    /// Rounds to take the median of.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Contestants, by the beginning of their names; all of them, and the limit, if none is named.
    #[arg(long, value_delimiter = ',')]
    who: Vec<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Kind {
    /// Keys that are hashed already.
    Digest,
    /// Integers, hashed by the contestants.
    U64,
    /// URLs, hashed by the contestants.
    Url,
    /// Digests, from one and from two threads.
    Shared,
    /// Digests, by those that can remove.
    Removable,
    /// Digests, by those that grow: from 100 on.
    Growing,
}

/// Reads 250, 100K or 10M, up to what the largest tables of a common machine hold.
pub(crate) fn count(text: &str) -> Result<u64, String> {
    const MOST: u64 = 500_000_000;
    let (digits, unit) = match (text.strip_suffix('K'), text.strip_suffix('M')) {
        (Some(digits), _) => (digits, 1_000),
        (_, Some(digits)) => (digits, 1_000_000),
        _ => (text, 1),
    };
    let number = digits.parse().ok().and_then(|number: u64| number.checked_mul(unit));
    number
        .filter(|number| (1..=MOST).contains(number))
        .ok_or_else(|| format!("'{text}' is no count up to 500M: write 250, 100K or 10M"))
}

/// Runs what the options ask for, prints every race when it is over, and the goals at the end.
pub(crate) fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    let format = if options.json { Format::Json } else { Format::Text };
    let mut table = Table {
        rounds: if options.quick { QUICK_ROUNDS } else { options.rounds },
        fastest_only: options.quick,
        who: &options.who,
        format,
        sizes: Sizes::default(),
        rows: Vec::new(),
    };
    if options.quick {
        for (kind, items) in QUICK {
            table.cell(kind, items, QUICK_RATE)?;
        }
    } else {
        for &kind in &options.kinds {
            for &items in &options.items {
                for &rate in &options.rates {
                    table.cell(kind, items, rate)?;
                }
            }
        }
    }
    match format {
        Format::Text => goals::print(&table.rows, &mut io::stdout().lock())?,
        Format::Json => goals::print(&table.rows, &mut io::stderr().lock())?,
    }
    Ok(())
}

struct Table<'a> {
    rounds: usize,
    fastest_only: bool,
    /// Empty for all.
    who: &'a [String],
    format: Format,
    /// Found by the first race that needs them, and used by all others.
    sizes: Sizes,
    rows: Vec<Row>,
}

impl Table<'_> {
    fn cell(&mut self, kind: Kind, items: u64, rate: f64) -> io::Result<()> {
        let is_large = items >= LARGE;
        match kind {
            Kind::Digest => self.digests(items, rate),
            Kind::U64 if !is_large => self.keys::<Integer>(items, rate),
            Kind::Url if !is_large => self.keys::<String>(items, rate),
            Kind::Shared if !is_large && items >= SHARED && rate == SHARED_RATE => {
                let entrants = self.enter(shared::ours(rate), shared::peers(), items, rate);
                self.race("shared", &Workload::new(items), entrants, Vec::new(), rate)
            }
            Kind::Removable if !is_large => {
                let entrants =
                    self.enter(ours::removable(rate), peers::removable(rate), items, rate);
                self.race("removable", &Workload::new(items), entrants, Vec::new(), rate)
            }
            Kind::Growing if !is_large => {
                let entrants = self.enter(ours::growing(rate), peers::growing(rate), items, rate);
                self.race("growing", &Workload::new(items), entrants, Vec::new(), rate)
            }
            Kind::U64 | Kind::Url | Kind::Shared | Kind::Removable | Kind::Growing => Ok(()),
        }
    }

    fn digests(&mut self, items: u64, rate: f64) -> io::Result<()> {
        let work = Workload::<Digest>::new(items);
        let entrants = self.enter(ours::of_digests(rate), peers::of_digests(rate), items, rate);
        // The limit is that of a filter which touches one line per key: the first of ours.
        let bytes = entrants.first().map_or(0, |entrant| entrant.bits() / 8);
        let mut limits = Vec::new();
        if self.who.is_empty() {
            limits.extend(Limit::all(bytes, Pages::Huge, &work.hits));
            limits.extend(Limit::all(bytes, Pages::Small, &work.hits));
        }
        self.race(Digest::KIND, &work, entrants, limits, rate)
    }

    fn keys<K>(&mut self, items: u64, rate: f64) -> io::Result<()>
    where
        K: Key + Hash + AsKey + AsRef<[u8]> + 'static,
    {
        let entrants = self.enter(ours::of_keys::<K>(rate), peers::of_keys(rate), items, rate);
        self.race(K::KIND, &Workload::new(items), entrants, Vec::new(), rate)
    }

    /// Sizes the contestants that take part.
    fn enter<K: Key>(
        &mut self,
        ours: Vec<Candidate<K>>,
        peers: Vec<Candidate<K>>,
        items: u64,
        rate: f64,
    ) -> Vec<Entrant<K>> {
        let mut candidates: Vec<Candidate<K>> = ours.into_iter().chain(peers).collect();
        if self.fastest_only || items >= LARGE {
            candidates
                .retain(|candidate| FASTEST.iter().any(|&who| candidate.who.starts_with(who)));
        }
        if !self.who.is_empty() {
            candidates
                .retain(|candidate| self.who.iter().any(|who| candidate.who.starts_with(who)));
        }
        candidates
            .into_iter()
            .map(|candidate| candidate.enter(items, rate, &mut self.sizes))
            .collect()
    }

    fn race<K: Key>(
        &mut self,
        kind: &'static str,
        work: &Workload<K>,
        mut entrants: Vec<Entrant<K>>,
        mut limits: Vec<Limit<'_>>,
        rate: f64,
    ) -> io::Result<()> {
        race::run(&mut entrants, work, &Op::ALL, &mut limits, rate, self.rounds);
        let rows = report::rows(kind, work.items, rate, &entrants, &limits);
        report::print(&rows, self.format, &mut io::stdout().lock())?;
        self.rows.extend(rows);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_with_their_units() {
        assert_eq!(count("250"), Ok(250));
        assert_eq!(count("100K"), Ok(100_000));
        assert_eq!(count("300M"), Ok(300_000_000));
        for text in ["", "K", "0", "501M", "1G", "18446744073709551615K"] {
            assert!(count(text).is_err(), "{text}");
        }
    }
}
