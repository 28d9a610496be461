//! Advice for pages of another process (`MADV_COLD`, `MADV_PAGEOUT`, `MADV_WILLNEED`): for which addresses, and what it means if the kernel
//! refuses it or anything else of that process.

use crate::action::Failure;
use crate::outcome::Refusal;
use isotherm_heat::Mask;
use isotherm_units::{AddrRange, PmdNo};
use std::io;

const ESRCH: i32 = 3;
const ENOMEM: i32 = 12;

/// What an error of `process_madvise` means. Locked, hugetlb and device memory is refused with EINVAL.
pub(crate) fn failure_of_advice(error: &io::Error) -> Failure {
    let errno = error.raw_os_error().unwrap_or_default();
    match error.kind() {
        io::ErrorKind::PermissionDenied => Failure::Refused(Refusal::Denied),
        io::ErrorKind::InvalidInput => Failure::Refused(Refusal::Locked),
        // The process has ended; a part of the range was unmapped meanwhile.
        io::ErrorKind::NotFound => Failure::Refused(Refusal::Gone),
        _ if errno == ESRCH => Failure::Refused(Refusal::Gone),
        _ if errno == ENOMEM => Failure::Refused(Refusal::Unmapped),
        _ => Failure::Busy,
    }
}

/// What it means that the kernel does not show something of a process.
pub(crate) fn refusal_of(error: &io::Error) -> Refusal {
    match error.kind() {
        io::ErrorKind::PermissionDenied => Refusal::Denied,
        io::ErrorKind::NotFound => Refusal::Gone,
        _ if error.raw_os_error() == Some(ESRCH) => Refusal::Gone,
        _ => Refusal::Error,
    }
}

/// Gives advice for all ranges. The kernel stops at the first that it refuses, of which it may have done a part: the others follow
/// after it. Returns the first error.
pub(crate) fn advise_all(
    ranges: &[AddrRange],
    mut advise: impl FnMut(&[AddrRange]) -> io::Result<u64>,
) -> io::Result<()> {
    let (mut rest, mut first_error) = (ranges, Ok(()));
    while !rest.is_empty() {
        let done = match advise(rest) {
            Ok(mut bytes) => {
                let fits = |range: &&AddrRange| {
                    let len = range.len().0;
                    let is_done = bytes >= len;
                    bytes = bytes.saturating_sub(len);
                    is_done
                };
                rest.iter().take_while(fits).count()
            }
            Err(error) => {
                first_error = first_error.and(Err(error));
                0
            }
        };
        rest = &rest[(done + 1).min(rest.len())..];
    }
    first_error
}

/// The address ranges of the pages, neighbours joined: at most 256.
pub(crate) fn ranges_of(pmd: PmdNo, pages: Mask) -> Vec<AddrRange> {
    let mut ranges: Vec<AddrRange> = Vec::new();
    for page in pages.iter() {
        let (start, end) = (pmd.page(page).addr(), pmd.page(page + 1).addr());
        match ranges.last_mut() {
            Some(last) if last.end == start => last.end = end,
            _ => ranges.push(AddrRange::new(start, end)),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_units::PageNo;

    #[test]
    fn errors_are_told_apart() {
        let of = |errno| match failure_of_advice(&io::Error::from_raw_os_error(errno)) {
            Failure::Refused(refusal) => Some(refusal),
            _ => None,
        };
        let expected =
            [Some(Refusal::Denied), Some(Refusal::Locked), Some(Refusal::Gone), Some(Refusal::Unmapped), None];
        assert_eq!([1, 22, 3, 12, 11].map(of), expected);
    }

    #[test]
    fn neighbours_are_one_range() {
        let of = |pages: &[usize]| {
            let found = ranges_of(PmdNo(2), pages.iter().copied().collect());
            found.into_iter().map(|r| (r.start.page().0 - 1024, r.end.page().0 - 1024)).collect::<Vec<_>>()
        };
        assert_eq!(of(&[0, 1, 2, 7, 511]), [(0, 3), (7, 8), (511, 512)]);
        assert_eq!((of(&[]), ranges_of(PmdNo(2), Mask::ALL).len()), (vec![], 1));
        assert_eq!(ranges_of(PmdNo(2), Mask::ALL)[0].start, PageNo(1024).addr());
        assert_eq!(ranges_of(PmdNo(2), (0..512).step_by(2).collect()).len(), 256);
    }

    #[test]
    fn what_follows_a_refused_range_is_tried_too() {
        let all = ranges_of(PmdNo(2), [0, 1, 5, 9, 20].into_iter().collect());
        let refused = all[1];
        let mut calls = Vec::new();
        let asked = advise_all(&all, |ranges| {
            calls.push(ranges.len());
            let before = ranges.iter().position(|r| *r == refused);
            match before {
                Some(0) => Err(io::Error::from_raw_os_error(22)),
                _ => Ok(ranges[..before.unwrap_or(ranges.len())].iter().map(|r| r.len().0).sum()),
            }
        });
        // The first is done and the second skipped, by the length alone.
        assert_eq!((calls, asked.is_ok()), (vec![4, 2], true));
        let error = advise_all(&all[1..2], |_| Err(io::Error::from_raw_os_error(22))).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(22));
        advise_all(&[], |_| unreachable!("nothing to advise")).unwrap();
    }
}
