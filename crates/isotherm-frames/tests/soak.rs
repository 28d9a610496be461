//! Random calls on one zone from several threads, with everything recomputed in between: for `SOAK_SECONDS` (2 where nobody says
//! otherwise, 600 from `make soak`), from `SEED` (the time, where nobody says otherwise), on `SOAK_THREADS` (4).
//!
//! What a thread does follows from the seed; in which order the threads get there does not. That no two have the same frame is
//! checked by a mark for every frame that is set by whoever gets it.

mod support;

use isotherm_frames::{
    Choice, Colouring, FrameNo, FrameRange, Metadata, MigrateType, Offline, Order, Request, Shuffling, Urgency,
    Watermarks, Zone, ZoneConfig,
};
use isotherm_rng::Rng;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use support::{below, frames, metadata, order};

/// Frames of the zone: 16 blocks of the largest order, so that it is exhausted now and then.
const FRAMES: u64 = 16 << 10;
/// Ranges that come and go.
const SLOT: u64 = 2048;

/// No range is leaving.
const NOTHING: u64 = u64::MAX;

/// What hands out frames: the zone itself, or something in front of it.
trait Front: Sync {
    fn alloc(&self, request: Request) -> Option<FrameNo>;
    fn free(&self, frame: FrameNo, order: Order);
    /// Gives back to the zone what only waits.
    fn settle(&self);
}

impl Front for Zone<'_> {
    fn alloc(&self, request: Request) -> Option<FrameNo> {
        self.request(request).ok()
    }

    fn free(&self, frame: FrameNo, order: Order) {
        Zone::free(self, frame, order).unwrap();
    }

    fn settle(&self) {}
}

/// Calls that were made.
#[derive(Default, Debug)]
struct Done {
    given: AtomicU64,
    taken_back: AtomicU64,
    refused: AtomicU64,
    gone: AtomicU64,
    added: AtomicU64,
    shuffled: AtomicU64,
    validated: AtomicU64,
}

fn count(what: &AtomicU64, by: usize) {
    what.fetch_add(by as u64, Relaxed);
}

/// One zone, and who has what of it.
struct Soak<'a, 'm, F> {
    zone: &'a Zone<'m>,
    front: &'a F,
    taken: Vec<AtomicBool>,
    /// First frame of a range that leaves, whose users are asked to give it back; [`NOTHING`] if none does.
    leaving: AtomicU64,
    end: Instant,
    done: &'a Done,
}

impl<F: Front> Soak<'_, '_, F> {
    fn mark(&self, frame: FrameNo, order: Order, taken: bool) {
        for at in frame.0..frame.0 + u64::from(order.frames()) {
            let was = self.taken[usize::try_from(at).unwrap()].swap(taken, Relaxed);
            assert!(was != taken, "{frame:?} {order:?}: two have it");
        }
    }

    fn goes_on(&self) -> bool {
        Instant::now() < self.end
    }

    /// What a thread does that uses frames.
    fn use_frames(&self, mut rng: Rng) {
        let mut held: Vec<(FrameNo, Order)> = Vec::new();
        let mut filling = true;
        while self.goes_on() {
            for _ in 0..64 {
                self.one_call(&mut rng, &mut held, filling);
            }
            // Filling and emptying take turns of random length, other ones in each thread.
            filling ^= rng.below(32) == 0;
            let leaving = self.leaving.load(Relaxed);
            for (frame, order) in held.extract_if(.., |(frame, _)| frame.0.wrapping_sub(leaving) < SLOT) {
                self.give(frame, order);
            }
        }
        for (frame, order) in held {
            self.give(frame, order);
        }
    }

