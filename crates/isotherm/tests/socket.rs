//! The socket of `isotherm run`: whose it is, who may talk, and how long anyone waits.

mod support;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Duration;
use support::{AS_NOBODY, Stage, installed, is_root, open_stage, sees_pages, until, workload};

const LONG: Duration = Duration::from_secs(30);

#[test]
fn of_two_daemons_that_start_at_once_one_serves() {
    need!(sees_pages(), "the page-table source");
    let (stage, child) = (Stage::new(), workload(16));
    let run = format!("run -n --socket s.sock -p {}", child.pid());
    for round in 0..6 {
        let mut both = [stage.start_isotherm(&run), stage.start_isotherm(&run)];
        let decided = |both: &mut [support::Running; 2]| {
            both.iter_mut().any(support::Running::has_ended) && both.iter().any(|r| r.err().contains("status at"))
        };
        let came = until(LONG, || decided(&mut both));
        assert!(came, "round {round}:\n{}\n{}", both[0].err(), both[1].err());
        let (mut served, mut refused) = both.into();
        if served.has_ended() {
            std::mem::swap(&mut served, &mut refused);
        }
        refused.end().ended(1).says("another isotherm run");
        assert_eq!(stage.json("status --json --socket s.sock")["pid"], served.pid());
        if round % 2 == 0 {
            served.signal("TERM");
            served.end().ended(0);
            assert!(!stage.path("s.sock").exists() && !stage.path("s.sock.lock").exists());
        } else {
            // Dropped, it is killed, and leaves its socket behind.
            drop(served);
            assert!(stage.path("s.sock").exists());
        }
    }
}

#[test]
fn a_user_who_can_reach_the_socket_but_did_not_start_the_daemon_is_refused() {
    need!(is_root() && installed("setpriv") && sees_pages(), "root, setpriv, and the page-table source");
    let ((stage, isotherm), child) = (open_stage(), workload(16));
    let mut run = stage.start_isotherm(&format!("run -n --socket s.sock -p {}", child.pid()));
    run.until_it_says("status at");
    let nobody = format!("{AS_NOBODY} {isotherm} status --socket s.sock");
    stage.shell(&nobody).ended(1).says("s.sock");
    fs::set_permissions(stage.path("s.sock"), Permissions::from_mode(0o666)).unwrap();
    for _ in 0..2 {
        stage.shell(&nobody).ended(1).says("only root and the user who started this");
    }
    let printed = run.err();
    assert_eq!(printed.matches("refused a connection of user 65534").count(), 1, "{printed}");
    stage.json("status --json --socket s.sock");
}

#[test]
fn clients_do_not_wait_for_ever() {
    let stage = Stage::new();
    // Connections wait in its queue, and nobody answers.
    let _listener = UnixListener::bind(stage.path("s.sock")).unwrap();
    let both = [
        stage.start_isotherm("status --socket s.sock"),
        stage.start_isotherm("hint --socket s.sock -p 1 200000-400000"),
    ];
    for client in both {
        client.end_within(LONG).ended(1).says("s.sock does not answer");
    }
}

#[test]
fn a_client_says_where_it_has_looked_for_the_socket() {
    need!(
        is_root() && installed("setpriv") && !Path::new("/run/isotherm/isotherm.sock").exists(),
        "root, and no daemon of root's"
    );
    let (stage, isotherm) = open_stage();
    let dir = stage.path("").display().to_string();
    let with = |what: &str| format!("XDG_RUNTIME_DIR={dir} {what} {isotherm} status");
    stage.shell(&with("env")).ended(1).says("/run/isotherm/isotherm.sock:").never_says(&dir);
    stage.shell(&with(AS_NOBODY)).ended(1).says(&format!("{}:", stage.path("isotherm.sock").display()));
    stage.shell(&format!("unset XDG_RUNTIME_DIR; {AS_NOBODY} {isotherm} status")).ended(1).says("--socket");
}
