//! The tokenizer: a head or a trailer section, line by line.
//!
//! Bytes arrive as one slice that begins where the section begins and grows between calls. Ranges over
//! it leave, in a [`Head`], and the few facts that framing needs, in [`Facts`].
//!
//! Each line is tried on a fast path, which accepts only what is right and whole. Whatever it does not
//! take goes to [`Cursor::judge`], which finds out whether the line is incomplete or what is wrong with
//! it. So the fast path need not tell errors apart, and the slow one can accept nothing. Judgement
//! waits for the end of the line: the answer does not depend on how the bytes were cut.

use std::ops::Range;

use super::error::Error;
use super::facts::Facts;
use super::options::{Options, Underscores};
use super::scan::{self, Window};
use crate::chars::{has_underscore, is_scheme, is_token, is_token_within};
use crate::head::{Field, Head, HeadPool, KnownLine, Method, Span, Version};
use crate::name::Name;

/// Which line opens the section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opening {
    RequestLine,
    StatusLine,
    /// A trailer section has none.
    Nothing,
}

/// How far a call came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// The section ends before this offset.
    Whole(usize),
    /// More bytes are needed.
    Partial,
}

/// Where parsing stands between two calls.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor {
    /// The start of the first line that is not taken yet.
    line: usize,
    /// Up to here that line is known to hold no control character.
    scanned: usize,
    fields: u32,
    opening: Opening,
}

impl Cursor {
    pub(super) const fn new(opening: Opening) -> Self {
        Self { line: 0, scanned: 0, fields: 0, opening }
    }

    /// Whether no byte of the message itself was seen in `bytes`: nothing, or empty lines.
    pub(super) fn is_fresh(&self, bytes: &[u8]) -> bool {
        self.opening == Opening::RequestLine && matches!(bytes[self.line..], [] | [b'\r'])
    }

    /// Takes every whole line of `bytes`.
    #[inline]
    pub(super) fn advance(
        &mut self,
        bytes: &[u8],
        head: &mut Head,
        facts: &mut Facts,
        options: &Options,
        pool: &mut HeadPool,
    ) -> Result<Progress, Error> {
        let limit = options.head_limit();
        if self.scanned > self.line {
            // Bytes of an incomplete line were seen before: look only at what is new.
            if let Some(progress) = self.end_of_line(bytes, limit)?.waiting() {
                return Ok(progress);
            }
        }
        if self.opening != Opening::Nothing
            && let Some(progress) = self.opening_line(bytes, head, limit, options)?
        {
            return Ok(progress);
        }
        loop {
            if bytes.get(self.line) == Some(&b'\r') && bytes.get(self.line + 1) == Some(&b'\n') {
                let end = self.line + 2;
                return if end > limit {
                    Err(Error::HeadTooLarge)
                } else {
                    Ok(Progress::Whole(end))
                };
            }
            let known = bytes.get(self.line..).and_then(|it| pool.lines.find(it, self.fields));
            if let Some(known) = known {
                self.take_known(known, bytes, head, facts, options, limit)?;
            } else if let Some(progress) = self.new_line(bytes, head, facts, options, pool)? {
                return Ok(progress);
            }
        }
    }

    /// Takes a line that did not come before, or finds out why it is none.
    #[inline(never)]
    fn new_line(
        &mut self,
        bytes: &[u8],
        head: &mut Head,
        facts: &mut Facts,
        options: &Options,
        pool: &mut HeadPool,
    ) -> Result<Option<Progress>, Error> {
        let Some(field) = FieldLine::parse(bytes, self.line) else {
            return self.rare_line(bytes, head, facts, options);
        };
        field.keep(bytes, self.line, self.fields, pool);
        self.take(&field, bytes, head, facts, options, options.head_limit())?;
        Ok(None)
    }

    /// Takes a line that is longer than a window before its value, or finds out why it is none.
    #[cold]
    fn rare_line(
        &mut self,
        bytes: &[u8],
        head: &mut Head,
        facts: &mut Facts,
        options: &Options,
    ) -> Result<Option<Progress>, Error> {
        let limit = options.head_limit();
        match FieldLine::parse_any(bytes, self.line) {
            Some(field) => self.take(&field, bytes, head, facts, options, limit).map(|()| None),
            None => self.judge(bytes, limit, options, judge_field).map(Some),
        }
    }

