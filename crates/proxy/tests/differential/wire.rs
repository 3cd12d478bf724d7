//! HTTP/1 messages off a socket, told as lines.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpStream;

use crate::coding;

/// A message as it was received.
#[derive(Debug, Default)]
pub(crate) struct Message {
    pub(crate) start: String,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Vec<(String, String)>,
    /// What went wrong with its end.
    pub(crate) broken: Option<&'static str>,
}

/// How the body of a message ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    Empty,
    Length(usize),
    Chunked,
    UntilClose,
}

impl Message {
    /// A head; none at the end of the connection.
    pub(crate) fn head(reader: &mut BufReader<TcpStream>) -> Option<Self> {
        let start = line(reader)?;
        let mut message = Self { start, ..Self::default() };
        message.broken = fields(reader, &mut message.fields).err();
        Some(message)
    }

    /// The values of a field, in lower case.
    pub(crate) fn field(&self, name: &str) -> Option<String> {
        let found = self.fields.iter().find(|(given, _)| given.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.to_ascii_lowercase())
    }

    /// How a body is framed by the fields alone; `default` when they say nothing.
    pub(crate) fn framing(&self, default: Framing) -> Framing {
        if self.field("transfer-encoding").is_some_and(|value| value.ends_with("chunked")) {
            return Framing::Chunked;
        }
        match self.field("content-length").and_then(|value| value.parse().ok()) {
            Some(length) => Framing::Length(length),
            None => default,
        }
    }

    /// Status of a response.
    pub(crate) fn status(&self) -> u16 {
        self.start.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
    }

    pub(crate) fn read_body(&mut self, reader: &mut BufReader<TcpStream>, framing: Framing) {
        match framing {
            Framing::Empty => {}
            Framing::Length(length) => {
                let got = reader.by_ref().take(length as u64).read_to_end(&mut self.body);
                if got.is_err() || self.body.len() < length {
                    self.broken = Some("body ends early");
                }
            }
            Framing::Chunked => self.broken = self.read_chunks(reader).err(),
            Framing::UntilClose => {
                self.broken = reader.read_to_end(&mut self.body).err().map(|_| "body is cut")
            }
        }
    }

    fn read_chunks(&mut self, reader: &mut BufReader<TcpStream>) -> Result<(), &'static str> {
        const EARLY: &str = "body ends early";
        loop {
            let size = line(reader).ok_or(EARLY)?;
            let size = u64::from_str_radix(size.split(';').next().unwrap_or_default().trim(), 16)
                .map_err(|_| "bad chunk")?;
            if size == 0 {
                return fields(reader, &mut self.trailers);
            }
            let got = reader.by_ref().take(size).read_to_end(&mut self.body).map_err(|_| EARLY)?;
            if (got as u64) < size || line(reader).is_none() {
                return Err(EARLY);
            }
        }
    }

    /// As lines for comparison: fields sorted by name, those of one name in their order.
    pub(crate) fn tell(&self, who: &str, told: &mut Vec<String>) {
        told.push(format!("{who}: {}", self.start));
        let mut fields: Vec<_> = self.fields.iter().collect();
        fields.sort_by_key(|(name, _)| name);
        told.extend(fields.iter().map(|(name, value)| format!("{who}: {name}: {value}")));
        match coding::plain(self.field("content-encoding").as_deref(), &self.body) {
            Some((coding, plain)) => {
                told.push(format!("{who}: body in {coding} {}", show(&plain)));
            }
            None if self.body.is_empty() => {}
            None => told.push(format!("{who}: body {}", show(&self.body))),
        }
        told.extend(
            self.trailers.iter().map(|(name, value)| format!("{who}: trailer {name}: {value}")),
        );
        told.extend(self.broken.map(|broken| format!("{who}: {broken}")));
    }
}

/// Bytes for a reader; long ones by length and sum.
pub(crate) fn show(bytes: &[u8]) -> String {
    if bytes.len() > 400 {
        let sum = bytes.iter().fold(0_u32, |sum, byte| sum.rotate_left(5) ^ u32::from(*byte));
        return format!("of {} bytes, sum {sum:08x}", bytes.len());
    }
    format!("\"{}\"", bytes.escape_ascii())
}

fn fields(
    reader: &mut BufReader<TcpStream>,
    into: &mut Vec<(String, String)>,
) -> Result<(), &'static str> {
    loop {
        let line = line(reader).ok_or("head ends early")?;
        if line.is_empty() {
            return Ok(());
        }
        let (name, value) = line.split_once(':').unwrap_or((&line, "(no colon)"));
        into.push((name.to_owned(), value.trim().to_owned()));
    }
}

/// A line without its end; none if the connection ended in it.
fn line(reader: &mut BufReader<TcpStream>) -> Option<String> {
    let mut line = Vec::new();
    reader.read_until(b'\n', &mut line).ok()?;
    let line = line.strip_suffix(b"\n")?;
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    Some(line.escape_ascii().to_string().replace("\\\"", "\"").replace("\\'", "'"))
}
