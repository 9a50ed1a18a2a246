use std::collections::HashMap;

use super::*;
use crate::digest::Hasher;
use crate::plan::Rounds;
use crate::plan::model::Lines;
use crate::sync::Ordering;

const WIDTHS: [u32; 4] = [2, 3, 4, 8];

#[derive(Clone, Copy, Debug, PartialEq)]
struct Shape {
    blocks: u64,
    lines: u32,
    probes: u32,
    width: u32,
}

impl Shape {
    fn plan(self) -> Plan {
        let Shape { blocks, lines, probes, width } = self;
        Plan { bits: blocks * 512, lines, probes, width, ..Plan::blank(Kind::Counting) }
    }

    fn geometry(self) -> Geometry {
        Geometry::new(&self.plan())
    }
}

fn empty(shape: Shape) -> Counting {
    Counting::new(shape.plan()).unwrap()
}

fn copy(filter: &Counting) -> Counting {
    Counting::with_bits(filter.plan, filter.bits.copy().unwrap())
}

fn one_line(blocks: u64, width: u32) -> Shape {
    Shape { blocks, lines: 1, probes: 8, width }
}

/// Every width, with 4 to 16 probes in one line and in two.
fn shapes(blocks: u64) -> impl Iterator<Item = Shape> {
    WIDTHS.into_iter().flat_map(move |width| {
        [1, 2].into_iter().flat_map(move |lines| {
            Rounds::PROBES.map(move |per_line| {
                let probes = lines * per_line;
                Shape { blocks, lines, probes, width }
            })
        })
    })
}

fn digest(seed: u64, key: u64) -> Digest {
    Hasher::xxh3(seed).digest(key.to_le_bytes())
}

/// A stream of random words.
fn draws(seed: u64) -> impl FnMut() -> u64 {
    let mut random = inbloom_testing::Random(seed);
    move || random.next()
}

fn counts(word: u64, width: u32) -> Vec<u64> {
    (0..64 / width).map(|i| word >> (i * width) & ((1 << width) - 1)).collect()
}

fn word_of(counts: impl IntoIterator<Item = u64>, width: u32) -> u64 {
    counts.into_iter().zip(0..).map(|(count, i)| count << (i * width)).sum()
}

/// Random words, most of whose counters are random, and many zero, one, or at the maximum.
fn random_word(draw: &mut impl FnMut() -> u64, width: u32) -> u64 {
    let maximum = (1 << width) - 1;
    let counts: Vec<u64> = (0..64 / width)
        .map(|_| match draw() % 8 {
            0 | 1 => 0,
            2 => 1,
            3 | 4 => maximum,
            5 => maximum - 1,
            _ => draw() & maximum,
        })
        .collect();
    word_of(counts, width)
}

#[test]
fn words_compute_like_their_counters() {
    for width in WIDTHS {
        let (mut draw, swar, maximum) = (draws(1), Counters::new(width), (1 << width) - 1);
        for _ in 0..20_000 {
            let (x, y) = (random_word(&mut draw, width), random_word(&mut draw, width));
            let which = draw() & swar.lowest;
            let (xs, ys) = (counts(x, width), counts(y, width));
            let marked = counts(which, width);
            let map = |f: &dyn Fn(u64) -> u64| word_of(xs.iter().map(|x| f(*x)), width);
            let zip = |others: &[u64], f: &dyn Fn(u64, u64) -> u64| {
                word_of(xs.iter().zip(others).map(|(x, y)| f(*x, *y)), width)
            };
            assert_eq!(swar.above_zero(x), map(&|x| (x > 0).into()));
            assert_eq!(swar.at_maximum(x), map(&|x| (x == maximum).into()));
            assert_eq!(swar.add(x, y), zip(&ys, &|x, y| (x + y).min(maximum)));
            assert_eq!(swar.min(x, y), zip(&ys, &|x, y| x.min(y)));
            assert_eq!(swar.raise(x, which), zip(&marked, &|x, m| (x + m).min(maximum)));
            let lower = |x, m| if x == maximum { x } else { x - m };
            let positive = which & swar.above_zero(x);
            assert_eq!(swar.lower(x, positive), zip(&counts(positive, width), &lower));
            let chosen = xs.iter().zip(&marked).filter(|(_, m)| **m == 1).map(|(x, _)| *x);
            let smallest = chosen.min().unwrap_or(maximum);
            assert_eq!(swar.smallest(x, which), smallest as u32);
        }
    }
}

