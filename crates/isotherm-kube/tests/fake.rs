//! A fake API server: the whole program against it, on loopback.

mod support;

use std::fs;
use std::time::Duration;
use support::{Answer, Bench, UID_A, UID_B, added, bookmark, deleted, modified, pod, slice};

const LONG: Duration = Duration::from_secs(20);

#[test]
fn a_list_and_a_watch_become_a_file_and_only_what_is_permitted_is_in_it() {
    let bench = Bench::new();
    bench.cgroup("kubepods.slice/kubepods-burstable.slice", &slice("kubepods-burstable", UID_A));
    bench.cgroup("kubepods/besteffort", &format!("pod{UID_B}"));
    // Two pages.
    bench.server.answers([
        Answer::page("10", Some("next/page"), &[pod(UID_A, "db", Some("cold"))]),
        Answer::page("10", None, &[pod(UID_B, "web", Some("huge"))]),
    ]);
    let watch = bench.server.watch();
    let mut kube = bench.start();
    bench.until_file(LONG, &[&format!("cold {}", slice("kubepods-burstable", UID_A)), &format!("huge pod{UID_B}")]);
    let asked = bench.server.asked();
    let first = &asked[0];
    assert!(first.path.starts_with("/api/v1/pods?fieldSelector=spec.nodeName%3Dnode-1&limit="), "{first:?}");
    assert!(
        first.has("accept", "PartialObjectMetadataList") && first.has("authorization", "Bearer token-1"),
        "{first:?}"
    );
    assert!(asked[1].path.contains("&continue=next%2Fpage"), "{asked:?}");
    // An annotation changes to one that is for another namespace, then to one that nobody has permitted.
    watch.send(&modified("11", &pod(UID_B, "web", Some("cold"))));
    bench.until_file(LONG, &[&format!("cold {}", slice("kubepods-burstable", UID_A))]);
    kube.until_says(LONG, "pod web/pod-0 (0f1c2d3e-4a5b-6c7d-8e9f-a0b1c2d3e4f5): \"cold\" refused: the settings have this scheme for other");
    watch.send(&modified("12", &pod(UID_B, "web", Some("../../system.slice"))));
    kube.until_says(LONG, "\"../../system.slice\" refused: this is no name");
    watch.send(&modified("13", &pod(UID_B, "web", Some("unknown"))));
    kube.until_says(LONG, "\"unknown\" refused: the settings have no assigned scheme");
    watch.send(&bookmark("20"));
    watch.send(&deleted("21", &pod(UID_A, "db", Some("cold"))));
    bench.until_file(LONG, &[]);
    let watched = bench.server.until_asked(LONG, |asked| asked.path.contains("watch=true"));
    assert!(
        watched.path.contains("resourceVersion=10&") || watched.path.ends_with("resourceVersion=10"),
        "{watched:?}"
    );
    assert!(
        watched.path.contains("allowWatchBookmarks=true")
            && watched.path.contains("fieldSelector=spec.nodeName%3Dnode-1")
    );
    assert_eq!(kube.ends_by_term(), Some(0));
    assert!(bench.file().is_some(), "the file stays: pods go on running");
}

#[test]
fn a_watch_goes_on_where_it_ended_and_a_lost_connection_needs_no_list() {
    let bench = Bench::new();
    bench.cgroup("kubepods", &format!("pod{UID_A}"));
    bench.server.answers([Answer::page("10", None, &[])]);
    let first = bench.server.watch();
    let mut kube = bench.start();
    first.send(&bookmark("15"));
    first.end();
    let second = bench.server.watch();
    let asked = bench.server.until_asked(LONG, |asked| asked.path.ends_with("resourceVersion=15"));
    assert!(asked.path.contains("watch=true"), "{asked:?}");
    second.send(&added("16", &pod(UID_A, "db", Some("cold"))));
    bench.until_file(LONG, &[&format!("cold pod{UID_A}")]);
    // Not ended, but cut off.
    second.drop_connection();
    kube.until_says(LONG, "read from the API server");
    let third = bench.server.watch();
    bench.server.until_asked(LONG, |asked| asked.path.ends_with("resourceVersion=16"));
    third.send(&deleted("17", &pod(UID_A, "db", None)));
    bench.until_file(LONG, &[]);
    assert_eq!(bench.server.asked().iter().filter(|asked| asked.path.contains("limit=")).count(), 1, "one list");
}

