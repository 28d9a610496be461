//! A description of a modelled host that means anything: read, or refused with a reason, within the limit on memory.

#![no_main]

use isotherm_sim::Host;
use isotherm_units::Bytes;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = Host::from_toml_within(text, Some(Bytes(64 << 20)));
    }
});
