//! Records of perf rings, from bytes that mean anything: no panic, no endless list, and nothing from beyond the bytes.
//!
//! The first eight bytes choose the fields of samples, the rest is what a ring would have held.

#![no_main]

use isotherm_sys::perf::{Fields, Record, decode};
use libfuzzer_sys::fuzz_target;

/// The least that a record takes.
const HEADER: usize = 8;

fuzz_target!(|data: &[u8]| {
    let Some((choice, bytes)) = data.split_first_chunk() else { return };
    let fields = Fields::from_bits(u64::from_le_bytes(*choice));
    let mut records = 0;
    for record in decode(fields, bytes) {
        records += 1;
        if let Record::Sample(sample) = record {
            let within = bytes.as_ptr_range();
            let raw = sample.raw.as_ptr_range();
            assert!(sample.raw.is_empty() || (within.start <= raw.start && raw.end <= within.end));
            assert!(fields.contains(Fields::RAW) || sample.raw.is_empty());
        }
    }
    // One more than there is room for may tell that the end is missing.
    assert!(records <= bytes.len() / HEADER + 1);
});
