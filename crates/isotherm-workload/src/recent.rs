//! How often each page was accessed over the last seconds.
//!
//! Counts only grow ([`PageCounts`]). This keeps a few earlier ones, so that the rates at any moment are those of the last
//! seconds and not of the whole run: hot memory moves, and a monitor is to report where it is now. Memory: 4 bytes for each page
//! and each of up to six copies.

use crate::PageCounts;
use isotherm_heat::Ns;
use std::collections::VecDeque;

/// Copies are at least this part of the window apart.
const COPIES: u64 = 4;

/// Earlier counts.
#[derive(Debug)]
pub struct RecentCounts {
    window_ns: Ns,
    /// The lower 32 bits of each count, oldest first. At most the first is older than the window.
    earlier: VecDeque<(Ns, Vec<u32>)>,
}

impl RecentCounts {
    /// Rates are over the last `window_ns`, or a quarter longer; over less if there are no counts that old.
    pub fn over(window_ns: Ns) -> RecentCounts {
        RecentCounts { window_ns, earlier: VecDeque::new() }
    }

    /// Keeps the present counts for later, unless the last copy is recent.
    pub fn note(&mut self, now: Ns, counts: &PageCounts) {
        let apart = self.window_ns / COPIES;
        if self.earlier.back().is_some_and(|(at, _)| now.saturating_sub(*at) < apart) {
            return;
        }
        self.earlier.push_back((now, present(counts)));
        let is_old = |copy: Option<&(Ns, Vec<u32>)>| copy.is_some_and(|(at, _)| *at + self.window_ns <= now);
        while is_old(self.earlier.get(1)) {
            self.earlier.pop_front();
        }
    }

    /// Accesses a second of each page since the newest copy that is as old as the window, or the oldest; none without an older
    /// copy.
    pub fn rates_hz(&self, now: Ns, counts: &PageCounts) -> Vec<f64> {
        let is_old = |(at, _): &&(Ns, Vec<u32>)| *at + self.window_ns <= now;
        let from = self.earlier.iter().rev().find(is_old).or(self.earlier.front());
        let Some((at, before)) = from.filter(|(at, _)| *at < now) else { return vec![0.0; counts.pages()] };
        let seconds = (now - at) as f64 / 1e9;
        // The difference is right even if a count has wrapped around once since.
        let rate = |(count, before): (u32, &u32)| f64::from(count.wrapping_sub(*before)) / seconds;
        present(counts).into_iter().zip(before).map(rate).collect()
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the lower 32 bits are wanted")]
fn present(counts: &PageCounts) -> Vec<u32> {
    (0..counts.pages()).map(|page| counts.of(page) as u32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Ns = 1_000_000_000;

    #[test]
    fn rates_are_those_of_the_window_and_of_the_whole_time_before_that() {
        let counts = PageCounts::create(2).unwrap();
        let mut recent = RecentCounts::over(10 * S);
        assert_eq!(recent.rates_hz(S, &counts), [0.0, 0.0], "there is nothing to compare with");
        // Page 0 is accessed three times a second, and page 1 only in the first five.
        for second in 0..=30 {
            recent.note((100 + second) * S, &counts);
            (0..3).for_each(|_| counts.add(0));
            if second < 5 {
                counts.add(1);
            }
            let rates = recent.rates_hz((101 + second) * S, &counts);
            match second {
                // Copies are from 100, 103, 106, ... At 106, the oldest is 6 s old; at 116, the one of 106 is 10 s old.
                5 => assert_eq!(rates, [3.0, 5.0 / 6.0]),
                11 => assert_eq!(rates, [3.0, 5.0 / 12.0]),
                15.. => assert_eq!(rates, [3.0, 0.0], "{second}"),
                _ => assert_eq!(rates[0], 3.0, "{second}"),
            }
            assert!(recent.earlier.len() <= 6, "{second}");
        }
    }
}
