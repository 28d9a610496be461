//! Recorders that are killed with SIGKILL. They are this same test program, started again with the variable below set.

use crate::{place, samples};
use isotherm_record::{Options, Recording, Writer};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const PATH: &str = "ISOTHERM_TEST_RECORD_TO";
const BEFORE_FINISH: u64 = 40;

/// Each snapshot is a segment; the number of those kept goes to standard output, after the fact.
fn write(path: &str, count: u64) -> Writer {
    let options = Options { flush_interval: Duration::ZERO, ..Options::default() };
    let mut writer = Writer::create(path, &samples::run(), options).unwrap();
    for i in 0..count {
        writer.push(&samples::snapshot(i)).unwrap();
        // Around the capture of test output; one write for a line, so that none is torn.
        std::io::stdout().lock().write_all(format!("kept {}\n", writer.kept()).as_bytes()).unwrap();
    }
    writer
}

#[test]
#[ignore = "the recorder that other tests kill"]
fn endless_writer() {
    if let Ok(path) = std::env::var(PATH) {
        write(&path, 100_000);
    }
}

#[test]
#[ignore = "the recorder that other tests kill"]
fn finishing_writer() {
    if let Ok(path) = std::env::var(PATH) {
        write(&path, BEFORE_FINISH).finish().unwrap();
    }
}

struct Recorder {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Recorder {
    fn start(test: &str, path: &Path) -> Recorder {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--ignored", "--nocapture", "--test-threads=1"])
            .env(PATH, path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Recorder { child, output }
    }

    /// Waits until it says that `count` are kept.
    fn wait_for(&mut self, count: u64) {
        let mut line = String::new();
        while kept(&line) < count {
            line.clear();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the recorder ended before {count}");
        }
    }

    /// Kills it. How many it said last were kept.
    fn kill(mut self) -> u64 {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        rest.lines().map(kept).max().unwrap_or(0)
    }
}

fn kept(line: &str) -> u64 {
    line.trim_end().rsplit_once("kept ").and_then(|(_, n)| n.parse().ok()).unwrap_or(0)
}

#[test]
fn a_killed_recorder_leaves_all_that_it_said_was_kept() {
    for round in 0..12_u64 {
        let (_parent, path) = place();
        let mut recorder = Recorder::start("kill::endless_writer", &path);
        let seen = 1 + round * 2;
        recorder.wait_for(seen);
        std::thread::sleep(Duration::from_micros(round * 977));
        let said = recorder.kill().max(seen);
        let recording = Recording::open(&path).unwrap();
        let found = recording.read_all().unwrap();
        let count = found.len() as u64;
        // One more may be in place than it came to say.
        assert!(count == said || count == said + 1, "{count} found, {said} said");
        assert_eq!(found, samples::snapshots(count));
        assert!(recording.notes()[0].contains("did not finish"), "{:?}", recording.notes());
        println!("killed after {said}: {count} open; {:?}", recording.notes());
    }
}

#[test]
fn a_recorder_killed_while_it_finishes_leaves_each_snapshot_once() {
    for round in 0..16_u64 {
        let (_parent, path) = place();
        let mut recorder = Recorder::start("kill::finishing_writer", &path);
        recorder.wait_for(BEFORE_FINISH);
        std::thread::sleep(Duration::from_micros(round * 3000));
        recorder.kill();
        let recording = Recording::open(&path).unwrap();
        assert_eq!(recording.read_all().unwrap(), samples::snapshots(BEFORE_FINISH));
        println!("killed {} us into finish: {:?}; {:?}", round * 3000, crate::names(&path).len(), recording.notes());
    }
}
