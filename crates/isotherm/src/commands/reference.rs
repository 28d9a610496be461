//! Makes the reference of every command and option, `docs/reference/commands.md`, from clap's definitions. Only tests make it: the page is
//! committed, and a test fails if it differs from what is made.
//!
//! Many commands share the options for what to watch and how. The page lists these once, at the end, and each command names the ones that
//! it takes.

use clap::{Arg, Command};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// An option is shared if at least this many commands take it with the same text.
const SHARED_BY: usize = 3;

/// The page, in Markdown.
pub fn page(root: &Command) -> String {
    let commands = visible(root, root.get_name());
    let shared = shared(&commands);
    let mut page = HEAD.trim_start().to_owned();
    for (path, command) in &commands {
        write_command(&mut page, path, command, &shared);
    }
    page.push_str("\n## Shared options\n");
    let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for option in &shared {
        groups.entry(&option.group).or_default().push(&option.text);
    }
    for (group, texts) in groups {
        let _ = writeln!(page, "\n### {group}\n");
        texts.into_iter().for_each(|text| page.push_str(text));
    }
    page
}

const HEAD: &str = "
# Commands

Made from the program's own help by `UPDATE_HELP=1 cargo test -p isotherm --bins`. Do not edit.

Every command prints its part with `--help`. Sizes and times are numbers with a unit (`64MiB`; `500ms`, `2s`, `1m`). Exit codes: 0
done, 1 failed, 2 wrong usage. A reader that closes the pipe ends a command without an error.
";

/// An option as the page describes it, and its group in the help.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Described {
    group: String,
    name: String,
    text: String,
}

/// The visible commands and their subcommands, in the order of the help.
fn visible<'a>(command: &'a Command, path: &str) -> Vec<(String, &'a Command)> {
    let mut all = Vec::new();
    for below in command.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help") {
        let path = format!("{path} {}", below.get_name());
        all.push((path.clone(), below));
        all.extend(visible(below, &path));
    }
    all
}

fn options(command: &Command) -> impl Iterator<Item = &Arg> {
    command.get_arguments().filter(|arg| !arg.is_hide_set() && arg.get_id() != "help" && arg.get_id() != "version")
}

fn shared(commands: &[(String, &Command)]) -> BTreeSet<Described> {
    let mut takers: BTreeMap<Described, usize> = BTreeMap::new();
    for option in commands.iter().flat_map(|(_, command)| options(command)) {
        *takers.entry(described(option)).or_default() += 1;
    }
    takers.into_iter().filter(|(_, takers)| *takers >= SHARED_BY).map(|(option, _)| option).collect()
}

fn write_command(page: &mut String, path: &str, command: &Command, shared: &BTreeSet<Described>) {
    let _ = writeln!(page, "\n## {path}\n");
    let about = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
    let _ = writeln!(page, "{}.", about.trim_end_matches('.'));
    let aliases: Vec<&str> = command.get_visible_aliases().collect();
    if !aliases.is_empty() {
        let _ = writeln!(page, "\nAlso: `{}`.", aliases.join("`, `"));
    }
    let usage = command.clone().bin_name(path).render_usage().to_string();
    let _ = writeln!(page, "\n```text\n{}\n```\n", usage.trim_start_matches("Usage: ").trim());
    let (common, own): (Vec<_>, Vec<_>) = options(command).map(described).partition(|option| shared.contains(option));
    own.iter().for_each(|option| page.push_str(&option.text));
    if !common.is_empty() {
        let names: Vec<String> = common.iter().map(|option| format!("`{}`", option.name)).collect();
        let _ = writeln!(page, "\nIt also takes [shared options](#shared-options): {}.", names.join(", "));
    }
}

fn described(option: &Arg) -> Described {
    let values: Vec<&str> =
        option.get_value_names().unwrap_or_default().iter().map(clap::builder::Str::as_str).collect();
    let takes = option.get_action().takes_values() && !option.is_positional();
    let long = option.get_long().map(|long| format!("--{long}"));
    let short = option.get_short().map(|short| format!("-{short}"));
    let name = long.clone().or(short.clone()).unwrap_or_else(|| values.join(" "));
    let spelled: Vec<String> = short.into_iter().chain(long).map(|flag| format!("`{flag}`")).collect();
    let spelled = if spelled.is_empty() { format!("`{name}`") } else { spelled.join(", ") };
    let value = if takes && !values.is_empty() { format!(" `<{}>`", values.join("> <")) } else { String::new() };
    let help = option.get_long_help().or(option.get_help()).map(ToString::to_string).unwrap_or_default();
    let mut text =
        format!("- {spelled}{value}: {}{}\n", help.replace("\n\n", " ").replace('\n', " "), defaults(option));
    for possible in option.get_possible_values().iter().filter(|_| takes).filter(|value| !value.is_hide_set()) {
        let meaning = possible.get_help().map(|help| format!(": {help}")).unwrap_or_default();
        let _ = writeln!(text, "  - `{}`{meaning}", possible.get_name());
    }
    Described { group: option.get_help_heading().unwrap_or("Output").to_owned(), name, text }
}

/// The default value, and the environment variable that overrides it.
fn defaults(option: &Arg) -> String {
    let defaults: Vec<String> = option.get_default_values().iter().map(|v| v.to_string_lossy().into_owned()).collect();
    let shown = option.get_action().takes_values() && !defaults.is_empty();
    let mut text = if shown { format!(" (default: `{}`)", defaults.join(" ")) } else { String::new() };
    if let Some(variable) = option.get_env() {
        let _ = write!(text, " (environment: `{}`)", variable.to_string_lossy());
    }
    text
}
