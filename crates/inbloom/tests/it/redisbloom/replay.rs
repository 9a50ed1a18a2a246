//! Recorded conversations with RedisBloom 8.8.0, put to the structures themselves: what a command
//! does to a filter, without the server around it. A line whose answer is a matter of words, keys
//! or types is left out.

use std::collections::HashMap;

use inbloom::interop::redisbloom::{Bloom, CHUNK, CuckooChain, LoadError, Refused};
use serde_json::{Value, json};

use super::LIMIT;

/// What a key holds.
enum Held {
    Bloom(Bloom),
    Cuckoo(CuckooChain),
}

/// A server of one conversation.
#[derive(Default)]
struct Server {
    held: HashMap<Vec<u8>, Held>,
}

/// Plays a file, and returns how many answers were compared.
pub fn replay(lines: &str) -> usize {
    let mut server = Server::default();
    let mut compared = 0;
    for line in lines.lines() {
        let line: Value = serde_json::from_str(line).expect("a line of JSON");
        let words: Vec<Vec<u8>> =
            line["cmd"].as_array().expect("a command").iter().map(bytes_of).collect();
        let recorded = &line["reply"];
        let is_ours = recorded.get("error").is_none_or(|text| {
            let text = text.as_str().expect("a text");
            OUR_ERRORS.contains(&text)
        });
        if !is_ours {
            continue;
        }
        if let Some(answer) = server.answer(&words) {
            assert_eq!(answer, plain(recorded), "{line}");
            compared += 1;
        }
    }
    compared
}

/// The errors that are the filter's own.
const OUR_ERRORS: [&str; 6] = [
    "ERR non scaling filter is full",
    "Filter is full",
    "ERR received bad data",
    "ERR invalid offset - no link found",
    "Invalid header",
    "Couldn't load chunk!",
];

fn bytes_of(argument: &Value) -> Vec<u8> {
    match argument {
        Value::String(text) => text.clone().into_bytes(),
        coded => base64(coded["b64"].as_str().expect("text or base64")),
    }
}

fn base64(text: &str) -> Vec<u8> {
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0u32, 0);
    for letter in text.bytes().filter(|letter| *letter != b'=') {
        let value = alphabet.iter().position(|known| *known == letter).expect("base64");
        bits = bits << 6 | value as u32;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    bytes
}

/// A recorded reply without its types: numbers, texts, lists. Bulk strings are lists of bytes.
fn plain(reply: &Value) -> Value {
    let (kind, value) = reply.as_object().expect("a reply").iter().next().expect("a reply");
    match kind.as_str() {
        "int" | "simple" | "error" => value.clone(),
        "bulk" => json!(value.as_str().expect("a text").as_bytes()),
        "bulk_b64" => json!(base64(value.as_str().expect("base64"))),
        "nil" => Value::Null,
        "array" => value.as_array().expect("a list").iter().map(plain).collect(),
        other => panic!("a reply of type {other}"),
    }
}

fn text(word: &[u8]) -> &str {
    std::str::from_utf8(word).expect("a text")
}

fn number<T: std::str::FromStr>(word: &[u8]) -> Option<T> {
    text(word).parse().ok()
}

/// The number after an option, wherever it is.
fn option<T: std::str::FromStr>(words: &[Vec<u8>], name: &str) -> Option<T> {
    let at = words.iter().rposition(|word| word.eq_ignore_ascii_case(name.as_bytes()))?;
    number(words.get(at + 1)?)
}

