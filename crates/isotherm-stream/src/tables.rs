//! The columns of each kind of row, and what a received value may be.

use crate::columns::{Cells, Kind, Row, Writer};
use crate::error::Result;
use crate::frame::MAX_PAGES;
use crate::rows::{ActionRow, EventRow, HostRow, IdleRow, MappingRow, PlanRow, ProcessRow, RegionRow};
use Kind::{Flag, Float, Int, Key, Optional, Text};
use isotherm_heat::{CgroupMemory, Histogram, Interval, Mapping, Region};
use isotherm_units::{Addr, AddrRange, Bytes, PAGE_SIZE};

/// The longest text that is sent, in bytes. Longer ones are cut: a path has at most 4,096.
pub const MAX_TEXT_BYTES: usize = 8192;

/// `text` up to the last character that ends within the limit.
fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_TEXT_BYTES)]
}

impl Row for HostRow {
    const NAME: &'static str = "host";
    const COLUMNS: &'static [(&'static str, Kind)] = &[
        ("start_unix_ns", Int),
        ("end_unix_ns", Key),
        ("hostname", Text),
        ("version", Text),
        ("source", Text),
        ("source_note", Text),
        ("kernel", Text),
        ("cpu", Text),
        ("cpus", Int),
        ("memory_bytes", Int),
        ("elapsed_ns", Int),
        ("monitor_cpu_ns", Int),
        ("slowdown_pct", Float),
        ("max_cpu_pct", Float),
        ("max_slowdown_pct", Float),
        ("read_errors", Int),
        ("unchecked_pmds", Int),
        ("all_pmds", Int),
        ("pages_read", Int),
        ("pages_cleared", Int),
        ("pages_retouched", Int),
        ("samples_lost", Int),
    ];

    fn put(&self, row: &mut Writer) {
        row.int(self.start_unix_ns);
        row.int(self.end_unix_ns);
        for text in [&self.hostname, &self.version, &self.source, &self.source_note, &self.kernel, &self.cpu] {
            row.text(cut(text));
        }
        for number in [u64::from(self.cpus), self.memory_bytes, self.elapsed_ns, self.monitor_cpu_ns] {
            row.int(number);
        }
        for number in [self.slowdown_pct, self.max_cpu_pct, self.max_slowdown_pct] {
            row.float(number);
        }
        let counters = [self.read_errors, self.unchecked_pmds, self.all_pmds, self.pages_read];
        for number in counters.into_iter().chain([self.pages_cleared, self.pages_retouched, self.samples_lost]) {
            row.int(number);
        }
    }

    fn take(row: &mut Cells<'_>) -> Result<HostRow> {
        Ok(HostRow {
            start_unix_ns: row.int(),
            end_unix_ns: row.int(),
            hostname: row.text(MAX_TEXT_BYTES)?,
            version: row.text(MAX_TEXT_BYTES)?,
            source: row.text(MAX_TEXT_BYTES)?,
            source_note: row.text(MAX_TEXT_BYTES)?,
            kernel: row.text(MAX_TEXT_BYTES)?,
            cpu: row.text(MAX_TEXT_BYTES)?,
            cpus: row.small()?,
            memory_bytes: row.int(),
            elapsed_ns: row.int(),
            monitor_cpu_ns: row.int(),
            slowdown_pct: row.float()?,
            max_cpu_pct: row.float()?,
            max_slowdown_pct: row.float()?,
            read_errors: row.int(),
            unchecked_pmds: row.int(),
            all_pmds: row.int(),
            pages_read: row.int(),
            pages_cleared: row.int(),
            pages_retouched: row.int(),
            samples_lost: row.int(),
        })
    }
}

/// The histograms are in a table of their own ([`HeatRow`]).
impl Row for ProcessRow {
    const NAME: &'static str = "processes";
    const COLUMNS: &'static [(&'static str, Kind)] = &[
        ("pid", Key),
        ("start_ticks", Key),
        ("comm", Text),
        ("cgroup", Text),
        ("exited", Flag),
        ("sampled", Flag),
        ("counted_elsewhere_pages", Int),
        ("estimated_pages", Int),
        ("unclearable_pages", Int),
        ("swapped_bytes", Optional),
        ("cgroup_memory_known", Flag),
        ("cgroup_anon_bytes", Int),
        ("cgroup_file_bytes", Int),
        ("cgroup_slab_bytes", Int),
        ("cgroup_swap_bytes", Int),
        ("cgroup_limit_bytes", Optional),
        ("left_bytes", Int),
        ("refaulted_bytes", Int),
        ("out_bytes", Int),
    ];

    fn put(&self, row: &mut Writer) {
        row.int(self.pid);
        row.int(self.start_ticks);
        row.text(cut(&self.comm));
        row.text(cut(&self.cgroup));
        row.flag(self.exited);
        row.flag(self.sampled);
        row.int(self.counted_elsewhere_pages);
        row.int(self.estimated_pages);
        row.int(self.unclearable_pages);
        row.optional(self.swapped_bytes);
        row.flag(self.cgroup_memory.is_some());
        let memory = self.cgroup_memory.unwrap_or_default();
        for part in [memory.anon, memory.file, memory.slab, memory.swap] {
            row.int(part.0);
        }
        row.optional(self.cgroup_limit_bytes);
        row.int(self.left_bytes);
        row.int(self.refaulted_bytes);
        row.int(self.out_bytes);
    }

    fn take(row: &mut Cells<'_>) -> Result<ProcessRow> {
        Ok(ProcessRow {
            pid: row.small()?,
            start_ticks: row.int(),
            comm: row.text(MAX_TEXT_BYTES)?,
            cgroup: row.text(MAX_TEXT_BYTES)?,
            exited: row.flag(),
            sampled: row.flag(),
            counted_elsewhere_pages: row.at_most(MAX_PAGES)?,
            estimated_pages: row.at_most(MAX_PAGES)?,
            unclearable_pages: row.at_most(MAX_PAGES)?,
            swapped_bytes: row.optional(),
            cgroup_memory: cgroup_memory(row),
            cgroup_limit_bytes: row.optional(),
            left_bytes: row.int(),
            refaulted_bytes: row.int(),
            out_bytes: row.int(),
            heat: Histogram::default(),
            heat_huge: Histogram::default(),
            idle: Histogram::default(),
        })
    }
}

