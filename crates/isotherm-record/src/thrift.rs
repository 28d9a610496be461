//! Reads Thrift's compact protocol, in which Parquet has its footer and its page headers, to check it before the decoder
//! does anything with it.
//!
//! Used by `footer` and `pages`. The decoder believes two things that a damaged file can use to keep it busy for hours. It
//! takes a field by its number, whatever type the file gives it. And when it skips a list it goes through all values that
//! the list claims to have, up to 2^31 in six bytes: it gives no bytes to booleans, and does not see the end of a file. So
//! here a known field has its type ([`Shape`]), every value takes bytes of the file, and lists of booleans are refused:
//! neither part of the format has any.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek};

/// Nesting of values that are skipped. The format needs three levels.
const MAX_DEPTH: u32 = 16;

/// A type of the protocol.
const STRUCT: u8 = 12;

pub(crate) type Checked<T> = Result<T, String>;

/// What a value has to be.
#[derive(Debug)]
pub(crate) enum Shape {
    /// Integers of 16, 32 and 64 bits have the same form.
    Integer,
    Boolean,
    Byte,
    Double,
    Binary,
    List(&'static Shape),
    Struct(Fields),
}

/// The fields of a struct that the decoder knows, by number. It skips others.
pub(crate) type Fields = &'static [(i64, Shape)];

impl Shape {
    /// The type of the protocol; of those that two or three types stand for, one.
    fn kind(&self) -> u8 {
        match self {
            Shape::Boolean => 1,
            Shape::Byte => 3,
            Shape::Integer => 5,
            Shape::Double => 7,
            Shape::Binary => 8,
            Shape::List(_) => 9,
            Shape::Struct(_) => STRUCT,
        }
    }

    fn is(&self, kind: u8) -> bool {
        match self {
            Shape::Boolean => matches!(kind, 1 | 2),
            Shape::Integer => matches!(kind, 4..=6),
            other => kind == other.kind(),
        }
    }

    /// Refuses a value of another type.
    fn expect(&self, kind: u8) -> Checked<()> {
        if self.is(kind) { Ok(()) } else { Err(format!("a value of type {kind} in place of {self}")) }
    }

    /// The shape of a field, if the decoder knows it.
    fn of(fields: Fields, field: i64) -> Option<&'static Shape> {
        fields.iter().find(|(number, _)| *number == field).map(|(_, shape)| shape)
    }
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Shape::Integer => "an integer",
            Shape::Boolean => "a boolean",
            Shape::Byte => "a byte",
            Shape::Double => "a double",
            Shape::Binary => "a text",
            Shape::List(_) => "a list",
            Shape::Struct(_) => "a struct",
        })
    }
}

/// A file that is read forward, as Thrift's compact protocol.
pub(crate) struct Source<'a> {
    from: BufReader<&'a File>,
    pub(crate) at: u64,
    /// The length of the file.
    pub(crate) end: u64,
}

impl<'a> Source<'a> {
    pub(crate) fn of(file: &'a File) -> Checked<Source<'a>> {
        let mut from = BufReader::new(file);
        // The file may have been read before.
        from.rewind().map_err(failed)?;
        Ok(Source { from, at: 0, end: file.metadata().map_err(failed)?.len() })
    }
}

impl Source<'_> {
    /// Moving beyond the end would succeed. So every value has to take bytes of the file, however many a header claims: it
    /// may claim 2^64.
    pub(crate) fn go_to(&mut self, at: u64) -> Checked<()> {
        if at > self.end {
            return Err(format!("a value at {} goes beyond the end of the file", self.at));
        }
        // Both lie within a file, whose length is an i64 to the kernel.
        self.from.seek_relative(at.cast_signed() - self.at.cast_signed()).map_err(failed)?;
        self.at = at;
        Ok(())
    }

    /// The length of the footer.
    pub(crate) fn length(&mut self) -> Checked<u64> {
        let mut bytes = [0; 4];
        self.from.read_exact(&mut bytes).map_err(failed)?;
        self.at += bytes.len() as u64;
        Ok(u32::from_le_bytes(bytes).into())
    }

    fn byte(&mut self) -> Checked<u8> {
        let mut byte = [0];
        self.from.read_exact(&mut byte).map_err(failed)?;
        self.at += 1;
        Ok(byte[0])
    }

