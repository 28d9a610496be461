//! `/proc/PID/smaps` and `smaps_rollup`: how much of each mapping is present, referenced and on huge pages.
//!
//! The kernel walks the page tables as the file is read, and a large target's file is tens of megabytes long. So it is
//! parsed one mapping at a time and never held as a whole. The reader is an [`Iterator`]: a caller that stops early
//! spares the kernel the rest of the walk.

use super::error::Unexpected;
use super::maps::{MapEntry, Names};
use super::text::{key_value, kilobytes};
use super::{Error, Result};
use isotherm_units::Bytes;
use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;

/// Sizes of one mapping, or of all of them.
///
/// A size that the kernel does not print is 0. Sizes count mapped pages of 4 KiB; a huge page counts in full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Length of the mapping; 0 in a rollup.
    pub size: Bytes,
    /// Present in memory.
    pub rss: Bytes,
    /// The same, with shared pages divided by the number of processes that map them.
    pub pss: Bytes,
    /// Clean, and mapped more than once.
    pub shared_clean: Bytes,
    /// Dirty, and mapped more than once.
    pub shared_dirty: Bytes,
    /// Clean, and mapped here only.
    pub private_clean: Bytes,
    /// Dirty, and mapped here only.
    pub private_dirty: Bytes,
    /// Marked as accessed since the bits were last cleared.
    pub referenced: Bytes,
    /// Not backed by a file, copies of file pages included.
    pub anonymous: Bytes,
    /// Freed with `MADV_FREE` and not reclaimed yet.
    pub lazy_free: Bytes,
    /// Anonymous memory on huge pages.
    pub anon_huge: Bytes,
    /// Shared memory on huge pages.
    pub shmem_huge: Bytes,
    /// File memory on huge pages.
    pub file_huge: Bytes,
    /// Shared hugetlb pages; not part of `rss`.
    pub shared_hugetlb: Bytes,
    /// Private hugetlb pages; not part of `rss`.
    pub private_hugetlb: Bytes,
    /// Swapped out.
    pub swap: Bytes,
    /// Locked in memory.
    pub locked: Bytes,
}

impl Usage {
    /// Mapped more than once. Clearing by `MADV_COLD` skips these pages.
    pub fn shared(&self) -> Bytes {
        Bytes(self.shared_clean.0.saturating_add(self.shared_dirty.0))
    }

    /// On huge pages of any kind but hugetlb.
    pub fn huge(&self) -> Bytes {
        Bytes(self.anon_huge.0.saturating_add(self.shmem_huge.0).saturating_add(self.file_huge.0))
    }

    /// The field for a key, with the key itself; `None` for keys that are not used.
    fn place(&mut self, key: &[u8]) -> Option<(&mut Bytes, &'static str)> {
        /// Each key is written once here, for the match and for errors.
        macro_rules! places {
            ($($key:literal => $field:ident,)*) => {
                match std::str::from_utf8(key).ok()? {
                    $($key => Some((&mut self.$field, $key)),)*
                    _ => None,
                }
            };
        }
        places! {
            "Size" => size,
            "Rss" => rss,
            "Pss" => pss,
            "Shared_Clean" => shared_clean,
            "Shared_Dirty" => shared_dirty,
            "Private_Clean" => private_clean,
            "Private_Dirty" => private_dirty,
            "Referenced" => referenced,
            "Anonymous" => anonymous,
            "LazyFree" => lazy_free,
            "AnonHugePages" => anon_huge,
            "ShmemPmdMapped" => shmem_huge,
            "FilePmdMapped" => file_huge,
            "Shared_Hugetlb" => shared_hugetlb,
            "Private_Hugetlb" => private_hugetlb,
            "Swap" => swap,
            "Locked" => locked,
        }
    }

    fn take(&mut self, key: &[u8], value: &[u8]) -> std::result::Result<(), Unexpected> {
        if let Some((place, item)) = self.place(key) {
            *place = kilobytes(value, item)?;
        }
        Ok(())
    }

    /// Parses `smaps_rollup`: one head line, then sizes. An empty file means a process without memory.
    pub(super) fn parse_rollup(text: &[u8]) -> std::result::Result<Usage, (usize, Unexpected)> {
        let mut usage = Usage::default();
        for (index, line) in text.split(|&b| b == b'\n').enumerate().skip(1) {
            if let Some((key, value)) = key_value(line) {
                usage.take(key, value).map_err(|e| (index + 1, e))?;
            }
        }
        Ok(usage)
    }
}

/// The `VmFlags:` of a mapping that are used here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct VmFlags(u32);

