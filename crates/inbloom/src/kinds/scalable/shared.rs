//! A filter that grows with its keys, for many threads: a query practically never waits.
//!
//! **Idea.** It is a [`Scalable`] filter, to the last bit, whose tables are locked one by one.
//! While it is small it is one table; then 16, and threads rarely meet at one. Growth is no reason to wait:
//! a bucket of a few bytes is split now and then. What takes long happens once in the life of a table:
//! the small one is divided, or at 10^9 keys slots become wider. That is built aside, from a table
//! that queries go on reading, and put in its place in an instant.
//!
//! **Locks.** Each table has two. `writer` is a mutex for those who change the table, or want it
//! not to change: an insert, a growth, a copy. `table` is a lock for many readers or one writer:
//!
//! ```text
//! query     table (read): for one key, or those of a run that are in this shard
//! insert    writer; table (read) for a look; table (write) to put one entry and split one bucket
//! growth    writer; table (read) while memory is made, or a new table; table (write) for the exchange
//! copy      writer; table (read)
//! ```
//!
//! A lock that is held by readers lets further readers in only as long as no writer waits for it:
//! else writers would never get their turn. So *whoever reads for longer than a query holds
//! `writer`*: then nobody waits for `table` to write, and queries pass. Without that rule an insert
//! that waits for a copy of its shard would stop all queries there for milliseconds.
//!
//! For the same reason an insert looks for its key before it locks to write: a thread that loses
//! its processor meanwhile stops nobody. Measured with the layout before this one, while a filter grew to 20 million
//! keys, on two cores that others used too: 7 queries of 33 million waited for longer than 1 ms, the longest for
//! 8 ms; behind one lock for the whole filter, 400 of 21 million, up to 76 ms. With the look under
//! the lock to write it was 150 of 32 million (in a run in which the one lock had 415).
//!
//! A thread holds the locks of one table at a time, `writer` before `table`: no deadlock.
//!
//! **Division.** The shards come into being once, in a [`OnceLock`]. Whoever has seen that there
//! are none yet, locks the small table and looks again: the shards are published while it is
//! locked.
//!
//! **Batches.** Queries are sorted by shard, run by run, and a lock is taken once for all keys of a
//! run that are in one shard; once more, before that, to ask for their memory while the run before is worked
//! on. Inserts stay in their order and lock for each key: so the tables are, byte for byte,
//! those of a [`Scalable`] filter, and an error comes between two keys of the batch.
//!
//! **What holds.** A key whose insert has returned is found by every query that starts later. Of
//! racing inserts of one new key exactly one is told so: they meet at one mutex.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::any::Any;
use core::fmt;
use core::mem;

use super::allowance::{Account, Allowance};
use super::growth::{
    Before, Step, divided, make_memory, most_slots, next_step, split, splits_at_once, widened,
};
use super::plan::first_tables;
use super::table::{Inserted, SlotShape, Table};
use super::{
    MAX_LEN, Past, RUN, SHARDS, Scalable, ShardDetails, claims, estimate, expansions, route, spot,
};
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::estimate::Estimate;
use crate::kernels::{FITS_IN_L2, Towards};
use crate::membership::Membership;
use crate::plan::Plan;
use crate::state::State;
use crate::storage::Cells;
use crate::sync::{
    AtomicU64, Mutex, MutexGuard, OnceLock, Ordering, RwLock, RwLockReadGuard, RwLockWriteGuard,
    unpoisoned,
};

