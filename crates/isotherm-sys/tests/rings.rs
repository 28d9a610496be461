//! Rings on a living kernel: page faults of children that touch pages we know, and what is said to those who may not look.
//!
//! The children are this test program again, with one of the roles in `rings/child.rs`. What needs privilege, or a kernel without
//! a filter around it, says so and is skipped. Nothing of the machine is changed but for a cgroup of our own.

#[path = "rings/child.rs"]
mod child;

use child::{Child, Role};
use isotherm_sys::perf::{Event, Fields, Part, Rate, Record, RingError, Rings, Sampling, Whom};
use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

const SYS: &str = "/sys";
const MIB: usize = 1 << 20;

fn fields() -> Fields {
    Fields::TID | Fields::TIME | Fields::ADDR | Fields::PERIOD
}

fn faults(rate: Rate) -> Vec<Part> {
    let part = |event| Part::everywhere(Sampling { user_only: true, ..Sampling::new(event, rate, fields()) });
    vec![part(Event::MINOR_FAULTS), part(Event::MAJOR_FAULTS)]
}

/// Opens, or says aloud why not and returns `None`: a container may forbid it.
fn open(parts: &[Part], whom: &Whom, bytes: usize) -> Option<Rings> {
    match Rings::open(Path::new(SYS), parts, whom, bytes) {
        Err(e @ (RingError::Denied { .. } | RingError::Io { .. } | RingError::Cgroup { .. })) => {
            child::skip(&format!("perf_event_open ({e})"));
            None
        }
        opened => Some(opened.unwrap()),
    }
}

/// How often each page of the child was sampled, of samples of that process.
fn pages(rings: &mut Rings, child: &Child) -> Vec<u32> {
    let mut pages = vec![0; child.pages];
    rings.drain(|record| match record {
        Record::Sample(sample) => {
            if sample.pid == child.pid()
                && let Some(page) = child.page_of(sample.addr)
            {
                pages[page] += 1;
            }
        }
        Record::Malformed | Record::Throttle => panic!("{record:?}"),
        _ => {}
    });
    pages
}

fn is_root() -> bool {
    // SAFETY: takes nothing and returns a number.
    unsafe { libc::geteuid() == 0 }
}

/// Everybody may be watched: as root, outside of user namespaces.
fn needs_root() -> bool {
    if !is_root() {
        child::skip("root");
    }
    is_root()
}

#[test]
fn as_child() {
    child::run();
}

#[test]
fn every_first_touch_of_all_threads_is_sampled_once() {
    let mut child = Child::start(Role::Touch);
    let Some(mut rings) = open(&faults(Rate::Period(1)), &Whom::Process(child.pid()), 4 * MIB) else { return };
    assert!(rings.threads() >= 3, "two beside the first: {}", rings.threads());
    // Half of the pages are touched by threads that start only now.
    child.go();
    assert_eq!(pages(&mut rings, &child), vec![1; child.pages]);
    child.end();
    rings.drain(|_| {});
    let totals = rings.totals();
    assert_eq!((totals.lost, totals.malformed, totals.throttles), (0, 0, 0), "{totals:?}");
    assert_eq!(totals.counted, totals.samples, "{totals:?}");
    assert!(totals.samples > 2048 && totals.running_ns > 0, "{totals:?}");
    // Software events do not take turns; a thread is not on two processors at once.
    let share = totals.running_ns as f64 / totals.enabled_ns as f64;
    assert!((0.6..=1.0).contains(&share), "{totals:?}");
    let refit = rings.refit().unwrap();
    assert!(refit.ended && refit.cpus_came.is_empty(), "{refit:?}");
    let gone = Rings::open(Path::new(SYS), &faults(Rate::Period(1)), &Whom::Process(child.pid()), MIB);
    assert!(matches!(gone, Err(RingError::Gone { .. })), "{gone:?}");
}

#[test]
fn what_is_started_is_sampled_from_its_beginning_and_its_time_is_not_split_among_processors() {
    let Some(mut rings) = open(&faults(Rate::Period(1)), &Whom::Descendants, 4 * MIB) else { return };
    let mut child = Child::start(Role::Touch);
    child.go();
    assert_eq!(pages(&mut rings, &child), vec![1; child.pages]);
    std::thread::sleep(Duration::from_millis(300));
    let totals = rings.totals();
    let share = totals.running_ns as f64 / totals.enabled_ns as f64;
    assert!((0.6..=1.0).contains(&share), "{totals:?}");
}

