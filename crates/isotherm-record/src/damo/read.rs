//! Reads a file of damo, from any writer.
//!
//! Compressed text is parsed while it is unpacked, so it is in memory only once, as records. At most [`MAX_TEXT`] of it
//! is unpacked, since a few MiB of zlib can stand for any amount. Records are charged while they are parsed
//! (`charged`).

use super::charged;
use super::join::{self, Notes};
use super::model::{Record, Records, is_known};
use super::text;
use crate::allowance::{Allowance, size_of_data};
use crate::error::counted;
use crate::{Error, Result};
use flate2::bufread::ZlibDecoder;
use isotherm_heat::{RunInfo, Snapshot};
use isotherm_units::Bytes;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};

/// The most text that is read from one file: some million regions, which take about as much memory.
const MAX_TEXT: u64 = 2 << 30;

/// Assumed length of data from a pipe, for the memory limit.
const SIZE_OF_PIPE: u64 = 4 << 20;

/// No name, text or number of damo comes near this.
const MAX_WORD: Bytes = Bytes(1 << 20);

/// Names of unknown fields that are reported.
const MAX_NAMES: usize = 8;

/// The contents of a damo recording, in our types.
#[derive(Clone, Debug, PartialEq)]
pub struct DamoRecording {
    /// How it was made, as far as that is known.
    pub run: RunInfo,
    /// Its snapshots in order of time.
    pub snapshots: Vec<Snapshot>,
    /// What a user should know about how it was understood, a sentence each.
    pub notes: Vec<String>,
}

/// Reads a recording of damo in any of its formats: `json_compressed`, `json` or `perf_script`.
pub fn read(path: impl AsRef<Path>) -> Result<DamoRecording> {
    read_within(path, None)
}

/// Like [`read`], with a memory limit. With `None`, the limit follows from the file's size.
pub fn read_within(path: impl AsRef<Path>, max_memory: Option<Bytes>) -> Result<DamoRecording> {
    read_up_to(path.as_ref(), MAX_TEXT, max_memory)
}

/// Like [`read_within`], with another bound on text.
pub(super) fn read_up_to(path: &Path, max_text: u64, max_memory: Option<Bytes>) -> Result<DamoRecording> {
    let open = |error| Error::Open { path: path.to_owned(), error };
    let file = File::open(path).map_err(open)?;
    let there = file.metadata().map_err(open)?;
    let size = if there.is_file() { size_of_data(&file) } else { SIZE_OF_PIPE };
    let mut file = BufReader::with_capacity(1 << 16, file);
    let begin = file.fill_buf().map_err(open)?.to_vec();
    let place = Place { path, max_text, allowance: Allowance::new(path, size, max_memory.map(|bytes| bytes.0)) };
    let mut notes = Notes::default();
    let records = match Form::of(&begin).map_err(|(what, advice)| place.error(what, advice))? {
        Form::Compressed => place.json(ZlibDecoder::new(file), &mut notes)?,
        Form::Json => place.json(file, &mut notes)?,
        Form::Script => place.script(file, &mut notes)?,
    };
    let (run, snapshots) =
        join::recording(records, &mut notes).map_err(|what| place.error(what, "restore the file, or record again"))?;
    Ok(DamoRecording { run, snapshots, notes: notes.sentences() })
}

/// The format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Compressed,
    Json,
    Script,
}

impl Form {
    /// Detects the format from the first bytes. The error is what the file is instead, and what to do.
    fn of(begin: &[u8]) -> std::result::Result<Form, (&'static str, &'static str)> {
        let first = begin.iter().find(|b| !b.is_ascii_whitespace());
        match (begin, first) {
            (_, None) => Err(("the file is empty", "record again")),
            (_, Some(b'[')) => Ok(Form::Json),
            (_, Some(b'{')) => Err((
                "it is one JSON object and not a list of records: not from damo, or from a version later than 3.4",
                "write it with damo's `--format json_compressed` of version 3",
            )),
            ([0x78, flags, ..], _) if is_zlib(*flags) => Ok(Form::Compressed),
            ([b'P', b'E', b'R', b'F', b'I', b'L', b'E', ..], _) => {
                Err(("it is a file of perf, which only perf can read", "convert it: damo convert_record_format"))
            }
            _ if contains(begin, text::EVENT.as_bytes()) => Ok(Form::Script),
            _ => Err((
                "it is neither zlib nor JSON nor the text of `perf script`",
                "give a file that `damo record` wrote, or the directory of an Isotherm recording (this is not a directory)",
            )),
        }
    }
}

/// Whether the second byte is valid for zlib. A byte that announces a dictionary is refused: with it, text that starts
/// with `x ` would pass as a header.
fn is_zlib(flags: u8) -> bool {
    (0x7800 + u16::from(flags)).is_multiple_of(31) && flags & 0x20 == 0
}

fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|w| w == wanted)
}

