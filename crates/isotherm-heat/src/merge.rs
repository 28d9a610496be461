//! Merges neighbours: those first that lose least, and only as many as necessary.
//!
//! For lists of parts in address order: regions of pages, and of reported accesses. The caller defines what a merge
//! loses.
//!
//! The exact method, a heap of all pairs, costs a random memory access for each merge, and lists may hold a million
//! parts. So this works in rounds. Each round looks at the losses of all pairs once, chooses those that lose least, and joins
//! them in one pass. A part is joined at most once a round. While far too many parts are left, a round chooses half of the
//! excess, later a quarter: merges make new pairs, which may lose less than the next of the old ones. At the end a round joins
//! one part in [`FEWEST`] at least. All rounds together cost a few passes over the list, and a loss is computed again only
//! where one of the two parts has changed.
//!
//! The limit of one join a round matters where many pairs differ equally. Without it, one part would absorb its
//! neighbours one by one, each of them a little closer to the mix so far. One end of the list would become a single
//! mix, and the other end would stay unmerged.

/// A loss at which two parts are never joined.
pub(crate) const NEVER: f64 = f64::INFINITY;

/// Of so many parts, a round joins one at least: the last of them would otherwise take a round each.
const FEWEST: usize = 64;

/// Merges until there are `most` parts, or only pairs that must not be joined. O(n log n) at worst, usually linear.
pub(crate) fn merge_down_to<P>(
    parts: &mut Vec<P>,
    most: usize,
    loss: impl Fn(&P, &P) -> f64,
    join: impl Fn(&mut P, &P),
) {
    if parts.len() <= most {
        return;
    }
    let mut pairs = Pairs::new(parts, loss);
    while parts.len() > most {
        let excess = parts.len() - most;
        let near = excess < parts.len() / 2;
        let at_once = excess.div_ceil(if near { 4 } else { 2 }).max(most / FEWEST).min(excess);
        if pairs.merge_round(parts, Round { at_once, most: excess, bound: f64::MAX }, &join) == 0 {
            return;
        }
    }
}

/// Merges until every pair of neighbours loses more than `bound`. The same cost.
pub(crate) fn merge_within<P>(parts: &mut Vec<P>, bound: f64, loss: impl Fn(&P, &P) -> f64, join: impl Fn(&mut P, &P)) {
    let mut pairs = Pairs::new(parts, loss);
    loop {
        let at_once = parts.len().div_ceil(8);
        if pairs.merge_round(parts, Round { at_once, most: usize::MAX, bound }, &join) == 0 {
            return;
        }
    }
}

/// How far one round goes: about `at_once` merges, more if further pairs lose no more than the last of these. At most
/// `most`, and none that loses more than `bound`.
#[derive(Clone, Copy, Debug)]
struct Round {
    at_once: usize,
    most: usize,
    bound: f64,
}

/// What joining each part with the next would lose.
struct Pairs<L> {
    loss: L,
    losses: Vec<f64>,
    /// Those that may be joined, while a round chooses.
    possible: Vec<f64>,
}

impl<L> Pairs<L> {
    fn new<P>(parts: &[P], loss: L) -> Pairs<L>
    where
        L: Fn(&P, &P) -> f64,
    {
        let losses: Vec<f64> = parts.windows(2).map(|pair| loss(&pair[0], &pair[1])).collect();
        Pairs { loss, possible: Vec::with_capacity(losses.len()), losses }
    }

    /// One round. Returns how many merges there were: 0 if none is possible.
    fn merge_round<P>(&mut self, parts: &mut Vec<P>, round: Round, join: &impl Fn(&mut P, &P)) -> usize
    where
        L: Fn(&P, &P) -> f64,
    {
        let Some(worst) = self.worst(round) else { return 0 };
        let losses = &mut self.losses;
        let mut merged = 0;
        // Pair `no` is the last part kept and the part in question, unless that one was joined in the previous step.
        let (mut no, mut taken, mut waited) = (0, false, false);
        // The pairs of parts kept so far. What is not a number is computed again below.
        let mut kept_pairs = 0;
        parts.dedup_by(|next, kept| {
            let mine = losses[no];
            let changed = taken;
            no += 1;
            let fits = !taken && merged < round.most && mine <= worst;
            // The right part may fit better with the part after it. Waiting twice in a row would make a slope of losses
            // cost a round each.
            let wait = fits && !waited && losses.get(no).is_some_and(|after| *after < mine);
            waited = wait;
            taken = fits && !wait;
            if taken {
                join(kept, next);
                merged += 1;
                if kept_pairs > 0 {
                    losses[kept_pairs - 1] = f64::NAN;
                }
            } else {
                losses[kept_pairs] = if changed { f64::NAN } else { mine };
                kept_pairs += 1;
            }
            taken
        });
        losses.truncate(kept_pairs);
        for (loss, pair) in losses.iter_mut().zip(parts.windows(2)).filter(|(loss, _)| loss.is_nan()) {
            *loss = (self.loss)(&pair[0], &pair[1]);
        }
        merged
    }

