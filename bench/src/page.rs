//! The page of figures, `docs/benchmarks.md`, and the table of the README, made from `bench/benchmarks.toml` (what each bench measures, what it
//! models, the aims) and the newest file of each bench in `bench/results`.
//!
//! Pure but for [`newest_results`], which reads the folder. Both are committed, so that they can be read without building anything; a test
//! compares them with what is made anew.

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// The texts of all benches, in the order of the page.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Texts {
    /// The table of the README.
    headline: Vec<Headline>,
    bench: Vec<BenchText>,
}

/// A line of the table of the README. `{key}` in its texts stands for that figure of the bench.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Headline {
    bench: String,
    /// The figure whose aim is shown.
    aim: Option<String>,
    text: String,
    ours: String,
    peer: String,
}

/// What is said of one bench.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BenchText {
    name: String,
    title: String,
    measured: String,
    modelled: Option<String>,
    figures: Vec<Figure>,
    notes: Option<String>,
}

/// A key of the RESULT line, for people. It has one aim or none.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Figure {
    key: String,
    text: String,
    #[serde(default)]
    unit: String,
    min: Option<f64>,
    max: Option<f64>,
    /// The first day whose runs print it. A result of an earlier day may lack it.
    since: Option<String>,
}

/// The newest result of a bench.
#[derive(Clone, Debug, PartialEq)]
pub struct BenchResult {
    /// The day of the run, as in 2026-11-20.
    date: String,
    command: String,
    machine: String,
    /// The RESULT line, without that word.
    line: String,
}

impl BenchResult {
    /// Takes what the page needs out of the text of a run of that day.
    fn parse(date: &str, text: &str) -> Result<BenchResult> {
        let after = |prefix: &str| {
            let line = text.lines().rev().find_map(|line| line.strip_prefix(prefix));
            line.map(str::to_owned).with_context(|| format!("no line that begins with {prefix:?}"))
        };
        Ok(BenchResult {
            date: date.to_owned(),
            command: after("command: ")?,
            machine: after("machine: ")?,
            line: after("RESULT ")?,
        })
    }

    fn values(&self) -> impl Iterator<Item = (&str, f64)> {
        let pairs = self.line.split(' ').filter_map(|pair| pair.split_once('='));
        pairs.filter_map(|(key, value)| Some((key, value.parse().ok()?)))
    }

    fn value(&self, key: &str) -> Option<f64> {
        self.values().find(|(k, _)| *k == key).map(|(_, value)| value)
    }

    /// `text` with figures in the place of their keys.
    fn filled(&self, text: &str) -> Result<String> {
        let fill = |text: String, (key, value): (&str, f64)| text.replace(&format!("{{{key}}}"), &number(value));
        let filled = self.values().fold(text.to_owned(), fill);
        ensure!(!filled.contains('{'), "{filled:?} names a figure that the run of {} does not have", self.date);
        Ok(filled)
    }
}

impl Texts {
    /// Parses `bench/benchmarks.toml`.
    pub fn parse(toml: &str) -> Result<Texts> {
        let texts: Texts = toml::from_str(toml).context("parse the texts of the benches")?;
        for bench in &texts.bench {
            for figure in &bench.figures {
                ensure!(figure.min.is_none() || figure.max.is_none(), "{}: {} has two aims", bench.name, figure.key);
            }
        }
        Ok(texts)
    }
}

/// The newest result of each bench under `dir`, whose folders are named by the day.
pub fn newest_results(dir: &Path) -> Result<BTreeMap<String, BenchResult>> {
    let mut newest = BTreeMap::new();
    // In the order of days: what is newer takes the place of what is older.
    for day in names(dir)? {
        for file in names(&dir.join(&day))? {
            let Some(name) = file.strip_suffix(".txt") else { continue };
            let path = dir.join(&day).join(&file);
            let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
            let result = BenchResult::parse(&day, &text).with_context(|| path.display().to_string())?;
            newest.insert(name.to_owned(), result);
        }
    }
    Ok(newest)
}

