//! One long-lived connection to a server that may speak first: requests with answers, and what the server sends on its own.
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
//! It speaks Bolt, version 1, over TCP. All clones of a link share its connection, which is opened at once and again whenever it
//! is lost, until the last clone is dropped.
//!
//! **A request** whose link is not connected fails at once ([`Error::NotConnected`]), unless it [`Request::waits`]. One that was sent
//! and whose connection was lost fails with [`Error::Lost`]: it may have been processed. Nothing is sent twice.
//!
//! **The heartbeat** is sent only when nothing has come for as long as is learned to be safe on this network: see
//! [`Settings`](HeartbeatSettings). A beat that nothing answers in [`Builder::beat_timeout`] ends the connection; so a request that
//! was not answered in its time, while nothing came, is followed by a beat at once.
//!
//! **Connecting** tries a name's addresses one after the other, 250 ms apart, for [`Builder::connect_timeout`]; the first connection that is there is taken. After a
//! round that came to nothing there is a pause, of [`Builder::pauses`], which doubles and is drawn from its upper half. A connection that
//! worked and was closed by the server is followed by the next after a random part of the first pause, one that was found dead by the next at
//! once, and so is [`Engine::network_changed`](crate::Engine::network_changed), which closes the old one.
//!
//! A link has a thread of its own, which sleeps while nothing is due. It goes on when its engine is dropped, and hears no more of the network then.

mod wire;

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use towpath_io::Handle;
use towpath_io::readiness::{Driver, Options};
use towpath_proto::bolt::{Frame, Headers, Kind, Message, Version, write_header};

use crate::call::Shared;
use crate::engine::random_seed;
use crate::url::Url;

pub use towpath_engine::client::heartbeat::Settings as HeartbeatSettings;
pub use towpath_proto::bolt::Status;

use wire::{Event, Letter, Order, Wire};

/// A long-lived connection. Cheap to clone; when the last one is dropped the connection is closed, and what is under way fails.
#[derive(Clone)]
pub struct Link {
    life: Arc<Life>,
}

struct Life {
    inner: Arc<Inner>,
    thread: Option<JoinHandle<()>>,
}

/// How to open a link.
#[must_use = "nothing is connected until it is opened"]
pub struct Builder {
    shared: Arc<Shared>,
    url: String,
    settings: Settings,
    on_push: Option<OnPush>,
}

type OnPush = Box<dyn FnMut(Push) + Send>;
type Outcome = Result<Answer, Error>;

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

/// A request that has not been sent.
#[must_use = "a request does nothing until it is sent"]
pub struct Request {
    life: Arc<Life>,
    class: Bytes,
    headers: BytesMut,
    content: Bytes,
    codec: u8,
    timeout: Duration,
    waits: bool,
    is_oneway: bool,
}

/// What a server says to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    status: Status,
    class: Bytes,
    headers: Bytes,
    content: Bytes,
}

/// What a server sends on its own. A request that is dropped without an answer is answered with [`Status::ERROR`].
pub struct Push {
    frame: Frame,
    connection: u64,
    handle: Option<Handle<Letter>>,
}

/// An answer to come; dropping it gives the request up, which may be processed nevertheless.
#[must_use = "dropping it gives the request up"]
pub struct Pending {
    life: Arc<Life>,
    id: u64,
}

/// Gives a request up from elsewhere.
#[derive(Clone)]
pub struct Canceller {
    inner: std::sync::Weak<Inner>,
    id: u64,
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
    /// Heartbeats sent.
    pub beats: u64,
    /// After how long a silence the next one is sent.
    pub interval: Duration,
}

/// What the app's threads and the link's share.
struct Inner {
    desk: Mutex<Desk>,
    changed: Condvar,
    handle: Handle<Letter>,
    settings: Settings,
}

#[derive(Default)]
struct Desk {
    calls: HashMap<u64, Call>,
    next: u64,
    bytes: usize,
    closed: bool,
    state: State,
}

struct Call {
    bytes: usize,
    wait: Wait,
}

enum Wait {
    Blocking,
    Polled(Waker),
    Callback(Box<dyn FnOnce(Outcome) + Send>),
    Over(Outcome),
}

