//! What the live view shows, and how snapshots and keys change it. Pure.
//!
//! The selection follows the process or cgroup, not the row, so that it stays on it when rows change places. While the
//! view is paused, snapshots are still added to the history, but the display does not change. The history has a maximum
//! number of snapshots.

use super::keys::{Action, Command, Key, command_of};
use crate::heatmap::Scale;
use crate::tables::{CgroupReport, CgroupRow, ProcessReport, ProcessRow};
use isotherm_heat::{RunInfo, Snapshot, TargetId, Thresholds};
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::Arc;

/// Initial settings of the live view.
#[derive(Clone, Copy, Debug)]
pub struct TopOptions {
    /// Bounds of the classes.
    pub thresholds: Thresholds,
    /// What the colours of a heat map show at first.
    pub scale: Scale,
    /// Number of snapshots kept for the history of a heat map.
    pub history: usize,
}

impl Default for TopOptions {
    fn default() -> TopOptions {
        TopOptions { thresholds: Thresholds::default(), scale: Scale::default(), history: 300 }
    }
}

/// The contents of the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// Processes.
    Processes,
    /// Cgroups.
    Cgroups,
    /// The heat map of one process.
    Map(TargetId),
}

/// The order of processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SortColumn {
    /// Most hot memory first.
    Hot,
    /// Most resident memory first.
    Resident,
    /// Most idle memory first.
    Idle,
    /// By pid.
    Pid,
    /// By command name.
    Name,
}

impl SortColumn {
    /// Its name in the header.
    pub fn label(self) -> &'static str {
        match self {
            SortColumn::Hot => "hot",
            SortColumn::Resident => "resident",
            SortColumn::Idle => "idle",
            SortColumn::Pid => "pid",
            SortColumn::Name => "name",
        }
    }

    fn next(self) -> SortColumn {
        match self {
            SortColumn::Hot => SortColumn::Resident,
            SortColumn::Resident => SortColumn::Idle,
            SortColumn::Idle => SortColumn::Pid,
            SortColumn::Pid => SortColumn::Name,
            SortColumn::Name => SortColumn::Hot,
        }
    }
}

/// Everything that the live view shows.
#[derive(Debug)]
pub struct TopState {
    pub(super) run: RunInfo,
    pub(super) options: TopOptions,
    pub(super) view: View,
    pub(super) sort: SortColumn,
    pub(super) filter: String,
    /// Whether the filter is being typed.
    pub(super) typing: bool,
    /// Show only processes in this cgroup and below.
    pub(super) within: Option<String>,
    pub(super) paused: bool,
    pub(super) help: bool,
    pub(super) ended: bool,
    pub(super) shown: Option<Arc<Snapshot>>,
    pub(super) history: VecDeque<Arc<Snapshot>>,
    pub(super) processes: Vec<(TargetId, ProcessRow)>,
    pub(super) cgroups: Vec<CgroupRow>,
    selected_process: Option<TargetId>,
    selected_cgroup: Option<String>,
}

impl TopState {
    /// A view without snapshots yet.
    pub fn new(run: RunInfo, options: TopOptions) -> TopState {
        TopState {
            run,
            options,
            view: View::Processes,
            sort: SortColumn::Hot,
            filter: String::new(),
            typing: false,
            within: None,
            paused: false,
            help: false,
            ended: false,
            shown: None,
            history: VecDeque::new(),
            processes: Vec::new(),
            cgroups: Vec::new(),
            selected_process: None,
            selected_cgroup: None,
        }
    }

    /// The contents of the screen.
    pub fn view(&self) -> View {
        self.view
    }

    /// Adds a snapshot.
    pub fn update(&mut self, snapshot: Arc<Snapshot>) {
        self.history.push_back(snapshot);
        while self.history.len() > self.options.history.max(1) {
            self.history.pop_front();
        }
        if !self.paused {
            self.show_latest();
        }
    }

    /// Notes that there will be no more snapshots.
    pub fn source_ended(&mut self) {
        self.ended = true;
    }

