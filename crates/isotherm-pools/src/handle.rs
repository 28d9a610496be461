//! An owner of a pool: a handle or an owned block.

use crate::housekeeping::HousekeepingThread;
use crate::shared::Shared;
use std::ops::Deref;
use std::sync::Arc;

/// Clones refer to the same pool, which is dropped with the last of them.
#[derive(Clone)]
pub(crate) struct Handle {
    /// The thread that the pool was built with. It also holds what is shared, so it must end first.
    pub(crate) _housekeeping: Option<Arc<HousekeepingThread>>,
    pub(crate) shared: Arc<Shared>,
}

impl Deref for Handle {
    type Target = Shared;

    #[inline]
    fn deref(&self) -> &Shared {
        &self.shared
    }
}
