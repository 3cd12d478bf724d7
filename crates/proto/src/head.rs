//! The head of a message, flat: the bytes it came in, and a list of ranges over them.
//!
//! What a parser found stays where it arrived (`raw`, a slice of the chunk); what is set afterwards is
//! appended to one further buffer (`own`). Every name, value and pseudo-field is a range over one of the
//! two, so a head costs two vectors whatever it holds, and a recycled one costs no allocation.
//!
//! A head never holds what could be read in two ways on the wire: setters refuse names that are not
//! tokens and replace CR, LF and NUL in values by spaces (RFC 9110 §5.5). Fields that belong to one
//! connection (`connection`, `transfer-encoding`, …) are taken out by the codecs; `Host` is
//! [`Head::authority`].

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "well-known names are many: each match means a few and all the others"
)]

mod header_name;
mod known;
mod pool;
mod prepared;
mod types;

use bytes::Bytes;

pub use self::header_name::{HeaderName, InvalidName};
pub(crate) use self::known::KnownLine;
pub use self::pool::{HeadPool, Underscored};
pub use self::prepared::{PreparedField, PreparedFields};
pub(crate) use self::types::{Field, Line, Span};
pub use self::types::{FieldRef, Method, Version};
use crate::chars::{hex, is_scheme, is_token, trim};
use crate::http1::Kept;
use crate::lines::Lines;
use crate::name::Name;

/// A field's colon and line end.
const FIELD_MARKS: usize = 3;

/// The longest name that a field can have; a well-formed one never comes near it.
pub(crate) const MAX_NAME: usize = u16::MAX as usize;

/// The head of a request or response, or a trailer section.
///
/// One pointer to move about; a [`HeadPool`] keeps what it points to for the next message.
#[derive(Clone, Debug, Default)]
pub struct Head(Box<Parts>);

#[derive(Clone, Debug, Default)]
struct Parts {
    raw: Bytes,
    /// What did not arrive, fields as whole lines: those that are added one after the other leave as one piece.
    own: Lines,
    fields: Vec<Field>,
    /// One bit for each `Name` number modulo 64 that was ever present: absent names cost no scan.
    present: u64,
    scheme: Span,
    authority: Span,
    path: Span,
    /// A request's method that is not well known; what a response says behind its status, where that was set.
    other_method: Span,
    status: u16,
    method: Method,
    version: Version,
    foreign: bool,
    kept: Option<Kept>,
}

impl Head {
    /// A request. What is not valid in its place is sanitised or left out as by the setters.
    #[must_use]
    pub fn request(method: &[u8], scheme: &[u8], authority: &[u8], path: &[u8]) -> Self {
        let mut head = Self::default();
        head.set_method(method);
        head.set_scheme(scheme);
        head.set_authority(authority);
        head.set_path(path);
        head
    }

    /// A response.
    #[must_use]
    pub fn response(status: u16) -> Self {
        let mut head = Self::default();
        head.set_status(status);
        head
    }

    /// Empties it, keeps its capacity and lets go of the bytes it came in.
    pub fn reset(&mut self) {
        let Parts {
            raw,
            own,
            fields,
            present,
            scheme,
            authority,
            path,
            other_method,
            status,
            method,
            version,
            foreign,
            kept,
        } = &mut *self.0;
        if !raw.is_empty() {
            *raw = Bytes::new();
        }
        own.clear();
        fields.clear();
        *present = 0;
        (*scheme, *authority, *path, *other_method) = Default::default();
        (*status, *method, *version, *foreign, *kept) = Default::default();
    }

    /// Makes it the same as another, in the room that it has.
    pub fn copy_from(&mut self, other: &Self) {
        let Parts {
            raw,
            own,
            fields,
            present,
            scheme,
            authority,
            path,
            other_method,
            status,
            method,
            version,
            foreign,
            kept,
        } = &*other.0;
        let to = &mut *self.0;
        to.raw = raw.clone();
        to.own.clear();
        to.own.put(own.as_bytes());
        to.fields.clear();
        to.fields.extend_from_slice(fields);
        to.present = *present;
        (to.scheme, to.authority, to.path, to.other_method) =
            (*scheme, *authority, *path, *other_method);
        (to.status, to.method, to.version, to.foreign) = (*status, *method, *version, *foreign);
        to.kept = *kept;
    }

