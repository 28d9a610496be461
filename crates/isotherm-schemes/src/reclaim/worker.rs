//! Asks the kernel, cgroup by cgroup, within the budget of CPU and the guards of pressure.
//!
//! The kernel answers when it is done, and until then this thread can do nothing else. So it is not the thread that watches, nor the one that serves hints,
//! each of which has to be on time. What to ask for is decided in the state, under its lock; the calls are made without it.

use super::AskMachine;
use super::reclaimer::Taken;
use crate::action::Guard;
use crate::budgets::{Budgets, Wait};
use crate::guards::{HostGuard, RECHECK_INTERVAL};
use crate::state::{Shared, lock};
use isotherm_heat::{Bucket, Ns};
use isotherm_sys::proc::{Cgroup, Error};
use isotherm_units::Bytes;
use std::collections::BTreeMap;

/// Pressure is a reason to leave host and cgroup alone: what is read again later adds to it.
const GUARDS: &[Guard] = &[Guard::Pressure, Guard::Io];
/// Until it is checked again whether a cgroup is due.
const IDLE: Ns = 200_000_000;
/// Until the budget of CPU is checked again.
const CPU_WAIT: Ns = 100_000_000;
/// Until a cgroup that was not there is looked for again.
const GONE: Ns = 1_000_000_000;
/// When a cgroup that could not be asked is asked again: descriptors may have been short, or the memory controller off.
const ASK_AGAIN: Ns = 600_000_000_000;
/// Cgroups of which it is remembered whether they can be asked.
const MAX_KNOWN: usize = 4096;

/// The worker.
#[derive(Debug)]
pub struct Worker<M> {
    machine: M,
    cpu: Bucket,
    cpu_pct: f64,
    host: HostGuard,
    /// By path: `None` if a cgroup can be asked, otherwise when to ask it again.
    askable: BTreeMap<String, Option<Ns>>,
}

/// When to come again, and what to report, if anything.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// When to come again.
    pub until: Ns,
    /// Why a cgroup cannot be asked. Reported once for each.
    pub fault: Option<String>,
}

impl<M: AskMachine> Worker<M> {
    /// A worker that has asked nothing yet.
    pub fn new(machine: M, now: Ns) -> Worker<M> {
        let cpu_pct = Budgets::default().cpu_pct;
        let cpu = Bucket::new(cpu_pct, 1.0, now);
        Worker { machine, cpu, cpu_pct, host: HostGuard::default(), askable: BTreeMap::new() }
    }

    /// Asks one cgroup, if one is due.
    pub fn turn(&mut self, shared: &Shared, now: Ns) -> Turn {
        let again = |until| Turn { until, fault: None };
        let budgets = lock(shared).budgets();
        if self.cpu_pct.total_cmp(&budgets.cpu_pct).is_ne() {
            (self.cpu, self.cpu_pct) = (Bucket::new(budgets.cpu_pct, 1.0, now), budgets.cpu_pct);
        }
        if self.cpu.available_ns(now) < 0.0 {
            return again(now + CPU_WAIT);
        }
        // After the wait for the budget: to ask passes the turn on, and a cgroup would lose it each time.
        let due = lock(shared).reclaim_due(now);
        let Some(cgroup) = due else { return again(now + IDLE) };
        let began = self.machine.cpu_ns();
        let fault = self.serve(shared, &cgroup, &budgets, now);
        self.cpu.spend(self.machine.cpu_ns().saturating_sub(began) as f64);
        Turn { until: now, fault }
    }

