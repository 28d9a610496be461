//! A load generator for Redis: ten connections, pipelines of 32 commands, alternating GET and SET, Gaussian keys, 1 KiB
//! values.
//!
//! `bench-redis` drives it. It implements the Redis protocol itself and needs only `isotherm_heat::Rng`. It replaces
//! `memtier_benchmark`, which Debian does not package, and `redis-benchmark`, which has no Gaussian keys: whether huge
//! pages help depends on which memory is hot. It has one thread. The generator needs a fraction of a core and the
//! server needs a whole one, so on two cores the server is the bottleneck. Each connection has one batch in flight. The
//! connections are served in turn, with blocking reads: the server works on nine batches while the tenth is read, and
//! answers in order of arrival. So waiting for the oldest batch loses nothing and needs no `epoll`. A batch is a
//! template in which only the digits of the keys are replaced.

use anyhow::{Context, Result, bail, ensure};
use isotherm_heat::Rng;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

/// Connections to a server.
pub const CONNECTIONS: usize = 10;
/// Commands in a batch, sent at once.
pub const PIPELINE: usize = 32;
/// Bytes of every value.
pub const VALUE_BYTES: usize = 1024;

/// Digits of a key.
const DIGITS: usize = 8;
/// A server that does not answer for this long has hung. Forking for a BGSAVE takes a tenth of a second.
const PATIENCE: Duration = Duration::from_secs(60);
/// Larger than the answers to a batch, so that one call usually reads everything available.
const READ_BYTES: usize = 64 << 10;
/// Longest line of an answer, which is an error text.
const LONGEST_LINE: usize = 4 << 10;

/// Normally distributed keys, by the Box-Muller transform.
#[derive(Debug)]
pub struct Gaussian {
    rng: Rng,
    mean: f64,
    deviation: f64,
    keys: u32,
    /// The transform produces two numbers at a time.
    spare: Option<f64>,
}

impl Gaussian {
    /// Centred on two thirds of the key range, with a twentieth of it as standard deviation: for 3,000,000 keys,
    /// 2,000,000 and 150,000.
    pub fn new(seed: u64, keys: u32) -> Gaussian {
        let range = f64::from(keys);
        Gaussian { rng: Rng::new(seed), mean: range * 2.0 / 3.0, deviation: range / 20.0, keys, spare: None }
    }

    /// The next key, below the number of keys.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to the range of keys")]
    pub fn key(&mut self) -> u32 {
        let key = self.mean + self.deviation * self.standard();
        key.round().clamp(0.0, f64::from(self.keys - 1)) as u32
    }

    /// A number with mean 0 and standard deviation 1.
    fn standard(&mut self) -> f64 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        let radius = (-2.0 * self.uniform().ln()).sqrt();
        let (sin, cos) = (std::f64::consts::TAU * self.uniform()).sin_cos();
        self.spare = Some(radius * sin);
        radius * cos
    }

    /// Above 0, which has no logarithm, and at most 1.
    fn uniform(&mut self) -> f64 {
        ((self.rng.next_u64() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }
}

/// Counts of answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Answers, of any kind.
    pub replies: usize,
    /// Requested keys that do not exist.
    pub misses: usize,
    /// Bytes of the values.
    pub value_bytes: usize,
}

/// Reads the server's answers from pieces of any length. Values are counted and not stored. An error of the server is
/// an error.
#[derive(Debug, Default)]
pub struct Replies {
    tally: Tally,
    /// The part of a line received so far.
    line: Vec<u8>,
    /// Bytes of a value still to come, with the line end after it.
    body_left: usize,
}

