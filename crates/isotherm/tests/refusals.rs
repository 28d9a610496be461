//! Why the kernel collapses no huge range: found out without reading `smaps`, for which the target would have to wait.

mod support;

use isotherm_heat::TargetId;
use isotherm_schemes::Refusal;
use isotherm_schemes::action::Failure;
use isotherm_schemes::collapse::CollapseMachine;
use isotherm_schemes::machine::{DryRun, Live, Machine};
use isotherm_sys::proc::Proc;
use isotherm_units::{Addr, PmdNo};
use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, Instant};
use support::{Script, Stage, alone, can_collapse, is_root, kernel_since, read, skip, until, wait, workload};

const NEEDS: &str = "the page-table source, and transparent huge pages not set to `always`";
const MIB: u64 = 1 << 20;

/// Python that reserves memory from the beginning of a huge range on.
const PMD_OF: &str = "
def pmd_of(size):
    at = reserve(size + (2 << 20))
    return (at + (2 << 20) - 1) >> 21 << 21
";

/// Python that registers `size` bytes at `at` with userfaultfd: mode 1 for missing pages, 2 for write protection.
const USERFAULT: &str = "
import fcntl, os, struct
uffd = libc.syscall(323, os.O_CLOEXEC | os.O_NONBLOCK)
def ask(number, layout, *values):
    try:
        fcntl.ioctl(uffd, number, bytearray(struct.pack(layout, *values)))
    except OSError as e:
        print('no userfaultfd', flush=True)
        sys.exit(1)
ask(0xc018aa3f, 'QQQ', 0xaa, 0, 0)
def register(at, size, mode): ask(0xc020aa00, 'QQQQ', at, size, mode, 0)
def protect(at, size): ask(0xc018aa06, 'QQQ', at, size, 1)
";

/// Runs Python code that can use both; `None` without Python or userfaultfd.
fn script(code: &str) -> Option<Script> {
    Script::start(&format!("{PMD_OF}{USERFAULT}\n{code}")).filter(|script| !script.line.contains("no userfaultfd"))
}

/// The process as a machine sees it whose `/proc` has everything but `smaps`.
fn without_smaps(stage: &Stage, pid: u32) -> (Live, TargetId) {
    let dir = stage.path("proc").join(pid.to_string());
    std::fs::create_dir_all(&dir).unwrap();
    for file in ["stat", "status", "maps", "pagemap", "task", "cgroup"] {
        symlink(format!("/proc/{pid}/{file}"), dir.join(file)).unwrap();
    }
    let id = Proc::default().identity(pid).unwrap();
    (Live::at(Proc::at(stage.path("proc"))), TargetId { pid, start_ticks: id.start_ticks })
}

/// The huge ranges from the address on that the script has printed, 32 MiB, are left as they are for this reason.
fn leaves_its_pmds(script: &Script, why: &str) {
    let args = format!("collapse -p {} -d 5s --order address --max-growth 50 --verbose", script.pid());
    let ran = Stage::new().isotherm(&args).ended(0);
    let line = |pmd: u64| {
        let address = format!("{:#x} ", script.numbers()[0] + (pmd << 21));
        ran.out.lines().find(|line| line.contains(&address)).unwrap_or_else(|| panic!("{address}\n{ran}"))
    };
    (0..16).for_each(|pmd| assert!(line(pmd).ends_with(&format!("skip: {why}")), "{}\n{ran}", line(pmd)));
}

#[test]
fn what_is_write_protected_through_userfaultfd_is_not_even_tried() {
    need!(can_collapse(), NEEDS);
    need!(is_root(), "root, for userfaultfd");
    let _turn = alone();
    // Hot, and one page of each huge range write-protected: what tracks writes, or takes a snapshot, does this.
    let script = script(
        "
size = 32 << 20
at = pmd_of(size)
ctypes.memset(at, 1, size)
register(at, size, 2)
for pmd in range(size >> 21): protect(at + (pmd << 21) + 0x1000, 0x1000)
print(at, flush=True)
while True:
    ctypes.string_at(at, size)
    time.sleep(0.05)",
    );
    let Some(script) = script else { return skip("python3 and userfaultfd with write protection") };
    leaves_its_pmds(&script, "pages write-protected through userfaultfd");
}

#[test]
fn missing_pages_that_userfaultfd_serves_are_no_refused_charge() {
    need!(can_collapse(), NEEDS);
    need!(is_root(), "root, for userfaultfd");
    // 6.1 says EINVAL, as for anything; where between them that changed was not looked up.
    need!(kernel_since(6, 12), "a kernel that says EBUSY for missing pages (6.12 does)");
    let _turn = alone();
    // Of each huge range the last page is missing.
    let script = script(
        "
size = 32 << 20
at = pmd_of(size)
pmds = [at + (n << 21) for n in range(size >> 21)]
for pmd in pmds: ctypes.memset(pmd, 1, (2 << 20) - 4096)
register(at, size, 1)
print(at, flush=True)
while True:
    for pmd in pmds: ctypes.string_at(pmd, (2 << 20) - 4096)
    time.sleep(0.05)",
    );
    let Some(script) = script else { return skip("python3 and userfaultfd") };
    leaves_its_pmds(&script, "missing pages that are served through userfaultfd");
}

