//! The heat of a process by kind of memory: which of its pages at each code are heap, stack, file and so on.
//!
//! Two things are known, neither of them in full. The histograms of a process count each page at its code, without its address. Its
//! regions have addresses, so mappings give their kind, but of the heat of a region only the mean is known. [`split`] couples the
//! two in order of heat: pages by code from hot to cold, pages of regions from hot to cold, and both are walked in parallel. Each page
//! gets its exact code and the kind of the region that it meets. So the sums by code are those of the histogram, exactly, and the
//! sums by kind those of the regions. Which of the hot pages are heap is an estimate. It is right if the regions are as hot as
//! their pages, which is what regions are for.
//!
//! Pages on huge pages are coupled with those of regions that are on huge pages, and likewise small pages and pages of which no heat
//! is known. What is left over is coupled without these distinctions, and what no region has is [`Kind::Other`].

use isotherm_heat::{Histogram, Interval, Mapping, Region};
use isotherm_schemes::facts::is_named_memory;
use isotherm_units::Perms;

/// Kinds of memory, as the column `kind` has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    Anon,
    Heap,
    Stack,
    File,
    Shared,
    Other,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Anon => "anon",
            Kind::Heap => "heap",
            Kind::Stack => "stack",
            Kind::File => "file",
            Kind::Shared => "shared",
            Kind::Other => "other",
        }
    }

    /// Of a mapping. Memory that several processes share by design is `shared`, with or without a name in a file system of memory;
    /// a file is a file however it is mapped.
    pub(crate) fn of(mapping: &Mapping) -> Kind {
        let name = mapping.name.as_str();
        match name {
            "[heap]" => Kind::Heap,
            _ if name.starts_with("[stack") => Kind::Stack,
            _ if is_named_memory(mapping) || name.is_empty() || name.starts_with("[anon") => {
                if mapping.perms.contains(Perms::SHARED) || name.starts_with("[anon_shmem") {
                    Kind::Shared
                } else {
                    Kind::Anon
                }
            }
            _ if name.starts_with('/') => Kind::File,
            _ => Kind::Other,
        }
    }
}

/// Pages that still have to be coupled.
#[derive(Clone, Copy, Debug)]
struct Pile<T> {
    code: u8,
    is_huge: bool,
    of: T,
    pages: u64,
}

impl<T> Pile<T> {
    fn is_measured(&self) -> bool {
        Interval::from_code(self.code).is_measured()
    }
}

/// Pages at each code and of each kind; whether they are on huge pages; how many.
pub(crate) type Cell = (u8, Kind, bool, u64);

/// The pages of a process, with those of them on huge pages, by code and kind. Regions and mappings are those of this process in address
/// order.
pub(crate) fn split<'a>(
    heat: &Histogram,
    heat_huge: &Histogram,
    regions: impl Iterator<Item = &'a Region>,
    mappings: &[&Mapping],
    mut put: impl FnMut(Cell),
) {
    let mut exact = exact(heat, heat_huge);
    let knows_huge = exact.iter().any(|pile| pile.is_huge);
    let mut known = known(regions, mappings, knows_huge);
    // Ever fewer distinctions.
    for class in [(false, false), (false, true), (true, false), (true, true)] {
        couple((&mut exact, &mut known), |is_huge, is_measured| (is_huge, is_measured) == class, &mut put);
    }
    for class in [false, true] {
        couple((&mut exact, &mut known), |_, is_measured| is_measured == class, &mut put);
    }
    couple((&mut exact, &mut known), |_, _| true, &mut put);
    for pile in exact.iter().filter(|pile| pile.pages > 0) {
        put((pile.code, Kind::Other, pile.is_huge, pile.pages));
    }
}

/// Pages by code, hot to cold.
fn exact(heat: &Histogram, heat_huge: &Histogram) -> Vec<Pile<()>> {
    let mut piles = Vec::new();
    for (interval, pages) in heat.iter() {
        let huge = heat_huge.at(interval).min(pages);
        for (is_huge, pages) in [(false, pages - huge), (true, huge)] {
            if pages > 0 {
                piles.push(Pile { code: interval.code(), is_huge, of: (), pages });
            }
        }
    }
    piles
}

