//! Reads on after damage: a recording of days with one bad sector is still a recording.

use crate::reader::Snapshots;
use crate::{Error, Result};
use isotherm_heat::Snapshot;

impl Snapshots {
    /// The snapshots that can be read: what is damaged is given to `skipped`. If nothing else is there, it is an error as it was.
    pub fn undamaged(mut self, mut skipped: impl FnMut(&Error)) -> impl Iterator<Item = Result<Snapshot>> {
        let (mut damage, mut has_any) = (None, false);
        std::iter::from_fn(move || {
            loop {
                match self.next() {
                    Some(Err(error @ Error::Damaged { .. })) => {
                        skipped(&error);
                        damage.get_or_insert(error);
                    }
                    Some(snapshot) => {
                        has_any = true;
                        return Some(snapshot);
                    }
                    None => return damage.take().filter(|_| !has_any).map(Err),
                }
            }
        })
    }
}
