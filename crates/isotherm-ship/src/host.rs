//! Which host this is: read once, before the sandbox.

use anyhow::{Context, Result};
use isotherm_rollup::Host;
use std::fs;
use std::io;

const MACHINE_ID: &str = "/etc/machine-id";
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// This host, by this name or by that of the kernel. Its machine id is used as a key only.
pub fn read(hostname: Option<&str>) -> Result<Host> {
    // A container may have none; its name is left.
    let machine_id = match fs::read_to_string(MACHINE_ID) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("read {MACHINE_ID}"));
        }
        id => id.unwrap_or_default(),
    };
    // Without it, the rows of a boot would look like those of the next.
    let boot_id = fs::read_to_string(BOOT_ID).with_context(|| format!("read {BOOT_ID}"))?;
    let name = rustix::system::uname();
    let hostname = hostname.map_or_else(|| name.nodename().to_string_lossy(), Into::into);
    Ok(Host::new(&machine_id, &hostname, &boot_id))
}
