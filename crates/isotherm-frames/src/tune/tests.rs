use super::*;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use std::fs;
use std::io::Write;

const FRAME: Order = Order::FRAME;

fn order(n: u32) -> Order {
    Order::new(n).unwrap()
}

/// The zone of 13.9 GiB on two CPUs that the formulas were found on.
fn host_zone() -> PcpLimits {
    PcpLimits::for_zone(3_637_248, 2 * 8_779, 2, None)
}

fn limits(batch: u32, high_min: u32, high_max: u32) -> PcpLimits {
    PcpLimits { batch, high_min, high_max }
}

#[test]
fn marks_of_known_zones() {
    assert_eq!(host_zone(), limits(63, 8_779, 227_328));
    assert_eq!(PcpLimits::for_zone(772_917, 5_205, 2, None), limits(63, 2_602, 48_307));
    // The first 16 MiB of a machine: hardly anything is kept.
    assert_eq!(PcpLimits::for_zone(3_840, 25, 2, None), limits(1, 12, 240));
    assert_eq!(PcpLimits::for_zone(0, 0, 0, None), limits(1, 4, 4));
    // Four batches, where the CPUs are many.
    assert_eq!(PcpLimits::for_zone(3_637_248, 17_558, 4_096, None), limits(63, 252, 252));
    assert_eq!(PcpLimits::for_zone(u64::MAX, u64::MAX, 1, None), limits(63, u32::MAX, u32::MAX));
}

#[test]
fn a_fraction_fixes_high() {
    assert_eq!(PcpLimits::for_zone(3_637_248, 17_558, 2, Some(100)), limits(63, 18_186, 18_186));
    assert_eq!(PcpLimits::for_zone(3_637_248, 17_558, 2, Some(0)), host_zone());
    let eighth = PcpLimits::for_zone(3_637_248, 17_558, 2, Some(8));
    assert_eq!(eighth, limits(63, 227_328, 227_328));
    assert_eq!(PcpLimits::for_zone(3_637_248, 17_558, 2, Some(1)), eighth);
    assert_eq!(PcpLimits::for_zone(3_637_248, 17_558, 2, Some(u32::MAX)), limits(63, 252, 252));
}

#[test]
fn a_batch_is_about_a_4096th_and_63_at_most() {
    let batches =
        [(4_096, 1), (8_192, 1), (12_288, 3), (24_576, 7), (49_152, 15), (90_112, 31), (176_128, 63), (262_144, 63)];
    for (managed, batch) in batches {
        assert_eq!(PcpLimits::for_zone(managed, 0, 1, None).batch, batch, "{managed}");
    }
}

#[test]
fn refills_double_up_to_32_batches_and_raise_high_by_as_much() {
    let mut tuner = Tuner::new(host_zone());
    let refills: Vec<u32> = (0..7).map(|_| tuner.refill(FRAME, 0, Pressure::NONE)).collect();
    assert_eq!(refills, [63, 126, 252, 504, 1_008, 2_016, 2_016]);
    assert_eq!(tuner.high(), 8_779 + refills.iter().sum::<u32>());
    // One free, and the factor is 2 instead of 5.
    tuner.on_free(FRAME);
    assert_eq!(tuner.refill(FRAME, 0, Pressure::NONE), 252);
}

#[test]
fn refills_of_blocks_are_a_batch_of_frames_and_two_blocks_at_least() {
    let mut tuner = Tuner::new(host_zone());
    let refills: Vec<u32> = [1, 2, 3, 9].map(|n| tuner.refill(order(n), 0, Pressure::NONE)).to_vec();
    assert_eq!(refills, [31, 15, 7, 2]);
    assert_eq!((tuner.high(), tuner.alloc_factor), (8_779 + 4 * 63, 0));
}

#[test]
fn refills_leave_room_below_high_and_do_not_raise_it_when_frames_are_short() {
    let short = Pressure { below_high: true, reclaiming: false };
    let mut tuner = Tuner::new(limits(63, 1_000, 10_000));
    assert_eq!([0; 5].map(|_| tuner.refill(FRAME, 0, short)), [63, 126, 252, 504, 937]);
    // 1,000 less 800 that there are less a batch; and a batch in any case.
    assert_eq!([tuner.refill(FRAME, 800, short), tuner.refill(FRAME, 999, short)], [137, 63]);
    assert_eq!((tuner.high(), tuner.alloc_factor), (1_000, 4));
    let mut fixed = Tuner::new(limits(63, 1_000, 1_000));
    fixed.refill(FRAME, 0, Pressure::NONE);
    assert_eq!(fixed.high(), 1_000, "two equal marks");
}