    /// One step of a cgroup that is due.
    fn serve(&mut self, shared: &Shared, cgroup: &Cgroup, budgets: &Budgets, now: Ns) -> Option<String> {
        if let Some((why, until)) = self.held_up(cgroup, budgets, now) {
            lock(shared).reclaim_waits(cgroup, Some(why), until);
            return None;
        }
        let before = match self.check(cgroup, now).and_then(|()| Ok(self.machine.counts(cgroup)?)) {
            Ok(Some(before)) => before,
            Err(Fault::Error(error)) if error.is_gone() => {
                lock(shared).reclaim_waits(cgroup, None, now + GONE);
                return None;
            }
            Ok(None) => {
                lock(shared).cannot_reclaim(cgroup, now + ASK_AGAIN);
                return None;
            }
            Err(Fault::Known(until)) => {
                lock(shared).cannot_reclaim(cgroup, until);
                return None;
            }
            Err(Fault::Error(error)) => {
                lock(shared).cannot_reclaim(cgroup, now + ASK_AGAIN);
                return Some(format!(
                    "files of the cgroup {} stay: {} (reclaim needs Linux 6.11, cgroup v2, and write access to memory.reclaim)",
                    cgroup.path,
                    with_cause(&error)
                ));
            }
        };
        let asked = lock(shared).reclaim_step(cgroup, before, now)?;
        let began = self.machine.cpu_ns();
        let outcome = self.machine.ask(cgroup, asked);
        let after = self.machine.counts(cgroup).ok().flatten().unwrap_or(before);
        let counted = after.stolen_pages.saturating_sub(before.stolen_pages);
        // The kernel adds its counts up seconds later where there are many CPUs, and a quota must not wait for that. What comes late of the step before is
        // not counted once more.
        let left_pages = if matches!(outcome, Ok(true)) { asked.pages() } else { counted.min(asked.pages()) };
        // A cgroup that has gone meanwhile is no fault: it is forgotten with its processes.
        let fault = outcome.err().filter(|error| !error.is_gone());
        let cpu_ns = self.machine.cpu_ns().saturating_sub(began);
        lock(shared).reclaimed(cgroup, Taken { asked, left_pages, cpu_ns }, now);
        fault.map(|error| with_cause(&error))
    }

    /// What forbids asking now, and until when.
    fn held_up(&mut self, cgroup: &Cgroup, budgets: &Budgets, now: Ns) -> Option<(Wait, Ns)> {
        if self.host.is_due(now) {
            let state = self.machine.host();
            self.host.note(state, now);
        }
        if let Some((until, why)) = self.host.wait(GUARDS, budgets) {
            return Some((why, until));
        }
        let is_pressed = self.machine.pressure_pct(cgroup).is_some_and(|percent| percent > budgets.pressure_pct);
        is_pressed.then_some((Wait::CgroupPressure, now + RECHECK_INTERVAL))
    }

    /// Whether a cgroup can be asked at all. Nothing is concluded from one that is gone.
    fn check(&mut self, cgroup: &Cgroup, now: Ns) -> Result<(), Fault> {
        let before = self.askable.get(&cgroup.path).copied();
        match before {
            Some(None) => return Ok(()),
            Some(Some(until)) if now < until => return Err(Fault::Known(until)),
            _ => {}
        }
        let asked = self.machine.ask(cgroup, Bytes(0)).map(drop);
        if asked.as_ref().is_err_and(Error::is_gone) {
            return Ok(asked?);
        }
        // Cgroups come and go. They are asked once more.
        if self.askable.len() >= MAX_KNOWN {
            self.askable.clear();
        }
        let again = asked.is_err().then_some(now + ASK_AGAIN);
        self.askable.insert(cgroup.path.clone(), again);
        match again {
            Some(until) if before.is_some() => Err(Fault::Known(until)),
            _ => Ok(asked?),
        }
    }
}

/// An error, and why: a file system may be read-only, or the kernel too old.
fn with_cause(error: &Error) -> String {
    std::error::Error::source(error).map_or(error.to_string(), |cause| format!("{error}: {cause}"))
}

