//! A control plane that says what a test wants: ADS and streams of one kind in both forms, over TCP or a unix socket.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::Message;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{broadcast, oneshot};
use towpath_config::{Source, encoded};
use towpath_xds::wire::{
    self, Any, DeltaRequest, DeltaResponse, DiscoveryRequest, DiscoveryResponse, Wrapped,
};
use towpath_xds::{Name, Type};

/// What a client said.
#[derive(Clone, Debug)]
pub(crate) struct Said {
    pub(crate) kind: Type,
    pub(crate) names: BTreeSet<String>,
    /// Delta has none: that of the answer whose nonce it names.
    pub(crate) version: String,
    /// Delta: `initial_resource_versions`.
    pub(crate) known: BTreeMap<String, String>,
    pub(crate) error: Option<String>,
    pub(crate) has_node: bool,
    pub(crate) is_answer: bool,
    /// Service and method of its stream.
    pub(crate) method: String,
}

#[derive(Default)]
struct State {
    resources: BTreeMap<Type, BTreeMap<String, (String, Bytes)>>,
    versions: BTreeMap<Type, String>,
    /// How long resources of a kind are good for.
    ttls: BTreeMap<Type, wire::Duration>,
    /// How often it was said that they still are.
    beats: u64,
    said: Vec<Said>,
    streams: u64,
    node: Bytes,
}

pub(crate) enum Place {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

pub(crate) struct ControlPlane {
    pub(crate) address: SocketAddr,
    state: Arc<Mutex<State>>,
    changed: broadcast::Sender<()>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl ControlPlane {
    pub(crate) fn start() -> Self {
        Self::start_at(Place::Tcp(([127, 0, 0, 1], 0).into()))
    }

    pub(crate) fn start_at(place: Place) -> Self {
        let state = Arc::new(Mutex::new(State::default()));
        let (changed, _) = broadcast::channel(64);
        let (stop, stopped) = oneshot::channel::<()>();
        let (ready, address) = std::sync::mpsc::channel();
        let (shared, changes) = (state.clone(), changed.clone());
        let thread = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            tokio::task::LocalSet::new().block_on(&runtime, async move {
                let accept = async move {
                    match place {
                        Place::Tcp(at) => {
                            let socket = socket2::Socket::new(
                                socket2::Domain::IPV4,
                                socket2::Type::STREAM,
                                None,
                            )
                            .unwrap();
                            socket.set_reuse_address(true).unwrap();
                            socket.bind(&at.into()).unwrap();
                            socket.listen(16).unwrap();
                            socket.set_nonblocking(true).unwrap();
                            let listener =
                                tokio::net::TcpListener::from_std(socket.into()).unwrap();
                            ready.send(listener.local_addr().unwrap()).unwrap();
                            while let Ok((socket, _)) = listener.accept().await {
                                tokio::task::spawn_local(serve(
                                    socket,
                                    shared.clone(),
                                    changes.clone(),
                                ));
                            }
                        }
                        Place::Unix(path) => {
                            let listener = tokio::net::UnixListener::bind(path).unwrap();
                            ready.send(([0, 0, 0, 0], 0).into()).unwrap();
                            while let Ok((socket, _)) = listener.accept().await {
                                tokio::task::spawn_local(serve(
                                    socket,
                                    shared.clone(),
                                    changes.clone(),
                                ));
                            }
                        }
                    }
                };
                tokio::select! {
                    () = accept => {}
                    _ = stopped => {}
                }
            });
        });
        let address = address.recv().unwrap();
        Self { address, state, changed, stop: Some(stop), thread: Some(thread) }
    }

    /// From here on these are all resources of the kind, each a message in YAML.
    pub(crate) fn set(&self, kind: Type, version: &str, resources: &[(&str, &str)]) {
        let encode = |text: &str| encoded(&Source::yaml("test", text), kind.message()).unwrap();
        let all: Vec<_> = resources.iter().map(|(name, text)| (*name, encode(text))).collect();
        let mut state = self.state.lock().unwrap();
        let before = state.resources.remove(&kind).unwrap_or_default();
        let with_version = |(name, body): (&str, Bytes)| {
            let same = before.get(name).filter(|(_, old)| *old == body);
            let version = same.map_or_else(|| version.to_owned(), |(version, _)| version.clone());
            (name.to_owned(), (version, body))
        };
        let now = all.into_iter().map(with_version).collect();
        state.resources.insert(kind, now);
        state.versions.insert(kind, version.to_owned());
        drop(state);
        let _ = self.changed.send(());
    }

    /// From here on resources of the kind are good for this long.
    pub(crate) fn good_for(&self, kind: Type, time: Duration) {
        let nanos = i32::try_from(time.subsec_nanos()).unwrap();
        let ttl = wire::Duration { seconds: i64::try_from(time.as_secs()).unwrap(), nanos };
        self.state.lock().unwrap().ttls.insert(kind, ttl);
    }

