//! Resources as `/config_dump` shows them, made when a client asks: texts of all of them would take many times the
//! memory that they take as they came.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use serde_json::Value as Json;

use super::Kind;
use crate::message::{Seen, UnknownFields, decode_binary, to_json};
use crate::report::Report;
use crate::schema::Schema;

/// Makes JSON of resources that were taken, on any thread.
#[derive(Clone, Debug)]
pub struct Printer {
    /// That by which resources are read; held for a look.
    schema: Arc<Mutex<Schema>>,
}

impl Printer {
    pub(super) fn new(schema: &Schema) -> Self {
        Self { schema: Arc::new(Mutex::new(schema.clone())) }
    }

    /// Has more types from here on.
    pub(super) fn learn(&self, schema: &Schema) {
        *self.schema.lock().unwrap_or_else(PoisonError::into_inner) = schema.clone();
    }

    /// A resource that was taken as protobuf's JSON, with what is secret left out.
    #[must_use]
    pub fn json(&self, kind: Kind, body: &Bytes) -> Option<Json> {
        let schema = self.schema.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (mut report, mut seen) = (Report::default(), Seen::default());
        let unknown = UnknownFields::Refuse;
        let message =
            decode_binary(&schema, &mut report, unknown, kind.message(), body, 0, &mut seen);
        message.ok().flatten().map(|message| to_json(&message))
    }
}
