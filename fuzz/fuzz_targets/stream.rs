//! What a monitor sends, with bytes changed: read, or refused with a reason, within the limit on memory.
//!
//! The first two bytes of an input choose where the rest is written over a valid stream; with the highest bit set, the rest is the stream
//! after its header.

#![no_main]

use isotherm_heat::{Histogram, Interval, Mapping};
use isotherm_stream::{EventRow, IdleRow, MappingRow, ProcessRow, Reader, Snapshot, encode, header};
use libfuzzer_sys::fuzz_target;
use std::sync::OnceLock;

fn valid() -> &'static [u8] {
    static VALID: OnceLock<Vec<u8>> = OnceLock::new();
    VALID.get_or_init(|| {
        let mapping = Mapping { range: Default::default(), name: "[heap]".into(), perms: Default::default() };
        let snapshot = Snapshot {
            processes: vec![ProcessRow { pid: 1, heat: Histogram::from(vec![(1, 2), (30, 40)]), ..Default::default() }],
            mappings: vec![MappingRow { pid: 1, start_ticks: 0, mapping }],
            idle: vec![IdleRow { pid: 1, start_ticks: 0, interval: Interval::HOT, pages: 3 }],
            events: vec![EventRow { at_unix_ns: 1, text: "began".into() }],
            ..Default::default()
        };
        [header().as_slice(), &encode(&snapshot).expect("a small snapshot")].concat()
    })
}

/// The decoder of Arrow panics on some inputs, which the reader catches and reports as damage. The hook of libFuzzer would end us there; a
/// panic that nobody catches still does.
fn catchable() {
    std::panic::set_hook(Box::new(|_| {}));
}

fuzz_target!(init: catchable(), |data: &[u8]| {
    let Some((&[low, high], bytes)) = data.split_first_chunk::<2>() else { return };
    let stream = if high & 0x80 != 0 {
        [header().as_slice(), bytes].concat()
    } else {
        let mut changed = valid().to_vec();
        let at = usize::from(u16::from_le_bytes([low, high])) % changed.len();
        for (into, byte) in changed[at..].iter_mut().zip(bytes) {
            *into = *byte;
        }
        changed
    };
    let mut reader = Reader::new(stream.as_slice());
    while let Ok(Some(_)) = reader.next() {}
});
