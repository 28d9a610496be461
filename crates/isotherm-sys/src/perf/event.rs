//! An event as the kernel knows it: the numbers of `struct perf_event_attr` that select what is counted or sampled.
//!
//! The constants below are the same on every machine. `isotherm_host::events` reads the events of a CPU from sysfs, and
//! [`crate::tracepoint`] reads those of tracepoints.

/// What to count or to sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Event {
    /// `PERF_TYPE_*`, or the number of an event source under `/sys/bus/event_source/devices`.
    pub kind: u32,
    /// The event, in the encoding of its type.
    pub config: u64,
    /// More of it: for Intel's loads the lowest latency that counts.
    pub config1: u64,
    /// More of it.
    pub config2: u64,
    /// More of it. Kernels before 6.3 refuse anything but 0.
    pub config3: u64,
}

impl Event {
    /// Loads that missed in the data TLB.
    pub const DTLB_LOAD_MISSES: Event = Event::hardware_cache(DTLB, READ, MISS);
    /// Stores that missed in the data TLB.
    pub const DTLB_STORE_MISSES: Event = Event::hardware_cache(DTLB, WRITE, MISS);
    /// Page faults. The kernel counts them, so they exist on every machine. Reported before the page is mapped, so
    /// without a physical address.
    pub const PAGE_FAULTS: Event = Event::new(SOFTWARE, 2);
    /// Page faults without a read from disk, reported once the page is mapped. NUMA hint faults are among them.
    pub const MINOR_FAULTS: Event = Event::new(SOFTWARE, 5);
    /// Page faults with a read from disk, reported once the page is mapped.
    pub const MAJOR_FAULTS: Event = Event::new(SOFTWARE, 6);

    /// Whether it is a kernel timer: the clock of a CPU or of a thread.
    pub(super) fn is_clock(self) -> bool {
        self.kind == SOFTWARE && self.config <= 1
    }

    /// Time on a CPU, by a timer in the kernel: it exists on every machine. Its samples carry no address.
    pub const CPU_CLOCK: Event = Event::new(SOFTWARE, 0);
    /// An event that never happens.
    pub(super) const NOTHING: Event = Event::new(SOFTWARE, 9);

    /// An event of two numbers.
    pub const fn new(kind: u32, config: u64) -> Event {
        Event { kind, config, config1: 0, config2: 0, config3: 0 }
    }

    const fn hardware_cache(cache: u64, operation: u64, result: u64) -> Event {
        Event::new(HARDWARE_CACHE, cache | operation << 8 | result << 16)
    }
}

// PERF_TYPE_*.
const SOFTWARE: u32 = 1;
const HARDWARE_CACHE: u32 = 3;
// PERF_COUNT_HW_CACHE_*.
const DTLB: u64 = 3;
const READ: u64 = 0;
const WRITE: u64 = 1;
const MISS: u64 = 1;

impl std::fmt::Display for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Event::DTLB_LOAD_MISSES => f.write_str("dTLB load misses"),
            Event::DTLB_STORE_MISSES => f.write_str("dTLB store misses"),
            Event::PAGE_FAULTS => f.write_str("page faults"),
            Event::MINOR_FAULTS => f.write_str("minor page faults"),
            Event::MAJOR_FAULTS => f.write_str("major page faults"),
            Event::CPU_CLOCK => f.write_str("the processor's clock"),
            Event::NOTHING => f.write_str("nothing"),
            Event { kind, config, config1, config2, config3 } => {
                write!(f, "event {kind}:{config:#x}")?;
                // Trailing zeros are omitted.
                let more = [config1, config2, config3];
                let used = more.iter().rposition(|c| *c != 0).map_or(0, |last| last + 1);
                more[..used].iter().try_for_each(|c| write!(f, ":{c:#x}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_have_the_numbers_of_the_kernel() {
        assert_eq!(Event::DTLB_LOAD_MISSES, Event::new(3, 0x1_0003));
        assert_eq!(Event::DTLB_STORE_MISSES, Event::new(3, 0x1_0103));
    }

    #[test]
    fn an_event_without_a_name_is_told_by_its_numbers() {
        let loads = Event { kind: 4, config: 0x1cd, config1: 30, ..Event::default() };
        assert_eq!(loads.to_string(), "event 4:0x1cd:0x1e");
        assert_eq!(Event { config3: 1, ..loads }.to_string(), "event 4:0x1cd:0x1e:0x0:0x1");
        assert_eq!(Event::new(4, 0).to_string(), "event 4:0x0");
    }
}
