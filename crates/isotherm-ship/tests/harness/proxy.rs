//! A proxy in front of an HTTP server that does what networks and stores do: refuses, cuts connections, delivers twice. Loopback only.
//!
//! A request is one connection on the far side. Faults are drawn in the order in which requests come, as cards from a deck that a seeded generator
//! shuffles: each kind occurs within twenty requests.

use isotherm_rng::Rng;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// What was done, by number of requests.
#[derive(Debug, Default)]
pub struct Done {
    pub passed: AtomicU64,
    /// Answered with 5xx, and not delivered.
    pub refused: AtomicU64,
    /// Delivered, and answered with 5xx.
    pub denied: AtomicU64,
    /// Cut before it was delivered.
    pub cut_before: AtomicU64,
    /// Delivered, and cut before the answer.
    pub cut_after: AtomicU64,
    /// Delivered twice; the second answer was given.
    pub doubled: AtomicU64,
    /// Nothing passes.
    pub is_away: AtomicBool,
}

#[derive(Clone, Copy, Debug)]
enum Fate {
    Pass,
    Refuse,
    Deny,
    CutBefore,
    CutAfter,
    Double,
}

use Fate::{CutAfter, CutBefore, Deny, Double, Pass, Refuse};

const FAULTS: [Fate; 7] = [Refuse, Refuse, Deny, CutBefore, CutAfter, Double, Double];
const CARDS: usize = 20;

struct Deck {
    random: Rng,
    cards: Vec<Fate>,
}

impl Deck {
    fn draw(&mut self) -> Fate {
        if self.cards.is_empty() {
            self.cards = FAULTS.to_vec();
            self.cards.resize(CARDS, Pass);
        }
        let place = self.random.below(self.cards.len() as u64);
        self.cards.swap_remove(usize::try_from(place).unwrap())
    }
}

pub struct Proxy {
    pub address: SocketAddr,
    pub done: Arc<Done>,
}

impl Proxy {
    pub fn start(to: SocketAddr, seed: u64) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, done) = (listener.local_addr().unwrap(), Arc::new(Done::default()));
        let deck = Deck { random: Rng::new(seed), cards: Vec::new() };
        let (shared, deck) = (Arc::clone(&done), Arc::new(Mutex::new(deck)));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (done, deck) = (Arc::clone(&shared), Arc::clone(&deck));
                // Clients that are killed end it with an error.
                std::thread::spawn(move || serve(&stream, to, &done, &deck));
            }
        });
        Proxy { address, done }
    }
}

fn serve(stream: &TcpStream, to: SocketAddr, done: &Done, deck: &Mutex<Deck>) -> io::Result<()> {
    let (mut reader, mut writer) = (BufReader::new(stream), stream);
    while let Some(request) = read_request(&mut reader)? {
        if done.is_away.load(Ordering::Relaxed) {
            return Ok(());
        }
        let fate = deck.lock().unwrap().draw();
        let count = |counter: &AtomicU64| {
            counter.fetch_add(1, Ordering::Relaxed);
        };
        match fate {
            Refuse => {
                count(&done.refused);
                writer.write_all(ERROR)?;
            }
            Deny => {
                forward(&request, to)?;
                count(&done.denied);
                writer.write_all(ERROR)?;
            }
            CutBefore => {
                count(&done.cut_before);
                return Ok(());
            }
            CutAfter => {
                forward(&request, to)?;
                count(&done.cut_after);
                return Ok(());
            }
            Double => {
                forward(&request, to)?;
                let second = forward(&request, to)?;
                count(&done.doubled);
                writer.write_all(&second)?;
                return Ok(());
            }
            Pass => {
                let answer = forward(&request, to)?;
                count(&done.passed);
                writer.write_all(&answer)?;
                // The answer says that the connection closes.
                return Ok(());
            }
        }
    }
    Ok(())
}

const ERROR: &[u8] = b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\n\r\n";

/// The bytes of a request, which closes its connection on the far side. `None` if the client has gone.
fn read_request(reader: &mut BufReader<&TcpStream>) -> io::Result<Option<Vec<u8>>> {
    let (mut head, mut length) = (Vec::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let lower = line.to_ascii_lowercase();
        if let Some(value) = lower.strip_prefix("content-length:") {
            length = value.trim().parse().map_err(io::Error::other)?;
        }
        if line == "\r\n" {
            break;
        }
        if !lower.starts_with("connection:") {
            head.extend(line.into_bytes());
        }
    }
    head.extend(b"Connection: close\r\n\r\n");
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    head.extend(body);
    Ok(Some(head))
}

fn forward(request: &[u8], to: SocketAddr) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(to)?;
    stream.write_all(request)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(answer)
}
