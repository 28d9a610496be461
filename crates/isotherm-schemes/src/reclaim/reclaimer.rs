//! How much of a memory cgroup to ask for next.
//!
//! What is idle is asked for once in the age that makes it idle, and not again and again: the kernel may have taken other pages than those,
//! of files that nobody maps, and what is idle still looks so. What has become less since the last count does not stand against the next.
//! A page of a file is charged to the cgroup that has read it first, and asking another one takes others instead. What more is present of the
//! files than is charged and mapped belongs to others, and as many of the idle pages are not asked for.
//! Each step is small, so that the brake acts in time. The brake is that of
//! paging out ([`Brake`]), fed with the refaults of files that the kernel counts for the cgroup. Some of them may have other causes,
//! such as a limit of the cgroup; then, too, less should leave.

use crate::budgets::Wait;
use crate::named::{Named, if_known};
use crate::page_out::brake::{Brake, Limits};
use crate::page_out::keeper::Stays;
use crate::page_out::watermarks::Watermarks;
use isotherm_heat::Ns;
use isotherm_sys::proc::ReclaimCounts;
use isotherm_units::{Bytes, PAGE_SIZE};
use serde::{Deserialize, Serialize};

/// The largest step, in pages: 16 MiB.
const LARGEST_STEP: f64 = 4096.0;
/// Less is not asked for: the kernel takes 32 pages of each list at a time.
const SMALLEST_STEP: f64 = 256.0;
/// Between two steps.
const BETWEEN: Ns = 1_000_000_000;
/// After the kernel had much less than was asked for.
const REST: Ns = 60_000_000_000;
/// What was counted longer ago than this may be in use by now.
const FRESH: Ns = 12_000_000_000;
const MINUTE: Ns = 60_000_000_000;

/// What was found in the processes of a cgroup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Pages of files that are idle.
    pub idle_pages: u64,
    /// Pages of the same files that are present, of any cgroup.
    pub present_pages: u64,
    /// Pages of shared memory that are present, likewise.
    pub shared_pages: u64,
    /// The working set of a minute.
    pub working_set_pages: u64,
    /// Why nothing may leave, if so.
    pub stays: Option<Stays>,
}

/// The result of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Asked for.
    pub asked: Bytes,
    /// Pages that have left.
    pub left_pages: u64,
    /// CPU time that it took.
    pub cpu_ns: Ns,
}

/// What `status` reports of a cgroup.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReclaimStatus {
    /// Its path.
    pub cgroup: String,
    /// The age from which on files are idle at present.
    pub min_idle_ns: u64,
    /// Idle memory of files that its processes map.
    pub idle_bytes: u64,
    /// Asked for so far.
    pub asked_bytes: u64,
    /// Memory that has left so far.
    pub left_bytes: u64,
    /// Memory of files that was read again so far.
    pub refaulted_bytes: u64,
    /// CPU time that reclaim has taken.
    pub cpu_ns: u64,
    /// Why nothing leaves at the moment.
    #[serde(deserialize_with = "if_known")]
    pub stays: Option<Stays>,
    /// What it waits for at the moment.
    pub waiting: Option<Named<Wait>>,
}

/// Reclaim from one cgroup.
#[derive(Clone, Debug)]
pub struct Reclaimer {
    brake: Brake,
    found: Found,
    found_at: Ns,
    /// Pages asked for since idle ones were counted. Those that have left are still in that count.
    asked_since: f64,
    /// Pages asked for before, within the last age, for which no idle ones have left. They are forgotten at the rate at which as many as are
    /// idle would be.
    asked_in_vain: f64,
    next_at: Ns,
    /// What the kernel had counted last. It begins anew in a cgroup that has replaced another of its name.
    last_refaults: Option<u64>,
    refaults: u64,
    noted_at: Ns,
    /// The age at which idle pages were counted last.
    found_age: Ns,
    cannot_be_asked: bool,
    /// By the watermarks of its scheme, if it has some.
    is_active: bool,
    marks: Option<Watermarks>,
    waiting: Option<Wait>,
    asked: Bytes,
    left_pages: u64,
    cpu_ns: Ns,
}

