//! One WebSocket, or several after one another.
//!
//! Arrives: calls that never wait. Leaves: messages, in their order, and the end. What cannot be done yet wakes the
//! waker, that of all calls, when it can.

use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use towpath::websocket::{CloseReason, Connect, Incident, Lasting, Message};
use towpath::{Error, Failed, WebSocket};

/// One WebSocket, usable from any thread. Nothing here waits: what cannot be done yet is [`Poll::Pending`], and the
/// waker that it was made with is woken when it can. Dropping it closes it (1001).
pub struct Socket {
    stage: Mutex<Stage>,
    waker: Waker,
}

enum Stage {
    Opening(Opening),
    Open(WebSocket),
    /// It did not come to be, or was let go.
    Over(Error),
}

type Opening = Pin<Box<dyn Future<Output = Result<WebSocket, Error>> + Send>>;

/// A ping whose answer is waited for.
pub struct Ping {
    asked: Mutex<Asked>,
    waker: Waker,
}

type Asked = Pin<Box<dyn Future<Output = Result<Duration, Error>> + Send>>;

/// A WebSocket that is opened again whenever it breaks, as [`Lasting`] is, in the form of [`Socket`].
pub struct Sockets {
    next: Mutex<Next>,
    waker: Waker,
}

type Step = (Box<Lasting>, Result<Option<Incident>, Error>);

enum Next {
    Idle(Box<Lasting>),
    Asked(Pin<Box<dyn Future<Output = Step> + Send>>),
    /// It was given up.
    Over,
}

