//! Assignments: cgroups of pods that a program without privileges, `isotherm-kube`, gives to schemes of root's settings.
//!
//! The settings say which schemes take them (`assigned = true`, with a `name`), and where the file is. All that the file can do is to choose
//! among these schemes for a pod: a cgroup is one part of a path, and the name of a pod's cgroup by its form. So a program that writes to it
//! reaches no service of the host, and no action that root has not written down.
//!
//! One part, and no path: in a cgroup namespace of its own, as containers have it, a monitor sees the paths of others as
//! `/../../kubepods-burstable-podUID.slice`. The uid makes the part unique.
//!
//! ```text
//! isotherm-assignments 1
//! cold kubepods-burstable-pod8d5b1f4e_0a7c_4b52_9d2e_6f2f0d3c1a77.slice
//! cold pod0f1c2d3e-4a5b-6c7d-8e9f-a0b1c2d3e4f5
//! ```

use crate::scheme::Written;
use crate::settings::File;
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// The first line of the file.
const HEAD: &str = "isotherm-assignments 1";
/// The largest file that is read: some 7,000 lines.
pub const MAX_FILE: u64 = 1 << 20;
/// The longest name of a scheme, as of a label of DNS.
pub const MAX_NAME: usize = 63;
/// The longest name of a cgroup of a pod: `kubelet-kubepods-besteffort-podUID.slice` has 77 bytes.
const MAX_CGROUP: usize = 128;
/// Where the hyphens of a uid are.
const HYPHENS: [usize; 4] = [8, 13, 18, 23];
const UID: usize = 36;

/// Which cgroups schemes are for, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assignments(BTreeSet<(String, String)>);

impl Assignments {
    /// Adds a cgroup, by the last part of its path. Returns false, and adds nothing, if the name or the cgroup has another form than in the
    /// file.
    pub fn add(&mut self, scheme: &str, cgroup: &str) -> bool {
        let fits = is_name(scheme) && is_pod_cgroup(cgroup);
        if fits {
            self.0.insert((scheme.to_owned(), cgroup.to_owned()));
        }
        fits
    }

    /// The cgroups of a scheme.
    pub fn of<'a>(&'a self, scheme: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(name, _)| name == scheme).map(|(_, cgroup)| cgroup.as_str())
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The text of the file, in an order of its own: equal assignments have equal texts.
    pub fn text(&self) -> String {
        let mut text = format!("{HEAD}\n");
        for (scheme, cgroup) in &self.0 {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{scheme} {cgroup}");
        }
        text
    }

    /// Reads the text. The error names a line and quotes none: who writes the file may be able to make a link of it to a file of root's.
    pub fn parse(text: &str) -> Result<Assignments, String> {
        let mut lines = text.lines();
        if lines.next() != Some(HEAD) {
            return Err(format!("line 1 is not {HEAD:?}"));
        }
        let mut read = Assignments::default();
        for (line, number) in lines.zip(2..) {
            let added = line.split_once(' ').is_some_and(|(scheme, cgroup)| read.add(scheme, cgroup));
            if !added {
                return Err(format!("line {number} is not the name of a scheme, a space, and the cgroup of a pod"));
            }
        }
        Ok(read)
    }
}

/// Whether it may be the name of a scheme: a label of DNS, so that it needs no quotes in an annotation, a line or a log.
pub fn is_name(text: &str) -> bool {
    let edge = |byte: Option<&u8>| byte.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let bytes = text.as_bytes();
    bytes.len() <= MAX_NAME
        && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
        && edge(bytes.first())
        && edge(bytes.last())
}

/// Whether it is a uid as the API server makes them: 36 lower-case hexadecimal digits and hyphens, with one in each of [`HYPHENS`].
pub fn is_uid(text: &str) -> bool {
    is_uid_with(text, b'-')
}

fn is_uid_with(text: &str, hyphen: u8) -> bool {
    let is_hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    let fits = |(at, b): (usize, u8)| if HYPHENS.contains(&at) { b == hyphen } else { is_hex(b) };
    text.len() == UID && text.bytes().enumerate().all(fits)
}

