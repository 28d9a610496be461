//! Several zones in the order of preference: the memory of several nodes, or fast memory before slow.

use crate::{AllocError, FrameNo, FrameState, FreeError, MigrateType, Order, Sets, WrongFree};

/// Zones with their sets, of which the first that has frames to spare serves.
///
/// As in the kernel, zones that are above their low watermark come first, so that none is used up while another has plenty; then every
/// zone, down to its minimum; then once more with what waits in sets.
#[derive(Clone, Copy, Debug)]
pub struct Zones<'z, 'm>(&'z [Sets<'m>]);

impl<'z, 'm> Zones<'z, 'm> {
    /// These zones, the preferred first.
    pub const fn new(zones: &'z [Sets<'m>]) -> Zones<'z, 'm> {
        Zones(zones)
    }

    /// Hands out a block, and says by which zone. Sets are emptied for it only once all zones have failed.
    pub fn alloc(&self, order: Order, migrate: MigrateType) -> Result<(FrameNo, usize), AllocError> {
        let mut last = AllocError::Exhausted { order, free_blocks: [0; crate::ORDERS] };
        for round in [Round::AboveLow, Round::Any, Round::Drained] {
            for (number, sets) in self.0.iter().enumerate() {
                if round == Round::AboveLow && sets.zone().is_low() {
                    continue;
                }
                let result = match round {
                    Round::Drained => sets.alloc(order, migrate),
                    _ => sets.alloc_gently(order, migrate),
                };
                match result {
                    Ok(frame) => return Ok((frame, number)),
                    Err(error) => last = error,
                }
            }
        }
        Err(last)
    }

    /// Takes a block back, into the zone whose it is. Spans may overlap, as those of nodes do whose memory is interleaved: a zone that
    /// has no such frame is not asked.
    pub fn free(&self, frame: FrameNo, order: Order) -> Result<(), FreeError> {
        match self.0.iter().find(|sets| sets.zone().state(frame) != FrameState::Hole) {
            Some(sets) => sets.free(frame, order),
            None => Err(FreeError { frame, order, why: WrongFree::Foreign }),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Round {
    AboveLow,
    Any,
    Drained,
}