    /// Takes a line that came before.
    #[inline(always)]
    fn take_known(
        &mut self,
        known: KnownLine,
        bytes: &[u8],
        head: &mut Head,
        facts: &mut Facts,
        options: &Options,
        limit: usize,
    ) -> Result<(), Error> {
        let next = self.line + known.length;
        if next > limit {
            return Err(Error::HeadTooLarge);
        }
        self.fields += 1;
        if self.fields > options.max_fields {
            return Err(Error::TooManyFields);
        }
        let field = known.field.moved(self.line);
        self.line = next;
        if !field.name.is_framing() || facts.note(field.name, field.value(), bytes)? {
            head.push(field);
        }
        Ok(())
    }

    #[inline(always)]
    fn take(
        &mut self,
        field: &FieldLine,
        bytes: &[u8],
        head: &mut Head,
        facts: &mut Facts,
        options: &Options,
        limit: usize,
    ) -> Result<(), Error> {
        if field.next > limit {
            return Err(Error::HeadTooLarge);
        }
        self.fields += 1;
        if self.fields > options.max_fields {
            return Err(Error::TooManyFields);
        }
        field.put(bytes, self.line, head, facts, options)?;
        self.line = field.next;
        Ok(())
    }

    /// Takes the request or status line; answers what to return if it is not there yet.
    #[inline]
    fn opening_line(
        &mut self,
        bytes: &[u8],
        head: &mut Head,
        limit: usize,
        options: &Options,
    ) -> Result<Option<Progress>, Error> {
        let next = match self.opening {
            Opening::RequestLine => {
                // RFC 9112 §2.2: empty lines before a request line are ignored. The head's limit counts them.
                while bytes[self.line..].starts_with(b"\r\n") {
                    self.line += 2;
                }
                let next = request_line(bytes, self.line, head);
                next.or_else(|| line_with_fragment(bytes, self.line, head, options))
            }
            Opening::StatusLine => status_line(bytes, self.line, head),
            Opening::Nothing => return Ok(None),
        };
        let judge = match self.opening {
            Opening::RequestLine => judge_request_line,
            Opening::StatusLine | Opening::Nothing => judge_status_line,
        };
        let Some(next) = next else {
            return self.judge(bytes, limit, options, judge).map(Some);
        };
        if next > limit {
            return Err(Error::HeadTooLarge);
        }
        if head.method() == Method::Other
            && !options.allow_custom_methods
            && !is_known_method(&bytes[self.line..])
        {
            return Err(Error::UnknownMethod);
        }
        self.line = next;
        self.opening = Opening::Nothing;
        Ok(None)
    }

    /// Says why the current line was not taken: it is incomplete, or wrong.
    #[cold]
    fn judge(
        &mut self,
        bytes: &[u8],
        limit: usize,
        options: &Options,
        judge: fn(&[u8], &Options) -> Error,
    ) -> Result<Progress, Error> {
        match self.end_of_line(bytes, limit)? {
            LineEnd::At(end) => Err(judge(&bytes[self.line..end], options)),
            LineEnd::Beyond => Ok(Progress::Partial),
        }
    }

    /// Finds the end of the current line, or what makes it impossible.
    fn end_of_line(&mut self, bytes: &[u8], limit: usize) -> Result<LineEnd, Error> {
        let Some(at) = scan::control(bytes, self.line.max(self.scanned)) else {
            self.scanned = bytes.len();
            return if bytes.len() > limit {
                Err(Error::HeadTooLarge)
            } else {
                Ok(LineEnd::Beyond)
            };
        };
        if at >= limit {
            return Err(Error::HeadTooLarge);
        }
        match (bytes[at], bytes.get(at + 1)) {
            (b'\r', Some(b'\n')) if at + 1 < limit => Ok(LineEnd::At(at)),
            (b'\r', Some(b'\n')) => Err(Error::HeadTooLarge),
            (b'\r', None) => {
                self.scanned = at;
                Ok(LineEnd::Beyond)
            }
            (b'\r', Some(_)) if at + 1 >= limit => Err(Error::HeadTooLarge),
            (b'\r', Some(_)) => Err(Error::BareCr),
            (b'\n', _) => Err(Error::BareLf),
            _ => Err(Error::ControlCharacter),
        }
    }
}

