//! Several zones in order of preference: the memory of several nodes, or fast memory before slow.

use crate::{AllocError, FrameNo, FrameState, FreeError, MigrateType, Order, PcpLists, WrongFree};

/// Zones with their per-CPU lists. The first zone that has frames to spare serves a request.
///
/// As in the kernel, zones above their low watermark come first, so that none is used up while another has plenty. Then
/// comes every zone, down to its `min`. Then every zone again, after draining its per-CPU lists.
#[derive(Clone, Copy, Debug)]
pub struct Zones<'z, 'm>(&'z [PcpLists<'m>]);

impl<'z, 'm> Zones<'z, 'm> {
    /// These zones, the preferred first.
    pub const fn new(zones: &'z [PcpLists<'m>]) -> Zones<'z, 'm> {
        Zones(zones)
    }

    /// Allocates a block; returns its first frame and the number of the zone. Drains per-CPU lists only after all zones
    /// have failed.
    pub fn alloc(&self, order: Order, migrate: MigrateType) -> Result<(FrameNo, usize), AllocError> {
        let mut last = AllocError::Exhausted { order, free_blocks: [0; crate::ORDERS] };
        for round in [Round::AboveLow, Round::Any, Round::Drained] {
            for (number, pcp) in self.0.iter().enumerate() {
                if round == Round::AboveLow && pcp.zone().is_low() {
                    continue;
                }
                let result = match round {
                    Round::Drained => pcp.alloc(order, migrate),
                    _ => pcp.alloc_without_draining(order, migrate),
                };
                match result {
                    Ok(frame) => return Ok((frame, number)),
                    Err(error) => last = error,
                }
            }
        }
        Err(last)
    }

    /// Frees a block to the zone that it belongs to. Spans may overlap, as with nodes whose memory is interleaved:
    /// zones in which the frame is not present are skipped.
    pub fn free(&self, frame: FrameNo, order: Order) -> Result<(), FreeError> {
        match self.0.iter().find(|pcp| pcp.zone().state(frame) != FrameState::Hole) {
            Some(pcp) => pcp.free(frame, order),
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