/// A filter that grows with its keys, and that many threads insert into and query at once.
///
/// ```
/// use inbloom::internals::kinds::scalable::SharedScalable;
/// use inbloom::{Hasher, Kind, Plan};
///
/// let shared = SharedScalable::new(Plan::builder(Kind::Scalable).items(100).build()?)?;
/// let digest = |key: u64| Hasher::default().digest(key.to_le_bytes());
/// std::thread::scope(|scope| {
///     for thread in 0..4 {
///         let shared = &shared;
///         scope.spawn(move || {
///             for key in thread * 5000..(thread + 1) * 5000 {
///                 shared.insert(digest(key)).unwrap();
///                 assert!(shared.contains(digest(key)));
///             }
///         });
///     }
/// });
/// let filter = shared.into_filter(Hasher::default())?;
/// assert!((0..20_000u64).all(|key| filter.contains(key.to_le_bytes())));
/// # Ok::<(), inbloom::Error>(())
/// ```
pub struct SharedScalable {
    plan: Plan,
    /// The memory of all tables.
    account: Account,
    small: Guarded,
    divided: OnceLock<Divided>,
}

impl fmt::Debug for SharedScalable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedScalable").field("plan", &self.plan).finish_non_exhaustive()
    }
}

/// What comes in the place of the small table.
type Divided = Box<[Guarded]>;

/// A table and its locks, on cache lines of its own: threads at other tables do not disturb.
#[repr(align(64))]
struct Guarded {
    table: RwLock<Table>,
    writer: Mutex<()>,
    /// Digests that were new; of the filter, it is the sum that counts. Changes only together with
    /// the table.
    len: AtomicU64,
}

impl SharedScalable {
    /// An empty filter. Panics if the plan is for another kind.
    pub fn new(plan: Plan) -> Result<SharedScalable> {
        Scalable::new(plan).map(SharedScalable::from_scalable)
    }

    /// Panics if the state is not that of a scalable filter.
    pub(crate) fn from_state(state: Box<dyn State>) -> Result<SharedScalable> {
        let state = if state.measured().is_read_only() { state.copy()? } else { state };
        let scalable = (state as Box<dyn Any>).downcast::<Scalable>();
        Ok(SharedScalable::from_scalable(*scalable.expect("the kind says so")))
    }

    fn from_scalable(scalable: Scalable) -> SharedScalable {
        let Scalable { plan, mut tables, len, bytes } = scalable;
        let divided = OnceLock::new();
        let small = if tables.len() == 1 {
            Guarded::new(tables.remove(0), len)
        } else {
            divided.get_or_init(|| guarded(tables, len));
            Guarded::new(nothing(), 0)
        };
        SharedScalable { plan, account: Account::new(bytes), small, divided }
    }

    pub(crate) fn into_scalable(self) -> Scalable {
        let len = self.len();
        let guarded = match self.divided.into_inner() {
            Some(divided) => divided.into_vec(),
            None => vec![self.small],
        };
        let tables = guarded.into_iter().map(|guarded| unpoisoned(guarded.table.into_inner()));
        Scalable::of(self.plan, tables.collect(), len)
    }

    /// A copy for one thread: see [`SharedScalable::snapshot`].
    pub(crate) fn copy(&self) -> Result<Scalable> {
        let mut tables = Vec::new();
        let len = self.hold_each(|table| {
            tables.push(table.copy()?);
            Ok(())
        })?;
        Ok(Scalable::of(self.plan, tables, len))
    }

    /// Reads every table, one after the other, while nobody changes it, and returns the number of
    /// digests that were new in them.
    fn hold_each(&self, mut read: impl FnMut(&Table) -> Result<()>) -> Result<u64> {
        let mut len = 0;
        for number in 0..SHARDS as u8 {
            let (guarded, _writer) = self.writer(number);
            let table = unpoisoned(guarded.table.read());
            len += guarded.len.load(Ordering::Relaxed);
            read(&table)?;
            // There are no shards.
            if table.slots().is_tagged {
                break;
            }
        }
        Ok(len.min(MAX_LEN))
    }

