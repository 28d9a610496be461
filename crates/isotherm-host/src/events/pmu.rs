//! One event source under `/sys/bus/event_source/devices`: its type, its CPUs, its terms and its events.
//!
//! Nothing is assumed: virtual machines offer sources with events but without formats, with empty files, or with the
//! events of another CPU. Each such case is an error that names the file.

use super::error::{Found, NamedError};
use super::terms::{self, Field, Term, Word};
use isotherm_sys::cpus::list_numbers;
use isotherm_sys::perf::Event;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Where event sources are, below `/sys`.
const DEVICES: &str = "bus/event_source/devices";

/// An event source.
#[derive(Debug)]
pub(super) struct Pmu {
    pub(super) name: String,
    dir: PathBuf,
}

/// The expected form of the kernel's own lists of terms.
const TERMS: &str = "terms such as event=0xcd,umask=0x1";

impl Pmu {
    /// The event source of that name.
    pub(super) fn open(sys: &Path, name: &str) -> Result<Pmu, NamedError> {
        let pmu = Pmu { name: name.to_owned(), dir: sys.join(DEVICES).join(name) };
        if pmu.dir.is_dir() {
            return Ok(pmu);
        }
        let there = Pmu::all(sys)?.into_iter().map(|pmu| pmu.name).collect();
        Err(NamedError::NoPmu { path: pmu.dir, there: listed(there) })
    }

    /// All event sources, by name.
    pub(super) fn all(sys: &Path) -> Result<Vec<Pmu>, NamedError> {
        let devices = sys.join(DEVICES);
        let names = names(&devices).map_err(|e| file_error(&devices, "a directory of event sources", found(&e)))?;
        Ok(names.into_iter().map(|name| Pmu { dir: devices.join(&name), name }).collect())
    }

    /// Those of CPU cores: one, or one for each kind of core on hybrid machines.
    pub(super) fn cores(sys: &Path) -> Result<Vec<Pmu>, NamedError> {
        Ok(Pmu::all(sys)?.into_iter().filter(Pmu::is_core).collect())
    }

    pub(super) fn is_core(&self) -> bool {
        self.name == "cpu" || self.name.starts_with("cpu_")
    }

    /// The number to put in `perf_event_attr.type`.
    pub(super) fn type_id(&self) -> Result<u32, NamedError> {
        const EXPECTED: &str = "the number of an event source";
        let path = self.dir.join("type");
        let text = read(&path, EXPECTED)?;
        text.parse().map_err(|_| file_error(&path, EXPECTED, Found::Text(text)))
    }

    /// The CPUs that it is for. Only sources that are not for all CPUs have such a list.
    pub(super) fn cpus(&self) -> Result<Option<Vec<u32>>, NamedError> {
        const EXPECTED: &str = "a list of processors such as 0-7,16";
        for file in ["cpus", "cpumask"] {
            let path = self.dir.join(file);
            if let Some(text) = read_if_there(&path, EXPECTED)? {
                let cpus = cpu_list(&text);
                return cpus.map(Some).ok_or_else(|| file_error(&path, EXPECTED, Found::Text(text)));
            }
        }
        Ok(None)
    }

    /// The highest precision of its events, if it is listed.
    pub(super) fn max_precise(&self) -> Result<Option<u8>, NamedError> {
        const EXPECTED: &str = "a number from 0 to 3";
        let path = self.max_precise_path();
        let Some(text) = read_if_there(&path, EXPECTED)? else { return Ok(None) };
        text.parse().map(Some).map_err(|_| file_error(&path, EXPECTED, Found::Text(text)))
    }

    pub(super) fn max_precise_path(&self) -> PathBuf {
        self.dir.join("caps/max_precise")
    }

    pub(super) fn has_event(&self, event: &str) -> bool {
        self.dir.join("events").join(event).is_file()
    }

    pub(super) fn has_term(&self, term: &str) -> bool {
        self.format(term).is_file()
    }

    /// The terms of an event that the source lists by name.
    pub(super) fn event_terms(&self, event: &str) -> Result<Vec<Term>, NamedError> {
        let path = self.dir.join("events").join(event);
        let text = read(&path, TERMS)?;
        let parsed = terms::parse(&text).map_err(|_| ());
        parsed.map_err(|()| file_error(&path, TERMS, Found::Text(text)))
    }

