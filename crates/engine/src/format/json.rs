//! `json_format`: a tree of keys, literals and commands, written as one line.

use super::append::{Short, append};
use super::command::{AddressForm, GrpcForm, StateForm};
use super::parse::parts;
use super::{Command, Facts, FormatError, FormatOptions, Part};
use crate::json::{escape_tail, has_escaped, json_string, number_text};

/// A value of `json_format`.
#[derive(Clone, Debug, PartialEq)]
pub enum JsonTemplate {
    /// A format string. One command alone keeps its type; all else is a string.
    Text(String),
    /// A number as it is.
    Number(f64),
    /// A truth value as it is.
    Bool(bool),
    /// `null` as it is.
    Null,
    /// An object.
    Object(Vec<(String, Self)>),
    /// A list.
    List(Vec<Self>),
}

/// The compiled tree.
#[derive(Clone, Debug)]
pub(super) enum Node {
    /// Ready bytes.
    Literal(Box<[u8]>),
    Null,
    /// One command whose value has a type of its own; `null` when missing, as of the next two.
    Typed {
        command: Command,
        max_length: Option<usize>,
    },
    /// One command whose value is a number.
    Number(Command),
    /// One command whose value is a string. Some need no look at what may be escaped.
    String {
        command: Command,
        max_length: Option<usize>,
        is_plain: bool,
    },
    /// The first of these that is something.
    First(Box<[Self]>),
    /// Several pieces: a string.
    Text(Box<[Part]>),
    /// Keys with their quotes and colon, and the comma before them where none is left out.
    Object(Box<[(Box<[u8]>, Self)]>),
    List(Box<[Self]>),
}

impl Node {
    pub(super) fn new(
        template: &JsonTemplate,
        options: &FormatOptions<'_>,
    ) -> Result<Self, FormatError> {
        Ok(match template {
            JsonTemplate::Text(text) => Self::text(parts(text, options)?),
            JsonTemplate::Number(number) => Self::Literal(number_text(*number).into_bytes().into()),
            JsonTemplate::Bool(value) => Self::Literal(value.to_string().into_bytes().into()),
            JsonTemplate::Null => Self::Null,
            JsonTemplate::List(list) => Self::List(
                list.iter().map(|node| Self::new(node, options)).collect::<Result<_, _>>()?,
            ),
            JsonTemplate::Object(fields) => {
                let mut sorted: Vec<_> = fields.iter().collect();
                sorted.sort_by(|(a, _), (b, _)| a.as_bytes().cmp(b.as_bytes()));
                let fields = sorted.into_iter().enumerate().map(|(index, (key, value))| {
                    let mut text = Vec::new();
                    // Where all are written, it is known which are behind another.
                    if index > 0 && !options.omit_empty_values {
                        text.push(b',');
                    }
                    json_string(&mut text, key.as_bytes());
                    text.push(b':');
                    Ok((text.into_boxed_slice(), Self::new(value, options)?))
                });
                Self::Object(fields.collect::<Result<_, _>>()?)
            }
        })
    }

    fn text(parts: Vec<Part>) -> Self {
        match <[Part; 1]>::try_from(parts) {
            Ok([Part::Command { before, command, max_length }]) if before == Short::default() => {
                if let Command::Coalesce(parts) = command {
                    let parts = parts.into_iter().map(|part| part.shortened(max_length));
                    Self::First(parts.map(|part| Self::text(vec![part])).collect())
                } else if command.is_typed() {
                    Self::Typed { command, max_length }
                } else if command.is_number() {
                    Self::Number(command)
                } else {
                    let is_plain = max_length.is_none() && command.is_plain();
                    Self::String { command, max_length, is_plain }
                }
            }
            Ok([Part::Literal(text)]) => Self::string(text.as_bytes()),
            Ok(parts) => Self::Text(parts.into()),
            Err(parts) if parts.is_empty() => Self::string(b""),
            Err(parts) => Self::Text(parts.into()),
        }
    }

    fn string(bytes: &[u8]) -> Self {
        let mut text = Vec::new();
        json_string(&mut text, bytes);
        Self::Literal(text.into())
    }

