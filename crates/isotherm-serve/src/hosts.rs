//! Under which names the server may be addressed.
//!
//! A page of another site can have its own name point to this machine (DNS rebinding), and its script then reads what it
//! pleases, with the token if it knows one. The browser sends that name in `Host`, so a name that is not ours is refused. An
//! address cannot be rebound: where the server listens at all of them, any is taken. The port does not matter, because a
//! tunnel changes it.

use axum::http::Uri;
use axum::http::uri::Authority;
use std::net::IpAddr;

/// The names.
#[derive(Clone, Debug)]
pub struct HostNames {
    ip: IpAddr,
    /// Further addresses, such as that of a proxy.
    ips: Vec<IpAddr>,
    names: Vec<String>,
}

impl HostNames {
    /// For a server that listens at `ip`, with further names and addresses.
    pub fn new(ip: IpAddr, further: &[String]) -> HostNames {
        let (mut ips, mut names) = (Vec::new(), Vec::new());
        for name in further {
            match address(name) {
                Some(ip) => ips.push(ip),
                None => names.push(name.to_ascii_lowercase()),
            }
        }
        if ip.is_loopback() || ip.is_unspecified() {
            names.push("localhost".into());
        }
        HostNames { ip, ips, names }
    }

    /// Whether it is a name or an address, without a port.
    pub fn is_name(text: &str) -> bool {
        let is_name = |name: &Authority| name.as_str() == name.host() && !name.host().is_empty();
        address(text).is_some() || text.parse::<Authority>().is_ok_and(|name| is_name(&name))
    }

    /// Whether the value of a `Host` header is one of them.
    pub fn has(&self, host: &str) -> bool {
        let Ok(authority) = host.parse::<Authority>() else { return false };
        if host.contains('@') {
            return false;
        }
        match address(authority.host()) {
            Some(ip) => self.has_address(ip),
            None => self.names.contains(&authority.host().to_ascii_lowercase()),
        }
    }

    fn has_address(&self, ip: IpAddr) -> bool {
        let is_loopback = self.ip.is_loopback() && ip.is_loopback();
        self.ip.is_unspecified() || ip == self.ip || is_loopback || self.ips.contains(&ip)
    }

    /// Whether the value of an `Origin` header is the origin of a page that this server has sent under `host`.
    pub fn is_own_origin(origin: &str, host: &str, is_tls: bool) -> bool {
        let scheme = if is_tls { "https" } else { "http" };
        let Ok(uri) = origin.parse::<Uri>() else { return false };
        let same_host = uri.authority().is_some_and(|authority| authority.as_str().eq_ignore_ascii_case(host));
        uri.scheme_str() == Some(scheme) && same_host
    }
}

/// An address, with or without brackets.
fn address(text: &str) -> Option<IpAddr> {
    let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    inner.unwrap_or(text).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_names_are_taken_and_others_are_not() {
        let ours = HostNames::new("127.0.0.1".parse().unwrap(), &["Heat.example".into()]);
        for host in ["127.0.0.1:4780", "localhost", "LOCALHOST:1", "heat.example:80", "[::1]:4780"] {
            assert!(ours.has(host), "{host}");
        }
        for host in
            ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1", "", "a@localhost", "x y"]
        {
            assert!(!ours.has(host), "{host}");
        }
        let all = HostNames::new("0.0.0.0".parse().unwrap(), &[]);
        assert!(all.has("10.1.2.3:80") && all.has("localhost") && !all.has("evil.example"));
        let one = HostNames::new("10.0.0.1".parse().unwrap(), &[]);
        assert!(one.has("10.0.0.1") && !one.has("10.0.0.2") && !one.has("localhost"));
    }

    #[test]
    fn further_names_may_be_addresses() {
        let further = ["192.0.2.7", "[2001:db8::7]", "2001:DB8:0::8"].map(str::to_owned);
        let ours = HostNames::new("10.0.0.1".parse().unwrap(), &further);
        for host in ["192.0.2.7:443", "[2001:db8::7]", "[2001:db8:0:0::8]:4780", "10.0.0.1"] {
            assert!(ours.has(host), "{host}");
        }
        for host in ["192.0.2.8", "[2001:db8::9]", "localhost", "127.0.0.1"] {
            assert!(!ours.has(host), "{host}");
        }
    }

    #[test]
    fn an_origin_is_scheme_and_host_of_the_request() {
        let own = |origin, tls| HostNames::is_own_origin(origin, "localhost:4780", tls);
        assert!(own("http://localhost:4780", false) && own("https://localhost:4780", true));
        for origin in
            ["null", "http://localhost", "http://localhost:1", "https://localhost:4780", "http://evil.example:4780", ""]
        {
            assert!(!own(origin, false), "{origin}");
        }
    }

    #[test]
    fn names_have_no_port_and_no_user() {
        assert!(["a.b", "10.0.0.1", "[::1]", "::1"].into_iter().all(HostNames::is_name));
        assert!(!HostNames::is_name("[::1]:80") && !HostNames::is_name("[::1"));
        assert!(
            !HostNames::is_name("a:1")
                && !HostNames::is_name("a@b")
                && !HostNames::is_name("")
                && !HostNames::is_name("a/b")
        );
    }
}
