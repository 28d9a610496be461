//! Requests to the API server: over TLS with the token of a service account, one connection for each.
//!
//! Requests are rare, a list and a watch in some minutes, so the token and the certificates are read anew for each: kubelet replaces the
//! token every hour. No redirect is followed and no proxy is used: the token goes to the named server and to no other.

use crate::wire::{self, Event, Page};
use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, AUTHORIZATION, HOST, HeaderValue, USER_AGENT};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring};

/// Metadata only. What a container is given in its environment is not sent, so it cannot leak from here.
const LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
const WATCHED: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
/// Pods of a page. Their annotations have at most 256 KiB each.
const PAGE_PODS: u32 = 50;
/// The most bytes of a page, and of an error.
const MAX_PAGE: usize = 32 << 20;
const MAX_ERROR: usize = 64 << 10;
/// The longest line of a watch: a pod of which each character is escaped.
const MAX_LINE: usize = 4 << 20;
/// The largest token. Those of Kubernetes have about 1 KiB.
const MAX_TOKEN: u64 = 16 << 10;
const MAX_CERTIFICATES: u64 = 1 << 20;
/// For each step up to the head of an answer, and for each piece of a page.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file of the service account cannot be used.
    #[error("read {path}: {why}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The server cannot be reached, is not trusted, or has ended the connection.
    #[error("{what}: {why}")]
    Connection {
        /// What was tried.
        what: &'static str,
        /// What went wrong.
        why: String,
    },
    /// 401: the token is not valid, or no longer.
    #[error("the API server refuses the token (401): it is read again for the next request")]
    Unauthorized,
    /// 403: there is no role for it.
    #[error("the API server forbids this (403): {0}; the service account has to get, list and watch pods")]
    Forbidden(String),
    /// 410: the version, or the next page, is too old.
    #[error("the API server no longer has what was asked for (410)")]
    Expired,
    /// Another status.
    #[error("the API server answers {status}: {message}")]
    Status {
        /// The status.
        status: u16,
        /// Its message.
        message: String,
    },
    /// What came is not what was asked for.
    #[error("the API server has sent {0}")]
    Malformed(String),
}

impl Error {
    fn connection(what: &'static str, error: impl std::fmt::Display) -> Error {
        Error::Connection { what, why: wire::cut(&error.to_string()) }
    }
}

/// The result of a request.
pub type Result<T> = std::result::Result<T, Error>;

/// Where the API server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    host: String,
    port: u16,
    is_tls: bool,
}

impl Server {
    /// `https://HOST[:PORT]`, or `http://` on loopback, for `kubectl proxy` and tests.
    pub fn parse(url: &str) -> std::result::Result<Server, String> {
        let (is_tls, rest) = match (url.strip_prefix("https://"), url.strip_prefix("http://")) {
            (Some(rest), _) => (true, rest),
            (_, Some(rest)) => (false, rest),
            _ => return Err("write it as https://HOST:PORT".to_owned()),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = match rest.rsplit_once(':').filter(|(_, port)| !port.contains(']')) {
            Some((host, port)) => (host, port.parse().map_err(|_| "the port is no number up to 65535".to_owned())?),
            None => (rest, if is_tls { 443 } else { 80 }),
        };
        let server = Server::at(host.trim_start_matches('[').trim_end_matches(']'), port, is_tls)?;
        let is_local = ["127.0.0.1", "::1", "localhost"].contains(&server.host.as_str());
        if is_tls || is_local { Ok(server) } else { Err("without TLS the token could be read on the way".to_owned()) }
    }

    /// From the environment that kubelet gives to each container.
    pub fn from_environment(of: impl Fn(&str) -> Option<String>) -> std::result::Result<Server, String> {
        let host = of("KUBERNETES_SERVICE_HOST").ok_or("KUBERNETES_SERVICE_HOST is not set: give --server")?;
        let port = of("KUBERNETES_SERVICE_PORT").map_or(Ok(443), |port| port.parse());
        Server::at(&host, port.map_err(|_| "KUBERNETES_SERVICE_PORT is no port")?, true)
    }

    fn at(host: &str, port: u16, is_tls: bool) -> std::result::Result<Server, String> {
        ServerName::try_from(host).map_err(|_| format!("{host:?} is no host"))?;
        Ok(Server { host: host.to_owned(), port, is_tls })
    }

    fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        format!("{host}:{}", self.port)
    }
}

/// A client of one server, for the pods of one node.
#[derive(Clone, Debug)]
pub struct Api {
    /// The server.
    pub server: Server,
    /// The node.
    pub node: String,
    /// The token.
    pub token_file: PathBuf,
    /// The certificates.
    pub ca_file: PathBuf,
}

