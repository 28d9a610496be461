//! Memory-side caches: what the kernel publishes of the firmware's table (HMAT), and how far it can be trusted.
//!
//! A direct-mapped one has one place for each line, so two frames whose distance is a multiple of its size evict each
//! other. The allocator and `isotherm placement` use that distance. Firmware or a hypervisor writes the table, and the
//! machine boots even if it is wrong. So text that is not a number is ignored, contradictions are kept with a
//! [`Doubt`], and a [`PlacementCache`](crate::PlacementCache) needs a size of whole frames and an indexing that reads
//! as 0. [`crate::cache_probe`] measures the memory itself.

use isotherm_sys::files::Tree;
use isotherm_units::{Bytes, PAGE_SIZE};
use std::fmt;

/// How a memory-side cache finds a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Indexing {
    /// One place for each line: two hot frames that share it evict each other.
    Direct,
    /// Several places.
    Associative,
    /// Not reported.
    Other,
}

/// When a memory-side cache writes to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WritePolicy {
    /// Late.
    WriteBack,
    /// At once.
    WriteThrough,
    /// Not reported.
    Other,
}

/// A reason to doubt the description of a memory-side cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// A file does not exist, or cannot be read.
    Missing(&'static str),
    /// A file holds this text instead of a number.
    Garbled(&'static str, String),
    /// A file holds zero, which is not a valid value.
    Zero(&'static str),
    /// Its size is not a whole number of frames.
    PartOfAFrame(Bytes),
    /// Its line size is not a power of two.
    OddLine(Bytes),
    /// The node has another entry of this level.
    SameLevel(u32),
    /// It is larger than the memory behind it.
    LargerThanMemory(Bytes),
    /// It is reported to extend the memory, which only a direct-mapped one can, but not as direct-mapped.
    ExtendedNotDirect,
}

impl Doubt {
    /// Whether it affects which frames compete.
    pub fn is_about_placement(&self) -> bool {
        match self {
            Doubt::Missing(file) | Doubt::Garbled(file, _) | Doubt::Zero(file) => {
                matches!(*file, SIZE | INDEXING | MODE)
            }
            Doubt::OddLine(_) => false,
            Doubt::PartOfAFrame(_) | Doubt::SameLevel(_) | Doubt::LargerThanMemory(_) | Doubt::ExtendedNotDirect => {
                true
            }
        }
    }
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Doubt::Missing(file) => write!(f, "{file} cannot be read"),
            Doubt::Garbled(file, text) => write!(f, "{file} is {text:?}, which is no number"),
            Doubt::Zero(file) => write!(f, "{file} is 0"),
            Doubt::PartOfAFrame(size) => write!(f, "{} bytes are no whole number of frames", size.0),
            Doubt::OddLine(line) => write!(f, "lines of {} bytes: no power of two", line.0),
            Doubt::SameLevel(level) => write!(f, "level {level} is listed twice"),
            Doubt::LargerThanMemory(memory) => write!(f, "larger than the node's memory ({memory})"),
            Doubt::ExtendedNotDirect => f.write_str("reported to extend the memory without being direct-mapped"),
        }
    }
}

const SIZE: &str = "size";
const INDEXING: &str = "indexing";
const LINE: &str = "line_size";
const POLICY: &str = "write_policy";
const MODE: &str = "address_mode";

/// A cache between a node's memory and the CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemorySideCache {
    /// Its level; 1 is next to the memory.
    pub level: u32,
    /// Its size; never zero.
    pub size: Option<Bytes>,
    /// How it finds a line.
    pub indexing: Option<Indexing>,
    /// Length of a line; never zero.
    pub line_size: Option<Bytes>,
    /// When it writes to memory.
    pub write_policy: Option<WritePolicy>,
    /// Whether its own memory counts as memory of the node too, next to what it caches, as in flat memory modes: the
    /// frames of both halves compete. Unknown before Linux 6.15.
    pub extended_linear: Option<bool>,
    /// Reasons to doubt any of this.
    pub doubts: Vec<Doubt>,
}

impl MemorySideCache {
    /// The caches of the node whose directory is `node`, by level. `memory` is the node's.
    pub(super) fn read_all(sys: &Tree<'_>, node: &str, memory: Option<Bytes>) -> Vec<MemorySideCache> {
        let dir = format!("{node}/memory_side_cache");
        let names = sys.names(&dir).unwrap_or_default();
        let level = |name: &String| name.strip_prefix("index")?.parse().ok();
        // By name and not by number: `index1` and `index01` are two entries, and one is too many.
        let mut found: Vec<MemorySideCache> = names
            .iter()
            .filter_map(|name| Some(MemorySideCache::read(sys, &format!("{dir}/{name}"), level(name)?, memory)))
            .collect();
        found.sort_by_key(|cache| cache.level);
        let levels: Vec<u32> = found.iter().map(|cache| cache.level).collect();
        for cache in &mut found {
            if levels.iter().filter(|level| **level == cache.level).count() > 1 {
                cache.doubts.push(Doubt::SameLevel(cache.level));
            }
        }
        found
    }

