//! What the user may type. Values are checked for form here; what they mean on this machine is found out by the commands.

use bytesize::ByteSize;
use clap::{Args, Parser, Subcommand, ValueEnum};
use isotherm_heat::Thresholds;
use isotherm_sys::perf::Rate;
use isotherm_sys::perf::named::RawEvent;
use isotherm_units::Bytes;
use std::ffi::OsString;
use std::path::PathBuf;

/// A wrong combination of arguments that clap cannot see: exit code 2.
#[derive(Debug)]
pub struct Usage(pub String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// See the heat of real memory: which pages of a process are accessed, how often, and which lie idle. On stock kernels, for
/// unmodified programs.
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true, infer_subcommands = true)]
#[command(after_help = "Examples:
  isotherm demo                            watch a built-in workload and check the result against its truth
  isotherm doctor                          what this machine offers, and what to do about the rest
  sudo isotherm top                        processes by hot memory, live
  sudo isotherm record -p 812 -d 1m        record the heat of process 812 for a minute, into heat.isotherm/
  isotherm report heatmap -o heat.html     the recording as a picture
  sudo isotherm report wss -- ./server     the working set of a command, live
  sudo isotherm placement -p 812 --cache-size 16GiB  what its frames would miss in such a memory-side cache
  sudo isotherm herd                       when the kernel's housekeeping runs on each CPU, and who waits for it
  sudo isotherm collapse -p 812 --dry-run  which 2 MiB blocks would become huge pages, in which order
  sudo isotherm run -p 812                 keep the hot memory of process 812 on huge pages")]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Watch a built-in workload with known hot memory, and print how right the picture is and what it cost
    Demo(DemoArgs),
    /// Show what this machine offers: sources, ways to clear, huge pages, NUMA, PMU, privileges
    Doctor(DoctorArgs),
    /// Find and try events that tell of accesses
    Events(EventsArgs),
    /// Record the heat of processes
    Record(RecordArgs),
    /// Show heat, from a recording or live
    Report(ReportArgs),
    /// Turn a recording into a file that damo reads, or a file of damo into a recording
    Convert(ConvertArgs),
    /// Processes and cgroups by hot memory, live in the terminal
    Top(TopArgs),
    /// How well the frames of processes are placed for a direct-mapped memory-side cache
    Placement(PlacementArgs),
    /// When the kernel's housekeeping of per-CPU page sets runs on each CPU, and who waits for zone locks
    Herd(HerdArgs),
    /// Put the hot memory of processes on huge pages, once
    Collapse(CollapseArgs),
    /// Keep the hot memory of processes on huge pages
    Run(RunArgs),
    /// Tell a running `isotherm run` which memory is hot
    Hint(HintArgs),
    /// What a running `isotherm run` does
    Status(StatusArgs),
    /// The workload that `demo` starts
    #[command(name = "demo-workload", hide = true)]
    Workload(WorkloadArgs),
}

fn duration_ns(text: &str) -> Result<u64, String> {
    let parsed = humantime::parse_duration(text).map_err(|e| format!("{e}; write a time like 500ms, 10s or 2m"))?;
    u64::try_from(parsed.as_nanos()).map_err(|_| "longer than 584 years".to_owned())
}

fn positive_duration_ns(text: &str) -> Result<u64, String> {
    duration_ns(text).and_then(|ns| if ns == 0 { Err("has to be longer than nothing".into()) } else { Ok(ns) })
}

fn window_ns(text: &str) -> Result<u64, String> {
    duration_ns(text).and_then(|ns| if ns < 50_000_000 { Err("has to be 50ms or longer".into()) } else { Ok(ns) })
}

pub fn size(text: &str) -> Result<Bytes, String> {
    text.parse::<ByteSize>().map(|b| Bytes(b.0)).map_err(|_| "write a size like 64MiB, 2GiB or 4096".to_owned())
}

fn percent(text: &str) -> Result<f64, String> {
    let number = text
        .strip_suffix('%')
        .unwrap_or(text)
        .parse::<f64>()
        .map_err(|_| "write a percentage like 1 or 0.5%".to_owned())?;
    if number > 0.0 && number.is_finite() {
        Ok(number)
    } else {
        Err("has to be above 0; over 100 lifts the limit".into())
    }
}

fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().map_err(|_| "write a number like 20 or 0.5".to_owned())?;
    if number > 0.0 && number.is_finite() { Ok(number) } else { Err("has to be above 0".into()) }
}

fn percent_or_none(text: &str) -> Result<f64, String> {
    if text.trim_end_matches('%').parse::<f64>() == Ok(0.0) { Ok(0.0) } else { percent(text) }
}

/// Where access reports come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum SourceArg {
    /// The best that this machine and your privileges offer
    #[default]
    Auto,
    /// Page by page through BPF: needs root, or CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE and CAP_SYS_NICE
    PageTable,
    /// Sampled accesses, as perf events report them: see --event; your own processes without privilege
    Perf,
    /// Sampled accesses to physical memory as a whole; takes no targets, needs CAP_PERFMON
    PerfPaddr,
    /// By mapping through clear_refs and smaps: your own processes, no privilege
    Referenced,
    /// By region through the kernel's DAMON, if nobody else uses it: needs root and tracefs
    Damon,
    /// Physical memory as a whole through the kernel's DAMON; takes no targets
    DamonPaddr,
}

impl SourceArg {
    /// Whether it watches the machine as a whole, so that naming it names what to watch.
    pub fn is_machine(self) -> bool {
        matches!(self, SourceArg::DamonPaddr | SourceArg::PerfPaddr)
    }
}

/// How accessed bits are cleared, by a source that sees pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ClearArg {
    /// MADV_COLD, and clear_refs where that is refused
    #[default]
    Auto,
    /// MADV_COLD only: locked and shared pages stay unmeasured
    Cold,
    /// clear_refs only: may stall the targets, and does not flush the TLB
    Refs,
    /// Aging of the kernel's multi-generation LRU: clears the bits of all processes in the cgroups of the targets
    Mglru,
}

/// Where hints at hot blocks come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HintsArg {
    /// The heat map
    #[default]
    Heat,
    /// The kernel's multi-generation LRU, which is aged once a window: all processes in the cgroups of the targets
    Mglru,
    /// Both: a block goes by the higher level
    Both,
}

/// Which processes.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Targets")]
pub struct TargetArgs {
    /// Process to watch; may be given several times or as a list
    #[arg(short, long = "pid", value_name = "PID", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..))]
    pub pids: Vec<u32>,
    /// Watch the processes of this cgroup and those below it: a path below /sys/fs/cgroup, or as in /proc/PID/cgroup
    #[arg(long, value_name = "PATH", conflicts_with_all = ["pids", "all"])]
    pub cgroup: Option<String>,
    /// Watch all processes
    #[arg(short, long, conflicts_with = "pids")]
    pub all: bool,
    /// Do not follow children of the named processes
    #[arg(long)]
    pub no_children: bool,
    /// Command to start and watch
    #[arg(last = true, value_name = "COMMAND", conflicts_with_all = ["pids", "all", "cgroup"])]
    pub command: Vec<OsString>,
}

impl WatchArgs {
    /// Whether the machine is watched as a whole, so that no targets are named.
    pub fn is_of_machine(&self) -> bool {
        self.source.is_machine() || self.sampling.is_physical()
    }

    /// Whether something else than the machine is watched.
    pub fn is_played(&self) -> bool {
        #[cfg(feature = "model")]
        if self.model.is_some() {
            return true;
        }
        self.replay.is_some()
    }
}

impl TargetArgs {
    pub fn is_empty(&self) -> bool {
        self.pids.is_empty() && self.cgroup.is_none() && !self.all && self.command.is_empty()
    }
}

