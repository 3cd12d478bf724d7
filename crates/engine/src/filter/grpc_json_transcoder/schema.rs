//! The types of messages, as a set of descriptors has them: what conversion needs of each, and nothing else.

use std::collections::BTreeMap;

/// The types of a set of descriptors. Their places are their ids.
#[derive(Debug, Default)]
pub struct Schema {
    messages: Vec<MessageType>,
    enums: Vec<EnumType>,
    names: BTreeMap<Box<str>, MessageId>,
}

/// The place of a message's type in its [`Schema`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MessageId(pub u32);

/// The place of an enum's type in its [`Schema`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EnumId(pub u32);

/// A message's type.
#[derive(Debug)]
pub struct MessageType {
    /// With its package, without a dot before it.
    pub name: Box<str>,
    /// By their numbers.
    pub fields: Vec<Field>,
    /// The names of its groups of fields of which one can be set.
    pub oneofs: Vec<Box<str>>,
    /// Its file has this syntax, or an edition.
    pub is_proto3: bool,
    /// What its JSON looks like where that does not follow from its fields.
    pub known: Known,
}

/// Types that look different in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// None of them.
    No,
    /// `google.protobuf.Any`.
    Any,
    /// `google.protobuf.Duration`.
    Duration,
    /// `google.protobuf.FieldMask`.
    FieldMask,
    /// `google.protobuf.ListValue`.
    List,
    /// `google.protobuf.Struct`.
    Struct,
    /// `google.protobuf.Timestamp`.
    Timestamp,
    /// `google.protobuf.Value`.
    Value,
    /// `google.protobuf.Int32Value` and its like.
    Wrapper,
}

impl Known {
    fn of(name: &str) -> Self {
        let Some(name) = name.strip_prefix("google.protobuf.") else { return Self::No };
        match name {
            "Any" => Self::Any,
            "Duration" => Self::Duration,
            "FieldMask" => Self::FieldMask,
            "ListValue" => Self::List,
            "Struct" => Self::Struct,
            "Timestamp" => Self::Timestamp,
            "Value" => Self::Value,
            "DoubleValue" | "FloatValue" | "Int64Value" | "UInt64Value" | "Int32Value"
            | "UInt32Value" | "BoolValue" | "StringValue" | "BytesValue" => Self::Wrapper,
            _ => Self::No,
        }
    }
}

/// A field of a message.
#[derive(Clone, Debug)]
pub struct Field {
    /// As the file has it.
    pub name: Box<str>,
    /// As JSON has it.
    pub json_name: Box<str>,
    /// On the wire.
    pub number: u32,
    /// What it holds.
    pub kind: Kind,
    /// It can hold several.
    pub is_repeated: bool,
    /// A message without it is not whole.
    pub is_required: bool,
    /// It is a map: repeated messages of a key and a value.
    pub is_map: bool,
    /// That it is missing can be told from its being zero.
    pub has_presence: bool,
    /// Which one of [`MessageType::oneofs`] it belongs to.
    pub oneof: Option<u32>,
}

/// What a field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `double`.
    Double,
    /// `float`.
    Float,
    /// `int64`.
    Int64,
    /// `uint64`.
    Uint64,
    /// `int32`.
    Int32,
    /// `fixed64`.
    Fixed64,
    /// `fixed32`.
    Fixed32,
    /// `bool`.
    Bool,
    /// `string`.
    String,
    /// A message.
    Message(MessageId),
    /// `bytes`.
    Bytes,
    /// `uint32`.
    Uint32,
    /// An enum.
    Enum(EnumId),
    /// `sfixed32`.
    Sfixed32,
    /// `sfixed64`.
    Sfixed64,
    /// `sint32`.
    Sint32,
    /// `sint64`.
    Sint64,
}

impl Field {
    /// The type of the message that it holds, if it holds one.
    #[must_use]
    pub const fn message(&self) -> Option<MessageId> {
        if let Kind::Message(id) = self.kind { Some(id) } else { None }
    }
}

impl Kind {
    /// How it is on the wire, where it stands alone.
    pub(super) const fn wire_type(self) -> u32 {
        match self {
            Self::Double | Self::Fixed64 | Self::Sfixed64 => FIXED64,
            Self::Float | Self::Fixed32 | Self::Sfixed32 => FIXED32,
            Self::String | Self::Bytes | Self::Message(_) => LENGTH,
            Self::Int64
            | Self::Uint64
            | Self::Int32
            | Self::Bool
            | Self::Uint32
            | Self::Enum(_)
            | Self::Sint32
            | Self::Sint64 => VARINT,
        }
    }

