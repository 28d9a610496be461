//! Our kdamond: claim it, start it, change its targets, stop it, release it.

use super::lock::Lock;
use super::record::{Record, RecordFile, Stage, boot_id};
use super::settings::{
    AVAILABLE, Attributes, GOAL, NR_CONTEXTS, NR_KDAMONDS, Operations, Plan, STATE, Target, plan_of_attributes,
    plan_of_targets,
};
use super::sysfs::{Files, Sysfs, Tree};
use super::{Error, Places, Usage};
use crate::proc::{Identity, Proc};

/// Whether a claim can succeed. Only reads. The error reports what the kernel lacks, or who uses DAMON. State left by a
/// killed Isotherm is no error here: only a claim can find out whose it is now.
pub fn available(places: &Places) -> Result<(), Error> {
    available_in(&Tree::new(Box::new(Files::below(&places.roots.sys)), &places.roots.sys), places)
}

fn available_in(tree: &Tree, places: &Places) -> Result<(), Error> {
    if tree.kdamonds()?.is_none() {
        return Err(Error::Absent {
            missing: format!("DAMON that can be set up in sysfs ({})", tree.path.display()),
            advice: "use one with CONFIG_DAMON=y and CONFIG_DAMON_SYSFS=y".into(),
        });
    }
    let users = Usage::read_tree(&places.roots);
    if users.in_use() == Some(true) && RecordFile::new(&places.state).read().is_none() {
        return Err(Error::InUse { by: users.users() });
    }
    Ok(())
}

/// DAMON, claimed until dropped. The drop restores sysfs.
#[derive(Debug)]
pub struct Kdamond {
    tree: Tree,
    proc: Proc,
    file: RecordFile,
    record: Record,
    /// Files that are written before the targets.
    attributes: Plan,
    targets: Vec<Target>,
    tunes: bool,
    claimed: bool,
    /// The last field, so that the lock is released only after everything is undone.
    _lock: Lock,
}

impl Kdamond {
    /// Makes sure that nobody else uses DAMON, cleans up after an Isotherm that was killed, and sets up one kdamond
    /// without starting it. On failure nothing is changed.
    pub fn claim(places: &Places, operations: Operations, attributes: &Attributes) -> Result<Kdamond, Error> {
        Kdamond::claim_in(Box::new(Files::below(&places.roots.sys)), places, operations, attributes)
    }

    pub(super) fn claim_in(
        files: Box<dyn Sysfs>,
        places: &Places,
        operations: Operations,
        attributes: &Attributes,
    ) -> Result<Kdamond, Error> {
        attributes.check()?;
        let tree = Tree::new(files, &places.roots.sys);
        let proc = Proc::at(&places.roots.proc);
        available_in(&tree, places)?;
        let file = RecordFile::new(&places.state);
        let lock = Lock::take(&places.state)
            .map_err(|e| Error::from_io(format!("take the lock in {}", places.state.display()), e))?;
        let Some(lock) = lock else { return Err(Error::InUse { by: other_isotherm(&file) }) };
        clean_up_after_the_dead(&tree, &proc, &file)?;
        let users = Usage::read_tree(&places.roots);
        if users.in_use() == Some(true) {
            return Err(Error::InUse { by: users.users() });
        }
        let record = Record {
            boot: boot_id(&proc),
            owner: ourselves(&proc),
            thread: None,
            stage: Stage::Writing,
            plan: Plan::new(),
        };
        let mut kdamond = Kdamond {
            tree,
            proc,
            file,
            record,
            attributes: Plan::new(),
            targets: Vec::new(),
            tunes: false,
            claimed: true,
            _lock: lock,
        };
        // On failure it is dropped, which undoes what was done so far.
        kdamond.set_up(operations, attributes)?;
        Ok(kdamond)
    }

    fn set_up(&mut self, operations: Operations, attributes: &Attributes) -> Result<(), Error> {
        let one = |file: &str| (file.to_owned(), "1".to_owned());
        self.record.plan = vec![one(NR_KDAMONDS), one(NR_CONTEXTS)];
        self.file.write(&self.record)?;
        write_all(&self.tree, &self.record.plan)?;
        let available = self.tree.read_tree(AVAILABLE)?.unwrap_or_default();
        if !available.split_whitespace().any(|word| word == operations.keyword()) {
            return Err(Error::Absent {
                missing: format!("DAMON operations {}", operations.keyword()),
                advice: format!("use one with {}=y", operations.option()),
            });
        }
        self.tunes = attributes.goal.is_some() && self.tree.read_tree(GOAL)?.is_some();
        let plan = plan_of_attributes(operations, attributes, self.tunes);
        self.attributes = std::mem::take(&mut self.record.plan);
        self.attributes.extend(plan);
        self.write_plan(&[])
    }

    /// Whether the kernel tunes the intervals. They then differ from the intervals that were asked for.
    pub fn tunes(&self) -> bool {
        self.tunes
    }

    /// The targets last written to the kernel, in order. Reports identify a target by its index here.
    pub fn targets(&self) -> &[Target] {
        &self.targets
    }

    /// The kernel thread, while it runs. It ends by itself once all targets have ended.
    pub fn thread(&self) -> Option<u32> {
        let running = self.tree.thread().ok()??;
        self.record.thread.filter(|thread| thread.pid == running).map(|thread| thread.pid)
    }

