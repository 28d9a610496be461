//! Settings of `isotherm run` from a file. The command line overrides them. What neither sets has a default.

use crate::args::socket::default_socket;
use crate::args::targets::TargetArgs;
use crate::args::watching::WatchArgs;
use crate::commands::run::args::RunArgs;
use crate::commands::run::migrate::is_of_tiers;
use crate::commands::run::trust;
use crate::input;
use anyhow::{Context, Result};
use isotherm_schemes::Budgets;
use isotherm_schemes::collapse::Rules;
use isotherm_schemes::plan::HintSource;
use isotherm_schemes::scheme::{Does, Scheme};
use isotherm_schemes::settings::File;
use isotherm_units::Bytes;
use std::path::{Path, PathBuf};

/// The effective settings.
#[derive(Clone, Debug)]
pub struct Config {
    pub targets: TargetArgs,
    pub watch: WatchArgs,
    pub rules: Rules,
    pub schemes: Vec<Scheme>,
    /// What gives cgroups to schemes.
    pub assignments: Option<PathBuf>,
    pub budgets: Budgets,
    /// Only what would be done is counted.
    pub dry_run: bool,
    pub round_robin: bool,
    pub hints: HintSource,
    pub socket: PathBuf,
    pub stream: Option<PathBuf>,
    pub stream_group: Option<String>,
    pub work: Option<String>,
}

/// The largest file that is read. Settings take a few hundred bytes.
const MAX_FILE: Bytes = Bytes(1 << 16);

impl Config {
    /// Reads the file that `args` name, if any. `args` override it.
    pub fn load(args: &RunArgs) -> Result<Config> {
        let file = match &args.config {
            Some(path) => parse(path, Wanted::by(args))?,
            None => File::default(),
        };
        let schemes = file.schemes()?;
        let mut targets = args.targets.clone();
        if targets.is_empty() {
            targets.pids = file.targets.pids;
            targets.cgroup = file.targets.cgroup;
            targets.all = file.targets.all;
        }
        targets.no_children |= file.targets.no_children;
        let mut watch = args.watch.clone();
        watch.max_cpu = watch.max_cpu.or(file.watch.max_cpu);
        watch.max_slowdown = watch.max_slowdown.or(file.watch.max_slowdown);
        watch.window = watch.window.or(file.watch.window_ns()?);
        let defaults = Rules::default();
        let rules = Rules {
            min_benefit_hz: file.rules.min_benefit_hz.unwrap_or(defaults.min_benefit_hz),
            files: file.rules.files,
            ..defaults
        };
        let (rules, budgets) = args.budgets.over(rules, file.budgets);
        let socket = args.socket.clone().or(file.socket);
        Ok(Config {
            targets,
            watch,
            rules,
            schemes,
            assignments: file.assignments,
            budgets,
            dry_run: args.dry_run || file.dry_run,
            round_robin: args.round_robin || file.round_robin,
            hints: args.hints.map_or(file.hints, HintSource::from),
            socket: socket.map_or_else(default_socket, Ok)?,
            stream: args.stream.clone().or(file.stream),
            stream_group: args.stream_group.clone().or(file.stream_group),
            work: args.work.clone().or(file.work),
        })
    }

    /// Why schemes are left out, those that this machine cannot perform: a sentence each.
    pub fn left_out(&self) -> impl Iterator<Item = &str> {
        self.schemes.iter().filter_map(|scheme| scheme.left_out.as_deref())
    }

    /// Whether a scheme does this that is not left out.
    fn does(&self, is_such: impl Fn(&Scheme) -> bool) -> bool {
        self.schemes.iter().any(|scheme| scheme.left_out.is_none() && is_such(scheme))
    }

    /// Whether a scheme pages out.
    pub fn pages_out(&self) -> bool {
        self.does(|scheme| matches!(scheme.action, Does::PageOut(..)))
    }

    /// Whether nothing is left to do where there is no swap.
    pub fn only_pages_out(&self) -> bool {
        self.pages_out() && !self.collapses() && !self.migrates() && !self.splits() && !self.reclaims()
    }

