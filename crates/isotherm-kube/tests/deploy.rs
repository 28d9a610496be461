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

#[test]
fn the_seccomp_profile_permits_what_the_sandbox_does_and_nothing_that_it_is_for() {
    let profile: serde_json::Value = serde_json::from_str(&read("deploy/profiles/isotherm-seccomp.json")).unwrap();
    let of = |action: &str| -> Vec<String> {
        let rules = profile["syscalls"].as_array().unwrap().iter().filter(|rule| rule["action"] == action);
        rules
            .flat_map(|rule| rule["names"].as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()))
            .collect()
    };
    let permitted = of("SCMP_ACT_ALLOW");
    let calls = read("crates/isotherm-sandbox/src/calls.rs");
    let calls = calls.split("#[cfg(test)]").next().unwrap();
    let named = calls.split("libc::SYS_").skip(1).map(|rest| {
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap();
        rest[..end].to_owned()
    });
    // Made with ENOSYS, and by name lookups of the shipper only.
    let apart = ["clone3", "sendmmsg"];
    let named: Vec<String> = named.filter(|name| !apart.contains(&name.as_str())).collect();
    assert!(named.len() > 150, "{}", named.len());
    for name in named {
        assert!(permitted.contains(&name), "{name} is missing in deploy/profiles/isotherm-seccomp.json");
    }
    // The monitor's own: to start a program, and to act on the processes of others.
    for name in ["bpf", "clone", "execve", "perf_event_open", "process_madvise", "move_pages", "setpgid"] {
        assert!(permitted.iter().any(|one| one == name), "{name}");
    }
    assert_eq!(of("SCMP_ACT_ERRNO"), ["clone3"]);
    assert_eq!(profile["defaultAction"], "SCMP_ACT_ERRNO");
    for name in
        ["ptrace", "process_vm_writev", "mount", "unshare", "setns", "init_module", "kexec_load", "keyctl", "execveat"]
    {
        assert!(!permitted.iter().any(|one| one == name), "{name}");
    }
    let sockets = profile["syscalls"].as_array().unwrap().iter().find(|rule| rule["names"][0] == "socket").unwrap();
    assert_eq!(
        (&sockets["args"][0]["value"], permitted.iter().filter(|name| *name == "socket").count()),
        (&1.into(), 1)
    );
}
