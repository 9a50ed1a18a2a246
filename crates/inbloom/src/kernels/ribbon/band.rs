//! Equations brought into echelon form: at each slot at most one whose first coefficient is there.
//!
//! An equation takes the slot at which it begins if that is free. Otherwise the one that is there is
//! added to it, so that the sum begins later, and so on, for 19 steps on average. Each step waits for
//! the one before: a load, an exclusive or, a count of zeros. So four equations take steps in turns,
//! of four *stretches* of the layer that have nothing to do with each other.
//!
//! **Stretches.** A bucket's equations reach into the next bucket. If the first bucket of a stretch
//! is left out, no equation of the stretch before reaches what the others of this one take. These
//! *borders* are filled in the end, one after the other. They fit between their neighbors less well and bump
//! about 40 keys more, each of three; that is why a small layer is one stretch.
//!
//! What comes out depends on the keys of each class of each bucket and on the order of the buckets,
//! but not on the order within a class: equations hold together or not, in any order.

use alloc::vec::Vec;
use core::ops::Range;

use super::{BUCKET, Equation, LIMITS, start_in};

/// The slots of a layer, each with an equation, or with zeros if there is none.
///
/// No equation reaches beyond the last slot: of the one at slot s, bit i of the coefficients is set
/// only if there is a slot s + i.
#[derive(Debug, Default)]
pub(crate) struct Band {
    /// Bit i is for slot i from here on. Bit 0 is set.
    coefficients: Vec<u64>,
    /// Fingerprints, in the upper halves.
    prints: Vec<u64>,
}

/// The most slots of a band: their numbers have 32 bits.
pub(crate) const MOST_SLOTS: u64 = 1 << 32;

impl Band {
    /// Makes so many empty slots, in memory that may have been another band's.
    pub(crate) fn reset(&mut self, slots: u64) {
        assert!(slots <= MOST_SLOTS, "slots with numbers of 32 bits");
        for words in [&mut self.coefficients, &mut self.prints] {
            words.clear();
            words.resize(slots as usize, 0);
        }
    }

    pub(crate) fn slots(&self) -> usize {
        self.coefficients.len()
    }

    /// The equations of groups of 16 slots: their coefficients, and their fingerprints in the upper
    /// halves.
    pub(super) fn groups(
        &self,
    ) -> impl DoubleEndedIterator<Item = (&[u64; 16], &[u64; 16])> + ExactSizeIterator {
        let (coefficients, _) = self.coefficients.as_chunks();
        coefficients.iter().zip(self.prints.as_chunks().0)
    }

    /// Adds the equations of these keys, and says whether they can hold together with those that
    /// are there. For a few: it takes one after the other.
    ///
    /// Panics if there are not as many slots as `starts` reach over.
    pub(crate) fn add_all(&mut self, keys: &[u64], layer: u64, starts: u64, width: u32) -> bool {
        keys.iter().all(|key| {
            let start = start_in(*key, layer, starts);
            let mut equation = Reduced::new(Equation::at(start, *key, layer), width);
            loop {
                let slot = equation.slot();
                match equation.step(self.coefficients[slot], self.prints[slot]) {
                    StepOutcome::Goes => {}
                    StepOutcome::Fits => {
                        self.coefficients[slot] = equation.coefficients;
                        self.prints[slot] = equation.print();
                        return true;
                    }
                    StepOutcome::Follows => return true,
                    StepOutcome::Contradicts => return false,
                }
            }
        })
    }
}

/// An equation on its way to a slot, in two words: four of them are in registers at once.
#[derive(Clone, Copy, Debug, Default)]
struct Reduced {
    coefficients: u64,
    /// The fingerprint in the upper half, and the slot at which it begins in the lower.
    print_and_slot: u64,
}

enum StepOutcome {
    /// It begins at a later slot now.
    Goes,
    /// Its slot is free.
    Fits,
    /// It is the sum of others and needs no slot.
    Follows,
    Contradicts,
}

impl Reduced {
    #[inline(always)]
    fn new(equation: Equation, width: u32) -> Reduced {
        let print_and_slot = u64::from(equation.print(width)) << 32 | equation.start;
        Reduced { coefficients: equation.coefficients, print_and_slot }
    }