/// How to watch.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Watching")]
pub struct WatchArgs {
    /// Where access reports come from
    #[arg(long, value_enum, default_value_t)]
    pub source: SourceArg,
    /// How accessed bits are cleared; anything but auto needs the page-table source
    #[arg(long, value_enum, default_value_t, value_name = "WAY", conflicts_with = "replay")]
    pub clear: ClearArg,
    /// Watch this recording (or file of damo) being played back instead of the machine: its processes, or those named, as
    /// fast as it computes
    #[arg(long, value_name = "RECORDING", conflicts_with_all = ["source", "all", "cgroup", "command"])]
    pub replay: Option<PathBuf>,
    /// Watch a modelled host instead of the machine, as described in this file, or `2tib`: one that comes with isotherm. No real
    /// memory is looked at; what looking would cost is charged
    #[cfg(feature = "model")]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["source", "replay", "command", "events", "perf_event"])]
    pub model: Option<PathBuf>,
    #[command(flatten)]
    pub sampling: SamplingArgs,
    /// Allowed slow-down of each target, percent of one core; over 100 lifts the limit
    #[arg(long, value_name = "PERCENT", default_value = "1", value_parser = percent)]
    pub max_slowdown: f64,
    /// Allowed CPU of the monitor, percent of one core; over 100 lifts the limit [default: 1, with `referenced` 5]
    #[arg(long, env = "ISOTHERM_MAX_CPU", hide_env_values = true, value_name = "PERCENT", value_parser = percent)]
    pub max_cpu: Option<f64>,
    /// How much of a process is looked at
    #[arg(long, value_enum, default_value_t)]
    pub mode: ModeArg,
    /// At most this many regions for each process; for all together of those that are sampled
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub max_regions: u32,
    /// No region of a sampled process is larger than this, as far as --max-regions allows [default: no such bound]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub max_region: Option<Bytes>,
    /// Each region of a sampled process is looked at once in this time, if the budgets allow
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = positive_duration_ns)]
    pub sample_interval: u64,
    /// Draw the order of looks from this seed, to repeat a run [default: one from the operating system]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Watch also what another isotherm watches: each then takes accesses from the other, and finds less than there is
    #[arg(long)]
    pub beside: bool,
    /// Time between two snapshots
    #[arg(short, long, value_name = "TIME", value_parser = window_ns)]
    pub window: Option<u64>,
}

/// Which accesses are sampled, and how often.
#[derive(Clone, Debug, Default, Args)]
pub struct SamplingArgs {
    /// Event whose samples tell of accesses, such as mem-loads or faults; several of a kind as a list. With page tables, beside them.
    /// `isotherm doctor --events` lists those of this machine [default: loads and stores where the processor samples them, and
    /// with --source perf page faults where it does not]
    #[arg(long = "event", value_name = "EVENT", conflicts_with_all = ["perf_event", "replay"])]
    pub events: Option<String>,
    /// The same as six numbers, FREQ PHYS TYPE CONFIG CONFIG1 CONFIG2: samples a second, whether by physical address, and the raw
    /// event as in perf_event_attr
    #[arg(long, value_name = "NUMBERS", conflicts_with_all = ["replay", "sample_period", "sample_frequency"])]
    pub perf_event: Option<RawEvent>,
    /// One sample every so many events [default: as fits the event]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), conflicts_with = "sample_frequency")]
    pub sample_period: Option<u64>,
    /// So many samples a second and processor
    #[arg(long, value_name = "HZ", value_parser = clap::value_parser!(u64).range(1..))]
    pub sample_frequency: Option<u64>,
}

impl SamplingArgs {
    /// The events named: separated by commas, but for those between the slashes of `PMU/terms/`.
    pub fn names(&self) -> Vec<String> {
        let mut names = vec![String::new()];
        let mut inside = false;
        for c in self.events.iter().flat_map(|text| text.chars()) {
            inside ^= c == '/';
            match (c, names.last_mut()) {
                (',', _) if !inside => names.push(String::new()),
                (c, Some(name)) => name.push(c),
                (_, None) => {}
            }
        }
        names.retain(|name| !name.is_empty());
        names
    }

    /// How often, if that was said.
    pub fn rate(&self) -> Option<Rate> {
        self.sample_period.map(Rate::Period).or(self.sample_frequency.map(Rate::Frequency))
    }

    /// Whether samples are taken by physical address.
    pub fn is_physical(&self) -> bool {
        self.perf_event.is_some_and(|raw| raw.physical)
    }

