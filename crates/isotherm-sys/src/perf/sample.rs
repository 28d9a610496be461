//! What one sample holds, by the fields that were asked for.

use std::ops::BitOr;

/// Which fields samples carry: `PERF_SAMPLE_*` bits. Only those that [`Sample`] can take apart can be named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fields(u64);

impl Fields {
    /// The instruction.
    pub const IP: Fields = Fields(1 << 0);
    /// Process and thread.
    pub const TID: Fields = Fields(1 << 1);
    /// When, in nanoseconds of the monotonic clock.
    pub const TIME: Fields = Fields(1 << 2);
    /// The address accessed.
    pub const ADDR: Fields = Fields(1 << 3);
    /// On which processor.
    pub const CPU: Fields = Fields(1 << 7);
    /// Events since the sample before.
    pub const PERIOD: Fields = Fields(1 << 8);
    /// The bytes of a tracepoint's record.
    pub const RAW: Fields = Fields(1 << 10);
    /// The physical address accessed.
    pub const PHYS_ADDR: Fields = Fields(1 << 19);

    /// The bits.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Whether all of `other` are among them.
    pub const fn contains(self, other: Fields) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Fields {
    type Output = Fields;

    fn bitor(self, other: Fields) -> Fields {
        Fields(self.0 | other.0)
    }
}

/// One sample. Fields that were not asked for are 0 or empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample<'a> {
    /// The instruction.
    pub ip: u64,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// When, in nanoseconds of the monotonic clock.
    pub time: u64,
    /// The address accessed.
    pub addr: u64,
    /// On which processor.
    pub cpu: u32,
    /// Events since the sample before.
    pub period: u64,
    /// The bytes of a tracepoint's record.
    pub raw: &'a [u8],
    /// The physical address accessed.
    pub phys_addr: u64,
}

impl<'a> Sample<'a> {
    /// Takes the body of a record of samples apart; `None` if it is shorter than its fields.
    pub fn parse(fields: Fields, body: &'a [u8]) -> Option<Sample<'a>> {
        let mut rest = Rest(body);
        let mut sample = Sample::default();
        // In the order in which the kernel writes them.
        if fields.contains(Fields::IP) {
            sample.ip = rest.u64()?;
        }
        if fields.contains(Fields::TID) {
            (sample.pid, sample.tid) = (rest.u32()?, rest.u32()?);
        }
        if fields.contains(Fields::TIME) {
            sample.time = rest.u64()?;
        }
        if fields.contains(Fields::ADDR) {
            sample.addr = rest.u64()?;
        }
        if fields.contains(Fields::CPU) {
            (sample.cpu, _) = (rest.u32()?, rest.u32()?);
        }
        if fields.contains(Fields::PERIOD) {
            sample.period = rest.u64()?;
        }
        if fields.contains(Fields::RAW) {
            let len = rest.u32()?;
            sample.raw = rest.bytes(usize::try_from(len).ok()?)?;
        }
        if fields.contains(Fields::PHYS_ADDR) {
            sample.phys_addr = rest.u64()?;
        }
        Some(sample)
    }
}

struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(head)
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_ne_bytes(self.bytes(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_ne_bytes(self.bytes(8)?.try_into().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_taken_in_the_order_of_the_kernel() {
        let mut body = Vec::new();
        body.extend(7_u32.to_ne_bytes());
        body.extend(8_u32.to_ne_bytes());
        body.extend(99_u64.to_ne_bytes());
        body.extend(0x7f00_u64.to_ne_bytes());
        body.extend(3_u32.to_ne_bytes());
        body.extend(*b"abc");
        let fields = Fields::RAW | Fields::ADDR | Fields::TIME | Fields::TID;
        let sample = Sample { pid: 7, tid: 8, time: 99, addr: 0x7f00, raw: b"abc", ..Sample::default() };
        assert_eq!(Sample::parse(fields, &body), Some(sample));
        for len in 0..body.len() {
            assert_eq!(Sample::parse(fields, &body[..len]), None, "cut at {len}");
        }
    }
}
