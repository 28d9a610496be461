//! What a reader of any report has to know and the figures do not show: guests whose accesses are not seen, and
//! accessed bits that another program has cleared.
//!
//! Built from the snapshots of a report and shown with every report, so that none of them can omit it.

use super::target::title;
use crate::text::{TextStyle, write_wrapped};
use isotherm_heat::{Snapshot, TargetId};
use serde::Serialize;
use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Processes named in a sentence; the others are counted.
const MAX_NAMED: usize = 3;

/// A process that a caveat applies to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Concerned {
    /// Process id.
    pub pid: u32,
    /// Command name.
    pub comm: String,
}

/// The caveats of a report; see the module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Caveats {
    /// Processes that run a KVM guest: accesses of the guest are not seen.
    pub guests: Vec<Concerned>,
    /// Processes whose accessed bits another program cleared too: fewer accesses were found than there were.
    pub cleared_by_others: Vec<Concerned>,
}

/// The caveats of snapshots that are seen one after the other.
#[derive(Clone, Debug, Default)]
pub struct CaveatsOf {
    guests: Names,
    cleared_by_others: Names,
}

/// Each process once, with the name that it had last.
type Names = BTreeMap<TargetId, String>;

impl CaveatsOf {
    /// Adds those of a snapshot.
    pub fn add(&mut self, snapshot: &Snapshot) {
        for target in &snapshot.targets {
            let facts = &target.facts;
            let all = [
                (facts.runs_guest, &mut self.guests),
                (facts.cleared_by_others_pages > 0, &mut self.cleared_by_others),
            ];
            for (_, names) in all.into_iter().filter(|(is_so, _)| *is_so) {
                names.insert(target.id, target.comm.clone());
            }
        }
    }

    /// All of them.
    pub fn caveats(self) -> Caveats {
        let concerned = |names: Names| names.into_iter().map(|(id, comm)| Concerned { pid: id.pid, comm }).collect();
        Caveats { guests: concerned(self.guests), cleared_by_others: concerned(self.cleared_by_others) }
    }
}

impl Caveats {
    /// The caveats of these snapshots.
    pub fn of<S: Borrow<Snapshot>>(snapshots: &[S]) -> Caveats {
        let mut seen = CaveatsOf::default();
        snapshots.iter().for_each(|snapshot| seen.add(snapshot.borrow()));
        seen.caveats()
    }

    /// Whether there are no caveats.
    pub fn is_empty(&self) -> bool {
        self.guests.is_empty() && self.cleared_by_others.is_empty()
    }

    /// One sentence each, printable.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if !self.guests.is_empty() {
            let names = names(&self.guests);
            lines.push(format!(
                "KVM: accesses by the guests of {names} are not seen: the guest's memory appears idle and may not be"
            ));
        }
        if !self.cleared_by_others.is_empty() {
            let names = names(&self.cleared_by_others);
            lines.push(format!(
                "another program cleared accessed bits of {names} too (another monitor, the kernel's DAMON, reclaim, or \
                 MADV_FREE): less access was found than there was"
            ));
        }
        lines
    }

    /// Writes the sentences.
    pub fn write_text(&self, out: &mut dyn Write, style: TextStyle) -> io::Result<()> {
        self.lines().iter().try_for_each(|line| write_wrapped(out, line, style))
    }
}

fn names(of: &[Concerned]) -> String {
    let named: Vec<String> = of.iter().take(MAX_NAMED).map(|c| title(Some(c.pid), &c.comm, false)).collect();
    match of.len().saturating_sub(MAX_NAMED) {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{snapshot, target};

    #[test]
    fn each_process_is_named_once_whichever_snapshot_says_it_of_it() {
        let of = |pid, comm: &str, guest, cleared| {
            let mut target = target(pid, comm, "", vec![], vec![]);
            (target.facts.runs_guest, target.facts.cleared_by_others_pages) = (guest, cleared);
            target
        };
        let snapshots = [
            snapshot(1, vec![of(1, "qemu", true, 0), of(2, "db\u{1b}", false, 300), of(3, "x", false, 0)]),
            snapshot(2, vec![of(1, "qemu-kvm", true, 0), of(2, "db\u{1b}", false, 0)]),
        ];
        let caveats = Caveats::of(&snapshots);
        assert_eq!(caveats.guests, [Concerned { pid: 1, comm: "qemu-kvm".into() }]);
        let lines = caveats.lines();
        assert!(lines[0].contains("accesses by the guests of 1 qemu-kvm are not seen"), "{lines:?}");
        assert!(lines[1].contains("of 2 db") && !lines[1].contains('\u{1b}'), "{lines:?}");
        assert!(Caveats::of(&snapshots[1..]).cleared_by_others.is_empty());
        let many: Vec<_> = (1..=9).map(|pid| of(pid, "q", true, 0)).collect();
        assert!(Caveats::of(&[snapshot(1, many)]).lines()[0].contains("3 q and 6 more"));
    }
}