#[test]
fn an_event_behind_a_leader_is_sampled_in_threads_of_all_ages() {
    let mut child = Child::start(Role::Touch);
    // The processor's clock stands in for what Intel's loads need: any event may lead a group.
    let led = |mut part: Part| {
        part.sampling.leader = Some(Event::CPU_CLOCK);
        part
    };
    let parts: Vec<Part> = faults(Rate::Period(1)).into_iter().map(led).collect();
    let Some(mut rings) = open(&parts, &Whom::Process(child.pid()), 4 * MIB) else { return };
    child.go();
    assert_eq!(pages(&mut rings, &child), vec![1; child.pages]);
}

#[test]
fn rings_outlive_the_thread_that_opened_them() {
    let mut child = Child::start(Role::Touch);
    let whom = Whom::Process(child.pid());
    let opened = std::thread::spawn(move || open(&faults(Rate::Period(2)), &whom, 4 * MIB)).join().unwrap();
    let Some(mut rings) = opened else { return };
    child.go();
    let seen = pages(&mut rings, &child).iter().sum::<u32>();
    assert!((900..1200).contains(&seen), "a half: {seen}");
    // What is opened anew is written to the same rings.
    rings.set_rate(Rate::Period(1)).unwrap();
    rings.drain(|_| {});
    child.go();
    assert_eq!(pages(&mut rings, &child), vec![1; child.pages]);
    assert!(rings.refit().unwrap().is_none());
}

#[test]
fn what_has_no_room_is_told_and_counted() {
    let mut child = Child::start(Role::Touch);
    let Some(mut rings) = open(&faults(Rate::Period(1)), &Whom::Process(child.pid()), 1) else { return };
    // The loss is told with the next sample on that processor that has room again.
    let mut totals = rings.totals();
    for _ in 0..50 {
        child.go();
        rings.drain(|_| {});
        totals = rings.totals();
        if totals.lost > 1000 {
            break;
        }
    }
    assert!(totals.lost > 1000 && totals.samples > 100, "{totals:?}");
    assert!(totals.counted >= totals.samples + totals.lost, "{totals:?}");
}

#[test]
fn an_event_that_nobody_has_is_told_by_its_numbers() {
    let sampling = Sampling { most_precise: 2, ..Sampling::new(Event::new(0xffff, 7), Rate::Period(1), fields()) };
    let error = Rings::open(
        Path::new(SYS),
        &[Part::everywhere(Sampling { user_only: true, ..sampling })],
        &Whom::Process(std::process::id()),
        MIB,
    );
    match error.unwrap_err() {
        e @ (RingError::Denied { .. } | RingError::Io { .. }) => child::skip(&format!("perf_event_open ({e})")),
        e => assert!(e.to_string().contains("event 65535:0x7: the event source refuses"), "{e}"),
    }
}

#[test]
fn a_child_of_the_process_is_another_process() {
    // The child starts `true`, which has page faults of its own.
    let mut child = Child::start(Role::Forks);
    let Some(mut rings) = open(&faults(Rate::Period(1)), &Whom::Process(child.pid()), MIB) else { return };
    child.go();
    let mut others = 0;
    rings.drain(|r| others += u32::from(matches!(r, Record::Sample(s) if s.pid != child.pid())));
    assert_eq!(others, 0);
}

#[test]
fn the_host_sees_the_same() {
    if !needs_root() {
        return;
    }
    let mut child = Child::start(Role::Touch);
    let Some(mut rings) = open(&faults(Rate::Period(1)), &Whom::Host, 16 * MIB) else { return };
    child.go();
    let seen = pages(&mut rings, &child);
    let totals = rings.totals();
    if totals.lost > 0 {
        return child::skip(&format!("a quieter machine ({totals:?})"));
    }
    assert_eq!(seen, vec![1; child.pages]);
    assert_eq!((rings.threads(), rings.ring_bytes()), (0, 16 * MIB));
    assert!(rings.refit().unwrap().is_none());
}

