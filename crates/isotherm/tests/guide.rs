//! Every example of the guide is run, in the order of its page, as a reader would who copies it: with a server for the process that the
//! examples watch, and Ctrl-C after some seconds for commands that would go on.
//!
//! An example is a block that begins with `sh`. A second word says why it is not run here: `ignore` for what installs, `pmu` for what takes a
//! processor that samples accesses.

#[path = "support/markdown.rs"]
mod markdown;
mod support;

use markdown::{Page, pages_below};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use support::{ISOTHERM, Stage, sees_pages, workload};

/// The process that the examples watch is this one in the guide.
const PID: &str = "812";

/// Programs that stand in for what the guide takes for granted: `isotherm`, with Ctrl-C after ten seconds or more where it would go on, for less
/// time than by default where it ends, and with a terminal and a `q` for `top`; `sudo`, which the tests need not; and `pidof`, which finds the
/// workload. On a busy machine the daemon that a `status` asks may take longer to start than the page waits: it asks again.
fn stand_ins(stage: &Stage, pid: u32) {
    let interrupted =
        |seconds| format!("exec timeout --foreground --preserve-status --signal INT {seconds} {ISOTHERM} \"$@\"");
    let isotherm = format!(
        "case $1 in
        top) (sleep 3; printf q) | script --quiet --return --command \"{ISOTHERM} $*\" /dev/null;;
        demo) {} --unwatched 500ms;;
        collapse) {} --duration 5s;;
        reclaim) {} --duration 21s;;
        split) {} --idle 10s --duration 11s;;
        status) for i in $(seq 40); do {ISOTHERM} \"$@\" && exit 0; sleep 0.2; done; exit 1;;
        placement) {};;
        run) {};;
        *) {};;
        esac",
        interrupted(80),
        interrupted(80),
        interrupted(80),
        interrupted(80),
        interrupted(80),
        interrupted(15),
        interrupted(10)
    );
    let programs = [("isotherm", isotherm.as_str()), ("sudo", "exec \"$@\""), ("pidof", &format!("echo {pid}"))];
    fs::create_dir(stage.path("bin")).unwrap();
    for (name, script) in programs {
        let path = stage.path("bin").join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    }
}

fn run_examples(page: &Page) {
    let child = workload(32);
    let stage = Stage::new();
    stand_ins(&stage, child.pid());
    for (words, example) in &page.examples {
        match words.split_whitespace().collect::<Vec<_>>()[..] {
            ["sh"] => {
                let script = example.replace(PID, &child.pid().to_string());
                let path = stage.path("bin");
                let script = format!("set -eu -o pipefail; export PATH={}:$PATH\n{script}", path.display());
                stage.shell(&script).ended(0);
            }
            ["sh", "ignore"] => {}
            ["sh", "pmu"] => support::skip("a PMU that samples memory accesses"),
            ["sh", ..] => panic!("{}: a block begins with {words:?}", page.path.display()),
            _ => {}
        }
    }
}

/// All pages at once, each on a stage of its own: most of the time is spent waiting.
#[test]
fn every_example_of_the_guide_runs() {
    need!(sees_pages(), "the page-table source");
    let pages = pages_below("docs/guide");
    std::thread::scope(|scope| {
        let running: Vec<_> = pages.iter().map(|page| (page, scope.spawn(|| run_examples(page)))).collect();
        let failed: Vec<_> =
            running.into_iter().filter_map(|(page, run)| run.join().err().map(|_| &page.path)).collect();
        assert!(failed.is_empty(), "examples of {failed:?} failed");
    });
}
