//! Checks the page headers of a Parquet file before its decoder sees them.
//!
//! Used by `cursor`. The decoder allocates the size that a header states for a page or a dictionary, up to 2 GiB each,
//! before it reads a byte of it. So each header is read here first. A size that Snappy cannot reach from the bytes in
//! the file is damage. So is a dictionary with more entries than bytes. Encodings by differences (`DELTA_*`) are
//! refused: by prefixes of prefixes they grow without bound. Neither Isotherm nor the tools that rewrite Parquet use
//! them unless asked to.

use crate::thrift::{Checked, Fields, Shape, Source};
use parquet::arrow::ProjectionMask;
use parquet::basic::Compression;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};
use std::fs::File;

/// Snappy makes at most 64 bytes out of 3.
const SNAPPY_RATIO: u64 = 22;
/// What a compressed page needs in addition, and what an empty one claims.
const SLACK: u64 = 64;
/// A header has the kind of its page and two sizes, each of two bytes or more, and an end.
const MIN_HEADER: u64 = 7;
/// `PLAIN`, `PLAIN_DICTIONARY`, `RLE`, `BIT_PACKED`, `RLE_DICTIONARY`.
const ENCODINGS: [u64; 5] = [0, 2, 3, 4, 8];

const INTEGER: Shape = Shape::Integer;
const DATA: Fields = &[(1, INTEGER), (2, INTEGER), (3, INTEGER), (4, INTEGER)];
const DICTIONARY: Fields = &[(1, INTEGER), (2, INTEGER), (3, Shape::Boolean)];
const DATA_V2: Fields =
    &[(1, INTEGER), (2, INTEGER), (3, INTEGER), (4, INTEGER), (5, INTEGER), (6, INTEGER), (7, Shape::Boolean)];
const PAGE: Fields = &[
    (1, INTEGER),
    (2, INTEGER),
    (3, INTEGER),
    (4, INTEGER),
    (5, Shape::Struct(DATA)),
    (6, Shape::Struct(&[])),
    (7, Shape::Struct(DICTIONARY)),
    (8, Shape::Struct(DATA_V2)),
];

/// Checks all pages of the columns in `mask`.
pub(crate) fn check(file: &File, metadata: &ParquetMetaData, mask: &ProjectionMask) -> Checked<()> {
    let mut from = Source::of(file)?;
    // Columns that share bytes would be read again and again: a small file could take hours.
    let mut left = from.end;
    for group in metadata.row_groups() {
        for (index, column) in group.columns().iter().enumerate() {
            if mask.leaf_included(index) {
                let damaged = |what| format!("column {}: {what}", column.column_path());
                left = without_column(left, column.byte_range().1)?;
                check_column(&mut from, column).map_err(damaged)?;
            }
        }
    }
    Ok(())
}

/// What is left of a file for other columns.
fn without_column(left: u64, bytes: u64) -> Checked<u64> {
    left.checked_sub(bytes).ok_or_else(|| "its columns are larger than the file".into())
}

fn check_column(from: &mut Source<'_>, column: &ColumnChunkMetaData) -> Checked<()> {
    let (start, length) = column.byte_range();
    let end = start.checked_add(length).ok_or("it has no end")?;
    from.go_to(start)?;
    while from.at < end {
        let begin = from.at;
        let header = Header::read(from)?;
        // Of zeros there could be one in each byte.
        if from.at < begin + MIN_HEADER {
            return Err("a page header without contents".into());
        }
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
        from.known_fields(PAGE, |from, field, shape| {
            match (field, shape) {
                (2, _) => header.uncompressed = header.uncompressed.max(from.size()?),
                (3, _) => header.compressed = header.compressed.max(from.size()?),
                // The headers of data pages of both versions, and of dictionaries.
                (_, Shape::Struct(fields)) => header.read_inner(from, field, fields)?,
                _ => from.check(shape)?,
            }
            Ok(())
        })?;
        Ok(header)
    }

    fn read_inner(&mut self, from: &mut Source<'_>, of: i64, fields: Fields) -> Checked<()> {
        from.known_fields(fields, |from, field, shape| {
            match (of, field) {
                (5 | 7, 2) | (8, 4) => self.encodings.push(from.size()?),
                (7, 1) => self.dictionary_entries = self.dictionary_entries.max(from.size()?),
                _ => from.check(shape)?,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thrift::tests::{MANY, file_of};
    use parquet::schema::types::{ColumnDescriptor, ColumnPath, Type};
    use std::sync::Arc;

    fn read(header: &[u8]) -> Checked<Header> {
        Header::read(&mut Source::of(&file_of(header)).unwrap())
    }

    #[test]
    fn sizes_and_encodings_are_found_and_the_larger_of_two_counts() {
        // 2: 1,000; 3: 100 and again 90; 7: 5 entries, plain.
        let header =
            read(&[0x25, 0xd0, 0x0f, 0x15, 0xc8, 0x01, 0x05, 0x06, 0xb4, 0x01, 0x4c, 0x15, 0x0a, 0x15, 0x00, 0, 0]);
        let header = header.unwrap();
        assert_eq!((header.uncompressed, header.compressed, header.dictionary_entries), (1000, 100, 5));
        assert_eq!(header.encodings, [0]);
        assert_eq!(header.check(Compression::SNAPPY), Ok(()));
        assert!(header.check(Compression::UNCOMPRESSED).unwrap_err().contains("100 bytes cannot come to 1000"));
    }

    #[test]
    fn what_would_be_read_for_hours_is_damage() {
        assert_eq!(without_column(100, 60).and_then(|left| without_column(left, 40)), Ok(0));
        assert!(
            without_column(100, 60).and_then(|left| without_column(left, 60)).is_err(),
            "both are in the same bytes"
        );
        let kind = Type::primitive_type_builder("x", parquet::basic::Type::INT64).build().unwrap();
        let described = Arc::new(ColumnDescriptor::new(Arc::new(kind), 0, 0, ColumnPath::from("x")));
        let column = ColumnChunkMetaData::builder(described).set_data_page_offset(0).set_total_compressed_size(64);
        let zeros = file_of(&[0; 64]);
        let checked = check_column(&mut Source::of(&zeros).unwrap(), &column.build().unwrap());
        assert_eq!(checked.unwrap_err(), "a page header without contents");
    }

    /// All found by the fuzz target `recording`: the decoder went on for 2^31 values, or took 600 MB for a page of a few
    /// bytes, whose size was given as an integer of 64 bits.
    #[test]
    fn the_decoder_would_read_what_was_checked() {
        assert!(read(&[&[0x99, 0xf7][..], &MANY].concat()).unwrap_err().contains("beyond the end of the file"));
        assert_eq!(read(&[&[0x99, 0xf1][..], &MANY].concat()).unwrap_err(), "a list of 34359738367 booleans");
        let header = read(&[0x26, 0x80, 0x80, 0x80, 0xc4, 0x04, 0x15, 0x08, 0x00]).unwrap();
        assert!(header.check(Compression::SNAPPY).unwrap_err().contains("4 bytes cannot come to 608"));
        assert_eq!(read(&[0x28, 0x01, 0x80, 0x00]).unwrap_err(), "a value of type 8 in place of an integer");
        assert_eq!(read(&[0x25, 0x80, 0x80, 0x80, 0x80, 0x10, 0]).unwrap_err(), "a size of 2147483648");
    }
}