    /// Whether a scheme moves pages between memory tiers.
    pub fn migrates(&self) -> bool {
        self.does(is_of_tiers)
    }

    /// Whether a scheme splits huge pages.
    pub fn splits(&self) -> bool {
        self.does(|scheme| matches!(scheme.action, Does::Split(_)))
    }

    /// Whether a scheme takes idle files from cgroups.
    pub fn reclaims(&self) -> bool {
        self.does(|scheme| matches!(scheme.action, Does::Reclaim(..)))
    }

    /// Whether a scheme collapses.
    pub fn collapses(&self) -> bool {
        self.does(|scheme| scheme.action == Does::Collapse)
    }

    /// Whether such a scheme is for all processes of the machine, so that nobody has named those that it acts on.
    pub fn acts_unnamed(&self, is_such: impl Fn(&Scheme) -> bool) -> bool {
        self.targets.all && self.schemes.iter().any(|scheme| is_such(scheme) && scheme.is_for_all())
    }

    /// Whether the same processes are watched in the same way. If not, watching has to start over.
    pub fn watches_like(&self, other: &Config) -> bool {
        let as_text = |c: &Config| format!("{:?}{:?}{:?}", c.targets, c.watch, c.hints);
        as_text(self) == as_text(other)
    }
}

/// The `work` command of a settings file, if it has one and may name one.
pub fn work_of(path: &Path) -> Result<Option<String>> {
    Ok(parse(path, Wanted { work: true, sockets: [false; 3] })?.work)
}

/// What is taken from a file, because the command line does not name another.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    /// The command is run.
    work: bool,
    /// The control socket, the stream and the group of the stream.
    sockets: [bool; 3],
}

impl Wanted {
    fn by(args: &RunArgs) -> Wanted {
        let sockets = [args.socket.is_none(), args.stream.is_none(), args.stream_group.is_none()];
        Wanted { work: args.work.is_none(), sockets }
    }

    fn takes_socket_of(self, file: &File) -> bool {
        let named = [file.socket.is_some(), file.stream.is_some(), file.stream_group.is_some()];
        named.into_iter().zip(self.sockets).any(|(is_named, is_wanted)| is_named && is_wanted)
    }
}

