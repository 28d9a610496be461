//! Queries on one process of a host: bits of a huge range, one page, parts of a range.
//!
//! `process` describes and checks, and `host` owns the processes. This module computes the areas of a process (see
//! `pieces`) and finds them by page. Areas are sorted and disjoint, so each query finds its area by bisection, once per
//! huge range.

use crate::pieces::{Stage, during, key_of, stages};
use crate::process::{Area, Process};
use crate::rhythm::{Stretch, mark_all};
use isotherm_heat::{Mapping, Mask, Ns, TargetId};
use isotherm_units::{AddrRange, PAGE_SIZE, PAGES_PER_PMD, PageNo, PmdNo};
use std::ops::Range;

const PMD_PAGES: u64 = PAGES_PER_PMD as u64;

/// The computed areas of a process.
#[derive(Clone, Debug)]
pub(crate) struct WorkedOut {
    salt: u64,
    /// One for each area, in the same order.
    areas: Vec<WorkedOutArea>,
}

#[derive(Clone, Debug)]
struct WorkedOutArea {
    pages: Range<u64>,
    huge: bool,
    stages: Vec<Stage>,
}

/// One process of a host, prepared for queries about its pages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'h> {
    pub process: &'h Process,
    worked_out: &'h WorkedOut,
}

impl WorkedOut {
    pub fn of(process: &Process) -> WorkedOut {
        let work_out = |area: &Area| WorkedOutArea {
            pages: area.pages(),
            huge: area.huge,
            stages: stages(&area.heat, area.pages(), area.unit()),
        };
        WorkedOut { salt: process.salt(), areas: process.areas.iter().map(work_out).collect() }
    }
}

/// The contents of a huge range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Nothing,
    /// One huge page, accessed or not.
    Huge(bool),
    /// Small pages: which are present, and which of those were accessed.
    Pages {
        young: Mask,
        present: Mask,
    },
}

