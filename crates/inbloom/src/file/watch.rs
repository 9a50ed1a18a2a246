//! Files that are queried while other programs may write to them.
//!
//! A mapped file can change while it is read. If it gets shorter (`cp` over it begins that way),
//! there is no page beyond its new end, and the system ends the process with SIGBUS. If it is
//! written in place, its pages are no longer those that were opened. In both cases results cannot
//! be trusted: a key could be missing.
//!
//! A [`Watch`] keeps the process alive and detects the change. The handler of SIGBUS replaces the
//! whole mapping by pages of zeros, marks it, and lets the interrupted thread continue. A caller
//! queries the filter, calls [`Watch::is_intact`] *afterwards*, and drops the result if the call
//! returns false: the mapping is marked, or the file has another length or time of change than when
//! it was opened.
//!
//! Why not in other ways: a file that is larger than memory cannot be copied into it; a lease
//! (`F_SETLEASE`) needs the owner of the file and is not possible on all file systems; permissions
//! do not keep an operator from a wrong `cp`.
//!
//! Cost: one `fstat` for each call of [`Watch::is_intact`]. That is 0.4 microseconds on a busy
//! virtual machine where a system call that does nothing takes 0.3 (2026-11-18); `statx`, which std
//! calls, took three times as long. Call it once for a batch of keys.

use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};

use memmap2::Mmap;

/// Detects whether a mapped file has changed since it was opened.
///
/// Query the filter only as long as this exists: without it, a file that gets shorter ends the
/// process. Drop this before the filter, never after it. Once the filter is dropped, another
/// mapping may get its addresses, and a fault there would be taken for one of this file.
#[derive(Debug)]
pub struct Watch {
    file: File,
    before: Option<WatchState>,
    range: guard::Range,
    /// Whether a change was seen, or was reported by a caller.
    is_broken: AtomicBool,
}

/// The length of a file and its time of change, in seconds and nanoseconds: every write changes one
/// of them. The inode's time of change is not used, because it also changes when the file loses its
/// name, which does no harm.
#[derive(Debug, PartialEq)]
struct WatchState {
    length: u64,
    modified: (i64, i64),
}

impl Watch {
    /// Watches a file that has just been mapped.
    pub(super) fn new(file: File, map: &Mmap) -> Watch {
        let (before, range) = (guard::state(&file), guard::Range::of(map));
        Watch { file, before, range, is_broken: AtomicBool::new(false) }
    }

    /// Returns whether all bytes read from the file so far are those that it had when it was
    /// opened. Call it after the query. Once false, the result stays false.
    pub fn is_intact(&self) -> bool {
        if self.is_broken.load(Ordering::Relaxed) {
            return false;
        }
        let is_intact = !self.range.has_faulted()
            && self.before.is_some()
            && guard::state(&self.file) == self.before;
        if !is_intact {
            self.is_broken.store(true, Ordering::Relaxed);
        }
        is_intact
    }
}

#[cfg(target_os = "linux")]
mod guard {
    //! The address ranges that the handler of SIGBUS serves, in a list that only gets longer.

