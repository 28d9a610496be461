//! What stands for restartable sequences where there are none: a registration that cannot exist, so that no stacks can
//! either, and callers need no `cfg`.

use super::{Geometry, NoRseq};

#[derive(Clone, Copy, Debug)]
pub(super) enum Registration {}

impl Registration {
    pub(super) fn find() -> Result<Registration, NoRseq> {
        Err(NoRseq::Target)
    }

    pub(super) fn cpu_id(self) -> i32 {
        match self {}
    }

    pub(super) fn restart(self, _cpu: u32) -> Result<(), i32> {
        match self {}
    }
}

pub(super) unsafe fn push(geometry: &Geometry, _count: usize, _entries: usize, _value: u32) -> bool {
    match geometry.registration {}
}

pub(super) unsafe fn pop(geometry: &Geometry, _count: usize, _entries: usize) -> u64 {
    match geometry.registration {}
}

pub(super) unsafe fn push_many(
    geometry: &Geometry,
    _count: usize,
    _entries: usize,
    _values: *const u32,
    _len: usize,
) -> usize {
    match geometry.registration {}
}

pub(super) unsafe fn pop_many(
    geometry: &Geometry,
    _count: usize,
    _entries: usize,
    _values: *mut u32,
    _len: usize,
) -> usize {
    match geometry.registration {}
}

#[cfg(test)]
mod tests {
    use crate::percpu::{NoRseq, Rseq};

    #[test]
    fn the_check_says_that_there_are_none() {
        assert_eq!(Rseq::check().map(|_| ()), Err(NoRseq::Target));
    }
}
