//! What each command says of the facts.

use std::cell::RefCell;
use std::hash::{BuildHasher as _, RandomState};
use std::net::{IpAddr, SocketAddr};

use towpath_proto::tls::{CipherSuite, Group, Version};
use towpath_proto::{Address, Head, Instant, Name};

use super::Facts;
use super::append::{append, append_number};
use super::command::{
    AddressForm, Asked, Bound, Command, GrpcForm, MetadataOf, OfTls, Print, Said, Shown, Source,
    StateForm, TimePoint,
};
use super::time::TimeFormat;
use crate::field::Field;
use crate::grpc;
use crate::json::json_string;
use crate::number::AddressText;
use crate::random::{Random, hex};
use crate::record::{DownstreamTls, Flags, Heads, Record, ShownCertificate, UpstreamTls};
use crate::stream_info::{JsonStyle, Value, write_struct};
use crate::uri::{path_end, query, without_port};

impl Command {
    /// Appends the value; false, and nothing appended, when it is missing.
    pub(super) fn write(&self, out: &mut Vec<u8>, facts: &Facts<'_>) -> bool {
        let record = facts.record;
        match self {
            Self::Absent | Self::Environment(_) => false,
            Self::Coalesce(parts) => parts.iter().any(|part| part.write_some(out, facts)),
            Self::Empty => true,
            Self::Cel { expression, .. } => {
                expression.value(facts).inspect(|value| value.print(out)).is_some()
            }
            Self::Zero => number(out, 0),
            // Of a request it says how long before it that was.
            Self::DownstreamHandshake => record.client.handshake_end.is_some_and(|end| {
                let millis = end.millis_since(record.start);
                match record.start.millis_since(end) {
                    0 => number(out, millis),
                    before => text(out, "-") && number(out, before),
                }
            }),
            Self::DownstreamTransportFailure => underscored(out, record.client.failure),
            Self::RouteLookups => number(out, record.route_lookups.into()),
            Self::RouteLookupTime => record.route_lookup_time.is_some_and(|time| {
                number(out, u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
            }),
            Self::Metadata(whose, namespace, path) => {
                whose.read(facts, namespace, path, |value| match value {
                    None | Some(Value::Null) => false,
                    // An empty one is there, as Envoy sees it.
                    Some(Value::String(it)) => {
                        append(out, it.as_bytes());
                        true
                    }
                    Some(value) => {
                        value.write_json(out, JsonStyle::Plain);
                        true
                    }
                })
            }
            Self::FilterState { name, form } => facts.info.is_some_and(|info| {
                info.read_state(name, |object| {
                    let Some(object) = object else { return false };
                    if let (StateForm::Typed, Some(json)) = (form, &object.json) {
                        append(out, json);
                        return true;
                    }
                    match (form, &object.fields) {
                        (StateForm::Field(key), fields) => {
                            match fields.as_ref().and_then(|it| it.get(key)) {
                                Some(Value::String(text)) => append(out, text.as_bytes()),
                                Some(number @ Value::Number(_)) => {
                                    number.write_json(out, JsonStyle::Plain);
                                }
                                Some(
                                    Value::Null
                                    | Value::Bool(_)
                                    | Value::Struct(_)
                                    | Value::List(_),
                                )
                                | None => return false,
                            }
                        }
                        (StateForm::Plain, Some(_)) if object.value.is_empty() => return false,
                        // A text that is not their JSON is another form of them.
                        (StateForm::Typed, Some(fields)) if !object.value.starts_with(b"{") => {
                            write_struct(out, fields, JsonStyle::Protobuf);
                        }
                        (StateForm::Plain, _) => append(out, &object.value),
                        // Its text is JSON already.
                        (StateForm::Typed, Some(_)) => append(out, &object.value),
                        (StateForm::Typed, None) => {
                            Value::text(&object.value).write_json(out, JsonStyle::Protobuf);
                        }
                    }
                    true
                })
            }),
            Self::Request(main, other) => header(out, facts.request, main, other.as_ref()),
            Self::RequestWithoutQuery(main, other) => {
                let start = out.len();
                let found = header(out, facts.request, main, other.as_ref());
                let end = start + path_end(&out[start..]);
                out.truncate(end);
                found
            }
            Self::Response(main, other) => header(out, facts.response, main, other.as_ref()),
            Self::Trailer(main, other) => header(out, facts.trailers, main, other.as_ref()),
            Self::StartTime(format) => wall_clock(facts, record.start, |ns| format.write(out, ns)),
            Self::EmitTime(format) => wall_clock(facts, facts.now, |ns| format.write(out, ns)),
            Self::ResponseCodeDetails { spaces: true } => text(out, record.details),
            Self::ResponseCodeDetails { spaces: false } => underscored(out, record.details),
            Self::CommonDuration(from, to, unit) => {
                let (from, to) = (from.of(record), to.of(record));
                from.zip(to)
                    .filter(|(from, to)| from <= to)
                    .is_some_and(|(from, to)| number(out, (to.as_nanos() - from.as_nanos()) / unit))
            }
            Self::GrpcStatus(form) => grpc_status(out, facts, *form),
            Self::Path { query, source } => path(out, facts.request, *query, *source),
            Self::QueryParam(name) => query_param(out, facts.request, name),
            Self::QueryParams => query_params(out, facts.request),
            Self::RequestedServerName(asked) => requested_server_name(out, facts, *asked),
            Self::Fingerprint(print) => {
                let prints = record.fingerprints.as_deref();
                let print = prints.and_then(|it| match print {
                    Print::Ja3 => it.ja3.as_deref(),
                    Print::Ja4 => it.ja4.as_deref(),
                });
                text(out, print.unwrap_or_default())
            }
            Self::Certificate(shown, said) => {
                let tls = record.downstream_tls.as_deref();
                tls.and_then(|tls| shown.of(tls)).is_some_and(|it| certificate(out, it, *said))
            }
            Self::PeerValidity(bound, format) => {
                let peer = record.downstream_tls.as_deref().and_then(|tls| tls.peer.as_ref());
                peer.is_some_and(|peer| validity(out, peer, *bound, format))
            }
            Self::UpstreamCertificate(shown, said) => {
                let tls = record.upstream_tls.as_ref().and_then(UpstreamTls::shown);
                tls.and_then(|tls| shown.of(tls)).is_some_and(|it| certificate(out, it, *said))
            }
            Self::UpstreamPeerValidity(bound, format) => {
                let tls = record.upstream_tls.as_ref().and_then(UpstreamTls::shown);
                let peer = tls.and_then(|tls| tls.peer.as_ref());
                peer.is_some_and(|peer| validity(out, peer, *bound, format))
            }
            Self::UpstreamTls(asked) => {
                let tls = record.upstream_tls.as_ref().and_then(UpstreamTls::shown);
                tls.is_some_and(|tls| of_tls(out, tls, *asked))
            }
            Self::DownstreamTls(asked) => {
                record.downstream_tls.as_deref().is_some_and(|tls| of_tls(out, tls, *asked))
            }
            Self::HeaderBytes { of, decompressed } => {
                let counted = record.headers[*of as usize];
                let came = match of {
                    Heads::DownstreamReceived => facts.request,
                    Heads::UpstreamReceived => facts.response,
                    Heads::DownstreamSent | Heads::UpstreamSent => None,
                };
                let counted = if *decompressed { counted.plain } else { counted.wire };
                number(out, counted + came.map_or(0, Head::received_bytes))
            }
            Self::DownstreamCloseType => text(out, record.close_type.as_str()),
            Self::DownstreamLocalClose => text(out, record.local_close),
            Self::UpstreamCloseType => {
                // Of a stream that no cluster was chosen for, nothing is known of that side.
                !facts.cluster.is_empty() && text(out, record.upstream_close_type.as_str())
            }
            Self::UpstreamLocalClose => text(out, record.upstream_local_close),
            Self::AccessLogType => text(out, facts.log_type),
            Self::BytesReceived => number(out, record.bytes_received),
            Self::BytesSent => number(out, record.bytes_sent),
            Self::ConnectionId => number(out, record.connection),
            Self::ConnectionTerminationDetails => text(out, record.termination),
            Self::DownstreamDirectRemote(form) => {
                address(out, record.downstream_direct_remote.as_ref(), *form)
            }
            Self::DownstreamLocal(form) => address(out, record.downstream_local.as_ref(), *form),
            Self::DownstreamRemote(form) => address(out, record.downstream_remote.as_ref(), *form),
            Self::DownstreamWireBytesReceived => number(out, record.wire_received),
            Self::DownstreamWireBytesSent => number(out, record.wire_sent),
            Self::Duration => {
                milliseconds(out, Some(record.start), Some(record.end.unwrap_or(facts.now)))
            }
            Self::FilterChainName => text(out, facts.filter_chain),
            Self::Hostname => text(out, facts.hostname),
            Self::ListenerName => text(out, facts.listener),
            Self::LocalReplyBody => {
                out.extend_from_slice(facts.local_reply_body);
                true
            }
            Self::Protocol => record.protocol.is_some_and(|version| text(out, version.as_str())),
            Self::RequestDuration => milliseconds(out, Some(record.start), record.request_end),
            Self::RequestHeadersBytes => size(out, facts.request),
            Self::RequestTxDuration => {
                milliseconds(out, Some(record.start), record.upstream_last_sent)
            }
            Self::ResponseCode => number(out, u64::from(record.status)),
            Self::ResponseDuration => {
                milliseconds(out, Some(record.start), record.upstream_first_received)
            }
            Self::ResponseFlags => names(out, record.flags, record.flags.short_names()),
            Self::ResponseFlagsLong => names(out, record.flags, record.flags.long_names()),
            Self::ResponseHeadersBytes => size(out, facts.response),
            Self::ResponseTrailersBytes => {
                number(out, facts.trailers.map_or(0, Head::field_bytes) as u64)
            }
            Self::ResponseTxDuration => {
                milliseconds(out, record.upstream_first_received, record.response_end)
            }
            Self::RouteName => text(out, facts.route),
            Self::VirtualClusterName => text(out, facts.virtual_cluster),
            Self::TraceId => facts.trace.is_some_and(|(trace, _)| {
                // Zipkin's may have half the digits.
                let high = u64::try_from(trace >> 64).unwrap_or_default();
                (high == 0 || bytes(out, &hex(high))) && bytes(out, &hex(trace as u64))
            }),
            Self::SpanId => facts.trace.is_some_and(|(_, span)| bytes(out, &hex(span))),
            Self::UniqueId => bytes(out, &unique_id()),
            Self::StreamId => {
                let id = facts.request.and_then(|head| head.get(Name::XRequestId));
                id.is_some_and(|id| bytes(out, id))
            }
            Self::UpstreamCluster => text(out, facts.cluster_stat_name),
            Self::UpstreamClusterRaw => text(out, facts.cluster),
            Self::UpstreamConnectionId => number(out, record.upstream_connection),
            // There is none before there is a connection.
            Self::UpstreamRemote(_) if record.upstream_local.is_none() => false,
            Self::UpstreamHost | Self::UpstreamRemote(AddressForm::Whole)
                if !facts.upstream_address.is_empty() && record.upstream_remote.is_none() =>
            {
                bytes(out, facts.upstream_address)
            }
            Self::UpstreamHost => address(out, record.upstream_host.as_ref(), AddressForm::Whole),
            Self::UpstreamRemote(form) => {
                let remote = record.upstream_remote.as_deref();
                address(out, remote.or(record.upstream_host.as_ref()), *form)
            }
            Self::HostsAttempted(form) => {
                attempted(out, facts, |out, host, _, _| address(out, host, *form))
            }
            Self::HostNamesAttempted { ports } => {
                attempted(out, facts, |out, host, name, _| host_name(out, host, name, *ports))
            }
            Self::ConnectionIdsAttempted => attempted(out, facts, |out, _, _, connection| {
                connection != 0 && number(out, connection)
            }),
            Self::UpstreamConnectionPoolReadyDuration => record.pool_wait().is_some_and(|wait| {
                number(out, u64::try_from(wait.as_millis()).unwrap_or(u64::MAX))
            }),
            Self::UpstreamHostName => upstream_host_name(out, facts),
            Self::UpstreamHostNameWithoutPort => {
                host_name(out, record.upstream_host.as_ref(), facts.upstream_hostname, false)
            }
            Self::UpstreamLocal(form) => address(out, record.upstream_local.as_ref(), *form),
            Self::UpstreamProtocol => {
                record.upstream_protocol.is_some_and(|version| text(out, version.as_str()))
            }
            Self::UpstreamRequestAttemptCount => number(out, u64::from(record.attempts)),
            Self::UpstreamTlsCipher => {
                record.upstream_tls.as_ref().is_some_and(|tls| text(out, tls.cipher.name()))
            }
            Self::UpstreamTlsVersion => {
                record.upstream_tls.as_ref().is_some_and(|tls| text(out, tls.version.name()))
            }
            Self::UpstreamTransportFailureReason if record.tunnel_status != 0 => {
                text(out, "tunnel_response:") && number(out, record.tunnel_status.into())
            }
            Self::UpstreamTransportFailureReason => underscored(out, record.transport_failure),
            Self::UpstreamWireBytesReceived => number(out, record.upstream_wire_received),
            Self::UpstreamWireBytesSent => number(out, record.upstream_wire_sent),
        }
    }
}

impl Command {
    /// Appends the value of a command that has a type of its own, as JSON.
    pub(super) fn write_typed(
        &self,
        out: &mut Vec<u8>,
        facts: &Facts<'_>,
        max_length: Option<usize>,
    ) -> bool {
        if let Self::Cel { expression, .. } = self {
            return expression.value(facts).is_some_and(|value| value.write_json(out, max_length));
        }
        let shorter = |text: &[u8]| max_length.map_or(text.len(), |length| length.min(text.len()));
        if let Self::FilterState { name, .. } = self {
            return facts.info.is_some_and(|info| {
                info.read_state(name, |object| {
                    let Some(object) = object else { return false };
                    match (&object.json, &object.fields) {
                        (Some(json), _) => out.extend_from_slice(json),
                        (None, Some(fields)) => write_struct(out, fields, JsonStyle::Plain),
                        (None, None) => json_string(out, &object.value[..shorter(&object.value)]),
                    }
                    true
                })
            });
        }
        let Self::Metadata(whose, namespace, path) = self else { return false };
        whose.read(facts, namespace, path, |value| match value {
            None | Some(Value::Null) => false,
            Some(Value::String(text)) => {
                json_string(out, &text.as_bytes()[..shorter(text.as_bytes())]);
                true
            }
            Some(value) => {
                value.write_json(out, JsonStyle::Plain);
                true
            }
        })
    }
}

impl MetadataOf {
    /// Shows the value at a path in a namespace; an empty path means all of it.
    pub(crate) fn read<R>(
        self,
        facts: &Facts<'_>,
        namespace: &str,
        path: &[Box<str>],
        read: impl FnOnce(Option<&Value>) -> R,
    ) -> R {
        let told = match self {
            Self::Dynamic => {
                return match facts.info {
                    Some(info) => info.read_metadata(namespace, path, read),
                    None => read(None),
                };
            }
            Self::Listener => facts.told.listener,
            Self::FilterChain => facts.told.chain,
            Self::VirtualHost => facts.told.virtual_host.map(AsRef::as_ref),
            Self::Route => facts.told.route.map(AsRef::as_ref),
            Self::Cluster => facts.told.cluster,
            Self::Endpoint => facts.told.endpoint,
        };
        read(told.and_then(|told| told.get(namespace)).and_then(|all| all.at(path)))
    }
}

impl Source {
    fn of<'a>(self, original: Option<&'a [u8]>, current: &'a [u8]) -> &'a [u8] {
        match self {
            Self::Original => original.unwrap_or_default(),
            Self::Current => current,
            Self::OriginalOrCurrent => original.unwrap_or(current),
        }
    }
}

impl TimePoint {
    fn of(self, record: &Record) -> Option<Instant> {
        match self {
            Self::RequestStart => Some(record.start),
            Self::RequestEnd => record.request_end,
            Self::ConnectStart => record.connect.map(|(start, _)| start),
            Self::ConnectEnd => record.connect.map(|(_, end)| end),
            Self::UpstreamSendStart => record.upstream_first_sent,
            Self::UpstreamSendEnd => record.upstream_last_sent,
            Self::UpstreamReceiveStart => record.upstream_first_received,
            Self::UpstreamReceiveEnd => record.upstream_last_received,
            Self::ResponseStart => record.response_start,
            Self::ResponseEnd => record.response_end,
            Self::HandshakeEnd => record.secured,
            Self::UpstreamContentStart => record.upstream_content_start,
            Self::ClientStart => record.client.opened,
            Self::ClientEnd => record.client.closed,
            Self::ClientHandshakeStart => record.client.handshake_start,
            Self::ClientHandshakeEnd => record.client.handshake_end,
        }
    }
}

impl Shown {
    const fn of(self, tls: &DownstreamTls) -> Option<&ShownCertificate> {
        match self {
            Self::Peer => tls.peer.as_ref(),
            Self::Local => tls.own.as_ref(),
        }
    }
}

fn certificate(out: &mut Vec<u8>, certificate: &ShownCertificate, said: Said) -> bool {
    match said {
        Said::Subject => text(out, &certificate.subject),
        Said::Issuer => text(out, &certificate.issuer),
        Said::Serial => text(out, &certificate.serial),
        Said::Fingerprint => text(out, &certificate.fingerprint),
        Said::Uris => bytes(out, &certificate.uris.join(&b',')),
        Said::Domains => bytes(out, &certificate.domains.join(&b',')),
        Said::Emails => bytes(out, &certificate.emails.join(&b',')),
        Said::Addresses => bytes(out, &certificate.addresses.join(&b',')),
        Said::Others => bytes(out, &certificate.others.join(&b',')),
    }
}

/// An end of the time in which a certificate is valid.
fn validity(out: &mut Vec<u8>, peer: &ShownCertificate, bound: Bound, format: &TimeFormat) -> bool {
    let seconds = match bound {
        Bound::Start => peer.validity.0,
        Bound::End => peer.validity.1,
    };
    // Before 1970 and after 2554 is as far as it goes.
    let seconds = u64::try_from(seconds).unwrap_or_default();
    format.write(out, seconds.saturating_mul(NANOS_PER_SECOND));
    true
}

/// Bytes in hexadecimal digits.
fn hexadecimal(out: &mut Vec<u8>, bytes: &[u8]) -> bool {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        out.extend([DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
    !bytes.is_empty()
}

fn of_tls(out: &mut Vec<u8>, tls: &DownstreamTls, asked: OfTls) -> bool {
    match asked {
        OfTls::Version => text(out, tls.version.map_or("", Version::name)),
        OfTls::Cipher => text(out, tls.cipher.map_or("", CipherSuite::name)),
        OfTls::Group => text(out, tls.group.map_or("", Group::name)),
        OfTls::PeerPem => {
            tls.write_peer_pem(out);
            tls.peer.is_some()
        }
        OfTls::ChainFingerprints => text(out, &tls.chain_fingerprints().join(",")),
        OfTls::OldFingerprint => {
            text(out, tls.old_fingerprints().first().map_or("", String::as_str))
        }
        OfTls::OldFingerprints => text(out, &tls.old_fingerprints().join(",")),
        OfTls::ChainSerials => text(out, &tls.chain_serials().join(",")),
        OfTls::IssuerFingerprint => text(out, &tls.issuer_fingerprint().unwrap_or_default()),
        OfTls::IssuerSerial => text(out, &tls.issuer_serial().unwrap_or_default()),
        OfTls::SessionId => hexadecimal(out, &tls.session_id),
        OfTls::AskedName => text(out, tls.asked_name.as_deref().unwrap_or_default()),
    }
}

fn requested_server_name(out: &mut Vec<u8>, facts: &Facts<'_>, asked: Asked) -> bool {
    let sni = facts.record.server_name.as_deref().unwrap_or_default().as_bytes();
    let host = |source: Source| {
        let head = facts.request?;
        Some(source.of(head.get(Name::XEnvoyOriginalHost), head.authority()))
    };
    let name = match asked {
        Asked::Sni => sni,
        Asked::SniFirst(source) if sni.is_empty() => host(source).unwrap_or_default(),
        Asked::SniFirst(_) => sni,
        Asked::HostFirst(source) => host(source).filter(|host| !host.is_empty()).unwrap_or(sni),
    };
    bytes(out, name)
}

fn bytes(out: &mut Vec<u8>, value: &[u8]) -> bool {
    append(out, value);
    !value.is_empty()
}

fn text(out: &mut Vec<u8>, value: &str) -> bool {
    bytes(out, value.as_bytes())
}

/// Without white space, so that a line can be split at blanks.
fn underscored(out: &mut Vec<u8>, value: &str) -> bool {
    out.extend(value.bytes().map(|byte| if byte.is_ascii_whitespace() { b'_' } else { byte }));
    !value.is_empty()
}

fn number(out: &mut Vec<u8>, value: u64) -> bool {
    append_number(out, value);
    true
}

fn milliseconds(out: &mut Vec<u8>, from: Option<Instant>, to: Option<Instant>) -> bool {
    from.zip(to).is_some_and(|(from, to)| number(out, to.millis_since(from)))
}

fn wall_clock(facts: &Facts<'_>, at: Instant, write: impl FnOnce(u64)) -> bool {
    write(facts.epoch_unix_ns.wrapping_add(at.as_nanos()));
    true
}

/// No name at all is written, too: Envoy's flags are never missing.
fn names(out: &mut Vec<u8>, flags: Flags, names: impl Iterator<Item = &'static str>) -> bool {
    if flags.is_empty() {
        out.push(b'-');
        return true;
    }
    let start = out.len();
    for name in names {
        if out.len() > start {
            out.push(b',');
        }
        out.extend_from_slice(name.as_bytes());
    }
    true
}

fn size(out: &mut Vec<u8>, head: Option<&Head>) -> bool {
    number(out, head.map_or(0, |head| head.byte_size() as u64))
}

#[inline(always)]
fn header(out: &mut Vec<u8>, head: Option<&Head>, main: &Field, other: Option<&Field>) -> bool {
    let Some(head) = head else { return false };
    let mut append = |field: &Field| {
        field.first(head, |value| match value {
            Some(value) => {
                append(out, value);
                true
            }
            None => false,
        })
    };
    append(main) || other.is_some_and(append)
}

/// Its DNS name, or else its address.
fn upstream_host_name(out: &mut Vec<u8>, facts: &Facts<'_>) -> bool {
    host_name(out, facts.record.upstream_host.as_ref(), facts.upstream_hostname, true)
}

fn host_name(out: &mut Vec<u8>, host: Option<&Address>, name: &str, ports: bool) -> bool {
    let start = out.len();
    let found = match name {
        "" => address(out, host, AddressForm::Whole),
        name => text(out, name),
    };
    if !ports {
        let end = start + without_port(&out[start..]).len();
        out.truncate(end);
    }
    found
}

/// One word for each host that the stream was to be sent to, in their order.
fn attempted(
    out: &mut Vec<u8>,
    facts: &Facts<'_>,
    mut write: impl FnMut(&mut Vec<u8>, Option<&Address>, &str, u64) -> bool,
) -> bool {
    let record = facts.record;
    let last = record.upstream_host.as_ref();
    let before = record.attempted.iter().flat_map(|all| all.iter());
    let before = before.map(|one| (Some(&one.host), &*one.hostname, one.connection));
    let all = before.chain([(last, facts.upstream_hostname, record.upstream_connection)]);
    let start = out.len();
    for (host, name, connection) in all {
        let end = out.len();
        if end > start {
            out.push(b',');
        }
        if !write(out, host, name, connection) {
            out.truncate(end);
        }
    }
    out.len() > start
}

/// A UUID that nothing else has.
fn unique_id() -> [u8; 36] {
    thread_local! {
        static IDS: RefCell<Random> = RefCell::new(Random::new(RandomState::new().hash_one(0)));
    }
    IDS.with_borrow_mut(Random::uuid)
}

/// `%UPSTREAM_HOST%` of a host.
pub(crate) fn address_text(of: &Address) -> Box<[u8]> {
    let mut text = Vec::new();
    address(&mut text, Some(of), AddressForm::Whole);
    text.into()
}

fn address(out: &mut Vec<u8>, address: Option<&Address>, form: AddressForm) -> bool {
    let Some(address) = address else { return false };
    match (address, form) {
        (Address::Ip(ip), AddressForm::Port) => number(out, u64::from(ip.port())),
        (Address::Ip(ip), AddressForm::WithoutPort) => ip_text(out, ip.ip()),
        (Address::Ip(ip), AddressForm::Network(bits)) => network(out, ip.ip(), bits),
        (Address::Ip(SocketAddr::V4(v4)), AddressForm::Whole) => {
            ip_text(out, IpAddr::V4(*v4.ip()));
            out.push(b':');
            number(out, u64::from(v4.port()))
        }
        (Address::Ip(SocketAddr::V6(v6)), AddressForm::Whole) => {
            out.push(b'[');
            ip_text(out, IpAddr::V6(*v6.ip()));
            out.extend_from_slice(b"]:");
            number(out, u64::from(v6.port()))
        }
        (Address::Unix(_) | Address::Internal(_), AddressForm::Port) => false,
        (
            Address::Internal(name),
            AddressForm::Whole | AddressForm::WithoutPort | AddressForm::Network(_),
        ) => bytes(out, b"envoy://") & bytes(out, name.as_bytes()),
        (
            Address::Unix(path),
            AddressForm::Whole | AddressForm::WithoutPort | AddressForm::Network(_),
        ) => bytes(out, path.as_os_str().as_encoded_bytes()),
    }
}

fn ip_text(out: &mut Vec<u8>, ip: IpAddr) -> bool {
    bytes(out, AddressText::of(ip).as_bytes())
}

/// The network of that many bits, which are at most all of the address.
fn network(out: &mut Vec<u8>, ip: IpAddr, bits: u8) -> bool {
    let (first, bits) = match ip {
        IpAddr::V4(v4) => {
            let bits = bits.min(32);
            let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
            (IpAddr::V4((u32::from(v4) & mask).into()), bits)
        }
        IpAddr::V6(v6) => {
            let bits = bits.min(128);
            let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
            (IpAddr::V6((u128::from(v6) & mask).into()), bits)
        }
    };
    ip_text(out, first);
    out.push(b'/');
    number(out, u64::from(bits))
}

fn grpc_status(out: &mut Vec<u8>, facts: &Facts<'_>, form: GrpcForm) -> bool {
    let Some(status) =
        facts.request.filter(|head| grpc::is_grpc(head)).and_then(|_| facts.grpc_status())
    else {
        return false;
    };
    match (form, grpc::name(status)) {
        (GrpcForm::Camel, Some((camel, _))) => text(out, camel),
        (GrpcForm::Snake, Some((_, snake))) => text(out, snake),
        (GrpcForm::Number, _) | (_, None) => text(out, &status.to_string()),
    }
}

fn path(out: &mut Vec<u8>, head: Option<&Head>, query: bool, source: Source) -> bool {
    let Some(head) = head else { return false };
    let path = source.of(head.get(Name::XEnvoyOriginalPath), head.path());
    bytes(out, if query { path } else { &path[..path_end(path)] })
}

fn query_param(out: &mut Vec<u8>, head: Option<&Head>, name: &[u8]) -> bool {
    let Some(head) = head else { return false };
    let target = head.get(Name::XEnvoyOriginalPath).unwrap_or_else(|| head.path());
    let value = query::first_decoded(target, name);
    value.map(|value| out.extend(query::decoded(value))).is_some()
}

fn query_params(out: &mut Vec<u8>, head: Option<&Head>) -> bool {
    let Some(head) = head else { return false };
    let target = head.get(Name::XEnvoyOriginalPath).unwrap_or_else(|| head.path());
    let Some(start) = target.iter().position(|byte| *byte == b'?') else { return false };
    bytes(out, &target[start + 1..])
}

const NANOS_PER_SECOND: u64 = 1_000_000_000;
