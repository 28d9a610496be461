//! The same machine, nanosecond by nanosecond and with a queue that is a queue.

use super::*;
use std::collections::VecDeque;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Cpu {
    /// Wants so many chunks from then on.
    Away {
        until: u64,
        chunks: u32,
    },
    /// In the queue since then, with so many chunks to go, this one included.
    Waits {
        since: u64,
        chunks: u32,
    },
    /// Has the lock until then, and so many chunks to go after it.
    Holds {
        until: u64,
        chunks: u32,
    },
    Done,
}

/// CPUs that come at given instants for given numbers of chunks, of which each holds the lock for `hold` ns:
/// acquisitions, those that waited, ns waited, and the longest wait.
fn step_by_step(runs: &[(u64, u32)], hold: u64) -> Waits {
    let mut cpus: Vec<Cpu> = runs.iter().map(|&(until, chunks)| Cpu::Away { until, chunks }).collect();
    let (mut queue, mut waits, mut now) = (VecDeque::new(), Waits::default(), 0);
    while cpus.iter().any(|cpu| *cpu != Cpu::Done) {
        // Those who leave, and those who come back for more, before those who are new.
        for (at, cpu) in cpus.iter_mut().enumerate() {
            if let Cpu::Holds { until, chunks } = *cpu
                && until == now
            {
                *cpu = if chunks == 0 { Cpu::Done } else { Cpu::Waits { since: now, chunks } };
                if chunks > 0 {
                    queue.push_back(at);
                }
            }
        }
        for (at, cpu) in cpus.iter_mut().enumerate() {
            if let Cpu::Away { until, chunks } = *cpu
                && until == now
            {
                *cpu = if chunks == 0 { Cpu::Done } else { Cpu::Waits { since: now, chunks } };
                if chunks > 0 {
                    queue.push_back(at);
                }
            }
        }
        if !cpus.iter().any(|cpu| matches!(cpu, Cpu::Holds { .. }))
            && let Some(at) = queue.pop_front()
            && let Cpu::Waits { since, chunks } = cpus[at]
        {
            waits.acquisitions += 1;
            waits.contended += u64::from(now > since);
            waits.wait_ns += now - since;
            waits.max_wait_ns = waits.max_wait_ns.max(now - since);
            cpus[at] = Cpu::Holds { until: now + hold, chunks: chunks - 1 };
        }
        now += 1;
    }
    waits
}

proptest! {
    #[test]
    fn the_simulation_is_the_machine_step_by_step(
        runs in prop::collection::vec(1_u64..300, 1..12),
        chunks in 0_u32..6,
        hold in 1_u32..40,
    ) {
        let naive = step_by_step(&runs.iter().map(|&at| (at, chunks)).collect::<Vec<_>>(), u64::from(hold));
        let cpus = u32::try_from(runs.len()).unwrap();
        let model = exact(cpus, chunks, 1);
        let outcome = model.run(&Phases(runs), &Holds::constant(hold), 1).unwrap();
        prop_assert_eq!(outcome.all(), naive);
    }

    /// Bursts of chunks that differ in number, and holds that differ in length, straight into the lock: the order of
    /// events is then the queue's own.
    #[test]
    fn the_lock_is_a_queue(mut asks in prop::collection::vec((0_u64..400, 1_u64..40), 1..40)) {
        asks.sort_by_key(|ask| ask.0);
        let mut lock = lock::Lock::default();
        let waited: Vec<u64> = asks.iter().map(|&(at, hold)| lock.acquire(at, hold)).collect();
        // Someone is served at each instant at the most, those who came first before the others.
        let (mut queue, mut served, mut free_at) = (VecDeque::new(), Vec::new(), 0);
        let mut coming = asks.iter().peekable();
        let mut now = 0;
        while served.len() < asks.len() {
            while let Some(ask) = coming.next_if(|ask| ask.0 == now) {
                queue.push_back(ask);
            }
            if now >= free_at && let Some((at, hold)) = queue.pop_front() {
                served.push(now - at);
                free_at = now + hold;
            }
            now += 1;
        }
        prop_assert_eq!(waited, served);
    }
}
