//! The request of a call: JSON, or any bytes for a `google.api.HttpBody`, to messages behind their lengths.

use super::Transcoder;
use super::encode::encode;
use super::json::{self, Json, is_blank};
use super::schema::{Field, MessageId};
use super::weave::Weave;
use super::wire::{put_bytes, put_tag, put_varint};

/// How the content of a request becomes messages.
#[derive(Debug)]
pub(super) enum Content {
    /// One value, one message.
    One { text: Vec<u8>, into: Target },
    /// An array of them.
    Several { items: Items, into: Target },
    /// It is the data of a `google.api.HttpBody`.
    Body(Body),
}

/// What messages are made of beside the content.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) message: MessageId,
    /// The names of the field that the content is for; none if it is for the message.
    pub(super) field: Vec<String>,
    /// What path and query say, of the first message.
    pub(super) weave: Weave,
    pub(super) in_any_case: bool,
    pub(super) is_strict: bool,
}

/// Why there is no message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// The content is more than is collected.
    TooLarge,
    /// It is none, with what is wrong.
    Invalid(String),
}

impl From<String> for Refused {
    fn from(text: String) -> Self {
        Self::Invalid(text)
    }
}

impl Content {
    /// A piece of it. What it leads to is written.
    pub(super) fn push(
        &mut self,
        config: &Transcoder,
        data: &[u8],
        limit: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), Refused> {
        match self {
            Self::One { text, .. } => {
                if text.len() + data.len() > limit {
                    return Err(Refused::TooLarge);
                }
                text.extend_from_slice(data);
                Ok(())
            }
            Self::Several { items, into } => {
                let mut rest = data;
                while let Some(item) = items.next(&mut rest, limit)? {
                    into.write(config, &item, 1, out)?;
                }
                Ok(())
            }
            Self::Body(body) => body.push(data, limit, out),
        }
    }

    /// It is all here.
    pub(super) fn end(&mut self, config: &Transcoder, out: &mut Vec<u8>) -> Result<(), Refused> {
        match self {
            Self::One { text, into } => {
                let text = std::mem::take(text);
                into.write(config, if text.is_empty() { b"{}" } else { &text }, 0, out)?;
                Ok(())
            }
            Self::Several { items, .. } => items.end(),
            Self::Body(body) => {
                body.end(out);
                Ok(())
            }
        }
    }

    /// How much is held.
    pub(super) fn held(&self) -> usize {
        match self {
            Self::One { text, .. } => text.len(),
            Self::Several { items, .. } => items.text.len(),
            Self::Body(body) => body.data.len() + body.before.len(),
        }
    }
}

impl Target {
    /// Writes the message of a value that stands so deep in the content.
    fn write(
        &mut self,
        config: &Transcoder,
        text: &[u8],
        depth: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), String> {
        let mut value = json::parse(text, MOST_DEPTH - depth)?;
        for name in self.field.iter().rev() {
            value = Json::Object(vec![(name.clone(), value)]);
        }
        let weave = std::mem::take(&mut self.weave);
        let woven = if weave.is_empty() { Ok(()) } else { weave.weave(&mut value, self.is_strict) };
        framed(out, |out| encode(&config.schema, self.message, &value, self.in_any_case, out))?;
        woven
    }
}

/// Writes a message behind its length.
fn framed<E>(
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
) -> Result<(), E> {
    let start = out.len();
    out.extend([0; FRAME_START]);
    write(out)?;
    let length = u32::try_from(out.len() - start - FRAME_START).unwrap_or(u32::MAX);
    if let Some(place) = out.get_mut(start + 1..start + FRAME_START) {
        place.copy_from_slice(&length.to_be_bytes());
    }
    Ok(())
}

/// Cuts the items out of an array that comes in pieces. An item goes as far as its brackets and quotes say; whether it
/// is one shows when it is read.
#[derive(Debug, Default)]
pub(super) struct Items {
    state: State,
    /// Of the item that is not whole.
    text: Vec<u8>,
    depth: usize,
    /// It is in a string that this ends.
    quote: Option<u8>,
    is_escaped: bool,
    seen: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    BeforeArray,
    BeforeItem,
    InItem,
    BehindItem,
    BehindArray,
}

