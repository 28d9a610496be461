//! A recording with bytes changed: read, or refused with a reason, within the limit on memory.
//!
//! Inputs are a valid recording, of which the first byte chooses a file, and the rest is written over it or put in its place.

#![no_main]

use isotherm_heat::{RunInfo, Snapshot};
use isotherm_record::{Options, Recording, Writer};
use isotherm_units::Bytes;
use libfuzzer_sys::fuzz_target;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The files of a valid recording, and their contents.
fn valid() -> &'static (PathBuf, Vec<(PathBuf, Vec<u8>)>) {
    static VALID: OnceLock<(PathBuf, Vec<(PathBuf, Vec<u8>)>)> = OnceLock::new();
    VALID.get_or_init(|| {
        let dir = Path::new("/dev/shm").join(format!("isotherm-fuzz-{}", std::process::id()));
        let mut writer = Writer::create(&dir, &RunInfo::default(), Options::default()).expect("a recording in memory");
        for n in 0..3_u64 {
            let at = n * 1_000_000_000;
            let snapshot = Snapshot { start_unix_ns: at, end_unix_ns: at + 1_000_000_000, targets: Vec::new(), cost: Default::default() };
            writer.push(&snapshot).expect("a snapshot");
        }
        writer.finish().expect("a recording");
        let files = walk(&dir).into_iter().map(|path| (path.clone(), fs::read(path).expect("read it back"))).collect();
        (dir, files)
    })
}

fn walk(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).expect("a folder").flatten() {
        if entry.path().is_dir() { files.extend(walk(&entry.path())) } else { files.push(entry.path()) }
    }
    files.sort();
    files
}

/// The decoder of Parquet panics on some inputs, which the reader catches and reports as a damaged file. The hook of libFuzzer would end us
/// there; a panic that nobody catches still does.
fn catchable() {
    std::panic::set_hook(Box::new(|_| {}));
}

fuzz_target!(init: catchable(), |data: &[u8]| {
    let Some((&[choice, at_low, at_high], bytes)) = data.split_first_chunk::<3>() else { return };
    let (dir, files) = valid();
    let (path, contents) = &files[usize::from(choice & 0x7f) % files.len()];
    let mut changed = contents.clone();
    if choice & 0x80 != 0 {
        changed = bytes.to_vec();
    } else if !changed.is_empty() {
        let at = usize::from(u16::from_le_bytes([at_low, at_high])) % changed.len();
        for (into, byte) in changed[at..].iter_mut().zip(bytes) {
            *into = *byte;
        }
    }
    fs::write(path, &changed).expect("write a file in memory");
    if let Ok(recording) = Recording::open(dir) {
        let _ = recording.with_max_memory(Some(Bytes(64 << 20))).read_all();
    }
    fs::write(path, contents).expect("write a file in memory");
});
