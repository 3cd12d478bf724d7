//! `envoy.filters.http.grpc_web`: calls from browsers, whose trailers travel in the body (PROTOCOL-WEB.md).
//!
//! Arrives: a request of `application/grpc-web`, in Base64 where it says `-text`. Leaves: a call by gRPC; and its
//! response with a frame of trailers behind the messages. What is no response of gRPC becomes the text of a status.

use std::rc::Rc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::{Bytes, BytesMut};
use towpath_proto::{Head, Name};

use super::calls::{CallStats, Calls, Frames};
use super::{
    FilterConfig, FilterScope, HttpFilter, OnRequest, Release, Reply, RequestView, ResponseView,
    StreamFilter,
};
use crate::format::Facts;
use crate::grpc;
use crate::stats::GrpcProtocol;

/// Envoy `GrpcWeb`.
#[derive(Clone, Copy, Debug)]
pub struct GrpcWeb;

impl FilterConfig for GrpcWeb {
    fn start(&self, scope: &FilterScope) -> Rc<dyn HttpFilter> {
        Rc::new(Instance { calls: Calls::new(scope, GrpcProtocol::GrpcWeb) })
    }
}

#[derive(Debug)]
struct Instance {
    calls: Rc<Calls>,
}

impl HttpFilter for Instance {
    fn on_request(&self, request: &mut RequestView<'_>) -> OnRequest {
        let head = &mut *request.head;
        let Some(sent) = head.get(Name::ContentType).and_then(Coding::of) else {
            return OnRequest::Pass;
        };
        let wanted = head.get(Name::Accept).and_then(Coding::of).unwrap_or(Coding::Binary);
        head.remove(Name::ContentLength);
        head.set(Name::ContentType, b"application/grpc");
        head.set(Name::Te, b"trailers");
        if head.get_bytes(ACCEPT_ENCODING).is_none() {
            head.set_bytes(ACCEPT_ENCODING, b"identity");
        }
        OnRequest::Watch(Box::new(Call {
            stats: CallStats::of_path(&self.calls, head.path()).filter(|_| request.forwards),
            sent,
            wanted,
            undecoded: BytesMut::new(),
            unencoded: BytesMut::new(),
            frames: Frames::default(),
            refused: None,
        }))
    }
}

/// How a body is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coding {
    Binary,
    /// Base64.
    Text,
}

impl Coding {
    fn of(media_type: &[u8]) -> Option<Self> {
        match media_type {
            b"application/grpc-web" | b"application/grpc-web+proto" => Some(Self::Binary),
            b"application/grpc-web-text" | b"application/grpc-web-text+proto" => Some(Self::Text),
            _ => None,
        }
    }
}

/// A call from a browser.
#[derive(Debug)]
struct Call {
    stats: Option<CallStats>,
    sent: Coding,
    wanted: Coding,
    /// Less than four characters of the request.
    undecoded: BytesMut,
    /// Less than three bytes of the response.
    unencoded: BytesMut,
    frames: Frames,
    /// The text of a response that is none of gRPC.
    refused: Option<BytesMut>,
}

impl StreamFilter for Call {
    fn on_request_data(&mut self, data: &mut Bytes, _facts: &Facts<'_>) -> Result<(), Reply> {
        if self.sent == Coding::Binary {
            return Ok(());
        }
        self.undecoded.extend_from_slice(data);
        let whole = self.undecoded.len() / 4 * 4;
        let block = self.undecoded.split_to(whole);
        *data = BASE64.decode(&block).map_err(|_| bad_base64(BAD_DATA))?.into();
        Ok(())
    }

    fn on_request_end(&mut self, _facts: &Facts<'_>) -> Result<Bytes, Reply> {
        if self.undecoded.is_empty() { Ok(Bytes::new()) } else { Err(bad_base64(BAD_SIZE)) }
    }

    fn on_response_head(&mut self, response: &mut ResponseView<'_>) -> Release {
        self.count(response.facts, response.head);
        let head = &mut *response.head;
        self.unencoded.clear();
        self.frames = Frames::default();
        let is_call = if response.ends {
            head.get(Name::GrpcStatus).is_some()
        } else {
            head.status() == 200 && (grpc::is_grpc(head) || is_binary(head))
        };
        let media_type: &[u8] = match self.wanted {
            Coding::Binary => b"application/grpc-web+proto",
            Coding::Text => b"application/grpc-web-text+proto",
        };
        head.set(Name::ContentType, media_type);
        self.refused = (!is_call && !response.ends).then(BytesMut::new);
        if self.refused.is_some() {
            return Release::AtEnd;
        }
        if !response.ends {
            // What follows grows.
            head.remove(Name::ContentLength);
        }
        Release::Now
    }

    fn on_response_data(&mut self, data: &mut Bytes, _facts: &Facts<'_>) -> Result<(), Reply> {
        if let Some(text) = &mut self.refused {
            let room = MOST_MESSAGE - text.len();
            text.extend_from_slice(&data[..data.len().min(room)]);
            *data = Bytes::new();
        } else if self.wanted == Coding::Text {
            *data = self.encoded(&std::mem::take(data));
        }
        Ok(())
    }

    fn on_response_end(&mut self, trailers: Option<&mut Head>, facts: &Facts<'_>) -> Bytes {
        let Some(trailers) = trailers else { return self.last(Vec::new()) };
        self.count(facts, trailers);
        let mut block = Vec::new();
        for field in trailers.iter() {
            // As over HTTP/2, names are in lower case (PROTOCOL-WEB.md).
            block.extend(field.name_bytes.to_ascii_lowercase());
            block.push(b':');
            block.extend_from_slice(field.value);
            block.extend_from_slice(b"\r\n");
        }
        trailers.reset();
        let mut frame = vec![TRAILERS];
        frame.extend(u32::try_from(block.len()).unwrap_or(u32::MAX).to_be_bytes());
        frame.extend(block);
        self.last(frame)
    }