/// Why a cgroup is not asked.
#[derive(Debug)]
enum Fault {
    /// It cannot be, as was reported. It is asked once more then.
    Known(Ns),
    Error(Error),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        Fault::Error(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collapse::Rules;
    use crate::machine::HostState;
    use crate::page_out::brake::Limits;
    use crate::reclaim::reclaimer::Found;
    use crate::scheme::ReclaimScheme;
    use crate::state::State;
    use isotherm_sys::proc::{CgroupKind, ReclaimCounts};
    use std::io;
    use std::path::PathBuf;
    use std::sync::{Arc, Mutex};

    const S: Ns = 1_000_000_000;
    const LIMITS: Limits = Limits { min_idle_ns: 60 * S, max_refaults_pct: 0.2 };

    /// Gives all that is asked for, unless it cannot be asked.
    #[derive(Debug, Default)]
    struct Fake {
        asked: Vec<Bytes>,
        counts: ReclaimCounts,
        /// The cgroups that were asked, in order.
        of: Vec<String>,
        cannot: bool,
        is_gone: bool,
        /// The counts do not change in time.
        counts_late: bool,
        /// Nothing leaves.
        has_no_more: bool,
        pressure_pct: f64,
        host: HostState,
        cpu_ns: Ns,
        /// For each question.
        takes_ns: Ns,
    }

    impl AskMachine for Fake {
        fn host(&mut self) -> HostState {
            self.host
        }

        fn pressure_pct(&mut self, _: &Cgroup) -> Option<f64> {
            Some(self.pressure_pct)
        }

        fn counts(&mut self, cgroup: &Cgroup) -> Result<Option<ReclaimCounts>, Error> {
            if self.is_gone { Err(gone(cgroup)) } else { Ok(Some(self.counts)) }
        }

        fn ask(&mut self, cgroup: &Cgroup, bytes: Bytes) -> Result<bool, Error> {
            if self.is_gone {
                return Err(gone(cgroup));
            }
            if self.cannot {
                let source = io::Error::from_raw_os_error(22);
                return Err(Error::Io { path: cgroup.dir.clone(), source });
            }
            self.asked.push(bytes);
            self.of.push(cgroup.path.clone());
            self.counts.stolen_pages += if self.counts_late || self.has_no_more { 0 } else { bytes.pages() };
            self.cpu_ns += self.takes_ns;
            Ok(!self.has_no_more)
        }

        fn cpu_ns(&mut self) -> Ns {
            self.cpu_ns
        }
    }

    fn gone(cgroup: &Cgroup) -> Error {
        Error::Gone { path: cgroup.dir.clone() }
    }

    fn cgroup() -> Cgroup {
        at("/a")
    }

    fn at(path: &str) -> Cgroup {
        Cgroup { kind: CgroupKind::Unified, dir: PathBuf::from(format!("/sys/fs/cgroup{path}")), path: path.into() }
    }

    fn scene(fake: Fake) -> (Worker<Fake>, Shared) {
        let all = Bytes(1 << 30);
        let counts = ReclaimCounts { file: all, mapped: all, charged: all, ..fake.counts };
        let shared: Shared = Arc::new(Mutex::new(State::new(Rules::default(), Budgets::default())));
        (Worker::new(Fake { counts, ..fake }, 0), shared)
    }

    /// Each second, with 64 MiB of idle files. Returns what there was to report.
    fn run(worker: &mut Worker<Fake>, shared: &Shared, seconds: std::ops::Range<u64>) -> Vec<String> {
        let mut faults = Vec::new();
        for second in seconds {
            let now = second * S;
            {
                let mut state = lock(shared);
                state.reclaim_age(&cgroup(), ReclaimScheme { limits: LIMITS, watermarks: None, place: 0 }, now);
                let found = Found { idle_pages: 16_384, working_set_pages: 100_000, ..Found::default() };
                state.found_idle_files(&cgroup(), found, None, now);
            }
            let mut turn = worker.turn(shared, now);
            faults.extend(turn.fault.take());
            while turn.until <= now {
                turn = worker.turn(shared, now);
                faults.extend(turn.fault.take());
            }
        }
        faults
    }

    /// What is reported of the first cgroup.
    fn status_of_first(shared: &Shared) -> serde_json::Value {
        serde_json::to_value(lock(shared).status()).unwrap()["cgroups"][0].clone()
    }

    #[test]
    fn idle_files_are_asked_for_in_steps_and_what_has_left_is_read_back() {
        let (mut worker, shared) = scene(Fake::default());
        assert_eq!(run(&mut worker, &shared, 1..6), Vec::<String>::new());
        let steps = [0, 16 << 20, 16 << 20, 16 << 20, 16 << 20].map(Bytes);
        assert_eq!(worker.machine.asked[..5], steps, "first whether it can be asked, and no more than is idle");
        let of = status_of_first(&shared);
        assert_eq!((&of["cgroup"], &of["idle_bytes"]), (&"/a".into(), &(64 << 20).into()), "{of:#}");
        assert_eq!(of["left_bytes"], of["asked_bytes"]);
    }

    #[test]
    fn what_has_left_counts_at_once_where_the_kernel_adds_it_up_later() {
        let (mut worker, shared) = scene(Fake { counts_late: true, ..Fake::default() });
        run(&mut worker, &shared, 1..6);
        let of = status_of_first(&shared);
        assert!(of["asked_bytes"].as_u64() >= Some(64 << 20), "{of:#}: it goes on");
        assert_eq!(of["left_bytes"], of["asked_bytes"]);
    }

    #[test]
    fn a_cgroup_of_which_nothing_leaves_rests() {
        let (mut worker, shared) = scene(Fake { has_no_more: true, ..Fake::default() });
        run(&mut worker, &shared, 1..30);
        let of = status_of_first(&shared);
        assert_eq!((&of["asked_bytes"], &of["left_bytes"]), (&(16 << 20).into(), &0.into()), "{of:#}");
    }

    #[test]
    fn a_cgroup_that_cannot_be_asked_is_reported_once() {
        let (mut worker, shared) = scene(Fake { cannot: true, ..Fake::default() });
        let faults = run(&mut worker, &shared, 1..6);
        assert!(faults.len() == 1 && faults[0].contains("/a") && faults[0].contains("6.11"), "{faults:?}");
        assert!(faults[0].contains("Invalid argument"), "the kernel is too old: {faults:?}");
        let of = status_of_first(&shared);
        assert_eq!(of["stays"], "cannot-be-asked", "{of:#}");
        // What was missing comes.
        assert_eq!(run(&mut worker, &shared, 6..700), Vec::<String>::new());
        worker.machine.cannot = false;
        assert_eq!(run(&mut worker, &shared, 700..1300), Vec::<String>::new());
        assert!(worker.machine.asked.len() > 1);
        let of = status_of_first(&shared);
        assert_eq!(of["stays"], serde_json::Value::Null, "{of:#}");
    }

    #[test]
    fn a_cgroup_that_is_not_there_for_a_moment_is_asked_when_it_is() {
        let (mut worker, shared) = scene(Fake { is_gone: true, ..Fake::default() });
        assert_eq!(run(&mut worker, &shared, 1..4), Vec::<String>::new());
        worker.machine.is_gone = false;
        run(&mut worker, &shared, 4..6);
        let asked = worker.machine.asked.len();
        assert!(asked > 1, "{asked}");
        // The service is restarted.
        worker.machine.is_gone = true;
        assert_eq!(run(&mut worker, &shared, 6..8), Vec::<String>::new());
        worker.machine.is_gone = false;
        run(&mut worker, &shared, 8..10);
        assert!(worker.machine.asked.len() > asked, "once more");
        assert_eq!(status_of_first(&shared)["stays"], serde_json::Value::Null);
    }

    #[test]
    fn under_pressure_nothing_is_asked_for() {
        let pressed = HostState { io_pressure_pct: Some(31.0), ..HostState::default() };
        for (fake, why) in [
            (Fake { pressure_pct: 11.0, ..Fake::default() }, "cgroup-pressure"),
            (Fake { host: pressed, ..Fake::default() }, "io-pressure"),
        ] {
            let (mut worker, shared) = scene(fake);
            run(&mut worker, &shared, 1..6);
            assert_eq!(worker.machine.asked, []);
            let of = status_of_first(&shared);
            assert_eq!(of["waiting"], why, "{of:#}");
            (worker.machine.pressure_pct, worker.machine.host) = (9.0, HostState::default());
            run(&mut worker, &shared, 6..8);
            assert!(!worker.machine.asked.is_empty(), "{why}");
        }
    }

    /// After each question the budget is waited for, in steps of 100 ms of which each asked whose turn it was.
    #[test]
    fn cgroups_take_turns_while_the_cpu_budget_is_used_up() {
        for takes_ns in [120, 130, 140, 150, 160].map(|ms| ms * S / 1000) {
            let (mut worker, shared) = scene(Fake { takes_ns, ..Fake::default() });
            let mut until = 0;
            for tenth in 10..1200 {
                let now = tenth * S / 10;
                for cgroup in ["/a", "/b"].map(at) {
                    let mut state = lock(&shared);
                    state.reclaim_age(&cgroup, ReclaimScheme { limits: LIMITS, watermarks: None, place: 0 }, now);
                    let found = Found { idle_pages: 16_384, working_set_pages: 100_000, ..Found::default() };
                    state.found_idle_files(&cgroup, found, None, now);
                }
                while until <= now {
                    until = worker.turn(&shared, now).until;
                }
            }
            let of = |path: &str| worker.machine.of.iter().filter(|of| *of == path).count();
            let (a, b) = (of("/a"), of("/b"));
            assert!(a + b > 20 && a.abs_diff(b) <= 2, "{takes_ns} ns each: {a} and {b}");
        }
    }

    #[test]
    fn it_keeps_to_its_share_of_a_cpu() {
        // 10% of a CPU are 100 ms a second, and a credit of 100 ms.
        let (mut worker, shared) = scene(Fake { takes_ns: S / 2, ..Fake::default() });
        run(&mut worker, &shared, 1..21);
        let asked = worker.machine.asked.len() as u64;
        assert!((3..=5).contains(&asked), "{asked} times half a second in 20 seconds");
    }
}