#[test]
fn a_zone_that_keeps_nothing_refills_and_drains_one() {
    let mut tuner = Tuner::new(limits(63, 0, 0));
    assert_eq!(tuner.refill(FRAME, 0, Pressure::NONE), 1);
    tuner.on_free(FRAME);
    assert_eq!((tuner.drain(1, Pressure::NONE), tuner.drain(0, Pressure::NONE)), (1, 0));
    assert_eq!(Tuner::new(limits(1, 12, 240)).refill(FRAME, 0, Pressure::NONE), 1, "batches of one frame");
}

fn free(tuner: &mut Tuner, n: u32, order: Order) {
    (0..n).for_each(|_| tuner.on_free(order));
}

#[test]
fn a_free_drains_as_much_as_was_freed_in_a_row() {
    let mut tuner = Tuner::new(limits(63, 1_000, 1_000));
    free(&mut tuner, 1, FRAME);
    assert_eq!((tuner.drain(999, Pressure::NONE), tuner.drain(1_000, Pressure::NONE)), (0, 63), "a batch at least");
    free(&mut tuner, 499, FRAME);
    assert_eq!(tuner.drain(1_000, Pressure::NONE), 500);
    free(&mut tuner, 9_500, FRAME);
    assert_eq!((tuner.drain(1_000, Pressure::NONE), tuner.free_count), (937, 2_016), "a batch stays");
    // Six allocations, and 2,016 in a row are 31.
    (0..6).for_each(|_| tuner.on_alloc());
    assert_eq!((tuner.drain(1_000, Pressure::NONE), tuner.free_count), (63, 31));
}

#[test]
fn a_high_that_is_reached_rises_to_what_is_freed_in_a_row() {
    let mut tuner = Tuner::new(limits(63, 252, 600));
    free(&mut tuner, 500, FRAME);
    assert_eq!((tuner.drain(251, Pressure::NONE), tuner.high()), (0, 252));
    assert_eq!((tuner.drain(252, Pressure::NONE), tuner.high()), (189, 563));
    free(&mut tuner, 500, FRAME);
    assert_eq!((tuner.drain(563, Pressure::NONE), tuner.high()), (500, 600));
}

#[test]
fn streams_of_blocks_go_back_at_once() {
    let mut tuner = Tuner::new(limits(63, 252, 6_000));
    tuner.high = 5_000;
    // A batch and half of high_min, 189 frames, are 24 blocks of order 3. The one after these is the first of a stream.
    free(&mut tuner, 24, order(3));
    assert_eq!(tuner.drain(192, Pressure::NONE), 0);
    free(&mut tuner, 1, order(3));
    assert_eq!((tuner.drain(200, Pressure::NONE), tuner.high()), (200, 5_000 - 2_016));
    assert_eq!((tuner.drain(4_000, Pressure::NONE), tuner.high()), (2_016, 5_000 - 2 * 2_016));
    // One single frame, or a huge one, in between: no stream.
    for other in [FRAME, Order::HUGE] {
        free(&mut tuner, 1, other);
        assert_eq!(tuner.drain(200, Pressure::NONE), 0);
        free(&mut tuner, 1, order(2));
        assert_eq!(tuner.drain(200, Pressure::NONE), 0);
        free(&mut tuner, 1, order(1));
        assert_eq!(tuner.drain(200, Pressure::NONE), 200);
    }
    tuner.set_keeps_batch(true);
    assert_eq!((tuner.drain(62, Pressure::NONE), tuner.drain(63, Pressure::NONE)), (0, 63));
}

#[test]
fn reclaim_lets_keep_four_batches_and_lowers_high() {
    let reclaiming = Pressure { below_high: true, reclaiming: true };
    let mut tuner = Tuner::new(limits(63, 252, 30_000));
    tuner.high = 20_000;
    assert_eq!((tuner.drain(251, reclaiming), tuner.high()), (0, 20_000 - 63));
    assert_eq!((tuner.drain(5_000, reclaiming), tuner.high()), (63, 20_000 - 2 * 63));
    free(&mut tuner, 150, FRAME);
    assert_eq!((tuner.drain(5_000, reclaiming), tuner.high()), (150, 20_000 - 2 * 63 - 150));
    free(&mut tuner, 5_000, FRAME);
    assert_eq!(tuner.drain(5_000, reclaiming), 189, "a batch of the four stays");
}

