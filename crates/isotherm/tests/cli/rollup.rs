//! `isotherm rollup`: what it writes of a recording, and that it writes it once. `isotherm advise`: from what it advises.

use crate::support::Stage;
use serde_json::Value;
use std::fs;

fn report(stage: &Stage, words: &str) -> Value {
    let ran = stage.isotherm(words).ended(0);
    serde_json::from_str(&ran.out).unwrap()
}

fn objects<'a>(report: &'a Value, stored: &str) -> Vec<&'a str> {
    let objects = report["objects"].as_array().unwrap().iter();
    objects.filter(|object| object["stored"] == stored).map(|object| object["path"].as_str().unwrap()).collect()
}

#[test]
fn a_recording_that_is_rolled_up_twice_is_there_once() {
    let stage = Stage::new();
    stage.small_recording("rec");
    let first = report(&stage, "rollup rec --to d --host db-1 --json");
    let paths = objects(&first, "written");
    for table in ["hosts", "wss", "heat"] {
        assert!(paths.iter().any(|path| path.starts_with(&format!("v1/{table}/date="))), "{table} in {paths:?}");
    }
    let contents = || paths.iter().map(|path| fs::read(stage.path("d").join(path)).unwrap()).collect::<Vec<_>>();
    let before = contents();
    let again = report(&stage, "rollup rec --to d --host db-1 --json");
    assert_eq!((objects(&again, "present"), objects(&again, "written")), (paths.clone(), vec![]));
    assert_eq!(contents(), before);
    // Another host has other objects of the same recording.
    let other = report(&stage, "rollup rec --to d --host db-2 --json");
    assert_eq!(objects(&other, "written").len(), paths.len());
    assert_ne!(first["host"], other["host"]);
    stage.isotherm("rollup rec --to d --host db-1").ended(0).says("were there already");
    // With other rules, rows of the same hours differ. What is there stays, and that is said.
    fs::write(stage.path("rules.toml"), "[[service]]\nmatch = '.*'\nname = 'shop'\n").unwrap();
    let ruled = stage.isotherm("rollup rec --to d --host db-1 --settings rules.toml").ended(1);
    ruled.says("with other rows").says("Remove them");
    assert_eq!(contents(), before);
}

#[test]
fn rules_name_services_and_wrong_ones_are_refused() {
    let stage = Stage::new();
    stage.small_recording("rec");
    fs::write(stage.path("rules.toml"), "[[service]]\nmatch = '.*'\nname = 'shop'\n").unwrap();
    stage.isotherm("rollup rec --to d --settings rules.toml").ended(0);
    fs::write(stage.path("rules.toml"), "[[service]]\nmatch = '('\nname = 'shop'\n").unwrap();
    stage.isotherm("rollup rec --to e --settings rules.toml").ended(1).says("rules.toml").says("service rule");
    assert!(!stage.path("e").exists());
}

#[test]
fn what_cannot_be_read_or_written_is_named() {
    let stage = Stage::new();
    stage.isotherm("rollup nowhere --to d").ended(1).says("nowhere");
    stage.small_recording("rec");
    fs::write(stage.path("file"), "").unwrap();
    stage.isotherm("rollup rec --to file").ended(1).says("file/v1/");
    stage.isotherm("rollup rec").ended(2).says("--to");
    let id = "0123456789abcdef0123456789abcdef";
    stage.isotherm(&format!("rollup rec --to d --machine-id {id}")).ended(2).says("--host");
    stage.isotherm("rollup rec --to d --host a --machine-id x").ended(2).says("32 hexadecimal digits");
}

#[test]
fn a_recording_of_seconds_gives_no_advice_and_neither_do_its_rollups() {
    let stage = Stage::new();
    stage.small_recording("rec");
    stage.isotherm("rollup rec --to d --host db-1").ended(0);
    let [by_recording, by_rollups] = ["advise rec --json", "advise d --json"].map(|words| report(&stage, words));
    assert_eq!(by_recording, by_rollups);
    for one in by_rollups.as_array().unwrap() {
        assert_eq!((&one["confidence"], &one["limit_bytes"]), (&Value::from("withheld"), &Value::Null));
    }
    stage.isotherm("advise d").ended(0).prints("withheld: 0 h are covered");
    stage.isotherm("rollup rec --to d --host db-2").ended(0);
    stage.isotherm("advise d").ended(2).says("rollups of 2 hosts").says("--host");
    stage.isotherm("advise d --host db-2").ended(0).prints("SERVICE");
    stage.isotherm("rollup rec --to d --host db-2 --machine-id 0123456789abcdef0123456789abcdef").ended(0);
    stage.isotherm("advise d --host db-2").ended(2).says("2 hosts have the name db-2: give --host one of");
    stage.isotherm("advise d --host db-3").ended(1).says("--host");
    stage.isotherm("advise rec --host db-1").ended(2).says("--host is for rollups");
    stage.isotherm("advise nowhere").ended(1).says("nowhere");
}
