//! Filters in files: chunks one behind the other, commands that load them, append-only files, RDB files.

use std::process::Stdio;
use std::time::Duration;

use inbloom::interop::redisbloom::{
    Stored, from_chunks, is_chunks, load_commands, missing_behind_header, stored,
};
use inbloom_testing::{Random, program};

use super::*;

fn names(filters: &[Stored<'_>]) -> Vec<(u64, String, &'static str)> {
    let name = |stored: &Stored<'_>| String::from_utf8(stored.name.clone()).unwrap();
    filters.iter().map(|stored| (stored.database, name(stored), stored.type_name())).collect()
}

fn golden_dump(name: &str) -> Restored {
    payload::decode(&read(&format!("{name}.dump")), LIMIT).unwrap()
}

/// All chunks of a golden filter, one behind the other.
fn joined(name: &str, data: u64) -> Vec<u8> {
    (0..=data).flat_map(|at| read(&format!("{name}.chunk{at}.bin"))).collect()
}

#[test]
fn joined_chunks_are_the_filter_of_the_dump() {
    for golden in &BLOOMS {
        let bytes = joined(golden.name, golden.chunks);
        let restored = from_chunks(&bytes).unwrap();
        assert_eq!(restored.as_bloom(), Some(&load_bloom(golden)), "{}", golden.name);
        assert!(is_chunks(&bytes) && restored.as_cuckoo().is_none());
    }
    for golden in &CUCKOOS {
        let bytes = joined(golden.name, golden.chunks);
        let restored = from_chunks(&bytes).unwrap();
        assert_eq!(restored.as_cuckoo(), Some(&load_cuckoo(golden)), "{}", golden.name);
        assert!(is_chunks(&bytes) && restored.as_bloom().is_none());
    }
}

#[test]
fn too_few_chunks_are_refused_and_counted() {
    for (name, chunks) in [("bf-scaled-str-1k", 4), ("cf-expanded-u64text-1k", 4)] {
        let bytes = joined(name, chunks);
        for end in 0..bytes.len() {
            assert!(!is_chunks(&bytes[..end]) && from_chunks(&bytes[..end]).is_err(), "{end}");
        }
        let header = read(&format!("{name}.chunk0.bin"));
        assert_eq!(missing_behind_header(&header), Some((bytes.len() - header.len()) as u64));
        assert_eq!(missing_behind_header(&bytes), None);
        let longer = [&bytes[..], &[0]].concat();
        assert!(from_chunks(&longer).is_err());
    }
}

#[test]
fn streams_of_commands_are_read_and_written_to_the_byte() {
    for name in ["bf-str-10", "bf-scaled-str-1k", "cf-str-10"] {
        let stream = read(&format!("{name}.resp"));
        let filters = stored(&stream).unwrap();
        assert_eq!(filters.len(), 1);
        let restored = filters[0].restore(LIMIT).unwrap();
        assert_eq!(restored, golden_dump(name));
        let mut written = Vec::new();
        match &restored {
            Restored::Bloom(bloom) => load_commands(bloom, b"golden", &mut written).unwrap(),
            Restored::Cuckoo(cuckoo) => load_commands(cuckoo, b"golden", &mut written).unwrap(),
        }
        assert_eq!(written, stream);
    }
}

#[test]
fn filters_of_whole_servers_are_found_by_name() {
    for file in ["server-7.0-rb2.6.28.rdb", "server-8.0-rb8.8.0.rdb", "server-7.0-rb2.6.28.aof"] {
        let bytes = read(file);
        let filters = stored(&bytes).unwrap();
        let mut found = names(&filters);
        found.sort();
        let expected = [
            (0, "bf-scaled-str-1k".to_string(), "MBbloom--"),
            (0, "bf-str-10".to_string(), "MBbloom--"),
            (0, "cf-str-10".to_string(), "MBbloomCF"),
        ];
        assert_eq!(found, expected, "{file}");
        for filter in &filters {
            let name = String::from_utf8(filter.name.clone()).unwrap();
            assert_eq!(filter.restore(LIMIT).unwrap(), golden_dump(&name), "{file}: {name}");
            assert!(matches!(filter.restore(100), Err(ForeignError::Limit { .. })), "{file}");
        }
    }
}

#[test]
fn an_append_only_file_may_begin_with_a_snapshot() {
    let mut file = read("server-7.0-rb2.6.28.rdb");
    file.extend(read("bf-str-10.resp"));
    let filters = stored(&file).unwrap();
    assert_eq!(names(&filters)[3], (0, "golden".to_string(), "MBbloom--"));
    // A filter of the snapshot is there already; a server would refuse to load another.
    let mut again = Vec::new();
    let filter = golden_dump("bf-str-10");
    load_commands(filter.as_bloom().unwrap(), b"bf-str-10", &mut again).unwrap();
    let file = [read("server-7.0-rb2.6.28.rdb"), again].concat();
    assert!(stored(&file).is_err());
}

fn command(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n", word.len()).into_bytes());
        bytes.extend(*word);
        bytes.extend(b"\r\n");
    }
    bytes
}