enum LineEnd {
    /// CR stands here and LF behind it.
    At(usize),
    /// It has not arrived.
    Beyond,
}

impl LineEnd {
    const fn waiting(self) -> Option<Progress> {
        match self {
            Self::At(_) => None,
            Self::Beyond => Some(Progress::Partial),
        }
    }
}

/// A field line that is right and whole.
struct FieldLine {
    name: Name,
    colon: usize,
    value: Span,
    /// Where the next line begins.
    next: usize,
    /// `name: value CRLF` and nothing else: what is written for it, but for the case of its name.
    as_written: bool,
}

impl FieldLine {
    /// Lets it be known by its bytes from now on.
    #[inline]
    fn keep(&self, bytes: &[u8], start: usize, number: u32, pool: &mut HeadPool) {
        if self.as_written {
            pool.lines.keep(&bytes[start..self.next], self.name, number);
        }
    }

    /// A line whose name ends within the window.
    #[inline(always)]
    fn parse(bytes: &[u8], start: usize) -> Option<Self> {
        let window = Window::new(bytes.get(start..)?);
        let length = window.colons.trailing_zeros() as usize;
        // The colon and what decides whether one space follows lie within the window: the rule.
        if length + 2 >= Window::LENGTH {
            return None;
        }
        let name = Name::resolve_within(&window.bytes, length);
        if name == Name::Custom && !is_token_within(&window.bytes, length) {
            return None;
        }
        let one_space =
            window.bytes[length + 1] == b' ' && !matches!(window.bytes[length + 2], b' ' | b'\t');
        let colon = start + length;
        let controls = window.controls >> length;
        let cr = if controls == 0 {
            scan::control(bytes, start + Window::LENGTH)?
        } else {
            colon + controls.trailing_zeros() as usize
        };
        let from = if one_space { colon + 2 } else { value_start(bytes, colon) };
        Self::up_to(bytes, (name, colon), (from, one_space), cr)
    }

    /// A line with any name.
    fn parse_any(bytes: &[u8], start: usize) -> Option<Self> {
        let colon = scan::colon(bytes, start)?;
        let spelling = &bytes[start..colon];
        let name = Name::resolve(spelling);
        if name == Name::Custom && (!is_token(spelling) || spelling.len() > crate::head::MAX_NAME) {
            return None;
        }
        let from = value_start(bytes, colon);
        let one_space = from == colon + 2 && bytes[colon + 1] == b' ';
        Self::up_to(bytes, (name, colon), (from, one_space), scan::control(bytes, from)?)
    }

    /// The line if `cr` is its end; `one_space` says whether that is all between colon and value.
    #[inline(always)]
    fn up_to(
        bytes: &[u8],
        (name, colon): (Name, usize),
        (from, one_space): (usize, bool),
        cr: usize,
    ) -> Option<Self> {
        if bytes[cr] != b'\r' || bytes.get(cr + 1) != Some(&b'\n') {
            return None;
        }
        let end = match bytes[cr - 1] {
            b' ' | b'\t' => value_end(bytes, from, cr),
            _ => cr,
        };
        let as_written = one_space && end == cr;
        Some(Self { name, colon, value: Span::raw(from, end), next: cr + 2, as_written })
    }

    #[inline(always)]
    fn put(
        &self,
        bytes: &[u8],
        start: usize,
        head: &mut Head,
        facts: &mut Facts,
        options: &Options,
    ) -> Result<(), Error> {
        let spelling = Span::raw(start, self.colon);
        if self.name.is_framing() {
            if !facts.note(self.name, self.value, bytes)? {
                return Ok(());
            }
        } else if self.name == Name::Custom
            && options.underscores != Underscores::Allow
            && has_underscore(&bytes[start..self.colon])
        {
            return match options.underscores {
                Underscores::Reject => Err(Error::Underscore),
                Underscores::Drop | Underscores::Allow => {
                    facts.underscored += 1;
                    Ok(())
                }
            };
        }
        head.push(Field::line(self.name, spelling, self.value, self.as_written));
        Ok(())
    }
}

