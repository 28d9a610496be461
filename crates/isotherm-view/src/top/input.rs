//! Reads keys from the terminal, one wait at a time, and reports a lost terminal as the end of input.
//!
//! crossterm reads in the calling thread. Its read returns only with a complete key: in the middle of an escape
//! sequence it blocks, and on a terminal that is gone its default event source retries forever. So a separate thread
//! reads, and the session waits for its answer with a time limit. The thread reads only when the session wants a key,
//! so that keys typed after the last one stay in the terminal for the shell. With the feature `use-dev-tty`, the event
//! source returns after its time-out even if the terminal is gone. [`terminal_is_gone`] is called before each read, so
//! such a terminal is never read twice.

use ratatui::crossterm::event::{self, Event};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

/// The longest wait for a key before snapshots and the stop flag are checked.
const TICK: Duration = Duration::from_millis(100);

/// The result of a wait.
#[derive(Debug)]
pub enum Waited {
    /// A key, or a new terminal size.
    Event(Event),
    /// Nothing within about 100 ms.
    Nothing,
    /// The terminal is gone.
    End,
}

/// The thread that reads.
#[derive(Debug)]
pub struct Input {
    requests: Sender<()>,
    replies: Receiver<io::Result<Waited>>,
    /// A request is still unanswered.
    asked: bool,
}

impl Input {
    /// Starts the thread. It ends when this value is dropped. If it is blocked in a read, it ends with the process.
    pub fn open() -> io::Result<Input> {
        let (requests, wanted) = channel();
        let (answers, replies) = channel();
        thread::Builder::new().name("isotherm-keys".into()).spawn(move || read(&wanted, &answers))?;
        Ok(Input { requests, replies, asked: false })
    }

    /// Waits up to a tenth of a second or two for an event.
    pub fn wait(&mut self) -> io::Result<Waited> {
        if !self.asked && self.requests.send(()).is_err() {
            return Ok(Waited::End);
        }
        self.asked = true;
        match self.replies.recv_timeout(2 * TICK) {
            Ok(reply) => {
                self.asked = false;
                reply
            }
            Err(RecvTimeoutError::Timeout) => Ok(Waited::Nothing),
            Err(RecvTimeoutError::Disconnected) => Ok(Waited::End),
        }
    }
}

fn read(wanted: &Receiver<()>, answers: &Sender<io::Result<Waited>>) {
    let mut fruitless = 0;
    for () in wanted {
        let reply = read_once(&mut fruitless);
        if answers.send(reply).is_err() {
            return;
        }
    }
}

fn read_once(fruitless: &mut u32) -> io::Result<Waited> {
    // If input is ready twice in a row but produces no event, it is an end of file without a hang-up.
    if terminal_is_gone() || *fruitless >= 2 {
        return Ok(Waited::End);
    }
    match event::poll(TICK) {
        Ok(true) => {
            *fruitless = 0;
            event::read().map(Waited::Event)
        }
        Ok(false) => {
            let readable = state_of_input().contains(PollFlags::IN);
            *fruitless = if readable { *fruitless + 1 } else { 0 };
            Ok(Waited::Nothing)
        }
        // The terminal is gone, or this process is in an orphaned background process group.
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) => Ok(Waited::End),
        Err(error) => Err(error),
    }
}

/// Whether the terminal that keys come from has hung up: its window was closed, or its connection lost.
pub fn terminal_is_gone() -> bool {
    state_of_input().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL)
}

fn state_of_input() -> PollFlags {
    let stdin = rustix::stdio::stdin();
    let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
    match poll(&mut fds, Some(&Timespec::default())) {
        Ok(_) => fds[0].revents(),
        Err(_) => PollFlags::empty(),
    }
}
