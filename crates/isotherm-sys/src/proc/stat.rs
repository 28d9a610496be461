//! `/proc/PID/stat` and `/proc/PID/status`: identity and state of a process.
//!
//! `stat` is one line of words. The second, the command name, is set by the process itself: it may hold spaces,
//! parentheses and newlines. The kernel puts it between the first `(` and the last `)`, so the line is parsed from both
//! ends.

use super::error::Unexpected;
use super::text::{decimal, key_value, kilobytes};
use isotherm_units::Bytes;
use std::str::FromStr;

/// Set in `flags` of a kernel thread.
const PF_KTHREAD: u64 = 0x0020_0000;

/// Identifies one process for good: pids are reused, a pid with its start time is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    /// The process id.
    pub pid: u32,
    /// When it started, in clock ticks since boot.
    pub start_ticks: u64,
}

/// The fields of `/proc/PID/stat` that are used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// The process id.
    pub pid: u32,
    /// The command name, at most 15 bytes for a user process.
    pub comm: String,
    /// `R`, `S`, `D`, `Z`, ...
    pub state: char,
    /// The parent's pid; 0 if it is outside the pid namespace or there is none.
    pub ppid: u32,
    /// `PF_*` flags.
    pub flags: u64,
    /// Page faults served without I/O.
    pub minflt: u64,
    /// Page faults served with I/O.
    pub majflt: u64,
    /// Time in user mode, clock ticks.
    pub utime: u64,
    /// Time in the kernel, clock ticks.
    pub stime: u64,
    /// Number of threads.
    pub num_threads: u64,
    /// When it started, in clock ticks since boot.
    pub start_ticks: u64,
    /// Start of its program's code; 1 if that is hidden from us, 0 if it has none (yet). See [`Stat::image`].
    pub start_code: u64,
    /// Start of its main thread's stack; 0 if that is hidden from us, or if it has none (yet).
    pub start_stack: u64,
}

impl Stat {
    /// Parses the file.
    pub(super) fn parse(text: &[u8]) -> Result<Stat, Unexpected> {
        let open = text.iter().position(|&b| b == b'(');
        let close = text.iter().rposition(|&b| b == b')');
        let (Some(open), Some(close)) = (open, close) else {
            return Err(Unexpected::new("comm", "a name in parentheses", text));
        };
        if close < open {
            return Err(Unexpected::new("comm", "a name in parentheses", text));
        }
        let words = Words(text[close + 1..].trim_ascii().split(|&b| b == b' ').collect());
        Ok(Stat {
            pid: number(text[..open].trim_ascii(), "pid")?,
            comm: String::from_utf8_lossy(&text[open + 1..close]).into_owned(),
            state: words.letter(3, "state")?,
            ppid: words.number(4, "ppid")?,
            flags: words.number(9, "flags")?,
            minflt: words.number(10, "minflt")?,
            majflt: words.number(12, "majflt")?,
            utime: words.number(14, "utime")?,
            stime: words.number(15, "stime")?,
            num_threads: words.number(20, "num_threads")?,
            start_ticks: words.number(22, "starttime")?,
            start_code: words.number(26, "startcode")?,
            start_stack: words.number(28, "startstack")?,
        })
    }

    /// Start of code and start of stack. They distinguish a program from the next one after an exec, which keeps pid
    /// and start time.
    ///
    /// Both are randomized at each exec, so they agree by accident once in millions of times. They always agree if the
    /// same program is executed again without randomization. `None` where the kernel does not show them: for kernel
    /// threads and zombies, for processes that we may not ptrace, and during an exec. Two `None` values prove nothing.
    pub fn image(&self) -> Option<(u64, u64)> {
        (self.start_code != 0 && self.start_stack != 0).then_some((self.start_code, self.start_stack))
    }

    /// The identity of this process.
    pub fn identity(&self) -> Identity {
        Identity { pid: self.pid, start_ticks: self.start_ticks }
    }

    /// Whether it is a kernel thread, which has no memory of its own.
    pub fn is_kernel_thread(&self) -> bool {
        self.flags & PF_KTHREAD != 0
    }

    /// Whether its main thread has ended. Other threads may still run, but the memory can no longer be read by pid.
    pub fn is_zombie(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }

    /// Whether it has memory that can be read by pid.
    pub fn has_memory(&self) -> bool {
        !self.is_kernel_thread() && !self.is_zombie()
    }

    /// Whether the whole process has ended and only its entry is left.
    pub fn has_ended(&self) -> bool {
        self.is_zombie() && self.num_threads <= 1
    }
}

/// What follows the command name: the first word is item 3 in proc(5).
struct Words<'a>(Vec<&'a [u8]>);