/// Behind the white space that follows the colon.
fn value_start(bytes: &[u8], colon: usize) -> usize {
    let mut from = colon + 1;
    while let Some(b' ' | b'\t') = bytes.get(from) {
        from += 1;
    }
    from
}

/// Before the white space in front of CR.
#[cold]
fn value_end(bytes: &[u8], from: usize, mut end: usize) -> usize {
    while end > from && matches!(bytes[end - 1], b' ' | b'\t') {
        end -= 1;
    }
    end
}

/// RFC 9112 §3: `method SP request-target SP HTTP-version CRLF`. Answers where the next line begins.
#[inline]
fn request_line(bytes: &[u8], start: usize, head: &mut Head) -> Option<usize> {
    let line = &bytes[start..];
    if line.starts_with(b"GET ") {
        return target_line(bytes, start, 3, Method::Get, head);
    }
    let (space, method) = method_of(line)?;
    target_line(bytes, start, space, method, head)
}

/// The method of a request line, and where it ends.
#[inline]
fn method_of(line: &[u8]) -> Option<(usize, Method)> {
    let space = line.iter().take(MAX_METHOD + 1).position(|&byte| byte == b' ')?;
    let method = Method::from_bytes(&line[..space]);
    (method != Method::Other || is_token(&line[..space])).then_some((space, method))
}

/// The request line behind its method, which ends at `space`.
#[inline]
fn target_line(
    bytes: &[u8],
    start: usize,
    space: usize,
    method: Method,
    head: &mut Head,
) -> Option<usize> {
    let target = start + space + 1;
    let end = scan::target_end(bytes, target)?;
    begin_request(bytes, start..start + space, target..end, end, method, head)
}

/// Takes a method and a target, if a version follows at `behind`.
#[inline]
fn begin_request(
    bytes: &[u8],
    name: Range<usize>,
    target: Range<usize>,
    behind: usize,
    method: Method,
    head: &mut Head,
) -> Option<usize> {
    let line = bytes[behind..].first_chunk::<11>()?;
    let version = if line == b" HTTP/1.1\r\n" {
        Version::Http11
    } else if line == b" HTTP/1.0\r\n" {
        Version::Http10
    } else {
        return None;
    };
    if target.is_empty() {
        return None;
    }
    let (name, target) = (Span::raw(name.start, name.end), Span::raw(target.start, target.end));
    head.begin_request(method, name, target, version);
    Some(behind + 11)
}

/// A request line whose target has a fragment, which is left out where that is asked for.
#[cold]
fn line_with_fragment(
    bytes: &[u8],
    start: usize,
    head: &mut Head,
    options: &Options,
) -> Option<usize> {
    if !options.cut_fragment {
        return None;
    }
    let (space, method) = method_of(&bytes[start..])?;
    let target = start + space + 1;
    let mark = scan::target_end(bytes, target).filter(|&end| bytes[end] == b'#')?;
    let length = bytes[mark..].iter().position(|byte| !byte.is_ascii_graphic())?;
    begin_request(bytes, start..start + space, target..mark, mark + length, method, head)
}

/// RFC 9112 §4: `HTTP-version SP status-code SP [ reason-phrase ] CRLF`; the second space may be
/// missing with the reason, as many servers have it. Answers where the next line begins.
#[inline]
fn status_line(bytes: &[u8], start: usize, head: &mut Head) -> Option<usize> {
    const OK: &[u8; 17] = b"HTTP/1.1 200 OK\r\n";
    if bytes.get(start..)?.first_chunk() == Some(OK) {
        head.set_status(200);
        head.set_version(Version::Http11);
        return Some(start + OK.len());
    }
    let line = bytes.get(start..start + 13)?;
    let version = match &line[..9] {
        b"HTTP/1.1 " => Version::Http11,
        b"HTTP/1.0 " => Version::Http10,
        _ => return None,
    };
    let digits = &line[9..12];
    if !digits.iter().all(u8::is_ascii_digit)
        || digits[0] == b'0'
        || !matches!(line[12], b' ' | b'\r')
    {
        return None;
    }
    let status = digits.iter().fold(0, |sum, digit| sum * 10 + u16::from(digit - b'0'));
    let cr = scan::control(bytes, start + 12)?;
    if bytes.get(cr..cr + 2) != Some(b"\r\n") {
        return None;
    }
    head.set_status(status);
    head.set_version(version);
    Some(cr + 2)
}

