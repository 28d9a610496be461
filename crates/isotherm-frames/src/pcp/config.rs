//! Configuration of shared per-CPU lists, and the metadata that they need.

use super::cpu_lists::CpuLists;
use super::cpu_state::CpuStates;
use super::lists::capacities;
use super::tier::Tier;
use crate::Zone;
use crate::percpu::Shape;
use crate::tune::PcpLimits;

/// Configuration of shared per-CPU lists ([`PcpLists`](super::PcpLists)).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PcpConfig {
    /// Number of CPUs, numbered from 0: the highest possible number plus one. CPUs with higher numbers go to the zone.
    pub cpus: u32,
    /// What keeps threads apart.
    pub tier: Tier,
    /// The limits of each CPU's lists. `None`: the kernel's formulas, from the frames of the zone at the time when the
    /// lists are created.
    pub limits: Option<PcpLimits>,
}

impl PcpConfig {
    /// Lists for `cpus` CPUs, and defaults for the rest.
    pub const fn new(cpus: u32) -> PcpConfig {
        PcpConfig { cpus, tier: Tier::Best, limits: None }
    }

    /// The limits that apply to a zone.
    pub fn limits_for(&self, zone: &Zone<'_>) -> PcpLimits {
        self.limits.unwrap_or_else(|| PcpLimits::for_zone(zone.stats().present, zone.watermarks().low, self.cpus, None))
    }

    /// Bytes of metadata that such lists need.
    pub fn metadata_bytes(&self, zone: &Zone<'_>) -> usize {
        let shape = self.shape(zone);
        CpuStates::bytes(self.cpus).saturating_add(CpuLists::bytes(&shape))
    }

    pub(super) fn shape(&self, zone: &Zone<'_>) -> Shape {
        Shape { cpus: self.cpus, capacities: capacities(self.limits_for(zone)) }
    }
}
