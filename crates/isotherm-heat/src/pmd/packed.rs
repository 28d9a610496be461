//! A huge range of small pages between two checks, in a third of what a [`PageHeat`] takes, or far less.
//!
//! The pages of a huge range are in few states: one where they are all alike, seldom more than 16. Each state is stored
//! once, and the number of its state for each page, in as many bits as that takes. These bits are stored as planes (bit 0 of
//! all pages, then bit 1 ...), because what a background read asks, which pages are cleared, is then answered for 64 pages
//! at a time. Nothing is lost: [`PackedHeat::unpack`] gives the same answers as what was packed.
//!
//! Packing takes 1.5 to 3 us, unpacking 1 us, and a background read that finds nothing 0.1 us. So a huge range is packed when
//! its next read is far away or none is planned, and unpacked when it is cleared or a read finds something (`pmd_heat`).

use super::{AccessesFound, EPOCHS, MIN_IDLE, Ns, PageHeat, Run, epoch_time, idle_code, push_run};
use crate::regions::{Parts, are_alike};
use crate::{Interval, Mask};
use isotherm_units::PAGES_PER_PMD;

/// More states than this are left unpacked: in that many bits little is saved.
const MAX_STATES: usize = 32;
/// Words before the clear times: the newest clear, the last read, and the numbers of clear times and states.
const HEAD: usize = 3;

/// The state of a page: present (bit 15), cleared (14), the number of its clear time (8 to 11), its interval (0 to 7). What
/// does not count is 0, so that pages of which the same is known are in the same state.
#[derive(Clone, Copy, PartialEq, Eq)]
struct State(u16);

impl State {
    const PRESENT: u16 = 1 << 15;
    const CLEARED: u16 = 1 << 14;

    fn of(heat: &PageHeat, page: usize) -> State {
        if !heat.present.has(page) {
            return State(0);
        }
        let interval = u16::from(heat.intervals[page].code());
        if !heat.cleared.has(page) {
            return State(State::PRESENT | interval);
        }
        #[expect(clippy::cast_possible_truncation, reason = "below 16")]
        let epoch = heat.epoch(page) as u16;
        State(State::PRESENT | State::CLEARED | epoch << 8 | interval)
    }

    fn is_present(self) -> bool {
        self.0 & State::PRESENT != 0
    }

    fn is_cleared(self) -> bool {
        self.0 & State::CLEARED != 0
    }

    fn is_uncleared(self) -> bool {
        self.is_present() && !self.is_cleared()
    }

    fn interval(self) -> Interval {
        Interval::from_code(self.0.to_le_bytes()[0])
    }

    fn epoch(self) -> u8 {
        self.0.to_le_bytes()[1] & 15
    }
}

/// The words: [`HEAD`], the clear times (two in a word), the states (four in a word), and the planes (eight words each).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackedHeat(Box<[u64]>);

impl PackedHeat {
    /// `None` if its pages are in too many states.
    pub(crate) fn of(heat: &PageHeat) -> Option<PackedHeat> {
        let (states, numbers) = numbered(heat)?;
        let epochs = &heat.epochs[..usize::from(heat.epochs_len)];
        let width = width(states.len());
        let mut words = Vec::with_capacity(HEAD + epochs.len().div_ceil(2) + states.len().div_ceil(4) + 8 * width);
        words.extend([heat.cleared_at, heat.last_read, epochs.len() as u64 | (states.len() as u64) << 8]);
        words.extend(epochs.chunks(2).map(|pair| joined(pair.iter().map(|epoch| u64::from(*epoch)), 32)));
        words.extend(states.chunks(4).map(|four| joined(four.iter().map(|state| u64::from(state.0)), 16)));
        for bit in 0..width {
            let plane = numbers.chunks(64).map(|pages| joined(pages.iter().map(|n| u64::from(n >> bit & 1)), 1));
            words.extend(plane);
        }
        Some(PackedHeat(words.into_boxed_slice()))
    }