    /// Whether anything was said.
    pub fn is_given(&self) -> bool {
        self.events.is_some() || self.perf_event.is_some() || self.rate().is_some()
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ModeArg {
    /// Whole, as long as all that is watched can be looked at once in five minutes at the allowed CPU; sampled beyond
    #[default]
    Auto,
    /// Every page
    Whole,
    /// A 2 MiB block here and there in each region: cost follows --max-regions, not the size of memory
    Sampled,
}

/// Bounds between hot, warm, cold and idle.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Classes")]
pub struct ThresholdArgs {
    /// Hot: accessed at least this often
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = positive_duration_ns)]
    pub hot: u64,
    /// Warm: not hot, and at least this often
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = positive_duration_ns)]
    pub warm: u64,
    /// Cold: not warm, and at least this often; idle is what is beyond
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = positive_duration_ns)]
    pub cold: u64,
}

impl ThresholdArgs {
    pub fn bounds(self) -> Result<Thresholds, Usage> {
        if self.hot > self.warm || self.warm > self.cold {
            return Err(Usage("--hot, --warm and --cold have to grow in this order".into()));
        }
        Ok(Thresholds { hot_ns: self.hot, warm_ns: self.warm, cold_ns: self.cold })
    }
}

#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Memory of the workload [default: 2GiB, or a quarter of what is available]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub size: Option<Bytes>,
    /// How long to watch
    #[arg(short, long, value_name = "TIME", default_value = "15s", value_parser = positive_duration_ns)]
    pub duration: u64,
    /// Put the workload on huge pages
    #[arg(long)]
    pub huge: bool,
    /// Where access reports come from
    #[arg(long, value_enum, default_value_t)]
    pub source: SourceArg,
    /// Allowed CPU of the monitor, percent of one core; over 100 lifts the limit [default: 1, with `referenced` 5]
    #[arg(long, env = "ISOTHERM_MAX_CPU", hide_env_values = true, value_name = "PERCENT", value_parser = percent)]
    pub max_cpu: Option<f64>,
    /// Print one JSON object instead of text and picture
    #[arg(long)]
    pub json: bool,
    /// Also write the heat map to this file (.png or .html)
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub color: ColorArgs,
}

#[derive(Debug, Args)]
pub struct WorkloadArgs {
    /// The pattern as JSON
    pub pattern: String,
}

#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// List the events that tell of accesses, with what this machine has of them
    #[arg(long)]
    pub events: bool,
    /// Time our own memory to find out whether frames so far apart compete for lines of a memory-side cache [default sizes: what the
    /// firmware tells, and from 1GiB to all memory]. Takes up to a quarter of what is available, for about a second a GiB; needs root
    #[arg(long, value_name = "SIZE", num_args = 0.., value_parser = size, conflicts_with = "events")]
    pub probe_cache: Option<Vec<Bytes>>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct EventsArgs {
    #[command(subcommand)]
    pub what: EventsCommand,
}

#[derive(Debug, Subcommand)]
pub enum EventsCommand {
    /// The events that tell of accesses, with what this machine has of them
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Sample an event of running processes for some seconds: how often it comes, how much of it is of use, what it costs
    Try(TryArgs),
}

#[derive(Debug, Args)]
pub struct TryArgs {
    /// The event: a name that `list` gives, PMU/term=value,.../ or raw:TYPE:CONFIG[:CONFIG1[:CONFIG2]]
    pub event: String,
    /// How long
    #[arg(short, long, value_name = "TIME", default_value = "5s", value_parser = positive_duration_ns)]
    pub duration: u64,
    /// One sample every so many events [default: as fits the event]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), conflicts_with = "sample_frequency")]
    pub sample_period: Option<u64>,
    /// So many samples a second and processor
    #[arg(long, value_name = "HZ", value_parser = clap::value_parser!(u64).range(1..))]
    pub sample_frequency: Option<u64>,
    /// What interrupts may take of a core; over 100 lifts the limit
    #[arg(long, value_name = "PERCENT", default_value = "1", value_parser = percent)]
    pub max_slowdown: f64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub targets: TargetArgs,
}

#[derive(Debug, Args)]
pub struct RecordArgs {
    /// Directory to record into
    #[arg(short, long, value_name = "DIR", default_value = DEFAULT_RECORDING)]
    pub output: PathBuf,
    /// Replace a recording that is already there
    #[arg(long)]
    pub overwrite: bool,
    /// Stop after this time [default: until Ctrl-C, or the targets end]
    #[arg(short, long, value_name = "TIME", value_parser = positive_duration_ns)]
    pub duration: Option<u64>,
    #[command(flatten)]
    pub targets: TargetArgs,
    #[command(flatten)]
    pub watch: WatchArgs,
}