    fn one_call(&self, rng: &mut Rng, held: &mut Vec<(FrameNo, Order)>, filling: bool) {
        let size = if rng.below(4) > 0 { Order::FRAME } else { order(u32::try_from(rng.below(11)).unwrap()) };
        let migrate = MigrateType::ALL[below(rng, 3)];
        match rng.below(16) {
            0 => self.bulk(rng, held, order(u32::try_from(rng.clone().below(4)).unwrap()), migrate),
            1 => {
                let frame = FrameNo(rng.below(FRAMES + 100) & !(u64::from(size.frames()) - 1));
                match self.zone.alloc_at(frame, size, migrate) {
                    Ok(()) => self.keep(held, frame, size),
                    Err(_) => count(&self.done.refused, 1),
                }
            }
            2 => self.wrong(rng, held),
            n if (n < 11) == filling => {
                let urgency = [Urgency::Normal, Urgency::High, Urgency::Critical][below(rng, 3)];
                match self.front.alloc(Request { urgency, no_wait: n == 3, ..Request::new(size, migrate) }) {
                    Some(frame) => self.keep(held, frame, size),
                    None => count(&self.done.refused, 1),
                }
            }
            _ if held.is_empty() => {}
            _ => {
                let (frame, order) = held.swap_remove(below(rng, held.len()));
                self.give(frame, order);
            }
        }
    }

    fn keep(&self, held: &mut Vec<(FrameNo, Order)>, frame: FrameNo, order: Order) {
        self.mark(frame, order, true);
        held.push((frame, order));
        count(&self.done.given, 1);
    }

    fn give(&self, frame: FrameNo, order: Order) {
        self.mark(frame, order, false);
        self.front.free(frame, order);
        count(&self.done.taken_back, 1);
    }

    fn bulk(&self, rng: &mut Rng, held: &mut Vec<(FrameNo, Order)>, order: Order, migrate: MigrateType) {
        let mut into = vec![FrameNo(0); below(rng, 200)];
        let got = self.zone.alloc_bulk(order, migrate, &mut into);
        into[..got].iter().for_each(|&frame| self.keep(held, frame, order));
        if rng.below(2) == 0 {
            held.truncate(held.len() - got);
            into[..got].iter().for_each(|&frame| self.mark(frame, order, false));
            self.zone.free_bulk(&into[..got], order).unwrap();
            count(&self.done.taken_back, got);
        }
    }

    /// Frees that have to be refused, whatever the others do.
    fn wrong(&self, rng: &mut Rng, held: &[(FrameNo, Order)]) {
        assert!(self.zone.free(FrameNo(FRAMES + rng.below(1 << 60)), Order::FRAME).is_err());
        if let Some(&(frame, size)) = held.last() {
            assert!(self.zone.free(frame, order((size.get() + 1) % 11)).is_err());
            if size > Order::FRAME {
                assert!(self.zone.free(frame.plus(1), Order::FRAME).is_err());
            }
        }
        count(&self.done.refused, 1);
    }

    /// What one thread does to the zone as a whole.
    fn change(&self, mut rng: Rng) {
        while self.goes_on() {
            let slot = frames(rng.below(FRAMES / SLOT) * SLOT, SLOT);
            match rng.below(8) {
                0..3 => self.remove(slot, rng.below(100)),
                3 | 4 => {
                    if self.zone.add(slot, MigrateType::ALL[below(&mut rng, 3)]).is_ok() {
                        count(&self.done.added, 1);
                    }
                }
                5 => {
                    self.zone.shuffle();
                    count(&self.done.shuffled, 1);
                }
                6 => self.validate(),
                _ => {
                    let stats = self.zone.stats();
                    assert!(stats.free + stats.isolated <= stats.present && stats.present <= FRAMES);
                }
            }
            thread::yield_now();
        }
    }

    /// Takes a range away, if its users give it back before so many questions; otherwise it stays.
    fn remove(&self, slot: FrameRange, patience: u64) {
        self.leaving.store(slot.start.0, Relaxed);
        for _ in 0..=patience {
            match self.zone.offline(slot) {
                Ok(Offline::Done) => count(&self.done.gone, 1),
                Ok(Offline::Pending { .. }) => {
                    self.front.settle();
                    thread::yield_now();
                    continue;
                }
                Err(_) => {}
            }
            self.leaving.store(NOTHING, Relaxed);
            return;
        }
        self.leaving.store(NOTHING, Relaxed);
        self.zone.keep(slot).unwrap();
    }

