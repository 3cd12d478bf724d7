//! Heads out of fields and fields out of heads (RFC 9113 §8.2, §8.3, RFC 8441 §4).
//!
//! What is checked here is what another protocol could read in two ways: a [`Head`] that comes out of it can be written
//! as HTTP/1 and is one message there.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "well-known names are many: each match means a few and all the others"
)]

use bytes::BytesMut;

use super::hpack::{Encoder, Field, FieldName, Pseudo};
use super::options::Options;
use crate::block;
use crate::chars::{decimal, is_connect_authority};
use crate::head::{Head, HeadPool, Method, Version};
use crate::http1::Underscores;
use crate::name::Name;

/// The message is malformed (RFC 9113 §8.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// What a header block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Section {
    Request,
    Response,
    Trailers,
}

/// A head that is being put together from its fields, in their order.
#[derive(Debug)]
pub(super) struct Builder<'a> {
    head: Head,
    section: Section,
    options: &'a Options,
    pool: &'a mut HeadPool,
    /// One bit for each [`Pseudo`] that came.
    pseudo: u8,
    /// A field came: pseudo-fields stand before all others.
    behind_pseudo: bool,
    malformed: bool,
    content_length: Option<u64>,
    host: bool,
    /// RFC 8441: what an extended CONNECT asks for.
    protocol: Option<Vec<u8>>,
    /// `cookie` may come in parts (RFC 9113 §8.2.3).
    cookie: Vec<u8>,
    /// One of these is to enter no table.
    never_indexed_cookie: bool,
}

/// A head, and what the connection must know of it.
#[derive(Debug)]
pub(super) struct Built {
    pub(super) head: Head,
    pub(super) content_length: Option<u64>,
    /// It was an extended CONNECT.
    pub(super) upgrade: bool,
}

impl<'a> Builder<'a> {
    pub(super) fn new(section: Section, options: &'a Options, pool: &'a mut HeadPool) -> Self {
        let mut head = pool.take();
        head.set_version(Version::Http2);
        Self {
            head,
            section,
            options,
            pool,
            pseudo: 0,
            behind_pseudo: false,
            malformed: false,
            content_length: None,
            host: false,
            protocol: None,
            cookie: Vec::new(),
            never_indexed_cookie: false,
        }
    }

    /// Takes the next field.
    pub(super) fn add(&mut self, field: &Field<'_>) {
        if self.malformed {
            return;
        }
        let taken = match field.name {
            _ if !field.well_formed => false,
            FieldName::Pseudo(pseudo) => self.add_pseudo(pseudo, field.value),
            FieldName::Known(name) => {
                self.behind_pseudo = true;
                let before = self.head.len();
                let taken = self.add_known(name, field.value);
                if field.never_indexed {
                    self.keep_mark(name, before);
                }
                taken
            }
            FieldName::Other(name) => {
                self.behind_pseudo = true;
                let before = self.head.len();
                let taken = self.add_other(name, field.value);
                if field.never_indexed {
                    self.keep_mark(Name::Custom, before);
                }
                taken
            }
        };
        self.malformed = !taken;
    }

    /// RFC 7541 §6.2.3: an intermediary that passes a field on keeps its mark.
    fn keep_mark(&mut self, name: Name, fields_before: usize) {
        self.never_indexed_cookie |= name == Name::Cookie;
        if self.head.len() > fields_before {
            self.head.mark_never_indexed();
        }
    }

    /// The whole block was read.
    pub(super) fn finish(mut self) -> Result<Built, Malformed> {
        let complete = !self.malformed
            && match self.section {
                Section::Request => self.finish_request(),
                Section::Response => self.has(Pseudo::Status),
                Section::Trailers => true,
            };
        if !complete {
            self.pool.give(self.head);
            return Err(Malformed);
        }
        if self.options.ascii_values && !self.is_ascii() {
            self.pool.give(self.head);
            return Err(Malformed);
        }
        if !self.cookie.is_empty() {
            self.head.append(Name::Cookie, &self.cookie);
            if self.never_indexed_cookie {
                self.head.mark_never_indexed();
            }
        }
        let upgrade = self.protocol.is_some();
        Ok(Built { head: self.head, content_length: self.content_length, upgrade })
    }

    #[cold]
    fn is_ascii(&self) -> bool {
        for field in self.head.fields() {
            if !self.head.value_of(field).is_ascii() {
                return false;
            }
        }
        self.cookie.is_ascii()
    }

    /// The block is too large: nothing of it is kept.
    pub(super) fn discard(self) {
        self.pool.give(self.head);
    }

    fn has(&self, pseudo: Pseudo) -> bool {
        self.pseudo & 1 << pseudo as u8 != 0
    }