/// The layout that files depend on, worked out by hand from the text at the top.
#[test]
fn a_known_key_has_known_counters() {
    let marks = |width, probes, print| {
        let geometry = Shape { blocks: 1, lines: 1, probes, width }.geometry();
        touched_counters(&geometry, Digest { place: 0, print }).next().unwrap().mask
    };
    assert_eq!(marks(4, 8, 0x35), [1 << 20, 1 << 12, 1, 1, 1, 1, 1, 1]);
    assert_eq!(marks(4, 8, 0xf << 28), [1, 1, 1, 1, 1, 1, 1, 1 << 60]);
    assert_eq!(marks(2, 8, 5 | 31 << 35), [1 << 10, 1, 1, 1, 1, 1, 1, 1 << 62]);
    assert_eq!(marks(8, 8, 5 | 7 << 21), [1 << 40, 1, 1, 1, 1, 1, 1, 1 << 56]);
    // A half round: from 64 / w on in the second word of the pair.
    assert_eq!(marks(4, 4, 3 | 19 << 5), [1 << 12, 0, 1, 1, 0, 1 << 12, 0, 0]);
    assert_eq!(marks(2, 4, 63 << 18), [1, 1, 1, 0, 0, 0, 0, 1 << 62]);
    assert_eq!(marks(8, 4, 15 << 12), [1, 1, 1, 0, 0, 0, 0, 1 << 56]);
    // Of three bits: 3120 and 3121 times 21 are just below and above 2^16, and their lower bytes, 30 and
    // 31 (hexadecimal), are the upper ones of word 7, where they are counters 3 and 4.
    assert_eq!(marks(3, 8, 3120), [1, 1, 1, 1, 1, 1, 1, 1 << 9]);
    assert_eq!(marks(3, 8, 3121), [1 << 3, 1, 1, 1, 1, 1, 1, 1 << 12]);
    assert_eq!(marks(3, 8, u64::MAX), [1 << 60; 8]);
    assert_eq!(marks(3, 4, 0x7fff), [1 << 60, 1, 1, 1, 0, 0, 0, 0]);
    assert_eq!(marks(3, 4, 0x8000), [0, 1, 1, 1, 1, 0, 0, 0]);
    assert_eq!(marks(3, 4, 0xffff << 48), [1, 1, 1, 0, 0, 0, 0, 1 << 60]);
}

/// Of three bits 21 are in a word, and each is chosen as often as any other, in every word.
#[test]
fn counters_of_three_bits_are_chosen_evenly() {
    for probes in [4, 8, 16] {
        let geometry = Shape { blocks: 1, lines: 1, probes, width: 3 }.geometry();
        let (mut chosen, keys) = ([[0_u32; 21]; 8], 400_000);
        for key in 0..keys {
            for touch in touched_counters(&geometry, digest(8, key)) {
                for (word, mask) in chosen.iter_mut().zip(touch.mask) {
                    assert_eq!(mask & !swar_lowest(), 0, "a mark of no counter");
                    for (counter, times) in word.iter_mut().enumerate() {
                        *times += u32::from(mask >> (3 * counter) & 1 == 1);
                    }
                }
            }
        }
        // A counter is spared by all of a key's rounds, each in this word with the chance that it has.
        let spared = |chance: f64, rounds: u32| (1.0 - chance / 21.0).powi(rounds as i32);
        let Rounds { full, half } = geometry.rounds;
        let share = 1.0 - spared(1.0, full) * spared(0.5, half);
        let expected = share * keys as f64;
        let deviation = (expected * (1.0 - share)).sqrt();
        for (word, times) in chosen.iter().enumerate().flat_map(|(at, word)| word.map(|n| (at, n)))
        {
            let off = (f64::from(times) - expected) / deviation;
            assert!(off.abs() < 5.0, "{probes} probes, word {word}: {times} of {expected}");
        }
    }
}

