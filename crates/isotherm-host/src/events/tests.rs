//! Machines that we do not have, as trees of files: what is found on them, and what is said when one thing is missing.

use super::event::{ACCESSES, OPERATIONS};
use super::names::NAMES;
use super::*;
use isotherm_sys::perf::{Event, Rate};
use std::fs;
use tempfile::TempDir;

/// `/proc` and `/sys` in a temporary directory.
struct Machine {
    dir: TempDir,
}

type Files = &'static [(&'static str, &'static str)];

impl Machine {
    fn new(files: &[Files]) -> Machine {
        let machine = Machine { dir: TempDir::new().expect("temporary directory") };
        machine.write("sys/bus/event_source/devices/software/type", "1\n");
        for (name, text) in files.iter().copied().flatten() {
            machine.write(name, text);
        }
        machine
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.dir.path().join(expand(name));
        fs::create_dir_all(path.parent().expect("has a parent")).expect("create directory");
        fs::write(path, text).expect("write file");
    }

    /// Takes away a file, or a directory with all that is in it.
    fn remove(&self, name: &str) {
        let path = self.dir.path().join(expand(name));
        if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.expect(name);
    }

    fn roots(&self) -> HostRoots {
        let root = |name: &str| self.dir.path().join(name);
        HostRoots { proc: root("proc"), sys: root("sys"), boot: root("boot") }
    }

    fn find(&self, name: &str) -> NamedEvent {
        find(&self.roots(), name).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    fn error(&self, name: &str) -> NamedError {
        find(&self.roots(), name).expect_err(name)
    }

    fn part(&self, name: &str) -> PmuEvent {
        let mut parts = self.find(name).parts;
        assert_eq!(parts.len(), 1, "{parts:?}");
        parts.remove(0)
    }

    /// The names that are found here.
    fn found(&self) -> Vec<&'static str> {
        list(&self.roots()).into_iter().filter(|c| c.found.is_ok()).map(|c| c.name).collect()
    }
}

/// `@cpu/type` is a file of an event source.
fn expand(name: &str) -> String {
    name.strip_prefix('@').map_or(name.to_owned(), |rest| format!("sys/bus/event_source/devices/{rest}"))
}

const SKYLAKE: Files = &[
    ("proc/cpuinfo", "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 85\nmodel name\t: X\n"),
    ("@cpu/type", "4\n"),
    ("@cpu/caps/max_precise", "3\n"),
    ("@cpu/format/event", "config:0-7\n"),
    ("@cpu/format/umask", "config:8-15\n"),
    ("@cpu/format/edge", "config:18\n"),
    ("@cpu/format/any", "config:21\n"),
    ("@cpu/format/cmask", "config:24-31\n"),
    ("@cpu/format/ldlat", "config1:0-15\n"),
    ("@cpu/format/frontend", "config1:0-23\n"),
    ("@cpu/format/offcore_rsp", "config1:0-63\n"),
    ("@cpu/events/cpu-cycles", "event=0x3c\n"),
    ("@cpu/events/cpu-cycles.scale", "1\n"),
    ("@cpu/events/mem-loads", "event=0xcd,umask=0x1,ldlat=3\n"),
    ("@cpu/events/mem-stores", "event=0xd0,umask=0x82\n"),
];

/// On top of the above.
const SAPPHIRE_RAPIDS: Files =
    &[("@cpu/events/mem-loads-aux", "event=0x03,umask=0x82\n"), ("@cpu/events/mem-stores", "event=0xcd,umask=0x2\n")];

