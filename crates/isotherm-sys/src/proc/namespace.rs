//! Paths of cgroups, seen from a cgroup namespace: as containers have it on hosts with v2.
//!
//! There `/proc/PID/cgroup` shows the cgroup of a process outside by its way from ours, `/../../kubepods-burstable-podUID.slice`: neither a name for a
//! report, nor a directory below any mount. If the hierarchy of the host is mounted too (its root in mountinfo is then `/../../..`), our own cgroup can
//! be found in it, by our pid, and with its path all others have theirs. Without such a mount, paths stay as the kernel shows them.

use super::cgroup::{CgroupKind, Hierarchy};
use super::{Membership, Proc};
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// Directories that are searched for our own cgroup: more than any host has.
const MAX_DIRS: usize = 100_000;

/// The root of our namespace as a path of the host; found when it is first needed, and kept for all clones.
#[derive(Clone, Debug, Default)]
pub(super) struct Namespace(Arc<OnceLock<Option<PathBuf>>>);

impl Namespace {
    /// `None` if we are in none, or cannot see beyond it.
    fn root(&self, proc: &Proc) -> Option<&Path> {
        let found = || {
            let mounted = proc.mounted_cgroups().ok()?;
            let whole = mounted.hierarchies().iter().find(|h| is_beyond(h))?;
            let ours = own_membership(proc)?.unified?;
            // Below our root, when we are not in it ourselves.
            let below = Path::new(&ours).strip_prefix("/").ok()?;
            let dir = own_dir(proc, &whole.mount)?;
            let mut root = Path::new("/").join(dir.strip_prefix(&whole.mount).ok()?);
            for part in below.components().rev() {
                (root.file_name() == Some(part.as_os_str())).then(|| root.pop())?;
            }
            let depth = |path: &Path| path.components().count() - 1;
            (depth(&root) == depth(&whole.root)).then_some(root)
        };
        self.0.get_or_init(found).as_deref()
    }

    /// A path of `/proc/PID/cgroup` as a path of the host.
    pub(super) fn resolve(&self, proc: &Proc, membership: Membership) -> Membership {
        let Some(path) = membership.unified.as_deref() else { return membership };
        match self.root(proc).and_then(|root| resolved(root, Path::new(path))) {
            // Ours too: `/` would be the root of the host among the paths of others.
            Some(path) => Membership { unified: Some(path.to_string_lossy().into_owned()), ..membership },
            None => membership,
        }
    }

    /// A mounted hierarchy, with the path of the host that is mounted there.
    pub(super) fn resolve_mount(&self, proc: &Proc, mounted: Hierarchy) -> Hierarchy {
        if mounted.kind != CgroupKind::Unified {
            return mounted;
        }
        match self.root(proc).and_then(|root| resolved(root, &mounted.root)) {
            Some(root) => Hierarchy { root, ..mounted },
            None => mounted,
        }
    }
}

/// Whether it has more than our namespace.
fn is_beyond(mounted: &Hierarchy) -> bool {
    mounted.kind == CgroupKind::Unified && mounted.root.starts_with("/..")
}

/// `path` from `root` on. `None` if it leads above the root of the host, which the kernel never shows.
fn resolved(root: &Path, path: &Path) -> Option<PathBuf> {
    let mut whole = root.to_owned();
    for part in path.components() {
        match part {
            Component::ParentDir => whole.pop().then_some(())?,
            Component::Normal(name) => whole.push(name),
            _ => {}
        }
    }
    Some(whole)
}

fn own_membership(proc: &Proc) -> Option<Membership> {
    Membership::parse(&fs::read(proc.root().join("self/cgroup")).ok()?).ok()
}