    fn add_pseudo(&mut self, pseudo: Pseudo, value: &[u8]) -> bool {
        // RFC 9113 §8.3: once, before all fields, and those alone that the message has.
        if self.behind_pseudo || self.has(pseudo) {
            return false;
        }
        self.pseudo |= 1 << pseudo as u8;
        match (self.section, pseudo) {
            (Section::Request, Pseudo::Method) => self.head.set_method(value),
            (Section::Request, Pseudo::Scheme) => {
                let http = value.eq_ignore_ascii_case(b"http");
                (http || value.eq_ignore_ascii_case(b"https"))
                    && self.head.set_scheme(if http { b"http" } else { b"https" })
            }
            (Section::Request, Pseudo::Authority) => {
                let valid = self.pool.is_authority(value);
                if valid {
                    self.head.set_valid_authority(value);
                }
                valid
            }
            (Section::Request, Pseudo::Path) => {
                let fragment = value.iter().position(|&byte| byte == b'#');
                let cut = fragment.filter(|_| self.options.cut_fragment);
                let value = &value[..cut.unwrap_or(value.len())];
                let valid = is_target(value);
                if valid {
                    self.head.set_valid_path(value);
                }
                valid
            }
            (Section::Request, Pseudo::Protocol) => {
                self.protocol = Some(value.to_vec());
                self.options.allow_connect && crate::chars::is_token(value)
            }
            (Section::Response, Pseudo::Status) => match value {
                [b'1'..=b'9', b'0'..=b'9', b'0'..=b'9'] => {
                    self.head.set_status(decimal(value).unwrap_or(0) as u16);
                    // RFC 9113 §8.6: nothing is switched by a status.
                    value != b"101"
                }
                _ => false,
            },
            (Section::Request | Section::Response | Section::Trailers, _) => false,
        }
    }

    fn add_known(&mut self, name: Name, value: &[u8]) -> bool {
        match name {
            // RFC 9113 §8.2.2: these are about one connection of HTTP/1.
            Name::Connection
            | Name::ProxyConnection
            | Name::KeepAlive
            | Name::TransferEncoding
            | Name::Upgrade => return false,
            Name::Te if !value.eq_ignore_ascii_case(b"trailers") => return false,
            // RFC 9110 §6.5.1: of framing and routing trailers say nothing.
            Name::Host
            | Name::ContentLength
            | Name::Te
            | Name::Trailer
            | Name::Expect
            | Name::Http2Settings
                if self.section == Section::Trailers =>
            {
                return true;
            }
            Name::Http2Settings => return true,
            Name::ContentLength => {
                let length = decimal(value).filter(|length| *length <= i64::MAX as u64);
                if length.is_none() || self.content_length.is_some() {
                    return false;
                }
                self.content_length = length;
            }
            Name::Host if self.section == Section::Request => return self.add_host(value),
            Name::Host => return true,
            Name::Cookie => {
                if !self.cookie.is_empty() {
                    self.cookie.extend_from_slice(b"; ");
                }
                self.cookie.extend_from_slice(value);
                return true;
            }
            _ => {}
        }
        // No line of it could end for any reader: it is well formed.
        self.head.append_valid(name, value);
        true
    }

    /// RFC 9113 §8.3.1: it says the same as `:authority`, or stands in for it.
    fn add_host(&mut self, value: &[u8]) -> bool {
        if std::mem::replace(&mut self.host, true) {
            return false;
        }
        if self.has(Pseudo::Authority) {
            return self.head.authority().eq_ignore_ascii_case(value);
        }
        self.head.set_authority(value);
        self.pool.is_authority(value)
    }

    fn add_other(&mut self, name: &[u8], value: &[u8]) -> bool {
        if self.options.underscores != Underscores::Allow && crate::chars::has_underscore(name) {
            let is_dropped = self.options.underscores == Underscores::Drop;
            let underscored = &mut self.pool.underscored;
            let count =
                if is_dropped { &mut underscored.dropped } else { &mut underscored.rejected };
            *count += 1;
            return is_dropped;
        }
        self.head.append_custom(name, value);
        true
    }

    /// RFC 9113 §8.3.1, §8.5; RFC 8441 §4.
    fn finish_request(&mut self) -> bool {
        let has_target = self.has(Pseudo::Scheme) && self.has(Pseudo::Path);
        if !self.has(Pseudo::Method) || self.head.authority().is_empty() {
            return false;
        }
        let path = self.head.path();
        let is_path =
            path.first() == Some(&b'/') || (path == b"*" && self.head.method() == Method::Options);
        match (&self.protocol, self.head.method()) {
            (None, Method::Connect) => {
                !self.has(Pseudo::Scheme)
                    && !self.has(Pseudo::Path)
                    && self.has(Pseudo::Authority)
                    && is_connect_authority(self.head.authority())
            }
            (None, _) => has_target && is_path,
            // It stands for what GET with `upgrade` is in HTTP/1.
            (Some(protocol), Method::Connect) => {
                let valid = has_target && is_path && self.has(Pseudo::Authority);
                self.head.set_method(b"GET");
                self.head.append(Name::Upgrade, protocol);
                valid && self.content_length.take().is_none_or(|length| length == 0)
            }
            (Some(_), _) => false,
        }
    }
}

