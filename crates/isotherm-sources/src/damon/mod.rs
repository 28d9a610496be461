//! The kernel's own monitor, DAMON, as a source: for processes (`vaddr`), or for physical memory (`paddr`).
//!
//! [`isotherm_sys::damon`] sets up one kdamond and restores sysfs afterwards. Its results come from the
//! `damon_aggregated` tracepoint, through a perf ring on that thread alone. So nobody else's monitoring mixes in, and
//! no tracing program is needed. Only the latest aggregation of each target is kept.
//!
//! Compared with page tables, DAMON does not show which pages of a region are hot, and it misses accesses that hit in
//! the TLB, since it does not flush it. In return the kernel does the work, at a cost that follows the number of
//! regions and not the size of memory, and it also covers physical memory. The CPU time of its thread is not in our
//! budgets: intervals and regions bound it.
//!
//! DAMON does not know residency: untouched memory is as cold to it as absent memory. For processes,
//! [`crate::resident`] reports how much of each mapping is resident. A region gets its share of the mappings that it
//! overlaps, as if pages were spread evenly in each. Holes have no share and drop out. For physical memory, all of a
//! region counts, free pages included.

mod aggregates;

use crate::Error;
use crate::process::Process;
use crate::resident::{self, Residency};
use aggregates::{Aggregates, Fields, Line};
use isotherm_heat::source::{
    AccessSource, Accesses, Aggregation, Attached, Description, Layout, RegionSource, SourceResult,
};
use isotherm_heat::{Granularity, KernelRegion, Ns, Resident, TargetId};
use isotherm_sys::clock;
use isotherm_sys::counter::Event;
use isotherm_sys::damon::{self, Attributes, Kdamond, Operations, Places, Target};
use isotherm_sys::perf::{self, Rate, Record, Ring, RingError, Sampling, Scope};
use isotherm_sys::proc::Proc;
use isotherm_sys::tracepoint::{self, Tracepoint};
use isotherm_units::AddrRange;
use std::collections::BTreeMap;

/// A restart loses the regions found so far. New targets alone do not cause one more often than this.
const RESTART_PAUSE: Ns = 10_000_000_000;
const TRY_AGAIN: Ns = 50_000_000;
/// After this many aggregations without a report, it is checked whether the thread still runs.
const SILENT_AGGREGATIONS: u64 = 5;
const MIN_SILENCE: Ns = 1_000_000_000;
/// The ring holds the reports of this much time.
const RING_NS: Ns = 2_000_000_000;
const LINE_BYTES: u64 = 80;
const LARGEST_RING: u64 = 64 << 20;
/// Targets end all the time, and one that has just ended makes the kernel refuse all. This many times in a row is no
/// accident.
const MAX_REFUSALS: u32 = 10;

/// Which memory is monitored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// Memory of processes, which are attached one by one.
    Processes,
    /// Physical memory. There is one target, [`Damon::PHYSICAL`].
    Physical,
}

impl Space {
    const fn operations(self) -> Operations {
        match self {
            Space::Processes => Operations::Vaddr,
            Space::Physical => Operations::Paddr,
        }
    }
}

/// A target that is attached.
#[derive(Clone, Debug)]
struct Watched {
    id: TargetId,
    /// `None` for physical memory.
    process: Option<Process>,
    residency: Residency,
    resident: Vec<Resident>,
}

/// The source.
#[derive(Debug)]
pub struct Damon {
    /// Closed before DAMON is released.
    ring: Option<Ring>,
    kdamond: Kdamond,
    space: Space,
    attributes: Attributes,
    proc: Proc,
    event: Event,
    fields: Fields,
    aggregates: Aggregates,
    attached: BTreeMap<u32, Watched>,
    /// The targets last given to the kernel, in order.
    sent: Vec<TargetId>,
    ram: Vec<AddrRange>,
    /// Targets were attached or detached since.
    changed: bool,
    /// The change was tried, and is not tried again before this time.
    retry_at: Ns,
    started_at: Ns,
    last_report_at: Ns,
    refusals: u32,
    lost: u64,
}

