use super::*;
use crate::memory::{Memory, PageSize};
use crate::perf::{Fields, Sampling};
use std::io::Write;

/// What the kernel does to the events of a processor that goes offline: they stay open, and stand still.
fn take_offline(slot: &Slot) {
    use std::os::fd::AsRawFd;
    const IOC_DISABLE: libc::c_ulong = 0x2401;
    for opened in &slot.events {
        // SAFETY: this request takes a number, and the descriptor is open.
        assert_eq!(unsafe { libc::ioctl(opened.event.as_raw_fd(), IOC_DISABLE, 0) }, 0);
    }
}

/// Opens rings for all page faults, or says aloud why not and returns `None`.
fn open(whom: &Whom, needed: &str) -> Option<Rings> {
    let part = Part::everywhere(Sampling::new(Event::MINOR_FAULTS, Rate::Period(1), Fields::TID | Fields::ADDR));
    match Rings::open(Path::new("/sys"), &[part], whom, 1 << 20) {
        Err(e @ (RingError::Denied { .. } | RingError::Io { .. })) => {
            let _ = std::io::stderr().write_all(format!("skipped: needs {needed} ({e})\n").as_bytes());
            None
        }
        opened => Some(opened.unwrap()),
    }
}

#[test]
fn events_of_a_processor_that_was_away_are_opened_anew() {
    let Some(mut rings) = open(&Whom::Host, "CAP_PERFMON") else { return };
    assert!(rings.refit().unwrap().is_none() && rings.refit().unwrap().is_none());
    let cpu = rings.slots[0].cpu;
    let cpus = rings.cpus();
    take_offline(&rings.slots[0]);
    // The first look may still see the time grow, up to when it was stopped.
    let (first, second) = (rings.refit().unwrap(), rings.refit().unwrap());
    assert!(first.is_none() != second.is_none(), "{first:?} {second:?}");
    let refit = if first.is_none() { second } else { first };
    assert_eq!((refit.cpus_went, refit.cpus_came), (vec![cpu], vec![cpu]));
    assert_eq!((rings.cpus(), rings.slots[0].cpu), (cpus, cpu));
    assert!(rings.refit().unwrap().is_none());
}

#[test]
fn closed_events_do_not_sample_on_in_copies_of_their_descriptors() {
    let Some(mut rings) = open(&Whom::Process(std::process::id()), "perf_event_open") else { return };
    let samples_of_100_pages = |rings: &mut Rings| {
        rings.drain(|_| {});
        Memory::anonymous(100 * 4096, PageSize::Small).unwrap().populate();
        let mut samples = 0;
        rings.drain(|record| samples += usize::from(matches!(record, Record::Sample(_))));
        samples
    };
    assert!(samples_of_100_pages(&mut rings) >= 100);
    // What a fork holds until it becomes another program.
    let copies: Vec<fs::File> =
        rings.slots.iter().flat_map(|slot| &slot.events).map(|opened| opened.event.try_clone().unwrap()).collect();
    let Rings { slots, closed, .. } = &mut rings;
    slots.iter_mut().for_each(|slot| slot.close(1, closed));
    assert_eq!(samples_of_100_pages(&mut rings), 0, "with copies of {} descriptors", copies.len());
}

#[test]
fn a_part_that_no_processor_has_is_refused() {
    let sampling = Sampling::new(Event::MINOR_FAULTS, Rate::Period(1), Fields::ADDR);
    let part = Part { sampling, cpus: Some(vec![u32::MAX]) };
    let refused = Rings::open(Path::new("/sys"), &[part], &Whom::Process(std::process::id()), 4096);
    assert!(matches!(refused, Err(RingError::Unfit { .. })), "{refused:?}");
}
