//! `isotherm status`: what a running `isotherm run` does.
//!
//! The daemon sends its [`Status`] as JSON. [`tell`] prints it, here and in the daemon itself when that ends. If its windows have ceased to end, this
//! fails after that: a probe that asks whether the daemon works goes by the exit code.

use crate::args::intervals::goal_text;
use crate::args::socket::default_socket;
use crate::commands::plan::Plan;
use crate::daemon::socket::Client;
use crate::output;
use crate::privileges::Needs;
use anyhow::{Result, anyhow, bail};
use clap::Args;
use isotherm_monitor::CLEAR_TICK;
use isotherm_schemes::bring_back::BringBackStatus;
use isotherm_schemes::migrate::mover::MigrateStatus;
use isotherm_schemes::page_out::keeper::PageOutStatus;
use isotherm_schemes::quota::QuotaStatus;
use isotherm_schemes::reclaim::reclaimer::ReclaimStatus;
use isotherm_schemes::split::splitter::SplitStatus;
use isotherm_schemes::state::{HintStatus, SampledStatus, Status, TargetStatus};
use isotherm_schemes::{Named, Wait};
use isotherm_units::Bytes;
use isotherm_view::human;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Socket of the `isotherm run` to ask
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl Plan for StatusArgs {
    fn needs(&self) -> Needs {
        Needs::Files
    }

    fn run(&self) -> Result<()> {
        run(self)
    }
}

fn run(args: &StatusArgs) -> Result<()> {
    let socket = args.socket.clone().map_or_else(default_socket, Ok)?;
    let answer = Client::connect(&socket)?.ask("status")?;
    let not_ours = || anyhow!("{} answered {answer:?}: is that an isotherm run of this version?", socket.display());
    if args.json {
        // Printed as received, so that nothing that another version reports is lost.
        let status: Value = serde_json::from_str(&answer).map_err(|_| not_ours())?;
        output::json(&status)?;
        let waiting: Option<Named<Wait>> = serde_json::from_value(status["waiting"].clone()).unwrap_or_default();
        return works(waiting.as_ref());
    }
    let status: Status = serde_json::from_str(&answer).map_err(|_| not_ours())?;
    let mut out = output::stdout();
    tell(&status, &mut out)?;
    out.flush()?;
    works(status.waiting.as_ref())
}

/// Fails if the daemon waits for its own windows.
fn works(waiting: Option<&Named<Wait>>) -> Result<()> {
    if let Some(Named::Known(why @ Wait::NoWindow)) = waiting {
        bail!(
            "{}. It acts on nothing until one has. /proc/PID/task/*/stack of the daemon shows in which call it is",
            why.text()
        );
    }
    Ok(())
}

/// Prints the status as text: what the daemon does, what it waits for, and what it has done.
pub fn tell(status: &Status, out: &mut dyn Write) -> io::Result<()> {
    let doing = match (&status.paused, &status.waiting) {
        (Some(why), _) => format!("paused: {}", human::printable(why)),
        (None, Some(why)) => format!("waiting: {}", human::printable(&output::json_name(why))),
        (None, None) => "running".to_owned(),
    };
    let dry = if status.dry_run { " (dry run)" } else { "" };
    let HintStatus { queued, put_off, unwritable, cgroup, .. } = status.hints;
    writeln!(
        out,
        "process {}{dry}, {doing}; {} huge ranges collapsed, {queued} hints queued, {put_off} deferred",
        status.pid, status.collapsed,
    )?;
    if unwritable > 0 {
        writeln!(out, "{unwritable} of those deferred: {}", Wait::Unwritable.text())?;
    }
    if cgroup > 0 {
        writeln!(out, "{cgroup} of those deferred: their memory cgroup has no room to spare")?;
    }
    if status.blocks_not_looked_at > 0 {
        writeln!(out, "{} of {} huge ranges not checked yet", status.blocks_not_looked_at, status.pmds)?;
    }
    if let Some(goal) = status.intervals_goal.filter(|_| status.targets.iter().any(|t| t.sampled.is_some())) {
        writeln!(out, "intervals of sampled processes follow the goal {}", goal_text(goal))?;
    }
    status.left_out.iter().try_for_each(|why| writeln!(out, "{}", human::printable(why)))?;
    status.targets.iter().try_for_each(|target| write_target(target, out))?;
    status.cgroups.iter().try_for_each(|cgroup| write_reclaim(cgroup, out))?;
    status.quotas.iter().try_for_each(|quota| write_quota(quota, out))?;
    for (done, counts) in &status.counters.done {
        for (origin, count) in by_name(counts) {
            writeln!(out, "  {} on hints from {origin}: {count}", human::printable(done))?;
        }
    }
    for (reason, count) in by_name(&status.counters.refused) {
        writeln!(out, "  left alone, {reason}: {count}")?;
    }
    Ok(())
}

