//! What filters leave of a stream for others to read: Envoy's dynamic metadata and filter state.
//!
//! Arrives: what a filter says. Leaves: what later filters, routes, formats and logs ask for. It is made with the first
//! thing that is written, and belongs to the stream's record: what writes or reads it has to say that it
//! [reads the record](crate::filter::FilterConfig::reads_record).

#[cfg(feature = "serving")]
mod read;
mod value;

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

#[cfg(feature = "serving")]
pub use read::read_json;
pub use value::{
    FilterMetadata, JsonStyle, Struct, Value, merge, value_at, weight_of, write_struct,
};

/// The metadata and state of one stream.
#[derive(Debug, Default)]
pub struct StreamInfo(OnceCell<Rc<RefCell<Contents>>>);

#[derive(Debug, Default)]
struct Contents {
    metadata: Struct,
    state: BTreeMap<Box<str>, StateObject>,
    drains: bool,
    weight: usize,
}

/// An object of the filter state.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StateObject {
    /// What it says as text; nothing where it has fields alone.
    pub value: Box<[u8]>,
    /// Its fields, where it has some; then the text, if there is one, is their JSON.
    pub fields: Option<Struct>,
    /// Its JSON, where neither its text nor that of its fields is it.
    pub json: Option<Box<[u8]>>,
    /// Whether it goes along upstream.
    pub sharing: Sharing,
    /// It is not replaced.
    pub read_only: bool,
    /// It may be a part of a request's hash.
    pub is_hashable: bool,
}

/// An object of the filter state that goes along with a connection: its name and what it says.
pub type SharedObject = (Box<str>, Box<[u8]>);

/// Envoy `StreamSharingMayImpactPooling`: whether an object goes along with an upstream connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sharing {
    /// `NONE`.
    #[default]
    None,
    /// `ONCE`: to the next connection.
    Once,
    /// `TRANSITIVE`: to all that follow.
    Transitive,
}

/// Why something was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// A stream holds [`MOST_BYTES`] already.
    TooMuch,
    /// The object that is there may not be replaced.
    ReadOnly,
}

impl StreamInfo {
    /// Whether anything was ever written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.get().is_none()
    }

    /// Adds to the metadata of a namespace; a key that is there gets its new value.
    ///
    /// # Errors
    /// When it would be too much for one stream; then nothing is added.
    pub fn add_metadata(&self, namespace: &str, entries: Struct) -> Result<(), Refused> {
        self.update_metadata(namespace, |all| {
            all.extend(entries);
            true
        })
        .map(|_| ())
    }

    /// Adds metadata of several namespaces.
    ///
    /// # Errors
    /// When it would be too much for one stream; then what comes from there on is not added.
    pub fn add_all(&self, metadata: &Struct) -> Result<(), Refused> {
        for (namespace, entries) in metadata {
            if let Value::Struct(entries) = entries {
                self.add_metadata(namespace, entries.clone())?;
            }
        }
        Ok(())
    }

    /// Changes the metadata of a namespace, and answers what `change` answers: whether it is to be kept.
    ///
    /// # Errors
    /// When it would be too much for one stream; then all is as it was before.
    pub fn update_metadata(
        &self,
        namespace: &str,
        change: impl FnOnce(&mut Struct) -> bool,
    ) -> Result<bool, Refused> {
        let mut contents = self.contents().borrow_mut();
        let (mut new, before) = match contents.metadata.get(namespace) {
            Some(Value::Struct(old)) => (old.clone(), weight_of(old) + namespace.len()),
            _ => (Struct::new(), 0),
        };
        if !change(&mut new) {
            return Ok(false);
        }
        let after = weight_of(&new) + namespace.len();
        contents.weigh(before, after)?;
        contents.metadata.insert(namespace.into(), Value::Struct(new));
        Ok(true)
    }

    /// Shows the metadata of each namespace.
    pub fn each_metadata(&self, mut each: impl FnMut(&str, &Struct)) {
        let Some(contents) = self.0.get() else { return };
        for (namespace, value) in &contents.borrow().metadata {
            if let Value::Struct(entries) = value {
                each(namespace, entries);
            }
        }
    }

    /// Shows the value at a path in the metadata of a namespace; an empty path means all of it.
    pub fn read_metadata<R>(
        &self,
        namespace: &str,
        path: &[Box<str>],
        read: impl FnOnce(Option<&Value>) -> R,
    ) -> R {
        let Some(contents) = self.0.get() else { return read(None) };
        let contents = contents.borrow();
        read(contents.metadata.get(namespace).and_then(|all| all.at(path)))
    }

    /// Shows all metadata, by namespace.
    pub fn read_all<R>(&self, read: impl FnOnce(&Struct) -> R) -> R {
        match self.0.get() {
            Some(contents) => read(&contents.borrow().metadata),
            None => read(&Struct::new()),
        }
    }

    /// Sets an object of the filter state.
    ///
    /// # Errors
    /// When it would be too much for one stream, or takes the place of one that is not replaced.
    pub fn set_state(&self, name: &str, object: StateObject) -> Result<(), Refused> {
        let mut contents = self.contents().borrow_mut();
        let old = contents.state.get(name);
        if old.is_some_and(|old| old.read_only) {
            return Err(Refused::ReadOnly);
        }
        let before = old.map_or(0, |old| name.len() + old.weight());
        let after = name.len() + object.weight();
        contents.weigh(before, after)?;
        contents.state.insert(name.into(), object);
        Ok(())
    }

    /// Shows an object of the filter state.
    pub fn read_state<R>(&self, name: &str, read: impl FnOnce(Option<&StateObject>) -> R) -> R {
        match self.0.get() {
            Some(contents) => read(contents.borrow().state.get(name)),
            None => read(None),
        }
    }

    /// All objects of the filter state.
    #[must_use]
    pub fn state(&self) -> Vec<(Box<str>, StateObject)> {
        let Some(contents) = self.0.get() else { return Vec::new() };
        let contents = contents.borrow();
        contents.state.iter().map(|(name, object)| (name.clone(), object.clone())).collect()
    }

    /// Whether some objects go along upstream.
    #[must_use]
    pub fn shares(&self) -> bool {
        let is_shared = |object: &StateObject| object.sharing != Sharing::None;
        self.0.get().is_some_and(|contents| contents.borrow().state.values().any(is_shared))
    }

    /// The objects that go along upstream.
    #[must_use]
    pub fn shared_state(&self) -> Vec<(Box<str>, StateObject)> {
        let Some(contents) = self.0.get() else { return Vec::new() };
        let contents = contents.borrow();
        let shared = contents.state.iter().filter(|(_, object)| object.sharing != Sharing::None);
        shared.map(|(name, object)| (name.clone(), object.clone())).collect()
    }

    /// The connection is to end with the response (Envoy `setShouldDrainConnectionUponCompletion`).
    #[cfg(feature = "lua")]
    pub(crate) fn drain_connection(&self) {
        self.contents().borrow_mut().drains = true;
    }

    /// Whether it is.
    pub(crate) fn drains_connection(&self) -> bool {
        self.0.get().is_some_and(|contents| contents.borrow().drains)
    }

    /// The same once more, for what looks at it without a stream at hand.
    #[cfg(feature = "lua")]
    pub(crate) fn share(&self) -> Self {
        Self(OnceCell::from(Rc::clone(self.0.get_or_init(Rc::default))))
    }

    fn contents(&self) -> &RefCell<Contents> {
        self.0.get_or_init(Rc::default)
    }
}