impl Replies {
    /// Takes the next piece.
    pub fn feed(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            bytes = if self.body_left > 0 { self.body(bytes) } else { self.part_of_line(bytes)? };
        }
        Ok(())
    }

    /// The counts since the last call.
    pub fn take(&mut self) -> Tally {
        std::mem::take(&mut self.tally)
    }

    fn body<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let taken = self.body_left.min(bytes.len());
        self.body_left -= taken;
        if self.body_left == 0 {
            self.tally.replies += 1;
        }
        &bytes[taken..]
    }

    fn part_of_line<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8]> {
        let end = bytes.iter().position(|&b| b == b'\n');
        let taken = end.map_or(bytes.len(), |end| end + 1);
        self.line.extend_from_slice(&bytes[..taken]);
        ensure!(self.line.len() <= LONGEST_LINE, "an answer without a line end, from {:?} on", first(&self.line));
        if end.is_some() {
            let line = std::mem::take(&mut self.line);
            let read = self.whole_line(&line);
            // The buffer is reused: a load reads hundreds of thousands of lines a second.
            self.line = line;
            self.line.clear();
            read?;
        }
        Ok(&bytes[taken..])
    }

    fn whole_line(&mut self, line: &[u8]) -> Result<()> {
        let text = line.strip_suffix(b"\r\n").with_context(|| format!("no answer ends so: {:?}", first(line)))?;
        match text.split_first() {
            Some((b'+' | b':', _)) => self.tally.replies += 1,
            Some((b'$', b"-1")) => {
                self.tally.replies += 1;
                self.tally.misses += 1;
            }
            Some((b'$', digits)) => {
                let length = std::str::from_utf8(digits).ok().and_then(|d| d.parse::<usize>().ok());
                let length = length.with_context(|| format!("not a length: {:?}", first(text)))?;
                self.tally.value_bytes += length;
                self.body_left = length + 2;
            }
            Some((b'-', error)) => bail!("the server answered with an error: {}", first(error)),
            _ => bail!("no answer begins so: {:?}", first(text)),
        }
        Ok(())
    }
}

/// The first bytes, for messages.
fn first(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned()
}

/// Commands that are ready to send except for their keys.
#[derive(Debug)]
struct Batch {
    bytes: Vec<u8>,
    /// Position of the digits of each key.
    keys: Vec<usize>,
    /// Bytes of values that the answers have to contain.
    asked_bytes: usize,
}

impl Batch {
    /// Alternating GET and SET.
    fn mixed(values: &mut Rng) -> Batch {
        Batch::new(values, |i| i % 2 == 1)
    }

    /// Only SET.
    fn filling(values: &mut Rng) -> Batch {
        Batch::new(values, |_| true)
    }

    fn new(values: &mut Rng, is_set: impl Fn(usize) -> bool) -> Batch {
        let mut batch = Batch { bytes: Vec::new(), keys: Vec::new(), asked_bytes: 0 };
        for i in 0..PIPELINE {
            let head = if is_set(i) { "*3\r\n$3\r\nSET" } else { "*2\r\n$3\r\nGET" };
            batch.bytes.extend_from_slice(format!("{head}\r\n${}\r\nkey:", 4 + DIGITS).as_bytes());
            batch.keys.push(batch.bytes.len());
            batch.bytes.extend_from_slice(&[b'0'; DIGITS]);
            batch.bytes.extend_from_slice(b"\r\n");
            if is_set(i) {
                batch.value(values);
            } else {
                batch.asked_bytes += VALUE_BYTES;
            }
        }
        batch
    }

    /// Random bytes, because a dump compresses values, and repeated letters would almost vanish.
    fn value(&mut self, values: &mut Rng) {
        self.bytes.extend_from_slice(format!("${VALUE_BYTES}\r\n").as_bytes());
        for _ in 0..VALUE_BYTES / 8 {
            self.bytes.extend_from_slice(&values.next_u64().to_le_bytes());
        }
        self.bytes.extend_from_slice(b"\r\n");
    }

    fn set_keys(&mut self, mut key: impl FnMut() -> u32) {
        for &at in &self.keys {
            let mut rest = key();
            for digit in self.bytes[at..at + DIGITS].iter_mut().rev() {
                *digit = b'0' + (rest % 10).to_le_bytes()[0];
                rest /= 10;
            }
        }
    }
}