/// Pages of regions by their mean code, hot to cold. If huge pages are not known of the process, they are not distinguished here.
fn known<'a>(regions: impl Iterator<Item = &'a Region>, mappings: &[&Mapping], knows_huge: bool) -> Vec<Pile<Kind>> {
    let mut piles = Vec::new();
    for region in regions {
        let at = mappings.partition_point(|mapping| mapping.range.end <= region.range.start);
        let mapping = mappings.get(at).filter(|mapping| mapping.range.start < region.range.end);
        let of = mapping.map_or(Kind::Other, |mapping| Kind::of(mapping));
        let resident = region.resident_pages;
        let measured = if region.interval.is_measured() { region.measured_pages.min(resident) } else { 0 };
        // It is not known whether the measured or the other pages are huge: measured ones first.
        let huge = if knows_huge { region.huge_pages.min(resident) } else { 0 };
        let huge_measured = huge.min(measured);
        let unmeasured = Interval::UNMEASURED.code();
        let parts = [
            (region.interval.code(), false, measured - huge_measured),
            (region.interval.code(), true, huge_measured),
            (unmeasured, false, (resident - measured) - (huge - huge_measured)),
            (unmeasured, true, huge - huge_measured),
        ];
        let some = parts.into_iter().filter(|(.., pages)| *pages > 0);
        piles.extend(some.map(|(code, is_huge, pages)| Pile { code, is_huge, of, pages }));
    }
    piles.sort_by_key(|pile| pile.code);
    piles
}

