//! An overlay: keys that were added to a static filter, and keys that were excluded from it.
//!
//! **Idea.** A ribbon filter takes the fewest bits, and cannot change. To build one again from
//! 10^10 keys takes time, and needs all keys. A blocklist changes by a thousandth per day. So
//! changes are stored beside the *base*, in two small parts:
//!
//! - **Added** keys, in a scalable filter. It takes any number of keys at its rate, and grows
//!   without them. A blocked filter would have to be planned for an unknown number.
//! - **Excluded** keys: their digests, all 128 bits of each, in order. They are the keys that were
//!   removed, and keys that were never inserted but are known false positives.
//!
//!   answer = (base or added) and not excluded
//!
//! Most queries are for absent keys, which base and added filter report as absent. The excluded
//! keys are searched only for a key that they report as present, by halving.
//!
//! Removed keys and keys that were never inserted are in one list, in memory and in a file. Only
//! their numbers are distinguished: [`Filter::inserted`] decreases by the removed keys alone.
//!
//! **Exact.** Excluding a key has no effect on any other key, because two keys would have to share
//! 128 bits of hash. So a key that was never inserted may be removed without harm, as in no other
//! kind with removal. Base and added filter never lose a key that they report as present. A key
//! that is inserted again is no longer excluded, and is added if both lack it.
//!
//! **Rates add up.** A false positive comes from the base or from the added keys. These take a
//! tenth of the target rate, however many there are. A base that is planned for nine tenths
//! ([`BASE_SHARE`]) leaves just that. Another base may leave enough too, since the fingerprints of
//! its keys are whole bits. [`Filter::rate`] is the current rate.
//!
//! **Cost.** An added key takes two to three times the bits of one in the base: 22 against 7 at
//! 1%, 31 against 14 at 0.01% (80,000 keys added to 4 million, measured). A query looks into two
//! filters. From some 2% of additions on it is better to build again. An excluded key takes 16
//! bytes in a file and about twice that in memory while the overlay changes. Only present keys
//! search for it.
//!
//! **In a file** the parts are sections of their own, MORE and GONE, drawn in docs/format.md. They
//! are queried in place, mapped, as the base is.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::any::Any;
use core::fmt;

use crate::compose::grown::{also_ask, estimate_behind};
use crate::digest::{Digest, Hasher};
use crate::error::{Error, Result};
use crate::estimate::Estimate;
use crate::filter::Filter;
use crate::kind::Kind;
use crate::math;
use crate::membership::Membership;
use crate::paging::Paging;
use crate::plan::{MIN_RATE, Plan};
use crate::profile::Slice;
use crate::state::{Clocked, Intersecting, Measured, Positioned, Removable, State, cannot_change};
use crate::storage::{self, Bits, Cells, Order};

/// The share of the target rate that a base should be planned for. The rest is for added keys.
pub const BASE_SHARE: f64 = 0.9;
/// The share of the target rate that all added keys together may take.
const ADDED_SHARE: f64 = 0.1;

/// A static filter with added and excluded keys: see [`Filter::into_overlay`] and
/// [`Filter::as_overlay`].
///
/// ```
/// use inbloom::{Filter, Hasher, Kind, Plan};
///
/// let plan = Plan::builder(Kind::Ribbon).items(3).rate(0.0009).build()?;
/// let list = Filter::build_from(plan, Hasher::default(), &["alice", "bob", "carol"])?;
/// let mut list = list.into_overlay(0.001)?;
/// list.insert("dave")?;
/// list.remove("alice")?;
/// let overlay = list.as_overlay().expect("it was just added");
/// assert_eq!((overlay.added(), overlay.excluded()), (1, 1));
/// # Ok::<(), inbloom::Error>(())
/// ```
pub struct Overlay {
    /// The plan of the base, with the target rate of all parts together.
    plan: Plan,
    base: Box<dyn State>,
    added: Filter,
    /// Whether queries look into the added keys: only once there are any. In a file, section MORE
    /// exists in that case.
    asks_added: bool,
    excluded: Excluded,
}

impl fmt::Debug for Overlay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::state::debug("Overlay", self, f)
    }
}

