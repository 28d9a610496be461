//! What is written is for its owner: recordings, pictures and files for damo.

mod support;

use std::fs::{self, Permissions};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use support::Stage;

const DAMO: &str = r#"[{"target_id": 5, "intervals": {"sample_us": 5000, "aggr_us": 100000}, "snapshots": [{"start_time": 1,
    "end_time": 100000001, "regions": [{"start": 4096, "end": 81920, "nr_accesses": {"samples": 3}, "age": {"usec": 9}}]}]}]"#;

fn stage() -> Stage {
    let stage = Stage::new();
    fs::write(stage.path("in.json"), DAMO).unwrap();
    stage
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn recordings_pictures_and_exports_are_readable_by_their_owner_only() {
    let stage = stage();
    // The widest umask: what is private here is so by what was asked for when it was made.
    let ran = stage.shell(
        "umask 000
         $isotherm convert in.json rec && $isotherm convert rec out.damo &&
         $isotherm report heatmap rec -o map.html && $isotherm report heatmap rec -o map.png",
    );
    ran.ended(0);
    assert_eq!(mode(&stage.path("rec")), 0o700);
    let files = fs::read_dir(stage.path("rec")).unwrap().map(|e| e.unwrap().path());
    for file in files.chain(["out.damo", "map.html", "map.png"].map(|name| stage.path(name))) {
        assert_eq!(mode(&file), 0o600, "{}", file.display());
    }
}

#[test]
fn a_picture_over_one_that_others_can_read_says_so() {
    let stage = stage();
    let picture = stage.path("map.html");
    fs::write(&picture, "old").unwrap();
    fs::set_permissions(&picture, Permissions::from_mode(0o644)).unwrap();
    let command = "report heatmap in.json -o map.html";
    stage.isotherm(command).ended(0).says("others can read it").says("chmod 600");
    assert_eq!(mode(&picture), 0o644, "a mode that was chosen stays");
    fs::set_permissions(&picture, Permissions::from_mode(0o600)).unwrap();
    stage.isotherm(command).ended(0).never_says("others can read it");
}

#[test]
fn a_picture_goes_to_a_pipe_and_to_standard_output() {
    let stage = stage();
    stage.shell("mkfifo map.html && ln -s /dev/stdout out.html").ended(0);
    let reading = stage.path("map.html");
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        fs::File::open(reading).unwrap().read_to_string(&mut text).unwrap();
        text
    });
    stage.isotherm("report heatmap in.json -o map.html").ended(0).never_says("others can read it");
    assert!(reader.join().unwrap().contains("<html"));
    stage.shell("$isotherm report heatmap in.json -o out.html | cat").ended(0).prints("<html");
}
