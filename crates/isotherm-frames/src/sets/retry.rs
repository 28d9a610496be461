//! Trying again for what another thread holds for a moment.
//!
//! With `std` by a clock, and with a chance for that thread to run in between; without, by the number of attempts.

/// How often something is tried that another thread has for a moment, with a chance for that thread to run in between.
const TRIES: u32 = 20_000;

/// Tries so often; what came of it.
pub(super) fn retry<T>(mut attempt: impl FnMut() -> Option<T>) -> Option<T> {
    for _ in 0..TRIES {
        if let Some(had) = attempt() {
            return Some(had);
        }
        #[cfg(feature = "std")]
        std::thread::yield_now();
        #[cfg(not(feature = "std"))]
        core::hint::spin_loop();
    }
    None
}

/// Attempts in a millisecond where there is no clock: each tries for a tenth of that to have a set.
#[cfg(not(feature = "std"))]
const ATTEMPTS_A_MS: u32 = 10;

/// Tries for so long, and once at least, with a chance for others to run in between. For attempts that themselves try for a while.
pub(super) fn retry_for_ms<T>(ms: u32, mut attempt: impl FnMut() -> Option<T>) -> Option<T> {
    #[cfg(feature = "std")]
    let (began, most) = (std::time::Instant::now(), core::time::Duration::from_millis(u64::from(ms)));
    #[cfg(not(feature = "std"))]
    let mut left = ms.saturating_mul(ATTEMPTS_A_MS);
    loop {
        if let Some(had) = attempt() {
            return Some(had);
        }
        #[cfg(feature = "std")]
        {
            if began.elapsed() >= most {
                return None;
            }
            std::thread::yield_now();
        }
        #[cfg(not(feature = "std"))]
        {
            left = left.checked_sub(1)?;
            core::hint::spin_loop();
        }
    }
}