#[test]
fn a_cgroup_is_sampled_and_nobody_else() {
    if !needs_root() {
        return;
    }
    let name = format!("isotherm-rings-{}", std::process::id());
    let places = ["/sys/fs/cgroup/perf_event", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"];
    let Some(cgroup) = places.iter().find_map(|place| child::Cgroup::make(&Path::new(place).join(&name))) else {
        return child::skip("a cgroup with perf_event");
    };
    let (mut inside, mut outside) = (Child::start(Role::Touch), Child::start(Role::Touch));
    cgroup.join(inside.pid());
    let whom = Whom::Cgroup(cgroup.path.clone());
    let Some(mut rings) = open(&faults(Rate::Period(1)), &whom, 4 * MIB) else { return };
    outside.go();
    inside.go();
    let mut of_others = 0;
    let mut seen = vec![0; inside.pages];
    rings.drain(|record| {
        if let Record::Sample(sample) = record {
            of_others += u32::from(sample.pid != inside.pid());
            if let Some(page) = inside.page_of(sample.addr) {
                seen[page] += 1;
            }
        }
    });
    assert_eq!((seen, of_others), (vec![1; inside.pages], 0));
    inside.end();
}

#[test]
fn a_directory_that_is_no_cgroup_is_told_as_that() {
    if !needs_root() {
        return;
    }
    for path in ["/proc", "/nowhere"] {
        let refused = Rings::open(Path::new(SYS), &faults(Rate::Period(1)), &Whom::Cgroup(path.into()), MIB);
        assert!(matches!(refused, Err(RingError::Cgroup { .. } | RingError::Denied { .. })), "{refused:?}");
    }
}

/// Adds what was sampled of each page to `seen`, now and every few milliseconds for so long. Returns the highest page.
fn watch(rings: &mut Rings, child: &Child, seen: &mut [u32], millis: u64) -> usize {
    let until = Instant::now() + Duration::from_millis(millis);
    loop {
        seen.iter_mut().zip(pages(rings, child)).for_each(|(sum, n)| *sum += n);
        if Instant::now() >= until {
            return seen.iter().rposition(|n| *n > 0).unwrap_or(0);
        }
        std::thread::sleep(Duration::from_millis(15));
        rings.refit().unwrap();
    }
}

#[test]
fn threads_started_while_it_is_opened_are_sampled_and_none_twice() {
    for round in 0..8 {
        let mut child = Child::start(Role::Spawn);
        let Some(mut rings) = open(&faults(Rate::Period(1)), &Whom::Process(child.pid()), 4 * MIB) else { return };
        let mut seen = vec![0; child.pages];
        for _ in 0..3 {
            watch(&mut rings, &child, &mut seen, 15);
            // Threads have inherited: all of them have their events opened anew.
            rings.set_rate(Rate::Period(1)).unwrap();
        }
        let open = watch(&mut rings, &child, &mut seen, 0);
        watch(&mut rings, &child, &mut seen, 60);
        child.end();
        let last = watch(&mut rings, &child, &mut seen, 0);
        // Pages are touched in order by whichever thread is next. What was touched before all were sampled may be missing.
        let late = &seen[open + (last - open) / 2..last];
        assert!(last - open > 100, "round {round}: {open} to {last}");
        let missing = late.iter().filter(|n| **n == 0).count();
        let twice = seen.iter().filter(|n| **n > 1).count();
        assert_eq!((missing, twice), (0, 0), "round {round}, of {}", late.len());
    }
}

#[test]
fn a_period_is_kept_and_can_be_changed_for_threads_of_all_ages() {
    let mut child = Child::start(Role::Touch);
    let Some(mut rings) = open(&faults(Rate::Period(4)), &Whom::Process(child.pid()), MIB) else { return };
    // The first round starts threads, which inherit.
    for (period, expected) in [(4, 512), (16, 128), (1, 2048)] {
        rings.set_rate(Rate::Period(period)).unwrap();
        rings.drain(|_| {});
        child.go();
        let mut periods: HashMap<u64, usize> = HashMap::new();
        rings.drain(|record| {
            if let Record::Sample(sample) = record {
                *periods.entry(sample.period).or_default() += 1;
            }
        });
        let samples = periods.values().sum::<usize>();
        // A few more faults than pages, and each event of each processor and thread begins its own period.
        assert!((expected * 3 / 4..expected * 5 / 4 + 40).contains(&samples), "period {period}: {samples} samples");
        assert_eq!(periods.into_keys().collect::<Vec<u64>>(), [period]);
    }
    let wrong = rings.set_rate(Rate::Frequency(99)).unwrap_err();
    assert!(matches!(wrong, RingError::Unfit { .. }), "{wrong}");
}

#[test]
fn a_clock_at_a_frequency_gives_samples_without_addresses() {
    let mut child = Child::start(Role::Spin);
    let fields = Fields::TID | Fields::ADDR | Fields::PERIOD | Fields::CPU;
    let sampling =
        Sampling { user_only: true, most_precise: 3, ..Sampling::new(Event::CPU_CLOCK, Rate::Frequency(1000), fields) };
    let Some(mut rings) = open(&[Part::everywhere(sampling)], &Whom::Process(child.pid()), MIB) else { return };
    println!("precision {}, rings of {} bytes", rings.precise(), rings.ring_bytes());
    // Waits for some samples, and sees that they come no more often than asked: time that nobody had a processor does not count.
    let count = |rings: &mut Rings, least: u64, hz: u64| {
        // What was sampled at another rate.
        rings.drain(|_| {});
        let (mut samples, began, before) = (0, Instant::now(), rings.totals());
        while samples < least && began.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(10));
            rings.drain(|record| {
                if let Record::Sample(sample) = record {
                    assert_eq!((sample.pid, sample.addr), (child.pid(), 0));
                    assert!(sample.period > 0);
                    samples += 1;
                }
            });
        }
        let each_ns = (rings.totals().running_ns - before.running_ns) / samples.max(1);
        assert!(each_ns >= 900_000_000 / hz, "a sample every {each_ns} ns at {hz} Hz");
        samples
    };
    assert!(count(&mut rings, 50, 1000) >= 50);
    rings.set_rate(Rate::Frequency(500)).unwrap();
    assert!(count(&mut rings, 20, 500) >= 20);
    let error = rings.set_rate(Rate::Frequency(u64::MAX / 2)).unwrap_err();
    assert!(matches!(error, RingError::TooFrequent { .. } | RingError::NoPmu { .. }), "{error}");
    assert!(count(&mut rings, 20, 500) >= 20, "as before");
    child.end();
}