impl Reclaimer {
    /// Of a cgroup from which nothing was taken.
    pub fn new(limits: Limits, now: Ns) -> Reclaimer {
        Reclaimer {
            brake: Brake::new(limits, now),
            found: Found::default(),
            found_at: now,
            asked_since: 0.0,
            asked_in_vain: 0.0,
            next_at: now,
            last_refaults: None,
            refaults: 0,
            noted_at: now,
            found_age: limits.min_idle_ns,
            cannot_be_asked: false,
            is_active: false,
            marks: None,
            waiting: None,
            asked: Bytes(0),
            left_pages: 0,
            cpu_ns: 0,
        }
    }

    /// Applies these limits. The brake begins anew if they are others.
    pub fn set_limits(&mut self, limits: Limits, now: Ns) {
        if self.brake.limits() != limits {
            self.brake = Brake::new(limits, now);
        }
    }

    /// The age from which on a page is idle at present.
    pub fn age_ns(&self) -> Ns {
        self.brake.next_age_ns()
    }

    /// Takes in what was found idle at this age, with so much memory free.
    pub fn found(&mut self, found: Found, (marks, free_pct): (Option<Watermarks>, f64), now: Ns) {
        self.forget(found.idle_pages, now);
        self.marks = marks;
        (self.found, self.found_at) = (found, now);
        self.note_free(free_pct);
    }

    /// Takes in how much memory is free: the watermarks hold between two counts, too.
    pub fn note_free(&mut self, free_pct: f64) {
        self.is_active = self.marks.is_none_or(|marks| marks.is_active(self.is_active, free_pct));
    }

    /// Forgets what idle pages have left for, and what was asked for an age ago. So many are idle now.
    fn forget(&mut self, idle_pages: u64, now: Ns) {
        let age_ns = self.age_ns();
        // At another age others are idle: that they are fewer does not show that any have left.
        let is_same = std::mem::replace(&mut self.found_age, age_ns) == age_ns;
        let left = if is_same { self.found.idle_pages.saturating_sub(idle_pages) as f64 } else { 0.0 };
        let passed = now.saturating_sub(self.found_at) as f64 / age_ns.max(1) as f64;
        let in_vain = self.asked_in_vain + self.asked_since - left - passed * idle_pages as f64;
        let most = if is_same { f64::INFINITY } else { idle_pages as f64 };
        (self.asked_since, self.asked_in_vain) = (0.0, in_vain.clamp(0.0, most));
    }

    /// Whether it is time for a step, as far as is known without asking the kernel.
    pub fn is_due(&self, now: Ns) -> bool {
        let is_fresh = now.saturating_sub(self.found_at) <= FRESH;
        self.stays().is_none_or(|why| matches!(why, Stays::Refaults | Stays::CannotBeAsked))
            && now >= self.next_at
            && is_fresh
            // What has left may come back, or has stopped to, although nothing is idle at an age that was doubled.
            && (self.found.idle_pages > 0 || self.left_pages > 0)
    }

    /// Nothing can be asked of this cgroup until then, when it is tried once more.
    pub fn cannot_be_asked(&mut self, until: Ns) {
        (self.cannot_be_asked, self.next_at) = (true, until);
    }

    /// Something holds it up until then; `None`: it was not there at the moment.
    pub fn wait(&mut self, why: Option<Wait>, until: Ns) {
        (self.waiting, self.next_at) = (why, until);
    }

    /// How much to ask for now, from what the kernel counts of the cgroup. `None`: nothing.
    pub fn step(&mut self, counts: ReclaimCounts, now: Ns) -> Option<Bytes> {
        (self.waiting, self.next_at, self.cannot_be_asked) = (None, now + BETWEEN, false);
        self.come_back(counts, now);
        self.brake.age_ns()?;
        let most = (counts.file.0 / PAGE_SIZE) as f64;
        // What is mapped of files is not counted by itself.
        let shared = self.found.shared_pages.min(counts.shmem.0 / PAGE_SIZE);
        let mapped = (counts.mapped.0 / PAGE_SIZE).saturating_sub(shared);
        let of_others = self.found.present_pages.saturating_sub(mapped);
        let idle = self.found.idle_pages.saturating_sub(of_others) as f64;
        let pages = (idle - self.asked_since - self.asked_in_vain).min(most).min(LARGEST_STEP);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive, and small")]
        (pages >= SMALLEST_STEP).then_some(Bytes(pages as u64 * PAGE_SIZE))
    }