fn names(dir: &Path) -> Result<BTreeSet<String>> {
    let entries = fs::read_dir(dir).with_context(|| format!("list {}", dir.display()))?;
    entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

/// The page. Fails where texts and results do not fit: a bench without a text, a text without a result, a key that the bench does not print.
pub fn page(texts: &Texts, results: &BTreeMap<String, BenchResult>) -> Result<String> {
    let described: BTreeSet<&str> = texts.bench.iter().map(|bench| bench.name.as_str()).collect();
    if let Some(name) = results.keys().find(|name| !described.contains(name.as_str())) {
        bail!("{name} has a result and no text: describe it in bench/benchmarks.toml");
    }
    let mut sections = String::new();
    let (mut aims, mut missed) = (0, 0);
    for bench in &texts.bench {
        let result = results.get(&bench.name).with_context(|| format!("{} has no result: run it", bench.name))?;
        let figures: Vec<Shown> =
            bench.figures.iter().map(|figure| shown(bench, figure, result)).collect::<Result<_>>()?;
        aims += figures.iter().filter(|figure| figure.met.is_some()).count();
        missed += figures.iter().filter(|figure| figure.met == Some(false)).count();
        section(&mut sections, bench, result, &figures)?;
    }
    let benches = texts.bench.len();
    Ok(format!("{}\n{benches} benches, {aims} aims, {missed} missed.\n{sections}", HEAD.trim_start()))
}

/// `readme` with the table between its marks made anew.
pub fn readme(readme: &str, texts: &Texts, results: &BTreeMap<String, BenchResult>) -> Result<String> {
    let (before, rest) = readme.split_once(TABLE_BEGINS).with_context(|| format!("no {TABLE_BEGINS} in the README"))?;
    let (_, after) = rest.split_once(TABLE_ENDS).with_context(|| format!("no {TABLE_ENDS} in the README"))?;
    let mut table = "| | Isotherm | next to | aim |\n|---|---|---|---|\n".to_owned();
    for line in &texts.headline {
        headline(&mut table, line, texts, results).with_context(|| format!("the README's line {:?}", line.text))?;
    }
    Ok(format!("{before}{TABLE_BEGINS}\n{table}{TABLE_ENDS}{after}"))
}

const TABLE_BEGINS: &str = "<!-- figures: made by `make benchmarks-page` -->";
const TABLE_ENDS: &str = "<!-- end of figures -->";

fn headline(table: &mut String, line: &Headline, texts: &Texts, results: &BTreeMap<String, BenchResult>) -> Result<()> {
    let bench = texts.bench.iter().find(|bench| bench.name == line.bench).context("no such bench")?;
    let result = results.get(&line.bench).context("no result")?;
    let aim = match &line.aim {
        Some(key) => {
            let figure = bench.figures.iter().find(|figure| figure.key == *key).context("no such figure")?;
            let Shown { aim, met, .. } = shown(bench, figure, result)?;
            format!("{aim}{}", missed(met))
        }
        None => String::new(),
    };
    let (ours, peer) = (result.filled(&line.ours)?, result.filled(&line.peer)?);
    writeln!(table, "| {} | {ours} | {peer} | {aim} |", result.filled(&line.text)?)?;
    Ok(())
}

const HEAD: &str = "
# Benchmarks

Made by `make benchmarks-page` from the newest run of each bench in `bench/results`. Do not edit.

Each bench is one program under `bench/`. It runs Isotherm and what it is compared with alternately, in one run, and reports medians. An aim
was set before the figure was measured; **missed** aims are marked. Machines here are virtual, with two CPUs and neighbours: ratios hold better
than times, and nothing was measured on more CPUs, on more than one NUMA node, or with a PMU. `make bench` runs all of them.
";

/// A line of the table.
struct Shown {
    text: String,
    aim: String,
    value: String,
    met: Option<bool>,
}

fn shown(bench: &BenchText, figure: &Figure, result: &BenchResult) -> Result<Shown> {
    let value = result.value(&figure.key);
    let is_newer = figure.since.as_ref().is_some_and(|since| result.date < *since);
    ensure!(value.is_some() || is_newer, "{} of {} prints no {}", bench.name, result.date, figure.key);
    let space = if figure.unit.starts_with(['%', 'x']) { "" } else { " " };
    let unit = |n: f64| format!("{}{space}{}", number(n), figure.unit).trim_end().to_owned();
    let (aim, met) = match (figure.min, figure.max) {
        (Some(min), _) => (format!("at least {}", unit(min)), value.map(|value| value >= min)),
        (_, Some(max)) => (format!("at most {}", unit(max)), value.map(|value| value <= max)),
        _ => (String::new(), None),
    };
    let value = value.map_or_else(|| "not measured yet".to_owned(), unit);
    Ok(Shown { text: figure.text.clone(), aim, value, met })
}

fn missed(met: Option<bool>) -> &'static str {
    if met == Some(false) { ", **missed**" } else { "" }
}