    #[inline(always)]
    fn slot(&self) -> usize {
        self.print_and_slot as u32 as usize
    }

    #[inline(always)]
    fn print(&self) -> u64 {
        self.print_and_slot >> 32 << 32
    }

    /// Adds what is in its slot.
    #[inline(always)]
    fn step(&mut self, coefficients: u64, print: u64) -> StepOutcome {
        self.coefficients ^= coefficients;
        self.print_and_slot ^= print;
        // Both begin here, so that their sum begins later: 0 only if the slot is free.
        let skipped = self.coefficients.trailing_zeros();
        if skipped.wrapping_sub(1) < 63 {
            self.print_and_slot += u64::from(skipped);
            self.coefficients >>= skipped;
            StepOutcome::Goes
        } else if skipped == 0 {
            StepOutcome::Fits
        } else if self.print() == 0 {
            StepOutcome::Follows
        } else {
            StepOutcome::Contradicts
        }
    }
}

/// A layer to be filled.
pub(crate) struct Filling<'a> {
    /// The keys, by where they start in this layer, and each once.
    pub keys: &'a [u64],
    pub layer: u64,
    /// Slots at which equations can begin.
    pub starts: u64,
    pub width: u32,
    /// Empty slots, 63 more than can be begun at.
    pub band: &'a mut Band,
    /// Zeros, two bits for each bucket.
    pub thresholds: &'a mut [u64],
    /// Gets the keys that did not fit, in no order.
    pub bumped: &'a mut Vec<u64>,
}

impl Filling<'_> {
    pub(super) fn check(&self) {
        assert_eq!(self.band.slots() as u64, self.starts + 63, "slots that equations reach");
        assert!(self.starts.div_ceil(BUCKET) <= self.thresholds.len() as u64 * 32, "thresholds");
    }

    /// The keys that start from this slot on.
    fn first_key_from(&self, slot: u64) -> usize {
        self.keys.partition_point(|key| start_in(*key, self.layer, self.starts) < slot)
    }

    fn set_threshold(&mut self, bucket: u64, threshold: usize) {
        self.thresholds[(bucket / 32) as usize] |= (threshold as u64) << (bucket % 32 * 2);
    }
}

/// Stretches of a layer, and the fewest buckets that it has then.
const STRETCHES: usize = 4;
const FEWEST_BUCKETS: u64 = 512;
/// A bucket of more keys bumps all of them. Of keys that are hashes none has: it has at most 197 on
/// average, in a layer of three blocks, and 132 in a large one.
const MOST_KEYS: usize = 256;
/// The threshold of a bucket that bumps nobody.
const KEEPS_ALL: usize = 3;

/// The keys of some neighboring buckets, of which the equations of one class of one bucket are being
/// added.
struct Stretch {
    /// The buckets after this one, and their keys.
    buckets: Range<u64>,
    keys: Range<usize>,
    bucket: u64,
    /// The first of its keys.
    first_key: usize,
    /// Its equations in the order of its keys. Of those that were added, the slot is where they are,
    /// and the coefficients are 0 if they needed none.
    equations: [Reduced; MOST_KEYS],
    /// Class c has the equations from `bounds[c + 1]` to before `bounds[c]`.
    bounds: [usize; LIMITS.len()],
    class: usize,
    /// The first equation of the class, which comes last.
    class_first: usize,
    /// The equation that takes steps, and what has become of it; none if all are done.
    current: usize,
    flight: Reduced,
    is_done: bool,
}

impl Stretch {
    /// Begins with the first bucket that has keys.
    fn new(filling: &mut Filling<'_>, buckets: Range<u64>) -> Stretch {
        let first = filling.first_key_from(buckets.start * BUCKET);
        let end = filling.first_key_from(buckets.end * BUCKET);
        let mut stretch = Stretch {
            buckets,
            keys: first..end,
            bucket: 0,
            first_key: first,
            equations: [Reduced::default(); MOST_KEYS],
            bounds: [0; LIMITS.len()],
            class: 0,
            class_first: 0,
            current: 0,
            flight: Reduced::default(),
            is_done: false,
        };
        stretch.next_bucket(filling);
        stretch
    }

