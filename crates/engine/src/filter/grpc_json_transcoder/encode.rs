//! JSON to messages of Protocol Buffers, by the rules of the converter that Envoy has: members are written in their
//! order, also where they are zero or come twice, and what is unknown is left out.
//!
//! What is wrong does not end it: the last error is told, as Envoy tells it, with the place in the message.

#![expect(clippy::wildcard_enum_match_arm, reason = "JSON will have no other values")]

use std::collections::BTreeSet;

use super::json::{Json, Members};
use super::scalar;
use super::schema::{EnumType, Field, Kind, Known, MessageId, MessageType, Schema};
use super::wire::{put_bytes, put_tag, put_varint};

/// Writes a message.
///
/// # Errors
/// The last one that is wrong.
pub(super) fn encode(
    schema: &Schema,
    id: MessageId,
    value: &Json,
    in_any_case: bool,
    out: &mut Vec<u8>,
) -> Result<(), String> {
    let name = &schema.message(id).name;
    let mut encoder = Encoder { schema, name, in_any_case, frames: Vec::new(), error: Ok(()) };
    encoder.root(id, value, out);
    encoder.error
}

struct Encoder<'a> {
    schema: &'a Schema,
    /// What the whole is called.
    name: &'a str,
    /// Names of enums are looked for in upper case too.
    in_any_case: bool,
    frames: Vec<Frame>,
    error: Result<(), String>,
}

/// A place that is being written, for errors.
struct Frame {
    field: Box<str>,
    is_repeated: bool,
    /// It is an item of the list before it.
    is_item: bool,
    /// How many items it has, of a list.
    items: Option<u32>,
}

impl<'a> Encoder<'a> {
    fn root(&mut self, id: MessageId, value: &Json, out: &mut Vec<u8>) {
        let known = self.schema.message(id).known;
        match (value, known) {
            (Json::Object(members), _) => self.object(id, members, out),
            (Json::List(_), Known::Value | Known::List) => self.listed(id, value, out),
            (Json::List(_), _) => self.wrong("Root element must be a message."),
            (scalar, _) => match self.render(id, scalar, out) {
                None => self.wrong("Root element must be a message."),
                Some(Ok(())) => {}
                Some(Err(error)) => {
                    let name = self.schema.message(id).name.clone();
                    self.invalid(&name, &format!("Field '', {error}"));
                }
            },
        }
    }

    /// An object in the place of a message.
    fn object(&mut self, id: MessageId, members: &Members, out: &mut Vec<u8>) {
        let kind = self.schema.message(id);
        match kind.known {
            Known::Any => self.any(members, out),
            Known::Struct => {
                if let Some(fields) = kind.numbered(1) {
                    self.map(fields, members, out);
                }
            }
            Known::Value => self.inside(kind.numbered(5), out, |encoder, id, out| {
                encoder.object(id, members, out);
            }),
            Known::No
            | Known::Duration
            | Known::FieldMask
            | Known::List
            | Known::Timestamp
            | Known::Wrapper => self.message(kind, members, out),
        }
    }

    /// A list in the place of a `Value` or a `ListValue`.
    fn listed(&mut self, id: MessageId, list: &Json, out: &mut Vec<u8>) {
        let kind = self.schema.message(id);
        if kind.known == Known::Value {
            return self.inside(kind.numbered(6), out, |encoder, id, out| {
                encoder.listed(id, list, out);
            });
        }
        if let (Some(values), Json::List(items)) = (kind.numbered(1), list) {
            self.list(kind, values, items, false, out);
        }
    }

    /// A message in a field of another.
    fn inside(
        &mut self,
        field: Option<&Field>,
        out: &mut Vec<u8>,
        write: impl FnOnce(&mut Self, MessageId, &mut Vec<u8>),
    ) {
        let Some(Field { kind: Kind::Message(id), .. }) = field else { return };
        let Some(field) = field else { return };
        self.push(field);
        let mut inner = Vec::new();
        write(self, *id, &mut inner);
        self.frames.pop();
        put_bytes(field.number, &inner, out);
    }