impl Items {
    /// The next item that is whole, if there is one. What is not looked at yet stays in `rest`.
    fn next(&mut self, rest: &mut &[u8], limit: usize) -> Result<Option<Vec<u8>>, Refused> {
        self.seen |= !rest.is_empty();
        while let [byte, behind @ ..] = *rest {
            if self.state == State::InItem {
                if self.is_item_over(*byte) {
                    self.state = State::BehindItem;
                    return Ok(Some(std::mem::take(&mut self.text)));
                }
                self.take(*byte, limit)?;
                *rest = behind;
                if self.depth == 0 && self.quote.is_none() && b"]}\"'".contains(byte) {
                    self.state = State::BehindItem;
                    return Ok(Some(std::mem::take(&mut self.text)));
                }
                continue;
            }
            *rest = behind;
            if is_blank(*byte) {
                continue;
            }
            self.state = match (self.state, byte) {
                (State::BeforeArray, b'[') | (State::BehindItem, b',') => State::BeforeItem,
                (State::BeforeItem | State::BehindItem, b']') => State::BehindArray,
                (State::BeforeItem, _) => {
                    self.take(*byte, limit)?;
                    State::InItem
                }
                (State::BeforeArray, b'{') => {
                    return wrong("Expected an array instead of an object");
                }
                (State::BeforeArray, b'"' | b'\'' | b'-' | b'0'..=b'9' | b't' | b'f' | b'n') => {
                    return wrong("Expected an array instead of a scalar value.");
                }
                (State::BeforeArray, _) => return wrong("Expected a value."),
                (State::BehindItem, _) => return wrong("Expected , or ] after array value."),
                (State::BehindArray | State::InItem, _) => {
                    return wrong("Parsing terminated before end of input.");
                }
            };
        }
        Ok(None)
    }

    /// Whether a byte that is not the item's comes next: of one without brackets and quotes.
    fn is_item_over(&self, byte: u8) -> bool {
        let is_open = self.depth > 0 || self.quote.is_some();
        !is_open && (b",]}".contains(&byte) || is_blank(byte))
    }

    fn take(&mut self, byte: u8, limit: usize) -> Result<(), Refused> {
        if self.text.len() >= limit {
            return Err(Refused::TooLarge);
        }
        self.text.push(byte);
        match (self.quote, byte) {
            (Some(_), _) if self.is_escaped => self.is_escaped = false,
            (Some(_), b'\\') => self.is_escaped = true,
            (Some(quote), byte) if quote == byte => self.quote = None,
            (Some(_), _) => {}
            (None, b'"' | b'\'') => self.quote = Some(byte),
            (None, b'[' | b'{') => self.depth += 1,
            (None, b']' | b'}') => self.depth = self.depth.saturating_sub(1),
            (None, _) => {}
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), Refused> {
        let wanted = match self.state {
            State::BehindArray => return Ok(()),
            State::BeforeArray if !self.seen => {
                return wrong("Expected an array instead of an object");
            }
            State::BeforeArray => "Expected a value.",
            State::BeforeItem => "Expected a value or ] within an array.",
            State::BehindItem => "Expected , or ] after array value.",
            State::InItem => {
                json::parse(&self.text, MOST_DEPTH)?;
                "Expected , or ] after array value."
            }
        };
        Err(Refused::Invalid(format!("Unexpected end of string. {wanted}\n\n^")))
    }
}

fn wrong<T>(text: &str) -> Result<T, Refused> {
    Err(Refused::Invalid(text.into()))
}

/// The content of a `google.api.HttpBody`.
#[derive(Debug, Default)]
pub(super) struct Body {
    /// What path and query say of the first message, without its length.
    pub(super) before: Vec<u8>,
    /// The fields that it is in.
    pub(super) field: Vec<u32>,
    pub(super) content_type: Vec<u8>,
    /// An `Any` of the parameters that are not known.
    pub(super) unknown: Vec<u8>,
    /// It is sent as it comes.
    pub(super) streams: bool,
    pub(super) data: Vec<u8>,
    pub(super) has_sent: bool,
}

impl Body {
    fn push(&mut self, data: &[u8], limit: usize, out: &mut Vec<u8>) -> Result<(), Refused> {
        if self.streams {
            for piece in data.chunks(MOST_PIECE) {
                self.data.extend_from_slice(piece);
                self.send(out);
            }
            return Ok(());
        }
        if self.data.len() + data.len() > limit {
            return Err(Refused::TooLarge);
        }
        self.data.extend_from_slice(data);
        Ok(())
    }

    fn end(&mut self, out: &mut Vec<u8>) {
        if !self.has_sent {
            self.send(out);
        }
    }