    /// Goes to the first bucket of those to come that has keys.
    fn next_bucket(&mut self, filling: &mut Filling<'_>) {
        let Filling { layer, starts, width, .. } = *filling;
        while let Some(bucket) = self.buckets.next() {
            let (first, end) = (bucket * BUCKET, (bucket + 1) * BUCKET);
            let keys = &filling.keys[self.keys.clone()];
            let mut count = 0;
            for (key, equation) in keys.iter().zip(&mut self.equations) {
                let start = start_in(*key, layer, starts);
                if start >= end {
                    break;
                }
                *equation = Reduced::new(Equation::at(start, *key, layer), width);
                count += 1;
            }
            if count == MOST_KEYS {
                count = keys.partition_point(|key| start_in(*key, layer, starts) < end);
            }
            (self.bucket, self.first_key) = (bucket, self.keys.start);
            self.keys.start += count;
            if count > MOST_KEYS {
                filling.bumped.extend_from_slice(&keys[..count]);
                filling.set_threshold(bucket, 0);
                continue;
            }
            let equations = &self.equations[..count];
            let below =
                |limit: u64| equations.partition_point(|at| (at.slot() as u64) < first + limit);
            self.bounds = LIMITS.map(below);
            // Class by class from the upper end, so that what is bumped is all below some offset.
            if self.go_to_class(0) {
                return;
            }
            filling.set_threshold(bucket, KEEPS_ALL);
        }
        self.is_done = true;
    }

    /// Goes to the first class from this one on that has keys, if any has.
    fn go_to_class(&mut self, first: usize) -> bool {
        let mut classes = first..KEEPS_ALL;
        let Some(class) = classes.find(|class| self.bounds[class + 1] < self.bounds[*class]) else {
            return false;
        };
        (self.class, self.class_first) = (class, self.bounds[class + 1]);
        self.current = self.bounds[class] - 1;
        self.flight = self.equations[self.current];
        true
    }

    /// Goes on when all equations of a class have been added.
    #[inline(never)]
    fn next_class(&mut self, filling: &mut Filling<'_>) {
        if !self.go_to_class(self.class + 1) {
            filling.set_threshold(self.bucket, KEEPS_ALL);
            self.next_bucket(filling);
        }
    }

    /// Goes on when an equation contradicts others: what its class has added is taken out again,
    /// and its keys and those below are bumped.
    ///
    /// # Safety
    ///
    /// The rows are those of the band.
    #[inline(never)]
    unsafe fn give_up(&mut self, filling: &mut Filling<'_>, rows: Rows) {
        let end = self.bounds[self.class];
        for equation in &self.equations[self.current + 1..end] {
            if equation.coefficients != 0 {
                // They were the last to come, so that no other depends on them.
                // SAFETY: it was stored there.
                unsafe { rows.store(equation.slot(), 0, 0) };
            }
        }
        filling.bumped.extend_from_slice(&filling.keys[self.first_key..][..end]);
        filling.set_threshold(self.bucket, self.class);
        self.next_bucket(filling);
    }
}

/// The words of a band.
#[derive(Clone, Copy)]
struct Rows {
    coefficients: *mut u64,
    prints: *mut u64,
}

impl Rows {
    /// # Safety
    ///
    /// The band has this slot, and nobody else uses it.
    #[inline(always)]
    unsafe fn load(self, slot: usize) -> (u64, u64) {
        // SAFETY: guaranteed by the caller.
        unsafe { (*self.coefficients.add(slot), *self.prints.add(slot)) }
    }

    /// # Safety
    ///
    /// As that of `load`.
    #[inline(always)]
    unsafe fn store(self, slot: usize, coefficients: u64, print: u64) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            *self.coefficients.add(slot) = coefficients;
            *self.prints.add(slot) = print;
        }
    }
}

