//! How much of a target is swapped out, which its page heat does not show. It takes a file of `/proc`, and changes slowly: so it is read
//! rarely, and of a bounded number of targets at a time, the least recently read first. A snapshot has the last values.

use isotherm_heat::Ns;
use isotherm_units::Bytes;

/// How long a value is used before it is read again.
const BELIEVED_FOR: Ns = 10_000_000_000;
/// Targets read per snapshot.
pub(crate) const READ_AT_ONCE: usize = 64;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Swapped {
    read_at: Option<Ns>,
    bytes: Option<Bytes>,
}

impl Swapped {
    /// When it was last read, if it is time to read it again: the earlier, the more urgent.
    pub fn due(&self, now: Ns) -> Option<Option<Ns>> {
        let is_due = self.read_at.is_none_or(|at| now.saturating_sub(at) >= BELIEVED_FOR);
        is_due.then_some(self.read_at)
    }

    /// Takes in what was read.
    pub fn note(&mut self, now: Ns, bytes: Option<Bytes>) {
        (self.read_at, self.bytes) = (Some(now), bytes);
    }

    /// The last value.
    pub fn bytes(&self) -> Option<Bytes> {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_seldom_and_unknown_is_not_nothing() {
        let mut swapped = Swapped::default();
        assert_eq!((swapped.due(7), swapped.bytes()), (Some(None), None));
        swapped.note(7, Some(Bytes(1)));
        assert_eq!((swapped.due(6 + BELIEVED_FOR), swapped.bytes()), (None, Some(Bytes(1))), "as read before");
        assert_eq!(swapped.due(7 + BELIEVED_FOR), Some(Some(7)));
        swapped.note(7 + BELIEVED_FOR, None);
        assert_eq!((swapped.due(8 + BELIEVED_FOR), swapped.bytes()), (None, None));
    }
}
