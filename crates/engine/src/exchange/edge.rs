//! What a proxy owes to both sides' heads: who the client is, request ids, and the fields that name us.
//!
//! Arrives: a head as the peer sent it. Leaves: the head as it goes on. Follows Envoy's
//! `ConnectionManagerUtility::mutateRequestHeaders` and `mutateResponseHeaders` as its documentation of
//! `x-forwarded-for`, `x-request-id`, `server` and the internal/external distinction describes them.

use std::net::{IpAddr, SocketAddr};
use std::sync::LazyLock;

use towpath_proto::head::{Head, Method, Version};
use towpath_proto::name::Name;
use towpath_proto::{Address, Instant, PreparedField};

use crate::conn::Connection;
use crate::conn::context::{ChainContext, HttpContext};
use crate::conn::mux::Part;
use crate::env::Env;
use crate::exchange::Exchange;
use crate::exchange::log::{Setting, facts};
use crate::exchange::proxy_status;
use crate::exchange::rewrite::{apply_header_ops, changes};
use crate::exchange::stream::{Progress, Routed, Stream, Upgrade};
use crate::header_ops::Subject;
use crate::ids::{Kind, Leg, StreamIndex};
use crate::matcher::tree::Tree;
use crate::matcher::{self, StringMatcher};
use crate::number::AddressText;
use crate::record::{DownstreamTls, Heads, ShownCertificate};
use crate::snapshot::Node;
use crate::snapshot::client::Detected;
use crate::snapshot::http::{
    CertificateDetail, ClientCertificate, ForwardClientCert, Http, ServerHeader, ToldNode,
};
use crate::stream_info::StreamInfo;
use crate::upstream::clusters::Clusters;

/// Where a request comes from, in Envoy's sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// From inside: its `x-envoy-*` fields are believed.
    Internal,
    /// From outside, and we are the first proxy: they are taken away.
    Edge,
    /// From another proxy: they are believed.
    Forwarded,
}

/// Writes the fields that say who the client of a connection is; where the request comes from, and the client's
/// address, if they say it.
///
/// # Errors
/// With the status that a request is answered whose client must be named and is not.
#[inline]
pub(crate) fn mark_request(
    head: &mut Head,
    connection: &Connection,
    (config, node): (&Http, &Node),
    tls: Option<&DownstreamTls>,
    random_id: impl FnOnce() -> [u8; 36],
) -> Result<(Origin, Option<SocketAddr>), u16> {
    let is_tls = connection.tls.is_some();
    let (own_scheme, forwarded_proto): (&[u8], _) =
        if is_tls { (b"https", &FORWARDED_HTTPS) } else { (b"http", &FORWARDED_HTTP) };
    // What is said here takes the place of what a client says.
    let is_first = config.use_remote_address && config.xff_trusted_hops == 0;
    let direct = connection.peer.ip().map(|peer| canonical(peer, config));
    let hops = config.xff_trusted_hops as usize;
    let may_be_internal;
    let client = if config.use_remote_address {
        may_be_internal = head.get(Name::XForwardedFor).is_none();
        let trusted = (hops > 0).then(|| forwarded_for(head, hops - 1)).flatten();
        if let Some(direct) = direct.filter(|_| !config.skip_xff_append) {
            append_client(head, direct.ip(), node);
        }
        trusted.map(|ip| SocketAddr::new(ip, 0)).or(direct)
    } else if config.detections.is_empty() {
        let named = forwarded_for(head, hops);
        may_be_internal = named.is_some() && hops == 0 && forwards_one(head);
        named.map(|ip| SocketAddr::new(ip, 0)).or(direct)
    } else {
        let detected = detect(head, direct, config, node)?;
        may_be_internal = detected.is_trusted;
        detected.client.map(|ip| SocketAddr::new(ip, 0)).or(direct)
    };
    let said = head.get(Name::XForwardedProto).filter(|_| !is_first);
    let scheme = said.map_or(own_scheme, |said| scheme_of(said, own_scheme));
    if said.is_none() {
        head.set_prepared(forwarded_proto);
    }
    if head.scheme().is_empty() {
        head.set_scheme(scheme);
    }
    let certificate = match &config.client_certificate_matcher {
        Some(tree) => matched_certificate(tree, head, connection, tls),
        None => None,
    };
    let certificate = certificate.unwrap_or(&config.client_certificate);
    tell_certificate(head, certificate, tls);
    if let Some(scheme) = &config.scheme {
        head.set_scheme(scheme.as_bytes());
        head.set(Name::XForwardedProto, scheme.as_bytes());
    }
    let internal = may_be_internal
        && match (client, &connection.peer) {
            (Some(client), _) => config.internal_addresses.contains(client.ip()),
            (None, Address::Unix(_)) => config.internal_addresses.unix_sockets,
            (None, Address::Ip(_) | Address::Internal(_)) => false,
        };
    let origin = match (internal, config.use_remote_address) {
        (true, _) => Origin::Internal,
        (false, true) => Origin::Edge,
        (false, false) => Origin::Forwarded,
    };
    match origin {
        Origin::Internal => {
            head.set(Name::XEnvoyInternal, b"true");
        }
        Origin::Edge => {
            strip_edge(head);
            strip_external(head);
            if let Some(client) = client {
                head.set(Name::XEnvoyExternalAddress, AddressText::of(client.ip()).as_bytes());
            }
        }
        Origin::Forwarded => {
            head.remove(Name::XEnvoyInternal);
            strip_external(head);
        }
    }
    if origin != Origin::Internal {
        for name in &config.routes.internal_only {
            head.remove_named(name);
        }
    }
    if let Some(told) = &config.told {
        tell_node(head, told);
    }
    if config.append_forwarded_port
        && (hops == 0 || !config.use_remote_address || head.get(Name::XForwardedPort).is_none())
        && let Address::Ip(local) = &connection.local
    {
        head.set_number(Name::XForwardedPort, local.port().into());
    }
    if config.generate_request_id {
        let keep = origin != Origin::Edge || config.preserve_external_request_id;
        if !keep || head.get(Name::XRequestId).is_none() {
            head.set_array(Name::XRequestId, &random_id());
        }
    }
    if !config.via.is_empty() {
        head.append(Name::Via, config.via.as_bytes());
    }
    Ok((origin, client))
}

