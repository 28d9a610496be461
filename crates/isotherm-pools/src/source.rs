//! Opens each backing: the file to map, in what units, and why it is not available.

use crate::backing::{Backing, HugeSize};
use crate::error::Error;
use crate::memory;
use isotherm_units::Bytes;
use std::ffi::CStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// The name of the descriptors of pools in `/proc/PID/fd`.
const NAME: &CStr = c"isotherm-pool";
/// The addresses of blocks of the largest order are aligned to their size too.
const LARGEST_BLOCK: u64 = 4 << 20;

/// An open backing: what to map, and in what units.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) backing: Backing,
    pub(crate) file: Option<File>,
    /// Parts begin and end at multiples of this.
    pub(crate) unit: Bytes,
    /// Why it is not the backing that was requested, if it is not.
    pub(crate) instead_of: Option<Error>,
}

impl Source {
    pub(crate) fn numbers() -> Source {
        Source { backing: Backing::Numbers, file: None, unit: Bytes::of_pages(1), instead_of: None }
    }

    pub(crate) fn anonymous() -> Source {
        Source { backing: Backing::Anonymous, file: None, unit: Bytes::of_pages(1), instead_of: None }
    }

    pub(crate) fn memfd() -> Result<Source, Error> {
        let file = memory::memfd(NAME, 0).map_err(|e| Error::system("create a memfd", e))?;
        Ok(Source { backing: Backing::Memfd, file: Some(file), unit: Bytes::of_pages(1), instead_of: None })
    }

    pub(crate) fn huge(size: HugeSize) -> Result<Source, Error> {
        // Ask the kernel itself and not sysfs, which may be missing.
        let file = memory::memfd(NAME, size.flags()).map_err(|source| match source.raw_os_error() {
            Some(libc::ENODEV | libc::ENOSYS | libc::EINVAL) => Error::NoHugeSize { size, source },
            _ => Error::system(format!("create a memfd of huge pages of {size}"), source),
        })?;
        Ok(Source { backing: Backing::Huge(size), file: Some(file), unit: size.bytes(), instead_of: None })
    }

    /// Opens the device; also returns its length.
    pub(crate) fn dax(path: &Path) -> Result<(Source, Bytes), Error> {
        let doing = || format!("open {}", path.display());
        let found = fs::metadata(path).map_err(|e| Error::system(doing(), e))?;
        if !found.file_type().is_char_device() {
            return Err(Error::NotDax { path: path.to_owned(), why: "not a character device" });
        }
        let (bytes, unit) = dax_device(Path::new("/sys"), found.rdev(), path)?;
        let file = File::options().read(true).write(true).open(path).map_err(|e| Error::system(doing(), e))?;
        Ok((Source { backing: Backing::Dax, file: Some(file), unit, instead_of: None }, bytes))
    }

    /// The alignment of the start of the pool.
    pub(crate) fn align(&self) -> Bytes {
        Bytes(self.unit.0.max(LARGEST_BLOCK))
    }

    /// The meaning of an error when mapping `bytes`.
    pub(crate) fn explain(&self, bytes: Bytes, error: io::Error) -> Error {
        match self.backing {
            Backing::Huge(size) if error.raw_os_error() == Some(libc::ENOMEM) => {
                no_huge_pages(Path::new("/sys"), size, bytes)
            }
            backing => Error::system(format!("map {bytes} of {backing:?}"), error),
        }
    }
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn no_huge_pages(sys: &Path, size: HugeSize, bytes: Bytes) -> Error {
    let pool = size.directory(sys);
    let [free, reserved] = ["free_hugepages", "resv_hugepages"].map(|file| number(&pool.join(file)));
    Error::HugePages { wanted: bytes.0 / size.bytes().0, size, free, reserved, pool }
}

/// Length and alignment of the DAX device with this number.
fn dax_device(sys: &Path, device: u64, path: &Path) -> Result<(Bytes, Bytes), Error> {
    let no = |why| Error::NotDax { path: path.to_owned(), why };
    let directory = sys.join(format!("dev/char/{}:{}", libc::major(device), libc::minor(device)));
    let subsystem = fs::read_link(directory.join("subsystem")).map_err(|_| no("the system knows no such device"))?;
    if subsystem.file_name().is_none_or(|name| name != "dax") {
        return Err(no("another kind of device"));
    }
    let bytes = number(&directory.join("size")).ok_or_else(|| no("its size cannot be read"))?;
    // Kernels that do not report it use the size of a huge page.
    let align = number(&directory.join("align")).unwrap_or(HugeSize::Mib2.bytes().0);
    if bytes == 0 {
        return Err(no("it has no memory"));
    }
    if !align.is_power_of_two() {
        return Err(no("its alignment is no power of two"));
    }
    Ok((Bytes(bytes), Bytes(align)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn device(sys: &Path, subsystem: &str, size: &str) -> Result<(Bytes, Bytes), Error> {
        let directory = sys.join("dev/char/252:3");
        fs::create_dir_all(&directory).unwrap();
        symlink(format!("../../../../bus/{subsystem}"), directory.join("subsystem")).unwrap();
        fs::write(directory.join("size"), size).unwrap();
        fs::write(directory.join("align"), "2097152\n").unwrap();
        dax_device(sys, libc::makedev(252, 3), Path::new("/dev/dax0.0"))
    }

    #[test]
    fn a_dax_device_tells_its_size() {
        let sys = tempfile::tempdir().unwrap();
        let found = device(sys.path(), "dax", "4294967296\n").unwrap();
        assert_eq!(found, (Bytes(4 << 30), Bytes(2 << 20)));
    }

    #[test]
    fn other_devices_are_refused_with_their_name() {
        for (subsystem, size, expected) in
            [("mem", "4096", "another kind of device"), ("dax", "0", "no memory"), ("dax", "?", "size cannot be read")]
        {
            let sys = tempfile::tempdir().unwrap();
            let error = device(sys.path(), subsystem, size).unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains("/dev/dax0.0"), "{error}");
        }
        let empty = tempfile::tempdir().unwrap();
        assert!(dax_device(empty.path(), libc::makedev(1, 3), Path::new("/dev/x")).is_err());
        for path in ["/dev/null", "/proc/self/exe"] {
            assert!(matches!(Source::dax(Path::new(path)), Err(Error::NotDax { .. })), "{path}");
        }
        assert!(matches!(Source::dax(Path::new("/nowhere")), Err(Error::System { .. })));
    }

    #[test]
    fn missing_huge_pages_are_counted_where_they_come_from() {
        let sys = tempfile::tempdir().unwrap();
        let pool = HugeSize::Mib2.directory(sys.path());
        fs::create_dir_all(&pool).unwrap();
        fs::write(pool.join("free_hugepages"), "5\n").unwrap();
        fs::write(pool.join("resv_hugepages"), "3\n").unwrap();
        let error = no_huge_pages(sys.path(), HugeSize::Mib2, Bytes::of_mib(64)).to_string();
        assert!(error.contains("32 huge pages of 2 MiB: 5 are free and 3 of those are reserved"), "{error}");
        assert!(error.contains("hugepages-2048kB/nr_hugepages"), "{error}");
        let nowhere = no_huge_pages(Path::new("/nowhere"), HugeSize::Mib2, Bytes::of_mib(64)).to_string();
        assert!(nowhere.contains("how many are free cannot be read"), "{nowhere}");
        assert!(HugeSize::Gib1.directory(Path::new("/sys")).ends_with("hugepages-1048576kB"));
    }
}
