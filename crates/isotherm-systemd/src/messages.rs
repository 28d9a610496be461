//! Messages of a program: to the journal, if a service manager has connected standard error to it, and to standard error otherwise.

use crate::{Journal, Priority};
use std::io::Write;
use std::sync::OnceLock;

static JOURNAL: OnceLock<Journal> = OnceLock::new();

/// From here on, messages go to the journal if standard error leads there; each gets `fields`. Call it before a sandbox that opens no
/// sockets.
pub fn connect(program: &str, fields: &[(&str, &str)]) {
    if let Some(journal) = Journal::of_stderr(program, fields) {
        let _ = JOURNAL.set(journal);
    }
}

/// Prints `PROGRAM: MESSAGE`, or sends the message. `message` has to be free of what a terminal acts on.
pub fn print(program: &str, priority: Priority, message: &str) {
    if JOURNAL.get().is_some_and(|journal| journal.send(priority, message).is_ok()) {
        return;
    }
    // A closed standard error is no reason to end.
    let _ = writeln!(std::io::stderr().lock(), "{program}: {message}");
}
