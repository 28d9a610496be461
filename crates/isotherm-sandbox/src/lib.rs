//! Confines this process once it has opened what it needs, so that a bug in what follows can do less harm.
//!
//! [`enter`] applies a [`Policy`], in this order: a mount namespace in which only the named folders can be written, the capabilities that
//! are kept, `no_new_privs`, and a filter of system calls. [`files_only`], [`server_only`] and [`client_only`] are for programs that read no other
//! process: Landlock takes the place of the mount namespace, since it needs no privilege. A monitor must not use Landlock: the kernel refuses a landlocked process the
//! `maps`, `pagemap` and `process_madvise` of all processes outside its domain.
//!
//! Nothing here fails for a part that the kernel lacks. [`InForce`] says which parts are in force, and the caller reports it.
//!
//! | module | |
//! |---|---|
//! | `calls` | groups of system calls |
//! | `filter` | the program of a seccomp filter |
//! | `mounts` | the mount namespace |
//! | `files` | Landlock |
//!
//! Call it from the only thread, or let the others drop their capabilities themselves: capabilities and mount namespaces belong to a
//! thread, and threads inherit them when they start. The filter of system calls applies to all threads.

#![forbid(unsafe_code)]

mod calls;
mod files;
mod filter;
mod mounts;

pub use calls::Calls;
pub use files::Files;
pub use mounts::Writes;

use rustix::thread::{CapabilitySet, CapabilitySets};
use serde::{Deserialize, Serialize};

/// What this process still does.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Capabilities to keep, of those that it has. `None`: all.
    pub capabilities: Option<CapabilitySet>,
    /// The system calls that it makes.
    pub calls: Calls,
    /// What it writes to.
    pub writes: Writes,
}

/// One part of the sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "state", content = "why")]
pub enum Part {
    /// In force.
    On,
    /// Not in force, because a privilege for it is missing.
    NoPrivilege(String),
    /// Not in force, because the kernel lacks it.
    Unsupported(String),
    /// Not asked for.
    Off,
}

impl Part {
    /// From the error of applying it.
    fn of(result: std::io::Result<()>) -> Part {
        match result {
            Ok(()) => Part::On,
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => Part::NoPrivilege(error.to_string()),
            Err(error) => Part::Unsupported(error.to_string()),
        }
    }
}

/// Which parts are in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InForce {
    /// Names of the capabilities that are left, in the kernel's order.
    pub capabilities: Vec<String>,
    /// This process and its children gain no privileges by executing a program.
    pub no_new_privs: bool,
    /// Only system calls of an allow-list.
    pub system_calls: Part,
    /// All mounts are read-only but for the folders written to.
    pub mounts: Part,
    /// Only named files can be reached.
    pub files: Part,
}

impl InForce {
    /// Nothing is in force.
    pub fn none() -> InForce {
        InForce {
            capabilities: capabilities_now(),
            no_new_privs: rustix::thread::no_new_privs().unwrap_or(false),
            system_calls: Part::Off,
            mounts: Part::Off,
            files: Part::Off,
        }
    }

    /// What a program that needs no privilege lacks of its sandbox, a sentence each. `program` is what goes on without, as "the server".
    pub fn shortfalls(&self, program: &str) -> Vec<String> {
        let parts = [("a filter of system calls", &self.system_calls), ("Landlock", &self.files)];
        let lacks = |(name, part): (&str, &Part)| match part {
            Part::Unsupported(why) | Part::NoPrivilege(why) => {
                Some(format!("the sandbox lacks {name} ({why}); {program} runs without it"))
            }
            _ => None,
        };
        let left = (!self.capabilities.is_empty())
            .then(|| format!("these capabilities could not be dropped: {}", self.capabilities.join(" ")));
        parts.into_iter().filter_map(lacks).chain(left).collect()
    }

    /// What the kernel lacks, one sentence.
    pub fn warning(&self) -> Option<String> {
        let parts = [
            ("a filter of system calls", &self.system_calls),
            ("read-only mounts", &self.mounts),
            ("Landlock", &self.files),
        ];
        let missing: Vec<String> = parts
            .into_iter()
            .filter_map(|(name, part)| match part {
                Part::Unsupported(why) => Some(format!("{name} ({why})")),
                _ => None,
            })
            .collect();
        (!missing.is_empty()).then(|| format!("the sandbox lacks {}", missing.join(" and ")))
    }
}

/// Applies a policy to this process. It cannot be undone.
pub fn enter(policy: &Policy) -> InForce {
    let mounts = Part::of(mounts::write_only_to(&policy.writes));
    if let Some(kept) = policy.capabilities {
        keep(kept);
    }
    let system_calls = Part::of(filter::apply(policy.calls));
    InForce { system_calls, mounts, ..InForce::none() }
}

/// For a process that reads and writes files, and looks at no other process. `files` are all that it can reach afterwards.
pub fn files_only(files: &Files) -> InForce {
    with_files(files, Calls::FILES)
}

/// For a process that answers clients of sockets that listen already, and holds what else it reads. It opens no socket, and
/// keeps no capability. `files` are all that it can reach afterwards.
pub fn server_only(files: &Files) -> InForce {
    drop_capabilities();
    with_files(files, Calls::FILES.and(Calls::SERVE))
}

/// Whom a client connects to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Unix sockets of this machine.
    Machine,
    /// Any address over TCP and UDP too. Where it goes cannot be bounded further: addresses are found by name, and ports are a setting.
    Network,
}

/// For a process that connects to others, and listens nowhere. It keeps no capability. `files` are all that it can reach afterwards,
/// besides sockets.
pub fn client_only(files: &Files, reach: Reach) -> InForce {
    drop_capabilities();
    let calls = match reach {
        Reach::Machine => Calls::CONNECT,
        Reach::Network => Calls::CONNECT_IP,
    };
    with_files(files, Calls::FILES.and(calls))
}

fn with_files(files: &Files, calls: Calls) -> InForce {
    let landlock = files::restrict(files, calls.connects_ip());
    let system_calls = Part::of(filter::apply(calls));
    InForce { system_calls, files: landlock, ..InForce::none() }
}

/// Drops all capabilities of this thread, for threads that need none.
pub fn drop_capabilities() {
    keep(CapabilitySet::empty());
}

/// Drops the capabilities of this thread that are not in `kept`. Errors, as from a filter of the caller's, are ignored: the process also
/// works with more.
fn keep(kept: CapabilitySet) {
    let Ok(had) = rustix::thread::capabilities(None) else { return };
    let _ = rustix::thread::clear_ambient_capability_set();
    let _ = rustix::thread::set_capabilities(
        None,
        CapabilitySets {
            effective: had.effective & kept,
            permitted: had.permitted & kept,
            inheritable: had.inheritable & kept,
        },
    );
}

fn capabilities_now() -> Vec<String> {
    let kept = rustix::thread::capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.permitted);
    kept.iter_names().map(|(name, _)| format!("CAP_{name}")).collect()
}
