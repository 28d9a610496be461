//! Requests to a server on this machine, and events that it sends.

use super::PATIENCE;
use anyhow::{Context, Result, ensure};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

/// What a server has answered.
#[derive(Debug)]
pub(super) struct Answer {
    pub status: u16,
    pub is_gzip: bool,
    pub body: Vec<u8>,
}

/// Whether a connection is used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Connections {
    Kept,
    New,
}

/// Sends one request after the other.
#[derive(Debug)]
pub(super) struct Client {
    at: String,
    connections: Connections,
    open: Option<BufReader<TcpStream>>,
}

impl Client {
    /// One that keeps its connection.
    pub fn new(at: &str) -> Client {
        Client { at: at.to_owned(), connections: Connections::Kept, open: None }
    }

    /// The same with another choice.
    pub fn with(self, connections: Connections) -> Client {
        Client { connections, ..self }
    }

    /// The answer to a GET, which has to have a length.
    pub fn get(&mut self, path: &str, headers: &[(&str, &str)]) -> Result<Answer> {
        let mut stream = match self.open.take() {
            Some(stream) => stream,
            None => BufReader::new(connect(&self.at)?),
        };
        request(stream.get_mut(), &self.at, path, headers, self.connections)?;
        let answer = read(&mut stream).with_context(|| format!("read the answer to GET {path}"))?;
        self.open = Some(stream).filter(|_| self.connections == Connections::Kept);
        Ok(answer)
    }
}

fn connect(at: &str) -> Result<TcpStream> {
    let stream = TcpStream::connect(at).with_context(|| format!("connect to {at}"))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Writes a request at once: in pieces, the second would wait for the answer to the first.
fn request(
    stream: &mut TcpStream,
    at: &str,
    path: &str,
    headers: &[(&str, &str)],
    connections: Connections,
) -> Result<()> {
    let mut text = format!("GET {path} HTTP/1.1\r\nHost: {at}\r\n");
    headers.iter().for_each(|(name, value)| text += &format!("{name}: {value}\r\n"));
    if connections == Connections::New {
        text += "Connection: close\r\n";
    }
    Ok(stream.write_all(format!("{text}\r\n").as_bytes())?)
}

/// The lines of a head, without the empty one at its end.
fn head(stream: &mut BufReader<TcpStream>) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        ensure!(stream.read_line(&mut line)? > 0, "the server has closed the connection");
        let line = line.trim_end();
        if line.is_empty() {
            return Ok(lines);
        }
        lines.push(line.to_owned());
    }
}

fn status(head: &[String]) -> Result<u16> {
    let code = head.first().and_then(|line| line.split(' ').nth(1)).context("the answer has no status")?;
    Ok(code.parse()?)
}

fn value<'a>(head: &'a [String], name: &str) -> Option<&'a str> {
    let pairs = head.iter().skip(1).filter_map(|line| line.split_once(':'));
    pairs.filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).next()
}

fn read(stream: &mut BufReader<TcpStream>) -> Result<Answer> {
    let head = head(stream)?;
    let length: usize = value(&head, "content-length").context("it has no Content-Length")?.parse()?;
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok(Answer { status: status(&head)?, is_gzip: value(&head, "content-encoding") == Some("gzip"), body })
}

/// Events of a server, as an `EventSource` gets them.
#[derive(Debug)]
pub(super) struct Events(BufReader<TcpStream>);

impl Events {
    /// Listens from now on.
    pub fn listen(at: &str, path: &str) -> Result<Events> {
        let mut stream = BufReader::new(connect(at)?);
        request(stream.get_mut(), at, path, &[("Accept", "text/event-stream")], Connections::Kept)?;
        let status = status(&head(&mut stream)?)?;
        ensure!(status == 200, "listen to {path}: status {status}");
        Ok(Events(stream))
    }

    /// Waits for the next one, and returns its data. Lengths of chunks and comments are other lines.
    pub fn next(&mut self) -> Result<serde_json::Value> {
        loop {
            let mut line = String::new();
            ensure!(self.0.read_line(&mut line)? > 0, "the server has closed the connection");
            if let Some(data) = line.strip_prefix("data: ") {
                return serde_json::from_str(data).with_context(|| format!("read an event: {data:?}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// A client of a server that sends `answers`, one for each connection.
    fn answered(answers: &'static [&'static str]) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = BufReader::new(stream.try_clone().unwrap());
                super::head(&mut request).unwrap();
                stream.write_all(answer.as_bytes()).unwrap();
                // Until the client has closed.
                let _ = request.read_to_end(&mut Vec::new());
            }
        });
        at
    }

    #[test]
    fn a_body_is_as_long_as_its_head_says() {
        let at = answered(&["HTTP/1.1 200 OK\r\ncontent-LENGTH: 3\r\nContent-Encoding: gzip\r\n\r\nabcdef"]);
        let answer = Client::new(&at).with(Connections::New).get("/", &[]).unwrap();
        assert_eq!((answer.status, answer.is_gzip, answer.body.as_slice()), (200, true, b"abc".as_slice()));
        let at = answered(&["HTTP/1.1 404 Not Found\r\n\r\n"]);
        assert!(Client::new(&at).get("/", &[]).unwrap_err().to_string().contains("GET /"));
    }

    #[test]
    fn events_are_read_out_of_chunks_and_comments() {
        let body = "5\r\n: hi\n\r\n30\r\nevent: snapshot\ndata: {\"at_ms\":7,\"ids\":[]}\n\n\r\n";
        let answer = format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{body}");
        let at = answered(vec![&*answer.leak()].leak());
        assert_eq!(Events::listen(&at, "/live").unwrap().next().unwrap()["at_ms"], 7);
    }
}