fn judge_request_line(line: &[u8], _: &Options) -> Error {
    let Some(first) = line.iter().position(|&byte| byte == b' ') else {
        return Error::BadRequestLine;
    };
    let Some(last) = line.iter().rposition(|&byte| byte == b' ') else {
        return Error::BadRequestLine;
    };
    let method = &line[..first];
    if method.is_empty() {
        return Error::BadRequestLine;
    }
    if !is_token(method) || method.len() > MAX_METHOD {
        return Error::BadMethod;
    }
    if first == last {
        return Error::BadRequestLine;
    }
    match &line[last + 1..] {
        b"HTTP/1.1" | b"HTTP/1.0" => {}
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            return Error::UnsupportedVersion;
        }
        _ => return Error::BadVersion,
    }
    if line[first..last].contains(&b'#') { Error::FragmentInTarget } else { Error::BadTarget }
}

fn judge_status_line(_: &[u8], _: &Options) -> Error {
    Error::BadStatusLine
}

fn judge_field(line: &[u8], _: &Options) -> Error {
    if let [b' ' | b'\t', ..] = line {
        return Error::ObsoleteFolding;
    }
    let Some(colon) = line.iter().position(|&byte| byte == b':') else {
        return Error::MissingColon;
    };
    match &line[..colon] {
        [] => Error::EmptyName,
        [.., b' ' | b'\t'] => Error::SpaceBeforeColon,
        name if is_token(name) => Error::HeadTooLarge,
        _ => Error::BadName,
    }
}

/// The four forms of a target (RFC 9112 §3.2), as ranges over the bytes from `start`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target<'a> {
    Origin,
    Absolute { scheme: &'a [u8], authority: &'a [u8], path: &'a [u8] },
    Authority,
    Asterisk,
}

impl<'a> Target<'a> {
    pub(super) fn parse(method: Method, target: &'a [u8]) -> Option<Self> {
        match (method, target) {
            // RFC 9112 §3.2.3: authority-form is for CONNECT, and CONNECT has no other.
            (Method::Connect, _) => Some(Self::Authority),
            (_, [b'/', ..]) => Some(Self::Origin),
            (Method::Options, b"*") => Some(Self::Asterisk),
            _ => {
                let colon = target.iter().position(|&byte| byte == b':')?;
                let (scheme, rest) = (&target[..colon], target[colon + 1..].strip_prefix(b"//")?);
                let end =
                    rest.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(rest.len());
                is_scheme(scheme).then_some(Self::Absolute {
                    scheme,
                    authority: &rest[..end],
                    path: &rest[end..],
                })
            }
        }
    }
}

/// Longer than every method in use; what is longer is not worth looking at.
const MAX_METHOD: usize = 64;

/// Methods of the IANA registry and of WebDAV's, UPnP's and caches' kin that Envoy takes too, beside the nine that
/// have a [`Method`] of their own.
#[cold]
fn is_known_method(line: &[u8]) -> bool {
    const KNOWN: [&[u8]; 25] = [
        b"ACL",
        b"BIND",
        b"CHECKOUT",
        b"COPY",
        b"LINK",
        b"LOCK",
        b"MERGE",
        b"MKACTIVITY",
        b"MKCALENDAR",
        b"MKCOL",
        b"MOVE",
        b"MSEARCH",
        b"NOTIFY",
        b"PROPFIND",
        b"PROPPATCH",
        b"PURGE",
        b"REBIND",
        b"REPORT",
        b"SEARCH",
        b"SOURCE",
        b"SUBSCRIBE",
        b"UNBIND",
        b"UNLINK",
        b"UNLOCK",
        b"UNSUBSCRIBE",
    ];
    let method = line.split(|&byte| byte == b' ').next().unwrap_or_default();
    KNOWN.binary_search(&method).is_ok()
}