fn swar_lowest() -> u64 {
    Counters::new(3).lowest
}

/// A file may have the spare bit set: nothing overflows, and no counter is another.
#[test]
fn the_spare_bit_of_a_word_changes_no_counter() {
    let (mut draw, swar) = (draws(2), Counters::new(3));
    assert_eq!(swar.spare(), 1 << 63);
    for width in WIDTHS.into_iter().filter(|width| *width != 3) {
        assert_eq!(Counters::new(width).spare(), 0);
    }
    let spare = swar.spare();
    for _ in 0..20_000 {
        let (x, y) = (random_word(&mut draw, 3), random_word(&mut draw, 3));
        let which = draw() & swar.lowest;
        let positive = which & swar.above_zero(x);
        for (here, there) in [(x | spare, y), (x, y | spare), (x | spare, y | spare)] {
            assert_eq!(swar.above_zero(here), swar.above_zero(x));
            assert_eq!(swar.at_maximum(here), swar.at_maximum(x));
            assert_eq!(swar.raise(here, which) & !spare, swar.raise(x, which));
            assert_eq!(swar.lower(here, positive) & !spare, swar.lower(x, positive));
            assert_eq!(swar.add(here, there) & !spare, swar.add(x, y));
            assert_eq!(swar.min(here, there) & !spare, swar.min(x, y));
            assert_eq!(swar.smallest(here, which), swar.smallest(x, which));
        }
    }
}

/// What bits would get wrong: two keys share a counter, and one of them goes.
#[test]
fn removing_a_key_leaves_its_neighbour() {
    let mut filter = empty(one_line(1, 4));
    let (here, there) = (Digest { place: 0, print: 0 }, Digest { place: 0, print: 0x5 });
    assert!(filter.insert(here) && filter.insert(there));
    assert_eq!(filter.bits.ones, 9);
    assert!(filter.remove(here).unwrap());
    assert!(filter.contains(there) && !filter.contains(here));
    assert_eq!(filter.bits.ones, 8);
    assert!(filter.remove(there).unwrap());
    assert!(filter.bits.cells.bytes().iter().all(|byte| *byte == 0) && filter.bits.ones == 0);
}

/// And what the documentation warns of: removing a key that only matches by chance.
#[test]
fn removing_a_key_that_was_never_inserted_can_take_others() {
    let mut filter = empty(one_line(1, 4));
    let prints = [0x1111_1111, 0x2222_2222];
    let [here, there] = prints.map(|print| Digest { place: 0, print });
    let claimed = Digest { place: 0, print: 0x1212_1212 };
    filter.insert(here);
    filter.insert(there);
    assert!(filter.contains(claimed) && filter.remove(claimed).unwrap());
    assert!(!filter.contains(here) && !filter.contains(there));
}

#[test]
fn removing_an_absent_key_changes_no_byte() {
    for shape in shapes(50) {
        let mut filter = empty(shape);
        (0..40).for_each(|key| assert!(filter.insert(digest(0, key)) || key > 0));
        let before = copy(&filter);
        let absent = (1000..3000).map(|key| digest(0, key));
        for digest in absent.filter(|digest| !before.contains(*digest)) {
            assert!(!filter.remove(digest).unwrap());
            assert_eq!(filter.count(digest), 0);
        }
        assert!(filter.bits == before.bits);
    }
}