/// Context for errors.
struct Place<'a> {
    path: &'a Path,
    max_text: u64,
    allowance: Allowance,
}

impl Place<'_> {
    fn error(&self, what: impl Into<String>, advice: &'static str) -> Error {
        Error::Damo { path: PathBuf::from(self.path), what: what.into(), advice }
    }

    fn json(&self, from: impl Read, notes: &mut Notes) -> Result<Vec<Record>> {
        let mut unknown = BTreeSet::new();
        let text = BufReader::new(Words::of(Limited { from, left: self.max_text }));
        let mut parser = serde_json::Deserializer::from_reader(text);
        let parse = || {
            serde_ignored::deserialize(&mut parser, |field| {
                if let serde_ignored::Path::Map { key, .. } = field
                    && !is_known(&key)
                    && unknown.len() <= MAX_NAMES
                {
                    unknown.insert(key.chars().take(40).collect::<String>());
                }
            })
        };
        let records = charged::within(self.allowance.left(), parse).ok_or_else(|| self.allowance.exceeded())?;
        // Parses to the end of the text: the checksum of the compressed form is checked only there.
        let records = records.and_then(|Records(records)| parser.end().map(|()| records));
        notes.unknown_fields(&unknown);
        records.map_err(|error| self.json_error(&error))
    }

    fn json_error(&self, error: &serde_json::Error) -> Error {
        const RESTORE: &str = "restore the file, or record again";
        let shape = || format!("it does not have the structure of a damo recording: {error}");
        match error.io_error_kind() {
            Some(ErrorKind::FileTooLarge) => self.too_large(),
            Some(ErrorKind::OutOfMemory) => {
                self.error(format!("a name or number in it has more than {MAX_WORD}"), RESTORE)
            }
            Some(ErrorKind::UnexpectedEof) => self.error("it is cut off", RESTORE),
            Some(_) => self.error(format!("it is damaged: {error}"), RESTORE),
            None if error.is_eof() => self.error("it is cut off", RESTORE),
            None if error.is_syntax() => self.error(format!("it is damaged: {error}"), RESTORE),
            None => self.error(shape(), "check that damo wrote it"),
        }
    }

    fn too_large(&self) -> Error {
        let limit = Bytes(self.max_text);
        self.error(
            format!("its text is longer than {limit}, the most that is read"),
            "make it shorter: damo adjust --aggregate_interval",
        )
    }

    fn script(&self, from: impl Read, notes: &mut Notes) -> Result<Vec<Record>> {
        let lines = BufReader::new(Limited { from, left: self.max_text });
        let records = text::read(lines, &mut self.allowance.clone()).map_err(|error| match error {
            text::Failed::Memory(error) => error,
            text::Failed::Io(e) if e.kind() == ErrorKind::FileTooLarge => self.too_large(),
            text::Failed::Io(error) => Error::Open { path: self.path.to_owned(), error },
            text::Failed::Line(n, what) => self.error(format!("line {n}: {what}"), "restore the file, or record again"),
        })?;
        if let Some(cut) = text::incomplete(&records) {
            notes.say(format!("the text ends within a snapshot: {} of it skipped", counted(cut, "region")));
        }
        Ok(records.into_iter().map(|r| r.record).collect())
    }
}

/// JSON in which no name, text or number is longer than [`MAX_WORD`]. The parser needs each in one piece, twice.
struct Words<R> {
    from: R,
    /// Bytes since the current word began.
    length: u64,
    in_text: bool,
    escaped: bool,
}

impl<R> Words<R> {
    fn of(from: R) -> Words<R> {
        Words { from, length: 0, in_text: false, escaped: false }
    }

    /// Whether the word that `byte` belongs to is still short enough.
    fn take(&mut self, byte: u8) -> bool {
        let ends = match (self.in_text, byte) {
            _ if std::mem::take(&mut self.escaped) => false,
            (true, b'\\') => {
                self.escaped = true;
                false
            }
            (_, b'"') => {
                self.in_text = !self.in_text;
                true
            }
            (true, _) => false,
            (false, _) => byte.is_ascii_whitespace() || b",:[]{}".contains(&byte),
        };
        self.length = if ends { 0 } else { self.length + 1 };
        self.length <= MAX_WORD.0
    }
}

impl<R: Read> Read for Words<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let n = self.from.read(into)?;
        if into[..n].iter().all(|byte| self.take(*byte)) { Ok(n) } else { Err(ErrorKind::OutOfMemory.into()) }
    }
}

/// Fails at a limit instead of reading forever.
struct Limited<R> {
    from: R,
    left: u64,
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(into.len());
        if most == 0 && !into.is_empty() {
            // A text of exactly the limit is allowed.
            return match self.from.read(&mut [0])? {
                0 => Ok(0),
                _ => Err(ErrorKind::FileTooLarge.into()),
            };
        }
        let n = self.from.read(&mut into[..most])?;
        self.left -= n as u64;
        Ok(n)
    }
}