    /// Removes every digest that was inserted before the call, shard by shard while others go on. A
    /// digest whose insert overlaps with the call is removed or stays. Each table is as small as at
    /// first afterwards; shards stay shards.
    ///
    /// Fails if the system does not give the memory for a table: some shards are empty then.
    pub fn clear(&self) -> Result<()> {
        let first = first_tables(&self.plan).ok();
        for number in 0..SHARDS as u8 {
            let (guarded, _writer) = self.writer(number);
            let (slots, buckets) = {
                let table = unpoisoned(guarded.table.read());
                (table.slots(), table.buckets())
            };
            let is_tagged = slots.is_tagged;
            // Untrusted input may plan more items than its tables ever had room for; and a filter
            // that began small has no shards to begin with.
            // Planes stay as they are: a merge may have taken some of the plan's, and all shards have as
            // many, also those that this call does not reach.
            let (slots, buckets) = match &first {
                Some((first, each)) if first.is_tagged == is_tagged && each[0] <= buckets => {
                    (SlotShape { planes: slots.planes, ..*first }, each[0])
                }
                Some((first, _)) if first.is_tagged && !is_tagged => {
                    (SlotShape { is_wide: false, ..slots }, 1)
                }
                _ => (slots, buckets),
            };
            let mut allowance = Allowance::of(&self.account);
            allowance.take(slots.bytes(buckets).unwrap_or(u64::MAX))?;
            let empty = Table::new(slots, buckets, Cells::zeroed)?;
            let mut table = unpoisoned(guarded.table.write());
            let old = mem::replace(&mut *table, empty);
            guarded.len.store(0, Ordering::Relaxed);
            drop(table);
            allowance.keep();
            self.account.give_back(old.memory());
            if is_tagged {
                break;
            }
        }
        Ok(())
    }

    /// The plan it was made from.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Whether the digest may have been inserted: false is certain, true is probable.
    #[inline]
    #[must_use]
    pub fn contains(&self, digest: Digest) -> bool {
        let table = match self.small() {
            Some(small) => small,
            None => unpoisoned(self.shard(route(digest)).table.read()),
        };
        claims(&table, digest)
    }

    /// Inserts, unless the digest is claimed already, and tells whether it was certainly new: of
    /// racing inserts of one new digest, exactly one is told so.
    ///
    /// Fails as [`Scalable::insert`] does, and with [`Error::Memory`] if growth would go beyond the
    /// limit; what is in stays in.
    #[inline]
    pub fn insert(&self, digest: Digest) -> Result<bool> {
        let mut most = None;
        loop {
            let (guarded, _writer) = self.writer(route(digest));
            // Whether it is there, queries may find out at the same time. So they are shut out
            // while a slot is written, and not while memory is waited for.
            let table = unpoisoned(guarded.table.read());
            if claims(&table, digest) {
                return Ok(false);
            }
            drop(table);
            let mut table = unpoisoned(guarded.table.write());
            let slots = table.slots();
            if table.insert(spot(slots, digest)) != Inserted::Refused {
                guarded.len.store(guarded.len.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                if table.is_crowded() && self.plan.growth != 0 {
                    self.make_ready(guarded, table);
                }
                return Ok(true);
            }
            most = self.make_room(guarded, table, most)?;
        }
    }

    /// Splits a bucket at once if there is memory for it and no other reason not to, and grows
    /// otherwise. That it cannot grow is no error before a key has no room. The caller is the table's
    /// writer.
    #[inline]
    fn make_ready(&self, guarded: &Guarded, mut table: RwLockWriteGuard<'_, Table>) {
        if table.wants().is_none() && next_step(&self.plan, &table) == Step::Split {
            let _ = split(&mut table, None);
            return;
        }
        drop(table);
        if self.grow(guarded).is_err() {
            unpoisoned(guarded.table.write()).put_off_growth();
        }
    }

    /// Grows a table that had no room for a key, up to `most` slots, which it returns; these are not
    /// known at first, nor once there are shards, as this is not where the key goes then. The caller
    /// is the table's writer.
    #[cold]
    fn make_room(
        &self,
        guarded: &Guarded,
        mut table: RwLockWriteGuard<'_, Table>,
        most: Option<u64>,
    ) -> Result<Option<u64>> {
        let before = Before::of(&table);
        let most = most.unwrap_or_else(|| most_slots(table.all_slots()));
        if table.is_stuck() || table.all_slots() >= most {
            table.set_stuck();
            return Err(self.full());
        }
        let steps = splits_at_once(&table);
        drop(table);
        for _ in 0..steps {
            if self.grow(guarded)? {
                return Ok(None);
            }
        }
        let mut table = unpoisoned(guarded.table.write());
        if before.was_in_vain(&table) {
            table.set_stuck();
        }
        Ok(Some(most))
    }

    /// [`SharedScalable::contains`] for many digests, in order. `found` is emptied first.
    pub fn contains_digests(&self, digests: &[Digest], found: &mut Vec<bool>) {
        Membership::contains_digests(&self, digests, found);
    }

    /// [`SharedScalable::insert`] for many digests, in order. `new` is emptied first. On an error
    /// its length says how many were done.
    pub fn insert_digests(&self, digests: &[Digest], new: &mut Vec<bool>) -> Result<()> {
        Membership::insert_digests(&mut &*self, digests, new)
    }

    /// The number of digests that were new.
    #[must_use]
    pub fn len(&self) -> u64 {
        let len = |guarded: &Guarded| guarded.len.load(Ordering::Relaxed);
        let len = match self.divided.get() {
            Some(divided) => divided.iter().map(len).sum(),
            None => len(&self.small),
        };
        len.min(MAX_LEN)
    }

    /// Whether nothing was inserted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes of the memory of all tables, those included that are being built.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.account.taken()
    }

