//! What is opened on each CPU: the parts, at the precision that the event sources accept, for the chosen target.
//!
//! Only a trial shows which precision that is. It is settled with the first event that opens, once for each part, so
//! that all CPUs use the same.

use crate::perf::attr::{self, Attr, Of};
use crate::perf::error::{self, RingError};
use crate::perf::event::Event;
use crate::perf::ring::asked;
use crate::perf::sample::Fields;
use crate::perf::sampling::{self, Part, Rate, Sampling, Whom};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// What an event source accepts, found by trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Settled {
    precise: u8,
    /// Threads inherit, processes do not.
    threads_only: bool,
}

/// An event that the kernel refused.
#[derive(Debug)]
pub(super) struct Refused {
    pub event: Event,
    pub source: io::Error,
}

impl Refused {
    pub(super) fn is(&self, errno: i32) -> bool {
        self.source.raw_os_error() == Some(errno)
    }
}

/// An event that is open.
#[derive(Debug)]
pub(super) struct Opened {
    pub event: File,
    /// In a group with it, and closed after it.
    pub leader: Option<OwnedFd>,
    /// The thread it belongs to, if it belongs to one.
    pub tid: Option<u32>,
}

/// Where one part is opened.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seat {
    /// The CPU.
    pub cpu: u32,
    /// The thread, if threads are sampled.
    pub tid: Option<u32>,
    /// Whether the ring also reports thread starts: one part per CPU does it for all.
    pub reports_starts: bool,
}

/// What is opened.
#[derive(Debug)]
pub(super) struct Plan {
    parts: Vec<Part>,
    settled: Vec<Option<Settled>>,
    pub whom: Whom,
    cgroup: Option<File>,
    /// The fields asked from the kernel: the same for all parts.
    pub fields: Fields,
    /// The period, if the kernel is not asked for it; see [`Sampling::period_is_known`].
    pub period: Option<u64>,
}

impl Plan {
    pub(super) fn new(parts: &[Part], whom: &Whom) -> Result<Plan, RingError> {
        let (fields, period) = together(parts)?;
        let cgroup = match whom {
            Whom::Cgroup(path) => {
                let opened = File::open(path);
                Some(opened.map_err(|source| RingError::Cgroup { path: path.clone(), source })?)
            }
            Whom::Host | Whom::Process(_) | Whom::Descendants => None,
        };
        let settled = vec![None; parts.len()];
        Ok(Plan { parts: parts.to_vec(), settled, whom: whom.clone(), cgroup, fields, period })
    }

    /// The event that messages name for all parts.
    pub(super) fn event(&self) -> Event {
        self.parts[0].sampling.event
    }

    pub(super) fn rate(&self) -> Rate {
        self.parts[0].sampling.rate
    }

    /// The parts that a CPU has.
    pub(super) fn parts_on(&self, cpu: u32) -> Vec<usize> {
        (0..self.parts.len()).filter(|part| self.parts[*part].is_on(cpu)).collect()
    }

    /// Descriptors needed on a CPU.
    pub(super) fn descriptors_on(&self, cpu: u32) -> usize {
        let one = |part: &usize| 1 + usize::from(self.parts[*part].sampling.leader.is_some());
        self.parts_on(cpu).iter().map(one).sum()
    }

    /// The lowest precision among the parts; the one asked for as long as none is open.
    pub(super) fn precise(&self) -> u8 {
        let parts = self.parts.iter().zip(&self.settled);
        parts.map(|(part, settled)| settled.map_or(part.sampling.most_precise, |s| s.precise)).min().unwrap_or(0)
    }

    /// Checks that all parts can have this rate. Returns the period to fill in if the kernel is not asked for it.
    pub(super) fn at_rate(&self, rate: Rate) -> Result<Option<u64>, RingError> {
        if let Some(part) = self.parts.iter().find(|part| !part.sampling.rate.same_kind(rate)) {
            let what =
                "a period cannot be changed to a frequency or back while it is sampled: close it and open it again";
            return Err(RingError::Unfit { event: part.sampling.event, what });
        }
        let changed: Vec<Part> = self.parts.iter().map(|part| with_rate(part, rate)).collect();
        Ok(together(&changed)?.1)
    }