fn write_target(target: &TargetStatus, out: &mut dyn Write) -> io::Result<()> {
    let share = share_text(target.heat_on_huge_share, target.heat_on_huge_share_by_bits);
    write!(
        out,
        "{:>8} {:<16} {:>10} resident, {:>10} huge, {share} of the heat on huge pages",
        target.pid,
        human::printable(&target.comm),
        Bytes(target.rss_bytes).to_string(),
        Bytes(target.huge_bytes).to_string(),
    )?;
    if let Some(sampled) = &target.sampled {
        write!(out, ", {}", sampled_text(sampled))?;
    }
    match (&target.left_alone, target.paused_for, &target.cgroup_wait) {
        (Some(why), ..) => writeln!(out, "; skipped: {}", human::printable(&output::json_name(why))),
        (_, Some(pid), _) => writeln!(out, "; paused for its fork {pid}"),
        (.., Some(Named::Known(wait))) if Wait::OF_CGROUPS.contains(wait) => {
            writeln!(out, "; waiting: {}", wait.text())
        }
        (.., Some(why)) => writeln!(out, "; waiting: {}", human::printable(&output::json_name(why))),
        _ => writeln!(out),
    }?;
    target.page_out.as_ref().map_or(Ok(()), |page_out| write_page_out(page_out, out))?;
    if let Some(BringBackStatus { asked_bytes, read_bytes }) = target.bring_back {
        let (asked, read) = (Bytes(asked_bytes), Bytes(read_bytes));
        writeln!(out, "{:>8} asked back before it was accessed: {asked}; cached swap grew by {read}", "")?;
    }
    target.migrate.as_ref().map_or(Ok(()), |migrate| write_migrate(migrate, out))?;
    target.split.as_ref().map_or(Ok(()), |split| write_split(split, out))
}

fn write_split(split: &SplitStatus, out: &mut dyn Write) -> io::Result<()> {
    let SplitStatus { probes, collapsed_again, split, returned_bytes, remade, unused_bytes, stays } = split;
    write!(
        out,
        "{:>8} split: {split} huge pages, {} given back; {probes} probes so far, {collapsed_again} of them huge again",
        "",
        Bytes(*returned_bytes),
    )?;
    if let Some(unused) = unused_bytes {
        write!(out, "; unused behind huge pages in the last round: {}", Bytes(*unused))?;
    }
    if *remade > 0 {
        write!(out, "; {remade} were collapsed by something else, khugepaged most likely")?;
    }
    match stays {
        Some(why) => writeln!(out, "; paused: {}", why.text()),
        None => writeln!(out),
    }
}

fn write_migrate(migrate: &MigrateStatus, out: &mut dyn Write) -> io::Result<()> {
    let MigrateStatus { promoted_bytes, demoted_bytes, back_bytes, min_idle_ns, stays } = migrate;
    write!(out, "{:>8} moved to fast memory: {}", "", Bytes(*promoted_bytes))?;
    if let Some(age) = min_idle_ns {
        let (age, down, back) = (human::duration(*age), Bytes(*demoted_bytes), Bytes(*back_bytes));
        write!(out, "; to slow memory, from {age} idle on: {down}, of which {back} went up again")?;
    }
    match stays {
        Some(why) => writeln!(out, "; paused: {}", why.text()),
        None => writeln!(out),
    }
}

fn write_page_out(page_out: &PageOutStatus, out: &mut dyn Write) -> io::Result<()> {
    let PageOutStatus { min_idle_ns, out_bytes, left_bytes, refaulted_bytes, refaults_pct_minute, stays } = page_out;
    write!(
        out,
        "{:>8} paged out from {} idle on: {} out, {} left so far, {} came back ({refaults_pct_minute:.2}% of the working set in a minute)",
        "",
        human::duration(*min_idle_ns),
        Bytes(*out_bytes),
        Bytes(*left_bytes),
        Bytes(*refaulted_bytes),
    )?;
    match stays {
        Some(why) => writeln!(out, "; paused: {}", why.text()),
        None => writeln!(out),
    }
}

