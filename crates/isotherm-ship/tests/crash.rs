//! A shipper to a folder that is killed with SIGKILL at each step. In the end the folder has the rows that were made, each once.

mod harness;

use harness::{Monitor, RowsByTable, Shipper, add_rows, all_is_sent, assert_same, rows_made, wait_until};
use isotherm_rng::Rng;
use isotherm_ship::status::Report;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Every step, at times that differ: the first, one in the middle, one in the second hour.
const POINTS: [&str; 26] = [
    "file.written",
    "file.written:4",
    "file.written:9",
    "file.renamed",
    "file.renamed:5",
    "log.made",
    "log.made:2",
    "batch.half",
    "batch.half:7",
    "batch.half:20",
    "batch.written:12",
    "batch.written:13",
    "batch.synced:5",
    "batch.synced:12",
    "hour.over",
    "hour.over:2",
    "object.written",
    "object.written:3",
    "objects.renamed",
    "objects.renamed:2",
    "log.removed",
    "put.answered",
    "put.answered:3",
    "object.counted:2",
    "object.counted:4",
    "object.removed:4",
];

struct Place {
    dir: tempfile::TempDir,
    monitor: Monitor,
}

impl Place {
    fn new() -> Place {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let monitor = Monitor::start(dir.path());
        Place { dir, monitor }
    }

    fn spool(&self) -> PathBuf {
        self.dir.path().join("spool")
    }

    fn store(&self) -> PathBuf {
        self.dir.path().join("store")
    }

    fn shipper(&self, stop_at: Option<&str>) -> Shipper {
        self.monitor.goes_on_after(&self.spool());
        let (socket, spool, store) = (self.monitor.socket.clone(), self.spool(), self.store());
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        let (socket, spool, store) = (text(&socket), text(&spool), text(&store));
        let arguments =
            ["--connect", &socket, "--spool", &spool, "--to", &store, "--spread", "0s", "--backoff", "50ms"];
        Shipper::start(&arguments, &[], stop_at)
    }

    fn is_done(&self) -> bool {
        all_is_sent(&self.spool(), &self.monitor) || all_but_the_open_hour(&self.spool(), &self.monitor)
    }

    /// Lets a shipper finish, and compares the rows.
    fn check(&self) {
        let shipper = self.shipper(None);
        // It handles signals when it has the lock of the spool.
        let is_running = || Report::read(&self.spool()).is_ok_and(|report| report.running);
        wait_until("all to be sent", || is_running() && self.is_done());
        assert!(shipper.terminate().success(), "SIGTERM ends it with 0");
        assert_same(&rows_in(&self.store()), &rows_made(&self.monitor));
        let report = Report::read(&self.spool()).unwrap();
        assert_eq!((report.counts.dropped_objects, report.counts.dropped_batches), (0, 0));
    }
}

/// The rows of a folder.
fn rows_in(folder: &Path) -> RowsByTable {
    let mut rows = RowsByTable::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let path = entry.path();
            match path.extension().and_then(|extension| extension.to_str()) {
                _ if path.is_dir() => folders.push(path),
                Some("parquet") => add_rows(&mut rows, path.to_str().unwrap(), std::fs::read(&path).unwrap()),
                _ => panic!("{} is no object", path.display()),
            }
        }
    }
    rows
}

/// The window after the last hour may be in the spool: the end of the program keeps it.
fn all_but_the_open_hour(spool: &Path, monitor: &Monitor) -> bool {
    Report::read(spool).is_ok_and(|report| {
        report.waiting.objects == 0
            && report.waiting.open_hours == 1
            && report.covered_until_unix_ns() > monitor.end_ns()
    })
}

#[test]
fn rows_are_in_the_store_once_wherever_it_is_killed() {
    if !cfg!(debug_assertions) {
        println!("skipped: needs a build with debug assertions (points at which to stop)");
        return;
    }
    for point in POINTS {
        println!("killed at {point}");
        let place = Place::new();
        let shipper = place.shipper(Some(point));
        assert!(shipper.has_stopped(|| place.is_done()), "it never came by {point}");
        shipper.kill();
        place.check();
    }
}

#[test]
fn rows_are_in_the_store_once_after_many_kills_at_any_time() {
    let seed = 20_261_124;
    println!("seed {seed}");
    let mut random = Rng::new(seed);
    let place = Place::new();
    let mut kills = 0;
    while !place.is_done() && kills < 60 {
        let shipper = place.shipper(None);
        std::thread::sleep(Duration::from_millis(5 + random.below(120)));
        shipper.kill();
        kills += 1;
    }
    println!("{kills} kills");
    place.check();
}

#[test]
fn a_restart_in_the_middle_of_an_hour_goes_on_with_it() {
    let place = Place::new();
    let shipper = place.shipper(Some("batch.synced:5"));
    if cfg!(debug_assertions) {
        assert!(shipper.has_stopped(|| place.is_done()));
    }
    shipper.kill();
    place.check();
    let mut objects = 0;
    for table in std::fs::read_dir(place.store().join("v1")).unwrap() {
        let table = table.unwrap().path();
        for date in std::fs::read_dir(&table).unwrap() {
            for hour in std::fs::read_dir(date.unwrap().path()).unwrap() {
                objects += std::fs::read_dir(hour.unwrap().path()).unwrap().count();
            }
        }
    }
    // hosts, wss, heat and idle have rows.
    assert_eq!(objects as u64, 4 * harness::HOURS, "one object for each table and hour");
}

