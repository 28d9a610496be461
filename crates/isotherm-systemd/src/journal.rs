//! The journal's own protocol: datagrams of fields, so that a message has a priority and more than its text.
//!
//! A service manager that has connected standard error to its journal says so in `JOURNAL_STREAM`, by device and inode. If the variable was
//! inherited, and standard error is something else by now, those differ.

use std::ffi::OsString;
use std::fmt::Write;
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

/// Where the journal listens, by `systemd-journald.service(8)`.
const SOCKET: &str = "/run/systemd/journal/socket";
/// Messages are cut after so many bytes: a datagram has to fit into the buffer of a socket.
const MAX_MESSAGE: usize = 64 << 10;

/// How urgent a message is, as `syslog(3)` counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Something was asked for and is not done.
    Error = 3,
    /// Something is not as it should be; the work goes on.
    Warning = 4,
    /// What an administrator wants to see.
    Notice = 5,
    /// The rest.
    Info = 6,
}

/// A connection to the journal.
#[derive(Debug)]
pub struct Journal {
    socket: UnixDatagram,
    /// Fields that each message has.
    fields: String,
}

impl Journal {
    /// The journal that standard error is connected to. `program` is the name of this program, `fields` are names and values that each message
    /// gets; names consist of A to Z, digits and underscores.
    pub fn of_stderr(program: &str, fields: &[(&str, &str)]) -> Option<Journal> {
        let stat = rustix::fs::fstat(rustix::stdio::stderr()).ok()?;
        let is_ours = is_stream(std::env::var_os("JOURNAL_STREAM"), stat.st_dev, stat.st_ino);
        is_ours.then(|| Journal::at(Path::new(SOCKET), program, fields).ok()).flatten()
    }

    /// The journal that listens at `path`.
    fn at(path: &Path, program: &str, fields: &[(&str, &str)]) -> io::Result<Journal> {
        let socket = UnixDatagram::unbound()?;
        socket.connect(path)?;
        let mut text = format!("SYSLOG_IDENTIFIER={program}\n");
        for (name, value) in fields {
            let _ = writeln!(text, "{name}={}", value.replace('\n', " "));
        }
        Ok(Journal { socket, fields: text })
    }

    /// Sends a message. Fails if the journal is not there any more.
    pub fn send(&self, priority: Priority, message: &str) -> io::Result<()> {
        self.socket.send(&self.datagram(priority, message)).map(drop)
    }

    /// A value that has line breaks is preceded by its length, by `systemd.journal-fields(7)` and the journal's native protocol.
    fn datagram(&self, priority: Priority, message: &str) -> Vec<u8> {
        let message = &message.as_bytes()[..message.floor_char_boundary(MAX_MESSAGE)];
        let mut datagram = format!("{}PRIORITY={}\nMESSAGE\n", self.fields, priority as u8).into_bytes();
        datagram.extend((message.len() as u64).to_le_bytes());
        datagram.extend(message);
        datagram.push(b'\n');
        datagram
    }
}

/// Whether `stream`, "DEVICE:INODE", is the file with these numbers.
fn is_stream(stream: Option<OsString>, device: u64, inode: u64) -> bool {
    stream.is_some_and(|stream| stream == *format!("{device}:{inode}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(priority: Priority, message: &str) -> Vec<u8> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let socket = UnixDatagram::bind(&path).unwrap();
        let journal = Journal::at(&path, "isotherm", &[("ISOTHERM_COMMAND", "run\nX=1")]).unwrap();
        journal.send(priority, message).unwrap();
        let mut bytes = vec![0; 1 << 17];
        let n = socket.recv(&mut bytes).unwrap();
        bytes.truncate(n);
        bytes
    }

    #[test]
    fn a_message_has_its_priority_and_its_fields_and_no_others() {
        let expected = b"SYSLOG_IDENTIFIER=isotherm\nISOTHERM_COMMAND=run X=1\nPRIORITY=4\nMESSAGE\n\x0b\0\0\0\0\0\0\0a\nPRIORITY=\n";
        assert_eq!(sent(Priority::Warning, "a\nPRIORITY="), expected, "what looks like a field is part of the message");
    }

    #[test]
    fn a_long_message_is_cut_between_two_characters() {
        let message = format!("a{}", "é".repeat(MAX_MESSAGE));
        let datagram = sent(Priority::Error, &message);
        let text = String::from_utf8_lossy(&datagram[datagram.len() - 100..]).into_owned();
        assert!(datagram.len() < MAX_MESSAGE + 200 && text.ends_with("éé\n"), "{text}");
    }

    #[test]
    fn a_stream_is_ours_if_device_and_inode_are() {
        assert!(is_stream(Some("8:17".into()), 8, 17));
        for other in [None, Some("8:18".into()), Some("8".into()), Some(String::new().into())] {
            assert!(!is_stream(other, 8, 17));
        }
    }
}
