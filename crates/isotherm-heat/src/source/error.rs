//! Why a source could not do what was asked: opaque, but for what the engine has to decide by.

use std::error::Error as StdError;
use std::fmt;

/// An error of a source. What went wrong in detail is the source's own and is only shown; [`SourceError::kind`] is what follows.
#[derive(Debug)]
pub struct SourceError {
    kind: SourceErrorKind,
    error: Box<dyn StdError + Send + Sync>,
}

/// What follows from an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceErrorKind {
    /// The process has ended, or has no memory of its own: there is just nothing left to watch.
    Gone,
    /// The process executes another program now: all that was known is of memory that is no more.
    Replaced,
    /// Nothing could be read at this moment: the next turn asks again.
    Busy,
    /// Descriptors are short, of us or of the system: nothing is wrong with the process, and it can be asked about again later.
    Shortage,
    /// It cannot be watched in this way.
    Failed,
}

impl SourceError {
    /// An error of this kind.
    pub fn new(kind: SourceErrorKind, error: impl Into<Box<dyn StdError + Send + Sync>>) -> SourceError {
        SourceError { kind, error: error.into() }
    }

    /// What a tracker finds that asks for what the source cannot do: a fault of the program.
    pub(crate) fn cannot(what: &str) -> SourceError {
        SourceError::new(SourceErrorKind::Failed, format!("this source has no {what}"))
    }

    /// What follows from it.
    pub fn kind(&self) -> SourceErrorKind {
        self.kind
    }

    /// Whether the process (or the program in it) is no more.
    pub fn is_gone(&self) -> bool {
        self.kind == SourceErrorKind::Gone
    }

    /// Whether descriptors are short.
    pub fn is_shortage(&self) -> bool {
        self.kind == SourceErrorKind::Shortage
    }
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl StdError for SourceError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        // This one stands for the error within: the chain goes on behind it.
        self.error.source()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn an_error_reads_as_the_one_within_and_says_what_follows() {
        let error = SourceError::new(SourceErrorKind::Shortage, io::Error::other("no descriptor"));
        assert_eq!((error.to_string(), error.is_shortage(), error.is_gone()), ("no descriptor".into(), true, false));
        assert!(error.source().is_none(), "told once");
        assert_eq!(SourceError::cannot("page bits").kind(), SourceErrorKind::Failed);
    }
}
