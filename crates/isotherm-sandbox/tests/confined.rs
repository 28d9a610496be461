//! What a confined process can and cannot do, tried in a child of this test: policies cannot be undone.

use isotherm_sandbox::{Calls, Files, InForce, Part, Policy, Reach, Writes};
use rustix::net::{AddressFamily, SocketType};
use rustix::thread::CapabilitySet;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Set in the child: which case it is, and its folder.
const CASE: &str = "ISOTHERM_SANDBOX_CASE";
const FOLDER: &str = "ISOTHERM_SANDBOX_FOLDER";

/// Runs a case in a child, and returns what it printed: one `name: outcome` per line.
fn outcome_of(case: &str) -> Outcome {
    let folder = tempfile::tempdir().unwrap();
    for name in ["inside", "outside"] {
        fs::create_dir(folder.path().join(name)).unwrap();
        fs::write(folder.path().join(name).join("there"), name).unwrap();
    }
    let done = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "in_the_child", "--nocapture", "--test-threads=1"])
        .env(CASE, case)
        .env(FOLDER, folder.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{text}{}", String::from_utf8_lossy(&done.stderr));
    Outcome(text)
}

struct Outcome(String);

impl Outcome {
    /// The outcome of one attempt, and `None` for one that was not made.
    fn of(&self, name: &str) -> Option<&str> {
        self.0.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    fn is(&self, name: &str, outcome: &str) {
        assert_eq!(self.of(name), Some(outcome), "{name}, of\n{}", self.0);
    }

    /// Whether the child has read-only mounts. Says aloud if it lacks the privilege for them.
    fn has_mounts(&self) -> bool {
        let mounts = self.of("mounts").unwrap_or_default();
        if mounts.starts_with("NoPrivilege") {
            println!("skipped: needs CAP_SYS_ADMIN (read-only mounts)");
        }
        mounts == "On"
    }
}

#[test]
fn a_monitor_starts_no_program_and_reaches_no_network() {
    let seen = outcome_of("monitor");
    seen.is("system calls", "On");
    for attempt in ["spawn", "exec", "tcp", "unix", "executable memory", "perf event", "signal to another"] {
        seen.is(attempt, "EPERM");
    }
    for attempt in
        ["signal to itself", "thread", "own maps", "maps of another", "clear_refs", "write to an open file", "random"]
    {
        seen.is(attempt, "done");
    }
}

#[test]
fn a_monitor_writes_to_its_folders_and_nowhere_else() {
    let seen = outcome_of("monitor");
    if !seen.has_mounts() {
        return;
    }
    seen.is("write inside", "done");
    seen.is("rename inside", "done");
    seen.is("write here", "done");
    seen.is("write outside", "EROFS");
    seen.is("create outside", "EROFS");
    seen.is("remove outside", "EROFS");
    seen.is("setting of the kernel", "EROFS");
}

#[test]
fn a_monitor_keeps_the_capabilities_of_its_policy_only() {
    let seen = outcome_of("monitor");
    if seen.of("had capabilities") == Some("none") {
        println!("skipped: needs CAP_SYS_PTRACE (capabilities to keep)");
        return;
    }
    seen.is("capabilities", "CAP_SYS_PTRACE");
    seen.is("no_new_privs", "true");
}

#[test]
fn a_reader_of_files_reaches_those_that_were_named() {
    let seen = outcome_of("files");
    if seen.of("files").is_some_and(|files| files.starts_with("Unsupported")) {
        println!("skipped: needs Linux 5.13 with Landlock");
        return;
    }
    seen.is("files", "On");
    seen.is("read inside", "done");
    seen.is("write inside", "done");
    seen.is("read outside", "EACCES");
    seen.is("write outside", "EACCES");
    seen.is("spawn", "EPERM");
    seen.is("tcp", "EPERM");
    seen.is("maps of another", "EACCES");
}

#[test]
fn a_server_answers_where_it_listens_already_and_reaches_nothing_else() {
    let seen = outcome_of("server");
    seen.is("system calls", "On");
    for attempt in ["answer", "thread", "write to an open file"] {
        seen.is(attempt, "done");
    }
    for attempt in ["spawn", "exec", "tcp", "listen", "unix", "executable memory", "perf event", "signal to another"] {
        seen.is(attempt, "EPERM");
    }
    seen.is("capabilities", "");
    seen.is("no_new_privs", "true");
    if seen.of("files").is_some_and(|files| files.starts_with("Unsupported")) {
        println!("skipped: needs Linux 5.13 with Landlock");
        return;
    }
    for attempt in ["read inside", "write inside", "own maps", "maps of another", "random"] {
        seen.is(attempt, "EACCES");
    }
}

#[test]
fn a_client_connects_and_listens_nowhere() {
    for (case, over_ip) in [("client", "EPERM"), ("network client", "done")] {
        let seen = outcome_of(case);
        seen.is("system calls", "On");
        for attempt in ["unix there", "thread", "write to an open file"] {
            seen.is(attempt, "done");
        }
        seen.is("tcp", over_ip);
        seen.is("udp", over_ip);
        for attempt in ["spawn", "exec", "listen", "listen unix", "netlink", "executable memory", "perf event"] {
            seen.is(attempt, "EPERM");
        }
        seen.is("capabilities", "");
        if seen.of("files").is_some_and(|files| files.starts_with("Unsupported")) {
            println!("skipped: needs Linux 5.13 with Landlock");
            continue;
        }
        seen.is("read inside", "done");
        seen.is("write inside", "done");
        for attempt in ["read outside", "write outside", "own maps", "maps of another", "random"] {
            seen.is(attempt, "EACCES");
        }
    }
}

#[test]
fn each_part_that_is_missing_is_a_sentence() {
    let all = InForce { capabilities: Vec::new(), system_calls: Part::On, files: Part::On, ..InForce::none() };
    assert_eq!(all.shortfalls("it"), [""; 0]);
    let (system_calls, files) = (Part::Unsupported("old".into()), Part::NoPrivilege("no".into()));
    let none = InForce { capabilities: vec!["CAP_BPF".into(), "CAP_KILL".into()], system_calls, files, ..all };
    assert_eq!(
        none.shortfalls("the server"),
        [
            "the sandbox lacks a filter of system calls (old); the server runs without it",
            "the sandbox lacks Landlock (no); the server runs without it",
            "these capabilities could not be dropped: CAP_BPF CAP_KILL",
        ]
    );
}

/// Not a test by itself: the child of the others.
#[test]
fn in_the_child() {
    let (Ok(case), Some(folder)) = (std::env::var(CASE), std::env::var_os(FOLDER)) else { return };
    let folder = PathBuf::from(folder);
    // Ends with this process, which closes its pipe.
    #[expect(clippy::zombie_processes, reason = "a confined reader of files cannot wait for it, and ends at once")]
    let other = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut open = File::create(folder.join("outside/open")).unwrap();
    std::env::set_current_dir(folder.join("inside")).unwrap();
    let had = InForce::none().capabilities;
    println!("\nhad capabilities: {}", if had.is_empty() { "none" } else { "some" });
    let unix = UnixListener::bind("there.sock").unwrap();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    // It waits in the queue of the listener.
    let client = TcpStream::connect(address).unwrap();
    let entered = match case.as_str() {
        "files" => confined_to_files(&folder),
        "server" => isotherm_sandbox::server_only(&Files::default()),
        "client" => isotherm_sandbox::client_only(&inside(&folder), Reach::Machine),
        "network client" => isotherm_sandbox::client_only(&inside(&folder), Reach::Network),
        _ => confined_monitor(&folder),
    };
    println!("system calls: {:?}\nmounts: {:?}\nfiles: {:?}", entered.system_calls, entered.mounts, entered.files);
    println!("capabilities: {}\nno_new_privs: {}", entered.capabilities.join(" "), entered.no_new_privs);
    attempt("spawn", || Command::new("true").status());
    attempt("exec", || Err::<(), _>(Command::new("true").exec()));
    attempt("answer", || answer(&listener, client));
    attempt("tcp", || TcpStream::connect(address));
    attempt("listen", || TcpListener::bind("127.0.0.1:0"));
    attempt("unix there", || UnixStream::connect("there.sock"));
    drop(unix);
    attempt("udp", || connect_udp(udp));
    attempt("listen unix", || UnixListener::bind("new.sock"));
    attempt("netlink", netlink);
    attempt("unix", || UnixStream::connect("/run/nobody.sock"));
    attempt("executable memory", executable_memory);
    attempt("perf event", perf_event);
    attempt("signal to itself", || signal_to(std::process::id()));
    attempt("signal to another", || signal_to(other.id()));
    attempt("thread", || std::thread::Builder::new().spawn(|| ()).map(|thread| thread.join().unwrap()));
    attempt("own maps", || fs::read("/proc/self/maps"));
    attempt("maps of another", || fs::read(format!("/proc/{}/maps", other.id())));
    attempt("clear_refs", || fs::write("/proc/self/clear_refs", "1"));
    attempt("write to an open file", || open.write_all(b"more"));
    attempt("random", || File::open("/dev/urandom"));
    attempt_files(&folder);
}

fn attempt_files(folder: &Path) {
    attempt("read inside", || fs::read(folder.join("inside/there")));
    attempt("write inside", || fs::write(folder.join("inside/new"), "new"));
    attempt("rename inside", || fs::rename(folder.join("inside/new"), folder.join("inside/newer")));
    attempt("write here", || fs::write("here", "new"));
    attempt("read outside", || fs::read(folder.join("outside/there")));
    attempt("write outside", || fs::write(folder.join("outside/there"), "changed"));
    attempt("create outside", || fs::write(folder.join("outside/new"), "new"));
    attempt("remove outside", || fs::remove_file(folder.join("outside/there")));
    attempt("setting of the kernel", || File::options().write(true).open("/proc/sys/kernel/randomize_va_space"));
}

/// Accepts the client that waits, and writes to it.
fn answer(listener: &TcpListener, mut client: TcpStream) -> std::io::Result<()> {
    let (mut stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    stream.write_all(b"answer")?;
    drop(stream);
    let mut text = String::new();
    client.read_to_string(&mut text)?;
    if text == "answer" { Ok(()) } else { Err(std::io::Error::other(text)) }
}

fn confined_monitor(folder: &Path) -> InForce {
    isotherm_sandbox::enter(&Policy {
        capabilities: Some(CapabilitySet::SYS_PTRACE),
        calls: Calls::PROCESSES,
        writes: Writes {
            folders: vec![folder.join("inside")],
            processes: true,
            kernel: vec!["/sys/no/such/file".into()],
        },
    })
}

fn confined_to_files(folder: &Path) -> InForce {
    isotherm_sandbox::files_only(&Files {
        read: vec!["/proc/self".into(), folder.join("not/there")],
        written: vec![folder.join("inside")],
    })
}

fn inside(folder: &Path) -> Files {
    Files { read: Vec::new(), written: vec![folder.join("inside")] }
}

/// As the C library does to find out which of its own addresses it would send from: without binding.
fn connect_udp(to: SocketAddr) -> std::io::Result<()> {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    Ok(rustix::net::connect(&socket, &to)?)
}

fn netlink() -> std::io::Result<OwnedFd> {
    Ok(rustix::net::socket(AddressFamily::NETLINK, SocketType::RAW, None)?)
}

fn attempt<T>(name: &str, act: impl FnOnce() -> std::io::Result<T>) {
    let outcome = match act() {
        Ok(_) => "done".to_owned(),
        Err(error) => match error.raw_os_error() {
            Some(libc::EPERM) => "EPERM".to_owned(),
            Some(libc::EROFS) => "EROFS".to_owned(),
            Some(libc::EACCES) => "EACCES".to_owned(),
            _ => error.to_string(),
        },
    };
    println!("{name}: {outcome}");
}

fn executable_memory() -> std::io::Result<()> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping, at an address of the kernel's choice, that nothing uses.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_READ | libc::PROT_EXEC, flags, -1, 0) };
    if at == libc::MAP_FAILED { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}

/// Whether a thread of a process may be sent a signal. None is.
fn signal_to(pid: u32) -> std::io::Result<()> {
    // SAFETY: the call takes numbers, and signal 0 is never delivered.
    let sent = unsafe { libc::syscall(libc::SYS_tgkill, pid, pid, 0) };
    if sent < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}

fn perf_event() -> std::io::Result<()> {
    // SAFETY: the filter refuses the call before the kernel reads the attributes; without it, they are a null pointer, which is EFAULT.
    let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, std::ptr::null::<u8>(), 0, -1, -1, 0) };
    if fd < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}
