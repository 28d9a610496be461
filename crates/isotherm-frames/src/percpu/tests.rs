use super::layout::ALIGN;
use super::stacks::PIECE;
use super::*;
use isotherm_rng::Rng;
use std::io::Write;
use std::mem::MaybeUninit;
use std::process::Command;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The token, or why there is none on stderr.
fn rseq() -> Option<Rseq> {
    match Rseq::check() {
        Ok(rseq) => Some(rseq),
        Err(why) => {
            let _ = std::io::stderr().write_all(format!("skipped: needs {why}\n").as_bytes());
            None
        }
    }
}

/// A seed of its own for each run, on stderr; `FRAMES_SEED` repeats one.
fn seed() -> u64 {
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() & u128::from(u64::MAX);
    let given = std::env::var("FRAMES_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or(u64::try_from(clock).unwrap());
    let _ = writeln!(std::io::stderr(), "FRAMES_SEED={seed}");
    seed
}

/// The CPUs that this thread may use.
fn allowed() -> Vec<u32> {
    // SAFETY: plain data for which zeros are valid, filled by the call.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: writes at most the size given.
    unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) };
    // SAFETY: the index is below the size of the set.
    (0..1024).filter(|cpu| unsafe { libc::CPU_ISSET(*cpu as usize, &set) }).collect()
}

/// Keeps the thread `tid` (0: this one) on `cpu`; false if there is none such.
fn pin(tid: i32, cpu: u32) -> bool {
    // SAFETY: plain data for which zeros are valid.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the index is below the size of the set.
    unsafe { libc::CPU_SET(cpu as usize, &mut set) };
    // SAFETY: reads the set.
    unsafe { libc::sched_setaffinity(tid, size_of::<libc::cpu_set_t>(), &raw const set) == 0 }
}

/// Runs `work` in a thread that stays on the first CPU allowed, and gives it its number.
fn pinned(work: impl FnOnce(u32) + Send) {
    let cpu = allowed()[0];
    let run = || {
        assert!(pin(0, cpu));
        work(cpu);
    };
    thread::scope(|scope| scope.spawn(run).join()).unwrap();
}

/// Enough for each CPU that may be used, with the same capacity for each list.
fn shape(capacity: u32) -> Shape {
    Shape { cpus: allowed().last().unwrap() + 1, capacities: [capacity; LISTS] }
}

fn memory(shape: &Shape) -> Vec<AtomicU32> {
    (0..shape.words()).map(|_| AtomicU32::new(0xdead_beef)).collect()
}

fn below(rng: &mut Rng, n: usize) -> usize {
    usize::try_from(rng.below(n as u64)).unwrap()
}

/// All that is in the stacks, taken through `stop` and `drain`.
fn drain_all(stacks: &Stacks<'_>) -> Vec<u32> {
    let mut all = Vec::new();
    for cpu in 0..stacks.shape().cpus {
        let mut stopped = stacks.stop(cpu).unwrap();
        for list in 0..LISTS {
            let mut values = vec![0; stopped.count(list) as usize];
            assert_eq!(stopped.drain(list, &mut values), values.len());
            all.extend(values);
        }
    }
    all
}

/// Each value below `n` is in `all` once and nothing else is.
fn assert_conserved(mut all: Vec<u32>, n: u32) {
    all.sort_unstable();
    let wrong = all.iter().zip(0..n).find(|(value, expected)| *value != expected);
    assert!(
        wrong.is_none() && all.len() == n as usize,
        "{} of {n} values; the first that is wrong: {wrong:?}",
        all.len()
    );
}

/// One random operation on a random list. `held` are the values that this thread has popped.
fn one_operation(stacks: &Stacks<'_>, rng: &mut Rng, held: &mut Vec<u32>) {
    let list = below(rng, LISTS);
    match rng.below(8) {
        0..3 => held.extend(stacks.pop(list)),
        3..6 => {
            if let Some(value) = held.pop()
                && !stacks.push(list, value)
            {
                held.push(value);
            }
        }
        6 => {
            let mut values = [0; 100];
            let len = below(rng, values.len() + 1);
            let popped = stacks.pop_many(list, &mut values[..len]);
            held.extend(&values[..popped]);
        }
        _ => {
            let from = held.len() - below(rng, 101).min(held.len());
            let pushed = stacks.push_many(list, &held[from..]);
            held.drain(from..from + pushed);
        }
    }
}

#[test]
fn the_token_knows_the_cpu() {
    let Some(rseq) = rseq() else { return };
    thread::scope(|scope| {
        for cpu in allowed() {
            scope.spawn(move || {
                assert!(pin(0, cpu));
                assert_eq!((rseq.cpu(), current_cpu()), (cpu, cpu));
            });
        }
    });
}