/// Where `record` writes and `report` reads if nothing is said.
pub const DEFAULT_RECORDING: &str = "heat.isotherm";

#[derive(Debug, Args)]
pub struct ConvertArgs {
    /// A recording, which is a directory, or a file of damo (json_compressed, json or perf_script)
    pub input: PathBuf,
    /// What to write: a file for damo from a recording, a recording from a file of damo
    pub output: PathBuf,
    /// Replace what is already there
    #[arg(long)]
    pub overwrite: bool,
    /// Only this process
    #[arg(long, value_name = "PID")]
    pub only: Option<u32>,
    /// For damo: sampling interval; nothing can be told to be accessed more often
    #[arg(long, value_name = "TIME", default_value = "5ms", value_parser = positive_duration_ns)]
    pub sample: u64,
    /// For damo: aggregation interval, in which one access counts 1. A longer one tells colder memory apart, and makes fewer
    /// snapshots [default: the recording's time between snapshots, at least 1s]
    #[arg(long, value_name = "TIME", value_parser = positive_duration_ns)]
    pub aggregation: Option<u64>,
}

#[derive(Debug, Args)]
pub struct ReportArgs {
    #[command(subcommand)]
    pub kind: ReportKind,
}

#[derive(Debug, Subcommand)]
pub enum ReportKind {
    /// Regions: size, access interval and rate, age, mapping
    Access(AccessArgs),
    /// Time by address as a picture: terminal, PNG or HTML
    Heatmap(HeatmapArgs),
    /// Working set size: percentiles, and over time
    Wss(WssArgs),
    /// Memory by temperature and by idle time
    Histogram(HistogramArgs),
    /// Hot, warm, cold and idle bytes of each process
    Processes(ClassArgs),
    /// Hot, warm, cold and idle bytes of each cgroup
    Cgroups(ClassArgs),
}

/// From a recording, or live.
#[derive(Clone, Debug, Args)]
pub struct InputArgs {
    /// Recording to read, or a file of damo [default: heat.isotherm if no target is given]
    #[arg(value_name = "RECORDING", conflicts_with_all = ["pids", "cgroup", "all", "command"])]
    pub recording: Option<PathBuf>,
    /// Watch live for this long
    #[arg(short, long, value_name = "TIME", default_value = "10s", value_parser = positive_duration_ns)]
    pub duration: u64,
    #[command(flatten)]
    pub targets: TargetArgs,
    #[command(flatten)]
    pub watch: WatchArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl InputArgs {
    /// Whether a recording is read, and nothing is watched.
    pub fn is_recorded(&self) -> bool {
        self.targets.is_empty() && !self.watch.is_played() && !self.watch.is_of_machine()
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum SortArg {
    /// By address
    #[default]
    Address,
    /// Hottest first
    Heat,
    /// Largest first
    Size,
    /// Longest unchanged first
    Age,
}

#[derive(Debug, Args)]
pub struct AccessArgs {
    #[command(flatten)]
    pub input: InputArgs,
    /// Order of regions
    #[arg(long, value_enum, default_value_t)]
    pub sort: SortArg,
    /// Leave out smaller regions
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = size)]
    pub min_size: Bytes,
    /// Leave out regions accessed less often than this
    #[arg(long, value_name = "TIME", value_parser = positive_duration_ns)]
    pub max_interval: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ColorArg {
    /// Colours on a terminal
    #[default]
    Auto,
    /// 24-bit colours
    Always,
    /// 256 colours
    Ansi256,
    /// Letters only
    Never,
}

#[derive(Clone, Copy, Debug, Args)]
pub struct ColorArgs {
    /// Colours in the terminal; NO_COLOR is heeded
    #[arg(long, value_enum, default_value_t)]
    pub color: ColorArg,
    /// Plain ASCII only
    #[arg(long)]
    pub ascii: bool,
}

#[derive(Debug, Args)]
pub struct HeatmapArgs {
    #[command(flatten)]
    pub input: InputArgs,
    /// Write to this file instead: .png or .html, by its name
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Which process, if several were watched [default: the one with most hot memory; HTML has them all]
    #[arg(long, value_name = "PID")]
    pub only: Option<u32>,
    #[command(flatten)]
    pub color: ColorArgs,
}

#[derive(Debug, Args)]
pub struct WssArgs {
    #[command(flatten)]
    pub input: InputArgs,
    /// Count pages accessed at least this often
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = positive_duration_ns)]
    pub interval: u64,
}

