//! Listeners: perf sessions, each with its own rings. They are opened, drained into the inbox, adapted to CPUs that
//! come and go, and counted.
//!
//! A failure in one of them is reported and does not affect the others. The counts of closed ones are kept.

use super::demux::{ListenerId, SampleDemux};
use super::events::Chosen;
use crate::Error;
use isotherm_host::HostRoots;
use isotherm_host::events::Kind;
use isotherm_sys::cpus::cpus_online;
use isotherm_sys::perf::{Rate, Record, RingError, Rings, Totals, Whom};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Memory for the rings of all listeners and CPUs together, as long as each can have the minimum.
const RINGS_BYTES: usize = 16 << 20;
const MIN_RING: usize = 64 << 10;
const MAX_RING: usize = 4 << 20;
/// Processes that are sampled one by one, on a machine with few CPUs.
const MAX_LISTENERS: usize = 16;

#[derive(Debug)]
struct Listener {
    id: ListenerId,
    whom: Whom,
    /// Of a cgroup, the inode of its directory: a cgroup that is created again has the same path.
    inode: Option<u64>,
    rings: Rings,
    /// The share of recent time in which the event was on: CPUs with too few counters multiplex.
    share: f64,
    /// `enabled_ns` and `running_ns` as of the last check.
    before: (u64, u64),
}

/// All listeners.
#[derive(Debug)]
pub(super) struct Listeners {
    roots: HostRoots,
    list: Vec<Listener>,
    next: ListenerId,
    /// The counts of closed ones.
    past: Totals,
}

impl Listeners {
    pub fn new(roots: &HostRoots) -> Listeners {
        Listeners { roots: roots.clone(), list: Vec::new(), next: 0, past: Totals::default() }
    }

    /// Starts to sample. `chosen` receives what was granted.
    pub fn open(&mut self, chosen: &mut Chosen, physical: bool, rate: Rate, whom: Whom) -> Result<ListenerId, Error> {
        // A listener for the host replaces all others, which are closed next.
        let others = if whom == Whom::Host { 0 } else { self.list.len() };
        let request = Request { whom: &whom, physical, rate, ring_bytes: ring_bytes(&self.roots, others) };
        let rings = open(&self.roots, chosen, &request)?;
        let inode = inode(&whom);
        self.list.push(Listener { id: self.next, whom, inode, rings, share: 1.0, before: (0, 0) });
        self.next += 1;
        Ok(self.next - 1)
    }

    /// Whether there are too many listeners for another process to get its own.
    pub fn are_many(&self) -> bool {
        let cpus = cpus_online(&self.roots.sys).unwrap_or(1).max(1) as usize;
        self.list.len() >= (RINGS_BYTES / MIN_RING / cpus).clamp(1, MAX_LISTENERS)
    }

    /// Drains what is left, and closes it.
    pub fn close(&mut self, id: ListenerId, demux: &mut SampleDemux) {
        let Some(at) = self.list.iter().position(|l| l.id == id) else { return };
        drain(&mut self.list[at], demux);
        let ended = self.list.remove(at);
        self.past = self.past + ended.rings.totals();
    }

    pub fn ids(&self) -> Vec<ListenerId> {
        self.list.iter().map(|l| l.id).collect()
    }

    /// The newest listener.
    pub fn newest(&self) -> Option<ListenerId> {
        self.list.last().map(|l| l.id)
    }

    pub fn drain(&mut self, demux: &mut SampleDemux) {
        self.list.iter_mut().for_each(|listener| drain(listener, demux));
    }

