//! How long reads wait for the mmap lock of a target that something else holds for writing.
//!
//! Most holds end within a millisecond or two: it is cheaper to wait than to come back. A fork of a large process holds it for a second or two. All
//! targets are read by one thread, so who waits for one of them keeps all others waiting: once it was in vain, each read tries once, until one
//! succeeds.

/// Tries in a row before a read gives up, a millisecond apart.
const BUSY_TRIES: u32 = 50;

/// Of one target.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Patience {
    tries: u32,
    gave_up: bool,
}

impl Patience {
    /// Whether to go on after a try that found the lock taken, or did not.
    pub fn goes_on(&mut self, busy: bool) -> bool {
        if !busy {
            *self = Patience::default();
            return true;
        }
        self.tries += 1;
        self.gave_up |= self.tries > BUSY_TRIES;
        !self.gave_up
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_wait_once_and_then_try_once_each_until_the_lock_is_free() {
        let mut patience = Patience::default();
        assert_eq!((0..100).take_while(|_| patience.goes_on(true)).count(), 50);
        assert!((0..3).all(|_| !patience.goes_on(true)), "each of the next reads ends at once");
        assert!(patience.goes_on(false));
        assert_eq!((0..100).take_while(|_| patience.goes_on(true)).count(), 50, "and then they wait again");
    }

    #[test]
    fn a_lock_that_is_taken_now_and_then_is_waited_for() {
        let mut patience = Patience::default();
        assert!((0..1000).all(|n| patience.goes_on(n % 10 > 0)));
    }
}
