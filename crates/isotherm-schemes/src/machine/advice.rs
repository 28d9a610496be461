//! What it means if the kernel refuses advice (`MADV_COLD`, `MADV_PAGEOUT`) for memory of another process.

use crate::action::Failure;
use crate::outcome::Refusal;
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
