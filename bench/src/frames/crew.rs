//! The threads that run batches. Each has its own CPU and lives for the whole run, so that the thread caches of an
//! allocator stay.

use super::Row;
use super::shape::{Batch, Own, Sample, Shape};
use anyhow::{Context, Result};
use isotherm_bench::own_thread::{allowed_cpus, pin};
use std::hint;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Maximum number of attempts for a batch, if a thread was disturbed.
const TRIES: usize = 12;
/// Time after which no batch is repeated any more: on a machine this busy it does not help.
const PATIENCE: Duration = Duration::from_secs(50);

/// Where threads wait for each other before they begin, and check whether others are still working.
#[derive(Debug)]
pub struct Gate {
    threads: usize,
    ready: AtomicUsize,
    done: AtomicUsize,
}

impl Gate {
    fn new(threads: usize) -> Gate {
        Gate { threads, ready: AtomicUsize::new(0), done: AtomicUsize::new(0) }
    }

    /// Waits until all threads have arrived, without leaving the CPU.
    pub fn arrive(&self) {
        self.ready.fetch_add(1, Ordering::AcqRel);
        while self.ready.load(Ordering::Acquire) < self.threads {
            hint::spin_loop();
        }
    }

    /// The calling thread has finished the timed part.
    pub fn leave(&self) {
        self.done.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether another thread is still in the timed part.
    pub fn others_at_work(&self) -> bool {
        self.done.load(Ordering::Acquire) < self.threads
    }
}

type Task = (Arc<dyn Row>, Batch);

struct Worker {
    tasks: Sender<Task>,
    samples: Receiver<Sample>,
}

/// The threads.
pub struct Crew {
    workers: Vec<Worker>,
    began: Instant,
    /// Batches that were repeated because a thread was disturbed.
    pub discarded: usize,
    /// Batches that count although a thread was disturbed, because repeating did not help.
    pub kept: usize,
}

impl Crew {
    /// At most `most` threads, on the first CPUs that this process may use; fewer if it has fewer CPUs.
    pub fn start(most: usize) -> Result<Crew> {
        let cpus = allowed_cpus().context("ask for the CPUs of this process")?;
        let workers =
            cpus.into_iter().take(most).enumerate().map(|(no, cpu)| worker(no, cpu)).collect::<Result<_>>()?;
        Ok(Crew { workers, began: Instant::now(), discarded: 0, kept: 0 })
    }

    /// Number of threads.
    pub fn threads(&self) -> usize {
        self.workers.len()
    }

    /// Runs a batch once, on the first `threads` threads at the same time. Returns the sample of each.
    pub fn once(&self, row: &Arc<dyn Row>, shape: Shape, rounds: usize, threads: usize) -> Result<Vec<Sample>> {
        let gate = Arc::new(Gate::new(threads));
        let workers = &self.workers[..threads];
        for worker in workers {
            let batch = Batch { shape, rounds, gate: Arc::clone(&gate) };
            worker.tasks.send((Arc::clone(row), batch)).context("a thread of the bench has ended")?;
        }
        let sample = |worker: &Worker| worker.samples.recv().context("a thread of the bench has ended");
        workers.iter().map(sample).collect()
    }

    /// The same, repeated while a thread is preempted meanwhile, up to a limit.
    pub fn run(&mut self, row: &Arc<dyn Row>, shape: Shape, rounds: usize, threads: usize) -> Result<Vec<Sample>> {
        for _ in 1..TRIES {
            let samples = self.once(row, shape, rounds, threads)?;
            if samples.iter().all(|sample| !sample.disturbed) {
                return Ok(samples);
            }
            if self.began.elapsed() > PATIENCE {
                self.kept += 1;
                return Ok(samples);
            }
            self.discarded += 1;
        }
        let samples = self.once(row, shape, rounds, threads)?;
        self.kept += usize::from(samples.iter().any(|sample| sample.disturbed));
        Ok(samples)
    }

    /// Time since the start.
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }
}

fn worker(no: usize, cpu: u32) -> Result<Worker> {
    let (tasks, todo) = channel::<Task>();
    let (done, samples) = channel();
    let (pinned, is_pinned) = channel();
    thread::spawn(move || {
        let _ = pinned.send(pin(cpu));
        let mut own = Own::new(no);
        for (row, batch) in todo {
            if done.send(row.batch(&batch, &mut own)).is_err() {
                return;
            }
        }
    });
    is_pinned.recv()?.with_context(|| format!("pin a thread to CPU {cpu}"))?;
    Ok(Worker { tasks, samples })
}
