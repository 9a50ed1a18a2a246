//! The protocol under any input: whatever is encoded is read back, however it is cut into pieces,
//! and a parser that others wrote (resp-rs) agrees, byte for byte, in both directions.

use inbloom_server::resp::{Limits, Parser, Protocol, ProtocolError, Reply};
use proptest::prelude::*;
use resp_rs::{resp2, resp3};

type Request = Vec<Vec<u8>>;

fn encode(request: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", request.len()).into_bytes();
    for argument in request {
        bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        bytes.extend_from_slice(argument);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// The first request as our parser finds it, and the bytes that it takes.
fn ours(bytes: &[u8]) -> Result<Option<(Request, usize)>, ProtocolError> {
    let mut parser = Parser::new(Limits::default());
    let taken = parser.next(bytes)?;
    let arguments = parser.arguments(bytes).iter().map(<[u8]>::to_vec).collect();
    Ok(taken.map(|taken| (arguments, taken)))
}

/// The first request as resp-rs finds it: a flat array of byte strings, or the null array.
fn theirs(bytes: &[u8]) -> Option<(Request, usize)> {
    let (frame, rest) = resp2::parse_frame(bytes.to_vec().into()).ok()?;
    let resp2::Frame::Array(elements) = frame else { return None };
    let arguments = elements.unwrap_or_default().into_iter().map(|element| match element {
        resp2::Frame::BulkString(Some(argument)) => Some(argument.to_vec()),
        _ => None,
    });
    Some((arguments.collect::<Option<Request>>()?, bytes.len() - rest.len()))
}

/// What one of the two parsers accepts, the other accepts too and understands alike. The one
/// exception: resp-rs takes zeros in front of a number, which Redis and we refuse.
fn agrees(bytes: &[u8]) -> Result<(), TestCaseError> {
    if bytes.first() != Some(&b'*') {
        return Ok(()); // a line: resp-rs knows none
    }
    let shown = bytes.escape_ascii();
    match (ours(bytes), theirs(bytes)) {
        (Ok(Some(ours)), theirs) => prop_assert_eq!(Some(ours), theirs, "{}", shown),
        (Ok(None) | Err(_), None) => {}
        (Err(error), Some((request, taken))) => {
            prop_assert_ne!(&encode(&request)[..], &bytes[..taken], "{}: {}", error, shown);
            prop_assert!(
                matches!(error, ProtocolError::Count | ProtocolError::Length),
                "{error}: {shown}"
            );
        }
        (Ok(None), Some(theirs)) => {
            prop_assert!(false, "unfinished for us, {:?} for them: {}", theirs, shown);
        }
    }
    Ok(())
}

/// Arguments as clients send them, and some that look like the protocol itself.
fn argument() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => prop::collection::vec(any::<u8>(), 0..30),
        1 => prop::collection::vec(any::<u8>(), 90..300),
        2 => prop::collection::vec(prop::sample::select(&b"\r\n$*-019"[..]), 0..12),
    ]
}

fn requests() -> impl Strategy<Value = Vec<Request>> {
    prop::collection::vec(prop::collection::vec(argument(), 0..12), 1..6)
}

/// A change of one byte: flipped, put in, taken out, or all behind it cut off.
#[derive(Clone, Debug)]
enum Mutation {
    Set(prop::sample::Index, u8),
    Insert(prop::sample::Index, u8),
    Remove(prop::sample::Index),
    Cut(prop::sample::Index),
}

