//! Where the bits of a filter are on a server. Pure: no sockets here.
//!
//! A filter is cut into *chunks* of at most 16,383 blocks of 64 bytes, each one string value. All
//! bits of a key are in one chunk, so a query or an insert is one round trip to one node. A chunk
//! stays below 1 MiB, so that no command on it blocks a server for long, and 64 bytes below it,
//! because a value of exactly 2^20 bytes is accounted 25% larger.
//!
//! ```text
//! ib:m:NAME               the description (metadata.rs)
//! ib:c:{1x}:NAME          its second copy; the tag leads to a slot half of all slots away
//! ib:{5f0c..d21k}:17      chunk 17: `5f0c..d2` is the filter's id, `1k` the suffix of its group
//!
//! chunk    0 1 2 3 4 5 ...                 chunk mod groups = group
//! group    0 1 2 0 1 2 ...                 at most 1024 groups, one hash tag each
//! slot     (first + group * 16384 / groups) mod 16384, where the id decides the first
//! ```
//!
//! Chunks of one group have one hash tag, so that a pipeline or a transaction may span them. The tag's
//! suffix is found by search, so that groups lie at even distances over the slots and every master of
//! a balanced cluster has equally many, give or take one. Filters start at different slots: many
//! small ones do not meet on one node.
//!
//! A chunk has the bytes of the local filter, with one difference. Bit 511 of every block, which no
//! key sets, is set in Redis: the *sentinel*. A block without it is a block that the server has lost,
//! whatever its other bits are. Redis numbers the bits of a byte from the highest, inbloom from the
//! lowest: the offset of local bit i is i XOR 7.

use inbloom::internals::chunks::{ChunkLine, Chunks};
use inbloom::{Digest, Kind, Plan};

use crate::command::{Commands, NumberedKey};
use crate::slots::{SLOTS, slot_of, suffixes, tag_near};

/// The most groups of chunks, and so of hash tags.
const MAX_GROUPS: u64 = 1024;

/// Returns the number of groups of so many chunks.
pub(crate) fn groups(chunks: u64) -> u64 {
    chunks.min(MAX_GROUPS)
}

/// Returns the slot of the first of so many groups: anywhere, but two slots or more from every
/// multiple of the distance between groups.
///
/// If the number of groups is a multiple of that of masters, the slots of a master begin at such a
/// multiple, rounded up or down. A group there would be on the one side or on the other by chance.
fn first_slot(id: u64, groups: u64) -> u64 {
    let distance = u64::from(SLOTS) / groups;
    let (rotation, place) = (id % groups, id / groups % (distance - 4));
    rotation * u64::from(SLOTS) / groups + 2 + place
}

/// The kind of all filters on Redis.
pub const KIND: Kind = Kind::Blocked;

/// The most bits, over the fewest, that [`plan`] spends to save a server work.
const SPENT: f64 = 1.1;

/// Plans a filter for a server: with as few probes as a tenth more bits allow.
///
/// An insert takes a server time for every bit that it sets. At 1% the plan with the fewest bits has 8
/// probes. Half as many probes take a few more bits per key, and save the server half of that work.
/// Queries read whole blocks and cost the same. Filters of every other plan of kind blocked work too.
///
/// ```
/// let plan = inbloom_redis::plan(1_000_000, 0.01)?;
/// assert_eq!((plan.probes(), plan.rate()), (4, 0.01));
/// assert!(plan.rate_at(1_000_000.0) <= 0.01);
/// # Ok::<(), inbloom::Error>(())
/// ```
///
/// # Errors
///
/// As [`PlanBuilder::build`](inbloom::PlanBuilder::build).
pub fn plan(items: u64, rate: f64) -> inbloom::Result<Plan> {
    let builder = || Plan::builder(KIND).items(items).rate(rate);
    let smallest = builder().build()?;
    let fewer = [4, 8, 12, 16, 24].into_iter().take_while(|probes| *probes < smallest.probes());
    let affordable = fewer
        .filter_map(|probes| builder().probes(probes).build().ok())
        .find(|plan| plan.bits() as f64 <= smallest.bits() as f64 * SPENT);
    Ok(affordable.unwrap_or(smallest))
}

