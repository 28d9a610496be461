//! Which event to sample: the one asked for, or the best that this machine has.
//!
//! The best events sample memory accesses: loads and stores of Intel's PEBS, operations of AMD's IBS. Whether an event
//! does is tried and not assumed: a virtual machine may list events that count and never sample. If there is none, page
//! faults are sampled.

use super::budget::SAMPLE_NS;
use super::options::Options;
use crate::Error;
use isotherm_heat::Silence;
use isotherm_host::HostRoots;
use isotherm_host::events::{self, Kind, NamedEvent, PmuEvent, RawEvent};
use isotherm_sys::memory::{Memory, PageSize};
use isotherm_sys::perf::{Fields, Part, Rate, Record, Rings, Sample, Sampling, Whom, ibs};
use isotherm_units::Addr;
use std::fmt;

/// What is tried by default, best first. Events in one entry are used together, as far as they exist.
const BEST: [&[&str]; 2] = [&["mem-loads", "mem-stores"], &["ibs-op"]];
const FALLBACK: &str = "faults";
/// What a trial touches, and the maximum number of rounds.
const TRIAL_PAGES: u64 = 512;
const TRIAL_ROUNDS: usize = 200;
const TRIAL_RING: usize = 64 << 10;

/// The events that are sampled.
#[derive(Clone, Debug, PartialEq)]
pub struct Chosen {
    /// The events, with their names.
    pub events: Vec<NamedEvent>,
    /// How their samples are read.
    pub kind: Kind,
    /// The rate at the start.
    pub rate: Rate,
    /// What it means if nothing is reported for a page.
    pub silence: Silence,
    /// `precise_ip` as the kernel granted it; `None` before anything was opened.
    pub precise: Option<u8>,
    /// Faults that the kernel takes on behalf of a process, such as in a read into new memory, are excluded: they need
    /// a privilege.
    pub user_faults_only: bool,
    /// Why these, if the user named none.
    pub why: String,
}

impl Chosen {
    /// Their names.
    pub fn names(&self) -> String {
        self.events.iter().map(|e| e.name.as_str()).collect::<Vec<_>>().join(" and ")
    }

    /// Periods have to be multiples of this: IBS counts in sixteens.
    pub fn period_step(&self) -> u64 {
        if self.kind == Kind::Ibs { 16 } else { 1 }
    }

    /// Whether the kernel counts events whose samples it drops by itself: IBS counts operations in the kernel, and drops their samples in software.
    /// What is missing then was not lost.
    pub fn counts_what_it_drops(&self) -> bool {
        self.kind == Kind::Ibs && self.events.iter().flat_map(|e| &e.parts).any(|part| part.user_only)
    }

    /// Why it cannot be sampled at this rate, if so.
    fn unfit(&self, rate: Rate) -> Option<String> {
        let step = self.period_step();
        match rate {
            Rate::Period(n) if !n.is_multiple_of(step) => Some(format!("its period has to be a multiple of {step}")),
            _ => None,
        }
    }

    /// What to open: every event on every PMU that has it.
    pub fn parts(&self, physical: bool, rate: Rate) -> Vec<Part> {
        let fields = fields(self.kind, physical);
        let part = |event: &PmuEvent| {
            let sampling = Sampling {
                event: event.event,
                leader: event.leader,
                rate,
                fields,
                user_only: event.user_only && (self.kind != Kind::Faults || self.user_faults_only),
                most_precise: event.most_precise,
            };
            Part { sampling, cpus: event.cpus.clone() }
        };
        self.events.iter().flat_map(|e| &e.parts).map(part).collect()
    }

    fn new(events: Vec<NamedEvent>, rate: Option<Rate>, silence: Silence, why: String) -> Chosen {
        let kind = events.first().map_or(Kind::Raw, |e| e.kind);
        let rate = rate.or(events.first().map(|e| e.default_rate)).unwrap_or(Rate::Period(1));
        Chosen { events, kind, rate, silence, precise: None, user_faults_only: false, why }
    }
}

