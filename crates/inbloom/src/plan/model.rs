//! The rate models: how often a filter of a given shape answers "yes" for a key it never saw.
//!
//! Everything is f64 and pure. `n` is the number of distinct keys inserted.
//!
//! **Classic**, m bits and k probes anywhere. With t = kn throws into m cells, the share of set bits
//! X has mean 1 - (1 - 1/m)^t, and a foreign key hits with probability E[X^k]. The textbook formula
//! (1 - e^(-kn/m))^k takes E[X]^k instead, which is fine for large m and badly wrong for small m: one
//! key at 10^-6 in the 29 bits of the formula really has a rate of 7 * 10^-6. So few throws are
//! summed exactly, and many get the second-order term: E[X^k] = E[X]^k exp(k(k-1)/2 var X / E[X]^2).
//! (Bose et al., "On the false-positive rate of Bloom filters", 2008, discuss the bias; the variance
//! of the number of empty cells is in every text on occupancy.)
//!
//! **Blocked**, one or two lines of 512 bits per key, each line four sectors of 128 bits, each sector
//! getting r probes per key. The number of keys on a line is binomial; given L keys, sectors are
//! independent, and a foreign key's r probes into a sector that has taken t = rL throws all hit with
//! a probability that inclusion and exclusion give exactly:
//!
//!   hit(r, t) = sum over d of S(r, d) (128)_d / 128^r * sum over i of (-1)^i C(d, i) (1 - i/128)^t
//!
//! where S(r, d) counts the ways in which r probes fall on d distinct bits, and the inner sum is the
//! probability that d given bits are all set. The last sector has one bit that is never set and never
//! asked (bit 511, reserved): a probe that falls on it always passes.

/// Bits of a sector. Four of them make a line.
const SECTOR: f64 = 128.0;
/// Sectors of a line; each gets the same number of probes.
pub(crate) const SECTORS: u32 = 4;
/// The most probes a key may have in one sector of a line: 28 bits of digest are used per round of
/// four, and 16 probes per line serve rates down to 10^-6 (10^-12 with two lines).
pub(crate) const MAX_ROUNDS: u32 = 4;

/// The rate of a classic filter of `m` bits and `k` probes that holds `n` keys.
pub(super) fn classic_rate(n: f64, m: f64, k: u32) -> f64 {
    let throws = n * f64::from(k);
    if n <= 0.0 {
        return 0.0;
    }
    if throws <= EXACT_THROWS && n.fract() == 0.0 {
        return exact_classic_rate(throws as usize, m, k);
    }
    let k = f64::from(k);
    // Shares of cells that are empty, and of pairs of cells that are both empty.
    let empty = (throws * (-1.0 / m).ln_1p()).exp();
    let both_empty = if m > 2.0 { (throws * (-2.0 / m).ln_1p()).exp() } else { 0.0 };
    let variance = (empty / m + (1.0 - 1.0 / m) * both_empty - empty * empty).max(0.0);
    let full = 1.0 - empty;
    (k * full.ln() + 0.5 * k * (k - 1.0) * variance / (full * full)).exp().min(1.0)
}

/// Up to this many throws the distribution of set bits is computed exactly, in time t^2. Above, the
/// second-order formula is within 0.3% of it (tested below).
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
    share.iter().enumerate().map(|(j, p)| p * (j as f64 / m).min(1.0).powi(k as i32)).sum()
}

/// Expected share of set bits of a classic filter.
pub(super) fn classic_fill(n: f64, m: f64, k: u32) -> f64 {
    -(n * f64::from(k) * (-1.0 / m).ln_1p()).exp_m1()
}

/// The number of keys at which the expected share of set bits is `fill`: the inverse of
/// [`classic_fill`] (Swamidass and Baldi 2007), and one standard deviation of that estimate.
pub(super) fn classic_items(fill: f64, m: f64, k: u32) -> (f64, f64) {
    let k = f64::from(k);
    let items = (-fill).ln_1p() / (k * (-1.0 / m).ln_1p());
    let load = k * items / m;
    (items, (m * (load.exp() - 1.0 - load).max(0.0)).sqrt() / k)
}

