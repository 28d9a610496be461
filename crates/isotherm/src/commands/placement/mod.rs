//! `isotherm placement`: what the frames of real processes would miss in a direct-mapped memory-side cache, where they lie and where they
//! might.
//!
//! Reads which frames back the pages ([`frames`]), how often each is accessed if that was asked for ([`heat`]), splits them by node, for a
//! cache serves its own node only ([`nodes`]), and has `isotherm_placement::direct_mapped` compute node by node. Only ever reads. The whole host is all its processes together (`--all`), not
//! `/proc/kpageflags`: that would tell of page cache and kernel memory as well, but not whose a frame is nor how hot.

mod frames;
mod heat;
mod nodes;

use crate::cli::{PlacementArgs, Usage};
use crate::output;
use crate::watch::{Stop, selection};
use anyhow::{Context, Result, bail};
use frames::{Found, Frames};
use heat::Heated;
use indicatif::{ProgressBar, ProgressDrawTarget};
use isotherm_monitor::Follower;
use isotherm_placement::direct_mapped::{
    DirectMapped, Footprint, Gather, HISTOGRAM_MOST, Load, Misses, Shuffle, Spread, coloured, coloured_by_heat,
    unavoidable,
};
use isotherm_rng::Rng;
use isotherm_sys::host::{HostFacts, HostRoots};
use isotherm_sys::proc::Proc;
use isotherm_sys::random;
use isotherm_units::{Bytes, PAGE_SIZE};
use isotherm_view::placement::{
    ColourCell, ColoursByFrames, DrawnRate, LeftOut, LoadedColour, PlacementNode, PlacementRates, PlacementReport,
    picture_grid,
};
use nodes::{Node, Split};
use std::cmp::Ordering;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

/// Shuffles drawn: their mean is then off by a quarter of their spread at the most likely.
const SHUFFLES: u32 = 20;
/// Even spreads drawn. They differ by heat only, and hardly.
const SPREADS: u32 = 5;
/// Colours that are told one by one.
const TOLD: usize = 10;
/// How long heat is watched if nothing is said.
const WATCHED_NS: u64 = 10_000_000_000;

pub fn run(args: &PlacementArgs) -> Result<()> {
    check(args)?;
    let facts = HostFacts::read(&HostRoots::default(), PAGE_SIZE);
    let nodes = nodes::nodes(args.cache_size, &facts)?;
    frames::check_visible(&Proc::default())?;
    let stop = Stop::on_signals()?.or_when_unread()?;
    let (heated, told, _watching) = match wanted_heat(args) {
        None => (resident(args)?, None, None),
        Some(Wanted::Recording(path)) => {
            let (heated, told) = heat::recorded(path, &args.targets.pids)?;
            (heated, Some(told), None)
        }
        Some(Wanted::Watched(ns)) => {
            let (heated, told, watching) = heat::watched(args, ns, &stop)?;
            (heated, Some(told), Some(watching))
        }
    };
    let found = collect(&heated, told.is_some(), &stop)?;
    let seed = args.watch.seed.unwrap_or_else(random::seed);
    let style = output::terminal_style(args.color);
    let told = Told { heat: told, shuffle_on: facts.shuffle.on, seed, grid: picture_grid(style.text) };
    let report = report(found, nodes, Proc::default().root(), told, &stop)?;
    if args.json {
        return output::json(&report);
    }
    let mut out = output::stdout();
    report.write_text(&mut out, &style)?;
    out.flush()?;
    Ok(())
}

/// What clap cannot see.
fn check(args: &PlacementArgs) -> Result<(), Usage> {
    if args.watch.is_played() || args.watch.is_of_machine() {
        return Err(Usage(
            "frames are those of running processes: name them, without --replay, --model or physical sources".into(),
        ));
    }
    if args.targets.is_empty() && args.from.is_none() {
        return Err(Usage("name whose frames: -p PID, --cgroup PATH, --all, or -- COMMAND with --watch TIME".into()));
    }
    if !args.targets.command.is_empty() && args.watch_for.is_none() {
        return Err(Usage(
            "a command has no frames yet when it starts: say with --watch how long it runs first".into(),
        ));
    }
    if args.watch.sampling.is_given() && args.watch_for.is_none() && !args.heat {
        return Err(Usage("events are sampled for heat: add --watch TIME".into()));
    }
    Ok(())
}

enum Wanted<'a> {
    Recording(&'a Path),
    Watched(u64),
}

