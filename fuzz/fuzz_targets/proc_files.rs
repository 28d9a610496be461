//! Files of `/proc` and of cgroups with contents that mean anything: no panic, and nothing found twice over.
//!
//! The input is the text of one file at a time, since each reader takes one.

#![no_main]

use isotherm_sys::proc::{Maps, Proc, Smaps, meminfo};
use libfuzzer_sys::fuzz_target;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

const PID: u32 = 7;
/// Files of a process that readers open, and of the whole machine.
const OF_PROCESS: [&str; 9] = ["stat", "status", "maps", "smaps", "smaps_rollup", "cgroup", "sched", "cmdline", "task/7/children"];
const OF_MACHINE: [&str; 3] = ["self/mountinfo", "vmstat", "meminfo"];

/// A `/proc` in memory, with one process. Made once, and written over.
fn root() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| {
        let root = Path::new("/dev/shm").join(format!("isotherm-fuzz-{}", std::process::id()));
        fs::create_dir_all(root.join("7/task/7")).expect("a folder in memory");
        fs::create_dir_all(root.join("self")).expect("a folder in memory");
        root
    })
}

fuzz_target!(|data: &[u8]| {
    let Some((choice, text)) = data.split_first() else { return };
    let files: Vec<PathBuf> =
        OF_PROCESS.iter().map(|f| root().join("7").join(f)).chain(OF_MACHINE.iter().map(|f| root().join(f))).collect();
    let file = &files[usize::from(*choice) % files.len()];
    fs::write(file, text).expect("write a file in memory");
    let proc = Proc::at(root());
    let _ = (proc.stat(PID), proc.status(PID), proc.identity(PID), proc.membership(PID), proc.children(PID));
    let _ = (proc.smaps_rollup(PID), proc.numa_scans(PID), proc.numa_updates(), proc.family(), proc.threads(PID));
    if let Ok(cgroups) = proc.cgroups() {
        let _ = (cgroups.find("/"), cgroups.find("a/b"), proc.membership(PID).map(|m| cgroups.of(&m)));
    }
    if let Ok(maps) = Maps::from_text(text) {
        let ends = maps.entries().iter().map(|entry| entry.range.end);
        assert!(maps.entries().len() <= text.len() / 10 + 1 && ends.count() == maps.entries().len());
    }
    Smaps::new(Some(text), "smaps").take(text.len() + 1).for_each(drop);
    let _ = meminfo(&String::from_utf8_lossy(text), "MemAvailable");
    fs::write(file, "").expect("write a file in memory");
});
