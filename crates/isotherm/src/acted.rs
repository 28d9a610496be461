//! What `isotherm run` has done to processes, in the snapshots of those who show or record them.
//!
//! The daemon itself knows it ([`note`]). Others ask it at its control socket ([`Asked`]), every other second on a thread of their own: a
//! daemon that is slow to answer holds nothing up, and where none answers nothing is shown.

use crate::daemon::socket::Client;
use isotherm_heat::{Acted, Snapshot};
use isotherm_schemes::state::{Status, TargetStatus};
use isotherm_units::Bytes;
use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const BETWEEN: Duration = Duration::from_secs(2);

/// Notes what was done to each process of a snapshot: nothing, if it was a dry run.
pub fn note(snapshot: &mut Snapshot, status: &Status) {
    if status.dry_run {
        return;
    }
    let known: HashMap<u32, &TargetStatus> = status.targets.iter().map(|target| (target.pid, target)).collect();
    for target in &mut snapshot.targets {
        target.facts.acted = known.get(&target.id.pid).copied().and_then(acted);
    }
}

/// What was done to a process; `None` if no scheme takes its memory.
fn acted(status: &TargetStatus) -> Option<Acted> {
    let TargetStatus { page_out, migrate, split, .. } = status;
    if page_out.is_none() && migrate.is_none() && split.is_none() {
        return None;
    }
    let out = page_out.as_ref();
    let moved = migrate.as_ref();
    Some(Acted {
        left_bytes: Bytes(out.map_or(0, |out| out.left_bytes)),
        out_bytes: Bytes(out.map_or(0, |out| out.out_bytes)),
        refaulted_bytes: Bytes(out.map_or(0, |out| out.refaulted_bytes)),
        demoted_bytes: Bytes(moved.map_or(0, |moved| moved.demoted_bytes)),
        promoted_bytes: Bytes(moved.map_or(0, |moved| moved.promoted_bytes)),
        returned_bytes: Bytes(split.as_ref().map_or(0, |split| split.returned_bytes)),
    })
}

/// A daemon to ask.
#[derive(Debug)]
pub struct Asked(Client);

impl Asked {
    /// Of the daemon at this socket, if one answers. Connects now: it may not be possible later.
    pub fn connect(socket: &Path) -> Option<Asked> {
        socket.exists().then(|| Client::connect(socket).ok()).flatten().map(Asked)
    }

    /// Begins to ask, until `is_over`. Returns where the last answer is found.
    pub fn ask(self, is_over: Arc<AtomicBool>) -> Answers {
        let Asked(mut client) = self;
        let latest = Arc::<Mutex<Option<Status>>>::default();
        let answers = Answers(Arc::clone(&latest));
        std::thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                let status = client.ask("status").ok().and_then(|answer| serde_json::from_str(&answer).ok());
                let is_gone = status.is_none();
                *latest.lock().unwrap_or_else(PoisonError::into_inner) = status;
                if is_gone {
                    return;
                }
                std::thread::sleep(BETWEEN);
            }
        });
        answers
    }
}

/// The last answer of a daemon.
#[derive(Debug)]
pub struct Answers(Arc<Mutex<Option<Status>>>);

impl Answers {
    /// Notes in a snapshot what it said.
    pub fn note(&self, snapshot: &mut Snapshot) {
        if let Some(status) = &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            note(snapshot, status);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::snapshot;
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixListener;

    const STATUS: &str = r#"{"version": "1", "pid": 1, "targets": [{"pid": 7, "page_out": {"left_bytes": 50, "out_bytes": 30, "refaulted_bytes": 20}}, {"pid": 8}, {"pid": 9, "split": {"returned_bytes": 4096}}]}"#;

    #[test]
    fn a_process_has_what_was_done_to_it_and_others_nothing() {
        let mut seen = snapshot(&[7, 8, 9, 10], 1);
        note(&mut seen, &serde_json::from_str(STATUS).unwrap());
        let out = Acted { left_bytes: Bytes(50), out_bytes: Bytes(30), refaulted_bytes: Bytes(20), ..Acted::default() };
        let split = Acted { returned_bytes: Bytes(4096), ..Acted::default() };
        let found: Vec<_> = seen.targets.iter().map(|target| target.facts.acted).collect();
        assert_eq!(found, [Some(out), None, Some(split), None]);
        let mut seen = snapshot(&[7], 1);
        note(&mut seen, &Status { dry_run: true, ..serde_json::from_str(STATUS).unwrap() });
        assert_eq!(seen.targets[0].facts.acted, None);
    }

    #[test]
    fn a_daemon_is_asked_until_it_closes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        assert!(Asked::connect(&path).is_none());
        let listener = UnixListener::bind(&path).unwrap();
        let asked = Asked::connect(&path).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let answers = asked.ask(Arc::default());
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line).unwrap();
        assert_eq!(line, "status\n");
        writeln!(&stream, "{STATUS}").unwrap();
        let noted = || {
            let mut seen = snapshot(&[7], 1);
            answers.note(&mut seen);
            seen.targets[0].facts.acted.map(|acted| acted.out_bytes.0)
        };
        let wait_for = |expected: Option<u64>| {
            for _ in 0..1000 {
                if noted() == expected {
                    return;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            panic!("{:?} and not {expected:?}", noted());
        };
        wait_for(Some(30));
        drop(stream);
        wait_for(None);
    }
}
