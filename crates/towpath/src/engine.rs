//! The engine: one thread that carries all requests of an app.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::net::{IpAddr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use towpath_engine::client::timeouts::Network;
use towpath_engine::local::message::{Command, Event, NetworkChange, Settings};
use towpath_engine::message::{FromWorker, Message};
use towpath_engine::stats::Registry;
use towpath_engine::worker::{Worker, WorkerOptions};
use towpath_io::Names;
use towpath_io::readiness::{Driver, Options};
use towpath_proto::Failure;

use crate::call::Shared;
use crate::network::{Belief, Watching};
use crate::question::Question;
use crate::store::{self, Stored};
use crate::tls::Tls;
use crate::turns::Turns;
use crate::wall_clock::{Timed, unix_ns};
use crate::{Client, DnsOverHttps, Error, dns_over_https, link, outbox};

/// A running engine. It runs as long as there is one of it, or a [`Client`], a [`Request`](crate::Request), a
/// [`Response`](crate::Response) or a [`Link`](crate::Link) that it made. When the last is dropped its thread ends, and
/// with it every request that is left, as those of [`Request::send_with`](crate::Request::send_with).
#[derive(Clone)]
pub struct Engine {
    life: Arc<Life>,
}

/// The engine runs as long as this is there.
pub(crate) struct Life {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    watching: Option<Watching>,
}

/// Is asked what a name's addresses are, on the engine's thread: it must not block.
type Resolver = Box<dyn FnMut(Question) + Send>;

/// How to start an engine.
#[derive(Default)]
#[must_use = "nothing runs until it is started"]
pub struct Builder {
    settings: Settings,
    resolver: Option<Resolver>,
    tls: Tls,
    memory: Option<PathBuf>,
    watches: Watches,
    names: Names,
    dns_over_https: Option<DnsOverHttps>,
    /// 0: no limit.
    max_calls_per_origin: usize,
    /// The same.
    max_calls_under_way: usize,
}

/// Whether the kernel is asked what network there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Watches {
    /// Where it can be, until the app tells; that there is no network is not believed.
    #[default]
    Perhaps,
    Yes,
    No,
}

/// What kind of network it is: limits on time depend on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NetworkKind {
    /// Wi-Fi or cable.
    #[default]
    Fixed,
    /// A mobile network.
    Mobile,
}

impl From<NetworkKind> for Network {
    fn from(kind: NetworkKind) -> Self {
        match kind {
            NetworkKind::Fixed => Self::Fixed,
            NetworkKind::Mobile => Self::Mobile,
        }
    }
}

impl Engine {
    /// An engine on a background thread of its own, with default settings. It needs no network to start.
    ///
    /// # Errors
    /// When the system gives no thread or descriptors.
    pub fn new() -> Result<Self, Error> {
        Self::builder().start()
    }

    /// An engine with other settings.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// What makes requests on it.
    #[must_use]
    pub fn client(&self) -> Client {
        Client::new(Arc::clone(&self.life.shared), Some(Arc::clone(&self.life)))
    }

    /// The app says what network there is, in place of the kernel from here on: `label` is a name by which it is
    /// known again (what is remembered of addresses belongs to it). Connections of the network before are let go,
    /// addresses are asked for anew, and requests that may be repeated move. Without a network no attempt is made.
    ///
    /// # Errors
    /// When the engine is gone.
    pub fn network_changed(
        &self,
        label: &str,
        kind: NetworkKind,
        online: bool,
    ) -> Result<(), Error> {
        let kind = kind.into();
        let label = label.into();
        let change = NetworkChange { label, kind, online, spares_loopback: false };
        self.life.shared.network.leave_to_app();
        self.life.shared.network_changed(change)
    }

    /// An outbox on this file, which need not be there yet: requests that are put there survive the process, and are
    /// sent until there is a final answer. See [`crate::outbox`].
    pub fn outbox(&self, path: impl Into<PathBuf>) -> outbox::Builder {
        outbox::Builder::new(Arc::clone(&self.life.shared), path.into())
    }

