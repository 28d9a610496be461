//! On a made-up kernel: what is refused, what is written, and that all of it is undone.

use super::fake::FakeKernel;
use super::*;
use isotherm_units::{Addr, AddrRange};
use std::fs;

const VADDR: Operations = Operations::Vaddr;
const REDIS: u32 = 70;
const POSTGRES: u32 = 71;
const CONTEXT: &str = "0/contexts/0";

fn redis() -> Vec<Target> {
    vec![Target::process(REDIS)]
}

#[test]
fn what_is_set_up_is_what_was_asked_for_and_is_undone() {
    let kernel = FakeKernel::new();
    let mut kdamond = kernel.claim(VADDR).unwrap();
    assert_eq!((kdamond.thread(), kernel.damon("0/state").as_str()), (None, "off"), "nothing is started yet");
    let thread = kdamond.start(&redis()).unwrap();
    assert_eq!(kdamond.thread(), Some(thread));
    for (file, value) in [
        ("operations", "vaddr"),
        ("monitoring_attrs/intervals/sample_us", "5000"),
        ("monitoring_attrs/intervals/aggr_us", "100000"),
        ("monitoring_attrs/intervals/update_us", "1000000"),
        ("monitoring_attrs/nr_regions/max", "1000"),
        ("targets/nr_targets", "1"),
        ("targets/0/pid_target", "70"),
    ] {
        assert_eq!(kernel.damon(&format!("{CONTEXT}/{file}")), value, "{file}");
    }
    assert!(!kdamond.tunes());
    kdamond.add(&[Target::process(POSTGRES)]).unwrap();
    assert_eq!(kernel.damon(&format!("{CONTEXT}/targets/1/pid_target")), "71");
    assert_eq!((kdamond.thread(), kdamond.targets().len()), (Some(thread), 2), "added to what runs");
    assert_ne!(kdamond.start(&redis()).unwrap(), thread, "anew, with one target less");
    assert_eq!(kernel.damon(&format!("{CONTEXT}/targets/nr_targets")), "1");
    kdamond.release().unwrap();
    assert!(kernel.is_untouched());
    assert!(!kernel.path("run/isotherm/damon.state").exists());
}

#[test]
fn physical_memory_is_told_by_ranges_and_intervals_are_tuned_where_that_exists() {
    let kernel = FakeKernel::new();
    kernel.behaviour.borrow_mut().tunes = true;
    let mut kdamond = kernel.claim(Operations::Paddr).unwrap();
    let ranges = vec![AddrRange::new(Addr(4096), Addr(8192)), AddrRange::new(Addr(1 << 20), Addr(1 << 30))];
    kdamond.start(&[Target { pid: None, ranges }]).unwrap();
    assert!(kdamond.tunes());
    assert_eq!(kernel.damon(&format!("{CONTEXT}/monitoring_attrs/intervals/intervals_goal/access_bp")), "400");
    assert_eq!(kernel.damon(&format!("{CONTEXT}/targets/0/regions/1/end")), (1 << 30).to_string());
    drop(kdamond);
    assert!(kernel.is_untouched());
}

#[test]
fn a_kernel_that_lacks_something_is_told_what() {
    let refusal = |prepare: fn(&FakeKernel), operations| {
        let kernel = FakeKernel::new();
        prepare(&kernel);
        kernel.claim(operations).map(drop).unwrap_err().to_string()
    };
    let no_sysfs = refusal(|k| fs::remove_dir_all(k.path("sys/kernel")).unwrap(), VADDR);
    assert!(no_sysfs.contains("CONFIG_DAMON_SYSFS=y"), "{no_sysfs}");
    let no_vaddr = refusal(|k| k.behaviour.borrow_mut().operations = "paddr", VADDR);
    assert!(no_vaddr.contains("CONFIG_DAMON_VADDR=y"), "{no_vaddr}");
    let no_paddr = refusal(|k| k.behaviour.borrow_mut().operations = "vaddr fvaddr", Operations::Paddr);
    assert!(no_paddr.contains("CONFIG_DAMON_PADDR=y"), "{no_paddr}");
    let kernel = FakeKernel::new();
    kernel.behaviour.borrow_mut().operations = "";
    assert!(kernel.claim(VADDR).is_err() && kernel.is_untouched(), "tried, and undone");
}

