//! JSON of the API server: a page of a list, and an event of a watch. Only metadata is asked for, and of it only what is used is kept.

use crate::ANNOTATION;
use serde::Deserialize;
use serde::de::{self, Deserializer, IgnoredAny, MapAccess, Visitor};
use std::fmt;

/// The annotation of a mirror pod, by which the API server shows a static pod. The cgroup of such a pod has another uid.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// The longest value of an annotation that is kept. One byte more than a name may have: what is longer stays too long.
const MAX_VALUE: usize = isotherm_schemes::assigned::MAX_NAME + 1;
/// The longest name of a pod or a node.
const MAX_SUBDOMAIN: usize = 253;
/// Of a message of the API server, this is kept.
const MAX_MESSAGE: usize = 200;

/// A pod, as far as it matters. Who creates pods chooses all of it but the uid.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pod {
    /// Made by the API server; unique for all time.
    pub uid: String,
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// The value of the annotation.
    pub scheme: Option<String>,
    /// It mirrors a static pod.
    pub is_mirror: bool,
}

/// A page of a list.
#[derive(Debug, PartialEq, Eq)]
pub struct Page {
    /// The pods of it.
    pub pods: Vec<Pod>,
    /// Where a watch goes on.
    pub version: String,
    /// What the next page is asked for by, if there is one.
    pub next: Option<String>,
}

/// An event of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The pod is there, or has changed.
    Put(Pod, String),
    /// The pod is gone.
    Gone(Pod, String),
    /// Nothing has changed up to here.
    Bookmark(String),
    /// What follows is not known any more (410), so that a new list is needed.
    Expired,
    /// The API server has failed.
    Failed(String),
}

/// Reads a page.
pub fn page(body: &[u8]) -> serde_json::Result<Page> {
    let list: List = serde_json::from_slice(body)?;
    let ListMeta { resource_version, next } = list.metadata;
    let pods = list.items.unwrap_or_default().into_iter().map(|item| pod_of(item.metadata).0).collect();
    Ok(Page { pods, version: resource_version, next: next.filter(|next| !next.is_empty()) })
}

/// Reads a line of a watch.
pub fn event(line: &[u8]) -> serde_json::Result<Event> {
    // An error is a `Status`, which may have the metadata of a list.
    let found: Typed = serde_json::from_slice(line)?;
    if found.kind == "ERROR" {
        let status: WithStatus = serde_json::from_slice(line)?;
        return Ok(match status.object.code {
            Some(410) => Event::Expired,
            code => Event::Failed(format!("{} ({})", cut(&status.object.message), code.unwrap_or_default())),
        });
    }
    let Changed { object } = serde_json::from_slice(line)?;
    let (pod, version) = pod_of(object.metadata);
    match found.kind.as_str() {
        "ADDED" | "MODIFIED" => Ok(Event::Put(pod, version)),
        "DELETED" => Ok(Event::Gone(pod, version)),
        "BOOKMARK" => Ok(Event::Bookmark(version)),
        _ => Err(de::Error::custom("an event of an unknown type")),
    }
}

/// The message of a `Status`, printable and short.
pub fn message(body: &[u8]) -> String {
    serde_json::from_slice::<Status>(body).map(|status| cut(&status.message)).unwrap_or_default()
}

/// A text of others, printable and short.
pub fn cut(text: &str) -> String {
    text.chars().take(MAX_MESSAGE).flat_map(char::escape_default).collect()
}

/// Whether it is a subdomain of DNS, as names of pods and nodes are.
pub fn is_subdomain(text: &str) -> bool {
    let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    text.len() <= MAX_SUBDOMAIN && text.split('.').all(|label| !label.is_empty() && label.bytes().all(fits))
}

fn pod_of(meta: Meta) -> (Pod, String) {
    let Meta { uid, name, namespace, resource_version, annotations } = meta;
    let Annotations { scheme, is_mirror } = annotations.unwrap_or_default();
    (Pod { uid, name, namespace, scheme, is_mirror }, resource_version)
}

#[derive(Deserialize)]
struct List {
    metadata: ListMeta,
    items: Option<Vec<Item>>,
}

#[derive(Deserialize)]
struct ListMeta {
    #[serde(rename = "resourceVersion")]
    resource_version: String,
    #[serde(rename = "continue")]
    next: Option<String>,
}

#[derive(Deserialize)]
struct Typed {
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Deserialize)]
struct Changed {
    object: Item,
}

#[derive(Deserialize)]
struct WithStatus {
    object: Status,
}

#[derive(Deserialize)]
struct Status {
    #[serde(default)]
    message: String,
    code: Option<u16>,
}