/// The directory below `mount` that lists us.
fn own_dir(proc: &Proc, mount: &Path) -> Option<PathBuf> {
    let pid = fs::read_link(proc.root().join("self")).ok()?;
    let pid = pid.to_str()?;
    let mut todo = vec![mount.to_owned()];
    for _ in 0..MAX_DIRS {
        let dir = todo.pop()?;
        // Cgroups come and go meanwhile.
        if fs::read_to_string(dir.join("cgroup.procs")).is_ok_and(|text| text.lines().any(|line| line == pid)) {
            return Some(dir);
        }
        let Ok(entries) = fs::read_dir(&dir) else { continue };
        let below = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        todo.extend(below.map(|entry| entry.path()));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use tempfile::TempDir;

    const POD: &str = "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podA.slice";
    const OTHER: &str = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podB.slice/cri-containerd-2.scope";

    /// A container in a namespace of its own: pid 7, three levels down, with its own hierarchy mounted, and that of the host if `has_host`.
    fn container(has_host: bool, own: &str) -> (TempDir, Proc) {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| dir.path().join(path);
        let put = |path: &str, text: &str| {
            fs::create_dir_all(at(path).parent().unwrap()).unwrap();
            fs::write(at(path), text).unwrap();
        };
        let base = dir.path().to_str().unwrap();
        let mut mounts = format!("41 31 0:38 / {base}/own rw - cgroup2 cgroup2 rw\n");
        if has_host {
            mounts += &format!("42 31 0:38 /../../../.. {base}/host ro - cgroup2 cgroup2 rw\n");
        }
        put("proc/7/mountinfo", &mounts);
        put("proc/7/cgroup", &format!("0::{own}\n"));
        put(
            "proc/9/cgroup",
            "0::/../../../kubepods-burstable.slice/kubepods-burstable-podB.slice/cri-containerd-2.scope\n",
        );
        put("proc/10/cgroup", "0::/../../../../system.slice/ssh.service\n");
        symlink("7", at("proc/self")).unwrap();
        put("own/cgroup.procs", "7\n");
        put("host/cgroup.procs", "1\n");
        put(&format!("host/{OTHER}/cgroup.procs"), "9\n77\n");
        put("host/system.slice/ssh.service/cgroup.procs", "10\n");
        put(&format!("host/{POD}/cri-containerd-1.scope{}/cgroup.procs", own.trim_end_matches('/')), "7\n");
        let proc = Proc::at(at("proc"));
        (dir, proc)
    }

    #[test]
    fn a_container_that_sees_the_hosts_hierarchy_knows_the_paths_of_others() {
        for own in ["/", "/init"] {
            let (dir, proc) = container(true, own);
            let path = |pid| proc.membership(pid).unwrap().unified.unwrap();
            assert_eq!(path(9), format!("/{OTHER}"));
            assert_eq!(path(10), "/system.slice/ssh.service");
            assert_eq!(path(7), format!("/{POD}/cri-containerd-1.scope{}", own.trim_end_matches('/')));
            let cgroups = proc.cgroups().unwrap();
            let cgroup = cgroups.of(&proc.membership(9).unwrap()).unwrap();
            assert_eq!((cgroup.dir, cgroup.path), (dir.path().join("host").join(OTHER), format!("/{OTHER}")));
            assert_eq!(cgroups.find("/system.slice/ssh.service").unwrap().processes().unwrap(), [10]);
        }
    }

    #[test]
    fn a_container_that_does_not_see_it_keeps_what_the_kernel_shows() {
        let (_dir, proc) = container(false, "/");
        let membership = proc.membership(10).unwrap();
        assert_eq!(membership.unified.as_deref(), Some("/../../../../system.slice/ssh.service"));
        assert_eq!(proc.cgroups().unwrap().of(&membership), None, "no directory outside of the mount");
    }

    #[test]
    fn a_path_is_never_above_the_root() {
        let of = |path| resolved(Path::new("/a/b"), Path::new(path));
        assert_eq!(of("/../c"), Some("/a/c".into()));
        assert_eq!(of("/"), Some("/a/b".into()));
        assert_eq!(of("/../../.."), None);
    }
}