    /// Executes a key.
    pub fn on_key(&mut self, key: Key) -> Action {
        if self.typing && key != Key::CtrlC {
            self.type_filter(key);
            return Action::Continue;
        }
        match command_of(key) {
            Some(Command::Quit) => return Action::Quit,
            Some(Command::Back) => return self.back(),
            Some(Command::Help) => self.help = !self.help,
            Some(command) => self.obey(command),
            None => {}
        }
        Action::Continue
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Move(by) => self.move_selection(by),
            Command::SwitchView => {
                self.view = if self.view == View::Processes { View::Cgroups } else { View::Processes };
            }
            Command::Open => self.open(),
            Command::NextSort => {
                self.sort = self.sort.next();
                self.rebuild();
            }
            Command::NextScale => self.options.scale = self.options.scale.next(),
            Command::Filter => {
                self.typing = true;
                self.help = false;
            }
            Command::Pause => {
                self.paused = !self.paused;
                if !self.paused {
                    self.show_latest();
                }
            }
            Command::Quit | Command::Back | Command::Help => {}
        }
    }

    /// Closes the topmost item: help, map, filter, cgroup, and finally the session.
    fn back(&mut self) -> Action {
        if self.help {
            self.help = false;
        } else if matches!(self.view, View::Map(_)) {
            self.view = View::Processes;
        } else if !self.filter.is_empty() {
            self.filter.clear();
            self.rebuild();
        } else if self.within.take().is_some() {
            self.view = View::Cgroups;
            self.rebuild();
        } else {
            return Action::Quit;
        }
        Action::Continue
    }

    fn type_filter(&mut self, key: Key) {
        match key {
            Key::Char(c) => self.filter.push(c),
            Key::Backspace => drop(self.filter.pop()),
            Key::Enter => self.typing = false,
            Key::Esc => {
                self.filter.clear();
                self.typing = false;
            }
            _ => {}
        }
        self.rebuild();
    }

    fn open(&mut self) {
        match self.view {
            View::Processes => {
                if let Some((id, _)) = self.selected().and_then(|at| self.processes.get(at)) {
                    self.view = View::Map(*id);
                }
            }
            View::Cgroups => {
                self.within = self.selected().and_then(|at| self.cgroups.get(at)).map(|c| c.path.clone());
                self.view = View::Processes;
                self.rebuild();
            }
            View::Map(_) => {}
        }
    }

    fn show_latest(&mut self) {
        self.shown = self.history.back().cloned();
        self.rebuild();
    }

    /// The selected row of the visible list, if there is one.
    pub(super) fn selected(&self) -> Option<usize> {
        let (found, rows) = match self.view {
            View::Cgroups => {
                let at = self.selected_cgroup.as_ref().and_then(|s| self.cgroups.iter().position(|c| c.path == *s));
                (at, self.cgroups.len())
            }
            _ => {
                let at = self.selected_process.and_then(|s| self.processes.iter().position(|(id, _)| *id == s));
                (at, self.processes.len())
            }
        };
        (rows > 0).then(|| found.unwrap_or(0))
    }

    fn move_selection(&mut self, by: isize) {
        let Some(at) = self.selected() else { return };
        let to = at.saturating_add_signed(by);
        if self.view == View::Cgroups {
            self.selected_cgroup = self.cgroups.get(to.min(self.cgroups.len() - 1)).map(|c| c.path.clone());
        } else {
            self.selected_process = self.processes.get(to.min(self.processes.len() - 1)).map(|(id, _)| *id);
            // In a map, the keys also move through the processes.
            if let (View::Map(_), Some(id)) = (self.view, self.selected_process) {
                self.view = View::Map(id);
            }
        }
    }

    /// Rebuilds the lists from the visible snapshot.
    fn rebuild(&mut self) {
        let Some(snapshot) = self.shown.clone() else { return };
        let report = ProcessReport::build(&snapshot, self.options.thresholds);
        let id = |pid| snapshot.targets.iter().find(|t| t.id.pid == pid).map(|t| t.id);
        let rows = report.processes.into_iter().filter(|p| self.takes_process(p));
        let mut processes: Vec<_> = rows.filter_map(|p| Some((id(p.pid)?, p))).collect();
        sort(&mut processes, self.sort);
        self.processes = processes;
        let mut cgroups = CgroupReport::build(&snapshot, self.options.thresholds).cgroups;
        cgroups.retain(|c| matches(&c.path, &self.filter));
        self.cgroups = cgroups;
    }

    fn takes_process(&self, process: &ProcessRow) -> bool {
        let within = self.within.as_ref().is_none_or(|path| is_within(&process.cgroup, path));
        within && matches(&process.comm, &self.filter)
    }
}

fn matches(name: &str, filter: &str) -> bool {
    name.to_lowercase().contains(&filter.to_lowercase())
}

fn is_within(cgroup: &str, path: &str) -> bool {
    match cgroup.strip_prefix(path) {
        // The unknown cgroup and the root contain only their direct processes, as their rows do.
        Some(rest) if path.is_empty() || path == "/" => rest.is_empty(),
        Some(rest) => rest.is_empty() || rest.starts_with('/'),
        None => false,
    }
}

