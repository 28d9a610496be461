//! Performance-monitoring units: which event sources there are, and which can sample memory accesses with addresses.

use super::files::Tree;

/// How a unit samples memory accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemorySampling {
    /// Intel PEBS: the load-latency event.
    Pebs,
    /// AMD IBS: every nth operation.
    Ibs,
    /// Arm SPE.
    Spe,
}

/// An event source under `/sys/bus/event_source/devices`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pmu {
    /// Its name, such as `cpu`.
    pub name: String,
    /// The number to put in `perf_event_attr.type`.
    pub type_id: Option<u32>,
    /// How it samples memory accesses, if it does.
    pub memory: Option<MemorySampling>,
    /// Its load-latency event as the kernel spells it: `event=0xcd,umask=0x1,ldlat=3`.
    pub mem_loads: Option<String>,
    /// Whether that event only counts behind an auxiliary one in the same group (Sapphire Rapids and later).
    pub needs_aux: bool,
}

impl Pmu {
    /// All event sources; `None` if the kernel does not list them.
    pub(super) fn read_all(sys: &Tree<'_>) -> Option<Vec<Pmu>> {
        let names = sys.names("bus/event_source/devices")?;
        Some(names.into_iter().map(|name| Pmu::read(sys, name)).collect())
    }

    fn read(sys: &Tree<'_>, name: String) -> Pmu {
        let file = |file: &str| format!("bus/event_source/devices/{name}/{file}");
        let mem_loads = sys.text(&file("events/mem-loads"));
        let memory = match name.as_str() {
            "ibs_op" => Some(MemorySampling::Ibs),
            spe if spe.starts_with("arm_spe_") => Some(MemorySampling::Spe),
            _ => mem_loads.as_ref().map(|_| MemorySampling::Pebs),
        };
        Pmu {
            type_id: sys.number(&file("type")),
            needs_aux: sys.exists(&file("events/mem-loads-aux")) == Some(true),
            memory,
            mem_loads,
            name,
        }
    }
}
