//! What a target has counted: clears, and what reads have shown of cleared pages.

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tally {
    /// Pages (or huge pages) cleared.
    pub cleared: u64,
    /// Those seen touched again.
    pub retouched: u64,
    /// Pages read whose accessed bit the previous read left set.
    pub still_set: u64,
    /// Those of them whose bit somebody else had cleared.
    pub lost: u64,
}

impl Tally {
    /// The sum of both.
    pub fn and(self, other: Tally) -> Tally {
        Tally {
            cleared: self.cleared + other.cleared,
            retouched: self.retouched + other.retouched,
            still_set: self.still_set + other.still_set,
            lost: self.lost + other.lost,
        }
    }
}