impl Builder {
    pub(crate) fn new(shared: Arc<Shared>, url: &str) -> Self {
        let settings = Settings {
            heartbeat: HeartbeatSettings::default(),
            beat_timeout: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(10),
            first_pause: Duration::from_secs(1),
            longest_pause: Duration::from_secs(300),
            max_calls: 1024,
            max_bytes: 4 << 20,
            max_frame: 4 << 20,
        };
        Self { shared, url: url.to_owned(), settings, on_push: None }
    }

    /// Is given what the server sends on its own, on the link's thread: while it runs nothing else happens on the link, so it must not wait
    /// for an answer. Without it requests of the server are answered with [`Status::NO_PROCESSOR`].
    pub fn on_push(mut self, on_push: impl FnMut(Push) + Send + 'static) -> Self {
        self.on_push = Some(Box::new(on_push));
        self
    }

    /// Within which bounds the heartbeat is learned.
    pub const fn heartbeat(mut self, settings: HeartbeatSettings) -> Self {
        self.settings.heartbeat = settings;
        self
    }

    /// How long a beat may be without an answer: default 5 s.
    pub const fn beat_timeout(mut self, limit: Duration) -> Self {
        self.settings.beat_timeout = limit;
        self
    }

    /// How long a round of connection attempts may take, the name's resolution included: default 10 s.
    pub const fn connect_timeout(mut self, limit: Duration) -> Self {
        self.settings.connect_timeout = limit;
        self
    }

    /// The pause after the first round that came to nothing (default 1 s, at least 1 ms), and the longest (default 5 min).
    pub fn pauses(mut self, first: Duration, longest: Duration) -> Self {
        self.settings.first_pause = first.max(Duration::from_millis(1));
        self.settings.longest_pause = longest.max(self.settings.first_pause);
        self
    }

    /// How many requests may be under way or wait (default 1024, at most 65,536), and how many bytes of them (default 4 MiB). A server that makes twice these
    /// bytes wait, by asking and not reading, is cut off.
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
    /// When the URL is not `tcp://host:port`, or the system gives no thread or descriptors. TLS is not there yet.
    pub fn open(self) -> Result<Link, Error> {
        let Self { shared, url, settings, on_push } = self;
        let (host, port) = Url::parse_link(&url).map_err(Error::Url)?;
        let (ready, made) = mpsc::channel();
        let run = move || {
            let wire = Wire::new(host, port, settings, random_seed());
            run(wire, settings, on_push, &ready);
        };
        let thread = std::thread::Builder::new()
            .name("towpath-link".to_owned())
            .spawn(run)
            .map_err(|error| Error::System(error.to_string()))?;
        let inner = made.recv().unwrap_or(Err(Error::Closed))?;
        let handle = inner.handle.clone();
        // From here on the thread ends when this is dropped.
        let link = Link { life: Arc::new(Life { inner, thread: Some(thread) }) };
        shared.network.listen(move |change| {
            handle.send(Letter::Order(Order::Network(change.clone()))).is_ok()
        });
        let latest = shared.network.latest().clone();
        if let Some(change) = latest {
            link.life.inner.order(Order::Network(change))?;
        }
        Ok(link)
    }
}

