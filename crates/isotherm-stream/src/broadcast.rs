//! The sending end: one thread that writes the newest snapshot to every client, as fast as each takes it.
//!
//! The monitor must never wait for a client. So it leaves a snapshot in one slot per client, and a thread writes what is in
//! the slots to sockets that do not block. A slot that is still full when the next snapshot comes is overwritten, and the
//! client gets the number of lost ones before its next. One thread for all, because `poll` also reports clients that have
//! gone, and no thread has to be started once a sandbox is entered. Clients share the bytes of a snapshot.
//!
//! Nothing is read from a client. What it sends stays in its socket until the kernel's buffer is full.

use crate::error::{Error, Result};
use crate::frame::{encode, header, lost};
use crate::group::group_id;
use crate::place::{Place, PlaceError};
use crate::rows::Snapshot;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
use std::io::{self, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The most clients at once. Further ones are disconnected at once.
pub const MAX_CLIENTS: usize = 16;
/// Clients that wait to be accepted.
const BACKLOG: i32 = 32;
/// How long no client is accepted after the system has refused to: it is short of descriptors, which `poll` does not wait for.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// A client that takes nothing for so long is disconnected: it would keep its snapshot in memory, and the monitor at work.
const MAX_STALL: Duration = Duration::from_secs(60);
/// So is one that has not taken a whole snapshot for so long: it takes a little now and then.
const MAX_TAKING: Duration = Duration::from_secs(300);
/// At the end, clients may take so long for what they have not taken yet.
const MAX_ENDING: Duration = Duration::from_secs(1);

/// Sends snapshots to all who listen. Dropping it disconnects them, and removes the socket.
#[derive(Debug)]
pub struct Broadcaster {
    shared: Arc<Shared>,
    /// Wakes the thread.
    waker: UnixStream,
    thread: Option<JoinHandle<()>>,
    /// Removed after the thread has ended.
    _place: Option<Place>,
}

/// What could not be done, and what to do.
fn listening(error: &PlaceError) -> String {
    let advice = match error {
        PlaceError::Lock { error, .. } | PlaceError::Socket { error, .. } if is_of_the_folder(error) => {
            "; is its folder there, and writable?"
        }
        _ => "",
    };
    format!("{error}{advice}")
}

fn is_of_the_folder(error: &io::Error) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound, PermissionDenied, ReadOnlyFilesystem};
    // EPERM is about a privilege, and of the same kind as EACCES.
    matches!(error.kind(), NotADirectory | NotFound | PermissionDenied | ReadOnlyFilesystem)
        && Errno::from_io_error(error) != Some(Errno::PERM)
}

/// What the monitor and the thread share.
#[derive(Debug, Default)]
struct Shared {
    slot: Mutex<Slot>,
    clients: AtomicUsize,
    is_over: AtomicBool,
}

/// The newest snapshot, and how many there were so far: a client that has seen fewer has lost the others.
#[derive(Debug, Default)]
struct Slot {
    frame: Option<Arc<[u8]>>,
    number: u64,
}

