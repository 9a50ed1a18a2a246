//! By which measurement the layout of a 512-bit block was chosen: prototypes of four candidates, at
//! equal model rate.
//!
//! All take one cache line per key and consist of four lanes, lane i being the words i and i + 4 of
//! the block, because two 256-bit registers hold exactly that. A key has M probes in each lane.
//!
//! ```text
//! split512    one bit in each word of the lane; M = 2, so 8 probes, always
//! sect512     the lane is one sector of 128 bits; M bits anywhere in it
//! blend512    a hash bit picks one word of the lane; M bits in that word
//! rounds512   as split512 for every two probes, and as sect512 for an odd one; the library's choice
//! ```
//!
//! Bit 511 is reserved: no key sets it and every key finds it set. That is at most a constant mask,
//! and changes the rates by less than can be measured.
//!
//! What matters for the choice: bits per key at equal rate (the model below, and the measured rate
//! beside it), queries one by one through a call that cannot be inlined (as dispatch at run time
//! makes it), queries in a batch, inserts, and the number of words a key touches, which is what an
//! atomic insert pays for: 4 in blend512, 5 to 8 in the others.

use std::error::Error;
use std::io::{self, Write};
use std::ops::RangeInclusive;

/// The rates at which the layouts are timed: 8 probes suffice for the first, the second wants 12.
const TIMED: [f64; 2] = [0.001, 0.0001];

/// The candidates, as far as the rate model needs to know them.
#[derive(Clone, Copy)]
enum Layout {
    Split,
    Sect,
    Blend,
    Rounds,
}

impl Layout {
    const ALL: [Layout; 4] = [Layout::Split, Layout::Sect, Layout::Blend, Layout::Rounds];

    fn name(self) -> &'static str {
        match self {
            Layout::Split => "split512",
            Layout::Sect => "sect512",
            Layout::Blend => "blend512",
            Layout::Rounds => "rounds512",
        }
    }

    /// Probes per lane that the layout can have.
    fn choices(self) -> RangeInclusive<usize> {
        match self {
            Layout::Split => 2..=2,
            Layout::Sect | Layout::Rounds => 1..=4,
            Layout::Blend => 1..=3,
        }
    }

    /// Probability that an absent key finds all its bits in a block, by the number of keys in it.
    fn hit_by_keys(self, per_lane: usize) -> Vec<f64> {
        let lane: Vec<f64> = match self {
            Layout::Split => {
                let word = moments(64, 1);
                (0..=MOST_KEYS).map(|keys| word[keys].powi(2)).collect()
            }
            Layout::Sect => {
                let sector = moments(128, per_lane);
                (0..=MOST_KEYS).map(|keys| sector[per_lane * keys]).collect()
            }
            // Of the keys in the block, a binomial share took the same word of the lane.
            Layout::Blend => {
                let word = moments(64, per_lane);
                (0..=MOST_KEYS)
                    .map(|keys| binomial_mean(keys, |same| word[per_lane * same]))
                    .collect()
            }
            Layout::Rounds => {
                let (full, half) = (per_lane / 2, per_lane % 2);
                let (shorter, longer) = (moments(64, full), moments(64, full + 1));
                (0..=MOST_KEYS)
                    .map(|keys| match half {
                        0 => shorter[full * keys].powi(2),
                        // The odd probe falls into either word, of the keys and of the query.
                        _ => binomial_mean(keys, |here| {
                            let (here, there) = (full * keys + here, full * keys + keys - here);
                            (longer[here] * shorter[there] + shorter[here] * longer[there]) / 2.0
                        }),
                    })
                    .collect()
            }
        };
        lane.iter().map(|hit| hit.powi(4)).collect()
    }

    /// The smallest bits per key that keep the rate, and the probes per lane that reach it.
    fn smallest(self, rate: f64) -> (f64, usize) {
        self.choices()
            .map(|per_lane| {
                let hits = self.hit_by_keys(per_lane);
                let (mut low, mut high) = (4.0, 64.0);
                for _ in 0..50 {
                    let middle = (low + high) / 2.0;
                    if poisson_mean(&hits, 512.0 / middle) > rate {
                        low = middle;
                    } else {
                        high = middle;
                    }
                }
                (high, per_lane)
            })
            .min_by(|left, right| left.0.total_cmp(&right.0))
            .expect("every layout has a choice")
    }
}

