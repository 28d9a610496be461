//! Which pods may have what they ask for. Pure: the settings and the pods decide.

use crate::wire::{Pod, cut, is_subdomain};
use isotherm_schemes::assigned::{is_name, is_uid};
use isotherm_schemes::settings::File;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// What pods may ask for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Permitted(BTreeMap<String, BTreeSet<String>>);

impl Permitted {
    /// The schemes of the settings that are assigned.
    pub fn of(settings: &File) -> Permitted {
        let assigned = settings.scheme.iter().filter(|scheme| scheme.assigned);
        let named =
            assigned.filter_map(|scheme| Some((scheme.name.clone()?, scheme.namespaces.iter().cloned().collect())));
        Permitted(named.collect())
    }

    /// The names of the schemes.
    pub fn names(&self) -> Vec<&str> {
        self.0.keys().map(String::as_str).collect()
    }

    fn check(&self, scheme: &str, namespace: &str) -> Result<(), Reason> {
        let namespaces = self.0.get(scheme).ok_or(Reason::NotPermitted)?;
        let may = namespaces.is_empty() || namespaces.contains(namespace);
        if may { Ok(()) } else { Err(Reason::NotInNamespace) }
    }
}

/// Why a pod does not get what it asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// The value of the annotation is no name.
    NoName,
    /// Root's settings have no such scheme, or none that is assigned.
    NotPermitted,
    /// They have it for other namespaces.
    NotInNamespace,
    /// The cgroup of a static pod has another uid.
    Static,
    /// The API server has sent something else than a pod.
    NoPod,
    /// There is no folder for it: the pod has not started yet, or has ended, or is of a hierarchy that is not known.
    NoCgroup,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::NoName => "this is no name of a scheme",
            Reason::NotPermitted => "the settings have no assigned scheme of this name",
            Reason::NotInNamespace => "the settings have this scheme for other namespaces",
            Reason::Static => "static pods are not supported",
            Reason::NoPod => "its uid, name or namespace has a form that the API server does not give",
            Reason::NoCgroup => "its cgroup is not there",
        })
    }
}

/// A pod that may have a scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// The name of the scheme, one of the settings'.
    pub scheme: &'a str,
}

/// Sorts pods into those that may have what they ask for, and others with the reason. Pods that ask for nothing are in neither.
pub fn sort<'a>(
    pods: impl Iterator<Item = &'a Pod>,
    permitted: &'a Permitted,
) -> (Vec<Granted<'a>>, Vec<(&'a Pod, Reason)>) {
    let (mut granted, mut refused) = (Vec::new(), Vec::new());
    for pod in pods {
        let Some(asked) = &pod.scheme else { continue };
        match check(pod, asked, permitted) {
            Ok(()) => granted.push(Granted { pod, scheme: asked }),
            Err(reason) => refused.push((pod, reason)),
        }
    }
    (granted, refused)
}

fn check(pod: &Pod, asked: &str, permitted: &Permitted) -> Result<(), Reason> {
    if !is_uid(&pod.uid) || !is_name(&pod.namespace) || !is_subdomain(&pod.name) {
        return Err(Reason::NoPod);
    }
    if !is_name(asked) {
        return Err(Reason::NoName);
    }
    permitted.check(asked, &pod.namespace)?;
    if pod.is_mirror { Err(Reason::Static) } else { Ok(()) }
}

