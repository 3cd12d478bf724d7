//! Random requests against a reader that is as simple as can be: it wants everything at once, copies
//! everything, and follows RFC 9112 line by line.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed; a script answers to what it cares about"
)]

use std::sync::Arc;

use bytes::Bytes;
use towpath_proto::Event;
use towpath_proto::HeadPool;
use towpath_proto::http1::{Options, Server};

#[test]
fn random_requests_are_read_as_the_model_reads_them() {
    let mut seen = [0; 3];
    // One for all: what lines came before is remembered in it.
    let mut pool = HeadPool::default();
    for seed in 0..60_000 {
        let mut random = Random(seed);
        let bytes = random.request();
        let expected = model(&bytes);
        seen[match expected {
            Outcome::Request { .. } => 0,
            Outcome::Refused => 1,
            Outcome::Unfinished => 2,
        }] += 1;
        let pieces = random.cut(&bytes);
        for pieces in [vec![Bytes::copy_from_slice(&bytes)], pieces] {
            let found = ours(&pieces, &mut pool);
            assert_eq!(found, expected, "seed {seed}: {}", bytes.escape_ascii());
        }
    }
    assert!(seen.iter().all(|&count| count > 2_000), "one-sided: {seen:?}");
}

#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Request { first: String, host: String, fields: Vec<(String, String)>, body: Vec<u8> },
    Refused,
    Unfinished,
}

fn ours(pieces: &[Bytes], pool: &mut HeadPool) -> Outcome {
    let mut server = Server::new(Arc::new(Options::default()));
    let (mut found, mut content) = (None, Vec::new());
    for piece in pieces {
        server.receive(piece.clone());
        loop {
            match server.poll(pool) {
                Ok(Some(Event::Head { head, .. })) => found = Some(head),
                Ok(Some(Event::Data(data))) => content.extend_from_slice(&data),
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(_) => return Outcome::Refused,
            }
        }
        if server.request_complete() {
            break;
        }
    }
    let (Some(head), true) = (found, server.request_complete()) else { return Outcome::Unfinished };
    let first = [head.method_bytes(), b" ", head.path()].concat();
    let fields =
        head.iter().map(|field| (text(field.name_bytes).to_lowercase(), text(field.value)));
    Outcome::Request {
        first: text(&first),
        host: text(head.authority()),
        fields: fields.collect(),
        body: content,
    }
}

fn model(bytes: &[u8]) -> Outcome {
    match read(bytes) {
        Ok(request) => request,
        Err(Stop::Bad) => Outcome::Refused,
        Err(Stop::Short) => Outcome::Unfinished,
    }
}

enum Stop {
    Bad,
    Short,
}

fn read(bytes: &[u8]) -> Result<Outcome, Stop> {
    let mut rest = bytes.strip_prefix(b"\r\n").unwrap_or(bytes);
    let first = line(&mut rest)?;
    let words: Vec<&str> = first.split(' ').collect();
    let [method, target, version @ ("HTTP/1.1" | "HTTP/1.0")] = words[..] else {
        return Err(Stop::Bad);
    };
    let known = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"];
    if !known.contains(&method)
        || target.is_empty()
        || !target.chars().all(|c| ('!'..='~').contains(&c) && c != '#')
    {
        return Err(Stop::Bad);
    }
    let (mut hosts, mut lengths, mut codings, mut fields) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    loop {
        let field = line(&mut rest)?;
        if field.is_empty() {
            break;
        }
        let (name, value) = field.split_once(':').ok_or(Stop::Bad)?;
        let token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
        if name.is_empty() || !name.chars().all(token) {
            return Err(Stop::Bad);
        }
        let (name, value) = (name.to_lowercase(), value.trim_matches([' ', '\t']).to_owned());
        match name.as_str() {
            "host" if hosts.is_empty() => hosts.push(value),
            "host" => return Err(Stop::Bad),
            "transfer-encoding" => codings.push(value.to_lowercase()),
            "content-length" => {
                let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
                let length = value.parse::<i64>().ok().filter(|_| digits).ok_or(Stop::Bad)?;
                lengths.push(length as usize);
                if lengths.len() > 1 {
                    return Err(Stop::Bad);
                }
                fields.push((name, value));
            }
            _ => fields.push((name, value)),
        }
    }
    let chunked = match &codings[..] {
        [] => false,
        [coding] if coding == "chunked" => true,
        _ => return Err(Stop::Bad),
    };
    let [host] = &hosts[..] else { return Err(Stop::Bad) };
    let host_is_valid = {
        let (name, port) = host.split_once(':').unwrap_or((host, ""));
        !name.is_empty()
            && name.chars().all(|c| c.is_ascii_alphanumeric() || "-._~!$&'()*+;=".contains(c))
            && port.chars().all(|c| c.is_ascii_digit())
            && (port.is_empty() || port.parse::<u16>().is_ok())
    };
    // The form of the target and whether a version is served are judged with the whole head.
    if version == "HTTP/1.0"
        || !target.starts_with('/')
        || !host_is_valid
        || (chunked && !lengths.is_empty())
    {
        return Err(Stop::Bad);
    }
    let mut body = Vec::new();
    if chunked {
        loop {
            let size = chunk_line(&mut rest)?;
            if size == 0 {
                while !line(&mut rest)
                    .and_then(|field| trailer(&field).map(|()| field.is_empty()))?
                {}
                break;
            }
            body.extend_from_slice(rest.get(..size).ok_or(Stop::Short)?);
            match &rest[size..] {
                [b'\r', b'\n', ..] => rest = &rest[size + 2..],
                [] | [b'\r'] => return Err(Stop::Short),
                _ => return Err(Stop::Bad),
            }
        }
    } else if let [length] = lengths[..] {
        body.extend_from_slice(rest.get(..length).ok_or(Stop::Short)?);
    }
    Ok(Outcome::Request { first: format!("{method} {target}"), host: host.clone(), fields, body })
}

