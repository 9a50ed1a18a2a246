//! 1,332 commands that were sent to RedisBloom, and what it replied: we reply the same, but for the lines
//! of `redisbloom/improvements.txt`. `redisbloom/README.md` explains the recordings; `replay.py` plays
//! them against any running server.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use inbloom_server::session::{Next, Place};
use inbloom_server::{Config, Server, Session};
use serde_json::{Value, json};

/// A client without a socket.
struct Client {
    server: Arc<Server>,
    session: Session,
}

impl Client {
    fn new() -> Client {
        let mut config = Config::default();
        config.settings.max_memory = 16 << 30;
        let server = Arc::new(Server::new(config));
        let client = server.clients.enter("test:1".into(), "test:0".into());
        let session = Session::new(client, &server);
        Client { server, session }
    }

    fn send(&mut self, words: &[Vec<u8>]) -> Value {
        let mut request = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            request.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            request.extend_from_slice(word);
            request.extend_from_slice(b"\r\n");
        }
        let mut out = Vec::new();
        let progress = self.session.process(&self.server, &request, &mut out, Place::Own);
        assert_eq!((progress.consumed, progress.next), (request.len(), Next::Read));
        let (value, rest) = decode(&out);
        assert!(rest.is_empty(), "one reply for one command");
        value
    }
}

/// A reply as the recordings write it, and the bytes after it.
fn decode(bytes: &[u8]) -> (Value, &[u8]) {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n").expect("a whole reply");
    let (line, rest) = (std::str::from_utf8(&bytes[1..end]).unwrap(), &bytes[end + 2..]);
    let number = || line.parse::<i64>().unwrap();
    match bytes[0] {
        b'+' => (json!({ "simple": line }), rest),
        b'-' => (json!({ "error": line }), rest),
        b':' => (json!({ "int": number() }), rest),
        b',' => (json!({ "double": line }), rest),
        b'_' => (json!({ "nil": "resp3" }), rest),
        b'#' => (json!({ "bool": line == "t" }), rest),
        b'$' if number() < 0 => (json!({ "nil": "bulk" }), rest),
        b'*' if number() < 0 => (json!({ "nil": "array" }), rest),
        b'$' => {
            let (data, rest) = rest.split_at(number() as usize);
            (bulk(data), &rest[2..])
        }
        b'=' => {
            let (data, rest) = rest.split_at(number() as usize);
            let text = String::from_utf8(data[4..].to_vec()).unwrap();
            (json!({ "verbatim": [String::from_utf8_lossy(&data[..3]), text] }), &rest[2..])
        }
        kind @ (b'*' | b'~' | b'>' | b'%') => {
            let mut rest = rest;
            let mut item = || {
                let (value, after) = decode(rest);
                rest = after;
                value
            };
            let count = number() as usize;
            let value = if kind == b'%' {
                let pairs: Vec<Value> = (0..count).map(|_| json!([item(), item()])).collect();
                json!({ "map": pairs })
            } else {
                let name = match kind {
                    b'*' => "array",
                    b'~' => "set",
                    _ => "push",
                };
                let items: Vec<Value> = (0..count).map(|_| item()).collect();
                json!({ name: items })
            };
            (value, rest)
        }
        other => panic!("no reply begins with {:?}", char::from(other)),
    }
}

