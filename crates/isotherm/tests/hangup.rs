//! The terminal goes away, or the reader of a pipe: what was started there ends, in order and soon, and nothing spins.

mod support;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use support::{ISOTHERM, SOON, Stage, busy_demo, installed, is_root, read, sees_pages, signal, until, workload};

/// What goes on has not ended after this.
const A_WHILE: Duration = Duration::from_secs(5);
const LONG: Duration = Duration::from_secs(20);
const O_NOCTTY: i32 = 0o400;

/// Whether a program of a test holds the controlling terminal that it is on.
#[derive(Clone, Copy, PartialEq)]
enum Holds {
    Yes,
    /// No signal comes when the terminal goes.
    No,
}

/// A program on a terminal of its own, which goes when the test says so.
struct OnTerminal {
    master: Option<File>,
    process: Child,
    seen: String,
}

impl OnTerminal {
    /// Runs a line of shell, in which `$isotherm` is the program under test.
    fn start(stage: &Stage, holds: Holds, line: &str) -> OnTerminal {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let slave = OpenOptions::new().read(true).write(true).custom_flags(O_NOCTTY).open(name).unwrap();
        let mut command = Command::new(if holds == Holds::Yes { "setsid" } else { "env" });
        if holds == Holds::Yes {
            command.arg("--ctty");
        }
        command.args(["bash", "-c", &format!("stty rows 24 cols 80; {line}")]).current_dir(stage.path(""));
        command.env("isotherm", ISOTHERM).env("TERM", "xterm");
        command.stdin(slave.try_clone().unwrap()).stdout(slave.try_clone().unwrap()).stderr(slave);
        let process = command.spawn().unwrap();
        // The command has copies of the other side, which would keep it open.
        drop(command);
        rustix::io::ioctl_fionbio(&master, true).unwrap();
        OnTerminal { master: Some(master.into()), process, seen: String::new() }
    }

    /// Reads what is shown until it has `text`.
    #[track_caller]
    fn expect(&mut self, text: &str) {
        let shown = until(LONG, || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = self.master.as_mut().unwrap().read(&mut bytes) {
                self.seen.push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
            self.seen.contains(text)
        });
        assert!(shown, "{text:?} is not shown:\n{}", self.seen);
    }

    /// The window is closed.
    fn hang_up(&mut self) {
        self.master = None;
    }

    fn has_ended(&mut self) -> bool {
        self.process.try_wait().unwrap().is_some()
    }

    #[track_caller]
    fn ends_soon(&mut self) {
        let ended = until(SOON, || self.has_ended());
        assert!(ended, "{} goes on; it has shown:\n{}", self.process.id(), self.seen);
    }