impl Damon {
    /// The pid that stands for physical memory.
    pub const PHYSICAL: u32 = 0;

    /// Claims DAMON. Fails while anybody else uses it. Nothing is monitored before something is attached.
    pub fn open(space: Space, attributes: Attributes) -> Result<Damon, Error> {
        Damon::open_at(&Places::default(), space, attributes)
    }

    /// The same on other roots.
    pub fn open_at(places: &Places, space: Space, attributes: Attributes) -> Result<Damon, Error> {
        // First the checks that change nothing.
        damon::available(places)?;
        let tracepoint = Tracepoint::read(&tracepoint::tracefs(&places.roots.sys)?, "damon", "damon_aggregated")?;
        let fields = Fields::of(&tracepoint)?;
        // A trial on a thread of our own shows whether we have permission.
        Ring::open(sampling(tracepoint.event()), Scope::Thread(std::process::id()), 1)?;
        let ram = match space {
            Space::Processes => Vec::new(),
            Space::Physical => damon::system_ram(&places.roots.proc)?,
        };
        Ok(Damon {
            ring: None,
            kdamond: Kdamond::claim(places, space.operations(), &attributes)?,
            space,
            proc: Proc::at(&places.roots.proc),
            event: tracepoint.event(),
            fields,
            aggregates: Aggregates::new(0, attributes.aggregation_us * 1000),
            attributes,
            attached: BTreeMap::new(),
            sent: Vec::new(),
            ram,
            changed: false,
            retry_at: 0,
            started_at: 0,
            last_report_at: 0,
            refusals: 0,
            lost: 0,
        })
    }

    /// The kernel thread, while it runs. Its CPU time is the cost of this source in addition to ours.
    pub fn thread(&self) -> Option<u32> {
        self.kdamond.thread()
    }

    /// Lines that had no room in the ring, and aggregations that lacked a line for this or another reason.
    pub fn lost(&self) -> (u64, u64) {
        (self.lost + self.ring.as_ref().map_or(0, Ring::lost), self.aggregates.broken())
    }

    /// Stops and releases DAMON. A drop does the same, but cannot report a failure.
    pub fn close(mut self) -> Result<(), Error> {
        self.ring = None;
        Ok(self.kdamond.release()?)
    }

    /// Brings what the kernel monitors in line with what is attached, if that is worth the regions it loses.
    fn adjust(&mut self) -> Result<(), Error> {
        let now = clock::monotonic_ns();
        let silence = MIN_SILENCE.max(SILENT_AGGREGATIONS * self.aggregation_ns());
        let silent = now.saturating_sub(self.last_report_at) > silence;
        if !silent && (!self.changed || now < self.retry_at) {
            return Ok(());
        }
        // The next check comes after another silence.
        self.last_report_at = now;
        let wanted: Vec<TargetId> = self.attached.values().map(|a| a.id).filter(|id| self.lives(*id)).collect();
        let new: Vec<TargetId> = wanted.iter().copied().filter(|id| !self.sent.contains(id)).collect();
        let unwanted: Vec<TargetId> = self.sent.iter().copied().filter(|id| !wanted.contains(id)).collect();
        if self.ring.is_none() || self.kdamond.thread().is_none() {
            return self.restart(wanted, now);
        }
        // Targets that have ended cost nothing, and stay until there is another reason to restart.
        let in_the_way = !new.is_empty() && !unwanted.is_empty();
        if in_the_way || unwanted.iter().any(|id| self.lives(*id)) {
            self.retry_at = self.started_at + RESTART_PAUSE;
            return if now >= self.retry_at { self.restart(wanted, now) } else { Ok(()) };
        }
        if !new.is_empty() {
            match self.kdamond.add(&self.targets(&new)) {
                Ok(()) => {
                    self.sent.extend(new);
                    self.aggregates.extend(self.sent.len());
                }
                Err(damon::Error::Refused { .. }) => return self.restart(wanted, now),
                Err(e) => return Err(e.into()),
            }
        }
        self.changed = false;
        Ok(())
    }

