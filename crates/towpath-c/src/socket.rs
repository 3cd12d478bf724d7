//! WebSocket: from the client library's callbacks to events.

#[cfg(feature = "websocket")]
use std::sync::Arc;
#[cfg(feature = "websocket")]
use std::sync::atomic::{AtomicBool, Ordering};

#[cfg(feature = "websocket")]
use towpath::WebSocket;
#[cfg(feature = "websocket")]
use towpath::websocket::{CloseReason, Listener, Message, Received};

#[cfg(feature = "websocket")]
use crate::abi::{Code, NONE};
use crate::abi::{OnSocketEvent, SocketEvent, socket_event};
#[cfg(feature = "websocket")]
use crate::engine::not_in_callback;
use crate::engine::{Engine, call_app};
use crate::failure::{Failure, Result};
#[cfg(feature = "websocket")]
use crate::failure::{c_text, chain, code};
use crate::foreign::User;
#[cfg(feature = "websocket")]
use crate::foreign::ms;
use crate::request;

/// `towpath_socket`.
#[derive(Debug)]
pub struct Socket {
    #[cfg(feature = "websocket")]
    socket: WebSocket,
    #[cfg(feature = "websocket")]
    ended: Arc<AtomicBool>,
    /// Its engine is not freed before it.
    #[cfg(feature = "websocket")]
    _open: Arc<()>,
    #[cfg(not(feature = "websocket"))]
    never: std::convert::Infallible,
}

/// What the options say, out of C's hands.
pub(crate) struct Wishes<'a> {
    pub(crate) on_event: (OnSocketEvent, User),
    pub(crate) subprotocols: &'a str,
    pub(crate) max_message_bytes: u64,
    pub(crate) ping_interval_ms: u32,
    pub(crate) pong_timeout_ms: u32,
    pub(crate) close_timeout_ms: u32,
    pub(crate) no_compression: bool,
}

#[cfg(not(feature = "websocket"))]
impl Wishes<'_> {
    pub(crate) fn open(self, _: &Engine, _: request::Wishes<'_>) -> Result<Socket> {
        let (_, _, _) = (self.subprotocols, self.max_message_bytes, self.no_compression);
        let (_, _, _) = (self.ping_interval_ms, self.pong_timeout_ms, self.close_timeout_ms);
        let (_, _) = (self.on_event, call_app as fn(fn()));
        let _ = (NOTHING, socket_event::OPEN);
        Err(Failure::argument("this library was built without WebSocket"))
    }
}

#[cfg(not(feature = "websocket"))]
impl Socket {
    pub(crate) fn send(&self, _: bool, _: &[u8], _: bool) -> Result<bool> {
        match self.never {}
    }

    pub(crate) fn close(&self, _: u16, _: &str) -> Result<()> {
        match self.never {}
    }

    pub(crate) fn may_be_freed(&self) -> Result<()> {
        match self.never {}
    }
}

#[cfg(feature = "websocket")]
impl Wishes<'_> {
    pub(crate) fn open(self, engine: &Engine, wishes: request::Wishes<'_>) -> Result<Socket> {
        let mut connect = wishes.request(&engine.client)?.websocket();
        for name in self.subprotocols.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            connect = connect.subprotocol(name);
        }
        if self.max_message_bytes != 0 {
            let bytes = usize::try_from(self.max_message_bytes).unwrap_or(usize::MAX);
            connect = connect.max_message_bytes(bytes);
        }
        connect = match self.ping_interval_ms {
            NONE => connect.ping_interval(std::time::Duration::ZERO),
            interval => connect.ping_interval(ms(interval, 30_000)),
        };
        connect = connect
            .pong_timeout(ms(self.pong_timeout_ms, 10_000))
            .close_timeout(ms(self.close_timeout_ms, 10_000));
        if self.no_compression {
            connect = connect.no_compression();
        }
        let (on_event, user) = self.on_event;
        let ended = Arc::new(AtomicBool::new(false));
        let relay = Relay { on_event, user, ended: Arc::clone(&ended) };
        let _open = engine.link_token();
        Ok(Socket { socket: connect.open_with(relay)?, ended, _open })
    }
}

