//! Processes the events one after another.
//!
//! Events at the same instant are ordered by [`What`], then by CPU number. So a run does not depend on the order in
//! which events were created. Nothing is allocated during the run, except if the queue outgrows its initial size.

use super::cpu::{Cpus, Doing};
use super::error::DrainModelError;
use super::holds::Holds;
use super::lock::Lock;
use super::options::{Begin, DrainModel};
use super::outcome::{Extent, Outcome};
use super::random::{Chance, happens};
use isotherm_frames::housekeep::Schedule;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum What {
    /// A CPU goes offline or comes online: the index in the list of hotplug events.
    Plug(usize),
    /// A CPU has finished a chunk, or retries one.
    Chunk(u32),
    /// A foreground burst on a CPU, with the number of chunks left.
    Burst { cpu: u32, left: u32 },
    /// The next foreground burst begins.
    Foreground,
    /// The shepherd checks all CPUs.
    Shepherd,
    /// A run starts.
    Start(u32),
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Event {
    at_ns: u64,
    what: What,
    /// The epoch of the CPU, for `Chunk` and `Start`.
    epoch: u32,
}

struct Machine<'a> {
    model: &'a DrainModel,
    schedule: &'a dyn Schedule,
    holds: &'a Holds,
    chance: Chance,
    cpus: Cpus,
    locks: Vec<Lock>,
    events: BinaryHeap<Reverse<Event>>,
    outcome: Outcome,
}

impl DrainModel {
    /// Runs it under a schedule. The same arguments give the same outcome.
    ///
    /// Takes about 70 ns for each acquisition and each run, so short intervals take longer.
    pub fn run(&self, schedule: &dyn Schedule, holds: &Holds, seed: u64) -> Result<Outcome, DrainModelError> {
        self.check()?;
        let mut machine = Machine {
            model: self,
            schedule,
            holds,
            chance: Chance::new(seed),
            cpus: Cpus::new(self),
            locks: vec![Lock::default(); self.nodes as usize],
            events: BinaryHeap::with_capacity(2 * self.cpus as usize + self.hotplug.len() + 8),
            outcome: Outcome { hold_ns: holds.median_ns(), ..Outcome::default() },
        };
        machine.begin();
        while let Some(Reverse(event)) = machine.events.pop() {
            machine.happen(event);
        }
        Ok(machine.outcome)
    }
}

