//! `isotherm split` and `isotherm undo`: what probes show, what is split and given back, and that all of it can be brought back, also after
//! SIGKILL. Contents are compared page by page.

mod support;

use isotherm_sys::proc::Proc;
use isotherm_units::Addr;
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;
use support::{Script, Stage, can_collapse, huge_bytes, kernel_since, shows_huge_pages, skip, until, wait};

const MIB: u64 = 1 << 20;
const NEEDS: &str = "the page-table source, MADV_COLLAPSE, and PAGEMAP_SCAN (Linux 6.7) to see what is huge";
/// Huge memory of the script.
const HUGE: u64 = 32 * MIB;

/// 32 MiB on huge pages, of which one page in 16 holds anything. Of each huge page, four of these are accessed all the time. Compares all pages
/// on SIGUSR1.
struct Sparse {
    script: Script,
    at: Addr,
    verdict: PathBuf,
}

impl Sparse {
    fn start(stage: &Stage) -> Option<Sparse> {
        let verdict = stage.path("verdict");
        let script = Script::start(&format!(
            "
import signal
size, align = 32 << 20, 2 << 20
# With a flag that nothing else of Python has, so that it is a mapping of its own.
at = (reserve(size + align, NORESERVE) + align - 1) // align * align
pages = range(0, size >> 12)
def filling(page): return 1 + page * 7 % 251 if page % 16 == 0 else 0
for page in pages:
    if filling(page): ctypes.memset(at + (page << 12), filling(page), 4096)
# Not on advice, or khugepaged would make what is split huge again.
if libc.madvise(at, size, 25) != 0: sys.exit('no huge pages')
def compare(*_):
    same = all(ctypes.string_at(at + (p << 12), 4096) == bytes([filling(p)]) * 4096 for p in pages)
    with open('{}', 'w') as f: f.write('same' if same else 'changed')
signal.signal(signal.SIGUSR1, compare)
print(at, flush=True)
hot = [at + (page << 12) for page in pages if filling(page) and page % 512 < 64]
while True:
    for page in hot: ctypes.c_ubyte.from_address(page).value
    time.sleep(0.02)
",
            verdict.display()
        ))?;
        let at = Addr(script.line.trim().parse().unwrap());
        let sparse = Sparse { script, at, verdict };
        (sparse.huge() == HUGE).then_some(sparse)
    }

    fn pid(&self) -> u32 {
        self.script.pid()
    }

    /// What of it is on huge pages. Elsewhere in Python a huge page may come of heat.
    fn huge(&self) -> u64 {
        let smaps = Proc::default().smaps(self.pid()).unwrap().map(Result::unwrap);
        let mut own = smaps.filter(|entry| entry.map.range.contains(self.at));
        own.next().expect("its memory is mapped").usage.anon_huge.0
    }

    fn resident(&self) -> u64 {
        Proc::default().status(self.pid()).unwrap().rss.unwrap().0
    }

    /// Compares the contents of all pages. Reading does not bring zeros back that were given back.
    fn is_unchanged(&self) -> bool {
        let _ = fs::remove_file(&self.verdict);
        support::signal(self.pid(), "USR1");
        let answered = || fs::read_to_string(&self.verdict).is_ok_and(|text| !text.is_empty());
        assert!(until(Duration::from_secs(60), answered), "no answer");
        fs::read_to_string(&self.verdict).unwrap() == "same"
    }
}

/// `split` of a process, at budgets that do not hold it up.
fn split(pid: u32, more: &str) -> String {
    format!("split -p {pid} --journal j --idle 4s --max-cpu 200 --max-slowdown 200 {more}")
}

/// Mean and half interval of an estimate.
fn share(report: &Value, name: &str) -> (f64, f64) {
    let of = &report["mappings"][0]["judged"][name];
    let number = |name: &str| of[name].as_f64().unwrap_or_else(|| panic!("{report:#}"));
    (number("mean"), number("half_interval"))
}

/// From 6.12 on, a split gives pages back that hold nothing but zeros.
fn gives_zeros_back() -> bool {
    kernel_since(6, 12)
}

/// A program that was just started has no huge pages yet.
#[test]
fn huge_pages_are_waited_for_as_long_as_idle_ones_are() {
    need!(can_collapse() && shows_huge_pages(), NEEDS);
    let (stage, began) = (Stage::new(), std::time::Instant::now());
    let split = stage.isotherm("split --journal j --idle 2s -d 5s --dry-run -- sleep 60").ended(0);
    split.says("there is nothing to split");
    assert!(began.elapsed() >= Duration::from_secs(5), "{:?}", began.elapsed());
}

