//! What shared sets are to be, and how much memory they take.

use super::aside::Asides;
use super::cpu_lists::CpuLists;
use super::lists::capacities;
use super::tier::Tier;
use crate::Zone;
use crate::percpu::Shape;
use crate::tune::Marks;

/// What shared sets are to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SetsConfig {
    /// CPUs, numbered from 0: the highest number that is possible, plus one. A CPU with a higher one goes to the zone.
    pub cpus: u32,
    /// How threads are kept apart.
    pub tier: Tier,
    /// Between what numbers a set is kept. `None`: by the kernel's formulas, from the frames of the zone when the sets are made.
    pub marks: Option<Marks>,
}

impl SetsConfig {
    /// Sets for `cpus` CPUs, the rest as usual.
    pub const fn new(cpus: u32) -> SetsConfig {
        SetsConfig { cpus, tier: Tier::Best, marks: None }
    }

    /// The marks that hold for a zone.
    pub fn marks_for(&self, zone: &Zone<'_>) -> Marks {
        self.marks.unwrap_or_else(|| Marks::for_zone(zone.stats().present, zone.watermarks().low, self.cpus, None))
    }

    /// Bytes of metadata that sets like these need.
    pub fn metadata_bytes(&self, zone: &Zone<'_>) -> usize {
        let shape = self.shape(zone);
        Asides::bytes(self.cpus).saturating_add(CpuLists::bytes(&shape))
    }

    pub(super) fn shape(&self, zone: &Zone<'_>) -> Shape {
        Shape { cpus: self.cpus, capacities: capacities(self.marks_for(zone)) }
    }
}
