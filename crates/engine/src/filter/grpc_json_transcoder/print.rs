//! Messages of Protocol Buffers as JSON, in the form of Protocol Buffers' own writer.
//!
//! Arrives: a message as it is on the wire. Leaves: JSON, its members by the numbers of their fields and those of maps
//! in their order on the wire.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;

use super::Printing;
use super::encode::TYPE_PREFIX;
use super::scalar;
use super::schema::{EnumId, Field, Kind, Known, MessageId, MessageType, Schema};
use super::wire::{Fields, Malformed, Value};
use crate::json::short_escape;

/// Writes a message.
///
/// # Errors
/// What cannot be told in JSON.
pub(super) fn print(
    schema: &Schema,
    id: MessageId,
    message: &Bytes,
    how: Printing,
    out: &mut String,
) -> Result<(), String> {
    let fields = Fields::read(schema, id, message).map_err(|error| error.to_string())?;
    let mut printer = Printer { schema, how, indent: 0, out };
    printer.message(schema.message(id), &fields)?;
    printer.new_line();
    Ok(())
}

struct Printer<'a> {
    schema: &'a Schema,
    how: Printing,
    indent: usize,
    out: &'a mut String,
}

type Printed = Result<(), String>;

impl<'a> Printer<'a> {
    fn message(&mut self, kind: &'a MessageType, fields: &Fields) -> Printed {
        match kind.known {
            Known::Any => return self.any(fields),
            Known::Wrapper => {
                return match kind.numbered(1) {
                    Some(field) => self.value_or_default(field, fields.of(1).last()),
                    None => Ok(()),
                };
            }
            Known::Value => return self.value_of_value(kind, fields),
            Known::Struct => {
                return kind.numbered(1).map_or(Ok(()), |field| self.map(field, fields.of(1)));
            }
            Known::List => {
                return kind.numbered(1).map_or(Ok(()), |field| self.list(field, fields.of(1)));
            }
            Known::Timestamp => return self.quoted(scalar::print_timestamp(time(fields))?),
            Known::Duration => return self.quoted(scalar::print_duration(time(fields))?),
            Known::FieldMask => return self.mask(fields),
            Known::No => {}
        }
        let mut is_first = true;
        self.open('{');
        self.members(kind, fields, &mut is_first)?;
        self.close('}', is_first);
        Ok(())
    }

    fn members(&mut self, kind: &'a MessageType, fields: &Fields, is_first: &mut bool) -> Printed {
        for field in &kind.fields {
            let values = fields.of(field.number);
            let is_default = values.is_empty();
            let shows_default = self.how.defaults && (field.is_repeated || !field.has_presence);
            if is_default && !shows_default {
                continue;
            }
            if !field.is_repeated && values.last().is_some_and(|it| self.is_empty(field, it)) {
                continue;
            }
            self.comma(is_first);
            self.key(self.name(field));
            match (field.is_map, field.is_repeated) {
                (true, _) => self.map(field, values)?,
                (_, true) => self.list(field, values)?,
                (_, false) => self.value_or_default(field, values.last())?,
            }
        }
        Ok(())
    }

