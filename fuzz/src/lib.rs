//! The laws that every target puts to the test, whatever bytes it starts from.

use inbloom::internals::format;
use inbloom::interop::{Container, Format};
use inbloom::{Error, Filter, Kind, OpenOptions, SecretKey, View};

/// The key of keyed filters in the corpus (that of the golden files).
pub const KEY: SecretKey = SecretKey::new(*b"0123456789abcdef");

/// Keys to ask for. A bitmap takes at most eight bytes for an integer.
pub const KEYS: [&[u8]; 6] = [b"", b"a", b"alice", b"\xff\xff\xff\xff", b"12345678", b"nine bytes"];

/// Reads the bytes by every way, and checks that the ways agree.
pub fn check_ways(bytes: &[u8]) {
    let mut rest = bytes;
    let read = OpenOptions::new().secret(&KEY).read_from(&mut rest);
    let whole = &bytes[..bytes.len() - rest.len()];
    let view = OpenOptions::new().secret(&KEY).view(bytes);
    let verified = format::verify(bytes);
    for error in [read.as_ref().err(), view.as_ref().err(), verified.as_ref().err()] {
        error.into_iter().for_each(check_error);
    }
    match &read {
        Ok(read) => {
            // What a stream gave is a file that stands every check.
            format::verify(whole).expect("what was read is not what is verified");
            let view = OpenOptions::new()
                .secret(&KEY)
                .view(whole)
                .expect("what was read cannot be viewed");
            assert!(*view == *read, "a view of the same bytes is another filter");
            check_queries(&view);
            check_filter(read.try_clone().expect("memory for a filter that was just read"));
        }
        Err(Error::Key { .. } | Error::Memory { .. }) => {}
        Err(error) => assert!(verified.is_err(), "verified, but not read: {error}"),
    }
    if let Ok(view) = view {
        check_queries(&view);
        // The payload is anything: only that nothing breaks is promised.
        exercise(view.try_clone().expect("memory for a filter that is in memory"));
    }
}

/// An error says what is wrong and what to do.
fn check_error(error: &Error) {
    let text = error.to_string();
    match error {
        Error::Format { what, expected, got, remedy } => {
            assert!(!what.is_empty() && !expected.is_empty() && !got.is_empty(), "{text}");
            assert!(text.ends_with(remedy) && remedy.len() > 10, "{text}");
        }
        Error::NotAFilter { .. } => assert!(error.help().is_some(), "{text}"),
        Error::NewerVersion { .. } | Error::Key { .. } | Error::Memory { .. } => {}
        other => panic!("no error of a reader: {other:?}"),
    }
}

fn check_queries(view: &View<'_>) {
    let mut found = Vec::new();
    view.contains_many(&KEYS, &mut found);
    for (key, found) in KEYS.iter().zip(found) {
        assert_eq!(view.contains(key), found, "one by one, {key:?} is answered otherwise");
        assert_eq!(view.count(key) > 0, found, "{key:?} is counted otherwise than found");
        match view.positions(key) {
            Ok(_) if view.plan().kind() == Kind::Bitmap => {}
            Ok(positions) => assert_eq!(view.contains_positions(&positions), found),
            Err(Error::OtherShard { .. }) => assert!(!found, "{key:?} is in another shard"),
            Err(error) => assert!(matches!(error, Error::Unsupported { .. }), "{error:?}"),
        }
    }
}