#[test]
fn words_are_a_header_and_the_entries_of_each_cpu_and_the_alignment() {
    let mut shape = Shape { cpus: 2, capacities: [0; LISTS] };
    assert_eq!(shape.words(), 2 * 32 + 31);
    shape.capacities[3] = 1;
    assert_eq!(shape.words(), 2 * 64 + 31);
    shape.capacities[13] = 32;
    assert_eq!(shape.words(), 2 * 96 + 31);
    assert_eq!(Shape { cpus: 1 << 31, capacities: [0; LISTS] }.words(), usize::MAX, "would include negative cpu_ids");
    assert_eq!(Shape { cpus: u32::MAX >> 1, capacities: [u32::MAX; LISTS] }.words(), usize::MAX, "overflows");
}

#[test]
fn any_alignment_does_and_one_word_less_does_not() {
    let Some(rseq) = rseq() else { return };
    pinned(|_| {
        let shape = shape(3);
        let mut words = memory(&shape);
        words.resize_with(shape.words() + 32, || AtomicU32::new(7));
        for offset in 0..32 {
            let needed = shape.words();
            let less = Stacks::new(rseq, shape, &mut words[offset..offset + needed - 1]);
            assert_eq!(less.unwrap_err(), TooSmall { needed, given: needed - 1 });
            let stacks = Stacks::new(rseq, shape, &mut words[offset..offset + needed]).unwrap();
            assert!(stacks.geometry.base.addr().get().is_multiple_of(ALIGN));
            for list in 0..LISTS {
                assert_eq!(stacks.push_many(list, &[10, 20, 30, 40]), 3);
            }
            for list in 0..LISTS {
                assert_eq!(
                    [stacks.pop(list), stacks.pop(list), stacks.pop(list), stacks.pop(list)],
                    [Some(30), Some(20), Some(10), None]
                );
            }
            let outside = |n: usize| n < offset || n >= offset + needed;
            let untouched = words.iter().enumerate().filter(|(n, _)| outside(*n)).map(|(_, word)| word);
            assert!(untouched.map(|word| word.load(Ordering::Relaxed)).all(|word| word == 7 || word == 0xdead_beef));
            words.iter().for_each(|word| word.store(7, Ordering::Relaxed));
        }
    });
}

#[test]
fn stacks_are_stacks() {
    let Some(rseq) = rseq() else { return };
    pinned(|cpu| {
        let shape = shape(8);
        let mut words = memory(&shape);
        let stacks = Stacks::new(rseq, shape, &mut words).unwrap();
        assert_eq!((stacks.cpu(), stacks.shape()), (cpu, shape));
        assert_eq!((stacks.pop(0), stacks.count(cpu, 0), stacks.limit(cpu, 0)), (None, 0, 8));
        assert!(stacks.push(0, 0) && stacks.push(0, u32::MAX) && stacks.push(1, 5));
        assert_eq!((stacks.count(cpu, 0), stacks.count(cpu, 1), stacks.count(cpu, 2)), (2, 1, 0));
        assert_eq!([stacks.pop(0), stacks.pop(0), stacks.pop(0)], [Some(u32::MAX), Some(0), None]);
        assert_eq!([stacks.pop(1), stacks.pop(1)], [Some(5), None]);
        // Many: as they lie, the top last, and cut at either end.
        assert_eq!(stacks.push_many(13, &[1, 2, 3, 4, 5, 6]), 6);
        assert_eq!(stacks.push_many(13, &[7, 8, 9]), 2);
        let mut out = [0; 5];
        assert_eq!((stacks.pop_many(13, &mut out), out), (5, [4, 5, 6, 7, 8]));
        assert_eq!((stacks.pop_many(13, &mut out), out), (3, [1, 2, 3, 7, 8]));
        assert_eq!((stacks.pop_many(13, &mut out), stacks.pop_many(13, &mut []), stacks.push_many(13, &[])), (0, 0, 0));
    });
}

#[test]
fn a_limit_holds_until_it_is_lifted_and_never_passes_the_capacity() {
    let Some(rseq) = rseq() else { return };
    pinned(|cpu| {
        let shape = shape(4);
        let mut words = memory(&shape);
        let stacks = Stacks::new(rseq, shape, &mut words).unwrap();
        stacks.set_limit(cpu, 2, 2);
        assert_eq!((stacks.push(2, 1), stacks.push(2, 2), stacks.push(2, 3)), (true, true, false));
        stacks.set_limit(cpu, 2, 99);
        assert_eq!((stacks.limit(cpu, 2), stacks.push_many(2, &[3, 4, 5])), (4, 2));
        // Below what there is: nothing is lost, and nothing is taken in.
        stacks.set_limit(cpu, 2, 1);
        assert_eq!((stacks.push(2, 9), stacks.push_many(2, &[9]), stacks.count(cpu, 2)), (false, 0, 4));
        assert_eq!([stacks.pop(2), stacks.pop(2), stacks.pop(2), stacks.pop(2)], [Some(4), Some(3), Some(2), Some(1)]);
        stacks.set_limit(cpu, 2, 0);
        assert!(!stacks.push(2, 1) && stacks.push(3, 1), "of its list only");
    });
}

