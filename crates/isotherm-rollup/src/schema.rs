//! The seven tables, in one place: names and types of their columns, in order.
//!
//! `docs/reference/rollups.md` describes them for those who query; a test compares the two. [`columns`](crate::columns) holds rows
//! of these, `rows` makes them.

use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use std::sync::Arc;

/// The version of the format that is written, and the greatest that is read.
pub const VERSION: u32 = 1;
/// The name of the format, in the metadata of each object.
pub const FORMAT: &str = "isotherm-rollup";

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// A moment in UTC, microseconds since the epoch.
    Time,
    /// Text in UTF-8.
    Text,
    /// An integer. The unit is in the name of the column.
    Int,
    /// An integer that may be unknown.
    Nullable,
    /// A number.
    Float,
}

impl Type {
    /// As Arrow has it.
    pub fn data_type(self) -> DataType {
        match self {
            Type::Time => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Type::Text => DataType::Utf8,
            Type::Int | Type::Nullable => DataType::Int64,
            Type::Float => DataType::Float64,
        }
    }
}

/// A table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Table {
    /// A row for each host and interval.
    Hosts,
    /// A row for each service, cgroup and interval.
    Wss,
    /// Pages by access interval.
    Heat,
    /// Pages by idle time.
    Idle,
    /// Pages found accessed, by the idle time before.
    Refaults,
    /// Huge ranges by the benefit of a huge page.
    HugeOpportunity,
    /// What was done to memory, and why it was not.
    Actions,
}

use Type::{Float, Int, Nullable, Text, Time};

const HOSTS: &[(&str, Type)] = &[
    ("time", Time),
    ("host", Text),
    ("hostname", Text),
    ("machine_id", Text),
    ("boot_id", Text),
    ("kernel", Text),
    ("version", Text),
    ("source", Text),
    ("cpu", Text),
    ("cpus", Int),
    ("memory_bytes", Int),
    ("covered_ns", Int),
    ("snapshots", Int),
    ("lost_snapshots", Int),
    ("resident_bytes", Int),
    ("unmeasured_bytes", Int),
    ("estimated_bytes", Int),
    ("monitor_cpu_ns", Int),
    ("read_errors", Int),
    ("slowdown_pct", Float),
    ("clock_skew_ns", Int),
];

const WSS: &[(&str, Type)] = &[
    ("time", Time),
    ("host", Text),
    ("service", Text),
    ("cgroup", Text),
    ("labels", Text),
    ("processes", Int),
    ("covered_ns", Int),
    ("resident_bytes", Int),
    ("resident_max_bytes", Int),
    ("wss_10s_bytes", Int),
    ("wss_1m_bytes", Int),
    ("wss_10m_bytes", Int),
    ("wss_1h_bytes", Int),
    ("wss_10s_max_bytes", Int),
    ("wss_1m_max_bytes", Int),
    ("wss_10m_max_bytes", Int),
    ("wss_1h_max_bytes", Int),
    ("unmeasured_bytes", Int),
    ("swapped_bytes", Nullable),
    ("limit_bytes", Nullable),
    ("request_bytes", Nullable),
    ("cgroup_anon_bytes", Nullable),
    ("cgroup_file_bytes", Nullable),
    ("cgroup_slab_bytes", Nullable),
    ("left_bytes", Int),
    ("refaulted_bytes", Int),
];

const HEAT: &[(&str, Type)] = &[
    ("time", Time),
    ("host", Text),
    ("service", Text),
    ("cgroup", Text),
    ("kind", Text),
    ("code", Int),
    ("pages", Int),
    ("huge_pages", Int),
    ("swapped_pages", Int),
];

const BY_CODE: &[(&str, Type)] =
    &[("time", Time), ("host", Text), ("service", Text), ("cgroup", Text), ("code", Int), ("pages", Int)];

const HUGE_OPPORTUNITY: &[(&str, Type)] = &[
    ("time", Time),
    ("host", Text),
    ("service", Text),
    ("cgroup", Text),
    ("level", Int),
    ("ranges", Int),
    ("huge_ranges", Int),
];

const ACTIONS: &[(&str, Type)] = &[
    ("time", Time),
    ("host", Text),
    ("action", Text),
    ("result", Text),
    ("huge_ranges", Int),
    ("bytes", Int),
    ("refaulted_bytes", Int),
];

/// By which columns an object is sorted, as far as its table has them.
pub(crate) const SORTED_BY: [&str; 8] = ["service", "cgroup", "time", "kind", "code", "level", "action", "result"];

impl Table {
    /// All tables.
    pub const ALL: [Table; 7] =
        [Table::Hosts, Table::Wss, Table::Heat, Table::Idle, Table::Refaults, Table::HugeOpportunity, Table::Actions];

    /// Its name in paths and in the documentation.
    pub fn name(self) -> &'static str {
        match self {
            Table::Hosts => "hosts",
            Table::Wss => "wss",
            Table::Heat => "heat",
            Table::Idle => "idle",
            Table::Refaults => "refaults",
            Table::HugeOpportunity => "huge_opportunity",
            Table::Actions => "actions",
        }
    }

    /// The table of this name.
    pub fn of_name(name: &str) -> Option<Table> {
        Table::ALL.into_iter().find(|table| table.name() == name)
    }

    /// Names and types of its columns, in order.
    pub fn columns(self) -> &'static [(&'static str, Type)] {
        match self {
            Table::Hosts => HOSTS,
            Table::Wss => WSS,
            Table::Heat => HEAT,
            Table::Idle | Table::Refaults => BY_CODE,
            Table::HugeOpportunity => HUGE_OPPORTUNITY,
            Table::Actions => ACTIONS,
        }
    }

    /// Its schema as a reader of an object sees it.
    pub fn schema(self) -> SchemaRef {
        let field = |(name, kind): &(&str, Type)| Field::new(*name, kind.data_type(), *kind == Type::Nullable);
        Arc::new(Schema::new(self.columns().iter().map(field).collect::<Vec<_>>()))
    }
}