    fn format(&self, term: &str) -> PathBuf {
        self.dir.join("format").join(term)
    }

    /// The bits that a term sets. The four numbers themselves are terms of every source.
    pub(super) fn field(&self, term: &str) -> Result<Field, NamedError> {
        const EXPECTED: &str = "bits such as config:0-7,32-35";
        if let Some(word) = Word::parse(term) {
            return Ok(Field::whole(word));
        }
        let path = self.format(term);
        match read_if_there(&path, EXPECTED)? {
            Some(text) => Field::parse(&text).ok_or_else(|| file_error(&path, EXPECTED, Found::Text(text))),
            None => Err(NamedError::NoTerm { path, there: self.vocabulary() }),
        }
    }

    /// The terms and events that it has, for error messages.
    fn vocabulary(&self) -> String {
        // Units and scales of an event lie next to it, with a dot in their names.
        let plain = |names: Vec<String>| listed(names.into_iter().filter(|name| !name.contains('.')).collect());
        let listed_in = |dir: &str| names(&self.dir.join(dir)).map_or_else(|_| format!("no {dir}/"), plain);
        format!("terms: {}; events: {}", listed_in("format"), listed_in("events"))
    }

    /// An event from its terms. Named events are applied first, so that a term changes one of them wherever it stands.
    pub(super) fn compose(&self, terms: &[Term]) -> Result<Event, NamedError> {
        let mut event = Event::new(self.type_id()?, 0);
        let (names, values): (Vec<&Term>, Vec<&Term>) =
            terms.iter().partition(|term| term.value.is_none() && self.has_event(&term.name));
        for name in names {
            for term in self.event_terms(&name.name)? {
                self.put(&mut event, &term)?;
            }
        }
        values.into_iter().try_for_each(|term| self.put(&mut event, term))?;
        Ok(event)
    }

    fn put(&self, event: &mut Event, term: &Term) -> Result<(), NamedError> {
        let field = self.field(&term.name)?;
        let value = term.value.unwrap_or(1);
        if field.put(event, value) {
            return Ok(());
        }
        let path = self.format(&term.name);
        Err(NamedError::TooLarge { term: term.name.clone(), value, bits: field.bits(), path })
    }
}

/// `a, b, c`, or `none`.
fn listed(names: Vec<String>) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// The names in a directory, sorted.
fn names(dir: &Path) -> io::Result<Vec<String>> {
    let mut names: Vec<String> =
        fs::read_dir(dir)?.flatten().filter_map(|e| e.file_name().into_string().ok()).collect();
    names.sort_unstable();
    Ok(names)
}

/// The CPUs of a list such as `0-3,8`, sorted, each once.
fn cpu_list(list: &str) -> Option<Vec<u32>> {
    let mut cpus = list_numbers(list)?;
    cpus.sort_unstable();
    cpus.dedup();
    Some(cpus)
}

/// The text of a file that must exist, trimmed.
pub(super) fn read(path: &Path, expected: &'static str) -> Result<String, NamedError> {
    read_if_there(path, expected)?.ok_or_else(|| file_error(path, expected, Found::Nothing))
}

/// The text of a file, if there is one.
pub(super) fn read_if_there(path: &Path, expected: &'static str) -> Result<Option<String>, NamedError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).trim().to_owned())),
        Err(e) if found(&e) == Found::Nothing => Ok(None),
        Err(e) => Err(file_error(path, expected, found(&e))),
    }
}

fn found(error: &io::Error) -> Found {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Found::Nothing,
        _ => Found::Unreadable(error.to_string()),
    }
}

pub(super) fn file_error(path: &Path, expected: &'static str, found: Found) -> NamedError {
    NamedError::File { path: path.to_owned(), expected, found }
}

#[cfg(test)]
mod tests {
    use super::cpu_list;

    #[test]
    fn lists_of_processors() {
        assert_eq!(cpu_list("0-3,8"), Some(vec![0, 1, 2, 3, 8]));
        assert_eq!(cpu_list("5"), Some(vec![5]));
        assert_eq!(cpu_list("4,0-1,1"), Some(vec![0, 1, 4]));
        assert_eq!(cpu_list(""), Some(vec![]));
        for nonsense in ["-", "3-1", "a", "0-", "0,,1", "0-4294967295", "1 2"] {
            assert_eq!(cpu_list(nonsense), None, "{nonsense:?}");
        }
    }
}
