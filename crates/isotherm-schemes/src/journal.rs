//! What was done to which huge range, in the form in which it is kept for `isotherm undo`: a line of JSON for each act.
//!
//! Page-outs are not in it: a page that left comes back when it is accessed. Of several acts on a huge range the first says what was
//! there before. Where the lines are kept, and when they are synced, is up to the caller.

use isotherm_heat::TargetId;
use isotherm_units::{Addr, PmdNo};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::io;

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Act {
    /// Small pages became a huge page.
    Collapse,
    /// A huge page became small pages.
    Split,
}

impl Act {
    /// What brings back what was there before.
    pub fn undone_by(self) -> Act {
        match self {
            Act::Collapse => Act::Split,
            Act::Split => Act::Collapse,
        }
    }
}

/// One act.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// The process.
    pub process: TargetId,
    /// The huge range.
    pub pmd: PmdNo,
    /// What was done.
    pub act: Act,
}

/// Its line.
#[derive(Serialize, Deserialize)]
struct Line {
    pid: u32,
    start_ticks: u64,
    address: String,
    act: Act,
}

impl Entry {
    /// As a line, with its newline.
    pub fn line(&self) -> String {
        let TargetId { pid, start_ticks } = self.process;
        let line = Line { pid, start_ticks, address: format!("{:x}", self.pmd.addr().0), act: self.act };
        serde_json::to_string(&line).map_or_else(|_| String::new(), |line| line + "\n")
    }

    fn of_line(text: &str) -> Option<Entry> {
        let Line { pid, start_ticks, address, act } = serde_json::from_str(text).ok()?;
        let address = Addr(u64::from_str_radix(&address, 16).ok()?);
        Some(Entry { process: TargetId { pid, start_ticks }, pmd: address.pmd(), act })
    }
}

/// Reads lines. What is no entry is skipped: a crash may have cut one off, and it was not acted on then.
pub fn parse(text: &str) -> Vec<Entry> {
    text.lines().filter_map(Entry::of_line).collect()
}

/// For each huge range, the first act on it, in the order in which they were done.
pub fn first_acts(entries: &[Entry]) -> Vec<Entry> {
    let mut seen = BTreeSet::new();
    entries.iter().filter(|entry| seen.insert((entry.process, entry.pmd))).copied().collect()
}

/// Where acts are noted, right before they are done.
pub trait Journal: fmt::Debug + Send {
    /// Notes an act. It is on disk when this returns.
    fn note(&mut self, entry: Entry) -> io::Result<()>;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(pmd: u64, act: Act) -> Entry {
        Entry { process: TargetId { pid: 812, start_ticks: 9 }, pmd: PmdNo(pmd), act }
    }

    #[test]
    fn a_line_is_read_back_and_others_are_skipped() {
        let all = [entry(3, Act::Collapse), entry(1 << 26, Act::Split)];
        let text: String = all.iter().map(Entry::line).collect();
        assert_eq!(text.lines().next(), Some(r#"{"pid":812,"start_ticks":9,"address":"600000","act":"collapse"}"#));
        assert_eq!(parse(&format!("{text}\nnonsense\n{{\"pid\":8")), all);
        let other = r#"{"pid":812,"start_ticks":9,"address":"600000","act":"migrate"}"#;
        assert_eq!(parse(other), [], "of a later version");
    }

    #[test]
    fn the_first_act_says_what_was_there_before() {
        let acts = [entry(2, Act::Split), entry(1, Act::Collapse), entry(2, Act::Collapse), entry(1, Act::Split)];
        assert_eq!(first_acts(&acts), acts[..2]);
        assert_eq!((Act::Split.undone_by(), Act::Collapse.undone_by()), (Act::Collapse, Act::Split));
    }
}