impl StateObject {
    fn weight(&self) -> usize {
        let json = self.json.as_ref().map_or(0, |json| json.len());
        size_of::<Self>() + self.value.len() + self.fields.as_ref().map_or(0, weight_of) + json
    }
}

impl Contents {
    fn weigh(&mut self, before: usize, after: usize) -> Result<(), Refused> {
        let weight = self.weight.saturating_sub(before).saturating_add(after);
        if weight > MOST_BYTES && after > before {
            return Err(Refused::TooMuch);
        }
        self.weight = weight;
        Ok(())
    }
}

/// How much one stream's metadata and state may hold. Envoy has no such limit.
pub const MOST_BYTES: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(key: &str, value: &str) -> Struct {
        [(key.into(), Value::text(value.as_bytes()))].into_iter().collect()
    }

    #[test]
    fn it_is_one_pointer_until_something_is_written() {
        assert_eq!(size_of::<StreamInfo>(), size_of::<usize>());
        let info = StreamInfo::default();
        info.read_metadata("a", &[], |value| assert_eq!(value, None));
        info.read_state("a", |object| assert_eq!(object, None));
        assert!(info.is_empty());
    }

    #[cfg(feature = "lua")]
    #[test]
    fn what_is_shared_is_the_same() {
        let info = StreamInfo::default();
        let other = info.share();
        other.add_metadata("n", entry("a", "1")).unwrap();
        info.read_metadata("n", &["a".into()], |value| assert_eq!(value, Some(&Value::text(b"1"))));
        info.add_metadata("n", entry("a", "2")).unwrap();
        drop(info);
        other
            .read_metadata("n", &["a".into()], |value| assert_eq!(value, Some(&Value::text(b"2"))));
    }

    #[test]
    fn a_key_gets_its_new_value_and_others_stay() {
        let info = StreamInfo::default();
        info.add_metadata("n", entry("a", "1")).unwrap();
        info.add_metadata("n", entry("b", "2")).unwrap();
        info.add_metadata("n", entry("a", "3")).unwrap();
        info.read_metadata("n", &["a".into()], |value| assert_eq!(value, Some(&Value::text(b"3"))));
        info.read_metadata("n", &["b".into()], |value| assert_eq!(value, Some(&Value::text(b"2"))));
        info.read_metadata("m", &[], |value| assert_eq!(value, None));
    }

    #[test]
    fn no_stream_holds_more_than_the_limit() {
        let info = StreamInfo::default();
        let large = "x".repeat(MOST_BYTES / 2);
        info.add_metadata("n", entry("a", &large)).unwrap();
        assert_eq!(info.add_metadata("n", entry("b", &large)), Err(Refused::TooMuch));
        info.read_metadata("n", &["b".into()], |value| assert_eq!(value, None));
        let object =
            |length| StateObject { value: vec![0; length].into(), ..StateObject::default() };
        assert_eq!(info.set_state("s", object(MOST_BYTES / 2)), Err(Refused::TooMuch));
        // What is replaced no longer counts.
        info.add_metadata("n", entry("a", "")).unwrap();
        info.set_state("s", object(MOST_BYTES / 2)).unwrap();
    }

    #[test]
    fn a_namespace_that_is_written_again_and_again_counts_once() {
        let info = StreamInfo::default();
        for turn in 0..MOST_BYTES {
            let text = if turn % 2 == 0 { "1" } else { "2" };
            info.add_metadata("namespace", entry("a", text)).unwrap();
        }
    }

    #[test]
    fn what_is_read_only_stays() {
        let info = StreamInfo::default();
        let object = |value: &[u8], read_only| StateObject {
            value: value.into(),
            sharing: Sharing::Once,
            read_only,
            ..StateObject::default()
        };
        info.set_state("s", object(b"1", true)).unwrap();
        assert_eq!(info.set_state("s", object(b"2", false)), Err(Refused::ReadOnly));
        assert_eq!(info.shared_state(), [("s".into(), object(b"1", true))]);
    }
}