impl fmt::Display for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what: Vec<_> = self.events.iter().map(|e| format!("{} ({})", e.name, e.what)).collect();
        f.write_str(&what.join(" and "))?;
        match self.rate {
            Rate::Period(1) => f.write_str(", every one")?,
            Rate::Period(n) => write!(f, ", one in {n}")?,
            Rate::Frequency(hz) => write!(f, ", {hz} a second and processor")?,
        }
        let wanted = self.events.iter().flat_map(|e| &e.parts).map(|p| p.most_precise).max().unwrap_or(0);
        match self.precise {
            Some(precise) if precise < wanted => write!(f, ", precise_ip {precise} ({wanted} is refused here)")?,
            Some(precise) if wanted > 0 => write!(f, ", precise_ip {precise}")?,
            _ => {}
        }
        if self.user_faults_only {
            f.write_str(", but for those in system calls, which take CAP_PERFMON")?;
        }
        if self.why.is_empty() { Ok(()) } else { write!(f, " ({})", self.why) }
    }
}

fn fields(kind: Kind, physical: bool) -> Fields {
    let basic = Fields::TID | Fields::TIME | Fields::ADDR | Fields::PERIOD;
    match (kind, physical) {
        // The registers have both addresses.
        (Kind::Ibs, _) => basic | Fields::RAW,
        (_, true) => basic | Fields::PHYS_ADDR,
        (_, false) => basic,
    }
}

/// The events of `options` on this machine.
pub fn choose(roots: &HostRoots, options: &Options, physical: bool) -> Result<Chosen, Error> {
    if let Some(raw) = options.raw {
        return of_raw(roots, raw, options.rate);
    }
    if options.events.is_empty() {
        return best(roots, options.rate, physical);
    }
    let events: Vec<_> = options.events.iter().map(|name| events::find(roots, name)).collect::<Result<_, _>>()?;
    if let Some(other) = events.iter().find(|e| e.kind != events[0].kind) {
        let source = std::io::Error::other("their samples are not alike; name events of one kind");
        return Err(Error::Io { attempted: format!("sample {} and {} together", events[0].name, other.name), source });
    }
    if events[0].kind == Kind::Spe {
        let source = std::io::Error::other("samples of SPE cannot be read yet; take `faults` or the page-table source");
        return Err(Error::Io { attempted: format!("sample {}", events[0].name), source });
    }
    let silence = silence(roots, events[0].kind);
    let chosen = Chosen::new(events, options.rate, silence, String::new());
    match (chosen.rate, chosen.unfit(chosen.rate)) {
        (Rate::Period(n), Some(why)) => {
            let attempted = format!("sample one in {n} events of {}", chosen.names());
            Err(Error::Io { attempted, source: std::io::Error::other(why) })
        }
        _ => Ok(chosen),
    }
}

fn of_raw(roots: &HostRoots, raw: RawEvent, rate: Option<Rate>) -> Result<Chosen, Error> {
    let rate = rate.unwrap_or(Rate::Frequency(raw.frequency));
    let named = raw.named(roots)?;
    let silence = silence(roots, named.kind);
    Ok(Chosen::new(vec![named], Some(rate), silence, String::new()))
}

fn best(roots: &HostRoots, rate: Option<Rate>, physical: bool) -> Result<Chosen, Error> {
    match best_of_processor(roots, rate, physical) {
        Ok(chosen) => Ok(chosen),
        Err(why) => {
            let faults = events::find(roots, FALLBACK)?;
            // A period that fits accesses, one in a million, would leave next to no page faults.
            let why = match rate {
                Some(Rate::Period(n)) => format!("{why}; a period of {n} is not for these"),
                _ => why,
            };
            let rate = rate.filter(|rate| matches!(rate, Rate::Frequency(_)));
            Ok(Chosen::new(vec![faults], rate, silence(roots, Kind::Faults), why))
        }
    }
}

/// The best event of the CPU itself, or why there is none.
pub(crate) fn best_of_processor(roots: &HostRoots, rate: Option<Rate>, physical: bool) -> Result<Chosen, String> {
    let mut why = Vec::new();
    for names in BEST {
        let events: Vec<_> = names.iter().filter_map(|name| events::find(roots, name).ok()).collect();
        if events.is_empty() {
            continue;
        }
        // The trial is short, so not at a rate of the user's, at which nothing may be sampled in it.
        let chosen = Chosen::new(events, None, Silence::Cold, String::new());
        if let Some(unfit) = rate.and_then(|rate| chosen.unfit(rate)) {
            why.push(format!("{}: {unfit}", chosen.names()));
            continue;
        }
        match try_out(roots, &chosen, physical) {
            Tried::Works => return Ok(Chosen { rate: rate.unwrap_or(chosen.rate), ..chosen }),
            Tried::Silent => why.push(format!("{} does not happen", chosen.names())),
            Tried::Useless(error) => why.push(format!("{}: {error}", chosen.names())),
        }
    }
    // `isotherm doctor` reports what each one lacks.
    let why = if why.is_empty() { "see `isotherm doctor --events`".to_owned() } else { why.join("; ") };
    Err(format!("no event of the processor samples memory accesses here: {why}"))
}

