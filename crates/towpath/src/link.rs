//! One long-lived connection to a server that may speak first: requests with answers, and what the server sends on its
//! own.
//!
//! ```no_run
//! let engine = towpath::Engine::new()?;
//! let link = engine.link("tcp://push.example.org:7000").on_push(|push| {
//!     println!("{} bytes", push.content().len());
//!     push.answer("seen");
//! });
//! let link = link.open().unwrap();
//! let answer = link.request("hello").waits().send().unwrap();
//! # Ok::<(), towpath::Error>(())
//! ```
//!
//! It speaks Bolt, version 1, over TCP, or over TLS (`tls://host:port`) as the engine's [`Tls`](crate::Tls) says: with
//! the server's name sent and checked, no protocol offered by ALPN. All clones of a link share its connection, which is
//! opened at once and again whenever it is lost, until the last clone is dropped.
//!
//! **A request** whose link is not connected fails at once ([`Error::NotConnected`]), unless it [`Request::waits`]. One
//! that was sent and whose connection was lost fails with [`Error::Lost`]: it may have been processed. Nothing is sent
//! twice.
//!
//! **The heartbeat** is sent only when nothing has come for as long as is learned to be safe on this network: see
//! [`Settings`](HeartbeatSettings). A heartbeat that nothing answers in [`Builder::beat_timeout`] ends the connection;
//! so a request that was not answered in its time, while nothing came, is followed by a heartbeat at once. What is
//! learned belongs to the network, not to the server: links that are opened later begin with it, and so does the next
//! process after [`Engine::save_memory`](crate::Engine::save_memory).
//!
//! **Connecting** asks the engine for a name's addresses: at once those that it was answered with before, then those
//! that the app's resolver or the system says, in the order in which they have worked on this network. They are tried
//! one after the other, 250 ms apart where nothing is known, for [`Builder::connect_timeout`]; the first connection
//! that can be used, its TLS handshake included, is taken. After a round that came to nothing there is a pause, of
//! [`Builder::pauses`], which doubles and is drawn from its upper half. A connection that worked and was closed by the
//! server is followed by the next after a random part of the first pause, one that was found dead by the next at once,
//! and so is [`Engine::network_changed`](crate::Engine::network_changed), which closes the old one.
//!
//! A link has a thread of its own, which sleeps while nothing is due. It keeps its engine running.

mod channel;
mod dial;
#[cfg(fuzzing)]
pub(crate) mod fuzzing;
mod message;
mod pending;
mod silences;
#[cfg(test)]
mod simulation;
mod wire;

use std::fmt;
use std::sync::{Arc, OnceLock, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use towpath_engine::local::message::{Command, Error as Failed, Find, Found, Transport};
use towpath_io::readiness::{Driver, Options};

use crate::Engine;
use crate::call::Shared;
use crate::engine::random_seed;
use crate::url::Url;

pub use message::{Answer, Push, Request};
pub use pending::{Canceller, Pending};
pub use towpath_engine::client::heartbeat::Settings as HeartbeatSettings;
pub use towpath_proto::bolt::Status;

use channel::Security;
use pending::Inner;
pub(crate) use silences::Silences;
use wire::{Event, LinkMessage, Order, Wire};

/// A long-lived connection. Cheap to clone; when the last one is dropped the connection is closed, and what is under
/// way fails.
#[derive(Clone)]
pub struct Link {
    life: Arc<Life>,
}

struct Life {
    inner: Arc<Inner>,
    engine: Engine,
    /// Its number, where addresses are asked for.
    asker: u64,
    thread: Option<JoinHandle<()>>,
}

/// How to open a link.
#[must_use = "nothing is connected until it is opened"]
pub struct Builder {
    engine: Engine,
    url: String,
    settings: Settings,
    on_push: Option<OnPush>,
}

type OnPush = Box<dyn FnMut(Push) + Send>;

#[derive(Clone, Copy, Debug)]
struct Settings {
    heartbeat: HeartbeatSettings,
    beat_timeout: Duration,
    connect_timeout: Duration,
    first_pause: Duration,
    longest_pause: Duration,
    max_calls: usize,
    max_bytes: usize,
    max_frame: usize,
}

/// Why there is no answer, or no link.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The caller's fault: nothing can be connected to by this.
    Url(&'static str),
    /// The caller's fault: it is longer than a frame can be, or than [`Builder::room`] or [`Builder::max_frame`] allow.
    TooLarge,
    /// Too many requests, or bytes of them, are under way.
    Full,
    /// There is no connection now, and the request does not wait for one. It was not sent.
    NotConnected,
    /// The connection was lost behind the request: it may have been processed.
    Lost,
    /// There was no answer in its time.
    TimedOut {
        /// Whether it was sent; if so, it may have been processed.
        sent: bool,
    },
    /// It was given up by its [`Canceller`].
    Cancelled,
    /// The caller's fault, or the platform's: TLS cannot be set up as asked.
    Tls(String),
    /// The link is closed.
    Closed,
    /// A resource is missing: no thread, no descriptors.
    System(String),
}

/// How a link is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct State {
    /// Whether there is a connection.
    pub connected: bool,
    /// Connections since it was opened.
    pub connections: u64,
    /// Why there was no connection when one was last tried for, or none that the server spoke on. None since it has
    /// spoken.
    pub failure: Option<Failed>,
    /// Heartbeats sent.
    pub heartbeats: u64,
    /// After how long a silence the next one is sent.
    pub interval: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            heartbeat: HeartbeatSettings::default(),
            beat_timeout: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(10),
            first_pause: Duration::from_secs(1),
            longest_pause: Duration::from_secs(300),
            max_calls: 1024,
            max_bytes: 4 << 20,
            max_frame: 4 << 20,
        }
    }
}

