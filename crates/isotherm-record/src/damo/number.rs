//! Numbers in all forms that damo writes and accepts: JSON numbers, or text with commas, units, `min` and `max`.
//!
//! Each function is for a kind of field, and defines the unit of a number without one. Negative numbers are valid only
//! for counts, where damo marks a snapshot that is not real by -1.

use serde::de::{Deserializer, Error, Visitor};
use std::fmt;

const TIME: &[(&str, f64)] =
    &[("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9), ("m", 60e9), ("h", 3600e9), ("d", 86_400e9)];
const SIZE: &[(&str, i32)] = &[("B", 0), ("K", 10), ("M", 20), ("G", 30), ("T", 40), ("P", 50), ("E", 60)];

/// What a field counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Things.
    Count,
    /// Bytes and addresses.
    Bytes,
    /// Nanoseconds, from nanoseconds.
    Nanoseconds,
    /// Nanoseconds, from microseconds.
    Microseconds,
    /// Hundredths.
    Percent,
}

/// A number as it was found. Exact if it is whole.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Number {
    Whole(i128),
    Real(f64),
}

impl Number {
    fn times(self, factor: f64) -> Number {
        #[expect(clippy::cast_possible_truncation, reason = "factors are whole and below 2^63")]
        match self {
            Number::Whole(n) => Number::Whole(n.saturating_mul(factor as i128)),
            Number::Real(x) => Number::Real(x * factor),
        }
    }

    fn plus(self, other: Number) -> Number {
        match (self, other) {
            (Number::Whole(a), Number::Whole(b)) => Number::Whole(a.saturating_add(b)),
            (a, b) => Number::Real(a.real() + b.real()),
        }
    }

    fn real(self) -> f64 {
        match self {
            Number::Whole(n) => n as f64,
            Number::Real(x) => x,
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "saturates")]
    fn whole(self) -> i128 {
        match self {
            Number::Whole(n) => n,
            Number::Real(x) => x.round() as i128,
        }
    }
}

impl Kind {
    /// The factor of a unit. `None` if this kind has no such unit.
    fn unit(self, name: &str) -> Option<f64> {
        match self {
            Kind::Nanoseconds | Kind::Microseconds => TIME.iter().find(|(n, _)| *n == name).map(|(_, ns)| *ns),
            Kind::Bytes => {
                let letter = name.strip_suffix("iB").or_else(|| name.strip_suffix('B').filter(|n| !n.is_empty()));
                SIZE.iter().find(|(n, _)| *n == letter.unwrap_or(name)).map(|(_, power)| f64::from(*power).exp2())
            }
            Kind::Percent => (name == "%").then_some(1.0),
            Kind::Count => None,
        }
    }

    /// The factor of a number without a unit.
    fn plain(self) -> f64 {
        if self == Kind::Microseconds { 1e3 } else { 1.0 }
    }

    /// Parses numbers such as `1,024`, `4 KiB`, `1 h 2 m 3.5 s`, `max`.
    fn parse(self, text: &str) -> Option<Number> {
        let text = text.trim().replace(',', "");
        match text.as_str() {
            "min" => return Some(Number::Whole(0)),
            "max" => return Some(Number::Whole(i128::from(u64::MAX))),
            _ => {}
        }
        if let Some(number) = plain_number(&text) {
            return Some(number.times(self.plain()));
        }
        let (sign, mut rest) = text.strip_prefix('-').map_or((1.0, text.as_str()), |rest| (-1.0, rest.trim_start()));
        let mut sum = Number::Whole(0);
        while !rest.is_empty() {
            let (number, tail) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit() && c != '.')?);
            let tail = tail.trim_start();
            let (unit, tail) =
                tail.split_at(tail.find(|c: char| c.is_whitespace() || c.is_ascii_digit()).unwrap_or(tail.len()));
            sum = sum.plus(plain_number(number)?.times(self.unit(unit)?));
            rest = tail.trim_start();
        }
        (text.len() > 1).then_some(sum.times(sign))
    }

    fn expected(self) -> &'static str {
        match self {
            Kind::Count => "a number such as 12 or \"1,024\"",
            Kind::Bytes => "a number of bytes such as 4096, \"4,096\" or \"4 KiB\"",
            Kind::Nanoseconds | Kind::Microseconds => "a time such as 5000, \"5,000\" or \"5 ms\"",
            Kind::Percent => "a percentage such as 5 or \"5 %\"",
        }
    }
}

fn plain_number(text: &str) -> Option<Number> {
    let whole = text.parse::<i128>().ok().map(Number::Whole);
    // Not `inf` and `nan`, which the parser accepts as numbers.
    whole.or_else(|| text.parse::<f64>().ok().filter(|x| x.is_finite()).map(Number::Real))
}

