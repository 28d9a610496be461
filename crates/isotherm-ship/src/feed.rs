//! Reads what a monitor sends, in a thread of its own, and connects again when it has ended.
//!
//! The channel holds few messages: a program that is behind lets the monitor count snapshots as lost, and keeps no memory for them.

use isotherm_stream::{Message, Reader};
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;
use tokio::sync::mpsc;

/// Messages that wait.
const QUEUE: usize = 4;
/// The wait before the first try to connect again. It doubles up to the second.
const FIRST_WAIT: Duration = Duration::from_millis(250);
const MAX_WAIT: Duration = Duration::from_secs(15);

/// What comes from a monitor.
#[derive(Debug)]
pub enum Event {
    /// A monitor answers.
    Connected,
    /// It sends.
    Message(Message),
    /// It does not answer, or has ended: why.
    Ended(String),
}

/// Reads from the socket at `path` until the receiver is dropped.
pub fn start(path: PathBuf) -> io::Result<mpsc::Receiver<Event>> {
    let (sender, receiver) = mpsc::channel(QUEUE);
    thread::Builder::new().name("feed".into()).spawn(move || follow(&path, &sender))?;
    Ok(receiver)
}

fn follow(path: &Path, sender: &mpsc::Sender<Event>) {
    let mut wait = FIRST_WAIT;
    while !sender.is_closed() {
        let ended = match UnixStream::connect(path) {
            Ok(stream) => {
                let (ended, has_begun) = read(stream, sender);
                wait = if has_begun { FIRST_WAIT } else { wait };
                ended
            }
            Err(error) => {
                format!(
                    "connect to {}: {error}; is the monitor running, and may this user read its socket?",
                    path.display()
                )
            }
        };
        if sender.blocking_send(Event::Ended(ended)).is_err() {
            return;
        }
        thread::sleep(wait);
        wait = (wait * 2).min(MAX_WAIT);
    }
}

/// Reads until the stream ends. Returns why, and whether it had begun.
fn read(stream: UnixStream, sender: &mpsc::Sender<Event>) -> (String, bool) {
    let mut reader = Reader::new(stream);
    // A monitor that has too many clients accepts, and closes.
    match reader.begins() {
        Ok(true) => {}
        Ok(false) => return ("the monitor has ended, or has too many clients".into(), false),
        Err(error) => return (error.to_string(), false),
    }
    if sender.blocking_send(Event::Connected).is_err() {
        return (String::new(), true);
    }
    loop {
        match reader.next() {
            Ok(Some(message)) => {
                if sender.blocking_send(Event::Message(message)).is_err() {
                    return (String::new(), true);
                }
            }
            Ok(None) => return ("the monitor has ended".into(), true),
            Err(error) => return (error.to_string(), true),
        }
    }
}
