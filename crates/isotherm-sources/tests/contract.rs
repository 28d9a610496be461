//! What every source promises, asked of each that this machine has, on processes of our own.

#![allow(missing_docs, reason = "no library")]

use isotherm_heat::source::{AccessSource, Cleared, PageSource, SourceError, SourceErrorKind, SourceResult};
use isotherm_heat::{Granularity, MappingBits, Mask, PmdBits};
use isotherm_sources::choose::{self, Wanted};
use isotherm_sources::page_table::{ClearBy, PageTable};
use isotherm_sys::memory::{Memory, PageSize};
use isotherm_sys::proc::{MapEntry, Proc};
use isotherm_units::{PageNo, PmdNo};
use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Killed and reaped when dropped.
struct Process(Child);

impl Process {
    fn start(program: &str, args: &[&str]) -> Process {
        let process = Process(Command::new(program).args(args).stdin(Stdio::piped()).spawn().unwrap());
        // Past its start, it runs `program` and not a copy of us.
        let name = program.to_owned() + "\n";
        assert!(until(|| comm(process.pid()) == name), "{program} never came up");
        process
    }

    /// One that has done all it does before it waits. With every CPU busy that takes far longer than here alone, and until then
    /// it touches pages.
    fn asleep(program: &str, args: &[&str]) -> Process {
        let process = Process::start(program, args);
        assert!(until(|| sleeps(process.pid())), "{program} never waited");
        process
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What a script of Python may use: modules, and the calls of the C library that map memory.
const PRELUDE: &str = "
import ctypes, os, sys, tempfile, time
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
HUGE, PAGE = 2 << 20, 1 << 12
# Of small pages.
def huge_ranges(count):
    start = libc.mmap(None, (count + 1) * HUGE, 3, 0x22, -1, 0)
    libc.madvise(ctypes.c_void_p(start), (count + 1) * HUGE, 15)
    return (start + HUGE - 1) // HUGE * HUGE
";

/// Starts a script of Python, and returns the lines that it prints. `None` without Python.
fn python(script: &str) -> Option<(Process, Lines<BufReader<ChildStdout>>)> {
    let mut command = Command::new("python3");
    command.args(["-c", &format!("{PRELUDE}{script}")]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut process = Process(command.spawn().ok()?);
    let lines = BufReader::new(process.0.stdout.take()?).lines();
    Some((process, lines))
}

fn comm(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default()
}

/// Whether it waits for an event that may never come: not for a CPU, nor for a disk or a lock of the kernel.
fn sleeps(pid: u32) -> bool {
    Proc::default().thread_state(pid, pid).is_ok_and(|state| state == 'S')
}

/// Counted from the page tables. `VmRSS` is no truth: kernels before 6.2 add up to it after 64 page faults of a thread, each of
/// which may have mapped 16 pages.
fn resident_pages(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let line = text.lines().find_map(|l| l.strip_prefix("Rss:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 4
}

fn until(mut is_so: impl FnMut() -> bool) -> bool {
    let began = Instant::now();
    while !is_so() {
        if began.elapsed() > Duration::from_secs(30) {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}

/// Says that something was not tested, and why. `make test` counts these lines.
fn skip(why: &str) {
    // Not `eprintln!`, which the test harness swallows.
    let _ = std::io::stderr().write_all(format!("skipped: needs {why}\n").as_bytes());
}

/// Asks each source that can be had here.
fn of_each(question: impl Fn(&mut dyn AccessSource)) {
    for wanted in [Wanted::Referenced, Wanted::PageTable] {
        match choose::open(wanted) {
            Ok(mut source) => question(&mut *source),
            Err(why) => skip(&format!("the source {wanted:?}: {why}")),
        }
    }
}

/// Pages present, and accessed ones among them.
fn count(source: &mut dyn AccessSource, pid: u32) -> SourceResult<(u64, u64)> {
    let pmds = source.layout(pid)?.pmds;
    if let Some(mappings) = source.as_mappings() {
        let counted = mappings.count(pid)?.mappings;
        let sum = |of: fn(&MappingBits) -> u64| counted.iter().map(of).sum();
        return Ok((sum(|m| m.resident_pages), sum(|m| m.young_pages)));
    }
    let (mut present, mut young) = (0, 0);
    pages(source).read(pid, &pmds, &mut |_, _, bits| match bits {
        Some(PmdBits::Pages { present: p, young: y }) => {
            present += u64::from(p.count());
            young += u64::from(y.count());
        }
        Some(PmdBits::Huge { young: y }) => {
            present += 512;
            young += 512 * u64::from(y);
        }
        // Gone, or could not be read.
        Some(PmdBits::Gone) | None => {}
    })?;
    Ok((present, young))
}

/// Its page bits, of a source that has them.
fn pages(source: &mut dyn AccessSource) -> &mut dyn PageSource {
    source.as_pages().expect("a source of page bits")
}

/// Clears all of a process, in whichever way the source can.
fn clear_all(source: &mut dyn AccessSource, pid: u32) -> SourceResult<()> {
    match source.as_mappings() {
        Some(mappings) => mappings.clear(pid).map(drop),
        None => pages(source).clear_process(pid, &[], &[]).map(drop),
    }
}

#[test]
fn what_is_resident_is_found_whole() {
    of_each(|source| {
        let process = Process::asleep("sleep", &["60"]);
        source.attach(process.pid()).unwrap();
        let layout = source.layout(process.pid()).unwrap();
        assert!(layout.mappings.windows(2).all(|m| m[0].range.end <= m[1].range.start), "sorted and apart");
        assert!(layout.pmds.windows(2).all(|b| b[0] < b[1]), "sorted, each once");
        assert_eq!(layout.pmds.is_empty(), source.describe().granularity == Granularity::Mapping);
        let (present, _) = count(source, process.pid()).unwrap();
        let truth = resident_pages(process.pid());
        // A page may come or go between the two; vdso pages count for nobody.
        assert!(present.abs_diff(truth) <= 64, "{} found {present} of {truth} pages", source.describe().name);
    });
}

#[test]
fn after_a_clear_a_sleeper_is_idle() {
    of_each(|source| {
        let process = Process::asleep("sleep", &["60"]);
        source.attach(process.pid()).unwrap();
        let (present, before) = count(source, process.pid()).unwrap();
        let most = before / 10 + 8;
        // `smaps` also counts what other processes have accessed of the same files, such as those of other tests.
        let clear_and_count = |_| {
            clear_all(source, process.pid()).unwrap();
            count(source, process.pid()).unwrap().1
        };
        let after: Vec<u64> = (0..10).map(clear_and_count).collect();
        assert!(
            before > 50 && after.iter().any(|young| *young < most),
            "{}: of {present} pages {before} were young, then {after:?}",
            source.describe().name
        );
    });
}

#[test]
fn a_clear_reaches_the_huge_ranges_that_were_named_and_no_others() {
    let Ok(mut source) = choose::open(Wanted::PageTable) else {
        return skip("the page-table source");
    };
    let process = Process::asleep("sleep", &["60"]);
    source.attach(process.pid()).unwrap();
    let pmds = source.layout(process.pid()).unwrap().pmds;
    let young = |source: &mut dyn AccessSource, pmds: &[PmdNo]| {
        let mut young = 0;
        let mut sink = |_, _, bits| {
            if let Some(PmdBits::Pages { young: y, .. }) = bits {
                young += u64::from(y.count());
            }
        };
        pages(source).read(process.pid(), pmds, &mut sink).unwrap();
        young
    };
    let before: Vec<u64> = pmds.iter().map(|b| young(&mut *source, &[*b])).collect();
    let named = before.iter().position(|n| *n > 0).expect("something is young");
    let mut told = Vec::new();
    pages(&mut *source).clear(process.pid(), &[pmds[named]], &mut |_, pmd, _| told.push(pmd)).unwrap();
    assert_eq!(told, [pmds[named]], "each huge range is told of once");
    let after: Vec<u64> = pmds.iter().map(|b| young(&mut *source, &[*b])).collect();
    for (i, pmd) in pmds.iter().enumerate() {
        let kept = if i == named { after[i] <= before[i] } else { after[i] == before[i] };
        assert!(kept, "{pmd:?}: {} young before, {} after", before[i], after[i]);
    }
}

#[test]
fn a_clear_for_shared_pages_tells_every_huge_range_that_it_reached() {
    let Ok(mut source) = choose::open(Wanted::PageTable) else {
        return skip("the page-table source");
    };
    let path = std::env::temp_dir().join(format!("isotherm-contract-{}", std::process::id()));
    let file = std::fs::OpenOptions::new().create_new(true).read(true).write(true).open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    file.set_len(10 << 20).unwrap();
    let shared = Memory::shared(&file, 8 << 20).unwrap();
    let private = Memory::anonymous(2 << 20, PageSize::Small).unwrap();
    shared.populate();
    private.populate();
    let pid = std::process::id();
    source.attach(pid).unwrap();
    let all = source.layout(pid).unwrap().pmds;
    let of = |memory: &Memory| memory.range().pmds().collect::<Vec<PmdNo>>();
    // Only one of its huge ranges was found stuck so far: the others were cleared with it, and nothing may be lost of them.
    let cleared = pages(&mut *source).clear_process(pid, &of(&shared)[..1], &all).unwrap();
    assert!(of(&shared).iter().all(|b| cleared.pmds.contains(b)), "{:?}", cleared.pmds);
    assert!(!cleared.pmds.contains(&of(&private)[0]), "private memory is not reached by that, and not said to be");
    let cleared = pages(&mut *source).clear_process(pid, &of(&private), &all).unwrap();
    assert_eq!(cleared.pmds, all, "private memory is stuck as well: everything is cleared");
}

#[test]
fn what_is_gone_is_a_normal_event() {
    of_each(|source| {
        let process = Process::asleep("sleep", &["60"]);
        let pid = process.pid();
        source.attach(pid).unwrap();
        source.layout(pid).unwrap();
        drop(process);
        let errors = [
            source.layout(pid).map(drop).unwrap_err(),
            count(source, pid).map(drop).unwrap_err(),
            clear_all(source, pid).unwrap_err(),
        ];
        for error in errors {
            assert!(error.is_gone(), "{}: {error}", source.describe().name);
        }
        source.detach(pid);
        // Nobody home, and never was.
        source.detach(pid);
        let again = source.attach(pid).map(drop).and_then(|()| source.layout(pid).map(drop)).unwrap_err();
        assert!(again.is_gone(), "{again}");
    });
}

#[test]
fn kernel_threads_have_no_memory() {
    if comm(2) != "kthreadd\n" {
        return skip("to see kernel threads");
    }
    of_each(|source| {
        let error = source.attach(2).map(drop).and_then(|()| source.layout(2).map(drop)).unwrap_err();
        assert!(error.is_gone() && error.to_string().contains("process 2 has no user memory"), "{error}");
    });
}

#[test]
fn a_process_that_executes_again_and_again_always_has_memory() {
    let Ok(mut source) = choose::open(Wanted::PageTable) else {
        return skip("the page-table source");
    };
    // Some thousand times a second, until its standard input ends.
    let again = "exec sh -c \"$0\" \"$0\"";
    let process = Process::start("sh", &["-c", again, again]);
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(3) {
        let listed = source.attach(process.pid()).map(drop).and_then(|()| source.layout(process.pid()).map(drop));
        if let Err(error) = listed {
            assert!(!error.to_string().contains("no user memory"), "{error}");
        }
        source.detach(process.pid());
    }
}

#[test]
fn another_program_in_the_same_process_is_not_taken_for_the_old_one() {
    let Ok(mut source) = choose::open(Wanted::PageTable) else {
        return skip("the page-table source");
    };
    let mut process = Process::asleep("sh", &["-c", "read go; exec sleep 60"]);
    let pid = process.pid();
    source.attach(pid).unwrap();
    let pmds = source.layout(pid).unwrap().pmds;
    pages(&mut *source).read(pid, &pmds, &mut |_, _, _| {}).unwrap();
    writeln!(process.0.stdin.as_mut().unwrap(), "go").unwrap();
    assert!(until(|| comm(pid) == "sleep\n"));
    // What lay at the old addresses may be told to be gone; of the new program nothing is told as if it were the old.
    let mut told = Vec::new();
    let read = pages(&mut *source).read(pid, &pmds, &mut |_, _, bits| told.push(bits));
    let is_replaced = |error: &SourceError| error.kind() == SourceErrorKind::Replaced;
    assert!(read.as_ref().err().is_none_or(is_replaced), "{read:?}");
    assert!(told.iter().all(|bits| *bits == Some(PmdBits::Gone)), "{told:?}");
    let layout = source.layout(pid);
    assert!(layout.as_ref().is_err_and(is_replaced), "{layout:?}");
    source.detach(pid);
    source.attach(pid).unwrap();
    assert!(!source.layout(pid).unwrap().pmds.is_empty(), "it can be watched anew");
}

#[test]
fn with_advice_alone_page_faults_never_wait() {
    let Ok(mut source) = PageTable::open_clearing(ClearBy::Cold) else {
        return skip("the page-table source");
    };
    let locked = Memory::anonymous(1, PageSize::Small).unwrap();
    locked.populate();
    if locked.lock().is_err() {
        return skip("2 MiB of memory that may be locked");
    }
    let pid = std::process::id();
    source.attach(pid).unwrap();
    source.layout(pid).unwrap();
    let pmd = locked.range().start.pmd();
    let mut told = Vec::new();
    source.clear(pid, &[pmd], &mut |_, _, cleared| told.push(cleared)).unwrap();
    assert_eq!(told, [Cleared::Refused], "by the only way that is allowed");
    let cleared = source.clear_process(pid, &[pmd], &[pmd]).unwrap();
    assert!(cleared.pmds.is_empty() && cleared.clear.stall_ns == 0, "{cleared:?}");
}

/// `clear_refs` skips it in silence, so that it would look hot for ever.
#[test]
fn hugetlb_memory_is_given_up_where_nothing_is_advised() {
    let Ok(mut source) = PageTable::open_clearing(ClearBy::Refs) else {
        return skip("the page-table source");
    };
    let Ok(memory) = Memory::hugetlb(2 << 20) else { return skip("two free hugetlb pages") };
    memory.populate();
    let small = Memory::anonymous(2 << 20, PageSize::Small).unwrap();
    small.populate();
    let pid = std::process::id();
    source.attach(pid).unwrap();
    source.layout(pid).unwrap();
    let mut pmds = [&memory, &small].map(|memory| memory.range().start.pmd());
    pmds.sort_unstable();
    let mut answers = Vec::new();
    source.clear(pid, &pmds, &mut |_, pmd, cleared| answers.push((pmd, cleared))).unwrap();
    let refused: Vec<PmdNo> = answers.iter().filter(|(_, cleared)| *cleared == Cleared::Refused).map(|a| a.0).collect();
    assert_eq!(refused, [memory.range().start.pmd()], "{answers:?}");
}

/// `[vvar]` refuses advice, and lies beside the program's libraries, which do not.
#[test]
fn what_the_kernel_maps_does_not_take_its_neighbours_heat() {
    let Ok(mut source) = PageTable::open_clearing(ClearBy::Cold) else {
        return skip("the page-table source");
    };
    // Where the stack ends with a huge range, `[vvar]` is alone in the next one: about once in a hundred starts on Linux 6.1.
    let with_neighbours = || {
        let process = Process::asleep("sleep", &["60"]);
        let maps = Proc::default().maps(process.pid()).unwrap();
        let vvar = maps.iter().find(|map| map.name.starts_with("[vvar"))?;
        let pmd = vvar.range.start.pmd();
        let is_beside = |map: &MapEntry| map.is_monitorable() && map.range.intersect(pmd.range()).is_some();
        maps.iter().any(is_beside).then_some((process, maps, pmd))
    };
    let Some((process, maps, pmd)) = (0..5).find_map(|_| with_neighbours()) else {
        return skip("a kernel with [vvar]");
    };
    source.attach(process.pid()).unwrap();
    source.layout(process.pid()).unwrap();
    let mut answers = Vec::new();
    source.clear(process.pid(), &[pmd], &mut |_, _, cleared| answers.push(cleared)).unwrap();
    assert!(answers.len() == 1 && answers[0] != Cleared::Refused, "{answers:?}");
    // Nor are these its pages: nothing clears them.
    let mut found = Vec::new();
    source.read(process.pid(), &[pmd], &mut |_, _, bits| found.extend(bits)).unwrap();
    let [PmdBits::Pages { present, .. }] = found[..] else { panic!("{found:?}") };
    let kernels = maps.iter().filter(|map| !map.is_monitorable() && map.range.start.pmd() == pmd);
    let pages = kernels.flat_map(|map| map.range.start.page().0..map.range.end.page().0);
    let pages: Vec<usize> = pages.map(|page| PageNo(page).index_in_pmd()).collect();
    assert!(!pages.is_empty() && pages.iter().all(|page| !present.has(*page)), "{pages:?} {present:?}");
}

/// Two huge ranges of small pages that were written, and one that was not. The main thread exits on the first line that is read, and the other
/// thread writes 64 pages of the third on the second line.
const GOES_ON: &str = "
import threading
at = huge_ranges(3)
ctypes.memset(at, 1, 2 * HUGE)
goes = threading.Event()
def go_on():
    sys.stdin.readline()
    goes.set()
    sys.stdin.readline()
    for page in range(64): ctypes.memset(at + 2 * HUGE + page * PAGE, 1, 1)
    print('written', flush=True)
    sys.stdin.readline()
    os._exit(0)
threading.Thread(target=go_on).start()
print(at, flush=True)
goes.wait()
libc.pthread_exit(None)
";

#[test]
fn a_process_goes_on_without_its_main_thread() {
    let Ok(mut source) = choose::open(Wanted::PageTable) else { return skip("the page-table source") };
    let Some((mut process, mut lines)) = python(GOES_ON) else { return skip("python3") };
    let at: u64 = lines.next().unwrap().unwrap().parse().unwrap();
    let (pid, first) = (process.pid(), PmdNo(at >> 21));
    let pmds = [first, first.next(), first.next().next()];
    source.attach(pid).unwrap();
    source.layout(pid).unwrap();
    writeln!(process.0.stdin.as_mut().unwrap()).unwrap();
    let main_state = || Proc::default().thread_state(pid, pid).unwrap();
    assert!(until(|| main_state() == 'Z'), "{}", main_state());
    // It is found again by the same thread, each time.
    for _ in 0..3 {
        let listed = source.layout(pid).unwrap();
        assert!(listed.pmds.contains(&first) && !listed.mappings.is_empty(), "{:?}", listed.pmds);
    }
    let young = |source: &mut dyn AccessSource| {
        let mut found = Vec::new();
        let each = &mut |_, _, bits| match bits {
            Some(PmdBits::Pages { young, .. }) => found.push(young.count()),
            _ => found.push(0),
        };
        pages(source).read(pid, &pmds, each).unwrap();
        found
    };
    assert_eq!(young(&mut *source), [512, 512, 0]);
    // Advice does not reach its memory any more. That is no end, and nothing is given up.
    let mut answers = Vec::new();
    pages(&mut *source).clear(pid, &pmds[..2], &mut |_, _, cleared| answers.push(cleared)).unwrap();
    assert_eq!(answers, [Cleared::Except(Mask::ALL); 2]);
    let all = source.layout(pid).unwrap().pmds;
    let cleared = pages(&mut *source).clear_process(pid, &pmds[..2], &all).unwrap();
    assert!(cleared.pmds.contains(&first), "{cleared:?}");
    assert_eq!(young(&mut *source), [0, 0, 0]);
    writeln!(process.0.stdin.as_mut().unwrap()).unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "written");
    assert_eq!(young(&mut *source), [0, 0, 64]);
    writeln!(process.0.stdin.as_mut().unwrap()).unwrap();
    let ends = |source: &mut dyn AccessSource| source.layout(pid).is_err_and(|error| error.is_gone());
    assert!(until(|| ends(&mut *source)), "{:?}", source.layout(pid));
}

/// In one huge range, 16 private pages and then 100 pages of a file.
const MIXED: &str = "
OWN, OF_FILE, HUGE, SHARED, PRIVATE, FIXED = 16 << 12, 100 << 12, 2 << 20, 1, 0x22, 0x10
start = libc.mmap(None, 2 * HUGE, 3, PRIVATE, -1, 0)
libc.munmap(start, 2 * HUGE)
at = (start + HUGE - 1) // HUGE * HUGE
libc.mmap(at, OWN, 3, PRIVATE | FIXED, -1, 0)
file = tempfile.TemporaryFile()
file.truncate(OF_FILE)
libc.mmap(at + OWN, OF_FILE, 3, SHARED | FIXED, file.fileno(), 0)
ctypes.memset(at, 1, OWN + OF_FILE)
print(at, flush=True)
time.sleep(60)
";

#[test]
fn files_behind_private_memory_are_cleared_without_it() {
    let Ok(mut source) = choose::open(Wanted::PageTable) else { return skip("the page-table source") };
    let Some((process, mut lines)) = python(MIXED) else { return skip("python3") };
    let at: u64 = lines.next().unwrap().unwrap().parse().unwrap();
    let (pid, pmd) = (process.pid(), PmdNo(at >> 21));
    source.attach(pid).unwrap();
    let all = source.layout(pid).unwrap().pmds;
    let pages = source.as_pages().unwrap();
    let cleared = pages.clear_process(pid, &[pmd], &all).unwrap();
    let (own, of_file) = (Mask::of_range(0..16), Mask::of_range(16..116));
    assert_eq!(cleared.partly.iter().find(|(of, _)| *of == pmd), Some(&(pmd, of_file)), "{cleared:?}");
    let mut found = Vec::new();
    pages.read(pid, &[pmd], &mut |_, _, bits| found.extend(bits)).unwrap();
    assert_eq!(found, [PmdBits::Pages { young: own, present: own | of_file }]);
}

/// In one huge range, 16 pages that are written and 100 that are only read.
const ONLY_READ: &str = "
at = huge_ranges(1)
ctypes.memset(at, 1, 16 * PAGE)
for page in range(16, 116): ctypes.c_char.from_address(at + page * PAGE).value
print(at, flush=True)
time.sleep(60)
";

#[test]
fn pages_that_are_only_read_are_not_there_and_shared_with_nobody() {
    let Ok(mut source) = choose::open(Wanted::PageTable) else { return skip("the page-table source") };
    let Some((process, mut lines)) = python(ONLY_READ) else { return skip("python3") };
    let at: u64 = lines.next().unwrap().unwrap().parse().unwrap();
    let (pid, pmd) = (process.pid(), PmdNo(at >> 21));
    source.attach(pid).unwrap();
    source.layout(pid).unwrap();
    let pages = source.as_pages().unwrap();
    let (mut found, mut shared) = (Vec::new(), Vec::new());
    pages.read(pid, &[pmd], &mut |_, _, bits| found.extend(bits)).unwrap();
    let written = Mask::of_range(0..16);
    assert_eq!(found, [PmdBits::Pages { young: written, present: written }]);
    pages.shared_frames(pid, &[pmd], &mut |frame| shared.push(frame)).unwrap();
    assert_eq!(shared, []);
}

/// Two processes share 8 MiB; at a line on standard input the first has private memory at the same place instead.
const REPLACED: &str = "
SIZE, SHARED, PRIVATE, FIXED = 8 << 20, 0x21, 0x22, 0x10
at = libc.mmap(None, SIZE, 3, SHARED, -1, 0)
ctypes.memset(at, 1, SIZE)
parent = os.getpid()
touched, touch = os.pipe()
if os.fork() == 0:
    ctypes.memset(at, 2, SIZE)
    os.write(touch, b'2')
    while os.getppid() == parent: time.sleep(0.05)
    os._exit(0)
os.read(touched, 1)
print(at, flush=True)
sys.stdin.readline()
libc.mmap(at, SIZE, 3, PRIVATE | FIXED, -1, 0)
libc.madvise(ctypes.c_void_p(at), SIZE, 15)
ctypes.memset(at, 3, SIZE)
print('replaced', flush=True)
time.sleep(60)
";

#[test]
fn memory_that_takes_the_place_of_shared_memory_is_not_taken_for_shared() {
    let Ok(mut source) = choose::open(Wanted::PageTable) else { return skip("the page-table source") };
    let Some((mut process, mut lines)) = python(REPLACED) else { return skip("python3") };
    let at: u64 = lines.next().unwrap().unwrap().parse().unwrap();
    // A whole huge range within the mapping.
    let pmd = PmdNo((at >> 21) + 1);
    let pid = process.pid();
    let reached = |source: &mut dyn AccessSource| {
        source.layout(pid).unwrap();
        let mut stuck = 512;
        let mut sink = |_, _, cleared| {
            if let Cleared::Except(pages) = cleared {
                stuck = pages.count();
            }
        };
        pages(source).clear(pid, &[pmd], &mut sink).unwrap();
        512 - stuck
    };
    source.attach(pid).unwrap();
    assert!(reached(&mut *source) < 64, "pages that two processes map are not reached");
    process.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "replaced");
    assert!(reached(&mut *source) > 448, "private memory is, wherever it lies");
}

/// Two mappings of 8 MiB, of which the first is locked; the second is at a line on standard input.
const LOCKED_LATER: &str = "
libc.mlock.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
SIZE = 8 << 20
first, _, second = [libc.mmap(None, SIZE, access, 0x22, -1, 0) for access in (3, 0, 3)]
for at in (first, second): ctypes.memset(at, 1, SIZE)
if libc.mlock(first, SIZE): sys.exit('mlock')
print(first, second, flush=True)
sys.stdin.readline()
if libc.mlock(second, SIZE): sys.exit('mlock')
print('locked', flush=True)
time.sleep(60)
";

#[test]
fn memory_that_is_locked_after_other_memory_was_is_not_given_up() {
    let Ok(mut source) = choose::open(Wanted::PageTable) else { return skip("the page-table source") };
    let Some((mut process, mut lines)) = python(LOCKED_LATER) else { return skip("python3") };
    let Some(Ok(starts)) = lines.next() else { return skip("a limit on locked memory of 16 MiB") };
    let pmds: Vec<PmdNo> = starts.split(' ').map(|at| PmdNo((at.parse::<u64>().unwrap() >> 21) + 1)).collect();
    let pid = process.pid();
    let refused = |source: &mut dyn AccessSource, pmd: PmdNo| {
        source.layout(pid).unwrap();
        let mut refused = false;
        pages(source).clear(pid, &[pmd], &mut |_, _, cleared| refused |= cleared == Cleared::Refused).unwrap();
        refused
    };
    source.attach(pid).unwrap();
    assert!(!refused(&mut *source, pmds[0]), "locked memory is stuck, and cleared in another way");
    process.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    let Some(Ok(_)) = lines.next() else { return skip("a limit on locked memory of 16 MiB") };
    assert!(!refused(&mut *source, pmds[1]), "so is memory that was locked since the flags were read");
}
