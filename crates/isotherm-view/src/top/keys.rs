//! Keys as data: one table defines what each key does, for the state that executes it and for the help text.

/// A key, as far as the view distinguishes keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// A letter or sign.
    Char(char),
    /// Ctrl and C.
    CtrlC,
    /// The up arrow.
    Up,
    /// The down arrow.
    Down,
    /// A page up.
    PageUp,
    /// A page down.
    PageDown,
    /// Home: to the first row.
    Home,
    /// End: to the last row.
    End,
    /// Return.
    Enter,
    /// Escape.
    Esc,
    /// Tabulator.
    Tab,
    /// Backspace: deletes a letter of the filter.
    Backspace,
}

/// What the session does after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Continue.
    Continue,
    /// End the session.
    Quit,
}

/// The command of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Ends the session.
    Quit,
    /// Goes back one view. From the first view, ends the session.
    Back,
    /// Moves the selection by rows. A page is ten rows.
    Move(isize),
    /// Switches between processes and cgroups.
    SwitchView,
    /// Opens the heat map of the process, or the processes of the cgroup.
    Open,
    /// Selects the next sort order.
    NextSort,
    /// Selects what the colours of a heat map show next.
    NextScale,
    /// Starts to type a filter by name.
    Filter,
    /// Freezes the display, or resumes it.
    Pause,
    /// Shows or hides the help.
    Help,
}

/// One line of the help.
#[derive(Clone, Copy, Debug)]
pub struct KeyHelp {
    /// Keys with this command.
    pub keys: &'static [Key],
    /// Their names in the help.
    pub label: &'static str,
    /// Their description.
    pub help: &'static str,
    /// Their command.
    pub command: Command,
}

/// All keys, except while a filter is typed.
pub const KEYS: &[KeyHelp] = &[
    row(&[Key::Char('q'), Key::CtrlC], "q, Ctrl-C", "quit", Command::Quit),
    row(&[Key::Esc], "Esc", "back; from the list, quit", Command::Back),
    row(&[Key::Down, Key::Char('j')], "Down, j", "next row", Command::Move(1)),
    row(&[Key::Up, Key::Char('k')], "Up, k", "previous row", Command::Move(-1)),
    row(&[Key::PageDown], "PgDn", "ten rows down", Command::Move(10)),
    row(&[Key::PageUp], "PgUp", "ten rows up", Command::Move(-10)),
    row(&[Key::Home, Key::Char('g')], "Home, g", "first row", Command::Move(isize::MIN)),
    row(&[Key::End, Key::Char('G')], "End, G", "last row", Command::Move(isize::MAX)),
    row(&[Key::Tab], "Tab", "processes or cgroups", Command::SwitchView),
    row(&[Key::Enter], "Enter", "heat map of a process, processes of a cgroup", Command::Open),
    row(&[Key::Char('s')], "s", "next order", Command::NextSort),
    row(&[Key::Char('c')], "c", "colours of a heat map: hot share, access interval, idle time", Command::NextScale),
    row(&[Key::Char('/')], "/", "filter by name", Command::Filter),
    row(&[Key::Char('p'), Key::Char(' ')], "p, Space", "pause", Command::Pause),
    row(&[Key::Char('?'), Key::Char('h')], "?, h", "this help", Command::Help),
];

const fn row(keys: &'static [Key], label: &'static str, help: &'static str, command: Command) -> KeyHelp {
    KeyHelp { keys, label, help, command }
}

/// The command of a key, if it has one.
pub(super) fn command_of(key: Key) -> Option<Command> {
    KEYS.iter().find(|row| row.keys.contains(&key)).map(|row| row.command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_has_two_meanings() {
        let keys: Vec<Key> = KEYS.iter().flat_map(|row| row.keys).copied().collect();
        assert!(keys.iter().enumerate().all(|(i, key)| !keys[..i].contains(key)));
    }
}