impl Overlay {
    /// Returns the parts as a file has them: to be asked, and not to be changed.
    pub(crate) fn from_parts(
        base: Box<dyn State>,
        hasher: Hasher,
        added: Option<Filter>,
        excluded: Cells,
    ) -> Result<Overlay> {
        let (plan, asks_added) = (*base.plan(), added.is_some());
        let added = added.map_or_else(|| nothing_added(hasher, plan.rate()), Ok)?;
        Ok(Overlay { plan, base, added, asks_added, excluded: Excluded::Listed(excluded) })
    }

    /// Lets a static filter, with parts or without, take changes.
    pub(crate) fn open(state: Box<dyn State>, hasher: Hasher, target: f64) -> Result<Overlay> {
        let least = state.plan().rate();
        if !(target >= least && target < 1.0) {
            return Err(Error::Parameter {
                name: "rate",
                got: target.to_string(),
                expected: format!("below 1, and at least {least}, the rate of the base"),
            });
        }
        let is_living = (&*state as &dyn Any).is::<Overlay>();
        let mut overlay = match is_living {
            true => *(state as Box<dyn Any>).downcast().expect("it was just seen to be one"),
            false => {
                let (plan, added) = (*state.plan(), nothing_added(hasher, target)?);
                let excluded = Excluded::Open(BTreeSet::new());
                Overlay { plan, base: state, added, asks_added: false, excluded }
            }
        };
        overlay.plan.rate = target;
        overlay.excluded = overlay.excluded.opened();
        if overlay.added.is_read_only() {
            overlay.added = overlay.added.try_clone()?;
        }
        Ok(overlay)
    }

    #[cfg(test)]
    pub(crate) fn base(&self) -> &dyn State {
        self.base.as_ref()
    }

    /// Returns how many keys were added. A key that was present when it was inserted does not
    /// count.
    #[must_use]
    pub fn added(&self) -> u64 {
        self.added.inserted()
    }

    /// Returns how many keys are excluded.
    #[must_use]
    pub fn excluded(&self) -> u64 {
        self.excluded.len()
    }

    /// Returns the added keys, if there are any: they are the file in section MORE.
    pub(crate) fn added_part(&self) -> Option<&Filter> {
        (self.added.occupied() > 0).then_some(&self.added)
    }

    /// Returns the digests of section GONE.
    pub(crate) fn excluded_part(&self) -> Cow<'_, [u8]> {
        self.excluded.bytes()
    }

    fn is_unchanged(&self) -> bool {
        self.added_part().is_none() && self.excluded.len() == 0
    }

    /// Adds a digest, and returns whether it is certainly new. The caller knows whether the base
    /// has it.
    fn add(&mut self, digest: Digest, in_base: bool) -> Result<bool> {
        let Excluded::Open(excluded) = &mut self.excluded else { return self.refuse("insert") };
        self.asks_added |= !in_base;
        let known = in_base || !self.added.insert_digest(digest)?;
        let was_excluded = excluded.remove(&pair(digest));
        Ok(was_excluded || !known)
    }

    /// Excludes those of these digests that are present, and returns how many are excluded only
    /// now. All are queried at once: in a base that is not in memory each would wait for its page.
    pub(crate) fn exclude(&mut self, digests: &[Digest], verb: &'static str) -> Result<u64> {
        let mut present = Vec::new();
        self.contains_digests(digests, &mut present);
        let Excluded::Open(excluded) = &mut self.excluded else { return self.refuse(verb) };
        let present = digests.iter().zip(present).filter(|(_, present)| *present);
        Ok(present.map(|(digest, _)| u64::from(excluded.insert(pair(*digest)))).sum())
    }

    fn claims(&self, digest: Digest) -> bool {
        self.base.contains_digest(digest) || (self.asks_added && self.added.contains_digest(digest))
    }

    fn refuse<T>(&self, verb: &'static str) -> Result<T> {
        Err(cannot_change(&self.plan, verb))
    }
}

/// Returns a filter for keys to come.
fn nothing_added(hasher: Hasher, target: f64) -> Result<Filter> {
    let rate = (target * ADDED_SHARE).max(MIN_RATE);
    Filter::with_hasher(Plan::builder(Kind::Scalable).rate(rate).build()?, hasher)
}

/// Excluded digests.
enum Excluded {
    /// In order, 16 bytes each, as in a file. Untrusted input may be in no order, and is then of no
    /// use, and of no harm.
    Listed(Cells),
    /// While the list is being changed.
    Open(BTreeSet<(u64, u64)>),
}

/// Returns a digest as it is compared, and as section GONE has it.
fn pair(digest: Digest) -> (u64, u64) {
    (digest.place, digest.print)
}

