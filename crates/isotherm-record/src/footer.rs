//! Checks the footer of a Parquet file before its decoder sees it: each value has the type that the format gives it, and
//! its bytes in the file.
//!
//! Used by `segment`. Why, and what else is checked, is in [`crate::thrift`]. Whether the values make sense is left to the
//! decoder. The tables are those of the format (`parquet.thrift` in apache/parquet-format), without what belongs to
//! encryption, which the decoder is built without.

use crate::thrift::{Checked, Fields, Shape, Source};
use std::fs::File;

const INTEGER: Shape = Shape::Integer;
const BOOLEAN: Shape = Shape::Boolean;
const BINARY: Shape = Shape::Binary;
const DOUBLE: Shape = Shape::Double;
const INTEGERS: Shape = Shape::List(&Shape::Integer);
const EMPTY: Shape = Shape::Struct(&[]);
const KEYS: Shape = Shape::List(&Shape::Struct(&[(1, BINARY), (2, BINARY)]));
const UNIT: Shape = Shape::Struct(&[(1, EMPTY), (2, EMPTY), (3, EMPTY)]);
const TIME: Shape = Shape::Struct(&[(1, BOOLEAN), (2, UNIT)]);

const LOGICAL_TYPE: Fields = &[
    (1, EMPTY),
    (2, EMPTY),
    (3, EMPTY),
    (4, EMPTY),
    (5, Shape::Struct(&[(1, INTEGER), (2, INTEGER)])),
    (6, EMPTY),
    (7, TIME),
    (8, TIME),
    (10, Shape::Struct(&[(1, Shape::Byte), (2, BOOLEAN)])),
    (11, EMPTY),
    (12, EMPTY),
    (13, EMPTY),
    (14, EMPTY),
    (15, EMPTY),
    (16, Shape::Struct(&[(1, Shape::Byte)])),
    (17, Shape::Struct(&[(1, BINARY)])),
    (18, Shape::Struct(&[(1, BINARY), (2, INTEGER)])),
    (19, EMPTY),
];

const SCHEMA_ELEMENT: Fields = &[
    (1, INTEGER),
    (2, INTEGER),
    (3, INTEGER),
    (4, BINARY),
    (5, INTEGER),
    (6, INTEGER),
    (7, INTEGER),
    (8, INTEGER),
    (9, INTEGER),
    (10, Shape::Struct(LOGICAL_TYPE)),
];

const STATISTICS: Fields = &[
    (1, BINARY),
    (2, BINARY),
    (3, INTEGER),
    (4, INTEGER),
    (5, BINARY),
    (6, BINARY),
    (7, BOOLEAN),
    (8, BOOLEAN),
    (9, INTEGER),
];

const BOX: Fields =
    &[(1, DOUBLE), (2, DOUBLE), (3, DOUBLE), (4, DOUBLE), (5, DOUBLE), (6, DOUBLE), (7, DOUBLE), (8, DOUBLE)];

const COLUMN: Fields = &[
    (1, INTEGER),
    (2, INTEGERS),
    (3, Shape::List(&Shape::Binary)),
    (4, INTEGER),
    (5, INTEGER),
    (6, INTEGER),
    (7, INTEGER),
    (8, KEYS),
    (9, INTEGER),
    (10, INTEGER),
    (11, INTEGER),
    (12, Shape::Struct(STATISTICS)),
    (13, Shape::List(&Shape::Struct(&[(1, INTEGER), (2, INTEGER), (3, INTEGER)]))),
    (14, INTEGER),
    (15, INTEGER),
    (16, Shape::Struct(&[(1, INTEGER), (2, INTEGERS), (3, INTEGERS)])),
    (17, Shape::Struct(&[(1, Shape::Struct(BOX)), (2, INTEGERS)])),
];

const COLUMN_CHUNK: Fields =
    &[(1, BINARY), (2, INTEGER), (3, Shape::Struct(COLUMN)), (4, INTEGER), (5, INTEGER), (6, INTEGER), (7, INTEGER)];

const ROW_GROUP: Fields = &[
    (1, Shape::List(&Shape::Struct(COLUMN_CHUNK))),
    (2, INTEGER),
    (3, INTEGER),
    (4, Shape::List(&Shape::Struct(&[(1, INTEGER), (2, BOOLEAN), (3, BOOLEAN)]))),
    (5, INTEGER),
    (6, INTEGER),
    (7, INTEGER),
];

const FILE: Shape = Shape::Struct(&[
    (1, INTEGER),
    (2, Shape::List(&Shape::Struct(SCHEMA_ELEMENT))),
    (3, INTEGER),
    (4, Shape::List(&Shape::Struct(ROW_GROUP))),
    (5, KEYS),
    (6, BINARY),
    (7, Shape::List(&Shape::Struct(&[(1, EMPTY), (2, EMPTY), (3, EMPTY)]))),
]);

/// Reads the footer once. O(its bytes).
pub(crate) fn check(file: &File) -> Checked<()> {
    let mut from = Source::of(file)?;
    // Its length, and four bytes that say what the file is, come last.
    let length_at = from.end.checked_sub(8).ok_or("it is too short for a footer")?;
    from.go_to(length_at)?;
    let length = from.length()?;
    let too_long = || format!("a footer of {length} bytes is longer than the file");
    let start = length_at.checked_sub(length).ok_or_else(too_long)?;
    from.go_to(start)?;
    from.check(&FILE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thrift::tests::{MANY, file_of};

    /// The decoder took 5 s for a footer of nine bytes, and 517 s for one of 900.
    #[test]
    fn a_footer_that_claims_more_than_it_has_is_refused() {
        let footer = |fields: &[u8]| {
            let length = u32::try_from(fields.len()).unwrap().to_le_bytes();
            check(&file_of(&[b"PAR1", fields, &length, b"PAR1"].concat()))
        };
        assert_eq!(footer(&[0x15, 0x02, 0x00]), Ok(()));
        assert_eq!(footer(&[&[0xb9, 0xf1][..], &MANY].concat()).unwrap_err(), "a list of 34359738367 booleans");
        assert!(footer(&[&[0xb9, 0xf7][..], &MANY].concat()).unwrap_err().contains("beyond the end"));
        // A row group whose columns are said to be a text, in which the decoder would find such a list.
        assert_eq!(footer(&[0x49, 0x1c, 0x18, 0x02]).unwrap_err(), "a value of type 8 in place of a list");
        assert!(check(&file_of(b"PAR1")).unwrap_err().contains("too short"));
        assert!(check(&file_of(b"\xff\xff\xff\xffPAR1")).unwrap_err().contains("longer than the file"));
    }
}
