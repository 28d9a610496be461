//! Names in the spool. Pure.
//!
//! An object's path in the store is the name of its file, with a comma for each slash: a folder for each level would have to be made and
//! synced too. Commas do not occur in the paths of objects.

use std::fmt;

/// An object that waits. Its order is its age: sequence numbers only grow.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId {
    /// Of the batches that it was made from.
    pub sequence: u64,
    /// Where it goes in the store, such as `v1/heat/date=2026-11-24/hour=07/<name>.parquet`.
    pub path: String,
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)
    }
}

/// The name of the file of an object. `None` if a store would take its path for another.
pub fn file_name(path: &str) -> Option<String> {
    let is_plain = |part: &str| {
        !part.is_empty()
            && !part.starts_with('.')
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"=-_.".contains(&byte))
    };
    path.split('/').all(is_plain).then(|| path.replace('/', ","))
}

/// The path of the object in a file. `None` if it is none of ours.
pub fn path_of(file_name: &str) -> Option<String> {
    let path = file_name.replace(',', "/");
    (self::file_name(&path)? == file_name && path.ends_with(".parquet")).then_some(path)
}

/// The name of the file of batches, and of the folder of objects, of a sequence number. They sort as numbers do.
pub fn of_sequence(sequence: u64) -> String {
    format!("{sequence:020}")
}

/// The sequence number of such a name.
pub fn sequence_of(name: &str) -> Option<u64> {
    let sequence = name.parse().ok()?;
    (of_sequence(sequence) == name).then_some(sequence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_names_of_files_are_one_to_one() {
        let path = "v1/heat/date=2026-11-24/hour=07/0123456789abcdef0123456789abcdef.parquet";
        let name = file_name(path).unwrap();
        assert_eq!(name, "v1,heat,date=2026-11-24,hour=07,0123456789abcdef0123456789abcdef.parquet");
        assert_eq!(path_of(&name).as_deref(), Some(path));
    }

    #[test]
    fn what_could_leave_the_folder_is_no_path() {
        for bad in ["", "/a", "a/", "a//b", "../a", "a/../b", ".a", "a,b", "a#1", "a b", "a/ä"] {
            assert_eq!(file_name(bad), None, "{bad}");
        }
        for bad in ["a", "a.parquet.new", "..,a.parquet", "a/b.parquet", ",a.parquet"] {
            assert_eq!(path_of(bad), None, "{bad}");
        }
    }

    #[test]
    fn sequence_numbers_sort_as_names() {
        let names: Vec<String> = [0, 9, 10, u64::MAX].map(of_sequence).into();
        assert!(names.is_sorted());
        assert_eq!(names.iter().map(|name| sequence_of(name)).collect::<Vec<_>>(), [0, 9, 10, u64::MAX].map(Some));
        assert_eq!((sequence_of("7"), sequence_of("x"), sequence_of("00000000000000000007.log")), (None, None, None));
    }
}
