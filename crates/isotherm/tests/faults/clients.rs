//! Hostile clients of the socket of `isotherm run`.

use crate::Fault;
use crate::support::{Running, Stage, sees_pages, until, wait, workload};
use crate::watch::{Tally, descriptors};
use isotherm_workload::Child;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

type Played = Result<Tally, &'static str>;

const SERVES: &str = "status answers others within 2 s";

pub const FAULTS: &[Fault] = &[
    Fault { name: "a client that writes a byte at a time", holds: SERVES, play: slow },
    Fault { name: "a client that never reads its answers", holds: SERVES, play: deaf },
    Fault { name: "200 clients at a time", holds: SERVES, play: many },
    Fault { name: "a line of 16 MiB", holds: SERVES, play: huge },
    Fault { name: "half a line, and silence", holds: SERVES, play: half },
    Fault { name: "bytes that are no text", holds: SERVES, play: garbage },
    Fault { name: "hints at all kinds of ranges", holds: SERVES, play: ranges },
    Fault { name: "clients that come and go", holds: SERVES, play: come_and_go },
];

/// A daemon, and what it watches.
struct Served {
    stage: Stage,
    daemon: Running,
    child: Child,
}

impl Served {
    fn start() -> Result<Served, &'static str> {
        if !sees_pages() {
            return Err("the page-table source");
        }
        let (stage, child) = (Stage::new(), workload(16));
        let mut daemon = stage.start_isotherm(&format!("run -n --socket s.sock -p {}", child.pid()));
        daemon.until_it_says("status at");
        Ok(Served { stage, daemon, child })
    }

    fn connect(&self) -> std::io::Result<UnixStream> {
        let stream = UnixStream::connect(self.stage.path("s.sock"))?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        stream.set_write_timeout(Some(Duration::from_secs(2)))?;
        Ok(stream)
    }

    /// Others are served while the hostile client is there.
    fn serves(&self) {
        let began = Instant::now();
        let status = self.stage.json("status --json --socket s.sock");
        assert_eq!(status["pid"], self.daemon.pid());
        assert!(began.elapsed() < Duration::from_secs(2), "status took {:?}", began.elapsed());
    }

    /// Ends the daemon. It has closed what its clients had.
    fn end(self, before: u64) -> Played {
        let open = || descriptors(self.daemon.pid());
        until(Duration::from_secs(5), || open() <= before);
        let leaked_fds = open().saturating_sub(before);
        self.daemon.signal("TERM");
        self.daemon.end().ended(0);
        Ok(Tally { leaked_fds, ..Tally::once() })
    }
}

/// Plays one client.
fn played(act: impl FnOnce(&Served)) -> Played {
    let served = Served::start()?;
    wait(Duration::from_secs(1));
    let before = descriptors(served.daemon.pid());
    act(&served);
    served.serves();
    served.end(before)
}

fn slow() -> Played {
    played(|served| {
        let mut client = served.connect().unwrap();
        for byte in b"status status status" {
            client.write_all(&[*byte]).unwrap();
            wait(Duration::from_millis(100));
        }
        served.serves();
    })
}

fn deaf() -> Played {
    played(|served| {
        let mut client = served.connect().unwrap();
        // Until the daemon stops taking more, since its own answers fill up.
        for _ in 0..20_000 {
            if client.write_all(b"status\n").is_err() {
                break;
            }
        }
        served.serves();
    })
}

fn many() -> Played {
    played(|served| {
        let clients: Vec<_> = (0..200).filter_map(|_| served.connect().ok()).collect();
        // As many as may be open are; the others were refused or wait. Once one goes, there is room.
        assert!(!clients.is_empty());
        drop(clients);
        wait(Duration::from_millis(500));
    })
}

fn huge() -> Played {
    played(|served| {
        let mut client = served.connect().unwrap();
        let line = vec![b'x'; 16 << 20];
        let _ = client.write_all(&line);
        served.serves();
    })
}

fn half() -> Played {
    played(|served| {
        let mut client = served.connect().unwrap();
        client.write_all(b"hint 1 100").unwrap();
        served.serves();
    })
}

fn garbage() -> Played {
    played(|served| {
        let mut client = served.connect().unwrap();
        let bytes: Vec<u8> =
            (0..4000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8 | 0x80).chain([b'\n']).collect();
        let _ = client.write_all(&bytes);
        let mut answer = [0; 256];
        let _ = client.read(&mut answer);
    })
}

fn ranges() -> Played {
    played(|served| {
        let pid = served.child.pid();
        let mut client = BufReader::new(served.connect().unwrap());
        for range in
            ["0-0", "0-ffffffffffffffff", "ffff-0", "-", "zz-yy", "7fffffffffff-800000000000", "1-2 99", "1-2 -1", ""]
        {
            for pid in [pid, 0, u32::MAX] {
                client.get_mut().write_all(format!("hint {pid} {range}\n").as_bytes()).unwrap();
                let mut text = String::new();
                client.read_line(&mut text).unwrap();
                assert!(text.starts_with("ok ") || text.starts_with("error: "), "{range}: {text:?}");
            }
        }
    })
}

fn come_and_go() -> Played {
    played(|served| {
        for _ in 0..500 {
            if let Ok(mut client) = served.connect() {
                let _ = client.write_all(b"status\n");
            }
        }
    })
}
