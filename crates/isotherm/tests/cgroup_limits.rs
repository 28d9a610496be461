//! Memory cgroups near their limit: nothing is collapsed that could get their processes killed. In cgroups of the test's own,
//! v1 or v2, whichever has the memory controller. Huge ranges go by address: how hot they are is nothing to the limits.

mod support;

use isotherm_heat::TargetId;
use isotherm_schemes::action::Failure;
use isotherm_schemes::collapse::CollapseMachine;
use isotherm_schemes::machine::{Live, Machine};
use isotherm_sys::proc::{Cgroup, CgroupKind, Proc};
use isotherm_units::Addr;
use isotherm_workload::{Child, Index};
use serde_json::Value;
use std::fs;
use std::io;
use std::process::Command;
use std::time::Duration;
use support::{ISOTHERM, Script, Stage, alone, can_collapse, huge_bytes, is_root, skip, until};

const MIB: u64 = 1 << 20;

/// A memory cgroup below the root, removed when dropped.
struct TestCgroup {
    cgroup: Cgroup,
    root: Cgroup,
}

impl TestCgroup {
    /// `None` where none can be made.
    fn new(name: &str) -> Option<TestCgroup> {
        let cgroups = Proc::default().cgroups().ok()?;
        let root = cgroups.find("/").ok()?;
        let dir = root.dir.join(format!("isotherm-test-{}-{name}", std::process::id()));
        if root.kind == CgroupKind::Unified {
            // A machine with systemd has it on already. No setting of this machine is changed where it is not.
            let on = fs::read_to_string(root.dir.join("cgroup.subtree_control")).ok()?;
            let guest = std::env::var_os("ISOTHERM_LAB").is_some();
            if !on.contains("memory")
                && (!guest || fs::write(root.dir.join("cgroup.subtree_control"), "+memory").is_err())
            {
                return None;
            }
        }
        fs::create_dir(&dir).ok()?;
        let cgroup = cgroups.find(dir.to_str()?).ok()?;
        let made = TestCgroup { cgroup, root };
        made.held().map(|_| made)
    }

    /// The same, if anything can be collapsed here; otherwise it says what is missing.
    fn to_collapse_in(name: &str) -> Option<TestCgroup> {
        let (can_collapse, is_root) = (can_collapse(), is_root());
        let made = if can_collapse && is_root { TestCgroup::new(name) } else { None };
        if made.is_none() {
            skip(match (can_collapse, is_root) {
                (false, _) => "the page-table source, and transparent huge pages not set to `always`",
                (_, false) => "root, to make a cgroup",
                _ => "a memory cgroup of its own",
            });
        }
        made
    }

    fn held(&self) -> Option<u64> {
        Some(self.cgroup.memory_use().ok()??.current.0)
    }

    /// Sets the limit to what is held and `room` on top.
    fn leave_room(&self, room: u64) {
        let v1 = self.cgroup.kind == CgroupKind::MemoryV1;
        let file = if v1 { "memory.limit_in_bytes" } else { "memory.max" };
        let limit = self.held().unwrap() + room;
        self.write(&self.cgroup, file, &limit.to_string()).unwrap();
    }

    fn write(&self, to: &Cgroup, file: &str, text: &str) -> io::Result<()> {
        fs::write(to.dir.join(file), text)
    }

    fn oom_kills(&self) -> u64 {
        self.cgroup.memory_events().unwrap().oom_kill.unwrap_or_default()
    }
}

impl Drop for TestCgroup {
    fn drop(&mut self) {
        // Removed once what it was charged for, and its processes, are gone.
        for pid in self.cgroup.processes().unwrap_or_default() {
            let _ = self.write(&self.root, "cgroup.procs", &pid.to_string());
        }
        until(Duration::from_secs(5), || fs::remove_dir(&self.cgroup.dir).is_ok());
    }
}

/// An index of 128 MiB, most of whose reads go to 20 MiB in the middle, that has its memory from `cgroup`.
fn index_in(cgroup: &TestCgroup) -> Child {
    let index = Index { pages: 32_768, centre: 0.5, deviation: 0.04, stride: 1, seed: 5 };
    // The shell moves itself before it becomes the workload, so all of its memory is charged there.
    let mut command = Command::new("sh");
    let script =
        format!("echo $$ > {}/cgroup.procs && exec {ISOTHERM} demo-workload \"$@\"", cgroup.cgroup.dir.display());
    command.args(["-c", &script, "sh"]);
    Child::start(command, &index).unwrap()
}

