//! The response of a call: messages behind their lengths to JSON, or to the data of `google.api.HttpBody`.

use base64::Engine as _;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use bytes::{Bytes, BytesMut};
use towpath_proto::{Head, Name};

use super::print::print;
use super::request::FRAME_START;
use super::wire::{Fields, inside, put_bytes, put_tag, put_varint};
use super::{Delimiter, Method, Transcoder};
use crate::grpc;

/// The messages of a response as they come.
#[derive(Debug, Default)]
pub(super) struct Messages {
    held: BytesMut,
}

impl Messages {
    pub(super) fn push(&mut self, data: &[u8]) {
        self.held.extend_from_slice(data);
    }

    pub(super) fn held(&self) -> usize {
        self.held.len()
    }

    /// The next one that is whole.
    pub(super) fn next(&mut self) -> Result<Option<Bytes>, String> {
        let Some([flag, length @ ..]) = self.held.first_chunk::<FRAME_START>().copied() else {
            return Ok(None);
        };
        if flag != 0 {
            return Err(format!("Unsupported gRPC frame flag: {flag}"));
        }
        let end = FRAME_START + u32::from_be_bytes(length) as usize;
        if self.held.len() < end {
            return Ok(None);
        }
        let mut message = self.held.split_to(end);
        Ok(Some(message.split_off(FRAME_START).freeze()))
    }

    /// Nothing follows.
    pub(super) fn end(&self) -> Result<(), String> {
        match self.held.first_chunk::<FRAME_START>() {
            None if self.held.is_empty() => Ok(()),
            None => Err("Incomplete gRPC frame header received".into()),
            Some([_, length @ ..]) => {
                let wanted = u32::from_be_bytes(*length);
                let held = self.held.len() - FRAME_START;
                Err(format!("Incomplete gRPC frame expected size: {wanted} actual size: {held}"))
            }
        }
    }
}

/// What has become of a response so far.
#[derive(Debug, Default)]
pub(super) struct Response {
    pub(super) messages: Messages,
    /// Of one whose head is held: what is its content.
    pub(super) content: Vec<u8>,
    /// Content has come.
    pub(super) has_body: bool,
    /// The first message of a stream was written.
    has_begun: bool,
    /// The one message that there is was written.
    is_over: bool,
    /// The head of a stream of them is on its way.
    pub(super) went_on: bool,
    /// The content type that an `HttpBody` has.
    pub(super) content_type: Option<Vec<u8>>,
}

/// What a message could not become, and the status of gRPC that stands for it.
pub(super) type Untold = (String, &'static str);

impl Response {
    /// A piece of it. What it leads to is written.
    pub(super) fn push(
        &mut self,
        (config, method): (&Transcoder, &Method),
        data: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Untold> {
        if self.is_over {
            return Ok(());
        }
        self.messages.push(data);
        while let Some(message) = self.messages.next().map_err(|text| (text, "INTERNAL"))? {
            if method.response_is_body {
                self.body(method, &message, out)?;
            } else {
                self.json((config, method), &message, out)?;
            }
            if self.is_over {
                self.messages = Messages::default();
                break;
            }
        }
        Ok(())
    }

    /// The data of an `HttpBody`; empty ones are passed over.
    fn body(&mut self, method: &Method, message: &Bytes, out: &mut Vec<u8>) -> Result<(), Untold> {
        if message.is_empty() {
            return Ok(());
        }
        let field = |message: &Bytes, number| inside(message, &[number]);
        let read = inside(message, &method.response_field)
            .and_then(|body| Ok((field(&body, 1)?, field(&body, 2)?)));
        let (content_type, data) =
            read.map_err(|_| ("Could not parse the HttpBody.".to_owned(), "INTERNAL"))?;
        out.extend_from_slice(&data);
        if self.content_type.is_none() && !self.went_on {
            self.content_type = Some(content_type.to_vec());
        }
        self.is_over = !method.server_streams;
        Ok(())
    }

    fn json(
        &mut self,
        (config, method): (&Transcoder, &Method),
        message: &Bytes,
        out: &mut Vec<u8>,
    ) -> Result<(), Untold> {
        let mut text = String::new();
        let (before, behind) = match (method.server_streams, config.delimiter) {
            (false, _) => ("", ""),
            (true, Delimiter::Events) => ("data: ", "\n\n"),
            (true, Delimiter::Lines) => ("", "\n"),
            (true, Delimiter::Array) if self.has_begun => (",", ""),
            (true, Delimiter::Array) => ("[", ""),
        };
        text.push_str(before);
        let printed = print(&config.schema, method.output, message, config.printing, &mut text);
        printed.map_err(|text| (text, "INVALID_ARGUMENT"))?;
        text.push_str(behind);
        out.extend_from_slice(text.as_bytes());
        self.has_begun = true;
        self.is_over = !method.server_streams;
        Ok(())
    }

    /// Whether it may end here.
    pub(super) fn end(&self, method: &Method) -> Result<(), Untold> {
        if self.is_over || method.response_is_body {
            return Ok(());
        }
        self.messages.end().map_err(|text| (text, "INTERNAL"))
    }

    /// What ends a stream of messages.
    pub(super) fn ending(&self, config: &Transcoder, method: &Method) -> &'static [u8] {
        if !method.server_streams || method.response_is_body {
            return b"";
        }
        match config.delimiter {
            Delimiter::Array if self.has_begun => b"]",
            Delimiter::Array => b"[]",
            Delimiter::Lines | Delimiter::Events => b"",
        }
    }
}

/// The status of a call as JSON, where that is asked for and there is something to tell.
pub(super) fn status_as_json(config: &Transcoder, said: &Head) -> Option<(u32, String)> {
    let kind = config.status?;
    let status = status_of(said).filter(|status| *status != 0)?;
    let message = details_of(config, said).unwrap_or_else(|| {
        let mut message = Vec::new();
        put_tag(1, 0, &mut message);
        put_varint(status.into(), &mut message);
        let text = grpc::decode_message(said.get(Name::GrpcMessage).unwrap_or_default());
        if !text.is_empty() {
            put_bytes(2, &text, &mut message);
        }
        message.into()
    });
    let mut text = String::new();
    print(&config.schema, kind, &message, config.printing, &mut text).ok()?;
    Some((status, text))
}

/// The status of a call, which may be one that means nothing to gRPC.
pub(super) fn status_of(said: &Head) -> Option<u32> {
    let digits = said.get(Name::GrpcStatus)?;
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(digits).ok()?.parse().ok().filter(|_| is_number)
}

/// What a status of gRPC stands for.
pub(super) fn http_status(status: u32) -> u16 {
    u8::try_from(status).map_or(500, grpc::http_status)
}

/// The `google.rpc.Status` that a server adds.
fn details_of(config: &Transcoder, said: &Head) -> Option<Bytes> {
    const EITHER: GeneralPurposeConfig =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let encoded = said.get_bytes(STATUS_DETAILS)?;
    let decoder = GeneralPurpose::new(&base64::alphabet::STANDARD, EITHER);
    let message: Bytes = decoder.decode(encoded).ok()?.into();
    Fields::read(&config.schema, config.status?, &message).ok()?;
    Some(message)
}

pub(super) const STATUS_DETAILS: &[u8] = b"grpc-status-details-bin";