/// Says through which proxy a request comes.
#[cold]
fn tell_node(head: &mut Head, told: &ToldNode) {
    head.set(Name::XEnvoyDownstreamServiceCluster, told.cluster.as_bytes());
    if head.get(Name::UserAgent).is_none_or(<[u8]>::is_empty) {
        head.set(Name::UserAgent, told.cluster.as_bytes());
    }
    if !told.id.is_empty() {
        head.set(Name::XEnvoyDownstreamServiceNode, told.id.as_bytes());
    }
}

/// The scheme that `x-forwarded-proto` names; ours where it names none.
#[inline]
fn scheme_of<'a>(said: &[u8], own: &'a [u8]) -> &'a [u8] {
    let schemes: [&[u8]; 2] = [b"http", b"https"];
    schemes.into_iter().find(|scheme| said.eq_ignore_ascii_case(scheme)).unwrap_or(own)
}

/// What the first that finds the client says of it.
#[cold]
fn detect(
    head: &mut Head,
    direct: Option<SocketAddr>,
    config: &Http,
    node: &Node,
) -> Result<Detected, u16> {
    let direct = direct.map(|direct| direct.ip());
    for detection in &config.detections {
        let detected = detection.detect(head, direct);
        if let Some(status) = detected.refusal {
            return Err(status);
        }
        if let Some(direct) = direct.filter(|_| detected.appends) {
            append_client(head, direct, node);
        }
        if detected.client.is_some() {
            return Ok(detected);
        }
    }
    Ok(Detected::default())
}

/// Whether `x-forwarded-for` names one address and no other.
fn forwards_one(head: &Head) -> bool {
    let mut values = head.values(Name::XForwardedFor);
    values.next().is_some_and(|value| !value.contains(&b',')) && values.next().is_none()
}

