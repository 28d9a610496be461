//! Several zones in the order of preference: the memory of several nodes, or fast memory before slow.

use crate::{AllocError, FrameNo, FreeError, MigrateType, Order, Sets, WrongFree};

/// Zones with their sets, of which the first that has frames to spare serves.
///
/// As in the kernel, there are two rounds: zones that are above their low watermark first, so that none is drained while another has
/// plenty; then every zone, down to its minimum.
#[derive(Clone, Copy, Debug)]
pub struct Zones<'z, 'm>(&'z [Sets<'m>]);

impl<'z, 'm> Zones<'z, 'm> {
    /// These zones, the preferred first.
    pub const fn new(zones: &'z [Sets<'m>]) -> Zones<'z, 'm> {
        Zones(zones)
    }

    /// Hands out a block, and says by which zone.
    pub fn alloc(&self, order: Order, migrate: MigrateType) -> Result<(FrameNo, usize), AllocError> {
        let mut last = AllocError::Exhausted { order, free_blocks: [0; crate::ORDERS] };
        for round in [Round::AboveLow, Round::Any] {
            for (number, sets) in self.0.iter().enumerate() {
                if round == Round::AboveLow && sets.zone().is_low() {
                    continue;
                }
                match sets.alloc(order, migrate) {
                    Ok(frame) => return Ok((frame, number)),
                    Err(error) => last = error,
                }
            }
        }
        Err(last)
    }

    /// Takes a block back, into the zone whose it is.
    pub fn free(&self, frame: FrameNo, order: Order) -> Result<(), FreeError> {
        match self.0.iter().find(|sets| sets.zone().contains(frame)) {
            Some(sets) => sets.free(frame, order),
            None => Err(FreeError { frame, order, why: WrongFree::Foreign }),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Round {
    AboveLow,
    Any,
}