#[test]
fn below_the_high_watermark_each_free_drains_above_high_min() {
    let short = Pressure { below_high: true, reclaiming: false };
    let mut tuner = Tuner::new(limits(63, 1_000, 30_000));
    tuner.high = 20_000;
    assert_eq!((tuner.drain(999, short), tuner.high()), (0, 20_000 - 63));
    assert_eq!((tuner.drain(1_000, short), tuner.high()), (63, 20_000 - 2 * 63));
    tuner.high = 1_010;
    assert_eq!((tuner.drain(1_000, short), tuner.high()), (63, 1_000));
}

/// Ticks until `count` frames, all that `high` allows, have become `until`.
fn ticks(mut tuner: Tuner, mut count: u32, until: u32) -> u32 {
    tuner.high = count;
    (1..)
        .find(|_| {
            count -= tuner.decay(count).drain;
            count <= until
        })
        .unwrap()
}

#[test]
fn lists_decay_by_32_batches_a_tick_and_by_an_eighth_below_eight_times_that() {
    let mut tuner = Tuner::new(host_zone());
    tuner.high = 227_328;
    let (mut count, mut ticks_above) = (227_328, 0);
    while count > 16_128 {
        let Decay { drain, again } = tuner.decay(count);
        assert!(again && (drain == 2_016 || count - drain < 16_128), "{drain} of {count}");
        count -= drain;
        ticks_above += 1;
    }
    // 211,200 / 2,016.
    assert_eq!(ticks_above, 105);
    while count > 8_779 {
        let Decay { drain, again } = tuner.decay(count);
        let last = count - drain == 8_779;
        assert!(again && (drain == count / 8 || last), "{drain} of {count}");
        count -= drain;
    }
    assert_eq!((tuner.high(), tuner.decay(count)), (8_779, Decay { drain: 0, again: false }));
}

#[test]
fn the_half_life_below_is_5_2_ticks() {
    // ln 2 / ln (8 / 7) = 5.19: a half is passed in the sixth tick, a 64th in the 32nd.
    let tuner = Tuner::new(limits(63, 0, 1 << 20));
    assert_eq!((ticks(tuner.clone(), 16_128, 8_064), ticks(tuner, 16_128, 252)), (6, 32));
}

#[test]
fn lists_above_a_high_that_is_at_its_least_are_drained_in_one_tick() {
    let mut tuner = Tuner::new(limits(63, 1_000, 1_000));
    assert_eq!(tuner.decay(9_000), Decay { drain: 8_000, again: true });
    assert_eq!(tuner.decay(1_000), Decay { drain: 0, again: false });
    // Lists that hold less than a high that has risen: there is nothing to drain yet, but there will be.
    let mut tuner = Tuner::new(limits(63, 1_000, 20_000));
    tuner.high = 8_000;
    assert_eq!((tuner.decay(1_500), tuner.high()), (Decay { drain: 0, again: true }, 7_000));
}

#[test]
fn new_marks_move_high() {
    let mut tuner = Tuner::new(host_zone());
    tuner.set_limits(limits(63, 10_000, 20_000));
    assert_eq!((tuner.high(), tuner.limits().batch), (10_000, 63));
    tuner.set_limits(limits(31, 124, 500));
    assert_eq!(tuner.high(), 500);
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Alloc(u32),
    Free(u32),
    Tick,
    PcpLimits(PcpLimits),
}

fn any_marks() -> impl Strategy<Value = PcpLimits> {
    let zone = (0..1_u64 << 30, 0..1_u64 << 22, 0..600_u32, prop::option::of(0..200_u32));
    prop_oneof![
        4 => zone.prop_map(|(managed, low, cpus, part)| PcpLimits::for_zone(managed, low.min(managed / 8), cpus, part)),
        1 => (0..300_u32, 0..5_000_u32, 0..50_000_u32).prop_map(|(batch, min, more)| limits(batch, min, min + more)),
        1 => any::<(u32, u32, u32)>().prop_map(|(batch, a, b)| limits(batch, a.min(b), a.max(b))),
    ]
}

