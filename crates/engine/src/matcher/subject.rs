//! What matchers of connections and requests look at.

use std::borrow::Cow;
use std::net::IpAddr;

use towpath_proto::{Address, Head};

use crate::field::Field;
use crate::format::Facts;
use crate::format::cel::Expression;
use crate::record::DownstreamTls;
use crate::stream_info::{JsonStyle, SharedObject, StreamInfo, Struct, Value};
use crate::uri::query;

/// What is known of a connection, and of a request on it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Subject<'a> {
    /// Where the client wanted to go.
    pub local: Option<&'a Address>,
    /// The peer of the socket.
    pub direct: Option<&'a Address>,
    /// The client, as far as it is trusted.
    pub remote: Option<&'a Address>,
    /// The name by which the client asked for this server, as far as a listener filter has read it.
    pub server_name: &'a str,
    /// What a listener filter found below the client's protocol. Known while a filter chain is chosen.
    pub transport: Option<Transport>,
    /// The protocols that the client offers. Known while a filter chain is chosen.
    pub protocols: &'a [Box<[u8]>],
    /// How it is spoken to; `None` is plain text.
    pub tls: Option<&'a DownstreamTls>,
    /// The head of its request, if there is one.
    pub request: Option<&'a Head>,
    /// The head of the response to it, if there is one.
    pub response: Option<&'a Head>,
    /// It is an answer of our own.
    pub is_local_reply: bool,
    /// What filters have left of the stream.
    pub info: Option<&'a StreamInfo>,
    /// What expressions look at, beside the head.
    pub facts: Option<&'a Facts<'a>>,
    /// The host that is connected to, where it is about that.
    pub host: Option<HostSubject<'a>>,
}

/// What is known of a host, and of a stream that a connection to it is made for.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostSubject<'a> {
    /// Its endpoint's metadata, by namespace.
    pub endpoint: Option<&'a Struct>,
    /// Its locality's.
    pub locality: Option<&'a Struct>,
    /// The objects of the stream's filter state that go along with the connection.
    pub shared: &'a [SharedObject],
}

/// What a client speaks below its protocol. Envoy's `transport_protocol`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// `raw_buffer`.
    RawBuffer,
    /// `tls`.
    Tls,
}

/// An address of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// Where the client wanted to go.
    Local,
    /// The peer of the socket.
    Direct,
    /// The client, as `x-forwarded-for` and the trusted hops make it.
    Remote,
}

impl<'a> Subject<'a> {
    /// Whether an expression is true of it.
    pub(crate) fn has(&self, expression: &Expression) -> bool {
        let Some(facts) = self.facts else { return false };
        expression.holds(&Facts { request: self.request, ..*facts })
    }

    pub(crate) const fn address(&self, whose: Whose) -> Option<&'a Address> {
        match whose {
            Whose::Local => self.local,
            Whose::Direct => self.direct,
            Whose::Remote => self.remote,
        }
    }

    /// Whether the client is on this host, as Envoy's `source_type` has it.
    fn is_local(&self) -> bool {
        let ip = |address: Option<&Address>| address.and_then(Address::ip).map(|it| it.ip());
        match ip(self.remote) {
            Some(remote) => remote.is_loopback() || ip(self.local) == Some(remote),
            None => self.remote.is_some(),
        }
    }
}

