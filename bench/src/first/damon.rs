//! DAMON's algorithm on a real process, in user space.
//!
//! As in the kernel, one page of each region is cleared and its page-table entry read a sampling interval later. The entries are
//! read through BPF, one each, and cleared by `MADV_COLD` for all regions in one call. Both cost more than inside the kernel, so the
//! CPU time here is not kdamond's (bench-damon measures that one); the times until it is good are its algorithm's. It is given the
//! memory of the workload only, so that no region is spent on anything that is not scored.

use super::peers::Peer;
use super::{HOT_NS, Workload};
use crate::adaptive::{Attrs, Context};
use crate::regions::hot_ranges;
use anyhow::{Context as _, Result, ensure};
use isotherm_bpf::page_table::{MAX_REQUESTS, Op, Walker};
use isotherm_heat::{Clock as _, KernelRegion, Ns};
use isotherm_sources::RealClock;
use isotherm_sys::madvise::{MAX_RANGES, PidFd};
use isotherm_units::{Addr, AddrRange, PAGE_SIZE};

/// The accessed bit of a page-table entry.
const ACCESSED: u64 = 1 << 5;
const SEED: u64 = 17;
/// Tries while the target's mmap lock is held for writing, a millisecond apart.
const BUSY_TRIES: u32 = 50;

/// A context with one target, which is a process.
#[derive(Debug)]
pub(super) struct Damon {
    walker: Walker,
    pidfd: PidFd,
    context: Context,
    /// One page of each region.
    pages: Vec<AddrRange>,
    accessed: Vec<bool>,
}

impl Damon {
    pub fn open(workload: &Workload, attrs: Attrs) -> Result<Damon> {
        let pidfd = PidFd::open(workload.pid()).context("open the workload")?;
        let mut context = Context::new(attrs, SEED)?;
        context.add_target(&[workload.memory()]);
        Ok(Damon { walker: Walker::open()?, pidfd, context, pages: Vec::new(), accessed: Vec::new() })
    }

    /// Clears the accessed bit of a page of each region.
    fn prepare(&mut self) -> Result<()> {
        self.pages.clear();
        let page = |start: Addr| AddrRange::new(start, Addr(start.0 + PAGE_SIZE));
        self.context.draw(|sample| self.pages.push(page(sample.page.addr())));
        for pages in self.pages.chunks(MAX_RANGES) {
            let advised = self.pidfd.advise_cold(pages).context("clear accessed bits of the workload")?;
            ensure!(advised == pages.len() as u64 * PAGE_SIZE, "MADV_COLD was refused for a page of the workload");
        }
        Ok(())
    }

    /// Reads them, and counts.
    fn check(&mut self) -> Result<()> {
        let addresses: Vec<Addr> = self.pages.iter().map(|page| page.start).collect();
        self.accessed.clear();
        let mut tries = 0;
        while self.accessed.len() < addresses.len() {
            let rest = &addresses[self.accessed.len()..];
            let (pass, answers) =
                self.walker.pass(self.pidfd.pid(), Op::Entry, &rest[..rest.len().min(MAX_REQUESTS)])?;
            ensure!(pass.has_memory && pass.read_errors == 0, "entries of the workload's page tables were not read");
            self.accessed.extend(answers.iter().map(|answer| answer.a[0] & ACCESSED != 0));
            if pass.busy {
                tries += 1;
                ensure!(
                    tries < BUSY_TRIES,
                    "the workload's mmap lock was held for {BUSY_TRIES} ms: run the bench again"
                );
                RealClock.sleep_until(RealClock.now() + 1_000_000);
            }
        }
        let mut accessed = self.accessed.iter();
        self.context.check(|_| u32::from(accessed.next() == Some(&true)));
        Ok(())
    }
}

impl Peer for Damon {
    fn next_picture(&mut self, until: Ns) -> Result<Option<Vec<AddrRange>>> {
        while RealClock.now() < until {
            self.prepare()?;
            RealClock.sleep_until(RealClock.now() + self.context.attrs().sample_ns);
            self.check()?;
            if self.context.end_of_sample().aggregation {
                let mut regions = Vec::new();
                self.context.aggregate(|context| regions = reported(context));
                return Ok(Some(hot_ranges(&regions, HOT_NS).collect()));
            }
        }
        Ok(None)
    }
}

/// The regions of an aggregation as the kernel's DAMON reports them. All memory of the workload is resident.
fn reported(context: &Context) -> Vec<KernelRegion> {
    let attrs = context.attrs();
    let tiles = context.targets().iter().flat_map(|tiles| tiles.iter());
    let region = |range: AddrRange, nr_accesses: u32, age: u32| KernelRegion {
        range,
        resident_pages: range.len().pages(),
        huge_pages: 0,
        nr_accesses: u64::from(nr_accesses),
        max_nr_accesses: u64::from(attrs.max_nr_accesses()),
        age_aggregations: u64::from(age),
        aggregation_ns: attrs.aggregation_ns,
    };
    tiles.map(|tile| region(tile.range, tile.of.nr_accesses, tile.of.age)).collect()
}
