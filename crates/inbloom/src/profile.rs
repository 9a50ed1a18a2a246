//! How evenly a filter's cells are in use, slice by slice of its array.
//!
//! A good hash spreads keys evenly, so all slices of the array are about equally full. Digests that
//! are not spread evenly show as bands: keys that use only a part of their range, integers that
//! were not hashed, or a shard that was cut out by the bits that choose the place. The differences
//! that chance explains follow from how a kind fills its cells. (A classic filter mixes a digest
//! again for each probe, which leaves hardly any bands.)
//!
//! **Bits and counters.** Let a slice have c cells, of which the share f is expected to be in use,
//! and let a key take k of them in one line. The keys that come to the slice are a Poisson number,
//! and take t = -ln(1 - f) cells each on average, with repetition. The number of cells in use
//! varies because the keys do, by k t c (1 - f)^2, and because they may fall on the same cells, by
//! c (1 - f) (1 - (1 + t) (1 - f)) (the occupancy problem). For k = 1, a classic filter, the sum is
//! c f (1 - f), as of independent cells. Of a key with two lines, the second is in the slice of the
//! first with the slice's share of the range that both lie in.
//!
//! **Entries** in buckets are a Poisson number, of variance c f. Those that move to their other
//! bucket make it less. A key with several copies counts with the square of their number.
//!
//! A deviation of five happens in one of two million slices, if there are many keys in it. Where
//! there are few the tail is longer, and Bernstein's inequality says how much: a slice stands out
//! if it is further from the expectation than chance takes it with probability e^-12.5.

use alloc::vec::Vec;
use core::ops::Range;

use crate::math;
use crate::plan::Plan;
use crate::plan::lines::ranges;

/// A slice of a filter's array, see [`Filter::profile`](crate::Filter::profile).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slice {
    /// The share of its cells that are in use, from 0 to 1.
    pub fill: f64,
    /// The expected fill if all slices are equally full.
    pub expected: f64,
    /// The standard deviation of the fill by chance.
    pub deviation: f64,
    /// The largest distance from the expected fill that chance explains.
    limit: f64,
}

impl Slice {
    /// Returns whether the slice is fuller or emptier than chance explains, by more than five
    /// deviations.
    #[must_use]
    pub fn stands_out(&self) -> bool {
        (self.fill - self.expected).abs() > self.limit
    }

    /// Returns whether the slice would stand out if it were empty. If not, it has so few keys that
    /// chance may leave it empty, so its fill proves nothing.
    #[must_use]
    pub fn is_telling(&self) -> bool {
        self.expected > self.limit && self.deviation > 0.0
    }
}

/// The cells of a slice, and how many of them are in use.
#[derive(Clone, Copy)]
pub(crate) struct Count {
    pub used: u64,
    pub cells: u64,
}

/// How keys fill the cells of a kind.
#[derive(Clone, Copy)]
pub(crate) enum Spread {
    /// A key takes so many cells that lie together, some of which others have taken.
    Probes(f64),
    /// A key takes a cell of its own for each of its copies. With copies, the mean of the square of
    /// their number over the mean of their number.
    Entries(f64),
}

impl Spread {
    /// Of a plan whose keys take one line or two, in slices of whole blocks.
    pub(crate) fn in_lines(plan: &Plan, slices: usize) -> Spread {
        let per_line = f64::from(plan.probes() / plan.lines());
        let together = match plan.lines() {
            1 => 0.0,
            _ => (ranges(plan.blocks()) as f64 / slices.max(1) as f64).min(1.0),
        };
        Spread::Probes(per_line * (1.0 + together))
    }
}

/// Divides so many units evenly into slices, or into as many as there are units if they are fewer.
pub(crate) fn divide(units: u64, slices: usize) -> impl Iterator<Item = Range<u64>> {
    let count = units.min(slices as u64);
    let start = move |i: u64| (u128::from(units) * u128::from(i) / u128::from(count.max(1))) as u64;
    (0..count).map(move |i| start(i)..start(i + 1))
}

