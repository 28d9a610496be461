//! The options of benchmark programs, and the refusal of all others.
//!
//! A run takes minutes to an hour, so what is not understood is refused before it begins.

use clap::Parser;

const ABOUT: &str = "A benchmark. What it measures, and how, is in the first comment of its source";

/// The options that most programs share. Parsing exits for `--help`, and with 2 for options that nothing reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Parser)]
#[command(about = ABOUT)]
pub(crate) struct Options {
    /// Only cases whose name contains this
    #[arg(long, value_name = "PART", default_value = "")]
    pub only: String,
    /// Run each case so often [default: as often as the published result]
    #[arg(long, value_name = "N", value_parser = trials)]
    pub trials: Option<usize>,
    /// Large cases too, where there are some
    #[arg(long)]
    pub full: bool,
}

/// For a program that has none.
#[derive(Parser)]
#[command(about = ABOUT)]
struct NoOptions {}

/// Exits for `--help`, and with 2 for any option: this program has none.
pub fn take_no_options() {
    NoOptions::parse();
}

fn trials(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|n| *n > 0).ok_or_else(|| "give 1 or more".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, String> {
        Options::try_parse_from(["bench"].into_iter().chain(line.split_whitespace())).map_err(|e| e.to_string())
    }

    #[test]
    fn options_are_read() {
        assert_eq!(parse(""), Ok(Options::default()));
        let given = Options { only: "reads".into(), trials: Some(3), ..Options::default() };
        assert_eq!(parse("--trials 3 --only reads"), Ok(given));
        assert_eq!(parse("--full"), Ok(Options { full: true, ..Options::default() }));
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for line in ["--tirals 3", "reads", "--only", "--trials", "--trials 0", "--trials some"] {
            assert!(parse(line).is_err(), "{line}");
        }
        assert!(NoOptions::try_parse_from(["bench", "--trials", "3"]).is_err());
    }
}