    /// The same, with each page kept by itself.
    pub(crate) fn unpack(&self) -> PageHeat {
        let mut heat = self.without_pages();
        for (number, state) in self.states().enumerate() {
            let pages = self.pages_in(number);
            if state.is_present() {
                heat.present = heat.present | pages;
            }
            if state.is_cleared() {
                heat.cleared = heat.cleared | pages;
            }
            for page in pages.iter() {
                heat.intervals[page] = state.interval();
                heat.set_epoch(page, state.epoch());
            }
        }
        heat
    }

    /// Its times, and no page.
    fn without_pages(&self) -> PageHeat {
        let mut heat = PageHeat::new(Mask::NONE);
        (heat.cleared_at, heat.last_read) = (self.0[0], self.0[1]);
        for (index, epoch) in heat.epochs.iter_mut().enumerate().take(self.epochs_len()) {
            *epoch = self.epoch(index);
        }
        #[expect(clippy::cast_possible_truncation, reason = "at most EPOCHS")]
        let len = self.epochs_len() as u8;
        heat.epochs_len = len;
        heat
    }

    /// As [`PageHeat::is_in_first_second`].
    pub(crate) fn is_in_first_second(&self) -> bool {
        let [cleared_at, last_read] = [self.0[0], self.0[1]];
        let first = || epoch_time(cleared_at, self.epoch(0), self.epochs_len() == 1);
        self.epochs_len() > 0 && self.has_cleared() && last_read.saturating_sub(first()) < MIN_IDLE
    }

    /// As [`PageHeat::runs`], without unpacking: what holds of a state is found once, and not for each of its pages.
    pub(crate) fn runs(&self, now: Ns, out: &mut Vec<Run>) {
        let mut known = [None; MAX_STATES];
        for (known, state) in known.iter_mut().zip(self.states()) {
            *known = self.kind(state, now);
        }
        // Of many all pages are in one state: a span that is hot as a whole.
        if self.states_len() == 1 {
            return out.extend(known[0].map(|run| Run { pages: 512, ..run }));
        }
        let numbers = self.numbers();
        let mut first = 0;
        // No loop with `for`, in which each step asks in which word of the mask it is.
        self.starts().iter().skip(1).chain([PAGES_PER_PMD]).for_each(|end| {
            #[expect(clippy::cast_possible_truncation, reason = "at most 512")]
            let (pages, start) = ((end - first) as u16, first as u16);
            if let Some(of) = known[usize::from(numbers[first]) % MAX_STATES] {
                push_run(out, Run { first: start, pages, ..of });
            }
            first = end;
        });
    }

    /// As [`crate::PmdHeat::gathered`].
    pub(crate) fn gathered(&self, now: Ns, out: &mut Vec<Run>) -> bool {
        let (from, mut first) = (out.len(), 0);
        for (number, state) in self.states().enumerate() {
            let Some(run) = self.kind(state, now).filter(|run| run.interval.is_measured()) else { break };
            #[expect(clippy::cast_possible_truncation, reason = "at most 512")]
            let pages = self.pages_in(number).count() as u16;
            out.push(Run { first, pages, ..run });
            first += pages;
        }
        let has_all = usize::from(first) == PAGES_PER_PMD;
        let is_one = has_all && (are_alike(&out[from..]) || self.is_mixed(&out[from..]));
        if !is_one {
            out.truncate(from);
        }
        is_one
    }

    /// Whether its runs are too many for regions of their own. `kinds` are its states.
    fn is_mixed(&self, kinds: &[Run]) -> bool {
        let (starts, mut octaves) = (self.starts(), [0.0; MAX_STATES]);
        if Parts::are_few(starts.count()) {
            return false;
        }
        for (octaves, kind) in octaves.iter_mut().zip(kinds) {
            *octaves = kind.interval.octaves().unwrap_or(0.0);
        }
        let (numbers, mut parts, mut first) = (self.numbers(), Parts::default(), 0);
        starts.iter().skip(1).chain([PAGES_PER_PMD]).any(|end| {
            parts.add(octaves[usize::from(numbers[first]) % MAX_STATES], (end - first) as u64);
            first = end;
            parts.are_mixed()
        })
    }

    /// What is known at `now` of pages in this state, as a run without pages. `None` of pages that are not there.
    fn kind(&self, state: State, now: Ns) -> Option<Run> {
        let idle = state.is_cleared().then(|| self.idle_code(state.epoch(), now));
        state.is_present().then(|| Run::of(state.interval(), idle))
    }