impl Shared {
    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Broadcaster {
    /// Listens at `path`, for our own user and `group`: its name, or its number. The folder has to be there. Replaces a socket whose
    /// owner has ended.
    pub fn open(path: &Path, group: Option<&str>) -> Result<Broadcaster> {
        let fault = |what: String| Error::Listen { path: path.to_owned(), what };
        let group = group.map(group_id).transpose().map_err(fault)?;
        let (listener, place) = Place::listen(path, group, BACKLOG).map_err(|error| fault(listening(&error)))?;
        listener.set_nonblocking(true).map_err(|error| Error::Send { what: "prepare the socket", error })?;
        Broadcaster::start(Some(listener), Vec::new(), Some(place))
    }

    /// Sends to one client, whose end of a pair of sockets was given to it when it was started.
    pub fn over(stream: UnixStream) -> Result<Broadcaster> {
        let client =
            Client::new(stream, 0).map_err(|error| Error::Send { what: "prepare a pair of sockets", error })?;
        Broadcaster::start(None, vec![client], None)
    }

    fn start(listener: Option<UnixListener>, clients: Vec<Client>, place: Option<Place>) -> Result<Broadcaster> {
        let fault = |what| move |error| Error::Send { what, error };
        let (waker, woken) = UnixStream::pair().map_err(fault("open a pair of sockets"))?;
        for end in [&waker, &woken] {
            end.set_nonblocking(true).map_err(fault("prepare a pair of sockets"))?;
        }
        let shared = Arc::new(Shared { clients: AtomicUsize::new(clients.len()), ..Shared::default() });
        let sender = Sender { shared: Arc::clone(&shared), listener, woken, clients };
        let thread = std::thread::Builder::new().name("stream".into()).spawn(move || sender.run());
        let thread = Some(thread.map_err(fault("start a thread"))?);
        Ok(Broadcaster { shared, waker, thread, _place: place })
    }

    /// Sends a snapshot to all who listen. Does not wait for them, and does nothing if there are none.
    pub fn publish(&self, snapshot: &Snapshot) -> Result<()> {
        if self.clients() == 0 {
            return Ok(());
        }
        let (frame, result) = match encode(snapshot) {
            Ok(frame) => (Some(Arc::from(frame)), Ok(())),
            // It is lost to all: the one before it must not pass for it.
            Err(error) => (None, Err(error)),
        };
        {
            let mut slot = self.shared.slot();
            slot.number += 1;
            slot.frame = frame;
        }
        self.wake();
        result
    }

    /// How many listen now.
    pub fn clients(&self) -> usize {
        self.shared.clients.load(Ordering::Acquire)
    }

    fn wake(&self) {
        // A full buffer holds a wake-up already.
        let _ = (&self.waker).write(&[0]);
    }
}

impl Drop for Broadcaster {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        self.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What the thread owns.
#[derive(Debug)]
struct Sender {
    shared: Arc<Shared>,
    listener: Option<UnixListener>,
    woken: UnixStream,
    clients: Vec<Client>,
}

impl Sender {
    fn run(mut self) {
        // It was started by a monitor with privileges, and needs none.
        let none = CapabilitySet::empty();
        let _ = set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none });
        while !self.shared.is_over.load(Ordering::Acquire) {
            let may_accept = self.wait();
            self.drain_wake_ups();
            if may_accept {
                self.accept();
            }
            self.clients.retain_mut(Client::write_some);
            while self.hand_out() {
                self.clients.retain_mut(Client::write_some);
            }
            let now = Instant::now();
            self.clients.retain(|client| !client.has_stalled(now));
            self.shared.clients.store(self.clients.len(), Ordering::Release);
            if self.clients.is_empty() {
                // Who comes next gets the next one.
                self.shared.slot().frame = None;
            }
        }
        self.end();
    }

    /// Writes what clients have not taken yet, the newest snapshot included.
    fn end(&mut self) {
        let until = Instant::now() + MAX_ENDING;
        self.listener = None;
        while !self.clients.is_empty() && Instant::now() < until {
            self.clients.retain_mut(Client::write_some);
            let has_more = self.hand_out();
            self.clients.retain(|client| client.has_work());
            if !has_more {
                self.wait_for(Duration::from_millis(20));
            }
        }
    }

    /// Waits until something can be done. Returns whether somebody connects.
    fn wait(&mut self) -> bool {
        self.wait_for(MAX_STALL)
    }

    /// The same, for so long at most.
    fn wait_for(&mut self, most: Duration) -> bool {
        let mut fds = vec![PollFd::new(&self.woken, PollFlags::IN)];
        // One that has gone is reported in any case.
        let wanted = |client: &Client| if client.has_work() { PollFlags::OUT } else { PollFlags::empty() };
        fds.extend(self.clients.iter().map(|client| PollFd::new(&client.stream, wanted(client))));
        fds.extend(self.listener.as_ref().map(|listener| PollFd::new(listener, PollFlags::IN)));
        let most = Timespec { tv_sec: most.as_secs().cast_signed(), tv_nsec: most.subsec_nanos().into() };
        if poll(&mut fds, Some(&most)).is_err() {
            return false;
        }
        let gone = PollFlags::HUP | PollFlags::ERR;
        let states: Vec<PollFlags> = fds.iter().map(PollFd::revents).collect();
        for (client, state) in self.clients.iter_mut().zip(&states[1..]) {
            client.is_gone |= state.intersects(gone);
        }
        self.listener.is_some() && states.last().is_some_and(|state| state.contains(PollFlags::IN))
    }

    /// By `read`: the standard library reads sockets by `recvfrom`, which the sandbox of a monitor refuses. The wake-up would stay, and
    /// [`Sender::wait`] never wait again.
    fn drain_wake_ups(&mut self) {
        let mut bytes = [0; 64];
        while matches!(rustix::io::read(&self.woken, &mut bytes), Ok(n) if n == bytes.len()) {}
    }