#[test]
fn whoever_else_uses_it_is_left_alone_and_named() {
    type Prepare = fn(&FakeKernel);
    let cases: [(&str, Prepare, &str); 4] = [
        ("running", |k| start_as_another(k, "on"), "1 set up, 1 running"),
        ("set up and off", |k| start_as_another(k, "off"), "1 set up, 0 running"),
        ("module", |k| k.file("sys/module/damon_reclaim/parameters/enabled", "Y\n"), "damon_reclaim"),
        ("thread", |k| k.process(99, "kdamond.3", true, 5), "1 kernel threads"),
    ];
    for (name, prepare, who) in cases {
        let kernel = FakeKernel::new();
        prepare(&kernel);
        for error in [kernel.claim(VADDR).map(drop).unwrap_err(), available(&kernel.places()).unwrap_err()] {
            assert!(matches!(&error, Error::InUse { by } if by.contains(who)), "{name}: {error}");
        }
        assert_eq!(kernel.behaviour.borrow().journal, [""; 0], "{name}: nothing may be written");
        assert!(!kernel.path("run").exists(), "{name}: nor a lock be taken");
    }
}

fn start_as_another(kernel: &FakeKernel, state: &str) {
    kernel.other_writes("nr_kdamonds", "1");
    kernel.other_writes("0/contexts/nr_contexts", "1");
    kernel.other_writes(&format!("{CONTEXT}/targets/nr_targets"), "1");
    kernel.other_writes(&format!("{CONTEXT}/targets/0/pid_target"), "70");
    if state == "on" {
        kernel.other_writes("0/state", "on");
    }
}

#[test]
fn a_second_one_is_refused_while_the_first_lives() {
    let kernel = FakeKernel::new();
    let mut first = kernel.claim(VADDR).unwrap();
    first.start(&redis()).unwrap();
    let error = kernel.claim(VADDR).map(drop).unwrap_err().to_string();
    assert!(error.contains(&format!("another Isotherm (process {})", std::process::id())), "{error}");
    assert!(first.thread().is_some(), "unharmed");
    drop(first);
    kernel.claim(VADDR).unwrap();
}

#[test]
fn busy_for_a_moment_is_waited_for_and_busy_for_long_is_told() {
    let kernel = FakeKernel::new();
    kernel.behaviour.borrow_mut().busy = vec![("nr_kdamonds", 3), ("0/state", 2)];
    kernel.claim(VADDR).unwrap().start(&redis()).unwrap();
    assert!(kernel.is_untouched());
    kernel.behaviour.borrow_mut().busy = vec![("nr_kdamonds", 20)];
    let error = kernel.claim(VADDR).map(drop).unwrap_err();
    assert!(matches!(&error, Error::InUse { .. }), "{error}");
    assert!(kernel.is_untouched());
}

#[test]
fn what_a_killed_one_left_is_cleaned_up_by_the_next() {
    let kernel = FakeKernel::new();
    let mut killed = kernel.claim(VADDR).unwrap();
    let thread = killed.start(&redis()).unwrap();
    killed.crash();
    assert_eq!((kernel.damon("0/state").as_str(), kernel.damon("0/pid")), ("on", thread.to_string()));
    let next = kernel.claim(VADDR).unwrap();
    assert_eq!(kernel.damon("0/state"), "off");
    drop(next);
    assert!(kernel.is_untouched());
}

#[test]
fn killed_at_any_write_it_is_cleaned_up_by_the_next() {
    let work = |kernel: &FakeKernel| -> Result<(), Error> {
        let mut kdamond = kernel.claim(VADDR)?;
        let done = kdamond.start(&redis()).and_then(|_| kdamond.add(&[Target::process(POSTGRES)]));
        let done = done.and_then(|()| kdamond.start(&[Target::process(POSTGRES)]).map(drop));
        if done.is_err() {
            kdamond.crash()
        } else {
            kdamond.release()?
        }
        done
    };
    let whole = FakeKernel::new();
    work(&whole).unwrap();
    let writes = whole.behaviour.borrow().journal.len();
    assert!(writes > 20, "{writes}");
    for at in 0..writes {
        for after in [false, true] {
            let kernel = FakeKernel::new();
            kernel.behaviour.borrow_mut().killed_at = Some((at, after));
            work(&kernel).unwrap_err();
            kernel.behaviour.borrow_mut().killed_at = None;
            let last = kernel.behaviour.borrow().journal[at].clone();
            kernel.claim(VADDR).unwrap_or_else(|e| panic!("killed at write {at} ({last}), done: {after}: {e}"));
            assert!(kernel.is_untouched(), "killed at write {at} ({last}), done: {after}");
        }
    }
}