    /// A long-lived connection to `tcp://host:port`, or `tls://host:port`, shared by all clones of it: requests and
    /// answers, and what the server sends on its own. See [`crate::link`].
    pub fn link(&self, url: &str) -> link::Builder {
        link::Builder::new(self.clone(), url)
    }

    /// Saves what is remembered of addresses, what names were answered with, and how long networks bear silence, to a
    /// file, for [`Builder::memory`] in the next life. A crash at any moment leaves the old file or the new one. Blocks
    /// while the file is written: call it when the app goes to the background.
    ///
    /// # Errors
    /// When the engine is gone, or the file cannot be written.
    pub fn save_memory(&self, path: &Path) -> Result<(), Error> {
        let remembered = self.life.shared.ask_for_memory()?;
        let saved = Stored { remembered, silences: self.life.shared.silences.all() };
        store::write(path, &saved, unix_ns() / 1_000_000_000)
            .map_err(|error| Error::Engine(format!("{}: {error}", path.display())))
    }

    /// Why the file of [`Builder::memory`] was not used, where it could not be: it cannot be read, is damaged, or is of
    /// another version. The engine has begun with nothing then.
    #[must_use]
    pub fn memory_failure(&self) -> Option<&str> {
        self.life.shared.memory_failure.get().map(String::as_str)
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.life.shared
    }

    /// How often its thread has woken up since it started.
    #[must_use]
    pub fn wakeups(&self) -> u64 {
        self.life.shared.handle().map_or(0, |handle| handle.counters().wakeups.value())
    }
}

impl Builder {
    /// How the engine behaves.
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Has no more than so many requests under way to one origin (scheme, host and port): further ones wait in order
    /// until one of them has ended, its response's body included. What they wait counts to
    /// [`Request::timeout`](crate::Request::timeout) and
    /// [`Request::turn_timeout`](crate::Request::turn_timeout); one is given up as any other. Each request on the
    /// way of redirects has a turn of its own. Not counted are WebSockets, and what is
    /// [`unlimited`](crate::Request::unlimited). [`Settings::max_calls`] may wait in all. By default, and with 0, there
    /// is no limit.
    pub const fn max_calls_per_origin(mut self, calls: usize) -> Self {
        self.max_calls_per_origin = calls;
        self
    }

    /// Has no more than so many requests under way to all origins together: further ones wait as they do for
    /// [`Builder::max_calls_per_origin`], and who came first goes first, whatever its origin, where that has room. By
    /// default, and with 0, there is no limit but [`Settings::max_calls`], at which a request fails.
    pub const fn max_calls_under_way(mut self, calls: usize) -> Self {
        self.max_calls_under_way = calls;
        self
    }

    /// Resolves names by this, not by the system, for requests and links: the best address first. It is called on the
    /// engine's thread and must not block; [`Builder::questions`] is for those that have to.
    pub fn resolver(
        self,
        mut resolver: impl FnMut(&str) -> Result<Vec<IpAddr>, Failure> + Send + 'static,
    ) -> Self {
        self.questions(move |question| {
            let outcome = resolver(question.name());
            question.answer(outcome);
        })
    }

    /// Asks the app for names, not the system. A question may be kept, and answered later by any thread, or passed on
    /// ([`Question::pass_on`]); only the asking is on the engine's thread, and must not block.
    pub fn questions(mut self, ask: impl FnMut(Question) + Send + 'static) -> Self {
        self.resolver = Some(Box::new(ask));
        self.settings.app_resolves = true;
        self
    }

    /// Asks these DNS servers for names with a dot in them, in place of those of resolv.conf(5) (Linux; elsewhere
    /// the system's resolver is asked all the same). Without any they are the system's again.
    pub fn dns_servers(mut self, servers: impl IntoIterator<Item = SocketAddr>) -> Self {
        let servers: Vec<SocketAddr> = servers.into_iter().collect();
        self.names = if servers.is_empty() { Names::Dns } else { Names::Servers(servers) };
        self
    }