impl Mutation {
    fn apply(&self, bytes: &mut Vec<u8>) {
        let length = bytes.len();
        if length == 0 {
            return;
        }
        match self {
            Mutation::Set(index, byte) => bytes[index.index(length)] = *byte,
            Mutation::Insert(index, byte) => bytes.insert(index.index(length), *byte),
            Mutation::Remove(index) => drop(bytes.remove(index.index(length))),
            Mutation::Cut(index) => bytes.truncate(index.index(length)),
        }
    }
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let byte = || prop_oneof![any::<u8>(), prop::sample::select(&b"\r\n$*-+0123456789"[..])];
    let index = any::<prop::sample::Index>;
    prop_oneof![
        4 => (index(), byte()).prop_map(|(index, byte)| Mutation::Set(index, byte)),
        2 => (index(), byte()).prop_map(|(index, byte)| Mutation::Insert(index, byte)),
        2 => index().prop_map(Mutation::Remove),
        1 => index().prop_map(Mutation::Cut),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(2000)
    })]

    #[test]
    fn what_is_encoded_is_read_back_in_any_pieces(
        requests in requests(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
    ) {
        let bytes: Vec<u8> = requests.iter().flat_map(|request| encode(request)).collect();
        let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len())).collect();
        ends.sort_unstable();
        ends.push(bytes.len());
        let mut parser = Parser::new(Limits::default());
        let (mut read, mut start): (Vec<Request>, usize) = (Vec::new(), 0);
        for end in ends {
            while let Some(taken) = parser.next(&bytes[start..end]).expect("our own encoding") {
                let arguments = parser.arguments(&bytes[start..end]);
                read.push(arguments.iter().map(<[u8]>::to_vec).collect());
                start += taken;
            }
        }
        prop_assert_eq!(read, requests);
        prop_assert_eq!(start, bytes.len());
    }

    #[test]
    fn a_foreign_parser_agrees_on_right_requests(requests in requests()) {
        let bytes: Vec<u8> = requests.iter().flat_map(|request| encode(request)).collect();
        let first = Some((requests[0].clone(), encode(&requests[0]).len()));
        prop_assert_eq!(theirs(&bytes), first.clone());
        prop_assert_eq!(ours(&bytes), Ok(first));
    }

    #[test]
    fn a_foreign_parser_agrees_on_wrong_requests(
        request in prop::collection::vec(argument(), 0..6),
        mutations in prop::collection::vec(mutation(), 1..4),
    ) {
        let mut bytes = encode(&request);
        for mutation in &mutations {
            mutation.apply(&mut bytes);
            agrees(&bytes)?;
        }
    }

    #[test]
    fn a_foreign_parser_agrees_on_nonsense(
        bytes in prop::collection::vec(prop::sample::select(&b"\r\n$*-+0123a"[..]), 0..24),
    ) {
        agrees(&[b"*", &bytes[..]].concat())?;
        agrees(&[b"*1\r\n", &bytes[..]].concat())?;
        agrees(&[b"*1\r\n$1\r\n", &bytes[..]].concat())?;
    }

    #[test]
    fn replies_are_understood_by_a_foreign_parser(value in value()) {
        for protocol in [Protocol::Resp2, Protocol::Resp3] {
            let mut bytes = Vec::new();
            value.write(&mut Reply::new(&mut bytes, protocol));
            let shown = bytes.escape_ascii().to_string();
            match protocol {
                Protocol::Resp2 => {
                    let (frame, rest) = resp2::parse_frame(bytes.into()).expect(&shown);
                    prop_assert_eq!((frame, rest.len()), (value.resp2(), 0));
                }
                Protocol::Resp3 => {
                    let (frame, rest) = resp3::parse_frame(bytes.into()).expect(&shown);
                    prop_assert_eq!((frame, rest.len()), (value.resp3(), 0));
                }
            }
        }
    }
}

#[test]
fn a_foreign_parser_agrees_on_every_short_request() {
    // Every string of up to six of these bytes behind a star: 300,000 requests, nearly all wrong.
    let alphabet = b"\r\n$*-012";
    let mut bytes = vec![b'*'];
    for length in 0..=6 {
        for number in 0..alphabet.len().pow(length) {
            bytes.truncate(1);
            let digits = (0..length).map(|place| number / alphabet.len().pow(place));
            bytes.extend(digits.map(|digit| alphabet[digit % alphabet.len()]));
            agrees(&bytes).unwrap();
        }
    }
}

/// A reply of any shape.
#[derive(Clone, Debug)]
enum Value {
    Ok,
    Simple(String),
    Error(String),
    Integer(i64),
    Truth(bool),
    Bulk(Vec<u8>),
    Text(String),
    Null,
    NullArray,
    Double(f64),
    Verbatim(String),
    Array(Vec<Value>),
    Set(Vec<Value>),
    Push(Vec<Value>),
    Map(Vec<(Value, Value)>),
}

fn value() -> impl Strategy<Value = Value> {
    let number = prop_oneof![any::<i64>(), -200..200i64];
    let double = prop_oneof![
        any::<f64>(),
        any::<u64>().prop_map(f64::from_bits),
        (-1000..1000i32).prop_map(|number| f64::from(number) / 64.0),
        prop::sample::select(&[f64::INFINITY, f64::NEG_INFINITY, f64::NAN, -0.0, 1e18][..]),
    ];
    let leaf = prop_oneof![
        Just(Value::Ok),
        ".*".prop_map(Value::Simple),
        "[A-Z]+ .*[\r\n]?.*".prop_map(Value::Error),
        number.prop_map(Value::Integer),
        any::<bool>().prop_map(Value::Truth),
        argument().prop_map(Value::Bulk),
        ".*".prop_map(Value::Text),
        Just(Value::Null),
        Just(Value::NullArray),
        double.prop_map(Value::Double),
        ".*".prop_map(Value::Verbatim),
    ];
    leaf.prop_recursive(3, 30, 12, |inner| {
        let many = || prop::collection::vec(inner.clone(), 0..12);
        prop_oneof![
            many().prop_map(Value::Array),
            many().prop_map(Value::Set),
            many().prop_map(Value::Push),
            prop::collection::vec((inner.clone(), inner.clone()), 0..12).prop_map(Value::Map),
        ]
    })
}

