//! What a service manager hears from `isotherm run`, and what shells complete: both as their users have them.

mod support;

use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::time::{Duration, Instant};
use support::{Stage, installed, sees_pages, workload};

/// What the manager hears until `is_last`, within a minute.
fn heard(socket: &UnixDatagram, is_last: impl Fn(&str) -> bool) -> Vec<String> {
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let (mut all, mut bytes) = (Vec::new(), [0; 4096]);
    let began = Instant::now();
    loop {
        assert!(began.elapsed() < Duration::from_secs(60), "heard {all:?}");
        let n = socket.recv(&mut bytes).unwrap_or_else(|error| panic!("{error}; heard {all:?}"));
        let text = String::from_utf8(bytes[..n].to_vec()).unwrap();
        let over = is_last(&text);
        all.push(text);
        if over {
            return all;
        }
    }
}

#[test]
fn a_manager_hears_when_run_is_ready_alive_reloading_and_stopping() {
    need!(sees_pages(), "the page-table source");
    let stage = Stage::new();
    let (path, settings) = (stage.path("notify"), stage.path("settings.toml"));
    let socket = UnixDatagram::bind(&path).unwrap();
    let child = workload(4);
    std::fs::write(&settings, format!("[targets]\npids = [{}]\n", child.pid())).unwrap();
    let stage = stage.with_env("NOTIFY_SOCKET", path.to_str().unwrap()).with_env("WATCHDOG_USEC", "400000");
    let run = stage.start_isotherm("run --dry-run --socket s.sock -c settings.toml");
    let before = heard(&socket, |text| text.starts_with("READY=1\nSTATUS=accessed bits"));
    assert_eq!(before.len(), 1, "nothing comes before it: {before:?}");
    let alive = heard(&socket, |text| text == "WATCHDOG=1");
    assert!(alive.len() <= 2, "{alive:?}");
    run.signal("HUP");
    let reloaded = heard(&socket, |text| text.starts_with("READY=1"));
    let reloading = reloaded.iter().position(|text| text.starts_with("RELOADING=1\nMONOTONIC_USEC="));
    assert!(reloading.is_some_and(|at| at + 1 < reloaded.len()), "{reloaded:?}");
    // A mistyped pid, as one that has ended, changes nothing.
    std::fs::write(&settings, "[targets]\npids = [4194303]\n").unwrap();
    run.signal("HUP");
    heard(&socket, |text| text.starts_with("READY=1"));
    // A process that is stopped gives no sign of life.
    run.signal("STOP");
    socket.set_nonblocking(true).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    while socket.recv(&mut [0; 64]).is_ok() {}
    std::thread::sleep(Duration::from_secs(1));
    assert!(socket.recv(&mut [0; 64]).is_err(), "a sign of life while it is stopped");
    socket.set_nonblocking(false).unwrap();
    run.signal("CONT");
    heard(&socket, |text| text == "WATCHDOG=1");
    run.signal("TERM");
    heard(&socket, |text| text == "STOPPING=1");
    run.end().ended(0).says("the settings are unchanged: none of the processes [4194303] is there");
}

/// A server that finds the address of a manager takes itself for the service.
#[test]
fn a_command_does_not_inherit_the_manager() {
    need!(sees_pages(), "the page-table source");
    let stage = Stage::new();
    let path = stage.path("notify");
    let _socket = UnixDatagram::bind(&path).unwrap();
    let stage = stage.with_env("NOTIFY_SOCKET", path.to_str().unwrap()).with_env("WATCHDOG_USEC", "400000");
    stage.shell("$isotherm report wss -d 10s -- sh -c 'env >env.txt; sleep 1'").ended(0);
    let variables = std::fs::read_to_string(stage.path("env.txt")).unwrap();
    assert!(
        variables.contains("PATH=") && !variables.contains("NOTIFY_SOCKET") && !variables.contains("WATCHDOG"),
        "{variables}"
    );
}

/// What `shell` prints for `script`, with the completions of this program in the file `isotherm`.
fn completed(shell: &str, script: &str) -> String {
    let stage = Stage::new();
    for kind in ["bash", "zsh", "fish"] {
        let made = stage.shell(&format!("$isotherm generate completions {kind} >_isotherm.{kind}"));
        made.ended(0);
    }
    let mut command = Command::new(shell);
    command.arg("-c").arg(script).current_dir(stage.path(""));
    let output = command.output().unwrap();
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

#[test]
fn bash_completes_commands_options_and_values() {
    let complete = |words: &str| {
        completed(
            "bash",
            &format!(
                "source _isotherm.bash; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _isotherm isotherm \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD - 1]}}\"; printf '%s ' \"${{COMPREPLY[@]}}\""
            ),
        )
    };
    let mut commands: Vec<String> = complete("isotherm rec").split_whitespace().map(str::to_owned).collect();
    commands.sort();
    assert_eq!(commands, ["reclaim", "record"]);
    assert!(complete("isotherm report he").contains("heatmap"));
    assert!(complete("isotherm run --max-s").contains("--max-slowdown"));
    assert!(complete("isotherm run --hints m").contains("mglru"));
    assert!(!complete("isotherm ''").contains("internal"), "what is hidden stays so");
}

#[test]
fn fish_completes_commands_options_and_values() {
    need!(installed("fish"), "fish");
    let complete = |line: &str| completed("fish", &format!("source _isotherm.fish; complete -C '{line}'"));
    assert!(complete("isotherm rec").contains("record"));
    assert!(complete("isotherm report he").contains("heatmap"));
    assert!(complete("isotherm run --max-s").contains("--max-slowdown"));
    assert!(complete("isotherm run --hints m").contains("mglru"));
}

/// zsh completes in a terminal only: zpty is one.
#[test]
fn zsh_completes_commands_and_options() {
    need!(installed("zsh"), "zsh");
    let complete = |line: &str, last: &str| {
        completed(
            "zsh",
            &format!(
                "zmodload zsh/zpty; mkdir -p f; cp _isotherm.zsh f/_isotherm; \
             zpty z zsh -f -i; \
             zpty -w z 'stty cols 200; PS1=; fpath=($PWD/f $fpath); autoload -U compinit; compinit -u -D; zstyle \":completion:*\" list-prompt \"\"; LISTMAX=1000; echo be\"\"gin'; \
             while zpty -r z l; do [[ $l == *begin* ]] && break; done; \
             zpty -n -w z '{line}'$'\\t\\t'; for i in {{1..300}}; do zpty -rt z l && a+=$l; [[ $a == *{last}* ]] && break; sleep 0.1; done; zpty -d z; print -r -- $a"
            ),
        )
    };
    let commands = complete("isotherm rec", "record");
    assert!(commands.contains("record") && commands.contains("reclaim"), "{commands}");
    let options = complete("isotherm run --max-", "--max-slowdown");
    assert!(options.contains("--max-slowdown") && options.contains("--max-cpu"), "{options}");
}
