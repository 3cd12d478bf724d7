//! Streams to control planes: one for all kinds of resources, and others that are for one kind each.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;
use towpath_config::{From, Grpc, Kind};
use towpath_xds::{AGGREGATED, Backoff, Form, Limit, Settings, Stream, Type, Wanted};

use super::Server;
use super::asks::{Ask, Reach};
use super::grpc::{self, Link, News, Target};
use crate::log;
use crate::server_stats::CONTROL;

/// A stream to a control plane, or what takes its place from connect to connect.
pub(super) struct Channel {
    grpc: Arc<Grpc>,
    /// What it is for; `None` is all.
    of: Option<Type>,
    pub(super) stream: Stream,
    link: Option<Link>,
    /// Connects so far: each goes to the next endpoint.
    attempts: usize,
}

impl Channel {
    fn new(grpc: Arc<Grpc>, of: Option<Type>, node: Bytes) -> Self {
        let limit = grpc.limit.map(|limit| Limit {
            tokens: limit.burst,
            interval: Duration::from_secs(1000) / limit.per_1000_seconds.max(1),
        });
        let (base, max) = grpc.waits.unwrap_or((BACKOFF_BASE, BACKOFF_MAX));
        let settings = Settings {
            form: if grpc.delta { Form::Delta } else { Form::StateOfTheWorld },
            node,
            node_once: grpc.node_once,
            backoff: Backoff::new(base, max, crate::random()),
            max_resources: MAX_RESOURCES,
            limit,
        };
        Self { grpc, of, stream: Stream::new(settings), link: None, attempts: 0 }
    }

    /// Whether resources of a kind come by it from there.
    pub(super) fn is_for(&self, from: &From, of: Type) -> bool {
        self.source(of).is_some_and(|own| own == *from)
    }

    /// Where resources of a kind come from by it.
    fn source(&self, of: Type) -> Option<From> {
        match self.of {
            None => Some(From::Ads),
            Some(own) => (own == of).then(|| From::Grpc(Arc::clone(&self.grpc))),
        }
    }

    fn is_needed(&self) -> bool {
        self.of.is_none() || self.stream.is_wanted()
    }

    fn method(&self) -> &'static str {
        let [world, delta] = match self.of {
            None => AGGREGATED,
            Some(of) => of.methods(),
        };
        if self.grpc.delta { delta } else { world }
    }

    pub(super) fn send(&self, message: Bytes) {
        if let Some(link) = &self.link {
            // Where its task has ended, that is told next.
            let _ = link.outgoing.send(message);
        }
    }
}

impl Server {
    /// Asks for resources of a kind, by a stream that is made if there is none.
    pub(super) fn want(&mut self, from: &From, of: Type, wanted: Wanted) {
        let now = self.now();
        let found = self.channels.iter().position(|channel| channel.is_for(from, of));
        let index = match (found, from) {
            (Some(index), _) => index,
            (None, From::Grpc(grpc)) => {
                let channel = Channel::new(Arc::clone(grpc), Some(of), self.node.clone());
                self.channels.push(channel);
                self.channels.len() - 1
            }
            (None, From::Ads | From::File(_)) => return,
        };
        self.channels[index].stream.want(of, wanted, now);
    }

    /// Where resources of a kind are asked for by a stream that there is.
    pub(super) fn known_sources(&self, kind: Kind) -> impl Iterator<Item = From> {
        self.channels.iter().filter_map(move |channel| channel.source(kind))
    }

    /// The stream for all kinds.
    pub(super) fn open_ads(&mut self, ads: Option<Arc<Grpc>>) {
        self.channels.extend(ads.map(|grpc| Channel::new(grpc, None, self.node.clone())));
    }

    /// Ends streams that nothing is wanted of.
    pub(super) fn drop_unneeded(&mut self) {
        let before = self.channels.len();
        self.channels.retain(Channel::is_needed);
        if self.channels.len() < before {
            self.count_connected();
        }
    }

    /// Connects the channel.
    pub(super) async fn connect(&mut self, index: usize) {
        let (teller, told) = oneshot::channel();
        let Some(channel) = self.channels.get(index) else { return };
        let grpc = Arc::clone(&channel.grpc);
        self.ask(Ask::Reach { cluster: Arc::clone(&grpc.cluster), teller });
        let Reach { cluster, endpoints } = told.await.unwrap_or_default();
        // Before anything serves, this one has the secrets.
        let id = self.base.snapshot.cluster_id(&grpc.cluster);
        let own = id.and_then(|id| self.base.snapshot.cluster(id)).cloned();
        let channel = &mut self.channels[index];
        let attempt = channel.attempts;
        let host = endpoints.get(attempt % endpoints.len().max(1));
        let (Some(host), Some(cluster)) = (host, own.or(cluster)) else {
            return self.disconnected(index, "its cluster has no endpoints");
        };
        channel.attempts += 1;
        let (method, registry) = (channel.method(), self.stats.registry());
        let target = match Target::new(&grpc, &cluster, (host, attempt), method, registry, OWNER) {
            Ok(target) => target,
            Err(why) => return self.disconnected(index, why),
        };
        self.channels[index].link = Some(grpc::open(target, UNREAD_MESSAGES));
    }

    /// Takes what came of a channel.
    pub(super) fn hear(&mut self, index: usize, news: News) {
        let now = self.now();
        let Some(channel) = self.channels.get_mut(index) else { return };
        match news {
            News::Connected => {
                let peer = &channel.grpc.cluster;
                log!(Config, Debug, "the stream to control plane '{peer}' is open");
                channel.stream.connected();
                self.count_connected();
            }
            News::Message(message) => {
                if let Err(error) = channel.stream.received(message, now) {
                    self.disconnected(index, &error.to_string());
                }
            }
            News::Ended(why) => self.disconnected(index, &why),
        }
    }

    fn disconnected(&mut self, index: usize, why: &str) {
        let now = self.now();
        let channel = &mut self.channels[index];
        channel.link = None;
        channel.stream.disconnected(now);
        let peer = &channel.grpc.cluster;
        log!(Config, Warning, "the stream to control plane '{peer}' ended: {why}");
        let channel = &self.channels[index];
        let needs = self.needs.iter();
        let needs = needs.filter(|need| channel.is_for(&need.source.from, need.kind));
        self.stats.failure(needs, &self.discovery, channel);
        self.count_connected();
    }

    pub(super) fn count_connected(&self) {
        let mut streams = self.channels.iter().map(|channel| &channel.stream);
        self.stats.connected(streams.any(Stream::is_connected));
    }

    pub(super) fn count_held_up(&self) {
        self.stats.held_up(self.channels.iter().map(|channel| channel.stream.held_up()).sum());
    }
}

/// The next that comes of any channel.
pub(super) async fn hear(channels: &mut [Channel]) -> (usize, News) {
    std::future::poll_fn(|context| {
        for (index, channel) in channels.iter_mut().enumerate() {
            let Some(link) = &mut channel.link else { continue };
            if let Poll::Ready(news) = link.news.poll_recv(context) {
                let news = news.unwrap_or_else(|| News::Ended("its task ended".to_owned()));
                return Poll::Ready((index, news));
            }
        }
        Poll::Pending
    })
    .await
}

/// Whose counters this thread writes: neither a worker's nor the control thread's.
const OWNER: u32 = CONTROL - 1;
/// Envoy's defaults.
const BACKOFF_BASE: Duration = Duration::from_millis(500);
const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// How many resources of a kind there may be.
const MAX_RESOURCES: usize = 200_000;
/// Messages that were received and not looked at yet; the control plane waits when there are more.
const UNREAD_MESSAGES: usize = 4;