#[test]
fn lists_and_cpus_that_there_are_not_are_empty_and_full() {
    let Some(rseq) = rseq() else { return };
    pinned(|_| {
        let shape = shape(4);
        let mut words = memory(&shape);
        let stacks = Stacks::new(rseq, shape, &mut words).unwrap();
        for list in [LISTS, usize::MAX] {
            assert_eq!((stacks.push(list, 1), stacks.pop(list)), (false, None));
            assert_eq!((stacks.push_many(list, &[1]), stacks.pop_many(list, &mut [1])), (0, 0));
            stacks.set_limit(0, list, 1);
            assert_eq!((stacks.limit(0, list), stacks.count(0, list)), (0, 0));
            assert_eq!(stacks.stop(0).unwrap().drain(list, &mut [1]), 0);
        }
        for cpu in [shape.cpus, u32::MAX] {
            stacks.set_limit(cpu, 0, 1);
            assert_eq!((stacks.limit(cpu, 0), stacks.count(cpu, 0)), (0, 0));
            assert_eq!(stacks.stop(cpu).unwrap_err(), StopError::NoSuchCpu { cpu, cpus: shape.cpus });
        }
        let none = Shape { cpus: 0, ..shape };
        let mut words = memory(&none);
        let stacks = Stacks::new(rseq, none, &mut words).unwrap();
        assert_eq!((stacks.push(0, 1), stacks.pop(0)), (false, None), "as on a CPU that came up since");
        assert_eq!((stacks.push_many(0, &[1]), stacks.pop_many(0, &mut [1])), (0, 0));
    });
}

#[test]
fn a_stopped_cpu_is_empty_and_full_and_drains_from_the_bottom() {
    let Some(rseq) = rseq() else { return };
    pinned(|cpu| {
        let shape = shape(8);
        let mut words = memory(&shape);
        let stacks = Stacks::new(rseq, shape, &mut words).unwrap();
        assert_eq!(stacks.push_many(4, &[1, 2, 3, 4, 5]), 5);
        let mut stopped = stacks.stop(cpu).unwrap();
        assert_eq!(stacks.stop(cpu).unwrap_err(), StopError::Stopped { cpu });
        assert_eq!((stacks.push(4, 9), stacks.pop(4), stacks.push(5, 9)), (false, None, false));
        assert_eq!((stacks.push_many(4, &[9]), stacks.pop_many(4, &mut [0])), (0, 0));
        let mut out = [0; 3];
        assert_eq!((stopped.cpu(), stopped.count(4), stopped.drain(4, &mut out[..2]), out), (cpu, 5, 2, [1, 2, 0]));
        assert_eq!((stopped.drain(4, &mut []), stopped.drain(5, &mut out), stopped.count(4)), (0, 0, 3));
        drop(stopped);
        assert_eq!((stacks.pop(4), stacks.push(4, 6)), (Some(5), true));
        assert_eq!((stacks.stop(cpu).unwrap().drain(4, &mut out), out), (3, [3, 4, 6]));
        assert_eq!((stacks.pop(4), stacks.push(4, 7), stacks.pop(4)), (None, true, Some(7)));
    });
}

/// Every operation against vectors, on one CPU.
#[test]
fn any_operations_do_what_vectors_would() {
    let Some(rseq) = rseq() else { return };
    let mut rng = Rng::new(seed());
    pinned(|cpu| {
        let mut shape = shape(0);
        shape.capacities = std::array::from_fn(|list| [0, 1, 5, 64, 65, 300][list % 6]);
        let mut words = memory(&shape);
        let stacks = Stacks::new(rseq, shape, &mut words).unwrap();
        let mut model: [Vec<u32>; LISTS] = Default::default();
        let mut limits = shape.capacities.map(|limit| limit as usize);
        for step in 0..200_000 {
            let (list, len) = (below(&mut rng, LISTS), below(&mut rng, 200));
            let room = limits[list].saturating_sub(model[list].len());
            match rng.below(6) {
                0 => {
                    assert_eq!(stacks.push(list, step), room > 0, "step {step}");
                    model[list].extend((room > 0).then_some(step));
                }
                1 => assert_eq!(stacks.pop(list), model[list].pop(), "step {step}"),
                2 => {
                    let values: Vec<u32> = (0..200).map(|n| step ^ n << 20).take(len).collect();
                    assert_eq!(stacks.push_many(list, &values), len.min(room), "step {step}");
                    model[list].extend(&values[..len.min(room)]);
                }
                3 => {
                    let mut values = vec![0; len];
                    let popped = stacks.pop_many(list, &mut values);
                    assert_eq!(popped, len.min(model[list].len()), "step {step}");
                    for piece in values[..popped].chunks(PIECE) {
                        let rest = model[list].len() - piece.len();
                        assert_eq!(piece, model[list].split_off(rest), "step {step}");
                    }
                    assert!(values[popped..].iter().all(|&value| value == 0), "step {step}");
                }
                4 if step % 5 == 0 => {
                    let mut values = vec![0; len];
                    let drained = stacks.stop(cpu).unwrap().drain(list, &mut values);
                    let expected: Vec<u32> = model[list].drain(..len.min(model[list].len())).collect();
                    assert_eq!(values[..drained], expected, "step {step}");
                }
                _ => {
                    stacks.set_limit(cpu, list, u32::try_from(len).unwrap() * 2);
                    limits[list] = (len * 2).min(shape.capacities[list] as usize);
                }
            }
            assert_eq!(stacks.count(cpu, list) as usize, model[list].len(), "step {step}");
        }
        // Nothing may have been on other CPUs.
        let rest = drain_all(&stacks);
        assert_eq!(rest, model.concat());
    });
}

