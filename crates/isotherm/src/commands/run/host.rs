//! What the host says of its memory, for the watermarks and the quotas of schemes.

use isotherm_schemes::quota::HostMemory;
use isotherm_sys::free;
use isotherm_sys::pressure::Pressure;
use isotherm_sys::proc::Proc;

/// Why a goal of pressure cannot be measured here, if so.
pub fn no_pressure() -> Option<&'static str> {
    memory(&Proc::default()).stalled_us.is_none().then_some(
        "its goal is a pressure, which this kernel does not measure: it needs CONFIG_PSI, and psi=1 on its command line where \
         CONFIG_PSI_DEFAULT_DISABLED is set",
    )
}

/// As it is now.
pub fn memory(proc: &Proc) -> HostMemory {
    let pressure = Pressure::read(&proc.root().join("pressure/memory")).ok().flatten();
    let stalled_us = pressure.map(|pressure| pressure.some_total_us);
    HostMemory { free_pct: free::free_pct(proc.root()), stalled_us }
}
