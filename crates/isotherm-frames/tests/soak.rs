//! Random calls from several threads on one zone, alone and behind pcp lists of each tier, with everything recomputed in between:
//! for `SOAK_SECONDS` (2 where nobody says otherwise, 600 from `make soak`), from `SEED` (the time, where nobody says otherwise), on
//! `SOAK_THREADS` (4). `SOAK_FRONT` leaves one front of `zone`, `restartable`, `locked` and `owned`.
//!
//! Most calls go through what stands in front of the zone; what only a zone can do, and some of what both can, goes straight to it. One
//! thread beside them drains the lists, takes ranges away and brings them back, shuffles and recomputes, and in front of shared lists another
//! keeps house.
//!
//! What a thread does follows from the seed; in which order the threads get there does not. That no two have the same frame is
//! checked by a mark for every frame that is set by whoever gets it.

mod support;

use isotherm_frames::housekeep::{Slot, Spread};
use isotherm_frames::percpu::Rseq;
use isotherm_frames::tune::PcpLimits;
use isotherm_frames::{
    AllocError, Choice, Colouring, FrameNo, FrameRange, FreeError, Front, Housekeeper, HousekeeperConfig, Interval,
    Metadata, MigrateType, Offline, Order, OwnedPcpLists, PcpConfig, PcpLists, Request, Shuffling, Tier, Urgency,
    Watermarks, Zone, ZoneConfig,
};
use isotherm_rng::Rng;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use support::{below, cpus, frames, metadata, order};

/// Frames of the zone: 16 blocks of the largest order, so that it is exhausted now and then.
const FRAMES: u64 = 16 << 10;
/// Ranges that come and go.
const SLOT: u64 = 2048;

/// No range is leaving.
const NOTHING: u64 = u64::MAX;

/// The zone itself, with nothing in front.
struct Bare<'z, 'm>(&'z Zone<'m>);

impl Front for Bare<'_, '_> {
    fn alloc(&mut self, order: Order, migrate: MigrateType) -> Result<FrameNo, AllocError> {
        self.0.alloc(order, migrate)
    }

    fn free(&mut self, frame: FrameNo, order: Order) -> Result<(), FreeError> {
        self.0.free(frame, order)
    }

    fn drain(&mut self) -> u64 {
        0
    }
}

/// What may stand in front of the zone.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Fronts {
    Zone,
    Shared(Tier),
    Owned,
}

/// Calls that were made.
#[derive(Default, Debug)]
struct Done {
    given: AtomicU64,
    taken_back: AtomicU64,
    refused: AtomicU64,
    drained: AtomicU64,
    decayed: AtomicU64,
    gone: AtomicU64,
    added: AtomicU64,
    shuffled: AtomicU64,
    validated: AtomicU64,
}

fn count(what: &AtomicU64, by: usize) {
    what.fetch_add(by as u64, Relaxed);
}

/// One zone, and who has what of it.
struct Soak<'a, 'm> {
    zone: &'a Zone<'m>,
    taken: Vec<AtomicBool>,
    /// First frame of a range that leaves, whose users are asked to give it back; [`NOTHING`] if none does.
    leaving: AtomicU64,
    end: Instant,
    done: &'a Done,
}

impl Soak<'_, '_> {
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
    fn use_frames(&self, front: &mut impl Front, mut rng: Rng) {
        let mut held: Vec<(FrameNo, Order)> = Vec::new();
        let mut filling = true;
        while self.goes_on() {
            for _ in 0..64 {
                self.one_call(front, &mut rng, &mut held, filling);
            }
            // Filling and emptying take turns of random length, other ones in each thread.
            filling ^= rng.below(32) == 0;
            let leaving = self.leaving.load(Relaxed);
            for (frame, order) in held.extract_if(.., |(frame, _)| frame.0.wrapping_sub(leaving) < SLOT) {
                self.give(front, frame, order);
            }
            // Nobody else can drain an owned set; shared ones do not mind.
            if leaving != NOTHING || rng.below(256) == 0 {
                self.drain(front);
            }
        }
        for (frame, order) in held {
            self.give(front, frame, order);
        }
    }

    fn one_call(&self, front: &mut impl Front, rng: &mut Rng, held: &mut Vec<(FrameNo, Order)>, filling: bool) {
        let size = if rng.below(4) > 0 { Order::FRAME } else { order(u32::try_from(rng.below(11)).unwrap()) };
        let migrate = MigrateType::ALL[below(rng, 3)];
        let straight = rng.below(8) == 0;
        match rng.below(16) {
            0 => self.bulk(rng, held, order(u32::try_from(rng.clone().below(4)).unwrap()), migrate),
            1 => {
                let frame = FrameNo(rng.below(FRAMES + 100) & !(u64::from(size.frames()) - 1));
                self.keep_if(held, self.zone.alloc_at(frame, size, migrate).map(|()| frame), size);
            }
            2 => self.wrong(front, rng, held),
            n if (n < 11) == filling => {
                let got = if straight {
                    let urgency = [Urgency::Normal, Urgency::High, Urgency::Critical][below(rng, 3)];
                    self.zone.request(Request { urgency, no_wait: n == 3, ..Request::new(size, migrate) })
                } else {
                    front.alloc(size, migrate)
                };
                self.keep_if(held, got, size);
            }
            _ if held.is_empty() => {}
            _ => {
                let (frame, order) = held.swap_remove(below(rng, held.len()));
                if straight { self.give(&mut Bare(self.zone), frame, order) } else { self.give(front, frame, order) }
            }
        }
    }