/// A line for a log: which pod, what it asks for, and why it does not get it. Nothing in it is as long, or as wild, as its author likes.
pub fn refusal(pod: &Pod, reason: Reason) -> String {
    let asked = pod.scheme.as_deref().unwrap_or_default();
    format!("pod {}/{} ({}): {:?} refused: {reason}", cut(&pod.namespace), cut(&pod.name), cut(&pod.uid), cut(asked))
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_schemes::assigned::Assignments;
    use proptest::prelude::*;

    const UID: &str = "8d5b1f4e-0a7c-4b52-9d2e-6f2f0d3c1a77";
    const SETTINGS: &str = "assignments = \"/run/a\"\n\
        [[scheme]]\naction = \"page-out\"\nname = \"cold\"\nassigned = true\nnamespaces = [\"db\", \"web\"]\n\
        [[scheme]]\naction = \"collapse\"\nname = \"huge\"\nassigned = true\n\
        [[scheme]]\naction = \"page-out\"\nname = \"own\"\ncgroups = [\"system.slice\"]\n";

    fn permitted() -> Permitted {
        Permitted::of(&File::parse(SETTINGS).unwrap())
    }

    fn pod(namespace: &str, scheme: &str) -> Pod {
        Pod {
            uid: UID.into(),
            name: "db-0".into(),
            namespace: namespace.into(),
            scheme: Some(scheme.into()),
            is_mirror: false,
        }
    }

    fn reason(pod: &Pod) -> Option<Reason> {
        sort([pod].into_iter(), &permitted()).1.first().map(|refused| refused.1)
    }

    #[test]
    fn only_what_the_settings_permit_is_granted() {
        assert_eq!(permitted().names(), ["cold", "huge"]);
        assert_eq!(reason(&pod("db", "cold")), None);
        assert_eq!(reason(&pod("kube-system", "huge")), None);
        assert_eq!(reason(&pod("kube-system", "cold")), Some(Reason::NotInNamespace));
        assert_eq!(reason(&pod("db", "own")), Some(Reason::NotPermitted), "named, and not assigned");
        assert_eq!(reason(&pod("db", "other")), Some(Reason::NotPermitted));
        for bad in ["", "cold ", "Cold", "cold,huge", "../cold", "cold\nhuge x", "cold/", &"c".repeat(64)] {
            assert_eq!(reason(&pod("db", bad)), Some(Reason::NoName), "{bad:?}");
        }
        assert_eq!(reason(&Pod { is_mirror: true, ..pod("db", "cold") }), Some(Reason::Static));
        for bad in [
            Pod { uid: "../../system.slice".into(), ..pod("db", "cold") },
            Pod { uid: String::new(), ..pod("db", "cold") },
            Pod { name: "a/b".into(), ..pod("db", "cold") },
            Pod { namespace: "d b".into(), ..pod("db", "cold") },
        ] {
            assert_eq!(reason(&bad), Some(Reason::NoPod), "{bad:?}");
        }
        assert_eq!(sort([&Pod { scheme: None, ..pod("db", "") }].into_iter(), &permitted()), (vec![], vec![]));
    }

    #[test]
    fn a_log_line_is_one_line_and_short() {
        let wild = Pod { name: "\u{1b}[2J\n".repeat(99), ..pod("db", "a\nb\u{202e}") };
        let line = refusal(&wild, Reason::NoPod);
        assert!(line.is_ascii() && !line.contains(|c: char| c.is_control()) && line.len() < 4000, "{line}");
    }

    fn any_pod() -> impl Strategy<Value = Pod> {
        let text = || prop_oneof!["[a-f0-9./_-]{0,40}", "\\PC{0,8}", Just("cold".to_owned()), Just("db".to_owned())];
        let uid =
            prop_oneof![text(), Just(UID.to_owned()), "[a-f0-9]{8}-[a-f0-9]{4}-[a-f0-9]{4}-[a-f0-9]{4}-[a-f0-9]{12}"];
        let scheme = prop::option::of(prop_oneof![text(), Just("huge".to_owned()), Just("own".to_owned())]);
        (uid, text(), text(), scheme, any::<bool>()).prop_map(|(uid, name, namespace, scheme, is_mirror)| Pod {
            uid,
            name,
            namespace,
            scheme,
            is_mirror,
        })
    }

    proptest! {
        #[test]
        fn whatever_pods_say_they_get_a_permitted_scheme_of_their_namespace_or_a_reason(
            pods in prop::collection::vec(any_pod(), 0..20)
        ) {
            let permitted = permitted();
            let (granted, refused) = sort(pods.iter(), &permitted);
            prop_assert_eq!(granted.len() + refused.len(), pods.iter().filter(|pod| pod.scheme.is_some()).count());
            let mut assignments = Assignments::default();
            for one in granted {
                prop_assert!(one.scheme == "huge" || (one.scheme == "cold" && ["db", "web"].contains(&one.pod.namespace.as_str())));
                prop_assert!(is_uid(&one.pod.uid) && !one.pod.is_mirror);
                // What is granted can be written, and is read back.
                let part = format!("pod{}", one.pod.uid);
                prop_assert!(assignments.add(one.scheme, &part));
            }
            prop_assert_eq!(Assignments::parse(&assignments.text()), Ok(assignments));
        }
    }
}
