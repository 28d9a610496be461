//! Performance-monitoring units: which event sources there are, and which can sample memory accesses with addresses.
//!
//! How one does so, and what stands against it, is found out where events are looked up by name: [`crate::events`].

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
    /// How it samples memory accesses, or why it does not although it is one of those that do. `None` if it is not.
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