#[derive(Debug, Args)]
pub struct HistogramArgs {
    #[command(flatten)]
    pub input: InputArgs,
    /// One histogram for each process
    #[arg(long)]
    pub per_process: bool,
}

#[derive(Debug, Args)]
pub struct ClassArgs {
    #[command(flatten)]
    pub input: InputArgs,
    #[command(flatten)]
    pub thresholds: ThresholdArgs,
}

#[derive(Debug, Args)]
pub struct TopArgs {
    #[command(flatten)]
    pub targets: TargetArgs,
    #[command(flatten)]
    pub watch: WatchArgs,
    #[command(flatten)]
    pub thresholds: ThresholdArgs,
}

#[derive(Debug, Args)]
pub struct PlacementArgs {
    #[command(flatten)]
    pub targets: TargetArgs,
    /// Model a direct-mapped cache of this size [default: the one that this machine tells of]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub cache_size: Option<Bytes>,
    /// Weigh each page by how often it is accessed, as watched for ten seconds, or as --from or --watch say
    #[arg(long)]
    pub heat: bool,
    /// Weigh pages by the last snapshot of this recording (or file of damo); its processes, or those named
    #[arg(long, value_name = "RECORDING", conflicts_with_all = ["all", "cgroup", "command", "watch_for"])]
    pub from: Option<PathBuf>,
    /// Weigh pages by watching live for this long
    #[arg(long = "watch", value_name = "TIME", value_parser = positive_duration_ns)]
    pub watch_for: Option<u64>,
    #[command(flatten)]
    pub watch: WatchArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub color: ColorArgs,
}

#[derive(Debug, Args)]
pub struct HerdArgs {
    /// How long to watch; Ctrl-C ends it early, with what was seen
    #[arg(short, long, value_name = "TIME", default_value = "10s", value_parser = positive_duration_ns)]
    pub duration: u64,
    /// Columns to draw in [default: those of the terminal, or 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(20..))]
    pub width: Option<u16>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub color: ColorArgs,
}

