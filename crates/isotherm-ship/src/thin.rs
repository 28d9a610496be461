//! Joins snapshots that follow each other closely, so that fewer are added up. Pure.
//!
//! A monitor may send one each second, and adding one up takes milliseconds on a host with many processes. How memory is changes over
//! minutes, so the last snapshot of some seconds stands for all of them. What happened in them is summed: pages that were found accessed.
//! Counters are counted since the monitor started, so the last ones have it all. A process that ends in between is missing from the last
//! snapshot, and from the rows of those seconds.
//!
//! Nothing is joined across the end of five minutes, a loss, or a start of the monitor.

use isotherm_rollup::time::INTERVAL_NS;
use isotherm_stream::{IdleRow, Snapshot};

/// Joins snapshots.
#[derive(Debug)]
pub struct Thin {
    every_ns: u64,
    pending: Option<Snapshot>,
}

impl Thin {
    /// Snapshots that begin at least this far apart, as far as the monitor sends as many.
    pub fn new(every_ns: u64) -> Thin {
        Thin { every_ns, pending: None }
    }

    /// Takes a snapshot, and returns those to be added up now.
    pub fn add(&mut self, mut snapshot: Snapshot) -> Vec<Snapshot> {
        let mut out = Vec::new();
        if let Some(before) = self.pending.take() {
            if follows(&before, &snapshot) {
                join(before, &mut snapshot);
            } else {
                out.push(before);
            }
        }
        let covers_ns = snapshot.host.end_unix_ns.saturating_sub(snapshot.host.start_unix_ns);
        if covers_ns >= self.every_ns || snapshot.host.end_unix_ns.is_multiple_of(INTERVAL_NS) {
            out.push(snapshot);
        } else {
            self.pending = Some(snapshot);
        }
        out
    }

    /// What waits, because nothing may be joined with it any more.
    pub fn take(&mut self) -> Option<Snapshot> {
        self.pending.take()
    }

    /// What waits, if it has ended so long ago that no snapshot follows it.
    pub fn take_old(&mut self, now_unix_ns: u64) -> Option<Snapshot> {
        self.pending.take_if(|waits| waits.host.end_unix_ns.saturating_add(self.every_ns) <= now_unix_ns)
    }
}

/// Whether the second is of the same monitor and the same five minutes, and begins where the first ends.
fn follows(first: &Snapshot, second: &Snapshot) -> bool {
    let (first, second) = (&first.host, &second.host);
    let interval = |end_ns: u64| end_ns.saturating_sub(1) / INTERVAL_NS;
    let gap_ns = second.start_unix_ns.abs_diff(first.end_unix_ns);
    let window_ns = second.end_unix_ns.saturating_sub(second.start_unix_ns);
    interval(first.end_unix_ns) == interval(second.end_unix_ns)
        && second.elapsed_ns > first.elapsed_ns
        && second.end_unix_ns > first.end_unix_ns
        && gap_ns <= window_ns / 2
}

/// Adds what happened in the first to the second.
fn join(first: Snapshot, second: &mut Snapshot) {
    second.host.start_unix_ns = first.host.start_unix_ns;
    let mut idle = first.idle;
    idle.append(&mut second.idle);
    // Two runs in order, which a stable sort only merges.
    idle.sort_by_key(key);
    idle.dedup_by(|next, sum| {
        let is_same = key(next) == key(sum);
        if is_same {
            sum.pages = sum.pages.saturating_add(next.pages);
        }
        is_same
    });
    second.idle = idle;
    let events = std::mem::take(&mut second.events);
    second.events = first.events.into_iter().chain(events).collect();
}

fn key(row: &IdleRow) -> impl Ord + use<> {
    (row.pid, row.start_ticks, row.interval)
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_heat::Interval;
    use isotherm_stream::HostRow;

    const S: u64 = 1_000_000_000;

    /// A window of a second, in which 10 pages were found accessed, and as many more as its number.
    fn window(end_s: u64) -> Snapshot {
        let host = HostRow {
            start_unix_ns: (end_s - 1) * S,
            end_unix_ns: end_s * S,
            elapsed_ns: end_s * S,
            ..HostRow::default()
        };
        let row = |code, pages| IdleRow { pid: 1, start_ticks: 2, interval: Interval::from_code(code), pages };
        Snapshot { host, idle: vec![row(90, 10), row(100, end_s)], ..Snapshot::default() }
    }

    fn spans(snapshots: &[Snapshot]) -> Vec<(u64, u64)> {
        snapshots.iter().map(|snapshot| (snapshot.host.start_unix_ns / S, snapshot.host.end_unix_ns / S)).collect()
    }

    fn pages(snapshots: &[Snapshot]) -> u64 {
        snapshots.iter().flat_map(|snapshot| &snapshot.idle).map(|row| row.pages).sum()
    }

    #[test]
    fn windows_of_a_second_become_windows_of_ten_with_the_same_sums() {
        let mut thin = Thin::new(10 * S);
        let out: Vec<Snapshot> = (1..=25).flat_map(|end| thin.add(window(end))).collect();
        assert_eq!(spans(&out), [(0, 10), (10, 20)]);
        assert_eq!(out[0].idle.len(), 2, "a row for each idle time");
        let rest = thin.take().unwrap();
        assert_eq!(spans(std::slice::from_ref(&rest)), [(20, 25)]);
        // 25 times 10, and 1 + 2 + ... + 25.
        assert_eq!(pages(&out) + pages(&[rest]), 250 + 325);
    }

    #[test]
    fn nothing_is_joined_across_five_minutes_a_gap_or_a_start() {
        let ended_by = |next: Snapshot| {
            let mut thin = Thin::new(60 * S);
            assert!(thin.add(window(298)).is_empty());
            spans(&thin.add(next))
        };
        assert_eq!(ended_by(window(299)), []);
        let mut thin = Thin::new(60 * S);
        let out: Vec<Snapshot> = (298..=301).flat_map(|end| thin.add(window(end))).collect();
        assert_eq!(spans(&out), [(297, 300)], "the end of five minutes");
        let crossing = Snapshot { host: HostRow { end_unix_ns: 301 * S, ..window(299).host }, ..window(299) };
        assert_eq!(ended_by(crossing), [(297, 298)]);
        assert_eq!(ended_by(window(310)), [(297, 298)], "a gap");
        let started = Snapshot { host: HostRow { elapsed_ns: S, ..window(299).host }, ..window(299) };
        assert_eq!(ended_by(started), [(297, 298)]);
    }

    #[test]
    fn long_windows_pass_and_what_waits_grows_old() {
        let mut thin = Thin::new(S);
        assert_eq!(spans(&thin.add(window(7))), [(6, 7)]);
        let mut thin = Thin::new(10 * S);
        thin.add(window(7));
        assert!(thin.take_old(16 * S).is_none());
        assert_eq!(thin.take_old(17 * S).map(|snapshot| snapshot.host.end_unix_ns), Some(7 * S));
        assert!(thin.take().is_none());
    }
}