fn cgroup_memory(row: &mut Cells<'_>) -> Option<CgroupMemory> {
    let is_known = row.flag();
    let mut part = || Bytes(row.int());
    let memory = CgroupMemory { anon: part(), file: part(), slab: part(), swap: part() };
    is_known.then_some(memory)
}

/// A histogram of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    Heat,
    Huge,
    Idle,
}

/// Pages of a process at one step of the scale.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeatRow {
    pub(crate) pid: u32,
    pub(crate) start_ticks: u64,
    pub(crate) which: Option<Which>,
    pub(crate) interval: Interval,
    pub(crate) pages: u64,
}

impl HeatRow {
    /// All steps of a process that hold pages.
    pub(crate) fn of(process: &ProcessRow) -> impl Iterator<Item = HeatRow> + '_ {
        let histograms =
            [(Which::Heat, &process.heat), (Which::Huge, &process.heat_huge), (Which::Idle, &process.idle)];
        histograms.into_iter().flat_map(move |(which, histogram)| {
            histogram.iter().map(move |(interval, pages)| HeatRow {
                pid: process.pid,
                start_ticks: process.start_ticks,
                which: Some(which),
                interval,
                pages,
            })
        })
    }
}

impl Row for HeatRow {
    const NAME: &'static str = "heat";
    const COLUMNS: &'static [(&'static str, Kind)] =
        &[("pid", Key), ("start_ticks", Key), ("histogram", Key), ("code", Key), ("pages", Key)];

    fn put(&self, row: &mut Writer) {
        row.int(self.pid);
        row.int(self.start_ticks);
        row.int(match self.which {
            Some(Which::Heat) => 0_u8,
            Some(Which::Huge) => 1,
            Some(Which::Idle) => 2,
            None => u8::MAX,
        });
        row.int(self.interval.code());
        row.int(self.pages);
    }

    fn take(row: &mut Cells<'_>) -> Result<HeatRow> {
        Ok(HeatRow {
            pid: row.small()?,
            start_ticks: row.int(),
            // A newer minor version may send further ones.
            which: match row.int() {
                0 => Some(Which::Heat),
                1 => Some(Which::Huge),
                2 => Some(Which::Idle),
                _ => None,
            },
            interval: Interval::from_code(row.small()?),
            pages: row.at_most(MAX_PAGES)?,
        })
    }
}

impl Row for RegionRow {
    const NAME: &'static str = "regions";
    const COLUMNS: &'static [(&'static str, Kind)] = &[
        ("pid", Key),
        ("start_ticks", Key),
        ("start_addr", Key),
        ("end_addr", Key),
        ("resident_pages", Key),
        ("measured_pages", Int),
        ("huge_pages", Int),
        ("code", Key),
        ("rate_hz", Float),
        ("age_ns", Int),
        ("idle_ns", Int),
        ("sampled_pages", Int),
        ("estimated_pages", Int),
        ("hot_pages", Optional),
    ];

    fn put(&self, row: &mut Writer) {
        let region = &self.region;
        row.int(self.pid);
        row.int(self.start_ticks);
        row.int(region.range.start.0);
        row.int(region.range.end.0);
        row.int(region.resident_pages);
        row.int(region.measured_pages);
        row.int(region.huge_pages);
        row.int(region.interval.code());
        row.float(region.rate_hz.into());
        row.int(region.age_ns);
        row.int(region.idle_ns);
        row.int(region.sampled_pages);
        row.int(region.estimated_pages);
        row.optional(region.hot_pages);
    }

    fn take(row: &mut Cells<'_>) -> Result<RegionRow> {
        Ok(RegionRow {
            pid: row.small()?,
            start_ticks: row.int(),
            region: Region {
                range: AddrRange::new(Addr(row.int()), Addr(row.int())),
                resident_pages: row.at_most(MAX_PAGES)?,
                measured_pages: row.at_most(MAX_PAGES)?,
                huge_pages: row.at_most(MAX_PAGES)?,
                interval: Interval::from_code(row.small()?),
                rate_hz: single(row.float()?),
                age_ns: row.int(),
                idle_ns: row.int(),
                sampled_pages: row.at_most(MAX_PAGES)?,
                estimated_pages: row.at_most(MAX_PAGES)?,
                hot_pages: row.optional(),
            },
        })
    }
}

