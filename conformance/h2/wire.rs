//! HTTP/2 as bytes (RFC 9113 §4.1, §6), as no codec would write it.
//!
//! Depends on nothing but the standard library, so that every test can take it by `#[path]`.
#![allow(dead_code, reason = "each user needs a part of it")]

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RESET: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GO_AWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const ACK: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

/// SETTINGS_INITIAL_WINDOW_SIZE (RFC 9113 §6.5.2).
pub(crate) const INITIAL_WINDOW: u16 = 4;

/// One frame.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    let header = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
    [&header, payload].concat()
}

/// The preface and SETTINGS, each an identifier and a value.
pub(crate) fn opening(settings: &[(u16, u32)]) -> Vec<u8> {
    let setting = |(id, value): &(u16, u32)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat();
    let settings: Vec<u8> = settings.iter().flat_map(setting).collect();
    [PREFACE, &frame(SETTINGS, 0, 0, &settings)].concat()
}

/// WINDOW_UPDATE.
pub(crate) fn window_update(stream: u32, more: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &more.to_be_bytes())
}

/// A header block of literals, neither indexed nor compressed (RFC 7541 §6.2.2).
pub(crate) fn block<'a>(fields: impl IntoIterator<Item = (&'a [u8], &'a [u8])>) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            put_length(&mut block, text.len());
            block.extend_from_slice(text);
        }
    }
    block
}

/// RFC 7541 §5.1, with a prefix of seven bits.
pub(crate) fn put_length(out: &mut Vec<u8>, length: usize) {
    if length < 127 {
        return out.push(length as u8);
    }
    out.push(127);
    let mut left = length - 127;
    while left >= 128 {
        out.push((left % 128) as u8 | 128);
        left /= 128;
    }
    out.push(left as u8);
}

/// The usual fields of a request.
pub(crate) fn request<'a>(method: &'a str, path: &'a str) -> Vec<(&'a [u8], &'a [u8])> {
    let fields = [(":method", method), (":scheme", "http"), (":authority", "a"), (":path", path)];
    fields.map(|(name, value)| (name.as_bytes(), value.as_bytes())).to_vec()
}

/// HEADERS with such a request, whole.
pub(crate) fn head(stream: u32, method: &str, path: &str, end: bool) -> Vec<u8> {
    let flags = if end { END_STREAM | END_HEADERS } else { END_HEADERS };
    frame(HEADERS, flags, stream, &block(request(method, path)))
}

/// The first frame in the bytes: type, flags, stream and payload, and how long it is; none if it is not whole.
pub(crate) fn first_frame(bytes: &[u8]) -> Option<(u8, u8, u32, &[u8])> {
    let header = bytes.first_chunk::<9>()?;
    let length = u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
    let stream = u32::from_be_bytes([header[5], header[6], header[7], header[8]]);
    Some((header[3], header[4], stream, bytes.get(9..9 + length)?))
}
