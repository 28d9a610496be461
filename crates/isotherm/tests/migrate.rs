//! Schemes that move pages between memory tiers: what moves on a machine with two (a guest of the lab), and what is said on one with one.

mod support;

use isotherm_sys::move_pages::{Place, places};
use isotherm_sys::tiers::Tiers;
use isotherm_units::{Addr, PageNo};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::time::Duration;
use support::{Script, Stage, idle_and_hot, is_unchanged, sees_pages, skip, until, workload};

const MIB: u64 = 1 << 20;
const SCHEMES: &str = "\
[[scheme]]
action = \"promote\"
[[scheme]]
action = \"demote\"
min_idle = \"10s\"
keep_free = 100.0
[watch]
max_cpu = 200.0
max_slowdown = 200.0
[budgets]
per_second = 1000.0
cpu_pct = 200.0
stall_pct = 200.0
";

fn tiers() -> Tiers {
    Tiers::read(Path::new("/sys"))
}

fn settings(stage: &Stage) -> String {
    let path = stage.path("tiers.toml");
    fs::write(&path, SCHEMES).unwrap();
    path.display().to_string()
}

#[test]
fn with_one_tier_nothing_can_move_and_what_could_do_harm_is_refused() {
    need!(sees_pages(), "the page-table source");
    need!(!tiers().are_several(), "a machine whose memory is all in one tier");
    let (child, stage) = (workload(8), Stage::new());
    let settings = settings(&stage);
    stage.isotherm(&format!("run -p {} -c {settings} -d 2s", child.pid())).ended(1).says("in one tier");
    stage.isotherm(&format!("migrate -p {}", child.pid())).ended(1).says("in one tier");
    // One file of settings is for many machines: what else it asks for is done.
    let both = stage.path("both.toml");
    fs::write(&both, format!("dry_run = true\n[[scheme]]\naction = \"collapse\"\n{SCHEMES}")).unwrap();
    let both = both.display();
    stage.isotherm(&format!("run -p {} -c {both} -d 2s", child.pid())).ended(0).says("it is left out");
    stage.isotherm("migrate --all").ended(2).says("named only");
    stage.isotherm("migrate -p 1 --idle 1m -d 1m").ended(2).says("longer than --idle");
    stage.isotherm("migrate -p 1 --beside").ended(2).says("leave out --beside");
    stage.isotherm("migrate -p 1 --promote-only --demote-only").ended(2).says("cannot be used with");
    for (more, why) in
        [("--all", "named only"), ("-p 1 --beside", "leave out --beside"), ("-p 1 --hints mglru", "--hints heat")]
    {
        stage.isotherm(&format!("run {more} -c {settings} -d 2s")).ended(2).says(why);
    }
}

/// How much of a range is on fast and on slow memory, in MiB.
fn on_fast_and_slow(pid: u32, range: std::ops::Range<u64>) -> (u64, u64) {
    let pages: Vec<PageNo> = (range.start / 4096..range.end / 4096).map(PageNo).collect();
    let (tiers, found) = (tiers(), places(pid, &pages).unwrap());
    let of = |is_fast| {
        found.iter().filter(|place| matches!(place, Place::Node(node) if tiers.is_fast(*node) == is_fast)).count()
            as u64
    };
    (of(true) * 4096 / MIB, of(false) * 4096 / MIB)
}

#[test]
fn idle_pages_go_down_and_come_up_when_they_are_accessed_as_they_were() {
    need!(sees_pages(), "the page-table source");
    need!(
        std::env::var_os("ISOTHERM_LAB").is_some() && tiers().are_several(),
        "a guest of the lab with two memory tiers"
    );
    let stage = Stage::new();
    let verdict = stage.path("verdict");
    let Some(script) = idle_and_hot(32, &verdict) else { return skip("python3") };
    let at = Addr(script.numbers()[0]).0;
    let (hot, idle) = (at..at + 4 * MIB, at + 4 * MIB..at + 32 * MIB);
    let mut run = stage.start_isotherm(&format!("run --socket s.sock -p {} -c {}", script.pid(), settings(&stage)));
    run.until_it_says("status at");
    let reported = || stage.json("status --json --socket s.sock")["targets"][0]["migrate"].clone();
    let bytes = |name: &str| reported()[name].as_u64().unwrap_or(0);
    assert!(
        until(Duration::from_secs(90), || on_fast_and_slow(script.pid(), idle.clone()).1 >= 26),
        "{:#}",
        reported()
    );
    assert_eq!(on_fast_and_slow(script.pid(), hot.clone()).1, 0, "what is hot stays: {:#}", reported());
    assert!(until(Duration::from_secs(20), || bytes("demoted_bytes") >= 26 * MIB), "{:#}", reported());
    assert_eq!((bytes("back_bytes"), &reported()["stays"]), (0, &Value::Null), "{:#}", reported());
    // All of it is read at once, which is too little to be hot, and its contents are as they were.
    assert!(is_unchanged(&script, &verdict, || {}));
    run.signal("INT");
    run.end().ended(0).prints("to slow memory");
}

