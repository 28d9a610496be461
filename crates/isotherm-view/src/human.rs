//! Human-readable numbers and names: durations, intervals, rates, times of day, names that fit.
//!
//! All outputs use it, so that 3.4 seconds look the same in a table, on an axis and in a tool tip. Parsing belongs to
//! the command line. Names come from the monitored processes and may contain anything, including terminal escape
//! sequences. [`printable`] is applied to a name before it is drawn as text, and [`escaped`] to every message.
//! Durations and shares come from `isotherm-units`, because crates that do not depend on this one use them as well.

use isotherm_heat::Interval;
pub use isotherm_units::human::{duration, percent};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

const SECOND: u64 = 1_000_000_000;

/// An access interval: a duration, `?` if none was measured, `-` where nothing is mapped, `>` or `<` at the ends of the
/// scale.
pub fn interval(interval: Interval) -> String {
    match interval {
        Interval::ABSENT => "-".to_owned(),
        Interval::UNMEASURED => "?".to_owned(),
        Interval::LONGEST => format!("> {}", duration(interval.ns().unwrap_or(u64::MAX))),
        Interval::SHORTEST => format!("< {}", duration(interval.ns().unwrap_or(0))),
        _ => duration(interval.ns().unwrap_or(0)),
    }
}

/// Accesses per second, without a unit: `123`, `12.3`, `0.12`, `0.004`, `<0.001`, `0`.
pub fn rate(hz: f64) -> String {
    match hz {
        hz if hz <= 0.0 || hz.is_nan() => "0".to_owned(),
        hz if hz >= 99.95 => format!("{hz:.0}"),
        hz if hz >= 0.995 => format!("{hz:.1}"),
        hz if hz >= 0.00995 => format!("{hz:.2}"),
        hz if hz >= 0.001 => format!("{hz:.3}"),
        _ => "<0.001".to_owned(),
    }
}

/// A moment in UTC: `2026-08-21 12:00:03`.
pub fn utc(unix_ns: u64) -> String {
    let seconds = unix_ns / SECOND;
    let (year, month, day) = civil(seconds / 86_400);
    format!("{year:04}-{month:02}-{day:02} {}", clock(unix_ns))
}

/// The time of day in UTC: `12:00:03`.
pub fn clock(unix_ns: u64) -> String {
    let seconds = unix_ns / SECOND % 86_400;
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// Year, month and day of a number of days since 1970, in the Gregorian calendar.
///
/// Years start in March, so that the leap day comes last and month lengths follow one formula.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468; // from 0000-03-01
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, of_year - (153 * from_march + 2) / 5 + 1)
}

