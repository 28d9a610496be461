//! Whether free blocks are shuffled, who says so, and a random order of some places. The shuffle itself is in `shuffle`.

use crate::Order;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;
use isotherm_rng::Rng;

/// Why shuffling is on or off.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Switch {
    /// Nobody asked and no cache was found.
    #[default]
    Off,
    /// The user asked.
    Asked,
    /// A direct-mapped memory-side cache was found.
    Detected,
    /// The user forbade it, whatever else is said before or after.
    ForcedOff,
}

/// Whether free blocks are shuffled, and of which order on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Shuffling {
    /// Why it is on or off.
    pub switch: Switch,
    /// Lists of this order and larger ones are shuffled. Of orders below [`Order::HUGE`] the zone writes down no more blocks than its
    /// span has page blocks, the lowest: those beyond stay where they are.
    pub from: Order,
}

impl Default for Shuffling {
    fn default() -> Shuffling {
        Shuffling { switch: Switch::Off, from: Order::MAX }
    }
}

impl Shuffling {
    /// What an option says: `Some(true)` asks, `Some(false)` forbids, `None` leaves it to what is found.
    pub fn from_option(shuffle: Option<bool>) -> Shuffling {
        let off = Shuffling::default();
        match shuffle {
            Some(true) => off.asked(),
            Some(false) => off.forbidden(),
            None => off,
        }
    }

    /// The user asks for it.
    #[must_use]
    pub fn asked(self) -> Shuffling {
        self.switched(Switch::Asked)
    }

    /// A direct-mapped memory-side cache was found.
    #[must_use]
    pub fn detected(self) -> Shuffling {
        if self.switch == Switch::Asked { self } else { self.switched(Switch::Detected) }
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
        matches!(self.switch, Switch::Asked | Switch::Detected)
    }

    pub(crate) fn order(self) -> Option<Order> {
        self.is_on().then_some(self.from)
    }
}

/// Fisher and Yates: every order equally likely, as far as the generator's draws are.
pub(super) fn permute(places: &[AtomicU32], rng: &mut Rng) {
    for last in (1..places.len()).rev() {
        let other = usize::try_from(rng.below(last as u64 + 1)).unwrap_or(last);
        let (a, b) = (places[last].load(Relaxed), places[other].load(Relaxed));
        places[last].store(b, Relaxed);
        places[other].store(a, Relaxed);
    }
}
