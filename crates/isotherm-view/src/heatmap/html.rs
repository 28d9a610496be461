//! A heat map as one HTML file that makes no network requests: a choice of targets and scales, zoom, and details under
//! the pointer.
//!
//! `page.html` is the page with its script, and the data are inserted here. A map is stored once for each scale,
//! as runs of equal cells along time, in base64 of (length, step) pairs: 600 snapshots of a target take about 100 kB a
//! scale. Cells that are estimated are listed likewise. Addresses are strings, because JavaScript numbers cannot hold 64 bits.
//!
//! Names in the data come from the monitored processes. JSON within a script element ends at `</script`, even inside
//! quotes, so every `<` is written as an escape. The page displays names as text only, and its policy forbids requests.

use super::color::Rgb;
use super::model::{Arrangement, Axis, Cell, HeatMap, Row, Select, targets_by_size};
use super::scale::{Scale, Step};
use crate::human;
use crate::tables::Caveats;
use isotherm_heat::Snapshot;
use serde::Serialize;
use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::io::{self, Write};

const PAGE: &str = include_str!("page.html");
const PLACE: &str = "@DATA@";

/// The contents of the page.
#[derive(Clone, Copy, Debug)]
pub struct HtmlOptions {
    /// The target, range, time and resolution. Without a target, the page has the largest ones.
    pub select: Select,
    /// Maximum number of targets.
    pub max_targets: usize,
    /// What the colours show at first. The page can switch to the other scales.
    pub scale: Scale,
}

impl Default for HtmlOptions {
    fn default() -> HtmlOptions {
        let select = Select { columns: 600, rows: 240, ..Select::default() };
        HtmlOptions { select, max_targets: 32, scale: Scale::default() }
    }
}

#[derive(Serialize)]
struct Page {
    scales: Vec<ScaleOfPage>,
    /// Index of the scale that is shown at first.
    scale: usize,
    maps: Vec<Map>,
    left_out: usize,
    /// What the picture does not show, one sentence each.
    caveats: Vec<String>,
    /// How it shows what is estimated.
    note: &'static str,
}

#[derive(Serialize)]
struct ScaleOfPage {
    name: &'static str,
    title: String,
    /// Colours, those of what is estimated, and words, by step.
    colors: Vec<String>,
    paler: Vec<String>,
    words: Vec<String>,
    /// Steps and labels.
    legend: Vec<(u8, String)>,
}

#[derive(Serialize)]
struct Map {
    title: String,
    columns: usize,
    /// Milliseconds since the epoch; both are equal in a strip.
    start: u64,
    end: u64,
    strip: bool,
    names: Vec<String>,
    /// First address, last address, index of the name, whether it is a break.
    rows: Vec<(String, String, usize, bool)>,
    /// Runs of cells, row by row, for each scale.
    runs: Vec<String>,
    /// The same of 1 where the heat is estimated; nothing if it is nowhere.
    estimated: String,
}

/// Writes the page.
pub fn write_html<S: Borrow<Snapshot>>(snapshots: &[S], out: &mut dyn Write, options: &HtmlOptions) -> io::Result<()> {
    let page = Page::build(&snapshots.iter().map(Borrow::borrow).collect::<Vec<_>>(), options);
    let json = serde_json::to_string(&page)?.replace('<', "\\u003c");
    let (before, after) = PAGE.split_once(PLACE).expect("the page has a place for the data");
    [before, &json, after].iter().try_for_each(|part| out.write_all(part.as_bytes()))
}

impl Page {
    fn build(snapshots: &[&Snapshot], options: &HtmlOptions) -> Page {
        let mut targets = targets_by_size(snapshots);
        if let Some(only) = options.select.target {
            targets.retain(|(id, _)| *id == only);
        }
        let left_out = targets.len().saturating_sub(options.max_targets);
        targets.truncate(options.max_targets);
        // More columns than snapshots would only repeat cells, and the page scales them anyway.
        let columns = match options.select.arrangement {
            Arrangement::Strip => 128,
            Arrangement::Auto if snapshots.len() < 2 => 128,
            _ => options.select.columns.min(snapshots.len() * 2),
        };
        let select = |id| Select { target: Some(id), columns, ..options.select };
        let maps = targets.into_iter().map(|(id, _)| HeatMap::build(snapshots, &select(id)));
        Page {
            scales: Scale::ALL.into_iter().map(ScaleOfPage::of).collect(),
            scale: Scale::ALL.iter().position(|scale| *scale == options.scale).unwrap_or(0),
            maps: maps.filter(|m| !m.is_empty()).map(|m| Map::of(&m)).collect(),
            left_out,
            caveats: Caveats::of(snapshots).lines(),
            note: Scale::note_of_estimates(false),
        }
    }
}

fn css(color: Rgb) -> String {
    format!("#{:02x}{:02x}{:02x}", color.0, color.1, color.2)
}

impl ScaleOfPage {
    fn of(scale: Scale) -> ScaleOfPage {
        let steps = || (0..=u8::MAX).map(Step);
        ScaleOfPage {
            name: scale.name(),
            title: scale.title(),
            colors: steps().map(|step| scale.color_of(step).map(css).unwrap_or_default()).collect(),
            paler: steps().map(|step| scale.color_of(step).map(|of| css(of.paler())).unwrap_or_default()).collect(),
            words: steps().map(|step| scale.words(step)).collect(),
            legend: scale.legend(7).into_iter().map(|tick| (tick.step.0, tick.label)).collect(),
        }
    }
}

