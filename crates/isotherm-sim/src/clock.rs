//! The time of a modelled host: it passes while a caller sleeps, and while the monitor works.

use crate::costs::{Costs, Counts, Work};
use isotherm_heat::Clock;
use isotherm_heat::Ns;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The clock of a modelled host. It also counts the work that was done and the CPU time it cost. Clones share all of
/// it.
///
/// Starts at 0. Work advances the time by its CPU cost, so a monitor that does too much falls behind, as on a real
/// host.
#[derive(Clone, Debug, Default)]
pub struct ModelClock {
    books: Arc<Books>,
    real_cpu: Option<RealCpu>,
}

#[derive(Debug, Default)]
struct Books {
    costs: Costs,
    now: AtomicU64,
    charged: AtomicU64,
    counts: [AtomicU64; Work::KINDS],
}

#[derive(Clone, Copy, Debug)]
struct RealCpu {
    read: fn() -> Ns,
    began: Ns,
}

impl ModelClock {
    /// A clock on which work costs `costs`.
    pub fn new(costs: Costs) -> ModelClock {
        ModelClock { books: Arc::new(Books { costs, ..Books::default() }), real_cpu: None }
    }

    /// The same, but from here on [`Clock::cpu`] also includes the CPU time of our own code, such as that of the
    /// calling thread. `read` returns it in ns. Clones made after this include it as well. Everything that depends on
    /// `cpu` then differs from run to run. Time does not advance by it. It includes the CPU that the model needs to
    /// compute its answers, which no real source would need.
    #[must_use]
    pub fn with_real_cpu(mut self, read: fn() -> Ns) -> ModelClock {
        self.real_cpu = Some(RealCpu { read, began: read() });
        self
    }

    /// The cost of each kind of work on this clock.
    pub fn costs(&self) -> &Costs {
        &self.books.costs
    }

    /// Does `work` `times` times: counts it, charges its CPU time, and lets time pass.
    pub fn work(&self, work: Work, times: u64) {
        self.books.counts[work as usize].fetch_add(times, Relaxed);
        self.charge(times * self.books.costs.of(work));
    }

    /// Charges CPU time for any other work, in ns.
    pub fn charge(&self, cpu: Ns) {
        self.books.charged.fetch_add(cpu, Relaxed);
        self.books.now.fetch_add(cpu, Relaxed);
    }

    /// The modelled CPU time alone, in ns.
    pub fn charged(&self) -> Ns {
        self.books.charged.load(Relaxed)
    }

    /// The work done so far.
    pub fn counts(&self) -> Counts {
        let of = |work: Work| self.books.counts[work as usize].load(Relaxed);
        Counts {
            tables_read: of(Work::ReadTable),
            huge_read: of(Work::ReadHuge),
            pmds_cleared: of(Work::ClearPmd),
            huge_cleared: of(Work::ClearHuge),
            refs_cleared: of(Work::ClearRefsPage),
            mappings_listed: of(Work::ListMapping),
            page_clears: of(Work::PreparePage),
            page_checks: of(Work::CheckPage),
        }
    }
}

impl Clock for ModelClock {
    fn now(&self) -> Ns {
        self.books.now.load(Relaxed)
    }

    fn cpu(&self) -> Ns {
        let real = self.real_cpu.map_or(0, |r| (r.read)().saturating_sub(r.began));
        self.charged() + real
    }

    fn sleep_until(&self, at: Ns) {
        self.books.now.fetch_max(at, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_takes_time_and_cpu_and_sleep_only_time() {
        let clock = ModelClock::default();
        let other = clock.clone();
        other.sleep_until(1_000_000);
        clock.work(Work::ClearPmd, 2);
        clock.charge(14);
        assert_eq!((other.now(), other.cpu()), (1_086_014, 86_014));
        clock.sleep_until(5);
        assert_eq!(clock.now(), 1_086_014, "never backwards");
        assert_eq!(other.counts(), Counts { pmds_cleared: 2, ..Counts::default() });
    }

    #[test]
    fn real_cpu_is_added_when_asked_for() {
        static REAL: AtomicU64 = AtomicU64::new(500);
        let clock = ModelClock::default().with_real_cpu(|| REAL.load(Relaxed));
        REAL.store(700, Relaxed);
        clock.charge(10);
        assert_eq!((clock.cpu(), clock.charged(), clock.now()), (210, 10, 10));
    }
}
