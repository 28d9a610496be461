//! What was done to which huge range, in the form in which it is kept for `isotherm undo`: a line of JSON for each act.
//!
//! Page-outs are not in it: a page that left comes back when it is accessed. Of several acts on a huge range the first says what was
//! there before. An act that has failed, or that has brought back what was there before, is followed by a line that says so. Where the
//! lines are kept, and when they are synced, is up to the caller.

use isotherm_heat::TargetId;
use isotherm_units::{Addr, PmdNo};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
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
    /// What was there before is there again.
    Back,
}

impl Act {
    /// What brings back what was there before.
    pub fn undone_by(self) -> Act {
        match self {
            Act::Collapse => Act::Split,
            Act::Split => Act::Collapse,
            Act::Back => Act::Back,
        }
    }
}

/// One act.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// The process.
    pub process: TargetId,
    /// Where the code of its program lies: another program may run in its place later.
    pub image: Option<(u64, u64)>,
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
    image: Option<(u64, u64)>,
    address: String,
    act: Act,
}

impl Entry {
    /// As a line, after a newline: the line before may have been cut off.
    pub fn line(&self) -> String {
        let TargetId { pid, start_ticks } = self.process;
        let address = format!("{:x}", self.pmd.addr().0);
        let line = Line { pid, start_ticks, image: self.image, address, act: self.act };
        serde_json::to_string(&line).map_or_else(|_| String::new(), |line| "\n".to_owned() + &line)
    }

    fn of_line(text: &str) -> Option<Entry> {
        let Line { pid, start_ticks, image, address, act } = serde_json::from_str(text).ok()?;
        let address = Addr(u64::from_str_radix(&address, 16).ok()?);
        Some(Entry { process: TargetId { pid, start_ticks }, image, pmd: address.pmd(), act })
    }

    /// The huge range, for which entries are alike.
    pub fn range(&self) -> (TargetId, PmdNo) {
        (self.process, self.pmd)
    }
}

/// Reads lines. What is no entry is skipped: a crash may have cut one off, and it was not acted on then.
pub fn parse(text: &str) -> Vec<Entry> {
    text.lines().filter_map(Entry::of_line).collect()
}

/// What is to be undone: for each huge range that is not as before, the first act on it, in the order in which they were done.
pub fn first_acts(entries: &[Entry]) -> Vec<Entry> {
    let mut first: BTreeMap<(TargetId, PmdNo), (usize, Entry)> = BTreeMap::new();
    for (number, entry) in entries.iter().enumerate() {
        if entry.act == Act::Back {
            first.remove(&entry.range());
        } else {
            first.entry(entry.range()).or_insert((number, *entry));
        }
    }
    let mut acts: Vec<(usize, Entry)> = first.into_values().collect();
    acts.sort_unstable_by_key(|(number, _)| *number);
    acts.into_iter().map(|(_, entry)| entry).collect()
}

/// Where acts are noted.
pub trait Journal: fmt::Debug + Send {
    /// Notes an act right before it is done. It is on disk when this returns.
    fn begin(&mut self, entry: Entry) -> io::Result<()>;
    /// Notes whether it was done. That may get lost.
    fn end(&mut self, entry: Entry, is_done: bool);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(pmd: u64, act: Act) -> Entry {
        Entry { process: TargetId { pid: 812, start_ticks: 9 }, image: Some((1, 2)), pmd: PmdNo(pmd), act }
    }

    #[test]
    fn a_line_is_read_back_and_others_are_skipped() {
        let all = [entry(3, Act::Collapse), entry(1 << 26, Act::Split)];
        let text: String = all.iter().map(Entry::line).collect();
        let line = r#"{"pid":812,"start_ticks":9,"image":[1,2],"address":"600000","act":"collapse"}"#;
        assert_eq!(text.lines().nth(1), Some(line));
        assert_eq!(parse(&format!("{text}\nnonsense\n{{\"pid\":8")), all);
        // Cut off in the middle, and written to again.
        assert_eq!(parse(&(text[..text.len() - 9].to_owned() + &all[1].line())), all);
        assert_eq!(parse(&line.replace("collapse", "migrate")), [], "of a later version");
    }

    #[test]
    fn the_first_act_says_what_was_there_before() {
        let acts = [entry(2, Act::Split), entry(1, Act::Collapse), entry(2, Act::Collapse), entry(1, Act::Split)];
        assert_eq!(first_acts(&acts), acts[..2]);
        assert_eq!((Act::Split.undone_by(), Act::Collapse.undone_by()), (Act::Collapse, Act::Split));
        // A probe that was collapsed again, and is collapsed for its heat later on.
        let acts = [entry(2, Act::Split), entry(2, Act::Back), entry(1, Act::Split), entry(2, Act::Collapse)];
        assert_eq!(first_acts(&acts), acts[2..]);
    }
}
