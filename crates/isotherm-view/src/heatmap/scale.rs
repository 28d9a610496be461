//! What the colour of a cell stands for, and the scale that takes a cell to a colour, a digit and words.
//!
//! The model (`model`) has three figures of each cell. A scale shows one of them. It first rounds the figure to a
//! [`Step`] of one byte; colour, digit, words and legend all follow from the step, so terminal, PNG and HTML cannot
//! disagree. All scales are fixed instead of fitted to the data, so that pictures can be compared, and logarithmic.
//!
//! The default is the share of a cell that is hot. Most large cells hold little hot memory: 4 MiB in 1 GiB is 0.4%. On
//! a linear scale that would look like none. So the scale has three decades, from 0.1% to all, and any hot page at all
//! is set off from none: the scale begins a fifth of the way from the darkest colour, which only cells without hot
//! memory have. Idle time has such a gap at the other end: memory is known to be idle from one second on, and would fade
//! from the colour of hot memory otherwise.

use super::color::{Rgb, UNMEASURED_COLOR, heat_color};
use super::model::{Cell, CellHeat};
use crate::human;
use crate::math;
use isotherm_heat::{Interval, Thresholds};

/// Shares up to this have the first step above none.
pub(super) const MIN_SHARE: f64 = 0.001;
/// Powers of ten from [`MIN_SHARE`] to 1.
const DECADES: f64 = 3.0;
/// How far from the darkest colour (0) to the brightest (1) the smallest share is.
const SHARE_FLOOR: f64 = 0.2;
/// The same for an idle time of one second. The brightest colour is for less.
const IDLE_CEILING: f64 = 0.6;
const DIGITS: f64 = 10.0;

/// What the colours of a heat map show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// Which share of a cell is hot, of what was measured.
    #[default]
    Share,
    /// The mean access interval.
    Interval,
    /// The mean time since an access was found.
    Idle,
}

/// A figure as a step of its scale: 0 absent, 1 unmeasured, from 2 on the scale. Steps of time are those of [`Interval`].
/// Of the shares, 2 is none and the others are at equal distances on the log scale, up to 255, which is all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Step(pub u8);

impl Step {
    pub const ABSENT: Step = Step(0);
    pub const UNMEASURED: Step = Step(1);
    const NONE: Step = Step(2);
    const MIN_SHARE: Step = Step(3);

    /// From 0 for the smallest share to 1 for all; below 0 for none.
    fn of_share(self) -> f64 {
        (f64::from(self.0) - f64::from(Step::MIN_SHARE.0)) / f64::from(u8::MAX - Step::MIN_SHARE.0)
    }
}

/// One entry of a legend.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tick {
    /// Where it is on the ramp, from 0 to 1.
    pub at: f64,
    pub step: Step,
    pub label: String,
}

impl Scale {
    /// All scales, the default first.
    pub const ALL: [Scale; 3] = [Scale::Share, Scale::Interval, Scale::Idle];

    /// The scale after this one, and the first after the last.
    #[must_use]
    pub fn next(self) -> Scale {
        match self {
            Scale::Share => Scale::Interval,
            Scale::Interval => Scale::Idle,
            Scale::Idle => Scale::Share,
        }
    }

