//! A filter that forgets: generations of blocked filters, of which the oldest is dropped.
//!
//! **Idea.** The window, in time or in keys, is divided into G steps, and there are G + 1 generations:
//! one that is being filled, and one for each step before it. A key goes into the newest; a query asks
//! all of them. When a step is over the oldest is dropped and a new one begun, so that a key is found
//! for at least the window and at most one step longer. A key that comes again is put into the newest
//! again, and so starts anew.
//!
//! **The clock is an argument.** [`Filter::advance`](crate::Filter::advance) tells the time, and nothing
//! else moves it. The first call only says where the clock stands: what was inserted before counts as
//! inserted then. A window in keys needs no clock.
//!
//! **Rate.** Each generation is planned for items / G keys at rate / (G + 1), so that all together keep
//! the rate if no step has more than its share of the keys. More in one step is taken, at a higher rate,
//! which [`Filter::rate`](crate::Filter::rate) tells.
//!
//! **Layout.** A directory of little-endian words: the clock (all ones before the first call), the number
//! of generations, and of each, oldest first, when it began, its keys and its set bits; zeros up to a
//! multiple of 64 bytes; then the blocks of each generation.
//!
//! **Cost.** A miss waits for G + 1 cache lines, whose waits overlap. With 4 steps it takes 1.7 times
//! the bits of a blocked filter for the same keys at 1%, 1.6 at 0.1% and 1.3 at 0.01%. **When not.** If it is enough to forget everything at
//! once when too many bits are set, use auto-clear.
//!
//! Source: Yoon, "Aging Bloom filter with two active buffers for dynamic sets", TKDE 2010 (generations).

mod plan;
mod row;

use alloc::borrow::{Cow, ToOwned};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use crate::codec;
use crate::digest::Digest;
use crate::error::{Error, Result, mismatch};
use crate::estimate::Estimate;
use crate::kind::Kind;
use crate::kinds::blocked::Blocked;
use crate::membership::Membership;
use crate::memory::allocated;
use crate::paging::Paging;
use crate::plan::{Plan, Span};
use crate::profile::Slice;
use crate::state::{Clocked, Intersecting, Measured, Positioned, Removable, State};
use crate::storage::{self, Bits, Cells, Order};
pub(crate) use row::ROW;

/// A set whose keys expire when they were inserted longer ago than its window.
pub struct Window {
    plan: Plan,
    /// None until it is set.
    now: Option<u64>,
    /// Oldest first; the last is being filled. Never empty.
    generations: VecDeque<Generation>,
}

impl fmt::Debug for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::state::debug("Window", self, f)
    }
}

/// One generation of a window, see [`Filter::window_steps`](crate::Filter::window_steps).
///
/// ```
/// use inbloom::{Filter, Kind, Plan};
///
/// let mut seen = Filter::new(Plan::builder(Kind::Window).last(1000).generations(4).build()?)?;
/// seen.insert("alice")?;
/// let newest = seen.window_steps()[0];
/// assert!(newest.items == 1 && newest.fill > 0.0);
/// # Ok::<(), inbloom::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WindowStep {
    /// When it began, by the window's clock. `None` before the clock is set. A window of a number
    /// of keys counts keys instead of time.
    pub began: Option<u64>,
    /// The number of keys that were new to it.
    pub items: u64,
    /// The share of its bits that are set.
    pub fill: f64,
}

struct Generation {
    began: u64,
    /// The number of keys that were new to it.
    items: u64,
    members: Blocked,
}

impl Generation {
    fn new(plan: Plan, began: u64) -> Result<Generation> {
        Ok(Generation { began, items: 0, members: Blocked::new(plan)? })
    }
}

/// The clock in a file, before it is set.
const NO_CLOCK: u64 = u64::MAX;
/// Words of the directory, before and for each generation.
const HEAD: usize = 2;
const ENTRY: usize = 3;

fn directory_bytes(generations: usize) -> usize {
    ((HEAD + ENTRY * generations) * 8).next_multiple_of(64)
}

impl Window {
    /// Returns an empty window. Panics if the plan is for another kind.
    pub fn new(plan: Plan) -> Result<Window> {
        assert_eq!(plan.kind(), Kind::Window, "a plan for another kind");
        let first = Generation::new(plan.generation(), 0)?;
        Ok(Window { plan, now: None, generations: VecDeque::from([first]) })
    }