    /// Sets the rate of everything opened from now on.
    pub(super) fn set_rate(&mut self, rate: Rate, period: Option<u64>) {
        self.parts.iter_mut().for_each(|part| *part = with_rate(part, rate));
        self.period = period;
    }

    /// Opens a part. It does not count yet.
    pub(super) fn open(&mut self, part: usize, seat: Seat) -> Result<Opened, Refused> {
        let mut refused = None;
        for settled in self.candidates(part) {
            match self.try_open(part, settled, seat) {
                Ok(opened) => {
                    self.settled[part] = Some(settled);
                    return Ok(opened);
                }
                // Event sources return these errors if they cannot be so precise.
                Err(e) if e.is(libc::EOPNOTSUPP) || e.is(libc::EINVAL) || e.is(libc::ENOENT) => refused = Some(e),
                Err(e) => return Err(e),
            }
        }
        Err(refused.expect("there is always a candidate"))
    }

    /// What to try, best first.
    fn candidates(&self, part: usize) -> Vec<Settled> {
        if let Some(settled) = self.settled[part] {
            return vec![settled];
        }
        let inheriting: &[bool] = if matches!(self.whom, Whom::Process(_)) { &[true, false] } else { &[false] };
        let most = self.parts[part].sampling.most_precise.min(3);
        let at = |threads_only: bool| (0..=most).rev().map(move |precise| Settled { precise, threads_only });
        inheriting.iter().flat_map(|threads_only| at(*threads_only)).collect()
    }

    fn try_open(&self, part: usize, settled: Settled, seat: Seat) -> Result<Opened, Refused> {
        let Seat { cpu, tid, reports_starts } = seat;
        let sampling = &self.parts[part].sampling;
        let sampling = Sampling { fields: self.fields, ..*sampling };
        let inherit = match self.whom {
            Whom::Process(_) if settled.threads_only => attr::INHERIT | attr::INHERIT_THREAD,
            Whom::Process(_) | Whom::Descendants => attr::INHERIT,
            Whom::Host | Whom::Cgroup(_) => 0,
        };
        let open = |attr: Attr, event: Event, flags: u64, leader: Option<&OwnedFd>| {
            let attr = Attr { flags: attr.flags | attr::DISABLED | inherit | flags, ..attr };
            let opened = error::with_room(|| attr::open(attr, self.of(tid), Some(cpu), leader.map(OwnedFd::as_fd)));
            opened.map_err(|source| Refused { event, source })
        };
        let leader = sampling.leader_attr().map(|attr| open(attr, sampling.leader.unwrap_or_default(), 0, None));
        let leader = leader.transpose()?;
        let starts = if reports_starts { attr::TASK } else { 0 };
        let event = open(sampling.attr(settled.precise), sampling.event, starts, leader.as_ref())?;
        Ok(Opened { event: File::from(event), leader, tid })
    }

    fn of(&self, tid: Option<u32>) -> Of<'_> {
        match (tid, &self.cgroup) {
            (Some(tid), _) => Of::Thread(tid),
            (None, Some(dir)) => Of::Cgroup(dir.as_fd()),
            (None, None) if self.whom == Whom::Descendants => Of::Own,
            (None, None) => Of::All,
        }
    }

    /// The error that explains a refusal.
    pub(super) fn error(&self, refused: Refused) -> RingError {
        let Refused { event, source } = refused;
        match &self.whom {
            Whom::Cgroup(path) if self.cgroup_is_refused(&source) => RingError::Cgroup { path: path.clone(), source },
            _ => RingError::from_io(event, self.rate(), source),
        }
    }

    /// Whether the cgroup is refused and not the event: then an event that exists everywhere is refused in the same
    /// way.
    fn cgroup_is_refused(&self, source: &io::Error) -> bool {
        let says_so = matches!(source.raw_os_error(), Some(libc::EBADF | libc::ENOENT | libc::EINVAL));
        let dummy = || attr::open(sampling::dummy(), self.of(None), Some(0), None);
        says_so && dummy().is_err_and(|e| e.raw_os_error() == source.raw_os_error())
    }
}

fn with_rate(part: &Part, rate: Rate) -> Part {
    Part { sampling: Sampling { rate, ..part.sampling }, cpus: part.cpus.clone() }
}