#[expect(clippy::cast_possible_truncation, reason = "was an f32; others are clamped to its range")]
fn single(value: f64) -> f32 {
    value.clamp(f32::MIN.into(), f32::MAX.into()) as f32
}

impl Row for MappingRow {
    const NAME: &'static str = "mappings";
    const COLUMNS: &'static [(&'static str, Kind)] =
        &[("pid", Key), ("start_ticks", Key), ("start_addr", Key), ("end_addr", Key), ("name", Text), ("perms", Text)];

    fn put(&self, row: &mut Writer) {
        row.int(self.pid);
        row.int(self.start_ticks);
        row.int(self.mapping.range.start.0);
        row.int(self.mapping.range.end.0);
        row.text(cut(&self.mapping.name));
        row.text(&self.mapping.perms.to_string());
    }

    fn take(row: &mut Cells<'_>) -> Result<MappingRow> {
        Ok(MappingRow {
            pid: row.small()?,
            start_ticks: row.int(),
            mapping: Mapping {
                range: AddrRange::new(Addr(row.int()), Addr(row.int())),
                name: row.text(MAX_TEXT_BYTES)?,
                perms: row.text(4)?.parse().map_err(|error| row.out_of_range(error))?,
            },
        })
    }
}

impl Row for IdleRow {
    const NAME: &'static str = "idle";
    const COLUMNS: &'static [(&'static str, Kind)] =
        &[("pid", Key), ("start_ticks", Key), ("code", Key), ("pages", Key)];

    fn put(&self, row: &mut Writer) {
        row.int(self.pid);
        row.int(self.start_ticks);
        row.int(self.interval.code());
        row.int(self.pages);
    }

    fn take(row: &mut Cells<'_>) -> Result<IdleRow> {
        Ok(IdleRow {
            pid: row.small()?,
            start_ticks: row.int(),
            interval: Interval::from_code(row.small()?),
            pages: row.at_most(MAX_PAGES)?,
        })
    }
}

impl Row for ActionRow {
    const NAME: &'static str = "actions";
    const COLUMNS: &'static [(&'static str, Kind)] =
        &[("action", Text), ("result", Text), ("huge_ranges", Int), ("bytes", Int)];

    fn put(&self, row: &mut Writer) {
        row.text(cut(&self.action));
        row.text(cut(&self.result));
        row.int(self.huge_ranges);
        row.int(self.bytes);
    }

    fn take(row: &mut Cells<'_>) -> Result<ActionRow> {
        Ok(ActionRow {
            action: row.text(MAX_TEXT_BYTES)?,
            result: row.text(MAX_TEXT_BYTES)?,
            huge_ranges: row.int(),
            bytes: row.int(),
        })
    }
}

impl Row for EventRow {
    const NAME: &'static str = "events";
    const COLUMNS: &'static [(&'static str, Kind)] = &[("at_unix_ns", Key), ("text", Text)];

    fn put(&self, row: &mut Writer) {
        row.int(self.at_unix_ns);
        row.text(cut(&self.text));
    }

    fn take(row: &mut Cells<'_>) -> Result<EventRow> {
        Ok(EventRow { at_unix_ns: row.int(), text: row.text(MAX_TEXT_BYTES)? })
    }
}

impl Row for PlanRow {
    const NAME: &'static str = "plan";
    const COLUMNS: &'static [(&'static str, Kind)] = &[
        ("pid", Key),
        ("start_ticks", Key),
        ("action", Text),
        ("mapping_start_addr", Optional),
        ("huge_ranges", Int),
        ("bytes", Int),
        ("why_not", Text),
    ];

    fn put(&self, row: &mut Writer) {
        row.int(self.pid);
        row.int(self.start_ticks);
        row.text(cut(&self.action));
        row.optional(self.mapping_start_addr);
        row.int(self.huge_ranges);
        row.int(self.bytes);
        row.text(cut(&self.why_not));
    }

    fn take(row: &mut Cells<'_>) -> Result<PlanRow> {
        Ok(PlanRow {
            pid: row.small()?,
            start_ticks: row.int(),
            action: row.text(MAX_TEXT_BYTES)?,
            mapping_start_addr: row.optional(),
            huge_ranges: row.at_most(MAX_PAGES)?,
            bytes: row.at_most(MAX_PAGES * PAGE_SIZE)?,
            why_not: row.text(MAX_TEXT_BYTES)?,
        })
    }
}