    /// Sets the method; returns false and changes nothing when it is not a token.
    pub fn set_method(&mut self, method: &[u8]) -> bool {
        let known = Method::from_bytes(method);
        if known == Method::Other {
            if !is_token(method) {
                return false;
            }
            self.0.other_method = self.keep(method);
        }
        self.0.method = known;
        true
    }

    /// Sets the scheme; returns false and changes nothing when it is none (RFC 3986 §3.1).
    #[inline]
    pub fn set_scheme(&mut self, scheme: &[u8]) -> bool {
        self.0.scheme = match scheme {
            b"http" => Span::HTTP,
            b"https" => Span::HTTPS,
            other if is_scheme(other) => self.keep(other),
            _ => return false,
        };
        true
    }

    /// Sets the authority: what `Host` or `:authority` says. Bytes that cannot stand in one are dropped.
    pub fn set_authority(&mut self, authority: &[u8]) {
        self.0.authority = self.keep_graphic(authority, |_, _| {});
    }

    /// Sets the path with its query. Bytes that would end it on the wire are percent-encoded.
    pub fn set_path(&mut self, path: &[u8]) {
        self.0.path = self.keep_graphic(path, |byte, own| {
            own.put_array(&[b'%', hex(byte >> 4), hex(byte & 15)]);
        });
    }

    /// Sets the status.
    pub fn set_status(&mut self, status: u16) {
        self.0.status = status;
    }

    /// Sets what a response of HTTP/1 says behind its status (RFC 9112 §4), in the place of what came or is usual; an
    /// empty phrase is for that.
    pub fn set_reason(&mut self, phrase: &[u8]) {
        self.0.other_method = self.keep_value(phrase);
    }

    /// What was set so; of a response alone.
    #[inline]
    pub(crate) fn reason(&self) -> &[u8] {
        self.bytes(self.0.other_method)
    }

    /// Sets the version that the message came in.
    pub fn set_version(&mut self, version: Version) {
        self.0.version = version;
    }

    /// Adds a field after the others. [`Name::Custom`] has no spelling: nothing is added, false returned.
    pub fn append(&mut self, name: Name, value: &[u8]) -> bool {
        if name == Name::Custom {
            return false;
        }
        let field = self.own_line(name, value);
        self.push(field);
        true
    }

    /// Adds a field after the others; returns false and adds nothing when the name is not a token.
    pub fn append_bytes(&mut self, name: &[u8], value: &[u8]) -> bool {
        match Name::resolve(name) {
            Name::Custom => {
                if !is_token(name) || name.len() > MAX_NAME {
                    return false;
                }
                self.append_custom(name, value);
                true
            }
            known => self.append(known, value),
        }
    }

    /// Adds a field by its compiled name.
    pub fn append_named(&mut self, name: &HeaderName, value: &[u8]) {
        match name.name() {
            Name::Custom => self.append_custom(name.as_bytes(), value),
            known => {
                self.append(known, value);
            }
        }
    }

    /// Makes `value` the only value of `name`, in the place of the first; appends when there is none.
    #[inline]
    pub fn set(&mut self, name: Name, value: &[u8]) -> bool {
        if self.0.present & name.bit() == 0 {
            return self.append(name, value);
        }
        self.set_present(name, value)
    }

    /// As [`Head::set`], of a value whose length is known when this is compiled.
    #[inline]
    pub fn set_array<const N: usize>(&mut self, name: Name, value: &[u8; N]) -> bool {
        if name == Name::Custom {
            return false;
        }
        let field = self.own_line(name, value);
        self.place(field);
        true
    }

    fn set_present(&mut self, name: Name, value: &[u8]) -> bool {
        let Some(index) = self.position(name) else { return self.append(name, value) };
        let field = self.own_line(name, value);
        self.0.fields[index] = field;
        self.remove_behind(index, |_, field| field.name == name);
        true
    }

    /// Makes `value` the only value of the name spelt by `name`.
    pub fn set_bytes(&mut self, name: &[u8], value: &[u8]) -> bool {
        match Name::resolve(name) {
            Name::Custom => match self.position_custom(name) {
                Some(index) => {
                    let value = self.keep_value(value);
                    self.0.fields[index].set_value(value);
                    self.remove_behind(index, |head, field| head.is_custom(field, name));
                    true
                }
                None => self.append_bytes(name, value),
            },
            known => self.set(known, value),
        }
    }