/// Filters over 24 keys against the multiset they stand for, and against one counter per cell
/// in the plainest form, through random inserts, removals, unions and intersections.
#[test]
fn it_behaves_like_a_multiset() {
    for (shape, seed) in shapes(3).zip(1..) {
        let mut draw = draws(seed);
        let mut filters = [empty(shape), empty(shape)];
        let mut models: [HashMap<u64, u32>; 2] = Default::default();
        for _ in 0..600 {
            let (at, key) = ((draw() % 2) as usize, draw() % 24);
            let other = copy(&filters[1 - at]);
            let other_model = models[1 - at].clone();
            let (filter, model) = (&mut filters[at], &mut models[at]);
            let was_in = model.get(&key).is_some_and(|count| *count > 0);
            match draw() % 100 {
                0 => {
                    filter.unite(&other).unwrap();
                    other_model.iter().for_each(|(k, n)| *model.entry(*k).or_default() += n);
                }
                1 => {
                    filter.intersect(&other).unwrap();
                    for (key, count) in model.iter_mut() {
                        *count = (*count).min(other_model.get(key).copied().unwrap_or(0));
                    }
                }
                2..50 => {
                    assert!(!(filter.insert(digest(0, key)) && was_in), "a member is not new");
                    *model.entry(key).or_default() += 1;
                }
                _ if was_in => {
                    assert!(filter.remove(digest(0, key)).unwrap());
                    *model.get_mut(&key).unwrap() -= 1;
                }
                _ => {}
            }
            assert_eq!(filter.bits.ones, filter.count_cells().unwrap(), "{shape:?}");
            for (key, count) in &*model {
                let counted = filter.count(digest(0, *key));
                assert!(counted >= (*count).min(filter.max_count()), "{shape:?}");
                assert_eq!(filter.contains(digest(0, *key)), counted > 0);
            }
        }
    }
}

/// Without saturation a filter is a function of the multiset alone: removals leave no trace.
#[test]
fn what_is_left_is_as_if_the_removed_had_never_come() {
    for shape in shapes(400).filter(|shape| shape.width == 8) {
        let (mut filter, mut expected) = (empty(shape), empty(shape));
        (0..500).for_each(|key| _ = filter.insert(digest(1, key)));
        (0..500).rev().filter(|key| key % 3 != 0).for_each(|key| {
            assert!(filter.remove(digest(1, key)).unwrap());
        });
        (0..500).step_by(3).for_each(|key| _ = expected.insert(digest(1, key)));
        assert_eq!(filter.saturated(), 0);
        assert!(filter.bits == expected.bits, "{shape:?}");
    }
}

#[test]
fn a_saturated_counter_stays() {
    for shape in shapes(2) {
        let (mut filter, key) = (empty(shape), digest(0, 7));
        for times in 1..=1000 {
            assert_eq!(filter.insert(key), times == 1);
            assert_eq!(filter.count(key), times.min(filter.max_count()));
        }
        assert_eq!(filter.saturated(), filter.bits.ones);
        for _ in 0..1000 {
            assert!(filter.remove(key).unwrap());
        }
        assert!(filter.contains(key));
        assert_eq!(filter.count(key), filter.max_count());
    }
}

/// The mean of samples and its standard error.
fn mean(samples: &[f64]) -> (f64, f64) {
    let n = samples.len() as f64;
    let mean = samples.iter().sum::<f64>() / n;
    let squares: f64 = samples.iter().map(|sample| (sample - mean).powi(2)).sum();
    (mean, (squares / (n - 1.0) / n).sqrt())
}

fn model(shape: Shape) -> Lines {
    let Shape { blocks, lines, probes, width } = shape;
    let (word, rounds) = (f64::from(64 / width), Rounds::of(probes / lines));
    Lines { blocks: blocks as f64, word, reserved: 0, lines, rounds }
}

/// Twenty filters of each shape, filled until 2% is expected.
#[test]
fn the_rate_is_the_model_s() {
    for shape in shapes(200) {
        let model = model(shape);
        let items = (1..).find(|n| model.rate(f64::from(*n) * 20.0) > 0.02).unwrap() * 20;
        let samples: Vec<f64> = (0..20)
            .map(|seed| {
                let mut filter = empty(shape);
                (0..u64::from(items as u32)).for_each(|key| _ = filter.insert(digest(seed, key)));
                let asked = (1 << 32..).take(20_000).map(|key| digest(seed, key));
                asked.filter(|digest| filter.contains(*digest)).count() as f64 / 20_000.0
            })
            .collect();
        let ((measured, error), expected) = (mean(&samples), model.rate(f64::from(items)));
        assert!(
            (measured - expected).abs() < 4.0 * error,
            "{shape:?}, {items} items: model {expected}, measured {measured} +- {error}"
        );
    }
}