/// The bytes of a digest in section GONE.
pub(crate) const LISTED: usize = 16;

fn listed(bytes: &[u8; LISTED]) -> (u64, u64) {
    let (words, _) = bytes.as_chunks();
    (u64::from_le_bytes(words[0]), u64::from_le_bytes(words[1]))
}

/// Returns whether the digests of section GONE ascend, so that all of them are found.
pub(crate) fn is_in_order(bytes: &[u8]) -> bool {
    let (digests, rest) = bytes.as_chunks();
    rest.is_empty() && digests.is_sorted_by(|one, next| listed(one) < listed(next))
}

impl Excluded {
    fn contains(&self, digest: Digest) -> bool {
        match self {
            Excluded::Listed(cells) => {
                let (digests, _) = cells.bytes().as_chunks();
                digests.binary_search_by_key(&pair(digest), listed).is_ok()
            }
            Excluded::Open(set) => set.contains(&pair(digest)),
        }
    }

    fn len(&self) -> u64 {
        match self {
            Excluded::Listed(cells) => (cells.bytes().len() / LISTED) as u64,
            Excluded::Open(set) => set.len() as u64,
        }
    }

    fn bytes(&self) -> Cow<'_, [u8]> {
        match self {
            Excluded::Listed(cells) => Cow::Borrowed(cells.bytes()),
            Excluded::Open(set) => {
                let words = set.iter().flat_map(|(place, print)| [*place, *print]);
                Cow::Owned(words.flat_map(u64::to_le_bytes).collect())
            }
        }
    }

    fn opened(self) -> Excluded {
        match self {
            Excluded::Listed(cells) => {
                let (digests, _) = cells.bytes().as_chunks();
                Excluded::Open(digests.iter().map(listed).collect())
            }
            open => open,
        }
    }

    fn copy(&self) -> Result<Excluded> {
        Ok(match self {
            Excluded::Listed(cells) => Excluded::Listed(cells.copy()?),
            Excluded::Open(set) => Excluded::Open(set.clone()),
        })
    }
}

impl Membership for Overlay {
    fn contains_digest(&self, digest: Digest) -> bool {
        self.claims(digest) && !self.excluded.contains(digest)
    }

    fn insert_digest(&mut self, digest: Digest) -> Result<bool> {
        self.add(digest, self.base.contains_digest(digest))
    }

    fn prefetch(&self, digests: &[Digest]) {
        self.base.prefetch(digests);
        if self.asks_added {
            self.added.content.members().prefetch(digests);
        }
    }

    fn contains_run(&self, run: &[Digest], next: &[Digest], found: &mut [bool]) {
        self.base.contains_run(run, next, found);
        if self.asks_added {
            also_ask(&self.added, run, next, found);
        }
        if self.excluded.len() > 0 {
            for (digest, found) in run.iter().zip(found).filter(|(_, found)| **found) {
                *found = !self.excluded.contains(*digest);
            }
        }
    }

    fn insert_run(&mut self, run: &[Digest], next: &[Digest], new: &mut Vec<bool>) -> Result<()> {
        let mut in_base = vec![false; run.len()];
        self.base.contains_run(run, next, &mut in_base);
        for (digest, in_base) in run.iter().zip(in_base) {
            new.push(self.add(*digest, in_base)?);
        }
        Ok(())
    }
}

impl State for Overlay {
    fn plan(&self) -> &Plan {
        &self.plan
    }

    fn measured(&self) -> &dyn Measured {
        self
    }

    fn clear(&mut self) -> Result<()> {
        self.refuse("clear")
    }

    fn copy(&self) -> Result<Box<dyn State>> {
        let (base, added, excluded) =
            (self.base.copy()?, self.added.try_clone()?, self.excluded.copy()?);
        let (plan, asks_added) = (self.plan, self.asks_added);
        Ok(Box::new(Overlay { plan, base, added, asks_added, excluded }))
    }

    /// A list that nothing was done to is the filter it was made from.
    fn same(&self, other: &dyn State) -> bool {
        match (other as &dyn Any).downcast_ref::<Overlay>() {
            None => self.is_unchanged() && self.base.same(other),
            Some(other) => {
                self.base.same(other.base.as_ref())
                    && self.added_part() == other.added_part()
                    && self.excluded.bytes() == other.excluded.bytes()
            }
        }
    }

