//! Seeds from the operating system, for pseudorandom generators.

use crate::clock;

/// A seed that differs from run to run. Not for security: if the system provides none, it is the time.
pub fn seed() -> u64 {
    let mut seed = [0_u8; 8];
    // SAFETY: the pointer and the length are those of `seed`; no more than that is written.
    let got = unsafe { libc::getrandom(seed.as_mut_ptr().cast(), seed.len(), 0) };
    if usize::try_from(got) == Ok(seed.len()) { u64::from_ne_bytes(seed) } else { clock::unix_ns() }
}

#[cfg(test)]
mod tests {
    #[test]
    fn seeds_differ() {
        let seeds: std::collections::BTreeSet<u64> = (0..100).map(|_| super::seed()).collect();
        assert_eq!(seeds.len(), 100);
    }
}