    fn accept(&mut self) {
        let Some(listener) = &self.listener else { return };
        let seen = self.shared.slot().number;
        self.clients.retain(|client| !client.is_gone);
        // As many as may wait in its queue, so that a flood of them does not hold up the others.
        for _ in 0..MAX_CLIENTS {
            match listener.accept() {
                Ok((stream, _)) if self.clients.len() < MAX_CLIENTS => {
                    self.clients.extend(Client::new(stream, seen));
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => {
                    std::thread::sleep(ACCEPT_PAUSE);
                    break;
                }
            }
        }
    }

    /// Gives the newest snapshot to clients whose last one is written. Returns whether there was one.
    fn hand_out(&mut self) -> bool {
        let (frame, number) = {
            let slot = self.shared.slot();
            (slot.frame.clone(), slot.number)
        };
        let Some(frame) = frame else { return false };
        let mut ready = 0;
        for client in self.clients.iter_mut().filter(|client| client.seen < number && !client.has_work()) {
            client.give(&frame, number);
            ready += 1;
        }
        ready > 0
    }
}

/// One who listens.
#[derive(Debug)]
struct Client {
    stream: UnixStream,
    /// The number of the last snapshot that it was given.
    seen: u64,
    /// What precedes the frame: the header of the stream, or how many snapshots were lost.
    head: Vec<u8>,
    frame: Option<Arc<[u8]>>,
    /// Bytes of both that were written.
    written: usize,
    /// When it last took something, or was given something after it had taken all.
    moved_at: Instant,
    /// When it was given what it has not taken yet.
    given_at: Instant,
    is_gone: bool,
}

impl Client {
    fn new(stream: UnixStream, seen: u64) -> io::Result<Client> {
        stream.set_nonblocking(true)?;
        let now = Instant::now();
        Ok(Client {
            stream,
            seen,
            head: header().to_vec(),
            frame: None,
            written: 0,
            moved_at: now,
            given_at: now,
            is_gone: false,
        })
    }

    fn has_work(&self) -> bool {
        !self.head.is_empty() || self.frame.is_some()
    }

    fn has_stalled(&self, now: Instant) -> bool {
        let is_late = |since: Instant, most: Duration| now.saturating_duration_since(since) >= most;
        self.has_work() && (is_late(self.moved_at, MAX_STALL) || is_late(self.given_at, MAX_TAKING))
    }

    fn give(&mut self, frame: &Arc<[u8]>, number: u64) {
        let now = Instant::now();
        (self.moved_at, self.given_at) = (now, now);
        let missed = number - self.seen - 1;
        if missed > 0 {
            self.head.extend(lost(missed));
        }
        self.frame = Some(Arc::clone(frame));
        self.seen = number;
    }

    /// Writes what the socket takes. Returns whether the client is still there.
    fn write_some(&mut self) -> bool {
        while !self.is_gone && self.has_work() {
            let frame = self.frame.as_deref().unwrap_or_default();
            let rest = match self.head.get(self.written..).filter(|rest| !rest.is_empty()) {
                Some(head) => head,
                None => &frame[self.written - self.head.len()..],
            };
            match send(&self.stream, rest, SendFlags::NOSIGNAL) {
                Ok(n) => (self.written, self.moved_at) = (self.written + n, Instant::now()),
                Err(error) if error == rustix::io::Errno::INTR => {}
                Err(error) => return error == rustix::io::Errno::AGAIN,
            }
            if self.written == self.head.len() + self.frame.as_deref().unwrap_or_default().len() {
                self.head.clear();
                self.frame = None;
                self.written = 0;
            }
        }
        !self.is_gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_not_there_is_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let nowhere = Broadcaster::open(&dir.path().join("no/s"), None).unwrap_err().to_string();
        assert!(nowhere.contains("is its folder there"), "{nowhere}");
        // A privilege that is missing has nothing to do with it.
        let not_ours = PlaceError::Socket { what: "set its group", error: Errno::PERM.into() };
        assert!(!listening(&not_ours).contains("folder"), "{not_ours}");
    }

    #[test]
    fn who_takes_nothing_and_who_takes_a_little_now_and_then_has_stalled() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let mut client = Client::new(ours, 0).unwrap();
        client.give(&Arc::from(vec![0; 10]), 1);
        let since = client.given_at;
        assert!(!client.has_stalled(since + MAX_STALL / 2));
        assert!(client.has_stalled(since + MAX_STALL));
        client.moved_at = since + MAX_TAKING - MAX_STALL / 2;
        assert!(!client.has_stalled(since + MAX_TAKING - Duration::from_secs(1)));
        assert!(client.has_stalled(since + MAX_TAKING), "it still takes some, but never all");
        assert!(client.write_some());
        assert!(!client.has_stalled(since + MAX_TAKING), "it has taken all");
    }
}
