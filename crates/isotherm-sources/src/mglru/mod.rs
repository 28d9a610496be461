//! Generations of pages in the kernel's own LRU, as hints at what is hot.
//!
//! `isotherm-schemes` uses them as hints. The heat map does not: sources build it from accessed bits. A page that was
//! accessed between the last two agings is one generation behind the youngest. Other pages stay in their generation. So
//! an age counts agings, and there are at most four. Something has to age at a known pace: [`Mglru::age`].
//!
//! Generations are in the kernel's `struct page`, which BPF reads. Their place in it is found by trial at the start
//! ([`calibrate`]).

mod calibrate;
mod field;

use crate::Error;
use crate::page_table::{PageTable, memcg_of};
use field::Field;
use isotherm_bpf::page_table::{FolioPmd, Kind, MAX_FOLIO_REQUESTS, Walker};
use isotherm_sys::lru_gen::zones::Zones;
use isotherm_sys::lru_gen::{LruGen, Memcg};
use isotherm_sys::proc::{Maps, Proc};
use isotherm_units::{Addr, PAGES_PER_PMD, PmdNo};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::Path;
use std::time::Duration;

const ALL: u16 = 512;
/// Tries while the mmap lock is held for writing, a millisecond apart.
const BUSY_TRIES: u32 = 50;

/// Generations of one huge range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ages {
    /// Which huge range.
    pub pmd: PmdNo,
    /// It is one huge page: all its pages have the same age.
    pub huge: bool,
    /// Pages present.
    pub present: u16,
    /// How many generations each page is behind the youngest; `None` if absent or in none (locked, or on its way to a list).
    pub ages: Box<[Option<u8>; PAGES_PER_PMD]>,
}

impl Ages {
    /// Pages that are at most this many generations behind.
    pub fn within(&self, most: u8) -> u16 {
        self.ages.iter().map(|age| u16::from(age.is_some_and(|age| age <= most))).sum()
    }

    /// Pages with a known age.
    pub fn known(&self) -> u16 {
        self.within(u8::MAX)
    }
}

/// Reads generations, and creates new ones.
#[derive(Debug)]
pub struct Mglru {
    walker: Walker,
    lru: LruGen,
    field: Field,
    zones: Zones,
    proc: Proc,
    maps: HashMap<u32, Maps>,
}

impl Mglru {
    /// Finds MGLRU and the place of the generation in a page's flags, or reports what is missing. Takes a tenth of a
    /// second.
    pub fn open() -> Result<Mglru, Error> {
        let lru = LruGen::open(Path::new("/sys"))?;
        let mut walker = Walker::open_with_folios()?;
        if !walker.knows_folios() {
            let unknown = "its struct page is not as this program knows it".to_owned();
            return Err(isotherm_sys::lru_gen::Error::Unplaced(unknown).into());
        }
        let proc = Proc::default();
        let zones =
            Zones::read(proc.root()).map_err(|source| Error::Io { attempted: "read /proc/zoneinfo".into(), source })?;
        let field = calibrate::run(&mut walker, &lru, &zones, &proc)?;
        Ok(Mglru { walker, lru, field, zones, proc, maps: HashMap::new() })
    }

    /// The lowest bit of the generation in the flags, for information.
    pub fn shift(&self) -> u32 {
        self.field.shift()
    }

    /// The cgroup that a process is in, with its generations.
    pub fn memcg(&self, pid: u32) -> Result<Memcg, Error> {
        memcg_of(&self.lru, &self.proc, pid)
    }

    /// Ages the cgroups of these processes, each once. This clears the accessed bits of all their processes, and makes
    /// other pages one generation older. Processes that have ended are skipped.
    pub fn age(&self, pids: &[u32]) -> Result<(), Error> {
        let mut memcgs = BTreeMap::new();
        for pid in pids {
            match self.memcg(*pid) {
                Ok(memcg) => drop(memcgs.insert(memcg.id, memcg)),
                Err(error) if error.is_gone() => {}
                Err(error) => return Err(error),
            }
        }
        memcgs.values().try_for_each(|memcg| self.age_cgroup(memcg))
    }

    fn age_cgroup(&self, memcg: &Memcg) -> Result<(), Error> {
        let Err(error) = self.lru.age_all(memcg) else { return Ok(()) };
        // It may have been removed since the lookup, with the last of its processes.
        let still_there = self.lru.read()?.iter().any(|other| (other.id, &other.path) == (memcg.id, &memcg.path));
        if still_there { Err(error.into()) } else { Ok(()) }
    }