impl Builder {
    pub(crate) fn new(engine: Engine, url: &str) -> Self {
        let settings = Settings::default();
        Self { engine, url: url.to_owned(), settings, on_push: None }
    }

    /// Is given what the server sends on its own, on the link's thread: while it runs nothing else happens on the link,
    /// so it must not wait for an answer. Without it requests of the server are answered with [`Status::NO_PROCESSOR`].
    pub fn on_push(mut self, on_push: impl FnMut(Push) + Send + 'static) -> Self {
        self.on_push = Some(Box::new(on_push));
        self
    }

    /// Within which bounds the heartbeat is learned.
    pub const fn heartbeat(mut self, settings: HeartbeatSettings) -> Self {
        self.settings.heartbeat = settings;
        self
    }

    /// How long a heartbeat may be without an answer: default 5 s.
    pub const fn beat_timeout(mut self, limit: Duration) -> Self {
        self.settings.beat_timeout = limit;
        self
    }

    /// How long a round of connection attempts may take, the name's resolution included: default 10 s.
    pub const fn connect_timeout(mut self, limit: Duration) -> Self {
        self.settings.connect_timeout = limit;
        self
    }

    /// The pause after the first round that came to nothing (default 1 s, at least 1 ms), and the longest (default 5
    /// min).
    pub fn pauses(mut self, first: Duration, longest: Duration) -> Self {
        self.settings.first_pause = first.max(Duration::from_millis(1));
        self.settings.longest_pause = longest.max(self.settings.first_pause);
        self
    }

    /// How many requests may be under way or wait (default 1024, at most 65,536), and how many bytes of them (default 4
    /// MiB). A server that makes twice these bytes wait, by asking and not reading, is cut off.
    pub fn room(mut self, requests: usize, bytes: usize) -> Self {
        self.settings.max_calls = requests.min(65_536);
        self.settings.max_bytes = bytes;
        self
    }

    /// The longest frame that the server may send: default 4 MiB. A longer one ends the connection.
    pub const fn max_frame(mut self, bytes: usize) -> Self {
        self.settings.max_frame = bytes;
        self
    }

    /// Opens it; the connection comes on its own.
    ///
    /// # Errors
    /// When the URL is neither `tcp://host:port` nor `tls://host:port`, TLS cannot be set up as [`crate::Builder::tls`]
    /// says, or the system gives no thread or descriptors.
    pub fn open(self) -> Result<Link, Error> {
        let Self { engine, url, settings, on_push } = self;
        let url = Url::parse_link(&url).map_err(Error::Url)?;
        let shared = Arc::clone(engine.shared());
        let template = match url.transport {
            Transport::Plain => None,
            Transport::Tls => {
                Some(shared.tls_template().map_err(|error| Error::Tls(error.to_string()))?)
            }
        };
        let (ready, made) = mpsc::channel();
        let network = shared.network.latest().clone();
        let theirs = network.clone();
        let office = Office { host: url.host.into(), port: url.port, shared: Arc::clone(&shared) };
        let run = move || {
            let security = template.map(|template| Security::new(&template, &office.host));
            let server = (Arc::clone(&office.host), office.port);
            let silences = office.shared.silences.all();
            let wire = Wire::new(server, security, settings, random_seed());
            let wire = wire.knowing(silences, theirs.as_ref());
            run(wire, settings, on_push, office, &ready);
        };
        let thread = std::thread::Builder::new()
            .name("towpath-link".to_owned())
            .spawn(run)
            .map_err(|error| Error::System(error.to_string()))?;
        let (inner, asker) = made.recv().unwrap_or(Err(Error::Closed))?;
        let handle = inner.handle.clone();
        // From here on the thread ends when this is dropped.
        let link = Link { life: Arc::new(Life { inner, engine, asker, thread: Some(thread) }) };
        shared.network.listen(move |change| {
            handle.send(LinkMessage::Order(Order::Network(change.clone()))).is_ok()
        });
        let latest = shared.network.latest().clone();
        if let Some(change) = latest.filter(|latest| Some(latest) != network.as_ref()) {
            link.life.inner.order(Order::Network(change))?;
        }
        Ok(link)
    }
}

