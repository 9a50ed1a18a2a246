//! What the test files share: keys, and every shape that a filter has.

use std::time::Duration;

use inbloom::internals::compose::overlay::BASE_SHARE;
use inbloom::{Digest, Filter, Hasher, Kind, OpenOptions, Plan, PlanBuilder, Span, file};

/// The possible values of the bitmaps below.
pub const UNIVERSE: u64 = 1 << 20;

/// A key that every kind takes: eight bytes that are, for a bitmap, an integer of its universe.
/// Different numbers below [`UNIVERSE`] give different keys, in no order.
pub fn key(number: u64) -> [u8; 8] {
    assert!(number < UNIVERSE);
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % UNIVERSE).to_le_bytes()
}

/// The keys of a range of numbers.
pub fn keys(numbers: std::ops::Range<u64>) -> Vec<[u8; 8]> {
    numbers.map(key).collect()
}

/// The digest of a number, under the default hash.
pub fn digest(number: u64) -> Digest {
    Hasher::default().digest(number.to_le_bytes())
}

/// The digests of a range of numbers.
pub fn digests(numbers: std::ops::Range<u64>) -> Vec<Digest> {
    numbers.map(digest).collect()
}

/// Every shape that a filter has which takes inserts, planned for `items` keys, with a name for messages.
/// Static kinds are built instead: their laws are those of `ribbon.rs`.
pub fn shapes(items: u64) -> Vec<(String, Plan)> {
    shapes_for(items, items)
}

/// As [`shapes`], but those that would refuse or forget keys beyond their plan are planned for
/// `most`, so that they can hold as many, copies included.
pub fn shapes_for(items: u64, most: u64) -> Vec<(String, Plan)> {
    let built = |builder: PlanBuilder| builder.build().expect("a plan that can be built");
    let mut shapes = vec![
        ("dense bitmap".to_owned(), built(Plan::builder(Kind::Bitmap).universe(UNIVERSE))),
        (
            "sparse bitmap".to_owned(),
            built(Plan::builder(Kind::Bitmap).universe(1 << 40).items(items)),
        ),
    ];
    for probes in [1, 7, 20] {
        let plan = Plan::builder(Kind::Classic).items(items).bits_per_key(20.0).probes(probes);
        shapes.push((format!("classic with {probes} probes"), built(plan)));
    }
    for (lines, probes) in line_shapes() {
        let plan = Plan::builder(Kind::Blocked).items(items).bits_per_key(24.0);
        let plan = built(plan.lines(lines).probes(lines * probes));
        shapes.push((format!("blocked with {lines} lines of {probes} probes"), plan));
    }
    for width in [2, 3, 4, 8] {
        for (lines, rate) in [(1, 1e-3), (2, 1e-5)] {
            let plan =
                Plan::builder(Kind::Counting).items(items).rate(rate).width(width).lines(lines);
            shapes.push((format!("counting with {lines} lines of {width} bits"), built(plan)));
        }
    }
    shapes.extend(cuckoos(most));
    for generations in [1, 4] {
        let plan = Plan::builder(Kind::Window).last(most).generations(generations);
        shapes.push((format!("window of keys in {generations} steps"), built(plan)));
    }
    let plan = Plan::builder(Kind::Window).window(SPAN).items(most);
    shapes.push(("window of time".to_owned(), built(plan)));
    let plan = |items| Plan::builder(Kind::Scalable).items(items).rate(1e-3);
    shapes.push(("scalable from 100 on".to_owned(), built(plan(100))));
    shapes.push(("scalable as planned".to_owned(), built(plan(items))));
    shapes.push(("scalable that does not grow".to_owned(), built(plan(most).growth(0))));
    for &kind in Kind::ALL {
        let is_there = |(_, plan): &(String, Plan)| plan.kind() == kind;
        if !kind.is_static() && !shapes.iter().any(is_there) {
            shapes.push((kind.to_string(), built(Plan::builder(kind).items(most).rate(1e-3))));
        }
    }
    shapes
}

/// An empty filter to be, of any content that takes inserts.
pub struct Shape {
    pub name: String,
    /// That of the filter: of all shards together, or of the base that others are added to.
    pub plan: Plan,
    planned: Plan,
    content: Content,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// A kind by itself.
    Kind,
    /// In so many shards.
    Shards(u32),
    /// With a growing part for keys past its plan.
    Growing,
    /// Beside a static filter that has other keys.
    Overlay,
}