/// The result of one run of a load.
#[derive(Debug, Default)]
pub struct Run {
    /// Commands answered.
    pub operations: u64,
    /// Time from sending a batch to reading its last answer, for each batch, in the order of their answers.
    pub batch_ns: Vec<u64>,
}

/// Connections to one server.
#[derive(Debug)]
pub struct Load {
    connections: Vec<Connection>,
    keys: u32,
    /// Used by all connections in turn.
    buffer: Vec<u8>,
}

#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    replies: Replies,
    sent: Option<Instant>,
}

impl Connection {
    fn open(port: u16) -> Result<Connection> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))
            .with_context(|| format!("connect to the server at port {port}"))?;
        stream.set_nodelay(true).context("set TCP_NODELAY")?;
        stream.set_read_timeout(Some(PATIENCE)).context("set a time limit on reading")?;
        stream.set_write_timeout(Some(PATIENCE)).context("set a time limit on writing")?;
        Ok(Connection { stream, replies: Replies::default(), sent: None })
    }

    fn send(&mut self, batch: &Batch, now: Instant) -> Result<()> {
        self.stream.write_all(&batch.bytes).context("send commands to the server")?;
        self.sent = Some(now);
        Ok(())
    }

    /// Reads all answers to a batch.
    fn receive(&mut self, batch: &Batch, buffer: &mut [u8]) -> Result<()> {
        while self.replies.tally.replies < PIPELINE {
            let read = self.stream.read(buffer).context("wait for the server's answers")?;
            ensure!(read > 0, "the server hung up");
            self.replies.feed(&buffer[..read])?;
        }
        let tally = self.replies.take();
        ensure!(tally.replies == PIPELINE, "{} answers to {PIPELINE} commands", tally.replies);
        ensure!(tally.misses == 0, "{} of the keys asked for were not there", tally.misses);
        let (got, asked) = (tally.value_bytes, batch.asked_bytes);
        ensure!(got == asked, "values of {got} bytes where {asked} were asked for");
        Ok(())
    }
}

impl Load {
    /// Connects to a server that will hold this many keys.
    pub fn connect(port: u16, keys: u32) -> Result<Load> {
        ensure!(0 < keys && keys < 10_u32.pow(8), "{keys} keys do not fit {DIGITS} digits");
        let connections = (0..CONNECTIONS).map(|_| Connection::open(port)).collect::<Result<_>>()?;
        Ok(Load { connections, keys, buffer: vec![0; READ_BYTES] })
    }

    /// Sets every key, in order, and calls `tell` with the number of keys set from time to time.
    pub fn fill(&mut self, seed: u64, mut tell: impl FnMut(u32)) -> Result<Run> {
        let (mut next, last) = (0, self.keys - 1);
        let batch = Batch::filling(&mut Rng::new(seed));
        self.pump(batch, |batch, _| {
            if next > last {
                return false;
            }
            // A last batch that is not full sets the last key again.
            batch.set_keys(|| {
                next += 1;
                (next - 1).min(last)
            });
            tell(next.min(last + 1));
            true
        })
    }

    /// Gets and sets keys for this long. The same seed makes the same commands.
    pub fn run(&mut self, seed: u64, length: Duration) -> Result<Run> {
        let mut gaussian = Gaussian::new(seed, self.keys);
        let batch = Batch::mixed(&mut Rng::new(!seed));
        let end = Instant::now() + length;
        self.pump(batch, |batch, now| {
            batch.set_keys(|| gaussian.key());
            now < end
        })
    }