impl Words<'_> {
    fn get(&self, item: usize, name: &'static str) -> Result<&[u8], Unexpected> {
        let text = self.0.get(item - 3).copied().filter(|text| !text.is_empty());
        text.ok_or_else(|| Unexpected::new(name, "one more word", b"end of line"))
    }

    fn number<T: TryFrom<u64>>(&self, item: usize, name: &'static str) -> Result<T, Unexpected> {
        number(self.get(item, name)?, name)
    }

    fn letter(&self, item: usize, name: &'static str) -> Result<char, Unexpected> {
        match self.get(item, name)? {
            [letter] if letter.is_ascii_alphabetic() => Ok(char::from(*letter)),
            other => Err(Unexpected::new(name, "one letter", other)),
        }
    }
}

fn number<T: TryFrom<u64>>(text: &[u8], item: &'static str) -> Result<T, Unexpected> {
    let value = decimal(text).and_then(|value| T::try_from(value).ok());
    value.ok_or_else(|| Unexpected::new(item, "a decimal number", text))
}

/// The fields of `/proc/PID/status` that are used. All but the first are missing for some processes or kernels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Real, effective, saved and file system user.
    pub uids: [u32; 4],
    /// Resident memory; `None` for a kernel thread or a zombie.
    pub rss: Option<Bytes>,
    /// Resident pages of files and of shared memory (`RssFile` and `RssShmem`). Unknown before 4.5.
    pub rss_of_files: Option<Bytes>,
    /// Locked in memory (`VmLck`).
    pub locked: Option<Bytes>,
    /// Pinned for devices and the like (`VmPin`).
    pub pinned: Option<Bytes>,
    /// Memory swapped out.
    pub swap: Option<Bytes>,
    /// Hugetlb pages of any size (`HugetlbPages`).
    pub hugetlb: Option<Bytes>,
    /// The process that traces it (`TracerPid`), if there is one.
    pub tracer: Option<u32>,
    /// Whether its core is being dumped (`CoreDumping`). Unknown before 4.15.
    pub dumps_core: Option<bool>,
    /// Whether the process may have huge pages: `Some(false)` under `prctl(PR_SET_THP_DISABLE)`. Unknown before 5.0.
    pub thp_enabled: Option<bool>,
    /// Effective capabilities, a bit each.
    pub cap_eff: Option<u64>,
}

impl Status {
    /// Parses the file. Errors count lines from 1.
    pub(super) fn parse(text: &[u8]) -> Result<Status, (usize, Unexpected)> {
        let mut status = Status::default();
        let mut uids = None;
        for (index, line) in text.split(|&b| b == b'\n').enumerate() {
            let Some((key, value)) = key_value(line) else { continue };
            let at = |e| (index + 1, e);
            match key {
                b"Uid" => uids = Some(four(value).map_err(at)?),
                b"VmRSS" => status.rss = Some(kilobytes(value, "VmRSS").map_err(at)?),
                b"RssFile" | b"RssShmem" => {
                    let rss = kilobytes(value, "RssFile or RssShmem").map_err(at)?;
                    status.rss_of_files = Some(Bytes(status.rss_of_files.map_or(0, |sum| sum.0) + rss.0));
                }
                b"VmLck" => status.locked = Some(kilobytes(value, "VmLck").map_err(at)?),
                b"VmPin" => status.pinned = Some(kilobytes(value, "VmPin").map_err(at)?),
                b"TracerPid" => status.tracer = Some(number(value, "TracerPid").map_err(at)?).filter(|pid| *pid > 0),
                b"CoreDumping" => status.dumps_core = Some(number::<u64>(value, "CoreDumping").map_err(at)? != 0),
                b"HugetlbPages" => status.hugetlb = Some(kilobytes(value, "HugetlbPages").map_err(at)?),
                b"VmSwap" => status.swap = Some(kilobytes(value, "VmSwap").map_err(at)?),
                b"THP_enabled" => status.thp_enabled = Some(number::<u64>(value, "THP_enabled").map_err(at)? != 0),
                b"CapEff" => status.cap_eff = Some(hex(value, "CapEff").map_err(at)?),
                _ => {}
            }
        }
        let lines = text.split(|&b| b == b'\n').count();
        status.uids = uids.ok_or_else(|| (lines, Unexpected::new("Uid", "a line with it", b"end of file")))?;
        Ok(status)
    }
}

fn hex(value: &[u8], item: &'static str) -> Result<u64, Unexpected> {
    let text = std::str::from_utf8(value).ok();
    let parsed = text.and_then(|text| u64::from_str_radix(text, 16).ok());
    parsed.ok_or_else(|| Unexpected::new(item, "a hexadecimal number", value))
}

fn four(value: &[u8]) -> Result<[u32; 4], Unexpected> {
    let text = String::from_utf8_lossy(value);
    let numbers: Vec<u32> = text.split_ascii_whitespace().map_while(|word| u32::from_str(word).ok()).collect();
    numbers.try_into().map_err(|_| Unexpected::new("Uid", "four numbers", value))
}