const ALDER_LAKE: Files = &[
    ("proc/cpuinfo", "vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 151\n"),
    ("@cpu_core/type", "4\n"),
    ("@cpu_core/cpus", "0-3\n"),
    ("@cpu_core/format/event", "config:0-7\n"),
    ("@cpu_core/format/umask", "config:8-15\n"),
    ("@cpu_core/format/ldlat", "config1:0-15\n"),
    ("@cpu_core/events/mem-loads", "event=0xcd,umask=0x1,ldlat=3\n"),
    ("@cpu_core/events/mem-loads-aux", "event=0x03,umask=0x82\n"),
    ("@cpu_core/events/mem-stores", "event=0xcd,umask=0x2\n"),
    ("@cpu_atom/type", "10\n"),
    ("@cpu_atom/cpus", "4-5,7\n"),
    ("@cpu_atom/format/event", "config:0-7\n"),
    ("@cpu_atom/format/umask", "config:8-15\n"),
    ("@cpu_atom/format/ldlat", "config1:0-15\n"),
    ("@cpu_atom/events/mem-loads", "event=0xd0,umask=0x5,ldlat=3\n"),
    ("@cpu_atom/events/mem-stores", "event=0xd0,umask=0x6\n"),
];

const ZEN3: Files = &[
    ("proc/cpuinfo", "vendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 1\n"),
    ("@cpu/type", "4\n"),
    ("@cpu/caps/max_precise", "0\n"),
    ("@cpu/format/event", "config:0-7,32-35\n"),
    ("@cpu/format/umask", "config:8-15\n"),
    ("@cpu/events/cpu-cycles", "event=0x76\n"),
    ("@ibs_fetch/type", "10\n"),
    ("@ibs_op/type", "11\n"),
    ("@ibs_op/format/cnt_ctl", "config:19\n"),
];

/// On top of the above.
const ZEN4: Files = &[
    ("@ibs_op/format/l3missonly", "config:16\n"),
    ("@ibs_op/format/swfilt", "config2:0\n"),
    ("@ibs_op/caps/zen4_ibs_extensions", "1\n"),
];

/// On top of those.
const ZEN5: Files = &[("@ibs_op/format/ldlat", "config1:0-11\n")];

const NEOVERSE: Files = &[
    ("proc/cpuinfo", "processor\t: 0\nBogoMIPS\t: 50.00\nCPU implementer\t: 0x41\n"),
    ("@armv8_pmuv3_0/type", "8\n"),
    ("@armv8_pmuv3_0/cpus", "0-3\n"),
    ("@arm_spe_0/type", "9\n"),
    ("@arm_spe_0/cpumask", "0-3\n"),
    ("@arm_spe_0/format/load_filter", "config:33\n"),
    ("@arm_spe_0/format/store_filter", "config:34\n"),
];

const VIRTUAL: Files = &[
    ("proc/cpuinfo", "vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 106\n"),
    ("@msr/type", "9\n"),
    ("@tracepoint/type", "2\n"),
];

const FAULTS: [&str; 3] = ["faults", "minor-faults", "major-faults"];

