//! Sends rollups of a host to an object store.
//!
//! The monitor has privileges and speaks to nobody. This program has none: it reads snapshots from the monitor's Unix socket
//! (`isotherm-stream`), makes rows of five minutes of them (`isotherm-rollup`), keeps those in a folder until their hour is over, and puts
//! one object for each table and hour into a store. It is a crate of its own so that nothing else compiles the clients of stores.
//!
//! ```text
//! monitor --socket--> feed --> shipper --> store: a folder, S3, GCS, Azure
//!                               |   plan: what is sent when
//!                               +-> spool: what waits, on disk
//! ```
//!
//! | module | |
//! |---|---|
//! | [`args`] | the command line |
//! | `run` | opens everything, confines the process, and waits |
//! | `feed` | reads the stream, in a thread of its own |
//! | `host` | which host this is |
//! | [`rows`] | rows of snapshots, and objects of rows |
//! | [`thin`] | joins snapshots that follow each other closely |
//! | [`shipper`] | what happens when a snapshot comes, time passes, or an object was sent |
//! | [`plan`] | what is sent when; pure |
//! | [`spool`] | what waits, on disk; outlasts crashes at any point |
//! | [`store`] | one operation: create an object if there is none of its name |
//! | [`status`] | what `--status` prints |
//! | [`clock`] | both clocks, and where they disagree |
//! | `fault` | points at which tests kill the program |
//!
//! What has happened is defined by files. A batch of rows is kept when it is synced; an object is ready when its folder has its name; it
//! is sent when the store has said that it has it, and leaves the spool then. Between two of these steps a crash repeats the second one,
//! which finds that the store has the object already.

#![forbid(unsafe_code)]

pub mod args;
pub mod clock;
mod fault;
mod feed;
mod host;
pub mod plan;
pub mod rows;
mod run;
pub mod shipper;
pub mod spool;
pub mod status;
pub mod store;
pub mod thin;

use anyhow::{Context, Result, bail};
use args::Args;
use sha2::{Digest as _, Sha256};
use std::io::{self, Write as _};

/// The name of this program in its messages.
pub const PROGRAM: &str = "isotherm-ship";

/// Does what the command line asks for.
pub fn run(args: &Args) -> Result<()> {
    if let Some(spool) = &args.status {
        let report = status::Report::read(spool).with_context(|| format!("read the spool {}", spool.display()))?;
        return print(&if args.json {
            serde_json::to_string(&report)? + "\n"
        } else {
            report.text(clock::now().wall_ns)
        });
    }
    if let Some(what) = args.print {
        return print(&String::from_utf8_lossy(&what.bytes()?));
    }
    match (&args.spool, &args.to) {
        (Some(spool), Some(to)) => run::ship(args, spool, to),
        _ => bail!("give --spool and --to"),
    }
}

/// A reader that has gone is no failure.
fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error).context("print"),
        _ => Ok(()),
    }
}

/// A hash whose bits are all alike good: phases and offsets are made of it.
pub fn hash(bytes: &[u8]) -> u64 {
    let digest = Sha256::digest(bytes);
    digest.first_chunk().map_or(0, |first| u64::from_le_bytes(*first))
}
