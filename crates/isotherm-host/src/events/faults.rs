//! Page faults: they exist on every machine, and are the only accesses that can be sampled on one without a PMU.
//!
//! By themselves they show first touches. With NUMA balancing, the kernel removes the access rights of pages from time
//! to time, and each such hint fault is an access to memory long in use. [`find`] reports whether it does.

use super::event::{EACH, Kind, NamedEvent, PmuEvent};
use super::names::{MAJOR_FAULTS, MINOR_FAULTS};
use isotherm_sys::files::Tree;
use isotherm_sys::perf::Event;
use isotherm_sys::roots::HostRoots;

/// Page faults by one of the three names.
pub(super) fn find(roots: &HostRoots, name: &str) -> NamedEvent {
    // All faults are the two kinds together. They are reported once the page is mapped, so with a physical address.
    let (events, what): (&[Event], _) = match name {
        MINOR_FAULTS => (&[Event::MINOR_FAULTS], HintFaults::read(roots).sentence()),
        MAJOR_FAULTS => (&[Event::MAJOR_FAULTS], "page faults that read from a disk, with their addresses"),
        _ => (&[Event::MINOR_FAULTS, Event::MAJOR_FAULTS], HintFaults::read(roots).sentence()),
    };
    let parts = events.iter().map(|event| part(*event)).collect();
    NamedEvent { name: name.to_owned(), kind: Kind::Faults, parts, what, default_rate: EACH }
}

/// The kernel's own events have fixed numbers, and need nothing from sysfs.
fn part(event: Event) -> PmuEvent {
    PmuEvent { pmu: "software".to_owned(), event, leader: None, cpus: None, most_precise: 0, user_only: true }
}

/// Whether the kernel causes NUMA hint faults now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HintFaults {
    Made,
    /// Only of memory in slow tiers: mode 2 skips all other memory.
    OfSlowTiers,
    OneNode,
    Off,
    Unknown,
}

/// Whether NUMA balancing removes access rights at the moment, of memory anywhere, so that pages fault again and again.
pub fn makes_hint_faults(roots: &HostRoots) -> bool {
    HintFaults::read(roots) == HintFaults::Made
}

impl HintFaults {
    fn read(roots: &HostRoots) -> HintFaults {
        let nodes = Tree::at(&roots.sys).numbered("devices/system/node", "node");
        let balancing: Option<i32> = Tree::at(&roots.proc).number("sys/kernel/numa_balancing");
        match (nodes.map(|nodes| nodes.len()), balancing) {
            (Some(0 | 1), _) => HintFaults::OneNode,
            (_, Some(0)) => HintFaults::Off,
            // Bit 0 is balancing among nodes, bit 1 moves pages up from slow tiers.
            (_, Some(bits)) if bits & 1 == 0 => HintFaults::OfSlowTiers,
            (Some(_), Some(_)) => HintFaults::Made,
            _ => HintFaults::Unknown,
        }
    }

    fn sentence(self) -> &'static str {
        match self {
            HintFaults::Made => {
                "page faults, with their addresses: first touches, and NUMA hint faults, which this kernel makes now"
            }
            HintFaults::OfSlowTiers => {
                "page faults, with their addresses: first touches, and NUMA hint faults of memory in slow tiers, as kernel.numa_balancing is 2"
            }
            HintFaults::OneNode => {
                "page faults, with their addresses: first touches only, as NUMA hint faults take more than one node"
            }
            HintFaults::Off => {
                "page faults, with their addresses: first touches only, as kernel.numa_balancing is 0 and no NUMA hint faults are made"
            }
            HintFaults::Unknown => {
                "page faults, with their addresses: first touches, and NUMA hint faults if this kernel causes them, which is unknown"
            }
        }
    }
}
