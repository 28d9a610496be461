//! Kernel tracepoints, through perf rings: the id of each, and the offsets of the fields in its records.
//!
//! The kernel publishes both in files of tracefs and may move fields between versions, so no offset is assumed. tracefs
//! has to be mounted; mounting it is the administrator's task and is not done here. No tracing program is started, and
//! nothing is written to tracefs: a perf event is private to the process that opens it.

use crate::perf::Event;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// `PERF_TYPE_TRACEPOINT`.
const PERF_TYPE_TRACEPOINT: u32 = 2;

/// Why a tracepoint cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TracepointError {
    /// tracefs is not mounted.
    #[error("tracefs is not mounted below {}; mount -t tracefs tracefs /sys/kernel/tracing", sys.display())]
    NoTracefs {
        /// Where it was searched for.
        sys: PathBuf,
    },
    /// The kernel has no such tracepoint.
    #[error("{}: this kernel has no such tracepoint", path.display())]
    Absent {
        /// The file that was asked for.
        path: PathBuf,
    },
    /// Permission denied.
    #[error("{}: permission denied; run as root", path.display())]
    Denied {
        /// The file that was asked for.
        path: PathBuf,
    },
    /// The file does not have the kernel's format, or lacks a field.
    #[error("{}: expected {expected}", path.display())]
    Parse {
        /// The file that was read.
        path: PathBuf,
        /// What was expected.
        expected: String,
    },
    /// Any other failure.
    #[error("read {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
}

impl TracepointError {
    fn from_io(path: PathBuf, source: io::Error) -> TracepointError {
        match source.kind() {
            io::ErrorKind::NotFound => TracepointError::Absent { path },
            io::ErrorKind::PermissionDenied => TracepointError::Denied { path },
            _ => TracepointError::Io { path, source },
        }
    }
}

/// Where tracefs is mounted below `sys` (`/sys`): at its own mount point, or inside debugfs as on older systems.
pub fn tracefs(sys: &Path) -> Result<PathBuf, TracepointError> {
    let places = [sys.join("kernel/tracing"), sys.join("kernel/debug/tracing")];
    let mounted = |place: &PathBuf| match fs::metadata(place.join("events")) {
        // We may not search it. Reading the tracepoint gives a better error for that.
        Err(e) => e.kind() == io::ErrorKind::PermissionDenied,
        Ok(_) => true,
    };
    places.into_iter().find(mounted).ok_or_else(|| TracepointError::NoTracefs { sys: sys.to_owned() })
}

/// A tracepoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tracepoint {
    path: PathBuf,
    id: u64,
    format: Format,
}

impl Tracepoint {
    /// Reads `events/SYSTEM/NAME` below the root of tracefs.
    pub fn read(tracefs: &Path, system: &str, name: &str) -> Result<Tracepoint, TracepointError> {
        let path = tracefs.join("events").join(system).join(name);
        let text = |file: &str| {
            let path = path.join(file);
            fs::read_to_string(&path).map_err(|e| TracepointError::from_io(path, e))
        };
        let id = text("id")?;
        let id = id.trim().parse().map_err(|_| TracepointError::Parse {
            path: path.join("id"),
            expected: format!("a number, got {:?}", id.trim()),
        })?;
        let format = Format::parse(&text("format")?);
        Ok(Tracepoint { path, id, format })
    }

    /// The event to open.
    pub fn event(&self) -> Event {
        Event::new(PERF_TYPE_TRACEPOINT, self.id)
    }

    /// A field of its records.
    pub fn field(&self, name: &str) -> Result<Field, TracepointError> {
        self.format.field(name).ok_or_else(|| TracepointError::Parse {
            path: self.path.join("format"),
            expected: format!("a field called {name}"),
        })
    }
}

/// Where the fields of a record are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Format(Vec<(String, Field)>);

impl Format {
    /// Parses the text of a `format` file. Lines that do not describe a number of 1, 2, 4 or 8 bytes are skipped.
    pub fn parse(text: &str) -> Format {
        Format(text.lines().filter_map(Format::line).collect())
    }

