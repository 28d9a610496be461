//! Points at which a test can stop this program and kill it.
//!
//! `ISOTHERM_SHIP_STOP_AT=name` or `name:3` stops the process for good at the first or third time that it comes by, after a line on
//! standard error. The test then kills it with SIGKILL. Programs that are built for release have no such points.

#[cfg(debug_assertions)]
mod stops {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A name, and how often to pass it.
    static AT: OnceLock<Option<(String, AtomicU32)>> = OnceLock::new();

    fn wanted() -> Option<(String, AtomicU32)> {
        let text = std::env::var("ISOTHERM_SHIP_STOP_AT").ok()?;
        let (name, count) = text.split_once(':').unwrap_or((&text, "1"));
        Some((name.to_owned(), AtomicU32::new(count.parse().ok()?)))
    }

    pub fn point(name: &str) {
        let Some((wanted, left)) = AT.get_or_init(wanted) else { return };
        if wanted == name && left.fetch_sub(1, Ordering::Relaxed) == 1 {
            eprintln!("stopped at {name}");
            loop {
                std::thread::park();
            }
        }
    }
}

/// A point that has a name.
#[inline]
pub fn point(name: &str) {
    #[cfg(debug_assertions)]
    stops::point(name);
    #[cfg(not(debug_assertions))]
    let _ = name;
}