fn write_reclaim(of: &ReclaimStatus, out: &mut dyn Write) -> io::Result<()> {
    write!(
        out,
        "{}: files idle for {}: {}; {} asked for so far, {} left, {} read again",
        human::printable(&of.cgroup),
        human::duration(of.min_idle_ns),
        Bytes(of.idle_bytes),
        Bytes(of.asked_bytes),
        Bytes(of.left_bytes),
        Bytes(of.refaulted_bytes),
    )?;
    match (of.stays, &of.waiting) {
        (Some(why), _) => writeln!(out, "; paused: {}", why.text()),
        (None, Some(Named::Known(why))) => writeln!(out, "; waiting: {}", why.text()),
        (None, Some(why)) => writeln!(out, "; waiting: {}", human::printable(&output::json_name(why))),
        (None, None) => writeln!(out),
    }
}

fn write_quota(quota: &QuotaStatus, out: &mut dyn Write) -> io::Result<()> {
    let (spent, allowed, size) = (Bytes(quota.spent_bytes), Bytes(quota.allowed_bytes), Bytes(quota.size_bytes));
    let every = human::duration(quota.every_ns);
    write!(
        out,
        "scheme {}: {spent} of {allowed} are spent in this interval; at most {size} every {every}",
        quota.scheme
    )?;
    let measured = |pct: Option<f64>| pct.map_or_else(|| "unknown".to_owned(), |pct| format!("{pct:.2}%"));
    if let Some(goal) = quota.pressure_goal_pct {
        write!(out, "; pressure {}, goal {goal}%", measured(quota.pressure_pct))?;
    }
    if let Some(goal) = quota.free_goal_pct {
        write!(out, "; free {}, goal {goal}%", measured(quota.free_pct))?;
    }
    writeln!(out, "; used up in {} intervals", quota.used_up)
}

/// By estimate, and up to that by accessed bits where this differs.
fn share_text(by_estimate: Option<f64>, by_bits: Option<f64>) -> String {
    let percent = |share: f64| format!("{:.1}%", share * 100.0);
    let Some(estimate) = by_estimate.map(percent) else { return "unknown".to_owned() };
    match by_bits.map(percent) {
        Some(bits) if bits != estimate => format!("{estimate} (by bits {bits})"),
        _ => estimate,
    }
}

/// How many regions are checked, and how often: at present, and the last time if that took notably longer.
fn sampled_text(sampled: &SampledStatus) -> String {
    let SampledStatus { regions, interval_ns, aggregated_in_ns } = *sampled;
    let every = human::duration(interval_ns);
    // The end of an interval is noticed at the next round of clears.
    match aggregated_in_ns.filter(|took| *took > interval_ns.saturating_add(CLEAR_TICK)) {
        Some(took) => {
            format!("{regions} regions to check every {every}, which took {} within the budgets", human::duration(took))
        }
        None => format!("{regions} regions checked every {every}"),
    }
}

