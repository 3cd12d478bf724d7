//! `towpath xds replay`: a recording as a control plane.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use clap::Args;
use prost::Message;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::LocalSet;
use towpath_config::{Encoder, Source};
use towpath_xds::Type;
use towpath_xds::wire::{
    Any, DeltaRequest, DeltaResponse, DiscoveryRequest, DiscoveryResponse, Wrapped,
};

use super::recording::{Recording, Timed, is_redacted, printable, short};

/// What `xds replay` was told.
#[derive(Clone, Debug, Args)]
pub struct Replay {
    /// A recording, or a config dump
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Where to listen
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:18000")]
    listen: SocketAddr,
    /// Wait for so many seconds between two updates, in place of as long as it took
    #[arg(long, value_name = "SECONDS")]
    every: Option<f64>,
    /// Begin with what had come by this step
    #[arg(long, value_name = "STEP", default_value_t = 0)]
    from: usize,
}

/// All that is said, and news of what was said last.
#[derive(Clone)]
struct Shared {
    world: Rc<RefCell<World>>,
    changed: watch::Receiver<u64>,
}

/// All that is said, and how often each kind became another.
#[derive(Debug, Default)]
struct World {
    /// Each with the number of the step that it came with.
    resources: BTreeMap<Type, BTreeMap<String, (u64, Bytes)>>,
    /// The last step of each kind.
    steps: BTreeMap<Type, u64>,
    encoder: Encoder,
}

impl Replay {
    pub(super) fn run(&self) -> Result<ExitCode, String> {
        let every = match self.every.map(Duration::try_from_secs_f64) {
            None => None,
            Some(Ok(every)) => Some(every),
            Some(Err(error)) => return Err(format!("--every: {error}")),
        };
        let recording = Recording::read(&self.file)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        LocalSet::new().block_on(&runtime, async {
            let listener = TcpListener::bind(self.listen).await;
            let listener = listener.map_err(|error| format!("{}: {error}", self.listen))?;
            let at = listener.local_addr().map_err(|error| error.to_string())?;
            say(&format!("listening on {at}"));
            let world = Rc::new(RefCell::new(World::default()));
            let (changes, changed) = watch::channel(0);
            let shared = Shared { world: Rc::clone(&world), changed };
            tokio::select! {
                () = accept(listener, shared) => {}
                () = self.play(&recording.steps, every, &world, &changes) => {}
                _ = tokio::signal::ctrl_c() => {}
            }
            Ok(ExitCode::SUCCESS)
        })
    }

    /// Takes one step after the other, and then waits for ever.
    async fn play(
        &self,
        steps: &[Timed],
        every: Option<Duration>,
        world: &RefCell<World>,
        changes: &watch::Sender<u64>,
    ) {
        let mut due = tokio::time::Instant::now();
        let mut before = None;
        for (timed, number) in steps.iter().zip(1_u64..) {
            let recorded = before.map_or(0, |before| timed.at_ms.saturating_sub(before));
            before = Some(timed.at_ms);
            if usize::try_from(number).is_ok_and(|number| number > self.from) {
                // From when the last was due, so that what takes time does not add up.
                let wait = every.unwrap_or_else(|| Duration::from_millis(recorded));
                due += wait.min(LONGEST_WAIT);
                tokio::time::sleep_until(due).await;
            }
            let left_out = world.borrow_mut().take(timed, number);
            left_out.iter().for_each(|line| say(line));
            say(&timed.title(number));
            changes.send_replace(number);
        }
        say("that was the last step");
        std::future::pending().await
    }
}

impl World {
    /// Takes a step; says what of it cannot be sent.
    fn take(&mut self, timed: &Timed, number: u64) -> Vec<String> {
        let mut left_out = Vec::new();
        let Some(kind) = Type::of_message(&timed.step.kind) else { return left_out };
        let resources = self.resources.entry(kind).or_default();
        for name in &timed.step.removed {
            resources.remove(name);
        }
        for (name, _, resource) in &timed.step.resources {
            if is_redacted(resource) {
                let what = short(kind.message());
                let text = format!(
                    "{what} `{name}` is not sent: what is secret of it is not in the recording"
                );
                left_out.push(text);
                continue;
            }
            match self.encoder.encoded(&Source::json(name, &resource.to_string()), kind.message()) {
                Ok(body) => drop(resources.insert(name.clone(), (number, body))),
                Err(error) => left_out.push(format!("`{name}` is not sent: {error}")),
            }
        }
        self.steps.insert(kind, number);
        left_out
    }
}

