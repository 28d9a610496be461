//! What a workload reports while it runs: a line that the child writes and its parent reads.

use isotherm_heat::Ns;
use std::io::{self, Write};

/// What the workload has done up to some moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Accesses so far.
    pub accesses: u64,
    /// CPU time they took.
    pub cpu_ns: Ns,
    /// The time of the report, monotonic.
    pub at: Ns,
    /// The longest time that 1,024 accesses took since the previous report.
    pub slowest_ns: Ns,
    /// The longest page fault since the previous report; 0 unless the pattern has faults.
    pub slowest_fault_ns: Ns,
}

impl Progress {
    /// Writes it as a line.
    pub(crate) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let Progress { accesses, cpu_ns, at, slowest_ns, slowest_fault_ns } = self;
        writeln!(out, "did {accesses} {cpu_ns} {at} {slowest_ns} {slowest_fault_ns}")?;
        out.flush()
    }

    /// Reads such a line; `None` for any other.
    pub(crate) fn parse(line: &str) -> Option<Progress> {
        let mut words = line.strip_prefix("did ")?.split(' ').map(str::parse);
        let mut next = || words.next()?.ok();
        Some(Progress {
            accesses: next()?,
            cpu_ns: next()?,
            at: next()?,
            slowest_ns: next()?,
            slowest_fault_ns: next()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        let progress = Progress { accesses: 1, cpu_ns: 2, at: 3, slowest_ns: 4, slowest_fault_ns: 5 };
        let mut line = Vec::new();
        progress.write(&mut line).unwrap();
        let line = String::from_utf8(line).unwrap();
        assert_eq!(Progress::parse(line.trim_end()), Some(progress));
        assert_eq!((Progress::parse("did 1 2 3 4"), Progress::parse("memory 1 2")), (None, None));
    }
}