    fn message(&mut self, kind: &'a MessageType, members: &Members, out: &mut Vec<u8>) {
        let mut oneofs = vec![false; kind.oneofs.len()];
        let mut written = BTreeSet::new();
        for (name, value) in members {
            if name.is_empty() {
                self.wrong("Proto fields must have a name.");
                continue;
            }
            let Some(field) = kind.field(name) else { continue };
            if is_nothing(self.schema, field, value)
                || !self.is_free(kind, field, name, &mut oneofs)
            {
                continue;
            }
            written.insert(field.number);
            self.field(kind, field, name, value, out);
        }
        let missing =
            kind.fields.iter().filter(|it| it.is_required && !written.contains(&it.number));
        for field in missing {
            let text = format!("{}: missing field {}", self.place(), field.name);
            self.error = Err(text);
        }
    }

    /// Whether another field of its group is not set yet.
    fn is_free(
        &mut self,
        kind: &MessageType,
        field: &Field,
        name: &str,
        taken: &mut [bool],
    ) -> bool {
        let Some(number) = field.oneof.map(|it| it as usize) else { return true };
        let (Some(taken), Some(oneof)) = (taken.get_mut(number), kind.oneofs.get(number)) else {
            return true;
        };
        if std::mem::replace(taken, true) {
            let text = format!("oneof field '{oneof}' is already set. Cannot set '{name}'");
            self.invalid("oneof", &text);
            return false;
        }
        true
    }

    fn field(
        &mut self,
        of: &'a MessageType,
        field: &'a Field,
        name: &str,
        value: &Json,
        out: &mut Vec<u8>,
    ) {
        let known = self.schema.known(field);
        match value {
            Json::Object(members) if field.is_map => self.map(field, members, out),
            Json::List(_) if !field.is_repeated && matches!(known, Known::Value | Known::List) => {
                self.inside(Some(field), out, |encoder, id, out| encoder.listed(id, value, out));
            }
            Json::List(_) if !field.is_repeated => {
                self.wrong("Proto field is not repeating, cannot start list.");
            }
            Json::List(_) if field.is_map => {
                self.invalid("Map", &format!("Cannot bind a list to map for field '{name}'."));
            }
            Json::List(items) => self.list(of, field, items, false, out),
            Json::Object(_)
            | Json::Null
            | Json::Bool(_)
            | Json::Int(_)
            | Json::Uint(_)
            | Json::Double(_)
            | Json::Text(_) => self.one(of, field, name, value, out),
        }
    }

    /// One value of a field, which may be one of several.
    fn one(
        &mut self,
        of: &MessageType,
        field: &'a Field,
        name: &str,
        value: &Json,
        out: &mut Vec<u8>,
    ) {
        if let Json::Object(members) = value {
            if !matches!(field.kind, Kind::Message(_)) {
                return self.invalid(&field.name, "Starting an object on a scalar field");
            }
            return self.inside(Some(field), out, |encoder, id, out| {
                encoder.object(id, members, out);
            });
        }
        let Kind::Message(id) = field.kind else { return self.scalar(of, field, value, out) };
        let kind = self.schema.message(id);
        if !is_rendered(kind) || field.is_map {
            self.push(field);
            self.invalid(&type_url(&kind.name), &scalar::shown(value));
            self.frames.pop();
            return;
        }
        self.inside(Some(field), out, |encoder, id, out| {
            if let Some(Err(error)) = encoder.render(id, value, out) {
                encoder.invalid(&type_url(&kind.name), &format!("Field '{name}', {error}"));
            }
        });
    }

    fn list(
        &mut self,
        of: &'a MessageType,
        field: &'a Field,
        items: &[Json],
        is_item: bool,
        out: &mut Vec<u8>,
    ) {
        let (is_repeated, field_name) = (field.is_repeated, field.name.clone());
        self.frames.push(Frame { field: field_name, is_repeated, is_item, items: Some(0) });
        let lists = matches!(self.schema.known(field), Known::Value | Known::List);
        for item in items {
            match item {
                Json::List(_) if lists => self.inside(Some(field), out, |encoder, id, out| {
                    encoder.listed(id, item, out);
                }),
                Json::List(items) => self.list(of, field, items, true, out),
                item if is_nothing(self.schema, field, item) => {}
                item => self.one(of, field, "", item, out),
            }
        }
        self.frames.pop();
    }

