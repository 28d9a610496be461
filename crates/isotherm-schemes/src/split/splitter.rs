//! Keeps at splitting the huge pages of one process: round by round, probes first.
//!
//! A round begins with probes, a few of each mapping ([`super::probe`]). They are watched for a little longer than the age, since their pages are not
//! cleared at once. Where they show that it pays, the other huge pages of the mapping are split too; elsewhere the probes are collapsed again
//! ([`super::rejoin`]). Then the process rests: longer each time that nothing has paid, since a probe costs the target TLB misses.
//!
//! A hint may wait for minutes: for a budget, for the end of a copy of the process. So a round that ends takes back what it has asked for
//! ([`Splitter::asks`]), and what is to be collapsed again is asked for until it was tried.
//!
//! What was split must not come back at once, or it would be split again in the next round. So it is not collapsed for ten minutes, and for twice as
//! long each time that it was split again. khugepaged does not know of that: what it collapses is counted, and is no
//! probe in the next round.

use super::probe::choose;
use super::probes::Probes;
use crate::outcome::Outcome;
use crate::page_out::Rules;
use crate::page_out::keeper::Stays;
use isotherm_heat::{Ns, Rng, Target};
use isotherm_units::{Addr, Bytes, PMD_SIZE, PmdNo};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

const S: Ns = 1_000_000_000;
/// Probes of a process in a round, and at most one huge page in so many; at least four of each mapping.
const PROBES: usize = 32;
const ONE_PROBE_IN: usize = 4;
/// Mappings with fewer huge pages are left alone: the probes would be most of them.
const MIN_HUGE: usize = 8;
/// Probes are watched longer than the age: by one part of it in so many, and at least by this.
const EXTRA_PART: u64 = 4;
const MIN_EXTRA: Ns = 10 * S;
/// Probes that were not split within this time stay whole.
const SPLIT_WITHIN: Ns = 60 * S;
/// Between two rounds. It doubles after each in which nothing paid.
const REST: Ns = 600 * S;
const LONGEST_REST: Ns = 16 * REST;
/// How long what was split is not collapsed. It doubles each time, so many times at most.
const KEPT: Ns = 600 * S;
const MAX_DOUBLINGS: u32 = 6;
/// After this time it is forgotten that something was split.
const FORGOTTEN: Ns = KEPT << (MAX_DOUBLINGS + 1);

/// When to split.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// A page is unused that was not accessed for this long.
    pub min_idle_ns: Ns,
    /// Splitting pays from this share of unused memory on, in percent.
    pub min_unused_pct: f64,
}

/// What `status` reports of splitting the huge pages of a process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SplitStatus {
    /// Huge pages that were split as probes so far.
    pub probes: u64,
    /// Probes that were collapsed again.
    pub collapsed_again: u64,
    /// Huge pages that were split because it pays, probes among them.
    pub split: u64,
    /// Memory that the kernel gave back with these.
    pub returned_bytes: u64,
    /// Split ones that something else has collapsed: khugepaged, or the program.
    pub remade: u64,
    /// Memory behind huge pages that was not in use, as the last round has estimated. `None` before the first.
    pub unused_bytes: Option<u64>,
    /// Why nothing is split at the moment.
    #[serde(deserialize_with = "crate::named::if_known")]
    pub stays: Option<Stays>,
}

/// What the caller has to find out next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wants {
    /// Nothing at the moment.
    Nothing,
    /// The huge pages of each mapping, for [`Splitter::begin`].
    HugePages,
    /// These were split just now: they have to be read, so that they are known to be small and are checked.
    Read(Vec<PmdNo>),
    /// All of these have to be read, for [`Splitter::judge`].
    Judgement {
        /// The huge pages of all mappings with probes.
        read: Vec<PmdNo>,
        /// The probes among them.
        probes: Vec<PmdNo>,
    },
}

/// What follows from a round.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    /// Huge pages to split.
    pub split: Vec<PmdNo>,
    /// Probes to collapse again.
    pub collapse: Vec<PmdNo>,
}