    /// Makes `value` the only value of a compiled name.
    pub fn set_named(&mut self, name: &HeaderName, value: &[u8]) {
        match name.name() {
            Name::Custom => self.set_bytes(name.as_bytes(), value),
            known => self.set(known, value),
        };
    }

    /// Removes every field of that name; true when there was one.
    pub fn remove(&mut self, name: Name) -> bool {
        if self.0.present & name.bit() == 0 {
            return false;
        }
        let before = self.0.fields.len();
        self.0.fields.retain(|field| field.name != name || name == Name::Custom);
        self.0.fields.len() != before
    }

    /// Whether there is a field of one of these names: one look when there is none.
    #[must_use]
    #[inline(always)]
    pub fn has_any(&self, names: &[Name]) -> bool {
        let bits = names.iter().fold(0, |bits, name| bits | name.bit());
        self.0.present & bits != 0 && self.has_field(names)
    }

    fn has_field(&self, names: &[Name]) -> bool {
        self.0.fields.iter().any(|field| field.name != Name::Custom && names.contains(&field.name))
    }

    /// Removes every field of each of these names: one look when none of them is there.
    #[inline]
    pub fn remove_each(&mut self, names: &[Name]) {
        let bits = names.iter().fold(0, |bits, name| bits | name.bit());
        if self.0.present & bits != 0 {
            self.0
                .fields
                .retain(|field| field.name == Name::Custom || !names.contains(&field.name));
        }
    }

    /// Removes every field of the name spelt by `name`; true when there was one.
    pub fn remove_bytes(&mut self, name: &[u8]) -> bool {
        match Name::resolve(name) {
            Name::Custom => {
                let before = self.0.fields.len();
                self.retain(|field| {
                    field.name != Name::Custom || !field.name_bytes.eq_ignore_ascii_case(name)
                });
                self.0.fields.len() != before
            }
            known => self.remove(known),
        }
    }

    /// Removes every field of a compiled name; true when there was one.
    pub fn remove_named(&mut self, name: &HeaderName) -> bool {
        match name.name() {
            Name::Custom => self.remove_bytes(name.as_bytes()),
            known => self.remove(known),
        }
    }

