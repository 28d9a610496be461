//! Parsers for parts that several of the kernel's text files share.

use super::error::Unexpected;
use isotherm_units::Bytes;

/// A decimal number and nothing else.
pub(super) fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |value, &byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    })
}

/// `key: value`, the value without spaces around it.
pub(super) fn key_value(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = line.iter().position(|&b| b == b':')?;
    Some((&line[..colon], line[colon + 1..].trim_ascii()))
}

/// `123 kB`.
pub(super) fn kilobytes(value: &[u8], item: &'static str) -> Result<Bytes, Unexpected> {
    let number = value.strip_suffix(b" kB").and_then(|text| decimal(text.trim_ascii()));
    let bytes = number.and_then(|kb| kb.checked_mul(1024));
    bytes.map(Bytes).ok_or_else(|| Unexpected::new(item, "a number of kB", value))
}