fn steps() -> impl Strategy<Value = (Step, u8, Pressure)> {
    let step = prop_oneof![
        8 => (0..=10_u32).prop_map(Step::Alloc),
        8 => (0..=10_u32).prop_map(Step::Free),
        8 => (0..=3_u32).prop_map(Step::Free),
        2 => Just(Step::Tick),
        1 => any_marks().prop_map(Step::PcpLimits),
    ];
    let pressure = any::<(bool, bool)>().prop_map(|(below_high, reclaiming)| Pressure { below_high, reclaiming });
    (step, 1..=200_u8, prop_oneof![Just(Pressure::NONE), pressure])
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 256 },
        rng_seed: RngSeed::Fixed(1),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Runs of allocations and frees over lists of which only the length is kept.
    #[test]
    fn bounds_hold_through_any_steps(first in any_marks(), keeps: bool, all in vec(steps(), 1..60)) {
        let mut tuner = Tuner::new(first);
        tuner.set_keeps_batch(keeps);
        let mut count = 0_u32;
        for (step, times, pressure) in all {
            for _ in 0..times {
                match step {
                    Step::Alloc(n) if count < 1 << n => {
                        let blocks = tuner.refill(order(n), count, pressure);
                        let within = (blocks << n.min(3)) <= tuner.limits.most().max(16);
                        prop_assert!(blocks >= 1 && within, "{blocks} of order {n}");
                        tuner.on_alloc();
                        count += (blocks - 1) << n;
                    }
                    Step::Alloc(n) => {
                        tuner.on_alloc();
                        count -= 1 << n;
                    }
                    Step::Free(n) => {
                        count += 1 << n;
                        tuner.on_free(order(n));
                        let drain = tuner.drain(count, pressure);
                        let most = tuner.limits.most().max(tuner.free_count).max(1);
                        prop_assert!(drain <= count && drain <= most, "{drain} of {count}");
                        count -= drain;
                    }
                    Step::Tick => {
                        let (above, most) = (tuner.high > tuner.limits.high_min, tuner.limits.most());
                        let Decay { drain, again } = tuner.decay(count);
                        prop_assert!(drain <= count && (again || drain == 0), "{drain} of {count}");
                        prop_assert!(!above || drain <= most, "{drain} of {count}, in a tick");
                        count -= drain;
                    }
                    Step::PcpLimits(limits) => tuner.set_limits(limits),
                }
                let PcpLimits { high_min, high_max, .. } = tuner.limits;
                prop_assert!((high_min..=high_max).contains(&tuner.high), "high {} of {:?}", tuner.high, tuner.limits);
                prop_assert!(tuner.alloc_factor <= SCALE_MAX);
            }
        }
    }

    /// However full, ticks alone bring the lists to the low mark, and then stop.
    #[test]
    fn ticks_come_to_an_end(first in any_marks(), count in 0..5_000_000_u32) {
        let mut tuner = Tuner::new(first);
        prop_assume!(first.batch > 0);
        tuner.high = first.within(count);
        let mut left = count;
        for _ in 0..200_000 {
            let Decay { drain, again } = tuner.decay(left);
            left -= drain;
            if !again {
                break;
            }
        }
        prop_assert!(left <= first.high_min && tuner.high == first.high_min, "{left} left of {count}: {tuner:?}");
    }
}

/// What `/proc/zoneinfo` says of a zone.
#[derive(Debug, Default)]
struct Zone {
    name: String,
    node: u32,
    managed: u64,
    low: u64,
    boost: u64,
    cpus: u32,
    batch: Option<u64>,
    high_min: Option<u64>,
    high_max: Option<u64>,
}

fn zones(zoneinfo: &str) -> Vec<Zone> {
    let mut zones: Vec<Zone> = Vec::new();
    for line in zoneinfo.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let ["Node", node, "zone", name] = words[..] {
            let node = node.trim_end_matches(',').parse().unwrap();
            zones.push(Zone { name: name.into(), node, ..Zone::default() });
        }
        let (Some(zone), [key, value]) = (zones.last_mut(), &words[..]) else { continue };
        let Ok(value) = value.parse() else { continue };
        match *key {
            "managed" => zone.managed = value,
            "low" => zone.low = value,
            "boost" => zone.boost = value,
            "cpu:" => zone.cpus += 1,
            "batch:" => zone.batch = Some(value),
            "high_min:" => zone.high_min = Some(value),
            "high_max:" => zone.high_max = Some(value),
            _ => {}
        }
    }
    zones.retain(|zone| zone.managed > 0 && zone.cpus > 0);
    zones
}

