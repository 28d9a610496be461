//! The multi-generation LRU (MGLRU): reads its generations, and creates new ones.
//!
//! MGLRU sorts the pages of each memory cgroup and node into two to four *generations*. They are numbered upwards, and
//! the highest number is the youngest. *Aging* creates a generation: the kernel walks the page tables of the cgroup's
//! processes under the mmap read lock, clears accessed bits, and promotes the pages whose bit was set. It does not
//! flush the TLB. `isotherm-sources` uses aging to clear bits, and generations as hints, and finds out which bits of a
//! page's flags hold its generation.
//!
//! The interface is one debugfs file, meant for experiments (admin-guide/mm/multigen_lru). It counts and ages by
//! cgroup: aging for one process ages its whole cgroup.

mod memcg;
mod text;
pub mod zones;

pub use memcg::{Generation, Memcg, Node};

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The maximum number of generations at a time.
pub const MAX_GENERATIONS: u64 = 4;
/// Features that must be on: MGLRU itself, and clearing the accessed bits in page tables during aging.
const PARTS: u64 = 1 | 2;

/// Why MGLRU cannot be used here, or what failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Something it needs is missing.
    #[error("MGLRU cannot be used: {lacking}; {advice}")]
    Missing {
        /// What is missing.
        lacking: String,
        /// What to do next.
        advice: &'static str,
    },
    /// The file does not have its documented format.
    #[error("read {path}: line {line}: expected {expected}, got {got:?}", path = path.display())]
    Unexpected {
        /// The file.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// What should have been there.
        expected: &'static str,
        /// What was there.
        got: String,
    },
    /// No memory cgroup accounts for this path.
    #[error("{path}: no memory cgroup for {cgroup:?}; run outside of containers, whose paths are others", path = path.display())]
    NoMemcg {
        /// The file that lists them.
        path: PathBuf,
        /// The path that was searched for.
        cgroup: String,
    },
    /// The bits that hold a page's generation could not be located.
    #[error(
        "locate the generation in the page flags of this kernel: {0}; page generations are not used, to avoid wrong ones"
    )]
    Unplaced(String),
    /// Reading or writing failed.
    #[error("{attempted}: {source}")]
    Io {
        /// What was attempted, on what.
        attempted: String,
        /// The system's error.
        source: io::Error,
    },
}

/// This kernel's MGLRU, checked to be usable.
#[derive(Clone, Debug)]
pub struct LruGen {
    file: PathBuf,
}

impl LruGen {
    /// Checks whether it can be used. `sys` is the mount point of sysfs, with debugfs at `kernel/debug` in it.
    pub fn open(sys: &Path) -> Result<LruGen, Error> {
        let missing = |lacking: String, advice| Err(Error::Missing { lacking, advice });
        let switch = sys.join("kernel/mm/lru_gen/enabled");
        let enabled = match fs::read_to_string(&switch) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return missing(format!("no {}", switch.display()), "use a kernel with CONFIG_LRU_GEN=y");
            }
            Err(source) => return Err(Error::Io { attempted: format!("read {}", switch.display()), source }),
        };
        let parts = u64::from_str_radix(enabled.trim().trim_start_matches("0x"), 16).unwrap_or(0);
        if parts & PARTS != PARTS {
            return missing(
                format!("{} is {}", switch.display(), enabled.trim()),
                "have the administrator write y to it",
            );
        }
        let file = sys.join("kernel/debug/lru_gen");
        match OpenOptions::new().read(true).write(true).open(&file) {
            Ok(_) => Ok(LruGen { file }),
            Err(e) if e.kind() == io::ErrorKind::NotFound => missing(
                format!("no {}", file.display()),
                "mount debugfs there (mount -t debugfs none /sys/kernel/debug), on a kernel with CONFIG_DEBUG_FS=y",
            ),
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => missing(
                format!("may not write {}", file.display()),
                "run as root; kernel lockdown forbids debugfs altogether",
            ),
            Err(source) => Err(Error::Io { attempted: format!("open {}", file.display()), source }),
        }
    }

    /// All cgroups. Costs a few microseconds per cgroup and node of the machine.
    pub fn read(&self) -> Result<Vec<Memcg>, Error> {
        let bytes = fs::read(&self.file)
            .map_err(|source| Error::Io { attempted: format!("read {}", self.file.display()), source })?;
        text::parse(&String::from_utf8_lossy(&bytes)).map_err(|(line, expected, got)| Error::Unexpected {
            path: self.file.clone(),
            line,
            expected,
            got,
        })
    }

    /// The cgroup that accounts for the memory of processes at `cgroup`: that cgroup itself, or its nearest ancestor
    /// with memory accounting.
    pub fn of_path(&self, cgroup: &str) -> Result<Memcg, Error> {
        let nearest = nearest(self.read()?, cgroup);
        nearest.ok_or_else(|| Error::NoMemcg { path: self.file.clone(), cgroup: cgroup.to_owned() })
    }

    /// Ages the pages of one cgroup on one node, anonymous memory included, in all page tables of its processes.
    /// `youngest` is the number of the youngest generation as read. If a younger one exists by now, nothing is done.
    ///
    /// A process whose mmap lock is held for writing at that moment is skipped silently.
    pub fn age(&self, memcg: &Memcg, node: u32, youngest: u64) -> Result<(), Error> {
        // ... [can_swap [force_scan]]: age anonymous memory even without swap, and walk all tables, not only worthwhile
        // ones.
        let command = format!("+ {} {node} {youngest} 1 1\n", memcg.id);
        let written = OpenOptions::new().write(true).open(&self.file).and_then(|mut f| f.write_all(command.as_bytes()));
        written.map_err(|source| Error::Io {
            attempted: format!(
                "write {:?} to {} (age cgroup {:?} on node {node})",
                command.trim_end(),
                self.file.display(),
                memcg.path
            ),
            source,
        })
    }

    /// Ages a cgroup on every node where it has pages.
    pub fn age_all(&self, memcg: &Memcg) -> Result<(), Error> {
        let populated = |n: &&Node| n.generations.iter().any(|g| g.anon_pages + g.file_pages > 0);
        for node in memcg.nodes.iter().filter(populated) {
            if let Some((_, youngest)) = node.span() {
                self.age(memcg, node.id, youngest)?;
            }
        }
        Ok(())
    }
}