#[test]
fn rules_are_read_again_and_wrong_ones_change_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    for folder in ["conf", "rules"] {
        std::fs::create_dir(at(folder)).unwrap();
    }
    // As kubelet and configuration managers do it: a link, which leads to another file then.
    let lead_to = |name: &str, text: &str| {
        std::fs::write(at(&format!("rules/{name}")), text).unwrap();
        std::os::unix::fs::symlink(format!("../rules/{name}"), at("conf/new")).unwrap();
        std::fs::rename(at("conf/new"), at("conf/settings.toml")).unwrap();
    };
    let write = |name: &str| lead_to(name, &format!("[[service]]\nmatch = '/redis[.]service$'\nname = '{name}'\n"));
    write("before");
    let (socket, spool, store, settings) = (at("stream.sock"), at("spool"), at("store"), at("conf/settings.toml"));
    let arguments =
        ["--connect", &socket, "--spool", &spool, "--to", &store, "--settings", &settings, "--spread", "0s"];
    let shipper = Shipper::start(&arguments, &[], None);
    shipper.until_it_says("is the monitor running");
    write("after");
    shipper.hang_up("were read again");
    lead_to("wrong", "[[service]]\nmatch = '('");
    shipper.hang_up("stay in force");
    let monitor = Monitor::start(dir.path());
    let spool = PathBuf::from(spool);
    wait_until("all to be sent", || all_is_sent(&spool, &monitor));
    assert!(shipper.terminate().success());
    let rows = rows_in(Path::new(&store));
    let has = |name: &str| rows["wss"].keys().any(|row| row.contains(&format!("\"{name}\"")));
    assert_eq!(["before", "after", "redis.service", "web.service"].map(has), [false, true, false, true], "{rows:?}");
}

#[test]
fn files_of_the_store_can_be_read_by_others_and_those_of_the_spool_cannot() {
    let place = Place::new();
    place.check();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&place.spool()), 0o700);
    let mut path = place.store();
    let mut modes = Vec::new();
    while path.is_dir() {
        modes.push(mode(&path));
        path = std::fs::read_dir(&path).unwrap().next().unwrap().unwrap().path();
    }
    modes.push(mode(&path));
    assert!(modes.iter().all(|mode| mode & 0o022 == 0), "only the owner writes: {modes:?}");
    let (file, folder) = (modes.pop().unwrap(), modes.pop().unwrap());
    assert_eq!((file | 0o044, folder | 0o055), (0o644, 0o755), "as the umask has it: {file:o} {folder:o}");
}

#[test]
fn once_sends_what_waits_and_the_status_shows_it() {
    let place = Place::new();
    let (spool, store) = (place.spool(), place.store());
    let (spool, store) = (spool.to_str().unwrap(), store.to_str().unwrap());
    // The store is away: a file is in its place.
    std::fs::create_dir_all(place.store()).unwrap();
    std::fs::write(place.store().join("v1"), "in the way").unwrap();
    let shipper = place.shipper(None);
    wait_until("objects to wait", || Report::read(&place.spool()).is_ok_and(|report| report.waiting.objects == 8));
    let report = Report::read(&place.spool()).unwrap();
    assert!(report.running);
    assert!(shipper.terminate().success());
    let once = ["--once", "--spool", spool, "--to", store, "--backoff", "5ms"];
    let ship = || std::process::Command::new(env!("CARGO_BIN_EXE_isotherm-ship")).args(once).status().unwrap();
    let failed = ship();
    assert_eq!(failed.code(), Some(1), "the store is still away");
    std::fs::remove_file(place.store().join("v1")).unwrap();
    assert!(ship().success());
    assert_same(&rows_in(&place.store()), &rows_made(&place.monitor));
    let status =
        std::process::Command::new(env!("CARGO_BIN_EXE_isotherm-ship")).args(["--status", spool, "--json"]).output();
    let report: Report = serde_json::from_slice(&status.unwrap().stdout).unwrap();
    assert_eq!((report.running, report.waiting.objects, report.counts.sent_objects), (false, 0, 8));
}

#[test]
fn a_shipper_that_runs_is_confined() {
    let place = Place::new();
    let shipper = place.shipper(None);
    let report = || Report::read(&place.spool()).ok().and_then(|report| report.shipper);
    wait_until("a status", || report().is_some());
    let status = std::fs::read_to_string(format!("/proc/{}/status", report().unwrap().pid)).unwrap();
    let value = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim).map(str::to_owned);
    assert_eq!(value("CapEff:").as_deref(), Some("0000000000000000"));
    assert_eq!(value("CapPrm:").as_deref(), Some("0000000000000000"));
    assert_eq!((value("NoNewPrivs:").as_deref(), value("Seccomp:").as_deref()), (Some("1"), Some("2")));
    assert!(shipper.terminate().success());
}