#[test]
fn processors_that_come_and_go_are_followed() {
    if !needs_root() {
        return;
    }
    let sys = tempfile::TempDir::new().unwrap();
    let dir = sys.path().join("devices/system/cpu");
    std::fs::create_dir_all(&dir).unwrap();
    let online = |list: &str| std::fs::write(dir.join("online"), list).unwrap();
    let last = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    if last.trim() == "0" {
        return child::skip("two processors");
    }
    let mut child = Child::start(Role::Touch);
    online("0\n");
    let parts = faults(Rate::Period(1));
    let mut rings = Rings::open(sys.path(), &parts, &Whom::Process(child.pid()), 4 * MIB).unwrap();
    assert_eq!(rings.cpus(), 1);
    online("0-1\n");
    let refit = rings.refit().unwrap();
    assert_eq!((refit.cpus_came, refit.cpus_went, refit.threads_came), (vec![1], vec![], 0));
    child.go();
    online("1\n");
    let before = rings.totals();
    let refit = rings.refit().unwrap();
    assert_eq!((refit.cpus_came, refit.cpus_went), (vec![], vec![0]));
    assert!(rings.totals().counted >= before.counted, "what was counted stays");
    // What was in the ring that went is there.
    assert_eq!(pages(&mut rings, &child), vec![1; child.pages]);
    child.end();
    rings.drain(|_| {});
    let totals = rings.totals();
    assert_eq!((totals.counted, totals.lost), (totals.samples, 0), "{totals:?}");
    // One that is not there at all: the list says it is, the kernel refuses.
    online("0-1,4000\n");
    let host = Rings::open(sys.path(), &parts, &Whom::Host, MIB);
    assert!(host.is_err(), "{host:?}");
    online("nonsense\n");
    let error = Rings::open(sys.path(), &parts, &Whom::Host, MIB).unwrap_err();
    assert!(error.to_string().contains("cpu/online"), "{error}");
}

#[test]
fn those_who_may_not_look_are_told_why() {
    if !needs_root() {
        return;
    }
    Child::alone(Role::Unprivileged, true);
    Child::alone(Role::Filtered, false);
    Child::alone(Role::FewDescriptors, false);
}
