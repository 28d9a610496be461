//! A kernel with DAMON in a temporary directory: it makes directories, starts threads and refuses, as the real one does.

use super::sysfs::{DIR, Sysfs};
use super::{Attributes, Error, Kdamond, Operations, Places};
use crate::roots::HostRoots;
use std::cell::RefCell;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use tempfile::TempDir;

/// What this kernel can and what happens in it.
#[derive(Debug)]
pub(super) struct Behaviour {
    pub operations: &'static str,
    pub tunes: bool,
    /// Writes to these are refused as if the kernel were busy, so many times.
    pub busy: Vec<(&'static str, u32)>,
    /// All that was written.
    pub journal: Vec<String>,
    /// `write` number so and so does not return: we are killed in it, before or after it has its effect.
    pub killed_at: Option<(usize, bool)>,
    next_thread: u32,
}

#[derive(Clone, Debug)]
pub(super) struct FakeKernel {
    dir: Rc<TempDir>,
    pub behaviour: Rc<RefCell<Behaviour>>,
}

impl FakeKernel {
    pub(super) fn new() -> FakeKernel {
        let behaviour = Behaviour {
            operations: "vaddr fvaddr paddr",
            tunes: false,
            busy: Vec::new(),
            journal: Vec::new(),
            killed_at: None,
            next_thread: 500,
        };
        let kernel = FakeKernel { dir: Rc::new(TempDir::new().unwrap()), behaviour: Rc::new(RefCell::new(behaviour)) };
        kernel.file(&format!("sys/{DIR}/nr_kdamonds"), "0\n");
        kernel.file("proc/sys/kernel/random/boot_id", "first-boot\n");
        kernel.file("sys/module/damon_reclaim/parameters/enabled", "N\n");
        kernel.process(2, "kthreadd", true, 1);
        kernel.process(70, "redis-server", false, 800);
        kernel.process(71, "postgres", false, 900);
        kernel
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(super) fn file(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub(super) fn process(&self, pid: u32, comm: &str, kernel: bool, start: u64) {
        let flags = if kernel { 2_129_984 } else { 4_194_304 };
        let stat = format!("{pid} ({comm}) S 2 0 0 0 -1 {flags} 0 0 0 0 0 0 0 0 20 0 1 0 {start} 0 0 0 0 0 0 0\n");
        self.file(&format!("proc/{pid}/stat"), &stat);
    }

    pub(super) fn places(&self) -> Places {
        let roots = HostRoots { proc: self.path("proc"), sys: self.path("sys"), boot: self.path("boot") };
        Places { roots, state: self.path("run/isotherm") }
    }

    pub(super) fn claim(&self, operations: Operations) -> Result<Kdamond, Error> {
        Kdamond::claim_in(Box::new(self.clone()), &self.places(), operations, &Attributes::default())
    }

    pub(super) fn damon(&self, name: &str) -> String {
        fs::read_to_string(self.path(&format!("sys/{DIR}/{name}"))).unwrap_or_default().trim().to_owned()
    }

    /// As somebody else would.
    pub(super) fn other_writes(&self, name: &str, value: &str) {
        self.take(name, value).unwrap();
    }

    /// Whether DAMON is as it was before anybody used it.
    pub(super) fn is_untouched(&self) -> bool {
        let left: Vec<_> = fs::read_dir(self.path(&format!("sys/{DIR}"))).unwrap().collect();
        self.damon("nr_kdamonds") == "0" && left.len() == 1
    }

    fn put(&self, name: &str, text: &str) {
        self.file(&format!("sys/{DIR}/{name}"), &format!("{text}\n"));
    }

    fn directories(&self, parent: &str, count: &str, files: &[(&str, &str)]) -> io::Result<()> {
        let count: u32 = count.parse().map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
        for i in 0.. {
            let dir = self.path(&format!("sys/{DIR}/{parent}{i}"));
            if !dir.exists() {
                break;
            }
            fs::remove_dir_all(dir).unwrap();
        }
        for i in 0..count {
            files.iter().for_each(|(name, text)| self.put(&format!("{parent}{i}/{name}"), text));
        }
        Ok(())
    }

    fn take(&self, name: &str, value: &str) -> io::Result<()> {
        let refuse = |code| Err(io::Error::from_raw_os_error(code));
        let file = Path::new(name).file_name().unwrap().to_str().unwrap();
        let parent = name.strip_suffix(file).unwrap();
        if !self.path(&format!("sys/{DIR}/{name}")).exists() {
            return refuse(libc::ENOENT);
        }
        let behaviour = self.behaviour.borrow();
        match file {
            "nr_kdamonds" => {
                if self.damon("0/state") == "on" {
                    return refuse(libc::EBUSY);
                }
                let files = [("state", "off"), ("pid", "-1"), ("contexts/nr_contexts", "0")];
                self.directories(parent, value, &files)?;
            }
            "nr_contexts" => {
                let intervals = "monitoring_attrs/intervals";
                let goal = ["access_bp", "aggrs", "min_sample_us", "max_sample_us"]
                    .map(|f| format!("{intervals}/intervals_goal/{f}"));
                let mut files = vec![
                    ("avail_operations", behaviour.operations),
                    ("operations", "vaddr"),
                    ("monitoring_attrs/intervals/sample_us", "5000"),
                    ("monitoring_attrs/intervals/aggr_us", "100000"),
                    ("monitoring_attrs/intervals/update_us", "60000000"),
                    ("monitoring_attrs/nr_regions/min", "10"),
                    ("monitoring_attrs/nr_regions/max", "1000"),
                    ("targets/nr_targets", "0"),
                    ("schemes/nr_schemes", "0"),
                ];
                files.extend(goal.iter().filter(|_| behaviour.tunes).map(|f| (f.as_str(), "0")));
                self.directories(parent, value, &files)?;
            }
            "nr_targets" => self.directories(parent, value, &[("pid_target", "0"), ("regions/nr_regions", "0")])?,
            "nr_regions" => self.directories(parent, value, &[("start", "0"), ("end", "0")])?,
            "operations" if !behaviour.operations.split(' ').any(|o| o == value) => return refuse(libc::EINVAL),
            "state" => {
                drop(behaviour);
                return self.order(value);
            }
            _ => {}
        }
        self.put(name, value);
        Ok(())
    }

    fn order(&self, word: &str) -> io::Result<()> {
        let refuse = |code| Err(io::Error::from_raw_os_error(code));
        let running = self.damon("0/state") == "on";
        match word {
            "on" if running => return refuse(libc::EBUSY),
            "on" if !self.targets_live() => return refuse(libc::EINVAL),
            "commit" if running && !self.targets_live() => self.end_thread(),
            "on" => {
                let mut behaviour = self.behaviour.borrow_mut();
                behaviour.next_thread += 1;
                let thread = behaviour.next_thread;
                self.process(thread, "kdamond.0", true, 1 << 40);
                self.put("0/pid", &thread.to_string());
                self.put("0/state", "on");
            }
            "off" if running => self.end_thread(),
            _ if !running => return refuse(libc::EINVAL),
            _ => {}
        }
        Ok(())
    }

    /// The thread ends: by order, or because its targets have.
    pub(super) fn end_thread(&self) {
        let _ = fs::remove_dir_all(self.path(&format!("proc/{}", self.damon("0/pid"))));
        self.put("0/pid", "-1");
        self.put("0/state", "off");
    }

    fn targets_live(&self) -> bool {
        let count: u32 = self.damon("0/contexts/0/targets/nr_targets").parse().unwrap();
        let lives = |i| {
            let pid = self.damon(&format!("0/contexts/0/targets/{i}/pid_target"));
            pid == "0" || self.path(&format!("proc/{pid}/stat")).exists()
        };
        (0..count).all(lives)
    }
}

/// What stands for our own sudden end.
pub(super) const KILLED: &str = "killed";

impl Sysfs for FakeKernel {
    fn read(&self, name: &str) -> io::Result<String> {
        fs::read_to_string(self.path(&format!("sys/{DIR}/{name}")))
    }

    fn write(&self, name: &str, value: &str) -> io::Result<()> {
        let mut behaviour = self.behaviour.borrow_mut();
        if let Some((_, left)) = behaviour.busy.iter_mut().find(|(file, left)| *file == name && *left > 0) {
            *left -= 1;
            return Err(io::Error::from_raw_os_error(libc::EBUSY));
        }
        let number = behaviour.journal.len();
        let killed = behaviour.killed_at.filter(|(at, _)| *at <= number);
        behaviour.journal.push(format!("{name} {value}"));
        drop(behaviour);
        match killed {
            None => self.take(name, value),
            Some((at, after)) => {
                if after && at == number {
                    self.take(name, value)?;
                }
                Err(io::Error::other(KILLED))
            }
        }
    }
}
