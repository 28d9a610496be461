//! Colours and characters of what is drawn in a terminal. [`crate::output`] makes a style of it.

use clap::{Args, ValueEnum};

/// When to colour.
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

/// What the terminal may show.
#[derive(Clone, Copy, Debug, Args)]
pub struct ColorArgs {
    /// Colours in the terminal; NO_COLOR is respected
    #[arg(long, value_enum, default_value_t)]
    pub color: ColorArg,
    /// Plain ASCII only
    #[arg(long)]
    pub ascii: bool,
}
