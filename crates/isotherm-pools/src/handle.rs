//! One of the owners of a pool: handles and owned blocks.

use crate::housekeeping::HousekeepingThread;
use crate::shared::Shared;
use std::ops::Deref;
use std::sync::Arc;

/// Clones are of the same pool, which goes when the last of them has gone.
#[derive(Clone)]
pub(crate) struct Handle {
    /// The thread that the pool was built with. It refers to what is shared as well, so it ends first.
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
