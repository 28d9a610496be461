//! What all requests share, and the way of a request: gate, route, and the headers of every answer.

use crate::api;
use crate::bodies::Bodies;
use crate::gate::{Gate, Wanted};
use crate::reply::{NO_STORE, Problem};
use crate::state::State;
use crate::web::Pages;
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tower::ServiceExt;

/// How many may listen for snapshots at once.
const MAX_LISTENERS: usize = 32;
/// Tiles that are rendered at once.
const MAX_TILES: usize = 2;
/// How long an answer may take to be made.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Scripts, styles and data come from here only; a picture may also be one that the page has drawn.
const POLICY: &str = "default-src 'self'; img-src 'self' blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'";
const HEADERS: [(HeaderName, &str); 5] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// What requests share.
#[derive(Debug)]
pub struct App {
    /// The newest view.
    pub state: Arc<State>,
    /// Who may read.
    pub gate: Gate,
    /// The files of the page.
    pub pages: Pages,
    /// Who listens for snapshots.
    pub listeners: Arc<Semaphore>,
    /// Tiles that are rendered.
    pub tiles: Arc<Semaphore>,
    /// Memory of answers that are sent.
    pub bodies: Bodies,
}

impl App {
    /// An application that shows `state`.
    pub fn new(state: Arc<State>, gate: Gate) -> App {
        let [listeners, tiles] = [MAX_LISTENERS, MAX_TILES].map(|places| Arc::new(Semaphore::new(places)));
        App { state, gate, pages: Pages::load(), listeners, tiles, bodies: Bodies::default() }
    }
}

/// Answers requests.
#[derive(Clone, Debug)]
pub struct Service {
    app: Arc<App>,
    routes: Router,
}

impl Service {
    /// A service for an application.
    pub fn new(app: App) -> Service {
        let app = Arc::new(app);
        Service { routes: api::routes(Arc::clone(&app)), app }
    }

    /// The answer to a request.
    pub async fn answer(&self, request: Request) -> Response {
        let is_head = request.method() == Method::HEAD;
        let admitted = self.app.gate.admit(request.method(), request.uri(), request.headers());
        let keeps_connection = matches!(admitted, Ok(Wanted::Path(_)));
        let mut response = match admitted {
            Ok(Wanted::Health) => "ok\n".into_response(),
            Ok(Wanted::Readiness) if self.app.state.view().is_some() => "ready\n".into_response(),
            Ok(Wanted::Readiness) => (StatusCode::SERVICE_UNAVAILABLE, "no snapshot yet\n").into_response(),
            Ok(Wanted::Path(path)) => self.route(&path, request).await,
            Err(problem) => problem.into_response(),
        };
        finish(&mut response);
        if !keeps_connection {
            // Without the token, nobody keeps one of the places for connections: not by asking again and again either. What
            // follows on the connection may also be a body that is not read.
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        if is_head {
            *response.body_mut() = Body::empty();
        }
        response
    }

    async fn route(&self, path: &str, mut request: Request) -> Response {
        let query = request.uri().query().map_or(String::new(), |query| format!("?{query}"));
        let Ok(uri) = format!("/{path}{query}").parse::<Uri>() else {
            return Problem::bad("read a request: its address cannot be read; open the one that was printed")
                .into_response();
        };
        *request.uri_mut() = uri;
        match tokio::time::timeout(TIMEOUT, self.routes.clone().oneshot(request)).await {
            Ok(Ok(response)) => response,
            Err(_) => {
                let what = "make an answer: it took too long; ask for a smaller tile";
                Problem::new(StatusCode::SERVICE_UNAVAILABLE, what).into_response()
            }
        }
    }
}

/// The headers that every answer has.
fn finish(response: &mut Response) {
    let status = response.status();
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static(NO_STORE));
    if status == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
}