#[test]
fn a_cgroup_near_its_limit_is_left_alone_and_collapsed_once_there_is_room() {
    let _turn = alone();
    let Some(cgroup) = TestCgroup::to_collapse_in("near") else { return };
    let (stage, child) = (Stage::new(), index_in(&cgroup));
    assert!(cgroup.cgroup.processes().unwrap().contains(&child.pid()));
    assert!(cgroup.held().unwrap() > 100 * MIB, "charged to the cgroup");
    stage.isotherm(&format!("record -o r -d 3s -w 1s -p {}", child.pid())).ended(0);

    cgroup.leave_room(6 * MIB);
    for dry in ["--dry-run", ""] {
        let ran = stage.isotherm(&format!("collapse --from r --order address {dry}")).ended(0);
        ran.prints("0 of ").prints("the memory cgroup is near its limit");
    }
    assert_eq!((huge_bytes(child.pid()), cgroup.oom_kills()), (0, 0));

    let mut daemon =
        stage.start_isotherm(&format!("run --round-robin --socket s.sock --max-stall 200 -p {}", child.pid()));
    daemon.until_it_says("status at");
    let status = || stage.json("status --json --socket s.sock");
    let mut last = Value::Null;
    let waits = until(Duration::from_secs(80), || {
        last = status();
        last["targets"][0]["cgroup_wait"] == "cgroup-limit" && last["hints"]["cgroup"].as_u64() > Some(0)
    });
    assert!(waits, "{last:#}\n{}", daemon.err());
    stage.isotherm("status --socket s.sock").ended(0).prints("waiting: the memory cgroup is near its limit");
    assert_eq!((last["collapsed"].as_u64(), huge_bytes(child.pid())), (Some(0), 0));

    cgroup.leave_room(64 * MIB);
    let collapses = until(Duration::from_secs(80), || {
        last = status();
        last["collapsed"].as_u64() > Some(3)
    });
    assert!(collapses, "with room: {last:#}\n{}", daemon.err());
    assert!(huge_bytes(child.pid()) > 0 && cgroup.oom_kills() == 0);
    daemon.signal("TERM");
    daemon.end().ended(0);
    drop(child);
}

#[test]
fn the_limit_of_a_cgroup_above_counts_as_well() {
    let _turn = alone();
    let Some(above) = TestCgroup::to_collapse_in("above") else { return };
    if above.cgroup.kind == CgroupKind::Unified {
        above.write(&above.cgroup, "cgroup.subtree_control", "+memory").unwrap();
    }
    let dir = above.cgroup.dir.join("below");
    fs::create_dir(&dir).unwrap();
    let below = Cgroup { dir, path: format!("{}/below", above.cgroup.path), kind: above.cgroup.kind };
    let below = TestCgroup { cgroup: below, root: above.root.clone() };
    let (stage, child) = (Stage::new(), index_in(&below));
    stage.isotherm(&format!("record -o r -d 3s -w 1s -p {}", child.pid())).ended(0);
    above.leave_room(6 * MIB);
    stage.isotherm("collapse --from r --order address").ended(0).prints("the memory cgroup is near its limit");
    assert_eq!((huge_bytes(child.pid()), above.oom_kills()), (0, 0));
    above.leave_room(64 * MIB);
    stage.isotherm("collapse --from r --order address --most 3 --max-stall 200").ended(0).never_says("near its limit");
    assert!(huge_bytes(child.pid()) > 0);
    drop(child);
}

#[test]
fn a_refused_charge_is_told_from_missing_pages() {
    let _turn = alone();
    let Some(cgroup) = TestCgroup::to_collapse_in("charge") else { return };
    // Of the huge range one page is missing, as if userfaultfd could be the reason.
    let script = Script::start(&format!(
        "
open('{}/cgroup.procs', 'w').write('0')
at = (reserve(4 << 20) + (2 << 20) - 1) >> 21 << 21
ctypes.memset(at, 1, (2 << 20) - 4096)
print(at, flush=True)
while True: time.sleep(1)",
        cgroup.cgroup.dir.display()
    ));
    let Some(script) = script else { return skip("python3") };
    let id = Proc::default().identity(script.pid()).unwrap();
    let process = TargetId { pid: id.pid, start_ticks: id.start_ticks };
    let mut live = Live::new();
    live.admit(process, &|_| None).unwrap();
    cgroup.leave_room(MIB);
    assert_eq!(live.cgroup(process).unwrap().limited.len(), 1);
    let pmd = Addr(script.numbers()[0]).pmd();
    // The worker would not have tried: 1 MiB is too little.
    assert_eq!(live.collapse(process, pmd).result, Err(Failure::NoCharge));
    assert_eq!(cgroup.oom_kills(), 0);
    drop(script);
}