    fn name(&self, field: &'a Field) -> &'a str {
        // A name that begins with a capital is kept.
        if self.how.proto_names || field.name.starts_with(|it: char| it.is_ascii_uppercase()) {
            &field.name
        } else {
            &field.json_name
        }
    }

    /// A `Value` that holds nothing cannot be told.
    fn is_empty(&self, field: &Field, value: &Value) -> bool {
        match value {
            Value::Message(fields) => self.schema.known(field) == Known::Value && fields.is_empty(),
            Value::Bits(_) | Value::Bytes(_) => false,
        }
    }

    fn value_or_default(&mut self, field: &Field, value: Option<&Value>) -> Printed {
        match (value, field.kind) {
            (Some(value), _) => self.value(field, value),
            (None, Kind::String | Kind::Bytes) => self.value(field, &Value::Bytes(Bytes::new())),
            (None, Kind::Enum(id)) => {
                let first = self.schema.enumeration(id).values.first();
                self.enumerated(id, first.map_or(0, |(_, number)| *number), false);
                Ok(())
            }
            (None, _) => self.value(field, &Value::Bits(0)),
        }
    }

    #[expect(clippy::cast_possible_wrap, reason = "their sign is in their bits")]
    fn value(&mut self, field: &Field, value: &Value) -> Printed {
        let bits = match value {
            Value::Message(fields) => {
                let Kind::Message(id) = field.kind else { return Ok(()) };
                return self.message(self.schema.message(id), fields);
            }
            Value::Bytes(bytes) => {
                if field.kind == Kind::Bytes {
                    return self.quoted(BASE64.encode(bytes));
                }
                self.text(bytes);
                return Ok(());
            }
            Value::Bits(bits) => *bits,
        };
        let low = u32::try_from(bits & 0xffff_ffff).unwrap_or(0);
        match field.kind {
            Kind::Double => self.double(f64::from_bits(bits)),
            Kind::Float => {
                let value = f32::from_bits(low);
                if value.is_finite() {
                    self.out.push_str(&scalar::float(value));
                } else {
                    self.double(value.into());
                }
            }
            Kind::Int64 | Kind::Sfixed64 => return self.quoted((bits as i64).to_string()),
            Kind::Sint64 => return self.quoted(unzigzag(bits).to_string()),
            Kind::Uint64 | Kind::Fixed64 => return self.quoted(bits.to_string()),
            Kind::Int32 | Kind::Sfixed32 => self.out.push_str(&(low as i32).to_string()),
            Kind::Sint32 => self.out.push_str(&unzigzag(low.into()).to_string()),
            Kind::Uint32 | Kind::Fixed32 => self.out.push_str(&low.to_string()),
            Kind::Bool => self.out.push_str(if bits == 0 { "false" } else { "true" }),
            Kind::Enum(id) => self.enumerated(id, low as i32, false),
            Kind::String | Kind::Bytes | Kind::Message(_) => {}
        }
        Ok(())
    }

    fn enumerated(&mut self, id: EnumId, number: i32, is_key: bool) {
        let kind = self.schema.enumeration(id);
        if kind.is_null() {
            return self.out.push_str("null");
        }
        let name = if self.how.enums_as_numbers { None } else { kind.name_of(number) };
        let number = number.to_string();
        match name {
            Some(name) => self.text(name.as_bytes()),
            None if is_key => self.text(number.as_bytes()),
            None => self.out.push_str(&number),
        }
    }

    fn double(&mut self, value: f64) {
        let special = match value {
            f64::INFINITY => "\"Infinity\"",
            f64::NEG_INFINITY => "\"-Infinity\"",
            value if value.is_nan() => "\"NaN\"",
            value => return self.out.push_str(&scalar::double(value)),
        };
        self.out.push_str(special);
    }

    fn list(&mut self, field: &Field, values: &[Value]) -> Printed {
        let mut is_first = true;
        self.open('[');
        for value in values {
            if self.is_empty(field, value) {
                continue;
            }
            self.comma(&mut is_first);
            self.value(field, value)?;
        }
        self.close(']', is_first);
        Ok(())
    }

    fn map(&mut self, field: &Field, entries: &[Value]) -> Printed {
        let mut is_first = true;
        self.open('{');
        let entry = self.schema.message_of(field);
        let fields = entry.and_then(|entry| entry.numbered(1).zip(entry.numbered(2)));
        let Some((key_field, value_field)) = fields else { return Ok(()) };
        for entry in entries {
            let Value::Message(entry) = entry else { continue };
            let value = entry.of(2).last();
            let is_empty = match value {
                Some(value) => self.is_empty(value_field, value),
                None => self.schema.known(value_field) == Known::Value,
            };
            if is_empty {
                continue;
            }
            self.comma(&mut is_first);
            self.map_key(key_field, entry.of(1).last())?;
            self.out.push(':');
            self.blank();
            match (value, value_field.kind) {
                (None, Kind::Message(id)) => {
                    self.message(self.schema.message(id), &Fields::default())?;
                }
                (value, _) => self.value_or_default(value_field, value)?,
            }
        }
        self.close('}', is_first);
        Ok(())
    }

    fn map_key(&mut self, field: &Field, key: Option<&Value>) -> Printed {
        let quotes = matches!(
            field.kind,
            Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 | Kind::Uint32 | Kind::Fixed32 | Kind::Bool
        );
        if quotes {
            self.out.push('"');
        }
        self.value_or_default(field, key)?;
        if quotes {
            self.out.push('"');
        }
        Ok(())
    }

    fn value_of_value(&mut self, kind: &'a MessageType, fields: &Fields) -> Printed {
        let set = (1..=6).find_map(|number| {
            let value = fields.of(number).last()?;
            Some((number, kind.numbered(number)?, value))
        });
        match set {
            None => Ok(()),
            Some((1, ..)) => {
                self.out.push_str("null");
                Ok(())
            }
            Some((2, _, Value::Bits(bits))) => {
                let number = f64::from_bits(*bits);
                let what = match () {
                    () if number.is_nan() => "nan",
                    () if number.is_infinite() => "infinity",
                    () => {
                        self.double(number);
                        return Ok(());
                    }
                };
                Err(format!(
                    "google.protobuf.Value cannot encode double values for {what}, because it would be parsed as a \
                    string"
                ))
            }
            Some((_, field, value)) => self.value(field, value),
        }
    }

    fn any(&mut self, fields: &Fields) -> Printed {
        let (url, content) = (fields.bytes(1), fields.bytes(2));
        if url.is_empty() {
            if content.is_empty() {
                self.out.push_str("{}");
                return Ok(());
            }
            return Err("broken Any: missing type URL".into());
        }
        let url = String::from_utf8_lossy(&url).into_owned();
        let name = url.strip_prefix(TYPE_PREFIX);
        let id = name.and_then(|name| self.schema.find(name));
        let id = id.ok_or_else(|| match name {
            Some(name) => format!("Invalid type URL, unknown type: {name}"),
            None => format!(
                "Invalid type URL, type URLs must be of the form '{TYPE_PREFIX}<typename>', got: {url}"
            ),
        })?;
        self.open('{');
        let mut is_first = true;
        self.comma(&mut is_first);
        self.key("@type");
        self.text(url.as_bytes());
        let kind = self.schema.message(id);
        // How deep they nest is bounded by their length: each holds the next in whole.
        let read = Fields::read(self.schema, id, &content);
        let inner = read.map_err(|error| error.to_string())?;
        if self.indent > MOST_ANYS {
            return Err(Malformed::Depth.to_string());
        }
        if kind.known == Known::No {
            self.members(kind, &inner, &mut is_first)?;
        } else {
            self.comma(&mut is_first);
            self.key("value");
            self.message(kind, &inner)?;
        }
        self.close('}', is_first);
        Ok(())
    }

    fn mask(&mut self, fields: &Fields) -> Printed {
        let mut text = Vec::new();
        for (at, path) in fields.of(1).iter().enumerate() {
            let Value::Bytes(path) = path else { continue };
            if at > 0 {
                text.push(b',');
            }
            let mut after_underscore = false;
            for &byte in path {
                if byte == b'_' {
                    after_underscore = true;
                    continue;
                }
                let is_plain = byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'.';
                if after_underscore && !is_plain {
                    text.push(b'_');
                }
                let is_raised = after_underscore && byte.is_ascii_lowercase();
                text.push(if is_raised { byte.to_ascii_uppercase() } else { byte });
                after_underscore = false;
            }
        }
        self.text(&text);
        Ok(())
    }

    fn quoted(&mut self, plain: String) -> Printed {
        self.out.push('"');
        self.out.push_str(&plain);
        self.out.push('"');
        Ok(())
    }

    /// A string. What is no UTF-8 becomes blanks.
    fn text(&mut self, text: &[u8]) {
        self.out.push('"');
        for chunk in text.utf8_chunks() {
            for character in chunk.valid().chars() {
                self.character(character);
            }
            if !chunk.invalid().is_empty() {
                self.out.push(' ');
            }
        }
        self.out.push('"');
    }

    fn character(&mut self, character: char) {
        if let Some(short) = short_escape(character) {
            self.out.push_str(short);
        } else if is_escaped(character) {
            for unit in character.encode_utf16(&mut [0; 2]) {
                let written = write!(self.out, "\\u{unit:04x}");
                debug_assert!(written.is_ok(), "a string takes what it is given");
            }
        } else {
            self.out.push(character);
        }
    }

    fn key(&mut self, name: &str) {
        self.text(name.as_bytes());
        self.out.push(':');
        self.blank();
    }

    fn open(&mut self, bracket: char) {
        self.out.push(bracket);
        self.indent += 1;
    }

    fn close(&mut self, bracket: char, is_empty: bool) {
        self.indent -= 1;
        if !is_empty {
            self.new_line();
        }
        self.out.push(bracket);
    }

    fn comma(&mut self, is_first: &mut bool) {
        if !std::mem::replace(is_first, false) {
            self.out.push(',');
        }
        self.new_line();
    }

    fn blank(&mut self) {
        if self.how.whitespace {
            self.out.push(' ');
        }
    }

    fn new_line(&mut self) {
        if self.how.whitespace {
            self.out.push('\n');
            self.out.extend(std::iter::repeat_n(' ', self.indent));
        }
    }
}

#[expect(clippy::cast_possible_wrap, reason = "their sign is in their bits")]
fn time(fields: &Fields) -> scalar::Time {
    (fields.bits(1) as i64, u32::try_from(fields.bits(2) & 0xffff_ffff).unwrap_or(0) as i32)
}

#[expect(clippy::cast_possible_wrap, reason = "the sign is in the last bit")]
const fn unzigzag(bits: u64) -> i64 {
    (bits >> 1) as i64 ^ -((bits & 1) as i64)
}

/// What JSON may show but scripts may take for something else, and what cannot be seen.
const fn is_escaped(character: char) -> bool {
    matches!(
        character as u32,
        0..=0x1f
            | 0x3c
            | 0x3e
            | 0x7f..=0x9f
            | 0xad
            | 0x600..=0x603
            | 0x6dd
            | 0x70f
            | 0x17b4
            | 0x17b5
            | 0x200b..=0x200f
            | 0x2028..=0x202e
            | 0x2060..=0x2064
            | 0x206a..=0x206f
            | 0xfeff
            | 0xfff9..=0xfffb
            | 0x1d173..=0x1d17a
            | 0xe0001
            | 0xe0020..=0xe007f
    )
}

/// How deep messages nest with those that are in an `Any`.
const MOST_ANYS: usize = 100;