    fn varint(&mut self) -> Checked<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err("a number without end".into())
    }

    fn integer(&mut self) -> Checked<i64> {
        let zigzag = self.varint()?;
        Ok((zigzag >> 1).cast_signed() ^ -(zigzag & 1).cast_signed())
    }

    /// An `i32` that must not be negative.
    pub(crate) fn size(&mut self) -> Checked<u64> {
        let n = self.integer()?;
        i32::try_from(n).ok().and_then(|n| u64::try_from(n).ok()).ok_or_else(|| format!("a size of {n}"))
    }

    /// Calls `each` with the number and the shape of each field that the decoder knows, and skips the others. `each` has to
    /// read the value, which has the type of its shape.
    pub(crate) fn known_fields(
        &mut self,
        fields: Fields,
        mut each: impl FnMut(&mut Self, i64, &'static Shape) -> Checked<()>,
    ) -> Checked<()> {
        self.fields(|from, field, kind| {
            let Some(shape) = Shape::of(fields, field) else { return from.skip(kind, 0) };
            shape.expect(kind)?;
            each(from, field, shape)
        })
    }

    /// Calls `each` with the number and the type of each field of a struct. `each` has to read the value.
    fn fields(&mut self, mut each: impl FnMut(&mut Self, i64, u8) -> Checked<()>) -> Checked<()> {
        let mut field = 0_i64;
        loop {
            let byte = self.byte()?;
            let kind = byte & 0xf;
            if kind == 0 {
                return Ok(());
            }
            field = match byte >> 4 {
                0 => self.integer()?,
                more => field.saturating_add(i64::from(more)),
            };
            // The decoder would take the lower 16 bits for the number.
            i16::try_from(field).map_err(|_| format!("a field with the number {field}"))?;
            each(self, field, kind)?;
        }
    }

    fn skip(&mut self, kind: u8, depth: u32) -> Checked<()> {
        if depth > MAX_DEPTH {
            return Err("values nested too deep".into());
        }
        match kind {
            // Booleans of fields are in their type.
            1 | 2 => Ok(()),
            3 => self.byte().map(drop),
            4..=6 => self.varint().map(drop),
            7 => self.go_to(self.at.saturating_add(8)),
            8 => {
                let length = self.varint()?;
                self.go_to(self.at.saturating_add(length))
            }
            9 | 10 => self.skip_list(depth),
            STRUCT => self.fields(|from, _, kind| from.skip(kind, depth + 1)),
            other => Err(format!("a value of type {other}")),
        }
    }

    /// Reads a value and whatever is in it.
    pub(crate) fn check(&mut self, shape: &Shape) -> Checked<()> {
        match shape {
            Shape::List(inner) => {
                let (kind, length) = self.list()?;
                if length > 0 {
                    inner.expect(kind)?;
                }
                (0..length).try_for_each(|_| self.check(inner))
            }
            Shape::Struct(fields) => self.known_fields(fields, |from, _, shape| from.check(shape)),
            scalar => self.skip(scalar.kind(), 0),
        }
    }

    /// The type of the values of a list, and how many it claims to have.
    fn list(&mut self) -> Checked<(u8, u64)> {
        let byte = self.byte()?;
        Ok((byte & 0xf, if byte >> 4 == 15 { self.varint()? } else { u64::from(byte >> 4) }))
    }

    fn skip_list(&mut self, depth: u32) -> Checked<()> {
        let (kind, length) = self.list()?;
        if matches!(kind, 1 | 2) && length > 0 {
            return Err(format!("a list of {length} booleans"));
        }
        (0..length).try_for_each(|_| self.skip(kind, depth + 1))
    }
}

fn failed(error: io::Error) -> String {
    format!("footer or page headers: {error}")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::io::Write;

    /// 2^35 - 1, as a length.
    pub(crate) const MANY: [u8; 5] = [0xff, 0xff, 0xff, 0xff, 0x7f];
    const TREE: Shape = Shape::Struct(&[(1, Shape::Integer), (2, Shape::List(&Shape::Struct(&[(1, Shape::Binary)])))]);

    pub(crate) fn file_of(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    fn check(bytes: &[u8]) -> Checked<()> {
        Source::of(&file_of(bytes)).unwrap().check(&TREE)
    }

    #[test]
    fn known_fields_have_their_types_and_others_are_skipped() {
        // 1: 7; 2: two structs, of which the first has a text of two bytes; 9: a list of three doubles.
        let doubles = [&[0x79, 0x37][..], &[0; 24]].concat();
        let all = [&[0x15, 0x0e, 0x19, 0x2c, 0x18, 0x02, b'a', b'b', 0x00, 0x00][..], &doubles, &[0x00]].concat();
        assert_eq!(check(&all), Ok(()));
        assert_eq!(check(&[0x19, 0x01, 0x00]).unwrap_err(), "a value of type 9 in place of an integer");
        assert_eq!(check(&[0x29, 0x15, 0x02]).unwrap_err(), "a value of type 5 in place of a struct");
        assert_eq!(check(&[0x29, 0x00, 0x00]), Ok(()), "an empty list may have no type");
        for cut in 1..all.len() {
            assert!(check(&all[..cut]).is_err(), "{cut}");
        }
    }

    #[test]
    fn every_value_takes_bytes_of_the_file() {
        // Lists of 2^35 - 1 doubles, and of as many lists of them; of none there is a byte.
        for claims in [&[0x99, 0xf7][..], &[0x99, 0xf9]] {
            let error = check(&[claims, &MANY, &[0xf7], &MANY].concat()).unwrap_err();
            assert!(error.contains("beyond the end of the file"), "{error}");
        }
        // To the decoder a boolean in a list takes no byte.
        assert_eq!(check(&[&[0x99, 0xf1][..], &MANY].concat()).unwrap_err(), "a list of 34359738367 booleans");
        // Field 65536 + 2, which is 2 in 16 bits.
        assert_eq!(check(&[0x09, 0x84, 0x80, 0x08, 0x00]).unwrap_err(), "a field with the number 65538");
    }
}
