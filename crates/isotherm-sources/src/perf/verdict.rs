//! Whether an event is of any use, decided within seconds: most events that a CPU can sample are not.
//!
//! A wrong number gives an event that never happens, or one whose samples carry no address. A virtual machine may offer
//! half of a PMU, which counts and never samples. All of that looks like idle memory unless it is reported. Evidence is
//! counted while the targets run. It is judged once they have used so much CPU time that a useful event would have
//! happened.
//!
//! Pure: counts in, a verdict out.

use isotherm_heat::Ns;
use std::fmt;

/// There is no verdict before this much time.
const MIN_OBSERVED: Ns = 2_000_000_000;
/// If an event has not happened in this much CPU time of the targets, it will not.
const MIN_CPU: Ns = 1_000_000_000;
/// Fewer samples than this prove nothing about their kind.
const MIN_SAMPLES: u64 = 32;
/// An event is useful if at least this share of its samples are addresses in mappings of the targets.
const MIN_INSIDE: f64 = 0.01;
/// All but a few, for verdicts about all samples.
const NEARLY_ALL: f64 = 0.98;

/// What was counted since the event was opened. Samples of processes that are not monitored are excluded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// For how long the event was sampled.
    pub observed_ns: Ns,
    /// CPU time that the targets have used meanwhile.
    pub target_cpu_ns: Ns,
    /// How often the event has happened by its own count, in everything that is sampled.
    pub events: u64,
    /// Samples of it, from any process.
    pub heard: u64,
    /// Samples with an address in a mapping of its process.
    pub inside: u64,
    /// Samples with an address where its process has no memory.
    pub outside: u64,
    /// Samples with an address of the kernel.
    pub kernel: u64,
    /// Samples without an address.
    pub no_address: u64,
    /// Samples of instructions that access no memory, or whose address the CPU marks as invalid.
    pub no_access: u64,
    /// Samples that were lost.
    pub lost: u64,
}

impl Evidence {
    /// Samples that were read.
    pub fn samples(&self) -> u64 {
        self.inside + self.outside + self.kernel + self.no_address + self.no_access
    }

    /// The share of useful samples; 0 if there are none.
    pub fn inside_share(&self) -> f64 {
        self.inside as f64 / self.samples().max(1) as f64
    }

    /// The verdict from these counts.
    pub fn verdict(&self) -> Verdict {
        if self.observed_ns < MIN_OBSERVED {
            return Verdict::TooEarly;
        }
        let samples = self.samples();
        if samples + self.lost < MIN_SAMPLES {
            let had_its_chance = self.target_cpu_ns >= MIN_CPU;
            return match self.events {
                _ if samples > 0 && self.inside > 0 => Verdict::Useful,
                _ if !had_its_chance => Verdict::TooEarly,
                0..MIN_SAMPLES => Verdict::Useless(Useless::NeverHappens),
                // It happens elsewhere, but not in the targets.
                _ if self.heard >= MIN_SAMPLES => Verdict::Useless(Useless::NeverHappens),
                _ => Verdict::Useless(Useless::NeverSampled),
            };
        }
        if self.lost as f64 > NEARLY_ALL * (samples + self.lost) as f64 {
            return Verdict::Useless(Useless::AllLost);
        }
        if self.inside_share() >= MIN_INSIDE {
            return Verdict::Useful;
        }
        Verdict::Useless(self.useless_samples())
    }

    /// Which kind of useless samples is the most frequent.
    fn useless_samples(&self) -> Useless {
        let kinds = [
            (self.no_address, Useless::NoAddresses),
            (self.kernel, Useless::KernelOnly),
            (self.outside, Useless::OutsideMappings),
            (self.no_access, Useless::NoAccesses),
        ];
        let most = kinds.into_iter().max_by_key(|(count, _)| *count);
        most.map_or(Useless::NoAddresses, |(_, kind)| kind)
    }
}

/// Whether an event is useful.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Too little has happened to decide.
    TooEarly,
    /// It reports accesses to memory of the targets.
    Useful,
    /// It does not.
    Useless(Useless),
}

/// Why an event is of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Useless {
    /// The targets run, and the event does not happen.
    NeverHappens,
    /// The event is counted, but never sampled.
    NeverSampled,
    /// Samples carry no address.
    NoAddresses,
    /// All addresses are the kernel's.
    KernelOnly,
    /// All addresses are where the process has no memory.
    OutsideMappings,
    /// No sample is of a memory access.
    NoAccesses,
    /// Every sample was lost.
    AllLost,
}

