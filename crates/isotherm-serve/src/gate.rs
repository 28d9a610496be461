//! What every request has to fulfil before anything is looked up: a name of ours, no foreign origin, a method that only reads,
//! no body, and the token.
//!
//! Answers for a wrong token and for an unknown path are the same, so neither reveals the other.

use crate::hosts::HostNames;
use crate::reply::Problem;
use crate::secrets::Current;
use crate::token::Token;
use axum::http::{HeaderMap, HeaderName, Method, StatusCode, Uri, header};

/// Who may read.
#[derive(Debug)]
pub struct Gate {
    /// Our names.
    pub names: HostNames,
    /// `None`: everybody.
    pub token: Current<Option<Token>>,
    /// The scheme of our pages is https.
    pub is_tls: bool,
}

/// What is asked for.
#[derive(Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Whether the server runs, or has data. Open to all, and reveals nothing else.
    Health,
    /// Whether it has data.
    Readiness,
    /// A path below the base, without the slash at its beginning.
    Path(String),
}

impl Gate {
    /// What is asked for, if it may be.
    pub fn admit(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<Wanted, Problem> {
        self.check_names(uri, headers)?;
        if !matches!(*method, Method::GET | Method::HEAD) {
            let what = format!("{method} {}: this server is only read; use GET", uri.path());
            return Err(Problem::new(StatusCode::METHOD_NOT_ALLOWED, what));
        }
        let length = headers.get(header::CONTENT_LENGTH);
        if length.is_some_and(|length| length != "0") || headers.contains_key(header::TRANSFER_ENCODING) {
            let what = "read a request: it has a body, and none is read; send the headers alone";
            return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, what));
        }
        match uri.path() {
            "/healthz" => Ok(Wanted::Health),
            "/readyz" => Ok(Wanted::Readiness),
            "/metrics" => self.admit_scrape(headers),
            path => self.below_base(path).ok_or_else(unknown).map(|path| Wanted::Path(path.to_owned())),
        }
    }

    fn check_names(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
        if uri.authority().is_some() {
            return Err(Problem::bad("read a request: it names a host in its first line; this server is no proxy"));
        }
        let foreign = || {
            let what = "read a request: it was sent to a name that is not this server's; start it with --host NAME";
            Problem::new(StatusCode::MISDIRECTED_REQUEST, what)
        };
        let host = only(headers, header::HOST).filter(|host| self.names.has(host)).ok_or_else(foreign)?;
        if !headers.contains_key(header::ORIGIN) {
            return Ok(());
        }
        let is_own = only(headers, header::ORIGIN).is_some_and(|o| HostNames::is_own_origin(o, host, self.is_tls));
        let what = "read a request: a page of another site has sent it; open the address that was printed at the start";
        if is_own { Ok(()) } else { Err(Problem::new(StatusCode::FORBIDDEN, what)) }
    }

    fn admit_scrape(&self, headers: &HeaderMap) -> Result<Wanted, Problem> {
        let given = only(headers, header::AUTHORIZATION).and_then(|value| value.split_once(' '));
        let given = given.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map(|(_, token)| token.trim());
        let may = self.token.get().is_none_or(|token| given.is_some_and(|given| token.is(given)));
        if may {
            return Ok(Wanted::Path("metrics".into()));
        }
        let what = "read /metrics: it takes the token; send `Authorization: Bearer TOKEN`, or read /TOKEN/metrics";
        Err(Problem::new(StatusCode::UNAUTHORIZED, what))
    }

    fn below_base<'a>(&self, path: &'a str) -> Option<&'a str> {
        let path = path.strip_prefix('/')?;
        let Some(token) = self.token.get() else { return Some(path) };
        let (given, rest) = path.split_once('/')?;
        token.is(given).then_some(rest)
    }
}

/// There is nothing, or the token is wrong.
pub fn unknown() -> Problem {
    Problem::missing("read a page: there is none at this address; open the one that was printed at the start")
}

/// The value of a header that occurs once.
fn only(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    let mut values = headers.get_all(name).iter();
    values.next().filter(|_| values.next().is_none())?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::response::IntoResponse;

    fn gate(token: Option<&Token>) -> Gate {
        Gate {
            names: HostNames::new("127.0.0.1".parse().unwrap(), &[]),
            token: Current::new(token.cloned()),
            is_tls: false,
        }
    }

    fn status(gate: &Gate, method: Method, path: &str, headers: &[(&'static str, &str)]) -> Result<Wanted, u16> {
        let pairs = headers.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()));
        let mut all = HeaderMap::from_iter([(header::HOST, "localhost".parse().unwrap())]);
        pairs.for_each(|(name, value)| {
            _ = if name == header::HOST { all.insert(name, value).is_some() } else { all.append(name, value) }
        });
        gate.admit(&method, &path.parse().unwrap(), &all).map_err(|problem| problem.into_response().status().as_u16())
    }

    #[test]
    fn only_the_token_opens() {
        let token = Token::random().unwrap();
        let (gate, secret) = (gate(Some(&token)), token.reveal());
        let get = |path: &str, headers: &[(&'static str, &str)]| status(&gate, Method::GET, path, headers);
        assert_eq!(get(&format!("/{secret}/api/overview"), &[]), Ok(Wanted::Path("api/overview".into())));
        assert_eq!(get(&format!("/{secret}/"), &[]), Ok(Wanted::Path(String::new())));
        let bearer = format!("Bearer {secret}");
        assert_eq!(get("/metrics", &[("authorization", &bearer)]), Ok(Wanted::Path("metrics".into())));
        for path in [
            "/",
            "/api/overview",
            "/x/api/overview",
            &format!("//{secret}/"),
            &format!("/{secret}"),
            &format!("/{secret}x/"),
        ] {
            assert_eq!(get(path, &[]), Err(404), "{path}");
        }
        assert_eq!(get("/metrics", &[]), Err(401));
        assert_eq!(get("/metrics", &[("authorization", "Bearer x")]), Err(401));
        assert_eq!(get("/metrics", &[("authorization", &bearer), ("authorization", &bearer)]), Err(401), "twice");
        assert_eq!((get("/healthz", &[]), get("/readyz", &[])), (Ok(Wanted::Health), Ok(Wanted::Readiness)));
    }

    #[test]
    fn names_origins_methods_and_bodies_are_checked() {
        let open = gate(None);
        let get = |headers: &[(&'static str, &str)]| status(&open, Method::GET, "/", headers);
        assert_eq!(get(&[]), Ok(Wanted::Path(String::new())));
        assert_eq!(get(&[("host", "evil.example")]), Err(421));
        assert_eq!(get(&[("origin", "http://localhost")]), Ok(Wanted::Path(String::new())));
        assert_eq!(get(&[("origin", "http://evil.example")]), Err(403));
        assert_eq!(get(&[("origin", "null")]), Err(403));
        assert_eq!(get(&[("content-length", "5")]), Err(413));
        assert_eq!(get(&[("transfer-encoding", "chunked")]), Err(413));
        for method in [Method::POST, Method::PUT, Method::DELETE, Method::OPTIONS, Method::CONNECT, Method::TRACE] {
            assert_eq!(status(&open, method, "/", &[]), Err(405));
        }
        assert_eq!(status(&open, Method::GET, "http://localhost/", &[]), Err(400));
    }
}
