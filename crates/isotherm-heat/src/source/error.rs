//! Why a source could not do what was asked. Opaque, except for what the engine has to decide by.

use std::error::Error as StdError;
use std::fmt;

/// An error of a source. The details belong to the source and are only shown. [`SourceError::kind`] is what to act on.
#[derive(Debug)]
pub struct SourceError {
    kind: SourceErrorKind,
    error: Box<dyn StdError + Send + Sync>,
}

/// What follows from an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceErrorKind {
    /// The process has ended, or has no memory of its own: there is nothing left to monitor.
    Gone,
    /// The process executes another program now. All that was known is of memory that no longer exists.
    Replaced,
    /// Nothing could be read at this moment. The next run asks again.
    Busy,
    /// Descriptors are short, ours or the system's. The process is fine and can be asked about again later.
    Shortage,
    /// It cannot be monitored in this way.
    Failed,
}

impl SourceError {
    /// An error of this kind.
    pub fn new(kind: SourceErrorKind, error: impl Into<Box<dyn StdError + Send + Sync>>) -> SourceError {
        SourceError { kind, error: error.into() }
    }

    /// The error for a tracker that asks for what the source cannot do: a bug in this program.
    pub(crate) fn cannot(what: &str) -> SourceError {
        SourceError::new(SourceErrorKind::Failed, format!("this source has no {what}"))
    }

    /// What follows from it.
    pub fn kind(&self) -> SourceErrorKind {
        self.kind
    }

    /// Whether its kind is [`SourceErrorKind::Gone`].
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
        // This error stands for the one within, so the chain continues behind it.
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
