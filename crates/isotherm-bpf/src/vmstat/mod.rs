//! Observes vmstat_update, the kernel's periodic drain of pcp lists, and the waits for zone locks, through BPF.
//!
//! [`Observer`] owns the loaded programs (`vmstat.bpf.c`): three tracepoints of workqueues, which show when
//! `vmstat_update` is queued, begins and ends on each CPU, and two tracepoints of locks. No tracefs, no sysctl, nothing
//! is changed. The caller interprets the figures.
//!
//! The choices made: the work is identified by the address of its function, which is static, so `/proc/kallsyms` has to
//! be read for it. Its records go through a ring, one per CPU and interval. Waits are counted in the kernel, by caller,
//! because there may be a million a second. Zones are found through the kswapd of each node; the symbol of the nodes'
//! table is in kallsyms only with CONFIG_KALLSYMS_ALL. The locks of the pcp lists themselves are not observed: the
//! kernel uses trylock on them and hardly ever waits.

mod machine;
mod spinlocks;
mod symbols;
#[cfg(test)]
mod tests;

use crate::skeletons::vmstat::{OpenVmstatSkel, VmstatSkel, VmstatSkelBuilder, types};
use isotherm_vmstat::{Cause, Run, Runs, SeenWaiters, Wait, Waits};
use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::Typedef;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Iter, Link, MapCore, MapFlags, OpenObject, RingBufferBuilder};
pub use machine::Machine;
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::path::Path;
pub use symbols::Symbols;

/// Why vmstat_update cannot be observed here.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// `/proc/kallsyms` cannot be read.
    #[error(
        "read {path} for the address of vmstat_update: {source}; the kernel needs CONFIG_KALLSYMS=y, and /proc mounted"
    )]
    Symbols {
        /// Which file.
        path: String,
        /// The system's error.
        source: io::Error,
    },
    /// All addresses are zero.
    #[error(
        "/proc/kallsyms shows no addresses, so vmstat_update cannot be distinguished from other works; run as root or give \
         CAP_SYSLOG (while the sysctl kernel.kptr_restrict is 2 no process sees them)"
    )]
    HiddenSymbols,
    /// There is no such function.
    #[error(
        "/proc/kallsyms has no function vmstat_update: a kernel for one CPU (CONFIG_SMP off) has none, and no contention; \
         otherwise this kernel's vmstat_update differs from what this program supports"
    )]
    NoFunction,
    /// The programs did not load.
    #[error("load the vmstat_update observer into the kernel: {reason}; {advice}")]
    Load {
        /// The error of libbpf or the kernel.
        reason: String,
        /// What to do next.
        advice: &'static str,
    },
    /// An operation on the loaded programs failed.
    #[error("{attempted}: {reason}")]
    Run {
        /// What was attempted, on what.
        attempted: &'static str,
        /// The system's error.
        reason: String,
    },
}

/// Whether we lack a privilege (EPERM). libbpf reports a program that the verifier refuses as the same kind of error.
fn is_privilege(error: &libbpf_rs::Error) -> bool {
    error.kind() == libbpf_rs::ErrorKind::PermissionDenied && !is_refused(error)
}

/// Whether the verifier refused a program (EACCES).
fn is_refused(error: &libbpf_rs::Error) -> bool {
    format!("{error:#}").contains(&format!("(os error {})", libc::EACCES))
}

fn load_error(error: &libbpf_rs::Error) -> Error {
    let advice = match error.kind() {
        _ if is_refused(error) => {
            "the kernel's verifier refuses it: this kernel's vmstat_update differs from what this program supports"
        }
        libbpf_rs::ErrorKind::PermissionDenied => {
            "run as root or give CAP_BPF and CAP_PERFMON; kernel lockdown 'confidentiality' forbids it altogether"
        }
        libbpf_rs::ErrorKind::NotFound => {
            "the kernel needs CONFIG_DEBUG_INFO_BTF=y (/sys/kernel/btf/vmlinux) and tracepoints (CONFIG_BPF_EVENTS=y)"
        }
        _ => "it takes Linux 5.8 or later with CONFIG_BPF_SYSCALL, CONFIG_BPF_EVENTS and CONFIG_DEBUG_INFO_BTF",
    };
    Error::Load { reason: format!("{error:#}"), advice }
}

/// The loaded programs, which count from [`Observer::open`] until they are dropped.
pub struct Observer {
    // Drop order: links before the programs that they belong to.
    links: Vec<Link>,
    skel: VmstatSkel<'static>,
    unseen: Option<String>,
}

impl std::fmt::Debug for Observer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Observer")
            .field("links", &self.links.len())
            .field("unseen", &self.unseen)
            .finish_non_exhaustive()
    }
}

