//! Retries for what another thread holds for a moment.
//!
//! With `std` it goes by a clock and yields to other threads; without, it counts attempts.

/// How many times to retry for what another thread holds for a moment. Each retry lets that thread run.
const TRIES: u32 = 20_000;

/// Retries `TRIES` times; returns the first result.
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

/// Attempts per ms if there is no clock. Each attempt itself tries for 0.1 ms to hold a CPU's lists.
#[cfg(not(feature = "std"))]
const ATTEMPTS_A_MS: u32 = 10;

/// Retries for `ms` milliseconds, at least once, and yields to other threads. For attempts that themselves retry for a while.
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
