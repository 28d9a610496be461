//! What we have set up, on disk, for the process that has to clean up after us.

use super::Error;
use super::settings::{NR_KDAMONDS, NR_SCHEMES, Plan, TARGETS};
use super::sysfs::Tree;
use crate::proc::{Identity, Proc};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// How far the setup has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Files are being written. Each holds the value we want, or its initial value, or does not exist yet.
    Writing,
    /// All files are written. A thread may have been started that is not in the record yet.
    Starting,
    /// The record is exact.
    Settled,
}

const STAGES: [(Stage, &str); 3] =
    [(Stage::Writing, "writing"), (Stage::Starting, "starting"), (Stage::Settled, "settled")];

/// What files hold when the kernel has just made them.
const FRESH: [&str; 7] = ["0", "10", "1000", "5000", "100000", "60000000", "vaddr"];

const HEAD: &str = "isotherm damon 1";

/// The record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// The boot it belongs to: nothing of ours survives a reboot.
    pub boot: String,
    /// The process that made the setup.
    pub owner: Identity,
    /// The kernel thread that was started.
    pub thread: Option<Identity>,
    pub stage: Stage,
    /// Files and their contents.
    pub plan: Plan,
}

impl Record {
    fn text(&self) -> String {
        let stage = STAGES.iter().find(|(s, _)| *s == self.stage).map_or("", |(_, name)| name);
        let mut text = format!("{HEAD}\nboot {}\nowner {} {}\n", self.boot, self.owner.pid, self.owner.start_ticks);
        if let Some(thread) = self.thread {
            text += &format!("thread {} {}\n", thread.pid, thread.start_ticks);
        }
        text += &format!("stage {stage}\n");
        for (file, value) in &self.plan {
            text += &format!("set {file} {value}\n");
        }
        text + "end\n"
    }

    /// `None` if it is incomplete or of another version: then nothing can be identified as ours.
    fn parse(text: &str) -> Option<Record> {
        let body = text.strip_prefix(HEAD)?.strip_prefix('\n')?.strip_suffix("end\n")?;
        let (mut boot, mut owner, mut thread, mut stage, mut plan) = (None, None, None, None, Plan::new());
        for line in body.lines() {
            let (key, rest) = line.split_once(' ')?;
            match key {
                "boot" => boot = Some(rest.to_owned()),
                "owner" => owner = Some(identity(rest)?),
                "thread" => thread = Some(identity(rest)?),
                "stage" => stage = Some(STAGES.iter().find(|(_, name)| *name == rest)?.0),
                "set" => {
                    let (file, value) = rest.split_once(' ')?;
                    plan.push((file.to_owned(), value.to_owned()));
                }
                _ => return None,
            }
        }
        Some(Record { boot: boot?, owner: owner?, thread, stage: stage?, plan })
    }

    /// Whether sysfs shows what this record describes.
    pub(super) fn describes(&self, tree: &Tree, proc: &Proc) -> Result<bool, Error> {
        if self.boot != boot_id(proc) {
            return Ok(false);
        }
        if let Some(pid) = tree.thread()?
            && !self.started(pid, proc)
        {
            return Ok(false);
        }
        for (file, value) in &self.plan {
            // While targets are written, the previous ones may still be there.
            if self.stage == Stage::Writing && file.starts_with(TARGETS) {
                continue;
            }
            let found = tree.read_tree(file)?;
            let fresh = || found.as_deref().is_none_or(|text| FRESH.contains(&text));
            let matches_record = found.as_deref() == Some(value) || (self.stage == Stage::Writing && fresh());
            if !matches_record {
                return Ok(false);
            }
        }
        // We set up one kdamond at most, and never schemes, which would change memory.
        let one = tree.read_tree(NR_KDAMONDS)?.as_deref() == Some("1");
        Ok(one && tree.read_tree(NR_SCHEMES)?.is_none_or(|n| n == "0"))
    }

    /// Whether the thread `pid` is the one that we started.
    fn started(&self, pid: u32, proc: &Proc) -> bool {
        let Ok(now) = proc.identity(pid) else {
            // Not visible from this pid namespace: compare the pid only.
            return self.thread.is_some_and(|thread| thread.pid == pid);
        };
        match self.thread {
            Some(thread) => thread == now,
            // We were killed before the record was updated. All files must match it, and the thread cannot be older
            // than its owner.
            None => self.stage == Stage::Starting && now.start_ticks >= self.owner.start_ticks,
        }
    }
}

fn identity(text: &str) -> Option<Identity> {
    let (pid, start_ticks) = text.split_once(' ')?;
    Some(Identity { pid: pid.parse().ok()?, start_ticks: start_ticks.parse().ok()? })
}

/// Different after each boot; empty if the kernel does not report it.
pub(super) fn boot_id(proc: &Proc) -> String {
    fs::read_to_string(proc.root().join("sys/kernel/random/boot_id")).unwrap_or_default().trim().to_owned()
}

/// The file of the record.
#[derive(Debug)]
pub(super) struct RecordFile(PathBuf);

impl RecordFile {
    pub(super) fn new(state: &Path) -> RecordFile {
        RecordFile(state.join("damon.state"))
    }

    /// The record; `None` if there is none that can be parsed.
    pub(super) fn read(&self) -> Option<Record> {
        Record::parse(&fs::read_to_string(&self.0).ok()?)
    }

    /// Replaces the previous record atomically.
    pub(super) fn write(&self, record: &Record) -> Result<(), Error> {
        let part = self.0.with_extension("part");
        let failed =
            |e| Error::from_io(format!("write {}, which is needed to clean up after a crash", self.0.display()), e);
        fs::write(&part, record.text()).map_err(failed)?;
        fs::rename(&part, &self.0).map_err(failed)
    }

    pub(super) fn remove(&self) -> Result<(), Error> {
        match fs::remove_file(&self.0) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                Err(Error::from_io(format!("remove {}", self.0.display()), e))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_reads_back_as_written_or_not_at_all() {
        let mut record = Record {
            boot: "5a-7".into(),
            owner: Identity { pid: 7, start_ticks: 900 },
            thread: None,
            stage: Stage::Writing,
            plan: vec![("nr_kdamonds".into(), "1".into()), ("0/contexts/0/operations".into(), "vaddr".into())],
        };
        assert_eq!(Record::parse(&record.text()).as_ref(), Some(&record));
        record.thread = Some(Identity { pid: 99, start_ticks: 1000 });
        record.stage = Stage::Settled;
        let text = record.text();
        assert_eq!(Record::parse(&text), Some(record));
        for len in 0..text.len() {
            assert_eq!(Record::parse(&text[..len]), None, "cut at {len}");
        }
    }
}
