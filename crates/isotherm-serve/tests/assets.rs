//! The committed dashboard, alert rules and reference page are those that the table of metrics makes, and Prometheus takes them.

use isotherm_serve::args::Print;
use isotherm_serve::metrics::{assets, table};
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn committed_files_are_current() {
    let files = [
        (Print::Dashboard, "dashboards/isotherm-grafana.json"),
        (Print::Rules, "dashboards/isotherm-rules.yml"),
        (Print::MetricsPage, "docs/reference/metrics.md"),
    ];
    for (what, path) in files {
        let (text, path) = (assets::text(what), root().join(path));
        if std::env::var_os("UPDATE_ASSETS").is_some() {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, &text).unwrap();
        }
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(committed == text, "{} is old: run with UPDATE_ASSETS=1", path.display());
    }
}

#[test]
fn the_dashboard_and_the_rules_use_metrics_that_there_are() {
    let known: Vec<String> =
        table::ALL.iter().flat_map(|m| [m.name.to_owned(), m.sample_name(), format!("{}_bucket", m.name)]).collect();
    for what in [Print::Dashboard, Print::Rules] {
        let text = assets::text(what);
        let is_name = |char: char| char.is_ascii_alphanumeric() || char == '_';
        let used: Vec<&str> = text.split(|char| !is_name(char)).filter(|word| word.starts_with("isotherm_")).collect();
        assert!(used.len() > 5, "{used:?}");
        for name in used {
            assert!(known.iter().any(|known| known == name), "{name}");
        }
    }
    let dashboard: serde_json::Value = serde_json::from_str(&assets::text(Print::Dashboard)).unwrap();
    assert!(dashboard["panels"].as_array().unwrap().len() >= 10);
}

#[test]
fn promtool_takes_the_rules_and_their_tests_pass() {
    let folder = root().join("dashboards");
    for args in [["check", "rules", "isotherm-rules.yml"], ["test", "rules", "isotherm-rules-test.yml"]] {
        let Ok(done) = Command::new("promtool").args(args).current_dir(&folder).output() else {
            println!("skipped: needs promtool");
            return;
        };
        let text = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "promtool {args:?}: {text}");
    }
}
