//! A modelled host, as described in a file.

use super::source::Played;
use crate::args::targets::TargetArgs;
use crate::args::usage::Usage;
use crate::input;
use anyhow::{Context, Result};
use isotherm_sim::{Host, ModelClock, ModelSource};
use isotherm_sys::clock;
use isotherm_units::Bytes;
use std::path::Path;
use std::sync::Arc;

/// The name of the built-in modelled host.
const TWO_TIB: &str = "2tib";
/// The longest description of a host that is read.
const MAX_HOST_FILE: Bytes = Bytes(1 << 20);

/// Opens the host described at `path`, or the built-in one.
pub fn open(targets: &TargetArgs, path: &Path) -> Result<Played> {
    let host = if path.as_os_str() == TWO_TIB {
        Host::two_tib()
    } else {
        let file = input::named_file(path)?;
        let text = input::short_text(file, path, MAX_HOST_FILE)?;
        let host = Host::from_toml_within(&text, input::max_memory()?);
        host.with_context(|| format!("{}: not the description of a host", path.display()))?
    };
    let pids = processes(&host, targets)?;
    let clock = ModelClock::default();
    let source = Box::new(ModelSource::new(Arc::new(host), clock.clone()));
    Ok(Played { source, clock: Box::new(clock), pids, begin_unix_ns: clock::unix_ns() })
}

/// The named processes, those of a cgroup, or all.
fn processes(host: &Host, targets: &TargetArgs) -> Result<Vec<u32>> {
    if !targets.pids.is_empty() {
        return Ok(targets.pids.clone());
    }
    let cgroup = targets.cgroup.as_deref().unwrap_or("/");
    let pids: Vec<u32> = host.processes().iter().filter(|p| p.is_within(cgroup)).map(|p| p.pid).collect();
    if pids.is_empty() {
        return Err(Usage(format!("no process of the modelled host is in the cgroup {cgroup}")).into());
    }
    Ok(pids)
}
