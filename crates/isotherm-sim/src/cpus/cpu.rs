//! The state of one CPU's periodic drain, and which CPUs are online.

use super::options::{DrainModel, Placing, Plug};
use isotherm_frames::housekeep::CpuPosition;

/// What a CPU is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Doing {
    /// Nothing, and no run is due.
    Nothing,
    /// Its next run is due in the future, or is due and has not started yet.
    Due,
    /// Holds the lock or waits for it.
    Draining,
    /// Found the lock taken, and retries later.
    Deferred,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Cpu {
    pub(super) node: u32,
    pub(super) online: bool,
    pub(super) doing: Doing,
    /// Events of earlier epochs are ignored.
    pub(super) epoch: u32,
    /// When its run is, or was, due.
    pub(super) due_ns: u64,
    /// Whether a kick set that time.
    pub(super) kicked: bool,
    /// The CPU's own due time that a kick replaced.
    pub(super) skipped_ns: Option<u64>,
    /// Due time and start of the last run; `None` if a kick set its due time.
    pub(super) last: Option<(u64, u64)>,
    /// Chunks still to drain.
    pub(super) left: u32,
    /// How often this run was deferred.
    pub(super) deferred: u32,
    /// Whether its chunks are drained by the code that takes it offline.
    pub(super) draining_offline: bool,
}

impl Cpu {
    const fn new(node: u32) -> Cpu {
        Cpu {
            node,
            online: true,
            doing: Doing::Nothing,
            epoch: 0,
            due_ns: 0,
            kicked: false,
            skipped_ns: None,
            last: None,
            left: 0,
            deferred: 0,
            draining_offline: false,
        }
    }
}

/// All CPUs.
#[derive(Debug)]
pub(super) struct Cpus {
    pub(super) all: Vec<Cpu>,
    positions: Vec<CpuPosition>,
    /// Numbers of the online CPUs.
    online: Vec<u32>,
    by_rank: bool,
}

impl Cpus {
    /// The CPUs as they are at the start.
    pub(super) fn new(model: &DrainModel) -> Cpus {
        let mut all: Vec<Cpu> = (0..model.cpus).map(|cpu| Cpu::new(model.node_of(cpu))).collect();
        for Plug { cpu, online, .. } in model.hotplug.iter().filter(|plug| plug.at_ns == 0) {
            all[*cpu as usize].online = *online;
        }
        let positions = vec![CpuPosition::of_one_node(0, 0); all.len()];
        let online = Vec::with_capacity(all.len());
        let mut cpus = Cpus { all, positions, online, by_rank: model.placing == Placing::Ranks };
        cpus.position();
        cpus
    }

    /// Recomputes the seat of every CPU. Call it after a CPU goes offline or comes online.
    pub(super) fn position(&mut self) {
        self.online.clear();
        let mut start = 0;
        for node in self.all.chunk_by(|a, b| a.node == b.node) {
            let cpus = node.iter().filter(|cpu| cpu.online).count();
            let mut rank = 0;
            for (at, state) in node.iter().enumerate() {
                let place = if self.by_rank { rank } else { number(at) };
                let cpu = number(start + at);
                self.positions[start + at] = CpuPosition { cpu, place, cpus: number(cpus) };
                if state.online {
                    rank += 1;
                    self.online.push(cpu);
                }
            }
            start += node.len();
        }
    }

    pub(super) fn position_of(&self, cpu: u32) -> CpuPosition {
        self.positions[cpu as usize]
    }

    pub(super) fn online(&self) -> &[u32] {
        &self.online
    }

    pub(super) fn at(&mut self, cpu: u32) -> &mut Cpu {
        &mut self.all[cpu as usize]
    }
}

/// Converts a number of CPUs, which is at most [`MAX_CPUS`](super::MAX_CPUS).
fn number(of: usize) -> u32 {
    u32::try_from(of).unwrap_or(u32::MAX)
}