    fn map(&mut self, field: &'a Field, members: &Members, out: &mut Vec<u8>) {
        let Some(entry) = self.schema.message_of(field) else { return };
        let (Some(key_field), Some(value_field)) = (entry.numbered(1), entry.numbered(2)) else {
            return;
        };
        let frame =
            Frame { field: field.name.clone(), is_repeated: true, is_item: false, items: Some(0) };
        self.frames.push(frame);
        let mut keys = BTreeSet::new();
        for (name, value) in members {
            if !keys.insert(name) {
                self.wrong(&format!("Repeated map key: '{name}' is already set."));
                continue;
            }
            self.inside(Some(field), out, |encoder, _, out| {
                encoder.scalar(entry, key_field, &Json::Text(name.clone()), out);
                encoder.map_value(entry, value_field, name, value, out);
            });
        }
        self.frames.pop();
    }

    fn map_value(
        &mut self,
        entry: &'a MessageType,
        field: &'a Field,
        name: &str,
        value: &Json,
        out: &mut Vec<u8>,
    ) {
        let known = self.schema.known(field);
        match value {
            Json::List(_) if matches!(known, Known::Value | Known::List) => {
                self.inside(Some(field), out, |encoder, id, out| encoder.listed(id, value, out));
            }
            Json::List(_) => {
                let text = format!("Cannot have repeated items ('{name}') within a map.");
                self.invalid("Map", &text);
            }
            Json::Null if self.schema.message_of(field).is_some_and(is_rendered) => {
                self.inside(Some(field), out, |encoder, id, out| {
                    encoder.render(id, value, out);
                });
            }
            value if is_nothing(self.schema, field, value) => {}
            value => self.one(entry, field, name, value, out),
        }
    }

    fn any(&mut self, members: &Members, out: &mut Vec<u8>) {
        let is_type = |(name, value): &(String, Json)| {
            name == "@type" && !matches!(value, Json::Object(_) | Json::List(_))
        };
        let Some(at) = members.iter().position(is_type) else {
            if !members.is_empty() {
                let text = format!("Missing @type for any field in {}", self.name);
                self.invalid("Any", &text);
            }
            return;
        };
        let url = match members.get(at) {
            Some((_, Json::Text(url))) => url,
            Some((_, other)) => return self.invalid("String", &scalar::shown(other)),
            None => return,
        };
        let Some(name) = url.strip_prefix(TYPE_PREFIX) else {
            let text = format!(
                "Invalid type URL, type URLs must be of the form '{TYPE_PREFIX}<typename>', got: {url}"
            );
            return self.invalid("Any", &text);
        };
        let Some(id) = self.schema.find(name) else {
            return self.invalid("Any", &format!("Invalid type URL, unknown type: {name}"));
        };
        let rest: Members = members
            .iter()
            .enumerate()
            .filter(|(place, _)| *place != at)
            .map(|(_, member)| member.clone())
            .collect();
        let outer = std::mem::take(&mut self.frames);
        let mut inner = Vec::new();
        let kind = self.schema.message(id);
        if is_rendered(kind) || matches!(kind.known, Known::Any | Known::Struct) {
            self.known_in_any(id, &rest, &mut inner);
        } else {
            self.object(id, &rest, &mut inner);
        }
        self.frames = outer;
        put_bytes(1, url.as_bytes(), out);
        if !inner.is_empty() {
            put_bytes(2, &inner, out);
        }
    }

    /// What has JSON of its own stands in a `value`.
    fn known_in_any(&mut self, id: MessageId, members: &Members, out: &mut Vec<u8>) {
        for (name, value) in members {
            if name != "value" {
                self.invalid("Any", "Expect a \"value\" field for well-known types.");
                continue;
            }
            match value {
                Json::Object(members) => self.object(id, members, out),
                Json::List(_) => self.root(id, value, out),
                scalar => match self.render(id, scalar, out) {
                    Some(Ok(())) => {}
                    Some(Err(error)) => self.invalid("Any", &error),
                    None if matches!(scalar, Json::Null) => {}
                    None => self.invalid("Any", "Expect a JSON object."),
                },
            }
        }
    }