#[test]
fn what_others_have_made_of_the_left_over_is_theirs() {
    type Meddle = fn(&FakeKernel);
    let cases: [(&str, Meddle); 6] = [
        ("started again by hand", |k| {
            k.other_writes("0/state", "off");
            k.other_writes("0/state", "on");
        }),
        ("another target", |k| k.other_writes(&format!("{CONTEXT}/targets/0/pid_target"), "71")),
        ("other intervals", |k| k.other_writes(&format!("{CONTEXT}/monitoring_attrs/intervals/aggr_us"), "200000")),
        ("a scheme", |k| k.other_writes(&format!("{CONTEXT}/schemes/nr_schemes"), "1")),
        ("all anew", |k| {
            k.other_writes("0/state", "off");
            k.other_writes("nr_kdamonds", "2");
        }),
        ("another boot", |k| k.file("proc/sys/kernel/random/boot_id", "second-boot\n")),
    ];
    for (name, meddle) in cases {
        let kernel = FakeKernel::new();
        let mut killed = kernel.claim(VADDR).unwrap();
        killed.start(&redis()).unwrap();
        killed.crash();
        meddle(&kernel);
        let before = kernel.behaviour.borrow().journal.len();
        let error = kernel.claim(VADDR).map(drop).unwrap_err();
        assert!(matches!(error, Error::InUse { .. }), "{name}: {error}");
        assert_eq!(kernel.behaviour.borrow().journal.len(), before, "{name}: nothing may be written");
    }
}

#[test]
fn what_others_change_while_we_use_it_is_not_undone_by_us() {
    let kernel = FakeKernel::new();
    let mut kdamond = kernel.claim(VADDR).unwrap();
    kdamond.start(&redis()).unwrap();
    kernel.other_writes("0/state", "off");
    kernel.other_writes("nr_kdamonds", "0");
    start_as_another(&kernel, "on");
    assert_eq!(kdamond.thread(), None, "not ours");
    assert!(matches!(kdamond.add(&redis()), Err(Error::Taken { .. })));
    assert!(matches!(kdamond.release(), Err(Error::Taken { .. })));
    assert_eq!(kernel.damon("0/state"), "on");
}

#[test]
fn a_thread_that_ends_with_its_targets_is_started_again() {
    let kernel = FakeKernel::new();
    let mut kdamond = kernel.claim(VADDR).unwrap();
    kdamond.start(&redis()).unwrap();
    kernel.end_thread();
    assert_eq!(kdamond.thread(), None);
    kdamond.start(&[Target::process(POSTGRES)]).unwrap();
    fs::remove_dir_all(kernel.path("proc/70")).unwrap();
    let error = kdamond.start(&redis()).unwrap_err();
    assert!(matches!(&error, Error::Refused { targets } if targets == "process 70"), "{error}");
    kdamond.start(&[Target::process(POSTGRES)]).unwrap();
    assert!(matches!(kdamond.add(&redis()), Err(Error::Refused { .. })), "the kernel says yes and ends the thread");
    kdamond.start(&[Target::process(POSTGRES)]).unwrap();
    drop(kdamond);
    assert!(kernel.is_untouched());
}

#[test]
fn settings_that_contradict_themselves_are_refused_before_anything_is_written() {
    let kernel = FakeKernel::new();
    let wrong = [
        Attributes { sample_us: 0, ..Attributes::default() },
        Attributes { sample_us: 200_000, ..Attributes::default() },
        Attributes { min_regions: 2, ..Attributes::default() },
        Attributes { max_regions: 9, ..Attributes::default() },
    ];
    for attributes in wrong {
        let claim = Kdamond::claim_in(Box::new(kernel.clone()), &kernel.places(), VADDR, &attributes);
        assert!(matches!(claim, Err(Error::Settings(_))), "{attributes:?}");
    }
    assert!(!kernel.path("run").exists() && kernel.behaviour.borrow().journal.is_empty());
}
