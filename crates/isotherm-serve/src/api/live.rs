//! `api/live`: an event for each snapshot, so that pages need not ask. It has the time and the processes only; a page reads what it shows.

use super::id_text;
use crate::app::App;
use crate::reply::{Answer, NO_STORE, Problem};
use crate::state::Arrived;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::IntoResponse;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::stream;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast::error::RecvError;

/// A comment after so much silence shows that the server is there.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

pub async fn live(State(app): State<Arc<App>>) -> Answer {
    let permit = Arc::clone(&app.listeners).try_acquire_owned().map_err(|_| {
        let what = "listen for snapshots: too many do; close a page, and try again";
        Problem::new(StatusCode::TOO_MANY_REQUESTS, what)
    })?;
    let events = stream::unfold((app.state.subscribe(), permit), async |(mut arrivals, permit)| {
        loop {
            match arrivals.recv().await {
                Ok(arrived) => return Some((Ok::<_, Infallible>(event(&arrived)), (arrivals, permit))),
                // It was slow. The newest ones follow.
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return None,
            }
        }
    });
    let mut response = Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response();
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static(NO_STORE));
    Ok(response)
}

fn event(arrived: &Arrived) -> Event {
    let ids: Vec<String> = arrived.ids.iter().map(|id| id_text(*id)).collect();
    let data = serde_json::json!({ "at_ms": arrived.at_ms, "ids": ids });
    Event::default().event("snapshot").data(data.to_string())
}