fn sort(processes: &mut [(TargetId, ProcessRow)], by: SortColumn) {
    match by {
        SortColumn::Hot => processes.sort_by_key(|(id, p)| (Reverse(p.heat.hot_bytes), *id)),
        SortColumn::Resident => processes.sort_by_key(|(id, p)| (Reverse(p.heat.resident_bytes), *id)),
        SortColumn::Idle => processes.sort_by_key(|(id, p)| (Reverse(p.heat.idle_bytes), *id)),
        SortColumn::Pid => processes.sort_by_key(|(id, _)| *id),
        SortColumn::Name => processes.sort_by(|(a, p), (b, q)| (&p.comm, a).cmp(&(&q.comm, b))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{run_info, series};

    fn state(snapshots: usize) -> TopState {
        let mut state = TopState::new(run_info(), TopOptions { history: 5, ..TopOptions::default() });
        for snapshot in series(20).into_iter().skip(6).take(snapshots) {
            state.update(Arc::new(snapshot));
        }
        state
    }

    fn press(state: &mut TopState, keys: &str) {
        for c in keys.chars() {
            assert_eq!(state.on_key(Key::Char(c)), Action::Continue, "{c}");
        }
    }

    fn selected_pid(state: &TopState) -> Option<u32> {
        state.selected().map(|at| state.processes[at].0.pid)
    }

    #[test]
    fn keys_without_snapshots_do_no_harm() {
        let mut state = state(0);
        for row in super::super::KEYS.iter().filter(|row| !matches!(row.command, Command::Quit | Command::Back)) {
            for key in row.keys {
                state.on_key(*key);
            }
            state.on_key(Key::Esc);
        }
        assert_eq!(state.selected(), None);
    }

    #[test]
    fn the_selection_stays_with_its_process() {
        let mut state = state(3);
        state.on_key(Key::Down);
        let pid = selected_pid(&state);
        for _ in 0..5 {
            state.on_key(Key::Char('s'));
            assert_eq!(selected_pid(&state), pid);
        }
        state.on_key(Key::End);
        state.on_key(Key::Down);
        assert_eq!(state.selected(), Some(2));
        state.on_key(Key::Home);
        assert_eq!(state.selected(), Some(0));
    }

    #[test]
    fn a_filter_narrows_as_it_is_typed() {
        let mut state = state(3);
        press(&mut state, "/REDq");
        assert!(state.processes.is_empty());
        state.on_key(Key::Backspace);
        assert_eq!(selected_pid(&state), Some(2041));
        state.on_key(Key::Enter);
        assert_eq!(state.on_key(Key::Esc), Action::Continue);
        assert_eq!(state.processes.len(), 3);
        assert_eq!(state.on_key(Key::Esc), Action::Quit);
    }

    #[test]
    fn a_pause_holds_what_is_shown_and_the_history_is_bounded() {
        let mut state = state(3);
        press(&mut state, "p");
        let held = state.shown.as_ref().map(|s| s.end_unix_ns);
        for snapshot in series(30).into_iter().skip(20) {
            state.update(Arc::new(snapshot));
        }
        assert_eq!((state.shown.as_ref().map(|s| s.end_unix_ns), state.history.len()), (held, 5));
        press(&mut state, "p");
        assert!(state.shown.as_ref().map(|s| s.end_unix_ns) > held);
    }

    #[test]
    fn enter_opens_and_escape_returns() {
        let mut state = state(3);
        state.on_key(Key::Enter);
        assert!(matches!(state.view(), View::Map(_)));
        state.on_key(Key::Esc);
        state.on_key(Key::Tab);
        assert_eq!(state.view(), View::Cgroups);
        state.on_key(Key::Enter);
        assert_eq!(
            (state.view(), state.within.as_deref(), state.processes.len()),
            (View::Processes, Some("/system.slice"), 2)
        );
        state.on_key(Key::Esc);
        assert_eq!((state.view(), state.processes.len()), (View::Cgroups, 3));
        assert_eq!(state.on_key(Key::CtrlC), Action::Quit);
    }

    #[test]
    fn a_cgroup_holds_its_children_and_not_its_namesakes() {
        assert!(is_within("/a/b", "/a") && is_within("/a", "/a"));
        assert!(!is_within("/ab", "/a") && !is_within("/a", "") && is_within("", ""));
    }
}