    use std::fs::File;
    use std::os::fd::AsRawFd;
    use std::ptr;
    use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence};
    use std::sync::{Mutex, Once, PoisonError};

    use super::{Mmap, WatchState};

    /// Returns the state of a file, or None if it is unknown.
    pub fn state(file: &File) -> Option<WatchState> {
        // SAFETY: an all-zero stat is a valid one, and the descriptor is open as long as the file is
        // borrowed; fstat writes to nothing but the struct.
        let (done, stat) = unsafe {
            let mut stat: libc::stat = std::mem::zeroed();
            (libc::fstat(file.as_raw_fd(), &raw mut stat), stat)
        };
        let modified = (stat.st_mtime, stat.st_mtime_nsec);
        (done == 0).then_some(WatchState { length: stat.st_size as u64, modified })
    }

    /// A range of addresses, or none if it is empty. It is used again, and never freed.
    struct Slot {
        /// Counts the changes of the range, twice each: odd while it is being changed.
        version: AtomicU64,
        start: AtomicUsize,
        end: AtomicUsize,
        has_faulted: AtomicBool,
        next: Option<&'static Slot>,
    }

    impl Slot {
        /// Changes the range. A slot has one owner at a time, and `FREE` passes it on: so no two threads
        /// do this at once.
        fn set(&self, start: usize, end: usize) {
            let version = self.version.load(Ordering::Relaxed);
            self.version.store(version + 1, Ordering::Relaxed);
            // No store of the range is seen before the odd version.
            fence(Ordering::Release);
            self.start.store(start, Ordering::Relaxed);
            self.end.store(end, Ordering::Relaxed);
            self.version.store(version + 2, Ordering::Release);
        }

        /// Returns the range, with a start and an end of the same [`set`](Slot::set); None while it is
        /// being changed.
        fn get(&self) -> Option<(usize, usize)> {
            let version = self.version.load(Ordering::Acquire);
            let (start, end) =
                (self.start.load(Ordering::Relaxed), self.end.load(Ordering::Relaxed));
            // A thread that has read a store of a later `set` sees its odd version below, or a
            // later one.
            fence(Ordering::Acquire);
            let is_whole =
                version.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == version;
            is_whole.then_some((start, end))
        }
    }

    /// The newest slot, from which the others are reached.
    static NEWEST: AtomicPtr<Slot> = AtomicPtr::new(ptr::null_mut());
    /// Slots that nobody uses.
    static FREE: Mutex<Vec<&'static Slot>> = Mutex::new(Vec::new());
    /// The earlier handler of the signal.
    static BEFORE: AtomicPtr<libc::sigaction> = AtomicPtr::new(ptr::null_mut());

    /// A range of addresses that the handler serves until this is dropped.
    pub struct Range(&'static Slot);

    impl std::fmt::Debug for Range {
        fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(formatter, "Range(has_faulted: {})", self.has_faulted())
        }
    }

    impl Range {
        /// That of a mapping.
        pub fn of(map: &Mmap) -> Range {
            static INSTALLED: Once = Once::new();
            INSTALLED.call_once(install);
            let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
            let slot = free.pop().unwrap_or_else(|| {
                let newest = NEWEST.load(Ordering::Acquire);
                let slot: &'static Slot = Box::leak(Box::new(Slot {
                    version: AtomicU64::new(0),
                    start: AtomicUsize::new(0),
                    end: AtomicUsize::new(0),
                    has_faulted: AtomicBool::new(false),
                    // SAFETY: null, or a slot that was leaked here, and so is there for good.
                    next: unsafe { newest.as_ref() },
                }));
                NEWEST.store(ptr::from_ref(slot).cast_mut(), Ordering::Release);
                slot
            });
            let range = map.as_ptr_range();
            slot.has_faulted.store(false, Ordering::Relaxed);
            slot.set(range.start as usize, range.end as usize);
            Range(slot)
        }

        /// Returns whether a page of it was missing.
        pub fn has_faulted(&self) -> bool {
            self.0.has_faulted.load(Ordering::Acquire)
        }
    }

    impl Drop for Range {
        fn drop(&mut self) {
            self.0.set(0, 0);
            FREE.lock().unwrap_or_else(PoisonError::into_inner).push(self.0);
        }
    }

    fn install() {
        // SAFETY: an all-zero sigaction is a valid one (no flags, an empty mask). `handle` has the
        // type that SA_SIGINFO asks for, and does only what a handler may: see there. SA_ONSTACK
        // keeps it off a stack that may have overflowed, as std's own handler does.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            let mut before: libc::sigaction = std::mem::zeroed();
            let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) = handle;
            action.sa_sigaction = handler as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigemptyset(&raw mut action.sa_mask);
            if libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut before) == 0 {
                BEFORE.store(Box::leak(Box::new(before)), Ordering::Release);
                libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut());
            }
        }
    }

    /// Replaces the mapping in which a fault occurred by zeros. Any other fault goes to the earlier
    /// handler: the instruction runs again, and faults again.
    ///
    /// It uses only loads, stores and system calls, which are safe in a signal handler.
    extern "C" fn handle(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
        // SAFETY: the system gives a siginfo that is good until this returns, and for SIGBUS it has an
        // address. A slot is never freed. `Slot::get` returns a range as one `set` left it, never the
        // start of one mapping with the end of another. A range with the address in it is that of the
        // mapping that the interrupted thread reads. That thread has the filter and its `Range`, so the
        // slot does not change now. No other slot has the address: a `Range` is dropped before the
        // mapping that it is of (see `Watch`), so the range was taken back before the system could give
        // its addresses to a later mapping. Pages of zeros thus come where the mapping is, over all of
        // it and nothing else. Memory that others read as `&[u8]` changes by that as it does by any
        // write to a mapped file, which the reading code is prepared for: see `file::map`. The number
        // of the last error belongs to the code that was interrupted, and is put back.
        unsafe {
            let error = *libc::__errno_location();
            let address = (*info).si_addr() as usize;
            let mut slot = NEWEST.load(Ordering::Acquire).as_ref();
            while let Some(this) = slot {
                if let Some((start, end)) = this.get()
                    && (start..end).contains(&address)
                {
                    this.has_faulted.store(true, Ordering::Release);
                    let flags = libc::MAP_PRIVATE
                        | libc::MAP_ANONYMOUS
                        | libc::MAP_FIXED
                        | libc::MAP_NORESERVE;
                    let at = start as *mut libc::c_void;
                    let got = libc::mmap(at, end - start, libc::PROT_READ, flags, -1, 0);
                    if got != libc::MAP_FAILED {
                        *libc::__errno_location() = error;
                        return;
                    }
                }
                slot = this.next;
            }
            libc::sigaction(libc::SIGBUS, BEFORE.load(Ordering::Acquire), ptr::null_mut());
            *libc::__errno_location() = error;
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod guard {
    //! Elsewhere a file that gets shorter ends the process.

    use std::fs::File;
    use std::time::UNIX_EPOCH;

    use super::WatchState;

    /// Returns the state of a file, or None if it is unknown.
    pub fn state(file: &File) -> Option<WatchState> {
        let metadata = file.metadata().ok()?;
        let since = metadata.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
        let modified = (since.as_secs() as i64, since.subsec_nanos().into());
        Some(WatchState { length: metadata.len(), modified })
    }

    /// Nothing.
    #[derive(Debug)]
    pub struct Range;

    impl Range {
        /// Of a mapping.
        pub fn of(_: &super::Mmap) -> Range {
            Range
        }

        /// Never.
        pub fn has_faulted(&self) -> bool {
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Filter, Kind, OpenOptions, Plan};

    fn saved(kind: Kind) -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("seen.ib");
        let mut filter = Filter::new(Plan::builder(kind).items(100_000).build().unwrap()).unwrap();
        for key in 0..50_000u32 {
            filter.insert(key.to_le_bytes()).unwrap();
        }
        filter.save(&path).unwrap();
        (folder, path)
    }

    #[test]
    fn a_file_that_is_cut_while_it_is_asked_is_told_and_ends_no_process() {
        let kinds = [Kind::Blocked, Kind::Classic, Kind::Counting, Kind::Cuckoo, Kind::Scalable];
        for kind in kinds {
            for length in [0, 4096] {
                let (_folder, path) = saved(kind);
                let (filter, watch) = OpenOptions::new().open_watched(&path).unwrap();
                let watch = watch.unwrap();
                assert!(filter.contains(7u32.to_le_bytes()) && watch.is_intact());
                let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
                file.set_len(length).unwrap();
                let found = (0..50_000u32).filter(|key| filter.contains(key.to_le_bytes())).count();
                assert!(found < 50_000, "{kind}: pages beyond the end are gone");
                assert!(!watch.is_intact(), "{kind}");
            }
        }
    }

    /// A thread cuts its file and reads it, while others open and close files: slots and addresses are
    /// used again all the time. No fault may be taken for one of another file.
    #[test]
    fn a_cut_file_breaks_no_other_one_while_files_are_opened_and_closed() {
        let (_folder, sound) = saved(Kind::Blocked);
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !is_done.load(Ordering::Relaxed) {
                        let (filter, watch) = OpenOptions::new().open_watched(&sound).unwrap();
                        assert!((0..100u32).all(|key| filter.contains(key.to_le_bytes())));
                        assert!(watch.as_ref().unwrap().is_intact());
                        drop((watch, filter));
                    }
                });
            }
            for _ in 0..50 {
                let (_folder, path) = saved(Kind::Blocked);
                let (filter, watch) = OpenOptions::new().open_watched(&path).unwrap();
                std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(0).unwrap();
                assert!((0..100u32).any(|key| !filter.contains(key.to_le_bytes())));
                assert!(!watch.as_ref().unwrap().is_intact());
                drop((watch, filter));
            }
            is_done.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn a_file_that_is_written_in_place_is_told() {
        let (_folder, path) = saved(Kind::Blocked);
        let (filter, watch) = OpenOptions::new().open_watched(&path).unwrap();
        let (bytes, watch) = (std::fs::read(&path).unwrap(), watch.unwrap());
        assert!(watch.is_intact());
        // Times of files advance in steps of some milliseconds.
        std::thread::sleep(std::time::Duration::from_millis(50));
        std::fs::write(&path, vec![0; bytes.len()]).unwrap();
        assert!(!watch.is_intact());
        std::fs::write(&path, bytes).unwrap();
        assert!(!watch.is_intact(), "for good");
        drop(filter);
    }

    #[test]
    fn a_file_that_is_replaced_is_as_it_was() {
        let (folder, path) = saved(Kind::Blocked);
        let (filter, watch) = OpenOptions::new().open_watched(&path).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(50));
        let other = folder.path().join("other.ib");
        std::fs::write(&other, b"other").unwrap();
        std::fs::rename(&other, &path).unwrap();
        assert!(filter.contains(7u32.to_le_bytes()) && watch.unwrap().is_intact());
    }
}