#[derive(Deserialize)]
struct Item {
    metadata: Meta,
}

#[derive(Deserialize)]
struct Meta {
    // A bookmark has a version only.
    #[serde(default)]
    uid: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    namespace: String,
    #[serde(rename = "resourceVersion", default)]
    resource_version: String,
    annotations: Option<Annotations>,
}

#[derive(Default)]
struct Annotations {
    scheme: Option<String>,
    is_mirror: bool,
}

/// Annotations of a pod may have 256 KiB together. Those of others are skipped.
impl<'de> Deserialize<'de> for Annotations {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Annotations, D::Error> {
        struct Ours;
        impl<'de> Visitor<'de> for Ours {
            type Value = Annotations;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("annotations")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Annotations, A::Error> {
                let mut found = Annotations::default();
                while let Some(key) = map.next_key::<String>()? {
                    if key == ANNOTATION {
                        let value: String = map.next_value()?;
                        found.scheme = Some(value.chars().take(MAX_VALUE).collect());
                    } else {
                        map.next_value::<IgnoredAny>()?;
                        found.is_mirror |= key == MIRROR;
                    }
                }
                Ok(found)
            }
        }
        deserializer.deserialize_map(Ours)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_page_has_pods_a_version_and_perhaps_a_next() {
        let text = r#"{"kind":"PartialObjectMetadataList","metadata":{"resourceVersion":"7","continue":"abc"},"items":[
            {"metadata":{"uid":"u","name":"db-0","namespace":"db","annotations":{"a":"b","isotherm.dev/scheme":"cold"},"labels":{"x":"y"}}},
            {"metadata":{"uid":"v","name":"api","namespace":"kube-system","annotations":{"kubernetes.io/config.mirror":"h"}}}]}"#;
        let read = page(text.as_bytes()).unwrap();
        assert_eq!((read.version.as_str(), read.next.as_deref(), read.pods.len()), ("7", Some("abc"), 2));
        assert_eq!((read.pods[0].scheme.as_deref(), read.pods[0].is_mirror), (Some("cold"), false));
        assert_eq!((read.pods[1].scheme.as_deref(), read.pods[1].is_mirror), (None, true));
        let none = page(br#"{"metadata":{"resourceVersion":"7","continue":""},"items":null}"#).unwrap();
        assert_eq!((none.pods.len(), none.next), (0, None));
        assert!(page(br#"{"items":[]}"#).is_err(), "without a version a watch would begin anywhere");
    }

    #[test]
    fn events_are_distinguished() {
        let of = |text: &str| event(text.as_bytes());
        let object = r#""object":{"metadata":{"uid":"u","resourceVersion":"9","annotations":null}}"#;
        let pod = || Pod { uid: "u".into(), ..Pod::default() };
        assert_eq!(of(&format!(r#"{{"type":"ADDED",{object}}}"#)).unwrap(), Event::Put(pod(), "9".into()));
        assert_eq!(of(&format!(r#"{{"type":"MODIFIED",{object}}}"#)).unwrap(), Event::Put(pod(), "9".into()));
        assert_eq!(of(&format!(r#"{{"type":"DELETED",{object}}}"#)).unwrap(), Event::Gone(pod(), "9".into()));
        assert_eq!(of(&format!(r#"{{"type":"BOOKMARK",{object}}}"#)).unwrap(), Event::Bookmark("9".into()));
        let expired = r#"{"type":"ERROR","object":{"kind":"Status","metadata":{},"message":"too old","code":410}}"#;
        assert_eq!(of(expired).unwrap(), Event::Expired);
        let failed = r#"{"type":"ERROR","object":{"kind":"Status","message":"a\u001b[31m","code":500}}"#;
        let Event::Failed(why) = of(failed).unwrap() else { panic!() };
        assert!(why.contains("500") && !why.contains('\u{1b}'), "{why}");
        for bad in ["", "{", "{}", r#"{"type":"MOVED","object":{"metadata":{}}}"#, r#"{"type":"ADDED"}"#, "[1]"] {
            assert!(of(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_kept_of_a_value_is_short_and_still_too_long_to_be_a_name() {
        let value = "a".repeat(200_000);
        let text = format!(
            r#"{{"metadata":{{"resourceVersion":"1"}},"items":[{{"metadata":{{"annotations":{{"{ANNOTATION}":"{value}"}}}}}}]}}"#
        );
        let kept = page(text.as_bytes()).unwrap().pods.remove(0).scheme.unwrap();
        assert!(kept.len() == MAX_VALUE && !isotherm_schemes::assigned::is_name(&kept));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_fail(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = (page(&bytes), event(&bytes), message(&bytes));
        }
    }
}
