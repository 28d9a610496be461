//! Resource limits of this process: descriptors, locked memory.

/// A limit, soft and hard; `None` if it cannot be read.
pub(crate) fn read(which: libc::__rlimit_resource_t) -> Option<libc::rlimit> {
    let mut limits = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: writes the two numbers of `limits`, which outlives the call.
    let done = unsafe { libc::getrlimit(which, &raw mut limits) } == 0;
    done.then_some(limits)
}

/// A soft limit; `None` if there is none, or it cannot be read.
pub(crate) fn soft(which: libc::__rlimit_resource_t) -> Option<u64> {
    read(which).map(|limits| limits.rlim_cur).filter(|limit| *limit != libc::RLIM_INFINITY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_or_unknown() {
        let limits = read(libc::RLIMIT_NOFILE).unwrap();
        assert!(0 < limits.rlim_cur && limits.rlim_cur <= limits.rlim_max);
        // Another test may have raised it meanwhile: it only ever becomes more.
        assert!(soft(libc::RLIMIT_NOFILE).is_none_or(|limit| limit >= limits.rlim_cur));
        assert!(read(libc::__rlimit_resource_t::MAX).is_none(), "no such limit");
        assert_eq!(soft(libc::__rlimit_resource_t::MAX), None);
    }
}