    /// The bytes of all buckets, without memory for those to come: what they take in a file. Looks at
    /// every table.
    #[must_use]
    pub fn bucket_bytes(&self) -> u64 {
        self.look(Table::bytes).iter().sum()
    }

    /// The bytes of memory that it takes beside its own: all tables, as an allocator rounds them up,
    /// and the list of shards.
    #[must_use]
    pub fn memory(&self) -> u64 {
        let shards = self.divided.get().map_or(0, |divided| divided.len() as u64);
        let tables = shards.max(1);
        shards * size_of::<Guarded>() as u64 + tables * Table::allocated(self.bytes() / tables)
    }

    /// From now on, growth that would take [`bytes`](SharedScalable::bytes) above so many is
    /// refused with [`Error::Memory`], before any memory is asked for. A shard that grows takes
    /// memory beside the one that it replaces. Nothing is lost, and keys that find room are still
    /// taken.
    pub fn set_limit(&self, bytes: u64) {
        self.account.set_limit(bytes);
    }

    /// Whether an insert may have to wait until a shard is built anew, with wider slots. A plan puts
    /// that off beyond 10^9 keys, and so beyond this size. Takes no lock.
    #[must_use]
    pub fn may_pause(&self) -> bool {
        self.bytes() > 1 << 30
    }

    /// The rate right now: the share of all hashes that is claimed.
    #[must_use]
    pub fn rate(&self) -> f64 {
        let shards = self.look(ShardDetails::new);
        shards.iter().map(|shard| shard.share * shard.rate).sum()
    }

    /// How many times the buckets have doubled.
    #[must_use]
    pub fn expansions(&self) -> u32 {
        expansions(&self.plan, self.look(Table::buckets).iter().sum())
    }

    /// The slots in use.
    pub(crate) fn occupied(&self) -> u64 {
        self.look(|table| table.entries).iter().sum()
    }

    /// The share of slots in use, from 0 to 1.
    pub(crate) fn fill(&self) -> f64 {
        let counts = self.look(|table| (table.entries, table.all_slots()));
        let (used, slots) = counts.iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        used as f64 / slots as f64
    }

    /// How many distinct digests were inserted: those that were new, and about as many as were
    /// taken for others when they came.
    #[must_use]
    pub fn estimated_items(&self) -> Estimate {
        let mut tables = Vec::new();
        let read = self.hold_each(|table| {
            tables.push(Past::of(table));
            Ok(())
        });
        estimate(read.expect("to look is never refused"), &tables)
    }

