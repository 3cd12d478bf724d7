//! A digest of a message: the same for two that say the same, wherever and in whatever order it was written. What is
//! secret counts as well.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::{Field, Message, Value};
use crate::tree::{Node, Value as Tree};

/// The digest.
pub(crate) fn digest(message: &Message) -> u64 {
    let mut hasher = Gathering { hasher: DefaultHasher::new(), bytes: Vec::with_capacity(BLOCK) };
    feed(message, &mut hasher);
    hasher.finish()
}

/// Hashes in blocks: what is fed are thousands of numbers and short texts.
struct Gathering {
    hasher: DefaultHasher,
    bytes: Vec<u8>,
}

impl Hasher for Gathering {
    fn write(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        if self.bytes.len() >= BLOCK {
            self.hasher.write(&self.bytes);
            self.bytes.clear();
        }
    }

    fn finish(&self) -> u64 {
        let mut hasher = self.hasher.clone();
        hasher.write(&self.bytes);
        hasher.finish()
    }
}

const BLOCK: usize = 4096;

fn feed(message: &Message, hasher: &mut Gathering) {
    message.descriptor.full_name().hash(hasher);
    message.fields.len().hash(hasher);
    let feed_field = |field: &Field| {
        field.number.hash(hasher);
        feed_value(&field.value, hasher);
    };
    if message.fields.is_sorted_by_key(|field| field.number) {
        message.fields.iter().for_each(feed_field);
    } else {
        let mut fields: Vec<_> = message.fields.iter().collect();
        fields.sort_by_key(|field| field.number);
        fields.into_iter().for_each(feed_field);
    }
}

fn feed_value(value: &Value, hasher: &mut Gathering) {
    std::mem::discriminant(value).hash(hasher);
    match value {
        Value::Bool(flag) => flag.hash(hasher),
        Value::Int(number) => number.hash(hasher),
        Value::Uint(number) => number.hash(hasher),
        Value::Float(number) => number.to_bits().hash(hasher),
        Value::String(text) | Value::Text(text) => text.hash(hasher),
        Value::Bytes(bytes) => bytes.hash(hasher),
        Value::Enum(number) => number.hash(hasher),
        Value::Message(message) => feed(message, hasher),
        Value::List(items) => {
            items.len().hash(hasher);
            items.iter().for_each(|item| feed_value(&item.value, hasher));
        }
        Value::Map(entries) => {
            let mut entries: Vec<_> = entries.iter().collect();
            entries.sort_by_key(|(key, _)| key);
            entries.len().hash(hasher);
            for (key, item) in entries {
                key.hash(hasher);
                feed_value(&item.value, hasher);
            }
        }
        Value::Duration(duration) => duration.0.hash(hasher),
        Value::Wrapper(inner) => feed_value(inner, hasher),
        Value::Json(node) => feed_tree(node, hasher),
        Value::Any(any) => {
            any.name.hash(hasher);
            any.message.is_some().hash(hasher);
            any.message.iter().for_each(|message| feed(message, hasher));
        }
    }
}

fn feed_tree(node: &Node, hasher: &mut Gathering) {
    std::mem::discriminant(&node.value).hash(hasher);
    match &node.value {
        Tree::Null => {}
        Tree::Bool(flag) => flag.hash(hasher),
        Tree::Number(text) | Tree::String(text) => text.hash(hasher),
        Tree::List(items) => {
            items.len().hash(hasher);
            items.iter().for_each(|item| feed_tree(item, hasher));
        }
        Tree::Map(entries) => {
            let mut entries: Vec<_> = entries.iter().collect();
            entries.sort_by(|(one, _), (other, _)| one.name.cmp(&other.name));
            entries.len().hash(hasher);
            for (key, node) in entries {
                key.name.hash(hasher);
                feed_tree(node, hasher);
            }
        }
    }
}