/// Whether no byte stands there that no request target has (RFC 9112 §3.2).
fn is_target(bytes: &[u8]) -> bool {
    let (blocks, left) = bytes.as_chunks::<16>();
    let mut last = [b'a'; 16];
    block::copy_few(&mut last, left);
    blocks.iter().chain([&last]).all(|block| block::outside_target(block) == 0)
}

/// Writes the block of a request. `upgrade`: as an extended CONNECT.
pub(super) fn put_request(encoder: &mut Encoder, head: &Head, upgrade: bool, out: &mut BytesMut) {
    encoder.begin(out);
    match head.method() {
        _ if upgrade => put_pseudo(encoder, Pseudo::Method, b"CONNECT", out),
        Method::Get => Encoder::indexed(2, out),
        Method::Post => Encoder::indexed(3, out),
        _ => put_pseudo(encoder, Pseudo::Method, head.method_bytes(), out),
    }
    let has_target = upgrade || head.method() != Method::Connect;
    if has_target {
        match scheme_of(head) {
            b"http" => Encoder::indexed(6, out),
            b"https" => Encoder::indexed(7, out),
            other => put_pseudo(encoder, Pseudo::Scheme, other, out),
        }
    }
    put_pseudo(encoder, Pseudo::Authority, head.authority(), out);
    if has_target {
        let path = head.path();
        Encoder::path(if path.is_empty() { b"/" } else { path }, out);
    }
    if upgrade {
        let protocol = head.get(Name::Upgrade).unwrap_or_default();
        put_pseudo(encoder, Pseudo::Protocol, protocol, out);
    }
    put_fields(encoder, head, Section::Request, out);
}

#[inline]
fn put_pseudo(encoder: &mut Encoder, name: Pseudo, value: &[u8], out: &mut BytesMut) {
    encoder.field(FieldName::Pseudo(name), value, false, out);
}

/// What came without a scheme, as by HTTP/1, came by what is said of its client.
fn scheme_of(head: &Head) -> &[u8] {
    match (head.scheme(), head.get(Name::XForwardedProto)) {
        (b"", Some(b"https")) => b"https",
        (b"", _) => b"http",
        (scheme, _) => scheme,
    }
}

/// Writes the block of a response.
pub(super) fn put_response(encoder: &mut Encoder, head: &Head, status: u16, out: &mut BytesMut) {
    encoder.begin(out);
    // A status is three digits (RFC 9110 §15); what is none is our own fault and becomes a 500.
    let status = if (100..1000).contains(&status) { status } else { 500 };
    match status {
        200 => Encoder::indexed(8, out),
        204 => Encoder::indexed(9, out),
        304 => Encoder::indexed(11, out),
        404 => Encoder::indexed(13, out),
        _ => {
            let digit = |value: u16| b'0' + (value % 10) as u8;
            let digits = [digit(status / 100), digit(status / 10), digit(status)];
            put_pseudo(encoder, Pseudo::Status, &digits, out);
        }
    }
    put_fields(encoder, head, Section::Response, out);
}

/// Writes the block of a trailer section.
pub(super) fn put_trailers(encoder: &mut Encoder, head: &Head, out: &mut BytesMut) {
    encoder.begin(out);
    put_fields(encoder, head, Section::Trailers, out);
}

/// Every field that may leave: what belongs to a connection of HTTP/1 does not.
fn put_fields(encoder: &mut Encoder, head: &Head, section: Section, out: &mut BytesMut) {
    for field in head.fields() {
        let value = head.value_of(field);
        let leaves = match field.name {
            Name::Host
            | Name::Connection
            | Name::ProxyConnection
            | Name::KeepAlive
            | Name::TransferEncoding
            | Name::Upgrade
            | Name::Http2Settings => false,
            Name::Te => section == Section::Request && value.eq_ignore_ascii_case(b"trailers"),
            Name::ContentLength | Name::Trailer | Name::Expect => section != Section::Trailers,
            _ => true,
        };
        if leaves {
            let name = match field.name {
                Name::Custom => FieldName::Other(head.name_of(field)),
                known => FieldName::Known(known),
            };
            encoder.field(name, value, field.is_never_indexed(), out);
        }
    }
}