fn wanted_heat(args: &PlacementArgs) -> Option<Wanted<'_>> {
    match (&args.from, args.watch_for) {
        (Some(path), _) => Some(Wanted::Recording(path)),
        (None, Some(ns)) => Some(Wanted::Watched(ns)),
        (None, None) => args.heat.then_some(Wanted::Watched(WATCHED_NS)),
    }
}

/// The processes named, of whose heat nothing is known.
fn resident(args: &PlacementArgs) -> Result<Vec<Heated>> {
    let selection = selection(&args.targets).context("a command is watched")?;
    let proc = Proc::default();
    let mut follower = Follower::new(&selection, proc.clone())?;
    let named = follower.is_named();
    let mut heated = Vec::new();
    for pid in follower.current()? {
        match proc.stat(pid) {
            // A kernel thread that was not named has nothing to read, and is no loss.
            Ok(stat) if stat.is_kernel_thread() && !named => {}
            Ok(stat) => heated.push(Heated {
                start_ticks: Some(stat.start_ticks),
                comm: stat.comm,
                named: follower.was_named(pid),
                ..Heated::of(pid)
            }),
            Err(error) if follower.was_named(pid) && error.is_gone() => bail!(frames::no_such(pid)),
            Err(error) if follower.was_named(pid) => return Err(error.into()),
            Err(_) => {}
        }
    }
    Ok(heated)
}

/// Reads the frames of all processes.
fn collect(heated: &[Heated], weighted: bool, stop: &Stop) -> Result<Found> {
    let bar = Late::new(heated.len() as u64, "reading frames");
    let mut frames = Frames::new(if weighted { Gather::weighted() } else { Gather::uniform() })?;
    for process in heated {
        if stop.is_set() {
            bail!("stopped before all frames were read");
        }
        frames.add(process, stop)?;
        bar.tick();
    }
    bar.end();
    frames.finish()
}

/// A bar that is shown once something has taken two seconds, on a terminal.
struct Late {
    bar: ProgressBar,
    began: Instant,
}

impl Late {
    fn new(things: u64, what: &str) -> Late {
        let bar = output::counting(things, what);
        bar.set_draw_target(ProgressDrawTarget::hidden());
        Late { bar, began: Instant::now() }
    }

