//! What ours is compared with, in the same run and on the same processes: DAMON's algorithm at its defaults and tuned, and
//! `clear_refs` with `smaps`.
//!
//! A peer begins anew in each case, after our monitor has ended. It has [`PEER_LONGEST`] for a good picture; if it has none by
//! then, that limit is its figure, and its CPU time is that of the whole time.

use super::damon::Damon;
use super::referenced::Referenced;
use super::{PEER_LONGEST, PEER_LONGEST_TURN, Picture, STABLE, Workload, seconds};
use crate::adaptive::Attrs;
use crate::regions::{pages_in, score_ranges};
use anyhow::Result;
use isotherm_heat::{Ns, Score};
use isotherm_sys::clock;
use isotherm_units::AddrRange;
use isotherm_workload::GoodSince;

/// A way to find hot memory.
pub trait Peer: std::fmt::Debug {
    /// Its next picture: the ranges that it reports hot, in address order. `None` if it has none by `until`. Its work is done in
    /// the calling thread, whose CPU time is counted.
    fn next_picture(&mut self, until: Ns) -> Result<Option<Vec<AddrRange>>>;

    /// For how long page faults of the target had to wait at most, if the peer makes them wait.
    fn longest_stall_ns(&self) -> Option<Ns> {
        None
    }
}

/// A kind of peer and its keys.
#[derive(Clone, Copy, Debug)]
pub struct PeerKeys {
    /// Its name in tables.
    pub name: &'static str,
    /// Keys of the RESULT line.
    pub good_one: &'static str,
    /// The same of the process with eight hot spans.
    pub good_eight: &'static str,
    /// Time until a span that turns hot is found.
    pub new_hot: &'static str,
    /// CPU time until its picture is good.
    pub cpu_ms: &'static str,
    /// The longest stall; `None` if it makes nobody wait.
    pub longest_stall_ms: Option<&'static str>,
    open: fn(&Workload) -> Result<Box<dyn Peer>>,
}

/// All of them.
pub const PEERS: [PeerKeys; 3] = [
    PeerKeys {
        name: "DAMON's algorithm, defaults",
        good_one: "adaptive_good_s_14g_one",
        good_eight: "adaptive_good_s_14g_eight",
        new_hot: "adaptive_new_hot_s_14g",
        cpu_ms: "adaptive_cpu_ms_until_good",
        longest_stall_ms: None,
        open: |workload| Ok(Box::new(Damon::open(workload, Attrs::default())?)),
    },
    PeerKeys {
        name: "DAMON's algorithm, tuned",
        good_one: "adaptive_tuned_good_s_14g_one",
        good_eight: "adaptive_tuned_good_s_14g_eight",
        new_hot: "adaptive_tuned_new_hot_s_14g",
        cpu_ms: "adaptive_tuned_cpu_ms_until_good",
        longest_stall_ms: None,
        open: |workload| Ok(Box::new(Damon::open(workload, Attrs::tuned())?)),
    },
    PeerKeys {
        name: "clear_refs and smaps",
        good_one: "clear_refs_good_s_14g_one",
        good_eight: "clear_refs_good_s_14g_eight",
        new_hot: "clear_refs_new_hot_s_14g",
        cpu_ms: "clear_refs_cpu_ms_until_good",
        longest_stall_ms: Some("clear_refs_longest_stall_ms"),
        open: |workload| Ok(Box::new(Referenced::new(workload.pid()))),
    },
];

/// One peer watching one process.
#[derive(Debug)]
pub struct PeerTrial {
    peer: Box<dyn Peer>,
    began: Ns,
    /// CPU time of the thread when the peer began, plus all that was spent on scoring.
    not_its_cpu_ns: Ns,
    last: Vec<AddrRange>,
}

impl PeerTrial {
    /// Begins. Opening is charged to the peer. It has to stay in the thread that calls this.
    pub fn begin(keys: &PeerKeys, workload: &Workload) -> Result<PeerTrial> {
        let not_its_cpu_ns = clock::thread_cpu_ns();
        let peer = (keys.open)(workload)?;
        Ok(PeerTrial { peer, began: clock::monotonic_ns(), not_its_cpu_ns, last: Vec::new() })
    }

    /// The longest stall of the target so far, in milliseconds.
    pub fn longest_stall_ms(&self) -> Option<f64> {
        self.peer.longest_stall_ns().map(|ns| ns as f64 / 1e6)
    }

    /// Scores its pictures until they have been good for [`STABLE`].
    pub fn picture(&mut self, workload: &Workload) -> Result<Picture> {
        let (mut since, mut good_cpu_ns, mut last) = (GoodSince::default(), 0, Score::default());
        let until = self.began + PEER_LONGEST;
        let is_final = |since: &GoodSince| {
            let now_s = seconds(clock::monotonic_ns() - self.began);
            since.good_s.is_some_and(|good_s| good_s + seconds(STABLE) <= now_s)
        };
        while !is_final(&since) {
            let Some(hot) = self.peer.next_picture(until)? else { break };
            let after_s = seconds(clock::monotonic_ns() - self.began);
            let cpu_ns = clock::thread_cpu_ns();
            last = score_ranges(workload.memory(), workload.hot(), hot.iter().copied());
            since.note(after_s, &last, true);
            if since.good_s == Some(after_s) {
                good_cpu_ns = cpu_ns - self.not_its_cpu_ns;
            }
            self.last = hot;
            self.not_its_cpu_ns += clock::thread_cpu_ns() - cpu_ns;
        }
        let all_cpu_ms = (clock::thread_cpu_ns() - self.not_its_cpu_ns) as f64 / 1e6;
        let cpu_ms = if since.good_s.is_some() { good_cpu_ns as f64 / 1e6 } else { all_cpu_ms };
        let cpu_ms_a_second = all_cpu_ms / seconds(clock::monotonic_ns() - self.began);
        Ok(Picture { good_s: since.good_s, limit_s: seconds(PEER_LONGEST), cpu_ms, cpu_ms_a_second, last })
    }

    /// Seconds until 99% of a span that turns hot, and was not reported hot before, are reported; [`PEER_LONGEST_TURN`] if they
    /// are not by then. The span is cold again afterwards.
    pub fn new_hot_s(&mut self, workload: &mut Workload) -> Result<f64> {
        let span = workload.take_span(false, |span| pages_in(span.range, &self.last) < span.enough_pages() / 10)?;
        workload.heat(span)?;
        let began = clock::monotonic_ns();
        let until = began + PEER_LONGEST_TURN;
        let found_s = loop {
            match self.peer.next_picture(until)? {
                Some(hot) if pages_in(span.range, &hot) >= span.enough_pages() => {
                    break seconds(clock::monotonic_ns() - began);
                }
                Some(_) => {}
                None => break seconds(PEER_LONGEST_TURN),
            }
        };
        workload.cool(span)?;
        Ok(found_s)
    }
}