    /// Keeps the fields for which `keep` answers true, in their order.
    pub fn retain(&mut self, mut keep: impl FnMut(FieldRef<'_>) -> bool) {
        let mut fields = std::mem::take(&mut self.0.fields);
        fields.retain(|field| keep(self.field_ref(field)));
        self.0.fields = fields;
    }

    /// The method, as far as it is known by number.
    #[must_use]
    #[inline]
    pub fn method(&self) -> Method {
        self.0.method
    }

    /// A request of which nothing could be read: it has no method.
    #[must_use]
    pub fn unread() -> Self {
        let mut head = Self::default();
        head.0.method = Method::Other;
        head
    }

    /// The method as it is written.
    #[must_use]
    pub fn method_bytes(&self) -> &[u8] {
        match self.0.method {
            Method::Other => self.bytes(self.0.other_method),
            known => known.as_str().as_bytes(),
        }
    }

    /// The scheme in lower case; empty when none was received or set.
    #[must_use]
    #[inline]
    pub fn scheme(&self) -> &[u8] {
        match self.0.scheme {
            Span::HTTP => b"http",
            Span::HTTPS => b"https",
            span => self.bytes(span),
        }
    }

    /// What `Host`, the target or `:authority` said; empty when nothing did.
    #[must_use]
    #[inline]
    pub fn authority(&self) -> &[u8] {
        self.bytes(self.0.authority)
    }

    /// The path with its query; `*` for OPTIONS of the server itself, empty for CONNECT.
    #[must_use]
    #[inline]
    pub fn path(&self) -> &[u8] {
        self.bytes(self.0.path)
    }

    /// The status; 0 in a request.
    #[must_use]
    #[inline]
    pub fn status(&self) -> u16 {
        self.0.status
    }

    /// The version that the message came in; HTTP/1.1 when it came from nowhere.
    #[must_use]
    #[inline]
    pub fn version(&self) -> Version {
        self.0.version
    }

    /// The first value of a well-known name.
    #[must_use]
    #[inline(always)]
    pub fn get(&self, name: Name) -> Option<&[u8]> {
        // Most of the names that are asked for are not there: that is told without a call.
        if self.0.present & name.bit() == 0 {
            return None;
        }
        self.first(name)
    }

    fn first(&self, name: Name) -> Option<&[u8]> {
        self.position(name).map(|index| self.bytes(self.0.fields[index].value()))
    }

    /// The value of a well-known name that stands there once.
    #[inline]
    pub(crate) fn only(&self, name: Name) -> Option<&[u8]> {
        if self.0.present & name.bit() == 0 || name == Name::Custom {
            return None;
        }
        let mut fields = self.0.fields.iter();
        let only = fields.find(|field| field.name == name)?;
        fields.all(|field| field.name != name).then(|| self.bytes(only.value()))
    }

    /// The first value of the name spelt by `name`, in any case.
    #[must_use]
    pub fn get_bytes(&self, name: &[u8]) -> Option<&[u8]> {
        match Name::resolve(name) {
            Name::Custom => {
                self.position_custom(name).map(|index| self.bytes(self.0.fields[index].value()))
            }
            known => self.get(known),
        }
    }

    /// Its names are another protocol's, pushed as [`Name::Custom`]: none of them means what it means in HTTP, but a
    /// caller that has a [`HeaderName`] finds it by its letters.
    pub(crate) fn set_foreign(&mut self) {
        self.0.foreign = true;
    }

    /// The first value of a compiled name.
    #[must_use]
    pub fn get_named(&self, name: &HeaderName) -> Option<&[u8]> {
        match self.meaning(name) {
            Name::Custom => {
                let index = self.position_custom(name.as_bytes())?;
                Some(self.bytes(self.0.fields[index].value()))
            }
            known => self.get(known),
        }
    }

    fn meaning(&self, name: &HeaderName) -> Name {
        if self.0.foreign { Name::Custom } else { name.name() }
    }

    /// All values of a compiled name, in their order.
    pub fn get_all<'a>(&'a self, name: &'a HeaderName) -> impl Iterator<Item = &'a [u8]> {
        let meaning = self.meaning(name);
        self.0
            .fields
            .iter()
            .filter(move |field| match meaning {
                Name::Custom => self.is_custom(field, name.as_bytes()),
                known => field.name == known,
            })
            .map(|field| self.bytes(field.value()))
    }

    /// All values of a well-known name, in their order.
    pub fn values(&self, name: Name) -> impl Iterator<Item = &[u8]> {
        let fields = if self.0.present & name.bit() == 0 { &[] } else { &self.0.fields[..] };
        fields
            .iter()
            .filter(move |field| field.name == name && name != Name::Custom)
            .map(|field| self.bytes(field.value()))
    }

    /// All fields in their order, names in the case in which they came.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = FieldRef<'_>> {
        self.0.fields.iter().map(|field| self.field_ref(field))
    }

