//! What is found out about the cache, and how colours are folded.

use super::*;
use isotherm_sys::host::MemorySideCache;

fn node(id: u32, caches: &[(Option<u64>, Option<Indexing>)]) -> NumaNode {
    let cache = |(size, indexing): &(Option<u64>, Option<Indexing>)| MemorySideCache {
        level: 1,
        size: size.map(Bytes),
        indexing: *indexing,
        line_size: None,
        write_policy: None,
    };
    NumaNode { id, caches: caches.iter().map(cache).collect(), ..NumaNode::default() }
}

#[test]
fn the_cache_is_that_of_the_machine_if_none_is_asked_for() {
    let direct = Some(Indexing::Direct);
    let one = [node(0, &[(Some(1 << 34), direct)]), node(1, &[])];
    assert_eq!(caches_of_machine(&one).unwrap(), (Bytes(1 << 34), "memory-side cache of node 0".to_owned()));
    let two = [node(0, &[(Some(1 << 30), direct)]), node(2, &[(Some(1 << 30), direct)])];
    let (size, source) = caches_of_machine(&two).unwrap();
    assert!(size == Bytes(2 << 30) && source.contains("2 nodes, taken as one"));
    let none = caches_of_machine(&[node(0, &[])]).unwrap_err().to_string();
    assert!(none.contains("no memory-side cache") && none.contains("--cache-size"), "{none}");
    for (size, indexing) in
        [(Some(1 << 30), Some(Indexing::Associative)), (Some(1 << 30), None), (None, direct), (Some(0), direct)]
    {
        let unfit = caches_of_machine(&[node(0, &[(size, indexing)])]).unwrap_err().to_string();
        assert!(unfit.contains("direct-mapped and of known size") && unfit.contains("--cache-size"), "{unfit}");
    }
}

#[test]
fn a_size_asked_for_goes_first_and_has_to_be_whole_pages() {
    let facts =
        HostFacts { nodes: Some(vec![node(0, &[(Some(1 << 34), Some(Indexing::Direct))])]), ..HostFacts::default() };
    let (cache, told) = cache_of(Some(Bytes(8192)), &facts).unwrap();
    assert!(cache.frames() == 2 && told.modelled && told.colours == 2);
    let (cache, told) = cache_of(None, &facts).unwrap();
    assert!(cache.frames() == 1 << 22 && !told.modelled);
    for wrong in [0, 4095, 5000] {
        assert!(cache_of(Some(Bytes(wrong)), &facts).unwrap_err().is::<Usage>(), "{wrong}");
    }
}

#[test]
fn cells_tile_the_colours() {
    for (colours, most) in [(1, 400), (399, 400), (400, 400), (401, 400), (1_000_003, 400), (7, 3)] {
        let mut picture = Picture::new(colours, most);
        (0..colours).for_each(|colour| {
            let mut load = Load::default();
            load.add(1.0);
            picture.add(colour, &load);
        });
        let cells = picture.cells(colours as f64);
        assert!(cells.len() <= most && cells[0].first_colour == 0);
        assert!(cells.windows(2).all(|w| w[0].first_colour + w[0].colours == w[1].first_colour));
        assert!(cells.iter().all(|c| c.frames == c.colours), "{colours} in {most}: one frame a colour");
        let all: f64 = cells.iter().filter_map(|c| c.accesses_pct).sum();
        assert!((all - 100.0).abs() < 1e-6);
    }
}

#[test]
fn the_most_loaded_are_kept_in_order() {
    let load = |weights: &[f64]| {
        let mut load = Load::default();
        weights.iter().for_each(|w| load.add(*w));
        load
    };
    let mut most = Most::new(false);
    (0..100).for_each(|colour: u64| most.add(colour, &load(&vec![1.0; usize::try_from(colour % 13).unwrap() + 1])));
    let told = most.told(700.0);
    assert_eq!(told.len(), TOLD);
    assert_eq!((told[0].colour, told[0].frames, told[7].frames), (12, 13, 12), "first come, first told");
    // By heat: the one that misses most, not the one that is hottest.
    let mut most = Most::new(true);
    most.add(1, &load(&[1000.0]));
    most.add(2, &load(&[5.0, 5.0]));
    most.add(3, &load(&[1.0, 1.0, 1.0]));
    assert_eq!(most.told(1013.0).iter().map(|c| c.colour).collect::<Vec<_>>(), [2, 3, 1]);
}