/// Every shape of [`shapes_for`], and filters made of others: in shards, one of every kind that can
/// be, with a growing part, and an overlay.
pub fn every_shape(items: u64, most: u64) -> Vec<Shape> {
    let of_kind = |(name, plan)| Shape { name, plan, planned: plan, content: Content::Kind };
    let mut every: Vec<Shape> = shapes_for(items, most).into_iter().map(of_kind).collect();
    let in_shards = [
        "classic with 7 probes",
        "blocked with 1 lines of 8 probes",
        "blocked with 2 lines of 8 probes",
        "counting with 1 lines of 3 bits",
        "counting with 1 lines of 4 bits",
        "cuckoo at 0.001",
        "window of keys in 4 steps",
        "window of time",
        "scalable from 100 on",
        "scalable that does not grow",
    ];
    for (name, plan) in shapes_for(items, most) {
        if in_shards.contains(&name.as_str()) {
            every.push(Shape::new(format!("{name}, in shards"), plan, Content::Shards(3)));
        }
    }
    for kind in [Kind::Classic, Kind::Blocked] {
        let plan = Plan::builder(kind).items(items).rate(1e-3).growing().build();
        let plan = plan.expect("a plan that can be built");
        every.push(Shape::new(format!("{kind} that grows"), plan, Content::Growing));
    }
    let plan = Plan::builder(Kind::Ribbon).items(IN_BASE).rate(1e-3 * BASE_SHARE).build();
    let plan = plan.expect("a plan that can be built");
    every.push(Shape::new("overlay of a ribbon".to_owned(), plan, Content::Overlay));
    every
}

/// The keys in the base of an overlay: the last ones, which no law uses.
const IN_BASE: u64 = 1000;

impl Shape {
    fn new(name: String, planned: Plan, content: Content) -> Shape {
        let mut shape = Shape { name, plan: planned, planned, content };
        shape.plan = *shape.filter().plan();
        shape
    }

    pub fn filter(&self) -> Filter {
        self.with_hasher(match self.plan.kind() {
            Kind::Bitmap => Hasher::integers(),
            _ => Hasher::default(),
        })
    }

    pub fn with_hasher(&self, hasher: Hasher) -> Filter {
        let plan = self.planned;
        match self.content {
            Content::Kind => Filter::with_hasher(plan, hasher),
            Content::Shards(shards) => Filter::sharded_with_hasher(plan, shards, hasher),
            Content::Growing => Filter::with_hasher(plan, hasher).and_then(Filter::into_growing),
            Content::Overlay => {
                let digests = keys(UNIVERSE - IN_BASE..UNIVERSE);
                let digests: Vec<Digest> = digests.iter().map(|key| hasher.digest(key)).collect();
                let base = Filter::build(plan, hasher, &digests);
                base.and_then(|base| base.into_overlay(1e-3))
            }
        }
        .expect("memory for a small filter")
    }

    pub fn with_keys(&self, keys: &[[u8; 8]]) -> Filter {
        let mut filter = self.filter();
        filter.insert_many(keys, &mut Vec::new()).expect("an insert into memory");
        filter
    }

    pub fn is_overlay(&self) -> bool {
        self.content == Content::Overlay
    }

    /// Whether the content depends on the order in which keys came: those of a window go into
    /// generations, and what grows keeps longer fingerprints of what came later.
    pub fn knows_the_order(&self) -> bool {
        let by_keys = matches!(self.plan.span(), Some(Span::Items(_)));
        let grows = self.plan.kind().can_grow() || self.is_overlay();
        grows || by_keys && self.plan.generations() > 1
    }
}

/// The cuckoo filters among the shapes, for so many items and not for many more.
pub fn cuckoos(items: u64) -> Vec<(String, Plan)> {
    let of_rate = |rate| {
        let plan = Plan::builder(Kind::Cuckoo).items(items).rate(rate).build();
        (format!("cuckoo at {rate}"), plan.expect("a plan that can be built"))
    };
    [0.1, 0.001, 1e-6].map(of_rate).into()
}

/// The time that the window of time among the shapes reaches back.
pub const SPAN: Duration = Duration::from_millis(1000);

/// Inserts keys evenly over the time of a window that has a clock; at once into any other filter.
pub fn insert_over_time(filter: &mut Filter, keys: &[[u8; 8]]) {
    let steps = match filter.plan().span() {
        Some(Span::Millis(_)) => u64::from(filter.plan().generations()),
        _ => 1,
    };
    let each = keys.len().div_ceil(steps as usize).max(1);
    for (step, keys) in keys.chunks(each).enumerate() {
        if steps > 1 {
            let now = SPAN.as_millis() as u64 / steps * step as u64;
            filter.advance(now).expect("a window that has a clock");
        }
        filter.insert_many(keys, &mut Vec::new()).expect("an insert into memory");
    }
}

/// The most copies of a key that a count can tell; 1 if the kind does not count.
pub fn max_count(plan: &Plan) -> u64 {
    match plan.kind() {
        Kind::Counting => (1 << plan.width()) - 1,
        Kind::Cuckoo => 8,
        _ => 1,
    }
}

/// Lines per key and probes per line of every blocked shape.
pub fn line_shapes() -> impl Iterator<Item = (u32, u32)> {
    [1, 2].into_iter().flat_map(|lines| [4, 8, 12, 16].map(|probes| (lines, probes)))
}

