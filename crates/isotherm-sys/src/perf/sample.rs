//! The contents of one sample, by the fields that were asked for.

use std::ops::BitOr;

/// Which fields samples carry: `PERF_SAMPLE_*` bits. Only fields that [`Sample`] can decode have a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fields(u64);

impl Fields {
    /// The event it belongs to, by the kernel's id.
    pub const IDENTIFIER: Fields = Fields(1 << 16);
    /// The instruction.
    pub const IP: Fields = Fields(1 << 0);
    /// Process and thread.
    pub const TID: Fields = Fields(1 << 1);
    /// Time, in nanoseconds of the monotonic clock.
    pub const TIME: Fields = Fields(1 << 2);
    /// The address accessed.
    pub const ADDR: Fields = Fields(1 << 3);
    /// The CPU.
    pub const CPU: Fields = Fields(1 << 7);
    /// Events since the previous sample.
    pub const PERIOD: Fields = Fields(1 << 8);
    /// The bytes of a tracepoint's record.
    pub const RAW: Fields = Fields(1 << 10);
    /// Its cost: for loads, cycles from issue to data.
    pub const WEIGHT: Fields = Fields(1 << 14);
    /// Where the data came from, and whether it was a load or a store: `union perf_mem_data_src`.
    pub const DATA_SRC: Fields = Fields(1 << 15);
    /// The physical address accessed.
    pub const PHYS_ADDR: Fields = Fields(1 << 19);
    /// Bytes of the page accessed: 2 MiB for a huge one. Since 5.11.
    pub const DATA_PAGE_SIZE: Fields = Fields(1 << 22);

    /// All fields with a name here.
    pub const ALL: Fields = Fields(
        Fields::IDENTIFIER.0
            | Fields::IP.0
            | Fields::TID.0
            | Fields::TIME.0
            | Fields::ADDR.0
            | Fields::CPU.0
            | Fields::PERIOD.0
            | Fields::RAW.0
            | Fields::WEIGHT.0
            | Fields::DATA_SRC.0
            | Fields::PHYS_ADDR.0
            | Fields::DATA_PAGE_SIZE.0,
    );

    /// The bits.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// The fields of `bits` that have a name here. `bits` may come from a recording, or be made up.
    pub const fn from_bits(bits: u64) -> Fields {
        Fields(bits & Fields::ALL.0)
    }

    /// The same without those of `other`.
    pub const fn without(self, other: Fields) -> Fields {
        Fields(self.0 & !other.0)
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
    /// The event it belongs to.
    pub id: u64,
    /// The instruction.
    pub ip: u64,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Time, in nanoseconds of the monotonic clock.
    pub time: u64,
    /// The address accessed.
    pub addr: u64,
    /// The CPU.
    pub cpu: u32,
    /// Events since the previous sample.
    pub period: u64,
    /// The bytes of a tracepoint's record.
    pub raw: &'a [u8],
    /// Its cost: for loads, cycles from issue to data.
    pub weight: u64,
    /// Where the data came from: `union perf_mem_data_src`.
    pub data_src: u64,
    /// The physical address accessed.
    pub phys_addr: u64,
    /// Bytes of the page accessed; 0 if the kernel could not find out.
    pub data_page_size: u64,
}

impl<'a> Sample<'a> {
    /// Parses the body of a sample record; `None` if it is shorter than its fields.
    #[inline]
    pub fn parse(fields: Fields, body: &'a [u8]) -> Option<Sample<'a>> {
        let mut rest = Rest(body);
        let mut sample = Sample::default();
        // In the order in which the kernel writes them.
        if fields.contains(Fields::IDENTIFIER) {
            sample.id = rest.u64()?;
        }
        if fields.contains(Fields::IP) {
            sample.ip = rest.u64()?;
        }
        if fields.contains(Fields::TID) {
            (sample.pid, sample.tid) = rest.halves()?;
        }
        if fields.contains(Fields::TIME) {
            sample.time = rest.u64()?;
        }
        if fields.contains(Fields::ADDR) {
            sample.addr = rest.u64()?;
        }
        if fields.contains(Fields::CPU) {
            (sample.cpu, _) = rest.halves()?;
        }
        if fields.contains(Fields::PERIOD) {
            sample.period = rest.u64()?;
        }
        if fields.contains(Fields::RAW) {
            sample.raw = rest.raw()?;
        }
        if fields.contains(Fields::WEIGHT) {
            sample.weight = rest.u64()?;
        }
        if fields.contains(Fields::DATA_SRC) {
            sample.data_src = rest.u64()?;
        }
        if fields.contains(Fields::PHYS_ADDR) {
            sample.phys_addr = rest.u64()?;
        }
        if fields.contains(Fields::DATA_PAGE_SIZE) {
            sample.data_page_size = rest.u64()?;
        }
        Some(sample)
    }
}

/// The part of the body that is not parsed yet.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    #[inline]
    fn u64(&mut self) -> Option<u64> {
        let (word, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_ne_bytes(*word))
    }

