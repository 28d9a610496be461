//! Keys from the terminal, one wait at a time, and the end of the terminal as an end of input.
//!
//! crossterm reads in the thread that asks. Its read returns only with a whole key: in the middle of an escape sequence it
//! blocks, and on a terminal that is gone its default event source tries again without end. So a thread of our own asks, and the
//! session waits for the answer with a limit. It asks only when the session wants a key: what is typed after the last one
//! stays in the terminal for the shell. The event source that opens with the feature `use-dev-tty` returns after its time-out
//! also on a terminal that is gone; [`terminal_is_gone`] is asked before each read, so nothing is read twice from one.

use ratatui::crossterm::event::{self, Event};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

/// The longest that a key is waited for before snapshots and the stop flag are checked.
const TICK: Duration = Duration::from_millis(100);

/// What came of a wait.
#[derive(Debug)]
pub enum Waited {
    /// A key, or a new size of the terminal.
    Event(Event),
    /// Nothing within 100 ms or so.
    Nothing,
    /// The terminal is gone.
    End,
}

/// The thread that reads.
#[derive(Debug)]
pub struct Input {
    requests: Sender<()>,
    replies: Receiver<io::Result<Waited>>,
    /// A request has not been answered yet.
    asked: bool,
}

impl Input {
    /// Starts the thread. It ends with this, unless it is blocked in a read: then with the process.
    pub fn open() -> io::Result<Input> {
        let (requests, wanted) = channel();
        let (answers, replies) = channel();
        thread::Builder::new().name("isotherm-keys".into()).spawn(move || read(&wanted, &answers))?;
        Ok(Input { requests, replies, asked: false })
    }

    /// Waits for an event, for a tenth of a second or two.
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
    // Input that is there twice in a row and becomes no event is an end of file without a hang-up.
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
        // A read of a terminal that is gone, or of one that was given to others for good.
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