fn bulk(data: &[u8]) -> Value {
    match std::str::from_utf8(data) {
        Ok(text) if !text.chars().any(|c| c.is_ascii_control()) => json!({ "bulk": text }),
        _ => json!({ "bulk_b64": base64(data) }),
    }
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn base64(data: &[u8]) -> String {
    let mut text = String::new();
    for chunk in data.chunks(3) {
        let bits = chunk
            .iter()
            .enumerate()
            .map(|(at, byte)| u32::from(*byte) << (16 - 8 * at))
            .sum::<u32>();
        for at in 0..4 {
            let index = (bits >> (18 - 6 * at) & 63) as usize;
            text.push(if at <= chunk.len() { char::from(ALPHABET[index]) } else { '=' });
        }
    }
    text
}

fn unbase64(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for chunk in text.trim_end_matches('=').as_bytes().chunks(4) {
        let value = |byte: &u8| ALPHABET.iter().position(|letter| letter == byte).unwrap() as u32;
        let bits =
            chunk.iter().enumerate().map(|(at, byte)| value(byte) << (18 - 6 * at)).sum::<u32>();
        bytes.extend_from_slice(&bits.to_be_bytes()[1..chunk.len()]);
    }
    bytes
}

fn argument(word: &Value) -> Vec<u8> {
    match word {
        Value::String(text) => text.clone().into_bytes(),
        object => unbase64(object["b64"].as_str().unwrap()),
    }
}

/// The bytes of a reply that is used as an argument.
fn raw(value: &Value) -> Vec<u8> {
    if let Some(number) = value.get("int") {
        return number.to_string().into_bytes();
    }
    match value.get("bulk") {
        Some(text) => text.as_str().unwrap().as_bytes().to_vec(),
        None => unbase64(value["bulk_b64"].as_str().unwrap()),
    }
}

/// Dumps one filter and loads it as another, as clients do: the first reply that is not OK, or OK.
fn copy(client: &mut Client, family: &str, from: &[u8], to: &[u8]) -> Value {
    let command = |verb: &str| format!("{family}.{verb}").into_bytes();
    let (mut iterator, mut chunks) = (b"0".to_vec(), Vec::new());
    loop {
        let reply = client.send(&[command("SCANDUMP"), from.to_vec(), iterator]);
        if reply.get("error").is_some() {
            return reply;
        }
        iterator = raw(&reply["array"][0]);
        if iterator == b"0" {
            break;
        }
        chunks.push((iterator.clone(), raw(&reply["array"][1])));
    }
    for (iterator, data) in chunks {
        let reply = client.send(&[command("LOADCHUNK"), to.to_vec(), iterator, data]);
        if reply != json!({ "simple": "OK" }) {
            return reply;
        }
    }
    json!({ "simple": "OK" })
}

fn kind(value: &Value) -> String {
    value.as_object().unwrap().keys().next().unwrap().clone()
}

/// Replaces what is at a path by its type.
fn mask(value: &mut Value, path: &[Value]) {
    let [first, rest @ ..] = path else { return };
    let at = first.as_u64().unwrap() as usize;
    let items = match value {
        Value::Object(object) => object.values_mut().next().unwrap(),
        list => list,
    };
    let Some(item) = items.get_mut(at) else { return };
    if !rest.is_empty() {
        mask(item, rest);
    } else if item.is_object() {
        *item = json!({ "any": kind(item) });
    }
}

fn agree(line: &Value, got: &Value) -> bool {
    let want = &line["reply"];
    if want == got {
        return true;
    }
    if line.get("loose").is_none() {
        return false;
    }
    let Some(paths) = line.get("loose_paths").and_then(Value::as_array) else {
        return (kind(want) == "error") == (kind(got) == "error");
    };
    let (mut want, mut got) = (want.clone(), got.clone());
    for path in paths {
        mask(&mut want, path.as_array().unwrap());
        mask(&mut got, path.as_array().unwrap());
    }
    want == got
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/redisbloom")
}

/// The lines that differ on purpose: (file, line) to reason.
fn improvements() -> BTreeMap<(String, usize), String> {
    let text = fs::read_to_string(folder().join("improvements.txt")).unwrap();
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let parts = lines.flat_map(|line| {
        let mut parts = line.splitn(3, ' ');
        let mut next = || parts.next().expect("FILE LINE[-LINE] REASON").to_owned();
        let (file, range, reason) = (next(), next(), next());
        let (first, last) = range.split_once('-').unwrap_or((&range, &range));
        let lines = first.parse::<usize>().unwrap()..=last.parse().unwrap();
        lines.map(move |line| ((file.clone(), line), reason.clone())).collect::<Vec<_>>()
    });
    parts.collect()
}

#[test]
fn every_recorded_reply_is_ours_too_but_for_the_improvements() {
    let mut improvements = improvements();
    let mut files: Vec<PathBuf> = fs::read_dir(folder().join("transcripts"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    let (mut count, mut differences) = (0, Vec::new());
    for path in files {
        let file = path.file_name().unwrap().to_str().unwrap().to_owned();
        let mut client = Client::new();
        for (at, line) in fs::read_to_string(&path).unwrap().lines().enumerate() {
            let line: Value = serde_json::from_str(line).unwrap();
            let words: Vec<Vec<u8>> =
                line["cmd"].as_array().unwrap().iter().map(argument).collect();
            let got = match words[0].as_slice() {
                b"@COPY_BY_SCANDUMP" => {
                    let family = String::from_utf8(words[1].clone()).unwrap();
                    copy(&mut client, &family, &words[2], &words[3])
                }
                _ => client.send(&words),
            };
            count += 1;
            let is_improved = improvements.remove(&(file.clone(), at + 1)).is_some();
            let short = |value: &Value| value.to_string().chars().take(200).collect::<String>();
            if agree(&line, &got) == is_improved {
                let complaint = if is_improved { "is listed, but equal" } else { "differs" };
                differences.push(format!(
                    "{file} {} {complaint}: {}\n   want {}\n   got  {}",
                    at + 1,
                    short(&line["cmd"]),
                    short(&line["reply"]),
                    short(&got)
                ));
            }
        }
    }
    assert_eq!(count, 1332);
    assert!(improvements.is_empty(), "lines that do not exist: {improvements:?}");
    assert!(differences.is_empty(), "{} lines:\n{}", differences.len(), differences.join("\n"));
}
