//! A settings file that means anything: read, or refused with a reason. What is read can be used.

#![no_main]

use isotherm_schemes::settings::{File, MIN_WINDOW};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match File::parse(text) {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(file) => {
            assert!(file.budgets.fault().is_none());
            assert!(file.watch.max_cpu.is_none_or(|percent| percent > 0.0 && percent.is_finite()));
            let window = file.watch.window_ns().expect("was checked");
            assert!(window.is_none_or(|ns| u128::from(ns) >= MIN_WINDOW.as_nanos()));
        }
    }
});
