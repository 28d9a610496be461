//! Where the cgroup of a pod is. Kubelet names it by the driver of cgroups, the QoS class and the uid:
//!
//! ```text
//!            guaranteed                              burstable, besteffort
//! systemd    kubepods.slice/kubepods-podU_U.slice    kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podU_U.slice
//! cgroupfs   kubepods/podU-U                         kubepods/burstable/podU-U
//! ```
//!
//! Below `kubelet.slice/kubelet-kubepods.slice` or `kubelet/kubepods` where kubelet runs with `--cgroup-root=/kubelet`, as in kind. A uid is in one of
//! these places, so the class need not be asked for: the API server would have to send the whole pod, with the secrets in its environment.

use isotherm_schemes::assigned::is_uid;
use std::path::Path;

/// QoS classes in names of cgroups.
const CLASSES: [&str; 3] = ["", "burstable", "besteffort"];
/// Cgroups below which kubelet may put its own.
const ROOTS: [&str; 2] = ["", "kubelet"];

/// A cgroup below the root of the hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    /// The folder that it is in.
    above: String,
    /// Its own name.
    name: String,
}

/// The name of the cgroup of a pod, the last part of its path, if there is such a folder below `root`.
pub fn find(root: &Path, uid: &str) -> Option<String> {
    places(uid).into_iter().find(|place| is_folder(&root.join(&place.above).join(&place.name))).map(|place| place.name)
}

fn is_folder(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|found| found.is_dir())
}

/// All places in which it may be. None if the uid is no uid: this is the only text of others that becomes a part of a path.
fn places(uid: &str) -> Vec<Place> {
    if !is_uid(uid) {
        return Vec::new();
    }
    let all = ROOTS.iter().flat_map(|root| CLASSES.iter().map(move |class| (*root, *class)));
    all.flat_map(|(root, class)| [systemd(root, class, uid), cgroupfs(root, class, uid)]).collect()
}

/// A slice is named by all slices above it, so hyphens in the uid become underscores.
fn systemd(root: &str, class: &str, uid: &str) -> Place {
    let mut names: Vec<&str> = [root, "kubepods", class].into_iter().filter(|name| !name.is_empty()).collect();
    let above: Vec<String> = (1..=names.len()).map(|end| format!("{}.slice", names[..end].join("-"))).collect();
    let uid = format!("pod{}", uid.replace('-', "_"));
    names.push(&uid);
    Place { above: above.join("/"), name: format!("{}.slice", names.join("-")) }
}

fn cgroupfs(root: &str, class: &str, uid: &str) -> Place {
    let above: Vec<&str> = [root, "kubepods", class].into_iter().filter(|name| !name.is_empty()).collect();
    Place { above: above.join("/"), name: format!("pod{uid}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_schemes::assigned::Assignments;
    use std::fs;
    use std::os::unix::fs::symlink;

    const UID: &str = "8d5b1f4e-0a7c-4b52-9d2e-6f2f0d3c1a77";
    const SLICE: &str = "pod8d5b1f4e_0a7c_4b52_9d2e_6f2f0d3c1a77.slice";

    #[test]
    fn it_is_found_with_both_drivers_and_all_classes() {
        for (path, name) in [
            (format!("kubepods.slice/kubepods-{SLICE}"), format!("kubepods-{SLICE}")),
            (
                format!("kubepods.slice/kubepods-burstable.slice/kubepods-burstable-{SLICE}"),
                format!("kubepods-burstable-{SLICE}"),
            ),
            (
                format!("kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-{SLICE}"),
                format!("kubepods-besteffort-{SLICE}"),
            ),
            (format!("kubepods/pod{UID}"), format!("pod{UID}")),
            (format!("kubepods/besteffort/pod{UID}"), format!("pod{UID}")),
            (format!("kubelet/kubepods/burstable/pod{UID}"), format!("pod{UID}")),
            (
                format!(
                    "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-{SLICE}"
                ),
                format!("kubelet-kubepods-burstable-{SLICE}"),
            ),
        ] {
            let root = tempfile::tempdir().unwrap();
            fs::create_dir_all(root.path().join(&path)).unwrap();
            assert_eq!(find(root.path(), UID), Some(name.clone()), "{path}");
            assert!(Assignments::default().add("cold", &name), "isotherm run takes it: {name}");
            assert_eq!(find(root.path(), &UID.replace('8', "9")), None);
        }
    }

    #[test]
    fn what_is_no_uid_is_no_path_and_what_is_no_folder_is_no_cgroup() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("kubepods/pod..")).unwrap();
        for bad in ["", "..", ".", "/", "../..", "8d5b1f4e-0a7c-4b52-9d2e-6f2f0d3c1a7/"] {
            assert_eq!((find(root.path(), bad), places(bad).len()), (None, 0), "{bad:?}");
        }
        fs::write(root.path().join(format!("kubepods/pod{UID}")), "").unwrap();
        assert_eq!(find(root.path(), UID), None);
        fs::create_dir_all(root.path().join("kubepods/burstable")).unwrap();
        symlink("/", root.path().join(format!("kubepods/burstable/pod{UID}"))).unwrap();
        assert_eq!(find(root.path(), UID), None);
    }
}
