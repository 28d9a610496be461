//! Why an event is not available by its name. All text, no `io::Error`: such an answer is kept among the facts about a
//! machine.

use std::path::PathBuf;

/// Why an event is not available.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NamedError {
    /// There is no such name.
    #[error(
        "find event {name:?}: no such name; there are {}, and events spelled PMU/TERM=VALUE,.../ or \
         raw:TYPE:CONFIG[:CONFIG1[:CONFIG2[:CONFIG3]]]; `isotherm doctor --events` lists which of them exist here",
        super::names::NAMES.join(", ")
    )]
    Unknown {
        /// As given.
        name: String,
    },
    /// The name, or a part of it, cannot be parsed.
    #[error("read event {name:?}: expected {expected}, got {part:?}")]
    Malformed {
        /// As given.
        name: String,
        /// The part in question.
        part: String,
        /// What was expected there.
        expected: &'static str,
    },
    /// No event source of that name.
    #[error("open {}: no such event source; there are {there}", path.display())]
    NoPmu {
        /// Where it would be.
        path: PathBuf,
        /// Those that are there.
        there: String,
    },
    /// No event source has it.
    #[error("find event {name}: {lacking}; {advice}")]
    NotHere {
        /// The event.
        name: String,
        /// What was searched for.
        lacking: String,
        /// What to do next.
        advice: &'static str,
    },
    /// Its numbers are known for the CPUs of one vendor only.
    #[error("find event {name}: its numbers are known for CPUs of {wanted} only; {} shows {found}", path.display())]
    Vendor {
        /// The event.
        name: &'static str,
        /// The vendor whose CPUs have it.
        wanted: &'static str,
        /// The vendor of this CPU, or its model.
        found: String,
        /// The file that shows it.
        path: PathBuf,
    },
    /// A file of the kernel does not hold what it should, as in virtual machines that offer half of a PMU.
    #[error("read {}: expected {expected}, {found}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What was expected there.
        expected: &'static str,
        /// What was there.
        found: Found,
    },
    /// The event source has no such term.
    #[error("read {}: no such term of this event source; it has {there}", path.display())]
    NoTerm {
        /// Where it would be.
        path: PathBuf,
        /// Terms and events that are there.
        there: String,
    },
    /// A value has more bits than there is room for.
    #[error("set {term}={value:#x}: no room, {} gives it {bits} bits", path.display())]
    TooLarge {
        /// The term.
        term: String,
        /// Its value.
        value: u64,
        /// How many bits there are.
        bits: u32,
        /// The file that shows it.
        path: PathBuf,
    },
    /// The PMU does not accept this value, although there is room for it.
    #[error("set {term}={value}: expected {expected}")]
    OutOfRange {
        /// The term.
        term: &'static str,
        /// Its value.
        value: u64,
        /// What it accepts.
        expected: &'static str,
    },
    /// A term of perf that is set elsewhere here.
    #[error("read event {name:?}: {term}= is no part of the event here; {advice}")]
    Refused {
        /// As given.
        name: String,
        /// The term.
        term: String,
        /// Where to set it.
        advice: &'static str,
    },
}

/// What was found instead of what was expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// No such file.
    Nothing,
    /// This text.
    Text(String),
    /// It could not be read, for this reason.
    Unreadable(String),
}

impl std::fmt::Display for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Found::Nothing => f.write_str("there is no such file"),
            Found::Text(text) if text.is_empty() => f.write_str("it is empty"),
            Found::Text(text) => write!(f, "found {text:?}"),
            Found::Unreadable(reason) => f.write_str(reason),
        }
    }
}
