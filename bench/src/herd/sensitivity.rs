//! The comparison under other assumptions: one change at a time, on 72 CPUs.

use super::rows::{KERNEL, deferring, kicked};
use super::table::PROPOSAL_CPUS;
use anyhow::Result;
use isotherm_bench::Log;
use isotherm_frames::housekeep::schedule::Skewed;
use isotherm_frames::housekeep::{Schedule, Spread};
use isotherm_sim::cpus::{Foreground, Herd, Holds, Latency, Rate, Work};
use std::ops::Range;

/// A changed assumption.
struct Case {
    name: &'static str,
    kernel: Skewed,
    change: fn(Herd) -> Herd,
}

fn cases() -> Vec<Case> {
    let case = |name, change| Case { name, kernel: KERNEL, change };
    vec![
        case("as assumed", |herd| herd),
        case("foreground: 20 a second", |herd| foreground(herd, 20.0, 1)),
        case("foreground: 2,000 a second", |herd| foreground(herd, 2_000.0, 1)),
        case("foreground: in bursts of 8 chunks", |herd| foreground(herd, 200.0, 8)),
        case("every run drains", |herd| Herd { work: Work { share: 1.0, ..herd.work }, ..herd }),
        case("1 to 32 chunks a run", |herd| Herd { work: Work { most: 32, ..herd.work }, ..herd }),
        case("latency: mean 10 us", |herd| latency(herd, 10_000)),
        case("latency: mean 1 ms", |herd| latency(herd, 1_000_000)),
        case("two nodes", |herd| Herd { nodes: 2, ..herd }),
        Case { name: "kernel at 250 Hz", kernel: Skewed { hz: 250 }, change: |herd| herd },
    ]
}

fn foreground(herd: Herd, a_second: f64, burst: u32) -> Herd {
    Herd { foreground: Foreground { rate: Rate::Machine(a_second), burst }, ..herd }
}

fn latency(herd: Herd, mean_ns: u64) -> Herd {
    Herd { latency: Latency { mean_ns, ..herd.latency }, ..herd }
}

/// Contended, total wait in ms, longest wait in holds: means over the seeds.
fn means(herd: &Herd, schedule: &dyn Schedule, holds: &Holds, seeds: Range<u64>) -> Result<[f64; 3]> {
    let runs = seeds.clone().count() as f64;
    let mut sums = [0.0; 3];
    for seed in seeds {
        let outcome = herd.run(schedule, holds, seed)?;
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
        let floor = Herd { work: Work::NONE, ..kicked.clone() };
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
