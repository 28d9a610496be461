//! Picks the best source that this machine and these privileges offer, and says why.

use crate::damon::{Damon, Space};
use crate::page_table::{ClearBy, PageTable};
use crate::referenced::Referenced;
use crate::{AccessSource, Error};
use isotherm_sys::damon::Attributes;

/// What the user asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wanted {
    /// The best there is.
    #[default]
    Best,
    /// Page tables through BPF, or nothing.
    PageTable,
    /// `clear_refs` and `smaps`.
    Referenced,
    /// The kernel's DAMON on processes, or nothing. Never picked unasked: there is one of it in a machine.
    Damon,
    /// The kernel's DAMON on physical memory, or nothing.
    DamonPaddr,
}

/// Opens a source that clears in the way asked for, which is page tables or nothing, unless the way is left to it.
pub fn open_clearing(wanted: Wanted, by: ClearBy) -> Result<Box<dyn AccessSource>, Error> {
    if by == ClearBy::Auto { open(wanted) } else { Ok(Box::new(PageTable::open_clearing(by)?)) }
}

/// Opens a source. With [`Wanted::Best`] a source that cannot be had is replaced by the next, whose note tells the reason.
pub fn open(wanted: Wanted) -> Result<Box<dyn AccessSource>, Error> {
    match wanted {
        Wanted::PageTable => Ok(Box::new(PageTable::open()?)),
        Wanted::Referenced => Ok(Box::new(Referenced::new(""))),
        Wanted::Damon => Ok(Box::new(Damon::open(Space::Processes, Attributes::default())?)),
        Wanted::DamonPaddr => Ok(Box::new(Damon::open(Space::Physical, Attributes::default())?)),
        Wanted::Best => match PageTable::open() {
            Ok(source) => Ok(Box::new(source)),
            Err(error) => Ok(Box::new(Referenced::new(format!("page-table is not to be had: {error}")))),
        },
    }
}
