//! RESTORE and LOADCHUNK of dumps in which anything was changed and every checksum made right again: a
//! refusal, or a filter that answers every reading command with exactly one reply. Nothing panics,
//! nothing hangs, and memory stays within its limit.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use inbloom::{Kind, Plan};
use inbloom_server::command::{Command, Flag};
use inbloom_server::command_table::commands;
use inbloom_testing::forge::seal;
use inbloom_testing::{Random, alone, resident_memory};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::transfer::client::{Answer, Client, Integer, ok, server};

/// Filters of every form, small enough that most changes hit something that matters.
const KINDS: &[(&str, usize)] = &[
    ("BF.RESERVE f 0.01 30", 20),
    ("BF.RESERVE f 0.01 30", 200),
    ("BF.RESERVE f 0.01 30 EXPANSION 1", 200),
    ("BF.RESERVE f 0.000001 50 NONSCALING", 50),
    ("BF.RESERVE f 0.01 30 KIND classic", 20),
    ("BF.RESERVE f 0.01 30 KIND counting", 20),
    ("BF.RESERVE f 0.01 30 KIND cuckoo", 20),
    ("BF.RESERVE f 0.01 30 WINDOW 1h", 20),
    ("BF.RESERVE f 0.01 30 AUTOCLEAR 0.5", 20),
    ("BF.RESERVE f 0.01 10 KIND redisbloom", 40),
    ("BF.RESERVE f 0.01 10 NONSCALING KIND redisbloom", 5),
    ("CF.RESERVE f 64", 40),
    ("CF.RESERVE f 8 EXPANSION 2", 100),
];

const HEADER: usize = 88;
const LIMIT: u64 = 4 << 20;

struct Dump {
    family: &'static str,
    made: &'static str,
    is_ours: bool,
    pieces: Vec<(i64, Vec<u8>)>,
    payload: Vec<u8>,
}

fn dumps() -> Vec<Dump> {
    KINDS
        .iter()
        .map(|(made, count)| {
            let (mut client, family) = (Client::alone(), &made[..2]);
            assert_eq!(client.say(made), ok(), "{made}");
            let adds: &[&str] = if family == "CF" { &["CF.INSERT", "ITEMS"] } else { &["BF.MADD"] };
            client.fill(adds, "f", *count);
            let payload = client.say("DUMP f").bulk();
            let is_ours = payload.starts_with(b"\x89IBD");
            Dump { family, made, is_ours, pieces: client.pieces(family, "f"), payload }
        })
        .collect()
}

fn pick<T: Copy>(random: &mut Random, list: &[T]) -> T {
    *random.pick(list).expect("a list that is not empty")
}

/// Changes up to four places: a byte, or a number of two, four or eight bytes, which becomes one that
/// programs stumble over. Or the end: shorter, or longer.
fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    const NUMBERS: &[u64] = &[
        0,
        1,
        2,
        3,
        63,
        64,
        65,
        255,
        256,
        32_768,
        65_535,
        1 << 20,
        u32::MAX as u64,
        1 << 32,
        1 << 40,
        1 << 56,
        1 << 62,
        i64::MAX as u64,
        1 << 63,
        u64::MAX,
    ];
    let rates = [0.0, 1.0, -1.0, 0.5, 1e-300, f64::NAN, f64::INFINITY].map(f64::to_bits);
    for _ in 0..=random.index(4) {
        if bytes.is_empty() {
            return;
        }
        // The beginning is where numbers are.
        let near = bytes.len().min(pick(random, &[24, 100, 340, usize::MAX]));
        let at = random.index(near);
        let width = pick(random, &[1, 2, 4, 8]).min(bytes.len() - at);
        let number = match random.index(4) {
            0 => pick(random, &rates),
            1 => random.index(1 << 20) as u64,
            2 => u64::from(bytes[at]) ^ 1 << random.index(8),
            _ => pick(random, NUMBERS),
        };
        let at = if width > 1 { at - at % width } else { at };
        bytes[at..at + width].copy_from_slice(&number.to_le_bytes()[..width]);
    }
    match random.index(12) {
        0 => bytes.truncate(random.index(bytes.len() + 1)),
        1 => bytes.extend(vec![0xa5; random.index(100)]),
        _ => {}
    }
}

