//! What has happened between two snapshots, as sentences: processes that came and went, and what actions wait for.

use crate::output;
use isotherm_heat::{Snapshot, TargetId};
use isotherm_schemes::state::{Status, TargetStatus};
use isotherm_stream::EventRow;
use isotherm_view::human;
use std::collections::{BTreeMap, BTreeSet};

/// Most events that one snapshot has.
const MAX_EVENTS: usize = 200;

/// What was known at the last snapshot.
#[derive(Debug, Default)]
pub struct Changes {
    targets: BTreeMap<TargetId, String>,
    /// Why nothing is done to a process at the moment, by pid.
    held: BTreeMap<u32, BTreeSet<String>>,
}

impl Changes {
    /// What has happened since the last call. `refused` has why processes cannot be watched, by pid: some of them may be watched no longer.
    pub fn since(
        &mut self,
        snapshot: &Snapshot,
        status: Option<&Status>,
        refused: &BTreeMap<u32, String>,
    ) -> Vec<EventRow> {
        let mut events = Vec::new();
        let mut add = |text: String| events.push(EventRow { at_unix_ns: snapshot.end_unix_ns, text });
        let now: BTreeMap<TargetId, String> = snapshot.alive().map(|t| (t.id, human::printable(&t.comm))).collect();
        for (id, comm) in now.iter().filter(|(id, _)| !self.targets.contains_key(id)) {
            add(format!("process {} ({comm}) is watched", id.pid));
        }
        for (id, comm) in self.targets.iter().filter(|(id, _)| !now.contains_key(id)) {
            match refused.get(&id.pid) {
                Some(why) => add(format!("process {} ({comm}) is no longer watched: {why}", id.pid)),
                None => add(format!("process {} ({comm}) has ended", id.pid)),
            }
        }
        self.targets = now;
        let held: BTreeMap<u32, BTreeSet<String>> =
            status.map(|status| status.targets.iter().map(|t| (t.pid, held(t))).collect()).unwrap_or_default();
        for (pid, now) in &held {
            let before = self.held.get(pid).cloned().unwrap_or_default();
            now.difference(&before).for_each(|why| add(format!("process {pid}: {why}")));
            before.difference(now).for_each(|why| add(format!("process {pid}: no longer: {why}")));
        }
        self.held = held;
        events.drain(..events.len().saturating_sub(MAX_EVENTS));
        events
    }
}

/// Why nothing is done to a process at the moment.
fn held(target: &TargetStatus) -> BTreeSet<String> {
    let page_out =
        target.page_out.as_ref().and_then(|out| out.stays).map(|why| format!("page-out pauses: {}", why.text()));
    let demote =
        target.migrate.as_ref().and_then(|moved| moved.stays).map(|why| format!("demotion pauses: {}", why.text()));
    let split =
        target.split.as_ref().and_then(|split| split.stays).map(|why| format!("splitting pauses: {}", why.text()));
    let alone = target.left_alone.as_ref().map(|why| format!("nothing is done to it: {}", output::json_name(why)));
    let fork = target.paused_for.map(|pid| format!("actions wait for its fork {pid}"));
    let cgroup =
        target.cgroup_wait.as_ref().map(|why| format!("actions wait for its cgroup: {}", output::json_name(why)));
    [page_out, demote, split, alone, fork, cgroup].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::snapshot;

    fn status(stays: &str) -> Status {
        let text =
            format!(r#"{{"version": "1", "pid": 1, "targets": [{{"pid": 7, "page_out": {{"stays": {stays}}}}}]}}"#);
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn what_changes_is_said_once() {
        let (mut changes, none) = (Changes::default(), BTreeMap::new());
        let texts = |events: Vec<EventRow>| events.into_iter().map(|e| (e.at_unix_ns, e.text)).collect::<Vec<_>>();
        let first = changes.since(&snapshot(&[7], 1), Some(&status("null")), &none);
        assert_eq!(texts(first), [(1, "process 7 (db) is watched".to_owned())]);
        let paused = "page-out pauses: too much has come back";
        let both = changes.since(&snapshot(&[7], 2), Some(&status("\"refaults\"")), &none);
        assert_eq!(texts(both), [(2, format!("process 7: {paused}"))]);
        assert_eq!(changes.since(&snapshot(&[7], 3), Some(&status("\"refaults\"")), &none), []);
        let gone = changes.since(&snapshot(&[8], 4), Some(&status("null")), &none);
        let expected = [
            "process 8 (db) is watched".to_owned(),
            "process 7 (db) has ended".to_owned(),
            format!("process 7: no longer: {paused}"),
        ];
        assert_eq!(texts(gone), expected.map(|text| (4, text)));
        let refused = BTreeMap::from([(8, "not permitted".to_owned())]);
        let dropped = changes.since(&snapshot(&[], 5), None, &refused);
        assert_eq!(
            texts(dropped),
            [(5, "process 8 (db) is no longer watched: not permitted".to_owned())],
            "it is alive"
        );
        let many: Vec<u32> = (100..600).collect();
        assert_eq!(changes.since(&snapshot(&many, 5), None, &none).len(), MAX_EVENTS);
    }
}
