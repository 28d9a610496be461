//! Where hints about hot huge ranges come from: the heat map or the kernel.

use clap::ValueEnum;
use isotherm_schemes::plan::HintSource;

/// Where hints about hot huge ranges come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum HintsArg {
    /// The heat map
    #[default]
    Heat,
    /// The kernel's multi-generation LRU. It is aged once per window, for all processes in the cgroups of the targets
    Mglru,
    /// Both: the higher level of a huge range counts
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