impl Useless {
    /// Its name, for machine-readable output.
    pub const fn name(self) -> &'static str {
        match self {
            Useless::NeverHappens => "never-happens",
            Useless::NeverSampled => "never-sampled",
            Useless::NoAddresses => "no-addresses",
            Useless::KernelOnly => "kernel-only",
            Useless::OutsideMappings => "outside-mappings",
            Useless::NoAccesses => "no-accesses",
            Useless::AllLost => "all-lost",
        }
    }

    /// What to do about it.
    pub const fn advice(self) -> &'static str {
        match self {
            Useless::NeverHappens => {
                "check its numbers, or take another: `isotherm doctor --events` lists those of this machine"
            }
            Useless::NeverSampled => {
                "usual in virtual machines whose host offers half a PMU: count with it, and take `--event faults` or the \
                 page-table source to find accesses"
            }
            Useless::NoAddresses => {
                "it is no memory event, or not precise: take one that samples addresses (mem-loads, ibs-op, faults)"
            }
            Useless::KernelOnly => "it samples the kernel's own accesses: leave the kernel out, or take another event",
            Useless::OutsideMappings => {
                "the addresses are no virtual ones of these processes: physical ones want --source perf-paddr"
            }
            Useless::NoAccesses => {
                "the processor calls none of the addresses valid: sample more of it, or take another"
            }
            Useless::AllLost => "sample less often: a longer --sample-period or a lower --sample-frequency",
        }
    }
}

impl fmt::Display for Useless {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Useless::NeverHappens => "it does not happen while the targets run",
            Useless::NeverSampled => "it is counted, and no sample comes of it",
            Useless::NoAddresses => "its samples carry no address",
            Useless::KernelOnly => "all of its addresses are the kernel's",
            Useless::OutsideMappings => "its addresses lie outside of every mapping of the targets",
            Useless::NoAccesses => "none of its samples is an access to memory",
            Useless::AllLost => "every sample is lost",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Ns = 1_000_000_000;

    /// Three seconds of a busy target.
    fn busy() -> Evidence {
        Evidence { observed_ns: 3 * S, target_cpu_ns: 3 * S, events: 1_000_000, ..Evidence::default() }
    }

    fn useless(evidence: Evidence) -> Option<Useless> {
        match evidence.verdict() {
            Verdict::Useless(why) => Some(why),
            Verdict::TooEarly | Verdict::Useful => None,
        }
    }

    #[test]
    fn each_kind_of_useless_event_has_its_name() {
        assert_eq!(useless(Evidence { events: 0, ..busy() }), Some(Useless::NeverHappens));
        assert_eq!(useless(busy()), Some(Useless::NeverSampled));
        assert_eq!(useless(Evidence { heard: 1000, ..busy() }), Some(Useless::NeverHappens), "but to others");
        assert_eq!(useless(Evidence { no_address: 1000, inside: 3, ..busy() }), Some(Useless::NoAddresses));
        assert_eq!(useless(Evidence { kernel: 1000, outside: 10, ..busy() }), Some(Useless::KernelOnly));
        assert_eq!(useless(Evidence { outside: 1000, inside: 9, ..busy() }), Some(Useless::OutsideMappings));
        assert_eq!(useless(Evidence { no_access: 1000, ..busy() }), Some(Useless::NoAccesses));
        assert_eq!(useless(Evidence { lost: 1000, inside: 10, ..busy() }), Some(Useless::AllLost));
        assert_eq!(useless(Evidence { lost: 1000, inside: 100, ..busy() }), None, "some came through");
    }

    #[test]
    fn nothing_is_said_too_early_or_of_a_target_that_sleeps() {
        assert_eq!(Evidence { observed_ns: S, no_address: 1000, ..busy() }.verdict(), Verdict::TooEarly);
        assert_eq!(Evidence { events: 0, target_cpu_ns: S / 2, ..busy() }.verdict(), Verdict::TooEarly);
        assert_eq!(Evidence { events: 40, no_address: 4, target_cpu_ns: 0, ..busy() }.verdict(), Verdict::TooEarly);
    }

    #[test]
    fn a_few_good_samples_are_enough() {
        assert_eq!(Evidence { inside: 1, events: 1, ..busy() }.verdict(), Verdict::Useful);
        // One in eight operations touches memory, say, and most of what does has its address.
        assert_eq!(Evidence { inside: 100, no_access: 900, ..busy() }.verdict(), Verdict::Useful);
    }
}
