//! The rate models: how often a filter of a given shape reports an absent key as present.
//!
//! Everything is f64 and pure. `n` is the number of distinct keys inserted.
//!
//! **Classic**, m bits and k probes anywhere. With t = kn throws into m cells, the share of set
//! bits X has mean 1 - (1 - 1/m)^t, and a foreign key hits with probability E[X^k]. The textbook
//! formula (1 - e^(-kn/m))^k takes E[X]^k instead, which is fine for large m and badly wrong for
//! small m: one key at 10^-6 in the 29 bits of the formula really has a rate of 7 * 10^-6. So a
//! small number of throws is summed exactly, and a large number gets the second-order term: E[X^k]
//! = E[X]^k exp(k(k-1)/2 var X / E[X]^2). (Bose et al., "On the false-positive rate of Bloom
//! filters", 2008, discuss the bias; the variance of the number of empty cells is in every text on
//! occupancy.)
//!
//! **Blocked and counting**, one or two lines of 512 bits per key. A line is eight words of w cells
//! (64 bits, or 64 / width counters, rounded down) in four pairs (i, i+4). A full round of probes puts one into
//! every word, a half round one into every pair. The number of keys on a line is binomial; given L
//! keys, pairs are independent. That given cells, i of one word and j of its partner, have been
//! spared by all L keys, each with F full and H half rounds, has the probability b(i, j)^L with
//!
//!   b(i, j) = (1 - i/w)^F (1 - j/w)^F (1 - (i+j)/2w)^H
//!
//! from which inclusion and exclusion give the probability that they are all set. A foreign key's
//! probes into the pair fall on some number of distinct cells of each word, with probabilities that
//! are counted probe by probe. In blocked one cell of the last pair is reserved (bit 511 of the
//! block): it is never set and never tested, so a probe that falls on it always passes.
//!
//! A counter is raised by each key that touches it, once. Keys are independent, so that its value
//! is binomial too, and its overflow the upper tail.

use alloc::vec;

use crate::math;

/// Returns the rate of a classic filter of `m` bits and `k` probes that holds `n` keys.
pub(crate) fn classic_rate(n: f64, m: f64, k: u32) -> f64 {
    if n <= 0.0 {
        return 0.0;
    }
    let throws = n * f64::from(k);
    if math::fract(n) == 0.0 && throws <= EXACT_THROWS {
        return exact_classic_rate(throws as usize, m, k);
    }
    if math::floor(n) * f64::from(k) <= EXACT_THROWS {
        // An estimate of n is no whole number: between two of those the rate is on a straight line.
        let (below, above) =
            (classic_rate(math::floor(n), m, k), classic_rate(math::ceil(n), m, k));
        return below + math::fract(n) * (above - below);
    }
    second_order_classic_rate(n, m, k)
}

/// E[X]^k with the correction for the variance of X.
fn second_order_classic_rate(n: f64, m: f64, k: u32) -> f64 {
    let throws = n * f64::from(k);
    let k = f64::from(k);
    // Shares of cells that are empty, and of pairs of cells that are both empty.
    let empty = math::exp(throws * math::ln_1p(-1.0 / m));
    let both_empty = if m > 2.0 { math::exp(throws * math::ln_1p(-2.0 / m)) } else { 0.0 };
    let variance = (empty / m + (1.0 - 1.0 / m) * both_empty - empty * empty).max(0.0);
    let full = 1.0 - empty;
    math::exp(k * math::ln(full) + 0.5 * k * (k - 1.0) * variance / (full * full)).min(1.0)
}

/// Up to this many throws the distribution of set bits is computed exactly, in time t^2. Above, the
/// second-order formula is within 2% of it (tested below).
const EXACT_THROWS: f64 = 160.0;

/// E[(X/m)^k] where X is the number of distinct cells that `throws` throws hit among `m`.
fn exact_classic_rate(throws: usize, m: f64, k: u32) -> f64 {
    // share[j]: probability that j cells are set.
    let mut share = vec![0.0; throws + 1];
    share[0] = 1.0;
    for thrown in 0..throws {
        for j in (0..=thrown).rev() {
            let hits_old = j as f64 / m;
            let here = share[j];
            share[j] = here * hits_old;
            share[j + 1] += here * (1.0 - hits_old).max(0.0);
        }
    }
    share.iter().enumerate().map(|(j, p)| p * math::powi((j as f64 / m).min(1.0), k as i32)).sum()
}