impl Socket {
    /// Begins to open one.
    ///
    /// # Errors
    /// When it cannot be asked for as it is.
    pub fn opening(connect: Connect, waker: Waker) -> Result<Self, Error> {
        let mut opening: Opening = Box::pin(connect.open_async());
        let stage = match opening.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(Ok(socket)) => Stage::Open(socket),
            Poll::Ready(Err(error)) if error.is_caller_s() => return Err(error),
            Poll::Ready(Err(error)) => Stage::Over(error),
            Poll::Pending => Stage::Opening(opening),
        };
        Ok(Self { stage: Mutex::new(stage), waker })
    }

    /// One that is open.
    #[must_use]
    pub fn open(socket: WebSocket, waker: Waker) -> Self {
        Self { stage: Mutex::new(Stage::Open(socket)), waker }
    }

    /// Whether it is open.
    ///
    /// # Errors
    /// Why it will not be.
    pub fn poll_open(&self) -> Poll<Result<(), Error>> {
        let mut stage = self.stage();
        let opened = match &mut *stage {
            Stage::Opening(opening) => opening.as_mut().poll(&mut Context::from_waker(&self.waker)),
            Stage::Open(_) => return Poll::Ready(Ok(())),
            Stage::Over(error) => return Poll::Ready(Err(error.clone())),
        };
        match opened {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(socket)) => {
                *stage = Stage::Open(socket);
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(error)) => {
                *stage = Stage::Over(error.clone());
                Poll::Ready(Err(error))
            }
        }
    }

    /// Sends a message, as a whole.
    ///
    /// # Errors
    /// When it is not open, or not any more.
    pub fn poll_send(&self, message: &Message) -> Poll<Result<(), Error>> {
        match self.socket() {
            Ok(socket) => socket.poll_send(&mut Context::from_waker(&self.waker), message),
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    /// The next message; none after the server's close.
    ///
    /// # Errors
    /// When the connection broke, or the server does not keep to the protocol.
    pub fn poll_receive(&self) -> Poll<Result<Option<Message>, Error>> {
        match self.socket() {
            Ok(socket) => socket.poll_receive(&mut Context::from_waker(&self.waker)),
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    /// A ping, which is sent when it is first polled.
    ///
    /// # Errors
    /// When it is not open.
    pub fn ping(&self) -> Result<Ping, Error> {
        let socket = self.socket()?;
        let asked = async move { socket.ping_async().await };
        Ok(Ping { asked: Mutex::new(Box::pin(asked)), waker: self.waker.clone() })
    }

    /// Begins to close it.
    ///
    /// # Errors
    /// With a code that there is not.
    pub fn close(&self, code: u16, reason: &str) -> Result<(), Error> {
        match self.socket() {
            Ok(socket) => socket.close(code, reason),
            Err(_) => Ok(()),
        }
    }

    /// What `read` finds in it, where it has been open.
    pub fn with<T>(&self, read: impl FnOnce(&WebSocket) -> T) -> Option<T> {
        self.socket().ok().map(|socket| read(&socket))
    }

    /// Why the server has closed, once it has.
    #[must_use]
    pub fn close_reason(&self) -> Option<CloseReason> {
        self.with(WebSocket::close_reason)?
    }

    /// Lets go of it: one that is being opened is given up, one that is open is closed (1001) without anything more of
    /// it. Who waits for it hears of that.
    pub fn abandon(&self) {
        let over = Stage::Over(Failed::Cancelled.into());
        let before = mem::replace(&mut *self.stage(), over);
        drop(before);
        self.waker.wake_by_ref();
    }

    /// Leaves everything as it is, for ever: as [`Exchange::forget`](crate::Exchange::forget).
    pub fn forget(&mut self) {
        let stage = self.stage.get_mut().unwrap_or_else(PoisonError::into_inner);
        mem::forget(mem::replace(stage, Stage::Over(Error::Stopped)));
    }

    /// A handle of its own: nothing is held while it is used.
    fn socket(&self) -> Result<WebSocket, Error> {
        match &*self.stage() {
            Stage::Opening(_) => Err(Error::WebSocket("it is not open")),
            Stage::Open(socket) => Ok(socket.clone()),
            Stage::Over(error) => Err(error.clone()),
        }
    }

    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ping {
    /// How long the answer took.
    ///
    /// # Errors
    /// When the connection ended before.
    pub fn poll(&self) -> Poll<Result<Duration, Error>> {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.as_mut().poll(&mut Context::from_waker(&self.waker))
    }
}

impl Sockets {
    /// Nothing is asked for before it is polled.
    #[must_use]
    pub fn new(connect: Connect, waker: Waker) -> Self {
        Self { next: Mutex::new(Next::Idle(Box::new(connect.lasting()))), waker }
    }

    /// What happens next; none after the end. One at a time: a second caller hears of what comes after.
    ///
    /// # Errors
    /// When the handshake is refused, or the server does not keep to the protocol.
    pub fn poll_next(&self) -> Poll<Result<Option<Incident>, Error>> {
        let mut next = self.next();
        let mut asked = match mem::replace(&mut *next, Next::Over) {
            Next::Over => return Poll::Ready(Ok(None)),
            Next::Asked(asked) => asked,
            Next::Idle(mut lasting) => Box::pin(async move {
                let incident = lasting.next_async().await;
                (lasting, incident)
            }),
        };
        match asked.as_mut().poll(&mut Context::from_waker(&self.waker)) {
            Poll::Pending => {
                *next = Next::Asked(asked);
                Poll::Pending
            }
            Poll::Ready((lasting, incident)) => {
                *next = Next::Idle(lasting);
                Poll::Ready(incident)
            }
        }
    }

    /// Gives it up; who waits for it hears of that.
    pub fn abandon(&self) {
        let before = mem::replace(&mut *self.next(), Next::Over);
        drop(before);
        self.waker.wake_by_ref();
    }

    /// Leaves everything as it is, for ever: as [`Exchange::forget`](crate::Exchange::forget).
    pub fn forget(&mut self) {
        let next = self.next.get_mut().unwrap_or_else(PoisonError::into_inner);
        mem::forget(mem::replace(next, Next::Over));
    }

    fn next(&self) -> MutexGuard<'_, Next> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Socket").finish_non_exhaustive()
    }
}

impl fmt::Debug for Ping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ping").finish_non_exhaustive()
    }
}

impl fmt::Debug for Sockets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sockets").finish_non_exhaustive()
    }
}