    /// What it shows, in a word or two.
    pub fn name(self) -> &'static str {
        match self {
            Scale::Share => "hot share",
            Scale::Interval => "access interval",
            Scale::Idle => "idle time",
        }
    }

    /// What it shows, in a line of ASCII, with its threshold.
    pub fn title(self) -> String {
        match self {
            Scale::Share => format!("share of each cell that is hot: {}", hot_means()),
            Scale::Interval => "mean access interval of each cell".to_owned(),
            Scale::Idle => "each cell has been idle for at least so long (mean since an access was found)".to_owned(),
        }
    }

    /// The colour of a cell; `None` if nothing is mapped there. It is paler where the heat is estimated.
    pub fn color(self, cell: Cell) -> Option<Rgb> {
        let color = self.color_of(self.step(cell))?;
        Some(if cell.is_estimated() { color.paler() } else { color })
    }

    /// 9 for the hottest; `?` for unmeasured, a space where nothing is mapped. `.` stands for a cell without hot memory. What is estimated has
    /// `~` for that, and the letters from a (as 0) to j (as 9).
    pub fn digit(self, cell: Cell) -> char {
        match self.digit_of(self.step(cell)) {
            '.' if cell.is_estimated() => '~',
            digit @ '0'..='9' if cell.is_estimated() => char::from(digit as u8 - b'0' + b'a'),
            digit => digit,
        }
    }

    /// How a picture shows which cells are estimated, as the end of its title.
    pub(crate) fn note_of_estimates(in_digits: bool) -> &'static str {
        if in_digits { "; ~ and a to j where it is estimated" } else { "; paler where it is estimated" }
    }

    /// The step of a cell's figure.
    pub(crate) fn step(self, cell: Cell) -> Step {
        match cell {
            Cell::Absent => Step::ABSENT,
            Cell::Unmeasured => Step::UNMEASURED,
            Cell::Measured(CellHeat { hot_share, interval, idle, .. }) => match self {
                Scale::Share => share_step(hot_share),
                Scale::Interval => Step(interval.code()),
                Scale::Idle => Step(idle.code()),
            },
        }
    }

    /// The colour of a step; `None` if nothing is mapped there.
    pub(crate) fn color_of(self, step: Step) -> Option<Rgb> {
        match step {
            Step::ABSENT => None,
            Step::UNMEASURED => Some(UNMEASURED_COLOR),
            Step::NONE if self == Scale::Share => Some(heat_color(0.0)),
            _ if self.is_in_use(step) => Some(heat_color(1.0)),
            _ => Some(self.ramp(self.position(step))),
        }
    }

    pub(crate) fn digit_of(self, step: Step) -> char {
        let digit = |value: f64| char::from(b'0' + math::to_byte(value.floor().clamp(0.0, 9.0)));
        match step {
            Step::ABSENT => ' ',
            Step::UNMEASURED => '?',
            Step::NONE if self == Scale::Share => '.',
            // 1% and 10% are exactly a third and two thirds up: a rounding error must not lower them.
            _ if self == Scale::Share => digit(1.0 + step.of_share() * (DIGITS - 1.0) + 1e-9),
            _ if self.is_in_use(step) => '9',
            _ if self == Scale::Idle => digit((self.position(step) * (DIGITS - 1.0)).min(DIGITS - 2.0)),
            _ => digit(self.position(step) * DIGITS),
        }
    }

    /// What a step means, as the end of a sentence about a cell.
    pub(crate) fn words(self, step: Step) -> String {
        let time = human::interval(Interval::from_code(step.0));
        match (self, step) {
            (_, Step::ABSENT) => "not there".to_owned(),
            (_, Step::UNMEASURED) => "not measured yet".to_owned(),
            (Scale::Share, Step::NONE) => "none of it is hot".to_owned(),
            (Scale::Share, Step::MIN_SHARE) => format!("{} or less of it is hot", percent(MIN_SHARE)),
            (Scale::Share, _) => format!("{} of it is hot", percent(10_f64.powf(DECADES * (step.of_share() - 1.0)))),
            (Scale::Interval, _) => format!("accessed every {time}"),
            (Scale::Idle, _) if self.is_in_use(step) => "idle for less than 1 s".to_owned(),
            (Scale::Idle, _) => format!("idle for at least {time}"),
        }
    }

    /// The colour at a place of the ramp, from 0 (cold) to 1 (hot).
    pub(crate) fn ramp(self, at: f64) -> Rgb {
        match self {
            Scale::Share => heat_color(SHARE_FLOOR + (1.0 - SHARE_FLOOR) * at.clamp(0.0, 1.0)),
            Scale::Interval => heat_color(at),
            Scale::Idle => heat_color(IDLE_CEILING * at.clamp(0.0, 1.0)),
        }
    }

    /// About `count` entries of a legend along the ramp, coldest first.
    pub(crate) fn ticks(self, count: usize) -> Vec<Tick> {
        let last = match self {
            Scale::Share if count > 3 => 3,
            Scale::Share => 1,
            Scale::Interval | Scale::Idle => count.saturating_sub(1).max(1),
        };
        (0..=last).map(|i| self.tick(i as f64 / last as f64)).collect()
    }

    fn tick(self, at: f64) -> Tick {
        let Some((hot, cold)) = self.ends() else {
            let share = 10_f64.powf(DECADES * (at - 1.0));
            return Tick { at, step: share_step(share), label: percent(share) };
        };
        let interval = Interval::from_octaves(cold + (hot - cold) * at);
        Tick { at, step: Step(interval.code()), label: human::interval(interval) }
    }

    /// Entries of the legend that are not on the ramp.
    pub(crate) fn extra_ticks(self) -> Vec<Tick> {
        let of = |step, label: &str| Tick { at: 0.0, step, label: label.to_owned() };
        let own = match self {
            Scale::Share => Some(of(Step::NONE, "none")),
            Scale::Interval => None,
            Scale::Idle => Some(of(Step(Interval::SHORTEST.code()), "< 1 s")),
        };
        own.into_iter().chain([of(Step::UNMEASURED, "unmeasured")]).collect()
    }

    /// The whole legend, coldest first and unmeasured last, with about `count` entries on the ramp.
    pub(crate) fn legend(self, count: usize) -> Vec<Tick> {
        let (mut own, ramp) = (self.extra_ticks(), self.ticks(count));
        let unmeasured = own.pop();
        match self {
            Scale::Share => own.into_iter().chain(ramp).chain(unmeasured).collect(),
            Scale::Interval | Scale::Idle => ramp.into_iter().chain(own).chain(unmeasured).collect(),
        }
    }

    /// Whether it is an idle time of less than a second.
    fn is_in_use(self, step: Step) -> bool {
        self == Scale::Idle && step > Step::UNMEASURED && step < Step(Interval::HOT.code())
    }

    /// Where a step is on the ramp.
    fn position(self, step: Step) -> f64 {
        match (self.ends(), Interval::from_code(step.0).octaves()) {
            (Some((hot, cold)), Some(octaves)) => ((cold - octaves) / (cold - hot)).clamp(0.0, 1.0),
            _ => step.of_share().clamp(0.0, 1.0),
        }
    }

    /// The times at the hot and at the cold end, in octaves of a millisecond; `None` for shares.
    fn ends(self) -> Option<(f64, f64)> {
        let (hot_ms, cold_ms) = match self {
            Scale::Share => return None,
            Scale::Interval => (8, 600_000),
            // A page counts as idle after one second.
            Scale::Idle => (1_000, 600_000),
        };
        let octaves = |ms: u64| Interval::from_ns(ms * 1_000_000).octaves().unwrap_or(0.0);
        Some((octaves(hot_ms), octaves(cold_ms)))
    }
}

