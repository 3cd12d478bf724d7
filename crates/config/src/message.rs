//! A configuration as typed messages in which every field knows where it was written.
//!
//! `prost-reflect` supplies the descriptors. Its own dynamic messages are not used, because they keep neither positions
//! nor which fields were set to their defaults, and every error and finding needs both.

mod any;
mod binary;
mod decode;
mod digest;
mod direct;
mod encode;
mod json;
mod legacy;
mod merge;
mod read;
mod scalar;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::fmt::Write as _;
use std::sync::Arc;

use prost_reflect::{FieldDescriptor, MessageDescriptor};

use crate::tree::{Node, Pos};

pub(crate) use binary::{Seen, decode_binary, decode_ordinary};
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
    /// The last part of the value's path, and what it is in. Paths are only written out for a reader.
    step: Step,
    within: Option<Arc<Self>>,
}

/// A part of a path.
#[derive(Clone, Debug)]
enum Step {
    Root,
    Field(FieldDescriptor),
    /// A field that its message does not have.
    Named(Box<str>),
    Index(usize),
    Key(Box<str>),
}

impl At {
    /// The start of a text.
    pub(crate) const fn root(text: usize) -> Self {
        Self { text, pos: Pos { line: 1, column: 1 }, step: Step::Root, within: None }
    }

    /// The same value, which is written there.
    pub(crate) fn moved_to(self, pos: Pos) -> Self {
        Self { pos, ..self }
    }

    fn step(self: &Arc<Self>, step: Step, pos: Pos) -> Self {
        Self { text: self.text, pos, step, within: Some(Arc::clone(self)) }
    }

    fn field(self: &Arc<Self>, field: &FieldDescriptor, pos: Pos) -> Self {
        self.step(Step::Field(field.clone()), pos)
    }

    fn named(self: &Arc<Self>, name: &str, pos: Pos) -> Self {
        self.step(Step::Named(name.into()), pos)
    }

    fn index(self: &Arc<Self>, index: usize, pos: Pos) -> Self {
        self.step(Step::Index(index), pos)
    }

    fn key(self: &Arc<Self>, key: &str, pos: Pos) -> Self {
        self.step(Step::Key(key.into()), pos)
    }

    /// The field's path: `listeners[0].name`.
    pub(crate) fn path(&self) -> String {
        let mut steps = vec![&self.step];
        let mut within = &self.within;
        while let Some(at) = within {
            steps.push(&at.step);
            within = &at.within;
        }
        let mut path = String::new();
        for step in steps.into_iter().rev() {
            let name = match step {
                Step::Root => continue,
                Step::Field(field) => field.name(),
                Step::Named(name) => name,
                Step::Index(index) => {
                    let _ = write!(path, "[{index}]");
                    continue;
                }
                Step::Key(key) => {
                    let _ = write!(path, "[{key:?}]");
                    continue;
                }
            };
            if !path.is_empty() {
                path.push('.');
            }
            path.push_str(name);
        }
        path
    }
}

/// A message and the fields that are set in it, in the order of the text.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) descriptor: MessageDescriptor,
    pub(crate) at: Arc<At>,
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
    /// What tells most names apart from its own.
    hint: u16,
    /// The descriptor's, which is looked up there each time.
    pub(crate) number: u32,
}

impl Field {
    fn new(descriptor: FieldDescriptor, at: At, value: Value) -> Self {
        let (hint, number) = (hint(descriptor.name()), descriptor.number());
        Self { descriptor, at, value, read: Cell::new(false), hint, number }
    }

    fn is_named(&self, name: &str) -> bool {
        self.hint == hint(name) && self.descriptor.name() == name
    }
}

/// The length of a name and its last letter.
fn hint(name: &str) -> u16 {
    let last = name.as_bytes().last().copied().unwrap_or(0);
    u16::from_be_bytes([name.len() as u8, last])
}

/// An element of a list or map.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) at: At,
    pub(crate) value: Value,
}

/// A value, in 32 bytes: there are hundreds of thousands of them. The well-known types that JSON writes in a form of
/// their own have a variant of their own.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Bool(bool),
    Int(i64),
    Uint(u64),
    Float(f64),
    String(String),
    Bytes(Vec<u8>),
    Enum(i32),
    Message(Box<Message>),
    List(Vec<Item>),
    Map(Vec<(String, Item)>),
    /// `google.protobuf.Duration`.
    Duration(Box<Nanos>),
    /// `google.protobuf.UInt32Value` and its like.
    Wrapper(Box<Self>),
    /// `google.protobuf.Struct`, `Value` and `ListValue`.
    Json(Box<Node>),
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
