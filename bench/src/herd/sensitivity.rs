//! The comparison under other assumptions: one change at a time, on 72 CPUs.

use super::rows::{KERNEL, deferring, kicked};
use super::table::PROPOSAL_CPUS;
use anyhow::Result;
use isotherm_bench::Log;
use isotherm_frames::housekeep::schedule::Skewed;
use isotherm_frames::housekeep::{Schedule, Spread};
use isotherm_sim::cpus::{DrainModel, Foreground, Holds, Latency, Rate, Work};
use std::ops::Range;

/// A changed assumption.
struct Case {
    name: &'static str,
    kernel: Skewed,
    change: fn(DrainModel) -> DrainModel,
}

fn cases() -> Vec<Case> {
    let case = |name, change| Case { name, kernel: KERNEL, change };
    vec![
        case("as assumed", |model| model),
        case("foreground: 20 a second", |model| foreground(model, 20.0, 1)),
        case("foreground: 2,000 a second", |model| foreground(model, 2_000.0, 1)),
        case("foreground: in bursts of 8 chunks", |model| foreground(model, 200.0, 8)),
        case("every run drains", |model| DrainModel { work: Work { share: 1.0, ..model.work }, ..model }),
        case("1 to 32 chunks a run", |model| DrainModel { work: Work { most: 32, ..model.work }, ..model }),
        case("latency: mean 10 us", |model| latency(model, 10_000)),
        case("latency: mean 1 ms", |model| latency(model, 1_000_000)),
        case("two nodes", |model| DrainModel { nodes: 2, ..model }),
        Case { name: "kernel at 250 Hz", kernel: Skewed { hz: 250 }, change: |model| model },
    ]
}

fn foreground(model: DrainModel, a_second: f64, burst: u32) -> DrainModel {
    DrainModel { foreground: Foreground { rate: Rate::Machine(a_second), burst }, ..model }
}

fn latency(model: DrainModel, mean_ns: u64) -> DrainModel {
    DrainModel { latency: Latency { mean_ns, ..model.latency }, ..model }
}

/// Contended, total wait in ms, longest wait in holds: means over the seeds.
fn means(model: &DrainModel, schedule: &dyn Schedule, holds: &Holds, seeds: Range<u64>) -> Result<[f64; 3]> {
    let runs = seeds.clone().count() as f64;
    let mut sums = [0.0; 3];
    for seed in seeds {
        let outcome = model.run(schedule, holds, seed)?;
        let all = outcome.all();
        let figures = [all.contended as f64, all.wait_ns as f64 / 1e6, outcome.max_wait_holds()];
        sums.iter_mut().zip(figures).for_each(|(sum, figure)| *sum += figure);
    }
    Ok(sums.map(|sum| sum / runs))
}

/// The kernel with 20% kicked, ours, and only the foreground, in each case.
pub fn print(log: &mut Log, holds: &Holds, seeds: &Range<u64>) -> Result<()> {
    log.line(format!(
        "\nother assumptions: {PROPOSAL_CPUS} CPUs, measured holds, 20% kicked; means of waited, total ms, max in holds"
    ));
    log.line(format!(
        "{:<34} {:<24} {:<24} {:>6}   {:>6} {:>6}",
        "", "kernel today", "ours", "floor", "times", "times"
    ));
    for case in cases() {
        let kicked = (case.change)(kicked(PROPOSAL_CPUS, 0.2));
        let floor = DrainModel { work: Work::NONE, ..kicked.clone() };
        let kernel = means(&kicked, &case.kernel, holds, seeds.clone())?;
        let ours = means(&deferring(kicked), &Spread, holds, seeds.clone())?;
        let [floor, ..] = means(&floor, &Spread, holds, seeds.clone())?;
        let text = |[contended, total, holds]: [f64; 3]| format!("{contended:>7.1} {total:>9.3} {holds:>6.1}");
        log.line(format!(
            "{:<34} {} {} {floor:>6.1}   {:>6.1} {:>6.1}",
            case.name,
            text(kernel),
            text(ours),
            kernel[0] / ours[0],
            kernel[1] / ours[1]
        ));
    }
    Ok(())
}