/// Expected share of set bits of a classic filter.
pub(crate) fn classic_fill(n: f64, m: f64, k: u32) -> f64 {
    -math::exp_m1(n * f64::from(k) * math::ln_1p(-1.0 / m))
}

/// Returns the number of keys at which the expected share of set bits is `fill`: the inverse of
/// [`classic_fill`] (Swamidass and Baldi 2007), and one standard deviation of that estimate.
pub(crate) fn classic_items(fill: f64, m: f64, k: u32) -> (f64, f64) {
    let k = f64::from(k);
    let items = math::ln_1p(-fill) / (k * math::ln_1p(-1.0 / m));
    let load = k * items / m;
    (items, math::sqrt(m * (math::exp(load) - 1.0 - load).max(0.0)) / k)
}

/// Returns the mean over a growth of what bends little meanwhile: `of` takes the part of it that is
/// past, from 0 to 1 (Simpson's rule).
pub(crate) fn mean_of_growth(of: impl Fn(f64) -> f64) -> f64 {
    (of(0.0) + 4.0 * of(0.5) + of(1.0)) / 6.0
}

/// Returns how many keys are taken for others for each one that is new, on average over a growth:
/// `rate` is the rate after a part of the new keys.
pub(crate) fn missed_per_key(rate: impl Fn(f64) -> f64) -> f64 {
    mean_of_growth(|part| {
        let rate = rate(part).min(1.0 - f64::EPSILON);
        rate / (1.0 - rate)
    })
}

/// The shape of a blocked or counting filter, as far as its rate depends on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lines {
    /// Number of 512-bit lines.
    pub blocks: f64,
    /// Cells of a word: 64 bits, or as many whole counters as fit.
    pub word: f64,
    /// Cells of the last word that no key uses: 1 for blocked, 0 for counting.
    pub reserved: u32,
    /// Lines that a key touches: 1 or 2.
    pub lines: u32,
    /// What a key does to each of its lines.
    pub rounds: Rounds,
}

/// The rounds of probes that a key takes in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rounds {
    /// Rounds with one probe into each of the eight words: 0 to 2.
    pub full: u32,
    /// Rounds with one probe into each of the four pairs of words: 0 or 1.
    pub half: u32,
}

impl Rounds {
    /// The probes that a line can have, in ascending order.
    pub(crate) const PROBES: [u32; 4] = [4, 8, 12, 16];

    /// Returns the rounds that make up this many probes of a line.
    pub(crate) fn of(probes: u32) -> Rounds {
        Rounds { full: probes / 8, half: probes % 8 / 4 }
    }
}

/// Distinct cells that the probes of a line fall on in one word: at most 2, and one more for sums.
const DISTINCT: usize = 3;

