//! A broadcaster with real sockets: several readers, slow ones, ones that go away, too many of them.

mod samples;

use isotherm_stream::{Broadcaster, EventRow, MAX_CLIENTS, MAX_ROWS, Message, Reader, Snapshot};
use samples::snapshot;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long an event may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < until, "waited for {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn connect(path: &Path) -> UnixStream {
    let stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn next_snapshot<R: std::io::Read>(reader: &mut Reader<R>) -> Snapshot {
    match reader.next().unwrap() {
        Some(Message::Snapshot(snapshot)) => *snapshot,
        other => panic!("{other:?} and no snapshot"),
    }
}

#[test]
fn two_readers_get_the_same_snapshots() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let broadcaster = Broadcaster::open(&path, None).unwrap();
    broadcaster.publish(&snapshot(0, 1)).unwrap();
    let mut readers = [Reader::new(connect(&path)), Reader::new(connect(&path))];
    wait_until("two clients", || broadcaster.clients() == 2);
    for n in 1..4 {
        let sent = snapshot(n, 3);
        broadcaster.publish(&sent).unwrap();
        for reader in &mut readers {
            assert_eq!(next_snapshot(reader), sent, "only those from when it has connected");
        }
    }
    drop(broadcaster);
    for reader in &mut readers {
        assert_eq!(reader.next().unwrap(), None, "the end of the stream");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left");
}

#[test]
fn a_slow_reader_holds_up_nobody_and_learns_how_many_it_lost() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let broadcaster = Broadcaster::open(&path, None).unwrap();
    let slow = connect(&path);
    let mut quick = Reader::new(connect(&path));
    wait_until("two clients", || broadcaster.clients() == 2);
    // More than the buffers of a socket hold: about 2 MB each.
    const SENT: u64 = 10;
    for n in 0..SENT {
        let sent = snapshot(n, 20_000);
        broadcaster.publish(&sent).unwrap();
        assert_eq!(next_snapshot(&mut quick).host, sent.host);
    }
    let mut slow = Reader::new(slow);
    let (mut got, mut lost, mut last) = (0, 0, None);
    while got + lost < SENT {
        match slow.next().unwrap().unwrap() {
            Message::Snapshot(snapshot) => {
                got += 1;
                last = Some(snapshot.host.end_unix_ns);
            }
            Message::Lost(n) => lost += n,
        }
    }
    assert!(lost > 0 && got > 0, "{got} came, {lost} were lost");
    assert_eq!((got + lost, last), (SENT, Some(SENT * 1_000_000_000)), "and the newest has come");
}

#[test]
fn one_that_goes_away_in_the_middle_disturbs_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let broadcaster = Broadcaster::open(&path, None).unwrap();
    let mut leaving = connect(&path);
    let staying = connect(&path);
    wait_until("two clients", || broadcaster.clients() == 2);
    broadcaster.publish(&snapshot(0, 20_000)).unwrap();
    let mut some = [0; 1000];
    leaving.read_exact(&mut some).unwrap();
    drop(leaving);
    wait_until("it to be noticed", || broadcaster.clients() == 1);
    let mut staying = Reader::new(staying);
    assert_eq!(next_snapshot(&mut staying).regions.len(), 20_000);
    broadcaster.publish(&snapshot(1, 1)).unwrap();
    assert_eq!(next_snapshot(&mut staying), snapshot(1, 1));
}

#[test]
fn the_seventeenth_is_disconnected_and_may_come_back_when_one_has_gone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let broadcaster = Broadcaster::open(&path, None).unwrap();
    let mut clients: Vec<UnixStream> = (0..MAX_CLIENTS).map(|_| connect(&path)).collect();
    wait_until("all of them", || broadcaster.clients() == MAX_CLIENTS);
    let mut refused = connect(&path);
    assert_eq!(refused.read(&mut [0; 8]).unwrap(), 0, "closed, without a word");
    clients.pop();
    wait_until("one to be gone", || broadcaster.clients() == MAX_CLIENTS - 1);
    let mut reader = Reader::new(connect(&path));
    wait_until("another one", || broadcaster.clients() == MAX_CLIENTS);
    broadcaster.publish(&snapshot(0, 1)).unwrap();
    assert_eq!(next_snapshot(&mut reader), snapshot(0, 1));
}

#[test]
fn what_a_client_sends_is_ignored_and_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let broadcaster = Broadcaster::open(&path, None).unwrap();
    let stream = connect(&path);
    wait_until("a client", || broadcaster.clients() == 1);
    stream.set_nonblocking(true).unwrap();
    let mut sent = 0;
    while let Ok(n) = (&stream).write(&[7; 65536]) {
        sent += n;
        assert!(sent < 64 << 20, "somebody reads it");
    }
    stream.set_nonblocking(false).unwrap();
    broadcaster.publish(&snapshot(0, 1)).unwrap();
    assert_eq!(next_snapshot(&mut Reader::new(&stream)), snapshot(0, 1));
}

#[test]
fn owner_and_group_may_connect_and_nobody_else() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let group = std::fs::metadata(dir.path()).unwrap().gid();
    let broadcaster = Broadcaster::open(&path, Some(&group.to_string())).unwrap();
    let socket = std::fs::metadata(&path).unwrap();
    assert_eq!((socket.permissions().mode() & 0o777, socket.gid()), (0o660, group));
    let second = Broadcaster::open(&path, None).unwrap_err().to_string();
    assert!(second.contains("another program"), "{second}");
    drop(broadcaster);
    assert!(!path.exists());
}

#[test]
fn a_pair_of_sockets_serves_one_client() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let broadcaster = Broadcaster::over(ours).unwrap();
    let mut reader = Reader::new(theirs);
    broadcaster.publish(&snapshot(0, 5)).unwrap();
    assert_eq!(next_snapshot(&mut reader), snapshot(0, 5));
    drop(reader);
    wait_until("it to be gone", || broadcaster.clients() == 0);
    broadcaster.publish(&snapshot(1, 5)).unwrap();
}

#[test]
fn what_cannot_be_sent_is_lost_and_not_replaced_by_the_one_before() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let broadcaster = Broadcaster::open(&path, None).unwrap();
    let stream = connect(&path);
    wait_until("a client", || broadcaster.clients() == 1);
    broadcaster.publish(&snapshot(0, 1)).unwrap();
    let mut reader = Reader::new(&stream);
    assert_eq!(next_snapshot(&mut reader), snapshot(0, 1));
    let mut too_many = snapshot(1, 1);
    too_many.events = vec![EventRow::default(); MAX_ROWS + 1];
    broadcaster.publish(&too_many).unwrap_err();
    broadcaster.publish(&snapshot(2, 1)).unwrap();
    assert!(matches!(reader.next().unwrap(), Some(Message::Lost(1))));
    assert_eq!(next_snapshot(&mut reader), snapshot(2, 1));
}

#[test]
fn at_the_end_clients_get_what_was_sent_last() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let broadcaster = Broadcaster::open(&path, None).unwrap();
    let stream = connect(&path);
    wait_until("a client", || broadcaster.clients() == 1);
    // More than a socket takes at once, so that the end finds it half written.
    let large = snapshot(0, 20_000);
    broadcaster.publish(&large).unwrap();
    let reading = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        let mut reader = Reader::new(&stream);
        let first = next_snapshot(&mut reader);
        (first, reader.next().unwrap().is_none())
    });
    drop(broadcaster);
    let (got, is_whole) = reading.join().unwrap();
    assert!(got == large && is_whole, "all of it, and then the end");
}
