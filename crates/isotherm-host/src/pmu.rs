//! Performance-monitoring units: which event sources exist, and which can sample memory accesses with addresses.
//!
//! [`crate::events`] finds out how a source does so, or what prevents it, when it looks events up by name.

use crate::events::{self, Kind, NamedError};
use isotherm_sys::files::Tree;
use isotherm_sys::roots::HostRoots;

/// An event source under `/sys/bus/event_source/devices`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pmu {
    /// Its name, such as `cpu`.
    pub name: String,
    /// The number to put in `perf_event_attr.type`.
    pub type_id: Option<u32>,
    /// How it samples memory accesses, or why it cannot. `None` if it is not of a kind that samples them.
    pub memory: Option<Result<Kind, NamedError>>,
}

impl Pmu {
    /// All event sources; `None` if the kernel does not list them.
    pub(super) fn read_all(roots: &HostRoots, sys: &Tree<'_>) -> Option<Vec<Pmu>> {
        let names = sys.names("bus/event_source/devices")?;
        Some(names.into_iter().map(|name| Pmu::read(roots, sys, name)).collect())
    }

    fn read(roots: &HostRoots, sys: &Tree<'_>, name: String) -> Pmu {
        Pmu {
            type_id: sys.number(&format!("bus/event_source/devices/{name}/type")),
            memory: events::samples_memory(roots, &name),
            name,
        }
    }
}