    /// Says that those still are.
    pub(crate) fn beat(&self) {
        self.state.lock().unwrap().beats += 1;
        let _ = self.changed.send(());
    }

    /// As [`Self::set`] of one resource, with a field that no message has.
    pub(crate) fn set_strange(&self, kind: Type, version: &str, name: &str, text: &str) {
        let body = encoded(&Source::yaml("test", text), kind.message()).unwrap();
        // Field 15000: the number 1.
        let body = [&body[..], &[0xc0, 0xa9, 0x07, 0x01]].concat().into();
        let mut state = self.state.lock().unwrap();
        let resource = (name.to_owned(), (version.to_owned(), body));
        state.resources.insert(kind, [resource].into());
        state.versions.insert(kind, version.to_owned());
        drop(state);
        let _ = self.changed.send(());
    }

    pub(crate) fn said(&self) -> Vec<Said> {
        self.state.lock().unwrap().said.clone()
    }

    /// What was said of a kind last.
    pub(crate) fn last(&self, kind: Type) -> Option<Said> {
        self.said().into_iter().rfind(|said| said.kind == kind)
    }

    pub(crate) fn streams(&self) -> u64 {
        self.state.lock().unwrap().streams
    }

    pub(crate) fn node(&self) -> Bytes {
        self.state.lock().unwrap().node.clone()
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

async fn serve(
    socket: impl AsyncRead + AsyncWrite + Unpin + 'static,
    state: Arc<Mutex<State>>,
    changed: broadcast::Sender<()>,
) {
    let Ok(mut connection) = h2::server::handshake(socket).await else { return };
    while let Some(Ok((request, respond))) = connection.accept().await {
        let (state, changed) = (state.clone(), changed.subscribe());
        tokio::task::spawn_local(stream(request, respond, state, changed));
    }
}

#[derive(Default)]
struct Subscription {
    is_wildcard: bool,
    names: BTreeSet<String>,
    /// Versions of what the client has.
    has: BTreeMap<String, String>,
    sent: Option<(String, BTreeSet<String>)>,
    /// How often it was said that it still has what it has.
    beats: u64,
}

impl Subscription {
    fn wants(&self, name: &str) -> bool {
        let is_in = |name: Name| self.names.contains(&name.collection().to_string());
        self.names.contains(name)
            || Name::parse(name).is_ok_and(is_in)
            || (self.is_wildcard && self.names.is_empty())
    }
}

async fn stream(
    request: http::Request<h2::RecvStream>,
    mut respond: h2::server::SendResponse<Bytes>,
    state: Arc<Mutex<State>>,
    mut changed: broadcast::Receiver<()>,
) {
    let method = request.uri().path().to_owned();
    let is_delta = method.contains("/Delta");
    let head =
        http::Response::builder().header("content-type", "application/grpc").body(()).unwrap();
    let mut sender = respond.send_response(head, false).unwrap();
    let mut body = request.into_body();
    let mut buffer = BytesMut::new();
    let mut subscriptions: BTreeMap<Type, Subscription> = BTreeMap::new();
    let mut nonce = 0;
    state.lock().unwrap().streams += 1;
    loop {
        tokio::select! {
            data = body.data() => {
                let Some(Ok(data)) = data else { return };
                let _ = body.flow_control().release_capacity(data.len());
                buffer.extend_from_slice(&data);
                while buffer.len() >= 5 {
                    let length = u32::from_be_bytes(buffer[1..5].try_into().unwrap()) as usize;
                    if buffer.len() < 5 + length {
                        break;
                    }
                    buffer.advance(5);
                    let message = buffer.split_to(length).freeze();
                    let mut state = state.lock().unwrap();
                    hear(message, &method, &mut subscriptions, &mut state);
                }
            }
            _ = changed.recv() => {}
        }
        for kind in Type::ALL {
            let Some(subscription) = subscriptions.get_mut(&kind) else { continue };
            nonce += 1;
            let answer = {
                let state = state.lock().unwrap();
                if is_delta {
                    delta(kind, subscription, &state, nonce)
                } else {
                    world(kind, subscription, &state, nonce)
                }
            };
            if let Some(answer) = answer {
                let mut frame = BytesMut::new();
                frame.put_u8(0);
                frame.put_u32(u32::try_from(answer.len()).unwrap());
                frame.extend_from_slice(&answer);
                if sender.send_data(frame.freeze(), false).is_err() {
                    return;
                }
            }
        }
    }
}

fn hear(
    message: Bytes,
    method: &str,
    subscriptions: &mut BTreeMap<Type, Subscription>,
    state: &mut State,
) {
    let mut said = if method.contains("/Delta") {
        let request = DeltaRequest::decode(message).unwrap();
        let kind = Type::of_url(&request.type_url).unwrap();
        let is_first = !subscriptions.contains_key(&kind);
        let subscription = subscriptions.entry(kind).or_default();
        if is_first {
            subscription.is_wildcard = request.resource_names_subscribe.is_empty();
            subscription.has = request.initial_resource_versions.clone().into_iter().collect();
        }
        for name in &request.resource_names_unsubscribe {
            subscription.names.remove(name);
            subscription.has.remove(name);
        }
        subscription.names.extend(request.resource_names_subscribe);
        let (answered, _) = request.response_nonce.rsplit_once('.').unwrap_or_default();
        if let Some(node) = &request.node {
            state.node = node.clone();
        }
        Said {
            kind,
            names: subscription.names.clone(),
            version: answered.to_owned(),
            known: request.initial_resource_versions.into_iter().collect(),
            error: request.error_detail.map(|status| status.message),
            has_node: request.node.is_some(),
            is_answer: !request.response_nonce.is_empty(),
            method: method.to_owned(),
        }
    } else {
        let request = DiscoveryRequest::decode(message).unwrap();
        let kind = Type::of_url(&request.type_url).unwrap();
        let subscription = subscriptions.entry(kind).or_default();
        subscription.names = request.resource_names.iter().cloned().collect();
        subscription.is_wildcard = kind.is_whole();
        if subscription.names.is_empty() && !subscription.is_wildcard {
            subscription.sent = None;
        }
        if let Some(node) = &request.node {
            state.node = node.clone();
        }
        Said {
            kind,
            names: subscription.names.clone(),
            version: request.version_info,
            known: BTreeMap::new(),
            error: request.error_detail.map(|status| status.message),
            has_node: request.node.is_some(),
            is_answer: !request.response_nonce.is_empty(),
            method: method.to_owned(),
        }
    };
    said.names = std::mem::take(&mut said.names);
    state.said.push(said);
}

fn world(kind: Type, subscription: &mut Subscription, state: &State, nonce: u64) -> Option<Bytes> {
    let version = state.versions.get(&kind)?;
    let ttl = state.ttls.get(&kind);
    let is_beat = ttl.is_some() && state.beats > subscription.beats;
    subscription.beats = state.beats;
    let asked = (version.clone(), subscription.names.clone());
    let is_known = subscription.sent.as_ref() == Some(&asked);
    if is_known && !is_beat {
        return None;
    }
    let resources = state.resources.get(&kind)?;
    let wanted = |name: &String| subscription.wants(name);
    let found: Vec<_> = resources.iter().filter(|(name, _)| wanted(name)).collect();
    if found.is_empty() && !subscription.is_wildcard {
        return None;
    }
    subscription.sent = Some(asked);
    let any = |(name, (_, body)): (&String, &(String, Bytes))| {
        let resource = Any { type_url: kind.url(), value: body.clone() };
        let Some(ttl) = ttl else { return resource };
        let wrapped = Wrapped {
            version: String::new(),
            resource: (!is_known).then_some(resource),
            name: name.clone(),
            ttl: Some(*ttl),
        };
        let type_url = "type.googleapis.com/envoy.service.discovery.v3.Resource".to_owned();
        Any { type_url, value: wrapped.encode_to_vec().into() }
    };
    let response = DiscoveryResponse {
        version_info: version.clone(),
        resources: found.into_iter().map(any).collect(),
        type_url: kind.url(),
        nonce: nonce.to_string(),
    };
    Some(response.encode_to_vec().into())
}

fn delta(kind: Type, subscription: &mut Subscription, state: &State, nonce: u64) -> Option<Bytes> {
    let version = state.versions.get(&kind)?;
    let resources = state.resources.get(&kind)?;
    let ttl = state.ttls.get(&kind).copied();
    let is_beat = ttl.is_some() && state.beats > subscription.beats;
    subscription.beats = state.beats;
    let wanted = |name: &String| subscription.wants(name);
    let has = |name: &String, version| subscription.has.get(name) == Some(version);
    let new: Vec<Wrapped> = resources
        .iter()
        .filter(|(name, (version, _))| wanted(name) && (is_beat || !has(name, version)))
        .map(|(name, (version, body))| Wrapped {
            version: version.clone(),
            resource: (!has(name, version))
                .then(|| Any { type_url: kind.url(), value: body.clone() }),
            name: name.clone(),
            ttl,
        })
        .collect();
    let removed: Vec<String> =
        subscription.has.keys().filter(|name| !resources.contains_key(*name)).cloned().collect();
    let is_first = subscription.sent.replace((String::new(), BTreeSet::new())).is_none();
    if new.is_empty() && removed.is_empty() && !(is_first && subscription.is_wildcard) {
        return None;
    }
    for wrapped in &new {
        subscription.has.insert(wrapped.name.clone(), wrapped.version.clone());
    }
    removed.iter().for_each(|name| drop(subscription.has.remove(name)));
    let response = DeltaResponse {
        system_version_info: version.clone(),
        resources: new,
        type_url: kind.url(),
        nonce: format!("{version}.{nonce}"),
        removed_resources: removed,
    };
    Some(response.encode_to_vec().into())
}
