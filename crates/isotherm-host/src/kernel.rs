//! The kernel's version, its configuration, and what it permits.

use flate2::read::GzDecoder;
use isotherm_sys::files::Tree;
use isotherm_sys::roots::HostRoots;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read};
use std::path::{Path, PathBuf};

/// A kernel release such as `6.12.41+deb13-amd64`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// As `uname -r` prints it.
    pub text: String,
    /// Major and minor version. Distributions backport features, so an old version is a reason to doubt, not a proof.
    pub version: (u32, u32),
}

impl Release {
    /// Parses the release; `None` if it does not begin with two numbers.
    pub fn parse(text: &str) -> Option<Release> {
        let mut numbers = text.split(|c: char| !c.is_ascii_digit());
        let version = (numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?);
        Some(Release { text: text.to_owned(), version })
    }

    /// The release of the running kernel; `None` if `/proc` does not show it.
    pub fn running(roots: &HostRoots) -> Option<Release> {
        Release::of(&Tree::at(&roots.proc))
    }

    pub(super) fn of(proc: &Tree<'_>) -> Option<Release> {
        Release::parse(&proc.text("sys/kernel/osrelease")?)
    }

    /// Whether it is of this version or later.
    pub fn is_since(&self, major: u32, minor: u32) -> bool {
        self.version >= (major, minor)
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

/// The kernel's lockdown mode, which protects it from root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lockdown {
    /// Not at all.
    Off,
    /// Root may not change the running kernel.
    Integrity,
    /// Root may not read its memory either: no BPF reading.
    Confidentiality,
}

impl Lockdown {
    /// The choice in `/sys/kernel/security/lockdown`.
    pub(super) fn read(sys: &Tree<'_>) -> Option<Lockdown> {
        match sys.choice("kernel/security/lockdown")?.as_str() {
            "none" => Some(Lockdown::Off),
            "integrity" => Some(Lockdown::Integrity),
            "confidentiality" => Some(Lockdown::Confidentiality),
            _ => None,
        }
    }
}

/// The options that are used here. Only these are kept.
const OPTIONS: [&str; 14] = [
    "CONFIG_ADVISE_SYSCALLS",
    "CONFIG_BPF_SYSCALL",
    "CONFIG_DAMON",
    "CONFIG_DAMON_PADDR",
    "CONFIG_DAMON_SYSFS",
    "CONFIG_DAMON_VADDR",
    "CONFIG_DEBUG_INFO_BTF",
    "CONFIG_IDLE_PAGE_TRACKING",
    "CONFIG_KALLSYMS_ALL",
    "CONFIG_LRU_GEN",
    "CONFIG_MEM_SOFT_DIRTY",
    "CONFIG_PROC_PAGE_MONITOR",
    "CONFIG_SHUFFLE_PAGE_ALLOCATOR",
    "CONFIG_TRANSPARENT_HUGEPAGE",
];

/// The kernel's build configuration, as far as it is used here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelConfig {
    /// The file it was read from.
    pub source: PathBuf,
    /// Options that are set, with their values.
    pub set: BTreeMap<String, String>,
}

impl KernelConfig {
    /// Whether an option is built in or a module. Known for all options once a configuration was found: an option that
    /// does not apply is not in the file.
    pub fn has(&self, option: &str) -> bool {
        self.set.get(option).is_some_and(|value| value == "y" || value == "m")
    }

    /// From `/proc/config.gz`, or `/boot/config-RELEASE`.
    pub(super) fn read(proc: &Tree<'_>, boot: &Path, release: Option<&Release>) -> Option<KernelConfig> {
        let packed = proc.path("config.gz");
        if let Some(text) = unpack(&packed) {
            return Some(KernelConfig::parse(packed, &text));
        }
        let plain = boot.join(format!("config-{}", release?.text));
        let text = fs::read_to_string(&plain).ok()?;
        Some(KernelConfig::parse(plain, &text))
    }

    /// Parses the text of a configuration.
    pub fn parse(source: PathBuf, text: &str) -> KernelConfig {
        let wanted = |line: &str| {
            let (option, value) = line.split_once('=')?;
            OPTIONS.contains(&option).then(|| (option.to_owned(), value.to_owned()))
        };
        KernelConfig { source, set: text.lines().filter_map(wanted).collect() }
    }
}

fn unpack(path: &Path) -> Option<String> {
    // A configuration is about 300 kB; anything much longer is none.
    const LIMIT: u64 = 16 << 20;
    let mut text = String::new();
    GzDecoder::new(File::open(path).ok()?).take(LIMIT).read_to_string(&mut text).ok()?;
    Some(text)
}

/// So many lines of `/proc/kallsyms` are enough; the whole file has ten megabytes. One is not: before Linux 6.15 the first symbols of x86-64 are
/// offsets of per-CPU data, the first of which is 0.
const SYMBOLS: usize = 256;

/// Whether `/proc/kallsyms` shows addresses to us: otherwise it lists zeros.
pub(super) fn symbols_visible(proc: &Tree<'_>) -> Option<bool> {
    let mut seen = None;
    let lines = BufReader::new(File::open(proc.path("kallsyms")).ok()?).split(b'\n').take(SYMBOLS);
    for line in lines.map_while(io::Result::ok) {
        let address = line.split(|&b| b == b' ').next().filter(|word| !word.is_empty())?;
        if address.iter().any(|&b| b != b'0') {
            return Some(true);
        }
        seen = Some(false);
    }
    seen
}
