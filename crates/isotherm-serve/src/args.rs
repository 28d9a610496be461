//! The command line, and what is wrong usage before anything is opened.

use crate::hosts::HostNames;
use clap::{ArgGroup, Parser, ValueEnum};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// Where it listens if nothing else is asked for. If that port is in use, one of the next is taken.
pub const PORT: u16 = 4780;

/// Shows what a monitor sends: a web page, its API, and metrics for Prometheus.
#[derive(Clone, Debug, Parser)]
#[command(version, group = ArgGroup::new("from").required(true).args(["connect", "fd", "recording", "print"]))]
pub struct Args {
    /// The socket of a running monitor
    #[arg(long, value_name = "SOCKET")]
    pub connect: Option<PathBuf>,
    /// An inherited descriptor: one end of a pair of sockets, the other of which a monitor has
    #[arg(long, value_name = "N")]
    pub fd: Option<i32>,
    /// A recording to show in place of a monitor
    #[arg(long, value_name = "DIR")]
    pub recording: Option<PathBuf>,
    /// Print a file made from the table of metrics or from these options, and end
    #[arg(long, value_name = "WHAT")]
    pub print: Option<Print>,
    /// The address to listen at; without a port, the first that is free from 4780 on [default: 127.0.0.1]
    #[arg(long, value_name = "ADDR[:PORT]", value_parser = address)]
    pub listen: Option<Address>,
    /// Keep the token in this file; a new one is written to it if it is not there. It is read again when it has changed
    #[arg(long, value_name = "FILE", conflicts_with = "no_token")]
    pub token_file: Option<PathBuf>,
    /// Ask for no token; on loopback only
    #[arg(long)]
    pub no_token: bool,
    /// A further name or address under which clients reach the server
    #[arg(long, value_name = "NAME")]
    pub host: Vec<String>,
    /// Certificates in PEM, for TLS. They and the key are read again when they have changed
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// The key of the first of them
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Listen beyond loopback without TLS: the token and the answers can be read on the way
    #[arg(long)]
    pub insecure: bool,
    /// Memory for what has been received, MiB
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub history_mib: u32,
    /// Cgroups with all metrics, 1000 at most; the others have up to five each
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub top: usize,
    /// Metrics for processes, too
    #[arg(long)]
    pub processes: bool,
    /// End when the parent does, which is process PID
    #[arg(long, value_name = "PID", hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "0")]
    pub ends_with_parent: Option<i32>,
    /// Confine nothing, to find out what a sandbox prevents
    #[arg(long, hide = true)]
    pub no_sandbox: bool,
}

/// A file made from the table of metrics or from the options.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Print {
    /// A dashboard for Grafana, JSON.
    Dashboard,
    /// Alert rules for Prometheus, YAML.
    Rules,
    /// The page of the reference, Markdown.
    MetricsPage,
    /// The manual page.
    ManPage,
}

/// Where to listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The address.
    pub ip: IpAddr,
    /// The port; `None`: the first that is free.
    pub port: Option<u16>,
}

impl Default for Address {
    fn default() -> Address {
        Address { ip: Ipv4Addr::LOCALHOST.into(), port: None }
    }
}

fn address(text: &str) -> Result<Address, String> {
    let plain = text.trim_start_matches('[').trim_end_matches(']');
    if let Ok(ip) = plain.parse() {
        return Ok(Address { ip, port: None });
    }
    if text == "localhost" {
        return Ok(Address::default());
    }
    let both: SocketAddr = text
        .replace("localhost", "127.0.0.1")
        .parse()
        .map_err(|_| "expected an address, or an address and a port: 127.0.0.1, 0.0.0.0:4780, [::1]:4780".to_owned())?;
    Ok(Address { ip: both.ip(), port: Some(both.port()) })
}

impl Args {
    /// Where to listen.
    pub fn address(&self) -> Address {
        self.listen.unwrap_or_default()
    }

    /// What of it is wrong usage.
    pub fn check(&self) -> Result<(), String> {
        let ip = self.address().ip;
        if !ip.is_loopback() && self.no_token {
            return Err(format!("--no-token at {ip}: everybody who reaches it could read; it is for loopback only"));
        }
        if !ip.is_loopback() && self.tls_cert.is_none() && !self.insecure {
            return Err(format!(
                "--listen {ip} without TLS: the token could be read on the way; give --tls-cert and --tls-key, or --insecure"
            ));
        }
        if let Some(name) = self.host.iter().find(|name| !HostNames::is_name(name)) {
            return Err(format!(
                "--host {name}: expected a name or an address without a port, such as heat.example.org"
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(line: &str) -> Result<Args, String> {
        let args = Args::try_parse_from(line.split(' ')).map_err(|error| error.to_string())?;
        args.check().map(|()| args)
    }

    #[test]
    fn addresses_with_and_without_a_port() {
        let of = |text: &str| address(text).map(|address| (address.ip.to_string(), address.port));
        assert_eq!(of("127.0.0.1"), Ok(("127.0.0.1".into(), None)));
        assert_eq!(of("0.0.0.0:80"), Ok(("0.0.0.0".into(), Some(80))));
        assert_eq!(of("[::1]:0"), Ok(("::1".into(), Some(0))));
        assert_eq!(of("::"), Ok(("::".into(), None)));
        assert_eq!(of("[::1]"), Ok(("::1".into(), None)));
        assert_eq!(of("localhost:5"), Ok(("127.0.0.1".into(), Some(5))));
        assert_eq!(of("localhost"), Ok(("127.0.0.1".into(), None)));
        assert!(of("4780").is_err() && of("").is_err() && of("1.2.3.4:99999").is_err());
    }

    #[test]
    fn what_would_reveal_the_token_or_need_none_is_refused() {
        for bad in [
            "x --connect s --listen 0.0.0.0",
            "x --connect s --listen 0.0.0.0 --no-token --insecure",
            "x --connect s --no-token --token-file t",
            "x --connect s --tls-cert c",
            "x --connect s --host a:80",
            "x --connect s --fd 3",
            "x --connect s --recording r",
            "x",
        ] {
            assert!(checked(bad).is_err(), "{bad}");
        }
        for good in [
            "x --connect s",
            "x --fd 3 --no-token --listen [::1]:0",
            "x --connect s --listen 0.0.0.0 --insecure",
            "x --connect s --listen 10.0.0.1:1 --tls-cert c --tls-key k --host heat.example.org",
            "x --print rules",
            "x --recording heat.isotherm",
        ] {
            assert!(checked(good).is_ok(), "{good}: {:?}", checked(good));
        }
    }
}
