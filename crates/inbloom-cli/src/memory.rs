//! How much memory there is, as Linux tells it: of the machine, or of the container if that has less.
//! And how soon the allocator gives back what was freed.

use std::ffi::{c_int, c_long};
use std::fs;

unsafe extern "C" {
    /// Of mimalloc.h, where an option is an enumerator.
    fn mi_option_set(option: c_int, value: c_long);
}

/// `mi_option_purge_delay`: milliseconds until freed memory is given back.
const PURGE_DELAY: c_int = 15;
/// `mi_option_arena_max_object_size`: kibibytes that an object in an arena may have.
const ARENA_OBJECT: c_int = 45;

/// Lets the allocator give memory back to the system soon after it was freed: what is larger than 512
/// KiB at once, as it is mapped by itself, and the rest after 10 ms instead of a second. Otherwise a
/// server that makes and frees replies of megabytes holds hundreds of them beyond its limits: up to
/// 300 MB were measured where clients held 15. Small objects stay in arenas with huge pages: without
/// those, a query of one of 400,000 small filters takes half a microsecond more.
pub fn give_back_soon() {
    // SAFETY: the declaration is that of mimalloc.h, and the function stores a number in a table of the
    // allocator, whoever allocates meanwhile. A test compares the numbers of the options.
    unsafe {
        mi_option_set(PURGE_DELAY, 10);
        mi_option_set(ARENA_OBJECT, 512);
    }
}

/// The bytes of all memory, unless nobody knows.
pub fn total() -> Option<u64> {
    within_limit("MemTotal:")
}

/// The bytes that a program can use without others losing theirs: what is free, and what the system
/// keeps of files; unless nobody knows.
pub fn free() -> Option<u64> {
    within_limit("MemAvailable:")
}

fn within_limit(field: &str) -> Option<u64> {
    let meminfo = fs::read_to_string("/proc/meminfo").ok()?;
    let line = meminfo.lines().find_map(|line| line.strip_prefix(field))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    // Of a container; elsewhere there is no such file, or it says "max".
    let limit = fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let limit = limit.and_then(|limit| limit.trim().parse().ok()).unwrap_or(u64::MAX);
    Some((kibibytes * 1024).min(limit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_options_of_the_allocator_have_their_numbers() {
        unsafe extern "C" {
            fn mi_option_get(option: c_int) -> c_long;
        }
        // SAFETY: as above; it reads a number.
        let get = |option| unsafe { mi_option_get(option) };
        // What mimalloc 3 has by default, in milliseconds and KiB: no other options have these.
        assert_eq!((get(PURGE_DELAY), get(ARENA_OBJECT)), (1000, 2 << 20));
        give_back_soon();
        assert_eq!((get(PURGE_DELAY), get(ARENA_OBJECT)), (10, 512));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn linux_tells_how_much_memory_there_is() {
        let (total, free) = (total().expect("it is told"), free().expect("it is told"));
        assert!(free > 1 << 20 && free <= total, "{free} of {total} bytes");
    }
}
