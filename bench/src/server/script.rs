//! Requests that are made before the clock runs, and what must be answered to each.
//!
//! A script is played on one connection: as many commands as its depth are sent in one write, then
//! their replies are read and checked, and so on. With a depth of 1 every command waits for the
//! last one's reply.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{ops, thread};

use super::client::{self, Client, wrong};
use super::process::Process;
use crate::cli::answers::Promise;
use crate::workload;

/// Bytes of every key.
pub(crate) const KEY_BYTES: usize = 20;

/// Identities from here on are never added.
const ABSENT: u64 = 1 << 40;

/// The key of an identity: different ones for different identities.
pub(crate) fn key(identity: u64) -> [u8; KEY_BYTES] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut key = *b"key:0000000000000000";
    let mut rest = workload::mix(identity);
    for digit in &mut key[4..] {
        *digit = DIGITS[(rest % 16) as usize];
        rest /= 16;
    }
    key
}

/// The key of a number that nobody adds.
pub(crate) fn absent_key(number: u64) -> [u8; KEY_BYTES] {
    key(ABSENT + number)
}

/// What must be answered for an item.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Expected {
    Pong,
    Ok,
    /// This and nothing else, as for a key that was added.
    Surely(bool),
    /// This, unless the item is a false positive; those are counted.
    Usually(bool),
    /// A number: at least 1 for a member, 0 for others unless they are false positives.
    Count {
        of_member: bool,
    },
}

/// How the items of a command are answered.
#[derive(Clone, Copy)]
pub(crate) enum Shape {
    /// One item, one reply.
    Single,
    /// An array, with an element for every item.
    Array,
}

/// Commands of one kind.
pub(crate) struct Script {
    shape: Shape,
    /// Commands that are sent before the first reply is waited for.
    depth: usize,
    bytes: Vec<u8>,
    commands: Vec<Command>,
    expected: Vec<Expected>,
}

/// Where a command and its items end.
struct Command {
    bytes_end: usize,
    items_end: usize,
}

/// What was answered.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Tally {
    pub(crate) items: u64,
    /// Items that may be false positives,
    pub(crate) chances: u64,
    /// and those that were.
    pub(crate) false_positives: u64,
}

impl Script {
    pub(crate) fn new(shape: Shape, depth: usize) -> Script {
        Script { shape, depth, bytes: Vec::new(), commands: Vec::new(), expected: Vec::new() }
    }

    /// Appends a command of these words with one reply.
    pub(crate) fn push(&mut self, words: &[&[u8]], expected: Expected) {
        client::encode(&mut self.bytes, words);
        self.expected.push(expected);
        self.end_command();
    }

    /// Appends a command with many items after its first words.
    pub(crate) fn push_many(
        &mut self,
        words: &[&[u8]],
        items: impl ExactSizeIterator<Item = ([u8; KEY_BYTES], Expected)>,
    ) {
        client::encode_head(&mut self.bytes, words.len() + items.len());
        for word in words {
            client::encode_word(&mut self.bytes, word);
        }
        for (item, expected) in items {
            client::encode_word(&mut self.bytes, &item);
            self.expected.push(expected);
        }
        self.end_command();
    }

    fn end_command(&mut self) {
        self.commands.push(Command { bytes_end: self.bytes.len(), items_end: self.expected.len() });
    }

    /// Puts the keys of other identities, from this one on, in the place of all items.
    fn rename_items(&mut self, first: u64) {
        // `$20`, the key, and a line's end behind each.
        const LENGTH: usize = b"$20\r\n".len();
        const ITEM: usize = LENGTH + KEY_BYTES + b"\r\n".len();
        let mut identity = first;
        let mut before = 0;
        for command in &self.commands {
            let begin = command.bytes_end - (command.items_end - before) * ITEM;
            for item in self.bytes[begin..command.bytes_end].chunks_exact_mut(ITEM) {
                item[LENGTH..LENGTH + KEY_BYTES].copy_from_slice(&key(identity));
                identity += 1;
            }
            before = command.items_end;
        }
    }

