//! Conversions between floats and counts for drawing, each clamped so that no input can wrap.

/// `value` rounded down; 0 if it is negative or NaN.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast saturates, which is what is wanted"
)]
pub(crate) fn floor(value: f64) -> usize {
    value.max(0.0) as usize
}

/// `value` rounded to the nearest byte value, clamped to 0 and 255.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped before the cast")]
pub(crate) fn to_byte(value: f64) -> u8 {
    value.round().clamp(0.0, 255.0) as u8
}

/// `part` of `whole` as a share from 0 to 1; 0 if `whole` is 0.
pub(crate) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { (part as f64 / whole as f64).min(1.0) }
}

/// `value * part / whole` without overflow; 0 if `whole` is 0.
pub(crate) fn scale(value: u64, part: u64, whole: u64) -> u64 {
    let product = u128::from(value) * u128::from(part);
    product.checked_div(u128::from(whole)).map_or(0, |v| u64::try_from(v).unwrap_or(u64::MAX))
}
