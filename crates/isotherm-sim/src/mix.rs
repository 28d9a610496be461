//! Hashing instead of stored state: every random value in the model is a function of place and time.

/// 2^64 divided by the golden ratio: multiples of it spread over the circle as evenly as those of any one step size
/// can.
pub(crate) const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// A bijection of 64 bits in which every bit of the input changes half of the output bits (the finalizer of
/// SplitMix64).
pub(crate) const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// `share` (0 to 1) of the range of a `u64`.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates at both ends, as it should")]
pub(crate) const fn threshold(share: f64) -> u64 {
    (share * 18_446_744_073_709_551_616.0) as u64
}