    fn come_back(&mut self, counts: ReclaimCounts, now: Ns) {
        let all = counts.refaulted_file_pages;
        let before = self.last_refaults.replace(all).unwrap_or(all);
        let since = if all < before { all } else { all - before };
        self.refaults += since;
        // After a pause they are those of hours. The brake takes what they are in a minute.
        let passed = now.saturating_sub(std::mem::replace(&mut self.noted_at, now)).max(MINUTE);
        let a_minute = u128::from(since) * u128::from(MINUTE) / u128::from(passed);
        // Processes share files, so their working sets may add up to more than there is.
        let working_set = self.found.working_set_pages.min(counts.charged.0 / PAGE_SIZE);
        self.brake.note(u64::try_from(a_minute).unwrap_or(since), working_set, now);
    }

    /// Takes in what a step would have taken, in a dry run.
    pub fn imagined(&mut self, taken: Taken, now: Ns) {
        let left_before = self.left_pages;
        self.taken(Taken { left_pages: taken.asked.pages(), ..taken }, now);
        self.left_pages = left_before;
    }

    /// Takes in the result of a step.
    pub fn taken(&mut self, taken: Taken, now: Ns) {
        let asked_pages = taken.asked.0 / PAGE_SIZE;
        self.asked_since += asked_pages as f64;
        self.asked = Bytes(self.asked.0 + taken.asked.0);
        self.left_pages += taken.left_pages;
        self.cpu_ns += taken.cpu_ns;
        // There is not much that it could take, or would.
        let rest = if taken.left_pages < asked_pages / 4 { REST } else { BETWEEN };
        self.next_at = now + rest;
    }

    fn stays(&self) -> Option<Stays> {
        let refaults = self.brake.age_ns().is_none().then_some(Stays::Refaults);
        let by_watermarks = (self.marks.is_some() && !self.is_active).then_some(Stays::Watermarks);
        self.found.stays.or(by_watermarks).or(self.cannot_be_asked.then_some(Stays::CannotBeAsked)).or(refaults)
    }

