//! The class `Filter`: a filter of any kind behind a lock.
//!
//! Queries share the lock, changes have it alone, and batches take it for a few thousand keys at a
//! time with the interpreter's lock released. Not a `SharedFilter`, which threads change without a lock: its
//! inserts are slower, it takes a second copy to be saved, and a mapped file would have to be copied;
//! and before Python without an interpreter lock is common, threads rarely meet here.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};

use inbloom::AsKey;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};

use crate::answers::Answers;
use crate::batch::{Batch, Stopped};
use crate::clock::{self, Clock};
use crate::column::{Problem, Visitor};
use crate::error::{bad_parameter, closed, exception, raised, raised_with};
use crate::key::Keys;
use crate::make::{Given, hasher, particulars, set_int_width};

/// A set of keys that answers "certainly not" or "probably yes", in a fraction of their memory.
///
/// Filter(items, rate) is a Bloom filter for so many keys: a key that was added is always found,
/// and of other keys at most a share of rate is, 0.01 by default. Other kinds grow ("scalable"), remove
/// ("cuckoo", "counting"), forget what is old ("window"), or hold small integers exactly ("bitmap"): see
/// docs/choose-a-kind.md. inbloom.build makes the static kind "ribbon".
///
/// Keys are str, as UTF-8, and bytes. Integers are keys of a filter with int_width=8 (or 4), as
/// that many little-endian bytes, which its file records.
///
/// bytes, bits_per_key, probes, lines, universe, width, growth, tightening and generations decide the
/// size in other ways, see inbloom.plan. window is the time for which a window finds a key (seconds, a
/// timedelta, or "7d"), last the number of keys. auto_clear is the share of set bits above
/// which the filter empties itself. With secret, 16 random bytes, nobody else can choose keys that
/// collide. seed is for filters whose answers are combined by "and". note is kept in the file.
///
/// All calls may be made from many threads at once. Batches release the interpreter's lock.
///
/// >>> import inbloom
/// >>> seen = inbloom.Filter(1_000_000, 0.001)
/// >>> seen.add("alice")
/// True
/// >>> "alice" in seen, "bob" in seen
/// (True, False)
/// >>> list(seen.add_many(["alice", "bob", b"carol"]))
/// [False, True, True]
/// >>> len(seen)
/// 3
#[pyclass(frozen, subclass, module = "inbloom")]
pub struct Filter {
    keys: Keys,
    /// None once it is closed.
    content: RwLock<Option<inbloom::Filter>>,
    clock: Option<Clock>,
    /// Whether the caller moves the clock.
    is_manual: AtomicBool,
    /// The file that it was opened from, and whether it may be saved there.
    path: Option<PathBuf>,
    is_writable: bool,
}

impl Filter {
    pub fn new_from(filter: inbloom::Filter) -> Filter {
        let clock = match filter.is_read_only() {
            true => None,
            false => Clock::for_plan(filter.plan()),
        };
        Filter {
            keys: Keys::of(&filter),
            clock,
            is_manual: AtomicBool::new(false),
            content: RwLock::new(Some(filter)),
            path: None,
            is_writable: false,
        }
    }

    pub fn opened(filter: inbloom::Filter, path: PathBuf, is_writable: bool) -> Filter {
        Filter { path: Some(path), is_writable, ..Filter::new_from(filter) }
    }

