//! One host of the fleet: its services, its flaws, and its days as snapshots for a [`Rollup`].
//!
//! Two snapshots make up an interval, so that means and maxima differ. Some hosts have what real ones have: they are watched for a part of
//! the time only, boot anew, share a machine id, have a clock that runs too fast and is set back, or a monitor that is started again.

use crate::catalog::SERVICES;
use crate::service::{Moment, Running};
use crate::spread::whole;
use crate::truth::Truth;
use anyhow::Result;
use isotherm_rng::Rng;
use isotherm_rollup::{Host, Object, Options, Rollup, RuleSettings, Rules};
use isotherm_stream::{ActionRow, HostRow, Snapshot};

const INTERVAL_S: u64 = 300;
/// Snapshots of an interval.
const SNAPSHOTS: u64 = 2;
const WINDOW_S: u64 = INTERVAL_S / SNAPSHOTS;
/// The clock of a host with a fast clock: so many seconds too many each second, until it is set right at noon.
const DRIFT: f64 = 200e-6;

/// What is unusual about a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// Nothing.
    None,
    /// It is watched in a fifth of the hours.
    Thin,
    /// It has the machine id of the host before it.
    Clone,
    /// Its clock is too fast.
    FastClock,
    /// It boots in the middle of the time.
    Boots,
    /// Its monitor is started again in the middle of the time.
    MonitorRestarts,
}

impl Flaw {
    /// Of a host of the fleet, by its number: the same for every seed.
    pub fn of(number: u64) -> Flaw {
        match number {
            5 => Flaw::Clone,
            7 => Flaw::FastClock,
            _ if number % 29 == 3 => Flaw::Thin,
            _ if number % 23 == 9 => Flaw::Boots,
            _ if number % 31 == 11 => Flaw::MonitorRestarts,
            _ => Flaw::None,
        }
    }
}

/// Seconds since the epoch.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// The first second.
    pub start_s: u64,
    /// The end.
    pub end_s: u64,
}

/// A host.
#[derive(Debug)]
pub struct Modelled {
    seed: u64,
    number: u64,
    flaw: Flaw,
    services: Vec<Running>,
    memory_bytes: u64,
    cpus: u32,
}

impl Modelled {
    /// The host of this number.
    pub fn new(fleet_seed: u64, number: u64, span: Span) -> Modelled {
        let seed = Rng::new(fleet_seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).next_u64();
        let mut rng = Rng::new(seed);
        let mut services = Vec::new();
        for (place, template) in (1_u32..).zip(SERVICES) {
            if rng.unit() < template.on_hosts {
                let pid = 1000 + place * 7;
                services.push(Running::new(template, seed ^ u64::from(place) << 32, pid, seconds(span.start_s)));
            }
        }
        let memory_gib = [64, 128, 256][usize::try_from(rng.below(3)).unwrap_or_default()];
        let cpus = [16, 32, 64][usize::try_from(rng.below(3)).unwrap_or_default()];
        Modelled { seed, number, flaw: Flaw::of(number), services, memory_bytes: memory_gib << 30, cpus }
    }

    /// Its name.
    pub fn hostname(&self) -> String {
        format!("node-{:04}", self.number)
    }

    /// As its rows name it, in one of its boots.
    pub fn host(&self, fleet_seed: u64, boot: u64) -> Host {
        let of = if self.flaw == Flaw::Clone { self.number - 1 } else { self.number };
        let id = |salt: u64, of: u64| {
            let mut rng = Rng::new(fleet_seed ^ salt ^ of.wrapping_mul(0xd134_2543_de82_ef95));
            format!("{:016x}{:016x}", rng.next_u64(), rng.next_u64())
        };
        Host::new(&id(1, of), &self.hostname(), &id(2 + boot, self.number))
    }

    /// Runs it over the time, and gives its objects to `put`. Returns what is true of its services.
    pub fn run(mut self, fleet_seed: u64, span: Span, put: &mut impl FnMut(Object) -> Result<()>) -> Result<Truth> {
        let mut truth = Truth::default();
        for service in &self.services {
            truth.add_host(service.template, service.limit_bytes());
        }
        let middle_s = (span.start_s + (span.end_s - span.start_s) / 2) / INTERVAL_S * INTERVAL_S;
        let mut rollup = self.rollup(fleet_seed, 0)?;
        let mut monitor_start_s = span.start_s;
        let mut start_s = span.start_s;
        while start_s < span.end_s {
            if start_s == middle_s && matches!(self.flaw, Flaw::Boots | Flaw::MonitorRestarts) {
                monitor_start_s = start_s;
                self.services.iter_mut().for_each(Running::monitor_started);
                if self.flaw == Flaw::Boots {
                    rollup.finish()?.into_iter().try_for_each(&mut *put)?;
                    rollup = self.rollup(fleet_seed, 1)?;
                }
            }
            self.interval(&mut rollup, (start_s, monitor_start_s), &mut truth);
            start_s += INTERVAL_S;
            rollup.take_closed(start_s * 1_000_000_000)?.into_iter().try_for_each(&mut *put)?;
        }
        rollup.finish()?.into_iter().try_for_each(put)?;
        Ok(truth)
    }