    /// The interval code of the idle time of pages with this clear time, as [`PageHeat::idle_codes`] has it.
    fn idle_code(&self, epoch: u8, now: Ns) -> Interval {
        let (cleared_at, last_read, index) = (self.0[0], self.0[1], usize::from(epoch));
        let time = epoch_time(cleared_at, self.epoch(index), index + 1 == self.epochs_len());
        idle_code(now.min(last_read).saturating_sub(time))
    }

    /// A clear time as it is stored.
    #[expect(clippy::cast_possible_truncation, reason = "32 bits")]
    fn epoch(&self, index: usize) -> u32 {
        part(self.0[HEAD + index / 2], index % 2, 32) as u32
    }

    /// The pages that are in another state than the one before, and the first.
    fn starts(&self) -> Mask {
        let mut starts = Mask::NONE;
        for plane in self.planes() {
            let mut before = 0;
            for (word, starts) in plane.iter().zip(&mut starts.0) {
                *starts |= word ^ (word << 1 | before);
                before = word >> 63;
            }
        }
        starts.0[0] |= 1;
        starts
    }

    /// The number of its state for each page.
    fn numbers(&self) -> [u8; 512] {
        let mut eights = [0_u64; 512 / 8];
        for (bit, plane) in self.planes().enumerate() {
            for (word, eights) in plane.iter().zip(eights.chunks_exact_mut(8)) {
                for (byte, numbers) in word.to_le_bytes().into_iter().zip(eights) {
                    *numbers |= spread(byte) << bit;
                }
            }
        }
        let mut numbers = [0; 512];
        for (numbers, eight) in numbers.chunks_exact_mut(8).zip(eights) {
            numbers.copy_from_slice(&eight.to_le_bytes());
        }
        numbers
    }

    /// Takes in a read at `now` that shows no access, the same pages, and no bit that somebody else has cleared. `None` otherwise:
    /// [`PackedHeat::unpack`] it, and read that.
    pub(crate) fn read(&mut self, now: Ns, young: Mask, present: Mask) -> Option<AccessesFound> {
        let (mut uncleared, mut cleared) = (Mask::NONE, Mask::NONE);
        for (number, state) in self.states().enumerate().filter(|(_, state)| state.is_present()) {
            let pages = self.pages_in(number);
            if state.is_cleared() {
                cleared = cleared | pages;
            } else if state.interval().is_measured() && !(pages & !young).is_empty() {
                return None;
            } else {
                uncleared = uncleared | pages;
            }
        }
        if present != (uncleared | cleared) || !(young & cleared).is_empty() {
            return None;
        }
        self.0[1] = now;
        Some(AccessesFound { still_set: (uncleared & young).count(), ..AccessesFound::default() })
    }

    /// Present pages.
    pub(crate) fn present(&self) -> Mask {
        self.pages(State::is_present)
    }

    /// Present pages that are not cleared.
    pub(crate) fn uncleared(&self) -> Mask {
        self.pages(State::is_uncleared)
    }

    /// As [`PageHeat::expected_retouches`], without unpacking.
    pub(crate) fn expected_retouches(&self, bound: Interval) -> (u32, u32) {
        let uncleared = self.states().enumerate().filter(|(_, state)| state.is_uncleared());
        uncleared.fold((0, 0), |(within, unmeasured), (number, state)| match state.interval() {
            interval if !interval.is_measured() => (within, unmeasured + self.pages_in(number).count()),
            interval if interval <= bound => (within + self.pages_in(number).count(), unmeasured),
            _ => (within, unmeasured),
        })
    }

    /// When it was cleared last.
    pub(crate) fn cleared_at(&self) -> Ns {
        self.0[0]
    }

    /// Whether any page is cleared.
    pub(crate) fn has_cleared(&self) -> bool {
        self.states().any(State::is_cleared)
    }

    /// Whether any present page is not.
    pub(crate) fn has_uncleared(&self) -> bool {
        self.states().any(State::is_uncleared)
    }

    fn pages(&self, wanted: impl Fn(State) -> bool) -> Mask {
        let states = self.states().enumerate().filter(|(_, state)| wanted(*state));
        states.fold(Mask::NONE, |pages, (number, _)| pages | self.pages_in(number))
    }

