//! How soon the allocator gives back what was freed, and in which pages its memory is.

use std::ffi::{c_int, c_long};

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
    // SAFETY: the declaration is that of mimalloc.h, and the function stores a number in a table of
    // the allocator, while other threads allocate. A test compares the numbers of the options.
    unsafe {
        mi_option_set(PURGE_DELAY, 10);
        mi_option_set(ARENA_OBJECT, 512);
    }
}

/// Lets the allocator keep what was freed for 20 seconds: for work that takes and frees the same
/// hundred megabytes over and over. By default they go back to the system after a second at most, and
/// the system clears every page that it gives away again: 10 to 13 ns for each key of a ribbon that
/// is built shard by shard, of 100 in all (2026-11-18, Zen 5).
pub fn keep_for_a_while() {
    // SAFETY: as above.
    unsafe { mi_option_set(PURGE_DELAY, 20_000) };
}

/// Lets the allocator use small pages from now on. It advises the system to use huge ones for all that
/// it gives out, and holds 2 MiB then where a few kilobytes are in use. `dedup` with a small filter takes
/// 27 MiB with huge pages and 13 without (2026-11-18). A large filter has mappings of its own, which this
/// does not touch.
#[cfg(target_os = "linux")]
pub fn use_small_pages() {
    use std::ffi::c_void;

    unsafe extern "C" {
        fn madvise(start: *mut c_void, length: usize, advice: c_int) -> c_int;
    }
    /// `MADV_NOHUGEPAGE` of Linux, on all processors.
    const NO_HUGE_PAGES: c_int = 15;
    let allocated = Box::new(0_u64);
    let Ok(mappings) = std::fs::read_to_string("/proc/self/maps") else { return };
    if let Some(arena) = mapping_of(&mappings, (&raw const *allocated).addr()) {
        let start = std::ptr::without_provenance_mut(arena.start);
        // SAFETY: the advice changes no byte of the mapping. A refusal costs memory only.
        let _ = unsafe { madvise(start, arena.len(), NO_HUGE_PAGES) };
    }
}

#[cfg(not(target_os = "linux"))]
pub fn use_small_pages() {}

/// The mapping that an address is in, by the text of /proc/self/maps.
#[cfg(target_os = "linux")]
fn mapping_of(mappings: &str, address: usize) -> Option<std::ops::Range<usize>> {
    let range = |line: &str| {
        let (start, end) = line.split_once(' ')?.0.split_once('-')?;
        let number = |text| usize::from_str_radix(text, 16).ok();
        Some(number(start)?..number(end)?)
    };
    mappings.lines().filter_map(range).find(|range| range.contains(&address))
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
        keep_for_a_while();
        assert_eq!(get(PURGE_DELAY), 20_000);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn an_address_is_found_in_the_mapping_that_has_it() {
        let text = "1000-3000 r-xp 00000000 00:00 0  /bin/x\n3000-a000 rw-p 00000000 00:00 0 \n";
        assert_eq!(mapping_of(text, 0x2fff), Some(0x1000..0x3000));
        assert_eq!(mapping_of(text, 0x3000), Some(0x3000..0xa000));
        assert_eq!(mapping_of(text, 0xa000), None);
    }
}