/// CPU time that a process has used.
fn cpu_s(pid: u32) -> f64 {
    let stat = read(&Path::new("/proc").join(pid.to_string()).join("stat"));
    let after_name = &stat[stat.rfind(')').unwrap()..];
    let ticks: Vec<u32> = after_name.split(' ').skip(12).take(2).map(|word| word.parse().unwrap()).collect();
    f64::from(ticks[0] + ticks[1]) / 100.0
}

#[test]
fn a_flood_of_hints_that_are_refused_leaves_the_processor_to_others() {
    need!(can_collapse(), NEEDS);
    let _turn = alone();
    let (stage, child) = (Stage::new(), workload(16));
    let mut daemon = stage.start_isotherm(&format!("run --socket s.sock -p {}", child.pid()));
    daemon.until_it_says("status at");
    let status = || stage.json("status --json --socket s.sock");
    assert!(until(Duration::from_secs(20), || status()["targets"][0]["rss_bytes"].as_u64() > Some(0)));
    // 1 TiB in which nothing is mapped: half a million huge ranges, each checked and refused.
    stage.isotherm(&format!("hint --socket s.sock -p {} 100000000000-110000000000", child.pid())).ended(0);
    let (cpu, began) = (cpu_s(daemon.pid()), Instant::now());
    wait(Duration::from_secs(8));
    let (used, took) = (cpu_s(daemon.pid()) - cpu, began.elapsed().as_secs_f64());
    let after = status();
    assert!(after["counters"]["refused"]["unmapped"].as_u64() > Some(1000), "{after:#}");
    assert!(after["hints"]["queued"].as_u64() > Some(0), "not all were tried in this time: {after:#}");
    // 10% for hints, 1% for watching. Without a limit it is about 70%.
    assert!(used < 0.3 * took, "{used} s of CPU in {took} s: {after:#}");
    daemon.signal("TERM");
    daemon.end().ended(0);
}

#[test]
fn a_refusal_is_explained_without_reading_smaps() {
    need!(can_collapse(), NEEDS);
    need!(is_root(), "root, to collapse memory of another process");
    let _turn = alone();
    let script = Script::start(&format!(
        "{PMD_OF}
size = 256 << 20
forbidden, untouched = pmd_of(size), pmd_of(size)
libc.madvise(forbidden, size, 15)
ctypes.memset(forbidden, 1, size)
ctypes.memset(untouched, 1, 4096)
print(forbidden, untouched + (64 << 20), flush=True)
while True: time.sleep(1)"
    ));
    let Some(script) = script else { return skip("python3") };
    let stage = Stage::new();
    let (mut live, process) = without_smaps(&stage, script.pid());
    // Asked before its descriptors are listed and its pagemap is opened, and nothing is kept of it.
    assert_eq!(live.admit(process, &|_| Some(Refusal::Disabled)), Err(Refusal::Disabled));
    assert_eq!(live.check_pmd(process, PmdNo(0), false), Err(Refusal::NotNamed));
    live.admit(process, &|_| None).unwrap();
    let pmd = |at: u64| -> PmdNo { Addr(at).pmd() };
    let [forbidden, untouched] = script.numbers()[..] else { panic!("{}", script.line) };

    // A dry run asks, since it cannot try.
    let mut dry_run = DryRun::new(BTreeMap::new());
    dry_run.admit(process, &|_| None).unwrap();
    let of_dry_run = [forbidden, untouched].map(|at| dry_run.check_pmd(process, pmd(at), false).unwrap().refusal);
    assert_eq!(of_dry_run, [Some(Refusal::NoHugeAdvice), None]);

    let check = live.check_pmd(process, pmd(forbidden), false).unwrap();
    assert_eq!((check.present, check.refusal), (512, None), "nothing shows it before it is tried");
    let tried = live.collapse(process, pmd(forbidden));
    assert_eq!(tried.result, Err(Failure::Refused(Refusal::NoHugeAdvice)));
    // Known of the whole mapping from then on.
    let other = live.check_pmd(process, pmd(forbidden + 100 * MIB), false).unwrap();
    assert_eq!(other.refusal, Some(Refusal::NoHugeAdvice));

    let tried = live.collapse(process, pmd(untouched));
    assert_eq!(tried.result, Err(Failure::Unexplained), "of this huge range, and not of its mapping");
    assert_eq!(live.check_pmd(process, pmd(untouched + 2 * MIB), false).unwrap().refusal, None);
}