/// Sets a flag when it is dropped, in a panic too.
struct PcpLists<'f>(&'f AtomicBool);

impl Drop for PcpLists<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Threads that do random operations: this many each, and more until `meanwhile` is through, which is given their
/// thread ids. What they hold at the end.
fn hammer(stacks: &Stacks<'_>, threads: usize, seed: u64, operations: u64, meanwhile: impl FnOnce(&[i32])) -> Vec<u32> {
    let (barrier, through) = (Barrier::new(threads + 1), AtomicBool::new(false));
    let tids: Vec<AtomicI32> = (0..threads).map(|_| AtomicI32::new(0)).collect();
    thread::scope(|scope| {
        let work = |n: usize| {
            let (barrier, through, tid) = (&barrier, &through, &tids[n]);
            move || {
                // SAFETY: takes nothing and cannot fail.
                tid.store(unsafe { libc::gettid() }, Ordering::Relaxed);
                barrier.wait();
                let (mut rng, mut held, mut done) = (Rng::new(seed.wrapping_add(n as u64)), Vec::new(), 0);
                while done < operations || !through.load(Ordering::Relaxed) {
                    one_operation(stacks, &mut rng, &mut held);
                    done += 1;
                }
                held
            }
        };
        let running: Vec<_> = (0..threads).map(|n| scope.spawn(work(n))).collect();
        barrier.wait();
        let pcp = PcpLists(&through);
        meanwhile(&tids.iter().map(|tid| tid.load(Ordering::Relaxed)).collect::<Vec<_>>());
        drop(pcp);
        running.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    })
}

const VALUES: u32 = 8192;

/// Puts all values below `VALUES` into lists of the CPU that this thread is on.
fn fill(stacks: &Stacks<'_>) {
    for value in 0..VALUES {
        while !stacks.push(value as usize % LISTS, value) {
            thread::yield_now();
        }
    }
}

#[test]
fn unpinned_threads_conserve_the_values() {
    let Some(rseq) = rseq() else { return };
    let (shape, seed) = (shape(VALUES), seed());
    let mut words = memory(&shape);
    let stacks = Stacks::new(rseq, shape, &mut words).unwrap();
    fill(&stacks);
    let mut all = hammer(&stacks, 4, seed, 500_000, |_| {});
    all.extend(drain_all(&stacks));
    assert_conserved(all, VALUES);
}

#[test]
fn threads_that_are_moved_between_cpus_all_the_time_conserve_the_values() {
    let Some(rseq) = rseq() else { return };
    let cpus = allowed();
    if cpus.len() < 2 {
        let _ = writeln!(std::io::stderr(), "skipped: needs two CPUs");
        return;
    }
    let (shape, seed) = (shape(VALUES), seed());
    let mut words = memory(&shape);
    let stacks = Stacks::new(rseq, shape, &mut words).unwrap();
    fill(&stacks);
    let mut rng = Rng::new(seed ^ 1);
    let mut all = hammer(&stacks, 3, seed, 100_000, |tids| {
        for _ in 0..300 {
            tids.iter().for_each(|&tid| assert!(pin(tid, cpus[below(&mut rng, cpus.len())])));
            thread::sleep(Duration::from_micros(20));
        }
    });
    all.extend(drain_all(&stacks));
    assert_conserved(all, VALUES);
}

