//! The source's interface to the monitor: targets, layouts, and the accesses of each.

use super::budget::SAMPLE_NS;
use super::{Listening, Over, Perf, ticks_of};
use crate::Error;
use crate::resident;
use isotherm_heat::source::{
    AccessSource, Accesses, Attached, Description, EnabledTime, Layout, ReportSource, Reports, SourceResult,
};
use isotherm_heat::{Access, Granularity, Ns, Silence};
use isotherm_sys::clock;
use isotherm_sys::perf::{Rate, Totals};

/// Event counts are read on every request, if that takes no longer than this.
const CHEAP: Ns = 1_000_000;

impl AccessSource for Perf {
    fn describe(&self) -> Description {
        let (name, what) =
            if self.physical { ("perf-paddr", "physical addresses of the whole machine; ") } else { ("perf", "") };
        let over = match &self.over {
            Over::Processes => "each process on its own",
            Over::Descendants => "what we start, from its beginning",
            Over::Cgroup(_) => "the cgroup as a whole",
            Over::Host => "one ring a processor for the whole host",
        };
        let silence = match self.chosen.silence {
            Silence::Scanned => {
                "no page is reported hotter than the rate of NUMA hint-fault scans, one per second to one per minute"
            }
            Silence::Cold => "what was not sampled is known to be cold only as far as samples reach",
            Silence::Unknown => {
                "what was not sampled may be in use: faults show first touches, and what else the event names"
            }
        };
        Description {
            name,
            granularity: Granularity::Region,
            accesses: Accesses::Only(self.chosen.silence),
            clears_others: false,
            note: format!("sampled accesses: {}; {what}{over}; {silence}", self.chosen),
        }
    }

    fn attach(&mut self, pid: u32) -> SourceResult<Attached> {
        Ok(if self.physical { self.attach_physical(pid)? } else { self.attach_process(pid)? })
    }

    fn detach(&mut self, pid: u32) {
        let now = ticks_of(&self.proc, pid);
        if let Some(Listening { ticks: (began, last), .. }) = self.attached.remove(&pid) {
            self.past_ticks += now.unwrap_or(last).saturating_sub(began);
        }
        if let Some(scans) = &mut self.scans {
            scans.close(pid);
        }
        // If it has only executed another program, the accesses of that program are reported when it is attached again.
        self.listeners.drain(&mut self.demux);
        let listener = if now.is_some() { self.demux.close(pid) } else { self.demux.forget(pid) };
        let Some(listener) = listener else { return };
        if self.over == Over::Processes && !self.demux.is_in_use(listener) {
            self.listeners.close(listener, &mut self.demux);
        }
    }

    fn layout(&mut self, pid: u32) -> SourceResult<Layout> {
        // To list many processes takes time, and rings fill up meanwhile.
        self.drain(clock::monotonic_ns());
        let attached = self.attached.get_mut(&pid).ok_or(Error::Gone(pid))?;
        let (mappings, resident) = match &attached.process {
            None => resident::of_ram(&self.ram),
            Some(process) => {
                process.check(&self.proc)?;
                attached.residency.of_process(&self.proc, pid)?
            }
        };
        self.set_mappings(pid, &mappings);
        Ok(Layout { mappings, resident, ..Layout::default() })
    }

    fn news(&mut self) -> Vec<String> {
        self.news.take()
    }

    fn as_reports(&mut self) -> Option<&mut dyn ReportSource> {
        Some(self)
    }
}

impl ReportSource for Perf {
    fn accesses(&mut self, pid: u32, sink: &mut dyn FnMut(Access)) -> SourceResult<EnabledTime> {
        let now = clock::monotonic_ns();
        self.tend(now);
        self.drain(now);
        let interrupts = self.demux.hand_over(pid, now, sink);
        let until = match &mut self.scans {
            Some(scans) => {
                scans.update(&self.proc, now);
                scans.observed_until(pid, now)
            }
            None => now,
        };
        let weight = match self.budget.rate() {
            Rate::Period(n) => u32::try_from(n).ok(),
            Rate::Frequency(_) => None,
        };
        let share = self.demux.listener_of(pid).map_or(1.0, |listener| self.listeners.share_of(listener));
        Ok(EnabledTime { until, share, weight, interrupts_ns: interrupts as f64 * SAMPLE_NS })
    }

    fn reports(&mut self) -> Reports {
        let Totals { samples, lost, .. } = self.listeners.drained();
        let events = if self.asking_ns < CHEAP { self.listeners.totals().counted } else { self.totals.counted };
        Reports { samples, lost: lost + self.missing.unreported(lost) + self.demux.dropped(), events }
    }
}
