//! Lines of the control socket that mean anything, sent to a daemon that watches nothing: each is answered, and what is
//! accepted says the same when it is written out again.

#![no_main]

use isotherm_schemes::Budgets;
use isotherm_schemes::collapse::Rules;
use isotherm_schemes::request::Request;
use isotherm_schemes::state::State;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut state = State::new(Rules::default(), Budgets::default());
    for (number, line) in String::from_utf8_lossy(data).lines().enumerate() {
        match Request::parse(line.trim()) {
            Err(why) => assert!(!why.is_empty()),
            Ok(Request::Status) => drop(state.status()),
            Ok(Request::Hint(hint)) => {
                assert!(hint.pid > 0 && hint.range.start < hint.range.end);
                let (start, end) = (hint.range.start.0, hint.range.end.0);
                let again = format!("hint {} {start:x}-{end:x} {}", hint.pid, hint.level.get());
                assert_eq!(Request::parse(&again), Ok(Request::Hint(hint)));
                let _ = state.hint(hint.pid, hint.range, hint.level, number as u64);
            }
        }
    }
});