#[test]
fn stopping_and_draining_under_fire_conserves_the_values() {
    let Some(rseq) = rseq() else { return };
    let (shape, seed) = (shape(VALUES), seed());
    let mut words = memory(&shape);
    let stacks = Stacks::new(rseq, shape, &mut words).unwrap();
    fill(&stacks);
    let (mut held, mut rng, mut drained) = (Vec::new(), Rng::new(!seed), 0);
    let mut all = hammer(&stacks, 3, seed, 100_000, |_| {
        for _ in 0..300 {
            for cpu in 0..shape.cpus {
                let mut stopped = stacks.stop(cpu).unwrap();
                let before: Vec<u32> = (0..LISTS).map(|list| stopped.count(list)).collect();
                let mut values = vec![0; below(&mut rng, 200)];
                let list = below(&mut rng, LISTS);
                let n = stopped.drain(list, &mut values);
                thread::yield_now();
                let after: Vec<u32> = (0..LISTS).map(|list| stopped.count(list)).collect();
                drop(stopped);
                held.extend(&values[..n]);
                drained += n;
                let changed = (0..LISTS).filter(|&list| before[list] != after[list]).collect::<Vec<_>>();
                assert!(changed.iter().all(|&changed| changed == list && n > 0), "lists {changed:?} of a stopped CPU");
            }
            let pushed = stacks.push_many(below(&mut rng, LISTS), &held);
            held.drain(..pushed);
        }
    });
    assert!(drained > 0);
    all.extend(held);
    all.extend(drain_all(&stacks));
    assert_conserved(all, VALUES);
}

/// One CPU is in sequences nearly all the time, the longest there are, and another stops it again and again.
#[test]
fn nothing_takes_effect_on_a_cpu_once_it_is_stopped() {
    const LIST: usize = 13;
    let Some(rseq) = rseq() else { return };
    let &[stopper, worker, ..] = allowed().as_slice() else {
        let _ = writeln!(std::io::stderr(), "skipped: needs two CPUs");
        return;
    };
    let shape = shape(256);
    let mut words = memory(&shape);
    let stacks = Stacks::new(rseq, shape, &mut words).unwrap();
    let (done, pieces) = (AtomicBool::new(false), AtomicUsize::new(0));
    let work = || {
        assert!(pin(0, worker));
        let mut values = [5; PIECE];
        let mut held = PIECE;
        while !done.load(Ordering::Relaxed) {
            held -= stacks.push_many(LIST, &values[..held]);
            held += stacks.pop_many(LIST, &mut values[held..]);
            pieces.fetch_add(1, Ordering::Relaxed);
        }
        u32::try_from(held).unwrap()
    };
    let stop = || {
        assert!(pin(0, stopper));
        let mut changes = 0;
        for round in 0..20_000_u32 {
            // Some rounds later than others, so that the worker is anywhere.
            (0..round % 64).for_each(|_| std::hint::spin_loop());
            let stopped = stacks.stop(worker).unwrap();
            let before = stopped.count(LIST);
            (0..20).for_each(|_| std::hint::spin_loop());
            changes += u32::from(stopped.count(LIST) != before);
        }
        done.store(true, Ordering::Relaxed);
        changes
    };
    let (held, changes) = thread::scope(|scope| {
        let worker = scope.spawn(work);
        let changes = scope.spawn(stop).join().unwrap();
        (worker.join().unwrap(), changes)
    });
    assert_eq!((changes, held + stacks.count(worker, LIST)), (0, 64), "{pieces:?} pieces");
}

/// Of two that stop a CPU at once one succeeds, and never both.
#[test]
fn a_cpu_has_one_stopper_at_a_time() {
    let Some(rseq) = rseq() else { return };
    let shape = shape(1);
    let mut words = memory(&shape);
    let stacks = Stacks::new(rseq, shape, &mut words).unwrap();
    let inside = AtomicBool::new(false);
    let stops = || {
        let mut stops = 0;
        while stops < 200 {
            match stacks.stop(0) {
                Ok(stopped) => {
                    assert!(!inside.swap(true, Ordering::Relaxed));
                    thread::yield_now();
                    inside.store(false, Ordering::Relaxed);
                    drop(stopped);
                    stops += 1;
                }
                Err(e) => assert_eq!(e, StopError::Stopped { cpu: 0 }),
            }
        }
    };
    thread::scope(|scope| {
        scope.spawn(stops);
        scope.spawn(stops);
    });
}

unsafe extern "C" {
    // Made by the linker for a section with such a name.
    static __start___rseq_failure: u8;
    static __stop___rseq_failure: u8;
}

/// What the handler works on: null until the test has made it.
static FOR_HANDLER: AtomicPtr<Stacks<'static>> = AtomicPtr::new(std::ptr::null_mut());
static SIGNALS: AtomicUsize = AtomicUsize::new(0);
static RESTARTS: AtomicUsize = AtomicUsize::new(0);
static STASHED: AtomicUsize = AtomicUsize::new(0);
static STASH: [AtomicU32; 4096] = [const { AtomicU32::new(0) }; 4096];

