//! Where hints at hot blocks come from: the heat map or the kernel.

use clap::ValueEnum;

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