/// Replaces every character of `name` that could move the cursor, reorder text or be invisible with U+FFFD.
pub fn printable(name: &str) -> String {
    name.chars().map(|c| if is_deceptive(c) { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// Whether a terminal does not simply draw `c`: controls of C0 and C1, DEL, and characters that reorder text, end
/// lines, or are invisible. All of these are in the basic plane, so one `\uXXXX` of JSON is enough for each.
pub fn is_deceptive(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// A message of several lines with every [`is_deceptive`] character written as an escape: `\x1b`, `\u{202e}`. For
/// messages, where the exact contents of a name matter. Line breaks stay, since some messages quote a file. The text
/// after a line break is indented, so that no part of a name can look like a separate message.
pub fn escaped(message: &str) -> String {
    let mut shown = String::with_capacity(message.len());
    for c in message.chars() {
        match c {
            '\n' => shown.push_str("\n  "),
            '\t' => shown.push_str("\\t"),
            '\r' => shown.push_str("\\r"),
            c if is_deceptive(c) && c.is_ascii() => shown.push_str(&format!("\\x{:02x}", u32::from(c))),
            c if is_deceptive(c) => shown.push_str(&format!("\\u{{{:x}}}", u32::from(c))),
            c => shown.push(c),
        }
    }
    shown
}

/// A number of items: `1 CPU`, `3 runs by timer`. The first word takes the plural.
pub(crate) fn counted(n: u64, what: &str) -> String {
    if n == 1 {
        return format!("1 {what}");
    }
    match what.split_once(' ') {
        Some((first, rest)) => format!("{n} {first}s {rest}"),
        None => format!("{n} {what}s"),
    }
}

/// The name of a mapping: printable, and `(anon)` if it has none.
pub fn mapping(name: &str) -> String {
    if name.is_empty() { "(anon)".to_owned() } else { printable(name) }
}

/// Which end of a text is kept if it is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// The beginning: command names.
    Start,
    /// The end: paths, whose last part is the most specific.
    End,
}

/// `text` cut to `width` terminal columns, with `mark` where it was cut.
pub fn fit(text: &str, width: usize, keep: Keep, mark: char) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let Some(room) = width.checked_sub(1) else { return String::new() };
    let mut used = 0;
    let mut taken = |c: &char| {
        used += c.width().unwrap_or(0);
        used <= room
    };
    match keep {
        Keep::Start => text.chars().take_while(&mut taken).chain([mark]).collect(),
        Keep::End => {
            let mut kept: Vec<char> = text.chars().rev().take_while(&mut taken).collect();
            kept.push(mark);
            kept.iter().rev().collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_act_on_is_written_out_in_messages() {
        assert_eq!(escaped("caf\u{e9} \u{65e5}\u{1f600} \\ ~"), "caf\u{e9} \u{65e5}\u{1f600} \\ ~");
        assert_eq!(escaped("\x1b[2J\0\x7f\t\r"), "\\x1b[2J\\x00\\x7f\\t\\r");
        assert_eq!(escaped("\u{9b}2J \u{85}"), "\\u{9b}2J \\u{85}");
        assert_eq!(escaped("a\u{202e}b\u{2066}c\u{2028}d"), "a\\u{202e}b\\u{2066}c\\u{2028}d");
        assert_eq!(escaped("file\nisotherm: all is well"), "file\n  isotherm: all is well");
    }

    #[test]
    fn what_is_deceptive_has_one_unit_of_utf_16() {
        assert!(('\0'..=char::MAX).filter(|c| is_deceptive(*c)).all(|c| c.len_utf16() == 1));
        assert!(('\u{80}'..='\u{9f}').chain('\u{202a}'..='\u{202e}').chain('\u{2066}'..='\u{2069}').all(is_deceptive));
    }

    #[test]
    fn intervals_say_when_they_are_none() {
        assert_eq!(interval(Interval::ABSENT), "-");
        assert_eq!(interval(Interval::UNMEASURED), "?");
        assert_eq!(interval(Interval::SHORTEST), "< 1 ms");
        assert_eq!(interval(Interval::LONGEST), "> 38 d");
        assert_eq!(interval(Interval::from_ns(16_000_000)), "16 ms");
    }

    #[test]
    fn rates_keep_two_digits_or_so() {
        let shown = [0.0, 0.0001, 0.004, 0.123, 1.0, 62.5, 1000.0].map(rate);
        assert_eq!(shown, ["0", "<0.001", "0.004", "0.12", "1.0", "62.5", "1000"]);
    }

    #[test]
    fn moments_agree_with_the_calendar() {
        assert_eq!(utc(0), "1970-01-01 00:00:00");
        assert_eq!(utc(951_782_399 * SECOND), "2000-02-28 23:59:59");
        assert_eq!(utc(951_782_400 * SECOND), "2000-02-29 00:00:00");
        assert_eq!(utc(1_787_313_603 * SECOND), "2026-08-21 12:00:03");
    }

    #[test]
    fn the_first_word_of_what_is_counted_takes_the_plural() {
        let shown = [counted(0, "CPU"), counted(1, "run by timer"), counted(2, "run by timer")];
        assert_eq!(shown, ["0 CPUs", "1 run by timer", "2 runs by timer"]);
    }

    #[test]
    fn names_lose_what_could_move_the_cursor() {
        assert_eq!(printable("a\x1b[2Jb\n\u{202e}c"), "a\u{fffd}[2Jb\u{fffd}\u{fffd}c");
        assert_eq!(mapping(""), "(anon)");
    }

    #[test]
    fn fitting_counts_columns_not_bytes() {
        assert_eq!(fit("postgres", 8, Keep::Start, '…'), "postgres");
        assert_eq!(fit("postgres", 5, Keep::Start, '…'), "post…");
        assert_eq!(fit("/usr/lib/libc.so.6", 10, Keep::End, '…'), "…libc.so.6");
        assert_eq!(fit("日本語", 4, Keep::Start, '…'), "日…");
        assert_eq!(fit("abc", 0, Keep::Start, '…'), "");
        assert_eq!(fit("abc", 1, Keep::End, '…'), "…");
    }
}