impl Visitor<'_> for Kind {
    type Value = Option<Number>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected())
    }

    fn visit_u64<E: Error>(self, n: u64) -> Result<Option<Number>, E> {
        Ok(Some(Number::Whole(n.into()).times(self.plain())))
    }

    fn visit_i64<E: Error>(self, n: i64) -> Result<Option<Number>, E> {
        Ok(Some(Number::Whole(n.into()).times(self.plain())))
    }

    fn visit_f64<E: Error>(self, x: f64) -> Result<Option<Number>, E> {
        Ok(Some(Number::Real(x * self.plain())))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Option<Number>, E> {
        let wrong = || E::invalid_value(serde::de::Unexpected::Str(text), &self);
        self.parse(text).map(Some).ok_or_else(wrong)
    }

    fn visit_unit<E: Error>(self) -> Result<Option<Number>, E> {
        Ok(None)
    }
}

fn number<'de, D: Deserializer<'de>>(from: D, kind: Kind) -> Result<Option<Number>, D::Error> {
    from.deserialize_any(kind)
}

fn unsigned<'de, D: Deserializer<'de>>(from: D, kind: Kind) -> Result<Option<u64>, D::Error> {
    let Some(number) = number(from, kind)? else { return Ok(None) };
    let whole = number.whole();
    if whole < 0 {
        return Err(D::Error::custom(format!("a negative number ({whole}) where none is allowed")));
    }
    // A time of `max` microseconds overflows in nanoseconds. It still means forever.
    Ok(Some(u64::try_from(whole).unwrap_or(u64::MAX)))
}

fn required<T, E: Error>(value: Option<T>, kind: Kind) -> Result<T, E> {
    value.ok_or_else(|| E::invalid_type(serde::de::Unexpected::Unit, &kind.expected()))
}

/// Bytes or an address.
pub fn bytes<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    required(unsigned(from, Kind::Bytes)?, Kind::Bytes)
}

/// Bytes, or null.
pub fn bytes_or_null<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    unsigned(from, Kind::Bytes)
}

/// Nanoseconds, from a field in nanoseconds.
pub fn nanoseconds<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    required(unsigned(from, Kind::Nanoseconds)?, Kind::Nanoseconds)
}

/// Nanoseconds, from a field in microseconds.
pub fn microseconds<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    required(unsigned(from, Kind::Microseconds)?, Kind::Microseconds)
}

/// The same, or null.
pub fn microseconds_or_null<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    unsigned(from, Kind::Microseconds)
}

/// A count, which may be -1, or null.
pub fn count_or_null<'de, D: Deserializer<'de>>(from: D) -> Result<Option<i64>, D::Error> {
    let limit = |n: i128| i64::try_from(n).unwrap_or(if n < 0 { i64::MIN } else { i64::MAX });
    Ok(number(from, Kind::Count)?.map(|n| limit(n.whole())))
}

/// An index, or null.
pub fn index_or_null<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    unsigned(from, Kind::Count)
}

/// A percentage, or null.
pub fn percent_or_null<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    match number(from, Kind::Percent)?.map(Number::real) {
        Some(x) if x < 0.0 => Err(D::Error::custom(format!("a negative percentage ({x})"))),
        percent => Ok(percent),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_damo_writes_them() {
        for (kind, text, wanted) in [
            (Kind::Bytes, "94,827,419,009,024", 94_827_419_009_024),
            (Kind::Bytes, "18446744073709551615", u64::MAX.into()),
            (Kind::Bytes, "4 KiB", 4096),
            (Kind::Bytes, "4KB", 4096),
            (Kind::Bytes, "1.5M", 3 << 19),
            (Kind::Bytes, "12 B", 12),
            (Kind::Bytes, "143.027 MiB", 149_974_680),
            (Kind::Bytes, "max", u64::MAX.into()),
            (Kind::Bytes, "min", 0),
            (Kind::Nanoseconds, "1,234", 1234),
            (Kind::Nanoseconds, "1 h 2 m 3.5 s", 3_723_500_000_000),
            (Kind::Nanoseconds, "20,000 d 1 ns", 1_728_000_000_000_000_001),
            (Kind::Microseconds, "5000", 5_000_000),
            (Kind::Microseconds, "5 ms", 5_000_000),
            (Kind::Microseconds, "0.5", 500),
            (Kind::Microseconds, "0 ns", 0),
            (Kind::Count, "1,024", 1024),
            (Kind::Count, "-1", -1),
            (Kind::Nanoseconds, "-5 ms", -5_000_000),
            (Kind::Percent, "5 %", 5),
        ] {
            assert_eq!(kind.parse(text).map(Number::whole), Some(wanted), "{text}");
        }
    }

    #[test]
    fn what_is_no_number_is_not_taken_for_one() {
        for (kind, text) in [
            (Kind::Bytes, ""),
            (Kind::Bytes, "-"),
            (Kind::Bytes, "many"),
            (Kind::Bytes, "5 ms"),
            (Kind::Bytes, "5 XiB"),
            (Kind::Bytes, "KiB"),
            (Kind::Bytes, "0x10"),
            (Kind::Microseconds, "5 KiB"),
            (Kind::Microseconds, "1 s 5"),
            (Kind::Count, "5 ms"),
            (Kind::Count, "nan"),
            (Kind::Count, "inf"),
        ] {
            assert_eq!(kind.parse(text), None, "{text:?}");
        }
    }
}
