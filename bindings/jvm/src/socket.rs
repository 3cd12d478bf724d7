//! WebSocket: calls that never wait, and a hub that tells which sockets go on.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Wake, Waker};
use std::time::Duration;

use jni::sys::{jint, jlong};
use towpath::websocket::{Connect, Message};
use towpath::{Error, Request, WebSocket};
use towpath_exchange::Bell;

/// The sockets that Java has to look at. One thread of Java's waits here for all of them.
#[derive(Default)]
pub(crate) struct Hub {
    ready: Mutex<BTreeSet<jlong>>,
    bell: Bell,
}

/// Tells a hub of the socket that Java knows by the token.
struct Ready {
    hub: Arc<Hub>,
    token: jlong,
}

/// One WebSocket.
pub(crate) struct Socket {
    inner: towpath_exchange::Socket,
}

/// What a socket has for Java.
pub(crate) enum Received {
    Message(Message),
    /// The server's close: code, and reason.
    Close(u16, String),
}

impl Hub {
    /// Waits for sockets that go on, or for [`Hub::ring`]: their tokens, once each.
    pub(crate) fn take(&self) -> BTreeSet<jlong> {
        let rings = self.bell.rings();
        let ready = std::mem::take(&mut *self.ready());
        if !ready.is_empty() {
            return ready;
        }
        self.bell.wait(rings, None);
        std::mem::take(&mut *self.ready())
    }

    pub(crate) fn ring(&self) {
        self.bell.ring();
    }

    fn ready(&self) -> MutexGuard<'_, BTreeSet<jlong>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Ready {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.hub.ready().insert(self.token) {
            self.hub.ring();
        }
    }
}

impl Socket {
    /// Begins to open one. Times are ms; a ping interval of 0 is the library's.
    pub(crate) fn start(
        request: Request,
        subprotocols: &[String],
        (ping_ms, close_ms): (jint, jint),
        hub: Arc<Hub>,
        token: jlong,
    ) -> Result<Self, Error> {
        let ms = |ms: jint| u64::try_from(ms).ok().filter(|ms| *ms > 0).map(Duration::from_millis);
        let mut connect: Connect = request.websocket();
        for name in subprotocols {
            connect = connect.subprotocol(name);
        }
        if let Some(interval) = ms(ping_ms) {
            // As OkHttp means it: one is answered before the next is due.
            connect = connect.ping_interval(interval).pong_timeout(interval);
        }
        if let Some(limit) = ms(close_ms) {
            connect = connect.close_timeout(limit);
        }
        let waker = Waker::from(Arc::new(Ready { hub, token }));
        Ok(Self { inner: towpath_exchange::Socket::opening(connect, waker)? })
    }

    /// The fields of the server's answer, a line each, once it is open.
    pub(crate) fn opened(&self) -> Result<Option<Vec<u8>>, Error> {
        match self.inner.poll_open() {
            Poll::Pending => Ok(None),
            Poll::Ready(Err(error)) => Err(error),
            Poll::Ready(Ok(())) => {
                let mut head = b"101".to_vec();
                for (name, value) in self.inner.with(WebSocket::headers).unwrap_or_default() {
                    head.extend([b"\n", &*name, b":", &*value].concat());
                }
                Ok(Some(head))
            }
        }
    }

    /// Sends a message: false where there is no room for it yet.
    pub(crate) fn send(&self, message: &Message) -> Result<bool, Error> {
        match self.inner.poll_send(message) {
            Poll::Pending => Ok(false),
            Poll::Ready(sent) => sent.map(|()| true),
        }
    }

    /// What has come next; none where nothing has.
    pub(crate) fn receive(&self) -> Result<Option<Received>, Error> {
        match self.inner.poll_receive() {
            Poll::Pending => Ok(None),
            Poll::Ready(Err(error)) => Err(error),
            Poll::Ready(Ok(Some(message))) => Ok(Some(Received::Message(message))),
            Poll::Ready(Ok(None)) => {
                let reason = self.inner.close_reason();
                let (code, text) =
                    reason.map_or((NO_CODE, String::new()), |it| (it.code, it.reason));
                Ok(Some(Received::Close(code, text)))
            }
        }
    }

    /// Bytes that the network has not taken.
    pub(crate) fn waiting(&self) -> usize {
        self.inner.with(WebSocket::waiting).unwrap_or(0)
    }

    pub(crate) fn close(&self, code: u16, reason: &str) -> Result<(), Error> {
        self.inner.close(code, reason)
    }

    pub(crate) fn cancel(&self) {
        self.inner.abandon();
    }
}

/// A close without a code (RFC 6455 §7.1.5).
const NO_CODE: u16 = 1005;