    /// Appends the value. False when it is empty and `omit_empty`: then nothing is appended.
    pub(super) fn write(&self, out: &mut Vec<u8>, facts: &Facts<'_>, omit_empty: bool) -> bool {
        match self {
            Self::Literal(bytes) => out.extend_from_slice(bytes),
            Self::Null => return null(out, omit_empty),
            Self::Typed { command, max_length } => {
                let start = out.len();
                if !command.write_typed(out, facts, *max_length) {
                    out.truncate(start);
                    return null(out, omit_empty);
                }
            }
            Self::Number(command) => {
                let start = out.len();
                if !command.write(out, facts) {
                    out.truncate(start);
                    return null(out, omit_empty);
                }
            }
            Self::String { command, max_length, is_plain } => {
                let start = out.len();
                out.push(b'"');
                if !command.write(out, facts) {
                    out.truncate(start);
                    return null(out, omit_empty);
                }
                if let Some(length) = max_length {
                    out.truncate(start + 1 + length);
                }
                if !is_plain {
                    escape_tail(out, start + 1);
                }
                out.push(b'"');
            }
            Self::First(nodes) => {
                let start = out.len();
                let is_some = |out: &mut Vec<u8>, node: &Self| {
                    let is_some = node.write(out, facts, true) && &out[start..] != b"\"\"";
                    if !is_some {
                        out.truncate(start);
                    }
                    is_some
                };
                if !nodes.iter().any(|node| is_some(out, node)) {
                    return null(out, omit_empty);
                }
            }
            Self::Text(parts) => {
                out.push(b'"');
                let start = out.len();
                for part in parts {
                    part.write(out, facts, if omit_empty { b"" } else { b"-" });
                }
                escape_tail(out, start);
                out.push(b'"');
            }
            Self::Object(fields) => {
                let start = out.len();
                out.push(b'{');
                for (key, value) in fields {
                    let mark = out.len();
                    if omit_empty {
                        separate(out, start);
                    }
                    append(out, key);
                    if !value.write(out, facts, omit_empty) {
                        out.truncate(mark);
                    }
                }
                return close(out, start, b'}', omit_empty);
            }
            Self::List(list) => {
                let start = out.len();
                out.push(b'[');
                for value in list {
                    let mark = out.len();
                    separate(out, start);
                    if !value.write(out, facts, omit_empty) {
                        out.truncate(mark);
                    }
                }
                return close(out, start, b']', omit_empty);
            }
        }
        true
    }
}

/// What JSON makes of a command.
impl Command {
    /// Whether it has a type of its own in JSON, which depends on the stream.
    const fn is_typed(&self) -> bool {
        matches!(
            self,
            Self::Metadata(..)
                | Self::FilterState { form: StateForm::Typed, .. }
                | Self::Cel { typed: true, .. }
        )
    }

    /// Whether its value never has what JSON escapes.
    fn is_plain(&self) -> bool {
        if let Self::StartTime(format) | Self::EmitTime(format) = self {
            // What stands between the parts of a time is the same at any time.
            let mut sample = Vec::new();
            format.write(&mut sample, 0);
            return !has_escaped(&sample);
        }
        matches!(
            self,
            Self::Protocol
                | Self::ResponseFlags
                | Self::ResponseFlagsLong
                | Self::TraceId
                | Self::SpanId
                | Self::UniqueId
                | Self::AccessLogType
        )
    }

    /// Whether its value is a number in JSON.
    fn is_number(&self) -> bool {
        matches!(
            self,
            Self::CommonDuration(..)
                | Self::GrpcStatus(GrpcForm::Number)
                | Self::BytesReceived
                | Self::BytesSent
                | Self::ConnectionId
                | Self::DownstreamDirectRemote(AddressForm::Port)
                | Self::DownstreamLocal(AddressForm::Port)
                | Self::DownstreamRemote(AddressForm::Port)
                | Self::DownstreamWireBytesReceived
                | Self::DownstreamWireBytesSent
                | Self::DownstreamHandshake
                | Self::Duration
                | Self::RequestDuration
                | Self::RequestHeadersBytes
                | Self::RequestTxDuration
                | Self::ResponseCode
                | Self::ResponseDuration
                | Self::ResponseHeadersBytes
                | Self::ResponseTrailersBytes
                | Self::ResponseTxDuration
                | Self::RouteLookups
                | Self::RouteLookupTime
                | Self::HeaderBytes { .. }
                | Self::Zero
                | Self::UpstreamConnectionId
                | Self::UpstreamConnectionPoolReadyDuration
                | Self::UpstreamRemote(AddressForm::Port)
                | Self::UpstreamLocal(AddressForm::Port)
                | Self::UpstreamRequestAttemptCount
                | Self::UpstreamWireBytesReceived
                | Self::UpstreamWireBytesSent
        )
    }
}

fn null(out: &mut Vec<u8>, omit_empty: bool) -> bool {
    if !omit_empty {
        out.extend_from_slice(b"null");
    }
    !omit_empty
}

/// A comma before all but the first of what began at `start`.
fn separate(out: &mut Vec<u8>, start: usize) {
    if out.len() > start + 1 {
        out.push(b',');
    }
}

fn close(out: &mut Vec<u8>, start: usize, bracket: u8, omit_empty: bool) -> bool {
    if omit_empty && out.len() == start + 1 {
        out.truncate(start);
        return false;
    }
    out.push(bracket);
    true
}
