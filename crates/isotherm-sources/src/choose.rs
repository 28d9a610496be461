//! Picks the best source that this machine and our privileges offer, and explains the choice.
//!
//! Page tables show every page and are best where they are available. If the CPU also samples memory accesses, the two
//! are used together, and samples rank the hot pages. Without page tables, samples of the CPU are next. Last are the
//! sums by mapping, which need no privilege. Page faults are never picked by default: without NUMA hint faults they
//! show first touches only, and with them no more than accessed bits do.

use crate::Error;
use crate::damon::{Damon, Space};
use crate::fused::Fused;
use crate::page_table::{ClearBy, PageTable};
use crate::perf::{self, Perf};
use crate::referenced::Referenced;
use isotherm_heat::source::AccessSource;
use isotherm_host::HostRoots;
use isotherm_sys::damon::Attributes;

/// Which source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wanted {
    /// The best there is.
    #[default]
    Best,
    /// Page tables through BPF, or nothing.
    PageTable,
    /// Perf events, or nothing.
    Perf,
    /// `clear_refs` and `smaps`.
    Referenced,
    /// The kernel's DAMON on processes, or nothing. Never picked by default: a machine has only one.
    Damon,
    /// The kernel's DAMON on physical memory, or nothing.
    DamonPaddr,
}

/// What the user asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Request {
    /// Which source.
    pub wanted: Wanted,
    /// How it clears accessed bits. Anything but [`ClearBy::Auto`] is for page tables.
    pub clear: ClearBy,
    /// How it samples. A named event is sampled in addition to whatever source is picked.
    pub perf: perf::Options,
}

impl Request {
    fn names_an_event(&self) -> bool {
        !self.perf.events.is_empty() || self.perf.raw.is_some()
    }
}

/// Opens the wanted source, with defaults for everything else.
pub fn open(wanted: Wanted) -> Result<Box<dyn AccessSource>, Error> {
    open_request(&Request { wanted, ..Request::default() })
}

/// Opens a source. With [`Wanted::Best`], an unavailable source is replaced by the next, whose note gives the reason.
pub fn open_request(request: &Request) -> Result<Box<dyn AccessSource>, Error> {
    if request.clear != ClearBy::Auto {
        return Ok(Box::new(PageTable::open_clearing(request.clear)?));
    }
    match request.wanted {
        Wanted::PageTable if request.names_an_event() => {
            Ok(Box::new(Fused::new(PageTable::open()?, Perf::open(&request.perf)?)))
        }
        Wanted::PageTable => Ok(Box::new(PageTable::open()?)),
        Wanted::Perf => Ok(Box::new(Perf::open(&request.perf)?)),
        Wanted::Referenced => Ok(Box::new(Referenced::new(""))),
        Wanted::Damon => Ok(Box::new(Damon::open(Space::Processes, Attributes::default())?)),
        Wanted::DamonPaddr => Ok(Box::new(Damon::open(Space::Physical, Attributes::default())?)),
        Wanted::Best => best(request),
    }
}

fn best(request: &Request) -> Result<Box<dyn AccessSource>, Error> {
    let page_table = PageTable::open();
    if request.names_an_event() {
        let perf = Perf::open(&request.perf)?;
        return Ok(match page_table {
            Ok(bits) => Box::new(Fused::new(bits, perf)),
            Err(error) => Box::new(perf.because(format!("page-table is not available: {error}"))),
        });
    }
    let roots = HostRoots::default();
    let sampled = perf::best_of_processor(&roots, request.perf.rate, false)
        .and_then(|chosen| Perf::open_chosen(&roots, &request.perf, chosen).map_err(|e| e.to_string()));
    Ok(match (page_table, sampled) {
        (Ok(bits), Ok(perf)) => Box::new(Fused::new(bits, perf)),
        (Ok(bits), Err(why)) => Box::new(bits.with_remark(why)),
        (Err(error), Ok(perf)) => Box::new(perf.because(format!("page-table is not available: {error}"))),
        (Err(error), Err(why)) => Box::new(Referenced::new(format!("page-table is not available: {error}; {why}"))),
    })
}