#[derive(Clone, Debug)]
enum Phase {
    Resting {
        until: Ns,
    },
    /// Probes are asked for.
    Splitting {
        since: Ns,
        mappings: Vec<Probes>,
    },
    Watching {
        since: Ns,
        mappings: Vec<Probes>,
    },
}

/// A huge range that was split.
#[derive(Clone, Copy, Debug, Default)]
struct Kept {
    until: Ns,
    times: u32,
}

/// Splitting of one process.
#[derive(Clone, Debug)]
pub struct Splitter {
    limits: Limits,
    phase: Phase,
    rest: Ns,
    kept: BTreeMap<PmdNo, Kept>,
    /// What is to be split, and was not handled yet.
    asked: BTreeSet<PmdNo>,
    /// Probes that are to be collapsed again, and were not handled yet.
    again: BTreeSet<PmdNo>,
    status: SplitStatus,
}

impl Splitter {
    /// Of a process of which nothing was split. The first round begins when it was watched for the age.
    pub fn new(limits: Limits, now: Ns) -> Splitter {
        Splitter {
            limits,
            phase: Phase::Resting { until: now + limits.min_idle_ns },
            rest: REST,
            kept: BTreeMap::new(),
            asked: BTreeSet::new(),
            again: BTreeSet::new(),
            status: SplitStatus::default(),
        }
    }

    /// Sets other limits.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// What to find out next. With a reason why nothing may be split, a round ends, and its probes are to be collapsed again.
    pub fn wants(&mut self, stays: Option<Stays>, now: Ns) -> Wants {
        self.status.stays = stays;
        if stays.is_some() {
            self.end(now);
            return Wants::Nothing;
        }
        match std::mem::replace(&mut self.phase, Phase::Resting { until: now + self.rest }) {
            // Probes of the round before that could not be collapsed yet do not become more with each round.
            Phase::Resting { until } if until <= now && self.again.is_empty() => Wants::HugePages,
            Phase::Splitting { since, mappings }
                if self.asked.is_empty() || now.saturating_sub(since) >= SPLIT_WITHIN =>
            {
                self.asked.clear();
                let split: Vec<PmdNo> = mappings.iter().flat_map(Probes::split_ones).collect();
                if split.is_empty() {
                    self.rest_longer(now);
                    return Wants::Nothing;
                }
                self.phase = Phase::Watching { since: now, mappings };
                Wants::Read(split)
            }
            Phase::Watching { since, mappings } if now.saturating_sub(since) >= self.watched_for() => {
                let read = mappings.iter().flat_map(|of| of.huge().iter().copied()).collect();
                let probes = mappings.iter().flat_map(Probes::split_ones).collect();
                self.phase = Phase::Watching { since, mappings };
                Wants::Judgement { read, probes }
            }
            other => {
                self.phase = other;
                Wants::Nothing
            }
        }
    }

    fn watched_for(&self) -> Ns {
        self.limits.min_idle_ns + (self.limits.min_idle_ns / EXTRA_PART).max(MIN_EXTRA)
    }

    fn rest_longer(&mut self, now: Ns) {
        self.rest = (2 * self.rest).min(LONGEST_REST);
        self.phase = Phase::Resting { until: now + self.rest };
    }

    /// Whether it still asks for a huge page to be split.
    pub fn asks(&self, pmd: PmdNo) -> bool {
        self.asked.contains(&pmd)
    }

    /// Probes that are to be collapsed again, and were not handled yet.
    pub fn again(&self) -> Vec<PmdNo> {
        self.again.iter().copied().collect()
    }

    /// Whether it is a probe that is watched, so that its pages must not leave.
    pub fn is_watched(&self, pmd: PmdNo) -> bool {
        match &self.phase {
            Phase::Resting { .. } => false,
            Phase::Splitting { mappings, .. } | Phase::Watching { mappings, .. } => {
                mappings.iter().any(|of| of.split_ones().any(|probe| probe == pmd))
            }
        }
    }

