//! Envoy's protos as descriptors. What arrives: the type names a configuration mentions. What leaves: a pool with
//! those files, and what they import, in it.
//!
//! The whole set has 514 files. A pool of all of them would cost 30 MB that an idle proxy never gives back, so a
//! pool is made for each load from the hundred or so files that the load needs.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use prost_reflect::{DescriptorPool, MessageDescriptor};

use crate::suggest::did_you_mean;
use crate::wire;

/// The stripped `FileDescriptorSet` that the build script left.
static SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/envoy.bin"));

/// The root of every configuration.
pub(crate) const BOOTSTRAP: &str = "envoy.config.bootstrap.v3.Bootstrap";

/// Message types by name.
#[derive(Clone, Debug)]
pub(crate) struct Schema {
    pool: DescriptorPool,
}

impl Schema {
    /// The bootstrap's types and those named, as far as they exist.
    pub(crate) fn with<'a>(types: impl IntoIterator<Item = &'a str>) -> Self {
        let index = Index::new();
        let mut wanted = Vec::new();
        for name in [BOOTSTRAP].into_iter().chain(types) {
            wanted.extend(index.file_of(name));
        }
        let mut chosen = HashSet::new();
        let mut set = Vec::new();
        while let Some(file) = wanted.pop() {
            if chosen.insert(file.name) {
                set.extend_from_slice(file.whole);
                wanted.extend(file.imports.iter().filter_map(|import| index.files.get(import)));
            }
        }
        let mut pool = DescriptorPool::new();
        pool.decode_file_descriptor_set(set.as_slice())
            .expect("the build script left a whole set, and imports are followed");
        Self { pool }
    }

    /// The message type with this full name.
    pub(crate) fn message(&self, name: &str) -> Option<MessageDescriptor> {
        self.pool.get_message_by_name(name)
    }

    /// Whether there is such a type at all.
    pub(crate) fn has(name: &str) -> bool {
        static INDEX: LazyLock<Index> = LazyLock::new(Index::new);
        INDEX.file_of(name).is_some()
    }

    /// What to say of a type that does not exist.
    pub(crate) fn suggestion(name: &str) -> String {
        did_you_mean(name, Index::new().messages.keys())
    }
}

/// One file of the set, still encoded.
struct File {
    name: &'static str,
    /// With its tag and length.
    whole: &'static [u8],
    imports: Vec<&'static str>,
}

/// Finds files without decoding them.
struct Index {
    files: HashMap<&'static str, File>,
    /// Top-level messages by full name.
    messages: HashMap<String, &'static str>,
}

impl Index {
    fn new() -> Self {
        let mut index = Self { files: HashMap::new(), messages: HashMap::new() };
        for field in wire::fields(SET) {
            let (mut name, mut package, mut imports, mut messages) =
                ("", "", Vec::new(), Vec::new());
            for inner in wire::fields(field.payload) {
                match inner.number {
                    1 => name = inner.text(),
                    2 => package = inner.text(),
                    3 => imports.push(inner.text()),
                    4 => messages.extend(
                        wire::fields(inner.payload)
                            .find(|part| part.number == 1)
                            .map(|part| part.text()),
                    ),
                    _ => {}
                }
            }
            for message in messages {
                index.messages.insert(format!("{package}.{message}"), name);
            }
            index.files.insert(name, File { name, whole: field.whole, imports });
        }
        index
    }

    /// The file that defines a message, which may be nested.
    fn file_of(&self, message: &str) -> Option<&File> {
        let mut name = message;
        loop {
            if let Some(file) = self.messages.get(name) {
                return self.files.get(file);
            }
            name = name.rsplit_once('.')?.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bootstrap_alone_has_no_extensions() {
        let schema = Schema::with([]);
        assert!(schema.message(BOOTSTRAP).is_some());
        assert!(schema.message(TCP_PROXY).is_none());
    }

    #[test]
    fn named_types_are_there() {
        let schema = Schema::with([TCP_PROXY, "no.such.Type"]);
        assert!(schema.message(TCP_PROXY).is_some());
    }

    #[test]
    fn validation_rules_survive() {
        let schema = Schema::with([]);
        let cluster = schema.message("envoy.config.cluster.v3.Cluster").unwrap();
        let rules = cluster.parent_pool().get_extension_by_name("validate.rules").unwrap();
        assert!(cluster.get_field_by_name("name").unwrap().options().has_extension(&rules));
    }

    const TCP_PROXY: &str = "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy";
}
