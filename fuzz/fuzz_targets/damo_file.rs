//! A file of damo with contents that mean anything: read, or refused with a reason, within the limit on memory.

#![no_main]

use isotherm_record::damo;
use isotherm_units::Bytes;
use libfuzzer_sys::fuzz_target;
use std::fs;
use std::path::PathBuf;

fuzz_target!(|data: &[u8]| {
    let path = PathBuf::from(format!("/dev/shm/isotherm-fuzz-{}.damon", std::process::id()));
    fs::write(&path, data).expect("write a file in memory");
    if let Ok(read) = damo::read_within(&path, Some(Bytes(64 << 20))) {
        for target in read.snapshots.iter().flat_map(|s| &s.targets) {
            assert!(target.regions.windows(2).all(|pair| pair[0].range.end <= pair[1].range.start), "overlapping regions");
        }
    }
    fs::remove_file(&path).expect("remove a file in memory");
});
