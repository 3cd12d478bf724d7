//! Sans-IO protocol machines, and the trait through which drivers run them.
//!
//! | Module | What it holds |
//! |---|---|
//! | [`bolt`] | Bolt v1 and v2: frames out of chunks, and frames of our own |
//! | [`Event`], [`Next`], [`Out`] | what arrives, what follows an exchange, what is to be written, in any protocol |
//! | [`head`] | [`Head`]: a message head as ranges over the bytes it came in |
//! | [`name`] | [`Name`]: well-known header names as small integers |
//! | [`http1`] | HTTP/1.1 and 1.0: [`http1::Server`] towards clients, [`http1::Client`] towards servers |
//! | [`http2`] | HTTP/2: [`http2::Connection`] towards either, with [`http2::hpack`] |
//! | [`machine`] | the [`Machine`] trait, its [`Input`] and [`Output`], ids and addresses |
//! | [`proxy`] | [`proxy::Handshake`]: how a client asks a proxy for a tunnel, by CONNECT or SOCKS 5 |
//! | [`time`] | [`Instant`]: 64-bit nanoseconds that only a driver or a simulator can advance |
//! | [`tls`] | [`tls::Layer`]: TLS between bytes and codec |
//! | [`timer`] | [`Timers`]: one lazily re-armed deadline for each slot |
//!
//! Nothing here opens a socket, starts a thread, reads a clock or a file. Bytes and time come in
//! through [`Machine::handle`]; bytes, interests and the next deadline leave through [`Machine::poll`].
#![forbid(unsafe_code)]

mod block;
pub mod bolt;
mod chars;
mod event;
pub mod head;
pub mod http1;
pub mod http2;
mod lines;
pub mod machine;
pub mod name;
mod out;
pub mod proxy;
pub mod time;
pub mod timer;
pub mod tls;
pub mod websocket;

pub use event::{Event, Next};
pub use head::{
    FieldRef, Head, HeadPool, HeaderName, Method, PreparedField, PreparedFields, Version,
};
pub use machine::{
    Address, AttemptId, Balance, Close, ConnectOptions, ConnectionId, Failure, FlowLimit, Input,
    IpVersion, Keepalive, ListenOptions, ListenerId, Machine, Output, PathFacts, QueryId,
    ReadInterest, SocketOption, SocketState,
};
pub use name::Name;
pub use out::{COPY_LIMIT, Out};
pub use time::Instant;
pub use timer::Timers;