fn share_step(share: f64) -> Step {
    if share <= 0.0 {
        return Step::NONE;
    }
    let at = (1.0 + share.log10() / DECADES).clamp(0.0, 1.0);
    Step(Step::MIN_SHARE.0 + math::to_byte(at * f64::from(u8::MAX - Step::MIN_SHARE.0)))
}

/// `0.1%`, `4.6%`, `100%`.
fn percent(share: f64) -> String {
    let percent = share * 100.0;
    let digits = if percent < 0.0995 { 2 } else { usize::from(percent < 9.95) };
    let text = format!("{percent:.digits$}");
    format!("{}%", text.strip_suffix(".0").unwrap_or(&text))
}

fn hot_means() -> String {
    format!("accessed at least every {}", human::duration(Thresholds::default().hot_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn share(hot_share: f64) -> Cell {
        Cell::Measured(CellHeat {
            hot_share,
            interval: Interval::LONGEST,
            idle: Interval::LONGEST,
            is_estimated: false,
        })
    }

    fn time(ns: u64) -> Cell {
        Cell::Measured(CellHeat {
            hot_share: 0.0,
            interval: Interval::from_ns(ns),
            idle: Interval::from_ns(ns),
            is_estimated: false,
        })
    }

    #[test]
    fn a_little_hot_memory_looks_neither_cold_nor_hot() {
        let lightness = |part: f64| Scale::Share.color(share(part)).unwrap().lightness();
        let [none, page, little, tenth, all] = [0.0, 1.0 / 262_144.0, 4.0 / 1024.0, 0.1, 1.0].map(lightness);
        // Distances that are seen side by side. One page of 1 GiB is not none, and 4 MiB of it are more than a page.
        assert!(none + 15.0 < page && page + 10.0 < little && little + 30.0 < tenth && tenth + 30.0 < all);
        assert_eq!(Scale::Share.color(share(0.0)), Some(heat_color(0.0)));
        assert_eq!(Scale::Share.color(share(1.0)), Some(heat_color(1.0)));
    }

    #[test]
    fn what_is_estimated_is_drawn_paler_and_as_a_letter() {
        let estimated = |hot_share| match share(hot_share) {
            Cell::Measured(heat) => Cell::Measured(CellHeat { is_estimated: true, ..heat }),
            other => other,
        };
        let digits: String = [0.0, 0.001, 0.01, 1.0].iter().map(|s| Scale::Share.digit(estimated(*s))).collect();
        assert_eq!(digits, "~bej");
        let colors = |cell| Scale::Share.color(cell).unwrap();
        assert_eq!(colors(estimated(1.0)), heat_color(1.0).paler());
        // Hot and cold differ, and neither looks unmeasured.
        let [none, all] = [0.0, 1.0].map(|share| colors(estimated(share)).lightness());
        let grey = UNMEASURED_COLOR.lightness();
        assert!(none + 25.0 < grey && grey + 60.0 < all && all + 60.0 < heat_color(1.0).lightness());
    }

    #[test]
    fn digits_of_shares_rise_by_three_in_a_decade() {
        let digits = |shares: &[f64]| shares.iter().map(|s| Scale::Share.digit(share(*s))).collect::<String>();
        assert_eq!(digits(&[0.0, 1e-9, 0.001, 0.0039, 0.009, 0.01, 0.1, 0.45, 0.5, 1.0]), ".112347899");
    }

    #[test]
    fn times_end_where_the_scale_does() {
        let digits = |scale: Scale, times: &[u64]| times.iter().map(|t| scale.digit(time(*t))).collect::<String>();
        assert_eq!(digits(Scale::Interval, &[1, 8_000_000, SECOND, 600 * SECOND, 6000 * SECOND]), "99500");
        assert_eq!(digits(Scale::Idle, &[1, SECOND / 2, SECOND, 30 * SECOND, 600 * SECOND, 6000 * SECOND]), "998400");
    }

    #[test]
    fn memory_that_has_just_turned_out_to_be_idle_does_not_look_hot() {
        let color = |ns| Scale::Idle.color(time(ns)).unwrap();
        assert_eq!(color(SECOND / 2), heat_color(1.0));
        assert!(color(isotherm_heat::MIN_IDLE).lightness() + 60.0 < heat_color(1.0).lightness());
    }

    #[test]
    fn absent_and_unmeasured_cells_are_on_no_scale() {
        for scale in Scale::ALL {
            assert_eq!((scale.color(Cell::Absent), scale.color(Cell::Unmeasured)), (None, Some(UNMEASURED_COLOR)));
            assert_eq!((scale.digit(Cell::Absent), scale.digit(Cell::Unmeasured)), (' ', '?'));
            let on_it = (2..=u8::MAX).map(|code| scale.color_of(Step(code)).unwrap());
            assert!(on_it.into_iter().all(|color| color != UNMEASURED_COLOR));
        }
    }

    #[test]
    fn words_state_figure_and_unit() {
        let words = |scale: Scale, cell| scale.words(scale.step(cell));
        assert_eq!(words(Scale::Share, share(0.0)), "none of it is hot");
        assert_eq!(words(Scale::Share, share(1e-6)), "0.1% or less of it is hot");
        assert_eq!(words(Scale::Share, share(0.0039)), "0.4% of it is hot");
        assert_eq!(words(Scale::Share, share(1.0)), "100% of it is hot");
        assert_eq!(words(Scale::Interval, time(16_000_000)), "accessed every 16 ms");
        assert_eq!(words(Scale::Idle, time(SECOND)), "idle for at least 1 s");
        assert_eq!(words(Scale::Idle, time(SECOND / 2)), "idle for less than 1 s");
        assert!(Scale::Share.title().contains("at least every 1 s"), "{}", Scale::Share.title());
    }

    #[test]
    fn legends_show_the_colours_of_the_cells() {
        let labels =
            |scale: Scale, count| scale.legend(count).into_iter().map(|tick| tick.label).collect::<Vec<_>>().join(" ");
        assert_eq!(labels(Scale::Share, 7), "none 0.1% 1% 10% 100% unmeasured");
        assert_eq!(labels(Scale::Share, 2), "none 0.1% 100% unmeasured");
        assert_eq!(labels(Scale::Idle, 2), "10 min 1 s < 1 s unmeasured");
        for tick in Scale::ALL.into_iter().flat_map(|scale| scale.ticks(5).into_iter().map(move |t| (scale, t))) {
            let (scale, tick) = tick;
            let (on_ramp, of_step) = (scale.ramp(tick.at), scale.color_of(tick.step).unwrap());
            assert!((on_ramp.lightness() - of_step.lightness()).abs() < 4.0, "{scale:?} {tick:?}");
        }
    }
}
