//! The question as a call of `envoy.service.auth.v3.Authorization/Check`, and its answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use towpath_proto::head::Version;
use towpath_proto::{Address, Head, Name};

use super::check::PARTIAL;
use super::wire::{
    self, Allowed, Attributes, CheckRequest, CheckResponse, HeaderMap, HttpRequest, Peer,
    QueryParameter, Request,
};
use super::{
    Change, CheckStatus, Decision, ExtAuthz, GrpcService, How, ResponseAction, RouteExtAuthz,
    changeable, is_value,
};
use crate::filter::grpc_service::message_of;
use crate::filter::{Answer, Callout, CalloutSpan, RequestView, SpanName};
use crate::protobuf::{self, BoolValue, HeaderValue, HeaderValueOption};
use crate::record::ShownCertificate;
use crate::stream_info::{Struct, Value};

pub(super) fn question(
    config: &ExtAuthz,
    service: &GrpcService,
    timeout: Duration,
    request: &mut RequestView<'_>,
) -> (Box<Callout>, Box<CheckRequest>) {
    let check = CheckRequest { attributes: Some(attributes(config, request)) };
    let mut callout = service.call_without(METHOD, timeout, request);
    let sampled = config.sampled(request);
    callout.span = Some(CalloutSpan { tags, sampled, ..CalloutSpan::new(SpanName::Method) });
    (Box::new(callout), Box::new(check))
}

/// What Envoy's own requests say.
fn attributes(config: &ExtAuthz, request: &RequestView<'_>) -> Attributes {
    let RequestView { head, facts, route, .. } = request;
    let record = facts.record;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let tls = record.downstream_tls.as_deref();
    let peer = |address: Option<&Address>, shown: Option<&ShownCertificate>| Peer {
        address: address.map(protobuf::Address::of),
        principal: shown.map(principal).unwrap_or_default(),
        service: String::new(),
        certificate: String::new(),
    };
    let mut source =
        peer(record.downstream_direct_remote.as_ref(), tls.and_then(|tls| tls.peer.as_ref()));
    source.service = head.get(Name::XEnvoyDownstreamServiceCluster).map(text).unwrap_or_default();
    if let Some(tls) = tls.filter(|tls| config.tells_certificate && tls.peer.is_some()) {
        let mut pem = Vec::new();
        tls.write_peer_pem(&mut pem);
        source.certificate = text(&pem);
    }
    let destination = peer(record.downstream_local.as_ref(), tls.and_then(|tls| tls.own.as_ref()));
    let http = HttpRequest {
        id: request.random.to_string(),
        method: text(head.method_bytes()),
        headers: if config.raw_headers { BTreeMap::new() } else { headers(config, head) },
        header_map: config.raw_headers.then(|| raw_headers(config, head)),
        path: text(head.path()),
        host: text(head.authority()),
        scheme: text(head.scheme()),
        protocol: protocol(head.version()).to_owned(),
        ..HttpRequest::default()
    };
    let start = facts.epoch_unix_ns.saturating_add(record.start.as_nanos());
    let mut extensions = BTreeMap::new();
    for level in route.all::<RouteExtAuthz>() {
        if let RouteExtAuthz::Check { extensions: own, .. } = level {
            for (name, value) in own {
                extensions.entry(name.clone()).or_insert_with(|| value.clone());
            }
        }
    }
    Attributes {
        source: Some(source),
        destination: Some(destination),
        request: Some(Request { time: Some(protobuf::Timestamp::of(start)), http: Some(http) }),
        context_extensions: extensions,
        metadata_context: Some(protobuf::metadata(facts.info, record, &config.namespaces)),
        tls_session: config.tells_server_name.then(|| wire::TlsSession {
            sni: record.server_name.as_deref().unwrap_or_default().to_owned(),
        }),
        route_metadata_context: Some(route_metadata(config, facts.told.route)),
    }
}

