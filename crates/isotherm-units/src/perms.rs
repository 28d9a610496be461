//! Permissions of a mapping.

use alloc::string::ToString;
use core::fmt;
use core::str::FromStr;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Permissions of a mapping, written as the kernel does: `rw-p`. For memory that is no mapping, such as physical
/// memory, they are unknown and written as an empty text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Perms(u8);

/// Letters for a set and for a clear flag, in the kernel's order.
const FLAGS: [(u8, u8, Perms); 4] =
    [(b'r', b'-', Perms::READ), (b'w', b'-', Perms::WRITE), (b'x', b'-', Perms::EXEC), (b's', b'p', Perms::SHARED)];

impl Perms {
    /// Memory that is no mapping.
    pub const UNKNOWN: Perms = Perms(0);
    /// No permission, private mapping.
    pub const NONE: Perms = Perms(16);
    /// Readable.
    pub const READ: Perms = Perms(16 | 1);
    /// Writable.
    pub const WRITE: Perms = Perms(16 | 2);
    /// Executable.
    pub const EXEC: Perms = Perms(16 | 4);
    /// Shared: writes reach the file or the other processes.
    pub const SHARED: Perms = Perms(16 | 8);

    /// Whether all of `other` are set.
    pub const fn contains(self, other: Perms) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both together.
    #[must_use]
    pub const fn union(self, other: Perms) -> Perms {
        Perms(self.0 | other.0)
    }

    /// Whether it is known to be private: writes stay within the process.
    pub const fn is_private(self) -> bool {
        self.contains(Perms::NONE) && !self.contains(Perms::SHARED)
    }

    /// Parses what the kernel prints: four letters.
    pub fn parse(text: &[u8]) -> Option<Perms> {
        if text.len() != FLAGS.len() {
            return None;
        }
        text.iter().zip(FLAGS).try_fold(Perms::NONE, |perms, (&byte, (set, clear, flag))| match byte {
            b if b == set => Some(perms.union(flag)),
            b if b == clear => Some(perms),
            _ => None,
        })
    }
}

impl fmt::Display for Perms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Perms::UNKNOWN {
            return Ok(());
        }
        FLAGS.iter().try_for_each(|(set, clear, flag)| {
            fmt::Write::write_char(f, char::from(if self.contains(*flag) { *set } else { *clear }))
        })
    }
}

impl fmt::Debug for Perms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Perms::UNKNOWN { f.write_str("unknown") } else { fmt::Display::fmt(self, f) }
    }
}

/// The error for a text that is no permissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotPerms;

impl fmt::Display for NotPerms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("permissions of a mapping are four letters like rw-p, or nothing where they are not known")
    }
}

impl core::error::Error for NotPerms {}

impl FromStr for Perms {
    type Err = NotPerms;

    fn from_str(text: &str) -> Result<Perms, NotPerms> {
        if text.is_empty() { Ok(Perms::UNKNOWN) } else { Perms::parse(text.as_bytes()).ok_or(NotPerms) }
    }
}

impl Serialize for Perms {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.to_string())
    }
}

impl<'de> Deserialize<'de> for Perms {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Perms, D::Error> {
        let text = alloc::string::String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_prints_is_read_and_written() {
        for text in ["rw-p", "r-xp", "rwxs", "---p", "---s", ""] {
            assert_eq!(text.parse::<Perms>().unwrap().to_string(), text);
        }
        for wrong in ["rw-", "rw-x", "wr-p", "rw-pp", "    "] {
            assert_eq!(wrong.parse::<Perms>(), Err(NotPerms), "{wrong:?}");
        }
    }

    #[test]
    fn nothing_follows_from_what_is_not_known() {
        let (private, shared) = ("rw-p".parse::<Perms>().unwrap(), "r--s".parse::<Perms>().unwrap());
        assert!(private.is_private() && !shared.is_private() && !Perms::UNKNOWN.is_private());
        assert!(private.contains(Perms::READ) && !private.contains(Perms::EXEC));
        assert!(shared.contains(Perms::SHARED) && !Perms::UNKNOWN.contains(Perms::SHARED));
        assert_eq!(Perms::READ.union(Perms::WRITE), private);
    }
}
