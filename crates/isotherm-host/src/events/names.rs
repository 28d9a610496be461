//! The plain names of events, and the description of each for users, in one sentence.
//!
//! They are known before any machine is read: `isotherm events` also lists names that are not available, and the error
//! for an unknown name lists all of them.

/// Loads, by Intel's PEBS.
pub(super) const LOADS: &str = "mem-loads";
pub(super) const STORES: &str = "mem-stores";
pub(super) const STLB_LOADS: &str = "stlb-loads";
pub(super) const STLB_STORES: &str = "stlb-stores";
/// Operations, by AMD's IBS.
pub(super) const OPS: &str = "ibs-op";
pub(super) const OPS_L3_MISS: &str = "ibs-op:l3miss";
pub(super) const OPS_LATENCY: &str = "ibs-op:ldlat=128";
/// Accesses, by Arm's SPE.
pub(super) const SPE: &str = "spe";
/// Page faults.
pub(super) const FAULTS: &str = "faults";
pub(super) const MINOR_FAULTS: &str = "minor-faults";
/// Those that read a page from a disk.
pub const MAJOR_FAULTS: &str = "major-faults";

/// Events by plain names.
pub(super) const NAMES: [&str; 11] =
    [LOADS, STORES, STLB_LOADS, STLB_STORES, OPS, OPS_L3_MISS, OPS_LATENCY, SPE, FAULTS, MINOR_FAULTS, MAJOR_FAULTS];

pub(super) const LOADS_ARE: &str = "loads with at least this latency in cycles, with their addresses";
pub(super) const STORES_ARE: &str = "stores, with their addresses";
pub(super) const STLB_LOADS_ARE: &str =
    "loads that missed in the second-level TLB, with their addresses: what huge pages would help";
pub(super) const STLB_STORES_ARE: &str =
    "stores that missed in the second-level TLB, with their addresses: what huge pages would help";
pub(super) const OPS_ARE: &str = "operations of any kind, by IBS; accesses among them come with their addresses";
pub(super) const L3_MISSES_ARE: &str = "operations that missed in the third-level cache, by IBS, with their addresses";
pub(super) const SLOW_LOADS_ARE: &str = "loads with at least this latency in cycles, by IBS, with their addresses";
pub(super) const SPE_IS: &str =
    "loads and stores, by Arm's SPE, with their addresses; not decoded yet, so listed but not sampled";

/// The description of a name that is not available.
pub(super) fn what_is(name: &str) -> &'static str {
    match name {
        LOADS => LOADS_ARE,
        STORES => STORES_ARE,
        STLB_LOADS => STLB_LOADS_ARE,
        STLB_STORES => STLB_STORES_ARE,
        OPS_L3_MISS => L3_MISSES_ARE,
        OPS_LATENCY => SLOW_LOADS_ARE,
        SPE => SPE_IS,
        _ => OPS_ARE,
    }
}
