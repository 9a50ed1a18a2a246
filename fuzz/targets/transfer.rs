//! LOADCHUNK and RESTORE of what anybody may send: pieces and payloads of real dumps, damaged,
//! mixed and in any order, with checksums that are right all the same. An error, or a filter that
//! works.
#![no_main]

use std::sync::{Arc, LazyLock};

use arbitrary::Arbitrary;
use inbloom_server::session::{Next, Place};
use inbloom_server::{Config, Server, Session};
use libfuzzer_sys::fuzz_target;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

#[derive(Arbitrary, Debug)]
enum Step<'a> {
    /// Any bytes at all.
    Load { family: bool, key: u8, iterator: i64, data: &'a [u8] },
    /// A piece of a dump.
    Piece { dump: u8, piece: u8, key: u8, damage: Damage<'a> },
    /// All pieces of a dump, one of them damaged.
    All { dump: u8, piece: u8, key: u8, damage: Damage<'a> },
    /// A payload.
    Restore { dump: u8, key: u8, damage: Damage<'a> },
    /// Any bytes for a payload.
    RestoreAny { key: u8, data: &'a [u8] },
    /// Something that other clients do.
    Add { family: bool, key: u8 },
}

#[derive(Arbitrary, Debug)]
struct Damage<'a> {
    /// Where, and what is there then.
    bytes: Vec<(u16, u8)>,
    /// How many bytes are missing at the end.
    cut: u16,
    /// What is put at the end.
    more: &'a [u8],
    /// The checksum is made right again.
    sealed: bool,
}

struct Dump {
    family: &'static str,
    pieces: Vec<(i64, Vec<u8>)>,
    payload: Vec<u8>,
}

/// Dumps of small filters of all forms.
static DUMPS: LazyLock<Vec<Dump>> = LazyLock::new(|| {
    let made: [(&str, usize); 9] = [
        ("BF.RESERVE f 0.01 30", 20),
        ("BF.RESERVE f 0.01 30", 200),
        ("BF.RESERVE f 0.000001 50 NONSCALING", 50),
        ("BF.RESERVE f 0.01 30 KIND counting", 20),
        ("BF.RESERVE f 0.01 30 KIND cuckoo", 20),
        ("BF.RESERVE f 0.01 30 WINDOW 1h", 20),
        ("BF.RESERVE f 0.01 10 KIND redisbloom", 40),
        ("CF.RESERVE f 64", 40),
        ("CF.RESERVE f 8 EXPANSION 2", 100),
    ];
    made.iter()
        .map(|(line, count)| {
            let family = &line[..2];
            let mut client = Client::new();
            client.say(line);
            for item in 0..*count {
                client.say(&format!("{family}.ADD f {item}"));
            }
            let pieces = client.pieces(family, "f");
            let payload = bulk(&client.say("DUMP f"));
            Dump { family, pieces, payload }
        })
        .collect()
});

struct Client {
    server: Arc<Server>,
    session: Session,
}

impl Client {
    fn new() -> Client {
        let mut config = Config::default();
        config.settings.max_memory = 4 << 20;
        let server = Arc::new(Server::new(config));
        let client = server.clients.enter("here:1".into(), "here:2".into());
        Client { session: Session::new(client, &server), server }
    }

    fn say(&mut self, line: &str) -> Vec<u8> {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        self.send(&words)
    }

    fn send(&mut self, words: &[&[u8]]) -> Vec<u8> {
        let mut request = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            request.extend(format!("${}\r\n", word.len()).into_bytes());
            request.extend_from_slice(word);
            request.extend(b"\r\n");
        }
        let mut out = Vec::new();
        let mut progress = self.session.process(&self.server, &request, &mut out, Place::Shared);
        if progress.next == Next::Work {
            // Also after a request that took long: what is left may be nothing.
            let done = progress.consumed;
            progress = self.session.process(&self.server, &request[done..], &mut out, Place::Own);
            progress.consumed += done;
        }
        assert_eq!(progress.consumed, request.len());
        assert!(!out.is_empty());
        out
    }

    fn load(&mut self, family: &str, key: u8, iterator: i64, data: &[u8]) -> Vec<u8> {
        self.load_into(family, &name(key), iterator, data)
    }

    fn load_into(&mut self, family: &str, key: &str, iterator: i64, data: &[u8]) -> Vec<u8> {
        let command = format!("{family}.LOADCHUNK");
        self.send(&[command.as_bytes(), key.as_bytes(), iterator.to_string().as_bytes(), data])
    }

    fn pieces(&mut self, family: &str, name: &str) -> Vec<(i64, Vec<u8>)> {
        let mut pieces: Vec<(i64, Vec<u8>)> = Vec::new();
        loop {
            let iterator = pieces.last().map_or(0, |(iterator, _)| *iterator);
            let answer = self.say(&format!("{family}.SCANDUMP {name} {iterator}"));
            let rest = answer.strip_prefix(b"*2\r\n:").expect("a pair");
            let end = rest.iter().position(|byte| *byte == b'\r').expect("a line");
            let next: i64 = std::str::from_utf8(&rest[..end]).unwrap().parse().unwrap();
            if next == 0 {
                return pieces;
            }
            assert!(next > iterator, "a dump that does not end");
            pieces.push((next, bulk(&rest[end + 2..])));
        }
    }
}

fn bulk(reply: &[u8]) -> Vec<u8> {
    let start = reply.iter().position(|byte| *byte == b'\n').expect("a line") + 1;
    reply[start..reply.len() - 2].to_vec()
}

/// Few names, so that steps meet.
fn name(key: u8) -> String {
    format!("key{}", key % 3)
}

impl Damage<'_> {
    fn apply(&self, bytes: &[u8], sum: impl Fn(&[u8]) -> u64) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        for (at, byte) in &self.bytes {
            let length = bytes.len().max(1);
            if let Some(place) = bytes.get_mut(usize::from(*at) % length) {
                *place = *byte;
            }
        }
        bytes.truncate(bytes.len().saturating_sub(usize::from(self.cut)));
        bytes.extend_from_slice(self.more);
        if self.sealed {
            if let Some((content, end)) = bytes.split_last_chunk_mut::<8>() {
                *end = sum(content).to_le_bytes();
            }
        }
        bytes
    }

    /// A piece, sealed as one of the dump whose header is given.
    fn piece(&self, dump: &Dump, at: usize) -> Vec<u8> {
        let (iterator, piece) = &dump.pieces[at];
        let header = &dump.pieces[0].1;
        let identity =
            header.get(72..80).map_or(0, |field| u64::from_le_bytes(field.try_into().unwrap()));
        self.apply(piece, |content| {
            if at == 0 {
                return xxh3_64(content);
            }
            // Above 40 bits is the number of the dump.
            let end = *iterator as u64 & ((1 << 40) - 1);
            let start = end.wrapping_sub(1 + content.len() as u64);
            xxh3_64_with_seed(content, identity.wrapping_add(start))
        })
    }
}