/// Where the interrupted thread goes on: in the section of restarts, if it was in a sequence.
fn interrupted_at(context: &libc::ucontext_t) -> u64 {
    context.uc_mcontext.gregs[libc::REG_RIP as usize].cast_unsigned()
}

extern "C" fn on_signal(_signal: libc::c_int, _info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let signals = SIGNALS.fetch_add(1, Ordering::Relaxed);
    let section = (&raw const __start___rseq_failure).addr() as u64..(&raw const __stop___rseq_failure).addr() as u64;
    // SAFETY: the kernel hands a handler with SA_SIGINFO a context of this type.
    let at = interrupted_at(unsafe { &*context.cast::<libc::ucontext_t>() });
    RESTARTS.fetch_add(usize::from(section.contains(&at)), Ordering::Relaxed);
    // SAFETY: null, or leaked and so alive.
    let Some(stacks) = (unsafe { FOR_HANDLER.load(Ordering::Acquire).as_ref() }) else { return };
    let (from, to) = (signals % LISTS, signals / 3 % LISTS);
    let mut values = [0; 70];
    let popped = stacks.pop_many(from, &mut values);
    let single = stacks.pop(from);
    let pushed = stacks.push_many(to, &values[..popped]);
    values[pushed..popped].iter().for_each(|&value| stash(value));
    single.into_iter().filter(|&value| !stacks.push(to, value)).for_each(stash);
}

/// Keeps what the handler could not push.
fn stash(value: u32) {
    let at = STASHED.fetch_add(1, Ordering::Relaxed);
    STASH[at % STASH.len()].store(value, Ordering::Relaxed);
}

/// Has `SIGRTMIN + 3` sent to this thread every `interval`, until it is dropped.
struct Ticks(libc::timer_t);

impl Ticks {
    fn every(interval: Duration) -> Ticks {
        // SAFETY: plain data for which zeros are valid.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = on_signal as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        // SAFETY: the handler does atomic accesses and sequences only, which a signal may interrupt.
        let set = unsafe { libc::sigaction(libc::SIGRTMIN() + 3, &raw const action, std::ptr::null_mut()) };
        assert_eq!(set, 0);
        // SAFETY: plain data for which zeros are valid.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = libc::SIGRTMIN() + 3;
        // SAFETY: takes nothing and cannot fail.
        event.sigev_notify_thread_id = unsafe { libc::gettid() };
        let mut timer: libc::timer_t = std::ptr::null_mut();
        // SAFETY: reads the event and writes the timer.
        let made = unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer) };
        assert_eq!(made, 0);
        let every = libc::timespec { tv_sec: 0, tv_nsec: interval.subsec_nanos().into() };
        let spec = libc::itimerspec { it_interval: every, it_value: every };
        // SAFETY: the timer made above; reads the times.
        let started = unsafe { libc::timer_settime(timer, 0, &raw const spec, std::ptr::null_mut()) };
        assert_eq!(started, 0);
        Ticks(timer)
    }
}

impl Drop for Ticks {
    fn drop(&mut self) {
        // SAFETY: the timer made above, deleted once.
        unsafe { libc::timer_delete(self.0) };
    }
}

/// Until a thousand signals have hit a sequence: so the restart is seen to work, each kind of operation having been
/// hit.
#[test]
fn signals_whose_handler_pushes_and_pops_conserve_the_values() {
    let Some(rseq) = rseq() else { return };
    let (shape, mut rng) = (shape(VALUES), Rng::new(seed()));
    let words = memory(&shape).leak();
    let stacks: &'static Stacks<'static> = Box::leak(Box::new(Stacks::new(rseq, shape, words).unwrap()));
    let mut held = Vec::with_capacity(VALUES as usize);
    let worker = || {
        fill(stacks);
        FOR_HANDLER.store((&raw const *stacks).cast_mut(), Ordering::Release);
        let ticks = Ticks::every(Duration::from_micros(50));
        let begin = Instant::now();
        while RESTARTS.load(Ordering::Relaxed) < 1000 && begin.elapsed() < Duration::from_secs(30) {
            (0..1000).for_each(|_| one_operation(stacks, &mut rng, &mut held));
        }
        drop(ticks);
    };
    thread::scope(|scope| scope.spawn(worker).join()).unwrap();
    let (signals, restarts) = (SIGNALS.load(Ordering::Relaxed), RESTARTS.load(Ordering::Relaxed));
    let _ = writeln!(std::io::stderr(), "{signals} signals, {restarts} of them within a sequence");
    assert!(restarts > 0, "{signals} signals");
    held.extend(STASH[..STASHED.load(Ordering::Relaxed)].iter().map(|value| value.load(Ordering::Relaxed)));
    held.extend(drain_all(stacks));
    assert_conserved(held, VALUES);
}

