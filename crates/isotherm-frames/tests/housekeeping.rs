//! A thread that keeps house while others allocate and free.

mod support;

use isotherm_frames::housekeep::{End, Housekeeper, HousekeeperConfig, Interval, Run, Slot, Spread, schedule::Aligned};
use isotherm_frames::percpu::Rseq;
use isotherm_frames::tune::PcpLimits;
use isotherm_frames::{FrameNo, Metadata, MigrateType, Order, Pace, PcpConfig, PcpLists, Tier, Zone, ZoneConfig};
use isotherm_rng::Rng;
use std::io::Write;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};
use support::{below, cpus, frames, metadata, order, seeds};

const FRAMES: u64 = 32 << 10;

fn leak(bytes: usize) -> Metadata<'static> {
    Metadata::zeroed(Box::leak(vec![0; bytes].into_boxed_slice()))
}

fn pcp(tier: Tier) -> PcpLists<'static> {
    let config = ZoneConfig::new(frames(0, FRAMES));
    let zone = Zone::new(&config, Metadata::zeroed(Box::leak(metadata(&config).into_boxed_slice()))).unwrap();
    zone.add(config.span, MigrateType::Movable).unwrap();
    let limits = PcpLimits { batch: 63, high_min: 252, high_max: 4096 };
    let config = PcpConfig { tier, limits: Some(limits), ..PcpConfig::new(cpus()) };
    let memory = leak(config.metadata_bytes(&zone));
    PcpLists::new(zone, &config, memory).unwrap()
}

fn tiers() -> Vec<Tier> {
    match Rseq::check() {
        Ok(_) => vec![Tier::Restartable, Tier::Locked],
        Err(why) => {
            let _ = std::io::stderr().write_all(format!("skipped: needs restartable sequences: {why}\n").as_bytes());
            vec![Tier::Locked]
        }
    }
}

fn slots(pcp: &PcpLists<'_>) -> Vec<Slot> {
    (0..pcp.cpus()).map(|_| Slot::default()).collect()
}

fn every(interval: Duration, pace: Pace) -> HousekeeperConfig<'static> {
    let interval = Interval::from_ns(u64::try_from(interval.as_nanos()).unwrap()).unwrap();
    HousekeeperConfig { pace, ..HousekeeperConfig::new(interval) }
}

fn use_frames(pcp: &PcpLists<'_>, mut rng: Rng, calls: u32) {
    let mut held: Vec<(FrameNo, Order)> = Vec::new();
    for call in 0..calls {
        let filling = call / 1500 % 2 == 0;
        if (rng.below(10) < 7) == filling {
            let size = order([0, 0, 0, 0, 0, 1, 2, 3, 4, 9][below(&mut rng, 10)]);
            if let Ok(frame) = pcp.alloc(size, MigrateType::ALL[below(&mut rng, 3)]) {
                held.push((frame, size));
            }
        } else if !held.is_empty() {
            let (frame, size) = held.swap_remove(below(&mut rng, held.len()));
            pcp.free(frame, size).unwrap();
        }
    }
    held.into_iter().for_each(|(frame, size)| pcp.free(frame, size).unwrap());
}

#[test]
fn nothing_is_lost_beside_a_thread_that_keeps_house() {
    for seed in seeds() {
        writeln!(std::io::stderr(), "housekeeping: SEED={seed}").unwrap();
        for tier in tiers() {
            let pcp = pcp(tier);
            let mut slots = slots(&pcp);
            let config = every(Duration::from_micros(200), Pace { idle_after: 2, max_deferrals: 3 });
            let keeper = Housekeeper::new(std::slice::from_ref(&pcp), &mut slots, Spread, &config);
            (0..keeper.cpus()).for_each(|cpu| assert!(keeper.online(cpu)));
            let working = AtomicU32::new(3);
            thread::scope(|s| {
                let thread = keeper.start_in(s);
                for id in 0..3 {
                    let (pcp, working) = (&pcp, &working);
                    s.spawn(move || {
                        use_frames(pcp, Rng::new(seed + id), 60_000);
                        working.fetch_sub(1, Relaxed);
                    });
                }
                while working.load(Relaxed) > 0 {
                    // CPUs come and go, as far as the housekeeper knows.
                    keeper.offline(0);
                    keeper.online(0);
                    thread::yield_now();
                }
                drop(thread);
            });
            let stats = keeper.stats();
            assert!(stats.runs > 0 && stats.drained > 0, "{tier:?}: {stats:?}");
            pcp.drain_all();
            pcp.zone().validate().unwrap();
            assert_eq!(pcp.zone().stats().free, FRAMES, "seed {seed}, {tier:?}: {stats:?}");
            assert_eq!(pcp.zone().stats().events.wrong_state, 0, "seed {seed}, {tier:?}");
        }
    }
}

/// Left alone, all of it goes back, and then the thread sleeps but for its look once an interval.
#[test]
fn an_idle_program_has_its_frames_back_and_is_hardly_woken() {
    for tier in tiers() {
        let pcp = pcp(tier);
        use_frames(&pcp, Rng::new(1), 20_000);
        let mut slots = slots(&pcp);
        let interval = Duration::from_millis(4);
        let keeper =
            Housekeeper::new(std::slice::from_ref(&pcp), &mut slots, Aligned, &every(interval, Pace::default()));
        (0..keeper.cpus()).for_each(|cpu| assert!(keeper.online(cpu)));
        thread::scope(|s| {
            let _thread = keeper.start_in(s);
            // The last runs return nothing, but lower what the lists may keep.
            while pcp.zone().stats().free < FRAMES || keeper.next_due_ns().is_some() {
                thread::sleep(interval);
            }
        });
        assert_eq!((0..pcp.cpus()).map(|cpu| pcp.cached(cpu)).sum::<u64>(), 0);
        let runs = keeper.stats().runs;
        let (end, began) = (End::new(), Instant::now());
        let wakes = thread::scope(|s| {
            let thread = s.spawn(|| keeper.run(&end));
            thread::sleep(20 * interval);
            end.come();
            thread.join().unwrap()
        });
        let intervals = began.elapsed().as_nanos() / interval.as_nanos();
        assert!(u128::from(wakes) <= intervals + 2, "{wakes} in {intervals} intervals");
        assert_eq!((keeper.stats().runs, end.has_come()), (runs, true));
    }
}

/// If it did not, this test would take a day.
#[test]
fn a_thread_that_sleeps_for_a_day_ends_when_it_is_dropped() {
    let pcp = pcp(Tier::Locked);
    let mut slots = slots(&pcp);
    let day = every(Duration::from_secs(86_400), Pace::default());
    let keeper = Housekeeper::new(std::slice::from_ref(&pcp), &mut slots, Spread, &day);
    keeper.online(0);
    thread::scope(|s| drop(keeper.start_in(s)));
    assert_eq!(keeper.tick(1, 0).run, Run::Offline);
}
