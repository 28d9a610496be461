//! Pages that several targets map: counted once where frames are known.

use crate::watched::{Heat, Watched};
use isotherm_sources::{AccessSource, Error};
use std::collections::HashSet;

/// Frames counted so far, in the order of targets. Memory follows the number of shared pages.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    seen: HashSet<u64>,
}

impl Frames {
    /// Counts the shared pages of one more target: those already counted for another, and those of which that cannot be told.
    pub fn count(&mut self, watched: &mut Watched, source: &mut dyn AccessSource) -> Result<(), Error> {
        let Heat::Pages(target) = &watched.heat else { return Ok(()) };
        let (mut elsewhere, mut unknown) = (0, 0);
        source.shared_frames(watched.id.pid, &target.all_blocks(), &mut |frame| match frame {
            Some(frame) => elsewhere += u64::from(!self.seen.insert(frame)),
            None => unknown += 1,
        })?;
        watched.counted_elsewhere_pages = elsewhere;
        watched.maybe_shared_pages = unknown;
        Ok(())
    }
}