    /// The content of a message that a scalar stands for; `None` if it stands for none.
    fn render(
        &mut self,
        id: MessageId,
        value: &Json,
        out: &mut Vec<u8>,
    ) -> Option<Result<(), String>> {
        let kind = self.schema.message(id);
        if !is_rendered(kind) {
            return None;
        }
        if let (Json::Null, false) = (value, kind.known == Known::Value) {
            return Some(Ok(()));
        }
        let text = |what: &str| match value {
            Json::Text(text) => Ok(&**text),
            other => {
                let shown = scalar::shown(other);
                Err(format!("Invalid data type for {what}, value is {shown}"))
            }
        };
        Some(match kind.known {
            Known::Timestamp => text("timestamp")
                .and_then(|it| scalar::timestamp(it).map_err(Into::into))
                .map(|time| put_time(time, out)),
            Known::Duration => text("duration")
                .and_then(|it| scalar::duration(it).map_err(Into::into))
                .map(|time| put_time(time, out)),
            Known::FieldMask => text("field mask").and_then(|it| put_mask(it, out)),
            Known::Value => {
                let number = match value {
                    Json::Null => 1,
                    Json::Int(_) | Json::Uint(_) | Json::Double(_) => 2,
                    Json::Text(_) => 3,
                    Json::Bool(_) => 4,
                    Json::List(_) | Json::Object(_) => return None,
                };
                if let Some(field) = kind.numbered(number) {
                    self.scalar(kind, field, value, out);
                }
                Ok(())
            }
            Known::Wrapper => {
                if let Some(field) = kind.numbered(1) {
                    self.scalar(kind, field, value, out);
                }
                Ok(())
            }
            Known::No | Known::Any | Known::List | Known::Struct => return None,
        })
    }

    fn scalar(&mut self, of: &MessageType, field: &Field, value: &Json, out: &mut Vec<u8>) {
        if !of.is_proto3 {
            self.count_item(field);
        }
        let written = put_scalar(self.schema, field, value, self.in_any_case, out);
        let Err(error) = written else { return };
        if of.is_proto3 {
            self.count_item(field);
        }
        let is_item = self.is_item(field);
        let (name, is_repeated) = (field.name.clone(), field.is_repeated);
        self.frames.push(Frame { field: name, is_repeated, is_item, items: None });
        match field.kind {
            Kind::Enum(id) => {
                let url = type_url(&self.schema.enumeration(id).name);
                self.invalid(&url, &error);
            }
            kind => self.invalid(kind.name(), &error),
        }
        self.frames.pop();
    }

    fn push(&mut self, field: &Field) {
        self.count_item(field);
        let is_item = self.is_item(field);
        let (field, is_repeated) = (field.name.clone(), field.is_repeated);
        self.frames.push(Frame { field, is_repeated, is_item, items: None });
    }

    fn is_item(&self, field: &Field) -> bool {
        field.is_repeated && self.frames.last().is_some_and(|it| it.items.is_some())
    }

    fn count_item(&mut self, field: &Field) {
        if let Some(Frame { items: Some(items), .. }) = self.frames.last_mut()
            && field.is_repeated
        {
            *items += 1;
        }
    }

    fn invalid(&mut self, kind: &str, value: &str) {
        self.error = Err(format!("{}: invalid value {value} for type {kind}", self.place()));
    }

    fn wrong(&mut self, what: &str) {
        self.error = Err(format!("{}: {what}", self.place()));
    }

    fn place(&self) -> String {
        let mut place = String::new();
        for frame in &self.frames {
            if !(frame.is_repeated && frame.is_item) {
                if !place.is_empty() {
                    place.push('.');
                }
                place.push_str(&frame.field);
            }
            if let (true, Some(items @ 1..)) = (frame.is_repeated, frame.items) {
                place.push_str(&format!("[{}]", items - 1));
            }
        }
        place
    }
}

/// Whether a scalar stands for a message of this type.
fn is_rendered(kind: &MessageType) -> bool {
    match kind.known {
        Known::Duration | Known::FieldMask | Known::Timestamp | Known::Value | Known::Wrapper => {
            true
        }
        Known::No | Known::Any | Known::List | Known::Struct => false,
    }
}

/// Whether nothing is written for it: a `null` of most types.
fn is_nothing(schema: &Schema, field: &Field, value: &Json) -> bool {
    let takes_null = match field.kind {
        Kind::Enum(id) => schema.enumeration(id).is_null(),
        _ => schema.known(field) == Known::Value,
    };
    matches!(value, Json::Null) && !takes_null
}