    /// Two numbers of four bytes.
    #[inline]
    fn halves(&mut self) -> Option<(u32, u32)> {
        let ([a, b, c, d, e, f, g, h], rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some((u32::from_ne_bytes([*a, *b, *c, *d]), u32::from_ne_bytes([*e, *f, *g, *h])))
    }

    /// A size of four bytes, then as many bytes. The kernel pads both together to a multiple of eight, and counts the
    /// padding in the size.
    fn raw(&mut self) -> Option<&'a [u8]> {
        let (size, rest) = self.0.split_first_chunk()?;
        let (bytes, rest) = rest.split_at_checked(usize::try_from(u32::from_ne_bytes(*size)).ok()?)?;
        self.0 = rest;
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_taken_in_the_order_of_the_kernel() {
        let words = |words: &[u64]| words.iter().flat_map(|w| w.to_ne_bytes()).collect::<Vec<u8>>();
        let halves = |a: u32, b: u32| [a.to_ne_bytes(), b.to_ne_bytes()].concat();
        // Identifier, instruction, thread, time, address, processor, period; then bytes of a tracepoint, 12 and their size.
        let mut body = words(&[1, 2]);
        body.extend(halves(7, 8));
        body.extend(words(&[99, 0x7f00]));
        body.extend(halves(3, 0));
        body.extend(words(&[64]));
        body.extend(12_u32.to_ne_bytes());
        body.extend(*b"abcdefghijkl");
        // Weight, source, physical address, size of the page.
        body.extend(words(&[400, 0x21, 0x10_0000, 2 << 20]));
        let sample = Sample {
            id: 1,
            ip: 2,
            pid: 7,
            tid: 8,
            time: 99,
            addr: 0x7f00,
            cpu: 3,
            period: 64,
            raw: b"abcdefghijkl",
            weight: 400,
            data_src: 0x21,
            phys_addr: 0x10_0000,
            data_page_size: 2 << 20,
        };
        assert_eq!(Sample::parse(Fields::ALL, &body), Some(sample));
        for len in 0..body.len() {
            assert_eq!(Sample::parse(Fields::ALL, &body[..len]), None, "cut at {len}");
        }
    }

    #[test]
    fn fields_have_the_bits_of_the_kernel() {
        let all = [0, 1, 2, 3, 7, 8, 10, 14, 15, 16, 19, 22];
        assert_eq!(Fields::ALL.bits(), all.into_iter().map(|bit| 1 << bit).sum::<u64>());
        assert_eq!(Fields::from_bits(u64::MAX), Fields::ALL);
        assert_eq!((Fields::TID | Fields::ADDR).without(Fields::ADDR), Fields::TID);
    }

    #[test]
    fn raw_bytes_end_where_their_size_says() {
        let body = |size: u32| [&size.to_ne_bytes()[..], &[9; 12]].concat();
        let parse = |size| Sample::parse(Fields::RAW, &body(size)).map(|s| s.raw.len());
        assert_eq!(parse(4), Some(4));
        assert_eq!(parse(12), Some(12));
        assert_eq!((parse(13), parse(u32::MAX)), (None, None), "beyond the record");
    }
}