impl<'h> View<'h> {
    pub fn new(process: &'h Process, worked_out: &'h WorkedOut) -> View<'h> {
        View { process, worked_out }
    }

    pub fn id(&self) -> TargetId {
        TargetId { pid: self.process.pid, start_ticks: self.process.start_ticks }
    }

    /// Areas as mappings: adjacent areas of one name and kind are one mapping.
    pub fn mappings(&self) -> Vec<Mapping> {
        let mut mappings: Vec<Mapping> = Vec::new();
        let mut huge_before = false;
        for area in &self.process.areas {
            match mappings.last_mut() {
                Some(last)
                    if last.range.end == area.range.start && last.name == area.name && huge_before == area.huge =>
                {
                    last.range.end = area.range.end;
                }
                _ => mappings.push(area.mapping()),
            }
            huge_before = area.huge;
        }
        mappings
    }

    /// Huge ranges with at least one page, sorted.
    pub fn pmds(&self) -> Vec<PmdNo> {
        let mut pmds: Vec<PmdNo> = self.process.areas.iter().flat_map(|a| a.range.pmds()).collect();
        pmds.dedup();
        pmds
    }

    /// The page ranges of the areas, in order, and whether they are huge.
    pub fn areas(&self) -> impl Iterator<Item = (Range<u64>, bool)> + use<'h> {
        self.worked_out.areas.iter().map(|a| (a.pages.clone(), a.huge))
    }

    /// The parts of `range` that exist: their pages, their stage at `now`, and the data for the keys of their pages.
    pub fn parts(&self, range: AddrRange, now: Ns) -> impl Iterator<Item = Part<'h>> + use<'h> {
        let (first, end) = (range.start.page().0, range.end.0.div_ceil(PAGE_SIZE));
        let areas = &self.worked_out.areas;
        let salt = self.worked_out.salt;
        areas[areas.partition_point(|a| a.pages.end <= first)..]
            .iter()
            .take_while(move |a| a.pages.start < end)
            .map(move |a| Part {
                area: a,
                stage: a.stage_at(now),
                salt,
                pages: a.pages.start.max(first)..a.pages.end.min(end),
            })
            .filter(|part| part.pages.start < part.pages.end)
    }

    pub fn accessed(&self, page: PageNo, since: Ns, until: Ns) -> bool {
        self.area_of(page.0).is_some_and(|area| area.accessed(self.worked_out.salt, page.0, Stretch { since, until }))
    }

    /// The contents of `pmd`, and the pages that were accessed in `(since, until]`, or at any time if `since` is
    /// `None`.
    pub fn pmd(&self, pmd: PmdNo, since: Option<Ns>, until: Ns) -> Found {
        let all = pmd.page(0).0..pmd.next().page(0).0;
        let time = since.map(|since| Stretch { since, until });
        let first_page = FirstPage { page: all.start, key: key_of(self.worked_out.salt, all.start) };
        let areas = &self.worked_out.areas;
        let first = areas.partition_point(|a| a.pages.end <= all.start);
        let (mut young, mut present) = (Mask::NONE, Mask::NONE);
        for area in areas[first..].iter().take_while(|a| a.pages.start < all.end) {
            let pages = area.pages.start.max(all.start)..area.pages.end.min(all.end);
            if area.huge {
                return Found::Huge(time.is_none_or(|time| area.accessed(self.worked_out.salt, all.start, time)));
            }
            let within = indices(&pages, all.start);
            mark_all(within.start, within.end, &mut present);
            if let Some(time) = time {
                area.mark(first_page, pages, time, &mut young);
            }
        }
        match (present.is_empty(), time) {
            (true, _) => Found::Nothing,
            (false, None) => Found::Pages { young: present, present },
            (false, Some(_)) => Found::Pages { young, present },
        }
    }

    pub fn has_page(&self, page: PageNo) -> bool {
        self.area_of(page.0).is_some()
    }

    fn area_of(&self, page: u64) -> Option<&'h WorkedOutArea> {
        let areas = &self.worked_out.areas;
        areas.get(areas.partition_point(|a| a.pages.end <= page)).filter(|a| a.pages.start <= page)
    }
}

/// The first page of a huge range, and its key. The keys of the other pages follow from it.
#[derive(Clone, Copy, Debug)]
struct FirstPage {
    page: u64,
    key: u64,
}

/// A part of a process in which all pages are in one area.
#[derive(Clone, Debug)]
pub(crate) struct Part<'h> {
    area: &'h WorkedOutArea,
    salt: u64,
    pub stage: &'h Stage,
    pub pages: Range<u64>,
}

impl Part<'_> {
    pub fn key_of(&self, page: u64) -> u64 {
        key_of(self.salt, self.area.bearer(page))
    }
}

impl WorkedOutArea {
    /// The page whose key is used: on huge pages, the first of the huge range.
    fn bearer(&self, page: u64) -> u64 {
        if self.huge { page - page % PMD_PAGES } else { page }
    }

    fn stage_at(&self, now: Ns) -> &Stage {
        &self.stages[self.stages.partition_point(|s| s.until <= now).min(self.stages.len() - 1)]
    }

    fn accessed(&self, salt: u64, page: u64, time: Stretch) -> bool {
        let page = self.bearer(page);
        let key = key_of(salt, page);
        during(&self.stages, time).any(|(stage, part)| stage.piece_of(page).mixture.accessed(key, part))
    }

    /// Sets the bits of those of `pages` that were accessed. All are in one huge range.
    fn mark(&self, pmd: FirstPage, pages: Range<u64>, time: Stretch, young: &mut Mask) {
        for (stage, in_stage) in during(&self.stages, time) {
            for (part, mixture) in stage.pieces_in(pages.clone()) {
                mixture.mark(pmd.key, indices(&part, pmd.page), in_stage, young);
            }
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "places within a huge range")]
fn indices(pages: &Range<u64>, base: u64) -> Range<usize> {
    (pages.start - base) as usize..(pages.end - base) as usize
}