    /// What errors call it, where it has no name of its own.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Double => "TYPE_DOUBLE",
            Self::Float => "TYPE_FLOAT",
            Self::Int64 => "TYPE_INT64",
            Self::Uint64 => "TYPE_UINT64",
            Self::Int32 => "TYPE_INT32",
            Self::Fixed64 => "TYPE_FIXED64",
            Self::Fixed32 => "TYPE_FIXED32",
            Self::Bool => "TYPE_BOOL",
            Self::String => "TYPE_STRING",
            Self::Message(_) => "TYPE_MESSAGE",
            Self::Bytes => "TYPE_BYTES",
            Self::Uint32 => "TYPE_UINT32",
            Self::Enum(_) => "TYPE_ENUM",
            Self::Sfixed32 => "TYPE_SFIXED32",
            Self::Sfixed64 => "TYPE_SFIXED64",
            Self::Sint32 => "TYPE_SINT32",
            Self::Sint64 => "TYPE_SINT64",
        }
    }
}

pub(super) const VARINT: u32 = 0;
pub(super) const FIXED64: u32 = 1;
pub(super) const LENGTH: u32 = 2;
pub(super) const GROUP_START: u32 = 3;
pub(super) const GROUP_END: u32 = 4;
pub(super) const FIXED32: u32 = 5;

/// An enum's type.
#[derive(Debug)]
pub struct EnumType {
    /// With its package, without a dot before it.
    pub name: Box<str>,
    /// In the order of the file; of an alias, the first name counts.
    pub values: Vec<(Box<str>, i32)>,
}

impl EnumType {
    /// It has one value, `null` in JSON.
    pub(super) fn is_null(&self) -> bool {
        &*self.name == "google.protobuf.NullValue"
    }

    pub(super) fn name_of(&self, number: i32) -> Option<&str> {
        self.values.iter().find(|(_, it)| *it == number).map(|(name, _)| &**name)
    }

    pub(super) fn number_of(&self, name: &str) -> Option<i32> {
        self.values.iter().find(|(it, _)| **it == *name).map(|(_, number)| *number)
    }
}

impl Schema {
    /// Adds a type, whose [`MessageType::known`] follows from its name and need not be right. Its fields may have ids
    /// of types that are added later; all there are must be there when it is used.
    pub fn add_message(&mut self, mut message: MessageType) -> MessageId {
        let id = MessageId(u32::try_from(self.messages.len()).unwrap_or(u32::MAX));
        message.known = Known::of(&message.name);
        message.fields.sort_by_key(|field| field.number);
        self.names.insert(message.name.clone(), id);
        self.messages.push(message);
        id
    }

    /// Adds a type.
    pub fn add_enum(&mut self, kind: EnumType) -> EnumId {
        let id = EnumId(u32::try_from(self.enums.len()).unwrap_or(u32::MAX));
        self.enums.push(kind);
        id
    }

    /// The type of that name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<MessageId> {
        self.names.get(name).copied()
    }

    /// A type of it.
    ///
    /// # Panics
    /// Where the id is another schema's.
    #[must_use]
    pub fn message(&self, id: MessageId) -> &MessageType {
        &self.messages[id.0 as usize]
    }

    /// An enum of it.
    ///
    /// # Panics
    /// Where the id is another schema's.
    #[must_use]
    pub fn enumeration(&self, id: EnumId) -> &EnumType {
        &self.enums[id.0 as usize]
    }

    /// The type of a message that a field holds.
    pub(super) fn message_of(&self, field: &Field) -> Option<&MessageType> {
        field.message().map(|id| self.message(id))
    }

    /// What JSON makes of what a field holds, if it is a message.
    pub(super) fn known(&self, field: &Field) -> Known {
        self.message_of(field).map_or(Known::No, |message| message.known)
    }

    /// Follows names from a message to a field, each by its own name or JSON's, or by what that is when it is
    /// unescaped.
    ///
    /// # Errors
    /// What is wrong with the names.
    pub fn resolve(&self, from: MessageId, names: &[&str]) -> Result<Vec<Field>, String> {
        let mut current = self.message(from);
        let mut path = Vec::with_capacity(names.len());
        for (at, name) in names.iter().enumerate() {
            let field = current.field(name).or_else(|| {
                let plain = super::path::unescaped(name.as_bytes(), super::Unescape::All, false);
                current.field(std::str::from_utf8(&plain).ok()?)
            });
            let Some(field) = field else {
                let of = &current.name;
                return Err(format!("Could not find field \"{name}\" in the type \"{of}\"."));
            };
            path.push(field.clone());
            if at + 1 == names.len() {
                break;
            }
            let Some(inner) = self.message_of(field) else {
                let name = &field.name;
                return Err(format!(
                    "Encountered a non-leaf field \"{name}\" that is not a message while parsing a field path"
                ));
            };
            current = inner;
        }
        Ok(path)
    }
}

impl MessageType {
    /// A field by JSON's name or its own.
    pub(super) fn field(&self, name: &str) -> Option<&Field> {
        let by_json = self.fields.iter().find(|field| *field.json_name == *name);
        by_json.or_else(|| self.fields.iter().find(|field| *field.name == *name))
    }

    pub(super) fn numbered(&self, number: u32) -> Option<&Field> {
        let at = self.fields.binary_search_by_key(&number, |field| field.number).ok()?;
        self.fields.get(at)
    }
}