    /// Asks the system for every name (`getaddrinfo`). By default (Linux) DNS servers are asked directly, both families
    /// apart, where DNS and the hosts file are all that the system would look at.
    pub fn system_resolver(mut self) -> Self {
        self.names = Names::System;
        self
    }

    /// Asks this server of DNS over HTTPS (RFC 8484) for names, in place of the system. Names without a dot, those
    /// below `local`, `localhost` and `onion`, and the server's own are the system's all the same. An app that is asked
    /// itself ([`Builder::questions`]) can pass questions on ([`Question::pass_on`]). The engine's [`Tls`] holds for
    /// the server as well, pins included; proxies are for other requests.
    pub fn dns_over_https(mut self, server: DnsOverHttps) -> Self {
        self.dns_over_https = Some(server);
        self.settings.app_resolves = true;
        self
    }

    /// How `https` is spoken: whom to believe, and who we are.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = tls;
        self
    }

    /// Begins with what [`Engine::save_memory`] saved; with nothing where there is no such file, or where it cannot be
    /// used ([`Engine::memory_failure`]): the next save writes it anew.
    pub fn memory(mut self, path: impl Into<PathBuf>) -> Self {
        self.memory = Some(path.into());
        self
    }

    /// Lets the kernel tell what network there is, in place of [`Engine::network_changed`] (Linux, rtnetlink; the
    /// network namespace of this thread), and believes it that there is none: requests fail or wait then. By default,
    /// on Linux, it tells of changes alone, until the app does. The label is the interface and the router of the
    /// default route, as in `wlan0 192.168.1.1`; the app's word is better where it knows more, as the same may be at
    /// home and elsewhere. There is no network when there is neither a default route nor an address of global scope;
    /// this machine itself is reached all the same.
    pub const fn watch_network(mut self) -> Self {
        self.watches = Watches::Yes;
        self
    }

    /// Does not ask the kernel what network there is.
    pub const fn no_watch_network(mut self) -> Self {
        self.watches = Watches::No;
        self
    }

    /// Starts it on a thread of its own.
    ///
    /// # Errors
    /// When the system gives no thread or descriptors.
    pub fn start(mut self) -> Result<Engine, Error> {
        let shared = self.shared();
        let watches = self.watches;
        let (ready, outcome) = mpsc::channel();
        let theirs = Arc::clone(&shared);
        let run = move || match Runner::new(self, theirs) {
            Ok(mut runner) => {
                let _ = ready.send(Ok(()));
                let _ = runner.run();
            }
            Err(error) => {
                let _ = ready.send(Err(error));
            }
        };
        let thread = std::thread::Builder::new()
            .name("towpath".to_owned())
            .spawn(run)
            .map_err(|error| Error::Engine(error.to_string()))?;
        outcome.recv().unwrap_or(Err(Error::Stopped))?;
        // From here on the thread ends when this is dropped.
        let mut life = Life { shared, thread: Some(thread), watching: None };
        life.watch(watches)?;
        Ok(Engine { life: Arc::new(life) })
    }

    /// Makes an engine that runs on whatever thread of the app calls its [`Runner`].
    ///
    /// # Errors
    /// When the system gives no descriptors.
    pub fn lend(mut self) -> Result<(Engine, Runner), Error> {
        let shared = self.shared();
        let watches = self.watches;
        let runner = Runner::new(self, Arc::clone(&shared))?;
        let mut life = Life { shared, thread: None, watching: None };
        life.watch(watches)?;
        Ok((Engine { life: Arc::new(life) }, runner))
    }

    /// What all users of the engine share.
    fn shared(&mut self) -> Arc<Shared> {
        let tls = std::mem::take(&mut self.tls);
        let server = self.dns_over_https.take().map(dns_over_https::Server::new);
        let limits = (self.max_calls_per_origin, self.max_calls_under_way);
        let turns = Turns::new(limits.0, limits.1, self.settings.max_calls);
        Arc::new(Shared::new(&self.settings, turns, tls, server))
    }
}

/// An engine's work, for a thread of the app. It stays on the thread that it was made on.
pub struct Runner {
    driver: Driver<Timed>,
    shared: Arc<Shared>,
}

