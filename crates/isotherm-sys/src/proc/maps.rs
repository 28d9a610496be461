//! `/proc/PID/maps`: what a process maps, and where.
//!
//! It is read at every start and whenever a target's layout may have changed, so it has to be fast at the kernel's
//! limit of 65,530 mappings. It makes one pass over the bytes and reuses its buffer. Neighbours share a name instead of
//! copying it: a library has four or five mappings in a row with one name.

use super::error::Unexpected;
use super::root::Proc;
use super::text::decimal;
use super::{Error, Result};
use isotherm_units::{Addr, AddrRange, Perms};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

/// One line of `/proc/PID/maps`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapEntry {
    /// Its address range.
    pub range: AddrRange,
    /// Its permissions.
    pub perms: Perms,
    /// Where in the file it begins, in bytes.
    pub offset: u64,
    /// Device of the file, major and minor; (0, 0) without one.
    pub dev: (u32, u32),
    /// Inode of the file; 0 without one.
    pub inode: u64,
    /// Path, `[heap]`, `[stack]`, `[anon:name]`, or empty for anonymous memory. A path ends in ` (deleted)` if its file
    /// is gone. The name is as the kernel prints it: a newline in a path reads `\012`, so a name is always one line.
    /// The kernel does not escape backslashes, so the original path cannot be restored: display the name, do not open
    /// it.
    pub name: Arc<str>,
}

/// Mappings that the kernel creates by itself. Their pages belong to the kernel and are shared by all processes.
/// Clearing their bits is refused or pointless.
const KERNEL_MADE: [&str; 7] =
    ["[vsyscall]", "[vdso]", "[vvar]", "[vvar_vclock]", "[vectors]", "[sigpage]", "[uprobes]"];

impl MapEntry {
    /// Whether heat can be measured here: the mapping is the process's own, in the user half of the address space.
    ///
    /// `maps` does not show which mappings are device or hugetlb memory; see [`super::VmFlags::can_madv_cold`].
    pub fn is_monitorable(&self) -> bool {
        let user_half = self.range.end.0 <= 1 << 63;
        user_half && !self.range.is_empty() && !KERNEL_MADE.contains(&&*self.name)
    }

    /// Whether no file is behind it.
    pub fn is_anonymous(&self) -> bool {
        self.inode == 0 && !self.name.starts_with('/')
    }

    /// Whether the file behind it has been deleted.
    pub fn is_deleted(&self) -> bool {
        self.inode != 0 && self.name.ends_with(" (deleted)")
    }

    /// Parses one line, without its newline. `names` holds the previous line's name, to share it.
    pub(super) fn parse(line: &[u8], names: &mut Names) -> std::result::Result<MapEntry, Unexpected> {
        let mut rest = Cursor { line, at: 0 };
        let start = rest.hex("start", b'-', "hexadecimal digits and a dash")?;
        let end = rest.hex("end", b' ', "hexadecimal digits and a space")?;
        if end < start {
            return Err(Unexpected::new("end", "an address not below the start", line));
        }
        let word = rest.word();
        let perms = Perms::parse(word).ok_or_else(|| Unexpected::new("perms", "four letters like rw-p", word))?;
        let offset = rest.hex("offset", b' ', "hexadecimal digits and a space")?;
        let major = rest.hex("device", b':', "major:minor")?;
        let minor = rest.hex("device", b' ', "major:minor")?;
        let dev = (narrow(major, line)?, narrow(minor, line)?);
        let inode = rest.decimal("inode")?;
        let name = names.share(rest.padded_tail());
        Ok(MapEntry { range: AddrRange::new(Addr(start), Addr(end)), perms, offset, dev, inode, name })
    }
}

fn narrow(number: u64, line: &[u8]) -> std::result::Result<u32, Unexpected> {
    u32::try_from(number).map_err(|_| Unexpected::new("device", "a number of 32 bits", line))
}

/// The last name parsed. The next line often has the same.
#[derive(Debug)]
pub(super) struct Names {
    last: Arc<str>,
    empty: Arc<str>,
}

impl Default for Names {
    fn default() -> Names {
        let empty: Arc<str> = Arc::from("");
        Names { last: Arc::clone(&empty), empty }
    }
}

impl Names {
    fn share(&mut self, name: &[u8]) -> Arc<str> {
        if name.is_empty() {
            return Arc::clone(&self.empty);
        }
        if self.last.as_bytes() != name {
            self.last = Arc::from(&*String::from_utf8_lossy(name));
        }
        Arc::clone(&self.last)
    }
}