    fn read(sys: &Tree<'_>, dir: &str, level: u32, memory: Option<Bytes>) -> MemorySideCache {
        let mut doubts = Vec::new();
        let mut number = |file| match field(sys, dir, file) {
            Ok(value) => Some(value),
            Err(doubt) => {
                // Kernels before 6.15 have no such file. That is no reason to doubt the others.
                if doubt != Doubt::Missing(MODE) {
                    doubts.push(doubt);
                }
                None
            }
        };
        let size = number(SIZE);
        let indexing = number(INDEXING).map(|value| match value {
            0 => Indexing::Direct,
            1 => Indexing::Associative,
            _ => Indexing::Other,
        });
        let line_size = number(LINE);
        let write_policy = number(POLICY).map(|value| match value {
            0 => WritePolicy::WriteBack,
            1 => WritePolicy::WriteThrough,
            _ => WritePolicy::Other,
        });
        // A bit field, of which the lowest bit is known.
        let extended_linear = number(MODE).map(|value| value & 1 == 1);
        doubts.extend((size == Some(0)).then_some(Doubt::Zero(SIZE)));
        doubts.extend((line_size == Some(0)).then_some(Doubt::Zero(LINE)));
        let whole = |value: Option<u64>| value.filter(|value| *value > 0).map(Bytes);
        let mut cache = MemorySideCache {
            level,
            size: whole(size),
            indexing,
            line_size: whole(line_size),
            write_policy,
            extended_linear,
            doubts,
        };
        cache.doubt_what_does_not_fit(memory);
        cache
    }

    fn doubt_what_does_not_fit(&mut self, memory: Option<Bytes>) {
        if let Some(size) = self.size.filter(|size| !size.0.is_multiple_of(PAGE_SIZE)) {
            self.doubts.push(Doubt::PartOfAFrame(size));
        }
        if let Some(line) = self.line_size.filter(|line| !line.0.is_power_of_two()) {
            self.doubts.push(Doubt::OddLine(line));
        }
        let extended = self.extended_linear == Some(true);
        if let (Some(size), Some(memory), false) = (self.size, memory, extended) {
            // The kernel does not count what it reserved at boot, so a cache may be a little larger than the memory
            // that it counts.
            if size.0 > memory.0.saturating_add(memory.0 / 8) {
                self.doubts.push(Doubt::LargerThanMemory(memory));
            }
        }
        if extended && self.indexing != Some(Indexing::Direct) {
            self.doubts.push(Doubt::ExtendedNotDirect);
        }
    }

    /// The distance, in frames, at which frames compete; `None` if the cache is not known to be direct-mapped, or if
    /// its size is unknown.
    pub fn conflict_distance(&self) -> Option<u64> {
        let size = self.size.filter(|size| size.0.is_multiple_of(PAGE_SIZE))?;
        (self.indexing == Some(Indexing::Direct)).then_some(size.0 / PAGE_SIZE)
    }

    /// Reasons to doubt that distance.
    pub fn doubts_about_placement(&self) -> impl Iterator<Item = &Doubt> {
        self.doubts.iter().filter(|doubt| doubt.is_about_placement())
    }

    /// Whether frames may compete in it, at any distance, as far as is known.
    pub(crate) fn is_unclear(&self) -> bool {
        let contradicted = |doubt: &Doubt| matches!(doubt, Doubt::ExtendedNotDirect | Doubt::SameLevel(_));
        match self.indexing {
            Some(Indexing::Associative) => self.doubts.iter().any(contradicted),
            Some(Indexing::Direct | Indexing::Other) | None => self.conflict_distance().is_none(),
        }
    }
}

impl fmt::Display for MemorySideCache {
    /// Size, indexing, write policy, lines and level, as far as known:
    /// `256.0 MiB, direct-mapped, write-back, lines of 64 bytes, level 1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.size {
            Some(size) => write!(f, "{size}, ")?,
            None => f.write_str("unknown size, ")?,
        }
        f.write_str(match self.indexing {
            Some(Indexing::Direct) => "direct-mapped",
            Some(Indexing::Associative) => "associative",
            Some(Indexing::Other) | None => "of unknown indexing",
        })?;
        f.write_str(match self.write_policy {
            Some(WritePolicy::WriteBack) => ", write-back",
            Some(WritePolicy::WriteThrough) => ", write-through",
            Some(WritePolicy::Other) | None => "",
        })?;
        if let Some(line) = self.line_size {
            write!(f, ", lines of {} bytes", line.0)?;
        }
        if self.extended_linear == Some(true) {
            f.write_str(", extended-linear")?;
        }
        write!(f, ", level {}", self.level)
    }
}

/// A number in a file; decimal, or hexadecimal with `0x`, as the kernel writes `address_mode`.
fn field(sys: &Tree<'_>, dir: &str, file: &'static str) -> Result<u64, Doubt> {
    let text = sys.text(&format!("{dir}/{file}")).ok_or(Doubt::Missing(file))?;
    let (digits, radix) = text.strip_prefix("0x").map_or((&*text, 10), |hex| (hex, 16));
    // `from_str_radix` would accept a sign, and the kernel writes none.
    let plain = digits.chars().all(|c| c.is_ascii_hexdigit());
    let number = plain.then(|| u64::from_str_radix(digits, radix).ok()).flatten();
    number.ok_or_else(|| Doubt::Garbled(file, text.chars().take(40).collect()))
}
