//! What is told of a memory-side cache that the kernel reports. The lab's guest 6.12-cache has one: 256 MiB,
//! direct-mapped, in front of node 0.

mod support;

use isotherm_host::{HostFacts, HostRoots, PlacementCache, placement_caches};
use serde_json::Value;
use support::Stage;

/// The caches that this machine says it has; `None` if there are none.
fn direct_mapped() -> Option<Vec<PlacementCache>> {
    let facts = HostFacts::read(&HostRoots::default(), isotherm_sys::page_size());
    Some(placement_caches(&facts)?.direct).filter(|direct| !direct.is_empty())
}

fn finding(report: &Value, name: &str) -> Value {
    let findings = report["findings"].as_array().unwrap();
    findings.iter().find(|finding| finding["name"] == name).unwrap().clone()
}

#[test]
fn the_cache_that_the_kernel_reports_is_told() {
    let Some(direct) = direct_mapped() else { return support::skip("a memory-side cache") };
    // The lab's is known; of any other machine's it is known that frames are told for what the doctor shows.
    if std::env::var_os("ISOTHERM_LAB").is_some() {
        let expected = PlacementCache { node: 0, level: 1, frames: 65_536, extended_linear: false, doubts: vec![] };
        assert_eq!(direct, [expected]);
    }
    let stage = Stage::new();
    let report = stage.json("doctor --json");
    let cache = finding(&report, "memory-side-cache");
    let (detail, advice) = (cache["detail"].as_str().unwrap(), cache["advice"].as_str().unwrap());
    for told in &direct {
        let size = isotherm_units::Bytes::of_pages(told.frames);
        assert!(detail.contains(&format!("node {}: {size}, direct-mapped", told.node)), "{detail}");
        assert!(detail.contains(&format!("frames {size} apart compete for a line")), "{detail}");
    }
    assert_eq!(cache["state"] == "present", direct.iter().any(PlacementCache::is_sure), "{cache}");
    // What is advised depends on what the kernel already does.
    match finding(&report, "shuffle")["state"].as_str().unwrap() {
        "present" => assert!(detail.contains("page_alloc.shuffle is on") && advice.is_empty(), "{cache}"),
        "absent" => assert!(advice.contains("page_alloc.shuffle=1"), "{cache}"),
        _ => assert!(!advice.is_empty(), "{cache}"),
    }
}

#[test]
fn the_probe_tells_each_size_that_it_is_asked_for() {
    let stage = Stage::new();
    let ran = stage.isotherm("doctor --probe-cache 64MiB 128MiB 900TiB --json");
    if ran.err.contains("CAP_SYS_ADMIN") {
        ran.ended(1);
        return support::skip("CAP_SYS_ADMIN");
    }
    let report: Value = serde_json::from_str(&ran.ended(0).out).unwrap();
    let sizes = report["sizes"].as_array().unwrap();
    let asked: Vec<u64> = sizes.iter().map(|line| line["size_bytes"].as_u64().unwrap()).collect();
    assert_eq!(asked, [64 << 20, 128 << 20, 900 << 40]);
    for line in sizes {
        assert!(["conflict", "no-conflict", "unsure"].contains(&line["verdict"].as_str().unwrap()), "{line}");
        assert!(line["verdict"] == "unsure" || line["samples"].as_u64() >= Some(64), "{line}");
    }
    assert_eq!(sizes[2]["detail"], "unsure: no two frames of our memory are that far apart");
    stage.isotherm("doctor --probe-cache 5000").ended(1).says("no whole number of pages");
}