/// An empty filter; `seed` varies the hash where there is one.
pub fn seeded(plan: Plan, seed: u64) -> Filter {
    match plan.kind() {
        Kind::Bitmap => Filter::new(plan),
        _ => Filter::with_hasher(plan, Hasher::xxh3(seed)),
    }
    .expect("memory for a small filter")
}

/// The bytes of a filter's file.
pub fn file_of(filter: &Filter) -> Vec<u8> {
    let mut file = Vec::new();
    filter.write_to(&mut file).expect("a Vec takes every byte");
    file
}

/// The filter in the bytes of a file, or in those of all shards one after the other.
pub fn read(bytes: &[u8]) -> Filter {
    Filter::read_shards_from(bytes).expect("what was written")
}

/// The filter by every way to open it.
pub fn reopened(filter: &Filter) -> Vec<Filter> {
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let path = folder.path().join("filter.ib");
    filter.save(&path).expect("room on the disk");
    file::verify(&path).expect("what was saved");
    let (bytes, to_change) = (file_of(filter), OpenOptions::new().writable(true));
    let opened = [
        Filter::open(&path),
        to_change.open(&path),
        to_change.verify(true).open(&path),
        Filter::read_from(&bytes[..]),
        Filter::view(&bytes).map(|view| view.clone()),
        filter.try_clone(),
    ];
    opened.map(|filter| filter.expect("what was written")).into()
}

/// The bytes that hold a filter's cells in its file.
pub fn payload(filter: &Filter) -> Vec<u8> {
    let mut file = file_of(filter);
    let sections = u32::from_le_bytes(file[12..16].try_into().unwrap()) as usize;
    let entry = &file[128 + 32 * (sections - 1)..][..32];
    assert_eq!(&entry[..4], b"BITS", "the last section is the payload");
    let offset = u64::from_le_bytes(entry[8..16].try_into().unwrap());
    file.split_off(offset as usize)
}

/// The cells in use, by number, read the plain way from the payload: set bits, counters above zero,
/// fingerprints. Those of a window's generations are numbered through. Not for sparse bitmaps.
///
/// Those of shards are numbered through too.
pub fn used_cells(filter: &Filter) -> Vec<u64> {
    let each = slots(filter.shards()[0].plan());
    let shards = (0..).zip(filter.shards());
    let used = shards.flat_map(|(shard, filter)| {
        used_in_array(filter).into_iter().map(move |cell| shard * each + cell)
    });
    used.collect()
}

fn used_in_array(filter: &Filter) -> Vec<u64> {
    let (plan, payload) = (filter.plan(), payload(filter));
    assert!(!plan.is_sparse(), "a roaring bitmap is no array of cells");
    let cells = match plan.kind() {
        Kind::Window => {
            // The directory is a count after the clock, and three words for each generation.
            let count = u64::from_le_bytes(payload[8..16].try_into().unwrap()) as usize;
            let directory = (16 + 24 * count).next_multiple_of(64);
            assert_eq!(payload.len(), directory + count * plan.bits() as usize / 8);
            &payload[directory..]
        }
        _ => &payload[..],
    };
    let (width, bits) = (u64::from(plan.width()), cells.len() as u64 * 8);
    let bit = |at: u64| cells[(at / 8) as usize] >> (at % 8) & 1 == 1;
    let starts = (0..bits).step_by(width as usize).filter(|start| start + width <= bits);
    let starts: Vec<u64> = match plan.kind() {
        // A counter lies in one word.
        Kind::Counting => (0..bits / 64)
            .flat_map(|word| (0..64 / width).map(move |counter| word * 64 + counter * width))
            .collect(),
        _ => starts.collect(),
    };
    let used = (0..).zip(starts).filter(|(_, start)| (*start..start + width).any(bit));
    used.map(|(cell, _)| cell).collect()
}

/// The cells of an array, by their number. A word has as many counters as fit.
pub fn slots(plan: &Plan) -> u64 {
    match plan.kind() {
        Kind::Counting => plan.bits() / 64 * u64::from(64 / plan.width()),
        _ => plan.bits() / u64::from(plan.width()),
    }
}

/// The number of set bits in bytes, counted the plain way.
pub fn count_ones(bytes: &[u8]) -> u64 {
    bytes.iter().map(|byte| u64::from(byte.count_ones())).sum()
}

/// Mean and standard deviation of a sample.
pub fn mean_and_deviation(sample: &[f64]) -> (f64, f64) {
    let count = sample.len() as f64;
    let mean = sample.iter().sum::<f64>() / count;
    let variance = sample.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / (count - 1.0);
    (mean, variance.sqrt())
}

/// How far a count of events per cell lies from equal shares, in standard deviations of the
/// chi-square statistic.
pub fn unevenness(counts: &[u64]) -> f64 {
    let expected = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
    let statistic: f64 =
        counts.iter().map(|count| (*count as f64 - expected).powi(2) / expected).sum();
    let freedom = counts.len() as f64 - 1.0;
    (statistic - freedom) / (2.0 * freedom).sqrt()
}