    /// The pages in a state.
    fn pages_in(&self, number: usize) -> Mask {
        self.planes().enumerate().fold(Mask::ALL, |pages, (bit, plane)| {
            let flip = if number >> bit & 1 == 1 { 0 } else { u64::MAX };
            Mask(std::array::from_fn(|word| pages.0[word] & (plane[word] ^ flip)))
        })
    }

    /// Bit 0 of the number of each page, then bit 1, and so on.
    fn planes(&self) -> impl Iterator<Item = &[u64]> {
        self.0[self.states_at() + self.states_len().div_ceil(4)..].chunks_exact(8)
    }

    #[expect(clippy::cast_possible_truncation, reason = "16 bits")]
    fn states(&self) -> impl Iterator<Item = State> + '_ {
        let words = &self.0[self.states_at()..];
        (0..self.states_len()).map(move |number| State(part(words[number / 4], number % 4, 16) as u16))
    }

    fn states_at(&self) -> usize {
        HEAD + self.epochs_len().div_ceil(2)
    }

    fn epochs_len(&self) -> usize {
        usize::from(self.0[2].to_le_bytes()[0]).min(EPOCHS)
    }

    fn states_len(&self) -> usize {
        usize::from(self.0[2].to_le_bytes()[1])
    }
}

/// The states of its pages, and the number of its state for each page. `None` if there are too many.
fn numbered(heat: &PageHeat) -> Option<(Vec<State>, [u8; 512])> {
    let mut states: Vec<State> = Vec::with_capacity(MAX_STATES);
    let mut numbers = [0_u8; 512];
    // The number of the state that a page with this interval had last. Mostly there is no other.
    let mut likely = [0_u8; 256];
    for (page, of_page) in numbers.iter_mut().enumerate() {
        let state = State::of(heat, page);
        let guess = &mut likely[usize::from(state.0 & 0xff)];
        if states.get(usize::from(*guess)) != Some(&state) {
            let number = states.iter().position(|s| *s == state).unwrap_or(states.len());
            if number == states.len() {
                if number == MAX_STATES {
                    return None;
                }
                states.push(state);
            }
            *guess = u8::try_from(number).ok()?;
        }
        *of_page = *guess;
    }
    Some((states, numbers))
}

/// Bits of the number of one of `states` states.
fn width(states: usize) -> usize {
    states.max(1).next_power_of_two().ilog2() as usize
}

/// Each bit in a byte of its own, the lowest first.
fn spread(bits: u8) -> u64 {
    const EACH: u64 = 0x0101_0101_0101_0101;
    // Bit `i` of the byte where it is in byte `i` of the word, then moved to the lowest place of that.
    let apart = (u64::from(bits) * EACH) & 0x8040_2010_0804_0201;
    (apart + 0x7f * EACH) >> 7 & EACH
}

/// One of the numbers of `bits` bits in a word.
fn part(word: u64, at: usize, bits: usize) -> u64 {
    word >> (at * bits) & ((1 << bits) - 1)
}

