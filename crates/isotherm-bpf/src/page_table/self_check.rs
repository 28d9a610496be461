//! Verifies the walk on our own memory before other processes are read.
//!
//! With a wrong base of the direct map every read fails or, worse, reads something else. So we touch a pattern of pages
//! in a fresh mapping and read it back: 512 present bits have to agree, and, where they are visible, the frame numbers
//! too.

use super::answer::{Answer, Kind, Op, Pass};
use super::error::Error;
use isotherm_sys::memory::{Memory, PageSize};
use isotherm_sys::pagemap::Pagemap;
use isotherm_units::{Addr, AddrRange, PAGES_PER_PMD, PMD_SIZE, PmdNo};
use std::path::Path;
use std::time::Duration;

/// Pages touched: one in each word of the bitmap and the two ends, in no regular order.
const PATTERN: [usize; 9] = [0, 3, 77, 130, 200, 291, 383, 402, 511];

/// Tries while a thread of ours holds our mmap lock for writing, a millisecond apart.
const BUSY_TRIES: u32 = 200;

/// One pass for one address of our own: its outcome, and the answer if there is one.
pub(super) type Read<'a> = dyn FnMut(Op, Addr) -> Result<(Pass, Option<Answer>), Error> + 'a;

/// Checks a reader on process `me`, ourselves.
pub(super) fn run(me: u32, read: &mut Read<'_>) -> Result<(), Error> {
    let memory = Memory::anonymous(PMD_SIZE, PageSize::Small)
        .map_err(|source| Error::Io { attempted: "map 2 MiB of scratch memory for the self-check".into(), source })?;
    let pmd = memory.range().start.pmd();
    for page in PATTERN {
        memory.write(page);
    }
    let (read_errors, answer) = ask(read, Op::Pmds, pmd.addr())?;
    let Some(answer) = answer.filter(|_| read_errors == 0) else {
        return Err(Error::SelfCheck(format!("{} of our own page tables could not be read", read_errors.max(1))));
    };
    if answer.kind() != Kind::Pages {
        return Err(Error::SelfCheck(format!("expected a table of pages, found {:?}", answer.kind())));
    }
    let mut expected = [0_u64; PAGES_PER_PMD / 64];
    for page in PATTERN {
        expected[page / 64] |= 1 << (page % 64);
    }
    if answer.b != expected || answer.a != expected {
        return Err(Error::SelfCheck(format!(
            "touched pages {expected:x?}, found present {:x?} and accessed {:x?}",
            answer.b, answer.a
        )));
    }
    frames_agree(me, read, pmd)
}

/// Failed reads, and the answer for one address. Tries again while another thread of ours changes our mappings: the
/// reader uses trylock, and gives no answer while the lock is taken.
fn ask(read: &mut Read<'_>, op: Op, addr: Addr) -> Result<(u64, Option<Answer>), Error> {
    for _ in 1..BUSY_TRIES {
        let (pass, answer) = read(op, addr)?;
        if !pass.busy || answer.is_some() {
            return Ok((pass.read_errors, answer));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let (pass, answer) = read(op, addr)?;
    Ok((pass.read_errors, answer))
}

/// Compares frame numbers with `/proc/self/pagemap`, which shows them to CAP_SYS_ADMIN only.
fn frames_agree(me: u32, read: &mut Read<'_>, pmd: PmdNo) -> Result<(), Error> {
    let read_error = |source| Error::Io { attempted: "read /proc/self/pagemap".into(), source };
    let map = Pagemap::open(Path::new("/proc"), me).map_err(read_error)?;
    for index in PATTERN {
        let page = pmd.page(index);
        let entries = map.read(AddrRange::new(page.addr(), pmd.page(index + 1).addr())).map_err(read_error)?;
        let Some(frame) = entries.first().and_then(|(_, e)| e.frame()) else { continue };
        let (_, answer) = ask(read, Op::Entry, page.addr())?;
        let found = answer.map_or(0, |a| (a.a[0] & 0x000f_ffff_ffff_f000) >> 12);
        if found != frame {
            return Err(Error::SelfCheck(format!("page {page:?} has frame {frame:#x}, the walk found {found:#x}")));
        }
    }
    Ok(())
}
