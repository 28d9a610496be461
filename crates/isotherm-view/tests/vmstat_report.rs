//! The report on housekeeping as text at several widths, with more CPUs than rows, in ASCII, and as JSON, kept as snapshots.

use isotherm_view::TextStyle;
use isotherm_view::heatmap::{ColorMode, TerminalStyle};
use isotherm_view::vmstat;
use isotherm_vmstat::verdict::VerdictKind;
use isotherm_vmstat::{Cause, Observed, Run, Runs, SeenWaiters, VmstatReport, Wait, Waits};
use unicode_width::UnicodeWidthStr;

const SECOND: u64 = 1_000_000_000;

/// Ticks of 1 ms. Every CPU keeps its place, 3 ticks before the next lower one, moved up to a multiple of 64; every fifth
/// CPU is started by the shepherd instead, at 0.4 s, from its second run on.
fn machine(cpus: u32, seconds: u64) -> Observed {
    let mut runs = Vec::new();
    for second in 501..=500 + seconds {
        for cpu in 0..cpus {
            let kicked = cpu % 5 == 4 && second > 501;
            let due = second * 1000 - 3 * u64::from(cpu);
            let jiffies = if kicked { second * 1000 - 600 } else { due.div_ceil(64) * 64 };
            let start_ns = jiffies * 1_000_000 + 25_000 + u64::from(cpu % 16) * 2000;
            let cause = if kicked { Cause::Shepherd } else { Cause::Timer };
            runs.push(Run { cpu, queued_ns: None, start_ns, end_ns: start_ns + 30_000, jiffies, cause });
        }
    }
    let wait = |functions: &str, zone: &str, updating, beside, count| Wait {
        node: 0,
        zone: zone.to_owned(),
        functions: functions.split(' ').map(str::to_owned).collect(),
        updating,
        beside,
        count,
        total_ns: count * 9_400,
        max_ns: 122_000,
    };
    let drain = "native_queued_spin_lock_slowpath _raw_spin_lock_irqsave free_pcppages_bulk decay_pcp_high \
                 refresh_cpu_vm_stats vmstat_update process_one_work worker_thread kthread ret_from_fork";
    let fault = "native_queued_spin_lock_slowpath _raw_spin_lock_irqsave rmqueue_bulk get_page_from_freelist \
                 __alloc_pages vma_alloc_folio do_anonymous_page handle_mm_fault exc_page_fault asm_exc_page_fault";
    let by_place = vec![
        wait(drain, "Normal", true, true, 310),
        wait(drain, "DMA32", true, true, 4),
        wait(fault, "Normal", false, true, 12),
        wait(fault, "Normal", false, false, 40),
    ];
    let shepherd = Run { cpu: 0, queued_ns: None, start_ns: 1, end_ns: 2, jiffies: 0, cause: Cause::Unknown };
    Observed {
        from_ns: 500 * SECOND,
        to_ns: (500 + seconds) * SECOND,
        online: (0..cpus).collect(),
        isolated: Vec::new(),
        interval_s: 1,
        runs: Runs { updates: runs, shepherds: vec![shepherd; usize::try_from(seconds).unwrap()] },
        lost_runs: 0,
        waits: Ok(Waits { by_place, spins: 9000, lost: 0, seen: SeenWaiters::NotTheFirst }),
    }
}

/// Two CPUs half an interval apart, on a kernel without the tracepoints of locks.
fn quiet() -> Observed {
    let mut seen = machine(2, 5);
    seen.waits = Err("this kernel has no tracepoint contention_begin; Linux 5.19 and later do".to_owned());
    for run in seen.runs.updates.iter_mut().filter(|r| r.cpu == 1) {
        (run.start_ns, run.end_ns, run.jiffies) =
            (run.start_ns - 500_000_000, run.end_ns - 500_000_000, run.jiffies - 500);
    }
    seen.isolated = vec![1];
    seen
}

fn text(report: &VmstatReport, width: usize, ascii: bool, color: ColorMode) -> String {
    let style = TerminalStyle { text: TextStyle { width, ascii }, color, ..TerminalStyle::default() };
    let mut out = Vec::new();
    vmstat::write_text(report, &mut out, &style).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn as_text_and_as_data() {
    for (name, seen) in [("cpus_8", machine(8, 5)), ("cpus_1024", machine(1024, 5)), ("quiet", quiet())] {
        let report = VmstatReport::of(&seen);
        for width in [24, 80, 140] {
            let text = text(&report, width, false, ColorMode::None);
            for line in text.lines() {
                assert!(line.width() <= width && line == line.trim_end() && !line.contains('\x1b'), "{width}: {line}");
            }
            // What people have to read: a machine of 1,024 CPUs is no longer than a page or two.
            assert!(text.lines().count() < if width < 80 { 200 } else { 100 }, "{width}: {}", text.lines().count());
            insta::assert_snapshot!(format!("{name}_{width}"), text);
        }
    }
    let mut report = VmstatReport::of(&machine(8, 5));
    report.marks.truncate(2);
    insta::assert_snapshot!("cpus_8_json", serde_json::to_string_pretty(&report).unwrap());
}

#[test]
fn ascii_is_ascii_and_colours_only_colour() {
    let report = VmstatReport::of(&machine(72, 5));
    assert!(text(&report, 100, true, ColorMode::None).is_ascii());
    let plain = text(&report, 100, false, ColorMode::None);
    let mut coloured = text(&report, 100, false, ColorMode::True);
    assert!(coloured.contains("\x1b[0;38;2;"));
    while let Some(at) = coloured.find('\x1b') {
        let end = at + coloured[at..].find('m').unwrap();
        coloured.replace_range(at..=end, "");
    }
    // But for spaces behind the last mark of a row, which colours hide from trimming.
    let trimmed: Vec<&str> = coloured.lines().map(str::trim_end).collect();
    assert_eq!(trimmed, plain.lines().collect::<Vec<_>>());
}

#[test]
fn what_cannot_be_seen_is_said() {
    let says = |which: SeenWaiters| {
        let mut seen = machine(8, 5);
        seen.waits = Ok(Waits { by_place: Vec::new(), spins: 0, lost: 0, seen: which });
        let report = VmstatReport::of(&seen);
        assert_eq!(report.verdict.kind, VerdictKind::Herd);
        text(&report, 1000, true, ColorMode::None)
    };
    assert!(says(SeenWaiters::NotTheFirst).contains("with two CPUs, none; the kernel reported none for any lock"));
    let nobody = says(SeenWaiters::Nobody);
    assert!(nobody.contains("its cost cannot be observed on this kernel") && !nobody.contains("no action is needed"));
    assert!(says(SeenWaiters::Every).contains("vmstat_update was not observed waiting for a zone's lock"));
    let quiet = text(&VmstatReport::of(&quiet()), 1000, true, ColorMode::None);
    assert!(quiet.contains("not observed: this kernel has no tracepoint contention_begin"), "{quiet}");
}