/// Walks both in parallel, over the piles of a class on each side.
fn couple(
    (exact, known): (&mut [Pile<()>], &mut [Pile<Kind>]),
    is_in_class: impl Fn(bool, bool) -> bool,
    put: &mut impl FnMut(Cell),
) {
    let mut known = known.iter_mut().filter(|pile| pile.pages > 0 && is_in_class(pile.is_huge, pile.is_measured()));
    let mut next = known.next();
    for pile in exact.iter_mut().filter(|pile| is_in_class(pile.is_huge, pile.is_measured())) {
        while pile.pages > 0
            && let Some(region) = next.as_mut()
        {
            let pages = pile.pages.min(region.pages);
            pile.pages -= pages;
            region.pages -= pages;
            put((pile.code, region.of, pile.is_huge, pages));
            if region.pages == 0 {
                next = known.next();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_units::{Addr, AddrRange, PAGE_SIZE};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn mapping(first: u64, pages: u64, name: &str, perms: &str) -> Mapping {
        let range = AddrRange::new(Addr(first * PAGE_SIZE), Addr((first + pages) * PAGE_SIZE));
        Mapping { range, name: name.into(), perms: perms.parse().unwrap() }
    }

    fn region(first: u64, pages: u64, measured_pages: u64, huge_pages: u64, code: u8) -> Region {
        Region {
            range: AddrRange::new(Addr(first * PAGE_SIZE), Addr((first + pages) * PAGE_SIZE)),
            resident_pages: pages,
            measured_pages,
            huge_pages,
            interval: Interval::from_code(code),
            rate_hz: 0.0,
            age_ns: 0,
            idle_ns: 0,
            sampled_pages: 0,
            estimated_pages: 0,
            hot_pages: None,
        }
    }

    fn cells(heat: &[(u8, u64)], huge: &[(u8, u64)], regions: &[Region], mappings: &[Mapping]) -> Vec<Cell> {
        let mut sums: BTreeMap<(u8, Kind, bool), u64> = BTreeMap::new();
        let mappings: Vec<&Mapping> = mappings.iter().collect();
        split(
            &heat.to_vec().into(),
            &huge.to_vec().into(),
            regions.iter(),
            &mappings,
            |(code, kind, is_huge, pages)| {
                *sums.entry((code, kind, is_huge)).or_default() += pages;
            },
        );
        sums.into_iter().map(|((code, kind, is_huge), pages)| (code, kind, is_huge, pages)).collect()
    }

    #[test]
    fn pages_meet_regions_in_order_of_heat() {
        let mappings = [mapping(0, 100, "[heap]", "rw-p"), mapping(200, 100, "/lib/x.so", "r-xp")];
        // 10 pages of heap at a mean of 50, 30 of a file at 90, and 5 of the file that are not measured.
        let regions = [region(0, 10, 10, 0, 50), region(200, 35, 30, 0, 90)];
        let heat = [(1, 5), (40, 8), (60, 4), (95, 28)];
        use Kind::{File, Heap, Other};
        let expected = [
            (1, File, false, 5),
            (40, Heap, false, 8),
            (60, Heap, false, 2),
            (60, File, false, 2),
            (95, File, false, 28),
        ];
        assert_eq!(cells(&heat, &[], &regions, &mappings), expected);
        // Memory of no region, and a region of no mapping.
        assert_eq!(cells(&[(40, 8)], &[], &[], &mappings), [(40, Other, false, 8)]);
        assert_eq!(cells(&[(40, 8)], &[], &[region(150, 8, 8, 0, 40)], &mappings), [(40, Other, false, 8)]);
    }

    #[test]
    fn huge_pages_meet_regions_with_huge_pages() {
        let mappings = [mapping(0, 1000, "[heap]", "rw-p"), mapping(2000, 1000, "", "rw-p")];
        let regions = [region(0, 600, 600, 512, 80), region(2000, 100, 100, 0, 40)];
        use Kind::{Anon, Heap};
        let expected = [(40, Anon, false, 100), (50, Heap, true, 512), (80, Heap, false, 88)];
        assert_eq!(cells(&[(40, 100), (50, 512), (80, 88)], &[(50, 512)], &regions, &mappings), expected);
        // If nothing is known of huge pages, all count as small.
        let expected = [(40, Anon, false, 100), (50, Heap, false, 512), (80, Heap, false, 88)];
        assert_eq!(cells(&[(40, 100), (50, 512), (80, 88)], &[], &regions, &mappings), expected);
    }

    #[test]
    fn kinds_follow_from_names_and_permissions() {
        let kind = |name: &str, perms: &str| Kind::of(&mapping(0, 1, name, perms)).name();
        let kinds = [
            kind("[heap]", "rw-p"),
            kind("[stack]", "rw-p"),
            kind("", "rw-p"),
            kind("[anon:jemalloc]", "rw-p"),
            kind("", "rw-s"),
            kind("/dev/shm/x", "rw-s"),
            kind("/memfd:x (deleted)", "rw-s"),
            kind("/var/lib/db", "rw-s"),
            kind("/lib/x.so", "r-xp"),
            kind("[vdso]", "r-xp"),
        ];
        let expected = ["heap", "stack", "anon", "anon", "shared", "shared", "shared", "file", "file", "other"];
        assert_eq!(kinds, expected);
    }

    fn regions() -> impl Strategy<Value = Vec<Region>> {
        prop::collection::vec((1_u64..600, 0_u64..600, 0_u64..600, 1_u8..=255), 0..20).prop_map(|parts| {
            let of = |(n, (pages, measured, huge, code)): (u64, (u64, u64, u64, u8))| {
                region(n * 1000, pages, measured.min(pages), huge.min(pages), code)
            };
            (0..).zip(parts).map(of).collect()
        })
    }

    proptest! {
        /// Both sums hold: by code and size those of the histograms, always; by kind those of the regions, if both count as many pages.
        #[test]
        fn sums_are_those_of_histograms_and_regions(
            heat in prop::collection::vec((1_u8..=255, 1_u64..500), 0..40),
            huge in prop::collection::vec((1_u8..=255, 1_u64..500), 0..20),
            regions in regions(),
            is_filled in any::<bool>(),
        ) {
            let mappings: Vec<Mapping> =
                (0..20_u64).map(|n| mapping(n * 1000, 700, ["[heap]", "", "/x"].into_iter().cycle().nth(usize::try_from(n).unwrap()).unwrap(), "rw-p")).collect();
            let mut all: Histogram = heat.into();
            let by_regions: u64 = regions.iter().map(|region| region.resident_pages).sum();
            if is_filled {
                // As many pages as the regions have.
                let mut left = by_regions;
                let mut cut = Histogram::default();
                all.iter().for_each(|(at, pages)| { cut.add(at, pages.min(left)); left -= pages.min(left); });
                cut.add(Interval::from_code(77), left);
                all = cut;
            }
            let huge: Histogram = huge.into();
            let found = cells(&Vec::from(all.clone()), &Vec::from(huge.clone()), &regions, &mappings);
            for code in 1..=u8::MAX {
                let at = Interval::from_code(code);
                let sum = |only_huge: bool| -> u64 {
                    found.iter().filter(|c| c.0 == code && (c.2 || !only_huge)).map(|c| c.3).sum()
                };
                prop_assert_eq!(sum(false), all.at(at));
                prop_assert_eq!(sum(true), huge.at(at).min(all.at(at)));
            }
            if is_filled {
                let of_regions = |kind: Kind| -> u64 {
                    (0..).zip(&regions).filter(|(n, _): &(usize, _)| Kind::of(&mappings[*n]) == kind)
                        .map(|(_, region)| region.resident_pages).sum()
                };
                for kind in [Kind::Anon, Kind::Heap, Kind::File, Kind::Other] {
                    let sum: u64 = found.iter().filter(|c| c.1 == kind).map(|c| c.3).sum();
                    prop_assert_eq!(sum, of_regions(kind), "{:?}", kind);
                }
            }
        }
    }
}
