//! The placement report as text at three widths, in colour, and as JSON, kept as snapshots.

use isotherm_placement::report::{
    ColourCell, ColoursByFrames, DrawnRate, LoadedColour, PlacementCache, PlacementNode, PlacementRates,
    PlacementReport, PlacementTarget, SkippedProcess,
};
use isotherm_units::Bytes;
use isotherm_view::TextStyle;
use isotherm_view::heatmap::{ColorMode, TerminalStyle};
use isotherm_view::placement::write_text;
use unicode_width::UnicodeWidthStr;

fn target(pid: u32, comm: &str) -> PlacementTarget {
    PlacementTarget {
        pid,
        comm: comm.to_owned(),
        resident_pages: 9000,
        zero_pages: 256,
        swapped_pages: 10,
        absent_pages: 1 << 20,
        unknown_heat_pages: None,
    }
}

/// What 12,000 frames behind 10,000 colours cost as they are placed, and placed otherwise.
fn rates() -> PlacementRates {
    let drawn = |mean_pct, min_pct, max_pct, draws| DrawnRate { mean_pct, min_pct, max_pct, draws };
    PlacementRates {
        placed_pct: 41.7,
        shuffled: drawn(35.2, 33.9, 37.0, 20),
        shuffled_below_placed_pct: 100.0,
        coloured: drawn(16.7, 16.7, 16.7, 1),
        coloured_by_heat_pct: 16.7,
        unavoidable_pct: 16.7,
        crowded_pct: 71.0,
    }
}

/// The node of [`uniform`], whose cache is modelled.
fn node() -> PlacementNode {
    let cell = |i: u64| {
        let frames = match i {
            0..13 => 690,
            13..30 => 130 + i * 5,
            _ => 0,
        };
        ColourCell { first_colour: i * 250, colours: 250, frames, accesses_pct: Some(frames as f64 / 120.0) }
    };
    let cache = PlacementCache {
        size_bytes: Bytes::of_pages(10_000),
        colours: 10_000,
        modelled: true,
        source: "--cache-size".to_owned(),
        extended_linear: false,
        doubts: Vec::new(),
    };
    let by_frames = |(frames, colours)| ColoursByFrames { frames, colours };
    let loaded = |colour| LoadedColour { colour, frames: 3, accesses_pct: Some(0.03) };
    PlacementNode {
        node: 0,
        memory_bytes: Bytes::of_mib(24_000),
        cache: Some(cache),
        unclear: None,
        frames: 12_000,
        footprint_bytes: Bytes::of_pages(12_000),
        blocks: 40,
        accesses_pct: Some(100.0),
        rates: Some(rates()),
        colours_used: 7000,
        colours_by_frames: [(1, 3500), (2, 2000), (3, 1500)].map(by_frames).to_vec(),
        most_loaded: [17, 18].map(loaded).to_vec(),
        picture: (0..40).map(cell).collect(),
    }
}

/// 12,000 frames behind 10,000 colours, the first third of which is crowded and the last empty.
fn uniform() -> PlacementReport {
    PlacementReport {
        heat: None,
        targets: vec![target(812, "redis-server"), target(813, "evil\x1b[2Jname")],
        left_out: vec![SkippedProcess { pid: 99, why: "ended while it was read".to_owned() }],
        frames: 12_000,
        footprint_bytes: Bytes::of_pages(12_000),
        blocks: 40,
        shared_pages: 6000,
        nodes: vec![node()],
        unknown_node_frames: 0,
        behind_cache_pct: Some(100.0),
        rates: Some(rates()),
        shuffle_on: Some(false),
        seed: 7,
        picture_columns: 20,
    }
}

fn with_rates(mut report: PlacementReport, edit: impl Fn(PlacementRates) -> PlacementRates) -> PlacementReport {
    report.rates = report.rates.map(&edit);
    report.nodes.iter_mut().for_each(|node| node.rates = node.rates.map(&edit));
    report
}

/// Four nodes: one with a cache of the machine's, one with a doubtful extended-linear one, one with one that is unclear, one with none
/// of the frames; and frames of which the node is unknown.
fn several() -> PlacementReport {
    let mut report = heated();
    let mut cached = report.nodes.remove(0);
    cached.accesses_pct = Some(60.0);
    cached.picture.truncate(20);
    let machines = |node: u32| PlacementCache {
        modelled: false,
        source: format!("memory-side cache of node {node}"),
        size_bytes: Bytes::of_pages(10_000),
        colours: 10_000,
        extended_linear: false,
        doubts: Vec::new(),
    };
    cached.cache = Some(machines(0));
    let mut flat = cached.clone();
    (flat.node, flat.accesses_pct) = (1, Some(30.0));
    let doubts =
        vec!["address_mode is \"\u{1b}x\", which is no number".to_owned(), "level 1 is listed twice".to_owned()];
    flat.cache = Some(PlacementCache { extended_linear: true, doubts, ..machines(1) });
    let bare = PlacementNode {
        cache: None,
        rates: None,
        colours_used: 0,
        colours_by_frames: Vec::new(),
        most_loaded: Vec::new(),
        picture: Vec::new(),
        ..cached.clone()
    };
    let unclear = PlacementNode {
        node: 2,
        frames: 1,
        blocks: 1,
        footprint_bytes: Bytes::of_pages(1),
        accesses_pct: Some(9.0),
        unclear: Some("unknown size, direct-mapped, level 1".to_owned()),
        ..bare.clone()
    };
    let empty = PlacementNode { node: 3, frames: 0, blocks: 0, cache: Some(machines(3)), ..bare };
    report.nodes = vec![cached, flat, unclear, empty];
    report.unknown_node_frames = 12;
    report.behind_cache_pct = Some(90.0);
    report
}

