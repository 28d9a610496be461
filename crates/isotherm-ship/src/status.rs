//! What `isotherm-ship --status` prints: what waits, what was sent and dropped, and the last error.
//!
//! A running shipper writes `status.json` to its spool. What waits is counted from the files themselves, and what was sent and dropped is
//! in `counts.json`, so most of it is known when none runs, too. Reading takes no lock.

use crate::clock::Skew;
use crate::spool::{Contents, Counts};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::path::Path;
use std::{fs, io};

/// The file in the spool.
pub const FILE: &str = "status.json";

/// Something that went wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    /// When, nanoseconds since the epoch.
    pub at_unix_ns: u64,
    /// What was attempted, and what came of it.
    pub what: String,
}

/// What a running shipper says of itself. Times are nanoseconds since the epoch, 0: never.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// Process id.
    pub pid: u32,
    /// When this was written.
    pub at_unix_ns: u64,
    /// The store.
    pub to: String,
    /// Why no monitor is connected; `None`: one is.
    pub monitor_trouble: Option<String>,
    /// Since when that is so.
    pub monitor_since_unix_ns: u64,
    /// The end of the last snapshot.
    pub last_snapshot_unix_ns: u64,
    /// The end of the last batch of rows that was kept.
    pub last_batch_end_unix_ns: u64,
    /// Snapshots that the monitor could not send, because this program was slow.
    pub lost_snapshots: u64,
    /// When an object was last sent.
    pub last_sent_unix_ns: u64,
    /// Puts that failed.
    pub failed_puts: u64,
    /// Those of them since the last that succeeded.
    pub failures_in_a_row: u32,
    /// When the next object is due.
    pub next_try_unix_ns: Option<u64>,
    /// The last error.
    pub last_error: Option<Trouble>,
    /// How the wall clock went.
    pub clock: Skew,
}

impl Status {
    /// Replaces the file. It may be lost with the power.
    pub fn write(&self, spool: &Path) -> io::Result<()> {
        let beside = spool.join("status.json.new");
        fs::write(&beside, serde_json::to_vec(self)?)?;
        fs::rename(beside, spool.join(FILE))
    }
}

/// All that is known of a spool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// A shipper uses it.
    pub running: bool,
    /// What waits.
    pub waiting: Contents,
    /// What became of objects, since the spool was made.
    pub counts: Counts,
    /// What the shipper that runs, or ran last, says.
    pub shipper: Option<Status>,
}

impl Report {
    /// Reads a spool, which may be in use.
    pub fn read(spool: &Path) -> io::Result<Report> {
        let shipper = match fs::read(spool.join(FILE)) {
            Ok(bytes) => serde_json::from_slice(&bytes).ok(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let (waiting, counts) = (Contents::read(spool)?, Counts::in_spool(spool)?.unwrap_or_default());
        Ok(Report { running: crate::spool::is_in_use(spool)?, waiting, counts, shipper })
    }

    /// The end of the last rows that were kept, in the spool or beyond, nanoseconds since the epoch.
    pub fn covered_until_unix_ns(&self) -> u64 {
        self.waiting.covered_until_unix_ns.max(self.counts.covered_until_unix_ns)
    }

    /// A few lines for people. `now_unix_ns` is the present.
    pub fn text(&self, now_unix_ns: u64) -> String {
        let ago =
            |at: u64| if at == 0 { "never".into() } else { format!("{} ago", age(now_unix_ns.saturating_sub(at))) };
        let (waiting, counts) = (&self.waiting, &self.counts);
        let mut out = String::new();
        let mut line = |name: &str, text: String| {
            let _ = writeln!(out, "{name:<9}{text}");
        };
        let shipper = self.shipper.as_ref();
        let running = if self.running { "yes" } else { "no" };
        let to = shipper.map_or(String::new(), |shipper| format!(", to {}", shipper.to));
        line("running", format!("{running}{to}"));
        if let Some(Status { monitor_trouble: Some(why), .. }) = shipper.filter(|_| self.running) {
            line("monitor", why.clone());
        }
        let open = format!("{} batches of {} open hours", waiting.batches, waiting.open_hours);
        line("waiting", format!("{} objects, {open}, {} in all", waiting.objects, size(waiting.bytes)));
        let last = shipper.map_or(String::new(), |shipper| format!(", the last {}", ago(shipper.last_sent_unix_ns)));
        line("sent", format!("{} objects, {}{last}", counts.sent_objects, size(counts.sent_bytes)));
        line(
            "dropped",
            format!(
                "{} objects, {}, and {} batches",
                counts.dropped_objects,
                size(counts.dropped_bytes),
                counts.dropped_batches
            ),
        );
        if let Some(shipper) = shipper {
            if let Some(trouble) = &shipper.last_error {
                line("error", format!("{}, {}", trouble.what, ago(trouble.at_unix_ns)));
            }
            if shipper.clock.steps > 0 {
                line(
                    "clock",
                    format!("set {} times, last {}", shipper.clock.steps, ago(shipper.clock.last_step_unix_ns)),
                );
            }
        }
        out
    }
}

fn age(ns: u64) -> String {
    match ns / 1_000_000_000 {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3600),
    }
}

fn size(bytes: u64) -> String {
    bytesize::ByteSize(bytes).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_for_people() {
        let now = 1_800_000_000_000_000_000;
        let report = Report {
            running: true,
            waiting: Contents { objects: 14, open_hours: 1, batches: 3, bytes: 2048, ..Contents::default() },
            counts: Counts {
                sent_objects: 7,
                sent_bytes: 1024,
                dropped_objects: 1,
                dropped_bytes: 512,
                ..Counts::default()
            },
            shipper: Some(Status {
                to: "s3://bucket/heat".into(),
                monitor_trouble: Some("the monitor has ended".into()),
                last_sent_unix_ns: now - 90_000_000_000,
                last_error: Some(Trouble { at_unix_ns: now - 7_200_000_000_000, what: "put v1/x: 503".into() }),
                ..Status::default()
            }),
        };
        let expected = "running  yes, to s3://bucket/heat
monitor  the monitor has ended
waiting  14 objects, 3 batches of 1 open hours, 2.0 KiB in all
sent     7 objects, 1.0 KiB, the last 90 s ago
dropped  1 objects, 512 B, and 0 batches
error    put v1/x: 503, 2 h ago
";
        assert_eq!(report.text(now), expected);
    }

    #[test]
    fn a_folder_that_is_no_spool_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Report::read(&dir.path().join("none")).is_err());
        assert!(Report::read(dir.path()).is_err());
    }
}