    fn send(&mut self, out: &mut Vec<u8>) {
        self.has_sent = true;
        let data = std::mem::take(&mut self.data);
        let mut inner = Vec::new();
        let content_type = std::mem::take(&mut self.content_type);
        if !content_type.is_empty() {
            put_bytes(1, &content_type, &mut inner);
        }
        if !self.unknown.is_empty() {
            put_bytes(3, &self.unknown, &mut inner);
        }
        put_tag(2, super::schema::LENGTH, &mut inner);
        put_varint(data.len() as u64, &mut inner);
        inner.extend(data);
        for number in self.field.iter().rev() {
            let content = std::mem::take(&mut inner);
            put_bytes(*number, &content, &mut inner);
        }
        let before = std::mem::take(&mut self.before);
        let whole = framed(out, |out| {
            out.extend(before);
            out.extend(inner);
            Ok::<_, std::convert::Infallible>(())
        });
        match whole {
            Ok(()) => {}
        }
    }
}

/// Parameters that are no field of the request, as `envoy.…grpc_json_transcoder.v3.UnknownQueryParams` in an `Any`.
pub(super) fn unknown(parameters: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut message = Vec::new();
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in parameters {
        if names.contains(&&**name) {
            continue;
        }
        names.push(name);
        let mut values = Vec::new();
        for (_, value) in parameters.iter().filter(|(it, _)| it == name) {
            put_bytes(1, value, &mut values);
        }
        let mut entry = Vec::new();
        put_bytes(1, name.as_bytes(), &mut entry);
        put_bytes(2, &values, &mut entry);
        put_bytes(1, &entry, &mut message);
    }
    if message.is_empty() {
        return message;
    }
    let mut any = Vec::new();
    put_bytes(1, UNKNOWN.as_bytes(), &mut any);
    put_bytes(2, &message, &mut any);
    any
}

/// The numbers of fields.
pub(super) fn numbers(path: &[Field]) -> Vec<u32> {
    path.iter().map(|field| field.number).collect()
}

const UNKNOWN: &str =
    "type.googleapis.com/envoy.extensions.filters.http.grpc_json_transcoder.v3.UnknownQueryParams";
/// A byte of flags and four of length.
pub(super) const FRAME_START: usize = 5;
/// How deep values nest.
const MOST_DEPTH: usize = 100;
/// Servers by gRPC take messages of four MiB at most.
const MOST_PIECE: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn items(text: &[u8], cut: usize) -> Result<Vec<String>, Refused> {
        let mut items = Items::default();
        let mut found = Vec::new();
        for piece in [&text[..cut], &text[cut..]] {
            let mut rest = piece;
            while let Some(item) = items.next(&mut rest, 1000)? {
                found.push(String::from_utf8(item).unwrap());
            }
        }
        items.end().map(|()| found)
    }

    #[test]
    fn items_are_cut_out_wherever_the_text_is_cut() {
        let text = br#" [ {"a":[1,"]}",'\'}']} ,2,"x\"," , [[]], null] "#;
        let wanted = [r#"{"a":[1,"]}",'\'}']}"#, "2", r#""x\",""#, "[[]]", "null"];
        for cut in 0..=text.len() {
            assert_eq!(items(text, cut).unwrap(), wanted, "cut at {cut}");
        }
        assert_eq!(items(b"[]", 1).unwrap(), [""; 0]);
        assert_eq!(items(b"[1,]", 1).unwrap(), ["1"]);
    }

    #[test]
    fn what_is_no_array_is_told() {
        let told = |text: &[u8]| match items(text, 0) {
            Err(Refused::Invalid(text)) => text,
            other => panic!("{other:?}"),
        };
        assert_eq!(told(b""), "Expected an array instead of an object");
        assert_eq!(told(b"{}"), "Expected an array instead of an object");
        assert_eq!(told(b"1"), "Expected an array instead of a scalar value.");
        assert_eq!(
            told(b"[1"),
            "Unexpected end of string. Expected , or ] after array value.\n\n^"
        );
        assert_eq!(told(b"[{"), "Unexpected end of string. Expected an object key or }.\n\n^");
        assert_eq!(told(b"[1 2]"), "Expected , or ] after array value.");
        assert_eq!(told(b"[]1"), "Parsing terminated before end of input.");
    }

    #[test]
    fn an_item_has_a_limit() {
        let mut items = Items::default();
        let mut rest = &b"[12345678,"[..];
        assert_eq!(items.next(&mut rest, 8), Ok(Some(b"12345678".to_vec())));
        let mut rest = &b",123456789"[..];
        assert_eq!(items.next(&mut rest, 8), Err(Refused::TooLarge));
    }

    #[test]
    fn a_body_is_sent_in_pieces() {
        let mut body = Body {
            streams: true,
            field: vec![3],
            content_type: b"a/b".to_vec(),
            ..Body::default()
        };
        let mut out = Vec::new();
        body.push(&vec![b'x'; MOST_PIECE + 1], 0, &mut out).unwrap();
        body.end(&mut out);
        let first = u32::from_be_bytes([out[1], out[2], out[3], out[4]]) as usize;
        assert!(first > MOST_PIECE && first < MOST_PIECE + 32);
        assert_eq!(out[first + FRAME_START..], *b"\0\0\0\0\x05\x1a\x03\x12\x01x");
        let mut whole = Vec::new();
        Body::default().end(&mut whole);
        assert_eq!(whole, b"\0\0\0\0\x02\x12\0");
    }
}
