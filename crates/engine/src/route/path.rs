//! Makes paths canonical before routes look at them, as Envoy 1.40 does.

use crate::snapshot::http::EscapedSlashes;
use crate::uri::path_end;
use crate::uri::query::hex_value;

/// What is done to a path. Part of the connection manager's configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathRules {
    /// `normalize_path`: RFC 3986 §6.2.2, as browsers do it.
    pub normalize: bool,
    /// `merge_slashes`.
    pub merge_slashes: bool,
    /// `path_with_escaped_slashes_action`.
    pub escaped_slashes: EscapedSlashes,
}

/// What became of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sanitized {
    /// It was canonical.
    Unchanged,
    /// The canonical target is in the buffer.
    Changed,
    /// The client is to be sent to the target in the buffer (307).
    Redirect,
    /// It cannot be made canonical, or has what is to be refused: 400.
    Rejected,
}

impl PathRules {
    /// Makes an origin-form target canonical. A canonical one is only looked at; another is written to `out`,
    /// which is emptied before.
    #[must_use]
    pub fn sanitize(&self, target: &[u8], out: &mut Vec<u8>) -> Sanitized {
        let end = path_end(target);
        let (path, query) = target.split_at(end);
        // RFC 9112 §3.2: a target has no fragment. What is cut here another might not cut.
        if query.contains(&b'#') {
            return Sanitized::Rejected;
        }
        let mut current = path;
        let (mut unescaped, mut normal, mut merged) = (Vec::new(), Vec::new(), Vec::new());
        if self.escaped_slashes != EscapedSlashes::Keep && has_escaped_slash(path) {
            if self.escaped_slashes == EscapedSlashes::Reject {
                return Sanitized::Rejected;
            }
            unescape_slashes(path, &mut unescaped);
            current = &unescaped;
        }
        if self.normalize && !is_normal(current) {
            if !normalize_path(current, &mut normal) {
                return Sanitized::Rejected;
            }
            current = &normal;
        }
        if self.merge_slashes && current.windows(2).any(|pair| pair == b"//") {
            merge_slashes(current, &mut merged);
            current = &merged;
        }
        if std::ptr::eq(current, path) || current == path {
            return Sanitized::Unchanged;
        }
        out.clear();
        out.extend_from_slice(current);
        out.extend_from_slice(query);
        let redirect = self.escaped_slashes == EscapedSlashes::UnescapeAndRedirect;
        if redirect && !unescaped.is_empty() { Sanitized::Redirect } else { Sanitized::Changed }
    }
}

/// The path without `;…` in any of its segments.
#[must_use]
pub(super) fn without_parameters(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    let mut skipping = false;
    for byte in path {
        skipping = (skipping || *byte == b';') && *byte != b'/';
        if !skipping {
            out.push(*byte);
        }
    }
    out
}

fn has_escaped_slash(path: &[u8]) -> bool {
    path.windows(3).any(|escape| slash(escape).is_some())
}

/// What `%2F` or `%5C` stands for.
fn slash(escape: &[u8]) -> Option<u8> {
    match escape {
        b"%2F" | b"%2f" => Some(b'/'),
        b"%5C" | b"%5c" => Some(b'\\'),
        _ => None,
    }
}

fn unescape_slashes(path: &[u8], out: &mut Vec<u8>) {
    let mut at = 0;
    while let Some(byte) = path.get(at) {
        let slash = path.get(at..at + 3).and_then(slash);
        out.push(slash.unwrap_or(*byte));
        at += if slash.is_some() { 3 } else { 1 };
    }
}

/// Whether [`normalize_path`] would change nothing; a quick look that may say no in vain.
fn is_normal(path: &[u8]) -> bool {
    let plain = |byte: &u8| match KIND[usize::from(*byte)] {
        Kind::Unreserved | Kind::Plain => true,
        Kind::Escape => false,
        Kind::Special => *byte == b'/',
    };
    path.iter().all(plain) && !path.windows(2).any(|pair| pair == b"/.")
}

/// Decodes escapes of unreserved characters, escapes what may not stand for itself, turns `\` into `/` and
/// resolves `.` and `..` (with or without parameters). False when the path has an escaped NUL.
fn normalize_path(path: &[u8], out: &mut Vec<u8>) -> bool {
    let mut at = 0;
    while let Some(byte) = path.get(at) {
        at += 1;
        match KIND[usize::from(*byte)] {
            Kind::Unreserved | Kind::Plain => out.push(*byte),
            Kind::Escape => push_escape(out, *byte),
            Kind::Special if *byte == b'%' => {
                let value = match path.get(at..at + 2) {
                    Some([high, low]) => hex_value(*high).zip(hex_value(*low)),
                    _ => None,
                };
                match value.map(|(high, low)| high << 4 | low) {
                    Some(0) => return false,
                    Some(value) if KIND[usize::from(value)] == Kind::Unreserved => {
                        out.push(value);
                        at += 2;
                    }
                    Some(_) | None => out.push(b'%'),
                }
            }
            Kind::Special => {
                if !resolve_dots(out) {
                    out.push(b'/');
                }
            }
        }
    }
    resolve_dots(out);
    true
}

/// Takes away a last segment of `.`, or of `..` with the one before it, so that the path ends with a slash.
fn resolve_dots(out: &mut Vec<u8>) -> bool {
    let Some(slash) = out.iter().rposition(|byte| *byte == b'/') else { return false };
    let name = out[slash + 1..].split(|byte| *byte == b';').next().unwrap_or_default();
    match name {
        b"." => out.truncate(slash + 1),
        b".." => {
            let parent = out[..slash].iter().rposition(|byte| *byte == b'/').unwrap_or(slash);
            out.truncate(parent + 1);
        }
        _ => return false,
    }
    true
}

fn push_escape(out: &mut Vec<u8>, byte: u8) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    out.extend_from_slice(&[b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
}

/// One slash for many; a path of slashes alone keeps two.
fn merge_slashes(path: &[u8], out: &mut Vec<u8>) {
    if path.first() == Some(&b'/') {
        out.push(b'/');
    }
    for (place, part) in path.split(|byte| *byte == b'/').filter(|p| !p.is_empty()).enumerate() {
        if place > 0 {
            out.push(b'/');
        }
        out.extend_from_slice(part);
    }
    if path.last() == Some(&b'/') {
        out.push(b'/');
    }
}

/// What normalisation does with a byte.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Stands for itself, escaped or not.
    Unreserved,
    /// Stays as it is, and its escape too.
    Plain,
    /// Has to be escaped.
    Escape,
    /// `%`, `/` and `\`.
    Special,
}

const KIND: [Kind; 256] = {
    let mut kinds = [Kind::Escape; 256];
    let mut byte = 0x21;
    while byte < 0x7f {
        kinds[byte] = match byte as u8 {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => Kind::Unreserved,
            b'"' | b'<' | b'>' | b'^' | b'`' | b'{' | b'|' | b'}' | b'#' | b'?' => Kind::Escape,
            b'%' | b'\\' | b'/' => Kind::Special,
            _ => Kind::Plain,
        };
        byte += 1;
    }
    kinds
};

#[cfg(test)]
mod tests;
