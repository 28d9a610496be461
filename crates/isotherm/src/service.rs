//! `isotherm run` as a service: what the service manager that has started it hears, and what programs that it starts do not inherit.

use anyhow::{Context, Result};
use isotherm_sys::{clock, descriptors};
use isotherm_systemd::{Manager, Pulse, VARIABLES};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

/// The service manager and the pulse of the watching loop. Opened before the sandbox, which opens no sockets.
#[derive(Debug)]
pub struct Service {
    manager: Manager,
    pub pulse: Arc<Pulse>,
}

impl Service {
    pub fn of_this_process() -> Service {
        Service { manager: Manager::of_this_process(), pulse: Arc::default() }
    }

    /// Everything is open, and watching begins or goes on.
    pub fn ready(&self, status: &str) {
        self.manager.ready(status);
    }

    /// The settings are read again. [`Service::ready`] ends that.
    pub fn reloading(&self) {
        self.manager.reloading(clock::monotonic_ns());
    }

    pub fn stopping(&self) {
        self.manager.stopping();
    }

    /// Sends signs of life until `is_over`, as long as watching goes on.
    pub fn keep_alive(&self, is_over: impl Fn() -> bool) {
        self.manager.keep_alive(&self.pulse, clock::monotonic_ns, is_over);
    }
}

/// Prepares to start a program of the user's: with the user's limit of descriptors, and without a service manager of its own. A server that
/// finds the address of one waits for it or, as redis does, takes itself for supervised.
pub fn for_program(command: &mut Command) -> &mut Command {
    VARIABLES.iter().fold(descriptors::restore_limit(command), |command, name| command.env_remove(name))
}

/// Our own program, to start it again. While a package replaces it, its path leads nowhere, and the kernel still has it.
pub fn own_program() -> Result<PathBuf> {
    let path = std::env::current_exe().context("find our own program")?;
    Ok(if path.is_file() { path } else { PathBuf::from("/proc/self/exe") })
}