#[test]
fn a_dry_run_estimates_by_probes_and_leaves_all_as_it_was() {
    need!(can_collapse() && shows_huge_pages(), NEEDS);
    let stage = Stage::new();
    let Some(sparse) = Sparse::start(&stage) else { return skip("python3, and MADV_COLLAPSE of sparse memory") };
    let before = sparse.resident();
    let report = stage.json(&split(sparse.pid(), "-d 8s --probes 6 --per-second 100 --dry-run --json"));
    // Of 8,192 pages 64 are accessed all the time.
    for name in ["unused", "unused_of_used"] {
        let (unused, half) = share(&report, name);
        assert!((unused - 0.992).abs() <= half.max(0.02), "{report:#}");
    }
    let row = &report["mappings"][0];
    assert_eq!((&row["probes"], &row["splits_used"], &row["splits_idle"]), (&6.into(), &true.into(), &false.into()));
    assert_eq!(sparse.huge(), HUGE, "the probes are huge again: {report:#}");
    assert!(sparse.resident().abs_diff(before) < MIB);
    assert!(sparse.is_unchanged());
}

#[test]
fn what_is_split_is_given_back_and_undo_brings_it_back() {
    need!(can_collapse() && shows_huge_pages(), NEEDS);
    let stage = Stage::new();
    let Some(sparse) = Sparse::start(&stage) else { return skip("python3, and MADV_COLLAPSE of sparse memory") };
    let before = sparse.resident();
    let report = stage.json(&split(sparse.pid(), "-d 8s --probes 8 --per-second 100 --json"));
    assert_eq!(report["mappings"][0]["split"], 16, "{report:#}");
    assert_eq!(sparse.huge(), 0, "{report:#}");
    if gives_zeros_back() {
        let gone = before - sparse.resident();
        assert!((24 * MIB..=31 * MIB).contains(&gone), "{gone} given back: {report:#}");
        let reported = report["mappings"][0]["returned_bytes"].as_u64().unwrap();
        assert!(reported.abs_diff(gone) <= 5 * MIB, "{gone}: {report:#}");
    }
    assert!(sparse.is_unchanged());
    stage.isotherm("undo --journal j --dry-run").ended(0).prints("16 were split");
    let undone = stage.json("undo --journal j --json");
    let brought_back = undone["collapsed"].as_u64().unwrap() + undone["moot"].as_u64().unwrap();
    assert_eq!((brought_back, &undone["left"]), (16, &serde_json::json!({})), "{undone:#}");
    assert_eq!(sparse.huge(), HUGE);
    assert!(sparse.is_unchanged());
    assert_eq!(fs::read_to_string(stage.path("j")).unwrap(), "", "nothing is left to undo");
    stage.isotherm("undo --journal j").ended(0).prints("0 of 0");
}

#[test]
fn killed_in_the_middle_it_is_undone() {
    need!(can_collapse() && shows_huge_pages(), NEEDS);
    let stage = Stage::new();
    let Some(sparse) = Sparse::start(&stage) else { return skip("python3, and MADV_COLLAPSE of sparse memory") };
    // While it splits the probes, and after that.
    for at_most in [HUGE - 2 * MIB, HUGE - 12 * MIB] {
        let running = stage.start_isotherm(&split(sparse.pid(), "-d 6s --probes 4 --per-second 8"));
        assert!(until(Duration::from_secs(60), || sparse.huge() <= at_most), "{}", running.err());
        stage.isotherm("undo --journal j").ended(1).says("in use");
        support::signal(running.pid(), "KILL");
        assert_eq!(running.end().code, None);
        assert!(sparse.huge() < HUGE);
        stage.isotherm("undo --journal j").ended(0);
        assert_eq!(sparse.huge(), HUGE);
        assert!(sparse.is_unchanged());
    }
}

#[test]
fn an_interrupted_split_collapses_its_probes_again() {
    need!(can_collapse() && shows_huge_pages(), NEEDS);
    let stage = Stage::new();
    let Some(sparse) = Sparse::start(&stage) else { return skip("python3, and MADV_COLLAPSE of sparse memory") };
    let running = stage.start_isotherm(&split(sparse.pid(), "--probes 8 --per-second 100"));
    assert!(until(Duration::from_secs(60), || sparse.huge() <= HUGE - 16 * MIB), "{}", running.err());
    wait(Duration::from_secs(1));
    running.signal("INT");
    running.end().ended(0);
    assert_eq!(sparse.huge(), HUGE);
    assert!(sparse.is_unchanged());
}