/// The link's thread.
fn run(
    wire: Wire,
    settings: Settings,
    mut on_push: Option<OnPush>,
    ready: &mpsc::Sender<Result<Arc<Inner>, Error>>,
) {
    let known = Arc::new(std::sync::OnceLock::<Arc<Inner>>::new());
    let theirs = Arc::clone(&known);
    let mailbox = move |letter| {
        let (Letter::Event(event), Some(inner)) = (letter, theirs.get()) else { return };
        match event {
            Event::Ended { id, result } => inner.end(id, result),
            Event::Changed(state) => {
                inner.desk().state = state;
                inner.changed.notify_all();
            }
            Event::Pushed { connection, frame } => {
                let mut push = Push { frame, connection, handle: Some(inner.handle.clone()) };
                match &mut on_push {
                    Some(on_push) => on_push(push),
                    None => push.reply(Status::NO_PROCESSOR, Bytes::new()),
                }
            }
        }
    };
    let options =
        Options { read_bytes: READ_BYTES, read_budget_bytes: READ_BYTES, ..Options::default() };
    let mut driver = match Driver::new(wire, options, mailbox) {
        Ok(driver) => driver,
        Err(error) => {
            let _ = ready.send(Err(Error::System(error.to_string())));
            return;
        }
    };
    let handle = driver.handle();
    let inner = Inner { desk: Mutex::default(), changed: Condvar::new(), handle, settings };
    let inner = Arc::new(inner);
    let _ = known.set(Arc::clone(&inner));
    let _ = ready.send(Ok(Arc::clone(&inner)));
    // A panic of the app's does not leave anybody waiting.
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
    /// A request with this content: the class and headers are empty, it is done in 15 s or not, and does not wait for a connection.
    pub fn request(&self, content: impl Into<Bytes>) -> Request {
        Request {
            life: Arc::clone(&self.life),
            class: Bytes::new(),
            headers: BytesMut::new(),
            content: content.into(),
            codec: 0,
            timeout: Duration::from_secs(15),
            waits: false,
            is_oneway: false,
        }
    }

    /// Whether a user looks on: beats come more often then, so that a dead link is found sooner, and nothing is tried out.
    pub fn set_foreground(&self, in_foreground: bool) {
        let _ = self.life.inner.order(Order::Foreground(in_foreground));
    }

    /// How it is.
    #[must_use]
    pub fn state(&self) -> State {
        self.life.inner.desk().state
    }

    /// How often its thread has woken up since it was opened.
    #[must_use]
    pub fn wakeups(&self) -> u64 {
        self.life.inner.handle.counters().wakeups.value()
    }

    /// Blocks until the state is as wanted, or the time is over; whether it is.
    #[must_use]
    pub fn wait_until(&self, limit: Duration, mut is_so: impl FnMut(State) -> bool) -> bool {
        let inner = &self.life.inner;
        let is_not = |desk: &mut Desk| !is_so(desk.state);
        let waited = inner.changed.wait_timeout_while(inner.desk(), limit, is_not);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

impl Request {
    /// The name of the content's class, at most 32,767 bytes.
    pub fn class(mut self, class: impl Into<Bytes>) -> Self {
        self.class = class.into();
        self
    }

    /// Adds a header; all together at most 32,767 bytes.
    pub fn header(mut self, key: &str, value: &str) -> Self {
        write_header(&mut self.headers, key.as_bytes(), value.as_bytes());
        self
    }

    /// How the content is serialised, for the server: default 0; 1 is Hessian 2.
    pub const fn codec(mut self, codec: u8) -> Self {
        self.codec = codec;
        self
    }

    /// Until the answer, with all waiting: default 15 s.
    pub const fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = limit;
        self
    }

    /// Waits for a connection when there is none.
    pub const fn waits(mut self) -> Self {
        self.waits = true;
        self
    }

    /// Wants no answer: it ends well with an empty one, as soon as it is on its way. It may be lost there.
    pub const fn oneway(mut self) -> Self {
        self.is_oneway = true;
        self
    }

    /// Sends it, and blocks until the answer. Not for the link's own thread.
    ///
    /// # Errors
    /// When there is none.
    pub fn send(self) -> Outcome {
        self.start(Wait::Blocking)?.wait()
    }

    /// Sends it; the answer is awaited on any runtime.
    ///
    /// # Errors
    /// When it is not sent.
    pub fn send_async(self) -> Result<Pending, Error> {
        self.start(Wait::Blocking)
    }

    /// Sends it; the callback is called once, on the link's thread, and must not block.
    ///
    /// # Errors
    /// When it is not sent; then the callback is not called.
    pub fn send_with(
        self,
        on_end: impl FnOnce(Outcome) + Send + 'static,
    ) -> Result<Canceller, Error> {
        let life = Arc::clone(&self.life);
        let id = self.enter(Wait::Callback(Box::new(on_end)))?;
        Ok(Canceller { inner: Arc::downgrade(&life.inner), id })
    }

    fn start(self, wait: Wait) -> Result<Pending, Error> {
        let life = Arc::clone(&self.life);
        let id = self.enter(wait)?;
        Ok(Pending { life, id })
    }

    fn enter(self, wait: Wait) -> Result<u64, Error> {
        let Self { life, class, headers, content, codec, timeout, waits, is_oneway } = self;
        let bytes = FRAME_BYTES + class.len() + headers.len() + content.len();
        let settings = &life.inner.settings;
        let most = usize::from(i16::MAX.unsigned_abs());
        if class.len() > most || headers.len() > most || bytes > settings.max_bytes {
            return Err(Error::TooLarge);
        }
        let message = Message {
            kind: if is_oneway { Kind::Oneway } else { Kind::Request },
            codec,
            timeout: Some(timeout),
            class,
            headers: headers.freeze(),
            content,
            ..Message::request(Version::V1, 0)
        };
        let id = life.inner.add(Call { bytes, wait })?;
        let order = Order::Call { id, message, timeout, waits };
        if let Err(error) = life.inner.order(order) {
            life.inner.remove(id);
            return Err(error);
        }
        Ok(id)
    }
}

impl Inner {
    fn add(&self, call: Call) -> Result<u64, Error> {
        let mut desk = self.desk();
        if desk.closed {
            return Err(Error::Closed);
        }
        let fits = desk.bytes + call.bytes <= self.settings.max_bytes;
        if desk.calls.len() >= self.settings.max_calls || !fits {
            return Err(Error::Full);
        }
        let id = desk.next;
        desk.next += 1;
        desk.bytes += call.bytes;
        desk.calls.insert(id, call);
        Ok(id)
    }

    fn remove(&self, id: u64) -> Option<Call> {
        let mut desk = self.desk();
        let call = desk.calls.remove(&id)?;
        desk.bytes -= call.bytes;
        Some(call)
    }

    fn end(&self, id: u64, outcome: Outcome) {
        let mut desk = self.desk();
        let Some(call) = desk.calls.get_mut(&id) else { return };
        match std::mem::replace(&mut call.wait, Wait::Blocking) {
            Wait::Callback(on_end) => {
                let bytes = call.bytes;
                desk.calls.remove(&id);
                desk.bytes -= bytes;
                drop(desk);
                on_end(outcome);
            }
            Wait::Over(before) => call.wait = Wait::Over(before),
            Wait::Blocking => {
                call.wait = Wait::Over(outcome);
                drop(desk);
                self.changed.notify_all();
            }
            Wait::Polled(waker) => {
                call.wait = Wait::Over(outcome);
                drop(desk);
                waker.wake();
            }
        }
    }

    /// Gives a request up; who waits for it hears so.
    fn give_up(&self, id: u64) {
        let _ = self.order(Order::GiveUp(id));
        self.end(id, Err(Error::Cancelled));
    }

    fn order(&self, order: Order) -> Result<(), Error> {
        self.handle.send(Letter::Order(order)).map_err(|error| match error {
            towpath_io::SendError::Full(_) => Error::Full,
            towpath_io::SendError::Gone(_) => Error::Closed,
        })
    }

    fn close(&self) {
        let mut desk = self.desk();
        desk.closed = true;
        desk.state.connected = false;
        let open: Vec<u64> = desk.calls.keys().copied().collect();
        drop(desk);
        self.changed.notify_all();
        open.into_iter().for_each(|id| self.end(id, Err(Error::Closed)));
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Desk {
    /// The outcome, once it is there.
    fn take(&mut self, id: u64) -> Option<Outcome> {
        let call = self.calls.remove(&id)?;
        match call.wait {
            Wait::Over(outcome) => {
                self.bytes -= call.bytes;
                Some(outcome)
            }
            Wait::Blocking | Wait::Polled(_) | Wait::Callback(_) => {
                self.calls.insert(id, call);
                None
            }
        }
    }
}

impl Pending {
    /// Blocks until the answer. Not for the link's own thread.
    ///
    /// # Errors
    /// When there is none.
    pub fn wait(self) -> Outcome {
        let inner = &self.life.inner;
        let mut desk = inner.desk();
        loop {
            if let Some(outcome) = desk.take(self.id) {
                return outcome;
            }
            desk = inner.changed.wait(desk).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Future for Pending {
    type Output = Outcome;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        let mut desk = self.life.inner.desk();
        if let Some(outcome) = desk.take(self.id) {
            return Poll::Ready(outcome);
        }
        match desk.calls.get_mut(&self.id) {
            Some(call) => {
                call.wait = Wait::Polled(context.waker().clone());
                Poll::Pending
            }
            // Its outcome was taken before.
            None => Poll::Ready(Err(Error::Cancelled)),
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let inner = &self.life.inner;
        if inner.remove(self.id).is_some_and(|call| !matches!(call.wait, Wait::Over(_))) {
            let _ = inner.order(Order::GiveUp(self.id));
        }
    }
}

impl Canceller {
    /// Gives the request up, unless it has ended: its callback is called with [`Error::Cancelled`], on this thread.
    pub fn cancel(&self) {
        if let Some(inner) = self.inner.upgrade() {
            inner.give_up(self.id);
        }
    }
}

impl Answer {
    fn new(frame: &Frame) -> Self {
        Self {
            status: frame.status().unwrap_or(Status::UNKNOWN),
            class: Bytes::copy_from_slice(frame.class()),
            headers: frame.header_block(),
            content: frame.content(),
        }
    }

    const fn none() -> Self {
        let none = Bytes::new();
        Self { status: Status::SUCCESS, class: Bytes::new(), headers: Bytes::new(), content: none }
    }

    /// What the server says of the request.
    #[must_use]
    pub const fn status(&self) -> Status {
        self.status
    }

    /// The name of the content's class.
    #[must_use]
    pub const fn class(&self) -> &Bytes {
        &self.class
    }

    /// The first value of a header; none where the headers are malformed.
    #[must_use]
    pub fn header(&self, key: &str) -> Option<&[u8]> {
        Headers::parse(&self.headers).ok()?.get(key.as_bytes())
    }

    /// The content.
    #[must_use]
    pub const fn content(&self) -> &Bytes {
        &self.content
    }
}

impl Push {
    /// The name of the content's class.
    #[must_use]
    pub fn class(&self) -> &[u8] {
        self.frame.class()
    }

    /// The first value of a header; none where the headers are malformed.
    #[must_use]
    pub fn header(&self, key: &str) -> Option<&[u8]> {
        self.frame.headers().ok()?.get(key.as_bytes())
    }

    /// The content.
    #[must_use]
    pub fn content(&self) -> Bytes {
        self.frame.content()
    }

    /// Whether the server wants no answer.
    #[must_use]
    pub fn is_oneway(&self) -> bool {
        self.frame.kind() == Kind::Oneway
    }

    /// Answers, from any thread. It goes nowhere if none is wanted, or the connection is gone.
    pub fn answer(mut self, content: impl Into<Bytes>) {
        self.reply(Status::SUCCESS, content.into());
    }

    /// Answers with another status.
    pub fn refuse(mut self, status: Status) {
        self.reply(status, Bytes::new());
    }

    fn reply(&mut self, status: Status, content: Bytes) {
        let Some(handle) = self.handle.take().filter(|_| !self.is_oneway()) else { return };
        let message = Message {
            codec: self.frame.codec(),
            content,
            ..Message::response(self.frame.version(), self.frame.id(), status)
        };
        let connection = self.connection;
        let _ = handle.send(Letter::Order(Order::Answer { connection, message }));
    }
}

impl Drop for Push {
    fn drop(&mut self) {
        self.reply(Status::ERROR, Bytes::new());
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.inner.handle.stop();
        let own = std::thread::current().id();
        if let Some(thread) = self.thread.take().filter(|thread| thread.thread().id() != own) {
            let _ = thread.join();
        }
    }
}

/// What a frame has around its parts, at most.
const FRAME_BYTES: usize = 32;
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

impl fmt::Debug for Push {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Push").field("frame", &self.frame).finish_non_exhaustive()
    }
}