impl Api {
    /// All pods of the node, and the version after which a watch goes on.
    pub async fn list(&self) -> Result<Page> {
        let mut all = Page { pods: Vec::new(), version: String::new(), next: None };
        loop {
            let mut query = format!("limit={PAGE_PODS}");
            if let Some(next) = &all.next {
                let _ = write!(query, "&continue={}", encoded(next));
            }
            let body = whole(self.get(&query, LIST).await?.into_body(), MAX_PAGE).await?;
            let page = wire::page(&body).map_err(|error| Error::Malformed(format!("no list of pods: {error}")))?;
            all.pods.extend(page.pods.into_iter().filter(|pod| pod.scheme.is_some()));
            (all.version, all.next) = (page.version, page.next);
            if all.next.is_none() {
                return Ok(all);
            }
            if all.pods.len() > crate::pods::MAX_PODS {
                return Err(Error::Malformed(format!("more than {} pods of one node", crate::pods::MAX_PODS)));
            }
        }
    }

    /// What changes after `version`, for `period`.
    pub async fn watch(&self, version: &str, period: Duration) -> Result<Watch> {
        let query = format!(
            "watch=true&allowWatchBookmarks=true&timeoutSeconds={}&resourceVersion={}",
            period.as_secs().max(1),
            encoded(version)
        );
        let body = self.get(&query, WATCHED).await?.into_body();
        // A server that is gone without a word ends its watches no more.
        Ok(Watch { body, rest: Vec::new(), timeout: period + TIMEOUT })
    }

    async fn get(&self, query: &str, accept: &'static str) -> Result<Response<Incoming>> {
        let path = format!("/api/v1/pods?fieldSelector={}&{query}", encoded(&format!("spec.nodeName={}", self.node)));
        let request = Request::get(path)
            .header(HOST, self.server.authority())
            .header(ACCEPT, accept)
            .header(AUTHORIZATION, self.token()?)
            .header(USER_AGENT, concat!("isotherm-kube/", env!("CARGO_PKG_VERSION")))
            .body(Empty::<Bytes>::new())
            .map_err(|error| Error::connection("make a request", error))?;
        let answer = tokio::time::timeout(TIMEOUT, self.send(request));
        let answer = answer.await.map_err(|late| Error::connection("wait for the API server", late))??;
        let status = answer.status();
        if status == StatusCode::OK {
            return Ok(answer);
        }
        let message = wire::message(&whole(answer.into_body(), MAX_ERROR).await.unwrap_or_default());
        Err(match status {
            StatusCode::UNAUTHORIZED => Error::Unauthorized,
            StatusCode::FORBIDDEN => Error::Forbidden(message),
            StatusCode::GONE => Error::Expired,
            status => Error::Status { status: status.as_u16(), message },
        })
    }

    async fn send(&self, request: Request<Empty<Bytes>>) -> Result<Response<Incoming>> {
        let stream = TcpStream::connect((self.server.host.as_str(), self.server.port)).await;
        let stream = stream.map_err(|error| Error::connection("connect to the API server", error))?;
        if !self.server.is_tls {
            return exchange(stream, request).await;
        }
        let name = ServerName::try_from(self.server.host.clone())
            .map_err(|error| Error::connection("name the API server", error))?;
        let tls = TlsConnector::from(Arc::new(self.trust()?)).connect(name, stream).await;
        exchange(tls.map_err(|error| Error::connection("trust the API server", error))?, request).await
    }

    /// The token as a header, which is not shown in debug output.
    fn token(&self) -> Result<HeaderValue> {
        let text = read(&self.token_file, MAX_TOKEN)?;
        let text = std::str::from_utf8(&text).map(str::trim).unwrap_or_default();
        let is_token = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic());
        let wrong = || Error::File { path: self.token_file.clone(), why: "it has no token".to_owned() };
        let mut value = Some(text)
            .filter(|text| is_token(text))
            .ok_or_else(wrong)
            .and_then(|text| HeaderValue::from_str(&format!("Bearer {text}")).map_err(|_| wrong()))?;
        value.set_sensitive(true);
        Ok(value)
    }

    fn trust(&self) -> Result<ClientConfig> {
        let wrong = |why: String| Error::File { path: self.ca_file.clone(), why };
        let pem = read(&self.ca_file, MAX_CERTIFICATES)?;
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&pem) {
            let certificate = certificate.map_err(|error| wrong(error.to_string()))?;
            roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
        }
        if roots.is_empty() {
            return Err(wrong("it has no certificate".to_owned()));
        }
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::connection("set up TLS", error))?;
        Ok(config.with_root_certificates(roots).with_no_client_auth())
    }
}

/// A watch that is under way.
#[derive(Debug)]
pub struct Watch {
    body: Incoming,
    /// What came after the last whole line.
    rest: Vec<u8>,
    timeout: Duration,
}