/// What the route says of itself, of those namespaces that the server sees.
fn route_metadata(config: &ExtAuthz, told: Option<&Arc<Struct>>) -> protobuf::Metadata {
    let entries = |namespace| match told?.get(namespace) {
        Some(Value::Struct(entries)) => Some(protobuf::Struct::of(entries)),
        _ => None,
    };
    let wanted = config.route_namespaces.iter();
    let found = wanted.filter_map(|name| Some((name.to_string(), entries(&**name)?)));
    protobuf::Metadata { filter_metadata: found.collect() }
}

/// The fields that the server sees, their names in small letters.
fn seen<'a>(
    config: &'a ExtAuthz,
    head: &'a Head,
) -> impl Iterator<Item = (String, &'a [u8])> + use<'a> {
    let pseudo: [(&[u8], &[u8]); 4] = [
        (b":authority", head.authority()),
        (b":method", head.method_bytes()),
        (b":path", head.path()),
        (b":scheme", head.scheme()),
    ];
    let fields = head.iter().map(|field| (field.name_bytes, field.value));
    let lower = |name| String::from_utf8_lossy(name).to_ascii_lowercase();
    let fields = pseudo.into_iter().chain(fields).map(move |(name, value)| (lower(name), value));
    fields.filter(|(name, _)| config.shows(name.as_bytes()))
}

fn raw_headers(config: &ExtAuthz, head: &Head) -> HeaderMap {
    let headers = seen(config, head).map(|(key, value)| raw_header(key, value));
    HeaderMap { headers: headers.collect() }
}

fn raw_header(key: String, value: &[u8]) -> HeaderValue {
    HeaderValue { key, value: String::new(), raw_value: value.to_vec() }
}

/// Those of one name are joined.
fn headers(config: &ExtAuthz, head: &Head) -> BTreeMap<String, String> {
    let mut headers: BTreeMap<String, String> = BTreeMap::new();
    for (name, value) in seen(config, head) {
        let value = String::from_utf8_lossy(value);
        let all = headers.entry(name).or_default();
        if !all.is_empty() {
            all.push(',');
        }
        all.push_str(&value);
    }
    headers
}

/// Its first URI, else its first domain, else its subject.
fn principal(shown: &ShownCertificate) -> String {
    let first = shown.uris.first().or_else(|| shown.domains.first());
    first.map_or_else(|| shown.subject.clone(), |name| String::from_utf8_lossy(name).into_owned())
}

const fn protocol(version: Version) -> &'static str {
    match version {
        Version::Http10 => "HTTP/1.0",
        Version::Http11 => "HTTP/1.1",
        Version::Http2 | _ => "HTTP/2",
    }
}

impl CheckRequest {
    pub(super) fn set_body(&mut self, bytes: Vec<u8>, is_partial: bool, as_bytes: bool) {
        let request = self.attributes.as_mut().and_then(|all| all.request.as_mut());
        let Some(http) = request.and_then(|request| request.http.as_mut()) else { return };
        http.size = i64::try_from(bytes.len()).unwrap_or(i64::MAX);
        let (name, value) = (String::from_utf8_lossy(PARTIAL).into_owned(), is_partial.to_string());
        match &mut http.header_map {
            Some(all) => all.headers.push(raw_header(name, value.as_bytes())),
            None => {
                http.headers.insert(name, value);
            }
        }
        if as_bytes {
            http.raw_body = bytes;
        } else {
            http.body = String::from_utf8_lossy(&bytes).into_owned();
        }
    }
}

/// What the span of a question says of its answer.
fn tags(answer: &Answer) -> Vec<(&'static str, &'static str)> {
    let Some(response) = message_of::<CheckResponse>(answer) else { return Vec::new() };
    let allows = response.status.is_none_or(|status| status.code == 0);
    let status = match (allows, response.error) {
        (true, _) => "ext_authz_ok",
        (false, None) => "ext_authz_unauthorized",
        (false, Some(_)) => "ext_authz_error",
    };
    vec![("ext_authz_status", status)]
}