    /// How many fields there are, pseudo-fields not counted.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.fields.len()
    }

    /// Whether there is no field.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.fields.is_empty()
    }

    /// The size as Envoy counts it: the lengths of all names and values, pseudo-fields included.
    #[must_use]
    pub fn byte_size(&self) -> usize {
        let pseudo = |name: &str, length: usize| if length == 0 { 0 } else { name.len() + length };
        self.field_bytes()
            + pseudo(":method", if self.status() == 0 { self.method_bytes().len() } else { 0 })
            + pseudo(":scheme", self.scheme().len())
            + pseudo(":authority", self.authority().len())
            + pseudo(":path", self.path().len())
            + pseudo(":status", if self.0.status == 0 { 0 } else { 3 })
    }

    /// The same without pseudo-fields, as of trailers.
    #[must_use]
    pub fn field_bytes(&self) -> usize {
        self.iter().map(|field| field.name_bytes.len() + field.value.len()).sum()
    }

    /// Begins a request as a parser found it; the target stands in for the path until it is taken apart.
    #[inline]
    pub(crate) fn begin_request(
        &mut self,
        method: Method,
        spelling: Span,
        target: Span,
        version: Version,
    ) {
        self.0.method = method;
        self.0.other_method = spelling;
        self.0.path = target;
        self.0.version = version;
    }

    /// How many bytes its fields took as they came over HTTP/1, as Envoy counts them: names, values, colons and line
    /// ends without other white space. 0 of a head that came otherwise.
    #[must_use]
    pub fn received_bytes(&self) -> u64 {
        self.received().map(|(name, value)| (name.len() + value.len() + FIELD_MARKS) as u64).sum()
    }

    /// Names and values as they came over HTTP/1, also of fields that are not kept. None of a head that came otherwise.
    pub fn received(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let lines = self.0.raw.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        // The line of a request may have a colon too.
        let first = lines.clone().position(|line| !line.is_empty()).unwrap_or(0);
        lines.skip(first + 1).filter_map(|line| {
            let colon = line.iter().position(|byte| *byte == b':')?;
            Some((&line[..colon], line[colon + 1..].trim_ascii()))
        })
    }

    /// Gives it the bytes that the parser's ranges are about.
    #[inline]
    pub(crate) fn attach(&mut self, raw: Bytes) {
        self.0.raw = raw;
    }

    /// What of it leaves as it came.
    #[inline]
    pub(crate) fn kept(&self) -> Option<Kept> {
        self.0.kept
    }

    /// Has nothing of it leave as it came: names are written as the side is told to on which it leaves.
    pub fn forget_spelling(&mut self) {
        self.0.kept = None;
    }

    /// Has something of it leave as it came.
    pub(crate) fn set_kept(&mut self, kept: Kept) {
        self.0.kept = Some(kept);
    }

    /// The bytes it came in.
    pub(crate) fn raw(&self) -> &Bytes {
        &self.0.raw
    }

    /// Where the path is.
    pub(crate) fn path_span(&self) -> Span {
        self.0.path
    }

    pub(crate) fn set_authority_span(&mut self, span: Span) {
        self.0.authority = span;
    }

    pub(crate) fn set_path_span(&mut self, span: Span) {
        self.0.path = span;
    }

    /// Adds a field as a parser found it.
    #[inline]
    pub(crate) fn push(&mut self, field: Field) {
        self.0.present |= field.name.bit();
        self.0.fields.push(field);
    }

    /// Adds a field that is not taken for a well-known one, whatever its name; the caller knows that the name is a
    /// token.
    pub(crate) fn append_custom(&mut self, name: &[u8], value: &[u8]) {
        // Only received lines have their names made small as they are copied.
        let as_written = !name.iter().any(u8::is_ascii_uppercase);
        let name = self.keep(name);
        self.0.own.put_array(b": ");
        let value = self.keep_value(value);
        self.0.own.put_array(b"\r\n");
        self.push(Field::line(Name::Custom, name, value, as_written));
    }

    /// Adds a field after the others whose value is as RFC 9113 §8.2.1 has it: it neither ends a line for any reader
    /// nor has blanks around it. The name has a spelling.
    #[inline]
    pub(crate) fn append_valid(&mut self, name: Name, value: &[u8]) {
        debug_assert!(name != Name::Custom && trim(value) == value, "{name:?} {value:?}");
        let start = self.0.own.put_line(name, value);
        self.push(Field::own_line(name, Span::own(start, start + value.len())));
    }

    /// Sets an authority that is one.
    #[inline]
    pub(crate) fn set_valid_authority(&mut self, authority: &[u8]) {
        self.0.authority = self.keep(authority);
    }

    /// Sets a path in which every byte can stand.
    #[inline]
    pub(crate) fn set_valid_path(&mut self, path: &[u8]) {
        self.0.path = self.keep(path);
    }

    /// The value of one of its fields.
    #[inline(always)]
    pub(crate) fn value_of(&self, field: &Field) -> &[u8] {
        self.bytes(field.value())
    }

    /// The name of one of its fields that is not a well-known one.
    pub(crate) fn name_of(&self, field: &Field) -> &[u8] {
        self.bytes(field.name_span())
    }

    /// The field that was added last enters no table of HPACK's.
    pub(crate) fn mark_never_indexed(&mut self) {
        if let Some(field) = self.0.fields.last_mut() {
            field.set_never_indexed();
        }
    }

    /// The fields as they lie.
    #[inline]
    pub(crate) fn fields(&self) -> &[Field] {
        &self.0.fields
    }

    /// The bytes of a line, or of some that lie side by side.
    #[inline(always)]
    pub(crate) fn line_bytes(&self, line: Line) -> &[u8] {
        self.bytes(Span { at: line.start, len: line.end - line.start })
    }

    /// Sets the path `/first/second`, or `/first` when there is no second.
    pub(crate) fn set_path_parts(&mut self, first: &[u8], second: &[u8]) {
        let start = self.0.own.len();
        self.0.own.put_array(b"/");
        for (index, part) in [first, second].into_iter().enumerate() {
            if index > 0 && !part.is_empty() {
                self.0.own.put_array(b"/");
            }
            self.keep_graphic(part, |byte, own| {
                own.put_array(&[b'%', hex(byte >> 4), hex(byte & 15)]);
            });
        }
        self.0.path = Span::own(start, self.0.own.len());
    }

    fn capacity(&self) -> usize {
        self.0.own.capacity() + self.0.fields.capacity() * size_of::<Field>()
    }

    fn position(&self, name: Name) -> Option<usize> {
        if self.0.present & name.bit() == 0 || name == Name::Custom {
            return None;
        }
        self.0.fields.iter().position(|field| field.name == name)
    }

    fn position_custom(&self, name: &[u8]) -> Option<usize> {
        self.0.fields.iter().position(|field| self.is_custom(field, name))
    }

    fn is_custom(&self, field: &Field, name: &[u8]) -> bool {
        field.name == Name::Custom && self.bytes(field.name_span()).eq_ignore_ascii_case(name)
    }

    /// Removes the fields behind `index` for which `same` holds.
    fn remove_behind(&mut self, index: usize, same: impl Fn(&Self, &Field) -> bool) {
        if !self.0.fields[index + 1..].iter().any(|field| same(self, field)) {
            return;
        }
        let mut fields = std::mem::take(&mut self.0.fields);
        let mut at = 0;
        fields.retain(|field| {
            at += 1;
            at <= index + 1 || !same(self, field)
        });
        self.0.fields = fields;
    }

    #[inline(always)]
    pub(crate) fn field_ref(&self, field: &Field) -> FieldRef<'_> {
        let name_bytes = self.bytes(field.name_span());
        let value = self.bytes(field.value());
        let never_indexed = field.is_never_indexed();
        FieldRef { name: field.name, name_bytes, value, never_indexed }
    }

    #[inline(always)]
    fn bytes(&self, span: Span) -> &[u8] {
        match span.own_range() {
            None => &self.0.raw[span.raw_range()],
            Some(range) => &self.0.own.as_bytes()[range],
        }
    }

    fn keep(&mut self, bytes: &[u8]) -> Span {
        let start = self.0.own.len();
        self.0.own.put(bytes);
        Span::own(start, self.0.own.len())
    }

    fn keep_value(&mut self, value: &[u8]) -> Span {
        let value = trim(value);
        let kept = self.keep(value);
        blank_breaks(self.0.own.from(self.0.own.len() - value.len()));
        kept
    }

    /// Keeps a line with a well-known name.
    #[inline(always)]
    fn own_line(&mut self, name: Name, value: &[u8]) -> Field {
        let value = match value {
            [b' ' | b'\t', ..] | [.., b' ' | b'\t'] => trim(value),
            clean => clean,
        };
        let start = self.0.own.put_line(name, value);
        let end = start + value.len();
        if self.0.own.breaks_line(start, value.len()) {
            blank_breaks(&mut self.0.own.from(start)[..value.len()]);
        }
        Field::own_line(name, Span::own(start, end))
    }

    /// Keeps visible ASCII without `#`, which no target has (RFC 9112 §3.2); `other` may write something for any other
    /// byte.
    fn keep_graphic(&mut self, bytes: &[u8], mut other: impl FnMut(u8, &mut Lines)) -> Span {
        let stays = |byte: u8| byte.is_ascii_graphic() & (byte != b'#');
        if bytes.iter().fold(true, |all, &byte| all & stays(byte)) {
            return self.keep(bytes);
        }
        let start = self.0.own.len();
        for &byte in bytes {
            if stays(byte) {
                self.0.own.put_array(&[byte]);
            } else {
                other(byte, &mut self.0.own);
            }
        }
        Span::own(start, self.0.own.len())
    }
}

/// Whether a byte could end a line for some reader (RFC 9110 §5.5).
const fn is_break(byte: u8) -> bool {
    matches!(byte, b'\r' | b'\n' | 0)
}

/// Puts blanks in their place.
fn blank_breaks(value: &mut [u8]) {
    value.iter_mut().filter(|byte| is_break(**byte)).for_each(|byte| *byte = b' ');
}

#[cfg(test)]
mod tests;
