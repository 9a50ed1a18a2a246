//! What a key can hold: a Bloom filter, a cuckoo filter, or a filter of any other kind.

pub mod bloom;
pub mod change;
pub mod dump_format;
pub mod shapes;
pub mod spec;
pub mod summary;

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use inbloom::file::Watch;
use inbloom::internals::memory::allocated;
use inbloom::interop::redisbloom;
use inbloom::{Filter, Hasher};
use parking_lot::RwLock;

use crate::reply_error::{ReplyError, excerpt};
use bloom::Bloom;

/// A filter of the server. The most frequent one is kept small: a million of them may be there.
pub enum Value {
    /// What BF.RESERVE and BF.ADD make.
    Bloom(Bloom),
    /// A filter of another kind, or one that clears itself: BF.RESERVE with KIND, WINDOW or
    /// AUTOCLEAR, and files that were opened.
    Filter(Box<Guarded<Filter>>),
    /// A filter that RedisBloom made, or that is to be loaded by it.
    RedisBloom(Box<Guarded<redisbloom::Bloom>>),
    /// What CF.RESERVE and CF.ADD make.
    Cuckoo(Box<Guarded<redisbloom::CuckooChain>>),
}

/// A filter that is changed under a lock: by one at a time, for some microseconds.
pub struct Guarded<T> {
    /// The file that it was opened from. It is above the lock because fields are dropped in this order,
    /// and the watch of a file has to go before the mapping: see [`Watch`].
    origin: Option<Box<Origin>>,
    lock: RwLock<T>,
    /// Counts changes.
    stamp: AtomicU64,
    /// The memory that it takes beside this, as last seen under the lock.
    memory: AtomicU64,
    /// Those who have the lock, or wait for it, for as long as all of the filter takes.
    long: AtomicU32,
}

/// The file of a filter that IB.OPEN has opened.
struct Origin {
    /// Its path below --import-dir.
    path: String,
    /// None: it is in memory.
    watch: Option<Watch>,
}

impl Origin {
    fn check(&self) -> Result<(), ReplyError> {
        if self.watch.as_ref().is_none_or(Watch::is_intact) {
            return Ok(());
        }
        let path = excerpt(self.path.as_bytes(), 256);
        Err(ReplyError::with(format!(
            "ERR the file '{path}' has changed since IB.OPEN, or cannot be read: DEL the key and \
             IB.OPEN the file again, and replace files by renaming instead of writing into them"
        )))
    }
}

thread_local! {
    /// What was found wrong with a file that was read, until somebody asks.
    static FOUND: Cell<Option<ReplyError>> = const { Cell::new(None) };
}

/// What was found wrong with a file that this thread has read since it was last asked: whatever was
/// made of what was read is not returned.
pub fn take_found() -> Option<ReplyError> {
    FOUND.take()
}

impl<T> Guarded<T> {
    /// Of so many bytes of memory.
    pub fn new(content: T, memory: u64) -> Guarded<T> {
        Guarded {
            lock: RwLock::new(content),
            stamp: AtomicU64::new(0),
            memory: AtomicU64::new(memory),
            long: AtomicU32::new(0),
            origin: None,
        }
    }

    /// The path below --import-dir of the file that it was opened from, if it was.
    pub fn origin(&self) -> Option<&str> {
        self.origin.as_ref().map(|origin| &*origin.path)
    }

    /// Refuses what was read of a file that has changed since it was opened. Commands need not ask: see
    /// [`take_found`]. It is for those who do something with what was read.
    pub fn check_origin(&self) -> Result<(), ReplyError> {
        self.origin.as_ref().map_or(Ok(()), |origin| origin.check())
    }

    /// Whether the lock may be taken for long: threads that others wait for keep away then.
    pub fn is_busy(&self) -> bool {
        self.long.load(Ordering::Relaxed) != 0
    }

    /// Looks at all of it, or changes all of it: `work` calls one of the others.
    pub fn for_long<R>(&self, work: impl FnOnce(&Guarded<T>) -> R) -> R {
        self.long.fetch_add(1, Ordering::Relaxed);
        let result = work(self);
        self.long.fetch_sub(1, Ordering::Relaxed);
        result
    }

    /// Whether somebody has the lock.
    #[cfg(test)]
    pub fn is_locked(&self) -> bool {
        self.lock.is_locked()
    }

    /// Lets it take so many bytes.
    #[cfg(test)]
    pub fn count_memory(&self, bytes: u64) {
        self.memory.store(bytes, Ordering::Relaxed);
    }

    /// Looks at it.
    pub fn read<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        let result = look(&self.lock.read());
        // Afterwards: it may have changed meanwhile.
        if let Err(failure) = self.check_origin() {
            FOUND.set(Some(failure));
        }
        result
    }

    /// Puts it in order, which changes nothing that it holds.
    fn tend<R>(&self, tend: impl FnOnce(&mut T) -> R) -> R {
        tend(&mut self.lock.write())
    }

    /// Changes it, and tells its memory anew. All of it is done in `change.rs`.
    fn change<R>(&self, change: impl FnOnce(&mut T) -> R, memory: impl Fn(&T) -> u64) -> R {
        let mut content = self.lock.write();
        let result = change(&mut content);
        self.stamp.fetch_add(1, Ordering::Relaxed);
        self.memory.store(memory(&content), Ordering::Relaxed);
        result
    }

    /// The memory that it takes, this included.
    fn memory(&self) -> u64 {
        allocated(size_of::<Guarded<T>>() as u64) + self.memory.load(Ordering::Relaxed)
    }
}