/// Whether it is the name of a pod's cgroup: `podUID` (cgroupfs), or `NAME-podUID.slice` with underscores in the uid, where the name
/// begins with `kubepods` or ends one that does (systemd).
fn is_pod_cgroup(part: &str) -> bool {
    if part.len() > MAX_CGROUP {
        return false;
    }
    if let Some(uid) = part.strip_prefix("pod") {
        return is_uid(uid);
    }
    let Some((above, uid)) = part.strip_suffix(".slice").and_then(|part| part.split_once("-pod")) else { return false };
    let above = above.strip_prefix("kubelet-").unwrap_or(above);
    ["kubepods", "kubepods-burstable", "kubepods-besteffort"].contains(&above) && is_uid_with(uid, b'_')
}

/// Whether the keys of a scheme go together.
pub(crate) fn check_keys(written: &Written) -> Result<(), String> {
    if let Some(name) = written.name.as_deref().filter(|name| !is_name(name)) {
        return Err(format!("name = {name:?}: has to be lower-case letters, digits and hyphens, {MAX_NAME} at most"));
    }
    match written {
        Written { assigned: true, name: None, .. } => Err("assigned takes a name".to_owned()),
        Written { assigned: true, cgroups, .. } if !cgroups.is_empty() => {
            Err("assigned takes the place of cgroups: give one of them".to_owned())
        }
        Written { assigned: false, namespaces, .. } if !namespaces.is_empty() => {
            Err("namespaces is for a scheme with assigned = true".to_owned())
        }
        Written { namespaces, .. } => match namespaces.iter().find(|name| !is_name(name)) {
            Some(name) => Err(format!("namespaces: {name:?} is no name of a namespace")),
            None => Ok(()),
        },
    }
}

