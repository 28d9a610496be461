//! Our monitor at its defaults: its first picture of a process, and how soon it sees a change. It makes a snapshot every two seconds, as
//! `isotherm record` and `isotherm top` do, and pays for it.

use super::{EVERY, HOT_NS, LONGEST, LONGEST_TURN, Picture, S, STABLE, Span, Workload, seconds};
use crate::{BenchClock, known_pages, monitor_of};
use anyhow::{Result, ensure};
use isotherm_heat::{Ns, Score};
use isotherm_monitor::{CLEAR_TICK, Monitor, Settings};
use isotherm_workload::{GoodSince, unknown_pages};
use std::sync::atomic::AtomicBool;

/// Our first pictures.
#[derive(Clone, Copy, Debug)]
pub struct OurPicture {
    /// When they were good, and the CPU time of the monitor.
    pub picture: Picture,
    /// Since when they were exact; the limit if never, or if that was not waited for.
    pub exact_s: f64,
    /// The worst of all snapshots that call anything hot.
    pub worst_precision: f64,
}

/// How long pictures are scored, [`STABLE`] included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Until they are good.
    Good,
    /// Until they are exact.
    Exact,
}

/// A monitor of one process. It has to stay in the thread that opened it.
#[derive(Debug)]
pub struct Ours {
    monitor: Monitor<BenchClock>,
    clock: BenchClock,
    began: Ns,
    pid: u32,
    /// When the next snapshot is due.
    next_snapshot: Ns,
}

/// Between two snapshots.
const SNAPSHOTS: Ns = 2 * S;

impl Ours {
    /// Opens a source. Its CPU time is charged to the monitor.
    pub fn open(workload: &Workload) -> Result<Ours> {
        let (clock, pid) = (BenchClock::default(), workload.pid());
        let monitor = monitor_of(vec![pid], clock.clone(), Settings::default())?;
        Ok(Ours { began: monitor.now(), monitor, clock, pid, next_snapshot: SNAPSHOTS })
    }

    /// Watches for `ns` from its start.
    pub fn watch_to(&mut self, ns: Ns) -> Result<()> {
        while self.elapsed() < ns {
            let until = ns.min(self.next_snapshot);
            self.monitor.watch(self.began + until, &AtomicBool::new(false))?;
            if self.elapsed() >= self.next_snapshot {
                drop(self.monitor.snapshot(self.began + self.elapsed()));
                self.next_snapshot = self.elapsed() + SNAPSHOTS;
            }
        }
        Ok(())
    }

    fn elapsed(&self) -> Ns {
        self.monitor.now() - self.began
    }

    /// Scores the first pictures.
    pub fn picture(&mut self, workload: &Workload, until: Until) -> Result<OurPicture> {
        let (mut since, mut cpu_ms, mut worst_precision) = (GoodSince::default(), 0.0, 1.0_f64);
        let mut last = Score::default();
        let is_final = |since: &GoodSince, now: Ns| {
            let reached = if until == Until::Exact { since.exact_s } else { since.good_s };
            reached.is_some_and(|s| s + seconds(STABLE) <= seconds(now))
        };
        while self.elapsed() < LONGEST && !is_final(&since, self.elapsed()) {
            self.watch_to(self.elapsed() + EVERY)?;
            let after_s = seconds(self.elapsed());
            let so_far_ms = self.cpu_ms();
            let (score, unknown) = self.clock.beside(|| score(&self.monitor, workload));
            if score.said_hot_pages() > 0.0 {
                worst_precision = worst_precision.min(score.precision());
            }
            since.note(after_s, &score, unknown == 0);
            if since.good_s.is_none_or(|good_s| good_s == after_s) {
                cpu_ms = so_far_ms;
            }
            last = score;
        }
        let (limit_s, cpu_ms_a_second) = (seconds(LONGEST), self.cpu_ms() / seconds(self.elapsed()));
        let picture = Picture { good_s: since.good_s, limit_s, cpu_ms, cpu_ms_a_second, last };
        Ok(OurPicture { picture, exact_s: since.exact_s.unwrap_or(limit_s), worst_precision })
    }

    fn cpu_ms(&mut self) -> f64 {
        self.monitor.cost(self.monitor.now()).monitor_cpu_ns as f64 / 1e6
    }

    /// Seconds until 99% of a span that turns hot are known to be.
    pub fn new_hot_s(&mut self, workload: &mut Workload, span: Span) -> Result<f64> {
        self.turned_s(span, |ns| ns <= HOT_NS, || workload.heat(span))
    }

    /// Seconds until 99% of a span that turns cold are known to be.
    pub fn gone_cold_s(&mut self, workload: &mut Workload, span: Span) -> Result<f64> {
        self.turned_s(span, |ns| ns > HOT_NS, || workload.cool(span))
    }

    fn turned_s(&mut self, span: Span, is_so: fn(Ns) -> bool, turn: impl FnOnce() -> Result<()>) -> Result<f64> {
        let before = self.pages(span, is_so);
        ensure!(before < span.enough_pages() / 10, "the span was taken for what it turns to before it did");
        turn()?;
        let began = self.elapsed();
        while self.pages(span, is_so) < span.enough_pages() && self.elapsed() < began + LONGEST_TURN {
            // As often as it wakes up by itself.
            self.watch_to(self.elapsed() + CLEAR_TICK)?;
        }
        Ok(seconds(self.elapsed() - began))
    }

    /// Pages of `span` with such an interval. Looking is not charged to the monitor.
    fn pages(&self, span: Span, is_so: fn(Ns) -> bool) -> u64 {
        self.clock.beside(|| known_pages(&self.monitor, self.pid, span.range, is_so))
    }
}

/// The score by page, and how many pages are unknown or estimated.
fn score(monitor: &Monitor<BenchClock>, workload: &Workload) -> (Score, u64) {
    let (memory, pattern) = (workload.memory(), workload.pattern());
    let Some(target) = monitor.pages_of(workload.pid()) else {
        return (Score::of(pattern.hot_pages as f64), u64::MAX);
    };
    let now = monitor.now();
    (pattern.score_pages(memory, target, now, HOT_NS), unknown_pages(target, memory, now))
}