/// Has a request ask for no protocol that is ignored.
#[cold]
pub(crate) fn ignore_upgrades(head: &mut Head, ignored: &[StringMatcher]) {
    let Some(wanted) = head.get(Name::Upgrade).filter(|_| head.version() == Version::Http11) else {
        return;
    };
    let is_ignored = |name: &&[u8]| ignored.iter().any(|matcher| matcher.matches(name));
    let names = wanted.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    let names = names.filter(|name| !name.is_empty() && !is_ignored(name));
    let rest = names.collect::<Vec<_>>().join(&b","[..]);
    if rest.is_empty() {
        head.remove(Name::Upgrade);
    } else {
        head.set(Name::Upgrade, &rest);
    }
}

/// Changes a head as the listener has it, before anything else is made of it.
#[cold]
pub(crate) fn mutate_early(
    stream: &mut Stream,
    http: &HttpContext,
    clusters: &Clusters,
    env: &mut Env,
    now: Instant,
) {
    let mut head = stream.request.take();
    stream.complete_record();
    let facts = facts(stream, None, Setting { clusters, clock: &env.clock }, now);
    let mutations = &http.config.early_mutations;
    mutations.apply(&mut head, Subject::Request, &facts, &mut env.scratch);
    stream.request.put(head, &mut env.heads);
}

/// What a matcher says of a request's certificate, if it leads anywhere. As in Envoy the client is that of the
/// connection, whatever it forwards.
#[cold]
fn matched_certificate<'a>(
    tree: &'a Tree<ClientCertificate>,
    head: &Head,
    connection: &Connection,
    tls: Option<&DownstreamTls>,
) -> Option<&'a ClientCertificate> {
    let server_name = connection.downstream().and_then(|downstream| downstream.server_name());
    tree.find(&matcher::Subject {
        local: Some(&connection.local),
        direct: Some(connection.direct_peer()),
        remote: Some(&connection.peer),
        server_name: server_name.map_or("", |name| &**name),
        tls,
        request: Some(head),
        ..matcher::Subject::default()
    })
}

/// Says in `x-forwarded-client-cert` which certificate the client has shown, as far as that is wanted. What came there
/// of a client that has shown none may be made up.
fn tell_certificate(head: &mut Head, certificate: &ClientCertificate, tls: Option<&DownstreamTls>) {
    use ForwardClientCert::{AlwaysForwardOnly, AppendForward, ForwardOnly, Sanitize, SanitizeSet};
    let shown = tls.and_then(|tls| Some((tls, tls.peer.as_ref()?)));
    let (tls, peer) = match (certificate.forward, shown) {
        (AlwaysForwardOnly, _) | (ForwardOnly, Some(_)) => return,
        (AppendForward | SanitizeSet, Some(shown)) => shown,
        (Sanitize, _) | (ForwardOnly | AppendForward | SanitizeSet, None) => {
            head.remove(Name::XForwardedClientCert);
            return;
        }
    };
    let mut value = Vec::new();
    if certificate.forward == AppendForward {
        for before in head.values(Name::XForwardedClientCert) {
            value.extend_from_slice(before);
            value.push(b',');
        }
    }
    write_certificate(&mut value, tls, peer, &certificate.details);
    head.remove(Name::XForwardedClientCert);
    head.append(Name::XForwardedClientCert, &value);
}

/// One element of `x-forwarded-client-cert`.
fn write_certificate(
    out: &mut Vec<u8>,
    tls: &DownstreamTls,
    peer: &ShownCertificate,
    details: &[CertificateDetail],
) {
    write_names(out, b"By=", tls.own.as_ref().map_or(&[], |own| &own.uris));
    out.extend_from_slice(b"Hash=");
    out.extend_from_slice(peer.fingerprint.as_bytes());
    out.push(b';');
    for detail in details {
        match detail {
            CertificateDetail::Certificate => {
                out.extend_from_slice(b"Cert=\"");
                tls.write_peer_pem(out);
                out.extend_from_slice(b"\";");
            }
            CertificateDetail::Chain => {
                out.extend_from_slice(b"Chain=\"");
                tls.write_chain_pem(out);
                out.extend_from_slice(b"\";");
            }
            CertificateDetail::Subject => {
                out.extend_from_slice(b"Subject=\"");
                out.extend_from_slice(peer.subject.as_bytes());
                out.extend_from_slice(b"\";");
            }
            // As Envoy has it, which for domains leaves out what is not there.
            CertificateDetail::Uri if peer.uris.is_empty() => out.extend_from_slice(b"URI=;"),
            CertificateDetail::Uri => write_names(out, b"URI=", &peer.uris),
            CertificateDetail::Dns => write_names(out, b"DNS=", &peer.domains),
        }
    }
    // Elements have no semicolon at their end.
    out.pop();
}