/// The shape of a blocked filter, as far as its rate depends on it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lines {
    /// Number of 512-bit lines.
    pub blocks: f64,
    /// Lines that a key touches: 1 or 2.
    pub lines: u32,
    /// Probes of a key in each sector of each line: 1 to [`MAX_ROUNDS`].
    pub rounds: u32,
}

impl Lines {
    /// The rate with `n` keys inserted.
    pub(super) fn rate(&self, n: f64) -> f64 {
        if n <= 0.0 {
            return 0.0;
        }
        // A key touches `lines` distinct lines, so a given line with this probability.
        let chance = (f64::from(self.lines) / self.blocks).min(1.0);
        let load = n * chance;
        if load > 4096.0 {
            return 1.0; // Every bit is set, but for a share below 10^-13.
        }
        let one_line = expectation_binomial(n, chance, |keys| self.hit(keys));
        // Two keys on a line whose prints agree in all 64 bits cannot be told apart.
        let indistinct = load * 2f64.powi(-64);
        (one_line.powi(self.lines as i32) + indistinct).min(1.0)
    }

    /// Probability that a foreign key finds all its bits set in a line that holds `keys` keys.
    fn hit(&self, keys: f64) -> f64 {
        let empty = all_empty(keys * f64::from(self.rounds));
        sector_hit(self.rounds, &empty, SECTOR).powi(3) * last_sector_hit(self.rounds, &empty)
    }

    /// Expected share of set bits.
    pub(super) fn fill(&self, n: f64) -> f64 {
        -(n * (-self.bit_chance()).ln_1p()).exp_m1()
    }

    /// Probability that one key sets one given bit.
    fn bit_chance(&self) -> f64 {
        let on_line = (f64::from(self.lines) / self.blocks).min(1.0);
        on_line * -(f64::from(self.rounds) * (-1.0 / SECTOR).ln_1p()).exp_m1()
    }

    /// The inverse of [`Lines::fill`], and one standard deviation of that estimate.
    ///
    /// The deviation takes lines as independent with Poisson loads, then takes out the part of the
    /// variance that comes from the number of keys itself, which is what is being estimated.
    pub(super) fn items(&self, fill: f64) -> (f64, f64) {
        let items = (-fill).ln_1p() / (-self.bit_chance()).ln_1p();
        let load = items * f64::from(self.lines) / self.blocks;
        let spared = |bits: f64| (f64::from(self.rounds) * (-bits / SECTOR).ln_1p()).exp();
        let empty = (-load * (1.0 - spared(1.0))).exp();
        let both_same = (-load * (1.0 - spared(2.0))).exp();
        let both_other = (-load * (1.0 - spared(1.0).powi(2))).exp();
        let bits = SECTOR * f64::from(SECTORS);
        let variance =
            bits * empty + bits * (SECTOR - 1.0) * both_same + bits * (bits - SECTOR) * both_other
                - (bits * empty).powi(2);
        let slope = bits * self.blocks * empty * self.bit_chance();
        let fixed = (self.blocks * variance - items * slope * slope).max(0.0);
        (items, if slope > 0.0 { fixed.sqrt() / slope } else { f64::INFINITY })
    }
}

/// For i = 0 to 4: the probability that i given bits of a sector are all empty after `throws` throws.
fn all_empty(throws: f64) -> [f64; 5] {
    std::array::from_fn(|i| (throws * (-(i as f64) / SECTOR).ln_1p()).exp())
}

