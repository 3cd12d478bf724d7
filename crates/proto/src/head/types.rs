//! The small parts of a head: methods, versions, ranges.

use std::fmt;
use std::ops::Range;

use crate::name::Name;

/// A request method.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Method {
    /// GET
    #[default]
    Get,
    /// HEAD
    Head,
    /// POST
    Post,
    /// PUT
    Put,
    /// DELETE
    Delete,
    /// CONNECT
    Connect,
    /// OPTIONS
    Options,
    /// TRACE
    Trace,
    /// PATCH
    Patch,
    /// Any other token; see [`Head::method_bytes`](super::Head::method_bytes).
    Other,
}

impl Method {
    /// The method that `bytes` spell; methods are case-sensitive (RFC 9110 §9.1).
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        match bytes {
            b"GET" => Self::Get,
            b"HEAD" => Self::Head,
            b"POST" => Self::Post,
            b"PUT" => Self::Put,
            b"DELETE" => Self::Delete,
            b"CONNECT" => Self::Connect,
            b"OPTIONS" => Self::Options,
            b"TRACE" => Self::Trace,
            b"PATCH" => Self::Patch,
            _ => Self::Other,
        }
    }

    /// The method as it is written; empty for [`Method::Other`].
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
            Self::Options => "OPTIONS",
            Self::Trace => "TRACE",
            Self::Patch => "PATCH",
            Self::Other => "",
        }
    }
}

/// The protocol version in which a message came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1
    #[default]
    Http11,
    /// HTTP/2
    Http2,
    /// HTTP/3
    Http3,
}

impl Version {
    /// As Envoy's `%PROTOCOL%` writes it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http10 => "HTTP/1.0",
            Self::Http11 => "HTTP/1.1",
            Self::Http2 => "HTTP/2",
            Self::Http3 => "HTTP/3",
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One field of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldRef<'a> {
    /// The name, if it is well known.
    pub name: Name,
    /// The name in the case in which it came.
    pub name_bytes: &'a [u8],
    /// The value without surrounding white space.
    pub value: &'a [u8],
    /// It came marked so that it enters no table of HPACK's on its way (RFC 7541 §6.2.3).
    pub never_indexed: bool,
}

/// A range over the bytes a head came in, or (with the top bit of `at`) over those it owns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub(super) at: u32,
    pub(super) len: u32,
}

impl Span {
    /// Stands for a scheme that needs no bytes; never a range, because no buffer reaches so far.
    pub(super) const HTTP: Self = Self { at: u32::MAX, len: 4 };
    /// As [`Span::HTTP`].
    pub(super) const HTTPS: Self = Self { at: u32::MAX, len: 5 };
    const OWN: u32 = 1 << 31;

    /// A range of the received bytes. A head's size is limited far below 2³¹.
    #[inline]
    pub(crate) const fn raw(start: usize, end: usize) -> Self {
        Self { at: start as u32, len: (end - start) as u32 }
    }

    /// A range of the owned bytes.
    #[inline]
    pub(super) const fn own(start: usize, end: usize) -> Self {
        Self { at: start as u32 | Self::OWN, len: (end - start) as u32 }
    }

    #[inline]
    pub(super) const fn own_range(self) -> Option<Range<usize>> {
        if self.at & Self::OWN == 0 {
            return None;
        }
        let start = (self.at & !Self::OWN) as usize;
        Some(start..start + self.len as usize)
    }

    #[inline]
    pub(crate) const fn raw_range(self) -> Range<usize> {
        self.at as usize..self.at as usize + self.len as usize
    }
}

/// One field: 16 bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    name_at: u32,
    value_at: u32,
    value_len: u32,
    name_len: u16,
    pub(crate) name: Name,
    /// [`AS_WRITTEN`], [`NEVER_INDEXED`].
    flags: u8,
}

/// The bytes of a field's line are those that are written for it, but for the case of a received name.
const AS_WRITTEN: u8 = 1;
/// As [`FieldRef::never_indexed`].
const NEVER_INDEXED: u8 = 2;

/// Where a line is that is copied as it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    /// As in a [`Span`].
    pub(crate) start: u32,
    pub(crate) end: u32,
    pub(crate) name_len: usize,
}

impl Line {
    /// Whether it is among the bytes that the head owns.
    #[inline(always)]
    pub(crate) const fn is_own(self) -> bool {
        self.start & Span::OWN != 0
    }
}

impl Field {
    /// A received line. `as_written`: its name is a token, behind it stand a colon, one space, the value and CRLF, and
    /// the value has no white space around it and no control character in it.
    #[inline]
    pub(crate) const fn line(name: Name, spelling: Span, value: Span, as_written: bool) -> Self {
        Self {
            name_at: spelling.at,
            value_at: value.at,
            value_len: value.len,
            name_len: spelling.len as u16,
            name,
            flags: if as_written { AS_WRITTEN } else { 0 },
        }
    }

    /// A line of our own, with a well-known name and as it is written.
    #[inline]
    pub(super) const fn own_line(name: Name, value: Span) -> Self {
        let len = name.as_str().len() as u32;
        Self::line(name, Span { at: value.at - len - 2, len }, value, true)
    }

    /// The same field behind so many bytes more.
    #[inline(always)]
    pub(crate) const fn moved(self, by: usize) -> Self {
        let by = by as u32;
        Self { name_at: self.name_at + by, value_at: self.value_at + by, ..self }
    }

    /// Its line, if that can be copied.
    #[inline(always)]
    pub(crate) const fn written_line(&self) -> Option<Line> {
        if self.flags & AS_WRITTEN == 0 {
            return None;
        }
        let end = self.value_at + self.value_len + 2;
        Some(Line { start: self.name_at, end, name_len: self.name_len as usize })
    }

    #[inline]
    pub(crate) const fn name_span(&self) -> Span {
        Span { at: self.name_at, len: self.name_len as u32 }
    }

    #[inline]
    pub(crate) const fn value(&self) -> Span {
        Span { at: self.value_at, len: self.value_len }
    }

    pub(super) const fn set_value(&mut self, value: Span) {
        self.value_at = value.at;
        self.value_len = value.len;
        self.flags = 0;
    }

    pub(crate) const fn is_never_indexed(&self) -> bool {
        self.flags & NEVER_INDEXED != 0
    }

    pub(super) const fn set_never_indexed(&mut self) {
        self.flags |= NEVER_INDEXED;
    }
}
