//! The machines and schedules that are compared.

use isotherm_frames::housekeep::schedule::{Aligned, Even, Proposed, Skewed};
use isotherm_frames::housekeep::{CpuPosition, Interval, Schedule, Spread};
use isotherm_sim::cpus::{Begin, Deferral, DrainModel, Placing, Plug, Shepherd, Work};

/// The kind of row. The figures of RESULT come from some of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Which {
    /// Only the foreground.
    Floor,
    /// The current kernel with a fifth of CPUs kicked.
    Kernel20,
    /// The same with half of them.
    Kernel50,
    /// As in `isotherm-frames`: phases, a shepherd that keeps to phases, deferral; a fifth of CPUs kicked.
    Ours,
    /// The same with half of them.
    Ours50,
    /// As `Ours` with odd CPUs offline.
    OursOddOffline,
    /// Shown in the table only.
    Other,
}

/// A row of the table.
#[derive(Debug)]
pub struct Row {
    pub which: Which,
    pub name: &'static str,
    pub schedule: &'static dyn Schedule,
    pub model: DrainModel,
}

/// Ours, except that the shepherd kicks at once.
#[derive(Debug)]
struct SpreadKickedAtOnce;

impl Schedule for SpreadKickedAtOnce {
    fn next_due(&self, position: CpuPosition, interval: Interval, now_ns: u64) -> u64 {
        Spread.next_due(position, interval, now_ns)
    }
}

/// The current kernel's schedule, at 1000 Hz.
pub const KERNEL: Skewed = Skewed { hz: 1000 };

/// The same, started by the kernel's timer wheel. The wheel moves a timer that is due in 63 ticks or more to a multiple
/// of 8 ticks, and one due in 504 or more to a multiple of 64, never earlier (`kernel/time/timer.c`). CPUs that the
/// schedule puts three ticks apart then start together, 21 or 22 at a time.
#[derive(Debug)]
struct OnTheWheel(Skewed);

impl Schedule for OnTheWheel {
    fn next_due(&self, position: CpuPosition, interval: Interval, now_ns: u64) -> u64 {
        let tick_ns = 1_000_000_000 / u64::from(self.0.hz);
        let due = self.0.next_due(position, interval, now_ns) / tick_ns;
        let shift = match due - now_ns / tick_ns {
            0..63 => 0,
            63..504 => 3,
            504..4032 => 6,
            _ => 9,
        };
        (((due >> shift) + 1) << shift) * tick_ns
    }
}

const WHEEL: OnTheWheel = OnTheWheel(KERNEL);

/// `cpus` CPUs, of which a share is kicked.
pub fn kicked(cpus: u32, share: f64) -> DrainModel {
    DrainModel { shepherd: Some(Shepherd::kicking(share)), ..DrainModel::new(cpus) }
}

/// The same, with drains that are deferred if the lock is taken.
pub fn deferring(model: DrainModel) -> DrainModel {
    DrainModel { deferral: Some(Deferral::default()), ..model }
}

/// All rows, on this many CPUs.
pub fn all(cpus: u32) -> Vec<Row> {
    use Which::{Floor, Kernel20, Kernel50, Other, Ours, Ours50, OursOddOffline};
    let plain = || DrainModel::new(cpus);
    let kicked = |share| kicked(cpus, share);
    let odd_offline = |model: DrainModel| DrainModel { hotplug: Plug::stride(0, 1, 2, cpus, false).collect(), ..model };
    let at_once = |model: DrainModel| DrainModel { begin: Begin::AtOnce, ..model };
    let by_rank = |model: DrainModel| DrainModel { placing: Placing::Ranks, ..model };
    let floor = DrainModel { work: Work::NONE, ..plain() };
    let row = |which, name, schedule: &'static dyn Schedule, model| Row { which, name, schedule, model };
    vec![
        row(Other, "aligned", &Aligned, plain()),
        row(Other, "kernel today, no kicks", &KERNEL, plain()),
        row(Kernel20, "kernel today, 20% kicked", &KERNEL, kicked(0.2)),
        row(Kernel50, "kernel today, 50% kicked", &KERNEL, kicked(0.5)),
        row(Other, "kernel, timer wheel, no kicks", &WHEEL, plain()),
        row(Other, "kernel, timer wheel, 20%", &WHEEL, kicked(0.2)),
        row(Other, "proposal v1", &Proposed, plain()),
        row(Other, "proposal v1, from a boot", &Proposed, at_once(plain())),
        row(Other, "even by rank", &Even, by_rank(plain())),
        row(Other, "even by number, odd offline", &Even, odd_offline(plain())),
        row(Other, "spread", &Spread, plain()),
        row(Other, "spread, 50% kicked at once", &SpreadKickedAtOnce, kicked(0.5)),
        row(Other, "spread, 50% kicked at phase", &Spread, kicked(0.5)),
        row(Other, "spread, odd offline", &Spread, odd_offline(plain())),
        row(Other, "aligned + deferral", &Aligned, deferring(plain())),
        row(Ours, "ours: spread + deferral, 20%", &Spread, deferring(kicked(0.2))),
        row(Ours50, "ours, 50% kicked", &Spread, deferring(kicked(0.5))),
        row(OursOddOffline, "ours, odd offline", &Spread, deferring(odd_offline(kicked(0.2)))),
        row(Floor, "foreground alone (floor)", &Spread, floor),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wheel_starts_neighbours_together() {
        let due_ms = |cpu: u32, now_ms: u64| {
            let position = CpuPosition::of_one_node(cpu, 72);
            WHEEL.next_due(position, Interval::SECOND, now_ms * 1_000_000) / 1_000_000
        };
        // Due at 1000, 997 and so on, kept at the next multiple of 64: 1024 down to 960, then the one before.
        assert_eq!([0, 1, 13, 14, 34, 35].map(|cpu| due_ms(cpu, 0)), [1024, 1024, 1024, 960, 960, 896]);
        // Rounding down is to at most a quarter less than a second from now: still 64.
        assert_eq!(due_ms(0, 1024), 2048);
    }

    #[test]
    fn each_kind_of_row_is_there_once() {
        let rows = all(72);
        for which in [Which::Floor, Which::Kernel20, Which::Kernel50, Which::Ours, Which::Ours50, Which::OursOddOffline]
        {
            assert_eq!(rows.iter().filter(|row| row.which == which).count(), 1, "{which:?}");
        }
    }
}