/// Declares the flags: what each is, its bit here, and the kernel's two letters for it.
macro_rules! vm_flags {
    ($($(#[$doc:meta])* $name:ident = $bit:literal, $letters:literal;)*) => {
        impl VmFlags {
            $($(#[$doc])* pub const $name: VmFlags = VmFlags(1 << $bit);)*
        }

        /// Each flag with its letters.
        const LETTERS: &[(&[u8; 2], VmFlags)] = &[$(($letters, VmFlags::$name)),*];
    };
}

vm_flags! {
    /// `lo`: locked in memory.
    LOCKED = 0, b"lo";
    /// `io`: memory of a device.
    IO = 1, b"io";
    /// `pf`: frames without page descriptors.
    PFNMAP = 2, b"pf";
    /// `ht`: hugetlb pages.
    HUGETLB = 3, b"ht";
    /// `hg`: `MADV_HUGEPAGE`.
    HUGE_WANTED = 4, b"hg";
    /// `nh`: `MADV_NOHUGEPAGE`.
    HUGE_REFUSED = 5, b"nh";
    /// `sh`: shared.
    SHARED = 6, b"sh";
    /// `gd`: a stack.
    GROWS_DOWN = 7, b"gd";
    /// `sr`: `MADV_SEQUENTIAL`.
    SEQUENTIAL = 8, b"sr";
    /// `rr`: `MADV_RANDOM`.
    RANDOM = 9, b"rr";
    /// `um`: faults on missing pages go to a userfaultfd.
    UFFD_MISSING = 10, b"um";
    /// `mg`: `MADV_MERGEABLE`.
    MERGEABLE = 11, b"mg";
    /// `sl`: sealed.
    SEALED = 12, b"sl";
}

impl VmFlags {
    /// Whether all of `other` are set.
    pub const fn contains(self, other: VmFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether the kernel accepts `MADV_COLD` here: it returns `EINVAL` for locked, hugetlb and device mappings.
    pub const fn can_madv_cold(self) -> bool {
        self.0 & (Self::LOCKED.0 | Self::HUGETLB.0 | Self::PFNMAP.0) == 0
    }

    /// Parses the value of `VmFlags:`. Unknown letters are skipped: each kernel adds some.
    fn parse(value: &[u8]) -> VmFlags {
        let bit = |word: &[u8]| LETTERS.iter().find(|(letters, _)| word == *letters).map_or(0, |(_, flag)| flag.0);
        VmFlags(value.split(|&b| b == b' ').fold(0, |bits, word| bits | bit(word)))
    }
}

/// One mapping of `/proc/PID/smaps`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SmapsEntry {
    /// Its address range, permissions and name.
    pub map: MapEntry,
    /// Its sizes by kind.
    pub usage: Usage,
    /// Its flags; `None` if the kernel prints none.
    pub flags: Option<VmFlags>,
    /// Whether the kernel would use huge pages here; `None` before 5.0.
    pub thp_eligible: Option<bool>,
}

/// Reads `/proc/PID/smaps` one mapping at a time.
///
/// It ends after an error. It also ends, without an error, if the process ends half way: the kernel gives no sign.
pub struct Smaps<R> {
    reader: Option<BufReader<R>>,
    path: PathBuf,
    names: Names,
    line: Vec<u8>,
    line_no: usize,
    /// The mapping whose sizes are being read: it is complete when the head of the next one comes.
    open: Option<SmapsEntry>,
}

impl<R> fmt::Debug for Smaps<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Smaps").field("path", &self.path).field("line_no", &self.line_no).finish_non_exhaustive()
    }
}

impl<R: Read> Smaps<R> {
    /// Reads from `file`, which errors call `path`. `None` means a process without memory.
    pub fn new(file: Option<R>, path: impl Into<PathBuf>) -> Smaps<R> {
        let reader = file.map(|file| BufReader::with_capacity(64 << 10, file));
        Smaps { reader, path: path.into(), names: Names::default(), line: Vec::new(), line_no: 0, open: None }
    }

    fn next_entry(&mut self) -> Result<Option<SmapsEntry>> {
        while self.next_line()? {
            if is_head(&self.line) {
                let map = MapEntry::parse(&self.line, &mut self.names).map_err(|e| e.at(&self.path, self.line_no))?;
                let entry = SmapsEntry { map, usage: Usage::default(), flags: None, thp_eligible: None };
                if let Some(done) = self.open.replace(entry) {
                    return Ok(Some(done));
                }
            } else {
                self.take_line().map_err(|e| e.at(&self.path, self.line_no))?;
            }
        }
        Ok(self.open.take())
    }

    /// One line without its newline; false at the end.
    fn next_line(&mut self) -> Result<bool> {
        let Some(reader) = &mut self.reader else { return Ok(false) };
        self.line.clear();
        let read = reader.read_until(b'\n', &mut self.line).map_err(|e| Error::from_io(&self.path, e))?;
        if self.line.last() == Some(&b'\n') {
            self.line.pop();
        }
        self.line_no += 1;
        Ok(read > 0)
    }

    fn take_line(&mut self) -> std::result::Result<(), Unexpected> {
        let Some((key, value)) = key_value(&self.line) else { return Ok(()) };
        let Some(entry) = &mut self.open else {
            return Err(Unexpected::new("head", "a line of addresses first", &self.line));
        };
        match key {
            b"VmFlags" => entry.flags = Some(VmFlags::parse(value)),
            b"THPeligible" => entry.thp_eligible = Some(value != b"0"),
            _ => entry.usage.take(key, value)?,
        }
        Ok(())
    }
}

/// Sizes begin with a capital letter, addresses with a lower-case hexadecimal digit.
fn is_head(line: &[u8]) -> bool {
    line.first().is_some_and(|&b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

impl<R: Read> Iterator for Smaps<R> {
    type Item = Result<SmapsEntry>;

    fn next(&mut self) -> Option<Result<SmapsEntry>> {
        let next = self.next_entry().transpose();
        if matches!(next, None | Some(Err(_))) {
            self.reader = None;
            self.open = None;
        }
        next
    }
}