#[test]
fn overflow_is_the_model_s() {
    for (shape, load) in shapes(200).filter(|s| s.width < 8).zip([1.0, 1.5].iter().cycle()) {
        let cells = (shape.blocks * 512 / u64::from(shape.width)) as f64;
        let load = load * f64::from(shape.width) / 2.0; // Raises of a counter.
        let items = (cells * load / f64::from(shape.probes)) as u64;
        let samples: Vec<f64> = (0..20)
            .map(|seed| {
                let mut filter = empty(shape);
                (0..items).for_each(|key| _ = filter.insert(digest(seed, key)));
                filter.saturated() as f64 / cells
            })
            .collect();
        let (measured, error) = mean(&samples);
        let expected = model(shape).overflow(items as f64, (1 << shape.width) - 1);
        assert!(
            (measured - expected).abs() < 4.0 * error.max(1e-6),
            "{shape:?}, load {load}: model {expected}, measured {measured} +- {error}"
        );
    }
}

/// Large enough that runs ask for memory ahead.
#[test]
fn batches_answer_like_single_calls() {
    for shape in shapes(10_000) {
        let digests: Vec<Digest> = (0..1000).map(|key| digest(3, key % 700)).collect();
        let (mut single, mut batch, mut new) = (empty(shape), empty(shape), Vec::new());
        let expected: Vec<bool> = digests.iter().map(|digest| single.insert(*digest)).collect();
        batch.insert_digests(&digests, &mut new).unwrap();
        assert!(new == expected && batch.bits == single.bits);
        let asked: Vec<Digest> = (500..1500).map(|key| digest(3, key)).collect();
        batch.contains_digests(&asked, &mut new);
        assert!(new.iter().zip(&asked).all(|(found, key)| *found == single.contains(*key)));
    }
}

#[test]
fn racing_answers_like_exclusive() {
    for shape in shapes(20) {
        let (mut filter, racing) = (empty(shape), RacingCounting::new(&shape.plan()));
        let shared = empty(shape).bits.cells.into_shared().unwrap();
        let (words, mut ones, mut draw) = (shared.words(), 0_i64, draws(9));
        for _ in 0..3000 {
            let key = digest(0, draw() % 60);
            if draw() % 5 < 2 {
                let raised = racing.insert(words, key);
                ones += i64::from(raised);
                assert_eq!(raised != 0, filter.insert(key));
            } else {
                let (was_in, change) = racing.remove(words, key);
                ones += i64::from(change);
                assert_eq!(was_in, filter.remove(key).unwrap());
            }
            let key = digest(0, draw() % 60);
            assert_eq!(racing.contains(words, key), filter.contains(key));
        }
        let keys: Vec<Digest> = (0..200).map(|key| digest(0, key)).collect();
        let (run, mut found) = (Run { keys: &keys, next: &[] }, vec![false; 200]);
        racing.contains_run(words, run, &mut found);
        assert!(found.iter().zip(&keys).all(|(found, key)| *found == filter.contains(*key)));
        let mut new = Vec::new();
        filter.insert_run(&keys, &[], &mut new).unwrap();
        let mut new = new.into_iter();
        racing.insert_run(words, run, |raised| {
            ones += i64::from(raised);
            assert_eq!(Some(raised != 0), new.next());
        });
        let bits = Bits { cells: shared.into_cells().unwrap(), ones: ones as u64 };
        assert!(bits == filter.bits, "{shape:?}");
    }
}