#[test]
fn commands_that_change_a_filter_otherwise_are_refused() {
    let load = read("bf-str-10.resp");
    let refused: [&[&[u8]]; 6] = [
        &[b"BF.ADD", b"golden", b"x"],
        &[b"bf.madd", b"other", b"x"],
        &[b"RENAME", b"golden", b"other"],
        &[b"DEL", b"golden"],
        &[b"FLUSHALL"],
        &[b"CF.DEL", b"golden", b"x"],
    ];
    for words in refused {
        let log = [load.clone(), command(words)].concat();
        let error = stored(&log).unwrap_err().to_string();
        assert!(error.contains("BGREWRITEAOF"), "{error}");
    }
    let passed: [&[&[u8]]; 5] = [
        &[b"SET", b"plain", b"golden-eye"],
        &[b"PEXPIREAT", b"golden", b"1900000000000"],
        &[b"DEL", b"other"],
        &[b"SELECT", b"3"],
        &[b"SET", b"golden", b"in another database"],
    ];
    let log = passed.iter().fold(load, |log, words| [log, command(words)].concat());
    let log = [&b"#TS:1700000000\r\n"[..], &log].concat();
    assert_eq!(names(&stored(&log).unwrap()), [(0, "golden".to_string(), "MBbloom--")]);
}

#[test]
fn a_filter_that_lacks_a_chunk_is_refused() {
    let bloom = golden_dump("bf-scaled-str-1k");
    let mut stream = Vec::new();
    load_commands(bloom.as_bloom().unwrap(), b"golden", &mut stream).unwrap();
    let starts: Vec<usize> = stream
        .windows(17)
        .enumerate()
        .filter_map(|(at, bytes)| (bytes == b"*4\r\n$12\r\nBF.LOADC").then_some(at))
        .chain([stream.len()])
        .collect();
    assert_eq!(starts.len(), 6);
    for missing in 0..5 {
        let rest = [&stream[..starts[missing]], &stream[starts[missing + 1]..]].concat();
        let filters = stored(&rest).unwrap();
        let error = filters[0].restore(LIMIT).unwrap_err();
        assert!(matches!(error, ForeignError::Damaged { .. } | ForeignError::Limit { .. }));
    }
    // In any other order they are all there; twice the same is one too many.
    let mut parts: Vec<&[u8]> = starts.windows(2).map(|pair| &stream[pair[0]..pair[1]]).collect();
    parts[1..].reverse();
    let backwards = parts.concat();
    assert_eq!(stored(&backwards).unwrap()[0].restore(LIMIT).unwrap(), bloom);
    parts[2] = parts[1];
    assert!(stored(&parts.concat()).unwrap()[0].restore(LIMIT).is_err());
}

#[test]
fn a_header_of_terabytes_takes_no_memory() {
    let mut header = read("bf-str-10.chunk0.bin");
    header[20..28].copy_from_slice(&(1_u64 << 40).to_le_bytes());
    header[28..36].copy_from_slice(&(1_u64 << 43).to_le_bytes());
    assert!(!is_chunks(&header) && from_chunks(&header).is_err());
    let log = command(&[b"BF.LOADCHUNK", b"k", b"1", &header]);
    let error = stored(&log).unwrap()[0].restore(u64::MAX).unwrap_err();
    assert!(matches!(error, ForeignError::Limit { .. }), "{error}");
}

