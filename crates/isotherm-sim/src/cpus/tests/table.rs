//! The table in which another simulation, written in another language before this one and unseen by it, compared the
//! schedules: 72 CPUs, a minute, holds of 9.45 us and 75.6 us, one seed.
//!
//! Its one draw has to lie within four standard deviations of ours, of 30 seeds. It does, but for what is told at the
//! tests below:
//!
//! - All its rows have some dozen more contentions in the fast setting than ours, two to three standard deviations,
//!   down to the floor where nothing but the foreground is left (34, ours 22): one seed, and so the same bursts in
//!   every row. Ours is what theory asks for: see [`the_floor_is_that_of_theory`].
//! - Its version of the proposal counts periods from the instant a run was due. Counted from the end of a run, as a
//!   work item does that queues itself again, latencies add up, and CPUs that were at the same instant once meet less
//!   often.
//! - Its kicks with the shepherd spread cost something; ours cannot. What it does is not known: see
//!   [`kicks_at_phases_are_between_two_rules`].
//! - How long its deferred chunks back off, and how often, is not known. In the fast setting that does not matter.

use super::*;

const SEEDS: u64 = 30;
const FAST: u32 = 9_450;
const SLOW: u32 = 75_600;

/// Contended, total wait in ms, longest wait in us.
type Figures = [f64; 3];

fn figures(model: &DrainModel, schedule: &dyn Schedule, hold_ns: u32, seed: u64) -> Figures {
    let waits = model.run(schedule, &Holds::constant(hold_ns), seed).unwrap().all();
    [waits.contended as f64, waits.wait_ns as f64 / 1e6, waits.max_wait_ns as f64 / 1e3]
}

fn all_seeds(model: &DrainModel, schedule: &dyn Schedule, hold_ns: u32) -> Vec<Figures> {
    (1..=SEEDS).map(|seed| figures(model, schedule, hold_ns, seed)).collect()
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    values.sum::<f64>() / SEEDS as f64
}

fn agrees(model: &DrainModel, schedule: &dyn Schedule, hold_ns: u32, told: Figures) {
    let ours = all_seeds(model, schedule, hold_ns);
    for (at, what) in ["contended", "total wait, ms"].into_iter().enumerate() {
        let centre = mean(ours.iter().map(|figures| figures[at]));
        let deviation = mean(ours.iter().map(|figures| (figures[at] - centre).powi(2))).sqrt();
        let off = (told[at] - centre).abs();
        assert!(off <= 4.0 * deviation, "{schedule:?}, {hold_ns}: {what} {}, ours {centre} +- {deviation}", told[at]);
    }
    // Of maxima, no further than two holds from any of ours.
    let least = ours.iter().map(|figures| figures[2]).fold(f64::INFINITY, f64::min);
    let most = ours.iter().map(|figures| figures[2]).fold(0.0, f64::max);
    let slack = 2.0 * f64::from(hold_ns) / 1e3;
    assert!(
        (least - slack..=most + slack).contains(&told[2]),
        "{schedule:?}, {hold_ns}: max {}, ours {least} to {most}",
        told[2]
    );
}

/// In both settings.
fn both(model: &DrainModel, schedule: &dyn Schedule, fast: Figures, slow: Figures) {
    agrees(model, schedule, FAST, fast);
    agrees(model, schedule, SLOW, slow);
}

fn kicking(share: f64) -> DrainModel {
    DrainModel { shepherd: Some(Shepherd::kicking(share)), ..DrainModel::new(72) }
}

fn odd_offline(placing: Placing) -> DrainModel {
    DrainModel { hotplug: Plug::stride(0, 1, 2, 72, false).collect(), placing, ..DrainModel::new(72) }
}

#[test]
fn the_herd_itself() {
    both(&DrainModel::new(72), &Aligned, [9778.0, 1871.0, 368.0], [10156.0, 17356.0, 3266.0]);
}

#[test]
fn todays_kernel() {
    let skewed = Skewed { hz: 1000 };
    both(&DrainModel::new(72), &skewed, [72.0, 0.40, 9.4], [520.0, 25.0, 150.0]);
    both(&kicking(0.2), &skewed, [1795.0, 55.0, 122.0], [2473.0, 813.0, 1057.0]);
    both(&kicking(0.5), &skewed, [4793.0, 409.0, 226.0], [5262.0, 4457.0, 2147.0]);
}

#[test]
fn phases() {
    both(&DrainModel::new(72), &Even, [80.0, 0.45, 9.4], [482.0, 23.0, 149.0]);
    both(&DrainModel::new(72), &Spread, [73.0, 0.38, 9.4], [478.0, 24.0, 171.0]);
}