/// Numbers of `bits` bits in one word, the first lowest.
fn joined(numbers: impl Iterator<Item = u64>, bits: usize) -> u64 {
    numbers.enumerate().fold(0, |word, (at, number)| word | number << (at * bits))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;
    use crate::pmd::EPOCH_UNIT;

    fn some(rng: &mut Rng, share: u64) -> Mask {
        (0..512).filter(|_| rng.below(100) < share).collect()
    }

    /// Everything that is asked of a huge range.
    fn answers(heat: &PageHeat, now: Ns) -> impl PartialEq + std::fmt::Debug + use<> {
        let mut runs = Vec::new();
        heat.runs(now, &mut runs);
        (runs, heat.sketch(), heat.expected_retouches(Interval::HOT), heat.present(), heat.cleared())
    }

    /// Random histories, with the pages packed after each step and not.
    #[test]
    fn a_packed_huge_range_gives_the_same_answers() {
        let seed = 5;
        let mut rng = Rng::new(seed);
        let mut packed_reads = 0;
        for history in 0..300 {
            let (mut now, mut present) = (0, some(&mut rng, 100 - history % 3 * 40));
            let mut heat = PageHeat::new(present);
            let mut same = heat.clone();
            // A few pages are accessed again and again, as in most huge ranges.
            let hot = some(&mut rng, history % 11);
            for step in 0..30 {
                let longest = 1 << rng.below(12);
                now += EPOCH_UNIT * (1 + rng.below(longest));
                if rng.below(4) == 0 {
                    let pages = if rng.below(2) == 0 { Mask::ALL } else { some(&mut rng, 50) };
                    heat.set_cleared(now, pages);
                    same.set_cleared(now, pages);
                } else {
                    present = if rng.below(10) == 0 { some(&mut rng, 95) } else { present };
                    let others = if rng.below(8) == 0 { some(&mut rng, 2) } else { Mask::NONE };
                    let young = (if rng.below(3) > 0 { heat.uncleared() } else { hot | others }) & present;
                    let packed_found = PackedHeat::of(&same).and_then(|mut packed| {
                        let found = packed.read(now, young, present)?;
                        packed_reads += 1;
                        Some((found, answers(&packed.unpack(), now)))
                    });
                    let found = heat.read(now, young, present);
                    assert_eq!(same.read(now, young, present), found, "seed {seed}, history {history}, step {step}");
                    if let Some((packed_found, answers_after)) = packed_found {
                        assert_eq!((packed_found, answers_after), (found, answers(&heat, now)), "seed {seed}");
                    }
                }
                let Some(packed) = PackedHeat::of(&same) else { continue };
                assert_says_the_same(&packed, &heat);
                same = packed.unpack();
                let seen = now + rng.below(5_000_000_000);
                let mut runs = (Vec::new(), Vec::new());
                packed.runs(seen, &mut runs.0);
                heat.runs(seen, &mut runs.1);
                assert_eq!(runs.0, runs.1, "seed {seed}, history {history}, step {step}");
                let of = |heat| answers(heat, seen);
                assert_eq!(of(&same), of(&heat), "seed {seed}, history {history}, step {step}");
            }
        }
        assert!(packed_reads > 500, "{packed_reads}");
    }

    /// What is asked without unpacking.
    fn assert_says_the_same(packed: &PackedHeat, heat: &PageHeat) {
        assert_eq!((packed.present(), packed.pages(State::is_cleared)), (heat.present(), heat.cleared()));
        assert_eq!(packed.uncleared(), heat.uncleared());
        assert_eq!(packed.cleared_at(), heat.cleared_at());
        for bound in [Interval::SHORTEST, Interval::HOT, Interval::LONGEST] {
            assert_eq!(packed.expected_retouches(bound), heat.expected_retouches(bound));
        }
        assert_eq!(packed.is_in_first_second(), heat.is_in_first_second());
        assert_eq!(packed.has_cleared(), !heat.cleared().is_empty());
        assert_eq!(packed.has_uncleared(), !heat.uncleared().is_empty());
    }

    #[test]
    fn bits_are_spread_over_bytes() {
        for bits in 0..=u8::MAX {
            assert_eq!(spread(bits).to_le_bytes(), std::array::from_fn(|bit| bits >> bit & 1), "{bits:#b}");
        }
    }

    #[test]
    fn sizes_follow_the_number_of_states() {
        let bytes = |heat: &PageHeat| PackedHeat::of(heat).map(|packed| size_of_val(&*packed.0));
        let mut heat = PageHeat::new(Mask::ALL);
        assert_eq!(bytes(&heat), Some(32), "the head and one state");
        heat.set_cleared(1, Mask::ALL);
        assert_eq!(bytes(&heat), Some(40), "and a clear time");
        for (states, size) in [(2, 40 + 64), (4, 40 + 2 * 64), (16, 64 + 4 * 64), (32, 96 + 5 * 64)] {
            for (page, interval) in heat.intervals.iter_mut().enumerate() {
                *interval = Interval::from_code(u8::try_from(1 + page % states).unwrap());
            }
            assert_eq!(bytes(&heat), Some(size), "{states} states");
        }
        heat.intervals[7] = Interval::LONGEST;
        assert_eq!(bytes(&heat), None, "33 states");
    }
}