/// Returns the probability that a foreign key's probes into a pair all hit, as a sum over i and j
/// of `weight[i][j] * spared(i, j)^L`.
fn pair_weights(rounds: Rounds, word: f64, usable: [f64; 2]) -> [[f64; DISTINCT]; DISTINCT] {
    // needed[i][j]: probability that the probes need i distinct cells of the one word and j of the
    // other. A probe that falls on a cell that is needed already, or reserved, needs no other.
    let mut needed = [[0.0; DISTINCT]; DISTINCT];
    needed[0][0] = 1.0;
    let probe = |needed: &mut [[f64; DISTINCT]; DISTINCT], chance: [f64; 2]| {
        for i in (0..DISTINCT).rev() {
            for j in (0..DISTINCT).rev() {
                let here = needed[i][j];
                let new = [
                    chance[0] * (usable[0] - i as f64) / word,
                    chance[1] * (usable[1] - j as f64) / word,
                ];
                if here > 0.0 {
                    needed[i][j] = here * (1.0 - new[0] - new[1]);
                    if new[0] > 0.0 {
                        needed[i + 1][j] += here * new[0];
                    }
                    if new[1] > 0.0 {
                        needed[i][j + 1] += here * new[1];
                    }
                }
            }
        }
    };
    for _ in 0..rounds.full {
        probe(&mut needed, [1.0, 0.0]);
        probe(&mut needed, [0.0, 1.0]);
    }
    for _ in 0..rounds.half {
        probe(&mut needed, [0.5, 0.5]);
    }
    // Inclusion and exclusion: that the needed cells are all set is a signed sum over which of them
    // are spared.
    const CHOOSE: [[f64; DISTINCT]; DISTINCT] = [[1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [1.0, 2.0, 1.0]];
    let mut weights = [[0.0; DISTINCT]; DISTINCT];
    for (i, j) in pairs() {
        for (spared_i, spared_j) in pairs().filter(|(a, b)| *a <= i && *b <= j) {
            let sign = if (spared_i + spared_j) % 2 == 0 { 1.0 } else { -1.0 };
            weights[spared_i][spared_j] +=
                needed[i][j] * sign * CHOOSE[i][spared_i] * CHOOSE[j][spared_j];
        }
    }
    weights
}

fn pairs() -> impl Iterator<Item = (usize, usize)> {
    (0..DISTINCT).flat_map(|i| (0..DISTINCT).map(move |j| (i, j)))
}

impl Lines {
    /// Lines of bits, of which one is reserved, or of counters that have more than one bit each.
    pub(crate) fn new(blocks: f64, lines: u32, rounds: Rounds, width: u32) -> Lines {
        let reserved = u32::from(width == 1);
        Lines { blocks, word: f64::from(64 / width), reserved, lines, rounds }
    }

    /// Returns the rate with `n` keys inserted.
    pub(crate) fn rate(&self, n: f64) -> f64 {
        if n <= 0.0 {
            return 0.0;
        }
        // A key touches `lines` distinct lines, so a given line with this probability.
        let chance = (f64::from(self.lines) / self.blocks).min(1.0);
        let load = n * chance;
        if load > 4096.0 {
            return 1.0; // Every cell is set, but for a share below 10^-13.
        }
        let usable = self.word - f64::from(self.reserved);
        let plain = pair_weights(self.rounds, self.word, [self.word, self.word]);
        let reserved = pair_weights(self.rounds, self.word, [self.word, usable]);
        let logs: [[f64; DISTINCT]; DISTINCT] = core::array::from_fn(|i| {
            core::array::from_fn(|j| math::ln(self.spared(i as u32, j as u32)))
        });
        let one_line = expectation_binomial(n, chance, |keys| {
            let (mut hit, mut last_hit) = (0.0, 0.0);
            for (i, j) in pairs().filter(|(i, j)| plain[*i][*j] != 0.0 || reserved[*i][*j] != 0.0) {
                let spared = math::exp(keys * logs[i][j]);
                hit += plain[i][j] * spared;
                last_hit += reserved[i][j] * spared;
            }
            math::powi(hit.max(0.0), 3) * last_hit.max(0.0)
        });
        // Two keys on a line whose prints agree in all 64 bits are the same.
        let indistinct = load * math::powi(2.0, -64);
        (math::powi(one_line, self.lines as i32) + indistinct).min(1.0)
    }

    /// Expected share of set cells.
    pub(crate) fn fill(&self, n: f64) -> f64 {
        -math::exp_m1(n * math::ln_1p(-self.cell_chance()))
    }

    /// Probability that one key sets one given cell.
    fn cell_chance(&self) -> f64 {
        (f64::from(self.lines) / self.blocks).min(1.0) * (1.0 - self.spared(1, 0))
    }

    /// Probability that one key of the line spares `here` given cells of a word and `there` given
    /// cells of its partner.
    fn spared(&self, here: u32, there: u32) -> f64 {
        let (here, there) = (f64::from(here), f64::from(there));
        math::powi((1.0 - here / self.word) * (1.0 - there / self.word), self.rounds.full as i32)
            * math::powi(1.0 - (here + there) / (2.0 * self.word), self.rounds.half as i32)
    }

    /// Probability that a given counter has been raised `max` times or more by `n` distinct keys:
    /// the share of counters that are expected at their maximum.
    ///
    /// The tail is summed term by term from `max` outwards, so that it keeps its relative precision
    /// however small it is.
    pub(crate) fn overflow(&self, n: f64, max: u32) -> f64 {
        let (chance, max) = (self.cell_chance(), f64::from(max));
        if n < max {
            return 0.0;
        }
        let odds = chance / (1.0 - chance);
        let mut ln_choose = 0.0;
        let mut i = 0.0;
        while i < max {
            ln_choose += math::ln((n - i) / (i + 1.0));
            i += 1.0;
        }
        let at_max =
            math::exp(ln_choose + max * math::ln(chance) + (n - max) * math::ln_1p(-chance));
        let (mut weight, mut keys) = (1.0, max);
        if n * chance < max {
            let mut above = weight;
            while keys < n && weight > 1e-17 * above {
                weight *= (n - keys) / (keys + 1.0) * odds;
                keys += 1.0;
                above += weight;
            }
            return at_max * above;
        }
        let mut below = 0.0;
        while keys > 0.0 {
            weight *= keys / ((n - keys + 1.0) * odds);
            keys -= 1.0;
            below += weight;
        }
        (1.0 - at_max * below).max(0.0)
    }

    /// Returns the inverse of [`Lines::fill`], and one standard deviation of that estimate.
    ///
    /// The deviation takes lines as independent with Poisson loads, then takes out the part of the
    /// variance that comes from the number of keys itself, which is what is being estimated.
    pub(crate) fn items(&self, fill: f64) -> (f64, f64) {
        let items = math::ln_1p(-fill) / math::ln_1p(-self.cell_chance());
        let load = items * f64::from(self.lines) / self.blocks;
        let empty = |spared: f64| math::exp(-load * (1.0 - spared));
        let one = self.spared(1, 0);
        let (word, line) = (self.word, 8.0 * self.word);
        // Ordered pairs of cells of a line: in one word, in partner words, and in others.
        let variance = line * empty(one)
            + line * (word - 1.0) * empty(self.spared(2, 0))
            + line * word * empty(self.spared(1, 1))
            + line * (line - 2.0 * word) * empty(one * one)
            - math::powi(line * empty(one), 2);
        // What one more key would set in one of its lines, and in all of them.
        let share = line * empty(one) * (1.0 - one);
        let slope = f64::from(self.lines) * share;
        // Of the variance that the number of keys brings, items * slope^2, the part between the
        // lines of one key is not in `variance` to begin with.
        let counted = items * f64::from(self.lines) * share * share;
        let fixed = (self.blocks * variance - counted).max(0.0);
        (items, if slope > 0.0 { math::sqrt(fixed) / slope } else { f64::INFINITY })
    }
}

/// E[f(L)] for L binomial with `n` trials of probability `chance`, `n` up to 10^15 and its mean up to
/// some thousands. Sums outwards from the mode until the terms vanish.
fn expectation_binomial(n: f64, chance: f64, f: impl Fn(f64) -> f64) -> f64 {
    if chance >= 1.0 {
        return f(n);
    }
    let odds = chance / (1.0 - chance);
    let mode = math::floor((n + 1.0) * chance).min(n);
    // The probability at the mode enters every term alike, so weights relative to it do.
    let (mut sum, mut total) = (f(mode), 1.0);
    let mut weight = 1.0;
    let mut keys = mode;
    while keys < n && weight > 1e-22 {
        weight *= (n - keys) / (keys + 1.0) * odds;
        keys += 1.0;
        sum += weight * f(keys);
        total += weight;
    }
    (weight, keys) = (1.0, mode);
    while keys > 0.0 && weight > 1e-22 {
        weight *= keys / ((n - keys + 1.0) * odds);
        keys -= 1.0;
        sum += weight * f(keys);
        total += weight;
    }
    sum / total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_order_meets_the_exact_sum_where_they_change_over() {
        for (n, k) in [(7.0, 20_u32), (10.0, 13), (15.0, 10), (23.0, 7), (50.0, 3), (150.0, 1)] {
            for bits_per_key in [0.7, 1.0, 1.5] {
                let m = (n * f64::from(k) / 2f64.ln() * bits_per_key).floor();
                let exact = exact_classic_rate((n * f64::from(k)) as usize, m, k);
                let approximate = second_order_classic_rate(n, m, k);
                let off = approximate / exact - 1.0;
                assert!(off.abs() < 0.02, "n {n}, k {k}, m {m}: {off:+.4}");
            }
        }
    }

    /// The model of one line against the simplest simulation: throw, then ask.
    #[test]
    fn a_line_agrees_with_a_simulation() {
        let mut state = 1_u64;
        let mut draw = |bound: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            ((u128::from(state) * u128::from(bound)) >> 64) as usize
        };
        let bits = [(4, 60), (8, 45), (12, 30), (16, 25)].map(|(k, keys)| (64, 1, k, keys));
        let counters = [(4, 15), (8, 12), (12, 9), (16, 7)].map(|(k, keys)| (16, 0, k, keys));
        for (word, reserved, probes, keys) in bits.into_iter().chain(counters) {
            let rounds = Rounds::of(probes);
            let mut probe_line = |mut visit: Box<dyn FnMut(usize) + '_>| {
                for _ in 0..rounds.full {
                    (0..8).for_each(|i| visit(i * word + draw(word as u64)));
                }
                for _ in 0..rounds.half {
                    (0..4).for_each(|i| visit((i + 4 * draw(2)) * word + draw(word as u64)));
                }
            };
            let (mut hits, trials) = (0_u32, 40_000);
            for _ in 0..trials {
                let mut line = [false; 512];
                for _ in 0..keys {
                    probe_line(Box::new(|cell| line[cell] = true));
                }
                if reserved == 1 {
                    line[511] = true; // Probes on it pass.
                }
                let mut pass = true;
                probe_line(Box::new(|cell| pass &= line[cell]));
                hits += u32::from(pass);
            }
            // One block, so that the load is not random.
            let lines = Lines { blocks: 1.0, word: word as f64, reserved, lines: 1, rounds };
            let model = lines.rate(f64::from(keys));
            let measured = f64::from(hits) / f64::from(trials);
            let deviation = (model * (1.0 - model) / f64::from(trials)).sqrt();
            assert!(
                (measured - model).abs() < 4.0 * deviation,
                "{word} cells, {probes} probes: model {model}, measured {measured} +- {deviation}"
            );
        }
    }

    #[test]
    fn overflow_is_the_tail_of_the_binomial() {
        let rounds = Rounds::of(8);
        let lines = |blocks| Lines { blocks, word: 16.0, reserved: 0, lines: 1, rounds };
        // Ten keys on one line, each on a given counter with probability 1/16; C(10, 3) = 120.
        let term = |choose: f64, j: i32| choose / 16f64.powi(j) * (15.0 / 16.0_f64).powi(10 - j);
        let below = term(1.0, 0) + term(10.0, 1) + term(45.0, 2);
        assert!((lines(1.0).overflow(10.0, 3) - (1.0 - below)).abs() < 1e-12);
        assert!((lines(1.0).overflow(10.0, 10) / term(1.0, 10) - 1.0).abs() < 1e-12);
        assert_eq!(lines(1.0).overflow(9.0, 10), 0.0);
        assert_eq!(lines(1.0).overflow(1e15, 255), 1.0);
        // At load ln 2 Fan et al. bound the chance of 16 by 1.37e-15; Poisson gives it exactly.
        let load = 2f64.ln();
        let factorial: f64 = (1..=16).map(f64::from).product();
        let tail = 0.5 * load.powi(16) / factorial
            * (1.0 + load / 17.0 + load.powi(2) / (17.0 * 18.0) + load.powi(3) / 5814.0);
        let overflow = lines(1e9).overflow(1e9 * 16.0 * load, 16);
        assert!((overflow / tail - 1.0).abs() < 1e-5, "{overflow:e}, {tail:e}");
        assert!(overflow < 1.37e-15);
    }

    /// On either side of the mean the sum runs the other way.
    #[test]
    fn overflow_is_smooth_across_the_mean() {
        let rounds = Rounds::of(12);
        let lines = Lines { blocks: 500.0, word: 32.0, reserved: 0, lines: 2, rounds };
        let chance = lines.cell_chance();
        for max in [3, 15, 255] {
            for load in [0.5, 0.999, 1.0, 1.001, 2.0] {
                let n = (f64::from(max) * load / chance).round();
                let expected = expectation_binomial(n, chance, |raised| {
                    f64::from(u8::from(raised >= f64::from(max)))
                });
                let got = lines.overflow(n, max);
                assert!((got - expected).abs() < 1e-11, "{max} {load}: {got}, {expected}");
            }
        }
    }

    #[test]
    fn the_binomial_expectation_is_right_for_known_functions() {
        let (n, p) = (1000.0, 0.02);
        assert!((expectation_binomial(n, p, |l| l) - n * p).abs() < 1e-9);
        let square = n * p * (1.0 - p) + (n * p) * (n * p);
        assert!((expectation_binomial(n, p, |l| l * l) - square).abs() < 1e-8);
        assert!((expectation_binomial(1e13, 30e-13, |l| l) - 30.0).abs() < 1e-9);
        assert_eq!(expectation_binomial(5.0, 1.0, |l| l), 5.0);
    }
}
