//! Page tables and sampled accesses together: each shows what the other misses.
//!
//! An accessed bit shows that a page was accessed since a moment, but not by which task and not how often: a hundred
//! accesses a second look like a million. Samples count the hottest pages best, and miss rare and prefetched accesses.
//! `isotherm-heat` combines the two page by page, and records in each region which of them contributed.

use crate::page_table::PageTable;
use crate::perf::Perf;
use isotherm_heat::source::{
    AccessSource, Accesses, Attached, Description, Layout, PageSource, ReportSource, SourceResult,
};

/// A source of accessed bits, combined with one of reported accesses.
#[derive(Debug)]
pub struct Fused {
    bits: PageTable,
    perf: Perf,
    news: Vec<String>,
}

impl Fused {
    /// Combines the two.
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

    fn attach(&mut self, pid: u32) -> SourceResult<Attached> {
        let attached = self.bits.attach(pid)?;
        // Samples are an addition: a target that cannot be sampled is monitored without them.
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

    fn layout(&mut self, pid: u32) -> SourceResult<Layout> {
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
