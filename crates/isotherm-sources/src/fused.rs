//! Page tables and sampled accesses together: each knows what the other misses.
//!
//! An accessed bit says that a page was accessed since a moment, whoever did it and however seldom, and nothing of how often: what
//! is accessed a hundred times a second looks like what is accessed a million times. Samples count the hottest best, and miss what
//! is rare and what is prefetched. `isotherm-heat` puts them together page by page, and says in each region which of the two knew.

use crate::page_table::PageTable;
use crate::perf::Perf;
use isotherm_heat::source::{AccessSource, Accesses, Asked, Attached, Description, Layout, PageSource, ReportSource};

/// A source of accessed bits, with one to which accesses are reported.
#[derive(Debug)]
pub struct Fused {
    bits: PageTable,
    perf: Perf,
    news: Vec<String>,
}

impl Fused {
    /// Puts the two together.
    pub fn new(bits: PageTable, perf: Perf) -> Fused {
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

    fn attach(&mut self, pid: u32) -> Asked<Attached> {
        let attached = self.bits.attach(pid)?;
        // Samples are an addition: what they cannot be had of is watched without.
        if let Err(error) = self.perf.attach(pid)
            && !error.is_gone()
        {
            self.news.push(format!("process {pid} is watched without samples: {error}"));
        }
        Ok(attached)
    }

    fn detach(&mut self, pid: u32) {
        self.bits.detach(pid);
        self.perf.detach(pid);
    }

    fn layout(&mut self, pid: u32) -> Asked<Layout> {
        let layout = self.bits.layout(pid)?;
        self.perf.set_mappings(pid, &layout.mappings);
        Ok(layout)
    }

    fn news(&mut self) -> Vec<String> {
        let mut news = std::mem::take(&mut self.news);
        news.extend(self.perf.news());
        news
    }

    fn as_pages(&mut self) -> Option<&mut dyn PageSource> {
        Some(&mut self.bits)
    }

    fn as_reports(&mut self) -> Option<&mut dyn ReportSource> {
        Some(&mut self.perf)
    }
}