fn say(line: &str) {
    let mut out = std::io::stdout();
    // Where standard output is closed nothing can be told.
    let _ = writeln!(out, "{}", printable(line)).and_then(|()| out.flush());
}

async fn accept(listener: TcpListener, world: Shared) {
    loop {
        match listener.accept().await {
            Ok((socket, peer)) => {
                tokio::task::spawn_local(connection(socket, peer, world.clone()));
            }
            // Too many descriptors, or a client that was gone at once.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

async fn connection(socket: TcpStream, peer: SocketAddr, world: Shared) {
    let Ok(mut connection) = h2::server::handshake(socket).await else { return };
    while let Some(Ok((request, respond))) = connection.accept().await {
        let world = world.clone();
        tokio::task::spawn_local(async move {
            if let Err(why) = stream(request, respond, world, peer).await {
                say(&format!("{peer}: {why}"));
            }
        });
    }
}

/// What a client wants of a kind, and has.
#[derive(Default)]
struct Subscription {
    is_wildcard: bool,
    names: BTreeSet<String>,
    /// Delta: the steps with which what it has came.
    has: BTreeMap<String, u64>,
    /// State of the world: the step and names of the last response.
    sent: Option<(u64, BTreeSet<String>)>,
    /// A response is not answered yet.
    awaits: bool,
}

async fn stream(
    request: http::Request<h2::RecvStream>,
    mut respond: h2::server::SendResponse<Bytes>,
    mut shared: Shared,
    peer: SocketAddr,
) -> Result<(), String> {
    let failed = |error: h2::Error| error.to_string();
    let is_delta = request.uri().path().contains("/Delta");
    let head = http::Response::builder().header("content-type", "application/grpc").body(());
    let head = head.map_err(|error| error.to_string())?;
    let mut sender = respond.send_response(head, false).map_err(failed)?;
    let mut body = request.into_body();
    let mut buffer = BytesMut::new();
    let mut subscriptions: BTreeMap<Type, Subscription> = BTreeMap::new();
    let mut nonce = 0_u64;
    loop {
        tokio::select! {
            data = body.data() => {
                let Some(data) = data else { return Ok(()) };
                let data = data.map_err(failed)?;
                body.flow_control().release_capacity(data.len()).map_err(failed)?;
                buffer.extend_from_slice(&data);
                while let Some(message) = message(&mut buffer)? {
                    let heard = if is_delta {
                        hear_delta(message, &mut subscriptions)
                    } else {
                        hear_world(message, &mut subscriptions)
                    };
                    if let Some(line) = heard? {
                        say(&format!("{peer}: {line}"));
                    }
                }
            }
            changed = shared.changed.changed() => changed.map_err(|error| error.to_string())?,
        }
        shared.changed.borrow_and_update();
        let world = Rc::clone(&shared.world);
        for kind in Type::ALL {
            let Some(subscription) = subscriptions.get_mut(&kind).filter(|it| !it.awaits) else {
                continue;
            };
            let answer = if is_delta {
                subscription.delta(kind, &world.borrow(), nonce + 1)
            } else {
                subscription.world(kind, &world.borrow(), nonce + 1)
            };
            let Some(answer) = answer else { continue };
            nonce += 1;
            subscription.awaits = true;
            let mut frame = BytesMut::with_capacity(answer.len() + 5);
            frame.put_u8(0);
            frame.put_u32(u32::try_from(answer.len()).map_err(|error| error.to_string())?);
            frame.extend_from_slice(&answer);
            sender.send_data(frame.freeze(), false).map_err(failed)?;
        }
    }
}

/// A whole message, if one has come.
fn message(buffer: &mut BytesMut) -> Result<Option<Bytes>, String> {
    let Some((prefix, _)) = buffer.split_first_chunk::<5>() else { return Ok(None) };
    let [compressed, length @ ..] = *prefix;
    let length = u32::from_be_bytes(length) as usize;
    if compressed != 0 || length > MAX_REQUEST {
        return Err("a request that is compressed or too large".to_owned());
    }
    if buffer.len() < 5 + length {
        return Ok(None);
    }
    buffer.advance(5);
    Ok(Some(buffer.split_to(length).freeze()))
}

/// What a client said to a response, for people.
fn answered(kind: Type, nonce: &str, error: Option<String>) -> Option<String> {
    match (nonce, error) {
        (_, Some(why)) => Some(format!("{kind:?}: refused: {why}")),
        ("", None) => None,
        (_, None) => Some(format!("{kind:?}: acknowledged")),
    }
}

type Heard = Result<Option<String>, String>;

fn hear_world(message: Bytes, subscriptions: &mut BTreeMap<Type, Subscription>) -> Heard {
    let request = DiscoveryRequest::decode(message).map_err(|error| error.to_string())?;
    let Some(kind) = Type::of_url(&request.type_url) else {
        return Ok(Some(format!("asks for {}, which is in no recording", request.type_url)));
    };
    let subscription = subscriptions.entry(kind).or_default();
    subscription.names = request.resource_names.into_iter().collect();
    subscription.is_wildcard = kind.is_whole() && subscription.names.is_empty();
    subscription.awaits &= request.response_nonce.is_empty();
    Ok(answered(kind, &request.response_nonce, request.error_detail.map(|it| it.message)))
}

fn hear_delta(message: Bytes, subscriptions: &mut BTreeMap<Type, Subscription>) -> Heard {
    let request = DeltaRequest::decode(message).map_err(|error| error.to_string())?;
    let Some(kind) = Type::of_url(&request.type_url) else {
        return Ok(Some(format!("asks for {}, which is in no recording", request.type_url)));
    };
    let is_first = !subscriptions.contains_key(&kind);
    let subscription = subscriptions.entry(kind).or_default();
    let mut asked = request.resource_names_subscribe;
    if is_first && asked.is_empty() {
        asked.push("*".to_owned());
    }
    for name in asked {
        subscription.has.remove(&name);
        if name == "*" {
            subscription.is_wildcard = true;
        } else {
            subscription.names.insert(name);
        }
    }
    for name in request.resource_names_unsubscribe {
        subscription.is_wildcard &= name != "*";
        subscription.names.remove(&name);
        subscription.has.remove(&name);
    }
    subscription.awaits &= request.response_nonce.is_empty();
    Ok(answered(kind, &request.response_nonce, request.error_detail.map(|it| it.message)))
}

impl Subscription {
    fn wants(&self, name: &str) -> bool {
        self.is_wildcard || self.names.contains(name)
    }

    fn world(&mut self, kind: Type, world: &World, nonce: u64) -> Option<Bytes> {
        let (step, resources) = (*world.steps.get(&kind)?, world.resources.get(&kind)?);
        let asked = (step, self.names.clone());
        if self.sent.as_ref() == Some(&asked) {
            return None;
        }
        let found = resources.iter().filter(|(name, _)| self.wants(name));
        let found: Vec<Any> =
            found.map(|(_, (_, body))| Any { type_url: kind.url(), value: body.clone() }).collect();
        if found.is_empty() && !kind.is_whole() {
            return None;
        }
        self.sent = Some(asked);
        let response = DiscoveryResponse {
            version_info: step.to_string(),
            resources: found,
            type_url: kind.url(),
            nonce: nonce.to_string(),
        };
        Some(response.encode_to_vec().into())
    }

    fn delta(&mut self, kind: Type, world: &World, nonce: u64) -> Option<Bytes> {
        let (step, resources) = (*world.steps.get(&kind)?, world.resources.get(&kind)?);
        let is_new = |name: &str, step: u64| self.has.get(name) != Some(&step);
        let found =
            resources.iter().filter(|(name, (step, _))| self.wants(name) && is_new(name, *step));
        let found: Vec<(String, u64, Bytes)> =
            found.map(|(name, (step, body))| (name.clone(), *step, body.clone())).collect();
        let gone = self.has.keys().filter(|name| !resources.contains_key(*name));
        let gone: Vec<String> = gone.cloned().collect();
        let is_first = self.sent.replace((step, BTreeSet::new())).is_none();
        if found.is_empty() && gone.is_empty() && !(is_first && self.is_wildcard) {
            return None;
        }
        self.has.retain(|name, _| !gone.contains(name));
        self.has.extend(found.iter().map(|(name, step, _)| (name.clone(), *step)));
        let wrapped = |(name, step, body): (String, u64, Bytes)| Wrapped {
            version: step.to_string(),
            resource: Some(Any { type_url: kind.url(), value: body }),
            name,
            ttl: None,
        };
        let response = DeltaResponse {
            system_version_info: step.to_string(),
            resources: found.into_iter().map(wrapped).collect(),
            type_url: kind.url(),
            nonce: nonce.to_string(),
            removed_resources: gone,
        };
        Some(response.encode_to_vec().into())
    }
}

/// No step is waited for longer: a hundred years.
const LONGEST_WAIT: Duration = Duration::from_secs(100 * 365 * 86_400);
/// The largest request that is read.
const MAX_REQUEST: usize = 16 << 20;