/// How much may be done. What is not given comes from the configuration, or is the default.
#[derive(Clone, Copy, Debug, Default, Args)]
#[command(next_help_heading = "Budgets")]
pub struct BudgetArgs {
    /// Collapses a second [default: 20]
    #[arg(long, value_name = "N", value_parser = positive)]
    pub per_second: Option<f64>,
    /// CPU for collapsing, percent of one core; over 100 lifts the limit [default: 10]
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub max_collapse_cpu: Option<f64>,
    /// Time that a target may be held up by collapses, percent; over 100 lifts the limit [default: 5]
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub max_stall: Option<f64>,
    /// Growth of each process, percent of its resident memory; 0: none at all [default: 2]
    #[arg(long, value_name = "PERCENT", value_parser = percent_or_none)]
    pub max_growth: Option<f64>,
    /// Share of a block's pages that have to be present [default: 90%]
    #[arg(long, value_name = "PERCENT", value_parser = percent_or_none)]
    pub min_present: Option<f64>,
    /// Touches a second that a block has to have, all its pages together [default: 50]
    #[arg(long, value_name = "HZ", value_parser = positive)]
    pub min_benefit: Option<f64>,
    /// Available memory to leave alone, percent of all [default: 5]
    #[arg(long, value_name = "PERCENT", value_parser = percent_or_none)]
    pub headroom: Option<f64>,
    /// Free 2 MiB blocks to leave alone, so that nothing has to be compacted [default: 64]
    #[arg(long, value_name = "N")]
    pub free_blocks: Option<u64>,
    /// Memory pressure (PSI some, ten seconds) above which to wait, of the host or of the target's cgroup, percent [default: 10]
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub max_pressure: Option<f64>,
    /// Room to leave below each limit of the target's memory cgroups, percent of that limit and at least 8 MiB [default: 1]
    #[arg(long, value_name = "PERCENT", value_parser = percent_or_none)]
    pub cgroup_margin: Option<f64>,
    /// Also try memory of files and shared memory
    #[arg(long)]
    pub files: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OrderArg {
    /// What gains most first
    #[default]
    Heat,
    /// By address, all there is, as khugepaged does
    Address,
}

#[derive(Debug, Args)]
pub struct CollapseArgs {
    #[command(flatten)]
    pub targets: TargetArgs,
    #[command(flatten)]
    pub watch: WatchArgs,
    /// How long to watch first
    #[arg(short, long, value_name = "TIME", default_value = "15s", value_parser = positive_duration_ns)]
    pub duration: u64,
    /// Take the heat from this recording instead of watching; its processes, or those named
    #[arg(long, value_name = "RECORDING", conflicts_with_all = ["all", "cgroup", "command", "replay", "source"])]
    pub from: Option<PathBuf>,
    /// Only print what would be done
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// Which blocks first
    #[arg(long, value_enum, default_value_t)]
    pub order: OrderArg,
    /// Where hints come from
    #[arg(long, value_enum, default_value_t, value_name = "ORIGIN", conflicts_with_all = ["from", "replay"])]
    pub hints: HintsArg,
    /// Stop after this many blocks
    #[arg(long, value_name = "N")]
    pub most: Option<u64>,
    /// A command that prints how much work the targets have done so far: CPU for each unit is measured before and after
    #[arg(long, value_name = "COMMAND")]
    pub work: Option<String>,
    /// Print every block with what came of it
    #[arg(short, long)]
    pub verbose: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub budgets: BudgetArgs,
}

#[derive(Clone, Debug, Args)]
pub struct RunArgs {
    /// Settings (TOML); what is given here goes before them. SIGHUP reads them again
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub targets: TargetArgs,
    #[command(flatten)]
    pub watch: WatchArgs,
    /// End after this time [default: until Ctrl-C, or the targets end]
    #[arg(short, long, value_name = "TIME", value_parser = positive_duration_ns)]
    pub duration: Option<u64>,
    /// Only count what would be done
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// With no hint left, go through the rest by address, as khugepaged does
    #[arg(long)]
    pub round_robin: bool,
    /// Where hints come from [default: heat]
    #[arg(long, value_enum, value_name = "ORIGIN", conflicts_with = "replay")]
    pub hints: Option<HintsArg>,
    /// Where `isotherm status` and `isotherm hint` find this one [default: /run/isotherm.sock of root, $XDG_RUNTIME_DIR/isotherm.sock of others]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// A command that prints how much work the targets have done so far: CPU for each unit is told before and after
    #[arg(long, value_name = "COMMAND")]
    pub work: Option<String>,
    /// Print the summary as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub budgets: BudgetArgs,
}

#[derive(Debug, Args)]
pub struct HintArgs {
    /// Process that the ranges are of
    #[arg(short, long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub pid: Option<u32>,
    /// Address ranges, as in 7f0000000000-7f0000200000
    #[arg(value_name = "START-END", requires = "pid")]
    pub ranges: Vec<String>,
    /// File of hints, one a line: PID START-END [LEVEL]; - is standard input [default: -, without ranges]
    #[arg(short, long, value_name = "FILE", conflicts_with = "ranges")]
    pub file: Option<PathBuf>,
    /// Priority of the ranges, 0 to 31
    #[arg(long, value_name = "LEVEL", default_value_t = 31, value_parser = clap::value_parser!(u8).range(0..=31))]
    pub level: u8,
    /// Socket of the `isotherm run` to tell
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Socket of the `isotherm run` to ask
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn values_are_parsed_with_their_units() {
        assert_eq!(duration_ns("1m 30s"), Ok(90_000_000_000));
        assert_eq!(size("64MiB"), Ok(Bytes::of_mib(64)));
        assert_eq!(percent("0.5%"), Ok(0.5));
        for wrong in ["0", "-1", "nan", "inf", "many"] {
            assert!(percent(wrong).is_err(), "{wrong}");
        }
        assert!(window_ns("1ms").is_err() && positive_duration_ns("0s").is_err() && size("much").is_err());
    }
}
