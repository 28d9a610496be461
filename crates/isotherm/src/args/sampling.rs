//! Which accesses are sampled by perf events, and how often.

use clap::Args;
use isotherm_host::events::RawEvent;
use isotherm_sys::perf::Rate;

/// Which accesses are sampled, and how often.
#[derive(Clone, Debug, Default, Args)]
pub struct SamplingArgs {
    /// Event whose samples report accesses, such as mem-loads or faults; several of one kind as a list. With page tables, in addition to them.
    /// `isotherm doctor --events` lists those of this machine [default: loads and stores where the processor samples them, and
    /// with --source perf page faults where it does not]
    #[arg(long = "event", value_name = "EVENT", conflicts_with_all = ["perf_event", "replay"])]
    pub events: Option<String>,
    /// The same as six or seven numbers, `FREQ PHYS TYPE CONFIG CONFIG1 CONFIG2 [CONFIG3]`: samples per second, 1 for physical addresses, and the raw
    /// event as in perf_event_attr
    #[arg(long, value_name = "NUMBERS", conflicts_with_all = ["replay", "sample_period", "sample_frequency"])]
    pub perf_event: Option<RawEvent>,
    /// One sample every N events [default: depends on the event]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), conflicts_with = "sample_frequency")]
    pub sample_period: Option<u64>,
    /// Samples per second and processor
    #[arg(long, value_name = "HZ", value_parser = clap::value_parser!(u64).range(1..))]
    pub sample_frequency: Option<u64>,
}

impl SamplingArgs {
    /// The events named: separated by commas, but for those between the slashes of `PMU/terms/`.
    pub fn names(&self) -> Vec<String> {
        let mut names = vec![String::new()];
        let mut inside = false;
        for c in self.events.iter().flat_map(|text| text.chars()) {
            inside ^= c == '/';
            match (c, names.last_mut()) {
                (',', _) if !inside => names.push(String::new()),
                (c, Some(name)) => name.push(c),
                (_, None) => {}
            }
        }
        names.retain(|name| !name.is_empty());
        names
    }

    /// How often to sample, if that was given.
    pub fn rate(&self) -> Option<Rate> {
        self.sample_period.map(Rate::Period).or(self.sample_frequency.map(Rate::Frequency))
    }

    /// Whether samples are taken by physical address.
    pub fn is_physical(&self) -> bool {
        self.perf_event.is_some_and(|raw| raw.physical)
    }

    /// Whether any of these options was given.
    pub fn is_given(&self) -> bool {
        self.events.is_some() || self.perf_event.is_some() || self.rate().is_some()
    }
}