/// Single operations until `rounds` are done; whether the values below `N` are there once at the end. Allocates
/// nothing, as a child of a process with threads must not.
fn conserves_without_allocating<const N: usize>(
    stacks: &Stacks<'_>,
    held: &mut ([u32; N], usize),
    rounds: u32,
) -> bool {
    let mut rng = Rng::new(u64::from(rounds));
    for _ in 0..rounds {
        let list = below(&mut rng, LISTS);
        if rng.below(2) == 0 {
            if let Some(value) = stacks.pop(list) {
                held.0[held.1] = value;
                held.1 += 1;
            }
        } else if held.1 > 0 && stacks.push(list, held.0[held.1 - 1]) {
            held.1 -= 1;
        }
    }
    let mut seen = [0_u8; N];
    held.0[..held.1].iter().for_each(|&value| seen[value as usize] += 1);
    for cpu in 0..stacks.shape().cpus {
        let Ok(mut stopped) = stacks.stop(cpu) else { return false };
        for list in 0..LISTS {
            let mut values = [0; N];
            let n = stopped.drain(list, &mut values);
            values[..n].iter().for_each(|&value| seen[value as usize] += 1);
        }
    }
    seen.iter().all(|&seen| seen == 1)
}

#[test]
fn a_child_goes_on_with_its_own_copy() {
    const N: usize = 512;
    let Some(rseq) = rseq() else { return };
    let shape = shape(u32::try_from(N).unwrap());
    let mut words = memory(&shape);
    let stacks = Stacks::new(rseq, shape, &mut words).unwrap();
    let mut held = ([0; N], 0);
    (0..u32::try_from(N).unwrap()).for_each(|value| assert!(stacks.push(value as usize % LISTS, value)));
    for list in 0..LISTS {
        // Some are held when it begins. A list may be empty, if the thread has come to another CPU.
        if let Some(value) = stacks.pop(list) {
            held.0[held.1] = value;
            held.1 += 1;
        }
    }
    // SAFETY: the child does atomic accesses, sequences and system calls only, and ends with `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let conserved = conserves_without_allocating(&stacks, &mut held, 100_000);
        // SAFETY: ends the child, without what was registered to be done at the exit of its parent.
        unsafe { libc::_exit(i32::from(!conserved)) };
    }
    assert!(child > 0);
    assert!(conserves_without_allocating(&stacks, &mut held, 100_001), "the parent");
    let mut status = 0;
    // SAFETY: waits for the child made above; writes the status.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child");
}

extern "C" fn use_from_raw_thread(stacks: *mut libc::c_void) -> *mut libc::c_void {
    // SAFETY: the test passes its stacks, and waits for the thread.
    let stacks = unsafe { &*stacks.cast::<Stacks<'_>>() };
    let done =
        pin(0, allowed()[0]) && stacks.push(0, 77) && stacks.push_many(0, &[78, 79]) == 2 && stacks.pop(0) == Some(79);
    std::ptr::without_provenance_mut(usize::from(done))
}

#[test]
fn a_thread_that_pthread_create_made_is_as_any_other() {
    let Some(rseq) = rseq() else { return };
    pinned(|cpu| {
        let shape = shape(4);
        let mut words = memory(&shape);
        let stacks = Stacks::new(rseq, shape, &mut words).unwrap();
        let mut thread = MaybeUninit::<libc::pthread_t>::uninit();
        let mut result = std::ptr::null_mut();
        let argument = (&raw const stacks).cast_mut().cast();
        // SAFETY: the function has the type asked for, and its argument outlives the thread, which is waited for.
        let made =
            unsafe { libc::pthread_create(thread.as_mut_ptr(), std::ptr::null(), use_from_raw_thread, argument) };
        assert_eq!(made, 0);
        // SAFETY: `pthread_create` has succeeded, and so written it.
        let thread = unsafe { thread.assume_init() };
        // SAFETY: the thread made above, waited for once.
        assert_eq!(unsafe { libc::pthread_join(thread, &raw mut result) }, 0);
        assert_eq!((result.addr(), stacks.count(cpu, 0), stacks.pop(0)), (1, 2, Some(78)));
    });
}

/// This thread's area, and what the kernel takes for a registration.
fn area(rseq: Rseq) -> *mut u8 {
    let pointer: *mut u8;
    // SAFETY: reads the word that the ABI keeps the thread pointer itself in.
    unsafe {
        std::arch::asm!("mov {}, fs:[0]", out(reg) pointer, options(nostack, preserves_flags, readonly));
    }
    pointer.wrapping_byte_offset(rseq.0.offset)
}

/// Registers (`flags` 0) or unregisters (1) this thread, with the length that glibc up to 2.39 gives.
fn register(area: *mut u8, flags: i32) -> bool {
    let signature = 0x5305_3053_u32;
    // SAFETY: the area is this thread's and is as long as said.
    unsafe { libc::syscall(libc::SYS_rseq, area, 32, flags, signature) == 0 }
}

#[test]
fn a_thread_that_is_not_registered_goes_to_the_zone() {
    let Some(rseq) = rseq() else { return };
    pinned(|cpu| {
        let shape = shape(4);
        let mut words = memory(&shape);
        let stacks = Stacks::new(rseq, shape, &mut words).unwrap();
        assert!(stacks.push(0, 1) && stacks.push(0, 2));
        let area = area(rseq);
        if !register(area, 1) {
            let _ = writeln!(std::io::stderr(), "skipped: needs glibc 2.35 to 2.39, whose registration can be undone");
            return;
        }
        let single = (stacks.push(0, 9), stacks.pop(0));
        let many = (stacks.push_many(0, &[9]), stacks.pop_many(0, &mut [0]));
        let (checked, cpus) = (Rseq::check().map(|_| ()), (rseq.cpu(), stacks.cpu()));
        assert!(register(area, 0));
        assert_eq!((single, many), ((false, None), (0, 0)));
        assert_eq!(checked, Err(NoRseq::ThreadNotRegistered { cpu_id: -1 }));
        assert_eq!(cpus, (cpu, cpu), "by the slower way");
        assert_eq!((stacks.pop(0), stacks.count(cpu, 0)), (Some(2), 1));
    });
}

#[test]
fn without_the_registration_of_the_library_the_check_says_so() {
    let Some(_) = rseq() else { return };
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "percpu::tests::in_a_process_without_registration"])
        .env("GLIBC_TUNABLES", "glibc.pthread.rseq=0")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success() && text.contains("1 passed"), "{text}{}", String::from_utf8_lossy(&child.stderr));
}

