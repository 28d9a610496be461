//! The cost of allocating a page frame and freeing it. Compares general allocators that are asked for aligned pages,
//! allocators made for frames, and a locked free list, in several shapes, with one thread and with two.
//!
//! Every allocator runs every shape once a round, with one thread and then with two at the same time, each on its own
//! CPU. Figures are medians over the rounds. The result is wall-clock time. The CPU time next to it is lower if threads
//! sleep for a lock, or if the host takes a CPU away and reports that to the guest. A host that does not report it
//! makes all times of two threads longer, including those of the loop alone. So a ratio can be trusted only if the
//! ratio of the loop is near 1. Batches in which a thread was preempted on this machine are repeated, and omitted at
//! the end.
//!
//! Nothing touches the frames, except allocators that keep their lists in them. Memory is used before it is timed, and
//! allocators that would return freed memory to the kernel are configured not to. The general allocators are called
//! through functions. Code written in Rust is compiled into the loop, as it would be in a program.

#[path = "../frames/mod.rs"]
mod frames;

use anyhow::Result;
use frames::alone::Alone;
use frames::bitmap::Bitmap;
use frames::buddy::{InUse, Whole};
use frames::crew::Crew;
use frames::glibc::{self, Glibc};
use frames::jemalloc::{self, Jemalloc};
use frames::list::List;
use frames::mimalloc::{self, Mimalloc};
use frames::shape::{Batch, Sample, Shape};
use frames::table::Tables;
use frames::{Peer, Row, ours, row};
use isotherm_bench::{Log, only};
use std::sync::Arc;
use std::time::Duration;

const ROUNDS: usize = 15;
/// Minimum number of rounds, however long they take.
const MIN_ROUNDS: usize = 7;
/// Time after which only the minimum number of rounds is run.
const LONG: Duration = Duration::from_secs(75);
const THREADS: usize = 2;
/// If two threads of the loop alone take this much longer than one, they did not have a CPU each.
const NOT_TOGETHER: f64 = 1.1;

fn main() -> Result<()> {
    let mut log = Log::new("bench-frames");
    let (jemalloc, mimalloc, glibc) = (jemalloc::version(), mimalloc::version(), glibc::version());
    log.line(format!("jemalloc {jemalloc}, mimalloc {mimalloc}, glibc {glibc}"));
    let mut crew = Crew::start(THREADS)?;
    let cases = prepare(&crew, &rows())?;
    let mut tables = Tables::default();
    let mut rounds = 0;
    while rounds < MIN_ROUNDS || rounds < ROUNDS && crew.elapsed() < LONG {
        for case in &cases {
            let alone = crew.run(&case.row, case.shape, case.rounds, 1)?;
            let together = together(&mut crew, case)?;
            tables.add(case.row.name(), case.shape, &alone[0], &together);
        }
        rounds += 1;
    }
    log.line(format!("\nns an operation, {rounds} rounds of all in turn: median (least to most)"));
    tables.print(&mut log);
    remarks(&mut log, &crew, &tables);
    ours::results(&tables, &mut log);
    results(&tables, &mut log);
    log.finish()
}

/// All allocators, or those whose names contain the text after `--only`.
fn rows() -> Vec<Arc<dyn Row>> {
    let mut rows = vec![
        row::<Alone>(),
        row::<Jemalloc>(),
        row::<jemalloc::Malloc>(),
        row::<Mimalloc>(),
        row::<Glibc>(),
        row::<InUse>(),
        row::<Whole>(),
        row::<Bitmap>(),
        row::<List>(),
    ];
    rows.extend(ours::rows());
    let wanted = only();
    rows.retain(|row| row.name().contains(&wanted));
    rows
}

/// An allocator in a shape.
struct Case {
    row: Arc<dyn Row>,
    shape: Shape,
    /// Rounds of the shape in a batch.
    rounds: usize,
}

/// Finds the number of rounds in each batch. Afterwards all threads have used all allocators.
fn prepare(crew: &Crew, rows: &[Arc<dyn Row>]) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for shape in Shape::ALL {
        for row in rows.iter().filter(|row| row.has(shape)) {
            let once = |rounds| -> Result<Sample> { Ok(crew.once(row, shape, rounds, 1)?[0]) };
            let rounds = Batch::calibrate(once)?;
            crew.once(row, shape, rounds, crew.threads())?;
            cases.push(Case { row: Arc::clone(row), shape, rounds });
        }
    }
    Ok(cases)
}

fn together(crew: &mut Crew, case: &Case) -> Result<Vec<Sample>> {
    if crew.threads() < THREADS {
        return Ok(Vec::new());
    }
    crew.run(&case.row, case.shape, case.rounds, THREADS)
}

/// Facts about the machine that a reader of the tables needs.
fn remarks(log: &mut Log, crew: &Crew, tables: &Tables) {
    log.line(format!(
        "\n{} batches in which a thread lost its CPU were done again; {} stayed so and are left out where there are others. \
         A star: fewer than 7 are undisturbed.",
        crew.discarded, crew.kept
    ));
    match tables.ratio(Alone::NAME, (Shape::Pair, 0)) {
        Some(ratio) if ratio > NOT_TOGETHER => log.line(format!(
            "The threads did not always run at the same time: two of the loop alone, which share nothing, took {ratio:.2} \
             times as long as one. The host gave them time in turn: no ratio here says anything about locks."
        )),
        Some(ratio) => log.line(format!(
            "The threads ran at the same time: two of the loop alone, which share nothing, took {ratio:.2} times as long as one."
        )),
        None => log.line("One CPU only, or no loop alone: whether two threads run at the same time was not measured."),
    }
}

fn results(tables: &Tables, log: &mut Log) {
    for (key, name, measure) in [
        ("loop_pair_ns", Alone::NAME, (Shape::Pair, 0)),
        ("jemalloc_pair_ns", Jemalloc::NAME, (Shape::Pair, 0)),
        ("jemalloc_malloc_pair_ns", jemalloc::Malloc::NAME, (Shape::Pair, 0)),
        ("mimalloc_pair_ns", Mimalloc::NAME, (Shape::Pair, 0)),
        ("glibc_pair_ns", Glibc::NAME, (Shape::Pair, 0)),
        ("buddy_pair_ns", InUse::NAME, (Shape::Pair, 0)),
        ("bitmap_pair_ns", Bitmap::NAME, (Shape::Pair, 0)),
        ("list_pair_ns", List::NAME, (Shape::Pair, 0)),
        ("jemalloc_bulk_get_ns", Jemalloc::NAME, (Shape::Bulk, 0)),
        ("mimalloc_bulk_get_ns", Mimalloc::NAME, (Shape::Bulk, 0)),
        ("list_bulk_get_ns", List::NAME, (Shape::Bulk, 0)),
    ] {
        tables.result(log, key, name, measure);
    }
    if let Some(ratio) = tables.ratio(Alone::NAME, (Shape::Pair, 0)) {
        log.result("loop_two_thread_ratio", ratio);
    }
}