/// What holds for every filter whose bits and counts are right.
pub fn check_filter(mut filter: Filter) {
    assert!((0.0..=1.0).contains(&filter.fill()), "fill {}", filter.fill());
    assert!((0.0..=1.0).contains(&filter.rate()), "rate {}", filter.rate());
    assert!(filter.estimated_items().items >= 0.0);
    check_round_trip(&filter);
    for key in KEYS {
        let (before, cleared) = (filter.contains(key), will_clear(&filter));
        match filter.insert(key) {
            Ok(new) => {
                assert!(filter.contains(key), "{key:?} was inserted and is denied");
                assert!(cleared || new != before, "{key:?} was there {before}, is new {new}");
            }
            Err(Error::NotInUniverse { .. }) => assert_eq!(filter.plan().kind(), Kind::Bitmap),
            Err(Error::Full { .. } | Error::Copies { .. }) => {
                assert!(can_be_full(filter.plan().kind()) || grows(&filter));
            }
            Err(Error::OtherShard { .. }) => assert!(filter.plan().shard().is_some() && !before),
            // Fingerprints so short that no filter of ours has them cannot be taken over.
            Err(Error::TooLarge { .. }) => assert!(grows(&filter)),
            Err(Error::Unsupported { kind, .. }) => assert!(kind.is_static()),
            Err(error) => panic!("{error:?}"),
        }
    }
    check_round_trip(&filter);
    let other = filter.try_clone().expect("memory for a small filter");
    merge(&mut filter, &other);
    if intersect(&mut filter, &other) {
        assert!(filter == other, "united and met with itself, it is another filter");
    }
    assert!(KEYS.iter().all(|key| filter.contains(key) || !other.contains(key)));
    exercise(filter);
}

/// Whether a filter has a table that grows: all of it, or the part beside its base.
fn grows(filter: &Filter) -> bool {
    filter.plan().kind() == Kind::Scalable || filter.as_grown().is_some()
}

/// Whether an insert may be refused for want of room.
pub fn can_be_full(kind: Kind) -> bool {
    matches!(kind, Kind::Cuckoo | Kind::Scalable)
}

/// Adds a filter of the same plan, and tells whether there was room. If not, nothing changes.
pub fn merge(filter: &mut Filter, other: &Filter) -> bool {
    match filter.merge(other) {
        Ok(()) => true,
        Err(Error::Full { .. } | Error::Copies { .. }) if can_be_full(filter.plan().kind()) => {
            false
        }
        Err(Error::Full { .. } | Error::MergedRate { .. } | Error::TooLarge { .. })
            if grows(filter) =>
        {
            false
        }
        Err(Error::Unsupported { kind, .. }) if kind.is_static() => false,
        Err(error) => panic!("filters of one plan: {error:?}"),
    }
}

/// Keeps what a filter of the same plan has too, and tells whether the kind can.
pub fn intersect(filter: &mut Filter, other: &Filter) -> bool {
    match filter.intersect(other) {
        Ok(()) => true,
        Err(Error::Unsupported { kind: Kind::Window | Kind::Ribbon, .. }) => false,
        Err(Error::Unsupported { .. }) if grows(filter) || grows(other) => false,
        Err(error) => panic!("filters of one plan: {error:?}"),
    }
}

/// Whether the next insert empties the filter first, as its documentation has it.
pub fn will_clear(filter: &Filter) -> bool {
    clears_above(filter).is_some_and(|most| filter.occupied() > most)
}

/// The occupied cells above which an insert empties the filter first, if it clears itself.
pub fn clears_above(filter: &Filter) -> Option<u64> {
    let plan = filter.plan();
    let (blocks, width) = (plan.bits() / 512, u64::from(plan.width()));
    let cells = match plan.kind() {
        Kind::Blocked => plan.bits() - blocks,
        Kind::Window => (plan.bits() - blocks).saturating_mul(u64::from(plan.generations()) + 1),
        Kind::Scalable => plan.items(),
        _ => plan.bits() / width,
    };
    filter.auto_clear().map(|share| (share * cells as f64) as u64)
}

/// Written and read again, a filter is the same, and every check finds it right.
pub fn check_round_trip(filter: &Filter) {
    let mut bytes = Vec::new();
    filter.write_to(&mut bytes).expect("a Vec takes every byte");
    format::verify(&bytes).expect("our own bytes");
    let read = OpenOptions::new().secret(&KEY).read_from(&bytes[..]).expect("our own bytes");
    assert!(read == *filter, "written and read, it is another filter");
    assert_eq!(read.plan(), filter.plan());
    assert_eq!(read.occupied(), filter.occupied());
    assert_eq!(read.inserted(), filter.inserted().min(1 << 63), "where a file stops counting");
    assert_eq!(read.auto_clear(), filter.auto_clear());
    assert_eq!((read.note(), read.normalization()), (filter.note(), filter.normalization()));
    let mut again = Vec::new();
    read.write_to(&mut again).expect("a Vec takes every byte");
    assert!(again == bytes, "written again, other bytes");
}

