//! Available memory of this process: the least of the machine's available memory and the limits of its control groups.

use std::fs;
use std::path::Path;

/// Bounds of the default budget, in bytes.
const SHARE_MIN: u64 = 256 << 20;
const SHARE_MAX: u64 = 16 << 30;
/// Assumed available memory in bytes if the system reports none.
const UNKNOWN: u64 = 4 << 30;

/// Returns the default budget for this much available memory.
pub(super) fn share(available: u64) -> usize {
    let share = (available / 4).clamp(SHARE_MIN, SHARE_MAX).min(available / 2);
    usize::try_from(share).unwrap_or(usize::MAX)
}

/// Returns the memory available to this process, in bytes.
pub(super) fn available() -> u64 {
    let read = |path: &Path| fs::read_to_string(path).ok();
    let meminfo = read(Path::new("/proc/meminfo")).unwrap_or_default();
    let groups = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let limits =
        limit_files(&groups).into_iter().filter_map(|path| parse_limit(&read(path.as_ref())?));
    mem_available(&meminfo).into_iter().chain(limits).min().unwrap_or(UNKNOWN)
}

fn mem_available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Parses a limit of a control group in bytes; `None` for `max`.
fn parse_limit(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// Files with the limits of this process's control groups and of their parents: version 2 in the unified hierarchy,
/// version 1 in the memory hierarchy.
fn limit_files(groups: &str) -> Vec<String> {
    let mut files = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) =
            (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let (root, file) = if controllers.is_empty() {
            ("/sys/fs/cgroup", "memory.max")
        } else if controllers.split(',').any(|controller| controller == "memory") {
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
        } else {
            continue;
        };
        let mut path = path.trim_end_matches('/');
        loop {
            files.push(format!("{root}{path}/{file}"));
            match path.rfind('/') {
                Some(slash) => path = &path[..slash],
                None => break,
            }
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_a_quarter_within_bounds() {
        const MIB: u64 = 1 << 20;
        for (available, expected) in
            [(100, 50), (512, 256), (800, 256), (8192, 2048), (65_536, 16_384), (1 << 20, 16_384)]
        {
            assert_eq!(share(available * MIB) as u64, expected * MIB, "{available} MiB");
        }
    }

    #[test]
    fn memory_limits_are_read_from_the_system() {
        let meminfo = "MemTotal:  100 kB\nMemFree: 1 kB\nMemAvailable:   2048 kB\n";
        assert_eq!(mem_available(meminfo), Some(2 << 20));
        assert_eq!(mem_available("MemTotal: 1 kB\n"), None);
        assert_eq!((parse_limit("1048576\n"), parse_limit("max\n")), (Some(1 << 20), None));
        let mib = available() >> 20;
        assert!(mib > 0, "this test runs in less than a mebibyte");
    }

    #[test]
    fn memory_limits_of_all_parent_cgroups_apply() {
        assert_eq!(
            limit_files("0::/a.slice/b\n"),
            [
                "/sys/fs/cgroup/a.slice/b/memory.max",
                "/sys/fs/cgroup/a.slice/memory.max",
                "/sys/fs/cgroup/memory.max"
            ]
        );
        assert_eq!(limit_files("0::/\n"), ["/sys/fs/cgroup/memory.max"]);
        assert_eq!(
            limit_files("3:cpu,cpuacct:/x\n4:memory:/docker\n"),
            [
                "/sys/fs/cgroup/memory/docker/memory.limit_in_bytes",
                "/sys/fs/cgroup/memory/memory.limit_in_bytes"
            ]
        );
    }
}