fn write_names(out: &mut Vec<u8>, what: &[u8], names: &[Box<[u8]>]) {
    for name in names {
        out.extend_from_slice(what);
        out.extend_from_slice(name);
        out.push(b';');
    }
}

/// What a client of the first proxy must not say.
pub(crate) fn strip_edge(head: &mut Head) {
    const OURS: [Name; 6] = [
        Name::XEnvoyInternal,
        Name::XEnvoyDecoratorOperation,
        Name::XEnvoyDownstreamServiceCluster,
        Name::XEnvoyDownstreamServiceNode,
        Name::XEnvoyOriginalHost,
        Name::XEnvoyOriginalPath,
    ];
    head.remove_each(&OURS);
}

/// What only a peer from inside may say, whatever stands between it and us.
pub(crate) fn strip_external(head: &mut Head) {
    const OURS: [Name; 15] = [
        Name::XEnvoyRetryOn,
        Name::XEnvoyRetryGrpcOn,
        Name::XEnvoyMaxRetries,
        Name::XEnvoyRetriableStatusCodes,
        Name::XEnvoyRetriableHeaderNames,
        Name::XEnvoyHedgeOnPerTryTimeout,
        Name::XEnvoyUpstreamAltStatName,
        Name::XEnvoyUpstreamRqTimeoutMs,
        Name::XEnvoyUpstreamRqPerTryTimeoutMs,
        Name::XEnvoyUpstreamRqTimeoutAltResponse,
        Name::XEnvoyExpectedRqTimeoutMs,
        Name::XEnvoyForceTrace,
        Name::XEnvoyIpTags,
        Name::XEnvoyOriginalUrl,
        Name::XEnvoyUpstreamStreamDurationMs,
    ];
    head.remove_each(&OURS);
}

/// The address that stands `from_last` places before the last one in `x-forwarded-for`.
#[inline]
pub(crate) fn forwarded_for(head: &Head, from_last: usize) -> Option<IpAddr> {
    head.get(Name::XForwardedFor)?;
    forwarded_by(head, from_last)
}

fn forwarded_by(head: &Head, from_last: usize) -> Option<IpAddr> {
    let mut values = head.values(Name::XForwardedFor);
    let (first, second) = (values.next()?, values.next());
    let all: Vec<u8>;
    let value = if second.is_some() {
        all = head.values(Name::XForwardedFor).collect::<Vec<_>>().join(&b","[..]);
        &all[..]
    } else {
        first
    };
    let address = value.rsplit(|&byte| byte == b',').nth(from_last)?.trim_ascii();
    std::str::from_utf8(address).ok()?.parse().ok()
}

/// A client on this machine is named as others see it, as in Envoy.
fn append_client(head: &mut Head, client: IpAddr, node: &Node) {
    let seen = node.address.filter(|_| client.is_loopback());
    append_forwarded_for(head, seen.unwrap_or(client));
}

pub(crate) fn append_forwarded_for(head: &mut Head, address: IpAddr) {
    let address = AddressText::of(address);
    if head.get(Name::XForwardedFor).is_none() {
        head.append(Name::XForwardedFor, address.as_bytes());
        return;
    }
    let mut value = Vec::new();
    for field in head.values(Name::XForwardedFor) {
        value.extend_from_slice(field);
        value.push(b',');
    }
    value.extend_from_slice(address.as_bytes());
    head.set(Name::XForwardedFor, &value);
}

pub(crate) fn canonical(peer: SocketAddr, config: &Http) -> SocketAddr {
    match peer.ip() {
        IpAddr::V4(address) if config.ipv4_mapped => {
            SocketAddr::new(address.to_ipv6_mapped().into(), peer.port())
        }
        IpAddr::V4(_) | IpAddr::V6(_) => SocketAddr::new(peer.ip().to_canonical(), peer.port()),
    }
}

