//! What it costs to take a page frame and to give it back: general allocators asked for aligned pages, allocators made for
//! frames, and a locked free list, in several shapes, by one thread and by two.
//!
//! Every allocator runs every shape once a round, with one thread and then with two at the same time, each on a CPU of its
//! own; figures are medians over the rounds. Time on the wall counts; the CPU time next to it is less where threads sleep for
//! a lock, or where the host takes a CPU away and tells the guest. A host that does so without telling makes all times of two
//! threads longer, those of the loop alone too: a ratio is worth as much as the loop's is near 1. Batches in which a
//! thread had to leave its CPU to another of this machine are done again, and left out in the end.
//!
//! No one touches the frames, but allocators whose lists are in them. Memory was used before it is timed, and allocators that
//! would give freed memory back to the kernel are told not to. The general allocators are called; what is written in Rust is
//! compiled into the loop, as it would be in a program.

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
/// Rounds that there are, however long they take.
const LEAST_ROUNDS: usize = 7;
/// When there are no more than those.
const LONG: Duration = Duration::from_secs(75);
const THREADS: usize = 2;
/// Two threads of the loop alone that take this much longer than one had not a CPU each.
const NOT_TOGETHER: f64 = 1.1;

fn main() -> Result<()> {
    let mut log = Log::new("bench-frames");
    let (jemalloc, mimalloc, glibc) = (jemalloc::version(), mimalloc::version(), glibc::version());
    log.line(format!("jemalloc {jemalloc}, mimalloc {mimalloc}, glibc {glibc}"));
    let mut crew = Crew::start(THREADS)?;
    let cases = prepare(&crew, &rows())?;
    let mut tables = Tables::default();
    let mut rounds = 0;
    while rounds < LEAST_ROUNDS || rounds < ROUNDS && crew.elapsed() < LONG {
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

/// All allocators, or those whose names contain what follows `--only`.
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
    /// Of the shape, in a batch.
    rounds: usize,
}

/// Finds out how much of each makes a batch; all threads have used all allocators thereafter.
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

/// What has to be known of the machine to read the tables.
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