fn trailer(field: &str) -> Result<(), Stop> {
    let name_is_valid = |name: &str| {
        !name.is_empty()
            && name.chars().all(|c| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c))
    };
    match field.split_once(':') {
        _ if field.is_empty() => Ok(()),
        Some((name, _)) if name_is_valid(name) => Ok(()),
        _ => Err(Stop::Bad),
    }
}

/// `1*HEXDIG [ ";" anything but control characters ] CRLF`, judged byte by byte.
fn chunk_line(rest: &mut &[u8]) -> Result<usize, Stop> {
    let mut digits = String::new();
    let mut extension = false;
    loop {
        match **rest {
            [] => return Err(Stop::Short),
            [b'\r'] if !digits.is_empty() => return Err(Stop::Short),
            [b'\r', b'\n', ..] if !digits.is_empty() => {
                *rest = &rest[2..];
                return usize::from_str_radix(&digits, 16).map_err(|_| Stop::Bad);
            }
            [byte, ..] if !extension && byte.is_ascii_hexdigit() && digits.len() < 15 => {
                digits.push(byte.into())
            }
            [b';', ..] if !digits.is_empty() => extension = true,
            [byte, ..] if extension && (byte == b'\t' || !byte.is_ascii_control()) => {}
            _ => return Err(Stop::Bad),
        }
        *rest = &rest[1..];
    }
}

/// A line without its CRLF, as text in Latin-1; a control character before it is as bad as no line.
fn line(rest: &mut &[u8]) -> Result<String, Stop> {
    let end = rest.iter().position(|byte| byte.is_ascii_control() && *byte != b'\t');
    let end = end.ok_or(Stop::Short)?;
    let found = text(&rest[..end]);
    match &rest[end..] {
        [b'\r', b'\n', ..] => {
            *rest = &rest[end + 2..];
            Ok(found)
        }
        [b'\r'] => Err(Stop::Short),
        _ => Err(Stop::Bad),
    }
}

fn text(bytes: &[u8]) -> String {
    bytes.iter().map(|&byte| char::from(byte)).collect()
}

/// Requests from the grammar, then damaged a little.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 ^ (self.0 >> 31)) >> 16) as usize % limit
    }

    fn pick<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.below(choices.len())]
    }

    fn request(&mut self) -> Vec<u8> {
        // Neighbouring seeds differ in few bits; some steps spread them.
        (0..8).for_each(|_| {
            self.below(2);
        });
        let mut text = String::new();
        text += self.pick(&["GET", "POST", "PUT", "DELETE", "PATCH"]);
        text += self.pick(&[" / HTTP/1.1\r\n", " /a/b?c=d HTTP/1.1\r\n", " /%20 HTTP/1.1\r\n"]);
        text += self.pick(&["Host: a\r\n", "host:b:80\r\n", "HOST: \tc.example \r\n"]);
        for _ in 0..self.below(4) {
            text += self.pick(&[
                "X: y\r\n",
                "Accept: */*\r\n",
                "x-request-id: 12345678901234567890\r\n",
                "Empty:\r\n",
                "User-Agent:  a\tb  \r\n",
                "Very-Long-Name-Of-A-Field-That-Nobody-Knows: value with: colons; and \u{e9}\r\n",
            ]);
        }
        let body = "hello, world\r\n";
        match self.below(4) {
            0 => {
                let length = self.below(body.len() + 1);
                text += &format!("Content-Length: {length}\r\n\r\n{}", &body[..length]);
            }
            1 => {
                text += "Transfer-Encoding: chunked\r\n\r\n";
                for _ in 0..self.below(4) {
                    let length = 1 + self.below(body.len());
                    let extension = self.pick(&["", ";a", ";b=\"c\""]);
                    text += &format!("{length:X}{extension}\r\n{}\r\n", &body[..length]);
                }
                text += self.pick(&["0\r\n\r\n", "00\r\nT: u\r\n\r\n", "0;x\r\n\r\n"]);
            }
            _ => text += "\r\n",
        }
        let mut bytes = text.into_bytes();
        for _ in 0..self.below(3) {
            self.damage(&mut bytes);
        }
        bytes
    }

    fn damage(&mut self, bytes: &mut Vec<u8>) {
        let at = self.below(bytes.len());
        match self.below(5) {
            0 => drop(bytes.remove(at)),
            1 => bytes.truncate(at.max(1)),
            2 => {
                let odd = [
                    0, b'\t', b'\n', b'\r', b' ', b':', b';', b',', b'#', b'0', b'a', 0x7f, 0x80,
                    0xff,
                ];
                bytes.insert(at, odd[self.below(odd.len())]);
            }
            3 => bytes[at] ^= 1 << self.below(8),
            _ => {
                let end = (at + 1 + self.below(20)).min(bytes.len());
                let copy = bytes[at..end].to_vec();
                bytes.splice(at..at, copy);
            }
        }
    }

    fn cut(&mut self, bytes: &[u8]) -> Vec<Bytes> {
        let mut pieces = Vec::new();
        let mut rest = bytes;
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(1 + self.below(rest.len().min(40)));
            pieces.push(Bytes::copy_from_slice(piece));
            rest = after;
        }
        pieces
    }
}
