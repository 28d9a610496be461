//! The settings: intervals, numbers and sizes of regions, and a goal for the intervals. Checked in one place.

use isotherm_heat::tune::IntervalGoal;
use isotherm_units::{Bytes, PAGE_SIZE};
use std::fmt;

/// The sampling settings of a context. Times are counted in samples taken, not read from a clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attrs {
    /// Time between two samples, in nanoseconds. Default 5 ms; must not be 0.
    pub sample_ns: u64,
    /// Time over which accesses are counted, in nanoseconds. Default 100 ms; at least one sample.
    pub aggregation_ns: u64,
    /// Time between two updates of the memory layout, in nanoseconds. Default 60 s; must not be 0. A value below a
    /// sample is rounded up to a sample.
    pub update_ns: u64,
    /// Minimum number of regions over all targets, as far as their sizes permit. Default 10; at least 3.
    pub min_regions: usize,
    /// Maximum number of regions over all targets. Default 1,000.
    pub max_regions: usize,
    /// Minimum size of a region. Bounds inside a range are multiples of it. A power of two; default one page.
    pub min_region: Bytes,
    /// Maximum size of a region, as far as `max_regions` permits. Adaptation needs room: from half of `max_regions` on
    /// nothing is split any more, so this should result in fewer regions. Default: no maximum.
    pub max_region: Option<Bytes>,
    /// Maximum number of accesses that one sample can count: 1 for a source that reports whether a page was accessed,
    /// 512 for one that reports the number of accessed pages in a huge range. Default 1.
    pub weight: u32,
    /// Tunes the intervals. Default: the intervals stay as they are set.
    pub goal: Option<Goal>,
}

/// Tunes the intervals until a wanted share of the samples that could find an access find one, weighted by the size of
/// their regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Goal {
    /// The wanted share, in ten-thousandths. DAMON's users set 400.
    pub access_bp: u32,
    /// Number of aggregations between two tunings.
    pub aggregations: u32,
    /// The minimum sampling interval, in nanoseconds.
    pub min_sample_ns: u64,
    /// The maximum sampling interval, in nanoseconds.
    pub max_sample_ns: u64,
}

impl Goal {
    /// The same without the number of aggregations, which are counted here.
    pub(super) fn interval(&self) -> IntervalGoal {
        let Goal { access_bp, min_sample_ns, max_sample_ns, .. } = *self;
        IntervalGoal { observed_bp: access_bp, min_interval_ns: min_sample_ns, max_interval_ns: max_sample_ns }
    }
}

impl Default for Attrs {
    fn default() -> Attrs {
        Attrs {
            sample_ns: 5_000_000,
            aggregation_ns: 100_000_000,
            update_ns: 60_000_000_000,
            min_regions: 10,
            max_regions: 1_000,
            min_region: Bytes(PAGE_SIZE),
            max_region: None,
            weight: 1,
            goal: None,
        }
    }
}

/// Why attributes are invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AttrsError {
    /// A value that has to be at least one is zero.
    Zero(&'static str),
    /// The first interval in nanoseconds is longer than the second.
    SampleAboveAggregation(u64, u64),
    /// Fewer regions than the three ranges that cover a target.
    MinRegions(usize),
    /// The first number of regions is greater than the second.
    MinAboveMax(usize, usize),
    /// Not a power of two.
    MinRegion(Bytes),
    /// The first size, a maximum, is below the second, the smallest region.
    MaxRegion(Bytes, Bytes),
    /// More counts in an aggregation than a 32-bit counter holds.
    TooManyCounts(u128),
    /// A share above that of all samples, in ten-thousandths.
    GoalShare(u32),
    /// The first interval in nanoseconds is longer than the second.
    GoalIntervals(u64, u64),
}

