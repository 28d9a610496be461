//! Answers that are no files: JSON and errors. An error says what was attempted, on what, and what to do.

use axum::body::Bytes;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

/// Answers are not kept: they are secret, and old after a second.
pub const NO_STORE: &str = "no-store";

/// What is wrong with a request.
#[derive(Debug)]
pub struct Problem {
    status: StatusCode,
    body: serde_json::Value,
}

impl Problem {
    /// With a sentence for the one who asked.
    pub fn new(status: StatusCode, error: impl Into<String>) -> Problem {
        Problem { status, body: serde_json::json!({ "error": error.into() }) }
    }

    /// The request cannot be read.
    pub fn bad(error: impl Into<String>) -> Problem {
        Problem::new(StatusCode::BAD_REQUEST, error)
    }

    /// What was asked for is not there.
    pub fn missing(error: impl Into<String>) -> Problem {
        Problem::new(StatusCode::NOT_FOUND, error)
    }

    /// The layout has changed: it is this one now.
    pub fn stale(layout: &str) -> Problem {
        let error = "read a tile: the addresses of the process have changed; read the process again";
        Problem { status: StatusCode::CONFLICT, body: serde_json::json!({ "layout": layout, "error": error }) }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let headers = [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, NO_STORE)];
        (self.status, headers, self.body.to_string()).into_response()
    }
}

/// An answer, or what is wrong.
pub type Answer = Result<Response, Problem>;

/// JSON that is written already.
pub fn json_text(text: Bytes) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}