/// The fields that all parts ask the kernel for, and the period to fill in if the kernel is not asked for it.
fn together(parts: &[Part]) -> Result<(Fields, Option<u64>), RingError> {
    let unfit = |event, what| Err(RingError::Unfit { event, what });
    let Some(Part { sampling: first, .. }) = parts.first() else {
        return unfit(Event::default(), "no event was given");
    };
    let event = first.event;
    if parts.iter().any(|part| part.sampling.fields != first.fields) {
        return unfit(event, "events that share rings have to have the same fields");
    }
    let known = |part: &Part| asked(part.sampling).1;
    if parts.iter().all(|part| known(part).is_some() && known(part) == known(&parts[0])) {
        let (asked, period) = asked(*first);
        return Ok((asked.fields, period));
    }
    // The kernel reports the right period for these if every event is a sample.
    if parts.iter().any(|part| known(part).is_some_and(|period| period > 1)) {
        return unfit(
            event,
            "events counted by the kernel report their period only if all events that share rings have the same one",
        );
    }
    Ok((first.fields, None))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(event: Event, rate: Rate, fields: Fields) -> Part {
        Part::everywhere(Sampling::new(event, rate, fields))
    }

    #[test]
    fn parts_have_to_go_together() {
        let (minor, loads) = (Event::MINOR_FAULTS, Event::new(4, 0x1cd));
        let fields = Fields::ADDR | Fields::PERIOD;
        let two = |a: Rate, b: Event, rate: Rate| together(&[part(minor, a, fields), part(b, rate, fields)]);
        // The period of software events is put in by us: the kernel would make each event a sample.
        assert_eq!(two(Rate::Period(7), Event::MAJOR_FAULTS, Rate::Period(7)).unwrap(), (Fields::ADDR, Some(7)));
        assert_eq!(two(Rate::Period(1), loads, Rate::Period(7)).unwrap(), (fields, None));
        assert_eq!(two(Rate::Frequency(9), loads, Rate::Period(7)).unwrap(), (fields, None));
        assert!(two(Rate::Period(2), loads, Rate::Period(2)).is_err());
        assert!(two(Rate::Period(2), Event::MAJOR_FAULTS, Rate::Period(3)).is_err());
        let other = part(minor, Rate::Period(1), Fields::ADDR);
        assert!(together(&[part(minor, Rate::Period(1), fields), other]).unwrap_err().to_string().contains("fields"));
        assert!(together(&[]).is_err());
        let plain = part(minor, Rate::Period(9), Fields::ADDR);
        assert_eq!(together(&[plain]).unwrap(), (Fields::ADDR, None), "nobody asked for it");
    }

    #[test]
    fn precision_is_tried_from_the_top_and_settled_once() {
        let sampling = Sampling { most_precise: 9, ..Sampling::new(Event::CPU_CLOCK, Rate::Period(1), Fields::IP) };
        let parts = [Part::everywhere(sampling)];
        let mut plan = Plan::new(&parts, &Whom::Host).unwrap();
        let tried = |plan: &Plan| plan.candidates(0).iter().map(|s| (s.precise, s.threads_only)).collect::<Vec<_>>();
        assert_eq!(tried(&plan), [(3, false), (2, false), (1, false), (0, false)]);
        plan.settled[0] = Some(Settled { precise: 1, threads_only: false });
        assert_eq!((tried(&plan), plan.precise()), (vec![(1, false)], 1));
        let plan = Plan::new(&parts, &Whom::Process(1)).unwrap();
        assert_eq!(tried(&plan)[3..5], [(0, true), (3, false)]);
    }

    #[test]
    fn a_part_takes_descriptors_where_it_is_and_two_with_a_leader() {
        let big = part(Event::new(4, 1), Rate::Period(1), Fields::ADDR);
        let led = Sampling { leader: Some(Event::new(4, 0x8203)), ..big.sampling };
        let parts = [Part { sampling: led, cpus: Some(vec![0, 1]) }, Part { cpus: Some(vec![1, 2]), ..big }];
        let plan = Plan::new(&parts, &Whom::Host).unwrap();
        assert_eq!([0, 1, 2, 3].map(|cpu| plan.descriptors_on(cpu)), [2, 3, 1, 0]);
    }
}