impl Machine<'_> {
    fn begin(&mut self) {
        for (at, plug) in self.model.hotplug.iter().enumerate().filter(|(_, plug)| plug.at_ns > 0) {
            self.push(plug.at_ns, What::Plug(at), 0);
        }
        if let Some(shepherd) = self.model.shepherd {
            self.push(shepherd.phase_ns % self.model.interval.ns(), What::Shepherd, 0);
        }
        self.next_foreground(0);
        for cpu in 0..self.model.cpus {
            if self.cpus.at(cpu).online {
                match self.model.begin {
                    Begin::Scheduled => self.plan(cpu, 0),
                    Begin::AtOnce => self.due(cpu, 0),
                }
            }
        }
    }

    fn push(&mut self, at_ns: u64, what: What, epoch: u32) {
        self.events.push(Reverse(Event { at_ns, what, epoch }));
    }

    fn happen(&mut self, Event { at_ns, what, epoch }: Event) {
        match what {
            What::Plug(at) => self.plug(at),
            What::Burst { cpu, left } => self.burst(cpu, left, at_ns),
            What::Foreground => self.foreground(at_ns),
            What::Shepherd => self.shepherd(at_ns),
            What::Chunk(cpu) | What::Start(cpu) if self.cpus.at(cpu).epoch != epoch => {}
            What::Chunk(cpu) => self.go_on(cpu, at_ns),
            What::Start(cpu) => self.start(cpu, at_ns),
        }
    }

    /// Asks the schedule for a CPU's next due time after `now_ns`.
    fn plan(&mut self, cpu: u32, now_ns: u64) {
        let due_ns = self.schedule.next_due(self.cpus.position_of(cpu), self.model.interval, now_ns);
        self.due(cpu, due_ns);
    }

    /// Makes a CPU's run due at `due_ns`. It never starts if the simulation is over by then.
    fn due(&mut self, cpu: u32, due_ns: u64) {
        let state = self.cpus.at(cpu);
        state.doing = Doing::Due;
        state.due_ns = due_ns;
        state.kicked = false;
        self.await_start(cpu);
    }

    fn await_start(&mut self, cpu: u32) {
        let state = self.cpus.at(cpu);
        let (due_ns, epoch) = (state.due_ns, state.epoch);
        if due_ns <= self.model.duration_ns {
            let start_ns = due_ns.saturating_add(self.chance.latency_ns(&self.model.latency));
            self.push(start_ns, What::Start(cpu), epoch);
        }
    }

    fn start(&mut self, cpu: u32, now_ns: u64) {
        self.outcome.runs += 1;
        let state = self.cpus.at(cpu);
        if state.kicked {
            state.last = None;
            self.outcome.kicked_runs += 1;
        } else {
            let last = state.last.replace((state.due_ns, now_ns));
            let due_ns = state.due_ns;
            if let Some((last_due_ns, last_start_ns)) = last {
                Extent::widen(&mut self.outcome.due_intervals, due_ns - last_due_ns);
                Extent::widen(&mut self.outcome.start_intervals, now_ns - last_start_ns);
            }
        }
        let chunks = self.chance.chunks(&self.model.work);
        self.outcome.chunks_found += u64::from(chunks);
        self.cpus.at(cpu).left = chunks;
        self.go_on(cpu, now_ns);
    }

    /// Starts the next chunk, or ends the run.
    fn go_on(&mut self, cpu: u32, now_ns: u64) {
        let state = self.cpus.at(cpu);
        if state.left == 0 {
            return self.finish(cpu, now_ns);
        }
        let (node, epoch) = (state.node as usize, state.epoch);
        if let Some(deferral) = self.model.deferral
            && self.locks[node].is_taken(now_ns)
            && state.deferred < deferral.most
            && !state.draining_offline
        {
            state.deferred += 1;
            state.doing = Doing::Deferred;
            self.outcome.defers += 1;
            let back_ns = deferral.back_off_ns.saturating_add(self.chance.latency_ns(&self.model.latency));
            return self.push(now_ns.saturating_add(back_ns), What::Chunk(cpu), epoch);
        }
        state.left -= 1;
        state.doing = Doing::Draining;
        self.outcome.chunks_drained += 1;
        self.outcome.chunks_left_behind += u64::from(state.draining_offline);
        let hold_ns = self.holds.draw(&mut self.chance.holds);
        let wait_ns = self.locks[node].acquire(now_ns, hold_ns);
        self.outcome.housekeeping.add(wait_ns);
        self.push(now_ns + wait_ns + hold_ns, What::Chunk(cpu), epoch);
    }

    fn finish(&mut self, cpu: u32, now_ns: u64) {
        let state = self.cpus.at(cpu);
        state.doing = Doing::Nothing;
        state.draining_offline = false;
        state.deferred = 0;
        let skipped_ns = state.skipped_ns.take().unwrap_or(0);
        if state.online {
            self.plan(cpu, now_ns.max(skipped_ns));
        }
    }

    fn shepherd(&mut self, now_ns: u64) {
        let Some(shepherd) = self.model.shepherd else { return };
        for cpu in 0..self.model.cpus {
            // Drawn for all CPUs, so that the kicks do not depend on which CPUs are busy.
            let kicked = happens(&mut self.chance.kicks, shepherd.share);
            let state = self.cpus.at(cpu);
            if kicked && state.online && state.doing == Doing::Due && state.due_ns > now_ns {
                self.kick(cpu, now_ns);
            }
        }
        let next_ns = now_ns.saturating_add(self.model.interval.ns());
        if next_ns < self.model.duration_ns {
            self.push(next_ns, What::Shepherd, 0);
        }
    }

    fn kick(&mut self, cpu: u32, now_ns: u64) {
        self.outcome.kicks += 1;
        let due_ns = self.schedule.kicked_due(self.cpus.position_of(cpu), self.model.interval, now_ns);
        let state = self.cpus.at(cpu);
        if due_ns == state.due_ns {
            return;
        }
        state.epoch += 1;
        // If a CPU is kicked twice, the first kick has recorded its own due time.
        state.skipped_ns = state.skipped_ns.or(Some(state.due_ns));
        state.due_ns = due_ns;
        state.kicked = true;
        self.await_start(cpu);
    }

    fn plug(&mut self, at: usize) {
        let plug = self.model.hotplug[at];
        let state = self.cpus.at(plug.cpu);
        if state.online == plug.online {
            return;
        }
        state.online = plug.online;
        if plug.online {
            state.last = None;
        } else {
            self.leave(plug.cpu, plug.at_ns);
        }
        self.cpus.position();
        if plug.online && self.cpus.at(plug.cpu).doing == Doing::Nothing {
            self.plan(plug.cpu, plug.at_ns);
        }
    }

    /// A CPU goes offline: the code that takes it offline drains its remaining chunks.
    fn leave(&mut self, cpu: u32, now_ns: u64) {
        let state = self.cpus.at(cpu);
        state.last = None;
        state.skipped_ns = None;
        match state.doing {
            Doing::Nothing => {}
            Doing::Due => {
                state.epoch += 1;
                state.doing = Doing::Nothing;
            }
            Doing::Draining => state.draining_offline = true,
            Doing::Deferred => {
                state.draining_offline = true;
                state.epoch += 1;
                let epoch = state.epoch;
                self.push(now_ns, What::Chunk(cpu), epoch);
            }
        }
    }

    fn next_foreground(&mut self, now_ns: u64) {
        let online = self.cpus.online().len();
        let Some(pause_ns) = self.chance.pause_ns(&self.model.foreground, online) else { return };
        let at_ns = now_ns.saturating_add(pause_ns);
        if at_ns < self.model.duration_ns {
            self.push(at_ns, What::Foreground, 0);
        }
    }

    fn foreground(&mut self, now_ns: u64) {
        let at = self.chance.foreground.below(self.cpus.online().len() as u64);
        let cpu = usize::try_from(at).ok().and_then(|at| self.cpus.online().get(at).copied());
        if let Some(cpu) = cpu {
            self.burst(cpu, self.model.foreground.burst, now_ns);
        }
        self.next_foreground(now_ns);
    }

    fn burst(&mut self, cpu: u32, left: u32, now_ns: u64) {
        let Some(left) = left.checked_sub(1) else { return };
        let node = self.cpus.at(cpu).node as usize;
        let hold_ns = self.holds.draw(&mut self.chance.holds);
        let wait_ns = self.locks[node].acquire(now_ns, hold_ns);
        self.outcome.foreground.add(wait_ns);
        if left > 0 {
            self.push(now_ns + wait_ns + hold_ns, What::Burst { cpu, left }, 0);
        }
    }
}
