//! What can fail.

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Rows could not be written as Parquet.
    #[error("write {table} rows as Parquet: {reason}")]
    Write {
        /// Name of the table.
        table: &'static str,
        /// What Parquet or Arrow reports.
        reason: String,
    },
    /// Bytes are no rows of this crate.
    #[error("read rows: {reason}; bytes that were damaged or come from a newer version cannot be used: delete them")]
    Read {
        /// What is wrong.
        reason: String,
    },
    /// Settings are no TOML, or have other keys than rules have.
    #[error("read the service rules: {reason}")]
    Settings {
        /// What is wrong, and where.
        reason: String,
    },
    /// A rule for the names of services cannot be used.
    #[error("service rule {pattern:?}: {reason}; change `match` or `name` of this rule in the settings")]
    Rule {
        /// The pattern of the rule.
        pattern: String,
        /// What is wrong.
        reason: String,
    },
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;
