//! What is shipped for Kubernetes agrees with the rest of the tree: the chart has the dashboards of `dashboards/`, and its settings are settings of
//! `isotherm run`. `make lint-kube` checks the objects, and needs helm.

use isotherm_kube::assign::Permitted;
use isotherm_schemes::settings::File;
use std::fs;
use std::path::{Path, PathBuf};

fn tree() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    fs::read_to_string(tree().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The lines of a literal block of YAML, without their indentation.
fn block(text: &str, key: &str) -> String {
    let mut lines = text.lines().skip_while(|line| line.trim() != format!("{key}: |"));
    let indent = lines.next().map(|line| line.len() - line.trim_start().len()).unwrap_or_else(|| panic!("no {key}"));
    let inside = lines.take_while(|line| line.trim().is_empty() || line.len() - line.trim_start().len() > indent);
    inside.map(|line| format!("{}\n", line.get(indent + 2..).unwrap_or_default())).collect()
}

#[test]
fn the_chart_has_the_dashboard_and_the_rules_of_the_tree() {
    for file in ["isotherm-grafana.json", "isotherm-rules.yml"] {
        let (ours, shipped) =
            (read(&format!("dashboards/{file}")), read(&format!("deploy/helm/isotherm/files/{file}")));
        assert!(
            ours == shipped,
            "cp dashboards/{file} deploy/helm/isotherm/files/, and run scripts/render-manifests.sh"
        );
    }
    let dashboard = block(&read("deploy/manifests/isotherm-monitoring.yaml"), "isotherm.json");
    assert_eq!(dashboard.trim_end(), read("dashboards/isotherm-grafana.json").trim_end());
}

#[test]
fn settings_of_the_manifests_are_settings_of_run() {
    let of = |file: &str| {
        let text = block(&read(&format!("deploy/manifests/{file}")), "settings.toml");
        File::parse(&text).unwrap_or_else(|error| panic!("{file}: {error}\n{text}"))
    };
    let watched = of("isotherm.yaml");
    assert!(watched.targets.all && watched.assignments.is_none() && watched.stream.is_none());
    assert_eq!(
        of("isotherm-monitoring.yaml").stream_group.as_deref(),
        Some("isotherm"),
        "serve connects as that group"
    );
    let pods = of("isotherm-pods.yaml");
    assert_eq!(Permitted::of(&pods).names(), ["cold", "huge"]);
    let file = pods.assignments.unwrap();
    let manifest = read("deploy/manifests/isotherm-pods.yaml");
    let folder = file.parent().unwrap().to_str().unwrap();
    assert!(
        manifest.contains(&format!("- {{name: assignments, mountPath: {folder}, readOnly: true}}")),
        "of the monitor"
    );
    assert!(manifest.contains(&format!("- {{name: assignments, mountPath: {folder}}}")), "of isotherm-kube");
}

#[test]
fn the_version_of_the_chart_is_ours() {
    let chart = read("deploy/helm/isotherm/Chart.yaml");
    for key in ["version", "appVersion"] {
        assert!(chart.contains(&format!("\n{key}: {}\n", env!("CARGO_PKG_VERSION"))), "{key} in Chart.yaml");
    }
}
