//! What a response head means: framing and connection (RFC 9112 §6.3, §9).

use super::body::{Body, Chunked};
use super::error::Error;
use super::facts::{Coding, Facts};
use super::options::Options;
use super::request::{connection_fields, reconcile};
use crate::head::{Head, Method, Version};
use crate::name::Name;

/// What the request was, as far as its response depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) method: Method,
    pub(super) upgrade: bool,
}

/// What a response head announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Response {
    /// Another response to the same request follows.
    Informational,
    /// The last one, with this body.
    Final { body: Body, keep_alive: bool },
    /// What follows is not HTTP.
    Switched,
}

/// Checks a parsed head as a whole and takes out what belongs to the connection.
#[inline]
pub(super) fn finish(
    head: &mut Head,
    facts: &Facts,
    asked: Asked,
    options: &Options,
) -> Result<Response, Error> {
    let upgrade = connection_fields(head, facts);
    let status = head.status();
    if status < 200 || status == 204 {
        // RFC 9110 §8.6, RFC 9112 §6.1: neither field may stand here. A zero length does no harm.
        if facts.coding != Coding::Absent {
            return Err(Error::TransferEncodingNotAllowed);
        }
        if facts.content_length.is_some_and(|length| length != 0) {
            return Err(Error::ContentLengthNotAllowed);
        }
        head.remove(Name::ContentLength);
    }
    if status == 101 {
        return if asked.upgrade && upgrade {
            Ok(Response::Switched)
        } else {
            Err(Error::UnexpectedUpgrade)
        };
    }
    if status < 200 {
        return Ok(Response::Informational);
    }
    if asked.method == Method::Connect && status < 300 {
        // RFC 9110 §9.3.6: both fields are ignored in what opens a tunnel.
        head.remove(Name::ContentLength);
        return Ok(Response::Switched);
    }
    let mut keep_alive = !facts.closes(head.version());
    let body = match (facts.coding, facts.content_length) {
        (Coding::Absent, None | Some(_)) if is_bodiless(status, asked.method) => Body::Empty,
        (Coding::Absent, Some(0)) => Body::Empty,
        (Coding::Absent, Some(length)) => Body::Length(length),
        (Coding::Absent, None) => {
            keep_alive = false;
            Body::UntilClose
        }
        (Coding::Chunked | Coding::Other | Coding::Broken, _) => {
            // RFC 9112 §6.1: HTTP/1.0 has no transfer codings.
            if head.version() == Version::Http10 {
                return Err(Error::TransferEncodingNotAllowed);
            }
            keep_alive &= !reconcile(head, facts, options)?;
            if is_bodiless(status, asked.method) {
                Body::Empty
            } else {
                Body::Chunked(Chunked::new())
            }
        }
    };
    Ok(Response::Final { body, keep_alive })
}

/// RFC 9112 §6.3: these have no body whatever their fields say.
pub(super) const fn is_bodiless(status: u16, method: Method) -> bool {
    status < 200 || status == 204 || status == 304 || matches!(method, Method::Head)
}
