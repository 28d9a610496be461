//! The command line.

use crate::api::Server;
use clap::Parser;
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
    #[arg(short, long, value_name = "FILE")]
    pub config: PathBuf,
    /// The name of this node; pods of others are not asked for
    #[arg(long, value_name = "NAME", env = "NODE_NAME", value_parser = node_name)]
    pub node: String,
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
    /// Confine nothing, to find out what a sandbox prevents
    #[arg(long, hide = true)]
    pub no_sandbox: bool,
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
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent_and_a_node_is_no_query() {
        Args::command().debug_assert();
        for bad in ["", "a b", "a&watch=true", "A", "../a", "a,spec.x=y"] {
            assert!(Args::try_parse_from(["x", "-c", "f", "--node", bad]).is_err(), "{bad:?}");
        }
        let args = Args::try_parse_from(["x", "-c", "f", "--node", "node-1.example"]).unwrap();
        assert!(args.token_file.ends_with("serviceaccount/token") && args.server.is_none());
    }
}
