//! The workload of `--busy`: a key-value store with a thread on every CPU, whose hot memory has no sharp edge and moves.
//!
//! The store counts its accesses by page. A page is hot if it was accessed once a second or more often over the last ten seconds.
//! That is the same threshold as the monitor's, but not the same as in the plain demo, whose pages are either far above it or
//! never accessed. Pages near the threshold count neither way, and are printed (see [`isotherm_workload::RateScore`]).
//!
//! The store's pages are small, whatever the system's THP setting: one accessed bit for 2 MiB could not be compared with counts
//! by page.

use super::{DemoArgs, Found, HOT_NS, Seen, Truth, USUAL, size_of_workload, start_child};
use crate::output;
use anyhow::{Context, Result, bail};
use isotherm_heat::Ns;
use isotherm_sys::random;
use isotherm_units::Bytes;
use isotherm_workload::{Child, RecentCounts, Server, Store, score_amount, score_rates};

/// The truth is what was accessed over this time.
const WINDOW: Ns = 10_000_000_000;
/// The usual size for each CPU. It accesses the hottest of so many pages about 20 times a second: with more pages, more of the
/// hot ones would be near the threshold.
const OF_A_CPU: u64 = 256 << 20;
/// What the store and this process use for each byte of items: positions of items, counts, and copies of counts. Rounded up.
const OVERHEAD: f64 = 0.03;

/// A store that runs, and its accesses.
pub(super) struct Busy {
    store: Store,
    server: Server,
    recent: RecentCounts,
}

impl Busy {
    pub(super) fn start(args: &DemoArgs) -> Result<Busy> {
        let cpus = std::thread::available_parallelism().context("count the CPUs of this process")?.get() as u64;
        let bytes = Bytes(size_of_workload(args, (cpus * OF_A_CPU).min(USUAL), OVERHEAD)?);
        let store =
            Store { small_pages: true, ..Store::on_every_cpu(usize::try_from(bytes.pages())?, random::seed())? };
        if store.pages == 0 {
            let min = Bytes::of_pages(store.min_pages() as u64);
            bail!("{bytes} is too small for a store with {} threads: --size {min} or more", store.threads);
        }
        output::note(format_args!(
            "starting a key-value store of {} on {} threads, with keys around one that moves; half of its operations write",
            Bytes::of_pages(store.pages as u64),
            store.threads
        ));
        let server = start_child(store.pages, |command| Server::start(command, &store))?;
        Ok(Busy { store, server, recent: RecentCounts::over(WINDOW) })
    }
}

impl Truth for Busy {
    fn child(&self) -> &Child {
        &self.server.child
    }

    fn note(&mut self, now: Ns) {
        self.recent.note(now, &self.server.counts);
    }

    fn found(&self, seen: &Seen<'_>) -> Found {
        let rates = self.recent.rates_hz(seen.now, &self.server.counts);
        let Some(pages) = seen.pages else { return by_amount(&rates, seen.hot_amount) };
        let score = score_rates(&rates, self.server.child.memory(), pages, seen.now, HOT_NS);
        Found {
            score: score.clear,
            size_error_pct: score.size_error_pct(),
            reported_hot_pages: score.reported.working_set,
            hot_pages: score.hot_pages,
            near_pages: Some(score.near_pages),
            unmeasured_pages: score.reported.unmeasured_pages,
        }
    }

    fn threads(&self) -> Option<usize> {
        Some(self.store.threads)
    }
}

/// For a source that does not report pages.
fn by_amount(rates_hz: &[f64], reported_hot_pages: u64) -> Found {
    let hot_pages = rates_hz.iter().filter(|hz| **hz >= 1e9 / HOT_NS as f64).count() as u64;
    let score = score_amount(hot_pages as f64, reported_hot_pages);
    Found {
        score,
        size_error_pct: score.size_error_pct(),
        reported_hot_pages,
        hot_pages,
        near_pages: None,
        unmeasured_pages: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_is_compared_with_all_pages_at_the_threshold() {
        // Three pages are accessed once a second or more often; four are reported.
        let found = by_amount(&[5.0, 1.0, 0.99, 0.0, 1.5], 4);
        assert_eq!((found.hot_pages, found.reported_hot_pages, found.near_pages), (3, 4, None));
        assert_eq!((found.score.precision(), found.score.recall()), (0.75, 1.0));
        assert!((found.size_error_pct - 100.0 / 3.0).abs() < 1e-9);
    }
}
