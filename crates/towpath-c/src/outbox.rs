//! Outboxes: from the client library's ends to the header's.

use std::time::Duration;

use towpath::Client;
use towpath::outbox::{Ended, EntryId, Error, Outcome};

use crate::abi::{Code, NONE, OnEnd, OutboxEnd, outcome};
use crate::engine::{Engine, call_app};
use crate::failure::{Failure, Result, c_text};
use crate::foreign::{User, ms, or};
use crate::request;

/// `towpath_outbox`.
#[derive(Debug)]
pub struct Outbox {
    pub(crate) outbox: towpath::Outbox,
    client: Client,
}

/// What the options say, out of C's hands.
pub(crate) struct Wishes<'a> {
    pub(crate) path: &'a str,
    pub(crate) on_end: Option<(OnEnd, User)>,
    pub(crate) max_bytes: u64,
    pub(crate) max_entries: u32,
    pub(crate) parallel: u32,
    pub(crate) expires_after_s: u32,
    pub(crate) first_pause_ms: u32,
    pub(crate) longest_pause_ms: u32,
    pub(crate) response_bytes: u32,
}

impl Wishes<'_> {
    pub(crate) fn open(self, engine: &Engine) -> Result<Outbox> {
        let max_bytes = if self.max_bytes == 0 { 16 << 20 } else { self.max_bytes };
        let mut builder = engine
            .engine
            .outbox(self.path)
            .client(&engine.client)
            .room(or(self.max_entries, 1000) as usize, max_bytes)
            .parallel(or(self.parallel, 4) as usize)
            .pauses(ms(self.first_pause_ms, 1000), ms(self.longest_pause_ms, 300_000));
        builder = match self.expires_after_s {
            0 => builder,
            NONE => builder.expires_after(Duration::ZERO),
            s => builder.expires_after(Duration::from_secs(s.into())),
        };
        builder = match self.response_bytes {
            0 => builder,
            NONE => builder.response_bytes(0),
            bytes => builder.response_bytes(bytes as usize),
        };
        if let Some((on_end, user)) = self.on_end {
            builder = builder.on_end(move |ended| tell(on_end, &user, ended));
        }
        Ok(Outbox { outbox: builder.open()?, client: engine.client.clone() })
    }
}

impl Outbox {
    pub(crate) fn put(
        &self,
        wishes: request::Wishes<'_>,
        ordering_key: Option<&str>,
    ) -> Result<EntryId> {
        let mut put = self.outbox.put(wishes.request(&self.client)?);
        if let Some(ordering_key) = ordering_key {
            put = put.ordering_key(ordering_key);
        }
        Ok(put.keep()?)
    }

    /// Whether it is empty, within the time; none waits without end.
    pub(crate) fn wait(&self, limit: Option<Duration>) -> bool {
        if let Some(limit) = limit {
            return self.outbox.wait_until_empty(limit);
        }
        while !self.outbox.wait_until_empty(A_DAY) {}
        true
    }
}

/// The end as the header has it.
fn tell(on_end: OnEnd, user: &User, ended: &Ended) {
    let key = c_text(&ended.key);
    let mut end = OutboxEnd {
        size: size_of::<OutboxEnd>(),
        entry: ended.id.0,
        user: user.0,
        key: key.as_ptr(),
        body: std::ptr::null(),
        body_length: 0,
        outcome: outcome::EXPIRED,
        status: 0,
        whole: 0,
    };
    if let Outcome::Answered { status, body, whole } = &ended.outcome {
        (end.outcome, end.status) = (outcome::ANSWERED, (*status).into());
        (end.body, end.body_length, end.whole) = (body.as_ptr(), body.len(), (*whole).into());
    }
    call_app(|| on_end(&raw const end));
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Request(error) => error.into(),
            other @ (Error::Full(_) | Error::File { .. } | _) => {
                Self::new(Code::Resource, other.to_string())
            }
        }
    }
}

const A_DAY: Duration = Duration::from_secs(24 * 3600);
