use super::*;

/// What a whole buffer gives: the arguments of every request, and the error that ended it.
#[derive(PartialEq, Debug)]
struct Outcome {
    requests: Vec<Vec<Vec<u8>>>,
    consumed: usize,
    error: Option<ProtocolError>,
}

/// Parses bytes that arrive in pieces which end where `ends` says, and at the last byte.
fn parse_in_pieces(limits: Limits, bytes: &[u8], ends: &[usize]) -> Outcome {
    let mut parser = Parser::new(limits);
    let mut outcome = Outcome { requests: Vec::new(), consumed: 0, error: None };
    for &end in ends.iter().chain([&bytes.len()]) {
        loop {
            let buffer = &bytes[outcome.consumed..end];
            match parser.next(buffer) {
                Ok(None) => break,
                Ok(Some(taken)) => {
                    let arguments = parser.arguments(buffer).iter().map(<[u8]>::to_vec);
                    outcome.requests.push(arguments.collect());
                    outcome.consumed += taken;
                }
                Err(error) => {
                    outcome.error = Some(error);
                    return outcome;
                }
            }
        }
    }
    outcome
}

fn parse(bytes: &[u8]) -> Outcome {
    parse_in_pieces(Limits::default(), bytes, &[])
}

/// Returns the arguments of the one request that the bytes are.
fn request(bytes: &[u8]) -> Vec<String> {
    let outcome = parse(bytes);
    assert_eq!((outcome.error, outcome.consumed), (None, bytes.len()), "{outcome:?}");
    let [arguments] = &outcome.requests[..] else { panic!("one request: {outcome:?}") };
    arguments.iter().map(|argument| argument.escape_ascii().to_string()).collect()
}

fn refusal_under(limits: Limits, bytes: &[u8]) -> String {
    let outcome = parse_in_pieces(limits, bytes, &[]);
    outcome.error.unwrap_or_else(|| panic!("taken: {}", bytes.escape_ascii())).to_string()
}

fn refusal(bytes: &[u8]) -> String {
    refusal_under(Limits::default(), bytes)
}

#[test]
fn arguments_are_the_bytes_sent() {
    assert_eq!(request(b"*1\r\n$4\r\nPING\r\n"), ["PING"]);
    assert_eq!(request(b"*2\r\n$0\r\n\r\n$4\r\n\r\n\0\xff\r\n"), ["", r"\r\n\x00\xff"]);
    let long = "x".repeat(100_000);
    let bytes = format!("*3\r\n$7\r\nBF.MADD\r\n$100000\r\n{long}\r\n$1\r\ny\r\n");
    assert_eq!(request(bytes.as_bytes()), ["BF.MADD", &long, "y"]);
    let many: Vec<String> = (0..100_000).map(|number| number.to_string()).collect();
    let mut bytes = format!("*{}\r\n", many.len());
    for argument in &many {
        bytes += &format!("${}\r\n{argument}\r\n", argument.len());
    }
    assert_eq!(request(bytes.as_bytes()), many);
}

#[test]
fn empty_requests_are_complete_and_take_their_bytes() {
    for empty in ["\r\n", "\n", "  \t \r\n", "*0\r\n", "*-1\r\n", "\r\r\n"] {
        assert_eq!(request(empty.as_bytes()), [""; 0], "{empty:?}");
        let before_another = parse(format!("{empty}PING\r\n").as_bytes());
        assert_eq!(before_another.requests, [vec![], vec![b"PING".to_vec()]], "{empty:?}");
    }
}

