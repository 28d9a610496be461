//! Which CPUs there are: the kernel's CPU list format, and the list of online CPUs.

use crate::files::Tree;
use std::path::Path;

/// The number of online CPUs; `None` if the kernel does not report it.
pub fn cpus_online(sys: &Path) -> Option<u32> {
    Tree::at(sys).text("devices/system/cpu/online").and_then(|list| list_len(&list))
}

/// How many numbers a list such as `0-3,8` holds; `None` if it is malformed.
pub fn list_len(list: &str) -> Option<u32> {
    list_ranges(list).try_fold(0u32, |sum, range| {
        let (first, last) = range?;
        sum.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

/// The numbers of a list, in the order listed. `None` also if there are more than any kernel has CPUs: they would fill
/// our memory.
pub fn list_numbers(list: &str) -> Option<Vec<u32>> {
    const MAX_CPUS: u32 = 1 << 16;
    list_len(list).filter(|len| *len <= MAX_CPUS)?;
    if list_ranges(list).flatten().any(|(_, last)| last >= MAX_CPUS) {
        return None;
    }
    Some(list_ranges(list).flatten().flat_map(|(first, last)| first..=last).collect())
}

fn list_ranges(list: &str) -> impl Iterator<Item = Option<(u32, u32)>> {
    let list = list.trim();
    // An empty list is valid: all CPUs of a kind may be offline.
    list.split(',').filter(|_| !list.is_empty()).map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some((first.parse().ok()?, last.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_taken_apart() {
        assert_eq!(list_numbers("0-3,8,10-11\n"), Some(vec![0, 1, 2, 3, 8, 10, 11]));
        assert_eq!(list_numbers("\n"), Some(vec![]));
        for none in ["3-1", "a", "1-", "-", "0,,1", "1 2", "0-4294967295", "0,0-65535"] {
            assert_eq!(list_numbers(none), None, "{none}");
        }
        assert_eq!((list_len("0-1,4-7"), list_len("3-1")), (Some(6), None));
    }

    #[test]
    fn processors_online_are_counted_or_unknown() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(cpus_online(dir.path()), None);
        std::fs::create_dir_all(dir.path().join("devices/system/cpu")).unwrap();
        let file = dir.path().join("devices/system/cpu/online");
        for (text, count) in [("0-3,6\n", Some(5)), ("zero\n", None)] {
            std::fs::write(&file, text).unwrap();
            assert_eq!(cpus_online(dir.path()), count, "{text}");
        }
    }
}