pub(super) fn decision(answer: Answer) -> Decision {
    message_of::<CheckResponse>(&answer).map(of_response).unwrap_or_default()
}

fn of_response(response: CheckResponse) -> Decision {
    let CheckResponse { status, denied, ok, dynamic_metadata, error } = response;
    let of_ok = ok.as_ref().and_then(|ok| ok.dynamic_metadata.clone());
    let mut decision = Decision {
        metadata: of_ok.or(dynamic_metadata).map(protobuf::Struct::into_values).unwrap_or_default(),
        ..Decision::default()
    };
    if status.is_none_or(|status| status.code == 0) {
        decision.kind = CheckStatus::Allowed;
        decision.change(ok.unwrap_or_default());
        return decision;
    }
    let is_error = error.is_some();
    let denied = error.or(denied).unwrap_or_default();
    let code = denied.status.map(|status| status.code).and_then(|code| u16::try_from(code).ok());
    let status = code.filter(|code| (200..600).contains(code));
    for option in &denied.headers {
        let appends = is_error && option.append == Some(BoolValue { value: true });
        decision.add_field(option, appends);
    }
    let body = denied.body.into_bytes();
    decision.kind = match is_error {
        true => CheckStatus::Failed { status: status.unwrap_or_default(), body },
        false => CheckStatus::Denied { status: status.unwrap_or(403), body },
    };
    decision
}

impl Decision {
    fn add_field(&mut self, option: &HeaderValueOption, appends: bool) {
        let to = if appends { &mut self.append } else { &mut self.set };
        match field(option) {
            Some(field) => to.push(field),
            None => self.is_invalid = true,
        }
    }

    /// What becomes of a request that goes on.
    fn change(&mut self, ok: Allowed) {
        for option in &ok.headers {
            let appends = option.append == Some(BoolValue { value: true });
            let how = if appends { How::Append } else { How::Set };
            if let Some(header) = &option.header {
                self.changes.push(Change::new(how, header.key.as_bytes(), value(header)));
            }
        }
        let removed = ok.headers_to_remove.iter();
        self.changes.extend(removed.map(|name| Change::new(How::Remove, name.as_bytes(), b"")));
        self.changes.sort_by_key(|change| change.how);
        for option in &ok.response_headers_to_add {
            match field(option) {
                Some((name, value)) => {
                    self.response.push((response_action(option), name, value));
                }
                None => self.is_invalid = true,
            }
        }
        for parameter in ok.query_parameters_to_set {
            let QueryParameter { key, value } = parameter;
            match is_written(&key) && is_written(&value) {
                true => self.set_query.push((key.into_bytes(), value.into_bytes())),
                false => self.is_invalid = true,
            }
        }
        self.remove_query =
            ok.query_parameters_to_remove.into_iter().map(String::into_bytes).collect();
    }
}

/// Whether such a text can stand in a query as a name or a value.
fn is_written(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'&' | b'#'))
}

fn response_action(option: &HeaderValueOption) -> ResponseAction {
    match (option.append, option.append_action) {
        (Some(BoolValue { value: true }), _) => ResponseAction::Add,
        (Some(BoolValue { value: false }), _) => ResponseAction::Set,
        (None, 1) => ResponseAction::AddIfAbsent,
        (None, 2) => ResponseAction::Set,
        (None, 3) => ResponseAction::SetIfPresent,
        (None, _) => ResponseAction::Add,
    }
}

/// A field as a head can carry it.
fn field(option: &HeaderValueOption) -> Option<(towpath_proto::head::HeaderName, Vec<u8>)> {
    let header = option.header.as_ref()?;
    let name = changeable(header.key.as_bytes())?;
    let value = value(header);
    is_value(value).then(|| (name, value.to_vec()))
}

fn value(header: &HeaderValue) -> &[u8] {
    if header.raw_value.is_empty() { header.value.as_bytes() } else { &header.raw_value }
}

const METHOD: &str = "/envoy.service.auth.v3.Authorization/Check";

#[cfg(test)]
mod tests;
