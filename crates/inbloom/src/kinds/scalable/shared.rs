//! A filter that grows with its keys, for many threads: a query practically never waits.
//!
//! **Idea.** It is a [`Scalable`] filter, to the last bit, whose tables are locked one by one.
//! While it is small it is one table; then 64, and threads rarely meet at one. What takes long is
//! growth: at 100 million keys a shard of 1.5 million entries is built anew. It is built aside,
//! from a table that queries go on reading, and put in its place in an instant.
//!
//! **Locks.** Each table has two. `writer` is a mutex for those who change the table, or want it
//! not to change: an insert, a growth, a copy. `table` is a lock for many readers or one writer:
//!
//! ```text
//! query     table (read): for one key, or those of a run that are in this shard
//! insert    writer; table (read) for a look; table (write) to put one entry
//! growth    writer; table (read) while the new table is built; table (write) for the exchange
//! copy      writer; table (read)
//! ```
//!
//! A lock that is held by readers lets further readers in only as long as no writer waits for it:
//! else writers would never get their turn. So *whoever reads for longer than a query holds
//! `writer`*: then nobody waits for `table` to write, and queries pass. Without that rule an insert
//! that waits for a copy of its shard would stop all queries there for milliseconds.
//!
//! For the same reason an insert looks for its key before it locks to write: a thread that loses
//! its processor meanwhile stops nobody. Measured while a filter grew to 20 million keys, on two
//! cores that others used too: 7 queries of 33 million waited for longer than 1 ms, the longest for
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
//! run that are in one shard: at 10 million keys that takes 42 ns for a hit and 54 for a miss,
//! where a lock for each key takes 53 and 70 (one thread; runs of 512 gain another 7%, which is not
//! worth a second size). The memory of the next run is asked for meanwhile, without locks
//! ([`Aim`]). Inserts stay in their order and lock for each key: sorted they are no faster (108 to
//! 121 ns, and 98 to 114 in order), and so the tables are, byte for byte, those of a [`Scalable`]
//! filter, and an error comes between two keys of the batch.
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
use super::growth::{Growth, early_after, grow};
use super::table::{Aim, Table};
use super::{
    ClaimLengths, MAX_LEN, Past, RUN, SHARDS, Scalable, ShardDetails, TableShape, estimate, route,
    share_of,
};
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::estimate::Estimate;
use crate::kernels::{FITS_IN_L2, Towards};
use crate::membership::Membership;
use crate::plan::Plan;
use crate::state::State;
use crate::storage::{self, Cells};
use crate::sync::{
    AtomicU64, Mutex, MutexGuard, OnceLock, Ordering, RwLock, RwLockReadGuard, unpoisoned,
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
    /// Slots of the largest table.
    largest: AtomicU64,
    /// Doublings that the small table does not know of.
    early: u32,
    small: Guarded,
    divided: OnceLock<Divided>,
}

impl fmt::Debug for SharedScalable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedScalable").field("plan", &self.plan).finish_non_exhaustive()
    }
}

/// What comes in the place of the small table.
struct Divided {
    /// Doublings before there were shards.
    early: u32,
    shards: Box<[Guarded]>,
}