/// Where the chunks of a filter are.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub chunks: Chunks,
    /// Of each group, what stands before the number of the chunk, and the slot.
    groups: Vec<(String, u16)>,
}

impl Layout {
    /// Returns the layout of a filter. Fails for plans that cannot be kept in Redis.
    pub fn new(prefix: &str, id: u64, plan: &Plan) -> inbloom::Result<Layout> {
        let chunks = Chunks::new(plan)?;
        let count = groups(chunks.count());
        let first = first_slot(id, count);
        let slots = u64::from(SLOTS);
        let slot = |group: u64| ((first + group * slots / count) % slots) as u16;
        let wanted: Vec<u16> = (0..count).map(slot).collect();
        let id = format!("{id:016x}");
        let named = |(suffix, slot): (String, u16)| (format!("{prefix}:{{{id}{suffix}}}:"), slot);
        let suffixes = suffixes(id.as_bytes(), &wanted);
        Ok(Layout { chunks, groups: suffixes.into_iter().zip(wanted).map(named).collect() })
    }

    /// Returns the number of chunks.
    pub fn count(&self) -> u64 {
        self.chunks.count()
    }

    fn group(&self, chunk: u64) -> &(String, u16) {
        &self.groups[(chunk % self.groups.len() as u64) as usize]
    }

    /// Returns the slot of a chunk.
    pub fn slot(&self, chunk: u64) -> u16 {
        self.group(chunk).1
    }

    /// Returns the key of a chunk.
    pub fn key(&self, chunk: u64) -> NumberedKey<'_> {
        NumberedKey(&self.group(chunk).0, chunk)
    }

    /// Returns the key under which bits travel that are to be merged into a chunk.
    pub fn delta_key(&self, chunk: u64) -> String {
        format!("{}d{chunk}", self.group(chunk).0)
    }

    /// Adds the command that sets the bits of a key. Its reply is the sentinels of the key's blocks,
    /// and then the old values of its bits.
    pub fn add(&self, digest: Digest, commands: &mut Commands) {
        let lines: [Option<ChunkLine>; 2] = {
            let mut touches = self.chunks.touches(digest);
            [touches.next(), touches.next()]
        };
        let lines = || lines.iter().flatten();
        let bits = |line: &ChunkLine| line.mask.iter().map(|word| word.count_ones()).sum::<u32>();
        let (gets, sets) = (lines().count(), lines().map(bits).sum::<u32>() as usize);
        commands.begin(2 + 3 * gets + 4 * sets);
        commands.text("BITFIELD");
        commands.key(self.key(self.chunks.chunk(digest)));
        for line in lines() {
            commands.text("GET");
            commands.text("u1");
            commands.number(redis_bit(sentinel(line.offset)));
        }
        for line in lines() {
            for (index, mut word) in line.mask.into_iter().enumerate() {
                while word != 0 {
                    let bit = line.offset as u64 * 8 + index as u64 * 64;
                    commands.set_bit(redis_bit(bit + u64::from(word.trailing_zeros())));
                    word &= word - 1;
                }
            }
        }
    }

    /// Adds the commands that read the blocks of a key, one for each.
    pub fn read(&self, digest: Digest, commands: &mut Commands) {
        let key = self.key(self.chunks.chunk(digest));
        for line in self.chunks.touches(digest) {
            commands.begin(4);
            commands.text("GETRANGE");
            commands.key(key);
            commands.number(line.offset as u64);
            commands.number((line.offset + Chunks::BLOCK - 1) as u64);
        }
    }
}

/// Returns whether the bits of a key are set in a block; None if the server has lost the block.
pub(crate) fn holds(line: &ChunkLine, block: &[u8]) -> Option<bool> {
    let (byte, bit) = Chunks::RESERVED;
    let words = block.as_chunks::<8>().0;
    if block.len() != Chunks::BLOCK || block[byte] & bit == 0 {
        return None;
    }
    Some(words.iter().zip(line.mask).all(|(word, mask)| mask & !u64::from_le_bytes(*word) == 0))
}

/// Returns the position of the sentinel of the block that begins at this byte.
fn sentinel(offset: usize) -> u64 {
    offset as u64 * 8 + 511
}

/// Returns what Redis calls a bit.
fn redis_bit(bit: u64) -> u64 {
    bit ^ 7
}

