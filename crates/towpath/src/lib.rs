//! The engine inside an app: requests that survive networks which lose, stall and change.
//!
//! | Module | What it holds |
//! |---|---|
//! | [`engine`] | [`Engine`]: one background thread for all requests, or [`Runner`]: the same on a thread of the app |
//! | [`request`] | [`Client`], [`Request`]: what to ask, how long, whether it may be repeated |
//! | [`response`] | [`Response`], [`Body`]: what comes, in pieces, as fast as it is used |
//! | [`auth`] | [`Credentials`](auth::Credentials): for servers that ask for them |
//! | `cache` | with the feature `cache`: a `Cache` of responses, in memory or in a folder |
//! | `cookies` | with the feature `cookies`: a `Jar` that keeps what servers set |
//! | `hsts` | with the feature `hsts`: `Hosts` that want to be asked under TLS alone |
//! | [`proxy`] | [`Proxy`], [`Proxies`]: through whom to ask, and when |
//! | [`redirect`] | [`Redirect`]: an answer that was followed to another place |
//! | [`events`] | [`Events`](events::Events): server-sent events, over connections that break |
//! | `websocket` | with the feature `websocket` (on by default): messages both ways over one connection |
//! | [`form`] | [`Form`](form::Form): a body of fields and files |
//! | [`upload`] | [`Upload`]: a request's body in pieces |
//! | [`outbox`] | [`Outbox`]: requests that survive the process |
//! | `intercept` | with the feature `interceptors`: what an app puts between itself and the network |
//! | [`link`] | [`Link`]: one long-lived connection for requests and for what a server sends on its own |
//! | [`tls`] | [`Tls`]: whom to believe behind `https` and `tls`, and who we are |
//! | [`timeline`] | what happened to a request, in order and in words |
//! | `service` | with the feature `tower`: a client as a `tower::Service` with the `http` crate's types |
//! | [`error`] | [`Error`]: why there is no (whole) response |
//!
//! Every request can be awaited in three ways: blocking ([`Request::send`]), as a future of any runtime
//! ([`Request::send_async`]), or by callbacks ([`Request::send_with`]). With the feature `http` it may be one of the
//! `http` crate (`Client::http_request`), as its response may.
//!
//! ```no_run
//! let engine = towpath::Engine::new()?;
//! let mut response = engine.client().get("http://192.0.2.1/hello").send()?;
//! println!("{} {:?}", response.status(), response.body().bytes(1 << 20)?);
//! if let Some(report) = response.body().report() {
//!     towpath::timeline::entries(report).iter().for_each(|entry| println!("{entry}"));
//! }
//! # Ok::<(), towpath::Error>(())
//! ```
//!
//! What it does and does not do, with all defaults: `docs/client.md`.
#![forbid(unsafe_code)]

pub mod auth;
mod background;
#[cfg(feature = "cache")]
pub mod cache;
mod call;
#[cfg(feature = "cookies")]
pub mod cookies;
mod decode;
mod defaults;
mod dns_over_https;
pub mod engine;
pub mod error;
pub mod events;
mod file;
mod finder;
pub mod form;
#[cfg(fuzzing)]
pub mod fuzzing;
#[cfg(feature = "tower")]
mod grpc;
#[cfg(feature = "hsts")]
pub mod hsts;
#[cfg(feature = "http")]
mod http_types;
#[cfg(feature = "interceptors")]
pub mod intercept;
mod json;
mod leg;
pub mod link;
mod network;
pub mod outbox;
pub mod report {
    //! What happened to a request: [`Report`] and its parts. Times are the engine's own; see [`Time`].

    pub use crate::json::to_json;
    pub use towpath_engine::local::report::*;
    pub use towpath_engine::record::Record;
    pub use towpath_proto::Instant as Time;
    pub use towpath_proto::head::Version;
}
pub mod proxy;
mod question;
mod reconnects;
pub mod redirect;
pub mod request;
pub mod response;
#[cfg(feature = "tower")]
pub mod service;
mod store;
pub mod timeline;
pub mod tls;
mod turns;
pub mod upload;
mod url;
mod wall_clock;
#[cfg(feature = "websocket")]
pub mod websocket;

#[cfg(feature = "cache")]
pub use cache::Cache;
pub use dns_over_https::DnsOverHttps;
pub use engine::{Builder, Engine, NetworkKind, Runner};
pub use error::Error;
pub use link::Link;
pub use outbox::Outbox;
pub use proxy::{Proxies, Proxy};
pub use question::Question;
pub use redirect::Redirect;
pub use report::Report;
pub use request::{Client, Handler, Request};
pub use response::{Body, Chunk, Response, Trailers};
#[cfg(feature = "tower")]
pub use service::Service;
pub use tls::Tls;
pub use towpath_engine::client::priority::Priority;
pub use towpath_engine::client::race::Options as RaceOptions;
pub use towpath_engine::local::message::{
    Error as Failed, HttpVersions, Layer, Limit, Repeat, Settings,
};
pub use towpath_proto::Failure;
pub use towpath_proto::head::Version;
pub use upload::{Sender, Upload};
#[cfg(feature = "websocket")]
pub use websocket::WebSocket;

/// The examples of the crate's page compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
