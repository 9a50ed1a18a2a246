//! How much memory there is, as Linux reports it: of the machine, or of the control group if that has less.

use std::fs;
use std::path::Path;

/// Returns the bytes of all memory that this process may use, or None where the system does not report them.
pub fn total_memory() -> Option<u64> {
    within_limit("MemTotal:")
}

/// Returns the bytes of the machine's memory, whatever the control group may use of it, or None where the
/// system does not report them.
pub fn installed_memory() -> Option<u64> {
    reported("MemTotal:")
}

/// Returns the bytes that a program can use without others losing theirs: what is free, and what the system
/// keeps of files; or None where the system does not report them.
pub fn free_memory() -> Option<u64> {
    within_limit("MemAvailable:")
}

fn within_limit(field: &str) -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    Some(reported(field)?.min(group_limit(&groups, Path::new("/sys/fs/cgroup"))))
}

fn reported(field: &str) -> Option<u64> {
    let meminfo = fs::read_to_string("/proc/meminfo").ok()?;
    let line = meminfo.lines().find_map(|line| line.strip_prefix(field))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kibibytes * 1024)
}

/// Returns the lowest limit of the control groups that a process is in, which `/proc/self/cgroup`
/// lists, and of those above them. Version 2 has one tree (`0::/system.slice/inbloom.service`),
/// version 1 one for each resource (`4:memory:/docker/7c3f`). In a container the tree begins with
/// the container's own group.
fn group_limit(groups: &str, root: &Path) -> u64 {
    let limits = groups.lines().flat_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (tree, file) = match fields.next() {
            Some("") => (root.to_owned(), "memory.max"),
            Some(controllers) if controllers.split(',').any(|name| name == "memory") => {
                (root.join("memory"), "memory.limit_in_bytes")
            }
            _ => return Vec::new(),
        };
        let group = tree.join(fields.next().unwrap_or_default().trim_start_matches('/'));
        let above = group.ancestors().take_while(|folder| folder.starts_with(&tree));
        // "max" where there is no limit, and no file at all in the root of a machine.
        let limit = |folder: &Path| fs::read_to_string(folder.join(file)).ok()?.trim().parse().ok();
        above.filter_map(limit).collect()
    });
    limits.min().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn linux_reports_how_much_memory_there_is() {
        let (total, free) = (total_memory().expect("reported"), free_memory().expect("reported"));
        assert!(free > 1 << 20 && free <= total, "{free} of {total} bytes");
        assert!(installed_memory().expect("reported") >= total);
    }

    #[test]
    fn the_lowest_limit_of_the_groups_above_a_process_counts() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let limit = |groups: &str| group_limit(groups, root.path());
        assert_eq!(limit(""), u64::MAX);
        assert_eq!(limit("0::/\n"), u64::MAX);
        put("system.slice/inbloom.service/memory.max", "max\n");
        assert_eq!(limit("0::/system.slice/inbloom.service\n"), u64::MAX);
        put("system.slice/memory.max", "2000000\n");
        assert_eq!(limit("0::/system.slice/inbloom.service\n"), 2_000_000);
        put("system.slice/inbloom.service/memory.max", "1000000\n");
        assert_eq!(limit("0::/system.slice/inbloom.service\n"), 1_000_000);
        assert_eq!(limit("0::/system.slice\n"), 2_000_000);
        assert_eq!(limit("0::/user.slice\n"), u64::MAX);
        // In a container, whose own group is the root.
        put("memory.max", "500000\n");
        assert_eq!(limit("0::/\n"), 500_000);
        put("memory/docker/7c3f/memory.limit_in_bytes", "300000\n");
        let first = "5:cpu,cpuacct:/docker/7c3f\n4:memory:/docker/7c3f\n";
        assert_eq!(limit(first), 300_000);
    }
}
