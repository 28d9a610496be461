//! The live view over synthetic snapshots, ten a second. The argument `panic` makes the source panic after a while.

use isotherm_view::top::{TopOptions, run_top};
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

#[path = "support/sample.rs"]
#[allow(dead_code, missing_docs, reason = "shared with tests, which use other parts")]
mod sample;

fn main() -> io::Result<()> {
    let panics = std::env::args().nth(1).is_some_and(|a| a == "panic");
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for (count, snapshot) in sample::series(600).into_iter().enumerate() {
            assert!(!(panics && count == 20), "asked to panic");
            if sender.send(Arc::new(snapshot)).is_err() {
                return;
            }
            thread::sleep(Duration::from_millis(100));
        }
    });
    run_top(sample::run_info(), TopOptions::default(), &receiver, &AtomicBool::new(false))
}