/// Returns the slices of one array, which are expected to be as full as all of it.
pub(crate) fn slices_of(counts: &[Count], spread: Spread) -> Vec<Slice> {
    let all: u64 = counts.iter().map(|count| count.cells).sum();
    let used: u64 = counts.iter().map(|count| count.used).sum();
    let expected = (used as f64 / all.max(1) as f64).min(1.0);
    let slice = |count: &Count| {
        let cells = count.cells as f64;
        // What the whole has is known, so that the larger a slice, the less it varies.
        let rest = 1.0 - cells / all as f64;
        let (variance, step) = variance(cells, expected, spread);
        let fill = count.used as f64 / cells;
        slice(fill, expected, variance * rest, step, cells)
    };
    counts.iter().map(slice).collect()
}

/// Returns the variance of the number of cells in use in a slice, and by how much one key can
/// change it.
fn variance(cells: f64, fill: f64, spread: Spread) -> (f64, f64) {
    match spread {
        // A full one has nothing left to vary.
        Spread::Probes(probes) if fill >= 1.0 => (0.0, probes),
        Spread::Probes(step) => {
            let free = 1.0 - fill;
            let throws = -math::ln(free);
            let keys = step * throws * free * free;
            let places = free * (1.0 - (1.0 + throws) * free);
            (cells * (keys + places), step)
        }
        Spread::Entries(copies) => (cells * fill * copies, copies),
    }
}

/// Returns a slice from the variance of its number of cells in use.
pub(crate) fn slice(fill: f64, expected: f64, variance: f64, step: f64, cells: f64) -> Slice {
    /// Five deviations: e^(-5^2 / 2).
    const UNLIKELY: f64 = 12.5;
    // Bernstein: P(distance >= d) <= exp(-d^2 / 2 / (variance + step d / 3)), solved for d.
    let skew = step * UNLIKELY / 3.0;
    let limit = skew + math::sqrt(skew * skew + 2.0 * UNLIKELY * variance);
    Slice { fill, expected, deviation: math::sqrt(variance) / cells, limit: limit / cells }
}

#[cfg(all(test, not(loom)))]
mod tests {

    use crate::{Digest, Filter, Hasher, Kind, Plan, Slice};

    const SLICES: usize = 64;

    /// Returns a filter of each kind for so many keys, in one array or several.
    fn filters(items: u64) -> Vec<Filter> {
        let plan = |kind| Plan::builder(kind).items(items).rate(0.01);
        let plans = [
            plan(Kind::Classic),
            plan(Kind::Blocked),
            plan(Kind::Blocked).rate(1e-6),
            plan(Kind::Blocked).probes(16),
            plan(Kind::Counting),
            plan(Kind::Counting).width(2),
            plan(Kind::Cuckoo),
            plan(Kind::Scalable),
            plan(Kind::Scalable).items(100),
            plan(Kind::Window).last(items),
        ];
        plans.map(|plan| Filter::new(plan.build().unwrap()).unwrap()).into()
    }

    fn digests(from: u64, count: u64) -> Vec<Digest> {
        let hasher = Hasher::default();
        (from..from + count).map(|key| hasher.digest(key.to_le_bytes())).collect()
    }

    #[test]
    fn a_slice_is_as_full_as_its_cells_say_and_all_of_them_as_the_filter() {
        for mut filter in filters(1000) {
            filter.insert_digests(&digests(0, 700), &mut Vec::new()).unwrap();
            let whole = filter.profile(1);
            let kind = filter.plan().kind();
            if kind != Kind::Window && kind != Kind::Scalable {
                assert_eq!(whole.len(), 1);
                assert!((whole[0].fill - filter.fill()).abs() < 1e-12, "{kind}");
            }
            let slices = filter.profile(SLICES);
            assert!(slices.len() <= SLICES && !slices.is_empty(), "{kind}: {}", slices.len());
            assert!(slices.iter().all(|slice| (0.0..=1.0).contains(&slice.fill)), "{kind}");
        }
        let plan = Plan::builder(Kind::Classic).items(50).build().unwrap();
        let mut filter = Filter::new(plan).unwrap();
        filter.insert("alice").unwrap();
        // As many slices as bits: each is set or not.
        let bits = filter.profile(usize::MAX);
        assert_eq!(bits.len() as u64, plan.bits());
        let set = bits.iter().enumerate().filter(|(_, bit)| bit.fill == 1.0);
        let mut positions = filter.positions("alice").unwrap();
        positions.sort_unstable();
        positions.dedup();
        assert_eq!(set.map(|(at, _)| at as u64).collect::<Vec<_>>(), positions);
    }