    /// Sends all commands and checks all replies. A reply that cannot be right is an error.
    pub(crate) fn play(&self, client: &mut Client) -> io::Result<Tally> {
        let mut tally = Tally::default();
        let (mut bytes, mut items) = (0, 0);
        for burst in self.commands.chunks(self.depth) {
            let end = burst.last().map_or(bytes, |command| command.bytes_end);
            client.send(&self.bytes[bytes..end])?;
            bytes = end;
            for command in burst {
                let expected = &self.expected[items..command.items_end];
                if let Shape::Array = self.shape {
                    client.array(expected.len())?;
                }
                for &expected in expected {
                    tally.take(expected, client)?;
                }
                items = command.items_end;
            }
        }
        Ok(tally)
    }
}

/// Adds new keys, the first of this identity, with `depth` commands in flight, until it is stopped.
/// `added` counts along for a watching thread.
///
/// One burst is made and gets new keys each time: requests for all that a server takes in seconds
/// would fill the memory, and making them anew takes the client ten times as long as their keys.
pub(crate) fn add_until(
    client: &mut Client,
    (filter, first): (&str, u64),
    (per_command, depth): (u64, usize),
    is_done: &AtomicBool,
    added: &AtomicU64,
) -> io::Result<Tally> {
    let items = per_command * depth as u64;
    let mut burst = additions(filter, first..first + items, per_command, depth);
    let mut tally = Tally::default();
    while !is_done.load(Ordering::Relaxed) {
        burst.rename_items(first + tally.items);
        tally += burst.play(client)?;
        added.fetch_add(items, Ordering::Relaxed);
    }
    Ok(tally)
}

impl Tally {
    /// Reads the reply for an item and checks it.
    fn take(&mut self, expected: Expected, client: &mut Client) -> io::Result<()> {
        self.items += 1;
        match expected {
            Expected::Pong => client.exactly("+PONG"),
            Expected::Ok => client.exactly("+OK"),
            Expected::Surely(truth) => {
                if client.truth()? == truth {
                    return Ok(());
                }
                let (found, truth) = (u8::from(!truth), u8::from(truth));
                Err(wrong(format!("item {} was answered {found}, it is {truth}", self.items)))
            }
            Expected::Usually(truth) => {
                self.chances += 1;
                self.false_positives += u64::from(client.truth()? != truth);
                Ok(())
            }
            Expected::Count { of_member: true } => match client.number()? {
                0 => Err(wrong(format!("item {} was counted 0 times, it is there", self.items))),
                _ => Ok(()),
            },
            Expected::Count { of_member: false } => {
                self.chances += 1;
                self.false_positives += u64::from(client.number()? != 0);
                Ok(())
            }
        }
    }

    /// An error if there are more false positives than a rate explains.
    pub(crate) fn check(&self, rate: f64) -> io::Result<()> {
        let most = Promise::Rate(rate).most_errors(self.chances);
        if self.false_positives <= most {
            return Ok(());
        }
        Err(wrong(format!(
            "{} false positives among {}, expected at most {most} at a rate of {rate}",
            self.false_positives, self.chances
        )))
    }

    /// `12 false positives in 500000, promised 500`; nothing where none can be.
    pub(crate) fn note(&self, rate: f64) -> String {
        if self.chances == 0 {
            return String::new();
        }
        format!(
            "{} false positives in {}, promised {:.0}",
            self.false_positives,
            self.chances,
            self.chances as f64 * rate
        )
    }
}

impl ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.items += other.items;
        self.chances += other.chances;
        self.false_positives += other.false_positives;
    }
}

/// What playing scripts took.
#[derive(Clone, Copy)]
pub(crate) struct Cost {
    /// Time that the server worked, in the program and in the kernel.
    pub(crate) processor: Duration,
    /// Time that passed.
    pub(crate) wall: Duration,
    pub(crate) tally: Tally,
}

