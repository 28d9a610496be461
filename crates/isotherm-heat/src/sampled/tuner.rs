//! When the interval of a sampled target changes, and to what: a goal, and what the monitor can afford.
//!
//! The goal alone would make every hot target use up the monitor's CPU budget, and others on the same budget would be
//! checked less often than at the interval that all begin with. So an interval shorter than that is taken only as far as
//! the budget affords it for all targets. Above it only the goal counts.

use crate::Ns;
use crate::tune::{Observed, Tuning};

/// The goal of one target, and the bounds that are not part of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tuner {
    tuning: Option<Tuning>,
    /// The interval to begin with.
    first_ns: Ns,
    /// The shortest interval at which the checks of all targets are within the CPU budget.
    affordable_ns: Ns,
}

impl Tuner {
    /// As long as nothing is known of what can be afforded, the interval does not go below `first_ns`.
    pub fn new(first_ns: Ns, tuning: Option<Tuning>) -> Tuner {
        Tuner { tuning, first_ns, affordable_ns: Ns::MAX }
    }

    pub fn set_affordable(&mut self, affordable_ns: Ns) {
        self.affordable_ns = affordable_ns;
    }

    /// Whether the interval changes after this many aggregations at it.
    pub fn is_due(&self, aggregations: u32) -> bool {
        self.tuning.is_some_and(|tuning| aggregations >= tuning.aggregations)
    }

    /// The next interval, after `observed` at `interval_ns`. As long as nothing is known, nothing is known to be idle, and the
    /// interval stays.
    pub fn next(&self, interval_ns: Ns, observed: Observed) -> Ns {
        match self.tuning {
            Some(Tuning { goal, .. }) if observed.possible > 0 => {
                let min_ns = self.affordable_ns.min(self.first_ns).min(goal.max_interval_ns);
                goal.next_interval(interval_ns, observed).max(min_ns)
            }
            _ => interval_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tune::IntervalGoal;

    const MS: Ns = 1_000_000;

    fn tuner(affordable_ms: Ns) -> Tuner {
        let goal = IntervalGoal { observed_bp: 400, min_interval_ns: 200 * MS, max_interval_ns: 10_000 * MS };
        let mut tuner = Tuner::new(1000 * MS, Some(Tuning { goal, aggregations: 3 }));
        tuner.set_affordable(affordable_ms * MS);
        tuner
    }

    fn next_ms(tuner: &Tuner, interval_ms: Ns, counted: u128) -> Ns {
        tuner.next(interval_ms * MS, Observed { counted, possible: 1000 }) / MS
    }

    #[test]
    fn below_the_first_interval_only_what_is_affordable_is_taken() {
        // All of it is accessed, and 4% are wanted: half as long.
        assert_eq!([1000, 500, 250].map(|ms| next_ms(&tuner(0), ms, 1000)), [500, 250, 200]);
        assert_eq!([1000, 500, 250].map(|ms| next_ms(&tuner(400), ms, 1000)), [500, 400, 400]);
        assert_eq!(next_ms(&tuner(1300), 1000, 1000), 1000, "no longer than it was at first");
        assert_eq!([4000, 1500].map(|ms| next_ms(&tuner(1300), ms, 1000)), [2000, 1000], "above that the goal counts");
        assert_eq!(next_ms(&tuner(5000), 1000, 0), 2000);
        let unknown = Tuner::new(1000 * MS, tuner(0).tuning);
        assert_eq!([1000, 200].map(|ms| next_ms(&unknown, ms, 1000)), [1000; 2], "nothing is known to be affordable");
        // It began with more than the goal allows.
        let outside = Tuner::new(60_000 * MS, tuner(0).tuning);
        assert_eq!([60_000, 10_000].map(|ms| next_ms(&outside, ms, 1000)), [10_000; 2]);
    }

    #[test]
    fn it_changes_after_as_many_aggregations_as_the_goal_names_and_if_anything_is_known() {
        assert_eq!([0, 2, 3, 4].map(|n| tuner(0).is_due(n)), [false, false, true, true]);
        assert!(!Tuner::new(MS, None).is_due(u32::MAX));
        assert_eq!(tuner(0).next(700 * MS, Observed::default()), 700 * MS);
        assert_eq!(Tuner::new(MS, None).next(7 * MS, Observed { counted: 1, possible: 1 }), 7 * MS);
    }
}