    fn validate(&self) {
        self.zone.validate().unwrap();
        count(&self.done.validated, 1);
    }
}

fn from_environment(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// The kinds of zones that take turns.
fn zones() -> [(&'static str, ZoneConfig); 6] {
    let plain = ZoneConfig::new(frames(0, FRAMES));
    let shuffle = |from: Order| Shuffling { from, ..Shuffling::from_option(Some(true)) };
    let coloured = |colouring: Colouring| ZoneConfig { colouring: Some(colouring), ..plain };
    let exact = Colouring::exact(3072);
    [
        ("plain", plain),
        ("shuffled", ZoneConfig { shuffle: shuffle(Order::HUGE), ..plain }),
        ("coloured", coloured(exact)),
        ("kept", ZoneConfig { watermarks: Watermarks { min: 300, low: 400, high: 500 }, ..plain }),
        (
            "coloured and shuffled",
            ZoneConfig { shuffle: shuffle(Order::MAX), ..coloured(Colouring { granule: order(4), ..exact }) },
        ),
        ("best of 4", coloured(Colouring { choice: Choice::BestOf(4), ..exact })),
    ]
}

/// A zone for a while: used, changed, recomputed, and in the end all of it is back.
fn soak(config: &ZoneConfig, seed: u64, threads: u64, time: Duration, done: &Done) {
    let config = ZoneConfig { seed, ..*config };
    let mut bytes = metadata(&config);
    let zone = Zone::new(&config, Metadata::zeroed(&mut bytes)).unwrap();
    zone.add(frames(0, FRAMES), MigrateType::Movable).unwrap();
    let taken = (0..FRAMES).map(|_| AtomicBool::new(false)).collect();
    let leaving = AtomicU64::new(NOTHING);
    let soak = Soak { zone: &zone, front: &zone, taken, leaving, end: Instant::now() + time, done };
    thread::scope(|s| {
        for thread in 0..threads {
            let soak = &soak;
            s.spawn(move || soak.use_frames(Rng::new(seed.wrapping_add(thread))));
        }
        s.spawn(|| soak.change(Rng::new(!seed)));
    });
    soak.front.settle();
    soak.validate();
    let stats = zone.stats();
    assert_eq!(stats.free + stats.isolated, stats.present, "something is lost");
    assert_eq!(stats.events.mistaken, 0);
    assert!(soak.taken.iter().all(|taken| !taken.load(Relaxed)));
}

#[test]
fn soak_for_a_while() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() & u128::from(u64::MAX);
    let seed = from_environment("SEED", u64::try_from(now).unwrap());
    let (seconds, threads) = (from_environment("SOAK_SECONDS", 2).max(1), from_environment("SOAK_THREADS", 4));
    let mut err = std::io::stderr();
    writeln!(err, "soak: SEED={seed}, {seconds} s, {threads} threads").unwrap();
    let (begin, done) = (Instant::now(), Done::default());
    let whole = Duration::from_secs(seconds);
    let each = (whole / 6).min(Duration::from_secs(10));
    let mut rounds = 0;
    for (round, (name, config)) in (0_u64..).zip(zones().into_iter().cycle()) {
        if begin.elapsed() >= whole {
            break;
        }
        let result = std::panic::catch_unwind(|| soak(&config, seed.wrapping_add(round << 32), threads, each, &done));
        if let Err(why) = result {
            writeln!(err, "soak: SEED={seed}, round {round} ({name}): failed").unwrap();
            std::panic::resume_unwind(why);
        }
        rounds += 1;
    }
    writeln!(err, "soak: SEED={seed}, {rounds} rounds in {:.1} s: {done:?}", begin.elapsed().as_secs_f64()).unwrap();
    assert!(done.given.load(Relaxed) > 0 && done.given.load(Relaxed) == done.taken_back.load(Relaxed));
}