impl Cost {
    /// Nanoseconds of the server's work per item.
    pub(crate) fn ns(&self) -> f64 {
        self.processor.as_nanos() as f64 / self.tally.items as f64
    }

    pub(crate) fn items_per_second(&self) -> f64 {
        self.tally.items as f64 / self.wall.as_secs_f64()
    }
}

/// Plays every script on a connection of its own, all at once.
pub(crate) fn measure(
    process: Process,
    clients: &mut [Client],
    scripts: &[Script],
) -> io::Result<Cost> {
    assert_eq!(clients.len(), scripts.len(), "a connection for every script");
    let worked = process.worked()?;
    let start = Instant::now();
    let tallies: Vec<io::Result<Tally>> = match (clients, scripts) {
        // Without a thread, whose start would be a part of a short run.
        ([client], [script]) => vec![script.play(client)],
        (clients, scripts) => thread::scope(|scope| {
            let players: Vec<_> = clients
                .iter_mut()
                .zip(scripts)
                .map(|(client, script)| scope.spawn(|| script.play(client)))
                .collect();
            players.into_iter().map(|player| player.join().expect("no player panics")).collect()
        }),
    };
    let wall = start.elapsed();
    let processor = process.worked()?.saturating_sub(worked);
    let mut tally = Tally::default();
    for one in tallies {
        tally += one?;
    }
    Ok(Cost { processor, wall, tally })
}

/// Items that are added in one command while a filter is filled.
const FILL_ITEMS: u64 = 1000;
/// Items for which requests are made before they are sent.
const FILL_STEP: u64 = 500_000;

/// Adds the keys of a range of identities, all of them new, to a filter, and the first of them
/// once more. Tells what was answered the first time.
pub(crate) fn fill(
    client: &mut Client,
    filter: &str,
    identities: ops::Range<u64>,
    rate: f64,
) -> io::Result<Tally> {
    let mut tally = Tally::default();
    let mut begin = identities.start;
    while begin < identities.end {
        let end = identities.end.min(begin + FILL_STEP);
        tally += additions(filter, begin..end, FILL_ITEMS, 1).play(client)?;
        begin = end;
    }
    tally.check(rate)?;
    // None is new a second time.
    let again = identities.start..identities.end.min(identities.start + FILL_ITEMS);
    let mut script = Script::new(Shape::Array, 1);
    let items: Vec<_> = again.clone().map(|one| (key(one), Expected::Surely(false))).collect();
    script.push_many(&[b"BF.MADD", filter.as_bytes()], items.into_iter());
    script.play(client)?;
    let mut script = Script::new(Shape::Single, 100);
    for identity in again {
        let words: [&[u8]; 3] = [b"BF.ADD", filter.as_bytes(), &key(identity)];
        script.push(&words, Expected::Surely(false));
    }
    script.play(client)?;
    Ok(tally)
}

/// BF.MADD of a range of identities, all of them new.
pub(crate) fn additions(
    filter: &str,
    identities: ops::Range<u64>,
    per_command: u64,
    depth: usize,
) -> Script {
    let words: [&[u8]; 2] = [b"BF.MADD", filter.as_bytes()];
    commands_of(&words, (identities, Expected::Usually(true)), per_command, depth)
}

/// Commands that begin with these words and go on with the keys of a range of identities.
pub(crate) fn commands_of(
    words: &[&[u8]],
    (identities, expected): (ops::Range<u64>, Expected),
    per_command: u64,
    depth: usize,
) -> Script {
    let mut script = Script::new(Shape::Array, depth);
    let mut begin = identities.start;
    while begin < identities.end {
        let end = identities.end.min(begin + per_command);
        let items =
            (0..(end - begin) as usize).map(|offset| (key(begin + offset as u64), expected));
        script.push_many(words, items);
        begin = end;
    }
    script
}

