//! Parses arguments: times, sizes and percentages. Errors show what to write instead.
//!
//! An error is the end of clap's sentence ("invalid value 'x' for '--y': ..."), so it is a `String`.

use bytesize::ByteSize;
use isotherm_schemes::settings::MIN_WINDOW;
use isotherm_units::Bytes;
use std::time::Duration;

/// A time like `500ms`, in nanoseconds.
pub fn duration_ns(text: &str) -> Result<u64, String> {
    let parsed = humantime::parse_duration(text).map_err(|e| format!("{e}; write a time like 500ms, 10s or 2m"))?;
    u64::try_from(parsed.as_nanos()).map_err(|_| "longer than 584 years".to_owned())
}

/// A time above 0.
pub fn positive_duration_ns(text: &str) -> Result<u64, String> {
    duration_ns(text).and_then(|ns| if ns == 0 { Err("has to be longer than nothing".into()) } else { Ok(ns) })
}

/// The time between two snapshots.
pub fn window_ns(text: &str) -> Result<u64, String> {
    duration_ns(text).and_then(|ns| {
        if Duration::from_nanos(ns) < MIN_WINDOW { Err("has to be 50ms or longer".into()) } else { Ok(ns) }
    })
}

/// A size like `64MiB`.
pub fn size(text: &str) -> Result<Bytes, String> {
    text.parse::<ByteSize>().map(|b| Bytes(b.0)).map_err(|_| "write a size like 64MiB, 2GiB or 4096".to_owned())
}

/// A percentage above 0; over 100 lifts the limit.
pub fn percent(text: &str) -> Result<f64, String> {
    let number = text
        .strip_suffix('%')
        .unwrap_or(text)
        .parse::<f64>()
        .map_err(|_| "write a percentage like 1 or 0.5%".to_owned())?;
    if number > 0.0 && number.is_finite() {
        Ok(number)
    } else {
        Err("has to be above 0; over 100 lifts the limit".into())
    }
}

/// A percentage, or 0 for none at all.
pub fn percent_or_none(text: &str) -> Result<f64, String> {
    if text.trim_end_matches('%').parse::<f64>() == Ok(0.0) { Ok(0.0) } else { percent(text) }
}

/// A number above 0.
pub fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().map_err(|_| "write a number like 20 or 0.5".to_owned())?;
    if number > 0.0 && number.is_finite() { Ok(number) } else { Err("has to be above 0".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_parsed_with_their_units() {
        assert_eq!(duration_ns("1m 30s"), Ok(90_000_000_000));
        assert_eq!(size("64MiB"), Ok(Bytes::of_mib(64)));
        assert_eq!(percent("0.5%"), Ok(0.5));
        for wrong in ["0", "-1", "nan", "inf", "many"] {
            assert!(percent(wrong).is_err(), "{wrong}");
        }
        assert!(window_ns("1ms").is_err() && positive_duration_ns("0s").is_err() && size("much").is_err());
    }
}
