//! Which huge ranges are worth a huge page, and which cannot be one: the planner's side of collapsing.
//!
//! This is decided here as far as facts alone allow: huge ranges that are huge already, too cold, too sparse, or in memory
//! that does not take huge pages. What is only known at the moment of the try is in [`super::kernel`].

use super::COLLAPSE;
use super::benefit::level_of;
use crate::facts::{PmdFacts, is_anonymous};
use crate::outcome::Refusal;
use crate::plan::{Planner, Worth};
use crate::queue::ActionId;
use isotherm_heat::Mapping;
use isotherm_units::{AddrRange, Bytes, PMD_SIZE, PmdNo};
use std::collections::BTreeMap;

/// Which huge ranges are worth collapsing at all.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// Pages of a huge range that must be present, of 512.
    pub min_present: u16,
    /// Accesses per second that a huge range must have, see [`crate::collapse::benefit`].
    pub min_benefit_hz: f64,
    /// Also file-backed and shared memory, where the kernel may refuse.
    pub files: bool,
}

impl Default for Rules {
    /// 90% present, and 50 accesses per second: a tenth of the pages once per second.
    fn default() -> Rules {
        Rules { min_present: 460, min_benefit_hz: 50.0, files: false }
    }
}

impl Planner for Rules {
    fn action(&self) -> ActionId {
        COLLAPSE
    }

    fn unfit(&self, mappings: &[Mapping], known: &PmdFacts) -> Option<Refusal> {
        if known.huge {
            return Some(Refusal::AlreadyHuge);
        }
        let sparse = (known.present < self.min_present).then_some(Refusal::Sparse);
        unfit_mapping(mappings, known.pmd, self.files).or(sparse)
    }

    fn worth(&self, known: &PmdFacts) -> Result<Worth, Refusal> {
        match level_of(known.benefit_hz).filter(|_| known.benefit_hz >= self.min_benefit_hz) {
            Some(level) => Ok(Worth { level, order: known.benefit_hz }),
            None if known.measured == 0 => Err(Refusal::Unmeasured),
            None => Err(Refusal::Cold),
        }
    }
}

/// Why the memory of `pmd` takes no huge page; `None` if it may.
pub(super) fn unfit_mapping(mappings: &[Mapping], pmd: PmdNo, files: bool) -> Option<Refusal> {
    let range = pmd.range();
    let Some(mapping) = Mapping::first_in(mappings, range) else { return Some(Refusal::Unmapped) };
    if !holds(mapping.range, range) {
        return Some(Refusal::Straddles);
    }
    (!files && !is_anonymous(mapping)).then_some(Refusal::File)
}

fn holds(outer: AddrRange, inner: AddrRange) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}

/// The share of a process's heat that lies on huge pages, window by window.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HeatOnHuge {
    /// The share in the last window, with ranges that we collapsed as they were before; `None` if nothing is hot.
    pub share: Option<f64>,
    /// The same by accessed bits alone: as if all pages of a huge page were as hot as its hottest.
    pub share_by_bits: Option<f64>,
    /// The first known share.
    pub share_at_first: Option<f64>,
    /// Memory on huge pages in the last window.
    pub huge: Bytes,
    /// The last benefit as small pages, for huge ranges that we collapsed.
    was: BTreeMap<PmdNo, f64>,
    /// The benefits of the small huge ranges of the last window.
    benefits: BTreeMap<PmdNo, f64>,
}

impl HeatOnHuge {
    /// Updates from the facts of a window.
    pub fn note(&mut self, facts: &[PmdFacts]) {
        self.huge = Bytes(facts.iter().filter(|f| f.huge).count() as u64 * PMD_SIZE);
        self.share = heat_on_huge(facts, &self.was);
        self.share_by_bits = heat_on_huge(facts, &BTreeMap::new());
        self.share_at_first = self.share_at_first.or(self.share);
        self.benefits = facts.iter().filter(|f| !f.huge).map(|f| (f.pmd, f.benefit_hz)).collect();
    }

    /// Notes that we collapsed this huge range.
    pub fn collapsed(&mut self, pmd: PmdNo) {
        let benefit = self.benefits.get(&pmd).copied().unwrap_or_default();
        self.was.insert(pmd, benefit);
    }
}

/// The share of the heat in `facts` that lies on huge pages; `None` if nothing is hot.
///
/// `was` has the benefit of huge ranges from before they became huge. It is used until their single accessed bit shows a
/// lower rate.
fn heat_on_huge(facts: &[PmdFacts], was: &BTreeMap<PmdNo, f64>) -> Option<f64> {
    let benefit = |f: &PmdFacts| match was.get(&f.pmd).filter(|_| f.huge) {
        Some(hz) => hz.min(f.benefit_hz),
        None => f.benefit_hz,
    };
    let all: f64 = facts.iter().map(benefit).sum();
    let huge: f64 = facts.iter().filter(|f| f.huge).map(benefit).sum();
    // The sum of nothing is -0.0, which would be printed.
    (all > 0.0).then(|| huge / all + 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(pmd: u64, present: u16, benefit_hz: f64) -> PmdFacts {
        PmdFacts { pmd: PmdNo(pmd), present, measured: present, huge: false, benefit_hz }
    }

    #[test]
    fn the_share_of_heat_on_huge_pages_uses_what_was_known_before() {
        let huge = PmdFacts { huge: true, ..facts(1, 512, 51_200.0) };
        let known = [huge, facts(2, 512, 1000.0)];
        assert_eq!(
            heat_on_huge(&known, &BTreeMap::new()),
            Some(51_200.0 / 52_200.0),
            "as if all its pages were touched"
        );
        assert_eq!(heat_on_huge(&known, &[(PmdNo(1), 3000.0)].into()), Some(0.75));
        let cooled = [PmdFacts { benefit_hz: 0.0, ..huge }, facts(2, 512, 1000.0)];
        assert_eq!(heat_on_huge(&cooled, &[(PmdNo(1), 3000.0)].into()), Some(0.0), "it was hot, and is not any more");
        assert_eq!(heat_on_huge(&[], &BTreeMap::new()), None);
        let none = heat_on_huge(&known[1..], &BTreeMap::new()).map(|share| format!("{share:.1}"));
        assert_eq!(none.as_deref(), Some("0.0"), "and not -0.0");
    }
}