/// Probability that `probes` probes into a sector of `bits` usable bits (of 128) all hit a set one.
/// A probe on an unusable bit counts as a miss here.
fn sector_hit(probes: u32, empty: &[f64; 5], bits: f64) -> f64 {
    // Stirling numbers of the second kind, S(probes, distinct).
    const WAYS: [[f64; 5]; 5] = [
        [1.0, 0.0, 0.0, 0.0, 0.0],
        [0.0, 1.0, 0.0, 0.0, 0.0],
        [0.0, 1.0, 1.0, 0.0, 0.0],
        [0.0, 1.0, 3.0, 1.0, 0.0],
        [0.0, 1.0, 7.0, 6.0, 1.0],
    ];
    const CHOOSE: [[f64; 5]; 5] = [
        [1.0, 0.0, 0.0, 0.0, 0.0],
        [1.0, 1.0, 0.0, 0.0, 0.0],
        [1.0, 2.0, 1.0, 0.0, 0.0],
        [1.0, 3.0, 3.0, 1.0, 0.0],
        [1.0, 4.0, 6.0, 4.0, 1.0],
    ];
    let mut sum = 0.0;
    let mut arrangements = 1.0; // bits * (bits - 1) * ... / 128^probes
    for distinct in 0..=probes as usize {
        let all_set: f64 = (0..=distinct)
            .map(|i| if i % 2 == 0 { 1.0 } else { -1.0 } * CHOOSE[distinct][i] * empty[i])
            .sum();
        sum += WAYS[probes as usize][distinct] * arrangements * all_set.max(0.0);
        arrangements *= bits - distinct as f64;
    }
    sum / SECTOR.powi(probes as i32)
}

/// As [`sector_hit`] for the sector with the reserved bit: probes that fall on it always pass.
fn last_sector_hit(probes: u32, empty: &[f64; 5]) -> f64 {
    let mut choose = 1.0;
    (0..=probes)
        .map(|passing| {
            let term = choose * SECTOR.powi(-(passing as i32));
            choose *= f64::from(probes - passing) / f64::from(passing + 1);
            term * sector_hit(probes - passing, empty, SECTOR - 1.0)
        })
        .sum()
}

/// E[f(L)] for L binomial with `n` trials of probability `chance`, `n` up to 10^15 and its mean up to
/// some thousands. Sums outwards from the mode until the terms vanish.
fn expectation_binomial(n: f64, chance: f64, f: impl Fn(f64) -> f64) -> f64 {
    if chance >= 1.0 {
        return f(n);
    }
    let odds = chance / (1.0 - chance);
    let mode = ((n + 1.0) * chance).floor().min(n);
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
                // A hair off a whole number takes the other branch.
                let approximate = classic_rate(n + 1e-9, m, k);
                let off = approximate / exact - 1.0;
                assert!(off.abs() < 0.02, "n {n}, k {k}, m {m}: {off:+.4}");
            }
        }
    }

    /// The model against the simplest simulation: throw, then ask.
    #[test]
    fn sectors_agree_with_a_simulation() {
        let mut state = 1_u64;
        let mut draw = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 57) as u32
        };
        for (probes, keys) in [(1, 40), (2, 30), (3, 20), (4, 25)] {
            for reserved in [false, true] {
                let usable = |bit: u32| !(reserved && bit == 127);
                let (mut hits, trials) = (0_u32, 40_000);
                for _ in 0..trials {
                    let mut sector = 0_u128;
                    for _ in 0..keys * probes {
                        let bit = draw();
                        sector |= u128::from(usable(bit)) << bit;
                    }
                    let pass = (0..probes).all(|_| {
                        let bit = draw();
                        !usable(bit) || sector >> bit & 1 == 1
                    });
                    hits += u32::from(pass);
                }
                let empty = all_empty(f64::from(keys * probes));
                let model = if reserved {
                    last_sector_hit(probes, &empty)
                } else {
                    sector_hit(probes, &empty, SECTOR)
                };
                let measured = f64::from(hits) / f64::from(trials);
                let deviation = (model * (1.0 - model) / f64::from(trials)).sqrt();
                assert!(
                    (measured - model).abs() < 4.0 * deviation,
                    "{probes} probes, reserved {reserved}: model {model}, measured {measured}"
                );
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