#[test]
fn what_is_too_old_or_no_json_takes_a_new_list() {
    let bench = Bench::new();
    bench.cgroup("kubepods", &format!("pod{UID_A}"));
    bench.server.answers([
        Answer::page("10", None, &[]),
        Answer::status(410, "too old resource version"),
        Answer::page("20", None, &[pod(UID_A, "db", Some("cold"))]),
    ]);
    let watch = bench.server.watch();
    let mut kube = bench.start();
    bench.until_file(LONG, &[&format!("cold pod{UID_A}")]);
    bench.server.answers([Answer::page("30", None, &[pod(UID_A, "db", Some("huge"))])]);
    let second = bench.server.watch();
    watch.send(r#"{"type":"ERROR","object":{"kind":"Status","metadata":{},"code":410,"message":"too old"}}"#);
    bench.until_file(LONG, &[&format!("huge pod{UID_A}")]);
    bench.server.answers([Answer::page("40", None, &[])]);
    let third = bench.server.watch();
    second.send("{\"type\":\"ADDED\", garbage");
    bench.until_file(LONG, &[]);
    kube.until_says(LONG, "no event");
    bench.server.answers([Answer::body("{\"items\": 7"), Answer::page("50", None, &[pod(UID_A, "db", Some("cold"))])]);
    third.send(r#"{"type":"ERROR","object":{"kind":"Status","code":500,"message":"etcd"}}"#);
    bench.until_file(LONG, &[&format!("cold pod{UID_A}")]);
    kube.until_says(LONG, "no list of pods");
    assert!(!kube.has_ended());
}

#[test]
fn a_token_that_is_refused_is_read_again() {
    let bench = Bench::new();
    bench.cgroup("kubepods", &format!("pod{UID_A}"));
    bench.server.expects_token("token-2");
    bench.server.answers([Answer::page("10", None, &[pod(UID_A, "db", Some("cold"))])]);
    let _watch = bench.server.watch();
    let mut kube = bench.start();
    kube.until_says(LONG, "refuses the token (401)");
    assert_eq!(bench.file(), None);
    // As kubelet does it: a new folder, and a link that is replaced.
    bench.rotate_token("token-2");
    bench.until_file(LONG, &[&format!("cold pod{UID_A}")]);
}

#[test]
fn a_cgroup_that_comes_later_is_found_and_one_that_goes_is_taken_out() {
    let bench = Bench::new();
    bench.server.answers([Answer::page("10", None, &[pod(UID_A, "db", Some("cold"))])]);
    let _watch = bench.server.watch();
    let mut kube = bench.start();
    kube.until_says(LONG, "its cgroup is not there");
    bench.until_file(LONG, &[]);
    let path = bench.cgroup("kubepods.slice", &slice("kubepods", UID_A));
    bench.until_file(LONG, &[&format!("cold {}", slice("kubepods", UID_A))]);
    fs::remove_dir(path).unwrap();
    bench.until_file(LONG, &[]);
}

#[test]
fn settings_that_permit_nothing_are_refused_and_a_file_is_kept_while_the_server_is_away() {
    let bench = Bench::new();
    bench.settings("[[scheme]]\naction = \"collapse\"\n");
    let mut kube = bench.start();
    kube.until_says(LONG, "pods may ask for nothing");
    assert_eq!(kube.waits(), Some(1));
    bench.settings(support::SETTINGS);
    let before = format!("isotherm-assignments 1\ncold pod{UID_A}\n");
    bench.write_file(&before);
    bench.server.answers([Answer::status(500, "no leader")]);
    let mut kube = bench.start();
    kube.until_says(LONG, "answers 500: no leader");
    assert_eq!(bench.file(), Some(before), "pods that have a scheme keep it");
}

#[test]
fn a_server_is_trusted_by_its_certificate_only() {
    let Some(bench) = Bench::with_tls() else { return support::skip("openssl") };
    bench.cgroup("kubepods", &format!("pod{UID_A}"));
    bench.server.answers([Answer::page("10", None, &[pod(UID_A, "db", Some("cold"))])]);
    let _watch = bench.server.watch();
    {
        let _kube = bench.start();
        bench.until_file(LONG, &[&format!("cold pod{UID_A}")]);
    }
    bench.trust_another();
    let asked = bench.server.asked().len();
    let mut kube = bench.start();
    kube.until_says(LONG, "trust the API server");
    assert_eq!(bench.server.asked().len(), asked, "the token has not been sent");
}