#[test]
fn damaged_files_are_errors_and_never_panics() {
    let mut random = Random(19);
    for name in [
        "server-7.0-rb2.6.28.rdb",
        "server-8.0-rb8.8.0.rdb",
        "server-7.0-rb2.6.28.aof",
        "cf-str-10.resp",
        "bf-sparse-str-10.dump",
        "cf-str-10.dump",
    ] {
        let whole = read(name);
        let try_all = |bytes: &[u8]| {
            let _ = (is_chunks(bytes), from_chunks(bytes), missing_behind_header(bytes));
            let _ = payload::decode(bytes, LIMIT);
            stored(bytes).map(|filters| {
                for filter in &filters {
                    let _ = filter.restore(LIMIT);
                }
            })
        };
        for end in 1..whole.len() {
            let read = try_all(&whole[..end]);
            let is_whole_commands = !name.ends_with(".rdb") && read.is_ok();
            assert!(read.is_err() || is_whole_commands, "{name} cut at {end}");
        }
        for _ in 0..3000 {
            let mut bytes = whole.clone();
            for _ in 0..=random.below(3) {
                let at = random.index(bytes.len());
                bytes[at] ^= 1 << random.below(8);
            }
            // The checksum off, so that more than it is tested.
            if name.ends_with(".rdb") && random.one_in(2) {
                let end = bytes.len() - 8;
                bytes[end..].fill(0);
            }
            let _ = try_all(&bytes);
        }
    }
    // A checksum of a whole file finds every flipped bit but those that switch it off.
    let whole = read("server-8.0-rb8.8.0.rdb");
    for at in 9..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        assert!(stored(&bytes).is_err(), "byte {at}");
    }
}

#[test]
fn a_type_that_is_not_known_is_named() {
    let mut file = b"REDIS0012".to_vec();
    file.extend([99, 3]);
    file.extend(b"key");
    let error = stored(&file).unwrap_err().to_string();
    assert!(error.contains("type 99") && error.contains("(key \"key\")"), "{error}");
    let error = stored(b"REDIS0012\xf3").unwrap_err().to_string();
    assert!(error.contains("the RDB file has a value of type 243,"), "{error}");
}

/// Values of types that no server at hand writes, as their layouts are published.
#[test]
fn values_of_older_and_newer_types_are_passed_over() {
    let text = |bytes: &mut Vec<u8>, text: &[u8]| {
        bytes.push(text.len() as u8);
        bytes.extend(text);
    };
    let mut file = b"REDIS0012".to_vec();
    let mut key = |kind: u8, value: &dyn Fn(&mut Vec<u8>)| {
        file.push(kind);
        text(&mut file, format!("key-{kind}").as_bytes());
        value(&mut file);
    };
    key(1, &|out| {
        out.push(2);
        text(out, b"a");
        text(out, b"b");
    });
    // Scores as text: 1.5, then the three that have none.
    key(3, &|out| {
        out.push(4);
        for score in [&b"\x031.5"[..], b"\xfd", b"\xfe", b"\xff"] {
            text(out, b"member");
            out.extend(score);
        }
    });
    for kind in [9, 10, 12, 13, 20, 23] {
        key(kind, &|out| text(out, b"packed"));
    }
    key(22, &|out| {
        out.extend([1, 0]);
        text(out, b"field");
        text(out, b"value");
    });
    key(24, &|out| {
        out.extend([9; 8]);
        out.extend([1, 5]);
        text(out, b"field");
        text(out, b"value");
    });
    key(25, &|out| {
        out.extend([9; 8]);
        text(out, b"packed");
    });
    // Streams of three versions: one node, one group with a pending entry and a consumer.
    for (kind, fields, group, times) in [(15, 3, 2, 8), (19, 8, 3, 8), (21, 8, 3, 16)] {
        key(kind, &|out| {
            out.push(1);
            text(out, &[7; 16]);
            text(out, b"listpack");
            out.extend(std::iter::repeat_n(1, fields));
            out.push(1);
            text(out, b"group");
            out.extend(std::iter::repeat_n(1, group));
            out.push(1);
            out.extend([7; 24]);
            out.push(3);
            out.push(1);
            text(out, b"consumer");
            out.extend(std::iter::repeat_n(0, times));
            out.push(1);
            out.extend([7; 16]);
        });
    }
    // Another module's value: signed, float, double, string, end.
    key(7, &|out| {
        out.push(0x81);
        out.extend([1; 8]);
        out.extend([1, 5, 3, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 5, 1, b'x', 0]);
    });
    // Slot information, a frequency and an idle time.
    file.extend([0xf4, 1, 2, 3, 0xf9, 7, 0xf8, 9]);
    let payload = read("bf-str-10.dump");
    file.push(7);
    text(&mut file, b"filter");
    file.extend(&payload[1..payload.len() - 10]);
    file.push(0xff);
    file.extend([0; 8]);
    let filters = stored(&file).unwrap();
    assert_eq!(names(&filters), [(0, "filter".to_string(), "MBbloom--")]);
    assert_eq!(filters[0].restore(LIMIT).unwrap(), golden_dump("bf-str-10"));
}