#[test]
fn what_was_collapsed_is_split_by_undo() {
    need!(can_collapse() && shows_huge_pages(), NEEDS);
    let stage = Stage::new();
    let Some(script) =
        Script::start("at = reserve(32 << 20); ctypes.memset(at, 1, 32 << 20); print(at, flush=True); time.sleep(600)")
    else {
        return skip("python3");
    };
    let budgets = "--max-cpu 200 --max-slowdown 200 --per-second 1000 --max-collapse-cpu 200 --max-stall 200";
    stage.isotherm(&format!("collapse -p {} -d 2s --order address --journal j {budgets}", script.pid())).ended(0);
    let collapsed = huge_bytes(script.pid());
    assert!(collapsed >= 2 * MIB, "nothing was collapsed");
    let undone = stage.json("undo --journal j --json");
    assert_eq!(undone["split"].as_u64(), Some(collapsed / (2 * MIB)), "{undone:#}");
    assert_eq!(huge_bytes(script.pid()), 0);
}

/// `run` with a scheme that splits and one that collapses: of each huge page, the pages in use are hot.
#[test]
fn a_scheme_splits_what_is_unused_and_it_stays_split() {
    need!(can_collapse() && shows_huge_pages(), NEEDS);
    let stage = Stage::new();
    let Some(sparse) = Sparse::start(&stage) else { return skip("python3, and MADV_COLLAPSE of sparse memory") };
    let before = sparse.resident();
    let settings = "
[[scheme]]
action = \"split\"
min_idle = \"10s\"

[[scheme]]
action = \"collapse\"

[budgets]
per_second = 100.0
min_present = 0
growth_pct = 1000000.0
";
    fs::write(stage.path("c.toml"), settings).unwrap();
    let run = "run -c c.toml --socket s --journal j --no-children --max-cpu 200 --max-slowdown 200";
    let mut daemon = stage.start_isotherm(&format!("{run} -p {}", sparse.pid()));
    daemon.until_it_says("status at");
    let split = || stage.json("status --socket s --json")["targets"][0]["split"].clone();
    // The age before the probes, twice the age after them, and some windows.
    let has_split = || split()["split"] == 16;
    // Reclaim and compaction of the machine clear accessed bits, too, and then a scheme does nothing for ten minutes.
    let is_disturbed = || split()["stays"] == "cleared-by-others";
    assert!(until(Duration::from_secs(80), || has_split() || is_disturbed()), "{:#}\n{}", split(), daemon.err());
    if is_disturbed() {
        return skip("a machine that neither reclaims nor compacts memory meanwhile");
    }
    assert_eq!((&split()["probes"], &split()["collapsed_again"]), (&4.into(), &0.into()), "{:#}", split());
    wait(Duration::from_secs(4));
    assert_eq!(sparse.huge(), 0, "the other scheme does not collapse it for now: {:#}", split());
    let unused = split()["unused_bytes"].as_u64().unwrap();
    // Four pages of 512 are in use.
    assert!((HUGE - MIB..HUGE).contains(&unused), "{unused}");
    if gives_zeros_back() {
        let gone = before - sparse.resident();
        assert!((24 * MIB..=31 * MIB).contains(&gone), "{gone} given back: {:#}", split());
        let reported = split()["returned_bytes"].as_u64().unwrap();
        assert!(reported.abs_diff(gone) <= 5 * MIB, "{gone}: {:#}", split());
    }
    stage.isotherm("status --socket s").ended(0).prints("split: 16 huge pages");
    daemon.signal("TERM");
    daemon.end().ended(0).prints("split on hints from heat: 16");
    assert!(sparse.is_unchanged());
    let undone = stage.json("undo --journal j --json");
    let brought_back = undone["collapsed"].as_u64().unwrap() + undone["moot"].as_u64().unwrap();
    assert_eq!((brought_back, sparse.huge()), (16, HUGE), "{undone:#}");
    assert!(sparse.is_unchanged());
}

#[test]
fn without_a_journal_there_is_nothing_to_undo_and_wrong_uses_are_refused() {
    let stage = Stage::new();
    stage.isotherm("undo --journal none").ended(0).says("is not there").prints("0 of 0");
    assert!(!stage.path("none").exists(), "and none is made");
    stage.isotherm("split --all").ended(2).says("that are named");
    stage.isotherm("split -p 1 --replay old").ended(2).says("without --replay");
    stage.isotherm("split -p 1 --idle 1m -d 30s").ended(2).says("longer than --idle");
    stage.isotherm("collapse -p 1 --journal nowhere/j -d 1s").ended(1).says("--journal");
}
