//! A configuration as typed messages in which every field knows where it was written.
//!
//! `prost-reflect` supplies the descriptors. Its own dynamic messages are not used, because they keep neither positions
//! nor which fields were set to their defaults, and every error and finding needs both.

mod any;
mod binary;
mod decode;
mod digest;
mod encode;
mod json;
mod legacy;
mod merge;
mod read;
mod scalar;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::rc::Rc;

use prost_reflect::{FieldDescriptor, MessageDescriptor};

use crate::tree::{Node, Pos};

pub(crate) use binary::{Seen, tree as binary_tree};
pub(crate) use decode::{UnknownFields, decode};
pub(crate) use digest::digest;
pub(crate) use encode::encode;
pub(crate) use json::{to_json, tree as tree_to_json};
pub(crate) use legacy::{bare_extension, types_for};
pub(crate) use merge::merge;
pub(crate) use read::Nanos;

/// Where a value was written.
#[derive(Clone, Debug)]
pub(crate) struct At {
    /// Which of the texts: an index into [`Report`](crate::report::Report)'s names.
    pub(crate) text: usize,
    /// Where in it.
    pub(crate) pos: Pos,
    /// The field's path.
    pub(crate) path: Rc<str>,
}

impl At {
    /// The start of a text.
    pub(crate) fn root(text: usize) -> Self {
        Self { text, pos: Pos { line: 1, column: 1 }, path: Rc::from("") }
    }

    fn field(&self, name: &str, pos: Pos) -> Self {
        let path = if self.path.is_empty() {
            Rc::from(name)
        } else {
            Rc::from(format!("{}.{name}", self.path))
        };
        Self { text: self.text, pos, path }
    }

    fn index(&self, index: usize, pos: Pos) -> Self {
        Self { text: self.text, pos, path: Rc::from(format!("{}[{index}]", self.path)) }
    }

    fn key(&self, key: &str, pos: Pos) -> Self {
        Self { text: self.text, pos, path: Rc::from(format!("{}[{key:?}]", self.path)) }
    }
}

/// A message and the fields that are set in it, in the order of the text.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) descriptor: MessageDescriptor,
    pub(crate) at: At,
    pub(crate) fields: Vec<Field>,
}

/// A field that is set.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    pub(crate) descriptor: FieldDescriptor,
    pub(crate) at: At,
    pub(crate) value: Value,
    /// Whether conversion looked at it; a test compares this with the table of support.
    pub(crate) read: Cell<bool>,
}

/// An element of a list or map.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) at: At,
    pub(crate) value: Value,
}

/// A value. The well-known types that JSON writes in a form of their own have a variant of their own.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Bool(bool),
    Int(i64),
    Uint(u64),
    Float(f64),
    String(String),
    Bytes(Vec<u8>),
    Enum(i32),
    Message(Message),
    List(Vec<Item>),
    Map(Vec<(String, Item)>),
    /// `google.protobuf.Duration`.
    Duration(Nanos),
    /// `google.protobuf.UInt32Value` and its like.
    Wrapper(Box<Self>),
    /// `google.protobuf.Struct`, `Value` and `ListValue`.
    Json(Node),
    /// `google.protobuf.Timestamp` and `FieldMask`, as written.
    Text(String),
    /// `google.protobuf.Any`.
    Any(Box<Any>),
}

/// A message whose type is said beside it.
#[derive(Clone, Debug)]
pub(crate) struct Any {
    /// The message type's full name; empty for an empty `Any`.
    pub(crate) name: String,
    /// What is in it; `None` when there is no such type.
    pub(crate) message: Option<Message>,
}