    /// The most that a merge of this round may lose. `None`: there is none.
    fn worst(&mut self, Round { at_once, bound, .. }: Round) -> Option<f64> {
        self.possible.clear();
        self.possible.extend(self.losses.iter().filter(|loss| **loss <= bound));
        if self.possible.is_empty() {
            return None;
        }
        let last = at_once.clamp(1, self.possible.len()) - 1;
        Some(*self.possible.select_nth_unstable_by(last, f64::total_cmp).1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sum and number; the loss is the growth of the sum of squares.
    type Mean = (f64, f64);

    fn loss(a: &Mean, b: &Mean) -> f64 {
        a.1 * b.1 / (a.1 + b.1) * (a.0 / a.1 - b.0 / b.1).powi(2)
    }

    fn join(a: &mut Mean, b: &Mean) {
        *a = (a.0 + b.0, a.1 + b.1);
    }

    fn merged(values: &[f64], most: usize) -> Vec<Mean> {
        let mut parts: Vec<Mean> = values.iter().map(|v| (*v, 1.0)).collect();
        merge_down_to(&mut parts, most, loss, join);
        parts
    }

    #[test]
    fn the_closest_go_first_and_only_as_many_as_must() {
        assert_eq!(merged(&[0.0, 1.0, 9.0, 9.5, 20.0], 4), [(0.0, 1.0), (1.0, 1.0), (18.5, 2.0), (20.0, 1.0)]);
        assert_eq!(merged(&[0.0, 1.0, 9.0, 9.5, 20.0], 3), [(1.0, 2.0), (18.5, 2.0), (20.0, 1.0)]);
        assert_eq!(merged(&[0.0, 1.0, 9.0], 7).len(), 3);
        assert_eq!(merged(&[0.0, 1.0, 9.0], 1), [(10.0, 3.0)]);
    }

    #[test]
    fn equally_unlike_ones_are_merged_evenly() {
        let alternating: Vec<f64> = (0..6000).map(|i| f64::from(i % 2)).collect();
        let parts = merged(&alternating, 1000);
        assert_eq!(parts.len(), 1000);
        let largest = parts.iter().map(|p| p.1).fold(0.0, f64::max);
        assert!(largest <= 64.0, "{largest}");
    }

    /// Always the one pair that loses least.
    fn exactly(mut parts: Vec<Mean>, most: usize) -> Vec<Mean> {
        while parts.len() > most {
            let losses = parts.windows(2).map(|pair| loss(&pair[0], &pair[1])).enumerate();
            let least = losses.min_by(|a, b| a.1.total_cmp(&b.1)).unwrap().0;
            let next = parts.remove(least + 1);
            join(&mut parts[least], &next);
        }
        parts
    }

    #[test]
    fn rounds_lose_little_more_than_the_exact_way() {
        // Means of two levels with sizes over three decades.
        let mut rng = crate::Rng::new(5);
        let mut size = || (10.0 * rng.below(1 << 20) as f64 / f64::from(1 << 20)).exp2();
        let parts: Vec<Mean> = (0..3000)
            .map(|i| {
                let n = size();
                (n * f64::from(i % 2), n)
            })
            .collect();
        // The sum of squares within parts: level 0 or 1, so the level is its own square.
        let lost = |parts: &[Mean]| parts.iter().map(|p| p.0 - p.0 * p.0 / p.1).sum::<f64>();
        for most in [2000, 1000, 300, 30] {
            let mut rounds = parts.clone();
            merge_down_to(&mut rounds, most, loss, join);
            let ratio = lost(&rounds) / lost(&exactly(parts.clone(), most));
            println!("{most}: {ratio:.3}");
            assert!(ratio <= 1.15, "{most}: {ratio}");
        }
    }

    #[test]
    fn of_a_thousand_the_last_one_to_go_is_the_one_that_loses_least() {
        let values: Vec<f64> = (0..1000).map(|i| f64::from(i) * 10.0).chain([9990.5, 9990.5]).collect();
        let parts = merged(&values, 1001);
        assert_eq!((parts.len(), parts[1000]), (1001, (2.0 * 9990.5, 2.0)));
    }

    #[test]
    fn losses_are_those_of_the_parts_and_computed_again_only_where_one_has_changed() {
        let seed = 7;
        let (mut rng, calls) = (crate::Rng::new(seed), std::cell::Cell::new(0));
        let counted = |a: &Mean, b: &Mean| {
            calls.set(calls.get() + 1);
            loss(a, b)
        };
        let mut parts: Vec<Mean> = (0..2000).map(|_| (rng.below(1000) as f64, 1.0)).collect();
        let mut pairs = Pairs::new(&parts, counted);
        while parts.len() > 100 {
            let before = calls.replace(0);
            let merged = pairs.merge_round(&mut parts, Round { at_once: 50, most: 90, bound: f64::MAX }, &join);
            assert!(before > 0 && (1..=90).contains(&merged), "seed {seed}: {merged}");
            assert!(calls.get() <= 2 * merged, "seed {seed}: {} for {merged}", calls.get());
            let fresh: Vec<f64> = parts.windows(2).map(|pair| loss(&pair[0], &pair[1])).collect();
            assert_eq!(pairs.losses, fresh, "seed {seed}");
        }
    }

    #[test]
    fn what_must_not_be_joined_is_not() {
        let mut parts: Vec<Mean> = vec![(0.0, 1.0); 10];
        merge_down_to(&mut parts, 3, |_, _| NEVER, join);
        assert_eq!(parts.len(), 10);
    }

    #[test]
    fn within_a_bound_all_go() {
        let mut parts: Vec<Mean> = [0.0, 0.1, 0.2, 5.0, 5.1, 0.0].map(|v| (v, 1.0)).to_vec();
        merge_within(&mut parts, 1.0, loss, join);
        assert_eq!(parts.iter().map(|p| p.1).collect::<Vec<_>>(), [3.0, 2.0, 1.0]);
    }

    #[test]
    fn slopes_do_not_take_a_round_for_each() {
        let slope: Vec<f64> = (0..100_000_u32).map(|i| f64::from(i).sqrt()).collect();
        assert_eq!(merged(&slope, 10).len(), 10);
    }
}