#[test]
fn odd_cpus_offline() {
    both(&odd_offline(Placing::Numbers), &Even, [530.0, 4.0, 9.4], [1649.0, 110.0, 150.0]);
    both(&odd_offline(Placing::Ranks), &Even, [61.0, 0.33, 9.2], [348.0, 16.0, 150.0]);
    both(&odd_offline(Placing::Numbers), &Spread, [52.0, 0.28, 9.2], [336.0, 15.0, 129.0]);
}

#[test]
fn deferral_agrees_where_a_herd_is_short() {
    let model = DrainModel { deferral: Some(Deferral::default()), ..DrainModel::new(72) };
    agrees(&model, &Aligned, FAST, [43.0, 0.20, 9.2]);
    // Of slow frees a run takes longer than what tells starts apart: all who were deferred come back as a herd, eight
    // times, and wait in the end. The table's 369 had another back-off, or no bound.
    let contended = mean(all_seeds(&model, &Aligned, SLOW).iter().map(|figures| figures[0]));
    let waiting = mean(all_seeds(&DrainModel::new(72), &Aligned, SLOW).iter().map(|figures| figures[0]));
    assert!(contended > 3_000.0 && contended < waiting / 2.0, "{contended} of {waiting}");
}

/// The first proposal, with periods counted from when a run was due: no latency adds up.
#[derive(Debug)]
struct ProposedWithoutDrift;

impl Schedule for ProposedWithoutDrift {
    fn next_due(&self, position: CpuPosition, interval: Interval, now_ns: u64) -> u64 {
        let period = Proposed.next_due(position, interval, 0);
        (now_ns / period + 1) * period
    }
}

#[test]
fn the_first_proposal_agrees_without_drift_and_collides_less_with_it() {
    let model = DrainModel { begin: Begin::AtOnce, ..DrainModel::new(72) };
    both(&model, &ProposedWithoutDrift, [865.0, 38.0, 301.0], [2193.0, 469.0, 2796.0]);
    let contended = |schedule| mean(all_seeds(&model, schedule, FAST).iter().map(|figures| figures[0]));
    assert!(contended(&Proposed) * 2.0 < contended(&ProposedWithoutDrift));
}

/// 36 of 72 CPUs have another run at their phase, by a CPU beyond the 72: what is kicked besides what is due.
#[derive(Debug)]
struct Besides;

impl Schedule for Besides {
    fn next_due(&self, position: CpuPosition, interval: Interval, now_ns: u64) -> u64 {
        let place = if position.cpu < 72 { position.cpu } else { (position.cpu - 72) * 2 };
        Even.next_due(CpuPosition { place, cpus: 72, ..position }, interval, now_ns)
    }
}

/// The table has 512 and 3.9 ms. A kick at a CPU's phase is its run of that interval, says this model: then it changes
/// nothing. If half of the CPUs had a run for the kick and another of their own at the same phase, there would be more.
#[test]
fn kicks_at_phases_are_between_two_rules() {
    let mean_of = |model: &DrainModel, schedule: &dyn Schedule, at: usize| {
        mean(all_seeds(model, schedule, FAST).iter().map(|figures| figures[at]))
    };
    for (at, told) in [(0, 512.0), (1, 3.9)] {
        let instead = mean_of(&kicking(0.5), &Even, at);
        let besides = mean_of(&DrainModel::new(108), &Besides, at);
        assert!(instead < told && told < besides, "{told} of {instead} to {besides}");
    }
}

/// Bursts that come at random see the lock as it is on average: they find it taken with the probability that it is, and
/// wait for half a hold then.
#[test]
fn the_floor_is_that_of_theory() {
    for hold_ns in [FAST, SLOW] {
        let floor = all_seeds(&DrainModel { work: Work::NONE, ..DrainModel::new(72) }, &Spread, hold_ns);
        let taken = 200.0 * f64::from(hold_ns) / 1e9;
        let expected = 200.0 * 60.0 * taken;
        let contended = mean(floor.iter().map(|figures| figures[0]));
        // Of 30 runs together, the standard deviation of a mean.
        assert!((contended - expected).abs() < 4.0 * (expected / SEEDS as f64).sqrt(), "{contended} of {expected}");
        let wait_ms = mean(floor.iter().map(|figures| figures[1]));
        let each_ns = f64::from(hold_ns) / 2.0 / (1.0 - taken);
        assert!((wait_ms / (contended * each_ns / 1e6) - 1.0).abs() < 0.1, "{wait_ms} ms of {contended}");
    }
}
