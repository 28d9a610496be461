//! Whoever is listened to, each with rings of its own: opened, drained into the inbox, kept in line with processors, counted.
//!
//! What goes wrong with one of them is told and is no business of the others. What a closed one has counted is kept.

use super::events::Chosen;
use super::inbox::{Inbox, ListenerId};
use crate::Error;
use isotherm_host::HostRoots;
use isotherm_host::events::Kind;
use isotherm_sys::cpus::cpus_online;
use isotherm_sys::perf::{Rate, Record, RingError, Rings, Totals, Whom};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Memory for rings of all listeners and processors together, as far as each has its least.
const RINGS_BYTES: usize = 16 << 20;
const LEAST_RING: usize = 64 << 10;
const MOST_RING: usize = 4 << 20;
/// Processes that are listened to one by one, on a machine of few processors.
const MOST: usize = 16;

#[derive(Debug)]
struct Listener {
    id: ListenerId,
    whom: Whom,
    /// Of a cgroup, which directory it was: one that is made anew has the same path.
    inode: Option<u64>,
    rings: Rings,
    /// For which share of the time of late the event was on: processors that have too few counters take turns.
    share: f64,
    /// `enabled_ns` and `running_ns` as of the last look.
    before: (u64, u64),
}

/// All of them.
#[derive(Debug)]
pub(super) struct Listeners {
    roots: HostRoots,
    list: Vec<Listener>,
    next: ListenerId,
    /// What closed ones have counted.
    past: Totals,
}

impl Listeners {
    pub fn new(roots: &HostRoots) -> Listeners {
        Listeners { roots: roots.clone(), list: Vec::new(), next: 0, past: Totals::default() }
    }

    /// Begins to listen. `chosen` learns what was granted.
    pub fn open(&mut self, chosen: &mut Chosen, physical: bool, rate: Rate, whom: Whom) -> Result<ListenerId, Error> {
        // The host is listened to instead of all others, which are closed next.
        let others = if whom == Whom::Host { 0 } else { self.list.len() };
        let request = Request { whom: &whom, physical, rate, ring_bytes: ring_bytes(&self.roots, others) };
        let rings = open(&self.roots, chosen, &request)?;
        let inode = inode(&whom);
        self.list.push(Listener { id: self.next, whom, inode, rings, share: 1.0, before: (0, 0) });
        self.next += 1;
        Ok(self.next - 1)
    }

    /// Whether another process should not be listened to by itself any more.
    pub fn are_many(&self) -> bool {
        let cpus = cpus_online(&self.roots.sys).unwrap_or(1).max(1) as usize;
        self.list.len() >= (RINGS_BYTES / LEAST_RING / cpus).clamp(1, MOST)
    }

    /// Takes in what is left, and ends it.
    pub fn close(&mut self, id: ListenerId, inbox: &mut Inbox) {
        let Some(at) = self.list.iter().position(|l| l.id == id) else { return };
        drain(&mut self.list[at], inbox);
        let ended = self.list.remove(at);
        self.past = self.past + ended.rings.totals();
    }

    pub fn ids(&self) -> Vec<ListenerId> {
        self.list.iter().map(|l| l.id).collect()
    }

    /// The one that was opened last.
    pub fn newest(&self) -> Option<ListenerId> {
        self.list.last().map(|l| l.id)
    }

    pub fn drain(&mut self, inbox: &mut Inbox) {
        self.list.iter_mut().for_each(|listener| drain(listener, inbox));
    }

    /// Changes how often all are sampled. Those of processes that have ended are left as they are; the first other failure is
    /// returned, after all had their turn.
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

    /// Follows processors and threads, and works out shares. Returns what people should know, and the listeners whose cgroup is not
    /// the one that it was.
    pub fn look(&mut self) -> (Vec<String>, Vec<ListenerId>) {
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
            listener.look_at_share();
            if inode(&listener.whom).is_some_and(|now| Some(now) != listener.inode) {
                stale.push(listener.id);
            }
        }
        (news, stale)
    }

    /// For which share of the time of late it was on.
    pub fn share_of(&self, id: ListenerId) -> f64 {
        self.list.iter().find(|l| l.id == id).map_or(1.0, |l| l.share)
    }

    /// Whom it hears.
    pub fn whom(&self, id: ListenerId) -> Option<&Whom> {
        self.list.iter().find(|l| l.id == id).map(|l| &l.whom)
    }

    /// What has come out of all rings, closed ones included. Costs next to nothing.
    pub fn drained(&self) -> Totals {
        self.list.iter().fold(self.past, |sum, listener| sum + listener.rings.drained())
    }

    /// The same with the events' own counts. Reads every descriptor.
    pub fn totals(&self) -> Totals {
        self.list.iter().fold(self.past, |sum, listener| sum + listener.rings.totals())
    }
}

impl Listener {
    fn look_at_share(&mut self) {
        let Totals { enabled_ns, running_ns, .. } = self.rings.totals();
        let enabled = enabled_ns.saturating_sub(self.before.0);
        let running = running_ns.saturating_sub(self.before.1);
        // A process that has not run in the meantime was listened to all the same.
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
    /// Of each ring, rounded up to what the kernel takes.
    pub ring_bytes: usize,
}

/// Opens rings for what was `chosen`, which learns what was granted, without listening to them any further.
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

fn drain(listener: &mut Listener, inbox: &mut Inbox) {
    let id = listener.id;
    listener.rings.drain(|record| {
        if let Record::Sample(sample) = record {
            inbox.take(id, &sample);
        }
    });
}

/// Of each ring, when so many listeners have theirs already: each has half of what is left, so that few have much and all together no
/// more than there is, but for the least that each has.
fn ring_bytes(roots: &HostRoots, listeners: usize) -> usize {
    let cpus = cpus_online(&roots.sys).unwrap_or(1).max(1) as usize;
    let fair = RINGS_BYTES >> (listeners + 1).min(40);
    let pages = (fair / cpus / LEAST_RING).max(1);
    // Rings are rounded up to a power of two.
    (LEAST_RING << pages.ilog2()).min(MOST_RING)
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
            let many = (RINGS_BYTES / LEAST_RING / cpus as usize).clamp(1, MOST);
            let all: usize = (0..many).map(|n| ring_bytes(&roots, n) * cpus as usize).sum();
            assert!(all <= 2 * RINGS_BYTES, "{cpus} processors: {all} bytes");
            assert!(ring_bytes(&roots, 0).is_power_of_two() && ring_bytes(&roots, 99) == LEAST_RING);
        }
        assert_eq!(ring_bytes(&of(2).1, 0), MOST_RING);
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
