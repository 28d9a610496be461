//! What to sample, how often and for which target: the settings of the caller, and the flags that follow from them.

use super::attr::{self, Attr};
use super::event::Event;
use super::sample::Fields;
use std::path::PathBuf;

const NS_PER_S: u64 = 1_000_000_000;

/// How often an event is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// One sample per this many events.
    Period(u64),
    /// About this many samples per second and CPU; the kernel adapts the period.
    Frequency(u64),
}

impl Rate {
    /// The number for the kernel, which refuses 0.
    pub(super) fn number(self) -> u64 {
        let (Rate::Period(n) | Rate::Frequency(n)) = self;
        n.max(1)
    }

    /// The same, to change an event that is open already. The kernel turns the frequency of its clocks into a period
    /// when it opens them (`perf_swevent_init_hrtimer`), and takes later values as nanoseconds.
    pub(super) fn number_for_open(self, event: Event) -> u64 {
        match self {
            Rate::Frequency(_) if event.is_clock() => (NS_PER_S / self.number()).max(1),
            rate => rate.number(),
        }
    }

    pub(super) fn same_kind(self, other: Rate) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }
}

/// How an event is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampling {
    /// The event.
    pub event: Event,
    /// An auxiliary event that has to lead the group: opened, but not sampled. Intel's loads need 0x8203 since Sapphire
    /// Rapids.
    pub leader: Option<Event>,
    /// How often.
    pub rate: Rate,
    /// What a sample holds.
    pub fields: Fields,
    /// Excludes the kernel. All users may do that, for their own threads.
    pub user_only: bool,
    /// How close the sample has to be to the access, at most 3 (`precise_ip`). If the CPU refuses, less is tried.
    pub most_precise: u8,
}

impl Sampling {
    /// An event of the kernel or a CPU, in user space and the kernel, without any precision.
    pub fn new(event: Event, rate: Rate, fields: Fields) -> Sampling {
        Sampling { event, leader: None, rate, fields, user_only: false, most_precise: 0 }
    }

    /// The period, if the kernel counts this event in software, one by one.
    ///
    /// If it is asked for the period in such a sample, the kernel samples every event and ignores the given period. So
    /// we do not ask for the field, and fill it in.
    pub(super) fn period_is_known(&self) -> Option<u64> {
        const SOFTWARE: u32 = 1;
        const TRACEPOINT: u32 = 2;
        const BREAKPOINT: u32 = 5;
        // The two clocks run on timers, and obey the given period.
        const CLOCKS: u64 = 2;
        let counted = match self.event.kind {
            SOFTWARE => self.event.config >= CLOCKS,
            TRACEPOINT | BREAKPOINT => true,
            _ => false,
        };
        match self.rate {
            Rate::Period(period) if counted => Some(period.max(1)),
            _ => None,
        }
    }

    /// The attributes to open the event with, at a precision.
    pub(super) fn attr(&self, precise: u8) -> Attr {
        let frequency = if matches!(self.rate, Rate::Frequency(_)) { attr::FREQUENCY } else { 0 };
        Attr {
            sample_period: self.rate.number(),
            sample_type: self.fields.bits(),
            flags: self.flags() | frequency | u64::from(precise.min(3)) << attr::PRECISE_SHIFT,
            ..of_event(self.event)
        }
    }

    /// The attributes to open its leader with, if it has one.
    pub(super) fn leader_attr(&self) -> Option<Attr> {
        self.leader.map(|event| Attr { flags: self.flags(), ..of_event(event) })
    }

    /// Nothing is excluded that need not be: AMD's IBS refuses any such flag, that of the hypervisor included.
    fn flags(&self) -> u64 {
        attr::USE_CLOCK | if self.user_only { attr::EXCLUDE_KERNEL | attr::EXCLUDE_HV } else { 0 }
    }
}

/// All events that share a ring need the same clock. It is the clock of the rest of the program, so that samples can be
/// ordered with other observations. The price: Intel's CPUs then interrupt for each sample instead of collecting some.
fn of_event(event: Event) -> Attr {
    Attr {
        kind: event.kind,
        config: event.config,
        config1: event.config1,
        config2: event.config2,
        config3: event.config3,
        read_format: attr::FORMAT_TOTAL_TIMES,
        clock: libc::CLOCK_MONOTONIC,
        ..Attr::default()
    }
}

