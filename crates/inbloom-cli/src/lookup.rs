//! How lines are looked up in a filter whose file may be larger than memory.
//!
//! The library knows three ways, of which two wait for the disk as little as can be: asking for the
//! pages of a batch before it touches them, and sweeping once over the whole file with very many
//! keys in its order. Which one is faster depends on what only the command line knows, the length
//! of the input; so it is chosen here, once for each filter.

use std::fmt::{self, Display};
use std::fs;
use std::path::Path;

use inbloom::{Digest, Filter, Paging};
use inbloom_server::units::machine;

use crate::input::Input;
use crate::numbers;

/// Bytes of a filter that are swept in the time in which one page is asked for, waited for and
/// looked at: 0.7 GB/s against 123,000 pages a second in bench/record/2026-11-16-cold.txt, and 1 GB/s
/// against 154,000 on another disk. A slower disk is slower in both.
const SWEPT_PER_LINE: u64 = 6500;
/// Bytes of a line of input, about. If lines are shorter, or compressed, there are more of them than
/// thought, and a sweep would have paid sooner.
const LINE: u64 = 64;
/// The share of the free memory that lines may take which wait for a sweep. The rest is for the
/// pages of the filter, and for others.
const WAITING_SHARE: u64 = 4;

/// Bytes that a line which waits for a sweep takes beside its block, if keys are hashed in so many
/// ways: its digests, its place in the order of the sweep, and two answers.
pub fn beside_line(hashes: usize) -> usize {
    size_of::<Digest>() * hashes + size_of::<(u64, usize)>() + 2
}

/// The way in which a filter is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Line by line as they come, where the filter is: it is in memory, or comes in as it is used.
    InPlace,
    /// A batch asks for the pages that it is going to touch.
    Pages,
    /// Lines wait until they take so many bytes of memory, and then the file is swept.
    Sweep { room: u64 },
}

/// What the way depends on.
#[derive(Clone, Copy, Debug)]
pub struct Situation {
    /// The bytes of a filter of which the pages of a batch can be foreseen, and that is in a file.
    filter: Option<u64>,
    /// How many shards the filter is in, if it is. Of the kinds that are, no pages are foreseen.
    shards: Option<usize>,
    /// The bytes of memory that can be had, unless nobody knows.
    memory: Option<u64>,
    /// The bytes of the input, if all of it is there; None if lines may be waited for, or must not
    /// wait.
    input: Option<u64>,
}

impl Situation {
    /// `memory` is what the person says is free, if anything.
    pub fn new(path: &Path, filter: &Filter, memory: Option<u64>, input: Option<u64>) -> Situation {
        let is_file = fs::metadata(path).is_ok_and(|metadata| metadata.is_file());
        let foreseen = filter.plan().kind().foresees_pages() && is_file;
        Situation {
            filter: foreseen.then(|| filter.bytes()),
            shards: Some(filter.shards().len()).filter(|shards| *shards > 1),
            memory: memory.or_else(machine::free_memory),
            input,
        }
    }

    pub fn way(&self) -> Way {
        let (Some(filter), Some(memory)) = (self.filter, self.memory) else { return Way::InPlace };
        if filter <= memory {
            return Way::InPlace;
        }
        let room = memory / WAITING_SHARE;
        // Of a block that waits there are the lines, and where each ends.
        let waiting = room / (LINE + (size_of::<usize>() + beside_line(1)) as u64);
        match self.input {
            Some(input) if waiting.min(input / LINE) >= filter / SWEPT_PER_LINE => {
                Way::Sweep { room }
            }
            _ => Way::Pages,
        }
    }
}

/// The way and its reason, for `--verbose`.
impl Display for Situation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(filter) = self.filter else {
            match self.shards {
                Some(shards) => write!(f, "in {shards} shards")?,
                None => f.write_str("not a ribbon filter in a file")?,
            }
            return f.write_str(": memory-mapped, pages are read when they are used");
        };
        write!(f, "{}, ", numbers::bytes(filter))?;
        match self.memory {
            Some(memory) => write!(f, "{} of memory free: ", numbers::bytes(memory))?,
            None => f.write_str("free memory unknown: ")?,
        }
        match (self.way(), self.input) {
            (Way::InPlace, _) => f.write_str("looking lines up one batch after another"),
            (Way::Pages, None) => f.write_str("reading pages in batches, so that no line waits"),
            (Way::Pages, Some(input)) => write!(
                f,
                "reading pages in batches, since {} of input are too few for a sweep",
                numbers::bytes(input),
            ),
            (Way::Sweep { room }, _) => {
                write!(
                    f,
                    "sweeping over the whole filter for every {} of lines",
                    numbers::bytes(room)
                )
            }
        }
    }
}

/// Makes a filter ready for its way.
pub fn prepare(filter: &mut Filter, way: Way) {
    if way == Way::Pages {
        // No need to look whether pages are in memory: they cannot all be.
        filter.set_paging(Paging::Ahead);
    }
}

/// The bytes of all inputs, if none of them has to be waited for.
pub fn at_hand(inputs: &[Input]) -> Option<u64> {
    inputs.iter().map(Input::bytes_at_hand).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GB: u64 = 1_000_000_000;

    fn way(filter: u64, memory: u64, input: Option<u64>) -> Way {
        Situation { filter: Some(filter), shards: None, memory: Some(memory), input }.way()
    }

    #[test]
    fn a_filter_that_fits_into_memory_is_asked_in_place() {
        assert_eq!(way(9 * GB, 9 * GB, Some(100 * GB)), Way::InPlace);
        let unknown =
            Situation { filter: Some(GB), shards: None, memory: None, input: Some(100 * GB) };
        assert_eq!(unknown.way(), Way::InPlace);
        let other =
            Situation { filter: None, shards: None, memory: Some(1), input: Some(100 * GB) };
        assert_eq!(other.way(), Way::InPlace);
    }

    #[test]
    fn lines_that_may_be_waited_for_do_not_wait_for_a_sweep() {
        assert_eq!(way(18 * GB, 9 * GB, None), Way::Pages);
    }

    /// 18 GB are swept in the time of 2.8 million pages.
    #[test]
    fn a_sweep_takes_an_input_that_is_long_enough_for_the_filter() {
        assert_eq!(way(18 * GB, 9 * GB, Some(170_000_000)), Way::Pages);
        assert_eq!(way(18 * GB, 9 * GB, Some(180_000_000)), Way::Sweep { room: 9 * GB / 4 });
        // There is no room for so many lines, however many come: 106 bytes each.
        assert_eq!(way(18 * GB, GB / 2, Some(100 * GB)), Way::Pages);
        assert_eq!(way(18 * GB, GB, Some(100 * GB)), Way::Pages);
        assert_eq!(way(18 * GB, GB * 6 / 5, Some(100 * GB)), Way::Sweep { room: GB * 3 / 10 });
    }
}