/// CPUs of a list such as `0-3,8`.
fn cpus_of(list: &str) -> u32 {
    let number = |n: &str| n.parse::<u32>().unwrap();
    let span = |part: &str| part.split_once('-').map_or(1, |(from, to)| number(to) - number(from) + 1);
    list.trim().split(',').filter(|part| !part.is_empty()).map(span).sum()
}

#[test]
fn zones_are_read_as_the_kernel_prints_them() {
    let text = "\
Node 0, zone    DMA32
  per-node stats
      nr_inactive_anon 1454
  pages free     772917
        boost    3
        low      5205
        high     6246
        managed  772917
        protection: (0, 0, 9216)
  pagesets
    cpu: 0
              count:    5
              high:     2602
              batch:    63
              high_min: 2602
              high_max: 48307
  vm stats threshold: 24
    cpu: 1
              high:     2602
Node 1, zone   Device
  pages free     0
        managed  0
";
    let zones = zones(text);
    assert_eq!(zones.len(), 1, "the other is empty");
    let Zone { node, managed, low, boost, cpus, batch, high_min, high_max, .. } = zones[0];
    assert_eq!((node, managed, low, boost, cpus), (0, 772_917, 5_205, 3, 2));
    assert_eq!((batch, high_min, high_max), (Some(63), Some(2_602), Some(48_307)));
    assert_eq!((cpus_of("0-3,8\n"), cpus_of("\n"), cpus_of("5")), (5, 0, 1));
}

/// The formulas against the kernel that this runs on.
#[test]
fn this_host_has_the_same_marks() {
    let mut out = std::io::stderr();
    let Ok(zoneinfo) = fs::read_to_string("/proc/zoneinfo") else {
        let _ = writeln!(out, "skipped: needs /proc/zoneinfo");
        return;
    };
    let fraction = fs::read_to_string("/proc/sys/vm/percpu_pagelist_high_fraction").ok();
    let fraction = fraction.and_then(|fraction| fraction.trim().parse().ok());
    let mut compared = 0;
    for zone in zones(&zoneinfo) {
        let (Some(batch), Some(high_min), Some(high_max)) = (zone.batch, zone.high_min, zone.high_max) else {
            let _ = writeln!(out, "skipped: needs high_min in /proc/zoneinfo (Linux 6.7 or later)");
            return;
        };
        let list =
            fs::read_to_string(format!("/sys/devices/system/node/node{}/cpulist", zone.node)).unwrap_or_default();
        // A node without CPUs, or a kernel that tells of none: all that are online share its zones.
        let cpus = Some(cpus_of(&list)).filter(|&cpus| cpus > 0).unwrap_or(zone.cpus);
        let low = zone.low - zone.boost;
        let ours = PcpLimits::for_zone(zone.managed, low, cpus, fraction);
        let _ = writeln!(
            out,
            "node {} {}: managed {}, low {low}, {cpus} CPUs: {ours:?}",
            zone.node, zone.name, zone.managed
        );
        assert_eq!(u64::from(ours.batch), batch, "{zone:?}");
        if fraction.unwrap_or(0) == 0 {
            assert_eq!(u64::from(ours.high_min), high_min, "{zone:?}");
        }
        // The kernel computes them when a watermark or a CPU changes, and not for the pages that it frees after its
        // start, or that a balloon takes: a hundredth of the zone.
        let then = high_max.abs_diff(u64::from(ours.high_max));
        assert!(then <= high_max / 100, "{ours:?}, {zone:?}");
        compared += 1;
    }
    assert!(compared > 0, "no zone has pages and CPUs");
}

#[test]
fn a_tuner_is_the_same_after_it_was_words() {
    let mut tuner = Tuner::new(PcpLimits { batch: 63, high_min: 252, high_max: 16_384 });
    tuner.set_keeps_batch(true);
    for step in 0..200_u32 {
        if step % 3 == 0 {
            tuner.on_alloc();
            tuner.refill(Order::FRAME, step, Pressure::NONE);
        } else {
            tuner.on_free(Order::new(step % 4).unwrap());
            tuner.drain(step * 10, Pressure::NONE);
        }
        let again = Tuner::from_words(tuner.limits(), tuner.to_words());
        assert_eq!(format!("{again:?}"), format!("{tuner:?}"));
    }
}
