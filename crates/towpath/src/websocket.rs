//! WebSocket (RFC 6455): messages both ways over one connection.
//!
//! ```no_run
//! let engine = towpath::Engine::new()?;
//! let socket = engine.client().get("wss://example.org/chat").websocket().open()?;
//! socket.send("hello")?;
//! while let Some(message) = socket.receive()? {
//!     println!("{message:?}");
//! }
//! # Ok::<(), towpath::Error>(())
//! ```
//!
//! It begins as a request, with all that its client does to those (fields, cookies, credentials, proxies, HSTS,
//! interceptors), and with the race, the prober and the repetitions of any other. Over HTTP/1.1, unless the app asks
//! for HTTP/2 ([`Request::http_versions`], RFC 8441): then it is a stream among others.
//!
//! Messages are compressed where the server agrees (RFC 7692, feature `gzip`). What the app does not take stays with
//! the server, and what the network does not take holds up [`WebSocket::send`]. Pings tell whether the server is
//! there: after [`Connect::ping_interval`] without anything, 5 s after something was sent to which nothing came, and at
//! once on another network. Where nothing comes within [`Connect::pong_timeout`] it is over, and
//! [`Lasting`] opens the next.

mod deflate;
mod handshake;
mod incoming;
mod lasting;
mod outgoing;
mod pings;
mod session;

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use towpath_proto::websocket::{Opcode, is_close_code};

pub use self::lasting::{Incident, Lasting};

use self::handshake::Wish;
use self::session::{Credit, Ear, Session, State};
use crate::engine::Life;
use crate::timeline::Entry;
use crate::{Error, Report, Request, Sender, redirect};

/// A connection that is open, or was. Clones are the same one; with the last it is closed (1001).
#[derive(Clone)]
pub struct WebSocket {
    inner: Arc<Inner>,
}

struct Inner {
    session: Arc<Session>,
    _life: Option<Arc<Life>>,
}

/// How a connection is to be opened.
#[derive(Clone)]
#[must_use = "nothing is sent until it is opened"]
pub struct Connect {
    request: Request,
    wish: Wish,
    options: Options,
}

#[derive(Clone, Copy, Debug)]
struct Options {
    max_message_bytes: usize,
    ping_interval: Duration,
    pong_timeout: Duration,
    close_timeout: Duration,
}

/// What one side tells the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Characters.
    Text(String),
    /// Bytes.
    Binary(Bytes),
}

/// Why a server has closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloseReason {
    /// 1000 and above (RFC 6455 §7.4); 1005 where it gave none.
    pub code: u16,
    /// In words; mostly none.
    pub reason: String,
}

/// Is called as things happen, by one thread at a time: the engine's, or one that runs for a moment. It must not block.
pub trait Listener: Send {
    /// It is open, with the subprotocol that the server has chosen.
    fn on_open(&mut self, subprotocol: Option<&str>);

    /// A message. As long as it is kept it counts among those that wait, and less comes.
    fn on_message(&mut self, message: Received);

    /// There is room again, after [`WebSocket::try_send`] had found none.
    fn on_room(&mut self) {}

    /// It is over: with the server's close, or why without one. Called once, and nothing after it.
    fn on_end(&mut self, outcome: Result<CloseReason, Error>);
}

/// A message of a listener's.
pub struct Received {
    message: Message,
    _credit: Credit,
}

impl Request {
    /// As a WebSocket: see [`crate::websocket`]. The URL may be `ws` or `wss`, which are `http` and `https`. The method
    /// is GET, and a body is not sent; [`Request::timeout`] holds until it is open. Feature `websocket`.
    pub fn websocket(mut self) -> Connect {
        "GET".clone_into(&mut self.method);
        (self.body, self.pieces) = (None, None);
        Connect {
            request: self,
            wish: Wish { subprotocols: Vec::new(), compresses: true },
            options: Options {
                max_message_bytes: 16 << 20,
                ping_interval: Duration::from_secs(30),
                pong_timeout: Duration::from_secs(10),
                close_timeout: Duration::from_secs(10),
            },
        }
    }
}

impl Connect {
    /// Offers a subprotocol, after those before; the server chooses one, or none.
    pub fn subprotocol(mut self, name: &str) -> Self {
        self.wish.subprotocols.push(name.to_owned());
        self
    }

    /// Takes messages of so many bytes at most: default 16 MiB. A longer one ends it, and the server is told (1009).
    pub const fn max_message_bytes(mut self, bytes: usize) -> Self {
        self.options.max_message_bytes = bytes;
        self
    }

    /// Compresses nothing, and takes nothing that is compressed.
    pub const fn no_compression(mut self) -> Self {
        self.wish.compresses = false;
        self
    }