#[test]
#[ignore = "run by without_the_registration_of_the_library_the_check_says_so, in a process of its own"]
fn in_a_process_without_registration() {
    let why = Rseq::check().map(|_| ()).unwrap_err();
    assert_eq!(why, NoRseq::NotRegistered { size: 0 });
    assert!(why.to_string().contains("GLIBC_TUNABLES"), "{why}");
}

/// Nanoseconds of one `work`, the least of several rounds of `n`.
fn least_ns(n: u32, mut work: impl FnMut()) -> f64 {
    let mut round = || {
        let begin = Instant::now();
        (0..n).for_each(|_| work());
        begin.elapsed().as_nanos() as f64 / f64::from(n)
    };
    (0..30).map(|_| round()).fold(f64::INFINITY, f64::min)
}

#[test]
#[ignore = "measures: cargo test --release -p isotherm-frames what_it_costs -- --ignored --nocapture"]
fn what_it_costs() {
    let Some(rseq) = rseq() else { return };
    pinned(|cpu| {
        let shape = shape(4096);
        let mut words = memory(&shape);
        let stacks = Stacks::new(rseq, shape, &mut words).unwrap();
        (0..256).for_each(|value| assert!(stacks.push(1, value)));
        let pair = least_ns(1_000_000, || {
            let value = stacks.pop(1).unwrap_or(0);
            stacks.push(1, std::hint::black_box(value));
        });
        let list = std::hint::black_box(4);
        stacks.push(list, 1);
        let any_list = least_ns(1_000_000, || {
            let list = std::hint::black_box(list);
            let value = stacks.pop(list).unwrap_or(0);
            stacks.push(list, std::hint::black_box(value));
        });
        let mut burst = [0; 64];
        let bursts = least_ns(20_000, || {
            burst.iter_mut().for_each(|value| *value = stacks.pop(1).unwrap_or(0));
            std::hint::black_box(&mut burst);
            burst.iter().for_each(|&value| assert!(stacks.push(1, value)));
        });
        let mut out = std::io::stderr();
        let _ =
            writeln!(out, "pop and push: {pair:.2} ns; list not known: {any_list:.2}; 64 and 64: {:.2}", bursts / 64.0);
        for len in [8, 63, 64, 256] {
            let mut values = vec![0; len];
            let many = least_ns(100_000, || {
                let popped = stacks.pop_many(1, std::hint::black_box(&mut values));
                stacks.push_many(1, std::hint::black_box(&values[..popped]));
            });
            let _ = writeln!(out, "pop_many and push_many of {len}: {many:.1} ns, {:.3} an entry", many / len as f64);
        }
        let reading = least_ns(1_000_000, || {
            std::hint::black_box(rseq.cpu());
        });
        let asking = least_ns(100_000, || {
            std::hint::black_box(current_cpu());
        });
        let stop = least_ns(1_000, || drop(stacks.stop(cpu)));
        let _ = writeln!(out, "cpu: {reading:.2} ns; current_cpu: {asking:.2}; stop and go, itself: {stop:.0}");
    });
}
