//! What passes over a link: the app's requests and their answers, and what the server sends on its own.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use towpath_io::Handle;
use towpath_proto::bolt::{Frame, Headers, Kind, Message, Status, Version, write_header};

use super::pending::{Call, Canceller, Pending, Wait};
use super::wire::{LinkMessage, Order};
use super::{Error, Life};

/// An answer, or why there is none.
pub(super) type Outcome = Result<Answer, Error>;

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
    handle: Option<Handle<LinkMessage>>,
}

impl Request {
    pub(super) fn new(life: Arc<Life>, content: Bytes) -> Self {
        Self {
            life,
            class: Bytes::new(),
            headers: BytesMut::new(),
            content,
            codec: 0,
            timeout: Duration::from_secs(15),
            waits: false,
            is_oneway: false,
        }
    }

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

impl Answer {
    pub(super) fn new(frame: &Frame) -> Self {
        Self {
            status: frame.status().unwrap_or(Status::UNKNOWN),
            class: Bytes::copy_from_slice(frame.class()),
            headers: frame.header_block(),
            content: frame.content(),
        }
    }

    pub(super) const fn none() -> Self {
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
    pub(super) const fn new(frame: Frame, connection: u64, handle: Handle<LinkMessage>) -> Self {
        Self { frame, connection, handle: Some(handle) }
    }

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

    pub(super) fn reply(&mut self, status: Status, content: Bytes) {
        let Some(handle) = self.handle.take().filter(|_| !self.is_oneway()) else { return };
        let message = Message {
            codec: self.frame.codec(),
            content,
            ..Message::response(self.frame.version(), self.frame.id(), status)
        };
        let connection = self.connection;
        let _ = handle.send(LinkMessage::Order(Order::Answer { connection, message }));
    }
}

impl Drop for Push {
    fn drop(&mut self) {
        self.reply(Status::ERROR, Bytes::new());
    }
}

/// What a frame has around its parts, at most.
const FRAME_BYTES: usize = 32;

impl fmt::Debug for Push {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Push").field("frame", &self.frame).finish_non_exhaustive()
    }
}
