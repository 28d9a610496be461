//! A child process whose accesses are known: a copy of the test program that touches its pages as told.
//!
//! A test program that uses it has one test that calls [`serve`], which does nothing unless it is such a child.

use isotherm_sys::clock;
use isotherm_sys::memory::{Memory, PageSize};
use isotherm_units::{Addr, AddrRange, PMD_SIZE, PmdNo};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

const CHILD: &str = "ISOTHERM_TOUCHER";
/// The test that calls [`serve`].
const TEST: &str = "child_touches_as_told";

/// Says that something was not tested, and why. `make test` counts these lines.
pub fn skip(why: &str) {
    // Not `eprintln!`, which the test harness swallows.
    let _ = std::io::stderr().write_all(format!("skipped: needs {why}\n").as_bytes());
}

/// What memory a child has.
#[derive(Clone, Copy, Debug)]
pub struct Has {
    /// 2 MiB each.
    pub pmds: u64,
    /// On huge pages.
    pub huge: bool,
    /// Touched once before anything else.
    pub populated: bool,
}

/// A child that touches pages as told.
pub struct Toucher {
    process: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    pmds: u64,
    first: PmdNo,
}

impl Toucher {
    pub fn start(has: Has) -> Toucher {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", TEST, "--nocapture", "--test-threads=1"])
            .env(CHILD, format!("{} {} {}", has.pmds, u8::from(has.huge), u8::from(has.populated)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let orders = process.stdin.take().unwrap();
        let answers = BufReader::new(process.stdout.take().unwrap());
        let mut toucher = Toucher { process, orders, answers, pmds: has.pmds, first: PmdNo(0) };
        toucher.first = PmdNo(toucher.answer());
        toucher
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    pub fn pmds(&self) -> Vec<PmdNo> {
        (0..self.pmds).map(|i| PmdNo(self.first.0 + i)).collect()
    }

    pub fn range(&self) -> AddrRange {
        let start = self.first.addr();
        AddrRange::new(start, Addr(start.0 + self.pmds * PMD_SIZE))
    }

    /// The number after the next `answer`: the harness prints lines of its own.
    pub fn answer(&mut self) -> u64 {
        loop {
            let mut line = String::new();
            assert!(self.answers.read_line(&mut line).unwrap() > 0, "the child has ended");
            if let Some((_, number)) = line.split_once("answer ") {
                return number.trim().parse().unwrap();
            }
        }
    }

    /// Orders one of these, and waits for the answer:
    /// - `touch FIRST COUNT`: writes to pages once; the answer is how many
    /// - `drop FIRST COUNT`: gives pages back
    /// - `refault FIRST COUNT MS`: gives pages back and writes to them all the time, at the end the latter; the answer is how often
    /// - `fault MS`: faults pages elsewhere all the time; the answer is how many
    /// - `spin FIRST COUNT THREADS`: from now on, threads write to pages at random
    /// - `threads COUNT`: starts threads that do nothing; the answer is how many there are
    pub fn order(&mut self, order: &str) -> u64 {
        self.begin(order);
        self.answer()
    }

    pub fn begin(&mut self, order: &str) {
        writeln!(self.orders, "{order}").unwrap();
    }
}

impl Drop for Toucher {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The other side of [`Toucher`]; nothing in a process that is no such child.
pub fn serve() {
    let Ok(has) = std::env::var(CHILD) else { return };
    let has: Vec<u64> = has.split(' ').map(|word| word.parse().unwrap()).collect();
    let size = if has[1] == 1 { PageSize::Huge } else { PageSize::Small };
    let memory = Arc::new(Memory::anonymous(has[0] * PMD_SIZE, size).unwrap());
    if has[2] == 1 {
        memory.populate();
    }
    println!("answer {}", memory.range().start.pmd().0);
    let scratch = Memory::anonymous(PMD_SIZE, PageSize::Small).unwrap();
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |i: usize| words[i].parse::<usize>().unwrap();
        let answer = match words[0] {
            "touch" => {
                (number(1)..number(1) + number(2)).for_each(|page| memory.write(page));
                number(2) as u64
            }
            "drop" => {
                memory.discard(number(1), number(2));
                0
            }
            "refault" => refault(&memory, number(1), number(2), Duration::from_millis(number(3) as u64)),
            "fault" => fault(&scratch, Duration::from_millis(number(1) as u64)),
            "spin" => {
                for seed in 1..=number(3) {
                    let (memory, first, count) = (Arc::clone(&memory), number(1), number(2));
                    std::thread::spawn(move || spin(&memory, first, count, seed as u64));
                }
                0
            }
            "threads" => threads(number(1)),
            other => panic!("{other}"),
        };
        println!("answer {answer}");
    }
}

/// Faults pages for some time.
fn fault(scratch: &Memory, time: Duration) -> u64 {
    let began = clock::monotonic_ns();
    let mut faults = 0;
    while u128::from(clock::monotonic_ns() - began) < time.as_nanos() {
        (0..scratch.pages()).for_each(|page| scratch.write(page));
        scratch.discard(0, scratch.pages());
        faults += scratch.pages() as u64;
    }
    faults
}

/// Gives pages back and writes to them for some time.
fn refault(memory: &Memory, first: usize, count: usize, time: Duration) -> u64 {
    let began = clock::monotonic_ns();
    let mut rounds = 0;
    while u128::from(clock::monotonic_ns() - began) < time.as_nanos() {
        memory.discard(first, count);
        (first..first + count).for_each(|page| memory.write(page));
        rounds += 1;
    }
    rounds
}

/// Starts threads that do nothing until the process ends.
fn threads(count: usize) -> u64 {
    let start = |_: &usize| {
        let idle = || loop {
            std::thread::park();
        };
        std::thread::Builder::new().stack_size(16 << 10).spawn(idle).is_ok()
    };
    (0..count).take_while(start).count() as u64
}

/// Writes to pages at random until the process ends.
fn spin(memory: &Memory, first: usize, count: usize, seed: u64) {
    let mut rng = isotherm_heat::Rng::new(seed);
    loop {
        memory.write(first + usize::try_from(rng.below(count as u64)).unwrap());
    }
}
