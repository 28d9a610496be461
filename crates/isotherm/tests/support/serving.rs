//! For stories of `isotherm serve`: its server, and what that answers.

use super::{Running, until};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Duration;

/// The server that `cargo test --workspace` builds beside the program.
pub fn server() -> Option<PathBuf> {
    Some(PathBuf::from(env!("CARGO_BIN_EXE_isotherm")).with_file_name("isotherm-serve")).filter(|path| path.is_file())
}

/// The server's address: its host and the path of its token.
pub fn address(run: &mut Running) -> (String, String) {
    let is_there = until(Duration::from_secs(30), || run.out().contains('\n') || run.has_ended());
    assert!(is_there, "{}", run.err());
    let out = run.out();
    let (_, url) = out.trim().split_once("listening on http://").unwrap_or_else(|| panic!("{out}\n{}", run.err()));
    let (host, path) = url.split_once('/').unwrap();
    (host.to_owned(), format!("/{path}"))
}

/// Status and body of an answer.
pub fn get(host: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(host).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}