/// Makes the checksums of a header and a body in our form right, and most of the time their lengths.
fn seal_ours(content: &mut [u8], random: &mut Random) {
    if content.len() < HEADER {
        return;
    }
    let body = content.len() - HEADER;
    let base = u64::from_le_bytes(content[40..48].try_into().unwrap());
    let base = usize::try_from(base).unwrap_or(usize::MAX).min(body);
    seal(&mut content[HEADER + base..]);
    if random.index(8) > 0 {
        content[40..48].copy_from_slice(&(base as u64).to_le_bytes());
        content[56..64].copy_from_slice(&((body - base) as u64).to_le_bytes());
    }
    let sum = xxh3_64(&content[..80]).to_le_bytes();
    content[80..88].copy_from_slice(&sum);
}

/// Gives a dump with a base another capacity and rate, and a base as the planner lays it out for them:
/// nothing else would be taken for one.
fn replan(content: &mut Vec<u8>, random: &mut Random) {
    let base = content.get(40..48).map(|field| u64::from_le_bytes(field.try_into().unwrap()));
    let end = base.and_then(|base| (base as usize).checked_add(HEADER));
    let Some(file) = end.filter(|end| *end > HEADER).and_then(|end| content.get(end..)) else {
        return;
    };
    let file = file.to_vec();
    let capacity = pick(random, &[0, 0, 1, 2, 30, 1000]);
    let rate = pick(random, &[0.001, 0.0005, 0.5, 0.99, 1e-9]);
    let Ok(plan) = Plan::builder(Kind::Blocked).items(capacity).rate(rate).build() else { return };
    content.truncate(HEADER);
    content.resize(HEADER + plan.bytes() as usize, 0);
    content.extend(file);
    let expansion = pick(random, &[0u32, 1, 2, 32_768, u32::MAX]);
    content[12..16].copy_from_slice(&expansion.to_le_bytes());
    content[24..32].copy_from_slice(&capacity.to_le_bytes());
    content[32..40].copy_from_slice(&rate.to_le_bytes());
    content[40..48].copy_from_slice(&plan.bytes().to_le_bytes());
    content[48..52].copy_from_slice(&plan.probes().to_le_bytes());
    content[52..56].copy_from_slice(&plan.lines().to_le_bytes());
}

/// Changes a dump of ours, and makes its checksums right.
fn forge_ours(content: &mut Vec<u8>, random: &mut Random) {
    match random.index(3) {
        0 => replan(content, random),
        1 => {
            replan(content, random);
            mutate(content, random);
        }
        _ => mutate(content, random),
    }
    seal_ours(content, random);
}

/// The checksum of Redis: CRC-64, by Jones.
fn crc64(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |mut sum, byte| {
        sum ^= u64::from(*byte);
        for _ in 0..8 {
            sum = if sum & 1 != 0 { sum >> 1 ^ 0x95ac_9329_ac4b_c9b5 } else { sum >> 1 };
        }
        sum
    })
}

/// A payload for RESTORE.
fn forged_payload(dump: &Dump, random: &mut Random) -> Vec<u8> {
    let mut payload = dump.payload[..dump.payload.len() - 8].to_vec();
    if dump.is_ours {
        forge_ours(&mut payload, random);
        payload.extend(xxh3_64(&payload).to_le_bytes());
    } else {
        mutate(&mut payload, random);
        payload.extend(crc64(&payload).to_le_bytes());
    }
    payload
}

/// Pieces for LOADCHUNK.
fn forged_pieces(dump: &Dump, random: &mut Random) -> Vec<(i64, Vec<u8>)> {
    if !dump.is_ours {
        let mut pieces = dump.pieces.clone();
        let at = random.index(pieces.len());
        mutate(&mut pieces[at].1, random);
        return pieces;
    }
    let mut content = dump.payload[..dump.payload.len() - 8].to_vec();
    forge_ours(&mut content, random);
    let (header, body) = content.split_at(content.len().min(HEADER));
    let mut pieces = vec![(1, header.to_vec())];
    if let Some(identity) = header.get(72..80) {
        let identity = u64::from_le_bytes(identity.try_into().unwrap());
        let mut start = 0;
        while start < body.len() {
            let end = (start + 1 + random.index(4000)).min(body.len());
            let mut piece = body[start..end].to_vec();
            let sum = xxh3_64_with_seed(&piece, identity.wrapping_add(start as u64));
            piece.extend(sum.to_le_bytes());
            pieces.push((1 + end as i64, piece));
            start = end;
        }
    }
    pieces
}

