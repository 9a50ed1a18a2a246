//! What is known of a filter: cheaply, from its counts ([`Summary`]), and from its bits
//! ([`BitScan`]).
//!
//! IB.ESTIMATE, the HTTP API, the history of a filter and the watch over rates read it here.

use inbloom::interop::redisbloom::{self, CuckooChain};
use inbloom::{Filter, Plan, Slice};

use super::bloom::Bloom;
use super::{Value, forgets, grows};

/// What the counts of a filter tell: takes about a microsecond, whatever its size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// The name of its kind; `redisbloom` and `redisbloom-cuckoo` for those in RedisBloom's form.
    pub kind: &'static str,
    /// Keys that were new when they were added.
    pub keys: u64,
    /// Keys that it is for; of one that grows, those that it was reserved for.
    pub capacity: Option<u64>,
    /// The rate that it is to keep.
    pub target_rate: Option<f64>,
    /// Whether it takes more keys than its capacity, in more memory.
    pub grows: bool,
    /// Whether it loses keys by itself.
    pub forgets: bool,
    /// Whether it takes no keys.
    pub is_fixed: bool,
}

impl Summary {
    /// Those of a filter.
    pub fn of(value: &Value) -> Summary {
        match value {
            Value::Bloom(bloom) => Summary {
                kind: bloom.base().plan().kind().name(),
                keys: bloom.items(),
                capacity: Some(bloom.reserved()),
                target_rate: Some(bloom.rate()),
                grows: bloom.expansion().is_some(),
                forgets: false,
                is_fixed: false,
            },
            Value::Filter(guarded) => guarded.read(|filter| {
                let plan = filter.plan();
                let capacity = if plan.kind().is_exact() { plan.bits() } else { plan.items() };
                Summary {
                    kind: plan.kind().name(),
                    keys: filter.inserted(),
                    capacity: Some(capacity),
                    target_rate: Some(plan.rate()),
                    grows: grows(filter),
                    forgets: forgets(filter),
                    is_fixed: plan.kind().is_static() || filter.is_read_only(),
                }
            }),
            Value::RedisBloom(guarded) => guarded.read(|bloom| Summary {
                kind: "redisbloom",
                keys: bloom.items(),
                capacity: bloom.links().next().map(|link| link.entries),
                target_rate: target_of(bloom),
                grows: bloom.growth().is_some(),
                forgets: false,
                is_fixed: false,
            }),
            Value::Cuckoo(guarded) => guarded.read(|cuckoo| Summary {
                kind: "redisbloom-cuckoo",
                keys: cuckoo.items(),
                // A byte for each fingerprint.
                capacity: Some(cuckoo.bytes()),
                target_rate: None,
                grows: cuckoo.expansion() > 0,
                forgets: false,
                is_fixed: false,
            }),
        }
    }

    /// Returns the keys as a share of the capacity.
    pub fn used(&self) -> Option<f64> {
        let capacity = self.capacity.filter(|capacity| *capacity > 0)?;
        Some(self.keys as f64 / capacity as f64)
    }

    /// Returns whether it takes no new keys because it holds as many as it is for.
    pub fn is_full(&self) -> bool {
        let may_be = !self.grows && !self.forgets && !self.is_fixed;
        may_be && self.used().is_some_and(|used| used >= 1.0)
    }

    /// Returns whether a rate is above the target by more than chance explains. A filter at its
    /// capacity is at its target within a few percent, and a small one within more.
    pub fn is_over_target(&self, rate: f64) -> bool {
        let keys = self.capacity.unwrap_or(1).max(1) as f64;
        let tolerance = 1.05 + 2.0 / keys.sqrt();
        self.target_rate.is_some_and(|target| rate > target * tolerance)
    }
}

/// Returns the rate of a filter as its counts tell it, without a look at all its bits.
pub fn rate_by_count(value: &Value) -> f64 {
    match value {
        Value::Bloom(bloom) => {
            let base = bloom.base().plan();
            let keys = bloom.items().min(base.items());
            with_rest(bloom, base.rate_at(keys as f64))
        }
        Value::Filter(guarded) => guarded.read(Filter::rate),
        Value::RedisBloom(guarded) => guarded.read(|bloom| layers_of(bloom).1),
        Value::Cuckoo(guarded) => guarded.read(|cuckoo| cuckoo_fill_and_rate(cuckoo).1),
    }
}

fn with_rest(bloom: &Bloom, base: f64) -> f64 {
    let rest = bloom.rest().map_or(0.0, |rest| rest.rate());
    base + rest - base * rest
}

/// What all bits of a filter tell: takes as long as to read them.
#[derive(Clone, Debug, PartialEq)]
pub struct BitScan {
    /// Distinct keys, as far as the bits tell.
    pub estimated_keys: f64,
    /// The share of cells in use.
    pub fill: f64,
    /// The rate now.
    pub rate: f64,
    /// The structures that are asked one after the other.
    pub layers: Vec<Layer>,
    /// The share of cells in use in each slice of the array. Empty where there is no array.
    pub slices: Vec<Slice>,
}

/// One of the structures that a filter consists of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Layer {
    /// The name of its kind.
    pub kind: &'static str,
    /// Its keys.
    pub keys: u64,
    /// Keys that it is for; None: it grows.
    pub capacity: Option<u64>,
    /// Its bytes.
    pub bytes: u64,
    /// The share of its cells in use; None where that is not known.
    pub fill: Option<f64>,
    /// Its part of the rate.
    pub rate: f64,
}

/// A filter behind a lock is not profiled if it has more bytes: others would wait for longer than ten
/// milliseconds.
const LOCKED_FOR: u64 = 64 << 20;

