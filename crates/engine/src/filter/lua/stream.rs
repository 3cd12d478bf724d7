//! A stream that a script goes on with: its request, and where it is told of the response.

use std::rc::Rc;

use bytes::Bytes;
use towpath_proto::Head;

use super::answering::Answering;
use super::machine::Machine;
use super::side::{Has, Outcome, Side};
use super::{Host, MOST_CONTENT};
use crate::filter::{
    Answer, Direction, OnAnswer, Release, Reply, RequestView, ResponseView, Said, Step,
    StreamFilter, TalkView, WantedHost,
};
use crate::format::Facts;

#[derive(Debug)]
pub(super) struct LuaStream {
    host: Rc<Host>,
    machine: Rc<Machine>,
    request: Option<Side>,
    response: Option<Answering>,
    wanted: Option<WantedHost>,
}

impl LuaStream {
    pub(super) fn new(host: &Rc<Host>, machine: Rc<Machine>, request: Option<Side>) -> Self {
        let host = Rc::clone(host);
        let wanted = request.as_ref().and_then(Side::take_wanted);
        // Of a script that is through nothing is kept.
        let request = request.filter(Side::is_waiting);
        Self { host, machine, request, response: None, wanted }
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
        let has = Has { ends: true, waits: false, asks: true };
        let outcome = side.run_request(&self.host, &self.machine, values, has, request);
        self.wanted = side.take_wanted().or_else(|| self.wanted.take());
        outcome.on_answer()
    }

    fn on_answer(&mut self, answer: &Answer, request: &mut RequestView<'_>) -> OnAnswer {
        let Some(side) = &mut self.request else { return OnAnswer::GoOn };
        let values = side.values_of_answer(&self.machine, answer);
        // Of a request whose content was shown already nothing more comes.
        let is_whole = side.body().is_some();
        let has = Has { ends: request.is_empty || is_whole, waits: !request.is_empty, asks: true };
        let outcome = side.run_request(&self.host, &self.machine, values, has, request);
        self.wanted = side.take_wanted().or_else(|| self.wanted.take());
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
            side.show_trailers(trailers);
        }
    }

    fn return_trailers(&mut self, trailers: &mut Head) {
        if let Some(side) = &mut self.request {
            side.hide_trailers(trailers);
        }
    }

    fn on_response_head(&mut self, response: &mut ResponseView<'_>) -> Release {
        if let Some(answering) = &mut self.response {
            answering.leave();
            return Release::Now;
        }
        match Answering::begin(&self.host, response) {
            Some((answering, release)) => {
                self.response = Some(answering);
                release
            }
            None => Release::Now,
        }
    }

    fn on_response_data(&mut self, data: &mut Bytes, facts: &Facts<'_>) -> Result<(), Reply> {
        self.response.as_mut().map_or(Ok(()), |answering| answering.see_data(data, facts))
    }

    fn keeps_response_end(&mut self, trailers: Option<&mut Head>, _facts: &Facts<'_>) -> bool {
        self.response.as_mut().is_some_and(|answering| answering.keeps_end(trailers))
    }

    fn on_response_end(&mut self, trailers: Option<&mut Head>, facts: &Facts<'_>) -> Bytes {
        if let Some(answering) = &mut self.response {
            answering.see_end(trailers, facts);
        }
        Bytes::new()
    }

    fn release(
        &mut self,
        head: &mut Head,
        trailers: Option<&mut Head>,
        facts: &Facts<'_>,
    ) -> Bytes {
        let answering = self.response.as_mut();
        answering.map(|answering| answering.release(head, trailers, facts)).unwrap_or_default()
    }

    fn on_said(&mut self, said: Said, stream: &mut TalkView<'_>) {
        if let Some(answering) = &mut self.response {
            answering.on_said(said, stream);
        }
    }

    fn next_step(&mut self) -> Option<Step> {
        self.response.as_mut()?.steps.pop_front()
    }

    fn is_full(&self, way: Direction) -> bool {
        way == Direction::Response && self.response.as_ref().is_some_and(Answering::is_full)
    }

    fn held(&self) -> usize {
        self.response.as_ref().map_or(0, Answering::held)
    }
}
