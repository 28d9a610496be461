//! What a planner reads about a process: [`TargetWindow`], and nothing else.
//!
//! It has two sources, and a plan does not depend on which: the running monitor (page by page, or by regions if a
//! target is sampled) and the last snapshot of a recording. The caller also reads the MGLRU generations and passes them
//! as data, so that nothing here needs BPF. Heat becomes facts in [`crate::collapse::benefit`].

use isotherm_heat::{Mapping, Mask, TargetId};
use isotherm_units::{Addr, PAGES_PER_PMD, PmdNo};
use std::borrow::Cow;

/// What is known about one huge range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PmdFacts {
    /// The huge range.
    pub pmd: PmdNo,
    /// Pages present, of 512.
    pub present: u16,
    /// Pages of those whose access interval is known.
    pub measured: u16,
    /// Whether it is one huge page.
    pub huge: bool,
    /// Accesses per second, the sum over its pages: see [`crate::collapse::benefit`].
    pub benefit_hz: f64,
}

/// One process in one window.
#[derive(Clone, Debug)]
pub struct TargetWindow<'a> {
    /// The process.
    pub id: TargetId,
    /// Its command name.
    pub comm: Cow<'a, str>,
    /// Its mappings, in address order.
    pub mappings: Cow<'a, [Mapping]>,
    /// Its huge ranges by its heat map, in address order.
    pub facts: Vec<PmdFacts>,
    /// Its huge ranges by MGLRU generation, in address order, if these are a source of hints.
    pub generations: Vec<PmdFacts>,
}

impl TargetWindow<'_> {
    /// The same value with everything owned.
    pub fn into_owned(self) -> TargetWindow<'static> {
        TargetWindow {
            id: self.id,
            comm: self.comm.into_owned().into(),
            mappings: self.mappings.into_owned().into(),
            facts: self.facts,
            generations: self.generations,
        }
    }
}

/// Whether it is private memory without a file. The kernel uses names in brackets for such memory.
pub(crate) fn is_anonymous(mapping: &Mapping) -> bool {
    mapping.perms.is_private() && (mapping.name.is_empty() || mapping.name.starts_with('['))
}

/// Whether it is private memory without a file, and not what the kernel maps for itself, such as `[vvar]`.
pub fn is_programs_own(mapping: &Mapping) -> bool {
    is_anonymous(mapping) && !mapping.name.starts_with("[v")
}

/// The pages of a huge range that lie in private memory without a file.
pub(crate) fn private_pages(mappings: &[Mapping], pmd: PmdNo) -> Mask {
    let range = pmd.range();
    let from = mappings.partition_point(|m| m.range.end <= range.start);
    let within = mappings[from..].iter().take_while(|m| m.range.start < range.end);
    within.filter(|m| is_programs_own(m)).fold(Mask::NONE, |pages, m| pages | pages_within(m, pmd))
}

/// The pages of a huge range that lie in a mapping, which touches it.
pub(crate) fn pages_within(mapping: &Mapping, pmd: PmdNo) -> Mask {
    let range = pmd.range();
    let index = |addr: Addr| usize::try_from(addr.page().0 - pmd.page(0).0).unwrap_or(PAGES_PER_PMD);
    let (start, end) = (mapping.range.start.max(range.start), Addr(mapping.range.end.0.min(range.end.0)));
    Mask::of_range(index(start)..index(end))
}

/// Whether it has the name of a file that is in memory alone: what leaves of it goes to swap.
pub fn is_named_memory(mapping: &Mapping) -> bool {
    ["/dev/shm/", "/dev/zero", "/memfd:", "/SYSV"].iter().any(|start| mapping.name.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_units::AddrRange;

    #[test]
    fn private_memory_without_a_file_is_anonymous() {
        let mapping = |perms: &str, name: &str| Mapping {
            range: AddrRange::new(Addr(0), Addr(4096)),
            name: name.into(),
            perms: perms.parse().unwrap(),
        };
        assert!(is_anonymous(&mapping("rw-p", "[heap]")));
        assert!(is_anonymous(&mapping("r--p", "")) && is_programs_own(&mapping("rw-p", "[stack]")));
        assert!(is_anonymous(&mapping("r--p", "[vvar]")) && !is_programs_own(&mapping("r--p", "[vvar]")));
        assert!(!is_anonymous(&mapping("rw-p", "/lib/x.so")));
        assert!(!is_anonymous(&mapping("rw-s", "")), "shared with what was forked from it");
    }
}
