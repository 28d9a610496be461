//! From the newest snapshot to the text of a scrape.

use super::table::{self as of, MAX_CGROUPS, MAX_PROCESSES};
use super::text::{Format, Text, labels};
use crate::groups::Group;
use crate::moment::{Moment, Process};
use crate::sums::{AGES_S, Ages, CLASSES, MINUTE, Sum, WINDOWS, as_f64};
use flate2::Compression;
use flate2::write::GzEncoder;
use isotherm_heat::CgroupMemory;
use isotherm_stream::{ActionRow, HostRow};
use std::io::Write as _;
use std::sync::Arc;

/// How much there is in a text.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// Cgroups with all series.
    pub top: usize,
    /// Series for processes.
    pub processes: bool,
}

/// What a text is made of.
#[derive(Debug)]
pub struct Input<'a> {
    /// The machine and the monitor.
    pub host: &'a HostRow,
    /// Cgroups, the largest first.
    pub groups: &'a [Group],
    /// The newest moment.
    pub moment: &'a Moment,
    /// What was done.
    pub actions: &'a [ActionRow],
    /// Snapshots that have arrived, and that were lost.
    pub snapshots: [u64; 2],
}

/// A text in all forms in which it is sent.
#[derive(Clone, Debug)]
pub struct Scrape {
    /// Plain and compressed, by format.
    texts: [[Arc<[u8]>; 2]; 2],
}

impl Scrape {
    /// Renders all forms.
    pub fn of(input: &Input<'_>, extent: Extent) -> Scrape {
        let forms = |format| {
            let text = render(input, extent, format);
            let packed = gzip(text.as_bytes());
            [text.into_bytes().into(), packed.into()]
        };
        Scrape { texts: [forms(Format::Prometheus), forms(Format::OpenMetrics)] }
    }

    /// One of them.
    pub fn text(&self, format: Format, is_gzip: bool) -> Arc<[u8]> {
        let forms = &self.texts[usize::from(format == Format::OpenMetrics)];
        Arc::clone(&forms[usize::from(is_gzip)])
    }
}

/// Compresses, fast.
pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 8), Compression::fast());
    // Writing to memory does not fail.
    let _ = encoder.write_all(bytes);
    encoder.finish().unwrap_or_default()
}

