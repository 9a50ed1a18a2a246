//! `/api/filters`: the list.
//!
//! A visit to all filters of a database reads counts only, half a microsecond each. The rate takes a model, and
//! is computed for the filters of the page alone; so the list is not sorted by it, but by the share of the
//! capacity that is used, from which it follows.

use std::cmp::Ordering;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::advice;
use super::api::{ApiError, database, seconds};
use super::names;
use super::parameters::Parameters;
use crate::clock::now;
use crate::history::{self, Speed};
use crate::keyspace::{DATABASES, Entry};
use crate::server::Server;
use crate::value::summary::{Summary, rate_by_count};

/// Rows of a page, unless the request says otherwise.
const ROWS: u64 = 100;
/// The most.
const MOST_ROWS: u64 = 1000;
/// Bytes of names on a page: names may have 64 KiB each.
const NAME_BYTES: usize = 1 << 20;
/// Filters of a page that are watched if the request asks for it: half of what can be watched at all, so that a
/// list never takes the history of the filter that somebody looks at.
const MOST_WATCHED: usize = history::MOST_WATCHED / 2;
/// Filters that are visited at a time.
const STRIDE: usize = 1024;

/// What the list can be sorted by.
#[derive(Clone, Copy, PartialEq)]
enum Sort {
    Name,
    Keys,
    Capacity,
    Used,
    Memory,
}

/// A filter of the list.
struct Listed {
    name: Box<[u8]>,
    entry: Arc<Entry>,
    summary: Summary,
    memory: u64,
}

impl Listed {
    /// By what is asked for, and filters that are alike in it by their names.
    fn compare(&self, other: &Listed, sort: Sort, is_descending: bool) -> Ordering {
        let by_number = match sort {
            Sort::Name => Ordering::Equal,
            Sort::Keys => self.summary.keys.cmp(&other.summary.keys),
            Sort::Capacity => self.summary.capacity.cmp(&other.summary.capacity),
            Sort::Used => {
                let used = |it: &Listed| it.summary.used().unwrap_or(-1.0);
                used(self).total_cmp(&used(other))
            }
            Sort::Memory => self.memory.cmp(&other.memory),
        };
        let by_name = self.name.cmp(&other.name);
        match (sort, is_descending) {
            (Sort::Name, true) => by_name.reverse(),
            (_, true) => by_number.reverse().then(by_name),
            (_, false) => by_number.then(by_name),
        }
    }
}

/// Answers a page of the list.
pub fn list(server: &Server, parameters: &mut Parameters) -> Result<Value, ApiError> {
    let database = database(parameters)?;
    let wanted = parameters.bytes("q").unwrap_or_default().to_ascii_lowercase();
    let kind = parameters.text("kind")?;
    let sorts = [
        ("name", Sort::Name),
        ("keys", Sort::Keys),
        ("capacity", Sort::Capacity),
        ("used", Sort::Used),
        ("memory", Sort::Memory),
    ];
    let sort = parameters.choice("sort", &sorts)?.unwrap_or(Sort::Name);
    let orders = [("asc", false), ("desc", true)];
    let is_descending = parameters.choice("order", &orders)?.unwrap_or(sort != Sort::Name);
    let limit = parameters.number("limit", 1..=MOST_ROWS)?.unwrap_or(ROWS) as usize;
    let offset = parameters.number("offset", 0..=u64::from(u32::MAX))?.unwrap_or(0) as usize;
    let watches = [("0", 0), ("1", MOST_WATCHED)];
    let watched = parameters.choice("watch", &watches)?.unwrap_or(0);

    let time = now();
    let mut found = Vec::new();
    let mut cursor = 0;
    loop {
        cursor = server.keyspace.scan(database, cursor, STRIDE, time, |name, entry| {
            if !contains(name, &wanted) {
                return;
            }
            let summary = Summary::of(&entry.value);
            if kind.as_deref().is_none_or(|kind| summary.kind == kind) {
                let memory = server.keyspace.bytes_of(name, entry);
                found.push(Listed { name: name.into(), entry: Arc::clone(entry), summary, memory });
            }
        });
        if cursor == 0 {
            break;
        }
    }
    let page =
        page_of(&mut found, offset, limit, |one, other| one.compare(other, sort, is_descending));
    let mut name_bytes = 0;
    let fits = |it: &&Listed| {
        name_bytes += it.name.len();
        name_bytes <= NAME_BYTES
    };
    let as_row = |(place, listed): (usize, &Listed)| {
        let look = (place < watched).then(|| server.history.look(&listed.entry, time));
        row(database, listed, look.map(|look| look.speed))
    };
    let rows: Vec<Value> = page.iter().take_while(fits).enumerate().map(as_row).collect();
    let end = offset + rows.len();
    let next = (end < found.len() && !rows.is_empty()).then_some(end);
    Ok(json!({
        "total": server.keyspace.len(database),
        "found": found.len(),
        "offset": offset,
        "next": next,
        "databases": databases(server),
        "filters": rows,
    }))
}