/// The rows of all commands that read, subcommands apart.
fn readers() -> Vec<&'static Command> {
    commands()
        .flat_map(|row| match row.subcommands {
            [] => std::slice::from_ref(row),
            rows => rows,
        })
        .filter(|row| row.has(Flag::ReadOnly))
        .collect()
}

/// Runs every reading command on a key, and what adds and removes an item.
fn read_all(client: &mut Client, readers: &[&Command]) {
    for row in readers {
        let mut words: Vec<&str> = row.name.split('|').collect();
        let position = words.len();
        let least = row.arity.unsigned_abs() as usize;
        words.resize(least.max(position + 1), "1");
        // Where a key is expected or may stand.
        words[position] = "k";
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        client.send(&words);
    }
    for line in [
        "BF.INFO k",
        "CF.INFO k",
        "BF.MEXISTS k 1 2 3",
        "CF.MEXISTS k 1 2 3",
        "BF.DEBUG k",
        "CF.DEBUG k",
        "CF.COUNT k 1",
        "IB.ESTIMATE k",
        "IB.CHECKANY 1 k",
        "MEMORY USAGE k",
        "OBJECT ENCODING k",
        "BF.ADD k new",
        "CF.ADD k new",
        "BF.EXISTS k new",
        "CF.EXISTS k new",
        "CF.DEL k new",
        "BF.INFO k",
        "CF.INFO k",
    ] {
        client.say(line);
    }
    for family in ["BF", "CF"] {
        let mut iterator = 0;
        for _ in 0..200 {
            match client.say(&format!("{family}.SCANDUMP k {iterator}")) {
                Answer::Array(pair) if !matches!(pair[0], Integer(0)) => {
                    let Integer(next) = pair[0] else { panic!("{pair:?}") };
                    assert!(next > iterator, "a dump that goes backwards");
                    iterator = next;
                }
                _ => break,
            }
        }
    }
}

/// Names the case if the test fails in it.
struct Case<'a>(u64, &'a str);

impl Drop for Case<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("in case {} ({})", self.0, self.1);
        }
    }
}

fn run(cases: u64) {
    let (dumps, readers) = (dumps(), readers());
    assert!(readers.len() > 20, "{}", readers.len());
    // Whoever hangs is named, and the test ends.
    let at = AtomicU64::new(0);
    let (done, ended) = channel::<()>();
    let accepted = std::thread::scope(|scope| {
        let at = &at;
        scope.spawn(move || {
            let mut last = u64::MAX;
            while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(Duration::from_secs(60)) {
                let now = at.load(Ordering::Relaxed);
                if now == last {
                    eprintln!("case {now} hangs");
                    std::process::abort();
                }
                last = now;
            }
        });
        let _done = done;
        let mut client = Client::new(&server(LIMIT));
        let before = resident_memory();
        let mut accepted = 0;
        for case in 0..cases {
            at.store(case, Ordering::Relaxed);
            let mut random = Random(case);
            let dump = &dumps[case as usize % dumps.len()];
            let _case = Case(case, dump.made);
            if random.index(2) == 0 {
                let payload = forged_payload(dump, &mut random);
                client.send(&[b"RESTORE", b"k", b"0", &payload]);
            } else {
                for (iterator, piece) in forged_pieces(dump, &mut random) {
                    client.load(dump.family, "k", iterator, &piece);
                }
            }
            if client.say("EXISTS k") == Integer(1) {
                accepted += 1;
                read_all(&mut client, &readers);
                assert_eq!(client.say("DEL k"), Integer(1));
            }
            let used = client.server.limits.in_use();
            assert!(used <= LIMIT + (1 << 16), "{used} bytes");
        }
        let grown = resident_memory().saturating_sub(before);
        assert!(grown < 256 << 20, "{grown} bytes more are resident");
        accepted
    });
    println!("{cases} cases, {accepted} accepted");
    assert!(accepted > cases / 20 && accepted < cases, "{accepted} of {cases} were accepted");
}

#[test]
fn twenty_thousand_forged_dumps_are_refused_or_serve_every_reader() {
    alone(|| run(20_000));
}

#[test]
#[ignore = "minutes"]
fn two_million_forged_dumps_are_refused_or_serve_every_reader() {
    alone(|| run(2_000_000));
}
