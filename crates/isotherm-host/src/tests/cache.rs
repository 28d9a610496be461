//! Memory-side caches as they are described, half described, and described by somebody who was not careful.

use super::*;

const DIR: &str = "sys/devices/system/node/node0/memory_side_cache/index1";

/// The server with one file of its cache changed; `None` takes it away.
fn broken(file: &str, text: Option<&str>) -> HostFacts {
    let host = FakeHost::new(SERVER);
    match text {
        Some(text) => host.file(&format!("{DIR}/{file}"), text.as_bytes()),
        None => fs::remove_file(host.dir.path().join(DIR).join(file)).expect("is there"),
    }
    host.facts()
}

fn only_cache(facts: &HostFacts) -> &MemorySideCache {
    let [cache] = &*facts.nodes.as_ref().expect("listed")[0].caches else { panic!("{:?}", facts.nodes) };
    cache
}

/// What the machine says about placement: (frames, doubts) of its direct-mapped cache, or whether one is unclear.
fn placement(facts: &HostFacts) -> (Vec<(u64, usize)>, usize) {
    let caches = placement_caches(facts).expect("nodes are listed");
    let direct = caches.direct.iter().map(|cache| (cache.frames, cache.doubts.len())).collect();
    (direct, caches.unclear.len())
}

#[test]
fn a_direct_mapped_cache_gives_a_distance_in_frames() {
    let facts = FakeHost::new(SERVER).facts();
    let expected = PlacementCache { node: 0, level: 1, frames: 65_536, extended_linear: false, doubts: vec![] };
    assert_eq!(placement_caches(&facts), Some(PlacementCaches { direct: vec![expected.clone()], unclear: vec![] }));
    assert!(expected.is_sure());
    assert_eq!(placement_caches(&HostFacts::default()), None, "nothing is said");
    let mut facts = facts;
    facts.nodes.as_mut().unwrap()[0].caches.clear();
    assert_eq!(placement_caches(&facts), Some(PlacementCaches::default()), "said to be none");
}

#[test]
fn the_address_mode_is_hexadecimal_and_may_be_missing() {
    assert_eq!(only_cache(&FakeHost::new(SERVER).facts()).extended_linear, None);
    // As the kernel writes it, with `%#x`, and as one might think it does.
    for (text, extended) in [("0\n", false), ("0x1\n", true), ("1\n", true), ("0x0\n", false)] {
        let facts = broken("address_mode", Some(text));
        assert_eq!(only_cache(&facts).extended_linear, Some(extended), "{text}");
        assert_eq!(only_cache(&facts).doubts, [], "{text}");
        assert_eq!(placement_caches(&facts).unwrap().direct[0].extended_linear, extended);
    }
    let facts = broken("address_mode", Some("linear\n"));
    assert_eq!(only_cache(&facts).extended_linear, None);
    assert_eq!(placement(&facts), (vec![(65_536, 1)], 0), "still direct-mapped, not for sure");
}

/// File, text, what is doubted, and what is left for placement.
type Break = (&'static str, Option<&'static str>, &'static [Doubt], (&'static [(u64, usize)], usize));

#[test]
fn one_thing_missing_or_broken_at_a_time() {
    let unclear = (&[][..], 1);
    let direct = (&[(65_536, 0)][..], 0);
    let cases: &[Break] = &[
        ("size", None, &[Doubt::Missing("size")], unclear),
        ("size", Some("0\n"), &[Doubt::Zero("size")], unclear),
        ("size", Some("268435457\n"), &[Doubt::PartOfAFrame(Bytes(268_435_457))], unclear),
        ("size", Some("100\n"), &[Doubt::PartOfAFrame(Bytes(100))], unclear),
        // As large as the kernel can write, and larger than the node.
        (
            "size",
            Some("18446744073709547520\n"),
            &[Doubt::LargerThanMemory(Bytes(16_384_000 << 10))],
            (&[((1 << 52) - 1, 1)], 0),
        ),
        // What the kernel has kept for itself is not counted.
        ("size", Some("17179869184\n"), &[], (&[(4_194_304, 0)], 0)),
        ("indexing", None, &[Doubt::Missing("indexing")], unclear),
        ("indexing", Some("1\n"), &[], (&[], 0)),
        ("indexing", Some("2\n"), &[], unclear),
        ("line_size", None, &[Doubt::Missing("line_size")], direct),
        ("line_size", Some("0\n"), &[Doubt::Zero("line_size")], direct),
        ("line_size", Some("96\n"), &[Doubt::OddLine(Bytes(96))], direct),
        ("line_size", Some("128\n"), &[], direct),
        ("write_policy", None, &[Doubt::Missing("write_policy")], direct),
        ("write_policy", Some("2\n"), &[], direct),
    ];
    for (file, text, doubts, (caches, unclear)) in cases {
        let facts = broken(file, *text);
        assert_eq!(only_cache(&facts).doubts, *doubts, "{file} {text:?}");
        assert_eq!(placement(&facts), (caches.to_vec(), *unclear), "{file} {text:?}");
    }
}