    fn reading(&self) -> RwLockReadGuard<'_, Option<inbloom::Filter>> {
        self.content.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn writing(&self) -> RwLockWriteGuard<'_, Option<inbloom::Filter>> {
        self.content.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls a short function with the filter. Waits for others with the interpreter's lock
    /// released.
    #[inline]
    fn read<R: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&inbloom::Filter) -> R + Send,
    ) -> PyResult<R> {
        match self.content.try_read() {
            Ok(content) => content.as_ref().map(call).ok_or_else(|| closed(py)),
            Err(TryLockError::Poisoned(content)) => {
                content.into_inner().as_ref().map(call).ok_or_else(|| closed(py))
            }
            Err(TryLockError::WouldBlock) => self.read_long(py, call),
        }
    }

    /// The same for a function that takes long.
    #[inline(never)]
    fn read_long<R: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&inbloom::Filter) -> R + Send,
    ) -> PyResult<R> {
        py.detach(|| self.reading().as_ref().map(call)).ok_or_else(|| closed(py))
    }

    /// Calls a short function that changes the filter. Waits as `read` does.
    #[inline]
    fn write<R: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut inbloom::Filter) -> inbloom::Result<R> + Send,
    ) -> PyResult<R> {
        let result = match self.content.try_write() {
            Ok(mut content) => content.as_mut().map(call),
            Err(TryLockError::Poisoned(content)) => content.into_inner().as_mut().map(call),
            Err(TryLockError::WouldBlock) => return self.write_long(py, call),
        };
        match result {
            Some(Ok(value)) => Ok(value),
            Some(Err(error)) => Err(raised(py, error)),
            None => Err(closed(py)),
        }
    }

    /// The same for a function that takes long.
    #[inline(never)]
    fn write_long<R: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut inbloom::Filter) -> inbloom::Result<R> + Send,
    ) -> PyResult<R> {
        let result = py.detach(|| self.writing().as_mut().map(call));
        result.ok_or_else(|| closed(py))?.map_err(|error| raised(py, error))
    }

    /// Tells a window the time, if it is due.
    #[inline]
    fn tell_time(&self, py: Python<'_>) -> PyResult<()> {
        match &self.clock {
            None => Ok(()),
            Some(clock) => self.tell_window(py, clock),
        }
    }

    #[inline(never)]
    fn tell_window(&self, py: Python<'_>, clock: &Clock) -> PyResult<()> {
        if self.is_manual.load(Ordering::Relaxed) {
            return Ok(());
        }
        let Some(now) = clock.due() else { return Ok(()) };
        self.write(py, |filter| filter.advance(now))?;
        clock.tell(now);
        Ok(())
    }

    fn copied(&self, py: Python<'_>) -> PyResult<inbloom::Filter> {
        self.read_long(py, inbloom::Filter::try_clone)?.map_err(|error| raised(py, error))
    }
}

/// The exception for a batch that was given up after so many keys.
pub fn failed(py: Python<'_>, stopped: Stopped, added: usize) -> PyErr {
    let problem = match stopped {
        Stopped::Problem(problem) => problem,
        Stopped::Raised(error) => return error,
    };
    match problem {
        Problem::Refused(error) if added == 0 => raised(py, error),
        Problem::Refused(error) => {
            raised_with(py, error, &format!("; {added} keys of the batch were added before"))
        }
        Problem::Column(text) => PyValueError::new_err(text),
        Problem::Closed => closed(py),
    }
}

