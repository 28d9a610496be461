//! The pods that carry the annotation, kept up to date by lists and events. Pure.
//!
//! Pods without it are not kept, so what is kept is bounded by what users ask for, and by [`MAX_PODS`].

use crate::wire::{Event, Pod};
use std::collections::BTreeMap;

/// More pods than any node runs (kubelet's default is 110).
pub const MAX_PODS: usize = 4096;

/// Pods by uid.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pods {
    pods: BTreeMap<String, Pod>,
    /// Some did not fit in.
    is_full: bool,
}

impl Pods {
    /// What a list has, and nothing else.
    pub fn replace(&mut self, list: Vec<Pod>) {
        *self = Pods::default();
        list.into_iter().for_each(|pod| self.put(pod));
    }

    /// Takes an event in.
    pub fn apply(&mut self, event: Event) {
        match event {
            Event::Put(pod, _) => self.put(pod),
            Event::Gone(pod, _) => {
                self.pods.remove(&pod.uid);
            }
            Event::Bookmark(_) | Event::Expired | Event::Failed(_) => {}
        }
    }

    /// The pods, in the order of their uids.
    pub fn iter(&self) -> impl Iterator<Item = &Pod> {
        self.pods.values()
    }

    /// Whether pods were omitted since the last list.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    fn put(&mut self, pod: Pod) {
        if pod.scheme.is_none() {
            // It may have had the annotation before.
            self.pods.remove(&pod.uid);
        } else if self.pods.len() < MAX_PODS || self.pods.contains_key(&pod.uid) {
            self.pods.insert(pod.uid.clone(), pod);
        } else {
            self.is_full = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(uid: &str, scheme: Option<&str>) -> Pod {
        Pod { uid: uid.into(), scheme: scheme.map(str::to_owned), ..Pod::default() }
    }

    fn uids(pods: &Pods) -> String {
        pods.iter().map(|pod| format!("{}={} ", pod.uid, pod.scheme.as_deref().unwrap_or(""))).collect()
    }

    #[test]
    fn pods_come_change_lose_the_annotation_and_go() {
        let mut pods = Pods::default();
        pods.replace(vec![pod("a", Some("cold")), pod("b", None)]);
        assert_eq!(uids(&pods), "a=cold ");
        let put = |pods: &mut Pods, pod| pods.apply(Event::Put(pod, "1".into()));
        put(&mut pods, pod("b", Some("hot")));
        put(&mut pods, pod("a", Some("hot")));
        assert_eq!(uids(&pods), "a=hot b=hot ");
        put(&mut pods, pod("a", None));
        pods.apply(Event::Gone(pod("b", None), "2".into()));
        pods.apply(Event::Gone(pod("never there", None), "2".into()));
        assert_eq!(uids(&pods), "");
        put(&mut pods, pod("c", Some("hot")));
        pods.replace(vec![pod("d", Some("hot"))]);
        assert_eq!(uids(&pods), "d=hot ", "what a list lacks is gone");
    }

    #[test]
    fn there_is_a_most_and_what_is_there_can_still_change() {
        let mut pods = Pods::default();
        pods.replace((0..MAX_PODS + 1).map(|n| pod(&format!("{n:05}"), Some("cold"))).collect());
        assert!(pods.is_full() && pods.iter().count() == MAX_PODS);
        pods.apply(Event::Put(pod("00000", Some("hot")), "1".into()));
        assert!(uids(&pods).starts_with("00000=hot "));
    }
}
