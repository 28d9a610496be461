//! The session: reads keys, draws frames, and always restores the terminal.
//!
//! There are five ways to end it, and all of them restore the terminal: a key, the caller's stop flag (which its
//! SIGTERM handler sets), a lost terminal, an error, and a panic. A guard restores the terminal in the first four cases
//! and when this thread unwinds. A panic hook restores it before the message is printed, so that the message can be
//! read. The hook also runs for other threads. The session then ends too, since further drawing would hide the message.
//!
//! A separate thread reads the keys ([`super::input`]): a read that never returns must not prevent the session from
//! ending.

use super::draw::draw;
use super::input::{Input, Waited, terminal_is_gone};
use super::keys::{Action, Key};
use super::state::{TopOptions, TopState};
use isotherm_heat::{RunInfo, Snapshot};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use ratatui::crossterm::{cursor, execute};
use std::io;
use std::mem::ManuallyDrop;
use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::thread;

/// Shows snapshots as they arrive until a key ends it, `stop` is set, or the terminal is gone.
///
/// When the sender hangs up, the view reports that and stays open, so that the last snapshot can still be read.
///
/// # Errors
///
/// If the terminal cannot be set up, read or written, or if a thread of the process panicked meanwhile.
pub fn run_top(
    run: RunInfo,
    options: TopOptions,
    snapshots: &Receiver<Arc<Snapshot>>,
    stop: &AtomicBool,
) -> io::Result<()> {
    let guard = TerminalGuard::enter()?;
    // Not dropped: its drop would show the cursor, which the guard does too, and would panic if neither that nor its
    // error message can be written.
    let mut terminal = ManuallyDrop::new(Terminal::new(CrosstermBackend::new(io::stdout()))?);
    let mut state = TopState::new(run, options);
    let mut input = Input::open()?;
    let mut changed = true;
    loop {
        if guard.panicked.load(Ordering::Acquire) {
            return Err(io::Error::other("another thread panicked"));
        }
        if stop.load(Ordering::Relaxed) || terminal_is_gone() {
            return Ok(());
        }
        if std::mem::take(&mut changed) {
            match terminal.draw(|frame| draw(frame, &state)) {
                Err(_) if terminal_is_gone() => return Ok(()),
                drawn => _ = drawn?,
            }
        }
        match input.wait()? {
            Waited::Event(Event::Key(key)) if press(&mut state, key) == Action::Quit => return Ok(()),
            Waited::Event(_) => changed = true,
            Waited::Nothing => {}
            Waited::End => return Ok(()),
        }
        changed |= take_snapshots(&mut state, snapshots);
        if state.ended && state.history.is_empty() {
            // It has failed before it saw anything. The caller says why, on the normal screen.
            return Ok(());
        }
    }
}

/// Takes all waiting snapshots. Returns whether anything changed.
fn take_snapshots(state: &mut TopState, snapshots: &Receiver<Arc<Snapshot>>) -> bool {
    let mut changed = false;
    loop {
        match snapshots.try_recv() {
            Ok(snapshot) => {
                state.update(snapshot);
                changed = true;
            }
            Err(TryRecvError::Empty) => return changed,
            Err(TryRecvError::Disconnected) => {
                changed |= !state.ended;
                state.source_ended();
                return changed;
            }
        }
    }
}

fn press(state: &mut TopState, key: KeyEvent) -> Action {
    match (key.kind, key_of(key)) {
        (KeyEventKind::Release, _) | (_, None) => Action::Continue,
        (_, Some(key)) => state.on_key(key),
    }
}

fn key_of(event: KeyEvent) -> Option<Key> {
    let control = event.modifiers.contains(KeyModifiers::CONTROL);
    Some(match event.code {
        KeyCode::Char('c') if control => Key::CtrlC,
        KeyCode::Char(_) if control => return None,
        KeyCode::Char(c) => Key::Char(c),
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Esc,
        KeyCode::Tab => Key::Tab,
        KeyCode::Backspace => Key::Backspace,
        _ => return None,
    })
}

type Hook = dyn Fn(&panic::PanicHookInfo<'_>) + Send + Sync;

/// Holds the terminal in raw mode on the alternate screen. Dropping it reverts both.
struct TerminalGuard {
    previous_hook: Arc<Hook>,
    /// Set with Release by the hook in any thread; the session's Acquire load pairs with it.
    panicked: Arc<AtomicBool>,
}

impl TerminalGuard {
    fn enter() -> io::Result<TerminalGuard> {
        let previous_hook: Arc<Hook> = Arc::from(panic::take_hook());
        let panicked = Arc::new(AtomicBool::new(false));
        let (previous, flag) = (Arc::clone(&previous_hook), Arc::clone(&panicked));
        panic::set_hook(Box::new(move |info| {
            restore();
            flag.store(true, Ordering::Release);
            previous(info);
        }));
        // Created before the terminal is changed, so that a change that fails halfway is reverted.
        let guard = TerminalGuard { previous_hook, panicked };
        enable_raw_mode()?;
        execute!(io::stdout(), EnterAlternateScreen, cursor::Hide)?;
        Ok(guard)
    }
}

impl Drop for TerminalGuard {
    fn drop(&mut self) {
        // After a panic the hook has already restored the terminal. Leaving the alternate screen twice could move the
        // cursor.
        if !self.panicked.load(Ordering::Acquire) {
            restore();
        }
        // A panicking thread must not set hooks. The process is very likely ending in that case.
        if !thread::panicking() {
            let previous = Arc::clone(&self.previous_hook);
            panic::set_hook(Box::new(move |info| previous(info)));
        }
    }
}

/// Both steps are tried even if the first fails. An error cannot be reported here.
fn restore() {
    let _ = execute!(io::stdout(), LeaveAlternateScreen, cursor::Show);
    let _ = disable_raw_mode();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{run_info, series};

    #[test]
    fn keys_are_told_apart() {
        let key = |code, modifiers| key_of(KeyEvent::new(code, modifiers));
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Key::CtrlC));
        assert_eq!(key(KeyCode::Char('z'), KeyModifiers::CONTROL), None);
        assert_eq!(key(KeyCode::Char('G'), KeyModifiers::SHIFT), Some(Key::Char('G')));
        assert_eq!(key(KeyCode::F(1), KeyModifiers::NONE), None);
    }

    #[test]
    fn a_source_that_ends_is_noticed_once() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let mut state = TopState::new(run_info(), TopOptions::default());
        assert!(!take_snapshots(&mut state, &receiver));
        sender.send(Arc::new(series(1).remove(0))).unwrap();
        assert!(take_snapshots(&mut state, &receiver));
        drop(sender);
        assert!(take_snapshots(&mut state, &receiver));
        assert!(!take_snapshots(&mut state, &receiver));
    }
}
