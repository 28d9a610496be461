//! Processes that run a KVM guest: its accesses set bits in tables that nobody but the hypervisor sees.

mod support;

use std::path::Path;
use support::{Script, Stage, is_root, sees_pages, skip};

/// A process with a guest that has no processor yet, and 16 MiB that it accesses itself.
const GUEST: &str = "
import fcntl, os
vm = fcntl.ioctl(os.open('/dev/kvm', os.O_RDWR), 0xAE01, 0)
at = reserve(16 << 20)
print(os.readlink(f'/proc/self/fd/{vm}').replace(' ', '_'), flush=True)
heat(range(at, at + (16 << 20), 4096))
";

#[test]
fn a_process_with_a_guest_is_marked_in_every_report_and_never_collapsed() {
    need!(sees_pages() && is_root(), "root, and the page-table source");
    need!(Path::new("/dev/kvm").exists(), "/dev/kvm");
    let Some(vmm) = Script::start(GUEST) else { return skip("python3") };
    need!(vmm.line == "anon_inode:kvm-vm", "a kernel that lets us make a guest");
    let stage = Stage::new();
    stage.isotherm(&format!("record -o r -d 3s -w 1s -p {}", vmm.pid())).ended(0);
    for report in ["access", "wss", "histogram", "processes", "cgroups", "heatmap"] {
        stage.isotherm(&format!("report {report} r")).ended(0).prints("accesses by the guests of");
    }
    let report = stage.json("report processes r --json");
    assert_eq!(report["caveats"]["guests"][0]["pid"], vmm.pid());
    assert_eq!(report["report"]["processes"][0]["runs_guest"], true);
    stage.isotherm("report heatmap r -o map.html").ended(0).says("accesses by the guests of");
    let collapsed = stage.isotherm(&format!("collapse -d 4s -p {}", vmm.pid()));
    assert!(collapsed.out.contains("KVM guest") || collapsed.err.contains("KVM guest"), "{collapsed}");
    assert_eq!(support::huge_bytes(vmm.pid()), 0, "{collapsed}");
}

#[test]
fn what_a_cgroup_is_charged_for_stands_beside_its_heat() {
    need!(sees_pages(), "the page-table source");
    let stage = Stage::new();
    let child = support::workload(16);
    let report = stage.json(&format!("report cgroups --json -d 3s -p {}", child.pid()));
    let rows = report["report"]["cgroups"].as_array().expect("cgroups");
    let known = rows.iter().find(|row| !row["cgroup_memory"].is_null());
    let Some(row) = known else { return skip("a memory cgroup") };
    let held = |kind: &str| row["cgroup_memory"][kind].as_u64().unwrap();
    assert!(held("anon") >= 14 << 20, "the workload's memory is in it: {row}");
    assert!(held("file") > 0, "{row}");
    stage.isotherm(&format!("report cgroups -d 2s -p {}", child.pid())).ended(0).prints("ANON").prints("SLAB");
}