/// Counts in the order of their names.
fn by_name<K: Serialize>(counts: &BTreeMap<K, u64>) -> BTreeMap<String, u64> {
    counts.iter().map(|(key, count)| (output::json_name(key), *count)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was printed when the answer was walked as JSON, but for names of reasons that this version does not have.
    #[test]
    fn a_status_is_printed_as_it_came() {
        let answer = r#"{"version": "9.9", "pid": 7, "dry_run": true, "paused": null, "waiting": "free-blocks", "collapsed": 12,
            "hints": {"queued": 3, "put_off": 9, "unwritable": 2, "cgroup": 1, "mood": 5}, "blocks_not_looked_at": 4, "blocks": 90,
            "intervals_goal": {"observed_bp": 450, "aggregations": 3, "min_interval_ns": 200000000, "max_interval_ns": 1000000000},
            "targets": [
                {"pid": 8, "comm": "db\u001b[2J", "rss_bytes": 4194304, "huge_bytes": 2097152, "heat_on_huge_share": 0.25, "heat_on_huge_share_by_bits": 0.5},
                {"pid": 9, "comm": "a", "left_alone": "no-huge-advice", "paused_for": 3,
                    "page_out": {"min_idle_ns": 120000000000, "out_bytes": 1048576, "left_bytes": 4194304, "refaulted_bytes": 3145728, "refaults_pct_minute": 0.256, "stays": "refaults"},
                    "bring_back": {"asked_bytes": 2097152, "read_bytes": 1048576},
                    "migrate": {"promoted_bytes": 8192, "demoted_bytes": 4096, "back_bytes": 0, "min_idle_ns": 60000000000, "stays": "refaults"},
                    "split": {"probes": 40, "collapsed_again": 30, "split": 10, "returned_bytes": 4194304, "remade": 2, "unused_bytes": 8388608, "stays": "cleared-by-others"}},
                {"pid": 10, "comm": "b", "paused_for": 3, "cgroup_wait": "no-charge", "sampled": {"regions": 500, "interval_ns": 200000000, "aggregated_in_ns": 3600000000}},
                {"pid": 11, "comm": "c", "cgroup_wait": "no-charge", "sampled": {"regions": 40, "interval_ns": 1000000000, "aggregated_in_ns": 1200000000}},
                {"pid": 12, "comm": "d", "cgroup_wait": "full-moon", "heat_on_huge_share": 0.25, "heat_on_huge_share_by_bits": 0.25}],
            "counters": {"collapsed": {"round-robin": 5, "external": 3, "heat": 4}, "refused": {"sparse": 2, "busy": 1}}}"#;
        let mut out = Vec::new();
        tell(&serde_json::from_str(answer).unwrap(), &mut out).unwrap();
        let out = String::from_utf8(out).unwrap();
        let expected = [
            "process 7 (dry run), waiting: free-blocks; 12 huge ranges collapsed, 3 hints queued, 9 deferred",
            &format!("2 of those deferred: {}", Wait::Unwritable.text()),
            "1 of those deferred: their memory cgroup has no room to spare",
            "4 of 90 huge ranges not checked yet",
            "intervals of sampled processes follow the goal 4.5%,3,200ms,1s",
            &format!(
                "       8 {:<16}    4.0 MiB resident,    2.0 MiB huge, 25.0% (by bits 50.0%) of the heat on huge pages",
                human::printable("db\x1b[2J")
            ),
            "       9 a                       0 B resident,        0 B huge, unknown of the heat on huge pages; skipped: no-huge-advice",
            "         paged out from 2 min idle on: 1.0 MiB out, 4.0 MiB left so far, 3.0 MiB came back (0.26% of the working set in a minute); paused: too much has come back",
            "         asked back before it was accessed: 2.0 MiB; cached swap grew by 1.0 MiB",
            "         moved to fast memory: 8.0 KiB; to slow memory, from 1 min idle on: 4.0 KiB, of which 0 B went up again; paused: too much has come back",
            "         split: 10 huge pages, 4.0 MiB given back; 40 probes so far, 30 of them huge again; unused behind huge pages in the last round: 8.0 MiB; \
             2 were collapsed by something else, khugepaged most likely; paused: something else clears its accessed bits",
            "      10 b                       0 B resident,        0 B huge, unknown of the heat on huge pages, 500 regions to check every 200 ms, \
             which took 3.6 s within the budgets; paused for its fork 3",
            &format!(
                "      11 c                       0 B resident,        0 B huge, unknown of the heat on huge pages, 40 regions checked every 1 s; waiting: {}",
                Wait::NoCharge.text()
            ),
            "      12 d                       0 B resident,        0 B huge, 25.0% of the heat on huge pages; waiting: full-moon",
            "  collapsed on hints from external: 3",
            "  collapsed on hints from heat: 4",
            "  collapsed on hints from round-robin: 5",
            "  left alone, busy: 1",
            "  left alone, sparse: 2",
        ];
        for (line, expected) in out.lines().zip(expected) {
            assert_eq!(line, expected);
        }
        assert_eq!(out.lines().count(), expected.len(), "{out}");
    }

    #[test]
    fn a_daemon_whose_windows_have_ceased_to_end_fails_a_probe() {
        let error = works(Some(&Named::Known(Wait::NoWindow))).unwrap_err().to_string();
        assert!(error.contains("no window has ended") && error.contains("/stack"), "{error}");
        assert!(works(Some(&Named::Known(Wait::Pressure))).is_ok() && works(None).is_ok());
    }

    #[test]
    fn cgroups_are_printed_with_what_holds_them_up() {
        let answer = r#"{"version": "9.9", "pid": 7, "paused": null, "waiting": null, "targets": [], "cgroups": [
            {"cgroup": "/a", "min_idle_ns": 60000000000, "idle_bytes": 8388608, "asked_bytes": 4194304, "left_bytes": 2097152,
                "refaulted_bytes": 4096, "waiting": "io-pressure"},
            {"cgroup": "/b", "stays": "unwatched", "waiting": "full-moon"}]}"#;
        let mut out = Vec::new();
        tell(&serde_json::from_str(answer).unwrap(), &mut out).unwrap();
        let expected = [
            "/a: files idle for 1 min: 8.0 MiB; 4.0 MiB asked for so far, 2.0 MiB left, 4.0 KiB read again; waiting: pressure on I/O",
            "/b: files idle for 0 s: 0 B; 0 B asked for so far, 0 B left, 0 B read again; paused: not all processes of the cgroup are watched page by page",
        ];
        assert_eq!(String::from_utf8(out).unwrap().lines().skip(1).collect::<Vec<_>>(), expected);
    }
}
