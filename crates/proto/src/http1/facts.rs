//! What framing and connection handling must know of a head, gathered while its lines are parsed.

use super::error::Error;
use crate::chars::{decimal, is_token, list, trim};
use crate::head::{Span, Version};
use crate::name::Name;

/// The facts of one head.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    /// A trailer section: no field in it may speak about framing (RFC 9110 §6.5.1), so they are dropped.
    pub(super) trailers: bool,
    /// A response, whose `Keep-Alive` says how long its connection lasts.
    pub(super) is_response: bool,
    pub(super) host: Option<Span>,
    pub(super) content_length: Option<u64>,
    pub(super) coding: Coding,
    pub(super) close: bool,
    pub(super) keep_alive: bool,
    /// `Connection: upgrade`
    pub(super) upgrade_option: bool,
    pub(super) has_upgrade: bool,
    pub(super) expects_continue: bool,
    /// `TE: trailers`
    pub(super) takes_trailers: bool,
    /// Fields that were left out for an underscore in their names.
    pub(super) underscored: u32,
    /// What else `Connection` names.
    pub(super) named: Vec<Span>,
}

/// What `Transfer-Encoding` says, all its lines together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Coding {
    #[default]
    Absent,
    Chunked,
    /// Something else, perhaps with `chunked` at its end.
    Other,
    /// `chunked` stands twice or not at the end, or the list is empty.
    Broken,
}

impl Facts {
    /// Whether the message says that its sender closes the connection: by its fields, or by its version without them.
    pub(super) fn closes(&self, version: Version) -> bool {
        self.close || (version == Version::Http10 && !self.keep_alive)
    }

    /// Takes note of a field; answers whether it stays in the head.
    #[inline]
    pub(super) fn note(&mut self, name: Name, span: Span, bytes: &[u8]) -> Result<bool, Error> {
        if self.trailers {
            return Ok(false);
        }
        let value = &bytes[span.raw_range()];
        if name == Name::Host {
            // RFC 9112 §3.2: more than one is answered 400.
            if self.host.replace(span).is_some() {
                return Err(Error::DuplicateHost);
            }
            return Ok(false);
        }
        self.note_rare(name, value, bytes)
    }

    fn note_rare(&mut self, name: Name, value: &[u8], bytes: &[u8]) -> Result<bool, Error> {
        if name == Name::ContentLength {
            // RFC 9112 §6.3 allows equal values to be merged; refusing them is simpler and safer.
            if self.content_length.replace(content_length(value)?).is_some() {
                return Err(Error::DuplicateContentLength);
            }
            return Ok(true);
        }
        if name == Name::Connection {
            self.connection(value, bytes)?;
        } else if name == Name::TransferEncoding {
            self.coding = self.coding.with(value);
        } else if name == Name::Te {
            self.takes_trailers |=
                list(value).any(|coding| coding.eq_ignore_ascii_case(b"trailers"));
        } else if name == Name::Upgrade {
            self.has_upgrade |= !value.is_empty();
            return Ok(!value.is_empty());
        } else if name == Name::Expect {
            self.expects_continue |= value.eq_ignore_ascii_case(b"100-continue");
            return Ok(true);
        } else {
            return Ok(name == Name::Trailer || (name == Name::KeepAlive && self.is_response));
        }
        Ok(false)
    }

    /// RFC 9110 §7.6.1: a list of tokens.
    fn connection(&mut self, value: &[u8], bytes: &[u8]) -> Result<(), Error> {
        // The rule, before a list is looked for.
        match value {
            b"keep-alive" => {
                self.keep_alive = true;
                return Ok(());
            }
            b"close" => {
                self.close = true;
                return Ok(());
            }
            _ => {}
        }
        for option in list(value) {
            if option.eq_ignore_ascii_case(b"close") {
                self.close = true;
            } else if option.eq_ignore_ascii_case(b"keep-alive") {
                self.keep_alive = true;
            } else if option.eq_ignore_ascii_case(b"upgrade") {
                self.upgrade_option = true;
            } else {
                if !is_token(option) || is_for_everyone(option) {
                    return Err(Error::BadConnectionOption);
                }
                let start = option.as_ptr().addr() - bytes.as_ptr().addr();
                self.named.push(Span::raw(start, start + option.len()));
            }
        }
        Ok(())
    }
}

impl Coding {
    /// Adds one `Transfer-Encoding` line. Empty elements, which other lists may have, make it broken.
    fn with(self, value: &[u8]) -> Self {
        value.split(|&byte| byte == b',').map(trim).fold(self, |sum, coding| match sum {
            _ if coding.is_empty() => Self::Broken,
            Self::Absent if coding.eq_ignore_ascii_case(b"chunked") => Self::Chunked,
            Self::Absent => Self::Other,
            // `chunked` may close a list of other codings; none of them is understood anyway.
            Self::Other => Self::Other,
            Self::Chunked | Self::Broken => Self::Broken,
        })
    }
}

/// Fields that every recipient needs: naming one in `Connection` would have the next hop lose it.
fn is_for_everyone(option: &[u8]) -> bool {
    matches!(
        Name::resolve(option),
        Name::Host
            | Name::ContentLength
            | Name::ContentType
            | Name::ContentEncoding
            | Name::CacheControl
            | Name::Authorization
            | Name::Cookie
            | Name::SetCookie
            | Name::CdnLoop
            | Name::Forwarded
            | Name::XForwardedFor
            | Name::XForwardedHost
            | Name::XForwardedPort
            | Name::XForwardedProto
            | Name::XForwardedClientCert
            | Name::XRequestId
    )
}

/// RFC 9110 §8.6: `1*DIGIT`, here below 2⁶³.
fn content_length(value: &[u8]) -> Result<u64, Error> {
    decimal(value).filter(|length| *length <= i64::MAX as u64).ok_or(Error::BadContentLength)
}
