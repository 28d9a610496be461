//! Whose settings root takes commands from.

mod support;

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use support::{AS_NOBODY, Ran, Stage, installed, is_root, open_stage};

const REFUSED: &str = "root does not run the `work` command";

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Settings that name a command, and a process that is not there: once they are taken, it ends with that.
fn settings(stage: &Stage, name: &str) -> std::path::PathBuf {
    let path = stage.path(name);
    fs::write(&path, "work = \"touch ran; echo 1\"\n[targets]\npids = [4194303]\n").unwrap();
    set_mode(&path, 0o644);
    path
}

fn run(stage: &Stage, args: &str) -> Ran {
    let ran = stage.isotherm(&format!("run --socket s.sock {args}")).ended(1);
    assert!(!stage.path("ran").exists(), "{ran}");
    ran
}

#[test]
fn root_runs_no_command_from_a_file_that_others_can_change() {
    need!(is_root(), "root");
    let stage = Stage::new();
    let path = settings(&stage, "c.toml");
    run(&stage, "-c c.toml").never_says(REFUSED);
    for mode in [0o664, 0o646, 0o666] {
        set_mode(&path, mode);
        run(&stage, "-c c.toml").says(REFUSED).says("chmod go-w c.toml").says(&format!("{mode:04o}"));
    }
    // Given on the command line, the one in the file is not run.
    run(&stage, "-c c.toml --work true").never_says(REFUSED);
    set_mode(&path, 0o644);
    chown(&path, Some(65534), None).unwrap();
    run(&stage, "-c c.toml").says(REFUSED).says("belongs to user 65534").says("chown root c.toml");
    // What a link leads to counts.
    symlink("c.toml", stage.path("link.toml")).unwrap();
    run(&stage, "-c link.toml").says(REFUSED).says("belongs to user 65534");
    // Nor is a socket opened that it names.
    for (names, option) in [
        ("stream = \"shown.sock\"", "--socket s.sock --stream given.sock"),
        ("socket = \"other.sock\"", "--socket s.sock"),
        ("stream_group = \"nogroup\"", "--socket s.sock --stream given.sock --stream-group root"),
    ] {
        fs::write(&path, format!("{names}\n[targets]\npids = [4194303]\n")).unwrap();
        let ran = stage.isotherm("run -c c.toml").ended(1);
        ran.says("root opens no `socket` or `stream`").says("belongs to user 65534").says("--stream-group");
        // Given on the command line, that of the file is not opened.
        stage.isotherm(&format!("run -c c.toml {option}")).ended(1).never_says("root opens no");
    }
    assert!(!stage.path("shown.sock").exists() && !stage.path("other.sock.lock").exists());
    // A folder in which anyone can exchange files is no reason: a volume of Kubernetes is one.
    let volume = stage.path("volume");
    fs::create_dir(&volume).unwrap();
    set_mode(&volume, 0o777);
    fs::write(volume.join("s.toml"), "stream = \"shown.sock\"\n[targets]\npids = [4194303]\n").unwrap();
    run(&stage, "-c volume/s.toml").never_says("root opens no");
    // Without these there is nothing to refuse.
    fs::write(&path, "[targets]\npids = [4194303]\n").unwrap();
    run(&stage, "-c c.toml").never_says(REFUSED).never_says("root opens no");
}

#[test]
fn root_runs_no_command_from_a_directory_in_which_anyone_can_exchange_files() {
    need!(is_root(), "root");
    let stage = Stage::new();
    let open = stage.path("open");
    fs::create_dir_all(open.join("inner")).unwrap();
    settings(&stage, "open/inner/c.toml");
    run(&stage, "-c open/inner/c.toml").never_says(REFUSED);
    set_mode(&open, 0o777);
    run(&stage, "-c open/inner/c.toml").says(REFUSED).says("anyone can exchange files in").says("/open;");
    symlink("open/inner/c.toml", stage.path("link.toml")).unwrap();
    run(&stage, "-c link.toml").says(REFUSED).says("anyone can exchange files in");
    set_mode(&open, 0o1777);
    run(&stage, "-c open/inner/c.toml").never_says(REFUSED);
}

#[test]
fn others_take_commands_from_any_file_they_can_read() {
    need!(is_root() && installed("setpriv"), "root and setpriv, to be somebody else");
    let (stage, isotherm) = open_stage();
    set_mode(&settings(&stage, "c.toml"), 0o666);
    let ran = stage.shell(&format!("{AS_NOBODY} {isotherm} run --socket s.sock -c c.toml"));
    ran.ended(1).never_says(REFUSED);
}
