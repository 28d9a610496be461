//! Data-TLB misses, counted to show what huge pages have gained. The events for them differ between vendors.
//!
//! [`isotherm_sys::counter`] counts any event. The choice is here, next to that of events to sample.

use isotherm_sys::counter::{Count, Counter, CounterError, Event};
use std::io;

/// Data-TLB misses of a process.
#[derive(Debug)]
pub struct DtlbCounter {
    loads: Counter,
    stores: Option<Counter>,
}

/// What a [`DtlbCounter`] has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DtlbMisses {
    /// Loads that missed.
    pub loads: Count,
    /// Stores that missed; `None` where the CPU does not count them separately.
    pub stores: Option<Count>,
}

impl DtlbMisses {
    /// Loads and stores together; `None` if either could not be counted though it should have been.
    pub fn events(&self) -> Option<u64> {
        let stores = self.stores.map_or(Some(0), |stores| stores.events)?;
        Some(self.loads.events?.saturating_add(stores))
    }
}

impl DtlbCounter {
    /// Starts to count data-TLB misses of loads and, where the CPU has them, of stores.
    pub fn open(pid: u32) -> Result<DtlbCounter, CounterError> {
        let loads = Counter::open(pid, Event::DTLB_LOAD_MISSES)?;
        let stores = match Counter::open(pid, Event::DTLB_STORE_MISSES) {
            Ok(stores) => Some(stores),
            // Some CPUs (AMD's) count loads and stores together, under the name of loads.
            Err(CounterError::NoPmu { .. }) => None,
            Err(e) => return Err(e),
        };
        Ok(DtlbCounter { loads, stores })
    }

    /// What was counted so far.
    pub fn read(&self) -> io::Result<DtlbMisses> {
        Ok(DtlbMisses { loads: self.loads.read()?, stores: self.stores.as_ref().map(Counter::read).transpose()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_sys::memory::{Memory, PageSize};
    use std::io::Write;
    use std::path::Path;

    fn skipped(why: &str) {
        let _ = io::stderr().write_all(format!("skipped: needs {why}\n").as_bytes());
    }

    #[test]
    fn dtlb_misses_are_counted_where_there_is_a_pmu() {
        let counter = match DtlbCounter::open(std::process::id()) {
            Err(e @ CounterError::NoPmu { .. }) => {
                if Path::new("/sys/bus/event_source/devices/cpu").exists() {
                    skipped(&format!("a PMU that counts TLB misses ({e})"));
                }
                return;
            }
            Err(e @ CounterError::Denied { .. }) => return skipped(&format!("perf events ({e})")),
            opened => opened.unwrap(),
        };
        let memory = Memory::anonymous(128 << 20, PageSize::Small).unwrap();
        memory.populate();
        let before = counter.read().unwrap();
        // A random walk over far more pages than a TLB holds.
        let mut at = 1_u64;
        for _ in 0..2_000_000 {
            at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let page = usize::try_from(at >> 33).unwrap() % memory.pages();
            std::hint::black_box(memory.read(page));
        }
        let after = counter.read().unwrap();
        assert!(after.events().unwrap() > before.events().unwrap() + 100_000, "{before:?} {after:?}");
    }

    #[test]
    fn loads_and_stores_add_up_if_both_are_known() {
        let count = |events| Count { events, enabled_ns: 1, running_ns: 1 };
        for (loads, stores, together) in [
            (Some(3), Some(Some(4)), Some(7)),
            (Some(3), None, Some(3)),
            (Some(3), Some(None), None),
            (None, Some(Some(4)), None),
        ] {
            assert_eq!(DtlbMisses { loads: count(loads), stores: stores.map(count) }.events(), together);
        }
    }
}
