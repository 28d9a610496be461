//! Error codes of the C API: negative values of Linux's errno.

use isotherm_pools::Error;
use isotherm_pools::{AddError, AllocError, FrameState, PcpError, WrongFree};
use std::ffi::{CStr, CString, c_char, c_int};
use std::io::ErrorKind;
use std::sync::OnceLock;

macro_rules! codes {
    ($($name:ident = $value:literal, $says:literal;)*) => {
        $(#[doc = $says] pub const $name: c_int = $value;)*

        fn says(code: c_int) -> Option<&'static CStr> {
            const TEXTS: &[(c_int, &str)] = &[$(($value, concat!($says, "\0")),)*];
            let (_, text) = TEXTS.iter().find(|(value, _)| *value == code)?;
            CStr::from_bytes_with_nul(text.as_bytes()).ok()
        }

        #[cfg(test)]
        const ALL: &[(&str, c_int)] = &[$((stringify!($name), $name),)*];
    };
}

codes! {
    EINVAL = -22, "a null pointer, or an invalid value";
    ENOMEM = -12, "no block of that order is free, or there is not enough memory";
    EBUSY = -16, "in use";
    EALREADY = -114, "it is free already";
    EFAULT = -14, "no block of this pool with that first frame and order";
    EEXIST = -17, "some of the range is in the pool already";
    E2BIG = -7, "a structure asks for more than this version of the library knows";
    ENODEV = -19, "not a DAX device";
    EOPNOTSUPP = -95, "this pool, or this kernel, has none";
    EFORKED = -130, "the pool belongs to the process that forked this one";
    EBUG = -131, "a bug in the library";
}

/// The error code of an error.
pub(crate) fn code(error: &Error) -> c_int {
    match error {
        Error::Alloc(AllocError::Taken { frame, order, .. }) if !frame.is_aligned(order.get()) => EINVAL,
        Error::Alloc(AllocError::Taken { state: FrameState::Hole, .. }) => EFAULT,
        Error::Alloc(AllocError::Taken { .. }) => EBUSY,
        Error::Alloc(_) | Error::HugePages { .. } => ENOMEM,
        Error::Free(free) if free.why == WrongFree::AlreadyFree => EALREADY,
        Error::Free(_) => EFAULT,
        Error::Add(AddError::Overlaps { .. }) => EEXIST,
        Error::Add(_)
        | Error::Offline(_)
        | Error::Config(_)
        | Error::Unaligned { .. }
        | Error::PcpLists(PcpError::NoCpus | PcpError::MetadataTooSmall { .. })
        | Error::Span { .. }
        | Error::FirstFrame { .. }
        | Error::Cpus { .. }
        | Error::Watermarks(_)
        | Error::Interval { .. }
        | Error::OutsideSpan { .. } => EINVAL,
        Error::Forked => EFORKED,
        Error::NoMemory | Error::NoHugeSize { .. } | Error::PcpLists(PcpError::NoRseq(_)) => EOPNOTSUPP,
        Error::NotDax { .. } => ENODEV,
        Error::System { source, .. } => match (source.raw_os_error(), source.kind()) {
            (Some(errno), _) => -errno,
            (None, ErrorKind::OutOfMemory) => ENOMEM,
            (None, ErrorKind::InvalidInput) => EINVAL,
            _ => -libc::EIO,
        },
        _ => EBUG,
    }
}

/// Describes a result.
#[unsafe(no_mangle)]
pub extern "C" fn isotherm_strerror(result: c_int) -> *const c_char {
    let text = match result {
        0.. => c"no error",
        code => says(code).or_else(|| system_says(code)).unwrap_or(c"not an error of this library or of the system"),
    };
    text.as_ptr()
}

/// Upper bound of the errno values.
const ERRNOS: usize = 256;

/// The C library's text for an errno. Stored here, because the C library's own string is only valid until the next
/// call.
fn system_says(code: c_int) -> Option<&'static CStr> {
    static KEPT: [OnceLock<Option<CString>>; ERRNOS] = [const { OnceLock::new() }; ERRNOS];
    let errno = code.checked_neg()?;
    let kept = KEPT.get(usize::try_from(errno).ok()?)?;
    kept.get_or_init(|| {
        let mut text = [0; 128];
        // SAFETY: writes at most `text.len()` bytes to our buffer, including the terminating zero.
        let result = unsafe { libc::strerror_r(errno, text.as_mut_ptr(), text.len()) };
        // SAFETY: the text ends with a zero: at the latest the buffer's last byte, which was zero before the call.
        (result == 0).then(|| unsafe { CStr::from_ptr(text.as_ptr()) }.to_owned())
    })
    .as_deref()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_errno_and_of_the_header() {
        assert_eq!((EINVAL, ENOMEM, EBUSY), (-libc::EINVAL, -libc::ENOMEM, -libc::EBUSY));
        assert_eq!((EALREADY, EFAULT, EEXIST), (-libc::EALREADY, -libc::EFAULT, -libc::EEXIST));
        assert_eq!((E2BIG, ENODEV, EOPNOTSUPP), (-libc::E2BIG, -libc::ENODEV, -libc::EOPNOTSUPP));
        assert_eq!((EFORKED, EBUG), (-libc::EOWNERDEAD, -libc::ENOTRECOVERABLE));
        let header = include_str!("../include/isotherm.h");
        for (name, value) in ALL {
            let said = format!("ISOTHERM_{name} = {value}");
            assert!(header.lines().any(|l| l.trim().starts_with(&said)), "{said} is not in the header");
        }
    }

    #[test]
    fn every_code_has_words() {
        for (name, value) in ALL {
            assert!(says(*value).is_some_and(|text| !text.is_empty()), "{name}");
        }
        assert!(says(-libc::EPERM).is_none());
        assert_eq!(system_says(-libc::EPERM), Some(c"Operation not permitted"));
        assert_eq!(system_says(c_int::MIN), None);
    }
}
