//! The network: the address, connections and their limits, TLS.
//!
//! A connection costs a client nothing, and us some memory. So there is a limit on their number, on the head of a request and the time that
//! it takes to come, and on the time that a client lets us wait while we write. Those beyond the number are closed at once: those
//! that are open must not suffer.

use crate::app::Service;
use crate::args::{Address, PORT};
use crate::secrets::Current;
use anyhow::{Context, Result};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Connections at once.
pub const MAX_CONNECTIONS: usize = 512;
/// The largest head of a request, bytes.
const MAX_HEAD: usize = 16 << 10;
/// How long the head of a request may take, or the handshake of TLS, and how long a connection may be idle. No usual interval of
/// scrapes: a connection should not end while its next request is under way.
const HEAD_TIMEOUT: Duration = Duration::from_secs(13);
/// How long a client may take nothing while an answer is written.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// Connections that wait to be accepted. The kernel's own bound is `net.core.somaxconn`.
const BACKLOG: i32 = 4096;
/// How many ports are tried.
const PORTS: u16 = 100;
/// How long to wait when the system has no more descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Listens.
pub fn listen(address: Address) -> Result<TcpListener> {
    let listener = match address.port {
        Some(port) => {
            let at = SocketAddr::new(address.ip, port);
            TcpListener::bind(at).with_context(|| format!("listen at {at}: choose another --listen ADDR:PORT"))?
        }
        None => first_free(address)?,
    };
    // The library's queue of 128 is full within milliseconds of a flood, and who finds it so tries again after a second.
    rustix::net::listen(&listener, BACKLOG).context("lengthen the queue of the socket that listens")?;
    listener.set_nonblocking(true).context("prepare the socket that listens")?;
    Ok(listener)
}

fn first_free(address: Address) -> Result<TcpListener> {
    let mut tried = (PORT..PORT + PORTS).map(|port| TcpListener::bind(SocketAddr::new(address.ip, port)));
    let is_other = |error: &std::io::Error| error.kind() != std::io::ErrorKind::AddrInUse;
    let found = tried.find(|bound| bound.as_ref().err().is_none_or(is_other));
    let doing =
        || format!("listen at {}, ports {PORT} to {}: give one as --listen ADDR:PORT", address.ip, PORT + PORTS - 1);
    found.unwrap_or_else(|| Err(std::io::ErrorKind::AddrInUse.into())).with_context(doing)
}

/// Reads certificates and their key.
pub fn tls(cert: &Path, key: &Path) -> Result<Arc<ServerConfig>> {
    let doing = |path: &Path| format!("read {}, in PEM", path.display());
    let chain = CertificateDer::pem_file_iter(cert).and_then(Iterator::collect).with_context(|| doing(cert))?;
    let key = PrivateKeyDer::from_pem_file(key).with_context(|| doing(key))?;
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let mut config = config.with_no_client_auth().with_single_cert(chain, key);
    if let Ok(config) = &mut config {
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
    }
    Ok(Arc::new(
        config.with_context(|| format!("use {} for TLS: do certificate and key belong together?", cert.display()))?,
    ))
}

/// Serves until the process ends.
pub async fn serve(
    listener: TcpListener,
    tls: Option<Current<Arc<ServerConfig>>>,
    service: Service,
) -> Result<Infallible> {
    let listener = tokio::net::TcpListener::from_std(listener).context("wait for connections")?;
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else { continue };
        let (service, tls) = (service.clone(), tls.as_ref().map(|tls| TlsAcceptor::from(tls.get())));
        tokio::spawn(async move {
            let _ = stream.set_nodelay(true);
            match tls {
                None => converse(stream, service).await,
                Some(tls) => {
                    if let Ok(Ok(stream)) = timeout(HEAD_TIMEOUT, tls.accept(stream)).await {
                        converse(stream, service).await;
                    }
                }
            }
            drop(place);
        });
    }
}

/// Answers the requests of a connection. How it ends is the client's affair.
async fn converse(stream: impl AsyncRead + AsyncWrite, service: Service) {
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(WRITE_TIMEOUT));
    let answer = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
        let service = service.clone();
        async move { Ok::<_, Infallible>(service.answer(request.map(axum::body::Body::new)).await) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(MAX_HEAD).keep_alive(true);
    let _ = builder.serve_connection(TokioIo::new(pin!(stream)), answer).await;
}