#[pymethods]
impl Filter {
    #[new]
    #[pyo3(signature = (
        items = None, rate = None, kind = "blocked", *, bytes = None, bits_per_key = None,
        probes = None, lines = None, universe = None, width = None, growth = None, tightening = None,
        window = None, last = None, generations = None, auto_clear = None, int_width = None,
        seed = None, secret = None, note = None,
    ))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords")]
    fn new<'py>(
        py: Python<'py>,
        items: Option<u64>,
        rate: Option<f64>,
        kind: &str,
        bytes: Option<u64>,
        bits_per_key: Option<f64>,
        probes: Option<u32>,
        lines: Option<u32>,
        universe: Option<u64>,
        width: Option<u32>,
        growth: Option<u32>,
        tightening: Option<f64>,
        window: Option<Bound<'py, PyAny>>,
        last: Option<u64>,
        generations: Option<u32>,
        auto_clear: Option<f64>,
        int_width: Option<u32>,
        seed: Option<u64>,
        secret: Option<&[u8]>,
        note: Option<&str>,
    ) -> PyResult<Filter> {
        let given = Given {
            items,
            rate,
            kind,
            bytes,
            bits_per_key,
            probes,
            lines,
            universe,
            width,
            growth,
            tightening,
            window,
            last,
            generations,
        };
        let plan = given.plan(py)?;
        if plan.kind().is_static() {
            let text =
                format!("kind {} is built once from all its keys: use inbloom.build", plan.kind());
            return Err(exception(py, "UnsupportedError", text));
        }
        let failing = |error| raised(py, error);
        let hasher = hasher(py, plan.kind(), seed, secret)?;
        let mut filter = inbloom::Filter::with_hasher(plan, hasher).map_err(failing)?;
        filter.set_auto_clear(auto_clear).map_err(failing)?;
        set_int_width(py, &mut filter, int_width)?;
        filter.set_note(note.unwrap_or_default()).map_err(failing)?;
        Ok(Filter::new_from(filter))
    }

    /// Adds a key. Returns True if it is certainly new, False if it was probably there.
    ///
    /// >>> import inbloom
    /// >>> seen = inbloom.Filter(1000)
    /// >>> seen.add("alice"), seen.add("alice")
    /// (True, False)
    #[pyo3(signature = (key, /))]
    fn add(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.tell_time(py)?;
        self.keys.with(key, |key| self.write(py, |filter| filter.insert(key)))
    }

    /// Adds a key unless it is probably there already. Returns as add does.
    ///
    /// For most kinds the two are the same. A counting or cuckoo filter counts every add, and a
    /// window begins anew for a key that is added again: this call leaves them as they are.
    ///
    /// >>> import inbloom
    /// >>> seen = inbloom.Filter(1000, kind="counting")
    /// >>> seen.add("alice"), seen.add_if_absent("alice"), seen.count("alice")
    /// (True, False, 1)
    #[pyo3(signature = (key, /))]
    fn add_if_absent(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.tell_time(py)?;
        self.keys.with(key, |key| self.write(py, |filter| filter.insert_if_absent(key)))
    }

    fn __contains__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.tell_time(py)?;
        self.keys.with(key, |key| self.read(py, |filter| filter.contains(key)))
    }

    /// Adds many keys, in order. Returns the answer of add for each, as Answers.
    ///
    /// Keys are a list or another iterable of str and bytes; a column of Arrow (pyarrow, polars, pandas: text,
    /// binary, integers), which is read where it lies; or an array (numpy: integers, S, U and V, or
    /// rows of bytes). A missing value of a column is no key: it is not added, and its answer is False.
    ///
    /// Much faster than single calls. If a key is refused, those before it were added.
    ///
    /// >>> import array, inbloom
    /// >>> ids = inbloom.Filter(1000, int_width=8)
    /// >>> list(ids.add_many(array.array("Q", [7, 8, 7])))
    /// [True, True, False]
    #[pyo3(signature = (keys, /))]
    fn add_many(&self, py: Python<'_>, keys: &Bound<'_, PyAny>) -> PyResult<Answers> {
        self.tell_time(py)?;
        let batch = Batch::of(keys, &self.keys)?;
        let answers = Vec::with_capacity(batch.rows());
        let mut insert = Insert { filter: self, answers, scratch: Vec::new() };
        match batch.visit(py, &self.keys, &mut insert) {
            Ok(()) => Ok(Answers::new(insert.answers)),
            Err(stopped) => Err(failed(py, stopped, insert.answers.len())),
        }
    }

    /// Looks many keys up, in order. Returns True for each that is probably there, as Answers.
    ///
    /// It takes keys as add_many does. A missing value of a column is never there.
    ///
    /// >>> import inbloom
    /// >>> seen = inbloom.Filter(1000)
    /// >>> seen.update(["alice", "bob"])
    /// >>> list(seen.contains_many(["alice", "carol", "bob"]))
    /// [True, False, True]
    #[pyo3(signature = (keys, /))]
    fn contains_many(&self, py: Python<'_>, keys: &Bound<'_, PyAny>) -> PyResult<Answers> {
        self.tell_time(py)?;
        let batch = Batch::of(keys, &self.keys)?;
        let answers = Vec::with_capacity(batch.rows());
        let mut query = Query { filter: self, answers, scratch: Vec::new() };
        match batch.visit(py, &self.keys, &mut query) {
            Ok(()) => Ok(Answers::new(query.answers)),
            Err(stopped) => Err(failed(py, stopped, 0)),
        }
    }

    /// Adds all keys of one or several collections, as set.update does.
    ///
    /// >>> import inbloom
    /// >>> seen = inbloom.Filter(1000)
    /// >>> seen.update(["alice", "bob"], (name for name in ["carol"]))
    /// >>> "carol" in seen
    /// True
    #[pyo3(signature = (*keys))]
    fn update(&self, py: Python<'_>, keys: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.tell_time(py)?;
        for keys in keys.iter() {
            let mut update = Update { filter: self, added: 0, scratch: Vec::new() };
            let batch = Batch::of(&keys, &self.keys)?;
            let result = batch.visit(py, &self.keys, &mut update);
            result.map_err(|stopped| failed(py, stopped, update.added))?;
        }
        Ok(())
    }

    /// Removes a key. Returns False if it was not there, and then nothing has changed.
    ///
    /// Bitmap, counting and cuckoo filters can. Remove only keys that you have added: otherwise other
    /// keys may be lost with them.
    ///
    /// >>> import inbloom
    /// >>> sessions = inbloom.Filter(1000, kind="cuckoo")
    /// >>> sessions.add("alice"), sessions.remove("alice"), "alice" in sessions
    /// (True, True, False)
    #[pyo3(signature = (key, /))]
    fn remove(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.keys.with(key, |key| self.write(py, |filter| filter.remove(key)))
    }

    /// Returns how often a key was added and not removed, as far as the kind can tell.
    ///
    /// Counting filters can, up to 7 (or the maximum of a wider counter, in a file from elsewhere), and
    /// cuckoo filters, up to 8. The others return 0 or 1.
    ///
    /// >>> import inbloom
    /// >>> visits = inbloom.Filter(1000, kind="counting")
    /// >>> visits.update(["alice", "alice"])
    /// >>> visits.count("alice")
    /// 2
    #[pyo3(signature = (key, /))]
    fn count(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<u64> {
        self.tell_time(py)?;
        self.keys.with(key, |key| self.read(py, |filter| filter.count(key)))
    }

    /// Estimates how many distinct keys were added. Exact for bitmaps and ribbons; info() has the
    /// error of the others.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.tell_time(py)?;
        self.read(py, |filter| filter.estimated_items().items.round() as usize)
    }

    /// True unless the filter is empty: Python would otherwise take the estimate.
    fn __bool__(&self, py: Python<'_>) -> PyResult<bool> {
        self.read(py, |filter| filter.occupied() > 0)
    }

    /// Adds all keys of another filter, of the same plan and hash.
    ///
    /// >>> import inbloom
    /// >>> one, other = inbloom.Filter(1000), inbloom.Filter(1000)
    /// >>> other.add("bob")
    /// True
    /// >>> one.merge(other)
    /// >>> "bob" in one
    /// True
    #[pyo3(signature = (other, /))]
    fn merge(&self, py: Python<'_>, other: &Bound<'_, Filter>) -> PyResult<()> {
        let other = other.get();
        if std::ptr::eq(self, other) {
            let copy = self.copied(py)?;
            return self.write_long(py, |filter| filter.merge(&copy));
        }
        let result = py.detach(|| {
            // Everybody who takes two locks takes them in the order of their addresses.
            let (mut here, there);
            if std::ptr::from_ref(self) < std::ptr::from_ref(other) {
                here = self.writing();
                there = other.reading();
            } else {
                there = other.reading();
                here = self.writing();
            }
            Some(here.as_mut()?.merge(there.as_ref()?))
        });
        result.ok_or_else(|| closed(py))?.map_err(|error| raised(py, error))
    }

    fn __ior__(&self, py: Python<'_>, other: &Bound<'_, Filter>) -> PyResult<()> {
        self.merge(py, other)
    }

    fn __or__(&self, py: Python<'_>, other: &Bound<'_, Filter>) -> PyResult<Filter> {
        let mut united = self.copied(py)?;
        if !std::ptr::eq(self, other.get()) {
            let merged = other.get().read_long(py, |other| united.merge(other))?;
            merged.map_err(|error| raised(py, error))?;
        }
        Ok(Filter::new_from(united))
    }

    /// Returns a copy in memory, which can be changed, of a filter that was opened too.
    fn copy(&self, py: Python<'_>) -> PyResult<Filter> {
        self.copied(py).map(Filter::new_from)
    }

    fn __copy__(&self, py: Python<'_>) -> PyResult<Filter> {
        self.copy(py)
    }

    #[pyo3(signature = (_memo, /))]
    fn __deepcopy__(&self, py: Python<'_>, _memo: &Bound<'_, PyAny>) -> PyResult<Filter> {
        self.copy(py)
    }

    /// Removes all keys.
    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        self.write_long(py, inbloom::Filter::clear)
    }

    /// Moves the clock of a window on to now, in seconds since 1970 or since any moment you like.
    ///
    /// Windows of a time follow the system's clock by themselves. A call with a number ends that: then
    /// only this call moves the clock, and never back. A call without one goes on with the system's.
    ///
    /// >>> import inbloom
    /// >>> recent = inbloom.Filter(1000, kind="window", window=60)
    /// >>> recent.advance(1000)
    /// >>> recent.add("alice")
    /// True
    /// >>> recent.advance(1050)
    /// >>> "alice" in recent
    /// True
    /// >>> recent.advance(1100)
    /// >>> "alice" in recent
    /// False
    #[pyo3(signature = (now = None, /))]
    fn advance(&self, py: Python<'_>, now: Option<f64>) -> PyResult<()> {
        let millis = match now {
            None => clock::now(),
            Some(seconds) if (0.0..1e15).contains(&seconds) => (seconds * 1000.0) as u64,
            Some(seconds) => {
                let text = format!("now is {seconds}, but must be seconds from 0 to 1e15");
                return Err(bad_parameter(py, text));
            }
        };
        self.write_long(py, |filter| filter.advance(millis))?;
        self.is_manual.store(now.is_some(), Ordering::Relaxed);
        Ok(())
    }

    /// Saves the filter to a file: to path, or to the one that it was opened from.
    ///
    /// The file is the old one or the new one, never half of either, whatever happens meanwhile.
    #[pyo3(signature = (path = None, /))]
    fn save(&self, py: Python<'_>, path: Option<PathBuf>) -> PyResult<()> {
        let path = match (&path, &self.path) {
            (Some(path), _) => path,
            (None, Some(path)) if self.is_writable => path,
            (None, Some(_)) => return Err(raised(py, inbloom::Error::ReadOnly)),
            (None, None) => {
                return Err(bad_parameter(py, "the filter has no file yet: pass a path"));
            }
        };
        self.read_long(py, |filter| filter.save(path))?.map_err(|error| raised(py, error))
    }

    /// Returns the bytes of the filter's file: see inbloom.from_bytes. Pickle has the same.
    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let written = self.read_long(py, |filter| {
            let mut bytes = Vec::new();
            filter.write_to(&mut bytes).map(|()| bytes)
        })?;
        Ok(PyBytes::new(py, &written.map_err(|error| raised(py, error))?))
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        if self.read(py, |filter| filter.hasher().key().is_some())? {
            let text = "a filter with a secret key cannot be pickled, because the pickle would lose or \
                        reveal the key: call save(), and open the file with the secret key";
            return Err(exception(py, "SecretError", text.to_string()));
        }
        let make = py.import("inbloom")?.getattr("from_bytes")?;
        PyTuple::new(py, [make, PyTuple::new(py, [self.to_bytes(py)?])?.into_any()])
    }

    /// Returns what is known about the filter, by the names of `inbloom info --json`.
    ///
    /// >>> import inbloom
    /// >>> info = inbloom.Filter(1_000_000, 0.01).info()
    /// >>> info["kind"], info["bytes"], info["current_rate"]
    /// ('blocked', 1265408, 0.0)
    fn info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.tell_time(py)?;
        // Everything that may take long is read with the interpreter's lock released.
        let known = self.read_long(py, Known::of)?;
        let fields = PyDict::new(py);
        let plan = &known.plan;
        fields.set_item("kind", plan.kind().name())?;
        fields.set_item("planned_items", plan.items())?;
        fields.set_item("target_rate", plan.rate())?;
        fields.set_item("bits", plan.bits())?;
        fields.set_item("bits_per_key", plan.bits_per_key())?;
        fields.set_item("bytes", known.bytes)?;
        fields.set_item("memory", known.memory)?;
        fields.set_item("probes", plan.probes())?;
        fields.set_item("cache_lines", plan.cache_lines())?;
        fields.set_item("hash", known.hash)?;
        fields.set_item("hash_seed", known.seed)?;
        fields.set_item("shards", known.shards)?;
        fields.set_item("inserted", known.inserted)?;
        fields.set_item("estimated_items", known.estimate.items)?;
        fields.set_item("estimated_items_error", known.estimate.error)?;
        fields.set_item("occupied", known.occupied)?;
        fields.set_item("fill", known.fill)?;
        fields.set_item("current_rate", known.rate)?;
        fields.set_item("read_only", known.is_read_only)?;
        fields.set_item("details", known.details)?;
        fields.set_item("auto_clear", known.auto_clear)?;
        fields.set_item("format", known.format)?;
        fields.set_item("key_encoding", known.key_encoding)?;
        fields.set_item("normalization", known.normalization)?;
        fields.set_item("note", known.note)?;
        particulars(plan, &fields)?;
        Ok(fields)
    }

    /// The kind's name.
    #[getter]
    fn kind(&self, py: Python<'_>) -> PyResult<&'static str> {
        self.read(py, |filter| filter.plan().kind().name())
    }

    /// Closes the filter: frees its memory, or lets go of its file. Later calls raise ClosedError.
    fn close(&self, py: Python<'_>) {
        py.detach(|| drop(self.writing().take()));
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (exception_type, _exception, _traceback, /))]
    fn __exit__(
        &self,
        py: Python<'_>,
        exception_type: &Bound<'_, PyAny>,
        _exception: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let is_open = py.detach(|| self.reading().is_some());
        if is_open && self.is_writable && exception_type.is_none() {
            self.save(py, None)?;
        }
        self.close(py);
        Ok(())
    }

    fn __eq__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        let Ok(other) = other.cast::<Filter>() else { return Ok(false) };
        let other = other.get();
        if std::ptr::eq(self, other) {
            return Ok(true);
        }
        let same = py.detach(|| {
            // In the order of their addresses, as in `merge`.
            let (lower, upper) = match std::ptr::from_ref(self) < std::ptr::from_ref(other) {
                true => (self, other),
                false => (other, self),
            };
            let (lower, upper) = (lower.reading(), upper.reading());
            Some(*lower.as_ref()? == *upper.as_ref()?)
        });
        same.ok_or_else(|| closed(py))
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let shown = self.read_long(py, |filter| {
            let plan = filter.plan();
            format!(
                "<inbloom.Filter kind={:?} items={} rate={} bytes={} len={}>",
                plan.kind().name(),
                plan.items(),
                plan.rate(),
                filter.bytes(),
                filter.estimated_items().items.round(),
            )
        });
        shown.unwrap_or_else(|_| "<inbloom.Filter closed>".to_string())
    }
}

