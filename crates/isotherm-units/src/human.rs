//! Numbers for people: a duration in the unit that fits, a share in percent.
//!
//! They are here and not with the frontends because reports made without a frontend hold such texts too, and 3.4
//! seconds should look the same in all of them. Names, messages and everything that is cut to a width are in
//! `isotherm-view`.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// A duration with two digits in the unit that fits: `350 us`, `12 ms`, `3.4 s`, `2 min`, `5 h`, `38 d`.
pub fn duration(ns: u64) -> String {
    // (unit, its name, where the next unit takes over). Days are the largest unit.
    const UNITS: [(u64, &str, f64); 7] = [
        (1, "ns", 1000.0),
        (1000, "us", 1000.0),
        (MS, "ms", 1000.0),
        (SECOND, "s", 60.0),
        (MINUTE, "min", 60.0),
        (HOUR, "h", 24.0),
        (DAY, "d", f64::INFINITY),
    ];
    if ns == 0 {
        return "0 s".to_owned();
    }
    for (unit, name, limit) in UNITS {
        let value = ns as f64 / unit as f64;
        // Compares the rounded value, so that 59.7 s prints as 1 min and not as 60 s.
        if value < limit - 0.5 {
            return format!("{} {name}", two_digits(value));
        }
    }
    unreachable!("the last unit has no limit")
}

fn two_digits(value: f64) -> String {
    let tenths = format!("{value:.1}");
    match tenths.strip_suffix(".0") {
        Some(whole) => whole.to_owned(),
        None if value >= 9.95 => format!("{value:.0}"),
        None => tenths,
    }
}

/// Percent without the sign: `12`, `3.4`, `0.05`, `0`.
pub fn percent(value: f64) -> String {
    match value {
        v if v <= 0.0 || v.is_nan() => "0".to_owned(),
        v if v < 0.01 => "<0.01".to_owned(),
        v if v < 0.995 => format!("{v:.2}"),
        v if v < 9.95 => format!("{v:.1}"),
        v => format!("{v:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_take_the_unit_a_person_would() {
        for (ns, text) in [
            (0, "0 s"),
            (999, "999 ns"),
            (350_000, "350 us"),
            (12 * MS, "12 ms"),
            (1500 * 1000, "1.5 ms"),
            (999 * MS + 900_000, "1 s"),
            (3400 * MS, "3.4 s"),
            (9960 * MS, "10 s"),
            (59_499 * MS, "59 s"),
            (59_500 * MS, "1 min"),
            (59_700 * MS, "1 min"),
            (2 * MINUTE, "2 min"),
            (90 * MINUTE, "1.5 h"),
            (38 * DAY, "38 d"),
            (u64::MAX, "213504 d"),
        ] {
            assert_eq!(duration(ns), text);
        }
    }

    #[test]
    fn percents_keep_two_digits_or_so() {
        let shown = [0.0, 0.001, 0.05, 0.999, 3.44, 99.6].map(percent);
        assert_eq!(shown, ["0", "<0.01", "0.05", "1.0", "3.4", "100"]);
    }
}