/// Everything that can be done to a filter, whatever its payload and its counts: nothing may panic.
fn exercise(mut filter: Filter) {
    let _ = (filter.fill(), filter.rate(), filter.estimated_items(), filter.plan().bits_per_key());
    let _ = format!("{filter:?}");
    if let Some(bitmap) = filter.as_bitmap() {
        bitmap.iter().take(1000).for_each(drop);
    }
    for (name, value) in filter.details() {
        assert!(!name.is_empty() && !value.is_empty(), "{name}: {value}");
    }
    let _ = (filter.bytes(), filter.profile(1), filter.profile(64));
    // Clocks that go back, that stand still, and the last moment there is.
    for now in [0, 1 << 40, 5, (1 << 40) + 1000, u64::MAX] {
        let _ = filter.advance(now);
    }
    let mut answers = Vec::new();
    let _ = filter.insert_many(&KEYS, &mut answers);
    for key in KEYS {
        let _ = (filter.count(key), filter.remove(key));
    }
    let other = filter.try_clone().expect("memory for a small filter");
    merge(&mut filter, &other);
    intersect(&mut filter, &other);
    if let Ok(shared) = filter.into_shared() {
        for key in KEYS {
            let _ = (shared.insert(key), shared.count(key), shared.remove(key));
        }
        let _ = (shared.rate(), shared.estimated_items(), shared.advance(u64::MAX));
        let mut filter = shared.into_exclusive();
        match filter.clear() {
            Ok(()) => assert_eq!((filter.occupied(), filter.inserted()), (0, 0)),
            Err(error) => assert!(filter.plan().kind().is_static(), "{error}"),
        }
    }
}

/// Reads bytes as a filter of another program; the first one chooses the variants. What was read can
/// be asked and changed, and is the same after it was written, in its own format and in ours.
pub fn check_format(name: &str, bytes: &[u8]) {
    let Some((chosen, file)) = bytes.split_first() else { return };
    let format: Format = name.parse().expect("a format of the library");
    let variants = format.variants().iter().enumerate();
    let variants =
        variants.filter(|(at, _)| chosen >> at & 1 == 1).map(|(_, variant)| variant.name);
    let container = Container::new(format, variants).expect("variants of the format");
    let _ = Format::recognize(file);
    let mut filter = match container.read(file) {
        Ok(filter) => filter,
        Err(error) => return check_error(&error),
    };
    // A compressed file is at most 1032 times as long when it is read. An empty filter of DataSketches
    // has no words in its file.
    let without_words = if name == "datasketches" && file.len() == 24 { 16 << 20 } else { 0 };
    let most = 2048 * file.len().max(64) as u64 + without_words;
    assert!(filter.bytes() <= most, "more memory than bytes");
    let container = filter.container().expect("the format that it was read in");
    let mut written = Vec::new();
    filter.write_as(container, &mut written).expect("what was read can be written");
    let again = container.read(&written).expect("what was written can be read");
    assert!(again == filter, "written and read, it is another filter");
    let mut ours = Vec::new();
    filter.write_to(&mut ours).expect("memory");
    let again = Filter::read_from(&ours[..]).expect("what was written can be read");
    assert!(again == filter, "in our own format, it is another filter");
    let mut found = Vec::new();
    filter.contains_many(&KEYS, &mut found);
    for (key, found) in KEYS.iter().zip(found) {
        assert_eq!(filter.contains(key), found, "a batch answers otherwise");
        assert_eq!(again.contains(key), found, "a copy answers otherwise");
    }
    // Not before all were asked for: one key may have the bits of another.
    for key in KEYS {
        filter.insert(key).expect("memory of its own");
        assert!(filter.contains(key), "a key that was inserted is absent");
    }
}