impl Runner {
    fn new(builder: Builder, shared: Arc<Shared>) -> Result<Self, Error> {
        let Builder { settings, resolver, memory, names, .. } = builder;
        let now_s = unix_ns() / 1_000_000_000;
        let known = memory.as_deref().map_or_else(Stored::default, |path| {
            // It is a cache: an app without it is slower, one that does not start has no network.
            store::read(path, now_s).unwrap_or_else(|error| {
                let _ = shared.memory_failure.set(format!("{}: {error}", path.display()));
                Stored::default()
            })
        });
        known.silences.into_iter().for_each(|saved| shared.silences.learn(saved));
        let worker = Worker::new(WorkerOptions {
            index: 0,
            workers: 1,
            seed: random_seed(),
            registry: Arc::new(Registry::default()),
            hostname: Arc::from(""),
        });
        let options = Options {
            read_bytes: READ_BYTES,
            // What comes before the app's window is seen to be full comes on top of it.
            read_budget_bytes: READ_BYTES,
            counts_suspend: true,
            names,
            ..Options::default()
        };
        let mailbox = mailbox(Arc::clone(&shared), resolver);
        let driver = Driver::new(Timed::new(worker), options, mailbox)
            .map_err(|error| Error::Engine(error.to_string()))?;
        let handle = driver.handle();
        shared.set_handle(handle);
        shared.set_thread(std::thread::current().id());
        shared.command(Command::Settings(Box::new(settings)))?;
        shared.command(Command::Restore(known.remembered))?;
        Ok(Self { driver, shared })
    }

    /// Works until the last [`Engine`] is dropped, and all that keeps it running.
    ///
    /// # Errors
    /// When waiting for events fails, which it does not for reasons of the outside world.
    pub fn run(&mut self) -> Result<(), Error> {
        self.driver.run().map_err(|error| Error::Engine(error.to_string()))
    }

    /// Does what there is to do, and waits no longer than `limit` for something to do.
    ///
    /// # Errors
    /// As [`Runner::run`].
    pub fn turn(&mut self, limit: Duration) -> Result<(), Error> {
        self.driver.turn(Some(limit)).map_err(|error| Error::Engine(error.to_string()))
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.shared.stop();
    }
}

impl Life {
    fn watch(&mut self, watches: Watches) -> Result<(), Error> {
        let shared = Arc::clone(&self.shared);
        self.watching = match watches {
            Watches::No => None,
            // Sandboxes forbid it, and other platforms do not have it.
            Watches::Perhaps => Watching::start(shared, Belief::Changes).ok(),
            Watches::Yes => Some(Watching::start(shared, Belief::All).map_err(|error| {
                Error::Engine(format!("the kernel does not tell of the network: {error}"))
            })?),
        };
        Ok(())
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        // Its thread ends by itself.
        self.watching = None;
        if let Some(handle) = self.shared.handle() {
            handle.stop();
        }
        let own = std::thread::current().id();
        if let Some(thread) = self.thread.take().filter(|thread| thread.thread().id() != own) {
            let _ = thread.join();
        }
    }
}

/// Where the engine's events go, on its thread.
fn mailbox(shared: Arc<Shared>, mut resolver: Option<Resolver>) -> impl FnMut(Message) {
    move |message| {
        let Message::From(FromWorker::Local(event)) = message else { return };
        let Event::Resolve { query, name } = event else { return shared.on_event(event) };
        let question = Question::new(query, name, Arc::clone(&shared));
        match &mut resolver {
            // One that is not answered because of a panic is answered as such when it is dropped.
            Some(ask) => drop(catch_unwind(AssertUnwindSafe(|| ask(question)))),
            None => question.pass_on(),
        }
    }
}

/// From the randomness that the standard library's maps have of the system.
pub(crate) fn random_seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// What one connection is read into at once: a client's links carry less than a proxy's.
const READ_BYTES: usize = 64 * 1024;

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}

impl fmt::Debug for Runner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runner").finish_non_exhaustive()
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("settings", &self.settings).finish_non_exhaustive()
    }
}