    /// `field:unsigned long start; offset:16; size:8; signed:0;`. The name is the last word before the first semicolon.
    fn line(line: &str) -> Option<(String, Field)> {
        let mut parts = line.trim().strip_prefix("field:")?.split(';').map(str::trim);
        let name = parts.next()?.rsplit([' ', '*']).next()?;
        let (mut offset, mut size) = (None, None);
        for part in parts {
            match part.split_once(':') {
                Some(("offset", n)) => offset = n.parse().ok(),
                Some(("size", n)) => size = n.parse().ok().filter(|size| matches!(size, 1 | 2 | 4 | 8)),
                _ => {}
            }
        }
        let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        is_name.then_some((name.to_owned(), Field { offset: offset?, size: size? }))
    }

    /// The field of that name.
    pub fn field(&self, name: &str) -> Option<Field> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, field)| *field)
    }
}

/// A number in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    offset: usize,
    size: usize,
}

impl Field {
    /// Its value in `record`, as an unsigned number; `None` if the record is too short.
    pub fn get(self, record: &[u8]) -> Option<u64> {
        let bytes = record.get(self.offset..)?.get(..self.size)?;
        let mut wide = [0; 8];
        let at = if cfg!(target_endian = "little") { 0 } else { 8 - self.size };
        wide[at..at + self.size].copy_from_slice(bytes);
        Some(u64::from_ne_bytes(wide))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    /// Fields of every kind that the parser tells apart. What a kernel writes for this tracepoint is in the tests of its reader.
    const FORMAT: &str = "name: damon_aggregated
ID: 401
format:
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:unsigned long target_id;\toffset:8;\tsize:8;\tsigned:0;
\tfield:unsigned int nr_regions;\toffset:16;\tsize:4;\tsigned:0;
\tfield:char comm[16];\toffset:20;\tsize:16;\tsigned:0;
\tfield:void *call_site;\toffset:40;\tsize:8;\tsigned:0;

print fmt: \"target_id=%lu nr_regions=%u\", REC->target_id, REC->nr_regions
";

    #[test]
    fn fields_are_found_where_the_kernel_says() {
        let format = Format::parse(FORMAT);
        let mut record = vec![0_u8; 48];
        record[8..16].copy_from_slice(&(1_u64 << 40).to_ne_bytes());
        record[16..20].copy_from_slice(&u32::MAX.to_ne_bytes());
        record[40] = 7;
        let value = |name: &str| format.field(name).and_then(|f| f.get(&record));
        assert_eq!(value("target_id"), Some(1 << 40));
        assert_eq!(value("nr_regions"), Some(u64::from(u32::MAX)));
        assert_eq!(value("call_site"), Some(7));
        assert_eq!((value("comm"), value("comm[16]"), value("nobody")), (None, None, None), "no numbers");
        assert_eq!(format.field("call_site").unwrap().get(&record[..47]), None, "cut short");
    }

    #[test]
    fn what_is_missing_is_told_by_name() {
        let dir = TempDir::new().unwrap();
        let sys = dir.path();
        assert!(matches!(tracefs(sys), Err(TracepointError::NoTracefs { .. })));
        fs::create_dir_all(sys.join("kernel/tracing")).unwrap();
        assert!(tracefs(sys).is_err(), "where it would be mounted");
        let event = sys.join("kernel/tracing/events/damon/damon_aggregated");
        fs::create_dir_all(sys.join("kernel/tracing/events")).unwrap();
        let root = tracefs(sys).unwrap();
        let read = || Tracepoint::read(&root, "damon", "damon_aggregated");
        assert!(matches!(read(), Err(TracepointError::Absent { .. })));
        fs::create_dir_all(&event).unwrap();
        fs::write(event.join("format"), FORMAT).unwrap();
        fs::write(event.join("id"), "many\n").unwrap();
        assert!(matches!(read(), Err(TracepointError::Parse { .. })));
        fs::write(event.join("id"), "401\n").unwrap();
        let tracepoint = read().unwrap();
        assert_eq!(tracepoint.event(), Event::new(2, 401));
        assert!(tracepoint.field("age").unwrap_err().to_string().contains("a field called age"));
    }
}
