//! Heads on the wire: a first line, the fields, what the connection needs.
//!
//! Heads are re-serialised. That a line is copied as it lies is no exception: its field says that its bytes are exactly
//! those that [`line()`] would write (all but the case of a received name, which is made small here). Two places say
//! so, and both know it of every byte:
//!
//! - the parser, of a line in which it found a token, a colon, one space, a value without white space around it and
//!   without a control character in it, and CRLF: the whole line, nothing between and nothing behind;
//! - [`Head`]'s setters, which write whole lines themselves.
//!
//! What is changed afterwards loses the mark, what is taken away leaves a gap that ends a run, and the received bytes
//! themselves are shared and never written to. So a run holds whole marked lines of the list, in its order, and nothing
//! else. The tests hold every head against [`line()`] alone, and so does the fuzz target `http1_encode`.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "well-known names are many: each match means a few and all the others"
)]

use super::options::NameCase;
use crate::head::{Field, FieldRef, Head, Line, Version};
use crate::lines::Lines;
use crate::name::Name;

/// `HTTP/1.1 200 OK CRLF`
#[inline]
pub(super) fn status_line(lines: &mut Lines, version: Version, status: u16) {
    if status == 200 && version != Version::Http10 {
        return lines.put_array(b"HTTP/1.1 200 OK\r\n");
    }
    any_status_line(lines, version, status);
}

fn any_status_line(lines: &mut Lines, version: Version, status: u16) {
    lines.put_array(match version {
        Version::Http10 => b"HTTP/1.0 ",
        Version::Http11 | Version::Http2 | Version::Http3 => b"HTTP/1.1 ",
    });
    // A status is three digits (RFC 9110 §15); what is none is our own fault and becomes a 500.
    let status = if (100..1000).contains(&status) { status } else { 500 };
    let digit = |value: u16| b'0' + (value % 10) as u8;
    lines.put_array(&[digit(status / 100), digit(status / 10), digit(status), b' ']);
    lines.put(reason(status).as_bytes());
    lines.put_array(b"\r\n");
}

/// `GET /path HTTP/1.1 CRLF`
#[inline]
pub(super) fn request_line(lines: &mut Lines, method: &[u8], target: &[u8]) {
    match method {
        b"GET" => lines.put_array(b"GET "),
        other => {
            lines.put(other);
            lines.put_array(b" ");
        }
    }
    lines.put_few(target);
    lines.put_array(b" HTTP/1.1\r\n");
}

/// Every field that may leave; of those that framing depends on, `kept` and no others.
#[inline]
pub(super) fn fields(lines: &mut Lines, head: &Head, case: NameCase, kept: Framing) {
    let mut rest = head.fields();
    while let [field, behind @ ..] = rest {
        let from = rest;
        rest = behind;
        if kept.refuses(head, field) {
            continue;
        }
        let Some(mut run) = field.written_line().filter(|_| case == NameCase::Lower) else {
            line(lines, &head.field_ref(field), case);
            continue;
        };
        while let [next, behind @ ..] = rest
            && let Some(line) = next.written_line()
            && line.start == run.end
            && !kept.refuses(head, next)
        {
            run.end = line.end;
            rest = behind;
        }
        copy(lines, head, run, &from[..from.len() - rest.len()]);
    }
}

/// Names of framing that may leave.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Framing {
    names: u64,
}

impl Framing {
    /// With this name as well, where that is so.
    #[inline]
    pub(super) const fn with(self, name: Name, leaves: bool) -> Self {
        Self { names: if leaves { self.names | name.bit() } else { self.names } }
    }

    #[inline(always)]
    fn refuses(self, head: &Head, field: &Field) -> bool {
        field.name.is_framing()
            && (self.names & field.name.bit() == 0
                // RFC 9110 §10.1.4: of TE's options `trailers` alone is not about one connection.
                || (field.name == Name::Te
                    && !head.field_ref(field).value.eq_ignore_ascii_case(b"trailers")))
    }
}

/// `host: authority CRLF`
#[inline]
pub(super) fn host(lines: &mut Lines, authority: &[u8], case: NameCase) {
    if case == NameCase::Proper {
        return field(lines, Name::Host, authority, case);
    }
    lines.put_array(b"host: ");
    lines.put_few(authority);
    lines.put_array(b"\r\n");
}

/// Copies the lines of `fields`, which are `run`.
#[inline(always)]
fn copy(lines: &mut Lines, head: &Head, run: Line, fields: &[Field]) {
    let at = lines.len();
    lines.put(head.line_bytes(run));
    if run.is_own() {
        return;
    }
    for line in fields.iter().filter_map(Field::written_line) {
        lines.make_lowercase(at + (line.start - run.start) as usize, line.name_len);
    }
}

/// One field of our own.
#[inline]
pub(super) fn field(lines: &mut Lines, name: Name, value: &[u8], case: NameCase) {
    line(lines, &FieldRef { name, name_bytes: b"", value, never_indexed: false }, case);
}

#[inline]
fn line(lines: &mut Lines, field: &FieldRef<'_>, case: NameCase) {
    let start = lines.len();
    match field.name {
        Name::Custom => {
            lines.put(field.name_bytes);
            lines.make_lowercase(start, field.name_bytes.len());
            lines.put_array(b": ");
            lines.put(field.value);
            lines.put_array(b"\r\n");
        }
        known => {
            lines.put_line(known, field.value);
        }
    }
    if case == NameCase::Proper {
        let name = lines.from(start).iter_mut().take_while(|byte| **byte != b':');
        let mut upper = true;
        for byte in name {
            if upper {
                byte.make_ascii_uppercase();
            }
            upper = !byte.is_ascii_alphanumeric();
        }
    }
}

/// How long the first line of a response is, with its end.
#[must_use]
pub fn status_line_bytes(status: u16) -> usize {
    "HTTP/1.1 200 ".len() + reason(status).len() + "\r\n".len()
}

/// The usual phrase of a status; empty for one that has none.
#[must_use]
pub fn reason(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        101 => "Switching Protocols",
        102 => "Processing",
        103 => "Early Hints",
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        203 => "Non-Authoritative Information",
        204 => "No Content",
        205 => "Reset Content",
        206 => "Partial Content",
        207 => "Multi-Status",
        208 => "Already Reported",
        226 => "IM Used",
        300 => "Multiple Choices",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        305 => "Use Proxy",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        407 => "Proxy Authentication Required",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Payload Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        416 => "Range Not Satisfiable",
        417 => "Expectation Failed",
        421 => "Misdirected Request",
        422 => "Unprocessable Entity",
        423 => "Locked",
        424 => "Failed Dependency",
        425 => "Too Early",
        426 => "Upgrade Required",
        428 => "Precondition Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        506 => "Variant Also Negotiates",
        507 => "Insufficient Storage",
        508 => "Loop Detected",
        510 => "Not Extended",
        511 => "Network Authentication Required",
        599 => "Last Unassigned Server Error Code",
        _ => "Unknown",
    }
}

#[cfg(test)]
mod tests;