    fn unite(&mut self, _other: &dyn State) -> Result<()> {
        self.refuse("merge")
    }

    fn count(&self, digest: Digest) -> u64 {
        u64::from(self.contains_digest(digest))
    }

    fn check(&self, digest: Digest) -> Result<()> {
        match self.excluded {
            Excluded::Listed(_) => self.base.check(digest),
            Excluded::Open(_) => Ok(()),
        }
    }

    /// Its bits are not all of it.
    fn into_bits(self: Box<Self>) -> Option<Bits> {
        None
    }

    fn expect(&self, order: Order) {
        self.base.expect(order);
    }

    fn set_paging(&mut self, paging: Paging) {
        self.base.set_paging(paging);
    }

    fn removable(&mut self) -> Option<&mut dyn Removable> {
        match self.excluded {
            Excluded::Listed(_) => None,
            Excluded::Open(_) => Some(self),
        }
    }

    fn intersecting(&mut self) -> Option<&mut dyn Intersecting> {
        None
    }

    fn clocked(&mut self) -> Option<&mut dyn Clocked> {
        None
    }

    /// Added keys are not in the cells of the base.
    fn positioned(&self) -> Option<&dyn Positioned> {
        None
    }
}

impl Measured for Overlay {
    /// Those of the base, which its file tells; the added keys have a file of their own within.
    fn occupied(&self) -> u64 {
        self.base.measured().occupied()
    }

    fn fill(&self) -> f64 {
        self.base.measured().fill()
    }

    fn recount(&self) -> Option<u64> {
        self.base.measured().recount()
    }

    fn profile(&self, slices: usize) -> Vec<Slice> {
        self.base.measured().profile(slices)
    }

    fn bytes(&self) -> u64 {
        self.base.measured().bytes() + self.added.bytes() + self.excluded.len() * LISTED as u64
    }

    fn memory(&self) -> u64 {
        storage::allocated(self.bytes())
    }

    fn rate(&self) -> f64 {
        (self.base.measured().rate() + self.added.rate()).min(1.0)
    }

    /// The list does not show which of the excluded keys were inserted; `inserted` gives their
    /// number. It comes from a file that may be wrong: at most all excluded keys were removed.
    ///
    /// `inserted` lacks the added keys that were taken for others when they came: for one of the
    /// base, at its rate, or for one that was added before.
    fn estimate(&self, inserted: Option<u64>) -> Estimate {
        let base = self.base.measured().estimate(None);
        let (came, added) = (self.added() as f64, estimate_behind(&*self.base, &self.added));
        let least = (base.items + came - self.excluded.len() as f64).max(0.0);
        Estimate {
            items: (inserted.unwrap_or(0) as f64).max(least) + added.items - came,
            error: math::hypot(base.error, added.error),
        }
    }

    fn room(&self) -> u64 {
        match self.excluded {
            Excluded::Listed(_) => self.base.measured().room(),
            Excluded::Open(_) => self.added.room(),
        }
    }

    /// A list that takes changes has room for any number of added keys: they grow.
    fn next_growth(&self) -> Option<u64> {
        match self.excluded {
            Excluded::Listed(_) => self.base.measured().next_growth(),
            Excluded::Open(_) => {
                let in_base = self.base.measured().estimate(None).rounded();
                self.added.next_growth().map(|next| next.saturating_add(in_base))
            }
        }
    }

    fn details(&self) -> Vec<(&'static str, String)> {
        let (added, bytes) = (self.added(), self.added.bytes());
        let (rate, excluded) = (self.added.rate(), self.excluded());
        let mut details = self.base.measured().details();
        details.extend([
            ("added", format!("{added} keys, in {bytes} bytes at a rate of {rate:.2e}")),
            ("excluded", format!("{excluded} keys")),
        ]);
        details
    }

    fn bits(&self) -> Option<&Bits> {
        None
    }

    fn payload(&self) -> Cow<'_, [u8]> {
        self.base.measured().payload()
    }

    /// A list that takes changes is not, even if what it was made from is mapped to read.
    fn is_read_only(&self) -> bool {
        matches!(self.excluded, Excluded::Listed(_)) && self.base.measured().is_read_only()
    }
}

impl Removable for Overlay {
    fn remove(&mut self, digest: Digest) -> Result<bool> {
        Ok(self.exclude(&[digest], "remove")? > 0)
    }
}