    /// Reads the payload of a file, which may be untrusted.
    pub(crate) fn from_cells(plan: Plan, cells: Cells) -> Result<Window> {
        let word = |at: usize| codec::u64_at(cells.bytes(), at * 8);
        let too_short =
            || mismatch("directory of the window", "more words", "the end of the payload");
        let (now, count) = (word(0).ok_or_else(too_short)?, word(1).ok_or_else(too_short)?);
        let kept = plan.kept_generations();
        if !(1..=kept).contains(&count) {
            return Err(mismatch("number of generations", format_args!("1 to {kept}"), count));
        }
        let count = count as usize;
        let each = plan.generation();
        let size = usize::try_from(each.bytes()).map_err(|_| too_short())?;
        let directory = directory_bytes(count);
        let expected = size.checked_mul(count).and_then(|all| all.checked_add(directory));
        if expected != Some(cells.bytes().len()) {
            let all = expected.map_or("more than memory".to_owned(), |bytes| bytes.to_string());
            return Err(mismatch("length of the payload", all, cells.bytes().len()));
        }
        let used = (HEAD + ENTRY * count) * 8;
        if cells.bytes()[used..directory].iter().any(|byte| *byte != 0) {
            return Err(mismatch("padding", "zeros", "other bytes"));
        }
        let mut entries = Vec::with_capacity(count);
        let mut before = 0;
        for at in 0..count {
            let entry = |field| word(HEAD + ENTRY * at + field).ok_or_else(too_short);
            let (began, items, ones) = (entry(0)?, entry(1)?, entry(2)?);
            if began < before || now < began {
                let expected = "in order, and not after the clock";
                return Err(mismatch("start of a generation", expected, began));
            }
            if ones > each.cells() {
                let most = format!("at most {}", each.cells());
                return Err(mismatch("number of set bits", most, ones));
            }
            before = began;
            entries.push((began, items, ones));
        }
        let lengths = core::iter::once(directory).chain(core::iter::repeat_n(size, count));
        let parts = cells.split(lengths).into_iter().skip(1);
        let generations = entries.into_iter().zip(parts).map(|((began, items, ones), cells)| {
            Generation { began, items, members: Blocked::with_bits(each, Bits { cells, ones }) }
        });
        let generations = generations.collect();
        Ok(Window { plan, now: (now != NO_CLOCK).then_some(now), generations })
    }

    /// Returns the plan it was made from.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns whether the digest may have been inserted within the window: false is certain, true
    /// is probable.
    #[must_use]
    pub fn contains(&self, digest: Digest) -> bool {
        self.generations.iter().rev().any(|generation| generation.members.contains(digest))
    }

    /// Returns what each generation holds, the newest first.
    pub fn steps(&self) -> impl Iterator<Item = WindowStep> {
        self.generations.iter().rev().map(|generation| {
            let Generation { began, items, members } = generation;
            let began = self.now.map(|_| *began);
            WindowStep { began, items: *items, fill: members.plan().fill_of(members.bits.ones) }
        })
    }

    /// Returns the length of a step, in milliseconds or keys: rounded up, so that the steps make up
    /// the window.
    fn step(&self) -> u64 {
        let (Some(Span::Millis(span) | Span::Items(span)), steps) =
            (self.plan.span(), u64::from(self.plan.generations()))
        else {
            unreachable!("a plan for a window has one")
        };
        span.div_ceil(steps)
    }

    fn newest(&mut self) -> &mut Generation {
        self.generations.back_mut().expect("never empty")
    }

    /// Begins a generation in the place of the oldest, or beside it while there are fewer than are kept.
    fn begin(&mut self, began: u64) -> Result<()> {
        let kept = self.plan.kept_generations() as usize;
        let dropped =
            if self.generations.len() >= kept { self.generations.pop_front() } else { None };
        let next = match dropped {
            Some(Generation { mut members, .. }) => {
                members.clear()?;
                Generation { began, items: 0, members }
            }
            None => Generation::new(self.plan.generation(), began)?,
        };
        self.generations.push_back(next);
        Ok(())
    }

    /// Returns the place of the first generation that began at `began` or later, less than a step
    /// later: it is put in if steps without inserts left none there. The newest covers what began
    /// after it.
    fn covering(&mut self, began: u64) -> Result<usize> {
        let no_earlier = |ours: &Generation| ours.began >= began;
        let Some(at) = self.generations.iter().position(no_earlier) else {
            return Ok(self.generations.len() - 1);
        };
        let later = self.generations[at].began - began;
        if later >= self.step() {
            let begins = began + later % self.step();
            self.generations.insert(at, Generation::new(self.plan.generation(), begins)?);
        }
        Ok(at)
    }

    /// Returns whether a time window has no use for a generation any more: its last key came a
    /// window ago.
    fn is_over(&self, began: u64, now: u64) -> bool {
        match self.plan.span() {
            Some(Span::Millis(span)) => {
                now >= began.saturating_add(self.step()).saturating_add(span)
            }
            _ => false,
        }
    }
}