/// Walks the items of one line from left to right.
struct Cursor<'a> {
    line: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// Hexadecimal digits up to `end`, which is also consumed.
    fn hex(&mut self, item: &'static str, end: u8, expected: &'static str) -> std::result::Result<u64, Unexpected> {
        let from = self.at;
        let mut value = 0;
        while let Some(digit) = self.line.get(self.at).copied().and_then(hex_digit) {
            value = value << 4 | digit;
            self.at += 1;
        }
        let digits = self.at - from;
        if !(1..=16).contains(&digits) || self.line.get(self.at) != Some(&end) {
            return Err(Unexpected::new(item, expected, &self.line[from..]));
        }
        self.at += 1;
        Ok(value)
    }

    /// Decimal digits up to a space or the end.
    fn decimal(&mut self, item: &'static str) -> std::result::Result<u64, Unexpected> {
        let word = self.word();
        decimal(word).ok_or_else(|| Unexpected::new(item, "a decimal number", word))
    }

    /// The text up to the next space, which is also consumed.
    fn word(&mut self) -> &'a [u8] {
        let rest = &self.line[self.at..];
        let end = rest.iter().position(|&b| b == b' ').unwrap_or(rest.len());
        self.at = (self.at + end + 1).min(self.line.len());
        &rest[..end]
    }

    /// The rest without the spaces that the kernel pads with. Spaces at the end belong to the name.
    fn padded_tail(&self) -> &'a [u8] {
        let rest = &self.line[self.at..];
        let start = rest.iter().position(|&b| b != b' ').unwrap_or(rest.len());
        &rest[start..]
    }
}

fn hex_digit(byte: u8) -> Option<u64> {
    match byte {
        b'0'..=b'9' => Some(u64::from(byte - b'0')),
        b'a'..=b'f' => Some(u64::from(byte - b'a') + 10),
        _ => None,
    }
}

/// The mappings of a process, with a buffer for repeated reads.
#[derive(Debug, Default)]
pub struct Maps {
    entries: Vec<MapEntry>,
    text: Vec<u8>,
    names: Names,
}

impl Maps {
    /// Reads the mappings again; they replace the previous ones. Empty for a kernel thread or a zombie, and after an
    /// error.
    pub fn read(&mut self, proc: &Proc, pid: u32) -> Result<&[MapEntry]> {
        let path = proc.path(pid, "maps");
        proc.find_memory(pid, || self.read_file(proc, pid, &path).map(|maps| !maps.is_empty()))?;
        Ok(&self.entries)
    }

    /// The same through one of its threads. This is needed once the main thread has ended.
    pub fn read_thread(&mut self, proc: &Proc, pid: u32, tid: u32) -> Result<&[MapEntry]> {
        self.read_file(proc, pid, &proc.path(pid, &format!("task/{tid}/maps")))
    }

    fn read_file(&mut self, proc: &Proc, pid: u32, path: &Path) -> Result<&[MapEntry]> {
        self.entries.clear();
        let Some(mut file) = proc.open_memory(pid, path)? else { return Ok(&[]) };
        let mut text = std::mem::take(&mut self.text);
        let read = read_all(&mut file, &mut text);
        let parsed = match read {
            Ok(len) => self.parse(&text[..len]).map_err(|(line, e)| e.at(path, line)),
            Err(e) => proc.memoryless(pid, path, e),
        };
        self.text = text;
        if let Err(e) = parsed {
            self.entries.clear();
            return Err(e);
        }
        Ok(&self.entries)
    }

    /// The mappings last read, in address order.
    pub fn entries(&self) -> &[MapEntry] {
        &self.entries
    }

    /// The mappings alone.
    pub fn into_entries(self) -> Vec<MapEntry> {
        self.entries
    }

    /// The mapping that holds an address.
    pub fn find(&self, addr: Addr) -> Option<&MapEntry> {
        let after = self.entries.partition_point(|entry| entry.range.start <= addr);
        let entry = &self.entries[after.checked_sub(1)?];
        entry.range.contains(addr).then_some(entry)
    }

    /// Parses the whole file. Errors count lines from 1.
    pub(super) fn parse(&mut self, text: &[u8]) -> std::result::Result<(), (usize, Unexpected)> {
        for (index, line) in text.split(|&b| b == b'\n').enumerate() {
            if !line.is_empty() {
                self.entries.push(MapEntry::parse(line, &mut self.names).map_err(|e| (index + 1, e))?);
            }
        }
        Ok(())
    }

    /// Parses text that is not from a file, such as a stored copy.
    pub fn from_text(text: &[u8]) -> Result<Maps> {
        let mut maps = Maps::default();
        match maps.parse(text) {
            Ok(()) => Ok(maps),
            Err((line, e)) => {
                Err(Error::Parse { path: "maps".into(), line, item: e.item, expected: e.expected, got: e.got })
            }
        }
    }
}

/// Reads to the end and returns the length. The buffer keeps its size between calls. `read_to_end` would be slower:
/// these files report size 0, so it starts with small reads, and it would zero megabytes again each time.
fn read_all(file: &mut impl Read, buffer: &mut Vec<u8>) -> std::io::Result<usize> {
    const CHUNK: usize = 64 << 10;
    let mut len = 0;
    loop {
        if buffer.len() - len < CHUNK {
            buffer.resize((buffer.len() * 2).max(2 * CHUNK), 0);
        }
        match file.read(&mut buffer[len..]) {
            Ok(0) => return Ok(len),
            Ok(n) => len += n,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}