/// Returns the part of a list that a page shows, in order; the rest is not sorted.
fn page_of<T>(
    all: &mut [T],
    offset: usize,
    limit: usize,
    compare: impl Fn(&T, &T) -> Ordering,
) -> &[T] {
    let end = offset.saturating_add(limit).min(all.len());
    if offset >= end {
        return &[];
    }
    if end < all.len() {
        all.select_nth_unstable_by(end - 1, &compare);
    }
    if offset > 0 {
        all[..end].select_nth_unstable_by(offset, &compare);
    }
    all[offset..end].sort_unstable_by(compare);
    &all[offset..end]
}

/// Returns whether a name has this in it, whatever the case of ASCII letters.
fn contains(name: &[u8], lowercase: &[u8]) -> bool {
    lowercase.is_empty() || memchr::memmem::find(&name.to_ascii_lowercase(), lowercase).is_some()
}

fn row(database: usize, listed: &Listed, speed: Option<Speed>) -> Value {
    let Listed { name, entry, summary, memory } = listed;
    let rate = (!entry.value.is_busy()).then(|| rate_by_count(&entry.value));
    let mut object = Map::new();
    names::insert(&mut object, name);
    let fields = [
        ("database", json!(database)),
        ("kind", json!(summary.kind)),
        ("keys", json!(summary.keys)),
        ("capacity", json!(summary.capacity)),
        ("used", json!(summary.used())),
        ("target_rate", json!(summary.target_rate)),
        ("rate", json!(rate)),
        ("memory", json!(memory)),
        ("expires", json!(entry.expires().and_then(seconds))),
        ("level", json!(advice::level(summary, rate))),
    ];
    object.extend(fields.map(|(name, value)| (name.to_owned(), value)));
    if let Some(speed) = speed {
        object.insert("per_second".to_owned(), per_second(&speed));
    }
    Value::Object(object)
}

/// Returns what a watched filter did a second, lately.
pub fn per_second(speed: &Speed) -> Value {
    json!({
        "added": speed.added,
        "asked": speed.asked,
        "hit_share": speed.hit_share,
        "over_seconds": speed.seconds,
    })
}

/// Returns the databases that have filters.
pub fn databases(server: &Server) -> Vec<Value> {
    let count = |database: usize| (database, server.keyspace.len(database));
    (0..DATABASES)
        .map(count)
        .filter(|(_, filters)| *filters > 0)
        .map(|(database, filters)| json!({ "database": database, "filters": filters }))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_any_size_make_up_the_sorted_list() {
        let mut random = inbloom_testing::Random(7);
        let all: Vec<u64> = (0..500).map(|_| random.below(300)).collect();
        let mut sorted = all.clone();
        sorted.sort_unstable();
        for limit in [1, 7, 100, 499, 500, 1000] {
            let mut joined = Vec::new();
            while joined.len() < all.len() {
                let mut copy = all.clone();
                let page = page_of(&mut copy, joined.len(), limit, Ord::cmp);
                assert!(!page.is_empty());
                joined.extend_from_slice(page);
            }
            assert_eq!(joined, sorted, "{limit}");
        }
        assert_eq!(page_of(&mut [1, 2], 2, 5, Ord::cmp), &[0; 0]);
        assert!(page_of(&mut [], 0, 5, u8::cmp).is_empty());
    }

    #[test]
    fn search_is_for_a_part_of_the_name_in_any_case() {
        assert!(contains(b"User:42", b"user") && contains(b"x", b"") && contains(b"\xffA", b"a"));
        assert!(!contains(b"User", b"users") && !contains(b"", b"a"));
    }
}