    fn restart(&mut self, wanted: Vec<TargetId>, now: Ns) -> Result<(), Error> {
        self.lost += self.ring.take().map_or(0, |ring| ring.lost());
        self.sent.clear();
        if wanted.is_empty() {
            self.changed = false;
            return Ok(self.kdamond.stop()?);
        }
        let thread = match self.kdamond.start(&self.targets(&wanted)) {
            // One has just ended: try again soon, without it.
            Err(damon::Error::Refused { .. }) if self.refusals < MAX_REFUSALS => {
                self.try_again(now);
                return Ok(());
            }
            other => other?,
        };
        self.ring = match Ring::open(sampling(self.event), Scope::Thread(thread), self.ring_bytes()) {
            Ok(ring) => Some(ring),
            // It has ended already, with its targets.
            Err(RingError::Gone { .. }) if self.refusals < MAX_REFUSALS => {
                self.try_again(now);
                return Ok(());
            }
            Err(RingError::Gone { .. }) => {
                return Err(Error::Io {
                    attempted: format!("open a perf ring on the kernel thread {thread} of DAMON"),
                    source: std::io::Error::other("it is not to be seen: run in the first pid namespace"),
                });
            }
            Err(e) => return Err(e.into()),
        };
        self.aggregates = Aggregates::new(wanted.len(), self.attributes.aggregation_us * 1000);
        self.sent = wanted;
        (self.changed, self.refusals) = (false, 0);
        (self.started_at, self.last_report_at) = (now, clock::monotonic_ns());
        Ok(())
    }

    fn try_again(&mut self, now: Ns) {
        self.refusals += 1;
        self.changed = true;
        self.retry_at = now + TRY_AGAIN;
    }

    fn targets(&self, ids: &[TargetId]) -> Vec<Target> {
        match self.space {
            Space::Processes => ids.iter().map(|id| Target::process(id.pid)).collect(),
            Space::Physical => vec![Target { pid: None, ranges: self.ram.clone() }],
        }
    }

    fn lives(&self, id: TargetId) -> bool {
        let found = || self.proc.stat(id.pid).is_ok_and(|s| s.start_ticks == id.start_ticks && !s.has_ended());
        self.space == Space::Physical || found()
    }

    fn aggregation_ns(&self) -> Ns {
        self.aggregates.latest(0).map_or(self.attributes.aggregation_us * 1000, |a| a.length)
    }

    fn ring_bytes(&self) -> usize {
        let aggregations = RING_NS.div_ceil((self.attributes.aggregation_us * 1000).max(1)).max(2);
        let bytes = self.attributes.max_regions.saturating_mul(LINE_BYTES).saturating_mul(aggregations);
        usize::try_from(bytes.min(LARGEST_RING)).unwrap_or(usize::MAX)
    }

    /// Processes the reports since the last call.
    fn drain(&mut self) {
        let Some(ring) = &mut self.ring else { return };
        ring.drain(|record| match record {
            Record::Sample(sample) => {
                self.last_report_at = self.last_report_at.max(sample.time);
                match Line::parse(&self.fields, sample.raw) {
                    Some(line) => self.aggregates.line(sample.time, line),
                    None => self.aggregates.lost(),
                }
            }
            Record::Lost(_) | Record::Malformed => self.aggregates.lost(),
            Record::Throttle | Record::Unthrottle | Record::Other(_) => {}
        });
    }

    /// The attached target with this pid; an error if it has ended or executes another program.
    fn identify(&self, pid: u32) -> Result<&Watched, Error> {
        let attached = self.attached.get(&pid).ok_or(Error::Gone(pid))?;
        attached.process.map_or(Ok(()), |process| process.check(&self.proc))?;
        Ok(attached)
    }
}