/// Cgroups as they are shown.
struct Shown<'a> {
    /// All series, with their labels.
    top: Vec<(String, &'a Group)>,
    /// Three series.
    brief: Vec<(String, &'a Group)>,
    /// The sum of those that are not in `top`, and of those that are in neither.
    rest: Group,
    unseen: Group,
}

impl<'a> Shown<'a> {
    fn of(groups: &'a [Group], top: usize) -> Shown<'a> {
        let labelled = |group: &'a Group| (group_labels(group), group);
        let (first, rest) = groups.split_at(top.min(groups.len()).min(MAX_CGROUPS));
        let (brief, unseen) = rest.split_at(rest.len().min(MAX_CGROUPS - first.len()));
        Shown {
            top: first.iter().map(labelled).collect(),
            brief: brief.iter().map(labelled).collect(),
            rest: total(rest),
            unseen: total(unseen),
        }
    }

    /// The largest ones, and the others as one.
    fn largest(&self) -> impl Iterator<Item = (&str, &Group)> {
        let rest = (self.rest.processes > 0).then_some((OTHER, &self.rest));
        self.top.iter().map(|(labels, group)| (labels.as_str(), *group)).chain(rest)
    }

    /// Each that has series of its own.
    fn each(&self) -> impl Iterator<Item = (&str, &Group)> {
        self.top.iter().chain(&self.brief).map(|(labels, group)| (labels.as_str(), *group))
    }

    /// Each, and those without series of their own as one.
    fn all(&self) -> impl Iterator<Item = (&str, &Group)> {
        self.each().chain((self.unseen.processes > 0).then_some((BEYOND, &self.unseen)))
    }
}

/// Cgroups that are not among the largest. No path is called that: they begin with a slash.
const OTHER: &str = "cgroup=\"other\"";
/// Cgroups that have no series of their own: not the same, since some that are not among the largest have three.
const BEYOND: &str = "cgroup=\"beyond\"";

/// The path of a cgroup, or what stands for it: without a label, series could not be joined.
fn path_of(path: &str) -> &str {
    if path.is_empty() { "unknown" } else { path }
}

fn group_labels(group: &Group) -> String {
    let path = path_of(&group.path);
    fn name(name: &Option<String>) -> &str {
        name.as_deref().unwrap_or_default()
    }
    let values = [path, name(&group.names.unit), name(&group.names.pod_uid), name(&group.names.container_id)];
    let pairs: Vec<(&str, &str)> = of::CGROUP_LABELS.into_iter().zip(values).collect();
    labels(&pairs)
}

fn total(groups: &[Group]) -> Group {
    let mut total = Group::default();
    for group in groups {
        total.sum.add(&group.sum);
        total.ages.add(&group.ages);
        total.processes += group.processes;
    }
    total
}

fn render(input: &Input<'_>, extent: Extent, format: Format) -> String {
    let mut text = Text::new(format);
    let shown = Shown::of(input.groups, extent.top);
    memory(&mut text, &shown);
    cgroups(&mut text, &shown);
    actions(&mut text, input.actions);
    host(&mut text, input);
    if extent.processes {
        processes(&mut text, &input.moment.processes);
    }
    text.finish()
}

fn memory(text: &mut Text, shown: &Shown<'_>) {
    let mut family = text.family(&of::MEMORY);
    for (labels, group) in shown.largest() {
        for (size, classes) in [("small", group.sum.small), ("huge", group.sum.huge)] {
            for (class, bytes) in CLASSES.iter().zip(classes) {
                family.sample(labels, &[("class", class), ("page_size", size)], bytes);
            }
        }
    }
    let mut family = text.family(&of::WORKING_SET);
    for (place, window) in WINDOWS.iter().enumerate() {
        let further = [("window", *window)];
        if place == MINUTE {
            shown.all().for_each(|(labels, group)| family.sample(labels, &further, group.sum.wss[place]));
        } else {
            shown.largest().for_each(|(labels, group)| family.sample(labels, &further, group.sum.wss[place]));
        }
    }
    let mut family = text.family(&of::HOT_SMALL);
    shown.largest().for_each(|(labels, group)| family.sample(labels, &[], group.sum.hot_small()));
    let mut family = text.family(&of::UNMEASURED);
    shown.all().for_each(|(labels, group)| family.sample(labels, &[], group.sum.unmeasured()));
    let mut family = text.family(&of::ESTIMATED);
    shown.largest().for_each(|(labels, group)| family.sample(labels, &[], group.sum.estimated));
    let mut family = text.family(&of::SWAPPED);
    for (labels, group) in shown.largest() {
        group.sum.swapped.into_iter().for_each(|bytes| family.sample(labels, &[], bytes));
    }
    let mut family = text.family(&of::PROCESSES);
    shown.largest().for_each(|(labels, group)| family.sample(labels, &[], group.processes));
    let mut family = text.family(&of::IDLE_AGE);
    for (labels, Group { ages: Ages { buckets, byte_seconds }, .. }) in shown.largest() {
        family.buckets(labels, &AGES_S, buckets, *byte_seconds);
    }
}

fn cgroups(text: &mut Text, shown: &Shown<'_>) {
    let mut family = text.family(&of::CGROUP_MEMORY);
    for (labels, group) in &shown.top {
        let Some(CgroupMemory { anon, file, slab, swap }) = group.memory else { continue };
        for (kind, bytes) in [("anon", anon), ("file", file), ("slab", slab), ("swap", swap)] {
            family.sample(labels, &[("kind", kind)], bytes.0);
        }
    }
    let mut family = text.family(&of::CGROUP_LIMIT);
    for (labels, group) in shown.each() {
        group.limit.into_iter().for_each(|bytes| family.sample(labels, &[], bytes));
    }
    let mut family = text.family(&of::PAGED_OUT);
    let some = || shown.each().filter(|(_, group)| group.out_bytes > 0 || group.refaulted_bytes > 0);
    some().for_each(|(labels, group)| family.sample(labels, &[], group.out_bytes));
    let mut family = text.family(&of::REFAULTED);
    some().for_each(|(labels, group)| family.sample(labels, &[], group.refaulted_bytes));
}

fn actions(text: &mut Text, actions: &[ActionRow]) {
    let named = |action: &ActionRow| labels(&[("action", &action.action), ("result", &action.result)]);
    let mut family = text.family(&of::ACTIONS);
    actions.iter().for_each(|action| family.sample(&named(action), &[], action.huge_ranges));
    let mut family = text.family(&of::ACTION_BYTES);
    actions.iter().for_each(|action| family.sample(&named(action), &[], action.bytes));
}

fn host(text: &mut Text, input: &Input<'_>) {
    let host = input.host;
    let seconds = |ns: u64| as_f64(ns) / 1e9;
    let floats = [
        (of::SLOWDOWN, host.slowdown_pct / 100.0),
        (of::SLOWDOWN_BUDGET, host.max_slowdown_pct / 100.0),
        (of::MONITOR_CPU, seconds(host.monitor_cpu_ns)),
        (of::MONITOR_CPU_BUDGET, host.max_cpu_pct / 100.0),
        (of::MONITORED, seconds(host.elapsed_ns)),
    ];
    floats.iter().for_each(|(metric, value)| text.family(metric).sample("", &[], value));
    let [arrived, lost] = input.snapshots;
    let numbers = [
        (of::HUGE_RANGES, host.all_pmds),
        (of::UNCHECKED, host.unchecked_pmds),
        (of::PAGES_READ, host.pages_read),
        (of::PAGES_CLEARED, host.pages_cleared),
        (of::PAGES_RETOUCHED, host.pages_retouched),
        (of::READ_ERRORS, host.read_errors),
        (of::SAMPLES_LOST, host.samples_lost),
        (of::SNAPSHOTS, arrived),
        (of::LOST_SNAPSHOTS, lost),
    ];
    numbers.iter().for_each(|(metric, value)| text.family(metric).sample("", &[], value));
    text.family(&of::LAST_SNAPSHOT).sample("", &[], seconds(host.end_unix_ns));
    text.family(&of::WINDOW).sample("", &[], seconds(host.end_unix_ns.saturating_sub(host.start_unix_ns)));
    text.family(&of::HOST_MEMORY).sample("", &[], host.memory_bytes);
    let build = labels(&[("version", &host.version), ("source", &host.source), ("kernel", &host.kernel)]);
    text.family(&of::BUILD_INFO).sample(&build, &[], 1);
}

fn processes(text: &mut Text, processes: &[Arc<Process>]) {
    let mut largest: Vec<&Process> = processes.iter().map(|process| &**process).filter(|p| !p.exited).collect();
    largest.sort_by_key(|process| std::cmp::Reverse(process.sum.resident()));
    largest.truncate(MAX_PROCESSES);
    let named = |process: &Process| {
        let pid = process.id.pid.to_string();
        let values = [pid.as_str(), &process.comm, path_of(&process.cgroup)];
        labels(&of::PROCESS_LABELS.into_iter().zip(values).collect::<Vec<_>>())
    };
    let named: Vec<(String, &Sum)> = largest.iter().map(|process| (named(process), &process.sum)).collect();
    let mut family = text.family(&of::PROCESS_MEMORY);
    for (labels, sum) in &named {
        for (class, name) in CLASSES.iter().enumerate() {
            family.sample(labels, &[("class", name)], sum.small[class] + sum.huge[class]);
        }
    }
    let mut family = text.family(&of::PROCESS_WORKING_SET);
    for (labels, sum) in &named {
        for (window, bytes) in WINDOWS.iter().zip(sum.wss) {
            family.sample(labels, &[("window", window)], bytes);
        }
    }
}

#[cfg(test)]
mod tests;
