//! Brings pages of our own into known states, and lets [`Field::find`] find the place in their flags that shows them.

use super::field::{Field, Seen};
use super::{Error, failed, spans_of};
use crate::page_table::memcg_of;
use isotherm_bpf::page_table::{Kind, Walker};
use isotherm_sys::lru;
use isotherm_sys::lru_gen::zones::Zones;
use isotherm_sys::lru_gen::{self, LruGen};
use isotherm_sys::madvise::PidFd;
use isotherm_sys::memory::{Memory, PageSize};
use isotherm_sys::proc::Proc;
use isotherm_units::{PMD_SIZE, PmdNo};
use std::collections::HashMap;

/// The kernel may age our cgroup, or move our pages, meanwhile.
const TRIES: u32 = 3;

pub(super) fn run(walker: &mut Walker, lru: &LruGen, zones: &Zones, proc: &Proc) -> Result<Field, Error> {
    let mut why = "our cgroup was aged again and again meanwhile".to_owned();
    for _ in 0..TRIES {
        let me = std::process::id();
        let before = spans_of(&memcg_of(lru, proc, me)?);
        let seen = read_states(walker, zones, &before)?;
        if spans_of(&memcg_of(lru, proc, me)?) != before {
            continue;
        }
        match Field::find(&seen) {
            Ok(field) => return Ok(field),
            Err(reason) => why = reason,
        }
    }
    Err(lru_gen::Error::Unplaced(why).into())
}

/// The flags of the pages of one huge range, in three states.
fn read_states(walker: &mut Walker, zones: &Zones, spans: &HashMap<u32, (u64, u64)>) -> Result<Vec<Seen>, Error> {
    let memory = Memory::anonymous(PMD_SIZE, PageSize::Small).map_err(failed("map 2 MiB of scratch memory"))?;
    let pmd = memory.range().start.pmd();
    memory.populate();
    settle();
    let fresh = flags(walker, pmd)?;
    let myself = PidFd::open(std::process::id()).map_err(failed("open our own process"))?;
    myself.advise_cold(&[pmd.range()]).map_err(failed("process_madvise(MADV_COLD) on our own process"))?;
    settle();
    let cold = flags(walker, pmd)?;
    memory.lock().map_err(failed("lock 2 MiB of scratch memory"))?;
    let locked = flags(walker, pmd)?;
    let pages = fresh.iter().zip(&cold).zip(&locked).filter_map(|((fresh, cold), locked)| {
        // The frame has changed: the page was moved, and the flags belong to another page.
        let stayed = fresh.0 != 0 && fresh.0 == cold.0 && fresh.0 == locked.0;
        let span = *spans.get(&zones.node_of(fresh.0)?)?;
        stayed.then_some(Seen { fresh: fresh.1, cold: cold.1, locked: locked.1, span })
    });
    Ok(pages.collect())
}

/// Lets pages arrive on their lists. If the batches cannot be drained, a few stay behind, which [`Field::find`]
/// tolerates.
fn settle() {
    let _ = lru::drain_batches();
}

/// Frame and flags of each page of a huge range of ours.
fn flags(walker: &mut Walker, pmd: PmdNo) -> Result<Vec<(u64, u64)>, Error> {
    let (_, mut folios) = walker.folios(std::process::id(), &[pmd.addr()])?;
    let pages = folios.next().filter(|(kind, _)| *kind == Kind::Pages);
    Ok(pages.map(|(_, folios)| folios.iter().map(|f| (f.frame, f.flags)).collect()).unwrap_or_default())
}
