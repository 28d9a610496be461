//! `isotherm placement`: what the frames of real processes would miss in a direct-mapped memory-side cache, where they lie and where they
//! might.
//!
//! Reads which frames back the pages ([`frames`]), how often each is accessed if that was asked for ([`heat`]), and has
//! `isotherm_model::direct_mapped` compute. Only ever reads. The whole host is all its processes together (`--all`), not
//! `/proc/kpageflags`: that would tell of page cache and kernel memory as well, but not whose a frame is nor how hot.

mod frames;
mod heat;

use crate::cli::{PlacementArgs, Usage};
use crate::output;
use crate::watch::{Stop, selection};
use anyhow::{Context, Result, bail};
use frames::{Found, Frames};
use heat::Heated;
use indicatif::{ProgressBar, ProgressDrawTarget};
use isotherm_model::direct_mapped::{
    DirectMapped, Footprint, Gather, HISTOGRAM_MOST, Load, Misses, Shuffle, Spread, coloured, coloured_by_heat,
    unavoidable,
};
use isotherm_monitor::Follower;
use isotherm_rng::Rng;
use isotherm_sys::host::{HostFacts, HostRoots, Indexing, NumaNode};
use isotherm_sys::proc::Proc;
use isotherm_sys::random;
use isotherm_units::{Bytes, PAGE_SIZE};
use isotherm_view::placement::{
    ColourCell, ColoursByFrames, DrawnRate, LeftOut, LoadedColour, PlacementCache, PlacementRates, PlacementReport,
    picture_grid,
};
use std::cmp::Ordering;
use std::io::Write;
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
    let cache = cache_of(args.cache_size, &facts)?;
    frames::check_visible(&Proc::default())?;
    let stop = Stop::on_signals()?;
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
    let report = report(args, &facts, cache, found, told, seed, &stop)?;
    if args.json {
        return output::json(&report);
    }
    let mut out = output::stdout();
    report.write_text(&mut out, &output::terminal_style(args.color))?;
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
    Recording(&'a std::path::Path),
    Watched(u64),
}

fn wanted_heat(args: &PlacementArgs) -> Option<Wanted<'_>> {
    match (&args.from, args.watch_for) {
        (Some(path), _) => Some(Wanted::Recording(path)),
        (None, Some(ns)) => Some(Wanted::Watched(ns)),
        (None, None) => args.heat.then_some(Wanted::Watched(WATCHED_NS)),
    }
}

/// The cache to hold frames against: as asked for, or of this machine.
fn cache_of(asked: Option<Bytes>, facts: &HostFacts) -> Result<(DirectMapped, PlacementCache)> {
    let (size, source) = match asked {
        Some(size) => (size, "--cache-size".to_owned()),
        None => caches_of_machine(facts.nodes.as_deref().unwrap_or_default())?,
    };
    let cache = DirectMapped::new(size).map_err(|why| match asked {
        Some(_) => anyhow::Error::new(Usage(format!("--cache-size: {why}"))),
        None => anyhow::Error::new(why),
    })?;
    let told = PlacementCache { size_bytes: size, colours: cache.frames(), modelled: asked.is_some(), source };
    Ok((cache, told))
}

/// The size of the direct-mapped caches that sysfs tells of, and where they are. Those of several nodes are taken as one: each holds
/// memory of its own node only, and memory is interleaved over nodes or it is not, which frames alone do not tell.
fn caches_of_machine(nodes: &[NumaNode]) -> Result<(Bytes, String)> {
    const MODEL: &str = "model one with --cache-size, as in --cache-size 16GiB";
    let all = || nodes.iter().flat_map(|node| node.caches.iter().map(move |cache| (node.id, cache)));
    let direct: Vec<(u32, Bytes)> = nodes
        .iter()
        .filter_map(|node| {
            let mut of_node = node.caches.iter().filter(|c| c.indexing == Some(Indexing::Direct));
            Some((node.id, of_node.find_map(|cache| cache.size.filter(|size| size.0 > 0))?))
        })
        .collect();
    match &direct[..] {
        [] if all().next().is_none() => bail!("this machine tells of no memory-side cache; {MODEL}"),
        [] => bail!(
            "none of the {} memory-side caches that this machine tells of is direct-mapped and of known size; {MODEL}",
            all().count()
        ),
        [(node, size)] => Ok((*size, format!("memory-side cache of node {node}"))),
        several => {
            let size = several.iter().fold(0_u64, |sum, (_, size)| sum.saturating_add(size.0));
            Ok((Bytes(size), format!("memory-side caches of {} nodes, taken as one", several.len())))
        }
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
            Err(error) if follower.was_named(pid) => return Err(error.into()),
            Err(_) => {}
        }
    }
    Ok(heated)
}