fn heated() -> PlacementReport {
    let mut report = uniform();
    report.heat = Some("watched for 10 s by page-table".to_owned());
    report.left_out.clear();
    report.targets.truncate(1);
    report.targets[0].unknown_heat_pages = Some(256);
    report.shuffle_on = None;
    with_rates(report, |r| PlacementRates { coloured_by_heat_pct: 4.2, unavoidable_pct: 2.5, ..r })
}

fn text(report: &PlacementReport, width: usize, color: ColorMode) -> String {
    let style = TerminalStyle { text: TextStyle { width, ascii: false }, color, ..TerminalStyle::default() };
    let mut out = Vec::new();
    write_text(report, &mut out, &style).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn as_text_and_as_data() {
    for (name, report) in [("uniform", uniform()), ("heated", heated()), ("several", several())] {
        for width in [20, 80, 200] {
            let text = text(&report, width, ColorMode::None);
            for line in text.lines() {
                assert!(line.width() <= width && line == line.trim_end() && !line.contains('\x1b'), "{width}: {line}");
            }
            insta::assert_snapshot!(format!("{name}_{width}"), text);
        }
        insta::assert_snapshot!(format!("{name}_json"), serde_json::to_string_pretty(&report).unwrap());
    }
}

#[test]
fn in_colour_two_rows_are_one_line() {
    let text = text(&uniform(), 200, ColorMode::True);
    assert_eq!(text.lines().filter(|l| l.contains('▀')).count(), 1, "{text}");
    assert!(text.contains("the brightest is") && !text.contains("\x1b[2J"));
}

#[test]
fn what_a_shuffle_would_give_is_said_in_words() {
    let says = |placed_pct: f64, below: f64, on: Option<bool>| {
        let mut report = uniform();
        report.shuffle_on = on;
        let edited = with_rates(report, |r| PlacementRates { placed_pct, shuffled_below_placed_pct: below, ..r });
        text(&edited, 1000, ColorMode::None)
    };
    let off = says(41.7, 100.0, Some(false));
    let less = "shuffle is off: in 20 draws a shuffle misses 35.2% (33.9 to 37.0) instead of 41.7%: 6.5 points less on \
                average, 100% of draws below as placed";
    assert!(off.contains(less), "{off}");
    assert!(
        off.contains("boot with page_alloc.shuffle=1") && off.contains("the same frames would miss 16.7%"),
        "{off}"
    );
    let more = says(20.0, 0.0, Some(false));
    assert!(more.contains("instead of 20.0%: 15.2 points more on average, 0% of draws below as placed"), "{more}");
    let within = says(35.0, 45.0, Some(false));
    let expected =
        "as placed, 35.0% is within the range of 20 draws of a shuffle: 35.2% (33.9 to 37.0), 45% of draws below";
    assert!(within.contains(expected), "{within}");
    assert!(says(35.0, 45.0, Some(true)).contains("shuffle is on: as placed"));
    assert!(says(35.0, 45.0, None).contains("is unknown"));
}

#[test]
fn cells_of_unlike_sizes_and_zero_pages_are_said() {
    let mut report = uniform();
    report.nodes[0].picture[3].colours = 249;
    let told = text(&report, 1000, ColorMode::None);
    assert!(told.contains("a cell is up to 250 colours") && told.contains(", 2.0 MiB of zero pages; "), "{told}");
    report.targets.iter_mut().for_each(|target| target.zero_pages = 0);
    let told = text(&report, 1000, ColorMode::None);
    assert!(!told.contains("zero pages"), "{told}");
}

#[test]
fn nothing_accessed_is_no_rate() {
    let mut report = heated();
    (report.rates, report.nodes[0].rates) = (None, None);
    report.nodes[0].picture.iter_mut().for_each(|cell| cell.accesses_pct = None);
    let text = text(&report, 80, ColorMode::None);
    assert!(
        text.contains("nothing was accessed") && !text.contains("NaN") && !text.contains("by colour, from"),
        "{text}"
    );
}

#[test]
fn nodes_are_told_one_by_one_and_together() {
    let told = text(&several(), 1000, ColorMode::None);
    for expected in [
        "node 0, 23.4 GiB: 46.9 MiB in 12000 frames and 40 blocks of 4 MiB, 60.0% of accesses\n",
        "extended-linear, 10000 colours (memory-side cache of node 1): as reported by this machine; it is memory too",
        "in doubt: address_mode is",
        "level 1 is listed twice",
        "1 frame and 1 block of 4 MiB, 9.0% of accesses; not taken as behind a cache: unknown size, direct-mapped",
        "node 3, 23.4 GiB: none of these frames\n",
        "12 frames in no zone",
        "all nodes: 90.0% of all accesses go to memory behind a cache; 41.7% of those miss as placed",
        "modulo the colours of its node's cache",
    ] {
        assert!(told.contains(expected), "{expected}: {told}");
    }
    // With nothing behind a cache there is nothing to assume.
    let mut report = several();
    report.nodes.truncate(3);
    report.nodes.iter_mut().for_each(|node| (node.cache, node.rates) = (None, None));
    (report.rates, report.behind_cache_pct) = (None, Some(0.0));
    let told = text(&report, 1000, ColorMode::None);
    assert!(
        told.contains("; not behind a cache") && !told.contains("assumed") && !told.contains("all nodes"),
        "{told}"
    );
}
