//! Serves a list of hints until none is left, for commands that act once.
//!
//! The worker decides when and whether; this waits, shows progress, and gives up when nothing has moved for a while.

use crate::output;
use crate::watch::Stop;
use isotherm_schemes::machine::Machine;
use isotherm_schemes::pass::MAX_HINTS;
use isotherm_schemes::{Hint, HintQueue, Outcome, RetryScheduler, Step, Wait, Worker};
use isotherm_sys::clock;
use std::time::Duration;

/// Ends if nothing could be done for so long.
const PATIENCE_NS: u64 = 10_000_000_000;
/// The same while a budget fills: that ends for certain, and takes long after an action that took long, such as one for which pages come back from a
/// slow disk.
const PATIENCE_FOR_BUDGETS_NS: u64 = 300_000_000_000;
const TICK: Duration = Duration::from_millis(100);

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
    let (mut moved_at, mut waits_for_budget) = (clock::monotonic_ns(), false);
    while !stop.is_set() {
        let now = clock::monotonic_ns();
        if now.saturating_sub(moved_at) > patience_ns(waits_for_budget || retry.deferred_for(&Wait::OF_BUDGETS) > 0) {
            break;
        }
        waits_for_budget = false;
        let until = match retry.step(now, &mut queue, worker) {
            Step::Did(hint, outcome) => {
                moved_at = clock::monotonic_ns();
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

/// For how long nothing may be done.
fn patience_ns(waits_for_budget: bool) -> u64 {
    if waits_for_budget { PATIENCE_FOR_BUDGETS_NS } else { PATIENCE_NS }
}