fn silence(roots: &HostRoots, kind: Kind) -> Silence {
    match kind {
        Kind::Faults if events::makes_hint_faults(roots) => Silence::Scanned,
        Kind::Faults => Silence::Unknown,
        Kind::Memory | Kind::Ibs | Kind::Spe | Kind::Raw => Silence::Cold,
    }
}

/// The result of sampling our own accesses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tried {
    /// Our addresses were sampled.
    Works,
    /// It is available, but has not happened: our accesses may not be of its kind.
    Silent,
    /// It is not available, or is of no use.
    Useless(String),
}

/// Samples accesses of our own for a moment.
pub fn try_out(roots: &HostRoots, chosen: &Chosen, physical: bool) -> Tried {
    trial(roots, chosen, physical).unwrap_or_else(Tried::Useless)
}

fn trial(roots: &HostRoots, chosen: &Chosen, physical: bool) -> Result<Tried, String> {
    let parts = chosen.parts(physical, chosen.rate);
    let whom = Whom::Process(std::process::id());
    let mut rings = Rings::open(&roots.sys, &parts, &whom, TRIAL_RING).map_err(|e| e.to_string())?;
    let memory =
        Memory::anonymous(TRIAL_PAGES * isotherm_units::PAGE_SIZE, PageSize::Small).map_err(|e| e.to_string())?;
    let mut ours = 0_u64;
    for _ in 0..TRIAL_ROUNDS {
        // Page by page, so that there are misses in the first cache and in the TLB, and first touches.
        memory.discard(0, memory.pages());
        (0..memory.pages()).for_each(|page| memory.write(page));
        rings.drain(|record| {
            if let Record::Sample(sample) = record {
                ours += u64::from(is_ours(&sample, chosen.kind, physical, &memory));
            }
        });
        if ours > 0 {
            return Ok(Tried::Works);
        }
    }
    let totals = rings.totals();
    Ok(without_ours(chosen, totals.counted, totals.samples))
}

/// What a trial says if no sample has an address of what it touched. Each thread of the process is sampled, and we cause no major fault, so
/// such a fault is one of another thread, and no sign that the event has no addresses.
fn without_ours(chosen: &Chosen, counted: u64, samples: u64) -> Tried {
    let seen = match (counted, samples) {
        (0, 0) => return Tried::Silent,
        _ if chosen.events.iter().all(|event| event.name == events::MAJOR_FAULTS) => return Tried::Silent,
        (counted, 0) => format!("counted {counted} times and never sampled"),
        (_, samples) => format!("{samples} samples, none with an address of ours"),
    };
    Tried::Useless(format!("tried on our own accesses: {seen}"))
}

fn is_ours(sample: &Sample<'_>, kind: Kind, physical: bool, memory: &Memory) -> bool {
    let accessed = (kind == Kind::Ibs).then(|| ibs::decode(sample.raw)).flatten();
    if physical {
        // Not every user may see which frames are ours.
        return accessed.map_or(sample.phys_addr, |access| access.physical.unwrap_or(0)) != 0;
    }
    let addr = if kind == Kind::Ibs { accessed.and_then(|access| access.linear) } else { Some(sample.addr) };
    addr.is_some_and(|addr| memory.range().contains(Addr(addr)))
}

