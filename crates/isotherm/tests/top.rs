//! `isotherm top` as a person sees it: keys go in and screens come out of a terminal in tmux.

mod support;

use std::fs;
use std::process::Command;
use std::time::Duration;
use support::{ISOTHERM, Stage, installed, read, signal, until, wait, workload};

/// A shell in a terminal of a tmux server of our own, which is ended when dropped.
struct Terminal {
    stage: Stage,
}

impl Terminal {
    fn open(columns: u16, rows: u16) -> Terminal {
        let terminal = Terminal { stage: Stage::new() };
        let (width, height) = (columns.to_string(), rows.to_string());
        let shell = "PS1='ready> ' exec bash --norc --noprofile";
        terminal.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", &width, "-y", &height, shell]);
        let seen = terminal.shows("ready>");
        assert!(seen, "no shell came up:\n{}", terminal.screen());
        terminal
    }

    fn tmux(&self, args: &[&str]) -> String {
        let mut command = Command::new("tmux");
        command.current_dir(self.stage.path("")).env_remove("TMUX").env("isotherm", ISOTHERM).env("LC_ALL", "C.UTF-8");
        // Monitors of other tests that run meanwhile are not to be in the way.
        command.env("ISOTHERM_RUNTIME_DIR", self.stage.path("run"));
        let ran = command.arg("-S").arg(self.stage.path("tmux")).args(args).output().unwrap();
        assert!(ran.status.success(), "tmux {args:?}: {}", String::from_utf8_lossy(&ran.stderr));
        String::from_utf8_lossy(&ran.stdout).into_owned()
    }

    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// Waits until the screen has `text`.
    fn shows(&self, text: &str) -> bool {
        until(Duration::from_secs(20), || self.screen().contains(text))
    }

    #[track_caller]
    fn expect(&self, text: &str) {
        assert!(self.shows(text), "{text:?} is not shown:\n{}", self.screen());
    }

    fn press(&self, key: &str) {
        self.tmux(&["send-keys", key]);
    }

    fn type_line(&self, line: &str) {
        self.tmux(&["send-keys", "-l", line]);
        self.press("Enter");
    }

    /// Starts `isotherm top` with `args` by a script that notes the terminal before and after, and how it ended.
    fn start_top(&self, args: &str) {
        let script = format!(
            "stty -a > before; \"$isotherm\" top -w 500ms {args} 2> said & echo $! > pid; fg > /dev/null; \
             echo $? > code; stty -a > after; echo that was all\n"
        );
        fs::write(self.stage.path("top.sh"), format!("set -m\n{script}")).unwrap();
        self.type_line("bash top.sh");
    }

    /// The program has ended in order, and the terminal is as it was.
    #[track_caller]
    fn is_as_before(&self) {
        self.expect("that was all");
        let note = |name: &str| read(&self.stage.path(name));
        // Processes that not even root may read there are on some machines, and named after the end.
        let is_skip = |line: &&str| line.contains("is skipped") || line.contains("are skipped");
        let said: String = note("said").lines().filter(|line| !is_skip(line)).collect();
        assert_eq!((note("code").trim(), said.as_str()), ("0", ""), "{}", self.screen());
        assert_eq!(note("before"), note("after"), "stty");
        let state = self.tmux(&["display-message", "-p", "#{alternate_on} #{cursor_flag}"]);
        assert_eq!(state.trim(), "0 1", "the normal screen, with its cursor");
        // And it takes what is typed.
        self.type_line("echo $((6 * 7))");
        self.expect("42");
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let mut command = Command::new("tmux");
        let _ = command.arg("-S").arg(self.stage.path("tmux")).arg("kill-server").output();
    }
}

fn a_look_around(columns: u16, rows: u16) {
    need!(installed("tmux"), "tmux");
    let child = workload(32);
    let pid = child.pid().to_string();
    let terminal = Terminal::open(columns, rows);
    terminal.start_top(&format!("-p {pid}"));

    // The list of processes, with a header that says how it is watched.
    terminal.expect("isotherm ");
    terminal.expect(&pid);
    terminal.expect("MiB");
    let list = terminal.screen();
    assert!(list.contains("window 500 ms"), "{list}");
    assert!(list.lines().all(|l| l.chars().count() <= usize::from(columns)), "{list}");

    // Its heat map, the help, and back.
    terminal.press("Enter");
    terminal.expect("heat map");
    terminal.expect("▀▀▀");
    terminal.press("?");
    terminal.expect("ten rows down");
    terminal.press("?");
    terminal.press("Escape");
    assert!(until(Duration::from_secs(10), || !terminal.screen().contains("heat map")), "{}", terminal.screen());
    terminal.expect(&pid);

    // Cgroups; and a terminal that changes its size under us.
    terminal.press("Tab");
    assert!(
        until(Duration::from_secs(10), || terminal.screen().to_lowercase().contains("cgroup")),
        "{}",
        terminal.screen()
    );
    terminal.tmux(&["resize-window", "-x", "20", "-y", "5"]);
    wait(Duration::from_millis(700));
    terminal.tmux(&["resize-window", "-x", &columns.to_string(), "-y", &rows.to_string()]);
    terminal.press("Tab");
    terminal.expect(&pid);

    terminal.press("q");
    terminal.is_as_before();
}

#[test]
fn a_look_around_in_80_columns() {
    a_look_around(80, 24);
}

#[test]
fn a_look_around_in_200_columns() {
    a_look_around(200, 50);
}

#[test]
fn signals_and_ctrl_c_give_the_terminal_back() {
    need!(installed("tmux"), "tmux");
    let child = workload(16);
    for end in ["TERM", "HUP", "INT", "Ctrl-C"] {
        let terminal = Terminal::open(80, 24);
        terminal.start_top(&format!("-p {}", child.pid()));
        terminal.expect("MiB");
        if end == "Ctrl-C" {
            terminal.press("C-c");
        } else {
            signal(read(&terminal.stage.path("pid")).trim().parse().unwrap(), end);
        }
        terminal.is_as_before();
    }
}

#[test]
fn a_target_that_ends_stays_on_the_screen() {
    need!(installed("tmux"), "tmux");
    let child = workload(16);
    let terminal = Terminal::open(80, 24);
    terminal.start_top(&format!("-p {}", child.pid()));
    terminal.expect("MiB");
    drop(child);
    wait(Duration::from_secs(2));
    terminal.expect("isotherm ");
    assert!(!terminal.screen().contains("that was all"), "{}", terminal.screen());
    terminal.press("q");
    terminal.is_as_before();
}

#[test]
fn a_target_that_is_not_there_is_told_on_the_normal_screen() {
    need!(installed("tmux"), "tmux");
    let mut gone = Command::new("true").spawn().unwrap();
    gone.wait().unwrap();
    let terminal = Terminal::open(80, 24);
    terminal.start_top(&format!("-p {}", gone.id()));
    // It ends by itself, gives the terminal back and says what was wrong.
    terminal.expect("that was all");
    assert!(read(&terminal.stage.path("said")).contains(&gone.id().to_string()), "{}", terminal.screen());
    assert_eq!(read(&terminal.stage.path("code")).trim(), "1");
    assert_eq!(read(&terminal.stage.path("before")), read(&terminal.stage.path("after")));
}

#[test]
fn everything_is_watched_if_nothing_is_named() {
    need!(installed("tmux"), "tmux");
    let child = workload(64);
    let terminal = Terminal::open(200, 50);
    terminal.start_top("");
    terminal.expect(&child.pid().to_string());
    terminal.press("q");
    terminal.is_as_before();
}