    /// Starts to monitor `targets`; returns the kernel thread. A running thread is stopped first, and its regions are
    /// lost.
    pub fn start(&mut self, targets: &[Target]) -> Result<u32, Error> {
        self.stop()?;
        self.write_plan(targets)?;
        self.advance(Stage::Starting)?;
        self.order("on", targets)?;
        let Some(pid) = self.tree.thread()? else {
            // All targets have ended already.
            self.advance(Stage::Settled)?;
            return Err(Error::Refused { targets: names(targets) });
        };
        self.record.thread = Some(self.proc.identity(pid).unwrap_or(Identity { pid, start_ticks: 0 }));
        self.advance(Stage::Settled)?;
        Ok(pid)
    }

    /// Adds targets to those that are monitored; the others keep their regions. All targets must be alive. Waits for
    /// the kernel to apply the change, for up to one aggregation interval.
    ///
    /// The kernel identifies targets by index only. If one were removed, others would inherit its regions, so a removal
    /// needs a new start. Intervals that the kernel has tuned restart at their initial values.
    pub fn add(&mut self, targets: &[Target]) -> Result<(), Error> {
        if !self.still_ours()? {
            return Err(Error::Taken { path: self.tree.path.clone() });
        }
        let all = [&self.targets, targets].concat();
        self.write_plan(&all)?;
        self.order("commit", &all)?;
        // If a target has ended, kernels accept the write and end the thread (6.12).
        if self.thread().is_some() { Ok(()) } else { Err(Error::Refused { targets: names(&all) }) }
    }

    /// Stops monitoring. DAMON stays claimed.
    pub fn stop(&mut self) -> Result<(), Error> {
        if !self.still_ours()? {
            return Err(Error::Taken { path: self.tree.path.clone() });
        }
        if self.thread().is_some() {
            match self.tree.try_write(STATE, "off") {
                Err(_) if self.thread().is_none() => {}
                Err(e) => return Err(Error::from_io("stop DAMON".into(), e)),
                Ok(()) => {}
            }
        }
        self.record.thread = None;
        Ok(())
    }

    /// Stops and releases DAMON, and restores sysfs. A drop does the same, but cannot report a failure.
    pub fn release(mut self) -> Result<(), Error> {
        self.give_back()
    }

    fn give_back(&mut self) -> Result<(), Error> {
        if !std::mem::take(&mut self.claimed) {
            return Ok(());
        }
        let ours = self.still_ours()?;
        if ours {
            self.tree.clear()?;
        }
        self.file.remove()?;
        // No kdamonds at all is success too: somebody else has cleaned up.
        if ours || self.tree.kdamonds()? == Some(0) {
            Ok(())
        } else {
            Err(Error::Taken { path: self.tree.path.clone() })
        }
    }

    fn still_ours(&self) -> Result<bool, Error> {
        self.record.describes(&self.tree, &self.proc)
    }

    /// Writes all files from the targets on. The record is written first.
    fn write_plan(&mut self, targets: &[Target]) -> Result<(), Error> {
        // The files written only once: writing a count of directories discards what is in them.
        let (made, rest) = self.attributes.split_at(2.min(self.attributes.len()));
        let new = plan_of_targets(targets);
        self.record.plan = [made, rest, &new].concat();
        self.advance(Stage::Writing)?;
        write_all(&self.tree, &self.record.plan[2.min(self.record.plan.len())..])?;
        self.targets = targets.to_vec();
        self.advance(Stage::Settled)
    }

    fn advance(&mut self, stage: Stage) -> Result<(), Error> {
        self.record.stage = stage;
        self.file.write(&self.record)
    }

    fn order(&self, word: &str, targets: &[Target]) -> Result<(), Error> {
        self.tree.try_write(STATE, word).map_err(|e| match e.raw_os_error() {
            Some(libc::EINVAL | libc::ESRCH) => Error::Refused { targets: names(targets) },
            _ => Error::from_io(format!("write {word} to {}", self.tree.path.join(STATE).display()), e),
        })
    }

    /// As if we had been killed.
    #[cfg(test)]
    pub(super) fn crash(mut self) {
        self.claimed = false;
    }
}

impl Drop for Kdamond {
    fn drop(&mut self) {
        // What cannot be undone now is in the record, for the next start.
        let _ = self.give_back();
    }
}

fn write_all(tree: &Tree, plan: &[(String, String)]) -> Result<(), Error> {
    plan.iter().try_for_each(|(file, value)| tree.write(file, value))
}

fn ourselves(proc: &Proc) -> Identity {
    let pid = std::process::id();
    proc.identity(pid).unwrap_or(Identity { pid, start_ticks: 0 })
}

fn other_isotherm(file: &RecordFile) -> String {
    file.read().map_or("another Isotherm".into(), |record| format!("another Isotherm (process {})", record.owner.pid))
}

/// Cleans up after an owner that ended without doing so. We hold the lock, so no other Isotherm is at work.
fn clean_up_after_the_dead(tree: &Tree, proc: &Proc, file: &RecordFile) -> Result<(), Error> {
    let Some(record) = file.read() else { return Ok(()) };
    if record.describes(tree, proc)? {
        tree.clear()?;
    }
    // The record no longer describes sysfs: anything there now belongs to somebody else.
    file.remove()
}

fn names(targets: &[Target]) -> String {
    const SHOWN: usize = 8;
    let mut pids: Vec<String> = targets.iter().filter_map(|t| t.pid).take(SHOWN).map(|pid| pid.to_string()).collect();
    if targets.len() > SHOWN {
        pids.push("...".into());
    }
    if pids.is_empty() { "physical memory".into() } else { format!("process {}", pids.join(", ")) }
}
