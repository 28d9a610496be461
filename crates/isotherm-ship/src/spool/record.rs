//! Records in a file that is only appended to: pure, bytes in and bytes out.
//!
//! ```text
//! file    = magic (8 bytes), record*
//! record  = length of the body (u32), CRC-32 of the body (u32), body        little-endian
//! ```
//!
//! A crash can leave the last record short, or with bytes that never reached the disk. What follows the last whole record is a *torn tail*: it
//! was never confirmed to anybody, and is cut off before more is appended.
//!
//! A record that is not whole before one that is was damaged later. It alone is lost, as long as its length is right. After a wrong length
//! nothing is found, and all that follows passes for a torn tail.

/// The first bytes of a file of records.
pub const MAGIC: [u8; 8] = *b"isoship\x01";
/// Length and checksum.
const HEAD: usize = 8;
/// The maximum body: a batch of five minutes is below a MiB. A longer one is damage.
pub const MAX_BODY_BYTES: usize = 64 << 20;

/// What a file of records holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan<'a> {
    /// The bodies of its records, in order; `None` for one that is damaged. The last one is whole.
    pub bodies: Vec<Option<&'a [u8]>>,
    /// The end of the last whole record, in bytes: 0 if not even the magic is whole.
    pub whole_bytes: usize,
}

impl<'a> Scan<'a> {
    /// The first body.
    pub fn first(&self) -> Option<&'a [u8]> {
        self.bodies.first().copied().flatten()
    }

    /// The whole ones of those after the first.
    pub fn others(&self) -> impl Iterator<Item = &'a [u8]> {
        self.bodies.iter().skip(1).copied().flatten()
    }
}

/// A record with this body. `None` if the body is too long.
pub fn encode(body: &[u8]) -> Option<Vec<u8>> {
    let length = u32::try_from(body.len()).ok().filter(|_| body.len() <= MAX_BODY_BYTES)?;
    let mut record = Vec::with_capacity(HEAD + body.len());
    record.extend_from_slice(&length.to_le_bytes());
    record.extend_from_slice(&crc32fast::hash(body).to_le_bytes());
    record.extend_from_slice(body);
    Some(record)
}

/// Reads a file.
pub fn scan(file: &[u8]) -> Scan<'_> {
    let Some(mut rest) = file.strip_prefix(&MAGIC[..]) else { return Scan { bodies: Vec::new(), whole_bytes: 0 } };
    let (mut bodies, mut whole, mut whole_bytes) = (Vec::new(), 0, MAGIC.len());
    while let Some((body, after)) = first(rest) {
        bodies.push(body);
        rest = after;
        if body.is_some() {
            (whole, whole_bytes) = (bodies.len(), file.len() - rest.len());
        }
    }
    bodies.truncate(whole);
    Scan { bodies, whole_bytes }
}

/// The body of the first record unless it is damaged, and what follows the record. `None` if there are fewer bytes than its length.
fn first(bytes: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    let (sum, rest) = rest.split_first_chunk()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok().filter(|length| *length <= MAX_BODY_BYTES)?;
    let (body, after) = rest.split_at_checked(length)?;
    // An empty body has checksum 0, as a hole in a file does: it would be read where a block was never written.
    let is_whole = !body.is_empty() && crc32fast::hash(body) == u32::from_le_bytes(*sum);
    Some((is_whole.then_some(body), after))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn file(bodies: &[Vec<u8>]) -> Vec<u8> {
        let mut file = MAGIC.to_vec();
        bodies.iter().for_each(|body| file.extend(encode(body).unwrap()));
        file
    }

    fn bodies() -> impl Strategy<Value = Vec<Vec<u8>>> {
        prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..8)
    }

    #[test]
    fn a_record_byte_by_byte() {
        // CRC-32 of "123456789" is cbf43926, the check value of that polynomial.
        let record = encode(b"123456789").unwrap();
        assert_eq!(record, [&[9, 0, 0, 0, 0x26, 0x39, 0xf4, 0xcb], &b"123456789"[..]].concat());
        assert_eq!(encode(&vec![0; MAX_BODY_BYTES + 1]), None);
    }

    #[test]
    fn what_is_no_file_of_records_has_none() {
        for bytes in [&b""[..], b"isoship", b"something else"] {
            assert_eq!(scan(bytes), Scan { bodies: Vec::new(), whole_bytes: 0 });
        }
        assert_eq!(scan(&MAGIC).whole_bytes, 8);
        // Blocks of zeros, as some file systems leave them after a loss of power.
        let mut holed = file(&[vec![1]]);
        let whole = holed.len();
        holed.extend([0; 64]);
        assert_eq!(scan(&holed), Scan { bodies: vec![Some(&[1])], whole_bytes: whole });
    }

    proptest! {
        #[test]
        fn a_file_that_is_cut_anywhere_has_the_records_before_the_cut(bodies in bodies(), cut in any::<prop::sample::Index>()) {
            let whole = file(&bodies);
            let cut = cut.index(whole.len() + 1);
            let found = scan(&whole[..cut]);
            let expected: Vec<Option<&[u8]>> = (0..=bodies.len())
                .rev()
                .find(|n| file(&bodies[..*n]).len() <= cut)
                .map_or(Vec::new(), |n| bodies[..n].iter().map(|body| Some(body.as_slice())).collect());
            prop_assert_eq!(&found.bodies, &expected);
            prop_assert!(found.whole_bytes <= cut);
            // What is appended after the cut is found again.
            let mut joined = whole[..found.whole_bytes].to_vec();
            if found.whole_bytes == 0 { joined.extend(MAGIC) }
            joined.extend(encode(b"next").unwrap());
            let joined = scan(&joined).bodies.len();
            prop_assert_eq!(joined, expected.len() + 1);
        }

        #[test]
        fn a_changed_bit_takes_its_record_and_if_it_is_of_the_length_those_after_it(
            bodies in bodies(),
            at in any::<prop::sample::Index>(),
            bit in 0..8_u8,
        ) {
            prop_assume!(!bodies.is_empty());
            let mut damaged = file(&bodies);
            let at = 8 + at.index(damaged.len() - 8);
            damaged[at] ^= 1 << bit;
            let before = (0..bodies.len()).rev().find(|n| file(&bodies[..*n]).len() <= at).unwrap();
            let is_length = at - file(&bodies[..before]).len() < 4;
            let mut expected: Vec<Option<&[u8]>> = bodies.iter().map(|body| Some(body.as_slice())).collect();
            expected[before] = None;
            if is_length || before + 1 == bodies.len() {
                expected.truncate(before);
            }
            let found = scan(&damaged);
            let whole: Vec<Option<&[u8]>> = found.bodies.iter().copied().filter(Option::is_some).collect();
            if is_length {
                // By chance the wrong length may lead to the start of another record.
                prop_assert_eq!(&whole[..before], &expected[..]);
                prop_assert!(whole[before..].iter().all(|body| bodies[before + 1..].iter().any(|other| Some(other.as_slice()) == *body)));
            } else {
                prop_assert_eq!(found.bodies, expected);
            }
        }
    }
}