#[test]
fn killed_while_pages_go_down_nothing_is_lost_and_the_next_run_goes_on() {
    need!(sees_pages(), "the page-table source");
    need!(
        std::env::var_os("ISOTHERM_LAB").is_some() && tiers().are_several(),
        "a guest of the lab with two memory tiers"
    );
    let stage = Stage::new();
    let (settings, verdict) = (stage.path("tiers.toml"), stage.path("verdict"));
    fs::write(&settings, SCHEMES.replace("min_idle", "quota = { size = \"2MiB\" }\nmin_idle")).unwrap();
    let Some(script) = idle_and_hot(32, &verdict) else { return skip("python3") };
    let at = Addr(script.numbers()[0]).0;
    let slow = || on_fast_and_slow(script.pid(), at + 4 * MIB..at + 32 * MIB).1;
    for at_least in [4, 12] {
        let watch = format!("run --socket s.sock --journal j -p {}", script.pid());
        let mut run = stage.start_isotherm(&format!("{watch} -c {}", settings.display()));
        run.until_it_says("status at");
        assert!(until(Duration::from_secs(90), || slow() >= at_least), "{}", run.err());
        run.signal("KILL");
        assert_eq!(run.end().code, None);
        let left = slow();
        assert!(left < 26, "in the middle: {left} MiB");
        std::thread::sleep(Duration::from_secs(4));
        assert_eq!(slow(), left, "nothing goes on without it");
        assert!(is_unchanged(&script, &verdict, || {}));
    }
    stage.isotherm("undo --journal j").ended(0).prints("0 of 0").prints("stays there");
}

#[test]
fn once_idle_pages_go_down_and_a_dry_run_says_so_before() {
    need!(sees_pages(), "the page-table source");
    need!(
        std::env::var_os("ISOTHERM_LAB").is_some() && tiers().are_several(),
        "a guest of the lab with two memory tiers"
    );
    let stage = Stage::new();
    let Some(script) = idle_and_hot(32, &stage.path("verdict")) else { return skip("python3") };
    let at = Addr(script.numbers()[0]).0;
    let (hot, idle) = (at..at + 4 * MIB, at + 4 * MIB..at + 32 * MIB);
    let budgets = "--per-second 10000 --max-migrate-cpu 200 --max-cpu 200 --max-slowdown 200 --keep-free 100";
    let migrate = format!("migrate -p {} --idle 6s -d 20s {budgets} --json", script.pid());
    let would = stage.json(&format!("{migrate} --dry-run"));
    let bytes = |report: &Value, name: &str| report["processes"][0][name].as_u64().unwrap();
    assert!(bytes(&would, "demoted_bytes") >= 26 * MIB && bytes(&would, "idle_bytes") >= 26 * MIB, "{would:#}");
    assert!((4 * MIB..8 * MIB).contains(&bytes(&would, "hot_bytes")), "{would:#}");
    assert_eq!(on_fast_and_slow(script.pid(), idle.clone()).1, 0, "nothing has moved: {would:#}");
    let promoted = stage.json(&format!("{migrate} --promote-only"));
    assert_eq!((bytes(&promoted, "demoted_bytes"), bytes(&promoted, "idle_bytes")), (0, 0), "{promoted:#}");
    let moved = stage.json(&migrate);
    let (_, slow) = on_fast_and_slow(script.pid(), idle);
    assert!(slow >= 26, "{slow} MiB on slow memory: {moved:#}");
    assert!(bytes(&moved, "demoted_bytes") >= slow * MIB, "{moved:#}");
    assert_eq!(on_fast_and_slow(script.pid(), hot).1, 0, "what is hot stays: {moved:#}");
}

/// 16 MiB on slow memory, all of them accessed all the time.
#[test]
fn hot_pages_on_slow_memory_go_up() {
    need!(sees_pages(), "the page-table source");
    need!(
        std::env::var_os("ISOTHERM_LAB").is_some() && tiers().are_several(),
        "a guest of the lab with two memory tiers"
    );
    let stage = Stage::new();
    let hot = "at = reserve(16 << 20); ctypes.memset(at, 1, 16 << 20); print(at, flush=True); heat([at + page for page in range(0, 16 << 20, 4096)])";
    let Some(script) = Script::start(hot) else { return skip("python3") };
    let at = Addr(script.numbers()[0]).0;
    let pages: Vec<PageNo> = (at / 4096..at / 4096 + 4096).map(PageNo).collect();
    let slow = tiers().below(tiers().nodes()[0][0])[0];
    isotherm_sys::move_pages::move_to(script.pid(), &pages, slow).unwrap();
    let range = at..at + 16 * MIB;
    assert!(on_fast_and_slow(script.pid(), range.clone()).1 >= 15);
    let mut run = stage.start_isotherm(&format!("run --socket s.sock -p {} -c {}", script.pid(), settings(&stage)));
    run.until_it_says("status at");
    let status = || format!("{:#}", stage.json("status --json --socket s.sock"));
    assert!(until(Duration::from_secs(60), || on_fast_and_slow(script.pid(), range.clone()).0 >= 15), "{}", status());
    run.signal("INT");
    run.end().ended(0).prints("moved to fast memory");
}