    /// Pings the server when nothing came for so long: default 30 s; with zero never, and a server that is gone is
    /// found only by TCP.
    pub const fn ping_interval(mut self, interval: Duration) -> Self {
        self.options.ping_interval = interval;
        self
    }

    /// Nothing may come for so long after a ping: default 10 s, on another network than before 3 s at most.
    pub const fn pong_timeout(mut self, limit: Duration) -> Self {
        self.options.pong_timeout = limit;
        self
    }

    /// The server may take so long to answer a close: default 10 s.
    pub const fn close_timeout(mut self, limit: Duration) -> Self {
        self.options.close_timeout = limit;
        self
    }

    /// Opens it, and blocks until that is done.
    ///
    /// # Errors
    /// [`Error::Status`] where the server does not switch, [`Error::WebSocket`] where it does not do so as it must; and
    /// as any request.
    pub fn open(self) -> Result<WebSocket, Error> {
        let socket = self.start(None)?;
        socket.inner.session.wait(State::opened)??;
        Ok(socket)
    }

    /// Opens it, awaited. Dropping the future gives it up. Any executor will do.
    ///
    /// # Errors
    /// As [`Connect::open`].
    pub async fn open_async(self) -> Result<WebSocket, Error> {
        let socket = self.start(None)?;
        let session = &socket.inner.session;
        poll_fn(|context| session.poll(context, State::readers, State::opened)).await?;
        Ok(socket)
    }

    /// Opens it; what comes is told to `listener`. What is sent before it is open fails.
    ///
    /// # Errors
    /// When it cannot be asked for as it is; then `listener` is not called.
    pub fn open_with(self, listener: impl Listener + 'static) -> Result<WebSocket, Error> {
        self.start(Some(Box::new(listener)))
    }

    /// One that is opened again whenever it breaks.
    pub fn lasting(self) -> Lasting {
        Lasting::new(self)
    }

    fn start(self, listener: Option<Box<dyn Listener>>) -> Result<WebSocket, Error> {
        let Self { mut request, wish, options } = self;
        // What is open has no limits on time but its own: one on the whole is one until then.
        request.options.gap = Some(NEVER);
        if let Some(total) = request.options.total.take() {
            request.options.answer = Some(total);
        }
        let life = request.life.clone();
        let (request, expected) = wish.ask(request);
        let session = Session::new(Arc::clone(request.shared()), options, listener);
        redirect::start(request, |current| {
            session.begin(Sender::new(current, None));
            Ear::new(Arc::clone(&session), expected)
        })?;
        Ok(WebSocket { inner: Arc::new(Inner { session, _life: life }) })
    }
}

impl WebSocket {
    /// Sends a message. Blocks while 256 KiB of those before have not left; a long one is taken as a whole.
    ///
    /// # Errors
    /// When it is closed, or broken. Whether the server has had what was sent before is not known then.
    pub fn send(&self, message: impl Into<Message>) -> Result<(), Error> {
        let message = message.into();
        let (session, kind) = (&self.inner.session, message.kind());
        session.wait(|state| session.send(state, kind, message.bytes()))?
    }

    /// Sends a message, awaited.
    ///
    /// # Errors
    /// As [`WebSocket::send`].
    pub async fn send_async(&self, message: impl Into<Message>) -> Result<(), Error> {
        let message = message.into();
        let (session, kind) = (&self.inner.session, message.kind());
        let send = |state: &mut State| session.send(state, kind, message.bytes());
        poll_fn(|context| session.poll(context, State::writers, send)).await
    }

    /// Sends a message if there is room for it at once; whether there was.
    ///
    /// # Errors
    /// As [`WebSocket::send`].
    pub fn try_send(&self, message: &Message) -> Result<bool, Error> {
        let session = &self.inner.session;
        let mut state = session.lock();
        let sent = session.send(&mut state, message.kind(), message.bytes());
        if sent.is_none() {
            state.want_room();
        }
        sent.map_or(Ok(false), |sent| sent.map(|()| true))
    }

    /// Sends a message, polled: as [`WebSocket::send_async`], which needs it as its own.
    ///
    /// # Errors
    /// As [`WebSocket::send`].
    pub fn poll_send(
        &self,
        context: &mut Context<'_>,
        message: &Message,
    ) -> Poll<Result<(), Error>> {
        let (session, kind) = (&self.inner.session, message.kind());
        let send = |state: &mut State| session.send(state, kind, message.bytes());
        session.poll(context, State::writers, send)
    }

    /// Asks the server for a sign of life, and tells how long its answer took. Blocks. The answer stands behind what
    /// the server has sent before: it is not seen while the app does not take that.
    ///
    /// # Errors
    /// When it is closed, or broken, before the answer came.
    pub fn ping(&self) -> Result<Duration, Error> {
        let (session, mut ping) = (&self.inner.session, None);
        session.wait(|state| session.ping(state, &mut ping))?
    }

