//! Reads the status of a daemon of another version: names and settings that are unknown here must not prevent reading
//! the rest.

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// A name in a status: a known one, or an unknown one from another version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Named<T> {
    /// A name that this version knows.
    Known(T),
    /// A name that it does not know, most likely of a later version.
    Other(String),
}

/// Counters by name, without unknown names.
pub(crate) fn known_counts<'de, D, K>(from: D) -> Result<BTreeMap<K, u64>, D::Error>
where
    D: Deserializer<'de>,
    K: Deserialize<'de> + Ord,
{
    BTreeMap::<Named<K>, u64>::deserialize(from).map(only_known)
}

/// Something that another version may define differently.
#[derive(Deserialize)]
#[serde(untagged)]
enum Read<T> {
    Known(T),
    Other(IgnoredAny),
}

/// A list, without entries of another form.
pub(crate) fn known_entries<'de, D, T>(from: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let known = |entry| match entry {
        Read::Known(entry) => Some(entry),
        Read::Other(_) => None,
    };
    Ok(Vec::<Read<T>>::deserialize(from)?.into_iter().filter_map(known).collect())
}

/// Counters by action and by name.
type ByAction<K> = BTreeMap<Cow<'static, str>, BTreeMap<K, u64>>;

/// The counters, without unknown names and without entries that are not counters.
pub(crate) fn known_actions<'de, D, K>(from: D) -> Result<ByAction<K>, D::Error>
where
    D: Deserializer<'de>,
    K: Deserialize<'de> + Ord,
{
    let actions = BTreeMap::<String, Read<BTreeMap<Named<K>, u64>>>::deserialize(from)?;
    let known = |(action, counts)| match counts {
        Read::Known(counts) => Some((Cow::Owned(action), only_known(counts))),
        Read::Other(_) => None,
    };
    Ok(actions.into_iter().filter_map(known).collect())
}

fn only_known<K: Ord>(counts: BTreeMap<Named<K>, u64>) -> BTreeMap<K, u64> {
    let known = |(name, count)| match name {
        Named::Known(name) => Some((name, count)),
        Named::Other(_) => None,
    };
    counts.into_iter().filter_map(known).collect()
}

/// A value, or `None` if it is not in the form that this version knows.
pub(crate) fn if_known<'de, D, T>(from: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Ok(match Read::deserialize(from)? {
        Read::Known(value) => Some(value),
        Read::Other(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Counters, Origin, Refusal, Wait};

    #[test]
    fn a_name_of_another_version_is_kept_as_it_came() {
        let read = |text| serde_json::from_str::<Named<Wait>>(text).unwrap();
        assert_eq!(read("\"free-blocks\""), Named::Known(Wait::FreeBlocks));
        assert_eq!(read("\"full-moon\""), Named::Other("full-moon".into()));
        for text in ["\"free-blocks\"", "\"full-moon\""] {
            assert_eq!(serde_json::to_string(&read(text)).unwrap(), text);
        }
    }

    #[test]
    fn counts_of_another_version_are_read_as_far_as_they_are_known() {
        let text = r#"{"collapsed": {"heat": 3, "oracle": 9}, "refused": {"cold": 1, "cursed": 2},
            "faded": {"heat": 5}, "prayers": 4, "put_off": 6}"#;
        let counters: Counters = serde_json::from_str(text).unwrap();
        let done = [("collapsed".into(), [(Origin::Heat, 3)].into()), ("faded".into(), [(Origin::Heat, 5)].into())];
        assert_eq!((counters.done, counters.refused), (done.into(), [(Refusal::Cold, 1)].into()));
        assert_eq!(counters.put_off, 6);
    }
}
