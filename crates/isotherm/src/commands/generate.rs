//! `isotherm generate`: manual pages and completions, from the definitions that the command line is parsed by. Packages have both; this
//! is for those who build packages, and for programs that were installed without one.

use crate::commands::Cli;
use crate::commands::plan::Plan;
use crate::output;
use crate::privileges::Needs;
use anyhow::{Context, Result};
use clap::{Args, Command, CommandFactory, Subcommand, ValueEnum};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub struct GenerateArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Manual pages, one for each command, into a folder
    Man {
        /// The folder; it is made if it is not there
        #[arg(value_name = "DIR")]
        to: PathBuf,
    },
    /// What makes a shell complete commands and options, on standard output
    Completions {
        /// The shell
        shell: ShellArg,
    },
}

/// Shells that are completed for.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum ShellArg {
    /// Source it from ~/.bashrc, or save it as isotherm in the folder of bash-completion
    Bash,
    /// Save it as _isotherm in a folder of $fpath
    Zsh,
    /// Save it as ~/.config/fish/completions/isotherm.fish
    Fish,
}

impl Plan for GenerateArgs {
    fn needs(&self) -> Needs {
        Needs::Files
    }

    fn run(&self) -> Result<()> {
        match &self.what {
            What::Man { to } => pages(to),
            What::Completions { shell } => {
                let mut out = output::stdout();
                out.write_all(&completions(*shell))?;
                Ok(out.flush()?)
            }
        }
    }
}

fn completions(shell: ShellArg) -> Vec<u8> {
    let shell = match shell {
        ShellArg::Bash => Shell::Bash,
        ShellArg::Zsh => Shell::Zsh,
        ShellArg::Fish => Shell::Fish,
    };
    let (mut command, mut script) = (without_hidden(&Cli::command()), Vec::new());
    clap_complete::generate(shell, &mut command, "isotherm", &mut script);
    script
}

/// The command without those that only our own programs start: a shell would offer them.
fn without_hidden(command: &Command) -> Command {
    let shown = command.get_subcommands().filter(|below| !below.is_hide_set()).map(without_hidden);
    let bare = Command::new(command.get_name().to_owned());
    let bare = bare.args(command.get_arguments().cloned()).subcommands(shown.collect::<Vec<_>>());
    let bare = command.get_version().map_or(bare.clone(), |version| bare.version(version.to_owned()));
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    bare.about(about).visible_aliases(command.get_visible_aliases().map(str::to_owned).collect::<Vec<_>>())
}

/// Writes the pages of all commands that the help shows.
fn pages(to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("make the folder {}", to.display()))?;
    let mut root = Cli::command().disable_help_subcommand(true);
    root.build();
    let mut names = Vec::new();
    shown(&root, &mut names);
    for command in &names {
        let path = to.join(format!("{}.1", name(command)));
        let file = File::create(&path).with_context(|| format!("create {}", path.display()))?;
        let mut out = BufWriter::new(file);
        page(command, &names, &mut out)
            .and_then(|()| out.flush())
            .with_context(|| format!("write {}", path.display()))?;
    }
    Ok(())
}

fn shown(command: &Command, all: &mut Vec<Command>) {
    all.push(command.clone());
    command.get_subcommands().filter(|below| !below.is_hide_set()).for_each(|below| shown(below, all));
}

/// `isotherm-report-wss`.
fn name(command: &Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

/// One page, with a section on exit codes and one on the other pages.
fn page(command: &Command, all: &[Command], out: &mut dyn Write) -> io::Result<()> {
    let source = format!("isotherm {}", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command.clone()).source(source).manual("Isotherm Manual").title(name(command).to_uppercase());
    man.render(out)?;
    let mut end = Roff::new();
    end.control("SH", ["EXIT STATUS"]);
    end.text([bold("0"), roman(" done; "), bold("1"), roman(" failed; "), bold("2"), roman(" wrong usage.")]);
    end.control("SH", ["SEE ALSO"]);
    let others = all.iter().map(name).filter(|other| *other != name(command));
    let mut list = Vec::new();
    for other in others {
        let comma = if list.is_empty() { "" } else { ", " };
        list.extend([roman(comma), bold(other), roman("(1)")]);
    }
    end.text(list);
    end.to_writer(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Arg;

    #[test]
    fn every_shown_option_is_in_the_page_of_its_command() {
        let dir = tempfile::tempdir().unwrap();
        pages(dir.path()).unwrap();
        let mut root = Cli::command().disable_help_subcommand(true);
        root.build();
        let (mut all, mut options) = (Vec::new(), 0);
        shown(&root, &mut all);
        for command in &all {
            let page = fs::read_to_string(dir.path().join(format!("{}.1", name(command)))).unwrap();
            for option in command.get_arguments().filter(|arg| !arg.is_hide_set()).filter_map(Arg::get_long) {
                options += 1;
                let written = format!("\\-\\-{}", option.replace('-', "\\-"));
                assert!(page.contains(&written), "{} has no {option}", name(command));
            }
        }
        assert!(all.len() > 30 && options > 200, "{} pages, {options} options", all.len());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), all.len(), "no page of another name");
    }

    #[test]
    fn what_is_hidden_has_no_page_and_is_not_completed() {
        let dir = tempfile::tempdir().unwrap();
        pages(dir.path()).unwrap();
        assert!(!dir.path().join("isotherm-demo-workload.1").exists());
        for shell in [ShellArg::Bash, ShellArg::Zsh, ShellArg::Fish] {
            let script = String::from_utf8(completions(shell)).unwrap();
            assert!(script.contains("heatmap") && !script.contains("internal-work-runner"), "{shell:?}");
        }
    }
}
