//! Whether free blocks are shuffled and why, and a random permutation. The shuffle itself is in `shuffle`.

use crate::Order;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;
use isotherm_rng::Rng;

/// Why shuffling is on or off.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Switch {
    /// Not requested, and no cache was found.
    #[default]
    Off,
    /// Requested by the user.
    Requested,
    /// A direct-mapped memory-side cache was found.
    Detected,
    /// Forbidden by the user. Overrides everything else, before or after.
    ForcedOff,
}

/// Whether free blocks are shuffled, and from which order on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Shuffling {
    /// Why it is on or off.
    pub switch: Switch,
    /// Lists of this order and above are shuffled. Of an order below [`Order::HUGE`], only as many blocks are shuffled
    /// as the span has page blocks, the lowest ones; the others stay where they are.
    pub from: Order,
}

impl Default for Shuffling {
    fn default() -> Shuffling {
        Shuffling { switch: Switch::Off, from: Order::MAX }
    }
}

impl Shuffling {
    /// The meaning of an option: `Some(true)` requests shuffling, `Some(false)` forbids it, `None` leaves it to detection.
    pub fn from_option(shuffle: Option<bool>) -> Shuffling {
        let off = Shuffling::default();
        match shuffle {
            Some(true) => off.asked(),
            Some(false) => off.forbidden(),
            None => off,
        }
    }

    /// The user requests it.
    #[must_use]
    pub fn asked(self) -> Shuffling {
        self.switched(Switch::Requested)
    }

    /// A direct-mapped memory-side cache was found.
    #[must_use]
    pub fn detected(self) -> Shuffling {
        if self.switch == Switch::Requested { self } else { self.switched(Switch::Detected) }
    }

    /// The user forbids it.
    #[must_use]
    pub fn forbidden(self) -> Shuffling {
        self.switched(Switch::ForcedOff)
    }

    fn switched(self, switch: Switch) -> Shuffling {
        if self.switch == Switch::ForcedOff { self } else { Shuffling { switch, ..self } }
    }

    /// Whether it is on.
    pub const fn is_on(self) -> bool {
        matches!(self.switch, Switch::Requested | Switch::Detected)
    }

    pub(crate) fn order(self) -> Option<Order> {
        self.is_on().then_some(self.from)
    }
}

/// Fisher-Yates: every order is equally likely, as far as the generator's draws are.
pub(super) fn permute(places: &[AtomicU32], rng: &mut Rng) {
    for last in (1..places.len()).rev() {
        let other = usize::try_from(rng.below(last as u64 + 1)).unwrap_or(last);
        let (a, b) = (places[last].load(Relaxed), places[other].load(Relaxed));
        places[last].store(b, Relaxed);
        places[other].store(a, Relaxed);
    }
}
