//! Requests to the program and its answers, in the layout of `walk.bpf.c`.

/// What is requested for each address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Accessed and present bits of the huge range around the address.
    Pmds = 0,
    /// Which huge ranges of the 1 GiB around the address have a page table or are a huge page, as present bits.
    Tables = 1,
    /// The raw last-level entry of the address.
    Entry = 2,
    /// Frames and flags of the pages of the huge range: through [`Walker::folios`](super::Walker::folios).
    Folios = 3,
}

/// A page's frame and its folio's flags. The layout is `struct folio` of `walk.bpf.c`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Folio {
    /// The frame number; 0 if there is none, or one without flags (device memory).
    pub frame: u64,
    /// The flags word of the kernel's `struct page`; in a folio of several pages, that of the first.
    pub flags: u64,
}

/// The folios of the 512 pages of a huge range. Of a huge page only the first is set.
pub type FolioPmd = [Folio; 512];

const _: () = assert!(size_of::<FolioPmd>() == 512 * 16);

/// What was found at one address. The layout is `struct answer` of `walk.bpf.c`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    kind: u64,
    /// Accessed bits. Those of page tables, for [`Op::Tables`], mean nothing.
    pub a: [u64; 8],
    /// Present bits.
    pub b: [u64; 8],
}

const _: () = assert!(size_of::<Answer>() == 17 * 8);

/// What an [`Answer`] describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nothing is mapped by any table.
    None,
    /// A table of 512 entries: the planes are filled.
    Pages,
    /// A huge page of 2 MiB; bit 0 of `a[0]` is its accessed bit.
    Leaf2M,
    /// A huge page of 1 GiB; bit 0 of `a[0]` is its accessed bit.
    Leaf1G,
    /// The mapping no longer exists.
    Unmapped,
    /// A read failed: nothing is known.
    Error,
}

impl Answer {
    /// What this answer describes.
    pub fn kind(&self) -> Kind {
        match self.kind {
            0 => Kind::None,
            1 => Kind::Pages,
            2 => Kind::Leaf2M,
            3 => Kind::Leaf1G,
            4 => Kind::Unmapped,
            _ => Kind::Error,
        }
    }
}

/// The outcome of a pass.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pass {
    /// Requests answered, from the front of the list.
    pub done: usize,
    /// The target's mmap lock was held for writing: request the rest again.
    pub busy: bool,
    /// The thread was there and had memory.
    pub has_memory: bool,
    /// Failed reads of page tables.
    pub read_errors: u64,
    /// The longest time the mmap read lock was held in one piece.
    pub longest_hold_ns: u64,
    /// Changes when the process executes another program.
    pub mm_id: u64,
    /// Start of the process, nanoseconds since boot. It detects a reused pid.
    pub start_boottime_ns: u64,
}