/// What is known about a filter.
struct Known {
    plan: inbloom::Plan,
    bytes: u64,
    memory: u64,
    hash: &'static str,
    seed: Option<u64>,
    shards: Option<usize>,
    inserted: u64,
    estimate: inbloom::Estimate,
    occupied: u64,
    fill: f64,
    rate: f64,
    is_read_only: bool,
    details: std::collections::BTreeMap<&'static str, String>,
    auto_clear: Option<f64>,
    format: Option<String>,
    key_encoding: Option<String>,
    normalization: String,
    note: String,
}

impl Known {
    fn of(filter: &inbloom::Filter) -> Known {
        let first = &filter.shards()[0];
        let shards = filter.shards().len();
        Known {
            plan: *filter.plan(),
            bytes: filter.bytes(),
            memory: filter.memory(),
            hash: first.hasher().name(),
            seed: first.hasher().seed(),
            shards: (shards > 1).then_some(shards),
            inserted: filter.inserted(),
            estimate: filter.estimated_items(),
            occupied: filter.occupied(),
            fill: filter.fill(),
            rate: filter.rate(),
            is_read_only: filter.is_read_only(),
            details: first.details().into_iter().collect(),
            auto_clear: filter.auto_clear(),
            format: filter.container().map(|container| container.to_string()),
            key_encoding: Some(filter.key_encoding().to_string()).filter(|name| !name.is_empty()),
            normalization: filter.normalization().to_string(),
            note: filter.note().to_string(),
        }
    }
}

