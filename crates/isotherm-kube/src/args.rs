//! The command line.

use crate::api::Server;
use clap::{CommandFactory, Parser, ValueEnum};
use clap_mangen::Man;
use std::io;
use std::path::PathBuf;

/// Where Kubernetes puts the token and the certificate of a service account.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Gives the cgroups of annotated pods to schemes that the settings of `isotherm run` permit.
#[derive(Clone, Debug, Parser)]
#[command(
    version,
    after_help = "\
A pod asks by its annotation: isotherm.dev/scheme: NAME, where the settings have a [[scheme]] with that name and assigned = true.
Exit codes: 0 ended by SIGTERM or SIGINT; 1 failed; 2 wrong usage."
)]
pub struct Args {
    /// The settings of `isotherm run` (TOML): which schemes pods may ask for, and the file of assignments
    #[arg(short, long, value_name = "FILE", required_unless_present = "print")]
    pub config: Option<PathBuf>,
    /// The name of this node; pods of others are not asked for
    #[arg(long, value_name = "NAME", env = "NODE_NAME", value_parser = node_name, required_unless_present = "print")]
    pub node: Option<String>,
    /// The API server [default: https://$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT]
    #[arg(long, value_name = "URL", value_parser = Server::parse)]
    pub server: Option<Server>,
    /// The token of the service account; it is read again for each request
    #[arg(long, value_name = "FILE", default_value_os_t = in_account("token"))]
    pub token_file: PathBuf,
    /// The certificates that the API server is trusted by (PEM)
    #[arg(long, value_name = "FILE", default_value_os_t = in_account("ca.crt"))]
    pub ca_file: PathBuf,
    /// Where the v2 hierarchy of the host is mounted
    #[arg(long, value_name = "DIR", default_value = "/sys/fs/cgroup")]
    pub cgroups: PathBuf,
    /// The first pause after a failure, and the period of a watch: tests have shorter ones
    #[arg(long, value_name = "MS", default_value_t = 1000, hide = true)]
    pub pause_ms: u64,
    /// See there
    #[arg(long, value_name = "SECONDS", default_value_t = 300, hide = true)]
    pub period_s: u64,
    /// Print a file made from these options, and end
    #[arg(long, value_name = "WHAT", conflicts_with = "config")]
    pub print: Option<Print>,
    /// Confine nothing, to find out what a sandbox prevents
    #[arg(long, hide = true)]
    pub no_sandbox: bool,
}

/// A file made from the options.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Print {
    /// The manual page.
    ManPage,
}

impl Print {
    /// The file.
    pub fn bytes(self) -> io::Result<Vec<u8>> {
        let mut page = Vec::new();
        let man = Man::new(Args::command()).section("8").manual("Isotherm Manual");
        man.source(format!("isotherm {}", env!("CARGO_PKG_VERSION"))).render(&mut page)?;
        Ok(page)
    }
}

fn in_account(file: &str) -> PathBuf {
    PathBuf::from(ACCOUNT).join(file)
}

/// The name of a node is a subdomain of DNS.
fn node_name(text: &str) -> Result<String, String> {
    if crate::wire::is_subdomain(text) { Ok(text.to_owned()) } else { Err("is no name of a node".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent_and_a_node_is_no_query() {
        Args::command().debug_assert();
        for bad in ["", "a b", "a&watch=true", "A", "../a", "a,spec.x=y"] {
            assert!(Args::try_parse_from(["x", "-c", "f", "--node", bad]).is_err(), "{bad:?}");
        }
        for bad in [&["x"][..], &["x", "-c", "f"], &["x", "--print", "man-page", "-c", "f"], &["x", "--print", "json"]]
        {
            assert!(Args::try_parse_from(bad).is_err(), "{bad:?}");
        }
        let args = Args::try_parse_from(["x", "-c", "f", "--node", "node-1.example"]).unwrap();
        assert!(args.token_file.ends_with("serviceaccount/token") && args.server.is_none());
    }

    #[test]
    fn the_manual_page_has_every_option() {
        let command = Args::command();
        let shown: Vec<&str> =
            command.get_arguments().filter(|arg| !arg.is_hide_set()).filter_map(|arg| arg.get_long()).collect();
        assert!(shown.len() > 5, "{shown:?}");
        let page = String::from_utf8(Print::ManPage.bytes().unwrap()).unwrap().replace("\\-", "-");
        shown.iter().for_each(|option| assert!(page.contains(option), "no {option}"));
    }
}
