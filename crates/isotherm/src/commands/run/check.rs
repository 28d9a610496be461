//! What has to be there before anything is watched: checked at the start, and again when the settings are read again.
//!
//! Settings that could do harm are refused. What the machine lacks only leaves out the schemes that need it, as one file of settings is for many
//! machines: the rest goes on, and so do those who listen to the stream.

use super::args::RunArgs;
use super::config::Config;
use super::{host, migrate, page_out, reclaim, split};
use crate::commands::migrate::{missing, one_tier};
use crate::daemon::need_collapse;
use crate::output;
use crate::swap;
use anyhow::{Result, bail};
use isotherm_schemes::scheme::{Does, Scheme};

/// When settings are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Before the sandbox.
    Start,
    /// In it: what it forbids begins with the next start.
    Reload,
}

/// Leaves out the schemes that this machine cannot perform, and warns of it. Fails where nothing else is left to do.
pub fn fit(args: &RunArgs, config: &mut Config, when: When) -> Result<()> {
    page_out::check(args, config)?;
    migrate::check(args, config)?;
    split::check(args, config)?;
    reclaim::check(args, config)?;
    let has_listeners = config.stream.is_some() || args.record.is_some();
    leave_out(config, has_listeners, |scheme, dry_run| lack(scheme, dry_run, when))?;
    config.left_out().for_each(output::warn);
    if config.pages_out() && !config.dry_run && !swap::is_there() {
        if config.only_pages_out() && !has_listeners {
            bail!(swap::MISSING);
        }
        output::warn(swap::MISSING);
    }
    Ok(())
}

/// Leaves out the schemes of which `lack` names what is missing.
fn leave_out(config: &mut Config, has_listeners: bool, lack: impl Fn(&Scheme, bool) -> Option<String>) -> Result<()> {
    let (dry_run, mut first) = (config.dry_run, None);
    for scheme in &mut config.schemes {
        let Some(why) = lack(scheme, dry_run) else { continue };
        let why = format!("a scheme {}, and {why}", verb(scheme.action));
        scheme.left_out = Some(format!("{why}; it is left out"));
        first.get_or_insert(why);
    }
    let does_nothing = config.schemes.iter().all(|s| s.left_out.is_some() || s.action == Does::BringBack);
    first.filter(|_| does_nothing && !has_listeners).map_or(Ok(()), |why| bail!("{why}"))
}

/// What this machine lacks for a scheme, if anything. To count what would be collapsed takes nothing of the kernel. Swap may be added later.
fn lack(scheme: &Scheme, dry_run: bool, when: When) -> Option<String> {
    let pressure = scheme.quota.and_then(|quota| quota.goal.pressure).and_then(|_| host::no_pressure());
    if let Some(why) = pressure {
        return Some(why.to_owned());
    }
    match scheme.action {
        // Probes that are split are collapsed again.
        Does::Collapse | Does::Split(_) if !dry_run => need_collapse().err().map(|why| why.to_string()),
        Does::Promote(_) | Does::Demote(..) => {
            let missing = if when == When::Start { missing() } else { one_tier() };
            missing.map(str::to_owned)
        }
        _ => None,
    }
}

fn verb(action: Does) -> &'static str {
    match action {
        Does::Collapse => "collapses",
        Does::PageOut(..) => "pages out",
        Does::Promote(_) => "promotes",
        Does::Demote(..) => "demotes",
        Does::BringBack => "brings back",
        Does::Split(_) => "splits",
        Does::Reclaim(..) => "reclaims",
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::tests::args;
    use super::*;

    fn config_of(schemes: &str) -> Config {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c.toml");
        std::fs::write(&path, format!("[targets]\npids = [7]\n{schemes}")).unwrap();
        Config::load(&args(&["-c", path.to_str().unwrap()])).unwrap()
    }

    #[test]
    fn what_the_machine_lacks_leaves_out_the_schemes_that_need_it_and_no_others() {
        let one_tier = |scheme: &Scheme, _| migrate::is_of_tiers(scheme).then(|| "there is one tier".to_owned());
        let both = "[[scheme]]\naction = \"promote\"\n[[scheme]]\naction = \"collapse\"\n";
        let mut config = config_of(both);
        leave_out(&mut config, false, one_tier).unwrap();
        assert!(config.collapses() && !config.migrates());
        assert_eq!(config.left_out().collect::<Vec<_>>(), ["a scheme promotes, and there is one tier; it is left out"]);
        // With nothing left it is an error, unless somebody listens to what is seen.
        let promotes = || config_of("[[scheme]]\naction = \"promote\"\n");
        let error = leave_out(&mut promotes(), false, one_tier).unwrap_err();
        assert_eq!(error.to_string(), "a scheme promotes, and there is one tier");
        let mut config = promotes();
        leave_out(&mut config, true, one_tier).unwrap();
        assert!(!config.migrates() && config.left_out().count() == 1);
    }

    #[test]
    fn what_would_be_collapsed_is_counted_on_any_kernel() {
        let old_kernel = |_: &Scheme, dry_run: bool| (!dry_run).then(|| "this kernel is old".to_owned());
        let mut dry = Config { dry_run: true, ..config_of("") };
        leave_out(&mut dry, false, old_kernel).unwrap();
        assert!(dry.collapses() && dry.left_out().next().is_none());
        assert!(leave_out(&mut config_of(""), false, old_kernel).is_err());
    }
}
