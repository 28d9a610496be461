//! Replacement for targets without restartable sequences, which is every processor but x86-64. The area is a type
//! without values, so no stacks can exist either, and callers need no `cfg`.

use super::error::NoRseq;
use super::layout::{Area, Geometry, List};

pub(super) fn area() -> Result<Area, NoRseq> {
    Err(NoRseq::Target)
}

pub(super) fn allow_restarts() -> Result<(), NoRseq> {
    Err(NoRseq::Target)
}

pub(super) fn restart(area: Area, _cpu: u32) -> Result<(), i32> {
    match area {}
}

pub(super) fn cpu_id(area: Area) -> i32 {
    match area {}
}

pub(super) unsafe fn push(geometry: &Geometry, _list: List, _value: u32) -> bool {
    match geometry.area {}
}

pub(super) unsafe fn pop(geometry: &Geometry, _list: List) -> u64 {
    match geometry.area {}
}

pub(super) unsafe fn push_many(geometry: &Geometry, _list: List, _values: *const u32, _len: usize) -> usize {
    match geometry.area {}
}

pub(super) unsafe fn pop_many(geometry: &Geometry, _list: List, _values: *mut u32, _len: usize) -> usize {
    match geometry.area {}
}

#[cfg(test)]
mod tests {
    use crate::percpu::{NoRseq, Rseq};

    #[test]
    fn the_check_says_that_there_are_none() {
        assert_eq!(Rseq::check().map(|_| ()), Err(NoRseq::Target));
    }
}