impl fmt::Display for AttrsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use AttrsError::*;
        match self {
            Zero(what) => write!(f, "{what} is 0: set at least 1"),
            SampleAboveAggregation(sample, aggregation) => write!(
                f,
                "sampling interval of {sample} ns in an aggregation interval of {aggregation} ns: \
                 make the aggregation at least as long as a sample"
            ),
            MinRegions(min) => write!(f, "at least {min} regions: set 3 or more"),
            MinAboveMax(min, max) => {
                write!(f, "at least {min} and at most {max} regions: raise the second or lower the first")
            }
            MinRegion(size) => write!(f, "smallest region of {} bytes: set a power of two, 4096 for a page", size.0),
            MaxRegion(cap, min) => {
                write!(
                    f,
                    "largest region of {} bytes, smallest of {}: make the largest at least as large",
                    cap.0, min.0
                )
            }
            TooManyCounts(counts) => write!(
                f,
                "up to {counts} accesses counted in an aggregation, more than {}: shorten the aggregation or sample less often",
                u32::MAX
            ),
            GoalShare(bp) => write!(f, "intervals goal of {bp} ten-thousandths of all samples: set at most 10000"),
            GoalIntervals(min, max) => {
                write!(
                    f,
                    "sampling interval to be tuned between {min} and {max} ns: make the second at least the first"
                )
            }
        }
    }
}

impl std::error::Error for AttrsError {}

impl Attrs {
    /// The defaults with intervals tuned as DAMON's users are advised: 4% of accesses found, 3 aggregations, 5 ms to 10 s.
    pub fn tuned() -> Attrs {
        let goal = Goal { access_bp: 400, aggregations: 3, min_sample_ns: 5_000_000, max_sample_ns: 10_000_000_000 };
        Attrs { goal: Some(goal), ..Attrs::default() }
    }

    /// Checks whether a context can use them. The error describes what to change.
    pub fn validate(&self) -> Result<(), AttrsError> {
        let not_zero = [
            ("the sampling interval", self.sample_ns),
            ("the aggregation interval", self.aggregation_ns),
            ("the update interval", self.update_ns),
            ("the weight of a sample", u64::from(self.weight)),
        ];
        refuse_zero(&not_zero)?;
        if self.sample_ns > self.aggregation_ns {
            return Err(AttrsError::SampleAboveAggregation(self.sample_ns, self.aggregation_ns));
        }
        if self.min_regions < 3 {
            return Err(AttrsError::MinRegions(self.min_regions));
        }
        if self.min_regions > self.max_regions {
            return Err(AttrsError::MinAboveMax(self.min_regions, self.max_regions));
        }
        if !self.min_region.0.is_power_of_two() {
            return Err(AttrsError::MinRegion(self.min_region));
        }
        if let Some(cap) = self.max_region.filter(|cap| *cap < self.min_region) {
            return Err(AttrsError::MaxRegion(cap, self.min_region));
        }
        let counts = u128::from(self.samples()) * u128::from(self.weight);
        if counts > u128::from(u32::MAX) {
            return Err(AttrsError::TooManyCounts(counts));
        }
        self.goal.as_ref().map_or(Ok(()), Goal::validate)
    }

    /// Samples in an aggregation.
    pub fn samples(&self) -> u64 {
        (self.aggregation_ns / self.sample_ns.max(1)).max(1)
    }

    /// Samples between two updates.
    pub fn samples_per_update(&self) -> u64 {
        (self.update_ns / self.sample_ns.max(1)).max(1)
    }

    /// Maximum number of accesses that can be counted for a region in an aggregation.
    pub fn max_nr_accesses(&self) -> u32 {
        u32::try_from(self.samples().saturating_mul(u64::from(self.weight))).unwrap_or(u32::MAX)
    }

    /// Whether counts made under `other` have the same meaning under these.
    pub(super) fn counts_like(&self, other: &Attrs) -> bool {
        let of = |a: &Attrs| (a.sample_ns, a.aggregation_ns, a.weight);
        of(self) == of(other)
    }
}