    fn tick(&self) {
        if self.bar.is_hidden() && self.began.elapsed() > Duration::from_secs(2) {
            // Draws nothing where standard error is no terminal.
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.inc(1);
    }

    fn end(&self) {
        self.bar.finish_and_clear();
    }
}

/// What the report tells as it is.
struct Told {
    heat: Option<String>,
    shuffle_on: Option<bool>,
    seed: u64,
    /// Columns and rows of a picture: it is folded for the terminal, or a hundred columns.
    grid: (usize, usize),
}

/// Computes all that is told; `proc` is where zones are read.
fn report(found: Found, nodes: Vec<Node>, proc: &Path, told: Told, stop: &Stop) -> Result<PlacementReport> {
    let (frames, blocks) = (found.footprint.frames(), found.footprint.blocks());
    let weight = found.footprint.weight_of_all();
    let Split { nodes, unknown } = nodes::split(found.footprint, nodes, proc)?;
    // One for all, so that what is drawn for a node is independent of what is drawn for another.
    let mut rng = Rng::new(told.seed);
    let mut total = Total::default();
    let mut sections = Vec::new();
    for (node, footprint) in nodes {
        let by_heat = told.heat.is_some();
        sections.push(section(node, &footprint, weight, by_heat, told.grid, &mut rng, &mut total, stop)?);
    }
    Ok(PlacementReport {
        heat: told.heat,
        frames,
        footprint_bytes: Bytes::of_pages(frames),
        blocks,
        shared_pages: found.pages - frames,
        targets: found.targets,
        left_out: found.left_out.into_iter().map(|(pid, why)| LeftOut { pid, why }).collect(),
        nodes: sections,
        unknown_node_frames: unknown.frames(),
        behind_cache_pct: (weight > 0.0).then(|| total.weight / weight * 100.0),
        rates: total.rates(),
        shuffle_on: told.shuffle_on,
        seed: told.seed,
        picture_columns: told.grid.0,
    })
}

/// What is told of one node, of which `total` is told as well. `weight` is that of all frames on all nodes.
#[expect(clippy::too_many_arguments, reason = "called in one place, and none of them belong together")]
fn section(
    node: Node,
    footprint: &Footprint,
    weight: f64,
    by_heat: bool,
    (columns, rows): (usize, usize),
    rng: &mut Rng,
    total: &mut Total,
    stop: &Stop,
) -> Result<PlacementNode> {
    let memory = node.memory.unwrap_or(Bytes::of_pages(footprint.blocks() * 1024));
    let mut told = PlacementNode {
        node: node.id,
        memory_bytes: memory,
        cache: None,
        unclear: node.unclear,
        frames: footprint.frames(),
        footprint_bytes: Bytes::of_pages(footprint.frames()),
        blocks: footprint.blocks(),
        accesses_pct: (weight > 0.0).then(|| footprint.weight_of_all() / weight * 100.0),
        rates: None,
        colours_used: 0,
        colours_by_frames: Vec::new(),
        most_loaded: Vec::new(),
        picture: Vec::new(),
    };
    let Some((cache, told_cache)) = node.cache else { return Ok(told) };
    let mut picture = Picture::new(cache.frames(), columns * rows);
    let mut most = Most::new(by_heat);
    let placed = footprint.conflict(cache).visit(|colour, load| {
        picture.add(colour, load);
        most.add(colour, load);
    });
    if let Some(rates) = rates(footprint, cache, memory, &placed, rng, stop)? {
        total.add(placed.weight, &rates);
        told.rates = rates.told();
    }
    told.cache = Some(told_cache);
    told.colours_used = placed.colours_used;
    told.colours_by_frames = by_frames(&placed);
    told.most_loaded = most.told(placed.weight);
    told.picture = picture.cells(placed.weight);
    Ok(told)
}

/// Miss rates, 0 to 1, each draw by itself: draws of several nodes are added up before their spread is taken.
#[derive(Clone, Debug, Default)]
struct Rates {
    placed: f64,
    shuffled: Vec<f64>,
    coloured: Vec<f64>,
    coloured_by_heat: f64,
    unavoidable: f64,
    crowded: f64,
}

impl Rates {
    /// Adds `share` times the others.
    fn add(&mut self, share: f64, other: &Rates) {
        let add_all = |sums: &mut Vec<f64>, rates: &[f64]| {
            sums.resize(sums.len().max(rates.len()), 0.0);
            sums.iter_mut().zip(rates).for_each(|(sum, rate)| *sum += share * rate);
        };
        self.placed += share * other.placed;
        add_all(&mut self.shuffled, &other.shuffled);
        add_all(&mut self.coloured, &other.coloured);
        self.coloured_by_heat += share * other.coloured_by_heat;
        self.unavoidable += share * other.unavoidable;
        self.crowded += share * other.crowded;
    }

    /// The share of shuffles that miss less than as placed; `None` if nothing was drawn.
    fn below_placed(&self) -> Option<f64> {
        let below = self.shuffled.iter().filter(|rate| **rate < self.placed).count();
        (!self.shuffled.is_empty()).then(|| below as f64 / self.shuffled.len() as f64)
    }

    /// In percent; `None` if nothing was drawn.
    fn told(&self) -> Option<PlacementRates> {
        let pct = |rate: f64| rate * 100.0;
        let drawn = |rates: &[f64]| {
            let mut spread = Spread::default();
            rates.iter().for_each(|rate| spread.add(*rate));
            Some(DrawnRate {
                mean_pct: pct(spread.mean()?),
                min_pct: pct(spread.least()?),
                max_pct: pct(spread.most()?),
                draws: spread.draws(),
            })
        };
        Some(PlacementRates {
            placed_pct: pct(self.placed),
            shuffled: drawn(&self.shuffled)?,
            shuffled_below_placed_pct: pct(self.below_placed()?),
            coloured: drawn(&self.coloured)?,
            coloured_by_heat_pct: pct(self.coloured_by_heat),
            unavoidable_pct: pct(self.unavoidable),
            crowded_pct: pct(self.crowded),
        })
    }
}

/// The rates of all nodes together: of each, by how much it is accessed.
#[derive(Clone, Debug, Default)]
struct Total {
    /// What is accessed behind a cache.
    weight: f64,
    nodes: Vec<(f64, Rates)>,
}

impl Total {
    fn add(&mut self, weight: f64, rates: &Rates) {
        self.weight += weight;
        self.nodes.push((weight, rates.clone()));
    }