/// The cost of sampling at `hz` to the sampled program, in percent of a core.
pub fn cost_pct(hz: f64) -> f64 {
    hz * SAMPLE_NS / 1e9 * 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_faults_of_our_own_are_found_in_a_trial() {
        let roots = HostRoots::default();
        let options = Options { events: vec!["faults".into()], ..Options::default() };
        let chosen = choose(&roots, &options, false).unwrap();
        assert_eq!((chosen.kind, chosen.names().as_str()), (Kind::Faults, "faults"));
        assert_eq!(try_out(&roots, &chosen, false), Tried::Works);
        // We read nothing from a disk, though another thread may, as code of this program that left the page cache.
        let options = Options { events: vec!["major-faults".into()], ..Options::default() };
        let chosen = choose(&roots, &options, false).unwrap();
        assert_eq!(try_out(&roots, &chosen, false), Tried::Silent);
    }

    #[test]
    fn faults_of_other_threads_do_not_make_an_event_useless() {
        let of = |name: &str, counted, samples| {
            let options = Options { events: vec![name.into()], ..Options::default() };
            without_ours(&choose(&HostRoots::default(), &options, false).unwrap(), counted, samples)
        };
        assert_eq!(
            [(0, 0), (1, 0), (1, 1)].map(|(counted, samples)| of("major-faults", counted, samples)),
            [Tried::Silent, Tried::Silent, Tried::Silent]
        );
        assert_eq!(of("faults", 0, 0), Tried::Silent);
        for (counted, samples) in [(2, 0), (2, 2)] {
            assert!(matches!(of("faults", counted, samples), Tried::Useless(_)), "{counted} {samples}");
        }
    }

    #[test]
    fn page_faults_by_their_numbers_say_as_little_of_what_is_silent() {
        let (_dir, roots) = with_unit("4\n");
        let silence = |numbers: &str| {
            let raw = Some(numbers.parse().unwrap());
            choose(&roots, &Options { raw, ..Options::default() }, false).unwrap().silence
        };
        assert_eq!(silence("1000 0 1 5 0 0"), Silence::Unknown, "as of `faults`, without NUMA balancing");
        assert_eq!(silence("1000 0 4 0x1 0x3 0"), Silence::Cold);
    }

    #[test]
    fn a_period_that_the_user_gave_is_for_the_event_of_the_processor() {
        let (_dir, roots) = with_unit("no number\n");
        let rate = |rate| best(&roots, Some(rate), false).unwrap().rate;
        assert_eq!(rate(Rate::Period(1_000_003)), Rate::Period(1), "not of the page faults in its place");
        assert_eq!(rate(Rate::Frequency(50)), Rate::Frequency(50));
    }

    /// A machine with one unit, `cpu`, that says it has loads with addresses and is of this type.
    fn with_unit(kind: &str) -> (tempfile::TempDir, HostRoots) {
        let dir = tempfile::tempdir().unwrap();
        let (sys, proc) = (dir.path().join("sys"), dir.path().join("proc"));
        let unit = "sys/bus/event_source/devices/cpu";
        for (file, text) in [
            ("sys/devices/system/cpu/online", "0\n"),
            ("proc/cpuinfo", "vendor_id\t: GenuineIntel\nmodel\t\t: 85\n"),
            (&*format!("{unit}/type"), kind),
            (&*format!("{unit}/format/event"), "config:0-7\n"),
            (&*format!("{unit}/format/umask"), "config:8-15\n"),
            (&*format!("{unit}/format/ldlat"), "config1:0-15\n"),
            (&*format!("{unit}/events/mem-loads"), "event=0x1,umask=0x0,ldlat=3\n"),
        ] {
            let path = dir.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let roots = HostRoots { proc, sys, boot: dir.path().join("boot") };
        (dir, roots)
    }

    #[test]
    fn a_unit_that_the_kernel_refuses_is_told_and_page_faults_are_taken_instead() {
        let (_dir, roots) = with_unit("4095\n");
        events::find(&roots, "mem-loads").unwrap();
        let why = best_of_processor(&roots, None, false).unwrap_err();
        assert!(why.contains("mem-loads") && why.contains("event 4095:0x1"), "{why}");
        let chosen = choose(&roots, &Options::default(), false).unwrap();
        assert_eq!((chosen.names(), chosen.why), ("faults".to_owned(), why));
        let (_dir, roots) = with_unit("many\n");
        let why = best_of_processor(&roots, None, false).unwrap_err();
        assert!(why.contains("doctor --events"), "{why}");
    }

    #[test]
    fn an_event_without_addresses_is_found_out_in_a_trial() {
        // The clock of the task: happens everywhere, and is no access.
        let raw = "10000 0 1 1 0 0".parse().unwrap();
        let options = Options { raw: Some(raw), ..Options::default() };
        let chosen = choose(&HostRoots::default(), &options, false).unwrap();
        let tried = try_out(&HostRoots::default(), &chosen, false);
        let Tried::Useless(error) = tried else { panic!("{tried:?}") };
        assert!(error.contains("none with an address of ours") || error.contains("never sampled"), "{error}");
    }
}
