//! The receiving end. It trusts nothing: a frame is read as its bytes come, up to a limit, and checked as a whole.

use crate::error::{Error, Result};
use crate::frame::{FRAME_HEAD, HEADER, LOST, MAGIC, MAJOR, MAX_FRAME_BYTES, SNAPSHOT, decode};
use crate::rows::Snapshot;
use std::io::{self, Read};

/// What a monitor sends.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// The end of a window.
    Snapshot(Box<Snapshot>),
    /// This many snapshots are missing before the next one, because this reader was slow.
    Lost(u64),
}

/// Reads messages from a stream. After an error it is of no further use: it no longer knows where a frame begins.
#[derive(Debug)]
pub struct Reader<R> {
    inner: R,
    has_header: bool,
    /// Its allocation is kept from frame to frame.
    body: Vec<u8>,
}

impl<R: Read> Reader<R> {
    /// A reader of a stream from its first byte.
    pub fn new(inner: R) -> Reader<R> {
        Reader { inner, has_header: false, body: Vec::new() }
    }

    /// The next message; `None` if the stream has ended where one could have begun. Waits for it as `R` does.
    #[expect(clippy::should_implement_trait, reason = "it fails, and an iterator would have to say what follows then")]
    pub fn next(&mut self) -> Result<Option<Message>> {
        if !self.begins()? {
            return Ok(None);
        }
        loop {
            let mut head = [0; FRAME_HEAD];
            if !self.fill(&mut head, "a frame")? {
                return Ok(None);
            }
            let [kind, a, b, c, d] = head;
            self.body(u32::from_le_bytes([a, b, c, d]))?;
            match kind {
                SNAPSHOT => return Ok(Some(Message::Snapshot(Box::new(decode(&self.body)?)))),
                LOST => {
                    let count = self.body.first_chunk().ok_or_else(|| Error::damaged("a short count"))?;
                    return Ok(Some(Message::Lost(u64::from_le_bytes(*count))));
                }
                _ => {}
            }
        }
    }

    /// Whether the stream has begun: its header has come, which is sent as soon as a client is accepted. Waits for it.
    pub fn begins(&mut self) -> Result<bool> {
        if self.has_header { Ok(true) } else { self.header() }
    }

    /// Whether there is a header; there is none if the stream has ended before it.
    fn header(&mut self) -> Result<bool> {
        let mut header = [0; HEADER];
        if !self.fill(&mut header, "its header")? {
            return Ok(false);
        }
        if header[..8] != MAGIC {
            return Err(Error::damaged("it does not begin as a stream does"));
        }
        let found = u16::from_le_bytes([header[8], header[9]]);
        if found != MAJOR {
            return Err(Error::Version { found, known: MAJOR });
        }
        self.has_header = true;
        Ok(true)
    }

    /// Fills `buffer`. False if the stream has ended before its first byte.
    fn fill(&mut self, buffer: &mut [u8], what: &'static str) -> Result<bool> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.inner.read(&mut buffer[filled..]) {
                Ok(0) if filled == 0 => return Ok(false),
                Ok(0) => return Err(Error::Truncated { what }),
                Ok(n) => filled += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::Read(error)),
            }
        }
        Ok(true)
    }

    /// Reads a body. Memory grows with the bytes that have come, not with the length that was announced.
    fn body(&mut self, length: u32) -> Result<()> {
        let limit = u32::try_from(MAX_FRAME_BYTES).unwrap_or(u32::MAX);
        if length > limit {
            return Err(Error::damaged(format!("a frame of {length} bytes, more than {limit}")));
        }
        self.body.clear();
        let read = (&mut self.inner).take(length.into()).read_to_end(&mut self.body).map_err(Error::Read)?;
        if u32::try_from(read) == Ok(length) { Ok(()) } else { Err(Error::Truncated { what: "a frame" }) }
    }
}
