//! Checks the page headers of a Parquet file before its decoder sees them.
//!
//! Used by `cursor`. The decoder allocates the size that a header states for a page or a dictionary, up to 2 GiB each,
//! before it reads a byte of it. So each header is read here first. A size that Snappy cannot reach from the bytes in
//! the file is damage. So is a dictionary with more entries than bytes. Encodings by differences (`DELTA_*`) are
//! refused: by prefixes of prefixes they grow without bound. Neither Isotherm nor the tools that rewrite Parquet use
//! them unless asked to.

use parquet::arrow::ProjectionMask;
use parquet::basic::Compression;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};
use std::fs::File;
use std::io::{self, BufReader, Read, Seek};

/// Snappy makes at most 64 bytes out of 3.
const SNAPPY_RATIO: u64 = 22;
/// What a compressed page needs in addition, and what an empty one claims.
const SLACK: u64 = 64;
/// `PLAIN`, `PLAIN_DICTIONARY`, `RLE`, `BIT_PACKED`, `RLE_DICTIONARY`.
const ENCODINGS: [u64; 5] = [0, 2, 3, 4, 8];
/// Nesting of values in a header. The format needs three levels.
const MAX_DEPTH: u32 = 16;

type Checked<T> = Result<T, String>;

/// Checks all pages of the columns in `mask`.
pub(crate) fn check(file: &File, metadata: &ParquetMetaData, mask: &ProjectionMask) -> Checked<()> {
    let mut from = Source::of(file)?;
    for group in metadata.row_groups() {
        for (index, column) in group.columns().iter().enumerate() {
            if mask.leaf_included(index) {
                let damaged = |what| format!("column {}: {what}", column.column_path());
                check_column(&mut from, column).map_err(damaged)?;
            }
        }
    }
    Ok(())
}

fn check_column(from: &mut Source<'_>, column: &ColumnChunkMetaData) -> Checked<()> {
    let (start, length) = column.byte_range();
    let end = start.checked_add(length).ok_or("it has no end")?;
    from.go_to(start)?;
    while from.at < end {
        let header = Header::read(from)?;
        header.check(column.compression())?;
        from.go_to(from.at.saturating_add(header.compressed))?;
    }
    Ok(())
}

/// The contents of a page header. If a value is given twice, the larger one counts.
#[derive(Debug, Default)]
struct Header {
    uncompressed: u64,
    compressed: u64,
    dictionary_entries: u64,
    encodings: Vec<u64>,
}

impl Header {
    fn read(from: &mut Source<'_>) -> Checked<Header> {
        let mut header = Header::default();
        from.fields(|from, field, kind| {
            match (field, kind) {
                (2, INTEGERS) => header.uncompressed = header.uncompressed.max(from.size()?),
                (3, INTEGERS) => header.compressed = header.compressed.max(from.size()?),
                // The headers of data pages of both versions, and of dictionaries.
                (5 | 7 | 8, STRUCT) => header.read_inner(from, field)?,
                _ => from.skip(kind, 0)?,
            }
            Ok(())
        })?;
        Ok(header)
    }

    fn read_inner(&mut self, from: &mut Source<'_>, of: i64) -> Checked<()> {
        from.fields(|from, field, kind| {
            match (of, field, kind) {
                (5 | 7, 2, INTEGERS) | (8, 4, INTEGERS) => self.encodings.push(from.size()?),
                (7, 1, INTEGERS) => self.dictionary_entries = self.dictionary_entries.max(from.size()?),
                _ => from.skip(kind, 0)?,
            }
            Ok(())
        })
    }

    fn check(&self, compression: Compression) -> Checked<()> {
        let most = match compression {
            Compression::UNCOMPRESSED => self.compressed,
            // Other codecs are not built in, and the decoder reports that.
            _ => self.compressed * SNAPPY_RATIO + SLACK,
        };
        if self.uncompressed > most {
            return Err(format!("a page of {} bytes cannot come to {}", self.compressed, self.uncompressed));
        }
        if self.dictionary_entries > self.uncompressed {
            return Err(format!("{} entries of a dictionary in {} bytes", self.dictionary_entries, self.uncompressed));
        }
        match self.encodings.iter().find(|e| !ENCODINGS.contains(e)) {
            Some(encoding) => {
                Err(format!("encoding {encoding} is not used in recordings; write it plain or as dictionary"))
            }
            None => Ok(()),
        }
    }
}

// Types of Thrift's compact protocol.
const INTEGERS: u8 = 5;
const STRUCT: u8 = 12;

/// A file that is read forward, as Thrift's compact protocol.
struct Source<'a> {
    from: BufReader<&'a File>,
    at: u64,
    /// The length of the file.
    end: u64,
}

impl<'a> Source<'a> {
    fn of(file: &'a File) -> Checked<Source<'a>> {
        let mut from = BufReader::new(file);
        // The footer was read before.
        from.rewind().map_err(failed)?;
        Ok(Source { from, at: 0, end: file.metadata().map_err(failed)?.len() })
    }
}

impl Source<'_> {
    /// Moving beyond the end would succeed. So every value has to take bytes of the file, however many a header claims: it
    /// may claim 2^64.
    fn go_to(&mut self, at: u64) -> Checked<()> {
        if at > self.end {
            return Err(format!("page headers: a value at {} goes beyond the end of the file", self.at));
        }
        // Both lie within a file, whose length is an i64 to the kernel.
        self.from.seek_relative(at.cast_signed() - self.at.cast_signed()).map_err(failed)?;
        self.at = at;
        Ok(())
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
    fn size(&mut self) -> Checked<u64> {
        let n = self.integer()?;
        u32::try_from(n).map(u64::from).map_err(|_| format!("a size of {n}"))
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
            each(self, field, kind)?;
        }
    }

    fn skip(&mut self, kind: u8, depth: u32) -> Checked<()> {
        if depth > MAX_DEPTH {
            return Err("a page header nested too deep".into());
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
            other => Err(format!("a page header with a value of type {other}")),
        }
    }

    fn skip_list(&mut self, depth: u32) -> Checked<()> {
        let byte = self.byte()?;
        let length = if byte >> 4 == 15 { self.varint()? } else { u64::from(byte >> 4) };
        for _ in 0..length {
            match byte & 0xf {
                1 | 2 => drop(self.byte()?),
                kind => self.skip(kind, depth + 1)?,
            }
        }
        Ok(())
    }
}

fn failed(error: io::Error) -> String {
    format!("page headers: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// Found by the fuzz target `recording`: the reader went on for as many values as a header claims.
    #[test]
    fn values_beyond_the_end_of_the_file_are_an_error() {
        // Field 1 is a list of 2^35 - 1 doubles, and field 2 a list of 2^35 - 1 lists of them; of none there is a byte.
        let many = [0xff, 0xff, 0xff, 0xff, 0x7f];
        for claims in [&[0x19, 0xf7][..], &[0x29, 0xf9]] {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&[claims, &many, &[0xf7], &many].concat()).unwrap();
            let error = Header::read(&mut Source::of(&file).unwrap()).unwrap_err();
            assert!(error.contains("beyond the end of the file"), "{error}");
        }
    }
}
