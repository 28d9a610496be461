//! `make faults`: plays faults on real processes, and prints what held. Not part of `make test`: it takes some ten minutes.
//!
//! Each fault is played while `isotherm record` watches two processes: the one that the fault happens to, and one that nothing happens to,
//! of which no snapshot may be missing. What must hold is asserted by the case itself; the recorder's exit code, its recording, its file
//! descriptors and its memory are checked for all of them ([`watch`]). A case that a machine cannot play says what it needs.
//!
//! `cargo test --test faults -- NAME...` plays those whose names contain one of the words.

#[path = "../support/mod.rs"]
#[macro_use]
mod support;

mod calls;
mod clients;
mod monitors;
mod stall;
mod targets;
mod watch;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Instant;
use watch::Tally;

/// One fault, or one at several moments.
#[derive(Debug)]
pub struct Fault {
    /// What happens.
    pub name: &'static str,
    /// What must hold.
    pub holds: &'static str,
    /// Plays it. `Err`: what the machine lacks for it.
    pub play: fn() -> Result<Tally, &'static str>,
}

/// What became of a fault.
enum Outcome {
    Held(Tally),
    NotHeld(String),
    Skipped(&'static str),
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let faults = [targets::FAULTS, monitors::FAULTS, clients::FAULTS].concat_with(calls::faults());
    let wanted = |name: &str| words.is_empty() || words.iter().any(|word| name.contains(word.as_str()));
    let (mut sum, mut played, mut not_held) = (Tally::default(), 0, 0);
    println!("{:<52} {:>5} {:<9} what had to hold", "fault", "times", "");
    for fault in faults.iter().filter(|fault| wanted(fault.name)) {
        let began = Instant::now();
        let (word, tally, why) = match outcome(fault) {
            Outcome::Held(tally) => ("held", tally, None),
            Outcome::NotHeld(why) => ("NOT HELD", Tally::default(), Some(why)),
            Outcome::Skipped(needs) => {
                support::skip(&format!("{needs} (fault: {})", fault.name));
                continue;
            }
        };
        let seconds = began.elapsed().as_secs();
        println!("{:<52} {:>5} {word:<9} {} ({seconds} s)", fault.name, tally.times.max(1), fault.holds);
        if tally.lost_snapshots + tally.leaked_fds > 0 {
            println!("    {} snapshots lost, {} descriptors leaked", tally.lost_snapshots, tally.leaked_fds);
        }
        if let Some(why) = why {
            println!("{}", why.lines().map(|line| format!("    {line}\n")).collect::<String>());
            not_held += 1;
        }
        played += 1;
        sum = sum.and(tally);
    }
    let stall_ms = if wanted("stall") { stall::worst_ms() } else { f64::NAN };
    println!(
        "RESULT faults={played} not_held={not_held} lost_snapshots={} leaked_fds={} rss_growth_kib={} worst_target_stall_ms={stall_ms:.3}",
        sum.lost_snapshots, sum.leaked_fds, sum.rss_growth_kib
    );
    let bad = not_held > 0 || sum.lost_snapshots > 0 || sum.leaked_fds > 0;
    if bad { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn outcome(fault: &Fault) -> Outcome {
    match catch_unwind(AssertUnwindSafe(fault.play)) {
        Ok(Ok(tally)) => Outcome::Held(tally),
        Ok(Err(needs)) => Outcome::Skipped(needs),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            Outcome::NotHeld(text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned())).unwrap_or_default())
        }
    }
}

/// Several lists of faults as one.
trait ConcatWith {
    fn concat_with(self, more: Vec<Fault>) -> Vec<Fault>;
}

impl<const N: usize> ConcatWith for [&'static [Fault]; N] {
    fn concat_with(self, more: Vec<Fault>) -> Vec<Fault> {
        let listed = self.into_iter().flatten().map(|f| Fault { name: f.name, holds: f.holds, play: f.play });
        listed.chain(more).collect()
    }
}