fn one_line(text: &str) -> String {
    text.replace(['\r', '\n'], " ")
}

impl Value {
    fn write(&self, reply: &mut Reply<'_>) {
        match self {
            Value::Ok => reply.ok(),
            Value::Simple(text) => reply.simple(text),
            Value::Error(text) => reply.error(text),
            Value::Integer(value) => reply.integer(*value),
            Value::Truth(value) => reply.truth(*value),
            Value::Bulk(bytes) => reply.bulk(bytes),
            Value::Text(text) => reply.text(text),
            Value::Null => reply.null(),
            Value::NullArray => reply.null_array(),
            Value::Double(value) => reply.double(*value),
            Value::Verbatim(text) => reply.verbatim("txt", text),
            Value::Array(elements) => {
                reply.array(elements.len());
                elements.iter().for_each(|each| each.write(reply));
            }
            Value::Set(elements) => {
                reply.set(elements.len());
                elements.iter().for_each(|each| each.write(reply));
            }
            Value::Push(elements) => {
                reply.push(elements.len());
                elements.iter().for_each(|each| each.write(reply));
            }
            Value::Map(pairs) => {
                reply.map(pairs.len());
                for (key, value) in pairs {
                    key.write(reply);
                    value.write(reply);
                }
            }
        }
    }

    /// What a client of RESP2 must understand.
    fn resp2(&self) -> resp2::Frame {
        use resp2::Frame;
        let all = |values: &[Value]| values.iter().map(Value::resp2).collect();
        match self {
            Value::Ok => Frame::SimpleString("OK".into()),
            Value::Simple(text) => Frame::SimpleString(one_line(text).into()),
            Value::Error(text) => Frame::Error(one_line(text).into()),
            Value::Integer(value) => Frame::Integer(*value),
            Value::Truth(value) => Frame::Integer(i64::from(*value)),
            Value::Bulk(bytes) => Frame::BulkString(Some(bytes.clone().into())),
            Value::Text(text) | Value::Verbatim(text) => {
                Frame::BulkString(Some(text.clone().into()))
            }
            Value::Null => Frame::BulkString(None),
            Value::NullArray => Frame::Array(None),
            Value::Double(_) => Frame::BulkString(Some(self.double_text().into())),
            Value::Array(elements) | Value::Set(elements) | Value::Push(elements) => {
                Frame::Array(Some(all(elements)))
            }
            Value::Map(pairs) => {
                let flat = pairs.iter().flat_map(|(key, value)| [key.resp2(), value.resp2()]);
                Frame::Array(Some(flat.collect()))
            }
        }
    }

    /// What a client of RESP3 must understand.
    fn resp3(&self) -> resp3::Frame {
        use resp3::Frame;
        let all = |values: &[Value]| values.iter().map(Value::resp3).collect();
        match self {
            Value::Ok => Frame::SimpleString("OK".into()),
            Value::Simple(text) => Frame::SimpleString(one_line(text).into()),
            Value::Error(text) => Frame::Error(one_line(text).into()),
            Value::Integer(value) => Frame::Integer(*value),
            Value::Truth(value) => Frame::Boolean(*value),
            Value::Bulk(bytes) => Frame::BulkString(Some(bytes.clone().into())),
            Value::Text(text) => Frame::BulkString(Some(text.clone().into())),
            Value::Null | Value::NullArray => Frame::Null,
            Value::Double(value) if value.is_finite() => Frame::Double(*value),
            Value::Double(_) => Frame::SpecialFloat(self.double_text().into()),
            Value::Verbatim(text) => {
                Frame::VerbatimString { payload: format!("txt:{text}").into() }
            }
            Value::Array(elements) => Frame::Array(Some(all(elements))),
            Value::Set(elements) => Frame::Set(all(elements)),
            Value::Push(elements) => Frame::Push(all(elements)),
            Value::Map(pairs) => {
                Frame::Map(pairs.iter().map(|(key, value)| (key.resp3(), value.resp3())).collect())
            }
        }
    }

    /// A double as RESP3 writes it, which is what RESP2 must have as a byte string.
    fn double_text(&self) -> String {
        let mut line = Vec::new();
        self.write(&mut Reply::new(&mut line, Protocol::Resp3));
        let text = String::from_utf8(line).expect("a double is text");
        text.trim_start_matches(',').trim_end().to_owned()
    }
}