impl Goal {
    fn validate(&self) -> Result<(), AttrsError> {
        refuse_zero(&[
            ("the intervals goal", u64::from(self.access_bp)),
            ("the number of aggregations of the intervals goal", u64::from(self.aggregations)),
            ("the shortest sampling interval of the intervals goal", self.min_sample_ns),
            ("the longest sampling interval of the intervals goal", self.max_sample_ns),
        ])?;
        if self.access_bp > 10_000 {
            return Err(AttrsError::GoalShare(self.access_bp));
        }
        if self.min_sample_ns > self.max_sample_ns {
            return Err(AttrsError::GoalIntervals(self.min_sample_ns, self.max_sample_ns));
        }
        Ok(())
    }
}

fn refuse_zero(values: &[(&'static str, u64)]) -> Result<(), AttrsError> {
    match values.iter().find(|(_, value)| *value == 0) {
        Some((what, _)) => Err(AttrsError::Zero(what)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(change: impl FnOnce(&mut Attrs)) -> Result<(), AttrsError> {
        let mut attrs = Attrs::default();
        change(&mut attrs);
        attrs.validate()
    }

    fn goal(access_bp: u32, aggregations: u32, min_sample_ns: u64, max_sample_ns: u64) -> Result<(), AttrsError> {
        with(|a| a.goal = Some(Goal { access_bp, aggregations, min_sample_ns, max_sample_ns }))
    }

    #[test]
    fn damons_defaults_count_to_twenty() {
        assert_eq!(Attrs::default().validate(), Ok(()));
        assert_eq!(Attrs::tuned().validate(), Ok(()));
        assert_eq!(Attrs::default().max_nr_accesses(), 20);
        assert_eq!(Attrs { weight: 512, ..Attrs::default() }.max_nr_accesses(), 10_240);
        assert_eq!(Attrs { sample_ns: 70_000_000, ..Attrs::default() }.max_nr_accesses(), 1);
    }

    #[test]
    fn what_damon_refuses_is_refused() {
        use AttrsError::*;
        assert_eq!(with(|a| a.min_regions = 1), Err(MinRegions(1)));
        assert_eq!(with(|a| a.max_regions = 9), Err(MinAboveMax(10, 9)));
        assert_eq!(with(|a| a.aggregation_ns = 4_999_999), Err(SampleAboveAggregation(5_000_000, 4_999_999)));
        assert_eq!(with(|a| a.min_region = Bytes(4095)), Err(MinRegion(Bytes(4095))));
        assert_eq!(with(|a| a.min_region = Bytes(0)), Err(MinRegion(Bytes(0))));
        assert_eq!(goal(400, 3, 10, 5), Err(GoalIntervals(10, 5)));
        assert_eq!(goal(400, 3, 5, 5), Ok(()));
    }

    #[test]
    fn so_is_what_cannot_be_counted() {
        use AttrsError::*;
        assert!(matches!(with(|a| a.sample_ns = 0), Err(Zero("the sampling interval"))));
        assert!(matches!(with(|a| a.update_ns = 0), Err(Zero(_))));
        assert!(matches!(with(|a| a.weight = 0), Err(Zero(_))));
        assert!(matches!(with(|a| a.aggregation_ns = 0), Err(Zero(_))));
        for (access, aggregations, min, max) in [(0, 3, 1, 2), (400, 0, 1, 2), (400, 3, 0, 2), (400, 3, 0, 0)] {
            assert!(matches!(goal(access, aggregations, min, max), Err(Zero(_))));
        }
        assert_eq!(goal(10_001, 1, 1, 1), Err(GoalShare(10_001)));
        assert_eq!(with(|a| a.max_region = Some(Bytes(4095))), Err(MaxRegion(Bytes(4095), Bytes(4096))));
        assert!(matches!(with(|a| (a.sample_ns, a.weight) = (1, 512)), Err(TooManyCounts(51_200_000_000))));
    }

    #[test]
    fn errors_say_what_of_what_and_what_to_do() {
        let text = AttrsError::MinAboveMax(20, 10).to_string();
        assert_eq!(text, "at least 20 and at most 10 regions: raise the second or lower the first");
    }
}
