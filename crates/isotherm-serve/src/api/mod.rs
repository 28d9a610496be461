//! The routes below the base: what the page and Prometheus read. A closed list; each answers from one view.

mod live;
mod overview;
mod picture;
mod plan;
mod process;

use crate::app::App;
use crate::gate::unknown;
use crate::metrics::text::Format;
use crate::reply::{Answer, Problem};
use crate::state::View;
use crate::web::accepts_gzip;
use axum::Router;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::IntoResponse;
use axum::routing::get;
use isotherm_heat::TargetId;
use std::sync::Arc;
use tower_http::CompressionLevel;
use tower_http::compression::CompressionLayer;

/// All routes, without the base.
pub fn routes(app: Arc<App>) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/api/overview", get(overview::overview))
        .route("/api/plan", get(plan::plan))
        .route("/api/process/{id}", get(process::process))
        .route("/api/tile/{id}", get(process::tile))
        .route("/api/picture/{id}", get(picture::picture))
        .route("/api/cell/{id}", get(process::cell))
        .route("/api/live", get(live::live))
        .fallback(get(page))
        .layer(CompressionLayer::new().gzip(true).quality(CompressionLevel::Fastest))
        .with_state(app)
}

async fn page(State(app): State<Arc<App>>, uri: Uri, headers: HeaderMap) -> Answer {
    app.pages.answer(uri.path().strip_prefix('/').unwrap_or_default(), &headers).ok_or_else(unknown)
}

async fn metrics(State(app): State<Arc<App>>, headers: HeaderMap) -> Answer {
    let view = view(&app)?;
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let (format, is_gzip) = (Format::accepted(accept), accepts_gzip(&headers));
    let body = axum::body::Bytes::from_owner(view.scrape.text(format, is_gzip));
    let kind = [(header::CONTENT_TYPE, format.content_type()), (header::VARY, "Accept, Accept-Encoding")];
    Ok(if is_gzip {
        (kind, [(header::CONTENT_ENCODING, "gzip")], body).into_response()
    } else {
        (kind, body).into_response()
    })
}

/// Makes an answer in a thread for that: connections must not wait for it.
async fn apart<T: Send + 'static>(make: impl FnOnce() -> T + Send + 'static) -> Result<T, Problem> {
    tokio::task::spawn_blocking(make).await.map_err(|_| {
        let what = "make an answer: its thread has failed; this is a bug, please report it";
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, what)
    })
}

/// The newest view.
fn view(app: &App) -> Result<Arc<View>, Problem> {
    let none = || {
        let what = "read the newest snapshot: the monitor has sent none yet; try again after its first window";
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, what)
    };
    app.state.view().ok_or_else(none)
}

/// The parameters of a request.
fn parameters<T>(query: Result<Query<T>, QueryRejection>) -> Result<T, Problem> {
    query.map(|Query(parameters)| parameters).map_err(|error| {
        Problem::bad(format!("read the parameters of a request: {}; see docs/guide/serve.md", error.body_text()))
    })
}

/// A process id as the API writes it.
fn id_text(id: TargetId) -> String {
    format!("{}-{}", id.pid, id.start_ticks)
}

fn parse_id(text: &str) -> Result<TargetId, Problem> {
    let parse = || {
        let (pid, start_ticks) = text.split_once('-')?;
        Some(TargetId { pid: pid.parse().ok()?, start_ticks: start_ticks.parse().ok()? })
    };
    parse().ok_or_else(|| Problem::bad("read a process: its id is PID-START, as in api/overview"))
}

fn no_process(id: TargetId) -> Problem {
    Problem::missing(format!("read process {}: it is in none of the snapshots that are kept; see api/overview", id.pid))
}