/// Fills a layer. It was checked.
#[inline(always)]
pub(super) fn fill(mut filling: Filling<'_>) {
    let Band { coefficients, prints } = &mut *filling.band;
    let rows = Rows { coefficients: coefficients.as_mut_ptr(), prints: prints.as_mut_ptr() };
    let buckets = filling.starts.div_ceil(BUCKET);
    if buckets < FEWEST_BUCKETS {
        let mut all = Stretch::new(&mut filling, 0..buckets);
        // SAFETY: the rows are those of this band.
        return unsafe { alone(&mut filling, rows, &mut all) };
    }
    let border = |number: usize| buckets * number as u64 / STRETCHES as u64;
    let mut stretches: [Stretch; STRETCHES] = core::array::from_fn(|number| {
        let first = border(number) + u64::from(number > 0);
        Stretch::new(&mut filling, first..border(number + 1))
    });
    // SAFETY: as above.
    unsafe { side_by_side(&mut filling, rows, &mut stretches) };
    // What is left when the first is done, and then the borders.
    for stretch in &mut stretches {
        // SAFETY: as above.
        unsafe { alone(&mut filling, rows, stretch) };
    }
    for number in 1..STRETCHES {
        let [stretch, ..] = &mut stretches;
        *stretch = Stretch::new(&mut filling, border(number)..border(number) + 1);
        // SAFETY: as above.
        unsafe { alone(&mut filling, rows, stretch) };
    }
}

/// Adds the equations of stretches, which take steps in turns, until one of them is done. Written out
/// for each: in a loop over an array, the equations would not be in registers.
///
/// # Safety
///
/// The rows are those of the filling's band, which was checked to have each slot that an equation can
/// reach, and which nobody else uses meanwhile.
#[inline(always)]
unsafe fn side_by_side(
    filling: &mut Filling<'_>,
    rows: Rows,
    [a, b, c, d]: &mut [Stretch; STRETCHES],
) {
    if a.is_done || b.is_done || c.is_done || d.is_done {
        return;
    }
    let (mut in_a, mut in_b, mut in_c, mut in_d) = (a.flight, b.flight, c.flight, d.flight);
    // SAFETY: guaranteed by the caller.
    unsafe {
        while turn(&mut in_a, a, filling, rows)
            && turn(&mut in_b, b, filling, rows)
            && turn(&mut in_c, c, filling, rows)
            && turn(&mut in_d, d, filling, rows)
        {}
    }
    (a.flight, b.flight, c.flight, d.flight) = (in_a, in_b, in_c, in_d);
}

/// Adds the equations of one stretch.
///
/// # Safety
///
/// As that of `side_by_side`.
#[inline(always)]
unsafe fn alone(filling: &mut Filling<'_>, rows: Rows, stretch: &mut Stretch) {
    let mut flight = stretch.flight;
    // SAFETY: guaranteed by the caller.
    while !stretch.is_done && unsafe { turn(&mut flight, stretch, filling, rows) } {}
}

/// Takes a step with the equation of a stretch, or begins with the next, and says whether there is
/// one.
///
/// # Safety
///
/// As that of `side_by_side`.
#[inline(always)]
unsafe fn turn(
    flight: &mut Reduced,
    stretch: &mut Stretch,
    filling: &mut Filling<'_>,
    rows: Rows,
) -> bool {
    let slot = flight.slot();
    // SAFETY: an equation begins below `starts`, and its coefficients reach over 64 slots, all of
    // which are there. No row reaches beyond the last slot (see `Band`), and neither does a sum of
    // rows that begin at one slot. So the first coefficient is at a slot.
    let (coefficients, print) = unsafe { rows.load(slot) };
    match flight.step(coefficients, print) {
        StepOutcome::Goes => return true,
        StepOutcome::Fits => {
            // SAFETY: as above.
            unsafe { rows.store(slot, flight.coefficients, flight.print()) };
            stretch.equations[stretch.current] = *flight;
        }
        StepOutcome::Follows => stretch.equations[stretch.current].coefficients = 0,
        StepOutcome::Contradicts => {
            // SAFETY: guaranteed by the caller.
            unsafe { stretch.give_up(filling, rows) };
            *flight = stretch.flight;
            return !stretch.is_done;
        }
    }
    if stretch.current > stretch.class_first {
        stretch.current -= 1;
        *flight = stretch.equations[stretch.current];
        return true;
    }
    stretch.next_class(filling);
    *flight = stretch.flight;
    !stretch.is_done
}