#[test]
fn no_garbage_makes_a_cache_direct_mapped_or_ends_the_reader() {
    let host = FakeHost::new(SERVER);
    for text in ["", "\n", "-0", "+0", "0 0", "0x", "O", "direct", "0\n0", "\u{0}", "00x0", "99999999999999999999999"] {
        for file in ["size", "indexing", "line_size", "write_policy", "address_mode"] {
            host.file(&format!("{DIR}/{file}"), text.as_bytes());
            let facts = host.facts();
            let cache = only_cache(&facts);
            assert_eq!(cache.doubts, [Doubt::Garbled(file, text.trim().to_owned())], "{file} {text:?}");
            let known = [
                cache.size.is_some(),
                cache.indexing.is_some(),
                cache.line_size.is_some(),
                cache.write_policy.is_some(),
                cache.extended_linear.is_some(),
            ];
            assert_eq!(known.iter().filter(|known| **known).count(), if file == "address_mode" { 4 } else { 3 });
            let kept = !matches!(file, "size" | "indexing");
            assert_eq!(placement_caches(&facts).unwrap().direct.len(), usize::from(kept), "{file} {text:?}");
            let finding = finding(&facts, "memory-side-cache");
            assert!(finding.detail.contains(&format!("doubtful: {file} is ")), "{}", finding.detail);
            host.restore(&format!("{DIR}/{file}"));
        }
    }
}

#[test]
fn entries_that_contradict_each_other_are_doubted() {
    // Two of one level; the kernel itself would refuse the second.
    let host = FakeHost::new(SERVER);
    for (file, text) in [("size", "536870912\n"), ("indexing", "0\n"), ("line_size", "64\n"), ("write_policy", "0\n")] {
        host.file(&format!("sys/devices/system/node/node0/memory_side_cache/index01/{file}"), text.as_bytes());
    }
    let facts = host.facts();
    assert_eq!(placement(&facts), (vec![(131_072, 1), (65_536, 1)], 0));
    let found = finding(&facts, "memory-side-cache");
    assert_eq!((found.state, found.detail.matches("level 1 is listed twice").count()), (State::Unknown, 2));

    // Extending the memory without being direct-mapped.
    let host = FakeHost::new(SERVER);
    host.file(&format!("{DIR}/address_mode"), b"0x1\n");
    host.file(&format!("{DIR}/indexing"), b"1\n");
    let facts = host.facts();
    assert_eq!(only_cache(&facts).doubts, [Doubt::ExtendedNotDirect]);
    assert_eq!(placement(&facts), (vec![], 1));

    // One that extends the memory may be of any size next to what it caches; others may not.
    host.file(&format!("{DIR}/indexing"), b"0\n");
    host.file(&format!("{DIR}/size"), b"34359738368\n");
    assert_eq!(placement(&host.facts()), (vec![(1 << 23, 0)], 0));
    host.file(&format!("{DIR}/address_mode"), b"0\n");
    assert_eq!(only_cache(&host.facts()).doubts, [Doubt::LargerThanMemory(Bytes(16_384_000 << 10))]);
}

#[test]
fn several_nodes_and_levels_are_all_told() {
    let host = FakeHost::new(SERVER);
    for (dir, size, indexing) in
        [("node0/memory_side_cache/index2", 1_u64 << 30, 1), ("node10/memory_side_cache/index1", 1 << 32, 0)]
    {
        host.file(&format!("sys/devices/system/node/{dir}/size"), format!("{size}\n").as_bytes());
        host.file(&format!("sys/devices/system/node/{dir}/indexing"), format!("{indexing}\n").as_bytes());
    }
    // Of other names there is nothing to say.
    host.file("sys/devices/system/node/node0/memory_side_cache/power/size", b"1\n");
    host.file("sys/devices/system/node/node0/memory_side_cache/indexed/size", b"1\n");
    let caches = placement_caches(&host.facts()).unwrap();
    let found: Vec<_> = caches.direct.iter().map(|cache| (cache.node, cache.level, cache.frames)).collect();
    assert_eq!((found, caches.unclear.len()), (vec![(0, 1, 1 << 16), (10, 1, 1 << 20)], 0));
}

#[test]
fn whether_free_lists_are_shuffled() {
    const FILE: &str = "sys/module/page_alloc/parameters/shuffle";
    let host = FakeHost::new(SERVER);
    let is = |on, built_in, why| assert_eq!(host.facts().shuffle, Shuffle { built_in, on }, "{why}");
    // The file is believed, whatever configuration was found.
    is(Some(false), Some(true), "N");
    host.file(FILE, b"Y\n");
    is(Some(true), Some(true), "Y");
    host.file(FILE, b"maybe\n");
    is(None, Some(true), "garbage");
    // Not readable, as for those who are not root: reading a directory fails too.
    fs::remove_file(host.dir.path().join(FILE)).unwrap();
    fs::create_dir(host.dir.path().join(FILE)).unwrap();
    is(None, Some(true), "unreadable");
    fs::remove_dir(host.dir.path().join(FILE)).unwrap();
    is(Some(false), Some(false), "absent, and not in the configuration");
    let config = "boot/config-6.12.41+deb13-amd64";
    host.file(config, b"CONFIG_SHUFFLE_PAGE_ALLOCATOR=y\n");
    is(None, None, "absent, and in the configuration");
    fs::remove_file(host.dir.path().join(config)).unwrap();
    is(None, None, "absent, without a configuration");
}