    fn keep_if(&self, held: &mut Vec<(FrameNo, Order)>, got: Result<FrameNo, AllocError>, order: Order) {
        match got {
            Ok(frame) => self.keep(held, frame, order),
            Err(_) => count(&self.done.refused, 1),
        }
    }

    fn keep(&self, held: &mut Vec<(FrameNo, Order)>, frame: FrameNo, order: Order) {
        self.mark(frame, order, true);
        held.push((frame, order));
        count(&self.done.given, 1);
    }

    fn give(&self, front: &mut impl Front, frame: FrameNo, order: Order) {
        self.mark(frame, order, false);
        front.free(frame, order).unwrap();
        count(&self.done.taken_back, 1);
    }

    fn drain(&self, front: &mut impl Front) {
        self.done.drained.fetch_add(front.drain(), Relaxed);
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
    fn wrong(&self, front: &mut impl Front, rng: &mut Rng, held: &[(FrameNo, Order)]) {
        assert!(front.free(FrameNo(FRAMES + rng.below(1 << 60)), Order::FRAME).is_err());
        if let Some(&(frame, size)) = held.last() {
            assert!(front.free(frame, order((size.get() + 1) % 11)).is_err());
            assert!(self.zone.free(frame, order((size.get() + 1) % 11)).is_err());
            if size > Order::FRAME {
                assert!(front.free(frame.plus(1), Order::FRAME).is_err());
            }
        }
        count(&self.done.refused, 1);
    }

    /// What one thread does to the zone as a whole.
    fn change(&self, front: &mut impl Front, mut rng: Rng) {
        while self.goes_on() {
            let slot = frames(rng.below(FRAMES / SLOT) * SLOT, SLOT);
            match rng.below(9) {
                0..3 => self.remove(front, slot, rng.below(100)),
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
                7 => self.drain(front),
                _ => {
                    let stats = self.zone.stats();
                    assert!(stats.free + stats.isolated <= stats.present && stats.present <= FRAMES);
                }
            }
            thread::yield_now();
        }
    }

    /// Takes a range away, if its users give it back before so many questions; otherwise it stays.
    fn remove(&self, front: &mut impl Front, slot: FrameRange, patience: u64) {
        self.leaving.store(slot.start.0, Relaxed);
        for _ in 0..=patience {
            match self.zone.offline(slot) {
                Ok(Offline::Done) => count(&self.done.gone, 1),
                Ok(Offline::Pending { .. }) => {
                    self.drain(front);
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

/// How one zone is used: by how many threads, for how long.
#[derive(Clone, Copy)]
struct Round {
    seed: u64,
    threads: u64,
    time: Duration,
}

/// A zone for a while: used, changed, recomputed, and in the end all of it is back.
fn soak(config: &ZoneConfig, fronts: Fronts, round: Round, done: &Done) {
    let threads = round.threads;
    let config = ZoneConfig { seed: round.seed, ..*config };
    let (mut bytes, mut more) = (metadata(&config), Vec::new());
    let zone = Zone::new(&config, Metadata::zeroed(&mut bytes)).unwrap();
    zone.add(frames(0, FRAMES), MigrateType::Movable).unwrap();
    match fronts {
        Fronts::Zone => run(&zone, (0..=threads).map(|_| Bare(&zone)), None, round, done),
        Fronts::Shared(tier) => {
            let config = PcpConfig { tier, ..PcpConfig::new(cpus()) };
            more.resize(config.metadata_bytes(&zone), 0);
            let pcp = PcpLists::new(zone, &config, Metadata::zeroed(&mut more)).unwrap();
            let mut slots: Vec<Slot> = (0..cpus()).map(|_| Slot::default()).collect();
            // So short that it is always at it.
            let config = HousekeeperConfig::new(Interval::from_ns(100_000).unwrap());
            let keeper = Housekeeper::new(std::slice::from_ref(&pcp), &mut slots, Spread, &config);
            (0..cpus()).for_each(|cpu| assert!(keeper.online(cpu)));
            run(pcp.zone(), (0..=threads).map(|_| &pcp), Some(&keeper), round, done);
            done.decayed.fetch_add(keeper.stats().drained, Relaxed);
        }
        Fronts::Owned => {
            let limits = PcpLimits::for_zone(FRAMES, 0, u32::try_from(threads).unwrap(), None);
            let each = OwnedPcpLists::metadata_bytes(limits);
            more.resize(each * usize::try_from(threads + 1).unwrap(), 0);
            let parts = more.chunks_exact_mut(each);
            let owned = parts.map(|part| OwnedPcpLists::new(&zone, limits, Metadata::zeroed(part)).unwrap());
            run(&zone, owned, None, round, done);
        }
    }
}

/// One front for each thread that uses frames, and first one for the thread that changes the zone; and who keeps house.
fn run<F: Front + Send>(
    zone: &Zone<'_>,
    fronts: impl Iterator<Item = F>,
    keeper: Option<&Housekeeper<'_, '_>>,
    round: Round,
    done: &Done,
) {
    let Round { seed, time, .. } = round;
    let taken = (0..FRAMES).map(|_| AtomicBool::new(false)).collect();
    let leaving = AtomicU64::new(NOTHING);
    let soak = Soak { zone, taken, leaving, end: Instant::now() + time, done };
    let mut fronts: Vec<F> = fronts.collect();
    let (mine, theirs) = fronts.split_first_mut().unwrap();
    thread::scope(|s| {
        let _keeps_house = keeper.map(|keeper| keeper.start_in(s));
        for (thread, front) in (0..).zip(theirs) {
            let soak = &soak;
            s.spawn(move || soak.use_frames(front, Rng::new(seed.wrapping_add(thread))));
        }
        soak.change(mine, Rng::new(!seed));
    });
    // Nobody is in a set any more, so one turn empties all.
    fronts.iter_mut().for_each(|front| soak.drain(front));
    soak.validate();
    let stats = zone.stats();
    assert_eq!(stats.free + stats.isolated, stats.present, "something is lost");
    assert_eq!(stats.events.wrong_state, 0);
    assert!(soak.taken.iter().all(|taken| !taken.load(Relaxed)));
}

/// The fronts that there are here, or the one of them that is asked for.
fn fronts() -> Vec<Fronts> {
    let all = [
        ("zone", Fronts::Zone),
        ("restartable", Fronts::Shared(Tier::Restartable)),
        ("locked", Fronts::Shared(Tier::Locked)),
        ("owned", Fronts::Owned),
    ];
    let asked = std::env::var("SOAK_FRONT").ok();
    let mut chosen: Vec<Fronts> = all
        .into_iter()
        .filter(|(name, _)| asked.as_deref().is_none_or(|asked| asked == *name))
        .map(|(_, f)| f)
        .collect();
    assert!(!chosen.is_empty(), "SOAK_FRONT={asked:?}: zone, restartable, locked or owned");
    if let Err(why) = Rseq::check() {
        let _ = std::io::stderr().write_all(format!("skipped: needs restartable sequences: {why}\n").as_bytes());
        chosen.retain(|&front| front != Fronts::Shared(Tier::Restartable));
    }
    chosen
}

#[test]
fn soak_for_a_while() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() & u128::from(u64::MAX);
    let seed = from_environment("SEED", u64::try_from(now).unwrap());
    let (seconds, threads) = (from_environment("SOAK_SECONDS", 2).max(1), from_environment("SOAK_THREADS", 4));
    let mut err = std::io::stderr();
    writeln!(err, "soak: SEED={seed}, {seconds} s, {threads} threads").unwrap();
    let (begin, done, zones) = (Instant::now(), Done::default(), zones());
    let pairs: Vec<_> =
        fronts().into_iter().flat_map(|front| zones.map(|(name, config)| (front, name, config))).collect();
    let whole = Duration::from_secs(seconds);
    let each = (whole / u32::try_from(pairs.len().max(1)).unwrap()).min(Duration::from_secs(10));
    let mut rounds = 0;
    for (number, (front, name, config)) in (0_u64..).zip(pairs.iter().cycle()) {
        if begin.elapsed() >= whole {
            break;
        }
        // Odd and even in turn for each pair: some of what is done depends on it.
        let seed = seed.wrapping_add(number << 32).wrapping_add(number / pairs.len() as u64);
        let result = std::panic::catch_unwind(|| soak(config, *front, Round { seed, threads, time: each }, &done));
        if let Err(why) = result {
            writeln!(err, "soak: SEED={seed}, round {number} ({front:?}, {name}): failed").unwrap();
            std::panic::resume_unwind(why);
        }
        rounds += 1;
    }
    writeln!(err, "soak: SEED={seed}, {rounds} rounds in {:.1} s: {done:?}", begin.elapsed().as_secs_f64()).unwrap();
    if rounds > 0 {
        assert!(done.given.load(Relaxed) > 0 && done.given.load(Relaxed) == done.taken_back.load(Relaxed));
    }
}
