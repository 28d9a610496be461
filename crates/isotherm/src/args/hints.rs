//! Where hints at hot blocks come from: the heat map or the kernel.

use clap::ValueEnum;
use isotherm_schemes::plan::HintSource;

/// Where hints at hot blocks come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum HintsArg {
    /// The heat map
    #[default]
    Heat,
    /// The kernel's multi-generation LRU, which is aged once a window: all processes in the cgroups of the targets
    Mglru,
    /// Both: a block goes by the higher level
    Both,
}

impl From<HintsArg> for HintSource {
    fn from(arg: HintsArg) -> HintSource {
        match arg {
            HintsArg::Heat => HintSource::Heat,
            HintsArg::Mglru => HintSource::Mglru,
            HintsArg::Both => HintSource::Both,
        }
    }
}