    /// Begins a round with the huge pages of each mapping. Returns those to be split as probes.
    pub fn begin(&mut self, mut huge: BTreeMap<Addr, Vec<PmdNo>>, now: Ns) -> Vec<PmdNo> {
        let mut remade = BTreeSet::new();
        for pmd in huge.values().flatten() {
            if let Some(kept) = self.kept.get_mut(pmd).filter(|kept| kept.until > now) {
                self.status.remade += 1;
                kept.until = now;
                remade.insert(*pmd);
            }
        }
        huge.values_mut().for_each(|pmds| pmds.retain(|pmd| !remade.contains(pmd)));
        huge.retain(|_, pmds| pmds.len() >= MIN_HUGE);
        self.kept.retain(|_, kept| kept.until.saturating_add(FORGOTTEN) > now);
        let all: usize = huge.values().map(Vec::len).sum();
        // Which ones does not matter, as long as nothing depends on it.
        let mut drawn = choose(&huge, PROBES.min(all / ONE_PROBE_IN), &mut Rng::new(now));
        let of = |(start, huge)| Probes::new(huge, drawn.remove(&start).unwrap_or_default());
        let mappings: Vec<Probes> = huge.into_iter().map(of).collect();
        self.asked = mappings.iter().flat_map(|of| of.drawn().iter().copied()).collect();
        self.phase = match self.asked.is_empty() {
            true => Phase::Resting { until: now + self.rest },
            false => Phase::Splitting { since: now, mappings },
        };
        self.asked.iter().copied().collect()
    }

    /// Takes in what became of a hint to split.
    pub fn split_handled(&mut self, pmd: PmdNo, outcome: Outcome, now: Ns) {
        let was_asked = self.asked.remove(&pmd);
        if !matches!(outcome, Outcome::Done { .. }) {
            return;
        }
        if !was_asked {
            // The round ended while it was being split.
            self.give_up(&[pmd]);
            return;
        }
        if let Phase::Splitting { mappings, .. } = &mut self.phase {
            mappings.iter_mut().filter(|of| of.has(pmd)).for_each(|of| of.split(pmd));
            self.status.probes += 1;
            self.keep(pmd, self.watched_for() + SPLIT_WITHIN, now);
        } else {
            self.status.split += 1;
            self.keep(pmd, 0, now);
        }
    }

    /// It is not collapsed for so long beyond the usual time.
    fn keep(&mut self, pmd: PmdNo, beyond: Ns, now: Ns) {
        let kept = self.kept.entry(pmd).or_default();
        kept.until = now + beyond + (KEPT << kept.times.min(MAX_DOUBLINGS));
        kept.times += 1;
    }

    /// Takes in what the kernel gave back with a split. What it was of a probe is counted when that is judged.
    pub fn gave_back(&mut self, pmd: PmdNo, pages: u16) {
        if let Phase::Splitting { mappings, .. } | Phase::Watching { mappings, .. } = &mut self.phase {
            mappings.iter_mut().filter(|of| of.has(pmd)).for_each(|of| of.gave_back(pmd, pages));
        } else {
            self.status.returned_bytes += Bytes::of_pages(pages.into()).0;
        }
    }

    /// Takes in what became of the hint to collapse a probe again.
    pub fn again_handled(&mut self, pmd: PmdNo, outcome: Outcome) {
        let was_asked = self.again.remove(&pmd);
        self.status.collapsed_again += u64::from(was_asked && matches!(outcome, Outcome::Done { .. }));
    }

    /// Takes in that a huge range was collapsed, by heat or because something outside has asked for it.
    pub fn collapsed(&mut self, pmd: PmdNo, now: Ns) {
        self.again.remove(&pmd);
        if let Some(kept) = self.kept.get_mut(&pmd) {
            // It may be a probe of the next round. How often it was split is remembered.
            kept.until = kept.until.min(now);
        }
    }