/// Whether there is a file for the schemes that need one. Several schemes may share a name: then a pod asks for all of them.
pub(crate) fn check_settings(file: &File) -> Result<(), String> {
    let assigned: Vec<&Written> = file.scheme.iter().filter(|written| written.assigned).collect();
    if !assigned.is_empty() && file.assignments.is_none() {
        return Err(
            "assigned = true takes the path of a file: assignments = \"/run/isotherm-kube/assignments\"".to_owned()
        );
    }
    let differs = |a: &&Written| assigned.iter().any(|b| a.name == b.name && a.namespaces != b.namespaces);
    match assigned.iter().find(|a| differs(a)) {
        Some(one) => {
            Err(format!("two schemes of the name {:?} have other namespaces", one.name.as_deref().unwrap_or("")))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheme::{ActionName, Scheme};
    use proptest::prelude::*;

    const UID: &str = "8d5b1f4e-0a7c-4b52-9d2e-6f2f0d3c1a77";

    fn slice(above: &str) -> String {
        format!("{above}-pod{}.slice", UID.replace('-', "_"))
    }

    #[test]
    fn cgroups_of_pods_are_read_and_those_of_anything_else_are_not() {
        let mut some = Assignments::default();
        let pod = format!("pod{UID}");
        for cgroup in [&pod, &slice("kubepods"), &slice("kubepods-burstable"), &slice("kubelet-kubepods-besteffort")] {
            assert!(some.add("cold", cgroup), "{cgroup}");
        }
        assert_eq!((some.len(), some.of("cold").count(), some.of("col").count()), (4, 4, 0));
        assert_eq!(Assignments::parse(&some.text()), Ok(some));
        for bad in [
            "",
            "/",
            ".",
            "..",
            "pod",
            "system.slice",
            "kubepods.slice",
            "kubepods-burstable.slice",
            &format!("/pod{UID}"),
            &format!("../pod{UID}"),
            &format!("pod{UID}/"),
            &format!("pod{UID}/x"),
            &format!("pod{}", UID.to_uppercase()),
            &format!("pod{}", UID.replace('-', "_")),
            &format!("kubepods-pod{UID}.slice"),
            &slice("user"),
            &slice("kubepods-burstable-kubepods"),
            &slice("a/kubepods"),
            &format!("{}\n", slice("kubepods")),
        ] {
            assert!(!Assignments::default().add("cold", bad), "{bad:?}");
        }
        for bad in ["", "-a", "a-", "A", "a b", "a/b", "..", &"a".repeat(64)] {
            assert!(!Assignments::default().add(bad, &pod), "{bad:?}");
        }
    }

    #[test]
    fn a_file_with_one_wrong_line_is_refused_and_not_quoted() {
        for text in ["", "root:x:0:0", "isotherm-assignments 2\n", &format!("{HEAD}\nroot:x:0:0:secret\n")] {
            let error = Assignments::parse(text).unwrap_err();
            assert!(error.starts_with("line ") && !error.contains("root"), "{text:?}: {error}");
        }
        let error = Assignments::parse(&format!("{HEAD}\ncold pod{UID}\ncold system.slice\n")).unwrap_err();
        assert!(error.contains("line 3"), "{error}");
    }

    #[test]
    fn a_scheme_that_is_assigned_is_for_nothing_until_cgroups_are_and_then_for_those() {
        let text = "assignments = \"/a\"\n[[scheme]]\naction = \"page-out\"\nname = \"cold\"\nassigned = true\n";
        let scheme = File::parse(text).unwrap().schemes().unwrap().remove(0);
        let below = |above: &str| format!("{above}{}/cri-containerd-0.scope", slice("kubepods-burstable"));
        let whole = below("/kubepods.slice/kubepods-burstable.slice/");
        assert!(!scheme.is_for("db", &whole) && !scheme.is_for("db", "/") && !scheme.is_for_all());
        let mut some = Assignments::default();
        assert!(!scheme.assigned(&some).is_for("db", &whole), "none assigned is not all");
        some.add("cold", &slice("kubepods-burstable"));
        some.add("other", &slice("kubepods"));
        let scheme = scheme.assigned(&some);
        assert!(scheme.is_for("db", &whole) && scheme.is_for("db", &below("/../../")));
        assert!(!scheme.is_for("db", &format!("/kubepods.slice/{}/x", slice("kubepods"))), "of another scheme");
        assert!(!scheme.is_for("db", "/system.slice/ssh.service"));
        assert!(!scheme.assigned(&Assignments::default()).is_for("db", &whole), "no longer assigned");
        let all = Scheme::collapse_all();
        assert_eq!(all.assigned(&some), all, "others stay as they are");
    }

    #[test]
    fn keys_that_do_not_go_together_are_refused() {
        let base = "assignments = \"/a\"\n[[scheme]]\naction = \"collapse\"\n";
        for (text, why) in [
            ("assigned = true", "takes a name"),
            ("assigned = true\nname = \"A\"", "lower-case"),
            ("assigned = true\nname = \"a\"\ncgroups = [\"/x\"]", "one of them"),
            ("name = \"a\"\nnamespaces = [\"db\"]", "assigned = true"),
            ("assigned = true\nname = \"a\"\nnamespaces = [\"d/b\"]", "namespace"),
            (
                "assigned = true\nname = \"a\"\n[[scheme]]\naction = \"page-out\"\nassigned = true\nname = \"a\"\nnamespaces = [\"x\"]",
                "two schemes",
            ),
        ] {
            let error = File::parse(&format!("{base}{text}\n")).unwrap_err().to_string();
            assert!(error.contains(why), "{text:?}: {error}");
        }
        let unnamed = Written { name: Some("a".into()), assigned: true, ..Written::of(ActionName::Collapse) };
        let text = crate::settings::text_of(&[unnamed]).unwrap();
        let error = File::parse(&text).unwrap_err().to_string();
        assert!(error.contains("assignments ="), "{error}");
    }

    proptest! {
        #[test]
        fn no_text_makes_it_fail_or_reach_beyond_pods(text in "(isotherm-assignments 1\n)?([a-z]{0,3} ?(pod)?[-_/.a-f0-9]{0,40}(\\.slice)?\n){0,4}") {
            if let Ok(read) = Assignments::parse(&text) {
                for (_, cgroup) in &read.0 {
                    prop_assert!(cgroup.contains("pod") && !cgroup.contains('/') && !cgroup.contains(".."));
                }
                prop_assert_eq!(Assignments::parse(&read.text()), Ok(read));
            }
        }
    }
}