impl Server {
    /// The answer to a command, unless it is not a matter of a filter.
    fn answer(&mut self, words: &[Vec<u8>]) -> Option<Value> {
        let command = text(&words[0]).to_uppercase();
        let (key, rest) = (words.get(1)?, words.get(2..)?);
        match command.as_str() {
            "@COPY_BY_SCANDUMP" => return Some(self.copy(&words[2], &words[3])?.into()),
            "BF.RESERVE" => {
                let scaling = !rest.iter().any(|word| word.eq_ignore_ascii_case(b"NONSCALING"));
                let growth = if scaling { option(rest, "EXPANSION").unwrap_or(2) } else { 0 };
                let bloom = Bloom::new(number(&rest[0])?, number(&rest[1])?, growth, LIMIT);
                self.held.insert(key.clone(), Held::Bloom(bloom.expect("it was made then")));
                return Some("OK".into());
            }
            "CF.RESERVE" => {
                self.held.insert(key.clone(), Held::Cuckoo(reserve(number(&rest[0])?, rest)));
                return Some("OK".into());
            }
            "BF.LOADCHUNK" | "CF.LOADCHUNK" if !self.held.contains_key(key) => {
                return self.load_header(&command, key, rest);
            }
            "CF.ADD" | "CF.ADDNX" if !self.held.contains_key(key) => {
                self.held.insert(key.clone(), Held::Cuckoo(reserve(1024, &[])));
            }
            "CF.INSERT" | "CF.INSERTNX" if !self.held.contains_key(key) => {
                let capacity = option(&rest[..items_of(rest)? - 1], "CAPACITY").unwrap_or(1024);
                self.held.insert(key.clone(), Held::Cuckoo(reserve(capacity, &[])));
            }
            "BF.INSERT" if !self.held.contains_key(key) => {
                let options = &rest[..items_of(rest)? - 1];
                let scaling = !options.iter().any(|word| word == b"NONSCALING");
                let growth = if scaling { option(options, "EXPANSION").unwrap_or(2) } else { 0 };
                let rate = option(options, "ERROR").unwrap_or(0.01);
                let capacity = option(options, "CAPACITY").unwrap_or(100);
                let bloom = Bloom::new(rate, capacity, growth, LIMIT).expect("it was made then");
                self.held.insert(key.clone(), Held::Bloom(bloom));
            }
            _ => {}
        }
        match self.held.get_mut(key)? {
            Held::Bloom(bloom) => of_bloom(bloom, &command, rest),
            Held::Cuckoo(cuckoo) => of_cuckoo(cuckoo, &command, rest),
        }
    }

    fn load_header(&mut self, command: &str, key: &[u8], rest: &[Vec<u8>]) -> Option<Value> {
        if number::<u64>(&rest[0])? != 1 {
            return None;
        }
        let held = if command == "BF.LOADCHUNK" {
            Bloom::from_header(&rest[1], LIMIT)
                .map(Held::Bloom)
                .map_err(|_| "ERR received bad data")
        } else {
            match CuckooChain::from_header(&rest[1], LIMIT) {
                Ok(cuckoo) => Ok(Held::Cuckoo(cuckoo)),
                Err(LoadError::BadHeader { .. }) => Err("Invalid header"),
                Err(other) => panic!("{other}"),
            }
        };
        Some(match held {
            Ok(held) => {
                self.held.insert(key.to_vec(), held);
                "OK".into()
            }
            Err(error) => error.into(),
        })
    }

    fn copy(&mut self, from: &[u8], to: &[u8]) -> Option<&'static str> {
        // Small chunks: their size is the implementation's own business.
        let copy = match self.held.get(from)? {
            Held::Bloom(bloom) => {
                let mut copy = Bloom::from_header(&bloom.header(), LIMIT).expect("our own header");
                let mut position = 1;
                while let Some((next, data)) = bloom.chunk(position, 100) {
                    copy.load(next, data).expect("our own chunk");
                    position = next;
                }
                Held::Bloom(copy)
            }
            Held::Cuckoo(cuckoo) => {
                let mut copy =
                    CuckooChain::from_header(&cuckoo.header(), LIMIT).expect("our own header");
                let mut position = 1;
                while let Some((next, data)) = cuckoo.chunk(position, 100) {
                    copy.load(next, data).expect("our own chunk");
                    position = next;
                }
                Held::Cuckoo(copy)
            }
        };
        self.held.insert(to.to_vec(), copy);
        Some("OK")
    }
}

/// Where the items of an INSERT begin.
fn items_of(words: &[Vec<u8>]) -> Option<usize> {
    words.iter().position(|word| word.eq_ignore_ascii_case(b"ITEMS")).map(|at| at + 1)
}

fn reserve(capacity: u64, options: &[Vec<u8>]) -> CuckooChain {
    let bucket_size = option(options, "BUCKETSIZE").unwrap_or(2);
    let max_iterations = option(options, "MAXITERATIONS").unwrap_or(20);
    let expansion = option(options, "EXPANSION").unwrap_or(1);
    CuckooChain::new(capacity, bucket_size, max_iterations, expansion, LIMIT)
        .expect("it was made then")
}