/// What happens if the key goes between the question and the removal.
#[test]
fn a_removal_that_comes_too_late_is_undone() {
    for shape in shapes(4) {
        let (mut filter, racing) = (empty(shape), RacingCounting::new(&shape.plan()));
        (0..9).for_each(|key| _ = filter.insert(digest(2, key)));
        let before = copy(&filter);
        let shared = filter.bits.cells.into_shared().unwrap();
        let absent = (100..400).map(|key| digest(2, key));
        for digest in absent.filter(|digest| !before.contains(*digest)) {
            assert_eq!(racing.lower_all(shared.words(), digest), (false, 0));
        }
        assert!(shared.into_cells().unwrap().bytes() == before.bits.cells.bytes());
    }
}

/// Two threads remove the same keys at once, in a filter so empty that none matches by
/// accident.
#[test]
fn of_two_removals_of_a_key_at_most_one_goes_through() {
    let shape = Shape { blocks: 600, lines: 2, probes: 24, width: 4 };
    let racing = RacingCounting::new(&shape.plan());
    let mut filter = empty(shape);
    (0..600).for_each(|key| _ = filter.insert(digest(6, key)));
    let ones = filter.bits.ones as i64;
    let shared = filter.bits.cells.into_shared().unwrap();
    let words = shared.words();
    let remove = || (0..500).map(|key| racing.remove(words, digest(6, key))).collect();
    let answers: [Vec<(bool, i32)>; 2] = std::thread::scope(|scope| {
        [scope.spawn(remove), scope.spawn(remove)].map(|thread| thread.join().unwrap())
    });
    let mut expected = empty(shape);
    (500..600).for_each(|key| _ = expected.insert(digest(6, key)));
    for key in 0..500 {
        match answers.each_ref().map(|answers| answers[key].0) {
            [true, true] => panic!("key {key} was removed twice"),
            // Reported as absent for an instant, twice.
            [false, false] => _ = expected.insert(digest(6, key as u64)),
            _ => {}
        }
    }
    let change: i64 = answers.iter().flatten().map(|(_, change)| i64::from(*change)).sum();
    let bits = Bits { cells: shared.into_cells().unwrap(), ones: (ones + change) as u64 };
    assert!(bits == expected.bits);
}

/// Four threads on lines that they share: each inserts its keys, removes two thirds, and asks
/// all the while for those it keeps.
#[test]
fn threads_lose_nothing() {
    use std::sync::atomic::AtomicI64;
    let shape = Shape { blocks: 300, lines: 2, probes: 16, width: 8 };
    let (racing, shared) =
        (RacingCounting::new(&shape.plan()), empty(shape).bits.cells.into_shared().unwrap());
    let (words, ones) = (shared.words(), AtomicI64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (racing, ones) = (&racing, &ones);
            scope.spawn(move || {
                let keys = || (thread * 500..(thread + 1) * 500).map(|key| digest(5, key));
                let mut change = 0;
                for _ in 0..20 {
                    keys().for_each(|key| change += i64::from(racing.insert(words, key)));
                    for (at, key) in keys().enumerate().filter(|(at, _)| at % 3 != 0) {
                        let (was_in, zeroed) = racing.remove(words, key);
                        assert!(was_in);
                        change += i64::from(zeroed);
                        assert!(racing.contains(words, keys().nth(at / 3 * 3).unwrap()));
                    }
                    for key in keys().step_by(3) {
                        let (was_in, zeroed) = racing.remove(words, key);
                        assert!(was_in);
                        change += i64::from(zeroed);
                    }
                }
                keys().step_by(3).for_each(|key| change += i64::from(racing.insert(words, key)));
                ones.fetch_add(change, Ordering::Relaxed);
            });
        }
    });
    let mut expected = empty(shape);
    for thread in 0..4 {
        let keys = (thread * 500..(thread + 1) * 500).step_by(3);
        keys.for_each(|key| _ = expected.insert(digest(5, key)));
    }
    let ones = ones.into_inner() as u64;
    assert!(Bits { cells: shared.into_cells().unwrap(), ones } == expected.bits);
}