impl Watch {
    /// The next event. `None` when the server has ended the watch.
    pub async fn next(&mut self) -> Result<Option<Event>> {
        loop {
            if let Some(end) = self.rest.iter().position(|&b| b == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                if line.iter().all(u8::is_ascii_whitespace) {
                    continue;
                }
                let event = wire::event(&line);
                return event.map(Some).map_err(|error| Error::Malformed(format!("no event: {error}")));
            }
            if self.rest.len() > MAX_LINE {
                return Err(Error::Malformed(format!("an event of more than {MAX_LINE} bytes")));
            }
            match piece(&mut self.body, self.timeout).await? {
                Some(bytes) => self.rest.extend_from_slice(&bytes),
                None if self.rest.is_empty() => return Ok(None),
                None => return Err(Error::Malformed("a part of an event".to_owned())),
            }
        }
    }
}

async fn exchange<S>(stream: S, request: Request<Empty<Bytes>>) -> Result<Response<Incoming>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let lost = |error: hyper::Error| Error::connection("talk to the API server", error);
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(lost)?;
    // Ends with the answer, or when that is dropped. What it fails with comes with the answer, too.
    tokio::spawn(async move {
        let _ = connection.await;
    });
    sender.send_request(request).await.map_err(lost)
}

/// The next piece of a body.
async fn piece(body: &mut Incoming, timeout: Duration) -> Result<Option<Bytes>> {
    loop {
        let frame = tokio::time::timeout(timeout, body.frame()).await;
        match frame.map_err(|late| Error::connection("wait for the API server", late))? {
            None => return Ok(None),
            Some(frame) => {
                let frame = frame.map_err(|error| Error::connection("read from the API server", error))?;
                // Trailers have nothing for us.
                if let Ok(bytes) = frame.into_data() {
                    return Ok(Some(bytes));
                }
            }
        }
    }
}

async fn whole(mut body: Incoming, most: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    while let Some(more) = piece(&mut body, TIMEOUT).await? {
        if bytes.len() + more.len() > most {
            return Err(Error::Malformed(format!("more than {most} bytes")));
        }
        bytes.extend_from_slice(&more);
    }
    Ok(bytes)
}

fn read(path: &Path, most: u64) -> Result<Vec<u8>> {
    use std::io::Read as _;
    let wrong = |why: String| Error::File { path: path.to_owned(), why };
    let file = std::fs::File::open(path).map_err(|error| wrong(error.to_string()))?;
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes).map_err(|error| wrong(error.to_string()))?;
    if bytes.len() as u64 > most { Err(wrong(format!("it is longer than {most} bytes"))) } else { Ok(bytes) }
}

/// As a value in a query: what comes from the server itself is no exception.
fn encoded(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            _ => {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_read_and_none_without_tls_but_on_loopback() {
        let of = |url| Server::parse(url).map(|server| (server.authority(), server.is_tls));
        assert_eq!(of("https://10.0.0.1"), Ok(("10.0.0.1:443".into(), true)));
        assert_eq!(of("https://[fd00::1]:6443/"), Ok(("[fd00::1]:6443".into(), true)));
        assert_eq!(of("https://[fd00::1]"), Ok(("[fd00::1]:443".into(), true)));
        assert_eq!(of("http://127.0.0.1:8001"), Ok(("127.0.0.1:8001".into(), false)));
        for bad in ["", "10.0.0.1", "http://10.0.0.1", "https://", "https://a b", "https://a:99999", "https://a/b"] {
            assert!(of(bad).is_err(), "{bad:?}");
        }
        let environment = |name: &str| (name == "KUBERNETES_SERVICE_HOST").then(|| "fd00::1".to_owned());
        assert_eq!(Server::from_environment(environment).unwrap().authority(), "[fd00::1]:443");
        assert!(Server::from_environment(|_| None).unwrap_err().contains("--server"));
    }

    #[test]
    fn a_token_is_one_word_and_is_not_printed() {
        let dir = tempfile::tempdir().unwrap();
        let token_file = dir.path().join("token");
        let server = Server::parse("https://10.0.0.1").unwrap();
        let api = Api { server, node: "n".into(), token_file: token_file.clone(), ca_file: dir.path().join("ca") };
        for bad in ["", " \n", "two words", "a\nHost: b", "\u{e4}"] {
            std::fs::write(&token_file, bad).unwrap();
            assert!(api.token().is_err(), "{bad:?}");
        }
        std::fs::write(&token_file, "secret-word\n").unwrap();
        let value = api.token().unwrap();
        assert!(value.to_str().unwrap() == "Bearer secret-word" && !format!("{value:?}").contains("secret"));
        std::fs::write(&api.ca_file, "no certificate").unwrap();
        assert!(api.trust().unwrap_err().to_string().contains("no certificate"));
    }

    #[test]
    fn values_in_a_query_stay_values() {
        assert_eq!(encoded("spec.nodeName=a&b c/%"), "spec.nodeName%3Da%26b%20c%2F%25");
    }
}
