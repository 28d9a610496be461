//! Sizes of folios of private memory between a page and a huge page: `/sys/kernel/mm/transparent_hugepage/hugepages-*kB`, from 6.8 on.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

/// Larger ones are huge pages.
const PMD_KIB: u64 = 2048;

/// Whether any such size is allowed. Without the directory (a kernel without huge pages), or without such names in it (an older one), none is. What cannot be
/// read counts as allowed. Reads a dozen small files below `sys`.
pub fn are_several(sys: &Path) -> bool {
    let entries = match fs::read_dir(sys.join("kernel/mm/transparent_hugepage")) {
        Ok(entries) => entries,
        Err(error) => return error.kind() != ErrorKind::NotFound,
    };
    entries.flatten().any(|entry| {
        let name = entry.file_name();
        let kib =
            name.to_str().and_then(|name| name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse::<u64>().ok());
        let is_never = || match fs::read_to_string(entry.path().join("enabled")) {
            Ok(text) => text.contains("[never]"),
            // A size for shared memory only.
            Err(error) => error.kind() == ErrorKind::NotFound,
        };
        kib.is_some_and(|kib| kib < PMD_KIB) && !is_never()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_that_is_not_off_is_found() {
        let sys = tempfile::tempdir().unwrap();
        assert!(!are_several(sys.path()), "6.1");
        let set = |size: &str, text: &str| {
            let dir = sys.path().join("kernel/mm/transparent_hugepage").join(size);
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("enabled"), text).unwrap();
        };
        set("khugepaged", "");
        set("hugepages-2048kB", "always [inherit] madvise never\n");
        set("hugepages-64kB", "always inherit madvise [never]\n");
        fs::create_dir_all(sys.path().join("kernel/mm/transparent_hugepage/hugepages-8kB")).unwrap();
        assert!(!are_several(sys.path()), "as kernels begin, with a size for shared memory");
        set("hugepages-32kB", "always inherit [madvise] never\n");
        assert!(are_several(sys.path()));
    }
}