    fn release(
        &mut self,
        head: &mut Head,
        trailers: Option<&mut Head>,
        facts: &Facts<'_>,
    ) -> Bytes {
        if let Some(trailers) = trailers {
            self.count(facts, trailers);
            trailers.reset();
        }
        let text = self.refused.take().unwrap_or_default();
        let mut message = Vec::with_capacity(text.len());
        grpc::encode_message(&text, &mut message);
        head.set(Name::GrpcMessage, &message);
        head.set_number(Name::GrpcStatus, grpc::of_http(head.status()).into());
        head.set_number(Name::ContentLength, 0);
        Bytes::new()
    }
}

impl Call {
    fn count(&mut self, facts: &Facts<'_>, said: &Head) {
        if let Some(stats) = &mut self.stats {
            stats.count(facts, said);
        }
    }

    /// A piece of the response as the client reads it: in Base64 that is padded behind each message.
    fn encoded(&mut self, mut data: &[u8]) -> Bytes {
        let mut text = Vec::with_capacity(data.len().div_ceil(3) * 4 + 4);
        while !data.is_empty() {
            let (here, is_over) = self.frames.advance(data);
            self.unencoded.extend_from_slice(&data[..here]);
            data = &data[here..];
            let left = if is_over { 0 } else { self.unencoded.len() % 3 };
            let block = self.unencoded.split_to(self.unencoded.len() - left);
            text.extend_from_slice(BASE64.encode(&block).as_bytes());
        }
        text.into()
    }

    /// What is left of a message that was cut off, and a frame as the client reads it.
    fn last(&mut self, frame: Vec<u8>) -> Bytes {
        if self.wanted == Coding::Binary {
            return frame.into();
        }
        let left = self.unencoded.split();
        (BASE64.encode(&left) + &BASE64.encode(&frame)).into()
    }
}

/// Whether a response is one of gRPC-Web already.
fn is_binary(head: &Head) -> bool {
    let media_type = head.get(Name::ContentType).unwrap_or_default();
    let media_type = media_type.split(|&byte| byte == b';').next().unwrap_or_default();
    let media_type = media_type.trim_ascii_end().to_ascii_lowercase();
    Coding::of(&media_type) == Some(Coding::Binary)
}

fn bad_base64(details: &'static str) -> Reply {
    Reply::new(400, b"Bad gRPC-web request, invalid base64 data.", details)
}

const ACCEPT_ENCODING: &[u8] = b"grpc-accept-encoding";
const BAD_DATA: &str = "grpc_base_64_decode_failed";
const BAD_SIZE: &str = "grpc_base_64_decode_failed_bad_size";
/// The flags of a frame of trailers.
const TRAILERS: u8 = 0x80;
/// How much of a response that is none of gRPC's becomes a message.
const MOST_MESSAGE: usize = 16 * 1024;

#[cfg(test)]
mod tests {
    use towpath_proto::Instant;

    use super::*;
    use crate::record::Record;

    fn call(coding: Coding) -> Call {
        Call {
            stats: None,
            sent: coding,
            wanted: coding,
            undecoded: BytesMut::new(),
            unencoded: BytesMut::new(),
            frames: Frames::default(),
            refused: None,
        }
    }

    #[test]
    fn text_is_the_same_wherever_it_is_cut() {
        let record = Record::default();
        let facts = Facts::new(&record, Instant::ZERO);
        let plain = b"\0\0\0\0\x04four\0\0\0\0\0\0\0\0\0\x01x";
        let frames = [&plain[..9], &plain[9..14], &plain[14..]];
        let text = frames.map(|frame| BASE64.encode(frame)).concat();
        for cut in 0..=plain.len() {
            let mut call = call(Coding::Text);
            let mut encoded = Vec::new();
            for piece in [&plain[..cut], &plain[cut..]] {
                let mut piece = Bytes::copy_from_slice(piece);
                call.on_response_data(&mut piece, &facts).unwrap();
                encoded.extend(piece);
            }
            assert_eq!(encoded, text.as_bytes(), "cut at {cut}");
        }
        let sent = BASE64.encode(plain);
        for cut in 0..=sent.len() {
            let mut call = call(Coding::Text);
            let mut decoded = Vec::new();
            for piece in [&sent[..cut], &sent[cut..]] {
                let mut piece = Bytes::copy_from_slice(piece.as_bytes());
                call.on_request_data(&mut piece, &facts).unwrap();
                decoded.extend(piece);
            }
            assert!(call.on_request_end(&facts).is_ok());
            assert_eq!(decoded, plain, "cut at {cut}");
        }
    }

    #[test]
    fn of_what_is_no_answer_of_grpc_so_much_is_told() {
        let record = Record::default();
        let facts = Facts::new(&record, Instant::ZERO);
        let mut call = Call { refused: Some(BytesMut::new()), ..call(Coding::Binary) };
        for _ in 0..3 {
            let mut piece = Bytes::from(vec![b'x'; MOST_MESSAGE / 2 + 1]);
            call.on_response_data(&mut piece, &facts).unwrap();
            assert!(piece.is_empty());
        }
        let mut head = Head::response(503);
        assert!(call.release(&mut head, None, &facts).is_empty());
        assert_eq!(head.get(Name::GrpcMessage).map(<[u8]>::len), Some(MOST_MESSAGE));
        assert_eq!(head.get(Name::GrpcStatus), Some(&b"14"[..]));
    }
}
