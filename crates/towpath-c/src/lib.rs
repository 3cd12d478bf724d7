//! The client library for C: what `bindings/c/towpath.h` declares. That header is the documentation.
//!
//! | Module | What it holds |
//! |---|---|
//! | [`abi`] | the header's structures and numbers |
//! | [`exports`] | the header's functions, and with `foreign` all that is `unsafe` |
//! | `foreign` | what C hands over, checked: pointers, texts, arrays, structures that grow |
//! | `failure` | errors as numbers and words; panics end here |
//! | [`auth`] | challenges: the app is asked for credentials |
//! | `kept` | what an engine keeps over requests: cookies, responses, hosts that want TLS alone |
//! | [`engine`] | engines and their options, runners, questions |
//! | [`request`] | requests: from the client library's callbacks to events |
//! | [`link`] | one long-lived connection: requests with answers, and what the server sends on its own |
//! | [`outbox`] | requests that survive the process |
//! | [`socket`] | WebSocket: messages both ways over one connection |
//! | [`stream`] | server-sent events, over connections that break |
//! | [`queue`] | events that wait to be taken |

pub mod abi;
pub mod auth;
pub mod engine;
pub mod exports;
mod failure;
mod foreign;
mod kept;
pub mod link;
pub mod outbox;
pub mod queue;
pub mod request;
pub mod socket;
pub mod stream;
