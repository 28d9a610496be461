//! The cost of access checks: measured elsewhere, charged here.

use isotherm_heat::Ns;
use isotherm_units::PAGES_PER_PMD;

/// CPU time of each operation that a monitor may do, in ns.
///
/// The defaults were measured on a 2 vCPU guest (Sapphire Rapids class, kernel 6.18), unless a field states otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// Reading the accessed bits of one page table of 512 entries. Measured: 0.8 us a table plus 2.3 ns an entry.
    pub read_table_ns: Ns,
    /// Reading the one bit of a huge page. Not measured separately; assumed to be the fixed part of a table.
    pub read_huge_ns: Ns,
    /// Clearing a huge range of 4 KiB pages with `MADV_COLD`, TLB flush included. Measured at 2 MiB a call: 84 ns a page.
    /// (Long runs of neighbouring huge ranges in one call cost 25 us a huge range; the model does not use that lower cost.)
    pub clear_pmd_ns: Ns,
    /// Clearing a huge page the same way. Measured for a call on a single entry: 12 us.
    pub clear_huge_ns: Ns,
    /// Clearing a page (a huge page is one) in a walk of the whole process through `clear_refs`. Measured: 32 to 50 ns.
    pub clear_refs_page_ns: Ns,
    /// Listing one mapping. Not measured; the order of magnitude of reading a line of `/proc/PID/maps`.
    pub list_mapping_ns: Ns,
    /// Clearing the bit of one page at the start of a sample, in the kernel's DAMON. Published with its perf-event
    /// patches: 7.16 s for 26 million pages, 273 ns each.
    pub prepare_page_ns: Ns,
    /// Checking that bit at the end of the sample, in the kernel's DAMON. Published there: 5.34 s, 204 ns each.
    pub check_page_ns: Ns,
}

impl Default for Costs {
    fn default() -> Costs {
        let entry_ns = 2.3;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "1178")]
        let entries_ns = (entry_ns * PAGES_PER_PMD as f64).round() as Ns;
        Costs {
            read_table_ns: 800 + entries_ns,
            read_huge_ns: 800,
            clear_pmd_ns: 43_000,
            clear_huge_ns: 12_000,
            clear_refs_page_ns: 41,
            list_mapping_ns: 1_000,
            prepare_page_ns: 273,
            check_page_ns: 204,
        }
    }
}

/// One kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// A page table read.
    ReadTable,
    /// The bit of a huge page read.
    ReadHuge,
    /// A huge range of 4 KiB pages cleared.
    ClearPmd,
    /// A huge page cleared.
    ClearHuge,
    /// A page cleared in a walk of the whole process.
    ClearRefsPage,
    /// A mapping listed.
    ListMapping,
    /// A single page cleared, as DAMON does.
    PreparePage,
    /// A single page checked, as DAMON does.
    CheckPage,
}

impl Work {
    /// Number of kinds.
    pub(crate) const KINDS: usize = 8;
}

impl Costs {
    /// The cost of one piece of work, in ns.
    pub const fn of(&self, work: Work) -> Ns {
        match work {
            Work::ReadTable => self.read_table_ns,
            Work::ReadHuge => self.read_huge_ns,
            Work::ClearPmd => self.clear_pmd_ns,
            Work::ClearHuge => self.clear_huge_ns,
            Work::ClearRefsPage => self.clear_refs_page_ns,
            Work::ListMapping => self.list_mapping_ns,
            Work::PreparePage => self.prepare_page_ns,
            Work::CheckPage => self.check_page_ns,
        }
    }
}

/// Amounts of work done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Page tables read, including those read only to list populated huge ranges.
    pub tables_read: u64,
    /// Bits of huge pages read.
    pub huge_read: u64,
    /// Huge ranges of 4 KiB pages cleared one by one.
    pub pmds_cleared: u64,
    /// Huge pages cleared one by one.
    pub huge_cleared: u64,
    /// Pages cleared in walks of a whole process.
    pub refs_cleared: u64,
    /// Mappings listed.
    pub mappings_listed: u64,
    /// Single pages cleared, as DAMON does.
    pub page_clears: u64,
    /// Single pages checked, as DAMON does.
    pub page_checks: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_costs_what_was_measured() {
        // 2.3 to 3.9 ms were measured for 2,105 tables.
        let costs = Costs::default();
        assert_eq!(costs.read_table_ns, 1978);
        let all_ms = costs.read_table_ns as f64 * 2105.0 / 1e6;
        assert!((2.3..4.2).contains(&all_ms), "{all_ms}");
    }
}
