//! A stream that a script goes on with.

use std::rc::Rc;

use bytes::Bytes;
use towpath_proto::{Head, Name};

use super::handle::Shown;
use super::machine::Machine;
use super::side::{Has, Outcome, Side};
use super::{Host, MOST_CONTENT};
use crate::filter::{
    Answer, OnAnswer, Release, Reply, RequestView, ResponseView, StreamFilter, WantedHost,
};
use crate::format::Facts;
use crate::record::details;

#[derive(Debug)]
pub(super) struct LuaStream {
    host: Rc<Host>,
    machine: Rc<Machine>,
    request: Option<Side>,
    response: Option<Side>,
    /// Of a response that the script wants as a whole.
    collected: Vec<u8>,
    wanted: Option<WantedHost>,
}

impl LuaStream {
    pub(super) fn new(host: &Rc<Host>, machine: Rc<Machine>, request: Option<Side>) -> Self {
        let host = Rc::clone(host);
        let wanted = request.as_ref().and_then(Side::take_wanted);
        Self { host, machine, request, response: None, collected: Vec::new(), wanted }
    }

    /// Whether it has anything to do with the stream if the script is through with its request.
    pub(super) fn goes_on(&self) -> bool {
        self.wanted.is_some() || self.machine.on_response.is_some()
    }
}

impl StreamFilter for LuaStream {
    fn on_collected(&mut self, request: &mut RequestView<'_>) -> OnAnswer {
        let Some(side) = &mut self.request else { return OnAnswer::GoOn };
        let whole = request.content.concat();
        let values = side.values_of_body(&self.machine, whole);
        let has = Has { ends: true, waits: false };
        let outcome = side.run_request(&self.host, &self.machine, values, has, request);
        self.wanted = side.take_wanted().or(self.wanted.take());
        outcome.on_answer()
    }

    fn on_answer(&mut self, answer: Answer, request: &mut RequestView<'_>) -> OnAnswer {
        let Some(side) = &mut self.request else { return OnAnswer::GoOn };
        let values = side.values_of_answer(&self.machine, answer);
        // Of a request whose content was shown already nothing more comes.
        let is_whole = side.body().is_some();
        let has = Has { ends: request.is_empty || is_whole, waits: !request.is_empty };
        let outcome = side.run_request(&self.host, &self.machine, values, has, request);
        self.wanted = side.take_wanted().or(self.wanted.take());
        if matches!(outcome, Outcome::Wait) && side.waits_for_body() {
            return OnAnswer::Collect(MOST_CONTENT);
        }
        if matches!(outcome, Outcome::Wait) {
            side.see_kept(&self.host, &self.machine, request);
        }
        outcome.on_answer()
    }

    fn wanted_host(&self) -> Option<&WantedHost> {
        self.wanted.as_ref()
    }

    fn on_request_data(&mut self, data: &mut Bytes, facts: &Facts<'_>) -> Result<(), Reply> {
        if let Some(side) = self.request.as_mut().filter(|side| side.waits_for_piece()) {
            side.see_piece(&self.host, &self.machine, data, facts);
        }
        Ok(())
    }

    fn keeps_request_end(&mut self, trailers: Option<&mut Head>, facts: &Facts<'_>) -> bool {
        if let Some(side) = self.request.as_mut().filter(|side| side.waits_for_piece()) {
            side.see_end(&self.host, &self.machine, trailers, facts);
        }
        false
    }

    fn lend_trailers(&mut self, trailers: &mut Head) {
        if let Some(side) = &mut self.request {
            side.show_trailers(Some(trailers));
        }
    }

    fn return_trailers(&mut self, trailers: &mut Head) {
        if let Some(side) = &mut self.request {
            side.hide_trailers(Some(trailers));
        }
    }

    fn on_response_head(&mut self, response: &mut ResponseView<'_>) -> Release {
        let Some(function) = self.machine.on_response.clone() else { return Release::Now };
        let configured = self.host.configured(response.route, response.facts);
        let shown = Shown::new(true, configured);
        let begun = Side::begin(&self.host, &self.machine, &function, shown);
        let Some((mut side, values)) = begun else { return Release::Now };
        let has = Has { ends: response.ends, waits: true };
        let at = (&mut *response.head, response.facts);
        side.run_response(&self.host, &self.machine, values, has, at);
        let waits = side.waits_for_body();
        self.response = Some(side);
        if waits { Release::AtEnd } else { Release::Now }
    }

    fn on_response_data(&mut self, data: &mut Bytes, facts: &Facts<'_>) -> Result<(), Reply> {
        let Some(side) = &mut self.response else { return Ok(()) };
        if !side.waits_for_body() {
            side.see_piece(&self.host, &self.machine, data, facts);
            return Ok(());
        }
        if self.collected.len() + data.len() > MOST_CONTENT {
            self.collected = Vec::new();
            return Err(Reply::new(
                500,
                b"Internal Server Error",
                details::RESPONSE_PAYLOAD_TOO_LARGE,
            ));
        }
        self.collected.extend_from_slice(&std::mem::take(data));
        Ok(())
    }

    fn on_response_end(&mut self, trailers: Option<&mut Head>, facts: &Facts<'_>) -> Bytes {
        if let Some(side) = &mut self.response {
            side.see_end(&self.host, &self.machine, trailers, facts);
        }
        Bytes::new()
    }

    fn release(
        &mut self,
        head: &mut Head,
        trailers: Option<&mut Head>,
        facts: &Facts<'_>,
    ) -> Bytes {
        let whole = std::mem::take(&mut self.collected);
        let Some(side) = &mut self.response else { return whole.into() };
        let mut trailers = trailers;
        side.show_trailers(trailers.as_deref_mut());
        let values = side.values_of_body(&self.machine, whole);
        let has = Has { ends: true, waits: false };
        side.run_response(&self.host, &self.machine, values, has, (head, facts));
        side.hide_trailers(trailers);
        let Some((bytes, is_changed)) = side.body() else { return Bytes::new() };
        if is_changed {
            head.set_number(Name::ContentLength, bytes.len() as u64);
        }
        bytes.into()
    }
}
