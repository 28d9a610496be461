//! On memory of our own, with the kernel as witness.

use super::*;
use crate::memory::{Memory, PageSize};
use crate::pagemap::Pagemap;
use isotherm_units::BLOCK_SIZE;
use std::io::Write;
use std::path::Path;

#[test]
fn folios_have_the_frames_that_pagemap_tells() {
    let Ok(mut walker) = Walker::open() else {
        let _ = writeln!(io::stderr(), "skipped: needs the page-table reader (root)");
        return;
    };
    assert!(walker.knows_folios(), "a struct page that we do not know: see find_page_layout");
    let memory = Memory::anonymous(2 * BLOCK_SIZE, PageSize::Small).unwrap();
    let block = memory.range().start.block();
    (0..512).step_by(3).for_each(|page| memory.write(page));
    let entries = Pagemap::open(Path::new("/proc"), std::process::id()).unwrap().read(block.range()).unwrap();
    let (pass, folios) = walker.folios(std::process::id(), &[block.addr(), block.next().addr()]).unwrap();
    let folios: Vec<_> = folios.collect();
    assert_eq!((pass.done, pass.read_errors), (2, 0));
    assert_eq!([folios[0].0, folios[1].0], [Kind::Pages, Kind::None]);
    for ((page, entry), folio) in entries.iter().zip(folios[0].1) {
        assert_eq!(folio.frame, entry.frame().unwrap_or(0), "{page:?}");
        // Some flag is set of every page that is in use, if only the node's or that it is up to date.
        assert!(folio.frame == 0 || folio.flags != 0, "{page:?}");
    }
}
