//! Requests to a running daemon, one line of text each: `status`, or `hint PID START-END [LEVEL]` with addresses in
//! hexadecimal and a level from 0 to 31.
//!
//! The protocol is plain text, so that an allocator or a database can send hints with a dozen lines of C. Lines come
//! from other programs: anything may be in them, and each is read or refused with a reason. The socket itself is the
//! daemon's.

use crate::Level;
use isotherm_units::{Addr, AddrRange};

/// The level of a hint that names none. It is the highest, because senders of hints know what is hot.
pub const DEFAULT_LEVEL: u8 = 31;

/// What a client asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Request {
    /// The state of the daemon.
    Status,
    /// A hint.
    Hint(ExternalHint),
}

impl Request {
    /// Reads a line, without its newline. The error is a sentence for the client.
    pub fn parse(line: &str) -> Result<Request, String> {
        match line.split_once(' ').unwrap_or((line, "")) {
            ("status", "") => Ok(Request::Status),
            ("hint", rest) => ExternalHint::parse(rest).map(Request::Hint),
            _ => Err("expected `status` or `hint PID START-END [LEVEL]`".to_owned()),
        }
    }
}

/// Memory of a process that its sender takes for hot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExternalHint {
    /// The process.
    pub pid: u32,
    /// The range, not empty.
    pub range: AddrRange,
    /// How hot.
    pub level: Level,
}

impl ExternalHint {
    /// Reads `PID START-END [LEVEL]`.
    pub fn parse(text: &str) -> Result<ExternalHint, String> {
        let mut words = text.split_whitespace();
        let (Some(pid), Some(range)) = (words.next(), words.next()) else {
            return Err(format!("expected PID START-END [LEVEL], got {text:?}"));
        };
        let pid = pid.parse().ok().filter(|p| *p > 0).ok_or_else(|| format!("{pid:?} is no process id"))?;
        let level = match words.next() {
            None => DEFAULT_LEVEL,
            Some(word) => {
                word.parse().ok().filter(|l| *l <= 31).ok_or_else(|| format!("{word:?} is no level from 0 to 31"))?
            }
        };
        if let Some(more) = words.next() {
            return Err(format!("{more:?} after the level"));
        }
        Ok(ExternalHint { pid, range: parse_range(range)?, level: Level::new(level) })
    }
}

/// `START-END` in hexadecimal, with or without `0x`.
pub fn parse_range(text: &str) -> Result<AddrRange, String> {
    let number = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok();
    let (start, end) = text
        .split_once('-')
        .and_then(|(start, end)| Some((number(start)?, number(end)?)))
        .ok_or_else(|| format!("{text:?} is no address range: write START-END in hexadecimal"))?;
    if start >= end {
        return Err(format!("{text:?} is empty"));
    }
    Ok(AddrRange::new(Addr(start), Addr(end)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_are_parsed_and_everything_else_is_told_apart() {
        let hint = ExternalHint::parse("812 0x7f0000000000-7f0000400000 5").unwrap();
        assert_eq!((hint.pid, hint.range.len().0, hint.level.get()), (812, 4 << 20, 5));
        assert_eq!(ExternalHint::parse("1 0-1").unwrap().level.get(), 31);
        for (wrong, why) in [
            ("", "expected"),
            ("812", "expected"),
            ("0 1-2", "process id"),
            ("x 1-2", "process id"),
            ("1 12", "address range"),
            ("1 2-1", "empty"),
            ("1 1-2 32", "level"),
            ("1 1-2 3 4", "after the level"),
            ("1 fffffffffffffffff-1", "address range"),
        ] {
            let error = ExternalHint::parse(wrong).unwrap_err();
            assert!(error.contains(why), "{wrong:?}: {error}");
        }
    }

    #[test]
    fn a_request_is_a_status_or_a_hint() {
        assert_eq!(Request::parse("status"), Ok(Request::Status));
        assert!(matches!(Request::parse("hint 7 1000-2000"), Ok(Request::Hint(hint)) if hint.pid == 7));
        for wrong in ["", "status now", "hints 7 1000-2000", "\u{0}"] {
            assert!(Request::parse(wrong).unwrap_err().starts_with("expected"), "{wrong:?}");
        }
    }
}