/// The owner of a ring without samples of its own: an event that never happens, on the calling thread.
pub(super) fn dummy() -> Attr {
    let event = Event::NOTHING;
    Attr { flags: attr::DISABLED | attr::EXCLUDE_HV | attr::EXCLUDE_KERNEL | attr::USE_CLOCK, ..of_event(event) }
}

/// Whose accesses are sampled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whom {
    /// Those of all tasks. Needs `CAP_PERFMON`, or `kernel.perf_event_paranoid` at 0 or less.
    Host,
    /// A cgroup and its descendants: its directory in the hierarchy with the `perf_event` controller. Needs the same.
    Cgroup(PathBuf),
    /// The calling thread, all threads and processes that it starts, from their first instruction on, and their
    /// descendants. They keep the rate of the moment they were started.
    Descendants,
    /// All threads of a process, and those they start. Processes that it starts are not sampled (before Linux 5.13 they
    /// are).
    Process(u32),
}

/// One event of an event source, and the CPUs that have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The event, and how it is sampled.
    pub sampling: Sampling,
    /// On hybrid machines, the CPUs that have the event; `None` means all.
    pub cpus: Option<Vec<u32>>,
}

impl Part {
    /// An event on all CPUs.
    pub fn everywhere(sampling: Sampling) -> Part {
        Part { sampling, cpus: None }
    }

    pub(super) fn is_on(&self, cpu: u32) -> bool {
        self.cpus.as_ref().is_none_or(|cpus| cpus.contains(&cpu))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_those_of_the_kernel() {
        let plain = Sampling::new(Event::new(4, 0x1cd), Rate::Period(1009), Fields::ADDR);
        assert_eq!(plain.attr(0).flags, 1 << 25, "its own clock and nothing else");
        assert_eq!(plain.attr(3).flags, 1 << 25 | 3 << 15);
        assert_eq!(plain.attr(200).flags, 1 << 25 | 3 << 15, "there is no more");
        let user = Sampling { user_only: true, rate: Rate::Frequency(0), ..plain };
        assert_eq!(user.attr(1).flags, 1 << 25 | 1 << 15 | 1 << 10 | 1 << 6 | 1 << 5);
        assert_eq!((plain.attr(0).sample_period, user.attr(0).sample_period), (1009, 1));
        assert!(plain.leader_attr().is_none());
        let led = Sampling { leader: Some(Event::new(4, 0x8203)), ..user }.leader_attr().unwrap();
        assert_eq!((led.config, led.sample_period, led.flags), (0x8203, 0, 1 << 25 | 1 << 6 | 1 << 5), "not sampled");
    }

    #[test]
    fn the_period_is_known_of_what_the_kernel_counts_one_by_one() {
        let known = |event, rate| Sampling::new(event, rate, Fields::PERIOD).period_is_known();
        for event in [Event::MINOR_FAULTS, Event::MAJOR_FAULTS, Event::new(2, 401), Event::new(5, 0)] {
            assert_eq!(known(event, Rate::Period(7)), Some(7), "{event}");
            assert_eq!(known(event, Rate::Frequency(7)), None, "{event}");
        }
        for event in [Event::CPU_CLOCK, Event::DTLB_LOAD_MISSES, Event::new(4, 0x1cd), Event::new(11, 0)] {
            assert_eq!(known(event, Rate::Period(7)), None, "{event}");
        }
    }

    #[test]
    fn an_open_clock_takes_nanoseconds_for_a_frequency_and_others_do_not() {
        for clock in [Event::CPU_CLOCK, Event::new(1, 1)] {
            assert_eq!(Rate::Frequency(500).number_for_open(clock), 2_000_000);
            assert_eq!(Rate::Frequency(u64::MAX).number_for_open(clock), 1);
            assert_eq!(Rate::Period(500).number_for_open(clock), 500);
        }
        for other in [Event::MINOR_FAULTS, Event::DTLB_LOAD_MISSES, Event::new(4, 0)] {
            assert_eq!(Rate::Frequency(500).number_for_open(other), 500, "{other}");
        }
    }
}