    /// As [`WebSocket::ping`], awaited.
    ///
    /// # Errors
    /// As [`WebSocket::ping`].
    pub async fn ping_async(&self) -> Result<Duration, Error> {
        let (session, mut ping) = (&self.inner.session, None);
        poll_fn(|context| {
            session.poll(context, State::readers, |state| session.ping(state, &mut ping))
        })
        .await
    }

    /// The next message; nothing after the server's close. Blocks. With a listener there is none here.
    ///
    /// # Errors
    /// When the connection broke, or the server does not keep to the protocol.
    pub fn receive(&self) -> Result<Option<Message>, Error> {
        let session = &self.inner.session;
        session.wait(|state| session.take(state))?
    }

    /// The next message, awaited.
    ///
    /// # Errors
    /// As [`WebSocket::receive`].
    pub async fn receive_async(&self) -> Result<Option<Message>, Error> {
        poll_fn(|context| self.poll_receive(context)).await
    }

    /// The next message, polled.
    ///
    /// # Errors
    /// As [`WebSocket::receive`].
    pub fn poll_receive(&self, context: &mut Context<'_>) -> Poll<Result<Option<Message>, Error>> {
        let session = &self.inner.session;
        session.poll(context, State::readers, |state| session.take(state))
    }

    /// Closes it: what was sent before leaves first, and what the server had sent before still comes. A code is 1000,
    /// 1001 to 1003, 1007 to 1014, or 3000 to 4999; a reason has 123 bytes, and is cut behind that.
    ///
    /// # Errors
    /// With any other code. Closing twice is none.
    pub fn close(&self, code: u16, reason: &str) -> Result<(), Error> {
        if !is_close_code(code) {
            return Err(Error::WebSocket("there is no such code to close with"));
        }
        self.inner.session.close(&CloseReason { code, reason: reason.to_owned() });
        Ok(())
    }

    /// The subprotocol that the server has chosen.
    #[must_use]
    pub fn subprotocol(&self) -> Option<String> {
        self.inner.session.lock().opening().subprotocol.clone()
    }

    /// The fields of the server's answer to the handshake.
    #[must_use]
    pub fn headers(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        self.inner.session.lock().opening().headers.clone()
    }

    /// Bytes of messages, in their frames, that the network has not taken.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.inner.session.lock().waiting()
    }

    /// Whether messages are compressed.
    #[must_use]
    pub fn is_compressed(&self) -> bool {
        self.inner.session.lock().opening().agreed.is_some()
    }

    /// Why the server has closed, once it has.
    #[must_use]
    pub fn close_reason(&self) -> Option<CloseReason> {
        self.inner.session.lock().close_reason().cloned()
    }

    fn is_closed_by_app(&self) -> bool {
        self.inner.session.lock().is_closed_by_app()
    }

    /// Whether the connection itself is gone.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.inner.session.lock().is_over()
    }

    /// What happened to it, with times since it was asked for: the last 64 of such.
    #[must_use]
    pub fn history(&self) -> Vec<Entry> {
        self.inner.session.lock().history().to_vec()
    }

    /// What happened to its request, once the connection is gone.
    #[must_use]
    pub fn report(&self) -> Option<Arc<Report>> {
        self.inner.session.lock().report().cloned()
    }
}

impl State {
    fn opened(&mut self) -> Option<Result<(), Error>> {
        self.is_open()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.session.abandon();
    }
}

impl Message {
    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Binary(bytes) => bytes,
        }
    }

    /// Its length in bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Binary(bytes) => bytes.len(),
        }
    }

    /// Whether it has none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its characters, where it is a text.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Binary(_) => None,
        }
    }

    const fn kind(&self) -> Opcode {
        match self {
            Self::Text(_) => Opcode::Text,
            Self::Binary(_) => Opcode::Binary,
        }
    }
}

impl From<&str> for Message {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Message {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<Bytes> for Message {
    fn from(bytes: Bytes) -> Self {
        Self::Binary(bytes)
    }
}

impl From<Vec<u8>> for Message {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Binary(bytes.into())
    }
}

impl Received {
    fn new(message: Message, session: Arc<Session>, cost: usize) -> Self {
        Self { message, _credit: Credit::new(&session, cost) }
    }

    /// It.
    #[must_use]
    pub const fn message(&self) -> &Message {
        &self.message
    }

    /// It, which counts no more.
    #[must_use]
    pub fn into_message(self) -> Message {
        self.message
    }
}

/// Ten years.
const NEVER: Duration = Duration::from_secs(315_360_000);

impl fmt::Debug for WebSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebSocket").finish_non_exhaustive()
    }
}

impl fmt::Debug for Connect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connect").field("request", &self.request).finish_non_exhaustive()
    }
}

impl fmt::Debug for Received {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.message.fmt(f)
    }
}
