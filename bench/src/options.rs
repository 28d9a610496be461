//! The options that benchmark programs share.
//!
//! A run takes minutes to an hour, so what is not understood is refused before it begins.

use anyhow::{Context, Result, bail, ensure};

/// Printed for `--help`.
const USAGE: &str =
    "Options: --only PART (cases whose name contains it), --trials N, --full (large cases too, where there are some)";

/// What a program was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    /// Names of cases have to contain it; empty: all.
    pub only: String,
    /// How often each case runs; `None`: as often as is usual for the program.
    pub trials: Option<usize>,
    /// Large cases too.
    pub full: bool,
    /// Print what there is, and do nothing.
    pub help: bool,
}

impl Options {
    /// Those of this process. Exits for `--help`, and with 2 for options that nothing reads.
    pub fn of_this_process() -> Options {
        match Options::parse(std::env::args().skip(1)) {
            Ok(options) if options.help => {
                println!("{USAGE}");
                std::process::exit(0);
            }
            Ok(options) => options,
            Err(error) => {
                eprintln!("error: {error}");
                std::process::exit(2);
            }
        }
    }

    /// Reads arguments, without the name of the program.
    pub fn parse(args: impl IntoIterator<Item = String>) -> Result<Options> {
        let (mut options, mut args) = (Options::default(), args.into_iter());
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--only" => options.only = args.next().context("--only needs a part of a case's name")?,
                "--trials" => options.trials = Some(trials(args.next())?),
                "--full" => options.full = true,
                "--help" | "-h" => options.help = true,
                other => bail!("unknown option {other:?}. {USAGE}"),
            }
        }
        Ok(options)
    }
}

fn trials(text: Option<String>) -> Result<usize> {
    let trials = text.and_then(|n| n.parse().ok()).context("--trials needs a number")?;
    ensure!(trials > 0, "--trials needs at least 1");
    Ok(trials)
}

#[cfg(test)]
mod tests {
    use super::Options;

    fn parse(line: &str) -> Result<Options, String> {
        Options::parse(line.split_whitespace().map(String::from)).map_err(|e| e.to_string())
    }

    #[test]
    fn options_are_read() {
        assert_eq!(parse(""), Ok(Options::default()));
        let given = Options { only: "reads".into(), trials: Some(3), ..Options::default() };
        assert_eq!(parse("--trials 3 --only reads"), Ok(given));
        assert_eq!(parse("--full"), Ok(Options { full: true, ..Options::default() }));
        assert_eq!(parse("-h"), Ok(Options { help: true, ..Options::default() }));
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for line in ["--tirals 3", "reads", "--only", "--trials", "--trials 0", "--trials some"] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
