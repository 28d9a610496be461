//! The live view over synthetic snapshots, ten a second.
//!
//! The argument `panic` makes the source panic after two seconds, `stop` sets the stop flag then, as a signal handler would.

use isotherm_view::top::{TopOptions, run_top};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

#[path = "support/sample.rs"]
#[allow(dead_code, missing_docs, reason = "shared with tests, which use other parts")]
mod sample;

static STOP: AtomicBool = AtomicBool::new(false);

fn main() -> io::Result<()> {
    let argument = std::env::args().nth(1).unwrap_or_default();
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for (count, snapshot) in sample::series(600).into_iter().enumerate() {
            match argument.as_str() {
                "panic" => assert!(count < 20, "asked to panic"),
                "stop" => STOP.store(count >= 20, Ordering::Relaxed),
                _ => {}
            }
            if sender.send(Arc::new(snapshot)).is_err() {
                return;
            }
            thread::sleep(Duration::from_millis(100));
        }
    });
    run_top(sample::run_info(), TopOptions::default(), &receiver, &STOP)
}
