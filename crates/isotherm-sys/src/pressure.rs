//! Pressure stall information: the share of time that tasks wait for memory, on the machine or in one cgroup.
//!
//! Reads `/proc/pressure/memory` and a cgroup's `memory.pressure`, which have the same format. Some kernels are built
//! without PSI, some have it off until booted with `psi=1`, and a cgroup can switch it off for itself. None of these is
//! an error.

use std::io;
use std::path::Path;

/// A pressure file: shares of the last ten seconds, in percent, and times since boot or since the cgroup was created.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pressure {
    /// Share of the time in which at least one task waited.
    pub some_avg10: f64,
    /// Time in which at least one task waited, in microseconds.
    pub some_total_us: u64,
    /// Share of the time in which all non-idle tasks waited.
    pub full_avg10: f64,
    /// Time in which all non-idle tasks waited, in microseconds.
    pub full_total_us: u64,
}

impl Pressure {
    /// Reads a pressure file; `None` if there is none, or if it is switched off. A cgroup that does not exist has none
    /// either. A cgroup that is removed during the read is an error (`ENODEV`).
    pub fn read(path: &Path) -> io::Result<Option<Pressure>> {
        Pressure::from_text(path, std::fs::read_to_string(path))
    }

    fn from_text(path: &Path, text: io::Result<String>) -> io::Result<Option<Pressure>> {
        match text {
            Ok(text) => parse(&text).map(Some).ok_or_else(|| {
                let (path, text): (_, String) = (path.display(), text.chars().take(160).collect());
                let message = format!("{path}: expected lines some and full with avg10 and total, got {text:?}");
                io::Error::new(io::ErrorKind::InvalidData, message)
            }),
            // Not built in, or switched off.
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::EOPNOTSUPP)) => Ok(None),
            Err(e) => Err(e),
        }
    }
}

fn parse(text: &str) -> Option<Pressure> {
    // The kernel ends each line. A truncated total would pass for a smaller one.
    let text = text.strip_suffix('\n')?;
    let stall = |kind: &str| text.lines().find_map(|line| stall(line.strip_prefix(kind)?.strip_prefix(' ')?));
    let ((some_avg10, some_total_us), (full_avg10, full_total_us)) = (stall("some")?, stall("full")?);
    Some(Pressure { some_avg10, some_total_us, full_avg10, full_total_us })
}

/// `avg10=0.00 avg60=0.00 avg300=0.00 total=0`.
fn stall(line: &str) -> Option<(f64, u64)> {
    let value = |key: &str| line.split(' ').find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
    let avg10: f64 = value("avg10")?.parse().ok()?;
    // The parser accepts `inf` and `nan` as numbers.
    (avg10.is_finite() && avg10 >= 0.0).then_some(())?;
    Some((avg10, value("total")?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUSY: &str = "\
some avg10=12.34 avg60=3.00 avg300=1.00 total=18446744073709551615
full avg10=100.00 avg60=0.00 avg300=0.00 total=64
";

    fn read(text: &str) -> io::Result<Option<Pressure>> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("memory.pressure");
        std::fs::write(&path, text).unwrap();
        Pressure::read(&path)
    }

    #[test]
    fn both_lines_are_read() {
        let expected = Pressure { some_avg10: 12.34, some_total_us: u64::MAX, full_avg10: 100.0, full_total_us: 64 };
        assert_eq!(read(BUSY).unwrap(), Some(expected));
        // Items may be added.
        let more = BUSY.replace("avg60", "new=1 avg60");
        assert_eq!(read(&more).unwrap(), read(BUSY).unwrap());
    }

    #[test]
    fn a_kernel_without_it_is_no_error() {
        assert_eq!(Pressure::read(Path::new("/nonexistent/memory.pressure")).unwrap(), None);
        let failed = |errno| Pressure::from_text(Path::new("x"), Err(io::Error::from_raw_os_error(errno)));
        assert_eq!(failed(libc::EOPNOTSUPP).unwrap(), None);
        assert_eq!(failed(libc::ENODEV).unwrap_err().raw_os_error(), Some(libc::ENODEV), "removed while it was read");
    }

    #[test]
    fn what_is_cut_short_or_wrong_is_an_error_that_names_the_file() {
        for len in 0..BUSY.len() {
            assert!(read(&BUSY[..len]).is_err(), "{:?}", &BUSY[..len]);
        }
        for (from, to) in
            [("12.34", "nan"), ("12.34", "-1"), ("total=64", "total=-1"), ("full", "FULL"), ("some ", "some")]
        {
            let error = read(&BUSY.replace(from, to)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
            assert!(error.to_string().contains("memory.pressure: expected"), "{error}");
        }
    }

    #[test]
    fn this_machine_is_read_or_has_none() {
        if let Some(pressure) = Pressure::read(Path::new("/proc/pressure/memory")).unwrap() {
            assert!(pressure.some_avg10 <= 100.0 && pressure.full_avg10 <= 100.0, "{pressure:?}");
        }
    }
}
