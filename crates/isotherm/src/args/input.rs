//! The input of a report: a recording, or what is watched now.

use crate::args::targets::TargetArgs;
use crate::args::usage::Usage;
use crate::args::values::positive_duration_ns;
use crate::args::watching::WatchArgs;
use crate::privileges::Needs;
use clap::Args;
use std::path::PathBuf;

const DURATION_NS: u64 = 10_000_000_000;
const IDLE_DURATION_NS: u64 = 20_000_000_000;

/// From a recording, or live.
#[derive(Clone, Debug, Args)]
pub struct InputArgs {
    /// Recording to read, or a file of damo [default: heat.isotherm if no target is given]
    #[arg(value_name = "RECORDING", conflicts_with_all = ["pids", "cgroup", "all", "command"])]
    pub recording: Option<PathBuf>,
    /// Watch live for this long [default: 10s; of cold memory and refaults 20s; a replay to its end]
    #[arg(short, long, value_name = "TIME", value_parser = positive_duration_ns)]
    pub duration: Option<u64>,
    #[arg(skip = DURATION_NS)]
    default_duration_ns: u64,
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

    /// The same, but watched for long enough to see memory that is idle for ten seconds.
    pub fn of_idle_memory(self) -> InputArgs {
        InputArgs { default_duration_ns: IDLE_DURATION_NS, ..self }
    }

    /// For how long to watch live.
    pub fn duration_ns(&self) -> u64 {
        self.duration.unwrap_or(self.default_duration_ns)
    }

    /// Fails if it is said how to watch, and not what: a recording would be read, of another time than its user thinks of.
    pub fn check(&self) -> Result<(), Usage> {
        if !self.is_recorded() {
            let clash = "a recording is named, and something else to watch (--replay, --model or a source of physical memory): leave one of them out";
            return if self.recording.is_some() { Err(Usage(clash.to_owned())) } else { Ok(()) };
        }
        let of_duration = self.duration.is_some().then_some("--duration");
        let given = of_duration.or_else(|| self.watch.given_by_hand());
        given.map_or(Ok(()), |option| {
            Err(Usage(format!(
                "{option} is for watching live, and a recording would be read here: name what to watch (-p PID, --cgroup PATH, --all, or -- COMMAND), or leave it out"
            )))
        })
    }

    /// The privileges that reading or watching it needs.
    pub fn needs(&self) -> Needs {
        if self.is_recorded() { Needs::Files } else { self.targets.needs() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        input: InputArgs,
    }

    #[test]
    fn how_to_watch_is_not_ignored_where_a_recording_is_read() {
        let parsed = |line: &[&str]| Line::try_parse_from(["wss"].iter().chain(line)).unwrap().input;
        let check = |line: &[&str]| parsed(line).check().map_err(|Usage(text)| text);
        for line in [
            ["-d", "1m"],
            ["--source", "perf"],
            ["--clear", "refs"],
            ["--event", "faults"],
            ["--max-slowdown", "5"],
            ["--mode", "whole"],
            ["--max-regions", "9"],
            ["--max-region", "1GiB"],
            ["--sample-interval", "2s"],
            ["--intervals-goal", "off"],
            ["--seed", "3"],
            ["-w", "1s"],
        ] {
            let said = check(&line).unwrap_err();
            let option = said.split(' ').next().unwrap();
            assert!(line[0] == option || option.starts_with(&format!("-{}", line[0])), "{line:?}: {said}");
            assert_eq!(check(&[["-p", "7"], line].concat()), Ok(()), "{line:?}");
        }
        let of_cpu = parsed(&["--max-cpu", "5"]).watch;
        assert_eq!([false, true].map(|by_environment| of_cpu.given(by_environment)), [Some("--max-cpu"), None]);
        assert!(check(&["--beside"]).unwrap_err().starts_with("--beside"));
        assert_eq!((check(&[]), check(&["a.isotherm", "--json"])), (Ok(()), Ok(())));
        assert_eq!(check(&["a.isotherm", "--max-regions", "1000"]), Ok(()), "as it is anyway");
    }
}
