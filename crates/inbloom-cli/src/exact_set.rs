//! What was seen, exactly: sets of 128-bit digests.
//!
//! Two different keys have the same digest with a probability of n^2 / 2^129: for 10 billion keys
//! one in 7e18.

use std::collections::HashSet;
use std::collections::hash_map::{Entry, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::io::Write;

use anyhow::Result;
use inbloom::Digest;

use crate::blocks::Block;
use crate::keys::Digests;
use crate::output;

/// A digest is a hash already.
#[derive(Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn write_u64(&mut self, half: u64) {
        self.0 ^= half;
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("a digest is two words")
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The digests that came.
#[derive(Default)]
pub struct ExactSet(HashSet<Digest, BuildHasherDefault<AsItIs>>);

impl ExactSet {
    /// Tells of each digest whether it is new.
    pub fn insert(&mut self, digests: &[Digest], new: &mut Vec<bool>) {
        new.clear();
        new.extend(digests.iter().map(|digest| self.0.insert(*digest)));
    }

    /// Returns the memory it takes, about: a digest and a control byte for each place, 7 in 8 of
    /// which are used at most.
    pub fn bytes(&self) -> u64 {
        (self.0.capacity() as u64 * 8).div_ceil(7) * (size_of::<Digest>() as u64 + 1)
    }
}

/// How often each line came, and its text, in the order of the first ones.
#[derive(Default)]
pub struct Counts {
    places: HashMap<Digest, usize, BuildHasherDefault<AsItIs>>,
    /// Of each line, how often it came and where its text ends.
    counts: Vec<(u64, usize)>,
    text: Vec<u8>,
}

impl Counts {
    /// Counts the lines of a block. A line without a key is like no other: it is kept as one that
    /// came once, or left out.
    pub fn add(&mut self, digests: &Digests, block: &Block, keep: bool) {
        let mut missing = digests.missing().iter().peekable();
        let mut digests = digests.iter();
        for (index, record) in block.records().enumerate() {
            if missing.next_if(|missing| **missing == index).is_some() {
                if keep {
                    self.push(record);
                }
                continue;
            }
            let digest = digests.next().expect("there is a digest for each key");
            match self.places.entry(*digest) {
                Entry::Occupied(place) => self.counts[*place.get()].0 += 1,
                Entry::Vacant(place) => {
                    place.insert(self.counts.len());
                    self.push(record);
                }
            }
        }
    }

    fn push(&mut self, record: &[u8]) {
        self.text.extend_from_slice(record);
        self.counts.push((1, self.text.len()));
    }

    /// As `uniq -c` does: the count, right-aligned, and the line.
    pub fn print(&self, terminator: u8) -> Result<()> {
        const AT_ONCE: usize = 1 << 18;
        let mut text = Vec::with_capacity(2 * AT_ONCE);
        let mut start = 0;
        for &(count, end) in &self.counts {
            write!(text, "{count:7} ").expect("a Vec takes all bytes");
            text.extend_from_slice(&self.text[start..end]);
            text.push(terminator);
            start = end;
            if text.len() >= AT_ONCE {
                output::print(&text)?;
                text.clear();
            }
        }
        output::print(&text)
    }
}