/// What a matcher takes its text from. Envoy's data inputs.
#[derive(Clone, Debug)]
pub enum Input {
    /// `HttpRequestHeaderMatchInput`: all values of the header, with commas between them.
    RequestHeader(Field),
    /// `HttpRequestQueryParamMatchInput`: the parameter's first value.
    QueryParameter(Box<[u8]>),
    /// `HttpResponseHeaderMatchInput`: the same of the response's.
    ResponseHeader(Field),
    /// `HttpResponseStatusCodeMatchInput`: such as `404`.
    Status,
    /// `HttpResponseStatusCodeClassMatchInput`: such as `4xx`.
    StatusClass,
    /// `HttpResponseLocalReplyMatchInput`: `true` or `false`.
    LocalReply,
    /// `DestinationIPInput`, `SourceIPInput`, `DirectSourceIPInput`.
    Ip(Whose),
    /// `DestinationPortInput`, `SourcePortInput`.
    Port(Whose),
    /// `SourceTypeInput`: `local`, or nothing.
    SourceType,
    /// `ServerNameInput`.
    ServerName,
    /// `TransportProtocolInput`.
    Transport,
    /// `ApplicationProtocolInput`: such as `'h2','http/1.1'`.
    Protocols,
    /// `UriSanInput` of the client's certificate.
    Uris,
    /// `DnsSanInput` of the client's certificate.
    Domains,
    /// `SubjectInput` of the client's certificate.
    CertificateSubject,
    /// `FilterStateInput`: what an object of the filter state says, or one of its fields if it has some.
    FilterState {
        /// `key`.
        name: Box<str>,
        /// `field`; empty for all of it.
        field: Box<str>,
    },
    /// `DynamicMetadataInput`: a value, which is no text. A matcher of metadata says where it stands.
    Metadata,
    /// `EndpointMetadataInput`, `LocalityMetadataInput`: a value, as JSON if it is no string.
    HostMetadata {
        /// Its locality's.
        of_locality: bool,
        /// `filter`.
        namespace: Box<str>,
        /// `path`.
        path: Box<[Box<str>]>,
    },
    /// `FilterStateInput` of a transport socket: what an object says that goes along with the connection.
    SharedState(Box<str>),
    /// `HttpAttributesCelMatchInput`: all that an expression can ask for, which is no text either.
    Attributes,
}

impl Input {
    /// Whether it is a part of a request's head, or what filters left of the request.
    #[must_use]
    pub const fn is_of_request(&self) -> bool {
        matches!(
            self,
            Self::RequestHeader(_)
                | Self::QueryParameter(_)
                | Self::FilterState { .. }
                | Self::Metadata
                | Self::Attributes
        )
    }

    /// Whether it is a part of neither head: what only the record of a stream has.
    #[must_use]
    pub const fn is_of_record(&self) -> bool {
        !matches!(self, Self::RequestHeader(_) | Self::QueryParameter(_)) && !self.is_of_response()
    }

    /// Whether it is of a response.
    #[must_use]
    pub const fn is_of_response(&self) -> bool {
        matches!(
            self,
            Self::ResponseHeader(_) | Self::Status | Self::StatusClass | Self::LocalReply
        )
    }

    /// Whether it is known only while a filter chain is chosen.
    #[must_use]
    pub const fn is_of_arrival(&self) -> bool {
        matches!(self, Self::Transport | Self::Protocols)
    }

    /// Whether it is of a host that is connected to.
    #[must_use]
    pub const fn is_of_host(&self) -> bool {
        matches!(self, Self::HostMetadata { .. } | Self::SharedState(_))
    }

    /// The text, if there is one; then what `then` makes of it.
    pub(super) fn read<R>(
        &self,
        subject: &Subject<'_>,
        then: impl FnOnce(Option<&[u8]>) -> R,
    ) -> R {
        then(self.text(subject).as_deref())
    }

    /// The address, if there is one: of a text that is none there is none.
    pub(super) fn ip(&self, subject: &Subject<'_>) -> Option<IpAddr> {
        if let Self::Ip(whose) = self {
            return Some(subject.address(*whose)?.ip()?.ip());
        }
        self.read(subject, |text| std::str::from_utf8(text?).ok()?.parse().ok())
    }