fuzz_target!(|steps: Vec<Step<'_>>| {
    let dumps = &*DUMPS;
    let mut client = Client::new();
    let family_of = |is_cuckoo: bool| if is_cuckoo { "CF" } else { "BF" };
    for step in steps.iter().take(40) {
        match step {
            Step::Load { family, key, iterator, data } => {
                client.load(family_of(*family), *key, *iterator, data);
            }
            Step::Piece { dump, piece, key, damage } => {
                let dump = &dumps[usize::from(*dump) % dumps.len()];
                let at = usize::from(*piece) % dump.pieces.len();
                client.load(dump.family, *key, dump.pieces[at].0, &damage.piece(dump, at));
            }
            Step::All { dump, piece, key, damage } => {
                let dump = &dumps[usize::from(*dump) % dumps.len()];
                let damaged = usize::from(*piece) % dump.pieces.len();
                for (at, (iterator, piece)) in dump.pieces.iter().enumerate() {
                    if at == damaged {
                        client.load(dump.family, *key, *iterator, &damage.piece(dump, at));
                    } else {
                        client.load(dump.family, *key, *iterator, piece);
                    }
                }
            }
            Step::Restore { dump, key, damage } => {
                let dump = &dumps[usize::from(*dump) % dumps.len()];
                let payload = damage.apply(&dump.payload, xxh3_64);
                client.send(&[b"RESTORE", name(*key).as_bytes(), b"0", &payload, b"REPLACE"]);
            }
            Step::RestoreAny { key, data } => {
                client.send(&[b"RESTORE", name(*key).as_bytes(), b"0", data]);
            }
            Step::Add { family, key } => {
                client.say(&format!("{}.ADD {} x", family_of(*family), name(*key)));
            }
        }
    }
    // Memory is what the limit says, and whatever came through does its work.
    assert!(client.server.limits.in_use() <= (4 << 20) + (1 << 16));
    for key in 0..3 {
        let name = name(key);
        for family in ["BF", "CF"] {
            if client.say(&format!("{family}.INFO {name}")).starts_with(b"-") {
                continue;
            }
            client.say(&format!("{family}.DEBUG {name}"));
            if client.say(&format!("{family}.ADD {name} item")).starts_with(b":") {
                assert_eq!(client.say(&format!("{family}.EXISTS {name} item")), b":1\r\n");
            }
            let pieces = client.pieces(family, &name);
            for (iterator, piece) in &pieces {
                let reply = client.load_into(family, &format!("copy{key}"), *iterator, piece);
                let text = String::from_utf8_lossy(&reply);
                let room = text.starts_with("-ERR Insufficient memory");
                assert!(reply == b"+OK\r\n" || room, "{family}: {text}");
                if room {
                    break;
                }
            }
            client.say(&format!("DUMP {name}"));
        }
    }
});