impl Observer {
    /// Loads the programs and starts to observe. About 100 ms.
    ///
    /// If the kernel has no tracepoint for waits, they are not counted, and [`Observer::unseen`] gives the reason.
    pub fn open(symbols: &Symbols) -> Result<Observer, Error> {
        if symbols.are_hidden() {
            return Err(Error::HiddenSymbols);
        }
        let update = symbols.address("vmstat_update").ok_or(Error::NoFunction)?;
        let shepherd = symbols.address("vmstat_shepherd").unwrap_or(0);
        libbpf_rs::set_print(None);
        let mut unseen = no_tracepoint().or_else(|| sleeping_locks(Path::new("/sys/kernel/realtime")));
        let mut loaded = load(update, shepherd, unseen.is_none());
        if let Err(error) = &loaded
            && unseen.is_none()
            && !is_privilege(error)
        {
            // The program that finds zones depends on more kernel types than those that observe works.
            unseen = Some(format!("what watches zone locks does not load here: {error:#}"));
            loaded = load(update, shepherd, false);
        }
        let skel = loaded.map_err(|e| load_error(&e))?;
        let mut observer = Observer { links: Vec::new(), skel, unseen };
        if observer.unseen.is_none()
            && let Err(reason) = observer.watch_waits()
        {
            observer.unseen = Some(reason);
        }
        let programs = &observer.skel.progs;
        // The end before the beginning: a run whose end is not seen would last for ever.
        for program in [&programs.on_queue, &programs.on_end, &programs.on_start] {
            observer.links.push(program.attach().map_err(|e| load_error(&e))?);
        }
        Ok(observer)
    }

    /// Why waits are not counted; `None` if they are.
    pub fn unseen(&self) -> Option<&str> {
        self.unseen.as_deref()
    }

    /// Finds the zones, and starts to count waits for their locks.
    fn watch_waits(&mut self) -> Result<(), String> {
        let programs = &self.skel.progs;
        let walk = || -> Result<(), libbpf_rs::Error> {
            let link = programs.find_zones.attach()?;
            let mut nothing = Vec::new();
            Iter::new(&link)?.read_to_end(&mut nothing)?;
            Ok(())
        };
        walk().map_err(|e| format!("step through the threads of the kernel to find its zones: {e:#}"))?;
        if self.outcome().nodes == 0 {
            return Err(
                "no zone was found: no thread kswapd is as this program knows it, or none can be seen from here, as \
                        in a PID namespace of its own: run it in the host's"
                    .to_owned(),
            );
        }
        let attach = |program: &libbpf_rs::ProgramMut<'_>, name: &str| {
            program.attach().map_err(|e| format!("attach to the tracepoint {name}: {e:#}"))
        };
        // Ends before beginnings: an end without a beginning is ignored, a beginning without an end would never end.
        let ends = attach(&programs.on_waited, "contention_end")?;
        let begins = attach(&programs.on_wait, "contention_begin")?;
        self.links.extend([begins, ends]);
        Ok(())
    }

    /// The runs that ended since the last call. There is room for about 9,000. Call it more often than once per
    /// interval, in which there is about one per CPU. The ring is mapped again each time: that costs a few system calls
    /// and avoids a self-reference.
    pub fn drain(&mut self) -> Result<Runs, Error> {
        let mut runs = Runs::default();
        let failed = |e: libbpf_rs::Error| Error::Run { attempted: "read the ring of runs", reason: format!("{e:#}") };
        let mut builder = RingBufferBuilder::new();
        let take = |bytes: &[u8]| {
            if let Some((kind, run)) = decode(bytes) {
                let list = if kind == 0 { &mut runs.updates } else { &mut runs.shepherds };
                list.push(run);
            }
            0
        };
        builder.add(&self.skel.maps.records, take).map_err(failed)?;
        let ring = builder.build().map_err(failed)?;
        ring.consume().map_err(failed)?;
        drop(ring);
        Ok(runs)
    }

    /// Runs that found the ring full. They are in no figure.
    pub fn lost_runs(&self) -> u64 {
        self.outcome().lost_records
    }

    /// All waits since [`Observer::open`], with the names that `symbols` has for the functions on their stacks. Takes
    /// one or two system calls per call site. `seen` is what [`Machine`] reports about this kernel's locks; the tables
    /// do not show it.
    pub fn waits(&self, symbols: &Symbols, seen: SeenWaiters) -> Result<Waits, Error> {
        let failed =
            |e: libbpf_rs::Error| Error::Run { attempted: "read the table of waits", reason: format!("{e:#}") };
        let maps = &self.skel.maps;
        let mut waits = Waits { by_place: Vec::new(), spins: 0, lost: self.outcome().lost_waits, seen };
        let name = |address: &u64| symbols.function(*address).map_or_else(|| format!("{address:#x}"), str::to_owned);
        for key in maps.callers.keys() {
            let Some(value) = maps.callers.lookup(&key, MapFlags::ANY).map_err(failed)? else { continue };
            let Some(caller) = CallerKey::decode(&key) else { continue };
            let zone = maps.zones.lookup(&caller.lock.to_ne_bytes(), MapFlags::ANY).map_err(failed)?;
            let (node, zone) = zone.as_deref().and_then(decode_zone).unwrap_or_default();
            waits.by_place.push(Wait {
                node,
                zone,
                functions: self.stack(caller.stack).map_err(failed)?.iter().map(name).collect(),
                updating: caller.updating,
                beside: caller.beside,
                count: word(&value, 0).unwrap_or(0),
                total_ns: word(&value, 1).unwrap_or(0),
                max_ns: word(&value, 2).unwrap_or(0),
            });
        }
        let here = maps.here.lookup_percpu(&0_u32.to_ne_bytes(), MapFlags::ANY).map_err(failed)?;
        waits.spins = here.iter().flatten().filter_map(|running| word(running, SPINS_WORD)).sum();
        Ok(waits)
    }

    fn stack(&self, id: i32) -> Result<Vec<u64>, libbpf_rs::Error> {
        if id < 0 {
            return Ok(Vec::new());
        }
        let value = self.skel.maps.stacks.lookup(&id.to_ne_bytes(), MapFlags::ANY)?.unwrap_or_default();
        Ok((0..value.len() / 8).filter_map(|i| word(&value, i)).take_while(|address| *address != 0).collect())
    }

    fn outcome(&self) -> &types::outcome {
        &self.skel.maps.bss_data.as_deref().expect("the program has global data").outcome
    }
}