/// The cgroup at `path`, or its nearest ancestor.
fn nearest(memcgs: Vec<Memcg>, path: &str) -> Option<Memcg> {
    let above = |memcg: &Memcg| Path::new(path).starts_with(if memcg.path.is_empty() { "/" } else { &memcg.path });
    memcgs.into_iter().filter(above).max_by_key(|memcg| memcg.path.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    /// As a Debian kernel 6.12 with two nodes prints it.
    const TEXT: &str = include_str!("two_nodes.txt");

    fn machine(files: &[(&str, &str)]) -> TempDir {
        let dir = TempDir::new().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        dir
    }

    fn lacking(files: &[(&str, &str)]) -> String {
        LruGen::open(machine(files).path()).unwrap_err().to_string()
    }

    const ON: (&str, &str) = ("kernel/mm/lru_gen/enabled", "0x0007\n");
    const FILE: &str = "kernel/debug/lru_gen";

    #[test]
    fn what_is_missing_is_named() {
        assert!(lacking(&[]).contains("CONFIG_LRU_GEN"));
        assert!(lacking(&[("kernel/mm/lru_gen/enabled", "0x0000\n"), (FILE, TEXT)]).contains("is 0x0000; have the"));
        let unwalked = lacking(&[("kernel/mm/lru_gen/enabled", "0x0005\n"), (FILE, TEXT)]);
        assert!(unwalked.contains("is 0x0005"), "it would age without clearing accessed bits");
        assert!(lacking(&[ON]).contains("mount debugfs"));
    }

    #[test]
    fn a_process_belongs_to_the_nearest_cgroup_that_is_accounted_for() {
        let dir = machine(&[ON, (FILE, TEXT)]);
        let mglru = LruGen::open(dir.path()).unwrap();
        let id = |path| mglru.of_path(path).unwrap().id;
        assert_eq!((id("/"), id("/a"), id("/a/b"), id("/ab")), (1, 2, 2, 1));
        assert_eq!(mglru.of_path("/a").unwrap().nodes[0].span(), Some((0, 3)));
    }

    #[test]
    fn aging_asks_for_each_node_that_has_pages() {
        let dir = machine(&[ON, (FILE, TEXT)]);
        let mglru = LruGen::open(dir.path()).unwrap();
        let root = mglru.of_path("/").unwrap();
        // A plain file keeps what was written last at its beginning.
        mglru.age_all(&root).unwrap();
        assert!(fs::read_to_string(dir.path().join(FILE)).unwrap().starts_with("+ 1 1 3 1 1\n"));
        let gone = TempDir::new().unwrap();
        let error = LruGen { file: gone.path().join("lru_gen") }.age(&root, 0, 4).unwrap_err().to_string();
        assert!(error.contains("\"+ 1 0 4 1 1\"") && error.contains("cgroup \"/\" on node 0"), "{error}");
    }
}
