//! The files of the page, which are in the program. They are compressed once, when it starts.

use crate::metrics::render::gzip;
use crate::reply::NO_STORE;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use rust_embed::Embed;
use std::collections::HashMap;

#[derive(Embed)]
#[folder = "../../web/dist"]
struct Dist;

/// The file that is served at the base.
const INDEX: &str = "index.html";
/// Smaller files do not become smaller.
const MIN_PACKED: usize = 512;
/// Digits of a hash in a file name, from which on its contents never change under that name.
const HASH_DIGITS: usize = 8;

/// Files by their path.
#[derive(Debug)]
pub struct Pages(HashMap<String, File>);

#[derive(Debug)]
struct File {
    plain: Bytes,
    packed: Option<Bytes>,
    content_type: &'static str,
    etag: String,
    cache: &'static str,
}

impl Pages {
    /// All files.
    pub fn load() -> Pages {
        Pages(Dist::iter().filter_map(|path| Some((path.to_string(), File::load(&path)?))).collect())
    }

    /// The file at a path below the base.
    pub fn answer(&self, path: &str, request: &HeaderMap) -> Option<Response> {
        let file = self.0.get(if path.is_empty() { INDEX } else { path })?;
        let text = |name| request.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let headers = [
            (header::ETAG, file.etag.as_str()),
            (header::CACHE_CONTROL, file.cache),
            (header::VARY, "Accept-Encoding"),
        ];
        if text(header::IF_NONE_MATCH).split(',').any(|tag| tag.trim().trim_start_matches("W/") == file.etag) {
            return Some((StatusCode::NOT_MODIFIED, headers).into_response());
        }
        let content_type = [(header::CONTENT_TYPE, file.content_type)];
        Some(match &file.packed {
            Some(packed) if accepts_gzip(request) => {
                let encoding = [(header::CONTENT_ENCODING, "gzip")];
                (headers, content_type, encoding, Body::from(packed.clone())).into_response()
            }
            _ => (headers, content_type, Body::from(file.plain.clone())).into_response(),
        })
    }
}

impl File {
    fn load(path: &str) -> Option<File> {
        let file = Dist::get(path)?;
        let plain = Bytes::from(file.data.into_owned());
        let packed = (plain.len() >= MIN_PACKED).then(|| Bytes::from(gzip(&plain))).filter(|p| p.len() < plain.len());
        let hash: String = file.metadata.sha256_hash()[..16].iter().map(|byte| format!("{byte:02x}")).collect();
        let cache = if is_hashed(path) { "public, max-age=31536000, immutable" } else { NO_STORE };
        Some(File { plain, packed, content_type: content_type(path), etag: format!("\"{hash}\""), cache })
    }
}

/// Whether a name has a hash, such as `app-0123abcd.js`: not if it is only one number.
fn is_hashed(path: &str) -> bool {
    let stem = path.rsplit_once('.').map_or(path, |(stem, _)| stem);
    let hash = stem.rsplit_once(['-', '.']).map_or("", |(_, hash)| hash);
    hash.len() >= HASH_DIGITS
        && hash.bytes().all(|byte| byte.is_ascii_alphanumeric())
        && hash.bytes().any(|b| b.is_ascii_digit())
}

fn content_type(path: &str) -> &'static str {
    match path.rsplit_once('.').map_or("", |(_, extension)| extension) {
        "html" => "text/html; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "json" | "map" | "webmanifest" => "application/json",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "ico" => "image/x-icon",
        "woff2" => "font/woff2",
        "txt" => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

/// Whether a client takes compressed answers.
pub fn accepts_gzip(request: &HeaderMap) -> bool {
    let values = request.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        let is_gzip = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
        is_gzip && !parts.any(|part| part.trim_start_matches("q=").parse() == Ok(0.0_f32))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_a_hash_are_cached_for_long() {
        assert!(is_hashed("app-0123abcd.js") && is_hashed("assets/app.9f8e7d6c5b.css"));
        assert!(!is_hashed("index.html") && !is_hashed("app.js") && !is_hashed("jquery-components.js"));
    }

    #[test]
    fn gzip_is_sent_to_those_who_take_it() {
        let with = |value: &'static str| HeaderMap::from_iter([(header::ACCEPT_ENCODING, value.parse().unwrap())]);
        assert!(
            accepts_gzip(&with("br, GZIP;q=0.5")) && !accepts_gzip(&with("gzip;q=0")) && !accepts_gzip(&with("br"))
        );
        assert!(!accepts_gzip(&HeaderMap::new()));
    }

    #[test]
    fn the_page_is_there_and_is_not_sent_twice() {
        let pages = Pages::load();
        let first = pages.answer("", &HeaderMap::new()).unwrap();
        assert_eq!(first.headers()[header::CONTENT_TYPE], "text/html; charset=utf-8");
        let known = HeaderMap::from_iter([(header::IF_NONE_MATCH, first.headers()[header::ETAG].clone())]);
        assert_eq!(pages.answer("index.html", &known).unwrap().status(), StatusCode::NOT_MODIFIED);
        for path in ["../Cargo.toml", "..", "/index.html", "index.html/", "src/lib.rs"] {
            assert!(pages.answer(path, &HeaderMap::new()).is_none(), "{path}");
        }
    }
}