/// A server of Debian's writes values of every type it has; filters are spliced in between.
#[test]
fn filters_are_found_among_all_types_of_a_real_server() {
    let Some(mut server) = program("redis-server", "redis-server") else { return };
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let mut server = server
        .args(["--port", "0", "--save", "", "--dir"])
        .arg(folder.path())
        .arg("--unixsocket")
        .arg(&socket)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let fill = "
        for i = 1, 1000 do
          redis.call('SET', 'int:' .. i, i * 1000003)
          redis.call('RPUSH', 'list', string.rep('x', i % 90))
          redis.call('SADD', 'numbers', i)
          redis.call('SADD', 'words', 'w' .. i)
          redis.call('ZADD', 'scores', i / 7, 'm' .. i)
          redis.call('HSET', 'hash', 'f' .. i, i)
        end
        redis.call('SET', 'compressed', string.rep('abc', 5000))
        redis.call('SET', 'large', string.rep(string.char(0, 255, 7), 30000))
        redis.call('SET', 'expires', 'soon', 'EX', 10000)
        redis.call('HSET', 'small-hash', 'a', 1, 'b', 2)
        redis.call('ZADD', 'small-scores', 1, 'a', '-inf', 'b')
        redis.call('RPUSH', 'small-list', 'a')
        redis.call('RPUSH', 'long', string.rep('y', 100000))
        for i = 1, 300 do redis.call('XADD', 'stream', i .. '-1', 'field', 'value' .. i) end
        redis.call('XGROUP', 'CREATE', 'stream', 'group', '0')
        redis.call('XREADGROUP', 'GROUP', 'group', 'reader', 'COUNT', 10, 'STREAMS', 'stream', '>')
        redis.call('SELECT', 5)
        redis.call('SET', 'elsewhere', 1)
        return redis.status_reply('OK')";
    let ask = |words: &[&str]| {
        let mut command = program("redis-cli", "redis-tools").expect("the server's own client");
        let output = command.arg("-s").arg(&socket).args(words).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_string()
    };
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while ask(&["PING"]) != "PONG" {
        assert!(std::time::Instant::now() < deadline, "the server does not start");
        std::thread::sleep(Duration::from_millis(20));
    }
    let library = "#!lua name=mine\nredis.register_function('f', function() return 1 end)";
    let answers = [ask(&["EVAL", fill, "0"]), ask(&["FUNCTION", "LOAD", library]), ask(&["SAVE"])];
    let size = ask(&["DBSIZE"]);
    server.kill().unwrap();
    server.wait().unwrap();
    assert_eq!(answers[0], "OK", "{answers:?}");
    assert_eq!((&answers[2][..], &size[..]), ("OK", "1013"), "{answers:?}");
    let file = std::fs::read(folder.path().join("dump.rdb")).unwrap();
    assert_eq!(stored(&file).unwrap().len(), 0);
    // The last database is the fifth one: the filter is in it.
    let payload = read("cf-str-1k.dump");
    let (before, [0xff, ..]) = file.split_at(file.len() - 9) else { panic!("no end") };
    let mut spliced = before.to_vec();
    spliced.extend(b"\x07\x06filter");
    spliced.extend(&payload[1..payload.len() - 10]);
    spliced.push(0xff);
    spliced.extend([0; 8]);
    let filters = stored(&spliced).unwrap();
    assert_eq!(names(&filters), [(5, "filter".to_string(), "MBbloomCF")]);
    assert_eq!(filters[0].restore(LIMIT).unwrap(), golden_dump("cf-str-1k"));
}
