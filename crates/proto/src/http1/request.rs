//! What a request head means: target, host, framing, connection (RFC 9112 §3, §6, §9).

use super::body::{Body, Chunked};
use super::error::Error;
use super::facts::{Coding, Facts};
use super::options::Options;
use super::parse::Target;
use crate::chars::{is_authority, is_connect_authority};
use crate::head::{Head, HeadPool, Method, Span, Version};
use crate::name::Name;

/// What the connection must remember of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) body: Body,
    pub(super) keep_alive: bool,
    pub(super) upgrade: bool,
    pub(super) expects_continue: bool,
}

/// Checks a parsed head as a whole and takes out what belongs to the connection.
#[inline]
pub(super) fn finish(
    head: &mut Head,
    facts: &Facts,
    options: &Options,
    pool: &mut HeadPool,
) -> Result<Request, Error> {
    if head.version() == Version::Http10 && !options.accept_http10 {
        return Err(Error::LowVersion);
    }
    route(head, facts, options, pool)?;
    let (body, ambiguous) = framing(head, facts, options)?;
    let persistent = match head.version() {
        Version::Http10 => facts.keep_alive,
        Version::Http11 | Version::Http2 | Version::Http3 => true,
    };
    Ok(Request {
        body,
        keep_alive: persistent && !facts.close && !ambiguous,
        upgrade: connection_fields(head, facts),
        // RFC 9110 §10.1.1: not from a client of HTTP/1.0, not without content.
        expects_continue: facts.expects_continue
            && head.version() == Version::Http11
            && body != Body::Empty,
    })
}

/// Target and Host become authority and path (RFC 9112 §3.2, §3.3).
fn route(
    head: &mut Head,
    facts: &Facts,
    options: &Options,
    pool: &mut HeadPool,
) -> Result<(), Error> {
    match facts.host {
        Some(span) => {
            // RFC 9110 §4.2.1: an http URI has a host; an empty Host leaves nothing to route by.
            if !pool.is_authority(&head.raw()[span.raw_range()]) {
                return Err(Error::BadHost);
            }
            head.set_authority_span(span);
        }
        None if head.version() == Version::Http11 => return Err(Error::MissingHost),
        None => {}
    }
    match Target::parse(head.method(), head.path()).ok_or(Error::BadTarget)? {
        Target::Origin | Target::Asterisk => {}
        Target::Authority => {
            if !is_connect_authority(head.path()) {
                return Err(Error::BadTarget);
            }
            head.set_authority_span(head.path_span());
            head.set_path_span(Span::default());
        }
        Target::Absolute { scheme, authority, path } => {
            if !options.allow_absolute_url {
                return Err(Error::AbsoluteTargetNotAllowed);
            }
            let http = scheme.eq_ignore_ascii_case(b"http");
            if !http && !scheme.eq_ignore_ascii_case(b"https") {
                return Err(Error::BadScheme);
            }
            if !is_authority(authority) {
                return Err(Error::BadTarget);
            }
            let (start, end) = (scheme.len() + 3, scheme.len() + 3 + authority.len());
            let whole = head.path_span().raw_range();
            let (query_only, empty) = (path.starts_with(b"?"), path.is_empty());
            // RFC 9112 §3.2.2: the target's authority wins over Host.
            head.set_scheme(if http { b"http" } else { b"https" });
            head.set_authority_span(Span::raw(whole.start + start, whole.start + end));
            if empty {
                // RFC 9112 §3.2.4: OPTIONS without a path is about the server as a whole.
                let path: &[u8] = if head.method() == Method::Options { b"*" } else { b"/" };
                head.set_path(path);
            } else if query_only {
                let path = [b"/", &head.raw()[whole.start + end..whole.end]].concat();
                head.set_path(&path);
            } else {
                head.set_path_span(Span::raw(whole.start + end, whole.end));
            }
        }
    }
    if head.authority().is_empty() {
        // Only HTTP/1.0 comes here.
        match &options.default_host_http10 {
            Some(host) => head.set_authority(host),
            None => return Err(Error::MissingHost),
        }
    }
    Ok(())
}

/// How long the body is (RFC 9112 §6.3), and whether a stricter reader could have read it otherwise.
fn framing(head: &mut Head, facts: &Facts, options: &Options) -> Result<(Body, bool), Error> {
    if facts.coding == Coding::Absent {
        return match facts.content_length {
            None => Ok((Body::Empty, false)),
            Some(length) if head.method() == Method::Connect => {
                // RFC 9110 §9.3.6: CONNECT has no content.
                head.remove(Name::ContentLength);
                if length == 0 {
                    Ok((Body::Empty, false))
                } else {
                    Err(Error::ContentLengthNotAllowed)
                }
            }
            Some(0) => Ok((Body::Empty, false)),
            Some(length) => Ok((Body::Length(length), false)),
        };
    }
    if head.method() == Method::Connect {
        return Err(Error::ContentOnConnect);
    }
    // RFC 9112 §6.1: HTTP/1.0 has no transfer codings.
    if head.version() == Version::Http10 {
        return Err(Error::TransferEncodingNotAllowed);
    }
    let ambiguous = reconcile(head, facts, options)?;
    Ok((Body::Chunked(Chunked::new()), ambiguous))
}

/// Accepts `chunked` alone. Answers whether a Content-Length beside it was removed.
pub(super) fn reconcile(head: &mut Head, facts: &Facts, options: &Options) -> Result<bool, Error> {
    match facts.coding {
        Coding::Absent | Coding::Chunked => {}
        Coding::Other => return Err(Error::UnsupportedTransferEncoding),
        Coding::Broken => return Err(Error::BadTransferEncoding),
    }
    if facts.content_length.is_none() {
        return Ok(false);
    }
    if !options.allow_chunked_length {
        return Err(Error::ContentLengthWithChunked);
    }
    Ok(head.remove(Name::ContentLength))
}

/// Takes out what `Connection` names (RFC 9110 §7.6.1). Answers whether an upgrade is asked for or made.
pub(super) fn connection_fields(head: &mut Head, facts: &Facts) -> bool {
    if !facts.named.is_empty() {
        let raw = head.raw().clone();
        for span in &facts.named {
            head.remove_bytes(&raw[span.raw_range()]);
        }
    }
    if facts.takes_trailers {
        head.append(Name::Te, b"trailers");
    }
    if !facts.has_upgrade {
        return false;
    }
    // RFC 9110 §7.8: Upgrade counts only with its connection option and from HTTP/1.1 on. RFC 9113 §3.1:
    // h2c by Upgrade is obsolete.
    let h2c = head.get(Name::Upgrade).is_some_and(|value| value.eq_ignore_ascii_case(b"h2c"));
    let upgrade = facts.upgrade_option && head.version() == Version::Http11 && !h2c;
    if !upgrade {
        head.remove(Name::Upgrade);
    }
    upgrade
}