/// What the link's thread has of the engine.
struct Office {
    host: Arc<str>,
    port: u16,
    shared: Arc<Shared>,
}

impl Office {
    fn find(&self, asker: u64, question: u64) -> Result<(), crate::Error> {
        let (host, port) = (Arc::clone(&self.host), self.port);
        self.shared.command(Command::Find(Find { asker, question, host, port }))
    }
}

/// The link's thread.
fn run(
    wire: Wire,
    settings: Settings,
    mut on_push: Option<OnPush>,
    office: Office,
    ready: &mpsc::Sender<Result<(Arc<Inner>, u64), Error>>,
) {
    let known = Arc::new(OnceLock::<(Arc<Inner>, u64)>::new());
    let theirs = Arc::clone(&known);
    let shared = Arc::clone(&office.shared);
    let mailbox = move |message| {
        let (LinkMessage::Event(event), Some((inner, asker))) = (message, theirs.get()) else {
            return;
        };
        match event {
            Event::Ended { id, result } => inner.end(id, result),
            Event::Changed(state) => inner.set_state(state),
            Event::Find { question } => {
                if office.find(*asker, question).is_err() {
                    let _ = inner.order(Order::Found(Found::nothing(question)));
                }
            }
            Event::Learned(saved) => office.shared.silences.learn(saved),
            Event::Attempted { address, took } => {
                let _ = office.shared.command(Command::Attempted { address, took });
            }
            Event::Pushed { connection, frame } => {
                let mut push = Push::new(frame, connection, inner.handle.clone());
                match &mut on_push {
                    Some(on_push) => on_push(push),
                    None => push.reply(Status::NO_PROCESSOR, Bytes::new()),
                }
            }
        }
    };
    let options = Options {
        read_bytes: READ_BYTES,
        read_budget_bytes: READ_BYTES,
        counts_suspend: true,
        ..Options::default()
    };
    let mut driver = match Driver::new(wire, options, mailbox) {
        Ok(driver) => driver,
        Err(error) => {
            let _ = ready.send(Err(Error::System(error.to_string())));
            return;
        }
    };
    let inner = Arc::new(Inner::new(driver.handle(), settings));
    let handle = driver.handle();
    let asker = shared.askers.add(move |found| {
        let _ = handle.send(LinkMessage::Order(Order::Found(found)));
    });
    let _ = known.set((Arc::clone(&inner), asker));
    let _ = ready.send(Ok((Arc::clone(&inner), asker)));
    // A panic of the app's leaves no caller waiting.
    let _closing = Closing(inner);
    let _ = driver.run();
}

struct Closing(Arc<Inner>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Link {
    /// A request with this content: the class and headers are empty, it is done in 15 s or not, and does not wait for a
    /// connection.
    pub fn request(&self, content: impl Into<Bytes>) -> Request {
        Request::new(Arc::clone(&self.life), content.into())
    }

    /// Whether a user looks on: heartbeats come more often then, so that a dead link is found sooner, and nothing is
    /// tried out.
    pub fn set_foreground(&self, in_foreground: bool) {
        let _ = self.life.inner.order(Order::Foreground(in_foreground));
    }

    /// How it is.
    #[must_use]
    pub fn state(&self) -> State {
        self.life.inner.state()
    }

    /// How often its thread has woken up since it was opened.
    #[must_use]
    pub fn wakeups(&self) -> u64 {
        self.life.inner.handle.counters().wakeups.value()
    }

    /// Blocks until the state is as wanted, or the time is over; whether it is.
    #[must_use]
    pub fn wait_until(&self, limit: Duration, is_so: impl FnMut(State) -> bool) -> bool {
        self.life.inner.wait_until(limit, is_so)
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.engine.shared().askers.remove(self.asker);
        self.inner.handle.stop();
        let own = std::thread::current().id();
        if let Some(thread) = self.thread.take().filter(|thread| thread.thread().id() != own) {
            let _ = thread.join();
        }
    }
}

const READ_BYTES: usize = 64 * 1024;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(why) => write!(f, "not a URL that can be connected to: {why}"),
            Self::TooLarge => f.write_str("the request is too large"),
            Self::Full => f.write_str("too much is under way on the link"),
            Self::NotConnected => f.write_str("the link is not connected"),
            Self::Lost => f.write_str("the connection was lost before the answer"),
            Self::TimedOut { sent: true } => f.write_str("no answer in time"),
            Self::TimedOut { sent: false } => f.write_str("no connection in time"),
            Self::Cancelled => f.write_str("it was given up"),
            Self::Tls(why) => write!(f, "TLS cannot be set up: {why}"),
            Self::Closed => f.write_str("the link is closed"),
            Self::System(why) => write!(f, "the link cannot be opened: {why}"),
        }
    }
}

impl std::error::Error for Error {}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("state", &self.state()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("url", &self.url).finish_non_exhaustive()
    }
}