/// Reads the frames of all processes.
fn collect(heated: &[Heated], weighted: bool, stop: &Stop) -> Result<Found> {
    let bar = Late::new(heated.len() as u64, "reading frames");
    let mut frames = Frames::new(if weighted { Gather::weighted() } else { Gather::uniform() });
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

/// Computes all that is told. The picture is folded for the terminal, or a hundred columns.
fn report(
    args: &PlacementArgs,
    facts: &HostFacts,
    (cache, told_cache): (DirectMapped, PlacementCache),
    found: Found,
    told: Option<String>,
    seed: u64,
    stop: &Stop,
) -> Result<PlacementReport> {
    let footprint = &found.footprint;
    let memory = facts.memory.unwrap_or(Bytes::of_pages(footprint.blocks() * 1024));
    let style = output::terminal_style(args.color);
    let (columns, rows) = picture_grid(style.text);
    let by_heat = told.is_some();
    let mut picture = Picture::new(cache.frames(), columns * rows);
    let mut most = Most::new(by_heat);
    let placed = footprint.conflict(cache).visit(|colour, load| {
        picture.add(colour, load);
        most.add(colour, load);
    });
    let rates = rates(footprint, cache, memory, &placed, seed, stop)?;
    Ok(PlacementReport {
        cache: told_cache,
        heat: told,
        frames: footprint.frames(),
        footprint_bytes: Bytes::of_pages(footprint.frames()),
        blocks: footprint.blocks(),
        shared_pages: found.pages - footprint.frames(),
        targets: found.targets,
        left_out: found.left_out.into_iter().map(|(pid, why)| LeftOut { pid, why }).collect(),
        rates,
        colours_used: placed.colours_used,
        colours_by_frames: by_frames(&placed),
        most_loaded: most.told(placed.weight),
        shuffle_on: facts.shuffle.on,
        memory_bytes: memory,
        seed,
        picture_columns: columns,
        picture: picture.cells(placed.weight),
    })
}

/// As placed, and elsewhere; `None` if nothing is accessed.
fn rates(
    footprint: &Footprint,
    cache: DirectMapped,
    memory: Bytes,
    placed: &Misses,
    seed: u64,
    stop: &Stop,
) -> Result<Option<PlacementRates>> {
    let (Some(placed_rate), Some(rest)) = (placed.rate(), unavoidable(footprint, cache)) else { return Ok(None) };
    let mut rng = Rng::new(seed);
    let mut shuffle = Shuffle::new(memory, footprint);
    // All the same if nothing is hotter than the rest.
    let spreads = if footprint.is_uniform() { 1 } else { SPREADS };
    let bar = Late::new(u64::from(SHUFFLES + spreads), "drawing placements");
    let (mut shuffled, mut even) = (Spread::default(), Spread::default());
    for draw in 0..SHUFFLES + spreads {
        if stop.is_set() {
            bail!("stopped before all placements were drawn");
        }
        if draw < SHUFFLES {
            shuffled.add(shuffle.draw(footprint, cache, &mut rng).rate().unwrap_or_default());
        } else {
            even.add(coloured(footprint, cache, &mut rng).rate().unwrap_or_default());
        }
        bar.tick();
    }
    bar.end();
    let by_heat = coloured_by_heat(footprint, cache).rate().unwrap_or_default();
    let pct = |rate: f64| rate * 100.0;
    let drawn = |spread: Spread| {
        Some(DrawnRate {
            mean_pct: pct(spread.mean()?),
            min_pct: pct(spread.least()?),
            max_pct: pct(spread.most()?),
            draws: spread.draws(),
        })
    };
    Ok(drawn(shuffled).zip(drawn(even)).map(|(shuffled, coloured)| PlacementRates {
        placed_pct: pct(placed_rate),
        shuffled,
        coloured,
        coloured_by_heat_pct: pct(by_heat),
        unavoidable_pct: pct(rest),
        crowded_pct: pct(placed.crowded_share().unwrap_or_default()),
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
