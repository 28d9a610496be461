//! A progress bar that appears on a terminal after two seconds of work, and the flag that ends the work.

use crate::output;
use crate::stop::Stop;
use indicatif::{ProgressBar, ProgressDrawTarget};
use isotherm_placement::progress::Progress;
use std::time::{Duration, Instant};

pub struct Late<'a> {
    what: &'a str,
    stop: &'a Stop,
    bar: ProgressBar,
    began: Instant,
}

impl Late<'_> {
    pub fn new<'a>(what: &'a str, stop: &'a Stop) -> Late<'a> {
        Late { what, stop, bar: ProgressBar::hidden(), began: Instant::now() }
    }
}

impl Progress for Late<'_> {
    fn begin(&mut self, steps: u64) {
        self.bar = output::counting(steps, self.what);
        self.bar.set_draw_target(ProgressDrawTarget::hidden());
        self.began = Instant::now();
    }

    fn step(&mut self) {
        if self.bar.is_hidden() && self.began.elapsed() > Duration::from_secs(2) {
            // Draws nothing where standard error is no terminal.
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.inc(1);
    }

    fn end(&mut self) {
        self.bar.finish_and_clear();
    }

    fn is_stopped(&self) -> bool {
        self.stop.is_set()
    }
}