#[cfg(feature = "websocket")]
impl Socket {
    /// Whether it was sent: without `waits` only where there was room at once.
    pub(crate) fn send(&self, is_text: bool, data: &[u8], waits: bool) -> Result<bool> {
        let message = if is_text {
            let text = std::str::from_utf8(data);
            Message::from(text.map_err(|_| Failure::argument("the text is not UTF-8"))?)
        } else {
            Message::from(data.to_vec())
        };
        if !waits {
            return Ok(self.socket.try_send(&message)?);
        }
        not_in_callback("towpath_socket_send without sent")?;
        self.socket.send(message)?;
        Ok(true)
    }

    pub(crate) fn close(&self, code: u16, reason: &str) -> Result<()> {
        let code = if code == 0 { 1000 } else { code };
        match self.socket.close(code, reason) {
            Err(towpath::Error::WebSocket(why)) => Err(Failure::argument(why)),
            done => Ok(done?),
        }
    }

    /// Refused before its END was told: the app may be called.
    pub(crate) fn may_be_freed(&self) -> Result<()> {
        if self.ended.load(Ordering::Acquire) {
            return Ok(());
        }
        Err(Failure::new(Code::State, "its END was not told yet: close it, and wait for that"))
    }
}

#[cfg(feature = "websocket")]
struct Relay {
    on_event: OnSocketEvent,
    user: User,
    ended: Arc<AtomicBool>,
}

#[cfg(feature = "websocket")]
impl Relay {
    fn tell(&self, event: &SocketEvent) {
        call_app(|| (self.on_event)(std::ptr::from_ref(event)));
    }

    const fn event(&self, kind: u32, data: &[u8]) -> SocketEvent {
        let (data, length) = (data.as_ptr(), data.len());
        SocketEvent { user: self.user.0, kind, data, length, ..NOTHING }
    }
}

#[cfg(feature = "websocket")]
impl Listener for Relay {
    fn on_open(&mut self, subprotocol: Option<&str>) {
        let chosen = subprotocol.unwrap_or_default();
        self.tell(&self.event(socket_event::OPEN, chosen.as_bytes()));
    }

    fn on_message(&mut self, message: Received) {
        let message = message.message();
        let event = self.event(socket_event::MESSAGE, message.bytes());
        self.tell(&SocketEvent { is_text: message.as_text().is_some().into(), ..event });
    }

    fn on_room(&mut self) {
        self.tell(&self.event(socket_event::ROOM, b""));
    }

    fn on_end(&mut self, outcome: std::result::Result<CloseReason, towpath::Error>) {
        // Another thread may free it as soon as it hears of that.
        self.ended.store(true, Ordering::Release);
        match outcome {
            Ok(reason) => {
                let event = self.event(socket_event::END, reason.reason.as_bytes());
                self.tell(&SocketEvent { close_code: reason.code.into(), ..event });
            }
            Err(error) => {
                let text = c_text(&chain(&error));
                let (code, status) = if let towpath::Error::Status(status) = error {
                    (Code::WebSocket, status.into())
                } else {
                    (code(&error), 0)
                };
                let event = self.event(socket_event::END, b"");
                self.tell(&SocketEvent {
                    error: code as i32,
                    status,
                    text: text.as_ptr(),
                    ..event
                });
            }
        }
    }
}

/// An event that did not come.
const NOTHING: SocketEvent = SocketEvent {
    size: size_of::<SocketEvent>(),
    user: std::ptr::null_mut(),
    data: std::ptr::null(),
    length: 0,
    text: c"".as_ptr(),
    kind: 0,
    error: 0,
    is_text: 0,
    close_code: 0,
    status: 0,
};