/// The offset, for Redis, of the sentinel of a chunk's first block.
pub(crate) const FIRST_SENTINEL: u64 = 511 ^ 7;

/// Sets the sentinel of every block of a chunk.
pub(crate) fn set_sentinels(chunk: &mut [u8]) {
    let (byte, bit) = Chunks::RESERVED;
    chunk.iter_mut().skip(byte).step_by(Chunks::BLOCK).for_each(|last| *last |= bit);
}

/// Clears the sentinel of every block of a chunk. Returns whether every block had one; one without is
/// lost.
pub(crate) fn clear_sentinels(chunk: &mut [u8]) -> bool {
    let (byte, bit) = Chunks::RESERVED;
    let mut whole = true;
    for last in chunk.iter_mut().skip(byte).step_by(Chunks::BLOCK) {
        whole &= *last & bit != 0;
        *last &= !bit;
    }
    whole
}

/// How far from the opposite slot the second copy of a description may be: near enough for two masters
/// that have a half each, and found with few attempts.
const NEAR: u16 = 128;

/// Returns the keys of both copies of a filter's description, with their slots.
pub(crate) fn description_keys(prefix: &str, name: &[u8]) -> [(Vec<u8>, u16); 2] {
    let first = [prefix.as_bytes(), b":m:", name].concat();
    let slot = slot_of(&first);
    let tag = tag_near((slot + SLOTS / 2) % SLOTS, NEAR);
    let second = [prefix.as_bytes(), b":c:{", tag.as_bytes(), b"}:", name].concat();
    let opposite = slot_of(&second);
    [(first, slot), (second, opposite)]
}

/// Returns the pattern of the keys of all descriptions.
pub(crate) fn description_pattern(prefix: &str) -> String {
    format!("{prefix}:[mc]:*")
}

/// Returns the name of the filter that a key of a description is for.
pub(crate) fn name_in<'a>(prefix: &str, key: &'a [u8]) -> Option<&'a [u8]> {
    let rest = key.strip_prefix(prefix.as_bytes())?;
    if let Some(name) = rest.strip_prefix(b":m:") {
        return Some(name);
    }
    let tagged = rest.strip_prefix(b":c:{")?;
    let end = tagged.iter().position(|byte| *byte == b'}')?;
    tagged[end + 1..].strip_prefix(b":")
}

#[cfg(test)]
mod tests {
    use inbloom::{Filter, Hasher};

    use super::*;

    fn plan(items: u64, rate: f64) -> Plan {
        Plan::builder(Kind::Blocked).items(items).rate(rate).build().expect("a plan")
    }

    #[test]
    fn a_plan_for_a_server_keeps_the_rate_with_fewer_probes_and_a_tenth_more_bits() {
        for items in [1, 2, 1000, 1_000_000, 10_000_000_000] {
            for rate in [0.5, 0.1, 0.01, 1e-3, 1e-4, 1e-6, 1e-9] {
                let (ours, smallest) =
                    (super::plan(items, rate).expect("a plan"), plan(items, rate));
                assert!(ours.rate_at(items as f64) <= rate, "{items} at {rate}");
                assert!(ours.probes() <= smallest.probes(), "{items} at {rate}");
                assert!(ours.bits() as f64 <= smallest.bits() as f64 * 1.1, "{items} at {rate}");
                assert!(Layout::new("ib", 1, &ours).is_ok());
            }
        }
        let probes = |rate| super::plan(1_000_000, rate).expect("a plan").probes();
        assert_eq!((probes(0.01), probes(1e-4)), (4, 8));
        assert!(super::plan(0, 2.0).is_err());
    }

    fn key(layout: &Layout, chunk: u64) -> Vec<u8> {
        let mut commands = Commands::default();
        commands.begin(1);
        commands.key(layout.key(chunk));
        let text = commands.bytes().split(|byte| *byte == b'\n').nth(2).expect("an argument");
        text[..text.len() - 1].to_vec()
    }