    #[test]
    fn a_bitmap_shows_where_its_members_are() {
        for universe in [1000, 1 << 60] {
            let plan = Plan::builder(Kind::Bitmap).universe(universe).items(100).build().unwrap();
            let mut filter = Filter::new(plan).unwrap();
            for i in 0..100 {
                filter.insert((universe / 2 + i).to_le_bytes()).unwrap();
            }
            let slices = filter.profile(10);
            assert_eq!(slices.len(), 10);
            let used: Vec<usize> = (0..10).filter(|i| slices[*i].fill > 0.0).collect();
            assert_eq!(used, [5]);
            let expected = 100.0 / (universe as f64 / 10.0);
            assert!((slices[5].fill / expected - 1.0).abs() < 1e-9);
        }
    }

    /// What chance does is described: the scatter of the slices is the deviation that is stated, or
    /// a little less, and none stands out.
    #[test]
    fn slices_of_a_good_hash_scatter_as_stated() {
        for items in [1000, 30_000] {
            for share in [0.1, 1.0, 1.5] {
                let count = (items as f64 * share) as u64;
                for at in 0..filters(items).len() {
                    let (mut squares, mut number, mut name) = (0.0, 0.0, String::new());
                    for seed in 0..5 {
                        let mut filter = filters(items).remove(at);
                        let kind = filter.plan().kind();
                        if kind == Kind::Cuckoo && share > 1.0 {
                            continue;
                        }
                        let keys = digests(seed << 40, count);
                        filter.insert_digests(&keys, &mut Vec::new()).unwrap();
                        let slices = filter.profile(SLICES);
                        name = format!("{:?}, {count} keys", filter.plan());
                        let telling = slices.iter().all(Slice::is_telling);
                        assert!(telling || count < 10_000, "{name}: {slices:?}");
                        for slice in slices.iter().filter(|slice| slice.deviation > 0.0) {
                            assert!(!slice.stands_out(), "{name}: {slice:?}");
                            squares += ((slice.fill - slice.expected) / slice.deviation).powi(2);
                            number += 1.0;
                        }
                    }
                    // Entries that move, and two lines, make it less than stated.
                    let scatter = f64::sqrt(squares / f64::max(number, 1.0));
                    // A deviation of the mean square is the root of 2 / number, at least.
                    let slack = 5.0 * f64::sqrt(2.0 / f64::max(number, 1.0));
                    assert!(scatter * scatter < 1.0 + slack.max(0.1), "{name}: {scatter}");
                }
            }
        }
    }

    #[test]
    fn a_broken_hash_stands_out() {
        // A thousand keys are 16 in a slice: chance could leave it empty.
        for items in [10_000, 100_000] {
            for mut filter in filters(items) {
                let kind = filter.plan().kind();
                if kind == Kind::Classic {
                    continue; // It mixes the digest once more for each probe.
                }
                // Their second bucket does not depend on the place alone: half of the keys.
                let keys = digests(0, if kind == Kind::Cuckoo { items / 2 } else { items });
                // Only three quarters of all places; a scalable filter takes the bucket from print.
                let broken = |half: u64| half / 4 * 3;
                let broken = |digest: &Digest| Digest {
                    place: broken(digest.place),
                    print: if kind == Kind::Scalable { broken(digest.print) } else { digest.print },
                };
                let keys: Vec<Digest> = keys.iter().map(broken).collect();
                filter.insert_digests(&keys, &mut Vec::new()).unwrap();
                let slices = filter.profile(SLICES);
                let out = slices.iter().filter(|slice| slice.stands_out()).count();
                assert!(out > 0, "{:?}", filter.plan());
            }
        }
    }
}