    /// Without a panic, for one: nobody would see its message.
    #[track_caller]
    fn ends_in_order(&mut self) {
        self.ends_soon();
        assert_eq!(self.process.wait().unwrap().code(), Some(0));
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// `top` of a process, with a snapshot on the screen. What a shell does `before` it may be to ignore signals.
#[track_caller]
fn top_of(stage: &Stage, pid: u32, holds: Holds, before: &str) -> OnTerminal {
    let mut top = OnTerminal::start(stage, holds, &format!("{before} exec $isotherm top -w 500ms -p {pid}"));
    top.expect("MiB");
    top
}

#[test]
fn top_ends_with_its_terminal() {
    need!(installed("setsid"), "setsid");
    let (stage, child) = (Stage::new(), workload(16));
    let mut top = top_of(&stage, child.pid(), Holds::Yes, "");
    top.hang_up();
    top.ends_in_order();
}

#[test]
fn top_ends_with_its_terminal_when_no_signal_comes() {
    need!(installed("setsid"), "setsid");
    let (stage, child) = (Stage::new(), workload(16));
    for (holds, ignored) in [(Holds::No, ""), (Holds::Yes, "trap '' HUP;")] {
        let mut top = top_of(&stage, child.pid(), holds, ignored);
        top.hang_up();
        top.ends_in_order();
    }
}

/// A read in the middle of an escape sequence does not return.
#[test]
fn top_hears_a_signal_in_the_middle_of_a_key() {
    need!(installed("setsid"), "setsid");
    let (stage, child) = (Stage::new(), workload(16));
    let mut top = top_of(&stage, child.pid(), Holds::Yes, "");
    std::io::Write::write_all(top.master.as_mut().unwrap(), b"\x1b[").unwrap();
    // It goes on showing what is new.
    top.seen.clear();
    top.expect("\x1b[");
    signal(top.process.id(), "TERM");
    top.ends_soon();
}

#[test]
fn a_recording_is_whole_when_its_terminal_has_gone() {
    need!(installed("setsid"), "setsid");
    let (stage, child) = (Stage::new(), workload(16));
    let line = format!("exec $isotherm record -o rec -w 500ms -p {}", child.pid());
    let mut record = OnTerminal::start(&stage, Holds::Yes, &line);
    record.expect("snapshot 3");
    // The kernel's signal comes with this one, as that of a shell does.
    signal(record.process.id(), "HUP");
    record.hang_up();
    record.ends_in_order();
    stage.isotherm("report wss rec").ended(0).never_says("not complete").never_says("cut");
}

#[test]
fn what_ignores_hangups_lives_on_and_its_messages_are_lost_without_harm() {
    need!(installed("setsid"), "setsid");
    let (stage, child) = (Stage::new(), workload(16));
    let line = format!("trap '' HUP; exec $isotherm record -o rec -w 500ms -p {}", child.pid());
    let mut record = OnTerminal::start(&stage, Holds::Yes, &line);
    record.expect("snapshot 2");
    record.hang_up();
    signal(record.process.id(), "HUP");
    assert!(!until(Duration::from_secs(2), || record.has_ended()), "it ended");
    signal(record.process.id(), "TERM");
    record.ends_in_order();
    stage.isotherm("report wss rec").ended(0);
}

#[test]
fn whatever_takes_time_ends_with_its_terminal() {
    need!(installed("setsid"), "setsid");
    let (stage, child) = (Stage::new(), workload(16));
    let pid = child.pid();
    let mut commands = vec![
        (format!("report wss -d 60s -p {pid}"), "watching"),
        (format!("report processes -d 60s -p {pid}"), "watching"),
        (format!("events try faults -d 60s -p {pid}"), "trying it"),
        ("demo -d 60s --size 16MiB".to_owned(), "workload of"),
        ("demo -d 60s --unwatched 500ms --size 16MiB".to_owned(), "watching"),
        (format!("{} -d 60s", busy_demo()), "store of"),
        (format!("{} -d 60s", busy_demo()), "watching"),
    ];
    if sees_pages() {
        commands.push((format!("placement -p {pid} --watch 60s --cache-size 64MiB"), "watching"));
        commands.push((format!("collapse -d 60s -p {pid}"), "watching"));
        commands.push((format!("collapse -d 1s --work 'echo 1; echo > measuring' -p {pid}"), ""));
    }
    if is_root() && stage.isotherm("zone-lock -d 1s").code == Some(0) {
        commands.push(("zone-lock -d 60s".to_owned(), "watching"));
    }
    for (command, text) in commands {
        let mut running = OnTerminal::start(&stage, Holds::Yes, &format!("exec $isotherm {command}"));
        running.expect(text);
        if text.is_empty() {
            assert!(until(LONG, || stage.path("measuring").exists()), "{command}\n{}", running.seen);
        }
        running.hang_up();
        // What was measured for is over after ten seconds.
        let time = if text.is_empty() { A_WHILE } else { SOON };
        let ended = until(time, || running.has_ended());
        assert!(ended, "{command} goes on; it has shown:\n{}", running.seen);
    }
}

#[test]
fn a_daemon_ends_with_its_terminal_and_reads_its_settings_while_that_is_there() {
    need!(installed("setsid") && sees_pages(), "setsid, and the page-table source");
    let (stage, child) = (Stage::new(), workload(16));
    let start = |ignored: &str| {
        let line = format!("{ignored} exec $isotherm run -n --socket s.sock -p {}", child.pid());
        let mut daemon = OnTerminal::start(&stage, Holds::Yes, &line);
        daemon.expect("status at");
        daemon
    };
    let mut daemon = start("");
    signal(daemon.process.id(), "HUP");
    daemon.expect("settings read again");
    daemon.hang_up();
    daemon.ends_soon();
    assert!(!stage.path("s.sock").exists(), "the socket is gone");

    // With its streams elsewhere, the controlling terminal decides; and `nohup` is heeded.
    let elsewhere = "exec < /dev/null > out 2>&1;";
    for (ignored, ends) in [(elsewhere.to_owned(), true), (format!("trap '' HUP; {elsewhere}"), false)] {
        let line = format!("{ignored} exec $isotherm run -n --socket s.sock -p {}", child.pid());
        let mut daemon = OnTerminal::start(&stage, Holds::Yes, &line);
        let said = |text: &str| until(LONG, || read(&stage.path("out")).contains(text));
        assert!(said("status at"), "{}", read(&stage.path("out")));
        daemon.hang_up();
        let time = if ends { SOON } else { A_WHILE };
        assert_eq!(until(time, || daemon.has_ended()), ends, "{}", read(&stage.path("out")));
        if !ends {
            signal(daemon.process.id(), "HUP");
            assert!(said("settings read again"), "{}", read(&stage.path("out")));
        }
        drop(daemon);
        // Left by one that was killed; and what it said is not what the next one says.
        let _ = std::fs::remove_file(stage.path("s.sock"));
        std::fs::remove_file(stage.path("out")).unwrap();
    }
}

#[test]
fn a_report_that_nobody_reads_ends() {
    let (stage, child) = (Stage::new(), workload(16));
    let line = format!("set -o pipefail; $isotherm report wss -d 60s -p {} 2> said | true", child.pid());
    let mut command = Command::new("bash");
    command.args(["-c", &line]);
    // A target has to be found before watching ends: that takes a moment.
    let ran = stage.start(command).end_within(LONG).ended(0);
    assert!(!read(&stage.path("said")).contains("panicked"), "{ran}\n{}", read(&stage.path("said")));
}

#[test]
fn messages_that_nobody_reads_do_not_end_a_recording() {
    let (stage, child) = (Stage::new(), workload(16));
    let line = format!("set -o pipefail; $isotherm record -o rec -w 500ms -d 2s -p {} 2>&1 | true", child.pid());
    stage.shell(&line).ended(0);
    let wss = stage.json("report wss --json rec");
    assert!(wss["report"]["targets"].as_array().is_some_and(|t| !t.is_empty()), "{wss:#}");
}

/// Else the first file that is opened would be in their place, and messages would be written into it.
#[test]
fn standard_streams_that_are_closed_are_nowhere_and_no_file_of_ours() {
    let (stage, child) = (Stage::new(), workload(16));
    for closed in ["<&- >&- 2>&-", "2>&-", "<&-", ">&-"] {
        let record = format!("exec $isotherm record -o rec -w 500ms -d 3s -p {} {closed}", child.pid());
        let mut command = Command::new("bash");
        command.args(["-c", &record]);
        let record = stage.start(command);
        let stream = |fd: u32| std::fs::read_link(format!("/proc/{}/fd/{fd}", record.pid())).unwrap_or_default();
        let began = || std::fs::read_dir(stage.path("rec")).is_ok_and(|files| files.count() > 0);
        assert!(until(LONG, began), "{closed}");
        for (fd, how) in ["<&-", ">&-", "2>&-"].into_iter().enumerate() {
            // Those that were not closed are the test's: the first is this file too.
            if fd == 0 || closed.split(' ').any(|c| c == how) {
                let fd = u32::try_from(fd).unwrap();
                assert_eq!(stream(fd), std::path::Path::new("/dev/null"), "{closed}: {fd}");
            }
        }
        record.end_within(LONG).ended(0);
        stage.isotherm("report wss rec").ended(0);
        std::fs::remove_dir_all(stage.path("rec")).unwrap();
    }
}

/// As people do it: a shell in a terminal multiplexer, whose session is closed.
#[test]
fn nothing_outlives_a_session_of_tmux() {
    need!(installed("tmux"), "tmux");
    let (stage, child) = (Stage::new(), workload(16));
    let pid = child.pid();
    let mut commands = ["top", "record -o rec", "report wss -d 60s"].map(|of| format!("{of} -p {pid}")).to_vec();
    if sees_pages() {
        commands.push(format!("run -n --socket s.sock -p {pid}"));
        commands.push("zone-lock -d 60s".into());
    }
    for command in commands {
        let tmux = |args: &[&str]| {
            let mut tmux = Command::new("tmux");
            tmux.current_dir(stage.path("")).env_remove("TMUX").env("isotherm", ISOTHERM).env("LC_ALL", "C.UTF-8");
            let tmux = tmux.stdin(Stdio::null()).arg("-S").arg(stage.path("tmux")).args(args).output().unwrap();
            assert!(tmux.status.success(), "tmux {args:?}: {}", String::from_utf8_lossy(&tmux.stderr));
        };
        let started = stage.path("pid");
        let _ = std::fs::remove_file(&started);
        tmux(&["-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", "bash --norc --noprofile"]);
        tmux(&["send-keys", "-l", &format!("(echo $BASHPID > pid; exec $isotherm {command})")]);
        tmux(&["send-keys", "Enter"]);
        let runs = || {
            std::fs::read_link(format!("/proc/{}/exe", read(&started).trim()))
                .is_ok_and(|exe| exe == std::path::Path::new(ISOTHERM))
        };
        assert!(until(LONG, runs), "{command} never began");
        std::thread::sleep(Duration::from_secs(2));
        assert!(runs(), "{command} ended by itself");
        tmux(&["kill-server"]);
        let ended = until(SOON, || !runs());
        if !ended {
            signal(read(&started).trim().parse().unwrap(), "KILL");
        }
        assert!(ended, "{command} outlives its terminal");
    }
}