/// Inserts the keys of a batch.
struct Insert<'a> {
    filter: &'a Filter,
    answers: Vec<bool>,
    scratch: Vec<bool>,
}

impl Visitor for Insert<'_> {
    fn keys<K: AsKey>(&mut self, keys: &[K]) -> Result<(), Problem> {
        let mut content = self.filter.writing();
        let filter = content.as_mut().ok_or(Problem::Closed)?;
        let result = filter.insert_many(keys, &mut self.scratch);
        drop(content);
        self.answers.extend_from_slice(&self.scratch);
        result.map_err(Problem::Refused)
    }

    fn spread(&mut self, has_key: &[bool]) {
        spread(&mut self.answers, has_key);
    }
}

/// Inserts the keys of a batch, and keeps no answers.
struct Update<'a> {
    filter: &'a Filter,
    added: usize,
    scratch: Vec<bool>,
}

impl Visitor for Update<'_> {
    fn keys<K: AsKey>(&mut self, keys: &[K]) -> Result<(), Problem> {
        let mut content = self.filter.writing();
        let filter = content.as_mut().ok_or(Problem::Closed)?;
        let result = filter.insert_many(keys, &mut self.scratch);
        self.added += self.scratch.len();
        result.map_err(Problem::Refused)
    }

    fn spread(&mut self, _: &[bool]) {}
}

/// Looks the keys of a batch up.
struct Query<'a> {
    filter: &'a Filter,
    answers: Vec<bool>,
    scratch: Vec<bool>,
}

impl Visitor for Query<'_> {
    fn keys<K: AsKey>(&mut self, keys: &[K]) -> Result<(), Problem> {
        let content = self.filter.reading();
        let filter = content.as_ref().ok_or(Problem::Closed)?;
        filter.contains_many(keys, &mut self.scratch);
        drop(content);
        self.answers.extend_from_slice(&self.scratch);
        Ok(())
    }

    fn spread(&mut self, has_key: &[bool]) {
        spread(&mut self.answers, has_key);
    }
}

/// Puts an answer of False for each row without a key between the last answers.
fn spread(answers: &mut Vec<bool>, has_key: &[bool]) {
    let keys = has_key.iter().filter(|has_key| **has_key).count();
    let given = answers.split_off(answers.len() - keys);
    let mut given = given.into_iter();
    answers.extend(has_key.iter().map(|has_key| *has_key && given.next().unwrap_or(false)));
}
