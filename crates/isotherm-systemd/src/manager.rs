//! The service manager, as `sd_notify(3)` describes it: datagrams of lines `NAME=value` to a socket that an environment variable names.

use crate::Pulse;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// The variables by which the manager makes itself known. A program that a daemon starts should not inherit them: it would be taken for the
/// daemon, or would wait for a manager that is not its own.
pub const VARIABLES: [&str; 3] = ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"];

/// How long a wait may be that has to end when the daemon does.
const TICK: Duration = Duration::from_millis(50);

/// The service manager, if there is one that wants to hear from this process.
#[derive(Debug, Default)]
pub struct Manager {
    socket: Option<UnixDatagram>,
    /// A sign of life is due at least this often.
    watchdog: Option<Duration>,
}

impl Manager {
    /// The manager that has started this process. `None` is in it if there is none, or if it cannot be reached.
    pub fn of_this_process() -> Manager {
        Manager::from_variables(|name| std::env::var_os(name), std::process::id())
    }

    /// The manager that `variable` describes to process `pid`.
    pub fn from_variables(variable: impl Fn(&str) -> Option<OsString>, pid: u32) -> Manager {
        let number = |name| variable(name)?.into_string().ok()?.parse::<u64>().ok();
        let socket = variable(VARIABLES[0]).and_then(|address| connected(&address).ok());
        // Without the process id, it is meant for any process that has the variable.
        let is_ours = variable(VARIABLES[2]).is_none() || number(VARIABLES[2]) == Some(u64::from(pid));
        let watchdog = number(VARIABLES[1]).filter(|micros| is_ours && *micros > 0).map(Duration::from_micros);
        Manager { watchdog: watchdog.filter(|_| socket.is_some()), socket }
    }

    /// The daemon does its work. `status` is one line about it.
    pub fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={}", line(status)));
    }

    /// The daemon has begun to read its settings again; [`Manager::ready`] ends that. `now_ns` is the time of CLOCK_MONOTONIC.
    pub fn reloading(&self, now_ns: u64) {
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={}", now_ns / 1000));
    }

    /// The daemon is about to end.
    pub fn stopping(&self) {
        self.send("STOPPING=1");
    }

    /// How often a sign of life should be sent: twice as often as the manager demands. `None` if it demands none.
    pub fn period(&self) -> Option<Duration> {
        self.watchdog.map(|demanded| demanded / 2)
    }

    /// A sign of life.
    pub fn alive(&self) {
        self.send("WATCHDOG=1");
    }

    /// Sends signs of life as long as `pulse` is not late, until `is_over`. Returns at once if the manager demands none. `now_ns` is the clock
    /// of `pulse`.
    pub fn keep_alive(&self, pulse: &Pulse, now_ns: impl Fn() -> u64, is_over: impl Fn() -> bool) {
        let Some(period) = self.period() else { return };
        let period_ns = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX);
        let mut sent_ns = None;
        while !is_over() {
            let now = now_ns();
            let is_due = sent_ns.is_none_or(|sent| now.saturating_sub(sent) >= period_ns);
            if is_due && !pulse.is_late(now) {
                self.alive();
                sent_ns = Some(now);
            }
            std::thread::sleep(TICK.min(period));
        }
    }

    /// A manager that does not read must not stop us, and one that is gone will not miss it.
    fn send(&self, text: &str) {
        if let Some(socket) = &self.socket {
            let _ = socket.send(text.as_bytes());
        }
    }
}

fn connected(address: &OsStr) -> io::Result<UnixDatagram> {
    let bytes = address.as_bytes();
    let address = match bytes.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(address)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// One line: what follows a line break would be read as another variable.
fn line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicU64, Ordering};

    fn manager(variables: &[(&str, &OsStr)]) -> Manager {
        let variables: BTreeMap<&str, &OsStr> = variables.iter().copied().collect();
        Manager::from_variables(|name| variables.get(name).map(|value| (*value).to_owned()), 7)
    }

    fn heard(socket: &UnixDatagram) -> String {
        let mut bytes = [0; 4096];
        let n = socket.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..n].to_vec()).unwrap()
    }

    #[test]
    fn a_manager_hears_what_happens_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        let manager = manager(&[("NOTIFY_SOCKET", path.as_os_str())]);
        manager.ready("two\nlines=1");
        manager.reloading(5_000_999);
        manager.stopping();
        assert_eq!(heard(&socket), "READY=1\nSTATUS=two lines=1");
        assert_eq!(heard(&socket), "RELOADING=1\nMONOTONIC_USEC=5000");
        assert_eq!(heard(&socket), "STOPPING=1");
    }

    #[test]
    fn an_abstract_address_is_one_with_an_at() {
        let name = format!("isotherm-test-{}", std::process::id());
        let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        manager(&[("NOTIFY_SOCKET", OsStr::new(&format!("@{name}")))]).alive();
        assert_eq!(heard(&socket), "WATCHDOG=1");
    }

    #[test]
    fn the_watchdog_is_for_the_process_that_it_names() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let _socket = UnixDatagram::bind(&path).unwrap();
        let of = |pid: Option<&str>, micros: &str| {
            let mut variables = vec![("NOTIFY_SOCKET", path.as_os_str()), ("WATCHDOG_USEC", OsStr::new(micros))];
            variables.extend(pid.map(|pid| ("WATCHDOG_PID", OsStr::new(pid))));
            manager(&variables).period()
        };
        assert_eq!(of(Some("7"), "6000000"), Some(Duration::from_secs(3)));
        assert_eq!(of(None, "6000000"), Some(Duration::from_secs(3)));
        assert_eq!((of(Some("8"), "6000000"), of(Some("x"), "6000000")), (None, None));
        assert_eq!((of(Some("7"), "0"), of(Some("7"), "soon")), (None, None));
    }

    #[test]
    fn without_a_manager_or_with_one_that_is_gone_nothing_happens() {
        for manager in [
            manager(&[]),
            manager(&[("NOTIFY_SOCKET", OsStr::new("/nowhere/notify")), ("WATCHDOG_USEC", OsStr::new("5"))]),
        ] {
            manager.ready("");
            manager.alive();
            assert_eq!(manager.period(), None);
            manager.keep_alive(&Pulse::default(), || 0, || panic!("nobody demands signs of life"));
        }
    }

    #[test]
    fn a_manager_that_does_not_read_does_not_stop_us() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let _socket = UnixDatagram::bind(&path).unwrap();
        let manager = manager(&[("NOTIFY_SOCKET", path.as_os_str())]);
        (0..100_000).for_each(|_| manager.alive());
    }

    #[test]
    fn signs_of_life_end_when_the_pulse_is_late() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_nonblocking(true).unwrap();
        let manager = manager(&[("NOTIFY_SOCKET", path.as_os_str()), ("WATCHDOG_USEC", OsStr::new("2000"))]);
        // A clock that goes on by a millisecond with each reading. The next sign of work is due at 3 ms.
        let (clock, pulse) = (AtomicU64::new(0), Pulse::with_grace(0));
        pulse.next_due(3_000_000);
        let now = || clock.fetch_add(1_000_000, Ordering::Relaxed);
        manager.keep_alive(&pulse, now, || clock.load(Ordering::Relaxed) >= 9_000_000);
        let mut bytes = [0; 64];
        let signs = std::iter::from_fn(|| socket.recv(&mut bytes).ok()).count();
        assert_eq!(signs, 4, "at 0, 1, 2 and 3 ms");
    }
}