impl Membership for Window {
    fn contains_digest(&self, digest: Digest) -> bool {
        self.contains(digest)
    }

    fn insert_digest(&mut self, digest: Digest) -> Result<bool> {
        if self.is_read_only() {
            return Err(Error::ReadOnly);
        }
        let found = self.contains(digest);
        let by_items = matches!(self.plan.span(), Some(Span::Items(_)));
        let step = self.step();
        let newest = self.newest();
        if by_items && newest.items >= step && !newest.members.contains(digest) {
            let began = newest.began;
            self.begin(began)?;
        }
        let newest = self.newest();
        // A file may give any number of them.
        newest.items =
            newest.items.saturating_add(u64::from(newest.members.insert_digest(digest)?));
        Ok(!found)
    }

    fn prefetch(&self, digests: &[Digest]) {
        for generation in &self.generations {
            generation.members.prefetch(digests);
        }
    }

    fn contains_run(&self, run: &[Digest], next: &[Digest], found: &mut [bool]) {
        found.fill(false);
        let mut answers = vec![false; run.len()];
        for generation in &self.generations {
            generation.members.contains_run(run, next, &mut answers);
            for (found, answer) in found.iter_mut().zip(&answers) {
                *found |= answer;
            }
        }
    }

    fn insert_run(&mut self, run: &[Digest], next: &[Digest], new: &mut Vec<bool>) -> Result<()> {
        self.prefetch(next);
        for digest in run {
            new.push(self.insert_digest(*digest)?);
        }
        Ok(())
    }
}

impl State for Window {
    fn plan(&self) -> &Plan {
        &self.plan
    }

    fn measured(&self) -> &dyn Measured {
        self
    }

    fn clear(&mut self) -> Result<()> {
        if self.is_read_only() {
            return Err(Error::ReadOnly);
        }
        self.generations.drain(..self.generations.len() - 1);
        let newest = self.newest();
        newest.items = 0;
        newest.members.clear()
    }

    fn copy(&self) -> Result<Box<dyn State>> {
        let generations = self.generations.iter().map(|generation| {
            let members =
                Blocked::with_bits(self.plan.generation(), generation.members.bits.copy()?);
            Ok(Generation { members, ..*generation })
        });
        let generations = generations.collect::<Result<_>>()?;
        Ok(Box::new(Window { plan: self.plan, now: self.now, generations }))
    }

    fn same(&self, other: &dyn State) -> bool {
        let other = other.of::<Window>();
        let same = |(here, there): (&Generation, &Generation)| {
            here.began == there.began && here.members.bits == there.members.bits
        };
        self.now == other.now
            && self.generations.len() == other.generations.len()
            && self.generations.iter().zip(&other.generations).all(same)
    }

    /// By time, a key goes into the first generation that began no earlier than its own, and so stays at
    /// least as long as it would have in its own filter, and at most a step longer. By keys, it goes into
    /// the generation of its age, counted from the newest.
    fn unite(&mut self, other: &dyn State) -> Result<()> {
        let other = other.of::<Window>();
        if self.is_read_only() {
            return Err(Error::ReadOnly);
        }
        if let Some(now) = other.now {
            self.advance(now)?;
        }
        let by_items = matches!(self.plan.span(), Some(Span::Items(_)));
        if by_items {
            while self.generations.len() < other.generations.len() {
                let first = Generation::new(self.plan.generation(), 0)?;
                self.generations.push_front(first);
            }
        }
        for (age, theirs) in other.generations.iter().rev().enumerate() {
            let newest = self.generations.len() - 1;
            let at = if by_items {
                newest - age
            } else if other.now.is_none() {
                newest
            } else if self.is_over(theirs.began, self.now.unwrap_or(0)) {
                continue;
            } else {
                self.covering(theirs.began)?
            };
            let ours = &mut self.generations[at];
            ours.members.bits.unite(&theirs.members.bits)?;
            // The keys that both have are known to nobody. To count them twice would end the step
            // before as many distinct keys came, and forget others too early.
            ours.items = ours.items.max(theirs.items);
        }
        Ok(())
    }

    fn count(&self, digest: Digest) -> u64 {
        u64::from(self.contains_digest(digest))
    }

    fn check(&self, _digest: Digest) -> Result<()> {
        Ok(())
    }

    fn into_bits(self: Box<Self>) -> Option<Bits> {
        None
    }

    fn expect(&self, _order: Order) {}

    /// Its pages come in as they are touched.
    fn set_paging(&mut self, _paging: Paging) {}

    fn removable(&mut self) -> Option<&mut dyn Removable> {
        None
    }

