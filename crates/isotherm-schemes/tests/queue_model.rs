//! The queue does what a model does that is too slow to be wrong.

use isotherm_heat::{Ns, TargetId};
use isotherm_schemes::ActionId;
use isotherm_schemes::queue::*;
use isotherm_units::PmdNo;
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::VecDeque;

/// The rules, word by word. A level is its ring: the process to serve next first, each with its hints in order.
#[derive(Clone)]
struct Model {
    levels: Vec<VecDeque<(TargetId, Vec<Hint>)>>,
    capacity: usize,
}

impl Model {
    fn new(capacity: usize) -> Model {
        Model { levels: vec![VecDeque::new(); LEVELS], capacity: capacity.max(1) }
    }

    fn hints(&self) -> impl Iterator<Item = &Hint> {
        self.levels.iter().flatten().flat_map(|(_, hints)| hints)
    }

    fn find(&self, process: TargetId, pmd: PmdNo) -> Option<Hint> {
        self.hints().find(|hint| (hint.process, hint.pmd) == (process, pmd)).copied()
    }

    fn drop_where(&mut self, goes: impl Fn(&Hint) -> bool) {
        for level in &mut self.levels {
            level.iter_mut().for_each(|(_, hints)| hints.retain(|hint| !goes(hint)));
            level.retain(|(_, hints)| !hints.is_empty());
        }
    }

    fn push(&mut self, hint: Hint) {
        let level = &mut self.levels[usize::from(hint.level.get())];
        match level.iter_mut().find(|(process, _)| *process == hint.process) {
            Some((_, hints)) => hints.push(hint),
            None => level.push_back((hint.process, vec![hint])),
        }
    }

    fn add(&mut self, hint: Hint) -> Added {
        if let Some(known) = self.find(hint.process, hint.pmd) {
            if hint.level <= known.level {
                return Added::Known;
            }
            let _ = self.remove(hint.process, hint.pmd);
            self.push(Hint { since: known.since, ..hint });
            return Added::Raised;
        }
        if self.hints().count() < self.capacity {
            self.push(hint);
            return Added::New;
        }
        // A full queue has a last hint, and nothing in it is colder.
        let last = *self.in_order().last().unwrap();
        if hint.level <= last.level {
            return Added::Refused;
        }
        let _ = self.remove(last.process, last.pmd);
        self.push(hint);
        Added::NewInsteadOf(last)
    }

    fn take(&mut self) -> Option<Hint> {
        let level = self.levels.iter_mut().rev().find(|level| !level.is_empty())?;
        let (process, mut hints) = level.pop_front()?;
        let hint = hints.remove(0);
        if !hints.is_empty() {
            level.push_back((process, hints));
        }
        Some(hint)
    }

    fn remove(&mut self, process: TargetId, pmd: PmdNo) -> Option<Hint> {
        let found = self.find(process, pmd)?;
        self.drop_where(|hint| *hint == found);
        Some(found)
    }

    fn forget(&mut self, process: TargetId) -> usize {
        let count = self.len_of(process);
        self.drop_where(|hint| hint.process == process);
        count
    }

    fn len_of(&self, process: TargetId) -> usize {
        self.hints().filter(|hint| hint.process == process).count()
    }

    fn in_order(&self) -> Vec<Hint> {
        let mut drained = self.clone();
        std::iter::from_fn(|| drained.take()).collect()
    }
}

#[derive(Clone, Debug)]
enum Call {
    Add(TargetId, PmdNo, Level, Origin),
    Take,
    Remove(TargetId, PmdNo),
    Forget(TargetId),
}

/// Five processes, two of which share a pid.
fn processes() -> impl Strategy<Value = TargetId> {
    (0..5_u32).prop_map(|number| TargetId { pid: number.min(3), start_ticks: u64::from(number) })
}

fn pmds() -> impl Strategy<Value = PmdNo> {
    (0..8_u64).prop_map(PmdNo)
}

fn calls() -> impl Strategy<Value = Call> {
    let levels = prop_oneof![Just(0), Just(1), Just(2), Just(31), Just(200)].prop_map(Level::new);
    let origins =
        prop_oneof![Just(Origin::Heat), Just(Origin::Mglru), Just(Origin::External), Just(Origin::RoundRobin)];
    prop_oneof![
        12 => (processes(), pmds(), levels, origins).prop_map(|(p, b, l, o)| Call::Add(p, b, l, o)),
        5 => Just(Call::Take),
        3 => (processes(), pmds()).prop_map(|(p, b)| Call::Remove(p, b)),
        1 => processes().prop_map(Call::Forget),
    ]
}

/// Makes one call on both, and compares what they say.
fn call_both(queue: &mut HintQueue, model: &mut Model, call: &Call, now: Ns) -> Result<(), TestCaseError> {
    match *call {
        Call::Add(process, pmd, level, origin) => {
            let action = ActionId(u8::from(now.is_multiple_of(3)));
            let hint = Hint { process, pmd, action, level, origin, since: now };
            prop_assert_eq!(queue.add(hint), model.add(hint));
        }
        Call::Take => prop_assert_eq!(queue.take(), model.take()),
        Call::Remove(process, pmd) => {
            prop_assert_eq!(queue.contains(process, pmd), model.find(process, pmd).map(|hint| hint.level));
            prop_assert_eq!(queue.remove(process, pmd), model.remove(process, pmd));
        }
        Call::Forget(process) => {
            prop_assert_eq!(queue.len_of(process), model.len_of(process));
            prop_assert_eq!(queue.forget(process), model.forget(process));
        }
    }
    Ok(())
}

/// Hints queued, as the counters have it: over all origins, since a raised hint changes hands.
fn queued(counters: Counters) -> u64 {
    let all = [Origin::Heat, Origin::Mglru, Origin::External, Origin::RoundRobin].map(|origin| *counters.of(origin));
    let came: u64 = all.iter().map(|c| c.given - c.raised - c.known - c.refused).sum();
    let went: u64 = all.iter().map(|c| c.evicted + c.taken + c.removed).sum();
    came - went
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn the_queue_does_what_the_model_does(capacity in 0..24_usize, calls in vec(calls(), 0..200)) {
        let mut queue = HintQueue::new(capacity);
        let mut model = Model::new(capacity);
        for (now, call) in calls.iter().enumerate() {
            call_both(&mut queue, &mut model, call, now as Ns)?;
            let order = model.in_order();
            prop_assert_eq!(queue.len(), order.len());
            prop_assert_eq!(queue.is_empty(), order.is_empty());
            prop_assert_eq!(queued(queue.counters()), order.len() as u64);
            prop_assert_eq!(queue.snapshot(), order);
        }
        let mut drained = queue.clone();
        prop_assert_eq!(std::iter::from_fn(|| drained.take()).collect::<Vec<_>>(), queue.snapshot());
        prop_assert_eq!(drained.len(), 0);
    }
}