    fn text<'a>(&'a self, subject: &Subject<'a>) -> Option<Cow<'a, [u8]>> {
        let peer = || subject.tls.and_then(|tls| tls.peer.as_ref());
        let owned = |text: String| Some(Cow::Owned(text.into_bytes()));
        let not_empty =
            |text: &'a str| (!text.is_empty()).then_some(Cow::Borrowed(text.as_bytes()));
        match self {
            Self::RequestHeader(field) => joined_values(field, subject.request?),
            Self::ResponseHeader(field) => joined_values(field, subject.response?),
            Self::Status => owned(subject.response?.status().to_string()),
            Self::StatusClass => match subject.response?.status() / 100 {
                class @ 1..=5 => owned(format!("{class}xx")),
                _ => None,
            },
            Self::LocalReply => Some(Cow::Borrowed(match subject.is_local_reply {
                true => b"true",
                false => b"false",
            })),
            Self::QueryParameter(name) => {
                query::first(subject.request?.path(), name).map(Cow::Borrowed)
            }
            Self::Ip(whose) => owned(subject.address(*whose)?.ip()?.ip().to_string()),
            Self::Port(whose) => owned(subject.address(*whose)?.ip()?.port().to_string()),
            Self::SourceType => subject.is_local().then_some(Cow::Borrowed(b"local")),
            Self::ServerName => not_empty(subject.server_name),
            Self::Transport => Some(Cow::Borrowed(match subject.transport? {
                Transport::RawBuffer => b"raw_buffer",
                Transport::Tls => b"tls",
            })),
            Self::Protocols => quoted(subject.protocols),
            Self::Uris => comma_separated(&peer()?.uris),
            Self::Domains => comma_separated(&peer()?.domains),
            Self::CertificateSubject => not_empty(&peer()?.subject),
            Self::FilterState { name, field } => subject.info?.read_state(name, |object| {
                let object = object?;
                let Some(fields) = object.fields.as_ref().filter(|_| !field.is_empty()) else {
                    return Some(Cow::Owned(object.value.to_vec()));
                };
                let Some(Value::String(text)) = fields.get(&**field) else { return None };
                Some(Cow::Owned(text.as_bytes().to_vec()))
            }),
            Self::HostMetadata { of_locality, namespace, path } => {
                let host = subject.host?;
                let all = if *of_locality { host.locality? } else { host.endpoint? };
                metadata_text(all.get(namespace).and_then(|value| value.at(path)))
            }
            Self::SharedState(name) => {
                let shared = subject.host?.shared.iter().find(|(known, _)| known == name);
                shared.map(|(_, value)| Cow::Borrowed(&**value)).filter(|text| !text.is_empty())
            }
            Self::Metadata | Self::Attributes => None,
        }
    }
}

/// A value of metadata as text. As in Envoy, one that is not there is `null`.
fn metadata_text(value: Option<&Value>) -> Option<Cow<'_, [u8]>> {
    match value {
        Some(Value::String(text)) if text.is_empty() => None,
        Some(Value::String(text)) => Some(Cow::Borrowed(text.as_bytes())),
        other => {
            let mut text = Vec::new();
            other.unwrap_or(&Value::Null).write_json(&mut text, JsonStyle::Plain);
            Some(Cow::Owned(text))
        }
    }
}

/// The values of a field, with commas between them.
pub(crate) fn joined_values<'a>(field: &'a Field, head: &'a Head) -> Option<Cow<'a, [u8]>> {
    let Field::Header(name) = field else {
        return field.first(head, |value| value.map(|value| Cow::Owned(value.to_vec())));
    };
    let mut values = head.get_all(name);
    let first = values.next()?;
    let Some(second) = values.next() else { return Some(Cow::Borrowed(first)) };
    let mut all = [first, b",", second].concat();
    for value in values {
        all.push(b',');
        all.extend_from_slice(value);
    }
    Some(Cow::Owned(all))
}

fn comma_separated<'a>(names: &[Box<[u8]>]) -> Option<Cow<'a, [u8]>> {
    let all: Vec<u8> = names.join(&b',');
    (!all.is_empty()).then_some(Cow::Owned(all))
}

fn quoted<'a>(protocols: &[Box<[u8]>]) -> Option<Cow<'a, [u8]>> {
    if protocols.is_empty() {
        return None;
    }
    let mut all = Vec::new();
    for protocol in protocols {
        let comma: &[u8] = if all.is_empty() { b"" } else { b"," };
        all.extend_from_slice(&[comma, b"'", protocol, b"'"].concat());
    }
    Some(Cow::Owned(all))
}
