//! How much memory there is, as Linux tells it: of the machine, or of the container if that has less.

use std::fs;

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

    #[cfg(target_os = "linux")]
    #[test]
    fn linux_tells_how_much_memory_there_is() {
        let (total, free) = (total().expect("it is told"), free().expect("it is told"));
        assert!(free > 1 << 20 && free <= total, "{free} of {total} bytes");
    }
}