fn with_faults(names: &[&'static str]) -> Vec<&'static str> {
    [names, &FAULTS].concat()
}

fn event(kind: u32, config: u64, config1: u64) -> Event {
    Event { config1, ..Event::new(kind, config) }
}

#[test]
fn each_machine_has_the_events_of_its_kind() {
    let pebs = with_faults(&["mem-loads", "mem-stores", "stlb-loads", "stlb-stores"]);
    let machines: [(&str, &[Files], Vec<&str>); 8] = [
        ("Skylake", &[SKYLAKE], pebs.clone()),
        ("Sapphire Rapids", &[SKYLAKE, SAPPHIRE_RAPIDS], pebs.clone()),
        ("Alder Lake", &[ALDER_LAKE], pebs),
        ("Zen 3", &[ZEN3], with_faults(&["ibs-op"])),
        ("Zen 4", &[ZEN3, ZEN4], with_faults(&["ibs-op", "ibs-op:l3miss"])),
        ("Zen 5", &[ZEN3, ZEN4, ZEN5], with_faults(&["ibs-op", "ibs-op:l3miss", "ibs-op:ldlat=128"])),
        ("Neoverse", &[NEOVERSE], with_faults(&["spe"])),
        ("virtual", &[VIRTUAL], FAULTS.to_vec()),
    ];
    for (name, files, expected) in machines {
        let machine = Machine::new(files);
        assert_eq!(machine.found(), expected, "{name}");
        for candidate in list(&machine.roots()) {
            assert!(!candidate.what.is_empty(), "{candidate:?}");
            if let Ok(event) = candidate.found {
                assert!(!event.parts.is_empty() && event.name == candidate.name, "{event:?}");
            }
        }
    }
}

#[test]
fn intels_loads_and_stores_are_those_of_sysfs() {
    let machine = Machine::new(&[SKYLAKE]);
    let loads = machine.find("mem-loads");
    assert_eq!((loads.kind, loads.default_rate), (Kind::Memory, ACCESSES));
    let part = PmuEvent {
        pmu: "cpu".to_owned(),
        event: event(4, 0x1cd, 30),
        leader: None,
        cpus: None,
        most_precise: 3,
        user_only: true,
    };
    assert_eq!(loads.parts, [part]);
    assert_eq!(machine.part("mem-loads:100").event, event(4, 0x1cd, 100));
    assert_eq!(machine.part("mem-loads:0x40").event, event(4, 0x1cd, 64));
    assert_eq!(machine.part("mem-stores").event, Event::new(4, 0x82d0));
    assert_eq!(machine.part("stlb-loads").event, Event::new(4, 0x11d0));
    assert_eq!(machine.part("stlb-stores").event, Event::new(4, 0x12d0));
}

#[test]
fn loads_have_a_leader_where_there_is_one() {
    let machine = Machine::new(&[SKYLAKE, SAPPHIRE_RAPIDS]);
    let leader = Some(Event::new(4, 0x8203));
    assert_eq!((machine.part("mem-loads").leader, machine.part("mem-loads:3").leader), (leader, leader));
    // However they are asked for.
    for loads in ["cpu/mem-loads,ldlat=50/", "cpu/event=0xcd,umask=1,ldlat=50/", "raw:4:0x1cd:50"] {
        assert_eq!((machine.part(loads).event, machine.part(loads).leader), (event(4, 0x1cd, 50), leader), "{loads}");
    }
    // Nothing else needs one.
    for other in ["mem-stores", "stlb-loads", "cpu/cpu-cycles/", "raw:4:0x11d0"] {
        assert_eq!(machine.part(other).leader, None, "{other}");
    }
}

#[test]
fn hybrid_processors_have_one_part_for_each_kind_of_core() {
    let machine = Machine::new(&[ALDER_LAKE]);
    let parts = |name: &str| {
        let parts = machine.find(name).parts.into_iter();
        parts.map(|p| (p.pmu, p.event, p.leader, p.cpus.expect("a list"))).collect::<Vec<_>>()
    };
    let (atom, core) = (|| ("cpu_atom".to_owned(), vec![4, 5, 7]), || ("cpu_core".to_owned(), vec![0, 1, 2, 3]));
    let part = |(pmu, cpus): (String, Vec<u32>), event, leader| (pmu, event, leader, cpus);
    let aux = Some(Event::new(4, 0x8203));
    let loads = [part(atom(), event(10, 0x5d0, 30), None), part(core(), event(4, 0x1cd, 30), aux)];
    assert_eq!(parts("mem-loads"), loads);
    let stores = [part(atom(), Event::new(10, 0x6d0), None), part(core(), Event::new(4, 0x2cd), None)];
    assert_eq!(parts("mem-stores"), stores);
    let misses = [part(atom(), Event::new(10, 0x12d0), None), part(core(), Event::new(4, 0x12d0), None)];
    assert_eq!(parts("stlb-stores"), misses);
}

#[test]
fn a_kind_of_core_that_is_offline_or_lacks_the_event_is_left_out() {
    let machine = Machine::new(&[ALDER_LAKE]);
    machine.write("@cpu_atom/cpus", "\n");
    assert_eq!(machine.part("mem-loads").pmu, "cpu_core");
    machine.write("@cpu_core/cpus", "\n");
    let error = machine.error("mem-loads").to_string();
    assert!(error.contains("list no processors"), "{error}");

    let machine = Machine::new(&[ALDER_LAKE]);
    machine.remove("@cpu_atom/events/mem-stores");
    assert_eq!(machine.part("mem-stores").pmu, "cpu_core");
    assert_eq!(machine.find("mem-loads").parts.len(), 2);
}

#[test]
fn ibs_counts_operations_and_filters_where_it_can() {
    let zen3 = Machine::new(&[ZEN3]).find("ibs-op");
    assert_eq!((zen3.kind, zen3.default_rate), (Kind::Ibs, OPERATIONS));
    assert_eq!((zen3.parts[0].event, zen3.parts[0].most_precise), (Event::new(11, 1 << 19), 0));
    assert!(!zen3.parts[0].user_only, "the kernel cannot be left out");

    let zen4 = Machine::new(&[ZEN3, ZEN4]);
    let filtered = |config, config1| Event { config1, config2: 1, ..Event::new(11, config) };
    assert_eq!(zen4.part("ibs-op").event, filtered(1 << 19, 0));
    assert!(zen4.part("ibs-op").user_only);
    assert_eq!(zen4.part("ibs-op:l3miss").event, filtered(1 << 19 | 1 << 16, 0));
    // Only if it is switched on.
    assert!(!zen4.part("ibs_op/cnt_ctl=1/").user_only);
    assert!(zen4.part("ibs_op/cnt_ctl,swfilt/").user_only);
    assert_eq!(zen4.find("ibs_op/cnt_ctl=1/").kind, Kind::Ibs);

    let zen5 = Machine::new(&[ZEN3, ZEN4, ZEN5]);
    assert_eq!(zen5.part("ibs-op:ldlat=256").event, filtered(1 << 19, 256));
    assert_eq!(zen5.part("ibs-op:l3miss:ldlat=128").event, filtered(1 << 19 | 1 << 16, 128));
    for (name, says) in [
        ("ibs-op:ldlat=127", "128 to 2048"),
        ("ibs-op:ldlat=2049", "128 to 2048"),
        ("ibs-op:ldlat", "l3miss or ldlat=CYCLES"),
        ("ibs-op:", "l3miss or ldlat=CYCLES"),
    ] {
        let error = zen5.error(name).to_string();
        assert!(error.contains(says), "{error}");
    }
    let error = Machine::new(&[ZEN3]).error("ibs-op:l3miss").to_string();
    assert!(error.contains("ibs_op/format/l3missonly") && error.contains("terms: cnt_ctl"), "{error}");
}

#[test]
fn spe_is_named_and_not_decoded() {
    let spe = Machine::new(&[NEOVERSE]).find("spe");
    assert_eq!((spe.kind, spe.parts[0].event), (Kind::Spe, Event::new(9, 3 << 33)));
    assert_eq!(spe.parts[0].cpus, Some(vec![0, 1, 2, 3]));
    assert!(spe.what.contains("not decoded yet"));
}

#[test]
fn faults_say_whether_there_are_hint_faults() {
    let machine = Machine::new(&[VIRTUAL]);
    let what = || list(&machine.roots()).into_iter().find(|c| c.name == "faults").expect("always there").what;
    assert!(what().contains("which is unknown"), "{}", what());
    machine.write("sys/devices/system/node/node0/cpulist", "0-1\n");
    machine.write("sys/devices/system/node/possible", "0\n");
    machine.write("proc/sys/kernel/numa_balancing", "1\n");
    assert!(what().contains("take more than one node"), "{}", what());
    machine.write("sys/devices/system/node/node1/cpulist", "2-3\n");
    assert!(what().contains("which this kernel makes now"), "{}", what());
    machine.write("proc/sys/kernel/numa_balancing", "2\n");
    assert!(what().contains("of memory in slow tiers"), "{}", what());
    assert!(!makes_hint_faults(&machine.roots()), "not of fast memory, which would look cold");
    machine.write("proc/sys/kernel/numa_balancing", "3\n");
    assert!(what().contains("which this kernel makes now") && makes_hint_faults(&machine.roots()), "both: {}", what());
    machine.write("proc/sys/kernel/numa_balancing", "0\n");
    assert!(what().contains("numa_balancing is 0"), "{}", what());

    let faults = machine.find("faults");
    assert_eq!((faults.kind, faults.default_rate), (Kind::Faults, Rate::Period(1)));
    let events: Vec<Event> = faults.parts.iter().map(|p| p.event).collect();
    assert_eq!(events, [Event::MINOR_FAULTS, Event::MAJOR_FAULTS]);
    assert_eq!(machine.part("minor-faults").event, Event::MINOR_FAULTS);
    assert_eq!(machine.part("major-faults").event, Event::MAJOR_FAULTS);
}

/// What is done to a Skylake, the event that suffers, and what the error says.
type Damage = (&'static str, fn(&Machine), &'static str, &'static [&'static str]);

const DAMAGES: &[Damage] = &[
    ("no mem-loads", |m| m.remove("@cpu/events/mem-loads"), "mem-loads", &["cpu has no events/mem-loads"]),
    ("no mem-loads", |m| m.remove("@cpu/events/mem-loads"), "stlb-loads", &["cpu has no events/mem-loads"]),
    ("no mem-stores", |m| m.remove("@cpu/events/mem-stores"), "mem-stores", &["cpu has no events/mem-stores"]),
    ("no events", |m| m.remove("@cpu/events"), "mem-loads", &["cpu has no events/mem-loads"]),
    ("no formats", |m| m.remove("@cpu/format"), "mem-loads", &["cpu/format/event", "no format/"]),
    ("no event", |m| m.remove("@cpu/format/event"), "stlb-loads", &["cpu/format/event", "it has terms: any, cmask"]),
    ("no ldlat", |m| m.remove("@cpu/format/ldlat"), "mem-loads", &["cpu/format/ldlat", "no such term"]),
    (
        "empty event",
        |m| m.write("@cpu/events/mem-loads", ""),
        "mem-loads",
        &["events/mem-loads", "it is empty", "event=0xcd"],
    ),
    (
        "empty format",
        |m| m.write("@cpu/format/umask", "\n"),
        "mem-stores",
        &["format/umask", "it is empty", "config:0-7,32-35"],
    ),
    (
        "garbage format",
        |m| m.write("@cpu/format/umask", "config:8-99"),
        "stlb-stores",
        &["format/umask", "config:8-99"],
    ),
    ("garbage event", |m| m.write("@cpu/events/mem-loads", "\u{1}=?,"), "mem-loads", &["events/mem-loads", "found"]),
    ("event of a foreign processor", |m| m.write("@cpu/events/mem-loads", "frob=1"), "mem-loads", &["format/frob"]),
    (
        "narrow latency",
        |m| m.write("@cpu/format/ldlat", "config1:0-3"),
        "mem-loads",
        &["ldlat=0x1e", "4 bits", "format/ldlat"],
    ),
    ("no type", |m| m.remove("@cpu/type"), "mem-loads", &["cpu/type", "there is no such file"]),
    ("type is no number", |m| m.write("@cpu/type", "cpu"), "mem-loads", &["cpu/type", "found \"cpu\"", "the number"]),
    ("type is empty", |m| m.write("@cpu/type", ""), "mem-stores", &["cpu/type", "it is empty"]),
    ("bad processors", |m| m.write("@cpu/cpus", "all"), "mem-loads", &["cpu/cpus", "found \"all\"", "0-7,16"]),
    (
        "imprecise",
        |m| m.write("@cpu/caps/max_precise", "0"),
        "mem-loads",
        &["caps/max_precise", "only precise samples"],
    ),
    ("bad precision", |m| m.write("@cpu/caps/max_precise", "x"), "stlb-loads", &["caps/max_precise", "found \"x\""]),
    ("no cpuinfo", |m| m.remove("proc/cpuinfo"), "stlb-loads", &["cpuinfo", "there is no such file"]),
    (
        "no vendor",
        |m| m.write("proc/cpuinfo", "processor : 0\n"),
        "stlb-loads",
        &["cpuinfo", "vendor_id", "processor : 0"],
    ),
    ("AMD", |m| m.write("proc/cpuinfo", "vendor_id : AuthenticAMD\n"), "stlb-loads", &["Intel", "AuthenticAMD"]),
    (
        "Ivy Bridge",
        |m| m.write("proc/cpuinfo", "vendor_id : GenuineIntel\ncpu family : 6\nmodel : 62\n"),
        "stlb-loads",
        &["Haswell", "model 62"],
    ),
    ("Nehalem", |m| m.write("@cpu/events/mem-loads", "event=0x0b,umask=0x10,ldlat=3"), "stlb-loads", &["0xcd or 0xd0"]),
    ("a directory for a file", |m| (m.remove("@cpu/type"), m.write("@cpu/type/x", "")).1, "mem-loads", &["cpu/type"]),
    ("no cpu", |m| m.remove("@cpu"), "mem-loads", &["no event source cpu or cpu_*", "faults"]),
    ("no sources", |m| m.remove("sys"), "mem-loads", &["bus/event_source/devices", "there is no such file"]),
];

#[test]
fn each_damage_is_told_with_its_file() {
    for (damage, apply, name, says) in DAMAGES {
        let machine = Machine::new(&[SKYLAKE]);
        assert!(find(&machine.roots(), name).is_ok(), "{name} is there before");
        apply(&machine);
        let error = machine.error(name).to_string();
        for part in *says {
            assert!(error.contains(part), "{damage}: {error:?} does not say {part:?}");
        }
        // And costs no more than it has to.
        assert_eq!(list(&machine.roots()).len(), NAMES.len());
        let found = machine.found();
        assert!(found.ends_with(&FAULTS), "{damage}: {found:?}");
    }
}

#[test]
fn what_does_not_matter_is_not_missed() {
    let machine = Machine::new(&[SKYLAKE]);
    for file in ["@cpu/caps", "@cpu/format/frontend", "@cpu/events/cpu-cycles"] {
        machine.remove(file);
    }
    assert_eq!(machine.part("mem-loads").most_precise, 3);
    machine.write("@cpu/caps/max_precise", "2\n");
    assert_eq!(machine.part("mem-loads").most_precise, 2);
    machine.remove("proc");
    assert_eq!(machine.found(), with_faults(&["mem-loads", "mem-stores"]));
}

#[test]
fn events_are_spelled_as_in_perf() {
    let machine = Machine::new(&[SKYLAKE]);
    let cases = [
        ("cpu/mem-loads,ldlat=50/", event(4, 0x1cd, 50)),
        ("cpu/ldlat=50,mem-loads/", event(4, 0x1cd, 50)),
        ("cpu/mem-loads/", event(4, 0x1cd, 3)),
        ("cpu/event=0xd0,umask=0x11/", Event::new(4, 0x11d0)),
        ("cpu/ event=60, edge, cmask=0xff /", Event::new(4, 0xff << 24 | 1 << 18 | 60)),
        ("cpu/any=1,event=0x3c/", Event::new(4, 1 << 21 | 0x3c)),
        ("cpu/config=0x1cd,config1=0x1f/", event(4, 0x1cd, 31)),
        ("cpu/config=0xff00,umask=1/", Event::new(4, 0x100)),
        ("cpu/config2=7,config3=0xffffffffffffffff/", Event { config2: 7, config3: u64::MAX, ..Event::new(4, 0) }),
        ("cpu//", Event::new(4, 0)),
    ];
    for (name, expected) in cases {
        assert_eq!(machine.part(name).event, expected, "{name}");
        assert_eq!(machine.find(name).kind, Kind::Memory, "{name}");
    }
    let zen = Machine::new(&[ZEN3]);
    let part = zen.part("cpu/event=0xabc,umask=2/");
    assert_eq!((part.event, part.most_precise), (Event::new(4, 0xa << 32 | 0x2bc), 2));
    assert_eq!(zen.find("cpu/event=0x76/").kind, Kind::Raw);
    assert_eq!(zen.find("software/config=5/").kind, Kind::Faults);
    assert_eq!(zen.part("software/config=5/").most_precise, 0);
}

#[test]
fn what_is_misspelled_is_told() {
    let machine = Machine::new(&[SKYLAKE]);
    let cases: [(&str, &[&str]); 23] = [
        ("", &["no such name", "mem-loads", "raw:TYPE"]),
        ("loads", &["no such name", "doctor --events"]),
        ("mem-stores:3", &["no such name"]),
        ("mem-loads:", &["cycles"]),
        ("mem-loads:-1", &["cycles", "\"-1\""]),
        ("mem-loads:65536", &["16 bits", "format/ldlat"]),
        ("cpu/frob=1/", &["format/frob", "terms: any, cmask, edge", "events: cpu-cycles, mem-loads, mem-stores"]),
        ("cpu/frob/", &["format/frob"]),
        ("cpu/umask=0x100/", &["umask=0x100", "8 bits"]),
        ("cpu/edge=2/", &["edge=0x2", "1 bits"]),
        ("cpu/event=zebra/", &["event=zebra"]),
        ("cpu/event=1,,umask=1/", &["expected terms"]),
        ("cpu/event=1", &["slash at the end"]),
        ("cpu/event=1/pp", &["no modifiers"]),
        ("cpu/name=x/", &["name= is no part"]),
        ("cpu/event=1,period=5/", &["period= is no part", "option of its own"]),
        ("cpu/freq=5/", &["freq= is no part"]),
        ("gpu/event=1/", &["devices/gpu", "there are cpu, software"]),
        ("../cpu/event=1/", &["before the first slash"]),
        ("/event=1/", &["before the first slash"]),
        ("raw:4", &["raw:TYPE:CONFIG"]),
        ("raw:4294967296:1", &["below 2^32"]),
        ("raw:4:x", &["a number, decimal"]),
    ];
    for (name, says) in cases {
        let error = machine.error(name).to_string();
        for part in says {
            assert!(error.contains(part), "{name}: {error:?} does not say {part:?}");
        }
    }
}

#[test]
fn raw_numbers_are_taken_as_they_are() {
    let machine = Machine::new(&[SKYLAKE]);
    let raw = machine.find("raw:4:0x20d1:1:2:3");
    assert_eq!((raw.kind, raw.parts[0].most_precise, &*raw.parts[0].pmu), (Kind::Raw, 2, "cpu"));
    assert_eq!(raw.parts[0].event, Event { config: 0x20d1, config1: 1, config2: 2, config3: 3, kind: 4 });
    let faults = machine.find("raw:1:5");
    assert_eq!((faults.kind, faults.parts[0].most_precise, faults.default_rate), (Kind::Faults, 0, Rate::Period(1)));
    let other = machine.find("raw:77:1");
    assert_eq!((&*other.parts[0].pmu, other.parts[0].most_precise), ("type 77", 2));
    assert_eq!(machine.part("raw:1:0").most_precise, 0);
    // Also where sysfs tells nothing, or nonsense.
    machine.write("@cpu/cpus", "nonsense");
    assert_eq!(machine.part("raw:4:1").event, Event::new(4, 1));
    machine.remove("sys");
    assert_eq!(machine.part("raw:4:1").event, Event::new(4, 1));
    assert_eq!(machine.find("raw:1:6").kind, Kind::Faults);

    let hybrid = Machine::new(&[ALDER_LAKE]);
    assert_eq!(hybrid.part("raw:10:0x5d0:30").cpus, Some(vec![4, 5, 7]));
    let zen = Machine::new(&[ZEN3]);
    assert_eq!((zen.find("raw:11:0x80000").kind, zen.part("raw:11:0x80000").user_only), (Kind::Ibs, false));
}

#[test]
fn damos_order_is_understood() {
    let event = Event { kind: 4, config: 0x1cd, config1: 0x1e, ..Event::default() };
    let expected = RawEvent { frequency: 5003, physical: true, event };
    for text in
        ["5003 1 4 0x1cd 0x1e 0", " 5003  Y  4 461 30 0x0 ", "0x138b true 0x4 0X1CD 30 0 0", "5003 yes 4 461 30 0"]
    {
        assert_eq!(text.parse(), Ok(expected), "{text}");
    }
    let seven: RawEvent = "1 N 4 1 2 3 4".parse().expect("seven words");
    assert_eq!((seven.event.config2, seven.event.config3, seven.physical), (3, 4, false));
    for word in ["0", "false", "no", "n", "No", "FALSE"] {
        assert!(!format!("1 {word} 4 1 2 3").parse::<RawEvent>().expect(word).physical);
    }
    for (text, says) in [
        ("", "six or seven"),
        ("1 1 4 1 2", "six or seven"),
        ("1 1 4 1 2 3 4 5", "six or seven"),
        ("0 1 4 1 2 3", "1 or more"),
        ("x 1 4 1 2 3", "1 or more"),
        ("1 maybe 4 1 2 3", "false or true"),
        ("1 2 4 1 2 3", "false or true"),
        ("1 1 0x100000000 1 2 3", "below 2^32"),
        ("1 1 4 -1 2 3", "a number"),
        ("1 1 4 1 2 0x10000000000000000", "a number"),
    ] {
        let error = text.parse::<RawEvent>().expect_err(text).to_string();
        assert!(error.contains(says), "{text:?}: {error}");
    }

    let named = expected.named(&Machine::new(&[SKYLAKE, SAPPHIRE_RAPIDS]).roots()).expect("numbers");
    assert_eq!((named.default_rate, &*named.name), (Rate::Frequency(5003), "raw:4:0x1cd:0x1e:0x0:0x0"));
    assert_eq!(named.parts[0].leader, Some(Event::new(4, 0x8203)));
}

#[test]
fn garbage_everywhere_is_an_error_everywhere() {
    let garbage = ["", "\n", "\u{0}[[-,-]:\u{7f}", "0-99999999999", "config:0-64", "=,=", "-1"];
    for text in garbage {
        let machine = Machine::new(&[]);
        for (name, _) in [SKYLAKE, SAPPHIRE_RAPIDS, ALDER_LAKE, ZEN3, ZEN4, ZEN5, NEOVERSE].iter().copied().flatten() {
            machine.write(name, text);
        }
        assert_eq!(machine.found(), FAULTS, "{text:?}");
    }
}

#[test]
fn this_machine_can_be_asked() {
    let roots = HostRoots::default();
    assert_eq!(list(&roots).len(), NAMES.len());
    assert!(find(&roots, "faults").is_ok());
    assert!(matches!(find(&roots, "no-such-thing"), Err(NamedError::Unknown { .. })));
}

mod random {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_name_is_an_event_or_an_error(name in "[a-z/:=,.0x -]{0,40}") {
            let machine = Machine::new(&[SKYLAKE]);
            if let Err(error) = find(&machine.roots(), &name) {
                prop_assert!(!error.to_string().is_empty());
            }
        }

        #[test]
        fn any_words_are_damos_or_an_error(text in "[0-9a-z ]{0,60}") {
            let _ = text.parse::<RawEvent>();
        }
    }
}