    /// Ends a round by what is known of the pages at `known_at`, right after all were read.
    pub fn judge(&mut self, (pages, known_at): (&Target, Ns), given_back: impl Fn(PmdNo) -> u16, now: Ns) -> Judgement {
        let rules = Rules { min_idle_ns: self.limits.min_idle_ns };
        let resting = Phase::Resting { until: now + REST };
        let mut mappings = match std::mem::replace(&mut self.phase, resting) {
            Phase::Watching { mappings, .. } => mappings,
            other => {
                self.phase = other;
                return Judgement::default();
            }
        };
        let mut unused = 0.0;
        let mut judgement = Judgement::default();
        for of in &mut mappings {
            of.read(rules, pages, known_at, &given_back);
            of.judge(self.limits.min_unused_pct / 100.0);
            let (probes, returned) = of.staying();
            self.status.split += probes;
            self.status.returned_bytes += Bytes::of_pages(returned).0;
            for pmd in of.remade() {
                self.status.remade += 1;
                // Counted once.
                self.kept.remove(pmd);
            }
            unused += of.judged().unused.mean * of.huge().len() as f64;
            judgement.split.extend(of.others_to_split());
            judgement.collapse.extend(of.to_collapse(false));
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most the huge memory")]
        let unused_bytes = (unused * PMD_SIZE as f64) as u64;
        self.status.unused_bytes = Some(unused_bytes);
        let pays = mappings.iter().any(|of| of.pays() != (false, false));
        if pays {
            self.rest = REST;
        } else {
            self.rest_longer(now);
        }
        self.asked = judgement.split.iter().copied().collect();
        self.give_up(&judgement.collapse);
        judgement
    }

    /// Ends a round without a judgement: its probes are to be collapsed again, and nothing more is split.
    pub fn end(&mut self, now: Ns) {
        self.asked.clear();
        let until = match &self.phase {
            Phase::Resting { until } => (*until).max(now + self.limits.min_idle_ns),
            _ => now + self.rest,
        };
        let ended = std::mem::replace(&mut self.phase, Phase::Resting { until });
        if let Phase::Splitting { mappings, .. } | Phase::Watching { mappings, .. } = ended {
            let probes: Vec<PmdNo> = mappings.iter().flat_map(|of| of.to_collapse(true)).collect();
            self.give_up(&probes);
        }
    }

    /// These are to be collapsed again, and count as never split.
    fn give_up(&mut self, probes: &[PmdNo]) {
        self.again.extend(probes);
        probes.iter().for_each(|pmd| _ = self.kept.remove(pmd));
    }

    /// Whether a huge range may be collapsed, as far as splitting goes.
    pub fn may_collapse(&self, pmd: PmdNo, now: Ns) -> bool {
        self.kept.get(&pmd).is_none_or(|kept| kept.until <= now)
    }

    /// What to report.
    pub fn status(&self) -> SplitStatus {
        self.status.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Refusal;
    use isotherm_heat::{Mask, PmdBits, Watch};

    const DONE: Outcome = Outcome::Done { grown: 0 };
    const LIMITS: Limits = Limits { min_idle_ns: 20 * S, min_unused_pct: 50.0 };

    /// A process of 40 huge pages in one mapping, and what is known of it. Of each, the first pages are in use.
    struct Scene {
        splitter: Splitter,
        pages: Target,
        small: BTreeSet<PmdNo>,
        used: usize,
        now: Ns,
    }

    impl Scene {
        fn new(used: usize) -> Scene {
            let pages = Target::new(0, Watch { max_slowdown_pct: 1000.0, scan_period_ns: S }, 1);
            let mut scene = Scene { splitter: Splitter::new(LIMITS, 0), pages, small: BTreeSet::new(), used, now: 0 };
            scene.pass(20);
            scene
        }

        fn huge() -> BTreeMap<Addr, Vec<PmdNo>> {
            [(Addr(0), (0..40).map(PmdNo).collect())].into()
        }

        /// So many seconds: all is cleared and read once a second.
        fn pass(&mut self, seconds: u64) {
            for _ in 0..seconds {
                self.now += S;
                for pmd in (0..40).map(PmdNo) {
                    let young = (0..self.used).collect();
                    let bits = match self.small.contains(&pmd) {
                        true => PmdBits::Pages { young, present: Mask::ALL },
                        false => PmdBits::Huge { young: self.used > 0 },
                    };
                    self.pages.read(self.now, pmd, bits);
                    self.pages.cleared(self.now, pmd, Mask::NONE);
                }
            }
        }

        /// A round up to its judgement. All hints to split are done.
        fn round(&mut self) -> Judgement {
            assert_eq!(self.splitter.wants(None, self.now), Wants::HugePages);
            let probes = self.splitter.begin(Scene::huge(), self.now);
            assert_eq!(probes.len(), 10, "one in four");
            for pmd in &probes {
                self.splitter.split_handled(*pmd, DONE, self.now);
                self.splitter.gave_back(*pmd, 100);
                self.small.insert(*pmd);
            }
            assert_eq!(self.splitter.wants(None, self.now), Wants::Read(probes.clone()));
            assert!(self.splitter.is_watched(probes[0]) && !self.splitter.is_watched(PmdNo(99)));
            self.pass(29);
            assert_eq!(
                self.splitter.wants(None, self.now),
                Wants::Nothing,
                "a half longer than the age, of so short a one"
            );
            self.pass(1);
            let Wants::Judgement { read, probes: seen } = self.splitter.wants(None, self.now) else { panic!() };
            assert_eq!((read.len(), &seen), (40, &probes));
            self.splitter.judge((&self.pages, self.now), |_| 0, self.now)
        }

        fn rests_until(&self) -> Ns {
            match self.splitter.phase {
                Phase::Resting { until } => until,
                _ => panic!(),
            }
        }
    }

    #[test]
    fn where_most_is_unused_the_others_are_split_and_stay_so() {
        let mut scene = Scene::new(40);
        assert_eq!(scene.splitter.wants(None, S), Wants::Nothing, "not watched for long enough");
        let judged = scene.round();
        assert_eq!((judged.split.len(), judged.collapse.len()), (30, 0));
        judged.split.iter().for_each(|pmd| scene.splitter.split_handled(*pmd, DONE, scene.now));
        scene.splitter.gave_back(judged.split[0], 300);
        let status = scene.splitter.status();
        assert_eq!((status.probes, status.split, status.returned_bytes), (10, 40, 300 << 12));
        // 472 of 512 pages of each, 40 of them: 73.75 MiB.
        assert_eq!(status.unused_bytes, Some(40 * 472 * 4096));
        assert!(!scene.splitter.may_collapse(judged.split[0], scene.now + KEPT - 1));
        assert!(scene.splitter.may_collapse(judged.split[0], scene.now + KEPT));
        assert!(scene.splitter.may_collapse(PmdNo(99), scene.now), "another");
        assert_eq!(scene.rests_until(), scene.now + REST);
        // khugepaged has collapsed some of them: they are counted, once, and no probes.
        let now = scene.now + KEPT / 2;
        assert_eq!(scene.splitter.begin(Scene::huge(), now), []);
        assert_eq!(scene.splitter.status().remade, 40);
        assert_eq!(scene.splitter.begin(Scene::huge(), now + 1).len(), 10);
        assert_eq!(scene.splitter.status().remade, 40);
        // What is split once more is left alone for twice as long.
        scene.splitter.keep(PmdNo(3), 0, now);
        assert!(!scene.splitter.may_collapse(PmdNo(3), now + 2 * KEPT - 1));
        // What a scheme has collapsed is a probe again, and it is not forgotten that it was split. The machine has been up for two days.
        let days = 172_800 * S;
        scene.splitter.keep(PmdNo(4), 0, days);
        scene.splitter.collapsed(PmdNo(4), days + KEPT);
        assert_eq!(scene.splitter.begin(Scene::huge(), days + KEPT).len(), 10);
        scene.splitter.keep(PmdNo(4), 0, days + KEPT);
        assert!(!scene.splitter.may_collapse(PmdNo(4), days + 3 * KEPT - 1));
    }

    #[test]
    fn where_most_is_in_use_the_probes_are_collapsed_again_and_the_rest_grows() {
        let mut scene = Scene::new(400);
        let judged = scene.round();
        assert_eq!((judged.split.len(), judged.collapse.len()), (0, 10));
        assert_eq!(scene.splitter.again(), judged.collapse);
        let first = judged.collapse[0];
        assert!(scene.splitter.may_collapse(first, scene.now));
        scene.splitter.again_handled(first, DONE);
        scene.splitter.again_handled(first, DONE);
        scene.splitter.again_handled(judged.collapse[1], Outcome::Refused(Refusal::Gone));
        assert_eq!((scene.splitter.status().collapsed_again, scene.splitter.status().split), (1, 0));
        assert_eq!(scene.splitter.again(), judged.collapse[2..], "until they were tried");
        assert_eq!(scene.rests_until(), scene.now + 2 * REST);
        let later = scene.now + LONGEST_REST;
        assert_eq!(scene.splitter.wants(None, later), Wants::Nothing, "or there would be more with each round");
        judged.collapse.iter().for_each(|pmd| scene.splitter.again_handled(*pmd, Outcome::Refused(Refusal::Gone)));
        scene.small.clear();
        scene.pass(1201);
        let again = scene.round().collapse;
        again.iter().for_each(|pmd| scene.splitter.again_handled(*pmd, DONE));
        assert_eq!(scene.rests_until(), scene.now + 4 * REST);
        // Once it pays, a round comes soon again.
        (scene.small, scene.used) = (BTreeSet::new(), 40);
        scene.pass(2401);
        scene.round();
        assert_eq!(scene.rests_until(), scene.now + REST);
    }

    #[test]
    fn a_round_that_ends_takes_back_what_it_has_asked_for() {
        let mut scene = Scene::new(40);
        let probes = scene.splitter.begin(Scene::huge(), scene.now);
        scene.splitter.split_handled(probes[0], DONE, scene.now);
        scene.splitter.split_handled(probes[1], Outcome::Refused(Refusal::Shared), scene.now);
        assert_eq!(scene.splitter.wants(None, scene.now), Wants::Nothing, "the others are not handled yet");
        assert!(scene.splitter.asks(probes[2]) && !scene.splitter.asks(probes[1]));
        let later = scene.now + SPLIT_WITHIN;
        assert_eq!(scene.splitter.wants(None, later), Wants::Read(vec![probes[0]]));
        assert!(!scene.splitter.asks(probes[2]), "it stays whole");
        // One that was in hand at that moment shows nothing.
        scene.splitter.split_handled(probes[2], DONE, later);
        assert_eq!((scene.splitter.status().probes, scene.splitter.status().split), (1, 0));
        assert_eq!(scene.splitter.again(), [probes[2]]);
        assert_eq!(scene.splitter.wants(Some(Stays::ClearedByOthers), later), Wants::Nothing);
        assert_eq!(scene.splitter.again(), [probes[0], probes[2]]);
        assert_eq!(scene.splitter.wants(Some(Stays::ClearedByOthers), later + 1), Wants::Nothing);
        assert_eq!(scene.splitter.again(), [probes[0], probes[2]], "until they were tried");
        assert_eq!(scene.splitter.wants(None, later), Wants::Nothing);
        // None at all was split: as where the kernel cannot tell what is huge.
        scene.splitter.begin(Scene::huge(), later);
        assert_eq!(scene.splitter.wants(None, later + SPLIT_WITHIN), Wants::Nothing);
        assert_eq!(scene.rests_until(), later + SPLIT_WITHIN + 2 * REST);
        // A mapping of a few huge pages is left alone.
        assert_eq!(scene.splitter.begin([(Addr(0), vec![PmdNo(1); 7])].into(), later), []);
    }

    #[test]
    fn zeros_that_were_not_given_back_with_the_split_do_not_count() {
        let mut scene = Scene::new(400);
        assert_eq!(scene.splitter.wants(None, scene.now), Wants::HugePages);
        for pmd in scene.splitter.begin(Scene::huge(), scene.now) {
            scene.splitter.split_handled(pmd, DONE, scene.now);
            scene.splitter.gave_back(pmd, 0);
            scene.small.insert(pmd);
        }
        scene.splitter.wants(None, scene.now);
        scene.pass(30);
        // A copy of the process makes all pages look shared, as zeros are.
        let judged = scene.splitter.judge((&scene.pages, scene.now), |_| 512, scene.now);
        assert_eq!((judged.split.len(), judged.collapse.len()), (0, 10));
        assert_eq!(scene.splitter.status().returned_bytes, 0);
    }
}
