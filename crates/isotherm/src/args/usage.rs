//! The error of arguments that contradict each other. The exit code is 2, as for errors that clap finds.

/// A wrong combination of arguments that clap cannot see: exit code 2.
#[derive(Debug)]
pub struct Usage(pub String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}