    /// The small table, to read, as long as there are no shards.
    #[inline]
    fn small(&self) -> Option<RwLockReadGuard<'_, Table>> {
        if self.divided.get().is_some() {
            return None;
        }
        let small = unpoisoned(self.small.table.read());
        self.divided.get().is_none().then_some(small)
    }

    /// A shard. There are shards.
    #[inline]
    fn shard(&self, number: u8) -> &Guarded {
        let divided = self.divided.get().expect("the small table was divided");
        &divided[usize::from(number)]
    }

    /// The table for the keys of a shard. Until the guard is dropped, only we may change it.
    #[inline]
    fn writer(&self, number: u8) -> (&Guarded, MutexGuard<'_, ()>) {
        if self.divided.get().is_none() {
            let writer = unpoisoned(self.small.writer.lock());
            if self.divided.get().is_none() {
                return (&self.small, writer);
            }
        }
        let guarded = self.shard(number);
        (guarded, unpoisoned(guarded.writer.lock()))
    }

    /// Looks at every table, one after the other, for a moment each.
    fn look<T>(&self, look: impl Fn(&Table) -> T) -> Vec<T> {
        if let Some(small) = self.small() {
            return vec![look(&small)];
        }
        let numbers = 0..SHARDS as u8;
        let table = |number| unpoisoned(self.shard(number).table.read());
        numbers.map(|number| look(&table(number))).collect()
    }

    /// Makes a table larger by one step, and tells whether there are shards in its place now. Nobody
    /// else may change it: the caller is its writer.
    #[cold]
    fn grow(&self, guarded: &Guarded) -> Result<bool> {
        // A planned key is never refused, even if chance has put too many into one shard.
        if self.plan.growth == 0 && self.len() >= self.plan.items {
            return Err(self.full());
        }
        let mut allowance = Allowance::of(&self.account);
        // This is what takes time. Queries read the same table meanwhile.
        let table = unpoisoned(guarded.table.read());
        let step = next_step(&self.plan, &table);
        match step {
            Step::Split => {
                let memory = make_memory(&table, &mut allowance)?;
                let given_back = table.wants().map_or(0, |(_, given_back)| given_back);
                drop(table);
                let mut table = unpoisoned(guarded.table.write());
                split(&mut table, memory)?;
                drop(table);
                allowance.keep();
                self.account.give_back(given_back);
            }
            Step::Widen => {
                let wider = widened(&table, &mut allowance)?;
                drop(table);
                let Some(wider) = wider else { return Err(self.stuck(guarded)) };
                let old = mem::replace(&mut *unpoisoned(guarded.table.write()), wider);
                allowance.keep();
                self.account.give_back(old.memory());
            }
            Step::Divide => {
                let tables = divided(&self.plan, &table, &mut allowance)?;
                drop(table);
                let Some(tables) = tables else { return Err(self.stuck(guarded)) };
                let mut small = unpoisoned(guarded.table.write());
                let len = self.len();
                self.divided.get_or_init(|| self::guarded(tables, len));
                let old = mem::replace(&mut *small, nothing());
                drop(small);
                allowance.keep();
                self.account.give_back(old.memory());
            }
            Step::Useless => return Err(self.full()),
        }
        Ok(step == Step::Divide)
    }

    /// Notes that a table cannot grow.
    #[cold]
    fn stuck(&self, guarded: &Guarded) -> Error {
        unpoisoned(guarded.table.write()).set_stuck();
        self.full()
    }

    fn full(&self) -> Error {
        Error::Full { items: self.len(), planned: self.plan.items }
    }
}

/// A handle is enough to insert, as a `&File` is enough to write.
impl Membership for &SharedScalable {
    fn contains_digest(&self, digest: Digest) -> bool {
        self.contains(digest)
    }

    fn insert_digest(&mut self, digest: Digest) -> Result<bool> {
        self.insert(digest)
    }

    fn prefetch(&self, digests: &[Digest]) {
        if self.is_far() {
            for run in digests.chunks(RUN) {
                self.prefetch_run(run, &RunOrder::new(run));
            }
        }
    }