    #[test]
    fn keys_lie_in_their_slots_and_differ() {
        for (items, rate) in [(1, 0.01), (2_000_000, 0.01), (400_000_000, 1e-4)] {
            let layout = Layout::new("ib", 0xfedc_ba98_7654_3210, &plan(items, rate)).expect("one");
            let keys: Vec<_> = (0..layout.count()).map(|chunk| key(&layout, chunk)).collect();
            for (chunk, key) in keys.iter().enumerate() {
                assert_eq!(slot_of(key), layout.slot(chunk as u64));
                assert!(key.len() <= 32, "{}", key.escape_ascii());
            }
            let distinct: std::collections::HashSet<_> = keys.iter().collect();
            assert_eq!(distinct.len(), keys.len());
        }
    }

    #[test]
    fn copies_of_a_description_lie_in_opposite_slots_and_name_the_filter() {
        for number in 0..2000 {
            let name = format!("{{n}}:{number}}}:").into_bytes();
            let name = if number % 2 == 0 { &name[3..] } else { &name };
            let [first, second] = description_keys("ib", name);
            assert_eq!((first.1, second.1), (slot_of(&first.0), slot_of(&second.0)));
            let apart = (i32::from(first.1) - i32::from(second.1)).abs();
            assert!((8192 - 128..=8192 + 128).contains(&apart), "{apart}");
            for (key, _) in [first, second] {
                assert_eq!(name_in("ib", &key), Some(name), "{}", key.escape_ascii());
            }
        }
        for other in ["ib:{5f0c1k}:17", "ib:x:name", "jb:m:name", "ib:c:name", "ib:c:{name"] {
            assert_eq!(name_in("ib", other.as_bytes()), None, "{other}");
        }
    }

    /// The names are on servers: they stay.
    #[test]
    fn names_of_descriptions_stay() {
        let keys = |name: &str| {
            description_keys("ib", name.as_bytes())
                .map(|(key, _)| String::from_utf8(key).expect("a text"))
        };
        assert_eq!(keys("seen"), ["ib:m:seen", "ib:c:{66}:seen"]);
        assert_eq!(keys("a{b}c"), ["ib:m:a{b}c", "ib:c:{l}:a{b}c"]);
    }

    /// The names are on servers: they stay.
    #[test]
    fn names_of_the_first_version_stay() {
        let layout = Layout::new("ib", 0x0123_4567_89ab_cdef, &plan(3_000_000, 0.01)).expect("one");
        let keys: Vec<String> = (0..layout.count())
            .map(|chunk| String::from_utf8(key(&layout, chunk)).expect("a text"))
            .collect();
        let expected = [
            "ib:{0123456789abcdef1mv}:0",
            "ib:{0123456789abcdeff0j}:1",
            "ib:{0123456789abcdef3o0}:2",
            "ib:{0123456789abcdef91d}:3",
        ];
        assert_eq!(keys, expected);
    }

    /// Masters as `redis-cli --cluster create` makes them, and as others may be.
    #[test]
    fn groups_lie_evenly_over_the_masters() {
        for groups in (1..64).chain([100, 333, 1000, 1023, 1024]) {
            for id in [0, 1, 8191, 0xdead_beef, 0x0123_4567_89ab_cdef, u64::MAX] {
                let plan = Plan::blocked(1, 0.5, groups * 16_383 * 512, 8, 1).expect("a plan");
                let layout = Layout::new("ib", id, &plan).expect("one");
                for masters in [1, 2, 3, 5, 6, 12, 16] {
                    // Where redis-cli lets the slots of a master begin.
                    let start =
                        |master: usize| (16_384.0 / masters as f64 * master as f64).round() as u16;
                    let mut counts = vec![0; masters];
                    for (_, slot) in &layout.groups {
                        let owner = (0..masters).rev().find(|master| start(*master) <= *slot);
                        counts[owner.expect("the first begins at 0")] += 1;
                    }
                    let (least, most) = (counts.iter().min(), counts.iter().max());
                    let difference = most.expect("a master") - least.expect("a master");
                    assert!(difference <= 1, "{groups} groups, {masters} masters: {counts:?}");
                }
            }
        }
    }

    /// A server that runs these commands, written from the documentation of Redis.
    #[derive(Default)]
    struct Strings(std::collections::HashMap<Vec<u8>, Vec<u8>>);

    impl Strings {
        fn bit(&mut self, key: &[u8], offset: u64) -> (&mut u8, u8) {
            let value = self.0.entry(key.to_vec()).or_default();
            let at = (offset / 8) as usize;
            if value.len() <= at {
                value.resize(at + 1, 0);
            }
            (&mut value[at], 0x80 >> (offset % 8))
        }

