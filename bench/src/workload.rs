//! Keys to insert and to ask for: deterministic, distinct, and made from a counter so that 300
//! million of them need no memory.
//!
//! Members are the keys of identities `0..n`; absent keys count from [`ABSENT`]. Hits are asked in
//! an order unrelated to the one they were inserted in. All queries of one operation lie in one
//! array that is read from front to back, as a program that checks a file or a request would have
//! them; what is measured is therefore the filter and not the search for the key.

use std::hash::{Hash, Hasher};
use std::ops::Range;

use inbloom::{AsKey, Digest};

/// Identities from here on are never inserted.
const ABSENT: u64 = 1 << 40;

/// Members are made, and queried, at most this many at a time: larger sets are sampled.
const SAMPLE: u64 = 1 << 20;

/// Sets up to this size are kept as a whole, so that structures built from all keys at once can
/// take part; larger ones are made in runs of `RUN` keys while the clock stands still.
const KEPT: u64 = 10_000_000;
const RUN: u64 = 1 << 16;

/// The finaliser of SplitMix64 (Steele, Lea and Flood, 2014): a bijection with good avalanche.
pub(crate) fn mix(counter: u64) -> u64 {
    let mut word = counter.wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Something a filter can be asked for.
pub(crate) trait Key: Send + Sync {
    /// What the `kind` column says.
    const KIND: &'static str;

    /// The key of this identity; different identities give different keys.
    fn of(identity: u64) -> Self;
}

impl Key for Digest {
    const KIND: &'static str = "digest";

    fn of(identity: u64) -> Digest {
        Digest { place: mix(2 * identity), print: mix(2 * identity + 1) }
    }
}

/// An integer key: its eight little-endian bytes where bytes are hashed, one word elsewhere.
pub(crate) struct Integer([u8; 8]);

impl Key for Integer {
    const KIND: &'static str = "u64";

    // Odd factors are bijections: scattered integers, which favor no hash, unlike 0, 1, 2 ...
    fn of(identity: u64) -> Integer {
        Integer(identity.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes())
    }
}

impl AsKey for Integer {
    fn as_key(&self) -> impl AsRef<[u8]> {
        self.0
    }
}

impl AsRef<[u8]> for Integer {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Hash for Integer {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(u64::from_le_bytes(self.0));
    }
}

/// Sites of the URLs, here and in the race of the command line.
pub(crate) const HOSTS: [&str; 8] = [
    "example.com",
    "news.example.org",
    "shop.example.co.uk",
    "cdn.example.net",
    "wiki.example.io",
    "a.example.de",
    "blog.example.fr",
    "photos.example.com",
];

/// A URL of 20 to 64 bytes. The last part is the identity, scrambled by a bijection.
impl Key for String {
    const KIND: &'static str = "url";

    fn of(identity: u64) -> String {
        const PATHS: [&str; 8] =
            ["", "p/", "item/", "2024/11/", "users/", "articles/archive/", "img/large/", "tag/"];
        const DIGITS: &[u8; 64] =
            b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_";
        let mut name = mix(identity);
        let host = HOSTS[(name % 8) as usize];
        let path = PATHS[(name / 8 % 8) as usize];
        let mut url = String::with_capacity(64);
        url.push_str("https://");
        url.push_str(host);
        url.push('/');
        url.push_str(path);
        while name > 0 {
            url.push(char::from(DIGITS[(name % 64) as usize]));
            name /= 64;
        }
        url
    }
}

/// The keys of one race.
pub(crate) struct Workload<K> {
    /// How many members there are.
    pub(crate) items: u64,
    kept: Vec<K>,
    /// Members, in an order unrelated to that of insertion.
    pub(crate) hits: Vec<K>,
    /// Keys that were not inserted.
    pub(crate) misses: Vec<K>,
    /// Hits and misses, one of each in every pair, in random order.
    pub(crate) mixed: Vec<K>,
}

impl<K: Key> Workload<K> {
    /// Prepares `items` members and samples of queries.
    pub(crate) fn new(items: u64) -> Workload<K> {
        if items <= KEPT { Workload::whole(items) } else { Workload::sampled(items) }
    }

    /// As [`new`](Workload::new), with all members at hand, however many they are.
    pub(crate) fn whole(items: u64) -> Workload<K> {
        let kept = (0..items).map(K::of).collect();
        Workload { kept, ..Workload::sampled(items) }
    }

    fn sampled(items: u64) -> Workload<K> {
        let queries = items.min(SAMPLE);
        let member = |index: u64| K::of(shuffled(index, items));
        Workload {
            items,
            kept: Vec::new(),
            hits: (0..queries).map(member).collect(),
            misses: (0..queries).map(absent).collect(),
            // The coin of a pair decides which of its two comes first.
            mixed: (0..queries)
                .map(|index| {
                    let first = mix(index / 2) & 1 == 0;
                    if first == (index % 2 == 0) { member(index) } else { absent(index) }
                })
                .collect(),
        }
    }

    /// Whether all members are at hand, so that filling again costs no more than inserting.
    pub(crate) fn is_kept(&self) -> bool {
        self.kept.len() as u64 == self.items
    }

    /// Hands all members to `visit`, in insertion order, in one slice or in many.
    pub(crate) fn for_each_run(&self, mut visit: impl FnMut(&[K])) {
        if self.is_kept() {
            return visit(&self.kept);
        }
        runs(0..self.items, |keys| visit(keys));
    }
}

/// A key that is no member, for each index another.
pub(crate) fn absent<K: Key>(index: u64) -> K {
    K::of(ABSENT + index)
}

/// Hands `count` keys that are no members to `visit`, in runs.
pub(crate) fn absent_runs<K: Key>(count: u64, visit: impl FnMut(&[K])) {
    runs(ABSENT..ABSENT + count, visit);
}

fn runs<K: Key>(identities: Range<u64>, mut visit: impl FnMut(&[K])) {
    let mut run = Vec::with_capacity(RUN as usize);
    for start in identities.clone().step_by(RUN as usize) {
        run.clear();
        run.extend((start..identities.end.min(start + RUN)).map(K::of));
        visit(&run);
    }
}

/// The `index`-th element of a walk through `0..items` that repeats none.
fn shuffled(index: u64, items: u64) -> u64 {
    // A prime above every number of members, so it divides none of them and each step is new.
    const STRIDE: u128 = 982_451_653;
    (u128::from(index) * STRIDE % u128::from(items)) as u64
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn members_and_absent_keys_are_distinct() {
        let identities = || (0..50_000).chain(ABSENT..ABSENT + 50_000);
        assert_eq!(identities().map(Digest::of).collect::<HashSet<_>>().len(), 100_000);
        assert_eq!(identities().map(String::of).collect::<HashSet<_>>().len(), 100_000);
        assert_eq!(identities().map(|id| Integer::of(id).0).collect::<HashSet<_>>().len(), 100_000);
    }

    #[test]
    fn urls_have_20_to_64_bytes() {
        assert!((0..100_000).map(String::of).all(|url| (20..=64).contains(&url.len())));
    }

    #[test]
    fn hits_are_members_and_none_is_asked_twice() {
        for items in [1, 2, 1000, 100_000] {
            let asked: HashSet<u64> = (0..items).map(|index| shuffled(index, items)).collect();
            assert_eq!(asked, (0..items).collect(), "{items} members");
        }
    }

    #[test]
    fn half_of_the_mixed_keys_are_members() {
        let work = Workload::<Digest>::new(10_000);
        let members: HashSet<Digest> = work.kept.iter().copied().collect();
        assert_eq!(work.mixed.iter().filter(|digest| members.contains(digest)).count(), 5_000);
    }
}
