//! Keys as data: one table says what each does, for the state that obeys and for the help that explains.

/// A key, as far as the view tells keys apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// A letter or sign.
    Char(char),
    /// Ctrl and C.
    CtrlC,
    /// The arrow.
    Up,
    /// The arrow.
    Down,
    /// A page up.
    PageUp,
    /// A page down.
    PageDown,
    /// To the first row.
    Home,
    /// To the last row.
    End,
    /// Return.
    Enter,
    /// Escape.
    Esc,
    /// Tabulator.
    Tab,
    /// Rubs out a letter of the filter.
    Backspace,
}

/// What the session is to do after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Go on.
    Continue,
    /// End.
    Quit,
}

/// What a key does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Ends the session.
    Quit,
    /// Goes back one view; from the first one, ends the session.
    Back,
    /// Moves the selection by rows; pages are of ten rows.
    Move(isize),
    /// Between processes and cgroups.
    SwitchView,
    /// The heat map of the process, or the processes of the cgroup.
    Open,
    /// The next order.
    NextSort,
    /// Begins a filter by name.
    Filter,
    /// Holds what is shown, or goes on.
    Pause,
    /// Shows or hides the help.
    Help,
}

/// One line of the help.
#[derive(Clone, Copy, Debug)]
pub struct KeyHelp {
    /// Keys that do it.
    pub keys: &'static [Key],
    /// How they are written.
    pub label: &'static str,
    /// What they do.
    pub help: &'static str,
    /// The same for the state.
    pub command: Command,
}

/// Every key outside of a filter being typed.
pub const KEYS: &[KeyHelp] = &[
    row(&[Key::Char('q'), Key::CtrlC], "q, Ctrl-C", "quit", Command::Quit),
    row(&[Key::Esc], "Esc", "back; from the list, quit", Command::Back),
    row(&[Key::Down, Key::Char('j')], "Down, j", "next row", Command::Move(1)),
    row(&[Key::Up, Key::Char('k')], "Up, k", "row before", Command::Move(-1)),
    row(&[Key::PageDown], "PgDn", "ten rows down", Command::Move(10)),
    row(&[Key::PageUp], "PgUp", "ten rows up", Command::Move(-10)),
    row(&[Key::Home, Key::Char('g')], "Home, g", "first row", Command::Move(isize::MIN)),
    row(&[Key::End, Key::Char('G')], "End, G", "last row", Command::Move(isize::MAX)),
    row(&[Key::Tab], "Tab", "processes or cgroups", Command::SwitchView),
    row(&[Key::Enter], "Enter", "heat map of a process, processes of a cgroup", Command::Open),
    row(&[Key::Char('s')], "s", "next order", Command::NextSort),
    row(&[Key::Char('/')], "/", "filter by name", Command::Filter),
    row(&[Key::Char('p'), Key::Char(' ')], "p, Space", "pause", Command::Pause),
    row(&[Key::Char('?'), Key::Char('h')], "?, h", "this help", Command::Help),
];

const fn row(keys: &'static [Key], label: &'static str, help: &'static str, command: Command) -> KeyHelp {
    KeyHelp { keys, label, help, command }
}

/// What a key does, if anything.
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
