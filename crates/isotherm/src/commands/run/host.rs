//! What the host says of its memory, for the watermarks and the quotas of schemes.

use super::config::Config;
use anyhow::{Result, bail};
use isotherm_schemes::quota::HostMemory;
use isotherm_sys::free;
use isotherm_sys::pressure::Pressure;
use isotherm_sys::proc::Proc;

/// Refuses a goal that cannot be measured here.
pub fn check(config: &Config) -> Result<()> {
    let has_goal = |quota: isotherm_schemes::quota::Quota| quota.goal.pressure.is_some();
    let is_asked = config.schemes.iter().filter_map(|scheme| scheme.quota).any(has_goal);
    if is_asked && memory(&Proc::default()).stalled_us.is_none() {
        bail!(
            "a scheme has a goal of pressure, and this kernel does not measure it: it needs CONFIG_PSI, and psi=1 on its command line where \
             CONFIG_PSI_DEFAULT_DISABLED is set"
        );
    }
    Ok(())
}

/// As it is now.
pub fn memory(proc: &Proc) -> HostMemory {
    let pressure = Pressure::read(&proc.root().join("pressure/memory")).ok().flatten();
    let stalled_us = pressure.map(|pressure| pressure.some_total_us);
    HostMemory { free_pct: free::free_pct(proc.root()), stalled_us }
}