impl Guarded<Filter> {
    /// The hash of its items, which is as it was when it was made or opened.
    pub fn hasher(&self) -> Hasher {
        // Not `read`, which looks at the file each time.
        *self.lock.read().hasher()
    }

    /// Whether it was opened from a file of another program. Its bits are in memory, and could be
    /// changed; but only the path of the file is kept on disk.
    fn is_foreign_file(&self) -> bool {
        self.origin.is_some() && self.lock.read().plan().kind().is_foreign()
    }

    /// Lets a window forget what is too old before it is asked.
    pub fn follow_clock(&self, now: u64) {
        if self.read(|filter| filter.plan().kind().forgets()) {
            // A clock that goes back is an error that a reader has no use for: nothing is forgotten.
            let _ = self.tend(|filter| filter.advance(now));
        }
    }
}

impl Value {
    /// A filter of any kind behind a lock.
    pub fn filter(filter: Filter) -> Value {
        let memory = filter.memory();
        Value::Filter(Box::new(Guarded::new(filter, memory)))
    }

    /// A filter that was opened from a file below --import-dir, by its path from there.
    pub fn opened(filter: Filter, path: &str, watch: Option<Watch>) -> Value {
        let memory = filter.memory();
        let origin = Some(Box::new(Origin { path: path.to_owned(), watch }));
        Value::Filter(Box::new(Guarded { origin, ..Guarded::new(filter, memory) }))
    }

    /// A cuckoo filter of CF.*.
    pub fn cuckoo(cuckoo: redisbloom::CuckooChain) -> Value {
        let memory = cuckoo.memory();
        Value::Cuckoo(Box::new(Guarded::new(cuckoo, memory)))
    }

    /// A filter in the form of RedisBloom.
    pub fn redisbloom(bloom: redisbloom::Bloom) -> Value {
        let memory = bloom.memory();
        Value::RedisBloom(Box::new(Guarded::new(bloom, memory)))
    }

    /// Whether the lock of the filter, where it has one, may be taken for long.
    pub fn is_busy(&self) -> bool {
        match self {
            Value::Bloom(_) => false,
            Value::Filter(filter) => filter.is_busy(),
            Value::RedisBloom(bloom) => bloom.is_busy(),
            Value::Cuckoo(cuckoo) => cuckoo.is_busy(),
        }
    }

    /// What TYPE says.
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::Cuckoo(_) => "MBbloomCF",
            Value::Bloom(_) | Value::Filter(_) | Value::RedisBloom(_) => "MBbloom--",
        }
    }

    /// The memory that it takes beside its entry, as the allocator gives it out. A window counts with
    /// all its generations from the beginning, so that time alone never takes more than was granted;
    /// the pages of a mapped file are the system's to take back.
    pub fn memory(&self) -> u64 {
        match self {
            Value::Bloom(bloom) => bloom.memory(),
            Value::Filter(filter) => filter.memory(),
            Value::RedisBloom(bloom) => bloom.memory(),
            Value::Cuckoo(cuckoo) => cuckoo.memory(),
        }
    }

    /// Returns the bytes of its slots, as BF.INFO and the HTTP API report them. Memory that is set
    /// aside for growth does not count: a copy of the filter has the same number.
    pub fn size(&self) -> u64 {
        match self {
            Value::Bloom(bloom) => bloom.size(),
            Value::Filter(guarded) => guarded.read(bytes_of),
            Value::RedisBloom(guarded) => guarded.read(redisbloom::Bloom::bytes),
            Value::Cuckoo(guarded) => guarded.read(redisbloom::CuckooChain::bytes),
        }
    }

    /// The bytes that a pass over all of it reads: also those of a mapped file, which are on no
    /// account.
    pub fn length(&self) -> u64 {
        match self {
            // Not `read`, which looks at the file each time: its length is that of the opening.
            Value::Filter(filter) if filter.origin().is_some() => filter.lock.read().bytes(),
            _ => self.memory(),
        }
    }

    /// A number that differs when it was changed in between.
    pub fn stamp(&self) -> u64 {
        match self {
            // Bits are only ever added, each with a key that is counted.
            Value::Bloom(bloom) => bloom.items(),
            Value::Filter(filter) => filter.stamp.load(Ordering::Relaxed),
            Value::RedisBloom(bloom) => bloom.stamp.load(Ordering::Relaxed),
            Value::Cuckoo(cuckoo) => cuckoo.stamp.load(Ordering::Relaxed),
        }
    }
}

/// The bytes of a filter's cells, as BF.INFO reports them: none of a mapped file, all generations of a
/// window.
pub fn bytes_of(filter: &Filter) -> u64 {
    if filter.is_read_only() {
        return 0;
    }
    match filter.plan().kind().forgets() {
        true => filter.plan().bytes().max(filter.bytes()),
        false => filter.bytes(),
    }
}

/// Whether a filter loses items by itself.
pub fn forgets(filter: &Filter) -> bool {
    filter.plan().kind().forgets() || filter.auto_clear().is_some()
}

/// Whether a filter takes more memory as it gets more keys: a file may bring a growing part, or be a
/// scalable filter as a whole.
pub fn grows(filter: &Filter) -> bool {
    filter.plan().growth() > 0 || filter.as_grown().is_some()
}
