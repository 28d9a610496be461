//! Decoding on made-up bytes; the programs themselves on this kernel.

use super::*;
use std::io::Write;
use std::time::Duration;

#[test]
fn a_record_is_decoded_as_the_program_lays_it_out() {
    let mut bytes = Vec::new();
    for word in [5_u64, 7, 11, 13] {
        bytes.extend(word.to_ne_bytes());
    }
    bytes.extend(3_u32.to_ne_bytes());
    bytes.extend(0_u16.to_ne_bytes());
    bytes.extend(2_u16.to_ne_bytes());
    let run = Run { cpu: 3, queued_ns: Some(5), start_ns: 7, end_ns: 11, jiffies: 13, cause: Cause::Shepherd };
    assert_eq!(decode(&bytes), Some((0, run)));
    assert_eq!(decode(&bytes[..39]), None);
}

#[test]
fn layouts_are_those_of_the_program() {
    use crate::skeletons::vmstat::types;
    assert_eq!(size_of::<types::caller>(), 16);
    assert_eq!(std::mem::offset_of!(types::running, spins), SPINS_WORD * 8);
    assert_eq!(std::mem::offset_of!(types::caller, beside), 14);
    assert_eq!(std::mem::offset_of!(types::zone_of_lock, name), 8);
}

#[test]
fn hidden_and_missing_symbols_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kallsyms");
    let open = |text: &str| {
        std::fs::write(&path, text).unwrap();
        Observer::open(&Symbols::read(&path).unwrap()).unwrap_err().to_string()
    };
    assert!(open("0000000000000000 t vmstat_update\n").contains("CAP_SYSLOG"));
    assert!(open("ffffffff81000000 T _stext\n").contains("no function vmstat_update"));
}

#[test]
fn every_cpu_with_something_to_fold_is_seen() {
    let opened = symbols().and_then(|symbols| Ok((Observer::open(&symbols)?, symbols)));
    let (mut observer, symbols) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            let _ =
                io::stderr().write_all(format!("skipped: needs the observer of housekeeping: {error}\n").as_bytes());
            return;
        }
    };
    let mut runs = Runs::default();
    // Twice the default interval, and no longer than it takes.
    for _ in 0..40 {
        std::thread::sleep(Duration::from_millis(100));
        runs.extend(observer.drain().unwrap());
        if runs.updates.len() >= 2 && !runs.shepherds.is_empty() {
            break;
        }
    }
    if runs.updates.is_empty() {
        let _ = writeln!(io::stderr(), "skipped: needs housekeeping within four seconds (vm.stat_interval is longer?)");
        return;
    }
    for run in runs.updates.iter().chain(&runs.shepherds) {
        assert!(run.start_ns < run.end_ns && run.jiffies > 0, "{run:?}");
        assert!(run.queued_ns.is_none_or(|at| at <= run.start_ns), "{run:?}");
    }
    assert_eq!(observer.lost_runs(), 0);
    let waits = observer.waits(&symbols, SeenWaiters::Unknown).unwrap();
    for wait in &waits.by_place {
        assert!(wait.count > 0 && wait.max_ns <= wait.total_ns && !wait.zone.is_empty(), "{wait:?}");
    }
}

#[test]
fn a_realtime_kernel_is_said_to_show_no_waits() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("realtime");
    assert_eq!(sleeping_locks(&file), None);
    std::fs::write(&file, "1\n").unwrap();
    assert!(sleeping_locks(&file).unwrap().contains("PREEMPT_RT"));
}
