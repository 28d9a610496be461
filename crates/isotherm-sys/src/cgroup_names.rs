//! What the path of a cgroup says about it: its unit, its pod, its container. Pure.
//!
//! Paths come from the kernel, and their layout from systemd and from the kubelet, which has two drivers:
//!
//! ```text
//! systemd   /kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podUID.slice/cri-containerd-ID.scope
//! cgroupfs  /kubepods/burstable/podUID/ID
//! ```
//!
//! The systemd driver writes the UID with `_` for `-`, because `-` separates slices. Static pods have a hash for a UID. A
//! container ID has 64 hexadecimal digits under every runtime: containerd, CRI-O or Docker, each with a prefix of its own.
//!
//! A container may divide its cgroup and choose the names. So the outermost pod counts, and the outermost container in it.

/// What a path says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CgroupNames {
    /// The innermost systemd unit. Of a container, the service that runs it; of a pod, none.
    pub unit: Option<String>,
    /// The pod, as the API of Kubernetes writes it.
    pub pod_uid: Option<String>,
    /// The container.
    pub container_id: Option<String>,
}

/// Prefixes of scopes that hold a container.
const RUNTIMES: [&str; 5] = ["cri-containerd-", "crio-conmon-", "crio-", "docker-", "libpod-"];
const ID_DIGITS: usize = 64;

impl CgroupNames {
    /// Reads the path of a cgroup, as in `/proc/PID/cgroup`.
    pub fn of(path: &str) -> CgroupNames {
        let mut names = CgroupNames::default();
        let (mut service, mut is_below_kubepods) = (None, false);
        // cgroup v1 with containerd's systemd driver: `SLICE:cri-containerd:ID`. Other names may have colons.
        let path = &path.replace(":cri-containerd:", "/");
        for part in path.split('/').filter(|part| !part.is_empty()) {
            if names.pod_uid.is_none()
                && let Some(uid) = pod_uid(part, is_below_kubepods)
            {
                // A container around it is a machine of a cluster, as kind has them.
                names = CgroupNames { pod_uid: Some(uid), ..CgroupNames::default() };
            } else if names.container_id.is_none()
                && let Some(id) = container_id(part)
            {
                names.container_id = Some(id.to_owned());
            } else if is_unit(part) {
                names.unit = Some(part.to_owned());
                service = names.unit.clone().filter(|unit| unit.ends_with(".service")).or(service);
            }
            is_below_kubepods |= part.contains("kubepods");
        }
        // The slices around a pod or a container are not what a reader looks for.
        if names.pod_uid.is_some() {
            names.unit = None;
        } else if names.container_id.is_some() {
            names.unit = service;
        }
        names
    }
}

/// `kubepods-burstable-pod1234_5678.slice`, or `pod1234-5678` below `kubepods`: that name alone is anybody's.
fn pod_uid(part: &str, is_below_kubepods: bool) -> Option<String> {
    let uid = match part.strip_suffix(".slice") {
        Some(slice) if slice.contains("kubepods") => slice.rsplit_once("-pod")?.1.replace('_', "-"),
        Some(_) => return None,
        None if is_below_kubepods => part.strip_prefix("pod")?.to_owned(),
        None => return None,
    };
    let is_uid = uid.len() >= 32 && uid.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    is_uid.then_some(uid)
}

/// `cri-containerd-ID.scope` or `ID`.
fn container_id(part: &str) -> Option<&str> {
    let name = part.strip_suffix(".scope").unwrap_or(part);
    let id = RUNTIMES.iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name);
    (id.len() == ID_DIGITS && id.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(id)
}