fn put_scalar(
    schema: &Schema,
    field: &Field,
    value: &Json,
    in_any_case: bool,
    out: &mut Vec<u8>,
) -> Result<(), String> {
    #[expect(clippy::cast_sign_loss, reason = "negative numbers are written as such")]
    let bits = match field.kind {
        Kind::Double => scalar::to_double(value)?.to_bits(),
        Kind::Float => scalar::to_float(value)?.to_bits().into(),
        Kind::Int64 | Kind::Sfixed64 => scalar::to_whole::<i64>(value)? as u64,
        Kind::Uint64 | Kind::Fixed64 => scalar::to_whole(value)?,
        Kind::Int32 => i64::from(scalar::to_whole::<i32>(value)?) as u64,
        Kind::Sfixed32 => u64::from(scalar::to_whole::<i32>(value)? as u32),
        Kind::Uint32 | Kind::Fixed32 => scalar::to_whole::<u32>(value)?.into(),
        Kind::Sint32 => zigzag(scalar::to_whole::<i32>(value)?.into()),
        Kind::Sint64 => zigzag(scalar::to_whole(value)?),
        Kind::Bool => match value {
            Json::Bool(value) => u64::from(*value),
            Json::Text(text) => scalar::to_bool(text).ok_or_else(|| scalar::shown(value))?.into(),
            other => return Err(scalar::shown(other)),
        },
        Kind::Enum(id) => {
            let kind: &EnumType = schema.enumeration(id);
            i64::from(scalar::to_enum(value, kind, in_any_case)?) as u64
        }
        Kind::String => {
            let Json::Text(text) = value else { return Err(scalar::shown(value)) };
            put_bytes(field.number, text.as_bytes(), out);
            return Ok(());
        }
        Kind::Bytes => {
            let Json::Text(text) = value else { return Err(scalar::shown(value)) };
            let bytes = scalar::to_bytes(text).ok_or_else(|| scalar::shown(value))?;
            put_bytes(field.number, &bytes, out);
            return Ok(());
        }
        Kind::Message(_) => return Err(scalar::shown(value)),
    };
    let wire = field.kind.wire_type();
    put_tag(field.number, wire, out);
    match wire {
        super::schema::FIXED64 => out.extend(bits.to_le_bytes()),
        super::schema::FIXED32 => {
            out.extend(u32::try_from(bits).unwrap_or(u32::MAX).to_le_bytes());
        }
        _ => put_varint(bits, out),
    }
    Ok(())
}

#[expect(clippy::cast_sign_loss, reason = "the sign goes to the last bit")]
const fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

#[expect(clippy::cast_sign_loss, reason = "negative numbers are written as such")]
fn put_time((seconds, nanos): scalar::Time, out: &mut Vec<u8>) {
    put_tag(1, super::schema::VARINT, out);
    put_varint(seconds as u64, out);
    put_tag(2, super::schema::VARINT, out);
    put_varint(i64::from(nanos) as u64, out);
}

/// Paths with commas between them; what several begin with may stand before brackets.
fn put_mask(text: &str, out: &mut Vec<u8>) -> Result<(), String> {
    let mut prefixes: Vec<String> = Vec::new();
    let mut path = String::new();
    let mut closed = false;
    for character in text.chars().chain([',']) {
        match character {
            '(' => {
                let before = prefixes.last().map_or("", String::as_str);
                let dot = if before.is_empty() { "" } else { "." };
                if prefixes.len() > text.len().min(MOST_BRACKETS) {
                    return Err(format!("Invalid FieldMask '{text}'. Too many '('."));
                }
                let prefix = format!("{before}{dot}{path}");
                prefixes.push(prefix);
                path.clear();
            }
            ',' | ')' => {
                if !path.is_empty() {
                    let before = prefixes.last().map_or("", String::as_str);
                    let dot = if before.is_empty() { "" } else { "." };
                    put_bytes(1, format!("{before}{dot}{path}").as_bytes(), out);
                    path.clear();
                }
                if character == ')' && prefixes.pop().is_none() {
                    let text = format!(
                        "Invalid FieldMask '{text}'. Cannot find matching '(' for all ')'."
                    );
                    return Err(text);
                }
            }
            _ if closed => return Err(format!("Invalid FieldMask '{text}'.")),
            upper if upper.is_ascii_uppercase() => {
                path.push('_');
                path.push(upper.to_ascii_lowercase());
            }
            other => path.push(other),
        }
        closed = character == ')';
    }
    if prefixes.is_empty() {
        return Ok(());
    }
    Err(format!("Invalid FieldMask '{text}'. Cannot find matching ')' for all '('."))
}

pub(super) fn type_url(name: &str) -> String {
    format!("{TYPE_PREFIX}{name}")
}

/// How deep brackets of a field mask nest.
const MOST_BRACKETS: usize = 32;
pub(super) const TYPE_PREFIX: &str = "type.googleapis.com/";
