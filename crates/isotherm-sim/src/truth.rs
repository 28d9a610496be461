//! The true heat of a host, and how accurate a picture of it is.
//!
//! Both are sums over pieces of areas, not over pages, so that terabytes take microseconds. If hot pages are scattered
//! among others, a claim about at most a huge range is compared page by page. A longer claim is compared with the expected
//! share of hot pages.

use crate::host::Host;
use crate::pieces::Mixture;
use crate::view::{Part, View};
use isotherm_heat::{Histogram, Interval, Ns, Score};
use isotherm_units::{Addr, AddrRange, Bytes, PAGE_SIZE, PAGES_PER_PMD};
use std::collections::BTreeMap;
use std::ops::Range;

const EVERYWHERE: AddrRange = AddrRange::new(Addr(0), Addr(1 << 47));

/// Which processes count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope<'a> {
    /// All processes.
    Host,
    /// Processes of a cgroup and of the cgroups below it.
    Cgroup(&'a str),
    /// One process.
    Process(u32),
}

impl Scope<'_> {
    fn has(&self, view: View<'_>) -> bool {
        match *self {
            Scope::Host => true,
            Scope::Process(pid) => view.process.pid == pid,
            Scope::Cgroup(path) => view.process.is_within(path),
        }
    }
}

/// Bytes by the true mean interval of their pages.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Truth {
    by_interval: BTreeMap<Ns, f64>,
    never: f64,
}

impl Truth {
    /// Intervals in ns, shortest first, each with the bytes that have it (the expected number if pages are scattered).
    pub fn classes(&self) -> impl Iterator<Item = (Ns, Bytes)> {
        self.by_interval.iter().map(|(interval, bytes)| (*interval, whole(*bytes)))
    }

    /// Bytes never accessed.
    pub fn never(&self) -> Bytes {
        whole(self.never)
    }

    /// Bytes accessed at least every `hot_ns` on average.
    pub fn within(&self, hot_ns: Ns) -> Bytes {
        whole(self.bytes_within(hot_ns))
    }

    /// All bytes.
    pub fn total(&self) -> Bytes {
        whole(self.by_interval.values().sum::<f64>() + self.never)
    }

    /// Pages by interval on the scale of a snapshot's `temperature`. Pages that are never accessed have the longest
    /// interval.
    pub fn temperature(&self) -> Histogram {
        let mut histogram = Histogram::default();
        for (interval, bytes) in self.classes() {
            histogram.add(Interval::from_ns(interval), bytes.pages());
        }
        histogram.add(Interval::LONGEST, self.never().pages());
        histogram
    }

    fn bytes_within(&self, hot_ns: Ns) -> f64 {
        // The sum over no classes is -0.0.
        self.by_interval.range(..=hot_ns).map(|(_, bytes)| *bytes).sum::<f64>() + 0.0
    }

    fn add(&mut self, pages: u64, mixture: &Mixture) {
        for (rhythm, share) in mixture.shares() {
            let bytes = (pages * PAGE_SIZE) as f64 * share;
            match rhythm.interval() {
                Some(interval) => *self.by_interval.entry(interval).or_default() += bytes,
                None => self.never += bytes,
            }
        }
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a sum of sizes")]
fn whole(bytes: f64) -> Bytes {
    Bytes(bytes.round() as u64)
}

/// What a monitor reports about a range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Claim {
    /// The process.
    pub pid: u32,
    /// The range. The part of it that is not mapped is ignored.
    pub range: AddrRange,
    /// The share of its pages that is reported hot: 1 for all hot, 0 for none.
    pub hot: f64,
}

impl Host {
    /// The true heat at `now` (ns).
    pub fn truth(&self, scope: Scope<'_>, now: Ns) -> Truth {
        let mut truth = Truth::default();
        for view in self.views().filter(|v| scope.has(*v)) {
            for part in view.parts(EVERYWHERE, now) {
                for (pages, mixture) in part.stage.pieces_in(part.pages.clone()) {
                    truth.add(pages.end - pages.start, mixture);
                }
            }
        }
        truth
    }

    /// Compares claims with the truth at `now`. A page is hot if it is accessed at least every `hot_ns` on average.
    ///
    /// Claims must not overlap. Ranges without a claim count as reported not hot. Claims about processes out of scope
    /// are ignored.
    pub fn score(&self, scope: Scope<'_>, now: Ns, hot_ns: Ns, claims: impl IntoIterator<Item = Claim>) -> Score {
        let mut score = Score::of(self.truth(scope, now).bytes_within(hot_ns) / PAGE_SIZE as f64);
        for claim in claims {
            let Some(view) = self.view(claim.pid).filter(|v| claim.hot > 0.0 && scope.has(*v)) else { continue };
            for part in view.parts(claim.range, now) {
                for (pages, mixture) in part.stage.pieces_in(part.pages.clone()) {
                    let said = (pages.end - pages.start) as f64;
                    let right = hot_pages(&part, pages, mixture, hot_ns);
                    score.say_hot(claim.hot * said, claim.hot * right);
                }
            }
        }
        score
    }
}

fn hot_pages(part: &Part<'_>, pages: Range<u64>, mixture: &Mixture, hot_ns: Ns) -> f64 {
    let count = pages.end - pages.start;
    if matches!(mixture, Mixture::Two { .. }) && count <= PAGES_PER_PMD as u64 {
        let is_hot = |page: &u64| mixture.rhythm_of(part.key_of(*page)).interval().is_some_and(|i| i <= hot_ns);
        return pages.filter(is_hot).count() as f64;
    }
    let hot_shares = mixture.shares().filter(|(rhythm, _)| rhythm.interval().is_some_and(|i| i <= hot_ns));
    count as f64 * hot_shares.map(|(_, share)| share).sum::<f64>()
}
