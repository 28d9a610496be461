//! A store and idle heaps in a memory cgroup of their own, and what is true of their pages.

use super::set;
use anyhow::{Context, Result};
use isotherm_bench::{idle_heap, start, start_server, store_with_cold_keys};
use isotherm_heat::Ns;
use isotherm_sys::clock;
use isotherm_sys::pagemap::Pagemap;
use isotherm_sys::proc::Proc;
use isotherm_units::AddrRange;
use isotherm_workload::{Child, Server};
use std::fs;
use std::path::{Path, PathBuf};

/// Pages of the store: 96 MiB.
pub const STORE_PAGES: usize = 24 << 10;
/// Pages of an idle heap: 48 MiB.
pub const HEAP_PAGES: usize = 12 << 10;
/// Accessed this often, a page is hot.
const HOT_HZ: f64 = 1.0;

/// A memory cgroup that is removed when this value is dropped.
#[derive(Debug)]
pub struct Cgroup(PathBuf);

impl Cgroup {
    /// Makes it, below the root.
    pub fn new(name: &str) -> Result<Cgroup> {
        let root = Path::new("/sys/fs/cgroup");
        set(root.join("cgroup.subtree_control"), "+memory")?;
        let path = root.join(name);
        fs::create_dir_all(&path).with_context(|| format!("create the cgroup {}", path.display()))?;
        Ok(Cgroup(path))
    }

    /// A file of it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Does this in the cgroup, so that processes that are started are in it from their first page on.
    fn within<T>(&self, start: impl FnOnce() -> Result<T>) -> Result<T> {
        let own = std::process::id();
        set(self.file("cgroup.procs"), own)?;
        let done = start();
        set("/sys/fs/cgroup/cgroup.procs", own)?;
        done
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Its processes have been waited for, but the kernel may take a moment.
        for _ in 0..50 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            super::wait(0.02);
        }
    }
}

/// The processes of one run. Dropped in this order: the cgroup has to be empty before it can be removed.
#[derive(Debug)]
pub struct Scene {
    /// The store.
    pub store: Server,
    /// The idle heaps.
    pub heaps: Vec<Child>,
    /// Both are in it.
    pub cgroup: Cgroup,
}

/// What is true over some time.
#[derive(Clone, Debug)]
pub struct Truth {
    /// How often each page of the store was accessed a second.
    rates_hz: Vec<f64>,
}

/// What runs.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Idle heaps.
    pub heaps: usize,
    /// Operations of the store a second; `None` for as many as it can serve.
    pub per_s: Option<f64>,
}

impl Load {
    /// A store that sleeps for most of the time, as servers do.
    pub const USUAL: Load = Load { heaps: 2, per_s: Some(20_000.0) };
}

impl Scene {
    /// Starts all of it.
    pub fn start(seed: u64, load: Load) -> Result<Scene> {
        let cgroup = Cgroup::new("cold")?;
        let (store, heaps) = cgroup.within(|| {
            let heap = |no: usize| start(&idle_heap(HEAP_PAGES, seed + no as u64));
            Ok((
                start_server(&store_with_cold_keys(STORE_PAGES, load.per_s, seed))?,
                (0..load.heaps).map(heap).collect::<Result<Vec<_>>>()?,
            ))
        })?;
        Ok(Scene { store, heaps, cgroup })
    }

    /// Its processes: the store first.
    pub fn pids(&self) -> Vec<u32> {
        std::iter::once(&self.store.child).chain(&self.heaps).map(Child::pid).collect()
    }

    /// Bytes of them in swap.
    pub fn swapped(&self) -> Result<u64> {
        let of = |pid| Ok(Proc::default().status(pid)?.swap.unwrap_or_default().0);
        self.pids().into_iter().map(of).sum()
    }

    /// Page faults so far that had to read: what came back from swap.
    pub fn refaults(&self) -> Result<u64> {
        self.pids().into_iter().map(|pid| Ok(Proc::default().stat(pid)?.majflt)).sum()
    }

    /// CPU time of the store for each operation in the last so many nanoseconds.
    pub fn cpu_ns_per_operation(&self, last: Ns) -> Result<f64> {
        let now = clock::monotonic_ns();
        self.store.child.cpu_ns_per_access(now - last, now).context("the store has not reported")
    }

    /// What has been true since the last call.
    pub fn truth(&mut self) -> Truth {
        Truth { rates_hz: self.store.counts.rates_hz(clock::monotonic_ns()) }
    }

    /// Pages of the store that are in swap.
    pub fn store_out(&self) -> Result<Vec<bool>> {
        out_of(&self.store.child)
    }

    /// Pages of the heaps that are in swap.
    pub fn heaps_out(&self) -> Result<usize> {
        let of = |heap| Ok(out_of(heap)?.into_iter().filter(|out| *out).count());
        self.heaps.iter().map(of).sum()
    }
}

impl Truth {
    /// Pages of the store that were accessed at all.
    pub fn used_pages(&self) -> usize {
        self.rates_hz.iter().filter(|hz| **hz > 0.0).count()
    }

    /// Of the pages that were not accessed, the heaps' included, how many are in swap.
    pub fn cold_out_share(&self, scene: &Scene) -> Result<f64> {
        let (store, heaps) = (scene.store_out()?, scene.heaps_out()?);
        let cold = self.rates_hz.iter().zip(&store).filter(|(hz, _)| **hz == 0.0);
        let cold_out = cold.clone().filter(|(_, out)| **out).count() + heaps;
        Ok(cold_out as f64 / (cold.count() + scene.heaps.len() * HEAP_PAGES) as f64)
    }

    /// Of the hot pages of the store, how many are in swap.
    pub fn hot_out_share(&self, out: &[bool]) -> f64 {
        let hot = self.rates_hz.iter().zip(out).filter(|(hz, _)| **hz >= HOT_HZ);
        hot.clone().filter(|(_, out)| **out).count() as f64 / hot.count().max(1) as f64
    }

    /// How many pages are hot.
    pub fn hot_pages(&self) -> usize {
        self.rates_hz.iter().filter(|hz| **hz >= HOT_HZ).count()
    }
}

fn out_of(child: &Child) -> Result<Vec<bool>> {
    let range: AddrRange = child.memory();
    let entries = Pagemap::open(Path::new("/proc"), child.pid())?.read(range)?;
    Ok(entries.into_iter().map(|(_, entry)| entry.is_swapped()).collect())
}
