//! The command line, and what is wrong usage before anything is opened.

use crate::PROGRAM;
use crate::plan;
use crate::store::To;
use clap::{ArgGroup, CommandFactory, Parser, ValueEnum};
use clap_complete::Shell;
use clap_mangen::Man;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// The wait after a failure doubles up to this.
const MAX_BACKOFF: Duration = Duration::from_secs(600);

/// Sends rollups of this host to a store: rows of five minutes by service, an object for each table and hour.
#[derive(Clone, Debug, Parser)]
#[command(version, group = ArgGroup::new("what").required(true).args(["connect", "once", "status", "print"]), after_help = "\
Credentials of a store come from the environment (AWS_..., GOOGLE_..., AZURE_...) or from --credentials.
Exit codes: 0 done, or ended by SIGTERM or SIGINT; 1 failed; 2 wrong usage.")]
pub struct Args {
    /// The socket of a monitor: `isotherm run --stream SOCKET`
    #[arg(long, value_name = "SOCKET", requires_all = ["spool", "to"])]
    pub connect: Option<PathBuf>,
    /// Send what is in the spool, and end
    #[arg(long, requires_all = ["spool", "to"])]
    pub once: bool,
    /// Print what waits in a spool, what was sent and dropped, and the last error
    #[arg(long, value_name = "SPOOL", conflicts_with_all = ["spool", "to"])]
    pub status: Option<PathBuf>,
    /// Print a file made from these options, for packages, and end
    #[arg(long, value_name = "WHAT", hide = true, conflicts_with_all = ["spool", "to"])]
    pub print: Option<Print>,
    /// Print that as JSON
    #[arg(long, requires = "status", conflicts_with_all = ["connect", "once"])]
    pub json: bool,
    /// The folder for what waits; it is made if it is not there, and readable by its owner only
    #[arg(long, value_name = "DIR")]
    pub spool: Option<PathBuf>,
    /// The store: a folder, file:///folder, s3://bucket/prefix, gs://bucket/prefix or az://container/prefix
    #[arg(long, value_name = "STORE", value_parser = To::parse)]
    pub to: Option<To>,
    /// A file of credentials and settings of the store, lines of NAME=value, which win over the environment
    #[arg(long, value_name = "FILE")]
    pub credentials: Option<PathBuf>,
    /// Settings (TOML) with rules for the names of services, as `isotherm rollup` takes them. SIGHUP reads them again, and the credentials
    #[arg(long, value_name = "FILE")]
    pub settings: Option<PathBuf>,
    /// The name of this host in its rows, where that of the kernel is another one after each start, as in a pod
    #[arg(long, value_name = "NAME", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub hostname: Option<String>,
    /// Snapshots that come more often than this are joined before they are added up
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = duration)]
    pub every: Duration,
    /// Bytes that may wait; the oldest objects are dropped first
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = size)]
    pub spool_size: u64,
    /// The interval over which hosts spread their uploads; 0s: send at once
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = duration)]
    pub spread: Duration,
    /// Objects that are sent at a time
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub concurrency: u8,
    /// How long the store may take for an object
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = positive_duration)]
    pub timeout: Duration,
    /// The longest wait after the first failure; it doubles with each, up to 10 minutes
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = positive_duration)]
    pub backoff: Duration,
    /// Confine nothing, to find out what a sandbox prevents
    #[arg(long, hide = true)]
    pub no_sandbox: bool,
}

/// A file made from the options.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Print {
    /// The manual page.
    ManPage,
    /// Completions for bash.
    Bash,
    /// Completions for zsh.
    Zsh,
    /// Completions for fish.
    Fish,
}

impl Print {
    /// The file.
    pub fn bytes(self) -> io::Result<Vec<u8>> {
        let mut file = Vec::new();
        let shell = match self {
            Print::ManPage => {
                let man = Man::new(Args::command()).manual("Isotherm Manual");
                man.source(format!("isotherm {}", env!("CARGO_PKG_VERSION"))).render(&mut file)?;
                return Ok(file);
            }
            Print::Bash => Shell::Bash,
            Print::Zsh => Shell::Zsh,
            Print::Fish => Shell::Fish,
        };
        clap_complete::generate(shell, &mut Args::command(), PROGRAM, &mut file);
        Ok(file)
    }
}

impl Args {
    /// How objects are sent.
    pub fn plan(&self) -> plan::Settings {
        plan::Settings {
            spread: if self.once { Duration::ZERO } else { self.spread },
            concurrency: usize::from(self.concurrency),
            backoff: self.backoff,
            max_backoff: MAX_BACKOFF.max(self.backoff),
        }
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|error| format!("{error}; write a time like 500ms, 10s or 2m"))
}

fn positive_duration(text: &str) -> Result<Duration, String> {
    duration(text).and_then(|time| if time.is_zero() { Err("has to be longer than nothing".into()) } else { Ok(time) })
}

/// A MiB at least: an hour of a small host.
fn size(text: &str) -> Result<u64, String> {
    let size = text.parse::<bytesize::ByteSize>().map_err(|_| "write a size like 64MiB or 2GiB".to_owned())?;
    if size.0 < 1 << 20 { Err("has to be 1MiB or more".into()) } else { Ok(size.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Args, String> {
        Args::try_parse_from(line.split(' ')).map_err(|error| error.to_string())
    }

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn the_manual_page_and_the_completions_have_every_option() {
        let command = Args::command();
        let shown: Vec<&str> =
            command.get_arguments().filter(|arg| !arg.is_hide_set()).filter_map(|arg| arg.get_long()).collect();
        assert!(shown.len() > 10, "{shown:?}");
        for what in [Print::ManPage, Print::Bash, Print::Zsh, Print::Fish] {
            let file = String::from_utf8(what.bytes().unwrap()).unwrap().replace("\\-", "-");
            for option in &shown {
                assert!(file.contains(option), "{what:?} has no {option}");
            }
        }
    }

    #[test]
    fn what_is_wrong_usage() {
        for bad in [
            "x",
            "x --connect s",
            "x --connect s --spool d",
            "x --connect s --to d",
            "x --connect s --spool d --to d --status d",
            "x --connect s --once --spool d --to d",
            "x --once --spool d",
            "x --once --spool d --to ftp://h/d",
            "x --connect s --spool d --to d --spool-size 12",
            "x --connect s --spool d --to d --timeout 0s",
            "x --connect s --spool d --to d --concurrency 0",
            "x --connect s --spool d --to d --json",
        ] {
            assert!(parsed(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn defaults_and_what_sending_once_changes() {
        let args = parsed("x --connect s --spool d --to out").unwrap();
        assert_eq!((args.spool_size, args.plan().spread), (256 << 20, Duration::from_secs(600)));
        let args = parsed("x --once --spool d --to file:///out --backoff 1h").unwrap();
        assert_eq!((args.plan().spread, args.plan().max_backoff), (Duration::ZERO, Duration::from_secs(3600)));
        assert!(parsed("x --status d --json").is_ok());
    }
}
