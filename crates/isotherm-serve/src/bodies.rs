//! Memory of answers that are being sent: bounded for all connections together.
//!
//! An answer stays in memory until its client has read it, and a client may take long. Answers that are made for one request
//! only, tiles and processes, take a part of this memory for as long; beyond it, a request is refused. Texts that all clients
//! get alike are shared and take none.

use crate::reply::Problem;
use axum::body::Bytes;
use axum::http::StatusCode;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes of all such answers. A larger one is sent alone.
const MAX_BYTES: u32 = 64 << 20;

/// The memory.
#[derive(Debug)]
pub struct Bodies(Arc<Semaphore>);

impl Default for Bodies {
    fn default() -> Bodies {
        Bodies(Arc::new(Semaphore::new(MAX_BYTES as usize)))
    }
}

impl Bodies {
    /// A part of it, if it is free.
    pub fn reserve(&self, bytes: usize) -> Result<Reserved, Problem> {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).min(MAX_BYTES);
        Arc::clone(&self.0).try_acquire_many_owned(bytes).map(|permit| Reserved { permit }).map_err(|_| {
            let what = "make an answer: too many are still being sent; read those, or try again in a second";
            Problem::new(StatusCode::TOO_MANY_REQUESTS, what)
        })
    }
}

/// A part of the memory.
#[derive(Debug)]
pub struct Reserved {
    permit: OwnedSemaphorePermit,
}

impl Reserved {
    /// Gives all but so many bytes back: what was needed to make an answer is more than the answer.
    pub fn shrink_to(&mut self, bytes: usize) {
        let rest = self.permit.num_permits().saturating_sub(bytes);
        drop(self.permit.split(rest));
    }

    /// A body that gives it back when it has been sent, or its connection has ended.
    pub fn body(self, bytes: Vec<u8>) -> Bytes {
        Bytes::from_owner(Body { bytes, _reserved: self })
    }
}

struct Body {
    bytes: Vec<u8>,
    _reserved: Reserved,
}

impl AsRef<[u8]> for Body {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_free_again_when_the_last_part_of_a_body_is() {
        let bodies = Bodies::default();
        let half = MAX_BYTES as usize / 2;
        let first = bodies.reserve(half).unwrap().body(vec![1; 10]);
        let part = first.slice(3..5);
        let second = bodies.reserve(half).unwrap();
        assert!(bodies.reserve(1).is_err() && bodies.reserve(0).is_ok());
        drop(first);
        assert!(bodies.reserve(1).is_err(), "a part of it is not sent");
        drop(part);
        assert!(bodies.reserve(half).is_ok() && bodies.reserve(half + 1).is_err());
        drop(second);
        assert!(bodies.reserve(usize::MAX).is_ok(), "one that is larger than all is sent alone");
        let mut made = bodies.reserve(usize::MAX).unwrap();
        made.shrink_to(half);
        assert!(bodies.reserve(half).is_ok() && bodies.reserve(half + 1).is_err());
        made.shrink_to(half + 1);
        assert!(bodies.reserve(half).is_ok());
    }
}