        /// Runs a BITFIELD and returns its replies.
        fn bitfield(&mut self, arguments: &[Vec<u8>]) -> Vec<bool> {
            let (key, mut rest) = (&arguments[1], &arguments[2..]);
            let mut replies = Vec::new();
            while let [verb, width, offset, more @ ..] = rest {
                assert_eq!(width, b"u1");
                let text = std::str::from_utf8(offset).expect("digits");
                let (byte, mask) = self.bit(key, text.parse().expect("a number"));
                replies.push(*byte & mask != 0);
                rest = match verb.as_slice() {
                    b"GET" => more,
                    b"SET" => {
                        assert_eq!(more[0], b"1");
                        *byte |= mask;
                        &more[1..]
                    }
                    other => panic!("{}", other.escape_ascii()),
                };
            }
            replies
        }
    }

    /// Splits packed commands into their arguments.
    fn parsed(commands: &Commands) -> Vec<Vec<Vec<u8>>> {
        let mut rest = commands.bytes();
        let line = |rest: &mut &[u8]| {
            let end = rest.iter().position(|byte| *byte == b'\r').expect("a line");
            let text = String::from_utf8(rest[1..end].to_vec()).expect("a number");
            *rest = &rest[end + 2..];
            text.parse::<usize>().expect("a number")
        };
        let mut parsed = Vec::new();
        while !rest.is_empty() {
            let count = line(&mut rest);
            let argument = |_| {
                let length = line(&mut rest);
                let argument = rest[..length].to_vec();
                rest = &rest[length + 2..];
                argument
            };
            parsed.push((0..count).map(argument).collect());
        }
        parsed
    }

    #[test]
    fn commands_set_and_find_the_bits_of_the_local_filter() {
        let hasher = Hasher::default();
        for plan in [plan(1000, 0.01), plan(3_000_000, 1e-4), plan(3_000_000, 1e-7)] {
            let layout = Layout::new("ib", 7, &plan).expect("a layout");
            let mut server = Strings::default();
            let mut chunks = Vec::new();
            for chunk in 0..layout.count() {
                let mut bytes = vec![0; layout.chunks.bytes(chunk)];
                set_sentinels(&mut bytes);
                server.0.insert(key(&layout, chunk), bytes.clone());
                chunks.push(bytes);
            }
            let mut local = Filter::with_hasher(plan, hasher).expect("memory");
            for item in 0..2000_u64 {
                let digest = hasher.digest(item / 2);
                let mut commands = Commands::default();
                layout.add(digest, &mut commands);
                let [arguments] = &parsed(&commands)[..] else { panic!("one command") };
                let replies = server.bitfield(arguments);
                let (sentinels, bits) = replies.split_at(layout.chunks.lines());
                assert!(sentinels.iter().all(|sentinel| *sentinel));
                let new = bits.iter().any(|bit| !bit);
                assert_eq!(new, local.insert_digest(digest).expect("writable"));

                let mut commands = Commands::default();
                layout.read(digest, &mut commands);
                for (arguments, line) in parsed(&commands).iter().zip(layout.chunks.touches(digest))
                {
                    let number = |at: usize| {
                        let text = std::str::from_utf8(&arguments[at]).expect("digits");
                        text.parse::<usize>().expect("a number")
                    };
                    let value = &server.0[&arguments[1]];
                    let block = &value[number(2)..=number(3)];
                    assert_eq!(holds(&line, block), Some(true));
                    assert_eq!(holds(&line, &[0; 64]), None);
                    assert_eq!(holds(&line, &block[..63]), None);
                    assert_eq!(holds(&line, b""), None);
                }
            }
            let mut bytes = Vec::new();
            for chunk in 0..layout.count() {
                let mut value = server.0[&key(&layout, chunk)].clone();
                assert!(clear_sentinels(&mut value));
                assert!(!clear_sentinels(&mut value.clone()));
                bytes.extend_from_slice(&value);
            }
            let mut file = Vec::new();
            local.write_to(&mut file).expect("it is written");
            assert!(file.ends_with(&bytes), "{plan:?}");
        }
    }
}
