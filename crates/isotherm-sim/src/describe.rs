//! Reads descriptions of hosts from files.

use crate::error::Error;
use crate::heat::Heat;
use crate::host::Host;
use crate::pieces;
use crate::process::{Area, Process, range_at};
use crate::quantity::Size;
use isotherm_units::Bytes;
use serde::Deserialize;

/// Start of the first area of a process unless the file sets one: where the kernel would put a large mapping.
const FIRST_START: u64 = 0x7000_0000_0000;

/// Memory that the processes of any description may take: about 8,000 processes with ten areas each.
const BASE_MEMORY: u64 = 24 << 20;
/// Additional memory for each byte of the description.
const MEMORY_PER_BYTE: u64 = 64;

/// The file. Unknown keys are errors, so that a misspelt heat is not ignored.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HostText {
    memory: Size,
    #[serde(default)]
    process: Vec<ProcessText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProcessText {
    pid: u32,
    #[serde(default = "one")]
    count: u32,
    #[serde(default = "one_tick")]
    start_ticks: u64,
    comm: String,
    #[serde(default = "root")]
    cgroup: String,
    #[serde(default)]
    area: Vec<AreaText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AreaText {
    start: Option<u64>,
    gap: Option<Size>,
    size: Size,
    #[serde(default)]
    name: String,
    #[serde(default)]
    pages: PageKind,
    heat: Heat,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
enum PageKind {
    #[default]
    #[serde(rename = "4KiB")]
    Small,
    #[serde(rename = "2MiB")]
    Huge,
}

fn one() -> u32 {
    1
}

fn one_tick() -> u64 {
    1
}

fn root() -> String {
    "/".into()
}

impl Host {
    /// Reads a host description.
    ///
    /// ```
    /// use isotherm_sim::{Host, Scope};
    ///
    /// let host = Host::from_toml(r#"
    ///     memory = "4 GiB"
    ///
    ///     [[process]]
    ///     pid = 100
    ///     count = 2                   # pids 100 and 101, alike; default 1
    ///     comm = "redis-server"
    ///     cgroup = "/tenants/small"   # default "/"
    ///     start_ticks = 5000          # default 1
    ///
    ///     [[process.area]]            # follows the area before it; the first begins at 0x700000000000
    ///     name = "[heap]"             # neighbours of the same name are one mapping
    ///     size = "256 MiB"
    ///     heat = "never"
    ///
    ///     [[process.area]]
    ///     name = "[heap]"
    ///     size = "64 MiB"
    ///     heat = { poisson = "50ms" } # at random, every 50 ms on average; { every = "50ms" }: exactly that
    ///
    ///     [[process.area]]
    ///     gap = "1 GiB"               # after the previous area; or start = 0x7f0000000000
    ///     size = "128 MiB"
    ///     pages = "2MiB"              # huge pages; default "4KiB"
    ///     heat = { gaussian = { peak = "1ms", sigma = 0.1, coldest = "10m" } }
    ///
    ///     [[process.area]]
    ///     size = "32 MiB"
    ///     heat = { scattered = { share = 0.2, hot = { every = "20ms" }, rest = "never" } }
    ///
    ///     [[process.area]]
    ///     size = "32 MiB"
    ///     heat = { phases = [{ until = "60s", heat = "never" }, { heat = { every = "20ms" } }] }
    /// "#)?;
    /// assert_eq!(host.processes().len(), 2);
    /// assert_eq!(host.truth(Scope::Cgroup("/tenants"), 0).total().to_string(), "1.0 GiB");
    /// # Ok::<(), isotherm_sim::Error>(())
    /// ```
    pub fn from_toml(text: &str) -> Result<Host, Error> {
        Host::from_toml_within(text, None)
    }

    /// The same with a given memory limit; with `None`, the limit depends on the length of `text`.
    pub fn from_toml_within(text: &str, max_memory: Option<Bytes>) -> Result<Host, Error> {
        let file: HostText = toml::from_str(text)?;
        // Checked before any process is created: a `count` of four billion is as quickly written as one of four.
        let needed = file.process.iter().map(ProcessText::bytes).fold(0, u64::saturating_add);
        let limit = max_memory.unwrap_or(Bytes(BASE_MEMORY + MEMORY_PER_BYTE * text.len() as u64));
        if needed > limit.0 {
            return Err(Error::TooMuchMemory { needed: Bytes(needed), limit });
        }
        let processes = file.process.iter().flat_map(ProcessText::processes).collect();
        Host::new(file.memory.0, processes)
    }

    /// A server with 2 TiB and 20 cgroups, most of its memory idle. `/tenants/small` has 20 GiB of it, in four
    /// processes.
    pub fn two_tib() -> Host {
        Host::from_toml(include_str!("../hosts/2tib.toml")).expect("checked by a test")
    }
}

impl ProcessText {
    fn processes(&self) -> impl Iterator<Item = Process> {
        let areas = self.areas();
        // There are no pids beyond the maximum: saturated pids collide and are rejected.
        (0..self.count).map(move |i| Process {
            pid: self.pid.saturating_add(i),
            start_ticks: self.start_ticks,
            comm: self.comm.clone(),
            cgroup: self.cgroup.clone(),
            areas: areas.clone(),
        })
    }

    /// Memory that the processes take, as described and as computed.
    fn bytes(&self) -> u64 {
        // An area is stored here and in its process, with its name; its pieces are stored separately.
        let area =
            |text: &AreaText| 3 * size_of::<Area>() as u64 + text.name.len() as u64 + 2 * pieces::bytes_of(&text.heat);
        let areas = self.area.iter().map(area).fold(0, u64::saturating_add);
        let each = 2 * size_of::<Process>() as u64 + (self.comm.len() + self.cgroup.len()) as u64 + areas;
        each.saturating_mul(self.count.into())
    }

    fn areas(&self) -> Vec<Area> {
        let mut next = FIRST_START;
        let place = |text: &AreaText| {
            let gap = text.gap.map_or(Bytes(0), |g| g.0);
            let range = range_at(text.start.unwrap_or(next).saturating_add(gap.0), text.size.0.0);
            next = range.end.0;
            let huge = text.pages == PageKind::Huge;
            Area { range, name: text.name.clone(), huge, heat: text.heat.clone() }
        };
        self.area.iter().map(place).collect()
    }
}