/// Adds the keys of a range of identities to a cuckoo filter.
pub(crate) fn fill_cuckoo(
    client: &mut Client,
    filter: &str,
    identities: ops::Range<u64>,
) -> io::Result<()> {
    let words: [&[u8]; 3] = [b"CF.INSERT", filter.as_bytes(), b"ITEMS"];
    let mut begin = identities.start;
    while begin < identities.end {
        let end = identities.end.min(begin + FILL_STEP);
        commands_of(&words, (begin..end, Expected::Surely(true)), FILL_ITEMS, 1).play(client)?;
        begin = end;
    }
    Ok(())
}

/// The number-th query of a mix: the even ones for members, which are `0..members`, in an order
/// unrelated to that of their addition; the odd ones for absent keys.
pub(crate) fn query(number: u64, members: u64) -> ([u8; KEY_BYTES], Expected) {
    query_of(number, 0..members)
}

/// As [`query`], for members in a range of identities.
pub(crate) fn query_of(number: u64, members: ops::Range<u64>) -> ([u8; KEY_BYTES], Expected) {
    if number.is_multiple_of(2) {
        let identity = members.start + workload::mix(number) % (members.end - members.start);
        (key(identity), Expected::Surely(true))
    } else {
        (absent_key(number), Expected::Usually(false))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    /// The verdict on a server that answers the script with these bytes.
    fn verdict(script: &Script, answer: &'static [u8]) -> io::Result<Tally> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let length = script.bytes.len();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("the client below");
            stream.write_all(answer).expect("the client reads");
            stream.read_exact(&mut vec![0; length]).expect("the whole script");
        });
        script.play(&mut Client::connect(address).expect("the listener above"))
    }

    fn queries() -> Script {
        let mut script = Script::new(Shape::Array, 100);
        script.push_many(&[b"BF.MEXISTS", b"f"], (0..4_u32).map(|number| query(number.into(), 9)));
        script
    }

    #[test]
    fn a_lost_member_is_an_error_and_a_false_positive_is_counted() {
        let right = Tally { items: 4, chances: 2, false_positives: 0 };
        let answered = |bytes| verdict(&queries(), bytes);
        assert_eq!(answered(b"*4\r\n:1\r\n:0\r\n:1\r\n:0\r\n").expect("right"), right);
        let one = Tally { false_positives: 1, ..right };
        assert_eq!(answered(b"*4\r\n:1\r\n:1\r\n:1\r\n:0\r\n").expect("may be"), one);
        assert!(answered(b"*4\r\n:1\r\n:0\r\n:0\r\n:0\r\n").is_err(), "a member is lost");
        assert!(answered(b"*3\r\n:1\r\n:0\r\n:1\r\n").is_err(), "an answer is lost");
        assert!(answered(b"-ERR not found\r\n").is_err());
    }

    #[test]
    fn more_false_positives_than_the_rate_explains_are_an_error() {
        let tally = |false_positives| Tally { items: 1_000_000, chances: 500_000, false_positives };
        assert!(tally(500).check(0.001).is_ok());
        assert!(tally(1000).check(0.001).is_err());
    }

    #[test]
    fn requests_are_what_the_protocol_asks_for() {
        let mut script = Script::new(Shape::Single, 1);
        script.push(&[b"BF.EXISTS", b"f", &key(0)], Expected::Surely(true));
        let text = String::from_utf8(script.bytes).expect("keys are of ASCII");
        let item = String::from_utf8(key(0).to_vec()).expect("as above");
        let expected = format!("*3\r\n$9\r\nBF.EXISTS\r\n$1\r\nf\r\n$20\r\n{item}\r\n");
        assert_eq!(text, expected);
    }

    #[test]
    fn renamed_items_are_those_of_a_script_that_was_made_of_them() {
        let mut script = additions("f", 0..250, 100, 2);
        script.rename_items(1000);
        assert!(script.bytes == additions("f", 1000..1250, 100, 2).bytes);
    }

    #[test]
    fn keys_of_different_identities_differ() {
        let mut keys: Vec<_> = (0..100_000).map(key).chain((0..100_000).map(absent_key)).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 200_000);
    }
}