    /// Sends batches on all connections in turn while `prepare` returns true. Then waits for the last answers.
    fn pump(&mut self, mut batch: Batch, mut prepare: impl FnMut(&mut Batch, Instant) -> bool) -> Result<Run> {
        let mut run = Run::default();
        let (mut sending, mut under_way) = (true, 0);
        while sending || under_way > 0 {
            for connection in &mut self.connections {
                if let Some(sent) = connection.sent.take() {
                    connection.receive(&batch, &mut self.buffer)?;
                    run.batch_ns.push(u64::try_from(sent.elapsed().as_nanos()).unwrap_or(u64::MAX));
                    run.operations += PIPELINE as u64;
                    under_way -= 1;
                }
                let now = Instant::now();
                sending = sending && prepare(&mut batch, now);
                if sending {
                    connection.send(&batch, now)?;
                    under_way += 1;
                }
            }
        }
        Ok(run)
    }
}

/// Sends one command of a few words, on a separate connection. Returns the raw answer, with its protocol marks.
pub fn ask(port: u16, words: &str) -> Result<String> {
    let mut connection = Connection::open(port)?;
    let asking = || format!("ask the server {words:?}");
    connection.stream.write_all(format!("{words}\r\n").as_bytes()).with_context(asking)?;
    let (mut answer, mut buffer) = (Vec::new(), [0; 4096]);
    while connection.replies.tally.replies == 0 {
        let read = connection.stream.read(&mut buffer).with_context(asking)?;
        ensure!(read > 0, "the server hung up when asked {words:?}");
        connection.replies.feed(&buffer[..read]).with_context(asking)?;
        answer.extend_from_slice(&buffer[..read]);
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::net::TcpListener;

    /// All kinds of answers; the second value looks like answers itself.
    const ANSWERS: &[u8] = b"+OK\r\n$5\r\nhello\r\n$-1\r\n$6\r\n\r\n-ERR\r\n:12\r\n$0\r\n\r\n+OK\r\n";
    const TALLY: Tally = Tally { replies: 7, misses: 1, value_bytes: 11 };

    #[test]
    fn answers_are_counted_however_they_are_cut() {
        for cut in 0..=ANSWERS.len() {
            let mut replies = Replies::default();
            replies.feed(&ANSWERS[..cut]).unwrap();
            replies.feed(&ANSWERS[cut..]).unwrap();
            assert_eq!(replies.take(), TALLY, "cut at {cut}");
        }
        let mut replies = Replies::default();
        ANSWERS.chunks(1).for_each(|byte| replies.feed(byte).unwrap());
        assert_eq!(replies.take(), TALLY);
        assert_eq!(replies.take(), Tally::default(), "taken before");
    }

    #[test]
    fn an_answer_counts_when_it_is_whole() {
        let mut replies = Replies::default();
        replies.feed(b"$5\r\nhello\r").unwrap();
        assert_eq!(replies.tally.replies, 0);
        replies.feed(b"\n").unwrap();
        assert_eq!(replies.tally.replies, 1);
    }

    #[test]
    fn what_is_wrong_is_said() {
        let error = |bytes: &[u8]| Replies::default().feed(bytes).unwrap_err().to_string();
        assert_eq!(
            error(b"-OOM command not allowed\r\n"),
            "the server answered with an error: OOM command not allowed"
        );
        assert!(error(b"hello\r\n").starts_with("no answer begins so"));
        assert!(error(b"$x\r\n").starts_with("not a length"));
        assert!(error(b"$-2\r\n").starts_with("not a length"));
        assert!(error(b"+OK\n").starts_with("no answer ends so"));
        assert!(error(&[b'+'; LONGEST_LINE + 1]).starts_with("an answer without a line end"));
    }

    #[test]
    fn keys_are_normally_distributed() {
        let mut gaussian = Gaussian::new(42, 3_000_000);
        let keys: Vec<f64> = (0..100_000).map(|_| f64::from(gaussian.key())).collect();
        let mean = keys.iter().sum::<f64>() / keys.len() as f64;
        let deviation = (keys.iter().map(|k| (k - mean).powi(2)).sum::<f64>() / keys.len() as f64).sqrt();
        assert!((mean - 2_000_000.0).abs() < 2_000.0, "mean {mean}");
        assert!((deviation - 150_000.0).abs() < 1_500.0, "deviation {deviation}");
        let within = keys.iter().filter(|k| (**k - 2_000_000.0).abs() < 150_000.0).count() as f64;
        assert!((within / keys.len() as f64 - 0.6827).abs() < 0.01, "{within} within one deviation");
    }

    #[test]
    fn keys_stay_in_the_range() {
        let mut gaussian = Gaussian { mean: 5.0, deviation: 100.0, ..Gaussian::new(1, 10) };
        let keys: Vec<u32> = (0..1000).map(|_| gaussian.key()).collect();
        assert!(keys.contains(&0) && keys.contains(&9) && keys.iter().all(|k| *k < 10));
    }

    #[test]
    fn batches_hold_the_keys_they_are_given() {
        let mut batch = Batch::mixed(&mut Rng::new(1));
        for first in [0, 12_345_600] {
            let mut next = first;
            batch.set_keys(|| {
                next += 1;
                next
            });
            for i in 0..u32::try_from(PIPELINE).unwrap() {
                let key = format!("key:{:08}\r\n", first + i + 1);
                assert!(batch.bytes.windows(key.len()).any(|w| w == key.as_bytes()), "{key}");
            }
        }
        assert_eq!(batch.asked_bytes, PIPELINE / 2 * VALUE_BYTES);
    }

    /// Answers GET and SET as Redis does, on as many connections as a load has, until they are closed. Returns the keys set.
    fn serve(listener: &TcpListener) -> Vec<String> {
        let open = |_| listener.accept().unwrap().0;
        let threads: Vec<_> = (0..CONNECTIONS).map(open).map(|s| std::thread::spawn(|| serve_one(s))).collect();
        threads.into_iter().flat_map(|t| t.join().unwrap()).collect()
    }

    fn serve_one(stream: TcpStream) -> Vec<String> {
        let mut stream = BufReader::new(stream);
        let mut set = Vec::new();
        loop {
            let mut line = || {
                let mut line = String::new();
                stream.read_line(&mut line).unwrap();
                line.trim_end().to_owned()
            };
            let [words, _, command, _, key] = [line(), line(), line(), line(), line()];
            match (words.as_str(), command.as_str()) {
                ("", _) => return set,
                ("*3", "SET") => {
                    assert_eq!(line(), format!("${VALUE_BYTES}"));
                    stream.read_exact(&mut [0; VALUE_BYTES + 2]).unwrap();
                    set.push(key);
                    stream.get_mut().write_all(b"+OK\r\n").unwrap();
                }
                ("*2", "GET") => {
                    let value = format!("${VALUE_BYTES}\r\n{}\r\n", "v".repeat(VALUE_BYTES));
                    stream.get_mut().write_all(value.as_bytes()).unwrap();
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn a_load_sets_every_key_and_counts_what_it_asks() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || serve(&listener));
        let mut load = Load::connect(port, 1000).unwrap();
        let mut told = 0;
        let filled = load.fill(1, |keys| told = keys).unwrap();
        // 31 full batches and one of 8 keys.
        assert_eq!((filled.operations, filled.batch_ns.len(), told), (1024, 32, 1000));
        let run = load.run(2, Duration::from_millis(20)).unwrap();
        assert!(run.operations > 0 && run.operations == (run.batch_ns.len() * PIPELINE) as u64, "{run:?}");
        drop(load);
        let mut set = server.join().unwrap();
        assert_eq!(set.len() as u64, filled.operations + run.operations / 2, "half of a load is SET");
        set.sort();
        set.dedup();
        assert_eq!(set.len(), 1000);
        assert_eq!((set[0].as_str(), set[999].as_str()), ("key:00000000", "key:00000999"));
    }
}