fn of_bloom(bloom: &mut Bloom, command: &str, rest: &[Vec<u8>]) -> Option<Value> {
    let added = |answer: Result<bool, Refused>| match answer {
        Ok(new) => json!(u8::from(new)),
        Err(Refused::Full) => "ERR non scaling filter is full".into(),
        Err(other) => panic!("{other}"),
    };
    Some(match command {
        "BF.ADD" => added(bloom.insert(&rest[0], LIMIT)),
        "BF.MADD" | "BF.INSERT" => {
            let items = if command == "BF.MADD" { rest } else { &rest[items_of(rest)?..] };
            let mut answers = Vec::new();
            for item in items {
                answers.push(added(bloom.insert(item, LIMIT)));
                // The reply ends with the first error.
                if answers.last().is_some_and(Value::is_string) {
                    break;
                }
            }
            answers.into()
        }
        "BF.EXISTS" => u8::from(bloom.contains(&rest[0])).into(),
        "BF.MEXISTS" => {
            let mut found = Vec::new();
            bloom.contains_many(rest, &mut found);
            found.into_iter().map(u8::from).collect()
        }
        "BF.CARD" => bloom.items().into(),
        "BF.INFO" => {
            let links = bloom.links().len() as u64;
            let fields = [
                ("Capacity", json!(bloom.capacity())),
                ("Size", json!(32 + 64 * links + bloom.bytes())),
                ("Number of filters", json!(links)),
                ("Number of items inserted", json!(bloom.items())),
                ("Expansion rate", json!(bloom.growth())),
            ];
            match rest {
                [] => fields.into_iter().flat_map(|(name, value)| [name.into(), value]).collect(),
                [field] => {
                    let names = [&b"CAPACITY"[..], b"SIZE", b"FILTERS", b"ITEMS", b"EXPANSION"];
                    let at = names.iter().position(|name| field.eq_ignore_ascii_case(name))?;
                    json!([fields[at].1])
                }
                _ => return None,
            }
        }
        "BF.SCANDUMP" => match number::<i64>(&rest[0])? {
            0 => json!([1, bloom.header()]),
            // The end is an empty string.
            position => match u64::try_from(position).ok().and_then(|at| bloom.chunk(at, CHUNK)) {
                Some((next, data)) => json!([next, data]),
                None => json!([0, []]),
            },
        },
        "BF.LOADCHUNK" => {
            let iterator = u64::try_from(number::<i64>(&rest[0])?).unwrap_or(0);
            match bloom.load(iterator, &rest[1]) {
                Ok(()) => "OK".into(),
                Err(LoadError::BadData { .. }) => "ERR received bad data".into(),
                Err(LoadError::NoLink { .. }) => "ERR invalid offset - no link found".into(),
                Err(other) => panic!("{other}"),
            }
        }
        _ => return None,
    })
}

fn of_cuckoo(cuckoo: &mut CuckooChain, command: &str, rest: &[Vec<u8>]) -> Option<Value> {
    Some(match command {
        "CF.ADD" | "CF.ADDNX" => {
            let added = match command {
                "CF.ADD" => cuckoo.insert(&rest[0], LIMIT).map(|()| true),
                _ => cuckoo.insert_unique(&rest[0], LIMIT),
            };
            match added {
                Ok(added) => u8::from(added).into(),
                Err(Refused::Full) => "Filter is full".into(),
                Err(other) => panic!("{other}"),
            }
        }
        "CF.INSERT" | "CF.INSERTNX" => {
            let add = |item: &Vec<u8>| match command {
                "CF.INSERT" => cuckoo.insert(item, LIMIT).map_or(-1, |()| 1),
                _ => cuckoo.insert_unique(item, LIMIT).map_or(-1, i32::from),
            };
            rest[items_of(rest)?..].iter().map(add).collect()
        }
        "CF.EXISTS" => u8::from(cuckoo.contains(&rest[0])).into(),
        "CF.MEXISTS" => rest.iter().map(|item| u8::from(cuckoo.contains(item))).collect(),
        "CF.COUNT" => cuckoo.count(&rest[0]).into(),
        "CF.DEL" => u8::from(cuckoo.remove(&rest[0])).into(),
        "CF.COMPACT" => {
            cuckoo.compact();
            "OK".into()
        }
        "CF.INFO" => json!([
            "Size",
            40 + 16 * cuckoo.filters() + cuckoo.bytes(),
            "Number of buckets",
            cuckoo.buckets(),
            "Number of filters",
            cuckoo.filters(),
            "Number of items inserted",
            cuckoo.items(),
            "Number of items deleted",
            cuckoo.deletes(),
            "Bucket size",
            cuckoo.bucket_size(),
            "Expansion rate",
            cuckoo.expansion(),
            "Max iterations",
            cuckoo.max_iterations(),
        ]),
        "CF.SCANDUMP" => match number::<u64>(&rest[0])? {
            _ if cuckoo.items() == 0 => json!([0, null]),
            0 => json!([1, cuckoo.header()]),
            position => match cuckoo.chunk(position, CHUNK) {
                Some((next, data)) => json!([next, data]),
                None => json!([0, null]),
            },
        },
        "CF.LOADCHUNK" => {
            let position = u64::try_from(number::<i64>(&rest[0])?).unwrap_or(0);
            match cuckoo.load(position, &rest[1]) {
                Ok(()) => "OK".into(),
                Err(LoadError::CannotLoad { .. }) => "Couldn't load chunk!".into(),
                Err(other) => panic!("{other}"),
            }
        }
        _ => return None,
    })
}
