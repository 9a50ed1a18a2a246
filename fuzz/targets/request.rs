//! Any bytes at all from a client, in any pieces: requests, or one error; the same as if they came
//! at once, the same as resp-rs finds, within the limits, and in memory that the bytes justify.
#![no_main]

use bytes::Bytes;
use inbloom_server::resp::{Limits, Parser, ProtocolError};
use libfuzzer_sys::fuzz_target;
use resp_rs::resp2::{self, Frame};

fuzz_target!(|bytes: &[u8]| {
    // Eight bytes say where pieces end, one bit for each place of 64; one byte chooses the limits.
    let Some((pieces, rest)) = bytes.split_first_chunk() else { return };
    let Some((limits, stream)) = rest.split_first() else { return };
    let pieces = u64::from_le_bytes(*pieces);
    let limits = match limits % 3 {
        0 => Limits::default(),
        1 => Limits::before_auth(),
        _ => Limits { arguments: 3, argument_bytes: 12, request_bytes: 48, inline_bytes: 20 },
    };

    let whole = parse(limits, stream, 0);
    assert_eq!(parse(limits, stream, pieces), whole, "pieces make a difference");
    for request in &whole.requests {
        check_limits(&limits, request, stream[request.start] == b'*');
    }
    if let Some(error) = &whole.error {
        let text = error.to_string();
        assert!(text.bytes().all(|byte| matches!(byte, b' '..=b'~')), "{text:?}");
    }
    if limits == Limits::default() {
        compare(stream, &whole);
    }
});

/// What a client's bytes are.
#[derive(PartialEq, Debug)]
struct Outcome {
    requests: Vec<Request>,
    /// Where the first byte is that belongs to no complete request.
    end: usize,
    error: Option<ProtocolError>,
}

#[derive(PartialEq, Debug)]
struct Request {
    start: usize,
    end: usize,
    arguments: Vec<Vec<u8>>,
}

fn parse(limits: Limits, stream: &[u8], pieces: u64) -> Outcome {
    let mut parser = Parser::new(limits);
    let mut outcome = Outcome { requests: Vec::new(), end: 0, error: None };
    let ends = (0..stream.len()).filter(|place| pieces >> (place % 64) & 1 == 1);
    for end in ends.chain([stream.len()]) {
        loop {
            let buffer = &stream[outcome.end..end];
            let read = parser.next(buffer);
            // Eight bytes for an argument, and a vector may have doubled: 16 for an argument of one
            // byte and a blank in a line, which is two bytes more without quotes.
            assert!(parser.memory() <= 10 * end + 64, "{} for {end}", parser.memory());
            match read {
                Ok(None) => break,
                Ok(Some(taken)) => {
                    let arguments = parser.arguments(buffer).iter().map(<[u8]>::to_vec).collect();
                    let start = outcome.end;
                    outcome.end += taken;
                    outcome.requests.push(Request { start, end: outcome.end, arguments });
                }
                Err(error) => {
                    assert_eq!(parser.next(buffer), Err(error), "asked again, another answer");
                    outcome.error = Some(error);
                    return outcome;
                }
            }
        }
    }
    outcome
}

fn check_limits(limits: &Limits, request: &Request, counted: bool) {
    let taken = request.end - request.start;
    assert!(taken > 0);
    if counted {
        assert!(taken <= limits.request_bytes || request.arguments.is_empty());
        assert!(request.arguments.len() <= limits.arguments);
        assert!(request.arguments.iter().all(|argument| argument.len() <= limits.argument_bytes));
    } else {
        assert!(taken <= limits.inline_bytes + 1, "a line of {taken} bytes");
        assert!(request.arguments.iter().map(Vec::len).sum::<usize>() < taken);
    }
}

/// Every request that is no line is the same for resp-rs, and what ends them is none for it, unless
/// a number has zeros in front: those resp-rs takes, and Redis and we refuse.
fn compare(stream: &[u8], outcome: &Outcome) {
    let stream = Bytes::copy_from_slice(stream);
    for request in &outcome.requests {
        if stream[request.start] == b'*' {
            let (arguments, taken) = theirs(stream.slice(request.start..)).expect("we took it");
            assert_eq!((&arguments, taken), (&request.arguments, request.end - request.start));
        }
    }
    let rest = stream.slice(outcome.end..);
    if rest.first() != Some(&b'*') {
        return;
    }
    if let Some((arguments, taken)) = theirs(rest.clone()) {
        let mut canonical = format!("*{}\r\n", arguments.len()).into_bytes();
        for argument in &arguments {
            canonical.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
            canonical.extend_from_slice(argument);
            canonical.extend_from_slice(b"\r\n");
        }
        assert!(canonical != rest[..taken], "resp-rs takes it, we say {:?}", outcome.error);
        let error = outcome.error;
        assert!(matches!(error, Some(ProtocolError::Count | ProtocolError::Length)), "{error:?}");
    }
}

/// A flat array of byte strings, or the null array, and the bytes that it takes.
fn theirs(bytes: Bytes) -> Option<(Vec<Vec<u8>>, usize)> {
    let length = bytes.len();
    let (frame, rest) = resp2::parse_frame(bytes).ok()?;
    let Frame::Array(elements) = frame else { return None };
    let arguments = elements.unwrap_or_default().into_iter().map(|element| match element {
        Frame::BulkString(Some(argument)) => Some(argument.to_vec()),
        _ => None,
    });
    Some((arguments.collect::<Option<_>>()?, length - rest.len()))
}