/// Why there is no tracepoint for waits: the kernel's BTF has a type for each tracepoint.
fn no_tracepoint() -> Option<String> {
    let Ok(btf) = Btf::from_vmlinux() else {
        // Loading will report what is wrong.
        return None;
    };
    btf.type_by_name::<Typedef<'_>>("btf_trace_contention_begin")
        .is_none()
        .then(|| "this kernel has no tracepoint contention_begin; Linux 5.19 and later do".to_owned())
}

/// With PREEMPT_RT a zone's lock is no spinlock: a waiter sleeps, and may wake up on another CPU.
fn sleeping_locks(realtime: &Path) -> Option<String> {
    let is_realtime = std::fs::read_to_string(realtime).is_ok_and(|text| text.trim() == "1");
    is_realtime.then(|| "this kernel is built with PREEMPT_RT, where zone locks do not spin".to_owned())
}

fn load(update: u64, shepherd: u64, with_waits: bool) -> Result<VmstatSkel<'static>, libbpf_rs::Error> {
    // The skeleton borrows its storage for as long as it lives. A process has one observer, so the storage, a few
    // hundred bytes, is leaked.
    let storage: &'static mut MaybeUninit<OpenObject> = Box::leak(Box::new(MaybeUninit::uninit()));
    let mut open: OpenVmstatSkel<'static> = VmstatSkelBuilder::default().open(storage)?;
    let constants = open.maps.rodata_data.as_deref_mut().expect("the program has constants");
    constants.update_function = update;
    constants.shepherd_function = shepherd;
    for program in [&mut open.progs.find_zones, &mut open.progs.on_wait, &mut open.progs.on_waited] {
        program.set_autoload(with_waits);
    }
    open.load()
}

/// Index of `spins` in `struct running`, in words.
const SPINS_WORD: usize = 7;

/// The native word at an index of a kernel value.
fn word(bytes: &[u8], index: usize) -> Option<u64> {
    let bytes = bytes.get(index * 8..)?.first_chunk()?;
    Some(u64::from_ne_bytes(*bytes))
}

/// `struct record` of `vmstat.bpf.c`: the kind, and the run.
fn decode(bytes: &[u8]) -> Option<(u16, Run)> {
    let cpu = u32::from_ne_bytes(*bytes.get(32..)?.first_chunk()?);
    let kind = u16::from_ne_bytes(*bytes.get(36..)?.first_chunk()?);
    let cause = match u16::from_ne_bytes(*bytes.get(38..)?.first_chunk()?) {
        1 => Cause::Timer,
        2 => Cause::Shepherd,
        _ => Cause::Unknown,
    };
    let queued_ns = word(bytes, 0).filter(|ns| *ns > 0);
    let (start_ns, end_ns, jiffies) = (word(bytes, 1)?, word(bytes, 2)?, word(bytes, 3)?);
    Some((kind, Run { cpu, queued_ns, start_ns, end_ns, jiffies, cause }))
}

/// `struct caller` of `vmstat.bpf.c`.
struct CallerKey {
    lock: u64,
    stack: i32,
    updating: bool,
    beside: bool,
}

impl CallerKey {
    fn decode(bytes: &[u8]) -> Option<CallerKey> {
        let flag = |at: usize| Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?) != 0);
        let stack = i32::from_ne_bytes(*bytes.get(8..)?.first_chunk()?);
        Some(CallerKey { lock: word(bytes, 0)?, stack, updating: flag(12)?, beside: flag(14)? })
    }
}

/// `struct zone_of_lock` of `vmstat.bpf.c`: node and name.
fn decode_zone(bytes: &[u8]) -> Option<(u32, String)> {
    let node = u32::from_ne_bytes(*bytes.first_chunk()?);
    let name = bytes.get(8..)?;
    let end = name.iter().position(|b| *b == 0).unwrap_or(name.len());
    Some((node, String::from_utf8_lossy(&name[..end]).into_owned()))
}

/// The kernel's functions by name and address. See [`Symbols`].
pub fn symbols() -> Result<Symbols, Error> {
    const PATH: &str = "/proc/kallsyms";
    Symbols::read(Path::new(PATH)).map_err(|source| Error::Symbols { path: PATH.to_owned(), source })
}