    fn intersecting(&mut self) -> Option<&mut dyn Intersecting> {
        None
    }

    fn clocked(&mut self) -> Option<&mut dyn Clocked> {
        Some(self)
    }

    fn positioned(&self) -> Option<&dyn Positioned> {
        None
    }
}

impl Measured for Window {
    fn occupied(&self) -> u64 {
        self.generations.iter().map(|generation| generation.members.bits.ones).sum()
    }

    fn fill(&self) -> f64 {
        self.plan.fill_of(self.occupied())
    }

    fn recount(&self) -> Option<u64> {
        let counted = self.generations.iter().map(|generation| {
            let counted = generation.members.recount()?;
            (counted == generation.members.bits.ones).then_some(counted)
        });
        counted.sum()
    }

    fn profile(&self, slices: usize) -> Vec<Slice> {
        // A generation is compared with itself: that takes a few slices, however many there are.
        let each = (slices / self.generations.len()).max(slices.min(4));
        let generations = self.generations.iter();
        generations.flat_map(|generation| generation.members.profile(each)).collect()
    }

    fn bytes(&self) -> u64 {
        self.plan.generation().bytes() * self.generations.len() as u64
    }

    /// As if all generations were there: time alone makes it so.
    fn memory(&self) -> u64 {
        let count = self.plan.kept_generations();
        let places = count.next_power_of_two().max(4) * size_of::<Generation>() as u64;
        allocated(places) + count * storage::allocated(self.plan.generation().bytes())
    }

    fn rate(&self) -> f64 {
        let missed: f64 =
            self.generations.iter().map(|generation| 1.0 - generation.members.rate()).product();
        1.0 - missed
    }

    /// A key that came again in a later step counts in both.
    fn estimate(&self, _inserted: Option<u64>) -> Estimate {
        Estimate::sum(self.generations.iter().map(|generation| generation.members.estimate(None)))
    }

    fn room(&self) -> u64 {
        let items = self.estimate(None).rounded();
        self.plan.items_at(self.plan.rate()).saturating_sub(items)
    }

    fn next_growth(&self) -> Option<u64> {
        None
    }

    fn details(&self) -> Vec<(&'static str, String)> {
        let clock = self.now.map_or("not set".to_owned(), |now| format!("{now} ms"));
        let generations = self
            .steps()
            .map(|step| format!("{} keys ({:.1}% of bits)", step.items, step.fill * 100.0));
        let span = self.plan.span().map_or(String::new(), |span| span.to_string());
        vec![
            ("window", format!("{span}, in {} steps", self.plan.generations())),
            ("clock", clock),
            ("generations", generations.collect::<Vec<_>>().join(", then ")),
        ]
    }

    fn bits(&self) -> Option<&Bits> {
        None
    }

    fn payload(&self) -> Cow<'_, [u8]> {
        let mut bytes = Vec::with_capacity(self.bytes() as usize + directory_bytes(0));
        bytes.extend(self.now.unwrap_or(NO_CLOCK).to_le_bytes());
        bytes.extend((self.generations.len() as u64).to_le_bytes());
        for Generation { began, items, members } in &self.generations {
            for field in [*began, *items, members.bits.ones] {
                bytes.extend(field.to_le_bytes());
            }
        }
        bytes.resize(directory_bytes(self.generations.len()), 0);
        for generation in &self.generations {
            bytes.extend_from_slice(generation.members.bits.cells.bytes());
        }
        Cow::Owned(bytes)
    }

    fn is_read_only(&self) -> bool {
        self.generations.iter().any(|generation| generation.members.is_read_only())
    }
}

impl Clocked for Window {
    fn advance(&mut self, now: u64) -> Result<()> {
        // The largest number stands for no clock in a file.
        let now = now.min(NO_CLOCK - 1);
        if self.now.is_some_and(|before| now <= before) {
            return Ok(());
        }
        if self.is_read_only() {
            return Err(Error::ReadOnly);
        }
        let by_time = matches!(self.plan.span(), Some(Span::Millis(_)));
        if by_time && self.now.is_none() {
            for generation in &mut self.generations {
                generation.began = now;
            }
        }
        let (step, began) = (self.step(), self.newest().began);
        if by_time && now - began >= step {
            // Steps in which nothing was inserted have no generation.
            self.begin(now - (now - began) % step)?;
        }
        // Not only when a step begins: where steps do not divide the window, its end is within one.
        // The newest is never over.
        while self.generations.front().is_some_and(|oldest| self.is_over(oldest.began, now)) {
            self.generations.pop_front();
        }
        self.now = Some(now);
        Ok(())
    }
}