    /// Changes the rate of all. Listeners of processes that have ended are left as they are. Returns the first other
    /// failure, after all were tried.
    pub fn set_rate(&mut self, rate: Rate) -> Result<(), Error> {
        let mut failed = None;
        for listener in &mut self.list {
            match listener.rings.set_rate(rate).map_err(Error::from) {
                Err(error) if !error.is_gone() => failed = failed.or(Some(error)),
                _ => {}
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Follows CPUs and threads, and updates shares. Returns messages for users, and the listeners whose cgroup was
    /// replaced.
    pub fn update(&mut self) -> (Vec<String>, Vec<ListenerId>) {
        let (mut news, mut stale) = (Vec::new(), Vec::new());
        for listener in &mut self.list {
            match listener.rings.refit() {
                Ok(refit) => {
                    for (cpus, what) in [(&refit.cpus_went, "went offline"), (&refit.cpus_came, "came online")] {
                        news.extend(cpus.iter().map(|cpu| format!("processor {cpu} {what}")));
                    }
                }
                Err(error) => news.push(format!("some of what happens is not sampled: {error}")),
            }
            listener.update_share();
            if inode(&listener.whom).is_some_and(|now| Some(now) != listener.inode) {
                stale.push(listener.id);
            }
        }
        (news, stale)
    }

    /// The share of recent time in which it was on.
    pub fn share_of(&self, id: ListenerId) -> f64 {
        self.list.iter().find(|l| l.id == id).map_or(1.0, |l| l.share)
    }

    /// What it samples.
    pub fn whom(&self, id: ListenerId) -> Option<&Whom> {
        self.list.iter().find(|l| l.id == id).map(|l| &l.whom)
    }

    /// What came out of all rings, closed ones included. Costs next to nothing.
    pub fn drained(&self) -> Totals {
        self.list.iter().fold(self.past, |sum, listener| sum + listener.rings.drained())
    }

    /// The same with the events' own counts. Reads every descriptor.
    pub fn totals(&self) -> Totals {
        self.list.iter().fold(self.past, |sum, listener| sum + listener.rings.totals())
    }
}

impl Listener {
    fn update_share(&mut self) {
        let Totals { enabled_ns, running_ns, .. } = self.rings.totals();
        let enabled = enabled_ns.saturating_sub(self.before.0);
        let running = running_ns.saturating_sub(self.before.1);
        // A process that has not run in the meantime keeps its share.
        if enabled > 0 {
            self.share = (running as f64 / enabled as f64).min(1.0);
        }
        self.before = (enabled_ns, running_ns);
    }
}

/// What rings are opened for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request<'a> {
    pub whom: &'a Whom,
    /// Samples by physical address.
    pub physical: bool,
    pub rate: Rate,
    /// Size of each ring, rounded up as the kernel requires.
    pub ring_bytes: usize,
}

/// Opens rings for `chosen`, which receives what was granted. Adds no listener.
pub(super) fn open(roots: &HostRoots, chosen: &mut Chosen, request: &Request) -> Result<Rings, Error> {
    let Request { whom, physical, rate, ring_bytes } = *request;
    let open = |chosen: &Chosen| Rings::open(&roots.sys, &chosen.parts(physical, rate), whom, ring_bytes);
    let rings = match open(chosen) {
        Err(RingError::Denied { .. }) if chosen.kind == Kind::Faults && !chosen.user_faults_only => {
            let less = Chosen { user_faults_only: true, ..chosen.clone() };
            let rings = open(&less)?;
            *chosen = less;
            rings
        }
        other => other?,
    };
    if chosen.kind == Kind::Memory && rings.precise() == 0 {
        let source =
            std::io::Error::other("the processor refuses to be precise (precise_ip), so its samples carry no address");
        return Err(Error::Io { attempted: format!("sample {}", chosen.names()), source });
    }
    chosen.precise = Some(rings.precise());
    Ok(rings)
}

fn drain(listener: &mut Listener, demux: &mut SampleDemux) {
    let id = listener.id;
    listener.rings.drain(|record| {
        if let Record::Sample(sample) = record {
            demux.take(id, &sample);
        }
    });
}

/// Size of each ring, if `listeners` others have theirs already. Each gets half of what is left, so that few get much,
/// and all together stay within the limit except for their minimum sizes.
fn ring_bytes(roots: &HostRoots, listeners: usize) -> usize {
    let cpus = cpus_online(&roots.sys).unwrap_or(1).max(1) as usize;
    let fair = RINGS_BYTES >> (listeners + 1).min(40);
    let pages = (fair / cpus / MIN_RING).max(1);
    // Rings are rounded up to a power of two.
    (MIN_RING << pages.ilog2()).min(MAX_RING)
}

fn inode(whom: &Whom) -> Option<u64> {
    let of = |dir: &Path| fs::metadata(dir).ok().map(|meta| meta.ino());
    if let Whom::Cgroup(dir) = whom { of(dir) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine of so many processors.
    fn of(cpus: u32) -> (tempfile::TempDir, HostRoots) {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("devices/system/cpu");
        fs::create_dir_all(&place).unwrap();
        fs::write(place.join("online"), format!("0-{}\n", cpus - 1)).unwrap();
        let roots = HostRoots { sys: dir.path().to_owned(), ..HostRoots::default() };
        (dir, roots)
    }

    #[test]
    fn rings_of_all_listeners_together_are_bounded() {
        for cpus in [1, 2, 8, 64, 192] {
            let (_dir, roots) = of(cpus);
            let many = (RINGS_BYTES / MIN_RING / cpus as usize).clamp(1, MAX_LISTENERS);
            let all: usize = (0..many).map(|n| ring_bytes(&roots, n) * cpus as usize).sum();
            assert!(all <= 2 * RINGS_BYTES, "{cpus} processors: {all} bytes");
            assert!(ring_bytes(&roots, 0).is_power_of_two() && ring_bytes(&roots, 99) == MIN_RING);
        }
        assert_eq!(ring_bytes(&of(2).1, 0), MAX_RING);
    }

    #[test]
    fn a_cgroup_is_known_by_its_directory() {
        let dir = tempfile::tempdir().unwrap();
        let group = dir.path().join("group");
        let whom = Whom::Cgroup(group.clone());
        assert_eq!(inode(&whom), None);
        fs::create_dir(&group).unwrap();
        let first = inode(&whom);
        // Another one of that name; the first still exists, so that its number is not given away again.
        fs::rename(&group, dir.path().join("old")).unwrap();
        fs::create_dir(&group).unwrap();
        assert!(first.is_some() && inode(&whom) != first);
        assert_eq!(inode(&Whom::Host), None);
    }
}
