//! CONNECT (RFC 9110 §9.3.6).

use super::{Credentials, Progress, Refusal};

/// Waits for the answer to a CONNECT.
#[derive(Debug, Default)]
pub(super) struct Connect {
    head: Vec<u8>,
    /// What it says of credentials that it wants.
    pub(super) challenges: Vec<String>,
}

/// What is sent.
pub(super) fn request(
    authority: &str,
    fields: &[(String, String)],
    who: Option<&Credentials>,
) -> Vec<u8> {
    let mut text = format!("CONNECT {authority} HTTP/1.1\r\nhost: {authority}\r\n");
    if let Some(who) = who {
        text.push_str(&format!("proxy-authorization: {}\r\n", who.basic()));
    }
    for (name, value) in fields {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str("\r\n");
    text.into_bytes()
}

impl Connect {
    pub(super) fn receive(&mut self, chunk: &[u8]) -> Result<Progress, Refusal> {
        self.head.extend_from_slice(chunk);
        loop {
            let Some(end) = end_of_head(&self.head) else {
                return if self.head.len() > MOST_HEAD_BYTES {
                    Err(Refusal::Malformed)
                } else {
                    Ok(Progress::Waiting)
                };
            };
            if end > MOST_HEAD_BYTES {
                return Err(Refusal::Malformed);
            }
            let rest = self.head.split_off(end);
            let head = std::mem::replace(&mut self.head, rest);
            match status(&head).ok_or(Refusal::Malformed)? {
                // An interim answer; the final one follows (RFC 9110 §15.2). A switch of protocols is not asked for.
                100 | 102..=199 => {}
                // Whatever it says of its length, what follows is the tunnel's.
                200..=299 => return Ok(Progress::Open(std::mem::take(&mut self.head))),
                407 => {
                    self.challenges = challenges(&head);
                    return Err(Refusal::Credentials);
                }
                status => return Err(Refusal::Status(status)),
            }
        }
    }
}

impl Credentials {
    /// As a field says them (RFC 7617).
    #[must_use]
    pub fn basic(&self) -> String {
        format!("Basic {}", base64(format!("{}:{}", self.user, self.password).as_bytes()))
    }
}

/// Where the empty line ends. Lines end with LF, which most put a CR before (RFC 9112 §2.2).
fn end_of_head(bytes: &[u8]) -> Option<usize> {
    let mut line = 0;
    for (at, byte) in bytes.iter().enumerate() {
        if *byte == b'\n' {
            if matches!(&bytes[line..at], b"" | b"\r") && line > 0 {
                return Some(at + 1);
            }
            line = at + 1;
        }
    }
    None
}

/// The status of an answer of HTTP/1.
fn status(head: &[u8]) -> Option<u16> {
    let rest = head.strip_prefix(b"HTTP/1.")?;
    let [b'0'..=b'9', b' ', hundreds @ b'1'..=b'9', tens, ones, after, ..] = rest else {
        return None;
    };
    if !matches!(after, b' ' | b'\r' | b'\n') || !tens.is_ascii_digit() || !ones.is_ascii_digit() {
        return None;
    }
    let digit = |byte: &u8| u16::from(*byte - b'0');
    Some(digit(hundreds) * 100 + digit(tens) * 10 + digit(ones))
}

/// The values of the fields `proxy-authenticate` (RFC 9110 §11.7.1) that are text.
fn challenges(head: &[u8]) -> Vec<String> {
    let fields = head.split(|byte| *byte == b'\n').skip(1).filter_map(|line| {
        let (name, value) = std::str::from_utf8(line).ok()?.split_once(':')?;
        name.eq_ignore_ascii_case("proxy-authenticate").then(|| value.trim().to_owned())
    });
    fields.collect()
}

/// RFC 4648 §4.
fn base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let bits = group.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte));
        let bits = bits << (8 * (3 - group.len()));
        for place in 0..4 {
            let index = (bits >> (18 - 6 * place)) as usize & 63;
            text.push(if place <= group.len() { char::from(ALPHABET[index]) } else { '=' });
        }
    }
    text
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// More than proxies say.
const MOST_HEAD_BYTES: usize = 64 * 1024;