    /// `None` if nothing behind a cache is accessed.
    fn rates(&self) -> Option<PlacementRates> {
        let mut sum = Rates::default();
        for (weight, rates) in &self.nodes {
            sum.add(weight / self.weight, rates);
        }
        sum.told()
    }
}

/// As placed, and elsewhere; `None` if nothing is accessed.
fn rates(
    footprint: &Footprint,
    cache: DirectMapped,
    memory: Bytes,
    placed: &Misses,
    rng: &mut Rng,
    stop: &Stop,
) -> Result<Option<Rates>> {
    let (Some(placed_rate), Some(unavoidable)) = (placed.rate(), unavoidable(footprint, cache)) else {
        return Ok(None);
    };
    let mut shuffle = Shuffle::new(memory, footprint);
    // All the same if nothing is hotter than the rest.
    let spreads = if footprint.is_uniform() { 1 } else { SPREADS };
    let bar = Late::new(u64::from(SHUFFLES + spreads), "drawing placements");
    let (mut shuffled, mut even) = (Vec::new(), Vec::new());
    for draw in 0..SHUFFLES + spreads {
        if stop.is_set() {
            bail!("stopped before all placements were drawn");
        }
        if draw < SHUFFLES {
            shuffled.push(shuffle.draw(footprint, cache, rng).rate().unwrap_or_default());
        } else {
            even.push(coloured(footprint, cache, rng).rate().unwrap_or_default());
        }
        bar.tick();
    }
    bar.end();
    Ok(Some(Rates {
        placed: placed_rate,
        shuffled,
        coloured: even,
        coloured_by_heat: coloured_by_heat(footprint, cache).rate().unwrap_or_default(),
        unavoidable,
        crowded: placed.crowded_share().unwrap_or_default(),
    }))
}

fn by_frames(placed: &Misses) -> Vec<ColoursByFrames> {
    let entry = |(frames, colours): (u64, &u64)| ColoursByFrames { frames, colours: *colours };
    (0_u64..).zip(&placed.histogram).take(HISTOGRAM_MOST + 1).filter(|(_, n)| **n > 0).map(entry).collect()
}

/// Colours folded into cells.
struct Picture {
    colours: u64,
    cells: Vec<Load>,
}

impl Picture {
    fn new(colours: u64, most_cells: usize) -> Picture {
        let cells = usize::try_from(colours).map_or(most_cells, |n| n.min(most_cells)).max(1);
        Picture { colours, cells: vec![Load::default(); cells] }
    }

    fn add(&mut self, colour: u64, load: &Load) {
        let cell = u128::from(colour) * self.cells.len() as u128 / u128::from(self.colours.max(1));
        if let Some(cell) = usize::try_from(cell).ok().and_then(|cell| self.cells.get_mut(cell)) {
            cell.frames += load.frames;
            cell.weight += load.weight;
        }
    }

    /// The first colour of a cell: the least that [`Picture::add`] puts into it.
    fn first(&self, cell: usize) -> u64 {
        let first = (cell as u128 * u128::from(self.colours)).div_ceil(self.cells.len() as u128);
        u64::try_from(first).unwrap_or(self.colours)
    }

    fn cells(&self, weight: f64) -> Vec<ColourCell> {
        let told = |(index, cell): (usize, &Load)| ColourCell {
            first_colour: self.first(index),
            colours: self.first(index + 1) - self.first(index),
            frames: cell.frames,
            accesses_pct: (weight > 0.0).then(|| cell.weight / weight * 100.0),
        };
        self.cells.iter().enumerate().map(told).collect()
    }
}

/// The colours with most on them: most frames, or most misses if heat is known.
struct Most {
    by_heat: bool,
    colours: Vec<(u64, Load)>,
}

impl Most {
    fn new(by_heat: bool) -> Most {
        Most { by_heat, colours: Vec::with_capacity(TOLD + 1) }
    }

    fn add(&mut self, colour: u64, load: &Load) {
        if self.colours.len() == TOLD && self.colours.last().is_some_and(|(_, last)| self.order(load, last).is_ge()) {
            return;
        }
        let at = self.colours.partition_point(|(_, other)| self.order(other, load).is_le());
        self.colours.insert(at, (colour, *load));
        self.colours.truncate(TOLD);
    }

    /// More goes first.
    fn order(&self, a: &Load, b: &Load) -> Ordering {
        if self.by_heat { (b.weight - b.hits()).total_cmp(&(a.weight - a.hits())) } else { b.frames.cmp(&a.frames) }
    }

    fn told(self, weight: f64) -> Vec<LoadedColour> {
        let told = |(colour, load): (u64, Load)| LoadedColour {
            colour,
            frames: load.frames,
            accesses_pct: (weight > 0.0).then(|| load.weight / weight * 100.0),
        };
        self.colours.into_iter().map(told).collect()
    }
}

#[cfg(test)]
mod tests;
