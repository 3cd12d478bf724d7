//! Heads on the wire: a first line, the fields, what the connection needs.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "well-known names are many: each match means a few and all the others"
)]

use bytes::BytesMut;

use super::options::NameCase;
use crate::head::{FieldRef, Head, Version};
use crate::name::Name;

/// `HTTP/1.1 200 OK CRLF`
pub(super) fn status_line(buffer: &mut BytesMut, version: Version, status: u16) {
    buffer.extend_from_slice(match version {
        Version::Http10 => b"HTTP/1.0 ",
        Version::Http11 | Version::Http2 | Version::Http3 => b"HTTP/1.1 ",
    });
    // A status is three digits (RFC 9110 §15); what is none is our own fault and becomes a 500.
    let status = if (100..1000).contains(&status) { status } else { 500 };
    let digit = |value: u16| b'0' + (value % 10) as u8;
    buffer.extend_from_slice(&[digit(status / 100), digit(status / 10), digit(status), b' ']);
    buffer.extend_from_slice(reason(status).as_bytes());
    buffer.extend_from_slice(b"\r\n");
}

/// `GET /path HTTP/1.1 CRLF`
pub(super) fn request_line(buffer: &mut BytesMut, method: &[u8], target: &[u8]) {
    buffer.extend_from_slice(method);
    buffer.extend_from_slice(b" ");
    buffer.extend_from_slice(target);
    buffer.extend_from_slice(b" HTTP/1.1\r\n");
}

/// Every field that may leave; `keep` decides about the framing names.
#[inline]
pub(super) fn fields(
    buffer: &mut BytesMut,
    head: &Head,
    case: NameCase,
    keep: impl Fn(&FieldRef<'_>) -> bool,
) {
    for field in head.iter() {
        if !field.name.is_framing() || keep(&field) {
            line(buffer, &field, case);
        }
    }
}

/// One field of our own.
pub(super) fn field(buffer: &mut BytesMut, name: Name, value: &[u8], case: NameCase) {
    line(buffer, &FieldRef { name, name_bytes: b"", value }, case);
}

#[inline]
fn line(buffer: &mut BytesMut, field: &FieldRef<'_>, case: NameCase) {
    let start = buffer.len();
    match field.name {
        Name::Custom => {
            buffer.extend_from_slice(field.name_bytes);
            buffer[start..].make_ascii_lowercase();
            buffer.extend_from_slice(b": ");
        }
        known => buffer.extend_from_slice(known.line_start()),
    }
    if case == NameCase::Proper {
        let mut upper = true;
        for byte in &mut buffer[start..] {
            if upper {
                byte.make_ascii_uppercase();
            }
            upper = !byte.is_ascii_alphanumeric();
        }
    }
    buffer.extend_from_slice(field.value);
    buffer.extend_from_slice(b"\r\n");
}

/// The usual phrase of a status; empty for one that has none.
fn reason(status: u16) -> &'static str {
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
