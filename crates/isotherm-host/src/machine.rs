//! What a recording names of its host.
//!
//! [`HostFacts`](crate::HostFacts) has this and much more. It reads the kernel's configuration and every process, which takes
//! milliseconds and a hundred where thousands of processes run. A monitor starts with a credit of 120 ms at 1% of a CPU.

use crate::kernel::Release;
use isotherm_sys::cpus::cpus_online;
use isotherm_sys::files::Tree;
use isotherm_sys::proc::meminfo;
use isotherm_sys::roots::HostRoots;
use isotherm_units::Bytes;

/// The kernel, the CPUs and the memory of a machine. `None` is unknown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Machine {
    /// The kernel.
    pub kernel: Option<Release>,
    /// Model name of the CPU.
    pub cpu_model: Option<String>,
    /// CPUs online.
    pub cpus: Option<u32>,
    /// Memory of the machine.
    pub memory: Option<Bytes>,
    /// Swap space.
    pub swap: Option<Bytes>,
}

impl Machine {
    /// Reads three small files, and of `/proc/cpuinfo` as much as it takes to find the model.
    pub fn read(roots: &HostRoots) -> Machine {
        let proc = Tree::at(&roots.proc);
        let text = proc.text("meminfo");
        let memory = |key| text.as_deref().and_then(|text| meminfo(text, key));
        Machine {
            kernel: Release::of(&proc),
            cpu_model: proc.find_line("cpuinfo", cpu_model),
            cpus: cpus_online(&roots.sys),
            memory: memory("MemTotal"),
            swap: memory("SwapTotal"),
        }
    }
}

/// The model, if a line of `/proc/cpuinfo` is the one with it: `model name` on x86. Other architectures use another key, or have none.
fn cpu_model(line: &str) -> Option<String> {
    const KEYS: [&str; 3] = ["model name", "cpu model", "Model"];
    let (key, value) = line.split_once(':')?;
    KEYS.contains(&key.trim()).then(|| value.trim().to_owned())
}