/// A table and its locks, on cache lines of its own: threads at other tables do not disturb.
#[repr(align(64))]
struct Guarded {
    aim: Aim,
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
        let Scalable { plan, mut tables, len, early, bytes } = scalable;
        let largest = AtomicU64::new(most_slots(&tables));
        let divided = OnceLock::new();
        let small = if tables.len() == 1 {
            Guarded::new(tables.remove(0), len)
        } else {
            divided.get_or_init(|| Divided::new(tables, len, early));
            Guarded::new(nothing(), 0)
        };
        SharedScalable { plan, account: Account::new(bytes), largest, early, small, divided }
    }

    pub(crate) fn into_scalable(self) -> Scalable {
        let len = self.len();
        let (guarded, early) = match self.divided.into_inner() {
            Some(divided) => (divided.shards.into_vec(), divided.early),
            None => (vec![self.small], self.early),
        };
        let tables = guarded.into_iter().map(|guarded| unpoisoned(guarded.table.into_inner()));
        Scalable::of(self.plan, tables.collect(), len, early)
    }

    /// A copy for one thread: see [`SharedScalable::snapshot`].
    pub(crate) fn copy(&self) -> Result<Scalable> {
        let (mut tables, mut early) = (Vec::new(), self.early);
        let len = self.hold_each(|_, table| {
            tables.push(table.copy()?);
            if !table.shape().tagged {
                early = self.divided.get().map_or(early, |divided| divided.early);
            }
            Ok(())
        })?;
        Ok(Scalable::of(self.plan, tables, len, early))
    }

    /// Reads every table, one after the other, while nobody changes it, and returns the number of
    /// digests that were new in them.
    fn hold_each(&self, mut read: impl FnMut(usize, &Table) -> Result<()>) -> Result<u64> {
        let mut len = 0;
        for number in 0..SHARDS as u8 {
            let (guarded, _writer) = self.writer(number);
            let table = unpoisoned(guarded.table.read());
            len += guarded.len.load(Ordering::Relaxed);
            read(usize::from(number), &table)?;
            // There are no shards.
            if table.shape().tagged {
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
        let none = ClaimLengths([0; 128]);
        for number in 0..SHARDS as u8 {
            let (guarded, _writer) = self.writer(number);
            let shape = unpoisoned(guarded.table.read()).shape();
            let share = if shape.tagged { 1.0 } else { share_of(usize::from(number)) };
            let first = self.plan.shape(self.plan.items() as f64 * share, shape.tagged, &none);
            // Untrusted input may plan more items than its tables ever had room for.
            let shape = first.ok().filter(|first| first.bytes() <= shape.bytes()).unwrap_or(shape);
            let mut allowance = Allowance::of(&self.account);
            allowance.take(shape.bytes())?;
            let empty = Table::new(shape, 0)?;
            guarded.aim.turn(&empty);
            let mut table = unpoisoned(guarded.table.write());
            let old = mem::replace(&mut *table, empty);
            guarded.len.store(0, Ordering::Relaxed);
            drop(table);
            allowance.keep();
            self.account.give_back(old.shape().bytes());
            if shape.tagged {
                break;
            }
        }
        let slots = self.look(|_, table| table.shape().all_slots());
        self.largest.store(slots.into_iter().max().unwrap_or(0), Ordering::Relaxed);
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
        let (number, hash) = route(digest);
        let table = match self.small() {
            Some(small) => small,
            None => unpoisoned(self.shard(number).table.read()),
        };
        table.claims(table.spot(number, hash))
    }

    /// Inserts, unless the digest is claimed already, and tells whether it was certainly new: of
    /// racing inserts of one new digest, exactly one is told so.
    ///
    /// Fails as [`Scalable::insert`] does, and with [`Error::Memory`] if growth would go beyond the
    /// limit; what is in stays in.
    #[inline]
    pub fn insert(&self, digest: Digest) -> Result<bool> {
        let (number, hash) = route(digest);
        loop {
            let (guarded, _writer) = self.writer(number);
            // Whether it is there, queries may find out at the same time. So they are shut out
            // while a slot is written, and not while memory is waited for.
            let table = unpoisoned(guarded.table.read());
            let spot = table.spot(number, hash);
            if table.claims(spot) {
                return Ok(false);
            }
            drop(table);
            let mut table = unpoisoned(guarded.table.write());
            if table.insert(spot) {
                guarded.len.store(guarded.len.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                return Ok(true);
            }
            drop(table);
            self.grow(guarded)?;
        }
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
            Some(divided) => divided.shards.iter().map(len).sum(),
            None => len(&self.small),
        };
        len.min(MAX_LEN)
    }

    /// Whether nothing was inserted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes of all tables, those included that are being built.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.account.taken()
    }

    /// The bytes of memory that it takes beside its own: all tables, as an allocator rounds them up,
    /// and the list of shards.
    #[must_use]
    pub fn memory(&self) -> u64 {
        let shards = self.divided.get().map_or(0, |divided| divided.shards.len() as u64);
        let tables = shards.max(1);
        shards * size_of::<Guarded>() as u64 + tables * storage::allocated(self.bytes() / tables)
    }

    /// From now on, growth that would take [`bytes`](SharedScalable::bytes) above so many is
    /// refused with [`Error::Memory`], before any memory is asked for. A shard that grows takes
    /// memory beside the one that it replaces. Nothing is lost, and keys that find room are still
    /// taken.
    pub fn set_limit(&self, bytes: u64) {
        self.account.set_limit(bytes);
    }

    /// How many entries the next growth has to move, at the very most: the slots of the largest
    /// shard. An insert may have to wait for all of them, at about 80 ns each. Takes no lock.
    #[must_use]
    pub fn largest_shard_entries(&self) -> u64 {
        self.largest.load(Ordering::Relaxed)
    }

    /// The rate right now: the share of all hashes that is claimed.
    #[must_use]
    pub fn rate(&self) -> f64 {
        let shards = self.look(ShardDetails::new);
        shards.iter().map(|shard| shard.share * shard.rate).sum()
    }

    /// How many times the buckets of the shard that did so most often were doubled (or multiplied
    /// by the growth).
    #[must_use]
    pub fn expansions(&self) -> u32 {
        let generations = self.look(|_, table| table.generation);
        let divided = self.divided.get().filter(|_| generations.len() > 1);
        let early = divided.map_or(self.early, |divided| divided.early);
        early + generations.into_iter().max().unwrap_or(0)
    }

    /// The slots in use.
    pub(crate) fn occupied(&self) -> u64 {
        self.look(|_, table| table.entries).iter().sum()
    }

    /// The share of slots in use, from 0 to 1.
    pub(crate) fn fill(&self) -> f64 {
        let counts = self.look(|_, table| (table.entries, table.shape().all_slots()));
        let (used, slots) = counts.iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        used as f64 / slots as f64
    }

    /// How many distinct digests were inserted: those that were new, and about as many as were
    /// taken for others when they came.
    #[must_use]
    pub fn estimated_items(&self) -> Estimate {
        let mut tables = Vec::new();
        let read = self.hold_each(|number, table| {
            tables.push(Past::of(number, table));
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
        &divided.shards[usize::from(number)]
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
    fn look<T>(&self, look: impl Fn(usize, &Table) -> T) -> Vec<T> {
        if let Some(small) = self.small() {
            return vec![look(0, &small)];
        }
        let numbers = 0..SHARDS as u8;
        let table = |number| unpoisoned(self.shard(number).table.read());
        numbers.map(|number| look(usize::from(number), &table(number))).collect()
    }

    /// Makes a table larger by one step. Nobody else may change it: the caller is its writer.
    #[cold]
    fn grow(&self, guarded: &Guarded) -> Result<()> {
        // A planned key is never refused, even if chance has put too many into one shard.
        if self.plan.growth == 0 && self.len() >= self.plan.items {
            return Err(self.full());
        }
        let mut allowance = Allowance::of(&self.account);
        // This is what takes time. Queries read the same table meanwhile.
        let table = unpoisoned(guarded.table.read());
        let growth = grow(&self.plan, &table, &mut allowance)?;
        drop(table);
        let old = match growth {
            Growth::Larger(table) => {
                self.largest.fetch_max(table.shape().all_slots(), Ordering::Relaxed);
                guarded.aim.turn(&table);
                mem::replace(&mut *unpoisoned(guarded.table.write()), table)
            }
            Growth::Shards(tables) => {
                let mut small = unpoisoned(guarded.table.write());
                self.largest.store(most_slots(&tables), Ordering::Relaxed);
                let (len, early) = (self.len(), early_after(self.early, &small));
                self.divided.get_or_init(|| Divided::new(tables, len, early));
                mem::replace(&mut *small, nothing())
            }
            Growth::Useless => return Err(self.full()),
        };
        allowance.keep();
        let bytes = old.shape().bytes();
        drop(old);
        self.account.give_back(bytes);
        Ok(())
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
        if let Some(far) = self.far() {
            digests.iter().for_each(|digest| far.prefetch(*digest));
        }
    }

    fn contains_run(&self, run: &[Digest], next: &[Digest], found: &mut [bool]) {
        let mut next = next.iter();
        for (run, found) in run.chunks(RUN).zip(found.chunks_mut(RUN)) {
            if let Some(small) = self.small() {
                for (digest, found) in run.iter().zip(found) {
                    let (number, hash) = route(*digest);
                    *found = small.claims(small.spot(number, hash));
                }
            } else if let Some(far) = self.far() {
                self.find_run(run, found, || {
                    next.next().into_iter().for_each(|d| far.prefetch(*d))
                });
            } else {
                self.find_run(run, found, || ());
            }
        }
        // A next run is longer than this one only if this one is empty.
        self.prefetch(next.as_slice());
    }

    fn insert_run(&mut self, run: &[Digest], next: &[Digest], new: &mut Vec<bool>) -> Result<()> {
        let far = self.far();
        for (at, digest) in run.iter().enumerate() {
            if let (Some(far), Some(next)) = (far, next.get(at)) {
                far.prefetch(*next);
            }
            new.push(self.insert(*digest)?);
        }
        self.prefetch(next.get(run.len()..).unwrap_or(&[]));
        Ok(())
    }
}

impl SharedScalable {
    /// The shards, if their memory is so much that it pays to ask for it in advance.
    #[inline]
    fn far(&self) -> Option<&Divided> {
        self.divided.get().filter(|_| self.bytes() > FITS_IN_L2 as u64)
    }

    /// Answers a run of at most [`RUN`] digests, shard by shard. First looks at all homes, and then
    /// again at the keys that may be away, whose other buckets are on their way by then.
    ///
    /// Both looks at such a key are needed, with the table locked all the time: since the first
    /// one, an insert may have moved an entry home.
    #[inline]
    fn find_run(&self, run: &[Digest], found: &mut [bool], mut meanwhile: impl FnMut()) {
        let sorted = RunOrder::new(run);
        let mut rest = [0; RUN];
        let mut in_rest = 0;
        for (number, group) in sorted.groups() {
            let table = unpoisoned(self.shard(number).table.read());
            for at in group {
                meanwhile();
                let (number, hash) = route(run[usize::from(*at)]);
                let spot = table.spot(number, hash);
                let maybe_away;
                (found[usize::from(*at)], maybe_away) = table.at_home(spot);
                table.prefetch_away(spot, maybe_away, Towards::Near);
                rest[in_rest % RUN] = *at;
                in_rest += usize::from(maybe_away);
            }
        }
        let number = |at: &u8| route(run[usize::from(*at)]).0;
        for group in rest[..in_rest].chunk_by(|one, next| number(one) == number(next)) {
            let table = unpoisoned(self.shard(number(&group[0])).table.read());
            for at in group {
                let (number, hash) = route(run[usize::from(*at)]);
                found[usize::from(*at)] = table.claims(table.spot(number, hash));
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
        let number = |digest: &Digest| usize::from(route(*digest).0) % SHARDS;
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
        Guarded {
            aim: Aim::new(&table),
            table: RwLock::new(table),
            writer: Mutex::new(()),
            len: AtomicU64::new(len),
        }
    }
}

impl Divided {
    fn new(tables: Vec<Table>, len: u64, early: u32) -> Divided {
        debug_assert_eq!(tables.len(), SHARDS);
        // Which of the shards has the count of all does not matter.
        let mut len = Some(len);
        let shards = tables.into_iter().map(|table| Guarded::new(table, len.take().unwrap_or(0)));
        Divided { early, shards: shards.collect() }
    }

    #[inline(always)]
    fn prefetch(&self, digest: Digest) {
        let (number, hash) = route(digest);
        self.shards[usize::from(number)].aim.prefetch(hash, Towards::Far);
    }
}

/// What is left of the small table when there are shards. Nobody looks at it.
fn nothing() -> Table {
    let shape = TableShape { level: 0, words: 2, lanes: 2, tagged: true };
    Table::with_cells(shape, 0, Cells::zeroed(0).expect("it takes no memory"))
}

fn most_slots(tables: &[Table]) -> u64 {
    tables.iter().map(|table| table.shape().all_slots()).max().unwrap_or(0)
}

#[cfg(test)]
mod tests;