fn is_unit(part: &str) -> bool {
    [".service", ".scope", ".slice", ".socket", ".mount"].iter().any(|kind| part.ends_with(kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "3f0a68b6ff485d5b7ac81cb3c6ff9d2a5ab6e13b74df0c7e5b9ac3a0c4a1b2d3";
    const UID: &str = "0f1c2d3e-4a5b-6c7d-8e9f-a0b1c2d3e4f5";
    const UID_UNDERSCORED: &str = "0f1c2d3e_4a5b_6c7d_8e9f_a0b1c2d3e4f5";

    fn names(path: &str) -> [Option<String>; 3] {
        let CgroupNames { unit, pod_uid, container_id } = CgroupNames::of(path);
        [unit, pod_uid, container_id]
    }

    fn expect(path: &str, expected: [Option<&str>; 3]) {
        assert_eq!(names(path), expected.map(|name| name.map(str::to_owned)), "{path}");
    }

    #[test]
    fn pods_of_the_systemd_driver() {
        let pod = [None, Some(UID), Some(ID)];
        for class in ["-burstable", "-besteffort", ""] {
            let middle = if class.is_empty() { String::new() } else { format!("/kubepods{class}.slice") };
            for runtime in ["cri-containerd-", "crio-", "docker-"] {
                let slice = format!("/kubepods.slice{middle}/kubepods{class}-pod{UID_UNDERSCORED}.slice");
                expect(&format!("{slice}/{runtime}{ID}.scope"), pod);
                expect(&slice, [None, Some(UID), None]);
                // A container that divides its cgroup further.
                expect(&format!("{slice}/{runtime}{ID}.scope/init.scope"), pod);
            }
        }
        // kind, and the kubelet with --cgroup-root.
        expect(
            &format!(
                "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{UID_UNDERSCORED}.slice/cri-containerd-{ID}.scope"
            ),
            [None, Some(UID), Some(ID)],
        );
        // containerd, cgroup v1.
        expect(
            &format!(
                "/system.slice/containerd.service/kubepods-burstable-pod{UID_UNDERSCORED}.slice:cri-containerd:{ID}"
            ),
            [None, Some(UID), Some(ID)],
        );
        expect("/system.slice/dbus-:1.2-org.x@0.service", [Some("dbus-:1.2-org.x@0.service"), None, None]);
    }

    #[test]
    fn pods_of_the_cgroupfs_driver() {
        for class in ["/burstable", "/besteffort", ""] {
            expect(&format!("/kubepods{class}/pod{UID}/{ID}"), [None, Some(UID), Some(ID)]);
            expect(&format!("/kubepods{class}/pod{UID}"), [None, Some(UID), None]);
            expect(&format!("/kubepods{class}/pod{UID}/crio-{ID}"), [None, Some(UID), Some(ID)]);
        }
        // A static pod.
        let hash = "0123456789abcdef0123456789abcdef";
        expect(&format!("/kubepods/burstable/pod{hash}/{ID}"), [None, Some(hash), Some(ID)]);
    }

    #[test]
    fn names_that_a_container_gives_to_its_own_cgroups_are_not_taken() {
        let (other_uid, other_id) = (UID.replace('0', "9"), ID.replace('3', "9"));
        let own = [None, Some(UID), Some(ID)];
        let forged = format!("kubepods/pod{other_uid}/{other_id}");
        expect(&format!("/kubepods/burstable/pod{UID}/{ID}/{forged}"), own);
        expect(&format!("/kubepods/burstable/pod{UID}/{ID}/pod{other_uid}/{other_id}/a.service"), own);
        let slice = format!("/kubepods.slice/kubepods-pod{UID_UNDERSCORED}.slice/cri-containerd-{ID}.scope");
        expect(&format!("{slice}/{forged}"), own);
        let other_slice = format!("kubepods-pod{}.slice", other_uid.replace('-', "_"));
        expect(&format!("{slice}/{other_slice}/cri-containerd-{other_id}.scope"), own);
        expect(&format!("/docker/{ID}/{other_id}"), [None, None, Some(ID)]);
        // Outside a container, too: a user may divide a cgroup that is delegated to them.
        expect(&format!("/user.slice/user@1000.service/pod{UID}/x"), [Some("user@1000.service"), None, None]);
        // A machine of a cluster that is a container itself.
        expect(&format!("/docker/{other_id}/kubelet/kubepods/burstable/pod{UID}/{ID}"), own);
    }

    #[test]
    fn containers_outside_kubernetes() {
        expect(&format!("/system.slice/docker-{ID}.scope"), [None, None, Some(ID)]);
        expect(&format!("/docker/{ID}"), [None, None, Some(ID)]);
        expect(&format!("/machine.slice/libpod-{ID}.scope/container"), [None, None, Some(ID)]);
        expect(
            &format!("/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope"),
            [Some("user@1000.service"), None, Some(ID)],
        );
    }

    #[test]
    fn units_of_systemd() {
        expect("/system.slice/redis-server.service", [Some("redis-server.service"), None, None]);
        expect("/system.slice/system-getty.slice/getty@tty1.service", [Some("getty@tty1.service"), None, None]);
        expect("/user.slice/user-1000.slice/session-3.scope", [Some("session-3.scope"), None, None]);
        expect(
            "/user.slice/user-1000.slice/user@1000.service/app.slice/app-x.scope",
            [Some("app-x.scope"), None, None],
        );
        expect("/system.slice/postgresql.service/worker", [Some("postgresql.service"), None, None]);
        expect("/init.scope", [Some("init.scope"), None, None]);
    }

    #[test]
    fn what_only_looks_alike_is_none() {
        for path in ["/", "", "/podcast", "/pod123", "/my/group", "/docker/abc", &format!("/x/{ID}0"), "/kubepods"] {
            expect(path, [None, None, None]);
        }
        expect("/podman.slice", [Some("podman.slice"), None, None]);
        let not_hex = ID.replace('3', "z");
        expect(&format!("/docker/{not_hex}"), [None, None, None]);
    }
}