    fn contains_run(&self, run: &[Digest], next: &[Digest], found: &mut [bool]) {
        self.prefetch(next);
        for (run, found) in run.chunks(RUN).zip(found.chunks_mut(RUN)) {
            if let Some(small) = self.small() {
                for (digest, found) in run.iter().zip(found) {
                    *found = claims(&small, *digest);
                }
            } else {
                self.find_run(run, found);
            }
        }
    }

    fn insert_run(&mut self, run: &[Digest], next: &[Digest], new: &mut Vec<bool>) -> Result<()> {
        self.prefetch(next);
        for digest in run {
            new.push(self.insert(*digest)?);
        }
        Ok(())
    }
}

impl SharedScalable {
    /// Whether there are shards, and so much memory that it pays to ask for it in advance.
    #[inline]
    fn is_far(&self) -> bool {
        self.divided.get().is_some() && self.bytes() > FITS_IN_L2 as u64
    }

    fn prefetch_run(&self, run: &[Digest], sorted: &RunOrder) {
        for (number, group) in sorted.groups() {
            let table = unpoisoned(self.shard(number).table.read());
            for at in group {
                table.prefetch(spot(table.slots(), run[usize::from(*at)]), Towards::Near);
            }
        }
    }

    /// Answers a run of at most [`RUN`] digests, shard by shard.
    #[inline]
    fn find_run(&self, run: &[Digest], found: &mut [bool]) {
        for (number, group) in RunOrder::new(run).groups() {
            let table = unpoisoned(self.shard(number).table.read());
            for at in group.iter().map(|at| usize::from(*at)) {
                found[at] = claims(&table, run[at]);
            }
        }
    }
}

/// The order of a run by shards; in a shard, as they came.
struct RunOrder {
    order: [u8; RUN],
    /// Where in the order each shard ends.
    ends: [u8; SHARDS],
}

impl RunOrder {
    /// Of at most [`RUN`] digests.
    fn new(run: &[Digest]) -> RunOrder {
        let mut sorted = RunOrder { order: [0; RUN], ends: [0; SHARDS] };
        let number = |digest: &Digest| usize::from(route(*digest)) % SHARDS;
        run.iter().for_each(|digest| sorted.ends[number(digest)] += 1);
        // From how many there are to where they start, and on to where they end.
        let mut start = 0;
        sorted.ends.iter_mut().for_each(|end| start += mem::replace(end, start));
        for (at, digest) in run.iter().enumerate() {
            let end = &mut sorted.ends[number(digest)];
            sorted.order[usize::from(*end)] = at as u8;
            *end += 1;
        }
        sorted
    }

    /// The shards that have digests in the run, and which these are.
    #[inline]
    fn groups(&self) -> impl Iterator<Item = (u8, &[u8])> {
        let mut start = 0;
        let group = move |(number, end): (usize, &u8)| {
            let start = mem::replace(&mut start, *end);
            (number as u8, &self.order[usize::from(start)..usize::from(*end)])
        };
        self.ends.iter().enumerate().map(group).filter(|(_, group)| !group.is_empty())
    }
}

impl Guarded {
    fn new(table: Table, len: u64) -> Guarded {
        Guarded { table: RwLock::new(table), writer: Mutex::new(()), len: AtomicU64::new(len) }
    }
}

fn guarded(tables: Vec<Table>, len: u64) -> Divided {
    debug_assert_eq!(tables.len(), SHARDS);
    // Which of the shards has the count of all does not matter.
    let mut len = Some(len);
    let shards = tables.into_iter().map(|table| Guarded::new(table, len.take().unwrap_or(0)));
    shards.collect()
}

/// What is left of the small table when there are shards. Nobody looks at it.
fn nothing() -> Table {
    let slots = SlotShape { is_wide: true, planes: 0, is_tagged: true };
    Table::with_chunks(slots, 1, Vec::new())
}

#[cfg(test)]
mod tests;
