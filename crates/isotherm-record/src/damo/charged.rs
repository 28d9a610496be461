//! Charges for parsed values during parsing: 58 KB of zlib can stand for 58 MB of JSON, and that for a GB of records.
//!
//! Used by `model`, whose lists and free values are parsed here. `read` sets the available memory. The rest of a record
//! has a fixed size. serde cannot pass a value down to the fields of a struct, so the remaining memory is a
//! thread-local.

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;

thread_local! {
    static LEFT: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Runs `parse`, which may take `bytes` of memory for what it builds. `None` if that was not enough.
pub fn within<T>(bytes: u64, parse: impl FnOnce() -> T) -> Option<T> {
    LEFT.set(Some(bytes));
    let parsed = parse();
    LEFT.get().map(|_| parsed)
}

fn charge<E: Error>(bytes: u64) -> Result<(), E> {
    let left = LEFT.get().and_then(|left| left.checked_sub(bytes));
    LEFT.set(left);
    left.map(|_| ()).ok_or_else(|| E::custom("it takes too much memory"))
}

/// The memory that a value takes in the end, including what is made of it.
pub trait Charged {
    /// In bytes.
    const BYTES: u64;
}

/// A list whose items are charged one by one.
pub fn list<'de, D: Deserializer<'de>, T: Deserialize<'de> + Charged>(from: D) -> Result<Vec<T>, D::Error> {
    struct List<T>(PhantomData<T>);
    impl<'de, T: Deserialize<'de> + Charged> Visitor<'de> for List<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a sequence")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Vec<T>, A::Error> {
            let mut all = Vec::new();
            while let Some(one) = from.next_element()? {
                charge(T::BYTES)?;
                all.push(one);
            }
            Ok(all)
        }
    }
    from.deserialize_seq(List(PhantomData))
}

/// Any JSON value.
#[derive(Clone, Debug, PartialEq)]
pub struct Free(pub Value);

/// A value in a list that may have allocated twice the space.
const VALUE: u64 = 2 * size_of::<Value>() as u64;
/// The smallest node of a map has space for eleven entries.
const NODE: u64 = 11 * (size_of::<Value>() + size_of::<String>()) as u64 + 64;

impl<'de> Deserialize<'de> for Free {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Free, D::Error> {
        charge(VALUE)?;
        from.deserialize_any(Any).map(Free)
    }
}

struct Any;

impl<'de> Visitor<'de> for Any {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, b: bool) -> Result<Value, E> {
        Ok(b.into())
    }

    fn visit_u64<E: Error>(self, n: u64) -> Result<Value, E> {
        Ok(n.into())
    }

    fn visit_i64<E: Error>(self, n: i64) -> Result<Value, E> {
        Ok(n.into())
    }

    fn visit_f64<E: Error>(self, x: f64) -> Result<Value, E> {
        Ok(Number::from_f64(x).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        charge(text.len() as u64)?;
        Ok(text.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut all = Vec::new();
        while let Some(Free(one)) = from.next_element()? {
            all.push(one);
        }
        Ok(Value::Array(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut all = Map::new();
        while let Some(key) = from.next_key::<String>()? {
            // Nodes of a larger map are at least half full, with about six entries: each entry is charged a third of a
            // node.
            charge(if all.is_empty() { NODE } else { NODE / 3 } + key.len() as u64)?;
            let Free(value) = from.next_value()?;
            all.insert(key, value);
        }
        Ok(Value::Object(all))
    }
}