/// Reads the file, of which that is wanted.
fn parse(path: &Path, wanted: Wanted) -> Result<File> {
    let opened = input::named_file(path)?;
    // Checks the opened file, before it is read. So nobody can replace it in between.
    let (may_run, is_ours) = (trust::check(&opened, path), trust::check_owner(&opened, path));
    let text = input::short_text(opened, path, MAX_FILE)?;
    let file = File::parse(&text).with_context(|| format!("read {}", path.display()))?;
    let refused = |what: &str| format!("{}: root {what}", path.display());
    if file.work.is_some() && wanted.work {
        may_run.with_context(|| refused("does not run the `work` command of this file; give --work, or mend that"))?;
    }
    // Who may connect sees addresses of all processes, and sockets are made and removed with root's rights.
    if wanted.takes_socket_of(&file) {
        is_ours.with_context(|| {
            refused("opens no `socket` or `stream` that this file names; give --socket, --stream and --stream-group, or mend that")
        })?;
    }
    Ok(file)
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::commands::run::{migrate, page_out, reclaim, split};
    use clap::Parser;
    use std::fs;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: RunArgs,
    }

    pub fn args(line: &[&str]) -> RunArgs {
        Line::parse_from([&["run"], line].concat()).args
    }

    #[test]
    fn the_command_line_goes_before_the_file_and_the_file_before_the_defaults() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c.toml");
        fs::write(
            &path,
            "round_robin = true\nhints = \"both\"\n[targets]\npids = [7]\n[watch]\nmax_cpu = 3.0\n[budgets]\nper_second = 5.0\ngrowth_pct = 1.0\n",
        )
        .unwrap();
        let path = path.to_str().unwrap();
        let config = Config::load(&args(&["-c", path, "--per-second", "9", "--min-present", "50%"])).unwrap();
        assert_eq!((config.budgets.per_second, config.budgets.growth_pct, config.budgets.cpu_pct), (9.0, 1.0, 10.0));
        assert_eq!((config.budgets.min_present, config.rules.min_present), (256, 256));
        assert_eq!(
            (config.targets.pids.as_slice(), config.watch.max_cpu, config.round_robin),
            ([7].as_slice(), Some(3.0), true)
        );
        assert_eq!((config.hints, config.dry_run), (HintSource::Both, false));
        assert!(Config::load(&args(&["-c", path, "--dry-run"])).unwrap().dry_run);
        let by_heat = Config::load(&args(&["-c", path, "--hints", "heat"])).unwrap();
        assert!(by_heat.hints == HintSource::Heat && !by_heat.watches_like(&config));
        let other = Config::load(&args(&["-c", path, "-p", "8"])).unwrap();
        assert_eq!(other.targets.pids, [8], "named on the command line: those and no others");
        assert!(!config.watches_like(&other) && config.watches_like(&config.clone()));
    }

    #[test]
    fn a_value_on_the_command_line_counts_also_if_it_is_the_default() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c.toml");
        fs::write(&path, "[watch]\nmax_slowdown = 5.0\nmax_cpu = 5.0\n").unwrap();
        let path = path.to_str().unwrap();
        let slowdown = |line: &[&str]| Config::load(&args(line)).unwrap().watch.max_slowdown_pct();
        assert_eq!(slowdown(&["-c", path, "--max-slowdown", "1"]), 1.0);
        assert_eq!((slowdown(&["-c", path]), slowdown(&[])), (5.0, 1.0));
    }

    #[test]
    fn a_misspelt_key_is_an_error_that_names_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c.toml");
        fs::write(&path, "[budgets]\nper_secnd = 5\n").unwrap();
        let error = format!("{:#}", Config::load(&args(&["-c", path.to_str().unwrap()])).unwrap_err());
        assert!(error.contains("per_secnd") && error.contains("c.toml"), "{error}");
        fs::write(&path, "[budgets]\nper_second = 0.0\n").unwrap();
        let error = format!("{:#}", Config::load(&args(&["-c", path.to_str().unwrap()])).unwrap_err());
        assert!(error.contains("above 0"), "{error}");
        let missing = format!("{:#}", Config::load(&args(&["-c", "/nowhere/c.toml"])).unwrap_err());
        assert!(missing.contains("/nowhere/c.toml"), "{missing}");
    }

    /// The file that packages install. With the marks of comments off, every line is a setting, at its default.
    const INSTALLED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/isotherm.toml");

    fn uncommented(text: &str) -> String {
        let is_setting = |line: &str| {
            line.strip_prefix('#')
                .is_some_and(|rest| rest.starts_with('[') || (!rest.starts_with(' ') && rest.contains(" = ")))
        };
        text.lines().map(|line| if is_setting(line) { &line[1..] } else { line }).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn the_installed_settings_show_each_setting_at_its_default() {
        let text = fs::read_to_string(INSTALLED).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("all.toml");
        // Targets contradict each other if all are named.
        let all = uncommented(&text).replace("cgroup = \"system.slice/redis-server.service\"\n", "");
        fs::write(&path, all.replace("work = ", "# work = ")).unwrap();
        let shown = Config::load(&args(&["-c", path.to_str().unwrap()])).unwrap();
        let installed = Config::load(&args(&["-c", INSTALLED])).unwrap();
        assert_eq!((shown.rules, shown.budgets, shown.hints, shown.round_robin), {
            let c = &installed;
            (c.rules, c.budgets, c.hints, c.round_robin)
        });
        assert_eq!((installed.budgets, installed.targets.all), (Budgets::default(), true));
        assert_eq!(
            (shown.watch.max_slowdown_pct(), shown.watch.max_cpu),
            (installed.watch.max_slowdown_pct(), Some(1.0))
        );
        assert_eq!(shown.watch.window, Some(crate::commands::run::WINDOW_NS));
        // Who installs a package has not decided yet what is to be done.
        assert!(installed.dry_run && shown.dry_run && !Config::load(&args(&[])).unwrap().dry_run);
        assert_eq!(installed.schemes, [Scheme::collapse_all()]);
        assert_eq!(shown.schemes[0].action, Does::Collapse);
        assert_eq!(shown.schemes.len(), 7, "one of each action");
        let bare = ["collapse", "page-out", "bring-back", "reclaim", "promote", "demote", "split"].map(|action| {
            let cgroups = if action == "reclaim" { "cgroups = [\"/a\"]\n" } else { "" };
            let file = File::parse(&format!("[[scheme]]\naction = \"{action}\"\n{cgroups}")).unwrap();
            file.schemes().unwrap().remove(0)
        });
        for (shown, bare) in shown.schemes.iter().zip(&bare) {
            // Watermarks and quotas have no default.
            match (shown.action, bare.action) {
                (Does::PageOut(shown, Some(_)), Does::PageOut(bare, None))
                | (Does::Reclaim(shown, Some(_)), Does::Reclaim(bare, None)) => assert_eq!(shown, bare),
                (shown, bare) => assert_eq!(shown, bare),
            }
        }
    }

    #[test]
    fn each_scheme_of_the_installed_settings_starts_when_it_is_uncommented() {
        let text = fs::read_to_string(INSTALLED).unwrap();
        let (rest, schemes) = text.split_once("\n#[[scheme]]").unwrap();
        let schemes = format!("\n#[[scheme]]{schemes}");
        let tables: Vec<&str> = schemes.split("\n#[[scheme]]").skip(1).collect();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("one.toml");
        let starts = |tables: &[&str]| {
            let shown: String = tables.iter().map(|table| uncommented(&format!("\n#[[scheme]]{table}"))).collect();
            fs::write(&path, format!("{rest}{shown}")).unwrap();
            let args = args(&["-c", path.to_str().unwrap()]);
            let config = Config::load(&args).unwrap();
            let migrated = migrate::check(&args, &config);
            let checked = page_out::check(&args, &config).and(migrated).and(split::check(&args, &config));
            checked.and(reclaim::check(&args, &config))
        };
        for (i, table) in tables.iter().enumerate() {
            // What comes back has to have left before.
            let with = if table.contains("bring-back") { &tables[i - 1..=i] } else { &tables[i..=i] };
            starts(with).unwrap_or_else(|error| panic!("{with:?}: {error:?}"));
        }
        starts(&tables).unwrap();
        assert!(starts(&["\n#action = \"page-out\""]).is_err(), "all targets are watched, and none is named");
    }

    /// The keys that a table may have, as the parser lists them in its error.
    fn keys_of(table: &str) -> Vec<String> {
        let text = format!("{table}\nno_such_key = 1\n");
        let error = File::parse(&text).unwrap_err().to_string();
        let (_, list) = error.split_once("expected ").unwrap_or_else(|| panic!("{error}"));
        list.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    }

    #[test]
    fn the_installed_settings_lack_none() {
        let text = uncommented(&fs::read_to_string(INSTALLED).unwrap());
        for table in ["", "[targets]", "[watch]", "[rules]", "[budgets]", "[[scheme]]"] {
            // What comes before the first table is in none.
            let parts = text.split("\n[").enumerate();
            let wanted = table.trim_start_matches('[');
            let is_in = |(i, part): &(usize, &str)| {
                if table.is_empty() { *i == 0 } else { part.trim_start_matches('[').starts_with(wanted) }
            };
            let part: String = parts.filter(is_in).map(|(_, part)| part).collect::<Vec<_>>().join("\n");
            let tables = ["targets", "watch", "rules", "scheme", "budgets"];
            for key in keys_of(table).iter().filter(|key| !table.is_empty() || !tables.contains(&key.as_str())) {
                assert!(
                    part.lines().any(|line| line.starts_with(&format!("{key} = "))),
                    "{table} has no {key}:\n{part}"
                );
            }
        }
    }
}