/// Takes each line as one sample.
fn sampling(event: Event) -> Sampling {
    Sampling::new(event, Rate::Period(1), perf::Fields::TIME | perf::Fields::RAW)
}

impl AccessSource for Damon {
    fn describe(&self) -> Description {
        let a = &self.attributes;
        let (name, what, resident) = match self.space {
            Space::Processes => ("damon", "vaddr", "resident pages are taken to lie evenly in each mapping"),
            Space::Physical => ("damon-paddr", "paddr", "free pages count as cold ones"),
        };
        let tuned = if self.kdamond.tunes() { ", tuned by the kernel" } else { "" };
        Description {
            name,
            granularity: Granularity::Region,
            accesses: Accesses::None,
            clears_others: false,
            note: format!(
                "the kernel's DAMON ({what}): a page of each region every {} ms{tuned}, {} to {} regions in all; measures measures how hot a region \
                 is, not which pages; {resident}; a hot working set that fits the TLB may look idle; the CPU time of its kernel thread \
                 is not counted here",
                a.sample_us as f64 / 1000.0,
                a.min_regions,
                a.max_regions
            ),
        }
    }

    fn attach(&mut self, pid: u32) -> SourceResult<Attached> {
        Ok(self.watch(pid)?)
    }

    fn detach(&mut self, pid: u32) {
        self.changed |= self.attached.remove(&pid).is_some();
    }

    fn layout(&mut self, pid: u32) -> SourceResult<Layout> {
        self.identify(pid)?;
        let attached = self.attached.get_mut(&pid).ok_or(Error::Gone(pid))?;
        let (mappings, resident) = match self.space {
            Space::Processes => attached.residency.of_process(&self.proc, pid)?,
            Space::Physical => resident::of_ram(&self.ram),
        };
        attached.resident = resident;
        Ok(Layout { mappings, ..Layout::default() })
    }

    fn as_regions(&mut self) -> Option<&mut dyn RegionSource> {
        Some(self)
    }
}

impl RegionSource for Damon {
    fn regions(&mut self, pid: u32) -> SourceResult<Option<Aggregation>> {
        self.identify(pid)?;
        self.adjust()?;
        self.drain();
        let attached = self.identify(pid)?;
        let place = self.sent.iter().position(|id| *id == attached.id);
        let Some(latest) = place.and_then(|place| self.aggregates.latest(place)) else { return Ok(None) };
        let regions = latest.regions.iter().map(|found| {
            let (resident_pages, huge_pages) = resident::share(&attached.resident, found.range);
            KernelRegion {
                range: found.range,
                resident_pages,
                huge_pages,
                nr_accesses: found.nr_accesses,
                max_nr_accesses: self.attributes.max_nr_accesses(),
                age_aggregations: found.age,
                aggregation_ns: latest.length,
            }
        });
        Ok(Some(Aggregation { at: latest.at, regions: regions.collect() }))
    }
}

impl Damon {
    fn watch(&mut self, pid: u32) -> Result<Attached, Error> {
        let (id, comm, process) = match self.space {
            Space::Physical if pid == Damon::PHYSICAL => (TargetId { pid, start_ticks: 0 }, "paddr".into(), None),
            Space::Physical => {
                let source = std::io::Error::other("it watches physical memory as a whole; take --source damon");
                return Err(Error::Io { attempted: format!("watch process {pid} through DAMON's paddr"), source });
            }
            Space::Processes => {
                let (process, comm) = Process::find(&self.proc, pid)?;
                (process.id, comm, Some(process))
            }
        };
        self.attached.insert(pid, Watched { id, process, residency: Residency::default(), resident: Vec::new() });
        self.changed = true;
        Ok(Attached::here(id, comm))
    }
}