    /// Reads the generations of all pages of `pmds` (sorted). Huge ranges that are not mapped any more, or hold no page,
    /// are skipped.
    ///
    /// Ages are relative to the cgroup of the process. They mean nothing for pages that are charged to another cgroup
    /// (libraries that another process read first, memory from before the process was moved).
    pub fn generations(&mut self, pid: u32, pmds: &[PmdNo], each: &mut dyn FnMut(Ages)) -> Result<(), Error> {
        let maps = self.maps.entry(pid).or_default();
        maps.read(&self.proc, pid)?;
        let anchors = PageTable::anchors(maps.entries(), pmds);
        let wanted: Vec<(PmdNo, Addr)> = pmds.iter().zip(anchors).filter_map(|(b, a)| Some((*b, a?))).collect();
        let spans = spans_of(&self.memcg(pid)?);
        let (mut at, mut tries) = (0, 0);
        while at < wanted.len() {
            let chunk = &wanted[at..(at + MAX_FOLIO_REQUESTS).min(wanted.len())];
            let addresses: Vec<Addr> = chunk.iter().map(|(_, address)| *address).collect();
            let (pass, folios) = self.walker.folios(pid, &addresses)?;
            if !pass.has_memory {
                return Err(Error::NoMemory(pid));
            }
            for ((pmd, _), (kind, folios)) in chunk.iter().zip(folios) {
                let ages = ages_of(*pmd, kind, folios, |frame, flags| {
                    self.field.age(flags, *spans.get(&self.zones.node_of(frame)?)?)
                });
                ages.map(&mut *each);
            }
            at += pass.done;
            if pass.busy {
                tries += 1;
                if tries > BUSY_TRIES {
                    return Err(Error::Busy(pid));
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(())
    }

    /// Forgets a process that is not needed any more.
    pub fn forget(&mut self, pid: u32) {
        self.maps.remove(&pid);
        self.walker.forget(pid);
    }
}

/// Time between the last two agings of a cgroup: pages one generation behind were accessed within it. The longest over
/// its nodes; `None` if it was never aged.
pub fn interval_of(memcg: &Memcg) -> Option<Duration> {
    let of_node = |node: &isotherm_sys::lru_gen::Node| {
        let [.., before, youngest] = node.generations.as_slice() else { return None };
        let has_pages = node.generations.iter().any(|g| g.anon_pages > 0);
        has_pages.then(|| Duration::from_millis(before.age_ms.saturating_sub(youngest.age_ms)))
    };
    memcg.nodes.iter().filter_map(of_node).max().filter(|interval| !interval.is_zero())
}

/// Oldest and youngest generation, by node.
fn spans_of(memcg: &Memcg) -> HashMap<u32, (u64, u64)> {
    memcg.nodes.iter().filter_map(|node| Some((node.id, node.span()?))).collect()
}

fn ages_of(pmd: PmdNo, kind: Kind, folios: &FolioPmd, age: impl Fn(u64, u64) -> Option<u64>) -> Option<Ages> {
    let of = |i: usize| age(folios[i].frame, folios[i].flags).and_then(|age| u8::try_from(age).ok());
    match kind {
        Kind::Leaf2M => Some(Ages { pmd, huge: true, present: ALL, ages: Box::new([of(0); PAGES_PER_PMD]) }),
        Kind::Pages => {
            let present = folios.iter().map(|folio| u16::from(folio.frame != 0)).sum();
            let ages = std::array::from_fn(|i| if folios[i].frame == 0 { None } else { of(i) });
            (present > 0).then(|| Ages { pmd, huge: false, present, ages: Box::new(ages) })
        }
        _ => None,
    }
}

fn failed(attempted: &str) -> impl Fn(io::Error) -> Error {
    let attempted = format!("find where pages keep their generation: {attempted}");
    move |source| Error::Io { attempted: attempted.clone(), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_bpf::page_table::Folio;
    use isotherm_sys::lru_gen::{Generation, Node};

    #[test]
    fn absent_pages_have_no_age_and_a_huge_page_one_for_all() {
        let mut folios = [Folio::default(); PAGES_PER_PMD];
        folios[3] = Folio { frame: 7, flags: 1 };
        folios[9] = Folio { frame: 8, flags: 2 };
        let age = |_: u64, flags: u64| (flags < 2).then_some(flags);
        let pages = ages_of(PmdNo(1), Kind::Pages, &folios, age).unwrap();
        assert_eq!((pages.present, pages.known(), pages.within(0), pages.within(1)), (2, 1, 0, 1));
        assert_eq!((pages.ages[3], pages.ages[9], pages.ages[0]), (Some(1), None, None));
        let huge = ages_of(PmdNo(1), Kind::Leaf2M, &folios, age).unwrap();
        assert_eq!((huge.huge, huge.present, huge.within(0)), (true, 512, 512));
        assert_eq!(ages_of(PmdNo(1), Kind::Pages, &[Folio::default(); 512], age), None, "no page");
        assert_eq!(ages_of(PmdNo(1), Kind::Unmapped, &folios, age), None);
    }

    #[test]
    fn the_interval_is_that_between_the_last_two_agings() {
        let generation = |number, age_ms, anon_pages| Generation { number, age_ms, anon_pages, file_pages: 0 };
        let node = |generations| Node { id: 0, generations };
        let memcg = |nodes| Memcg { id: 1, path: "/".into(), nodes };
        let aged = vec![generation(4, 9000, 5), generation(5, 3000, 0), generation(6, 1000, 0)];
        let unused = vec![generation(0, 9000, 0), generation(1, 500, 0)];
        assert_eq!(interval_of(&memcg(vec![node(aged), node(unused.clone())])), Some(Duration::from_secs(2)));
        assert_eq!(interval_of(&memcg(vec![node(unused)])), None);
    }
}