/// More keys in a block than this do not occur at 4 bits per key and above.
const MOST_KEYS: usize = 256;

/// Mean of (occupied / cells)^power after 0, 1, 2 ... random throws, from the exact distribution of
/// the number of occupied cells: the probability that `power` more throws hit occupied cells only.
fn moments(cells: usize, power: usize) -> Vec<f64> {
    let share = |count: usize| count as f64 / cells as f64;
    let mut occupied = vec![0.0; cells + 1];
    occupied[0] = 1.0;
    (0..=4 * MOST_KEYS)
        .map(|_| {
            let weighted = occupied.iter().enumerate();
            let moment = weighted.map(|(count, weight)| weight * share(count).powi(power as i32));
            let moment = moment.sum();
            for count in (1..=cells).rev() {
                occupied[count] =
                    occupied[count] * share(count) + occupied[count - 1] * (1.0 - share(count - 1));
            }
            occupied[0] = 0.0;
            moment
        })
        .collect()
}

/// Mean of `value(heads)` over the number of heads in so many throws of a coin.
fn binomial_mean(throws: usize, value: impl Fn(usize) -> f64) -> f64 {
    let mut weight = 0.5_f64.powi(throws as i32);
    let mut sum = 0.0;
    for heads in 0..=throws {
        sum += weight * value(heads);
        weight *= (throws - heads) as f64 / (heads + 1) as f64;
    }
    sum
}

/// Mean of `values[keys]` when the number of keys is Poisson distributed.
fn poisson_mean(values: &[f64], mean: f64) -> f64 {
    let mut weight = (-mean).exp();
    let mut sum = 0.0;
    for (keys, value) in values.iter().enumerate() {
        sum += weight * value;
        weight *= mean / (keys + 1) as f64;
    }
    sum
}

/// Prints bits per key of all layouts, and times them.
pub(crate) fn run(rounds: usize) -> Result<(), Box<dyn Error>> {
    let mut out = io::stdout().lock();
    writeln!(out, "bits per key by the model (probes)")?;
    for layout in Layout::ALL {
        write!(out, "{:<10}", layout.name())?;
        for rate in [0.01, 0.001, 0.0001] {
            let (bits, per_lane) = layout.smallest(rate);
            write!(out, "  {}%: {bits:.2} ({:>2})", rate * 100.0, 4 * per_lane)?;
        }
        writeln!(out)?;
    }
    for rate in TIMED {
        for items in [100_000, 10_000_000] {
            prototypes::race(items, rate, rounds, &mut out)?;
        }
    }
    Ok(())
}

#[cfg(target_arch = "x86_64")]
mod prototypes {
    //! The vector code. Nothing here is shared with the library: it is what the library's kernels
    //! were chosen by.

    use std::arch::x86_64::*;
    use std::error::Error;
    use std::io::Write;
    use std::marker::PhantomData;

    use inbloom::Digest;

    use super::Layout;
    use crate::limit::Limit;
    use crate::memory::{Line, Lines, Pages, ahead, pick, pick_mut, prefetch_far, prefetch_near};
    use crate::race::{self, BATCH, Batch, Contestant, Entrant, Op, count};
    use crate::workload::Workload;

    /// Distances of the two-step pipeline, in keys.
    const FAR: usize = 96;
    const NEAR: usize = 16;

    /// Smaller filters lie in the second-level cache, where the prefetches cost more than they save:
    /// at 276 KiB 3.2 ns per key with them and 2.8 without (5.1 and 3.0 for inserts). With 512 KiB
    /// of that cache both are equal at 500 KiB.
    const CACHED: usize = 512 << 10;

    /// The two halves of a block: words 0 to 3 and words 4 to 7.
    type Halves = (__m256i, __m256i);

    /// How a print becomes bits of a block.
    trait Kernel: 'static {
        /// The bits of a key, without bit 511.
        ///
        /// # Safety
        /// The processor has AVX2.
        unsafe fn bits(print: u64) -> Halves;