impl BitScan {
    /// Reads all of a filter's bits, in so many slices. A filter behind a lock knows its fill: it is read
    /// for its slices only, and only if that takes milliseconds.
    pub fn of(value: &Value, slices: usize) -> BitScan {
        match value {
            Value::Bloom(bloom) => BitScan::of_bloom(bloom, slices),
            Value::Filter(guarded) => guarded.read(|filter| BitScan::of_filter(filter, slices)),
            Value::RedisBloom(guarded) => guarded.read(BitScan::of_redisbloom),
            Value::Cuckoo(guarded) => guarded.read(|cuckoo| {
                let (fill, rate) = cuckoo_fill_and_rate(cuckoo);
                let keys = cuckoo.items();
                let layer = Layer {
                    kind: "redisbloom-cuckoo",
                    keys,
                    capacity: Some(cuckoo.bytes()),
                    bytes: cuckoo.bytes(),
                    fill: Some(fill),
                    rate,
                };
                let layers = vec![layer];
                BitScan { estimated_keys: keys as f64, fill, rate, layers, slices: Vec::new() }
            }),
        }
    }

    fn of_bloom(bloom: &Bloom, slices: usize) -> BitScan {
        let (base, plan) = (bloom.base(), bloom.base().plan());
        let slices = base.profile(slices.max(1));
        // The expectation of a slice is the fill of the whole.
        let fill = slices.first().map_or(0.0, |slice| slice.expected);
        let in_base = estimate(plan, fill);
        let rate = plan.rate_at(in_base);
        let in_rest = bloom.rest().map_or(0, |rest| rest.len());
        let mut layers = vec![Layer {
            kind: plan.kind().name(),
            keys: bloom.items().saturating_sub(in_rest),
            capacity: Some(plan.items()),
            bytes: base.bytes(),
            fill: Some(fill),
            rate,
        }];
        layers.extend(bloom.rest().map(|rest| Layer {
            kind: rest.plan().kind().name(),
            keys: rest.len(),
            capacity: None,
            bytes: rest.bucket_bytes(),
            fill: None,
            rate: rest.rate(),
        }));
        let in_rest = bloom.rest().map_or(0.0, |rest| rest.estimated_items().items);
        // Of the keys that came after the base was full, it took some for its own, at its rate.
        let estimated_keys = in_base + in_rest / (1.0 - rate).max(f64::EPSILON);
        BitScan { estimated_keys, fill, rate: with_rest(bloom, rate), layers, slices }
    }

    fn of_filter(filter: &Filter, slices: usize) -> BitScan {
        let (plan, fill, rate) = (filter.plan(), filter.fill(), filter.rate());
        let has_array = slices > 0 && !plan.kind().is_static() && filter.bytes() <= LOCKED_FOR;
        let layer = Layer {
            kind: plan.kind().name(),
            keys: filter.inserted(),
            capacity: (!grows(filter)).then_some(plan.items()),
            bytes: filter.bytes(),
            fill: Some(fill),
            rate,
        };
        BitScan {
            estimated_keys: filter.estimated_items().items,
            fill,
            rate,
            layers: vec![layer],
            slices: if has_array { filter.profile(slices) } else { Vec::new() },
        }
    }

    fn of_redisbloom(bloom: &redisbloom::Bloom) -> BitScan {
        let layer = |link: redisbloom::Link| {
            let (fill, rate) = link_fill_and_rate(&link);
            Layer {
                kind: "redisbloom",
                keys: link.size,
                capacity: Some(link.entries),
                bytes: link.bytes,
                fill: Some(fill),
                rate,
            }
        };
        let (fill, rate) = layers_of(bloom);
        let layers = bloom.links().map(layer).collect();
        BitScan { estimated_keys: bloom.items() as f64, fill, rate, layers, slices: Vec::new() }
    }
}

/// Estimates the keys from the share of set bits.
fn estimate(plan: &Plan, fill: f64) -> f64 {
    // One bit of each block is reserved, and no cell.
    let cells = plan.bits() as f64 * 511.0 / 512.0;
    plan.estimate((fill * cells).round() as u64).items
}

/// Returns how full a layer of RedisBloom's filter is, by its count, and its rate.
fn link_fill_and_rate(link: &redisbloom::Link) -> (f64, f64) {
    let probes = f64::from(link.hashes);
    let fill = 1.0 - (-probes * link.size as f64 / link.bits as f64).exp();
    (fill, fill.powf(probes))
}

/// Returns how full the layers of RedisBloom's filter are on average, by their counts, and the rate
/// that they have together.
pub fn layers_of(bloom: &redisbloom::Bloom) -> (f64, f64) {
    let (mut bits, mut ones, mut true_negatives) = (0.0, 0.0, 1.0);
    for link in bloom.links() {
        let (fill, rate) = link_fill_and_rate(&link);
        bits += link.bits as f64;
        ones += fill * link.bits as f64;
        true_negatives *= 1.0 - rate;
    }
    (ones / bits, 1.0 - true_negatives)
}

/// Returns the rate that RedisBloom's filter was made for: the first layer of one that grows has
/// half of it.
pub fn target_of(bloom: &redisbloom::Bloom) -> Option<f64> {
    let first = bloom.links().next()?.rate;
    Some(if bloom.growth().is_some() { first * 2.0 } else { first })
}

/// Returns how full RedisBloom's cuckoo filter is, and its rate: fingerprints have 8 bits, and an
/// absent item meets one of 255 in two buckets of each filter.
pub fn cuckoo_fill_and_rate(cuckoo: &CuckooChain) -> (f64, f64) {
    let fill = cuckoo.items() as f64 / cuckoo.bytes() as f64;
    let seen = 2.0 * f64::from(cuckoo.bucket_size()) * fill * cuckoo.filters() as f64;
    (fill, 1.0 - (1.0 - 1.0 / 255.0f64).powf(seen))
}
