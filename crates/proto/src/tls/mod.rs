//! TLS between bytes and codec: [`Layer`], one for each connection, on [`rustls`].
//!
//! What arrives: records of the peer, and plain bytes to send. What leaves: records for the peer, and the peer's plain
//! bytes. The owner of a layer must not take a connection for usable before [`Layer::is_established`], nor the end
//! of its bytes for the end of a message unless [`Layer::is_ended`].
//!
//! | Type | What it is |
//! |---|---|
//! | [`ClientSettings`] | what a user wants of TLS towards servers; [`ClientSettings::build`] checks it |
//! | [`ClientTemplate`] | the same, checked: shared by all workers |
//! | [`Client`] | a worker's own, with its sessions to resume |
//! | [`ServerSettings`] | what a user wants of TLS towards clients; [`ServerSettings::build`] checks it |
//! | [`ServerTemplate`] | the same, checked: shared by all workers |
//! | [`Server`] | a worker's own |
//! | [`Clock`] | the wall time, as the worker is told it |
//! | [`Layer`] | one connection |
//! | [`Fault`] | why there is none |
//! | [`Greeting`], [`Fingerprint`] | what a client's first message says |
//!
//! What it deliberately does not do: read files, ask for the time ([`Clock::set`] tells it), or any cryptography
//! of its own. Random numbers come from the system, through the cryptography library.

mod any_name;
mod certificate;
mod client;
mod distinguished;
mod fault;
mod fingerprint;
mod hello;
mod identities;
mod key_log;
mod layer;
mod other_name;
mod server;
mod session_id;
mod sessions;
mod staple;
mod suites;
#[cfg(test)]
mod tests;
mod tickets;
mod transcript;
mod verify;

pub use certificate::{AlternativeName, Certificate};
pub use client::{
    Client, ClientSettings, ClientTemplate, Clock, Identity, Offer, ServerName, SettingsError,
};
pub use distinguished::sha256_text;
pub use fault::{Distrust, Fault};
pub use fingerprint::Fingerprint;
pub use hello::Greeting;
pub use key_log::KeyLines;
pub use layer::Layer;
pub use other_name::object_id;
pub use server::{Server, ServerSettings, ServerTemplate, Tickets};
pub use staple::{Staple, StaplePolicy, Stapling};
pub use suites::{CipherSuite, Group, SignatureAlgorithm, Version};
pub use tickets::TicketKey;
pub use verify::{NameMatcher, Names, Platform, Revocations, Roots, Trust};