#[test]
fn lines_are_divided_as_redis_divides_them() {
    let cases: [(&str, &[&str]); 18] = [
        ("PING", &["PING"]),
        ("  bf.add \t code   42 ", &["bf.add", "code", "42"]),
        ("\x0bECHO\x0c a\x0bb", &["ECHO\\x0c", "a\\x0bb"]),
        ("ECHO \"forty two\"", &["ECHO", "forty two"]),
        ("ECHO 'forty two'", &["ECHO", "forty two"]),
        ("ECHO \"\" ''", &["ECHO", "", ""]),
        ("\"\"", &[""]),
        (r#"ECHO "\n\r\t\b\a""#, &["ECHO", r"\n\r\t\x08\x07"]),
        (r#"ECHO "\x00\xfF\x4a""#, &["ECHO", r"\x00\xffJ"]),
        (r#"ECHO "\xg0\x1""#, &["ECHO", "xg0x1"]),
        (r#"ECHO "\\ \" \q""#, &["ECHO", r#"\\ \" q"#]),
        (r"ECHO '\n \' \\ '", &["ECHO", r"\\n \' \\\\ "]),
        (r#"ECHO "it's" 'say "x"'"#, &["ECHO", r"it\'s", r#"say \"x\""#]),
        (r#"ECHO a"b c" d'e f'"#, &["ECHO", "ab c", "de f"]),
        (r"ECHO a\nb", &["ECHO", r"a\\nb"]),
        ("ECHO a\rb", &["ECHO", "a", "b"]),
        ("ECHO \"a\"\x0bb", &["ECHO", "a", "b"]),
        ("$3 -1 +OK", &["$3", "-1", "+OK"]),
    ];
    for (line, arguments) in cases {
        for end in ["\r\n", "\n"] {
            assert_eq!(request(format!("{line}{end}").as_bytes()), arguments, "{line:?}");
        }
    }
    assert_eq!(request(b"a\0b c\n"), [r"a\x00b", "c"]);
}

#[test]
fn refusals_have_the_words_of_redis() {
    for line in ["\"a", "'a", "\"a\"b", "'a'b", "\"a\"\"b\"", "a\"", r#""a\""#, r"'a\'", "\"\\"] {
        let text = refusal(format!("ECHO {line}\r\n").as_bytes());
        assert_eq!(text, "unbalanced quotes in request", "{line}");
    }
    let spellings = ["", "x", "+3", " 3", "3 ", "03", "00", "-0", "--1", "1-", "3\rx", "0x3", "\n"];
    for number in spellings {
        let text = refusal(format!("*{number}\r\n").as_bytes());
        assert_eq!(text, "invalid multibulk length", "*{number:?}");
        let text = refusal(format!("*1\r\n${number}\r\n").as_bytes());
        assert_eq!(text, "invalid bulk length", "${number:?}");
    }
    assert_eq!(refusal(b"*-2\r\n"), "invalid multibulk length");
    assert_eq!(refusal(b"*1\r\n$-1\r\n"), "invalid bulk length");
    assert_eq!(refusal(b"*1\r\n+OK\r\n"), "expected '$', got '+'");
    assert_eq!(refusal(b"*1\r\n'"), "expected '$', got '''");
    assert_eq!(refusal(b"*1\r\n\r\n"), r"expected '$', got '\r'");
    assert_eq!(refusal(b"*1\r\n\xff"), r"expected '$', got '\xff'");
    assert_eq!(refusal(b"*1234567890123456789"), "too big mbulk count string");
    assert_eq!(refusal(b"*1\r\n$1234567890123456789"), "too big bulk count string");
    for wrong in ["$1\r\nab\r\n", "$2\r\na\r\n$", "$1\r\na\rb", "$1\r\na\n\n", "$150\r\n\n"] {
        let bytes = format!("*1\r\n{wrong}{}", "x".repeat(200));
        assert_eq!(refusal(bytes.as_bytes()), "expected CRLF after an argument", "{wrong:?}");
    }
}

#[test]
fn limits_refuse_what_is_announced_and_name_their_number() {
    assert_eq!(
        refusal(b"*1048577\r\n"),
        "invalid multibulk length: 1048577 arguments, the limit is 1048576"
    );
    assert_eq!(
        refusal(b"*999999999999999999\r\n"),
        "invalid multibulk length: 999999999999999999 arguments, the limit is 1048576"
    );
    assert_eq!(
        refusal(b"*1\r\n$67108865\r\n"),
        "invalid bulk length: 67108865 bytes, the limit of --max-argument is 67108864"
    );
    assert_eq!(
        refusal(b"*1\r\n$999999999999999999\r\n"),
        "invalid bulk length: 999999999999999999 bytes, the limit of --max-argument is 67108864"
    );
    assert_eq!(
        refusal(&[b'x'; (64 << 10) + 1]),
        "too big inline request: no end of line within 65536 bytes"
    );
    assert_eq!(
        refusal_under(Limits::before_auth(), b"*11\r\n"),
        "unauthenticated multibulk length: 11 arguments, the limit before AUTH is 10"
    );
    assert_eq!(
        refusal_under(Limits::before_auth(), b"*1\r\n$16385\r\n"),
        "unauthenticated bulk length: 16385 bytes, the limit before AUTH is 16384"
    );
    // An argument takes 16,010 bytes: the fifth ends 80,054 bytes behind the first byte.
    let argument = format!("$16000\r\n{}\r\n", "x".repeat(16_000));
    let bytes = format!("*5\r\n{}", argument.repeat(5));
    assert_eq!(
        refusal_under(Limits::before_auth(), bytes.as_bytes()),
        "unauthenticated bulk length: the request takes 80054 bytes or more, the limit before AUTH is 65536"
    );
    assert_eq!(
        refusal_under(Limits { request_bytes: 60_000, ..Limits::default() }, bytes.as_bytes()),
        "invalid bulk length: the request takes 64044 bytes or more, the limit of --max-request is 60000"
    );
}

#[test]
fn what_just_keeps_the_limits_is_taken() {
    let limits = Limits { arguments: 3, argument_bytes: 8, request_bytes: 30, inline_bytes: 10 };
    let taken: [&[u8]; 4] = [
        b"*3\r\n$0\r\n\r\n$0\r\n\r\n$8\r\n12345678\r\n", // 30 bytes
        b"*1\r\n$8\r\n12345678\r\n",
        b"1234567890\n",
        b"123456789\r\n",
    ];
    let refused: [&[u8]; 5] = [
        b"*3\r\n$0\r\n\r\n$1\r\nx\r\n$8\r\n12345678\r\n",
        b"*4\r\n$0\r\n\r\n$0\r\n\r\n$0\r\n\r\n$0\r\n\r\n",
        b"*1\r\n$9\r\n123456789\r\n",
        b"12345678901\n",
        b"1234567890\r\n",
    ];
    for bytes in taken {
        let outcome = parse_in_pieces(limits, bytes, &[]);
        assert_eq!((outcome.error, outcome.consumed), (None, bytes.len()), "{outcome:?}");
    }
    for bytes in refused {
        let outcome = parse_in_pieces(limits, bytes, &[]);
        assert!(outcome.error.is_some() && outcome.requests.is_empty(), "{outcome:?}");
    }
}

#[cfg(target_pointer_width = "64")]
#[test]
fn limits_beyond_what_a_span_can_hold_are_brought_down_to_it() {
    let largest = usize::MAX;
    let limits = Limits {
        arguments: largest,
        argument_bytes: largest,
        request_bytes: largest,
        inline_bytes: largest,
    };
    let outcome = parse_in_pieces(limits, b"PING\r\n*1\r\n$4294967290\r\n", &[]);
    assert_eq!(outcome.consumed, 6);
    let limit = u32::MAX as usize;
    let error = ProtocolError::RequestBytes { got: 4_294_967_309, limit };
    assert_eq!(outcome.error, Some(error));
}

#[test]
fn new_limits_hold_for_what_is_announced_after_them() {
    let mut parser = Parser::new(Limits::before_auth());
    let bytes = b"*1\r\n$4\r\nAUTH\r\n*11\r\n";
    assert_eq!(parser.next(bytes), Ok(Some(14)));
    parser.set_limits(Limits::default());
    assert_eq!(parser.next(&bytes[14..]), Ok(None));

    let mut parser = Parser::new(Limits::default());
    let line = [b'x'; 40_000];
    assert_eq!(parser.next(&line), Ok(None));
    parser.set_limits(Limits::before_auth());
    assert_eq!(parser.next(&line), Err(ProtocolError::InlineBytes { limit: 16 << 10 }));
}

#[test]
fn a_refused_client_stays_refused() {
    let mut parser = Parser::new(Limits::default());
    let error = Err(ProtocolError::Dollar { got: b'x' });
    assert_eq!(parser.next(b"*2\r\n$1\r\na\r\nx"), error);
    assert_eq!(parser.next(b"*2\r\n$1\r\na\r\nx"), error);
    assert_eq!(parser.next(b"PING\r\n"), error);
}

/// However a pipeline is cut in two or three, or into single bytes, it is the same requests.
#[test]
fn pieces_make_no_difference() {
    let pipelines: [&[u8]; 12] = [
        b"*3\r\n$6\r\nBF.ADD\r\n$1\r\nc\r\n$12\r\n\r\n$1\r\n*2\r\nab\r\nPING\r\n*0\r\n*-1\r\n",
        b"ECHO \"a b\\x41\" 'c d'\r\n\r\n*1\r\n$0\r\n\r\nset a b\n*1\r\n$1\r\nx\r\n",
        b"PING\r\n*1\r\n$4\r\nPING\r\n*1\r\n*1\r\n",
        b"*1\r\n$4\r\nPING\r\r",
        b"*1\r\n$101\r\n1234567890123456789012345678901234567890123456789012345678901234567890\
          1234567890123456789012345678901\r\n*10\r\n",
        b"*2\r\n$1\r\na\r\n$-1\r\n",
        b"*-12\r\n",
        b"*01\r\n",
        b"*1\r\n$03\r\nabc\r\n",
        b"*1234567890123456789012\r\n",
        b"ECHO \"a\r\nPING\r\n",
        b"*1\rx",
    ];
    for bytes in pipelines {
        let whole = parse(bytes);
        let shown = bytes.escape_ascii();
        for first in 0..=bytes.len() {
            for second in first..=bytes.len() {
                let pieces = parse_in_pieces(Limits::default(), bytes, &[first, second]);
                assert_eq!(pieces, whole, "cut at {first} and {second}: {shown}");
            }
        }
        let single: Vec<usize> = (0..bytes.len()).collect();
        assert_eq!(parse_in_pieces(Limits::default(), bytes, &single), whole, "{shown}");
    }
}

/// Counted, not timed: what was understood is behind the position after every piece.
#[test]
fn what_was_understood_is_not_read_again() {
    let mut bytes = b"*100000\r\n".to_vec();
    for number in 0..100_000 {
        bytes.extend_from_slice(format!("$205\r\n{number:0205}\r\n").as_bytes());
    }
    let mut parser = Parser::new(Limits::default());
    for end in (1..bytes.len()).step_by(67) {
        assert_eq!(parser.next(&bytes[..end]), Ok(None));
        // Only an argument that is not complete is left, and that is not read but skipped.
        let rest = end - parser.position;
        assert!(matches!(parser.stage, Stage::Argument { .. }) || rest == 0, "{rest}");
        assert!(rest < 207, "{rest} bytes would be read again");
    }
    let line = [b'x'; 60_000];
    let mut parser = Parser::new(Limits::default());
    for end in 1..line.len() {
        assert_eq!(parser.next(&line[..end]), Ok(None));
        assert_eq!(parser.position, end);
    }
}

#[test]
fn memory_follows_the_bytes_that_arrived() {
    let mut parser = Parser::new(Limits::default());
    assert_eq!(parser.next(b"*1048576\r\n$67108864\r\n"), Ok(None));
    assert_eq!(parser.memory(), 0);

    let mut parser = Parser::new(Limits::default());
    assert!(parser.next(b"*1048577\r\n").is_err());
    assert_eq!(parser.memory(), 0);

    // Empty arguments are the smallest: eight bytes of memory for six, and the vector's
    // doubling.
    let mut bytes = b"*1048576\r\n".to_vec();
    let mut parser = Parser::new(Limits::default());
    for _ in 0..200 {
        bytes.extend_from_slice(&b"$0\r\n\r\n".repeat(1000));
        assert_eq!(parser.next(&bytes), Ok(None));
        let memory = parser.memory();
        assert!(memory <= 3 * bytes.len(), "{memory} bytes for {}", bytes.len());
    }
}

#[test]
fn memory_of_a_large_request_is_given_back() {
    let mut parser = Parser::new(Limits::default());
    let bytes = ["*100000\r\n", &"$0\r\n\r\n".repeat(100_000)].concat();
    assert_eq!(parser.next(bytes.as_bytes()), Ok(Some(bytes.len())));
    assert_eq!(parser.arguments(bytes.as_bytes()).len(), 100_000);
    assert_eq!(parser.next(b""), Ok(None));
    assert!(parser.memory() <= SPANS_KEPT * size_of::<Span>() + 64, "{}", parser.memory());
}

#[test]
fn a_million_nested_arrays_are_refused_at_the_second() {
    let bytes = "*1\r\n".repeat(1_000_000);
    let mut parser = Parser::new(Limits::default());
    assert_eq!(parser.next(bytes.as_bytes()), Err(ProtocolError::Dollar { got: b'*' }));
    assert_eq!((parser.position, parser.memory()), (4, 0));
}

#[test]
fn arguments_are_a_list() {
    let bytes = b"BF.INSERT code ITEMS a b\n";
    let mut parser = Parser::new(Limits::default());
    assert_eq!(parser.next(bytes), Ok(Some(bytes.len())));
    let arguments = parser.arguments(bytes);
    assert_eq!((arguments.len(), arguments.is_empty()), (5, false));
    assert_eq!(arguments.get(1), Some(&b"code"[..]));
    assert_eq!(arguments.get(5), None);
    assert_eq!(&arguments[4], b"b");
    let tail = arguments.skip(3);
    assert_eq!(tail.iter().collect::<Vec<_>>(), [b"a", b"b"]);
    assert_eq!(tail.iter().rev().collect::<Vec<_>>(), [b"b", b"a"]);
    assert_eq!((tail.iter().len(), tail.into_iter().count()), (2, 2));
    assert_eq!(&tail[0], b"a");
    assert!(arguments.skip(5).is_empty() && arguments.skip(6).is_empty());
    assert_eq!(format!("{tail:?}"), r#"["a", "b"]"#);
}
