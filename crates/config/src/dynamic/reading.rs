//! What resources say, as they come.

use std::collections::HashSet;
use std::thread;

use bytes::Bytes;

use super::{Given, Kind, Resources, said};
use crate::message::{Message, Seen, UnknownFields, decode_binary, decode_ordinary};

impl Resources {
    /// Reads what is ordinary of resources, many of them on a thread of its own, which has a part of the heap of its
    /// own: what stays of them would stand scattered among what is freed soon.
    pub(super) fn read_ahead(
        &mut self,
        kind: Kind,
        given: Vec<Given>,
    ) -> Vec<(Given, Option<Message>)> {
        let known = |it: &Given| self.entries.get(kind, &it.name).map(|known| &known.body);
        let is_new: Vec<bool> = given.iter().map(|it| known(it) != Some(&it.body)).collect();
        let new = given.iter().zip(&is_new).filter(|(_, is_new)| **is_new);
        let size: usize = new.map(|(it, _)| it.body.len()).sum();
        let names: HashSet<&str> = given.iter().map(|it| &*it.name).collect();
        if size < MANY_BYTES || names.len() < given.len() {
            return given.into_iter().map(|it| (it, None)).collect();
        }
        let texts = given.iter().zip(&is_new);
        let texts: Vec<Option<usize>> =
            texts.map(|(it, is_new)| is_new.then(|| self.text(kind, &it.name))).collect();
        let schema = &self.schema;
        let read = || -> (Vec<Option<Message>>, Box<[u8]>) {
            let all = given.iter().zip(&texts);
            let read =
                all.map(|(it, text)| decode_ordinary(schema, kind.message(), &it.body, (*text)?));
            (read.collect(), vec![0; CORK].into())
        };
        // What could not be read there is read again, and tells why.
        let (read, cork) = thread::scope(|scope| scope.spawn(read).join())
            .unwrap_or_else(|_| (given.iter().map(|_| None).collect(), Box::default()));
        self.cork = cork;
        for ((given, text), message) in given.iter().zip(&texts).zip(&read) {
            if let Some(text) = text.filter(|_| message.is_none() && !self.has(kind, &given.name)) {
                self.free_text(text);
            }
        }
        given.into_iter().zip(read).collect()
    }

    pub(super) fn decode(
        &mut self,
        kind: Kind,
        name: &str,
        body: &Bytes,
    ) -> Result<Message, String> {
        let text = self.text(kind, name);
        let read = self.decode_as(kind, body, text);
        if read.is_err() && !self.has(kind, name) {
            self.free_text(text);
        }
        read
    }

    fn decode_as(&mut self, kind: Kind, body: &Bytes, text: usize) -> Result<Message, String> {
        loop {
            let (mut report, mut seen) = (self.report(), Seen::default());
            let unknown = UnknownFields::Refuse;
            let schema = &self.schema;
            let message =
                decode_binary(schema, &mut report, unknown, kind.message(), body, text, &mut seen)?;
            if !seen.types.is_empty() {
                self.learn(seen.types).map_err(|error| error.to_string())?;
                continue;
            }
            if seen.unknown_fields > 0 && self.options.reject_unknown_dynamic_fields {
                let count = seen.unknown_fields;
                return Err(format!("{count} fields that no message has"));
            }
            self.unknown_fields += seen.unknown_fields;
            return match message {
                Some(message) if report.problems.is_empty() => Ok(message),
                _ => Err(said(report.problems.iter().map(|it| (&it.location, &it.message)))),
            };
        }
    }
}

/// Large enough not to be among small things.
const CORK: usize = 4096;
/// So much is read on a thread of its own.
pub(super) const MANY_BYTES: usize = 64 * 1024;