        /// Whether all bits of the key are set in the block.
        ///
        /// # Safety
        /// The processor has AVX2.
        #[inline]
        #[target_feature(enable = "avx2")]
        unsafe fn test(block: Halves, print: u64) -> bool {
            // SAFETY: the caller's.
            let bits = unsafe { Self::bits(print) };
            (_mm256_testc_si256(block.0, bits.0) & _mm256_testc_si256(block.1, bits.1)) != 0
        }
    }

    /// 56 more bits, where those of the print are used up: the high bits of a product depend on all
    /// bits of its factor.
    #[inline(always)]
    fn second(print: u64) -> u64 {
        print.wrapping_mul(0x9fb2_1c65_1e98_df25) >> 8
    }

    /// Clears bit 511.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn without_reserved(high: __m256i) -> __m256i {
        _mm256_and_si256(high, _mm256_setr_epi64x(-1, -1, -1, i64::MAX))
    }

    /// Sets bit 511.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn with_reserved(high: __m256i) -> __m256i {
        _mm256_or_si256(high, _mm256_setr_epi64x(0, 0, 0, i64::MIN))
    }

    /// Field i of `width` bits, from bit `start` on, into lane i.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn fields(word: u64, start: i64, width: i64) -> __m256i {
        let shifts = _mm256_setr_epi64x(start, start + width, start + 2 * width, start + 3 * width);
        let mask = _mm256_set1_epi64x((1 << width) - 1);
        _mm256_and_si256(_mm256_srlv_epi64(_mm256_set1_epi64x(word as i64), shifts), mask)
    }

    /// One bit in each lane.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn bit(position: __m256i) -> __m256i {
        _mm256_sllv_epi64(_mm256_set1_epi64x(1), position)
    }

    struct Split;

    impl Kernel for Split {
        #[inline]
        #[target_feature(enable = "avx2")]
        unsafe fn bits(print: u64) -> Halves {
            (bit(fields(print, 0, 6)), without_reserved(bit(fields(print, 24, 6))))
        }
    }

    struct Sect<const PER_LANE: usize>;

    impl<const PER_LANE: usize> Kernel for Sect<PER_LANE> {
        #[inline]
        #[target_feature(enable = "avx2")]
        unsafe fn bits(print: u64) -> Halves {
            let mut low = _mm256_setzero_si256();
            let mut high = _mm256_setzero_si256();
            for probe in 0..PER_LANE {
                let word = if probe < 2 { print } else { second(print) };
                let position = fields(word, 28 * (probe as i64 % 2), 7);
                // A shift by 64 or more, and by "less than 0", yields no bit at all: each position
                // sets a bit in exactly one half.
                low = _mm256_or_si256(low, bit(position));
                high =
                    _mm256_or_si256(high, bit(_mm256_sub_epi64(position, _mm256_set1_epi64x(64))));
            }
            (low, without_reserved(high))
        }

        // To test a bit it need not be made: its half is chosen by the top bit of the position, and
        // shifted by the others until the bit is the sign. No masks, fewer constants: a quarter
        // fewer instructions than the default. The print is inverted so that the left shift,
        // 63 - position, needs no subtraction; which inverts the choice of the half too.
        #[inline]
        #[target_feature(enable = "avx2")]
        unsafe fn test(block: Halves, print: u64) -> bool {
            let low = _mm256_castsi256_pd(block.0);
            let high = _mm256_castsi256_pd(with_reserved(block.1));
            let mut signs = _mm256_set1_epi64x(-1);
            for probe in 0..PER_LANE {
                let word = if probe < 2 { print } else { second(print) };
                let start = 28 * (probe as i64 % 2);
                // Field i at the top of lane i.
                let shifts = _mm256_setr_epi64x(57 - start, 50 - start, 43 - start, 36 - start);
                let field = _mm256_sllv_epi64(_mm256_set1_epi64x(!word as i64), shifts);
                let half = _mm256_blendv_pd(high, low, _mm256_castsi256_pd(field));
                let within = _mm256_srli_epi64::<58>(_mm256_add_epi64(field, field));
                let shifted = _mm256_sllv_epi64(_mm256_castpd_si256(half), within);
                signs = _mm256_and_si256(signs, shifted);
            }
            _mm256_movemask_pd(_mm256_castsi256_pd(signs)) == 0b1111
        }
    }

    struct Blend<const PER_LANE: usize>;

    impl<const PER_LANE: usize> Blend<PER_LANE> {
        /// The sign of lane i says whether the key takes word i + 4.
        #[inline]
        #[target_feature(enable = "avx2")]
        fn choice(print: u64) -> __m256i {
            _mm256_sllv_epi64(_mm256_set1_epi64x(print as i64), _mm256_setr_epi64x(0, 1, 2, 3))
        }

        /// The bits within the chosen words.
        #[inline]
        #[target_feature(enable = "avx2")]
        fn within(print: u64) -> __m256i {
            let mut bits = _mm256_setzero_si256();
            for probe in 0..PER_LANE {
                let word = if probe < 2 { print } else { second(print) };
                bits = _mm256_or_si256(bits, bit(fields(word, 24 * (probe as i64 % 2), 6)));
            }
            bits
        }
    }

    impl<const PER_LANE: usize> Kernel for Blend<PER_LANE> {
        #[inline]
        #[target_feature(enable = "avx2")]
        unsafe fn bits(print: u64) -> Halves {
            let takes_high = _mm256_cmpgt_epi64(_mm256_setzero_si256(), Self::choice(print));
            let bits = Self::within(print);
            (
                _mm256_andnot_si256(takes_high, bits),
                without_reserved(_mm256_and_si256(takes_high, bits)),
            )
        }

        #[inline]
        #[target_feature(enable = "avx2")]
        unsafe fn test(block: Halves, print: u64) -> bool {
            let words = _mm256_blendv_pd(
                _mm256_castsi256_pd(block.0),
                _mm256_castsi256_pd(with_reserved(block.1)),
                _mm256_castsi256_pd(Self::choice(print)),
            );
            _mm256_testc_si256(_mm256_castpd_si256(words), Self::within(print)) != 0
        }
    }

    struct Rounds<const FULL: usize, const HALF: usize>;

    impl<const FULL: usize, const HALF: usize> Kernel for Rounds<FULL, HALF> {
        #[inline]
        #[target_feature(enable = "avx2")]
        unsafe fn bits(print: u64) -> Halves {
            // Bits are counted from the top, which is one lower in the last word: the shift that
            // makes a bit keeps clear of bit 511 at no cost.
            let top = _mm256_set1_epi64x(i64::MIN);
            let high_top = _mm256_setr_epi64x(i64::MIN, i64::MIN, i64::MIN, 1 << 62);
            let mut low = _mm256_setzero_si256();
            let mut high = _mm256_setzero_si256();
            for round in 0..FULL {
                let word = if round == 0 { print } else { second(print) };
                low = _mm256_or_si256(low, _mm256_srlv_epi64(top, fields(word, 0, 6)));
                high = _mm256_or_si256(high, _mm256_srlv_epi64(high_top, fields(word, 24, 6)));
            }
            if HALF == 1 {
                let word = if FULL == 0 { print } else { second(print) };
                let position = fields(word, 0, 7);
                let other = _mm256_sub_epi64(position, _mm256_set1_epi64x(64));
                low = _mm256_or_si256(low, _mm256_srlv_epi64(top, position));
                high = _mm256_or_si256(high, _mm256_srlv_epi64(high_top, other));
            }
            (low, high)
        }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn load(line: &Line) -> Halves {
        let words = line.0.as_ptr();
        // SAFETY: the line is 64 bytes, aligned to 64.
        unsafe { (_mm256_load_si256(words.cast()), _mm256_load_si256(words.add(4).cast())) }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn store(line: &mut Line, (low, high): Halves) {
        let words = line.0.as_mut_ptr();
        // SAFETY: the line is 64 bytes, aligned to 64, and borrowed exclusively.
        unsafe {
            _mm256_store_si256(words.cast(), low);
            _mm256_store_si256(words.add(4).cast(), high);
        }
    }

    /// # Safety
    /// The processor has AVX2 and BMI2.
    #[target_feature(enable = "avx2,bmi2")]
    unsafe fn contains<K: Kernel>(lines: &[Line], digest: Digest) -> bool {
        // SAFETY: the caller's.
        unsafe { K::test(load(pick(lines, digest)), digest.print) }
    }

    /// Sets the bits; returns whether the key was certainly new.
    ///
    /// # Safety
    /// The processor has AVX2 and BMI2.
    #[target_feature(enable = "avx2,bmi2")]
    unsafe fn insert<K: Kernel>(lines: &mut [Line], digest: Digest) -> bool {
        let line = pick_mut(lines, digest);
        let (low, high) = load(line);
        // SAFETY: the caller's.
        let bits = unsafe { K::bits(digest.print) };
        let present = _mm256_testc_si256(low, bits.0) & _mm256_testc_si256(high, bits.1);
        store(line, (_mm256_or_si256(low, bits.0), _mm256_or_si256(high, bits.1)));
        present == 0
    }

    /// The keys to prefetch for, in step with the digests: none if the filter is small.
    #[inline(always)]
    fn distances<'a>(lines: &[Line], digests: &'a [Digest]) -> (&'a [Digest], &'a [Digest]) {
        if size_of_val(lines) <= CACHED {
            return (&[], &[]);
        }
        (ahead(digests, NEAR), ahead(digests, FAR))
    }

    /// # Safety
    /// The processor has AVX2 and BMI2.
    #[target_feature(enable = "avx2,bmi2")]
    unsafe fn contains_batch<K: Kernel>(lines: &[Line], digests: &[Digest], found: &mut [bool]) {
        let (near, far) = distances(lines, digests);
        let (most, rest) = found.split_at_mut(far.len());
        for (((&digest, &near), &far), found) in digests.iter().zip(near).zip(far).zip(most) {
            prefetch_far(pick(lines, far));
            prefetch_near(pick(lines, near));
            // SAFETY: the caller's.
            *found = unsafe { contains::<K>(lines, digest) };
        }
        for (&digest, found) in digests[far.len()..].iter().zip(rest) {
            // SAFETY: the caller's.
            *found = unsafe { contains::<K>(lines, digest) };
        }
    }

    /// # Safety
    /// The processor has AVX2 and BMI2.
    #[target_feature(enable = "avx2,bmi2")]
    unsafe fn insert_batch<K: Kernel>(lines: &mut [Line], digests: &[Digest], new: &mut [bool]) {
        let (near, far) = distances(lines, digests);
        let (most, rest) = new.split_at_mut(far.len());
        for (((&digest, &near), &far), new) in digests.iter().zip(near).zip(far).zip(most) {
            prefetch_far(pick(lines, far));
            prefetch_near(pick(lines, near));
            // SAFETY: the caller's.
            *new = unsafe { insert::<K>(lines, digest) };
        }
        for (&digest, new) in digests[far.len()..].iter().zip(rest) {
            // SAFETY: the caller's.
            *new = unsafe { insert::<K>(lines, digest) };
        }
    }

    fn supported() -> bool {
        is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi2")
    }

    struct Prototype<K> {
        lines: Lines,
        answers: Vec<bool>,
        kernel: PhantomData<K>,
    }

    impl<K: Kernel> Prototype<K> {
        fn boxed(lines: u64) -> Box<dyn Contestant<Digest>> {
            assert!(supported(), "checked by `race`");
            Box::new(Prototype::<K> {
                lines: Lines::new(lines, Pages::Huge),
                answers: vec![false; BATCH],
                kernel: PhantomData,
            })
        }
    }

    impl<K: Kernel> Contestant<Digest> for Prototype<K> {
        fn bits(&self) -> u64 {
            self.lines.get().len() as u64 * 512
        }

        fn clear(&mut self) {
            self.lines.get_mut().fill(Line([0; 8]));
        }

        fn insert(&mut self, digests: &[Digest]) {
            let lines = self.lines.get_mut();
            let mut new = 0;
            for &digest in digests {
                // SAFETY: AVX2 and BMI2 were detected when the prototype was made.
                new += usize::from(unsafe { insert::<K>(lines, digest) });
            }
            std::hint::black_box(new);
        }

        fn contains(&mut self, digests: &[Digest]) -> usize {
            let lines = self.lines.get();
            // SAFETY: AVX2 and BMI2 were detected when the prototype was made.
            digests.iter().filter(|&&digest| unsafe { contains::<K>(lines, digest) }).count()
        }

        fn batch(&mut self) -> Option<&mut dyn Batch<Digest>> {
            Some(self)
        }
    }

    impl<K: Kernel> Batch<Digest> for Prototype<K> {
        fn insert_batch(&mut self, digests: &[Digest]) {
            for batch in digests.chunks(BATCH) {
                let answers = &mut self.answers[..batch.len()];
                // SAFETY: AVX2 and BMI2 were detected when the prototype was made.
                unsafe { insert_batch::<K>(self.lines.get_mut(), batch, answers) };
            }
        }

        fn contains_batch(&mut self, digests: &[Digest]) -> usize {
            let mut found = 0;
            for batch in digests.chunks(BATCH) {
                let answers = &mut self.answers[..batch.len()];
                // SAFETY: AVX2 and BMI2 were detected when the prototype was made.
                unsafe { contains_batch::<K>(self.lines.get(), batch, answers) };
                found += count(answers);
            }
            found
        }
    }

    fn prototype(layout: Layout, per_lane: usize, lines: u64) -> Box<dyn Contestant<Digest>> {
        let make = match (layout, per_lane) {
            (Layout::Split, _) => Prototype::<Split>::boxed,
            (Layout::Sect, 1) => Prototype::<Sect<1>>::boxed,
            (Layout::Sect, 2) => Prototype::<Sect<2>>::boxed,
            (Layout::Sect, 3) => Prototype::<Sect<3>>::boxed,
            (Layout::Sect, _) => Prototype::<Sect<4>>::boxed,
            (Layout::Blend, 1) => Prototype::<Blend<1>>::boxed,
            (Layout::Blend, 2) => Prototype::<Blend<2>>::boxed,
            (Layout::Blend, _) => Prototype::<Blend<3>>::boxed,
            (Layout::Rounds, 1) => Prototype::<Rounds<0, 1>>::boxed,
            (Layout::Rounds, 2) => Prototype::<Rounds<1, 0>>::boxed,
            (Layout::Rounds, 3) => Prototype::<Rounds<1, 1>>::boxed,
            (Layout::Rounds, _) => Prototype::<Rounds<2, 0>>::boxed,
        };
        make(lines)
    }

    /// Times all layouts at `items` keys and prints one line for each.
    pub(super) fn race(
        items: u64,
        rate: f64,
        rounds: usize,
        out: &mut impl Write,
    ) -> Result<(), Box<dyn Error>> {
        if !supported() {
            return Err("the layout prototypes need a processor with AVX2 and BMI2".into());
        }
        let work = Workload::<Digest>::new(items);
        let mut entrants: Vec<Entrant<Digest>> = Layout::ALL
            .into_iter()
            .map(|layout| {
                let (bits, per_lane) = layout.smallest(rate);
                let lines = (bits * items as f64 / 512.0).ceil() as u64;
                Entrant::new(layout.name(), "", Some(rate), prototype(layout, per_lane, lines))
            })
            .collect();
        let mut limits = Limit::all(entrants[0].bits() / 8, Pages::Huge, &work.hits);
        race::run(&mut entrants, &work, &Op::ALL, &mut limits, rate, rounds);

        writeln!(out, "\n{items} digests at {}%, ns per key, median of {rounds}", rate * 100.0)?;
        write!(out, "{:<10}{:>10}{:>10}", "", "bits/key", "rate")?;
        for op in Op::ALL {
            write!(out, "{:>13}", op.name())?;
        }
        writeln!(out)?;
        for entrant in &entrants {
            let bits = entrant.bits() as f64 / items as f64;
            let rate = entrant.measured_rate() * 100.0;
            write!(out, "{:<10}{bits:>10.2}{rate:>9.4}%", entrant.who)?;
            for op in Op::ALL {
                let ns = entrant.ns(op).expect("prototypes offer every operation");
                write!(out, "{ns:>13.2}")?;
            }
            writeln!(out)?;
        }
        for limit in &limits {
            writeln!(out, "{:<20}{:<14}{:>6.2}", limit.who(), limit.pipeline(), limit.ns())?;
        }
        Ok(())
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod prototypes {
    use std::error::Error;
    use std::io::Write;

    pub(super) fn race(_: u64, _: f64, _: usize, _: &mut impl Write) -> Result<(), Box<dyn Error>> {
        Err("the layout prototypes need an x86-64 processor with AVX2".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Bits per key that an independent program found.
    #[test]
    fn the_models_agree_with_independent_ones() {
        for (layout, expected) in
            [(Layout::Split, [10.10, 15.72, 23.61]), (Layout::Sect, [10.08, 15.69, 22.07])]
        {
            for (rate, expected) in [0.01, 0.001, 0.0001].into_iter().zip(expected) {
                let (bits, _) = layout.smallest(rate);
                assert!((bits - expected).abs() < 0.01, "{}: {bits} at {rate}", layout.name());
            }
        }
    }
}
