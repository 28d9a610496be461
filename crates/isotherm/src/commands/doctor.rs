//! `isotherm doctor`: what this machine offers, and how to get what is missing.

mod probe_cache;

use crate::args::values::size;
use crate::commands::plan::Plan;
use crate::commands::{events, sandbox_check, zone_lock};
use crate::output;
use crate::privileges::Needs;
use anyhow::Result;
use clap::Args;
use isotherm_host::{Area, Finding, HostFacts, HostRoots, State};
use isotherm_sources::choose::{self, Wanted};
use isotherm_sources::mglru::Mglru;
use isotherm_units::{Bytes, PAGE_SIZE};
use isotherm_view::human;
use serde::Serialize;
use std::io::{self, Write};

#[derive(Serialize)]
struct Report {
    kernel: String,
    cpu: String,
    cpus: u32,
    memory_bytes: u64,
    /// The source that `--source auto` takes, and why.
    source: String,
    source_note: String,
    findings: Vec<Finding>,
}

#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// List the events that report accesses, and which of them this machine has
    #[arg(long)]
    pub events: bool,
    /// Time our own memory to find out whether frames at this distance compete for lines of a memory-side cache [default: what the
    /// firmware reports, and 1GiB up to all memory]. Uses up to a quarter of the available memory, for about 1 s per GiB; needs root
    #[arg(long, value_name = "SIZE", num_args = 0.., value_parser = size, conflicts_with = "events")]
    pub probe_cache: Option<Vec<Bytes>>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl Plan for DoctorArgs {
    fn needs(&self) -> Needs {
        // It reports the caller's privileges, so it keeps them all.
        Needs::Everything
    }

    fn run(&self) -> Result<()> {
        run(self)
    }
}

fn run(args: &DoctorArgs) -> Result<()> {
    if args.events {
        return events::list(args.json);
    }
    if let Some(sizes) = &args.probe_cache {
        return probe_cache::run(sizes, args.json);
    }
    let report = examine();
    output::report(args.json, &report, |out| Ok(write_text(&report, out)?))
}

fn examine() -> Report {
    let facts = HostFacts::read(&HostRoots::default(), isotherm_sys::page_size());
    let mut findings = isotherm_host::assess(&facts);
    // The files only show that it should work. Loading it shows whether it does.
    let tried = choose::open(Wanted::PageTable);
    if let Some(finding) = findings.iter_mut().find(|f| f.name == "page-table") {
        match &tried {
            Ok(source) => {
                finding.state = State::Present;
                finding.detail = source.describe().note;
                finding.advice.clear();
            }
            Err(error) => {
                finding.state = State::Absent;
                finding.detail = error.to_string();
            }
        }
    }
    let aging = findings.iter_mut().find(|f| f.name == "mglru-aging" && f.state == State::Present);
    if let Some(finding) = aging {
        finding.detail += &match Mglru::open() {
            Ok(mglru) => format!("; generations of pages for hints, at bit {} of their flags", mglru.shift()),
            Err(error) => format!("; no hints from it: {error}"),
        };
    }
    drop(tried);
    // After the other findings of its area, because areas become headings.
    let after = findings.iter().rposition(|f| f.area == Area::Memory).map_or(findings.len(), |last| last + 1);
    findings.insert(after, zone_lock::finding());
    findings.push(sandbox_check::finding());
    let best = choose::open(Wanted::Best).ok().map(|source| source.describe());
    Report {
        kernel: facts.kernel.map(|k| k.text).unwrap_or_default(),
        cpu: facts.cpu_model.unwrap_or_default(),
        cpus: facts.cpus.unwrap_or_default(),
        memory_bytes: facts.memory.unwrap_or_default().0,
        source: best.as_ref().map_or(String::new(), |b| b.name.to_owned()),
        source_note: best.map(|b| b.note).unwrap_or_default(),
        findings,
    }
}

fn write_text(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let memory = Bytes(report.memory_bytes);
    writeln!(out, "Linux {}, {} x {}, {memory}, pages of {PAGE_SIZE} bytes", report.kernel, report.cpus, report.cpu)?;
    writeln!(out, "source: {} - {}", report.source, report.source_note)?;
    let mut area = None;
    for finding in &report.findings {
        if area != Some(finding.area) {
            area = Some(finding.area);
            writeln!(out, "\n{}", heading(finding.area))?;
        }
        let state = match finding.state {
            State::Present => "present",
            State::Absent => "absent",
            State::Unknown => "unknown",
            State::InUse => "in use",
        };
        writeln!(out, "  {:<18} {state:<8} {}", finding.name, human::printable(&finding.detail))?;
        if !finding.advice.is_empty() {
            writeln!(out, "  {:<18} {:<8} -> {}", "", "", human::printable(&finding.advice))?;
        }
    }
    Ok(())
}

fn heading(area: Area) -> &'static str {
    match area {
        Area::Source => "Sources: where access reports come from",
        Area::Clear => "Clearing accessed bits",
        Area::Memory => "Memory",
        Area::Cpu => "Processor",
        Area::Privilege => "Privileges",
    }
}