/// Three significant digits, without zeros at the end; below 1 all four decimals of the RESULT line, so that a share of 0.9999 is not shown
/// as 1.
fn number(value: f64) -> String {
    let digits = match value.abs() {
        ..1.0 => 4,
        ..10.0 => 2,
        ..100.0 => 1,
        _ => 0,
    };
    let text = format!("{value:.digits$}");
    let short = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    if short == "-0" { "0".to_owned() } else { short.to_owned() }
}

fn section(page: &mut String, bench: &BenchText, result: &BenchResult, figures: &[Shown]) -> Result<()> {
    let BenchText { name, title, measured, modelled, notes, .. } = bench;
    writeln!(page, "\n## {title}\n\n`{}`, {}, on {}.\n", result.command, result.date, result.machine)?;
    writeln!(page, "*Measured:* {}\n", measured.trim())?;
    writeln!(page, "*Modelled:* {}\n", modelled.as_ref().map_or("nothing.", |text| text.trim()))?;
    writeln!(page, "| figure | aim | result |\n|---|---|---|")?;
    for Shown { text, aim, value, met } in figures {
        writeln!(page, "| {text} | {aim} | {value}{} |", missed(*met))?;
    }
    if let Some(notes) = notes {
        writeln!(page, "\n{}", notes.trim())?;
    }
    writeln!(page, "\nThe whole run: `bench/results/{}/{name}.txt`.", result.date)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXTS: &str = r#"
        [[headline]]
        bench = "bench-x"
        aim = "gain"
        text = "reads, {share} of all"
        ours = "{read_ns} ns"
        peer = "{gain} times that"

        [[bench]]
        name = "bench-x"
        title = "X"
        measured = "Walls."
        figures = [
          { key = "read_ns", text = "read", unit = "ns", max = 3 },
          { key = "gain", text = "gain", unit = "x", min = 30 },
          { key = "share", text = "share" },
        ]
    "#;
    const RUN: &str =
        "command: make bench-x\nmachine: 2 x CPU, Linux 6\na table\nRESULT read_ns=3.0400 gain=12.5278 share=0.0000\n";

    fn results(run: &str) -> BTreeMap<String, BenchResult> {
        [("bench-x".to_owned(), BenchResult::parse("2026-11-20", run).unwrap())].into()
    }

    #[test]
    fn a_figure_stands_beside_its_aim_and_misses_are_marked() {
        let page = page(&Texts::parse(TEXTS).unwrap(), &results(RUN)).unwrap();
        assert!(page.contains("| read | at most 3 ns | 3.04 ns, **missed** |\n"), "{page}");
        assert!(page.contains("| gain | at least 30x | 12.5x, **missed** |\n| share |  | 0 |\n"), "{page}");
        assert!(page.contains("`make bench-x`, 2026-11-20, on 2 x CPU, Linux 6.\n"), "{page}");
        assert!(page.contains("\n1 benches, 2 aims, 2 missed.\n") && page.contains("*Modelled:* nothing.\n"), "{page}");
        let met = RUN.replace("3.0400", "3.0000");
        assert!(super::page(&Texts::parse(TEXTS).unwrap(), &results(&met)).unwrap().contains("| 3 ns |"));
    }

    #[test]
    fn the_table_of_the_readme_is_made_anew_between_its_marks() {
        let texts = Texts::parse(TEXTS).unwrap();
        let old = format!("# X\n{TABLE_BEGINS}\nwhat was there\n{TABLE_ENDS}\nmore\n");
        let made = readme(&old, &texts, &results(RUN)).unwrap();
        let line = "| reads, 0 of all | 3.04 ns | 12.5 times that | at least 30x, **missed** |";
        let head = "| | Isotherm | next to | aim |\n|---|---|---|---|";
        assert_eq!(made, format!("# X\n{TABLE_BEGINS}\n{head}\n{line}\n{TABLE_ENDS}\nmore\n"));
        assert_eq!(readme(&made, &texts, &results(RUN)).unwrap(), made);
        assert!(readme("# X\n", &texts, &results(RUN)).is_err(), "without marks");
        let unknown = Texts::parse(&TEXTS.replace("{read_ns}", "{write_ns}")).unwrap();
        assert!(readme(&made, &unknown, &results(RUN)).is_err());
    }

    #[test]
    fn texts_and_results_have_to_fit() {
        let texts = Texts::parse(TEXTS).unwrap();
        let error = |results: &BTreeMap<String, BenchResult>| page(&texts, results).unwrap_err().to_string();
        assert_eq!(error(&BTreeMap::new()), "bench-x has no result: run it");
        assert_eq!(error(&results(&RUN.replace("gain", "loss"))), "bench-x of 2026-11-20 prints no gain");
        let mut more = results(RUN);
        more.insert("bench-y".to_owned(), more["bench-x"].clone());
        assert!(error(&more).starts_with("bench-y has a result and no text"));
        assert!(BenchResult::parse("2026-11-20", "command: x\nmachine: y\n").is_err(), "a run that did not end");
        assert!(Texts::parse(&TEXTS.replace("max = 3", "max = 3, min = 2")).is_err());
    }

    #[test]
    fn a_result_may_lack_a_figure_that_is_newer() {
        let run = RUN.replace(" gain=12.5278", "");
        let since = |day: &str| TEXTS.replace("min = 30", &format!("min = 30, since = {day:?}"));
        let page = |texts: &str, run: &str| super::page(&Texts::parse(texts).unwrap(), &results(run));
        let newer = page(&since("2026-11-21"), &run).unwrap();
        assert!(newer.contains("| gain | at least 30x | not measured yet |\n"), "{newer}");
        assert!(newer.contains("\n1 benches, 1 aims, 1 missed.\n"), "no aim of what was not measured: {newer}");
        assert!(page(&since("2026-11-20"), &run).is_err(), "the result is from a day whose runs print it");
        assert!(page(&since("2026-11-21"), RUN).unwrap().contains("| 12.5x, **missed** |"));
    }

    #[test]
    fn the_newest_day_counts() {
        let dir = tempfile::tempdir().unwrap();
        for (day, gain) in [("2026-11-09", "1"), ("2026-11-21", "3"), ("2026-11-10", "2")] {
            fs::create_dir(dir.path().join(day)).unwrap();
            let run = RUN.replace("12.5278", gain);
            fs::write(dir.path().join(day).join("bench-x.txt"), run).unwrap();
        }
        let newest = newest_results(dir.path()).unwrap();
        assert_eq!((newest["bench-x"].date.as_str(), newest["bench-x"].value("gain")), ("2026-11-21", Some(3.0)));
    }

    #[test]
    fn numbers_have_three_digits_that_mean_something() {
        assert_eq!([0.9999, 0.9961, 9.99, 99.94].map(number), ["0.9999", "0.9961", "9.99", "99.9"]);
        let shown = [0.0, -0.00001, 0.03846, 1.1735, 12.5278, 211.0, 1448.0, 631_814.0].map(number);
        assert_eq!(shown, ["0", "0", "0.0385", "1.17", "12.5", "211", "1448", "631814"]);
    }

    #[test]
    fn what_is_committed_is_what_is_made_from_the_results() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let read = |path: &str| fs::read_to_string(root.join(path)).unwrap();
        let (texts, results) =
            (Texts::parse(&read("benchmarks.toml")).unwrap(), newest_results(&root.join("results")).unwrap());
        let stale = "is stale: run `make benchmarks-page` and commit what it writes";
        assert!(page(&texts, &results).unwrap() == read("../docs/benchmarks.md"), "docs/benchmarks.md {stale}");
        let committed = read("../README.md");
        assert!(readme(&committed, &texts, &results).unwrap() == committed, "the table of README.md {stale}");
    }
}
