//! Serves a list of hints until none is left, for commands that act once.
//!
//! The worker decides when and whether; this waits, shows progress, and gives up when nothing has moved for a while ([`Patience`], which
//! `collapse` has, too).

use crate::output;
use crate::watch::Stop;
use isotherm_heat::Ns;
use isotherm_schemes::machine::Machine;
use isotherm_schemes::pass::MAX_HINTS;
use isotherm_schemes::{Hint, HintQueue, Outcome, RetryScheduler, Step, Wait, Worker};
use isotherm_sys::clock;
use std::time::Duration;

const PATIENCE_NS: u64 = 10_000_000_000;
/// While a budget fills: that ends for certain, and takes long after an action that took long, such as one for which pages come back from a slow
/// disk.
const PATIENCE_FOR_BUDGETS_NS: u64 = 300_000_000_000;
const TICK: Duration = Duration::from_millis(100);

/// For how long nothing may be done before nothing is waited for any more.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// While it is the machine that is waited for.
    limit_ns: Ns,
    last: Ns,
    /// Waited for the machine, and for a budget, since something was done.
    waited_ns: [Ns; 2],
}

impl Patience {
    /// Begins at `now`, and lasts for `limit_ns` where no budget is waited for.
    pub fn new(now: Ns, limit_ns: Ns) -> Patience {
        Patience { limit_ns, last: now, waited_ns: [0; 2] }
    }

    /// Something was done at `now`.
    pub fn moved(&mut self, now: Ns) {
        *self = Patience::new(now, self.limit_ns);
    }

    /// Notes that something was waited for up to `now`. Returns for how long it was, once that was too long.
    pub fn waited(&mut self, now: Ns, for_budget: bool) -> Option<Ns> {
        let waited = &mut self.waited_ns[usize::from(for_budget)];
        *waited += now.saturating_sub(self.last);
        self.last = now;
        let limit_ns = if for_budget { PATIENCE_FOR_BUDGETS_NS } else { self.limit_ns };
        (*waited > limit_ns).then_some(limit_ns)
    }
}

/// What became of a hint.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    pub hint: Hint,
    pub outcome: Outcome,
}

/// What became of a list of hints.
#[derive(Debug, Default)]
pub struct Answered {
    pub answers: Vec<Answer>,
    /// Hints that were not handled, and what the last of them waited for.
    pub unserved: usize,
    pub waited_for: Option<Wait>,
}

/// Serves `hints`, in the order of their levels. Their processes have to be admitted.
pub fn serve<M: Machine>(worker: &mut Worker<M>, hints: Vec<Hint>, doing: &'static str, stop: &Stop) -> Answered {
    let (mut queue, mut retry) = (HintQueue::new(MAX_HINTS), RetryScheduler::new(MAX_HINTS));
    let bar = output::progress(None, doing);
    let mut served = Answered::default();
    hints.into_iter().for_each(|hint| _ = queue.add(hint));
    let (mut patience, mut waits_for_budget) = (Patience::new(clock::monotonic_ns(), PATIENCE_NS), false);
    while !stop.is_set() {
        let now = clock::monotonic_ns();
        if patience.waited(now, waits_for_budget || retry.deferred_for(&Wait::OF_BUDGETS) > 0).is_some() {
            break;
        }
        waits_for_budget = false;
        let until = match retry.step(now, &mut queue, worker) {
            Step::Did(hint, outcome) => {
                patience.moved(clock::monotonic_ns());
                bar.set_message(format!("{doing}: {} left", queue.len() + retry.deferred()));
                served.answers.push(Answer { hint, outcome });
                continue;
            }
            Step::Deferred(_, why) => {
                served.waited_for = Some(why);
                continue;
            }
            Step::Wait(until, why) => {
                served.waited_for = Some(why);
                waits_for_budget = Wait::OF_BUDGETS.contains(&why);
                until
            }
            Step::Idle(Some(until)) => until,
            Step::Idle(None) => break,
        };
        std::thread::sleep(Duration::from_nanos(until.saturating_sub(now)).min(TICK));
    }
    bar.finish_and_clear();
    served.unserved = queue.len() + retry.deferred();
    served
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Ns = 1_000_000_000;

    #[test]
    fn time_for_the_machine_and_for_budgets_is_counted_apart_until_something_is_done() {
        let mut patience = Patience::new(0, 10 * S);
        assert_eq!(patience.waited(100 * S, true), None);
        assert_eq!(patience.waited(110 * S, false), None, "ten seconds, and no more");
        assert_eq!(patience.waited(120 * S, true), None);
        assert_eq!(patience.waited(121 * S, false), Some(10 * S));
        patience.moved(130 * S);
        assert_eq!(patience.waited(140 * S, false), None);
        assert_eq!(patience.waited(441 * S, true), Some(300 * S));
    }
}