impl Exchange {
    /// Completes `stream.response` and encodes it.
    pub(crate) fn send_response_head(&mut self, index: StreamIndex, end: bool, now: Instant) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        match stream.kind {
            Kind::Http(_) => {}
            Kind::Rpc(_) => return self.send_answer(index, now),
            Kind::App => return self.deliver_head(index, now),
            // The head stays where it is, for the filter.
            Kind::Tcp(_) | Kind::Callout(_) => return,
        }
        let context = stream.context.clone();
        let Some(http) = context.http() else { return };
        let config = &*http.config;
        let plain = stream.plain();
        let routed =
            stream.route.filter(|_| !plain.answers).and_then(|route| Routed::of(&context, route));
        stream.status = stream.response.status();
        stream.recorder.note(|record| record.response_start = Some(now));
        let head = &mut stream.response;
        if !stream.local_reply
            && stream.request_end == Progress::Ended
            && stream.upgrade == Upgrade::No
            && !config.chain(stream.chain).router.suppress_envoy_headers
            && let (Some(asked), Some(received)) =
                (stream.times.request_end, stream.times.upstream_first_received)
        {
            let elapsed = received.millis_since(asked);
            head.set_number(Name::XEnvoyUpstreamServiceTime, elapsed);
        }
        if !stream.local_reply
            && let Some(tried) = &stream.retries.tried
        {
            for cookie in &tried.cookies {
                head.append(Name::SetCookie, cookie);
            }
        }
        if routed.is_some_and(|routed| routed.host.attempt_count_in_response) && stream.attempts > 0
        {
            head.set_number(Name::XEnvoyAttemptCount, stream.attempts.into());
        }
        // A local reply was changed before it was worded.
        if plain.answers
            && plain.adds
            && !stream.local_reply
            && let Some(route) = stream.route
            && let Some(added) = http.plain.added(route.host, route.route)
        {
            head.append_prepared(&added.to_responses);
        }
        let has_filters = !http.chain(stream.chain).filters.is_empty();
        let changed = routed.is_some_and(|routed| changes(routed, Subject::Response));
        if changed && !stream.local_reply {
            self.change_response(index, now);
        }
        if has_filters && !self.show_response_head(index, end, now) {
            return;
        }
        self.write_response_head(index, &context, end, now);
    }

    /// Shows the head of a response to the filters, unless one of them has made it; false if it does not go on.
    fn show_response_head(&mut self, index: StreamIndex, end: bool, now: Instant) -> bool {
        let Some(stream) = self.streams.get(index) else { return false };
        let serial = stream.serial;
        let is_past = stream.filters.as_deref().is_some_and(|filters| filters.is_past);
        if is_past || self.filter_response_head(index, usize::MAX, end, now) {
            return true;
        }
        if !self.is_past_filters(index, serial)
            && let Some(stream) = self.streams.get_mut(index)
        {
            // As far as the client can tell, there is no response, and no other is asked for.
            stream.response_end = Progress::AwaitingHead;
            stream.retries.forbidden = true;
        }
        false
    }

    /// The same with the head as the filters leave it.
    pub(crate) fn write_response_head(
        &mut self,
        index: StreamIndex,
        context: &ChainContext,
        end: bool,
        now: Instant,
    ) {
        let Some(http) = context.http() else { return };
        if let Some(tracing) = &http.config.tracing {
            self.decorate_response(index, tracing);
        }
        let Some(mut stream) = self.streams.get_mut(index) else { return };
        let config = &*http.config;
        let Leg { connection: downstream, number } = stream.downstream;
        if let Some(told) = &config.proxy_status
            && !stream.flags.is_empty()
        {
            let record = stream.recorder.record();
            proxy_status::tell(told, stream.flags, record, &mut stream.response);
        }
        let head = &mut stream.response;
        stream.status = head.status();
        match config.server_header {
            ServerHeader::Overwrite => {
                head.set_prepared(&config.server_name);
            }
            ServerHeader::AppendIfAbsent if head.get(Name::Server).is_none() => {
                head.set_prepared(&config.server_name);
            }
            ServerHeader::AppendIfAbsent | ServerHeader::PassThrough => {}
        }
        if head.get(Name::Date).is_none() {
            head.set(Name::Date, self.env.clock.http_date(now));
        }
        if !config.via.is_empty() {
            head.append(Name::Via, config.via.as_bytes());
        }
        let asked = || stream.request.get(Name::XEnvoyForceTrace).is_some();
        if (config.request_id_in_response || asked())
            && let Some(id) = stream.request.get(Name::XRequestId)
        {
            head.set(Name::XRequestId, id);
        }
        let status = head.status();
        let refused = match stream.upgrade {
            Upgrade::No | Upgrade::Done => false,
            Upgrade::Requested => status != 101,
            Upgrade::Connect | Upgrade::ConnectHere | Upgrade::Post => {
                !(200..300).contains(&status)
            }
        };
        // What follows a refused upgrade may be meant for the other protocol: it is not read as requests.
        let unread = stream.upgrade == Upgrade::No
            && stream.request_end != Progress::Ended
            && !stream.keeps_request_end();
        let early = refused || unread;
        let drains = self.env.draining.closes(&context.listener, &mut self.env.random, now);
        let is_last = self.env.overload.is_some()
            && Self::ends_keep_alive(downstream, &self.conns, &mut self.env);
        let is_drained = stream.recorder.info().is_some_and(StreamInfo::drains_connection);
        let draining = drains || is_last;
        if let Some(connection) = self.conns.table.get_mut(downstream) {
            let closing = connection.downstream().is_some_and(|downstream| downstream.closing);
            let closes = closing || early || draining || is_drained;
            if closes && connection.mux.close_after_response() && draining && !closing {
                http.stats.downstream_cx_drain_close.inc();
            }
        }
        if draining || is_drained {
            // As in Envoy: GOAWAY goes before the response.
            self.tell_of_drain(downstream, now);
            let Some(same) = self.streams.get_mut(index) else { return };
            stream = same;
        }
        self.conns.encode_for(downstream, &mut self.env);
        if let Some(connection) = self.conns.table.get_mut(downstream) {
            let before = stream.recorder.before_head(&self.conns.out);
            let head = Part::Head(&stream.response, end);
            connection.mux.send(number, head, &mut self.conns.out);
            if let Some(before) = before {
                let (head, out) = (&stream.response, &self.conns.out);
                let of = Heads::DownstreamSent;
                stream.recorder.count_sent(of, head, &connection.mux, before, out);
            }
        }
    }

    /// What the route changes in `stream.response`, a local reply.
    pub(crate) fn change_reply(&mut self, index: StreamIndex, now: Instant) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        let plain = stream.plain();
        if !plain.answers {
            if stream.routed().is_some_and(|routed| changes(routed, Subject::Response)) {
                self.change_response(index, now);
            }
        } else if plain.adds
            && let Some(route) = stream.route
            && let Some(http) = stream.context.clone().http()
            && let Some(added) = http.plain.added(route.host, route.route)
        {
            stream.response.append_prepared(&added.to_responses);
        }
    }

    /// What the route changes in `stream.response`.
    fn change_response(&mut self, index: StreamIndex, now: Instant) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        let mut head = stream.response.take();
        stream.complete_record();
        let setting = Setting { clusters: &self.upstreams.clusters, clock: &self.env.clock };
        if let Some(routed) = stream.routed() {
            let scratch = &mut self.env.scratch;
            apply_header_ops(routed, Subject::Response, stream, &mut head, setting, scratch, now);
        }
        stream.response.put(head, &mut self.env.heads);
    }
}

/// Whether the request asks to leave HTTP, and for what.
pub(crate) fn wanted_upgrade(head: &Head) -> Option<&[u8]> {
    if head.method() == Method::Connect {
        return Some(b"connect");
    }
    head.get(Name::Upgrade).filter(|_| head.version() != Version::Http10)
}

/// What clients speak to us, in plain text and under TLS.
static FORWARDED_HTTP: LazyLock<PreparedField> =
    LazyLock::new(|| PreparedField::new(Name::XForwardedProto, b"http"));
static FORWARDED_HTTPS: LazyLock<PreparedField> =
    LazyLock::new(|| PreparedField::new(Name::XForwardedProto, b"https"));