    /// What is reported of it.
    pub fn status(&self, cgroup: &str) -> ReclaimStatus {
        ReclaimStatus {
            cgroup: cgroup.to_owned(),
            min_idle_ns: self.age_ns(),
            idle_bytes: self.found.idle_pages * PAGE_SIZE,
            asked_bytes: self.asked.0,
            left_bytes: self.left_pages * PAGE_SIZE,
            refaulted_bytes: self.refaults * PAGE_SIZE,
            cpu_ns: self.cpu_ns,
            stays: self.stays(),
            waiting: self.waiting.map(Named::Known),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Ns = 1_000_000_000;
    const LIMITS: Limits = Limits { min_idle_ns: 100 * S, max_refaults_pct: 0.2 };
    const FILE: Bytes = Bytes(1 << 30);

    const ANY: (Option<Watermarks>, f64) = (None, 50.0);

    fn counts(refaulted_file_pages: u64) -> ReclaimCounts {
        let shmem = Bytes(0);
        ReclaimCounts { file: FILE, mapped: FILE, shmem, charged: FILE, stolen_pages: 0, refaulted_file_pages }
    }

    fn idle(idle_pages: u64) -> Found {
        Found { idle_pages, working_set_pages: 100_000, ..Found::default() }
    }

    /// Steps once a second while something is asked for, and gets so many of four pages. Returns what was asked for, in pages.
    fn run(reclaimer: &mut Reclaimer, seconds: std::ops::Range<u64>, found: Found, of_four: u64) -> u64 {
        let mut asked = 0;
        for second in seconds {
            let now = second * S;
            reclaimer.found(found, ANY, now);
            if !reclaimer.is_due(now) {
                continue;
            }
            if let Some(bytes) = reclaimer.step(counts(7), now) {
                let pages = bytes.0 / PAGE_SIZE;
                reclaimer.taken(Taken { asked: bytes, left_pages: pages * of_four / 4, cpu_ns: 1 }, now);
                asked += pages;
            }
        }
        asked
    }

    #[test]
    fn what_is_idle_is_asked_for_once_in_an_age_though_it_still_looks_idle() {
        let mut reclaimer = Reclaimer::new(LIMITS, 0);
        let first = run(&mut reclaimer, 1..20, idle(20_000), 4);
        // Some is forgotten meanwhile: a fifth of an age.
        assert!((20_000..=24_000).contains(&first), "{first}");
        let next = run(&mut reclaimer, 20..120, idle(20_000), 4);
        assert!((19_000..=21_000).contains(&next), "{next} in the next age");
        assert_eq!(run(&mut reclaimer, 120..130, idle(200), 4), 0, "too little to ask for");
        let status = reclaimer.status("/a");
        assert_eq!((status.idle_bytes, status.left_bytes), (200 * PAGE_SIZE, status.asked_bytes));
    }

    #[test]
    fn watermarks_hold_between_two_counts() {
        let marks = Some(Watermarks { high: 50.0, mid: 40.0, low: 10.0 });
        let mut reclaimer = Reclaimer::new(LIMITS, 0);
        reclaimer.found(idle(20_000), (marks, 39.0), S);
        assert!(reclaimer.is_due(S));
        for (free_pct, is_due) in [(51.0, false), (45.0, false), (39.0, true), (45.0, true), (9.0, false)] {
            reclaimer.note_free(free_pct);
            assert_eq!(reclaimer.is_due(S), is_due, "{free_pct}% are free");
        }
    }

    #[test]
    fn what_has_left_is_not_asked_for_once_more_before_it_is_counted_again() {
        // Ages pass quickly here, and counts come every few seconds.
        let mut reclaimer = Reclaimer::new(Limits { min_idle_ns: 10 * S, ..LIMITS }, 0);
        reclaimer.found(idle(20_480), ANY, S);
        let mut asked = 0;
        for second in 1..12 {
            if let Some(bytes) = reclaimer.step(counts(7), second * S) {
                let pages = bytes.0 / PAGE_SIZE;
                reclaimer.taken(Taken { asked: bytes, left_pages: pages, cpu_ns: 1 }, second * S);
                asked += pages;
            }
        }
        assert_eq!(asked, 20_480, "or what is in use would be next");
        // Half of it has left by then: the other half is due at once.
        let mut reclaimer = Reclaimer::new(LIMITS, 0);
        reclaimer.found(idle(8192), ANY, S);
        for (second, found) in [(1, None), (2, Some(4096))] {
            if let Some(pages) = found {
                reclaimer.found(idle(pages), ANY, second * S);
            }
            let asked = reclaimer.step(counts(7), second * S);
            assert_eq!(asked, Some(Bytes(16 << 20)), "second {second}");
            reclaimer.taken(Taken { asked: Bytes(16 << 20), left_pages: 4096, cpu_ns: 1 }, second * S);
        }
    }

    #[test]
    fn a_step_is_small_and_no_more_than_there_is() {
        let mut reclaimer = Reclaimer::new(LIMITS, 0);
        reclaimer.found(idle(1_000_000), ANY, S);
        assert_eq!(reclaimer.step(counts(0), S), Some(Bytes(16 << 20)));
        let little = ReclaimCounts { file: Bytes(2 << 20), ..counts(0) };
        assert_eq!(reclaimer.step(little, 2 * S), Some(Bytes(2 << 20)));
        assert_eq!(reclaimer.step(ReclaimCounts { file: Bytes(4096), ..counts(0) }, 3 * S), None);
    }

    #[test]
    fn refaults_stop_it_and_the_age_doubles() {
        let mut reclaimer = Reclaimer::new(LIMITS, 0);
        reclaimer.found(idle(100_000), ANY, 60 * S);
        assert!(reclaimer.step(counts(500), 60 * S).is_some(), "what came back before is not counted");
        reclaimer.found(idle(100_000), ANY, 61 * S);
        assert!(reclaimer.is_due(61 * S));
        assert_eq!(reclaimer.step(counts(500 + 5000), 61 * S), None);
        assert_eq!((reclaimer.status("/a").stays, reclaimer.age_ns()), (Some(Stays::Refaults), 200 * S));
        assert!(reclaimer.is_due(62 * S), "what comes back is still counted, or it would never go on");
        assert_eq!(reclaimer.status("/a").refaulted_bytes, 5000 * PAGE_SIZE);
    }

    #[test]
    fn the_brake_is_let_go_though_nothing_is_idle_at_the_doubled_age() {
        let mut reclaimer = Reclaimer::new(LIMITS, 0);
        reclaimer.found(idle(100_000), ANY, 60 * S);
        let asked = reclaimer.step(counts(0), 60 * S).unwrap();
        reclaimer.taken(Taken { asked, left_pages: 4096, cpu_ns: 1 }, 60 * S);
        assert_eq!(reclaimer.step(counts(5000), 61 * S), None);
        assert_eq!((reclaimer.status("/a").stays, reclaimer.age_ns()), (Some(Stays::Refaults), 200 * S));
        for second in 62..62 + 3600 * 4 {
            reclaimer.found(idle(0), ANY, second * S);
            if reclaimer.is_due(second * S) {
                assert_eq!(reclaimer.step(counts(5000), second * S), None);
            }
        }
        assert_eq!((reclaimer.status("/a").stays, reclaimer.age_ns()), (None, 100 * S));
    }

    #[test]
    fn a_service_that_was_restarted_is_braked_by_what_it_reads_again() {
        let mut reclaimer = Reclaimer::new(LIMITS, 0);
        reclaimer.found(idle(100_000), ANY, 60 * S);
        assert!(reclaimer.step(counts(5_000_000), 60 * S).is_some());
        reclaimer.found(idle(100_000), ANY, 61 * S);
        // Its cgroup is another one now, which has begun to count.
        assert_eq!(reclaimer.step(counts(5000), 61 * S), None);
        assert_eq!(reclaimer.step(counts(6000), 62 * S), None);
        assert_eq!(reclaimer.status("/a").refaulted_bytes, 6000 * PAGE_SIZE);
    }

    #[test]
    fn refaults_of_a_pause_count_as_what_they_are_in_a_minute() {
        let mut reclaimer = Reclaimer::new(LIMITS, 0);
        reclaimer.found(idle(100_000), ANY, 60 * S);
        assert!(reclaimer.step(counts(0), 60 * S).is_some());
        // 40 a minute for ten hours, where 200 are allowed.
        let later = 60 * S + 600 * MINUTE;
        reclaimer.found(idle(100_000), ANY, later);
        assert!(reclaimer.step(counts(24_000), later).is_some(), "{reclaimer:?}");
        assert_eq!(reclaimer.status("/a").refaulted_bytes, 24_000 * PAGE_SIZE);
    }

    #[test]
    fn processes_that_share_files_do_not_raise_the_ceiling() {
        let shared = Found { working_set_pages: 64 << 20, ..idle(100_000) };
        let mut reclaimer = Reclaimer::new(LIMITS, 0);
        reclaimer.found(shared, ANY, 60 * S);
        assert!(reclaimer.step(counts(0), 60 * S).is_some());
        // 0.2% of the 1 GiB that is charged are 524 pages.
        assert_eq!(reclaimer.step(counts(600), 61 * S), None);
    }

    #[test]
    fn pages_that_are_charged_to_another_cgroup_are_not_asked_for_here() {
        let mut reclaimer = Reclaimer::new(LIMITS, 0);
        let read_by_another = Found { present_pages: 2_621_440, ..idle(2_097_152) };
        reclaimer.found(read_by_another, ANY, S);
        let hot = Bytes(300 << 20);
        let little = ReclaimCounts { file: hot, mapped: hot, charged: hot, ..counts(0) };
        assert_eq!(reclaimer.step(little, S), None, "all of what it has is in use, as far as is known");
        // 1,000 pages fewer are charged than are present, and may be among the idle ones.
        let present = FILE.0 / PAGE_SIZE + 1000;
        reclaimer.found(Found { present_pages: present, ..idle(2000) }, ANY, 2 * S);
        assert_eq!(reclaimer.step(counts(0), 2 * S), Some(Bytes(1000 * PAGE_SIZE)));
        // Of what is mapped, shared memory is no file. Where nobody maps it, it does not matter.
        let shared = ReclaimCounts { mapped: Bytes(2 * FILE.0), shmem: FILE, ..counts(0) };
        reclaimer.found(Found { present_pages: present, shared_pages: FILE.0 / PAGE_SIZE, ..idle(2000) }, ANY, 3 * S);
        assert_eq!(reclaimer.step(shared, 3 * S), Some(Bytes(1000 * PAGE_SIZE)));
        reclaimer.found(Found { present_pages: present - 1000, ..idle(2000) }, ANY, 4 * S);
        assert_eq!(reclaimer.step(ReclaimCounts { shmem: FILE, ..counts(0) }, 4 * S), Some(Bytes(2000 * PAGE_SIZE)));
    }

    #[test]
    fn what_was_asked_in_vain_is_not_forgotten_when_the_age_grows() {
        let mut reclaimer = Reclaimer::new(LIMITS, 0);
        reclaimer.found(idle(4096), ANY, 60 * S);
        let asked = reclaimer.step(counts(0), 60 * S).unwrap();
        reclaimer.taken(Taken { asked, left_pages: 4096, cpu_ns: 1 }, 60 * S);
        reclaimer.found(idle(4096), ANY, 61 * S);
        assert_eq!(reclaimer.step(counts(5000), 61 * S), None, "the brake");
        // At twice the age, a quarter of them are idle. They are some of those.
        reclaimer.found(idle(1024), ANY, 62 * S);
        for minute in 2..30 {
            reclaimer.found(idle(1024), ANY, minute * MINUTE);
            if let Some(asked) = reclaimer.step(counts(5000), minute * MINUTE) {
                assert!(minute >= 3, "{asked} in minute {minute}");
                return;
            }
        }
        panic!("it is never asked for again");
    }

    #[test]
    fn where_little_is_to_be_had_it_rests() {
        let mut reclaimer = Reclaimer::new(LIMITS, 0);
        let asked = run(&mut reclaimer, 1..60, idle(1_000_000), 0);
        assert_eq!(asked, 4096, "once in a minute");
    }

    #[test]
    fn old_counts_a_wait_and_a_reason_hold_it_up() {
        let mut reclaimer = Reclaimer::new(LIMITS, 0);
        reclaimer.found(idle(1_000_000), ANY, S);
        assert!(reclaimer.is_due(S) && !reclaimer.is_due(S + FRESH + 1));
        reclaimer.wait(Some(Wait::Pressure), 3 * S);
        assert!(!reclaimer.is_due(2 * S) && reclaimer.is_due(3 * S));
        assert_eq!(reclaimer.status("/a").waiting, Some(Named::Known(Wait::Pressure)));
        reclaimer.found(Found { stays: Some(Stays::Unwatched), ..idle(1_000_000) }, ANY, 4 * S);
        assert!(!reclaimer.is_due(4 * S));
        reclaimer.found(idle(1_000_000), ANY, 5 * S);
        let marks = Watermarks { high: 50.0, mid: 40.0, low: 5.0 };
        reclaimer.found(idle(1_000_000), (Some(marks), 51.0), 5 * S);
        assert_eq!((reclaimer.is_due(5 * S), reclaimer.status("/a").stays), (false, Some(Stays::Watermarks)));
        reclaimer.found(idle(1_000_000), (Some(marks), 39.0), 5 * S);
        assert!(reclaimer.is_due(5 * S));
        reclaimer.cannot_be_asked(6 * S);
        assert_eq!((reclaimer.is_due(5 * S), reclaimer.status("/a").stays), (false, Some(Stays::CannotBeAsked)));
        assert!(reclaimer.is_due(6 * S), "once more");
    }
}