impl Map {
    fn of(map: &HeatMap) -> Map {
        let mut names: Vec<String> = Vec::new();
        let mut index: BTreeMap<String, usize> = BTreeMap::new();
        let mut named = |name: &str| {
            *index.entry(human::mapping(name)).or_insert_with_key(|name| {
                names.push(name.clone());
                names.len() - 1
            })
        };
        let hex = |n: u64| format!("{n:x}");
        let row = |r: &Row| (hex(r.range.start.0), hex(r.range.end.0), named(&r.mapping), r.is_break);
        let rows = map.rows.iter().map(row).collect();
        let (start, end, strip) = match map.axis {
            Axis::Strip { at_unix_ns } => (at_unix_ns, at_unix_ns, true),
            Axis::Time { start_unix_ns, end_unix_ns } => (start_unix_ns, end_unix_ns, false),
        };
        Map {
            title: map.title(),
            columns: map.columns,
            start: start / 1_000_000,
            end: end / 1_000_000,
            strip,
            names,
            rows,
            runs: Scale::ALL.map(|scale| base64(&runs(cells(map).map(|cell| scale.step(cell).0)))).to_vec(),
            estimated: match map.has_estimates() {
                true => base64(&runs(cells(map).map(|cell| u8::from(cell.is_estimated())))),
                false => String::new(),
            },
        }
    }
}

fn cells(map: &HeatMap) -> impl Iterator<Item = Cell> {
    (0..map.rows.len()).flat_map(|row| map.cells(row)).copied()
}

/// Numbers as (length, number) pairs.
fn runs(numbers: impl Iterator<Item = u8>) -> Vec<u8> {
    let mut runs: Vec<u8> = Vec::new();
    for number in numbers {
        match runs.as_chunks_mut::<2>().0.last_mut() {
            Some([length, same]) if *same == number && *length < u8::MAX => *length += 1,
            _ => runs.extend([1, number]),
        }
    }
    runs
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |i: usize| u32::from(group.get(i).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * place)) as usize & 63];
            text.push(if place <= group.len() { char::from(letter) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{MIB, MS, large, mapping, region, series, snapshot, target};
    use isotherm_heat::Region;

    fn html(snapshots: &[Snapshot]) -> String {
        let mut out = Vec::new();
        write_html(snapshots, &mut out, &HtmlOptions::default()).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn data(page: &str) -> serde_json::Value {
        let (_, rest) = page.split_once("type=\"application/json\">").unwrap();
        serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
    }

    #[test]
    fn base64_agrees_with_its_standard() {
        assert_eq!(
            ["", "f", "fo", "foo", "foob"].map(|s| base64(s.as_bytes())),
            ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg=="]
        );
    }

    #[test]
    fn hostile_names_stay_data() {
        let evil = "</script><script>alert(1)</script><!--@DATA@\"'\\\u{2028}\x1b[2J";
        let hostile = target(1, "</ScRiPt>", "", vec![mapping(0, MIB, evil)], vec![region(0, MIB, MS)]);
        let page = html(&[snapshot(1, vec![hostile])]);
        let plain = html(&[snapshot(1, vec![])]);
        for sign in ["<script", "</script", "<!--"] {
            let count = |text: &str| text.to_lowercase().matches(sign).count();
            assert_eq!(count(&page), count(&plain), "{sign}");
        }
        let map = &data(&page)["maps"][0];
        assert_eq!(map["names"][0], human::printable(evil));
        assert_eq!(map["title"], "1 </ScRiPt>");
    }

    #[test]
    fn the_page_asks_nothing_of_a_network() {
        let page = html(&series(4));
        for sign in ["http:", "https:", "src=", "href=", "@import", "url(", "fetch(", "innerHTML"] {
            assert!(!page.contains(sign), "{sign}");
        }
        assert!(page.contains("default-src 'none'"));
    }

    #[test]
    fn the_data_are_the_map() {
        let page = data(&html(&series(20)));
        assert_eq!(page["maps"].as_array().unwrap().len(), 3);
        let scales = page["scales"].as_array().unwrap();
        assert_eq!(scales.len(), Scale::ALL.len());
        for (scale, of) in Scale::ALL.into_iter().zip(scales) {
            assert_eq!((of["colors"][0].as_str(), of["words"][1].as_str()), (Some(""), Some("not measured yet")));
            assert_eq!((of["colors"].as_array().unwrap().len(), of["title"].as_str()), (256, Some(&*scale.title())));
        }
        let map = HeatMap::build(
            &[snapshot(1, vec![target(1, "t", "", vec![], vec![region(0, MIB, MS)])])],
            &Select { columns: 300, rows: 1, ..Select::default() },
        );
        let steps = |scale: Scale| runs(cells(&map).map(|cell| scale.step(cell).0));
        assert_eq!(steps(Scale::Interval), [255, 2, 45, 2]);
        assert_eq!(steps(Scale::Share), [255, 255, 45, 255], "all hot");
    }

    #[test]
    fn estimated_cells_are_listed_where_there_are_some() {
        let estimated = Region { estimated_pages: 256, ..region(0, MIB, MS) };
        let regions = vec![estimated, region(MIB, 3 * MIB, MS)];
        let page = data(&html(&[snapshot(1, vec![target(1, "t", "", vec![], regions)])]));
        let listed = page["maps"][0]["estimated"].as_str().unwrap();
        assert!(listed.starts_with(&base64(&[255, 1])[..2]), "{listed}");
        assert_eq!(data(&html(&series(4)))["maps"][0]["estimated"], "");
    }

    #[test]
    fn no_targets_make_a_page_that_says_so() {
        let page = html(&[]);
        assert_eq!(data(&page)["maps"].as_array().unwrap().len(), 0);
    }

    #[test]
    fn a_large_page_stays_small() {
        let page = html(&large(600, 1000));
        assert!(page.len() < 2 << 20, "{}", page.len());
    }
}
