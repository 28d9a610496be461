//! Page tables and sampled accesses together: each knows what the other misses.
//!
//! An accessed bit says that a page was accessed since a moment, whoever did it and however seldom, and nothing of how often: what
//! is accessed a hundred times a second looks like what is accessed a million times. Samples count the hottest best, and miss what
//! is rare and what is prefetched. `isotherm-heat` puts them together page by page, and says in each region which of the two knew.

use crate::perf::Perf;
use crate::{
    AccessSource, Accesses, Cleared, ClearedProcess, Description, Error, Layout, Listened, Progress, Reports, Sink,
};
use isotherm_heat::{Access, Ns, TargetId};
use isotherm_units::BlockNo;

/// A source that looks, with one that is told.
pub struct Fused {
    bits: Box<dyn AccessSource>,
    perf: Perf,
    news: Vec<String>,
}

impl std::fmt::Debug for Fused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} with {:?}", self.bits.describe().name, self.perf)
    }
}

impl Fused {
    /// Puts the two together.
    pub fn new(bits: Box<dyn AccessSource>, perf: Perf) -> Fused {
        Fused { bits, perf, news: Vec::new() }
    }
}

impl AccessSource for Fused {
    fn describe(&self) -> Description {
        let bits = self.bits.describe();
        let sampled = self.perf.describe();
        Description {
            name: "page-table+perf",
            accesses: sampled.accesses.silence().map_or(Accesses::None, Accesses::Beside),
            note: format!("{}; {}", bits.note, sampled.note),
            ..bits
        }
    }

    fn attach(&mut self, pid: u32) -> Result<(TargetId, String), Error> {
        let attached = self.bits.attach(pid)?;
        // Samples are an addition: what they cannot be had of is watched without.
        if let Err(error) = self.perf.attach(pid)
            && !error.is_gone()
        {
            self.news.push(format!("process {pid} is watched without samples: {error}"));
        }
        Ok(attached)
    }

    fn cgroup_of(&self, pid: u32) -> Option<String> {
        self.bits.cgroup_of(pid)
    }

    fn detach(&mut self, pid: u32) {
        self.bits.detach(pid);
        self.perf.detach(pid);
    }

    fn layout(&mut self, pid: u32) -> Result<Layout, Error> {
        let layout = self.bits.layout(pid)?;
        self.perf.set_mappings(pid, &layout.mappings);
        Ok(layout)
    }

    fn read(&mut self, pid: u32, blocks: &[BlockNo], sink: &mut Sink<'_>) -> Result<Progress, Error> {
        self.bits.read(pid, blocks, sink)
    }

    fn clear(
        &mut self,
        pid: u32,
        blocks: &[BlockNo],
        sink: &mut dyn FnMut(Ns, BlockNo, Cleared),
    ) -> Result<Progress, Error> {
        self.bits.clear(pid, blocks, sink)
    }

    fn clear_process(&mut self, pid: u32, stuck: &[BlockNo], all: &[BlockNo]) -> Result<ClearedProcess, Error> {
        self.bits.clear_process(pid, stuck, all)
    }

    fn shared_frames(&mut self, pid: u32, blocks: &[BlockNo], each: &mut dyn FnMut(Option<u64>)) -> Result<(), Error> {
        self.bits.shared_frames(pid, blocks, each)
    }

    fn accesses(&mut self, pid: u32, sink: &mut dyn FnMut(Access)) -> Result<Listened, Error> {
        self.perf.accesses(pid, sink)
    }

    fn reports(&self) -> Reports {
        self.perf.reports()
    }

    fn news(&mut self) -> Vec<String> {
        let mut news = std::mem::take(&mut self.news);
        news.extend(self.perf.news());
        news
    }
}