    fn rollup(&self, fleet_seed: u64, boot: u64) -> Result<Rollup> {
        let options = Options { grace_ns: 0, ..Options::default() };
        Ok(Rollup::new(self.host(fleet_seed, boot), Rules::new(&rules())?, options))
    }

    /// Five minutes.
    fn interval(&mut self, rollup: &mut Rollup, (start_s, monitor_start_s): (u64, u64), truth: &mut Truth) {
        let mut moments: Vec<Vec<Moment>> = vec![Vec::new(); self.services.len()];
        let mut rng = Rng::new(self.seed ^ start_s);
        self.services.iter_mut().for_each(|service| service.advance(seconds(start_s)));
        for at in 1..=SNAPSHOTS {
            let end_s = start_s + at * WINDOW_S;
            let mut snapshot = self.snapshot(end_s, monitor_start_s);
            for (service, moments) in self.services.iter_mut().zip(&mut moments) {
                moments.push(service.add_to(&mut snapshot, seconds(end_s), seconds(WINDOW_S)));
            }
            snapshot.actions = actions(&snapshot);
            match () {
                () if self.flaw == Flaw::Thin && Rng::new(self.seed ^ ((end_s - 1) / 3600)).below(5) > 0 => {}
                () if rng.below(500) == 0 => rollup.lost(1),
                () => rollup.push(&snapshot),
            }
        }
        for (service, moments) in self.services.iter().zip(&moments) {
            if service.runs_since(seconds(start_s)) {
                truth.add_interval(service.template, moments);
            }
        }
    }

    fn snapshot(&self, end_s: u64, monitor_start_s: u64) -> Snapshot {
        let elapsed_ns = (end_s - monitor_start_s) * 1_000_000_000;
        let end_unix_ns = self.clock_ns(end_s);
        let host = HostRow {
            start_unix_ns: self.clock_ns(end_s - WINDOW_S),
            end_unix_ns,
            hostname: self.hostname(),
            version: env!("CARGO_PKG_VERSION").into(),
            source: "page-table".into(),
            kernel: if self.number.is_multiple_of(3) { "6.12.41" } else { "6.1.148" }.into(),
            cpu: "Modelled CPU".into(),
            cpus: self.cpus,
            memory_bytes: self.memory_bytes,
            elapsed_ns,
            monitor_cpu_ns: elapsed_ns / 140,
            slowdown_pct: 0.4,
            max_cpu_pct: 1.0,
            max_slowdown_pct: 1.0,
            ..HostRow::default()
        };
        Snapshot { host, ..Snapshot::default() }
    }

    /// What its wall clock shows.
    fn clock_ns(&self, true_s: u64) -> u64 {
        let since_noon = (true_s + 43_200) % 86_400;
        let ahead = if self.flaw == Flaw::FastClock { whole(seconds(since_noon) * DRIFT * 1e9) } else { 0 };
        true_s * 1_000_000_000 + ahead
    }
}

/// Labels by team, as an operator would set them.
fn rules() -> [RuleSettings; 1] {
    [RuleSettings {
        pattern: "^/system.slice/(mail)-[a-z]+\\.service$".into(),
        name: "mail-filter.service".into(),
        labels: [("team".to_owned(), "$1".to_owned())].into(),
        ..RuleSettings::default()
    }]
}

/// What was done so far, by the counters of processes.
fn actions(snapshot: &Snapshot) -> Vec<ActionRow> {
    let bytes: u64 = snapshot.processes.iter().map(|row| row.left_bytes).sum();
    if bytes == 0 {
        return Vec::new();
    }
    let elapsed_s = snapshot.host.elapsed_ns / 1_000_000_000;
    let row = |action: &str, result: &str, huge_ranges, bytes| ActionRow {
        action: action.into(),
        result: result.into(),
        huge_ranges,
        bytes,
    };
    vec![row("page-out", "done", bytes >> 21, bytes), row("any", "no-charge", elapsed_s / 900, 0)]
}

#[expect(clippy::cast_precision_loss, reason = "seconds since the epoch")]
fn seconds(number: u64) -> f64 {
    number as f64
}
