//! A response that a script goes on with.
//!
//! Where a script may ask other servers, it talks: head and content are held until it goes on. Elsewhere the head is
//! held only with the end of a content that it wants as a whole.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use mlua::MultiValue;
use towpath_proto::{Head, Name};

use super::handle::Shown;
use super::machine::Machine;
use super::side::{Has, Outcome, Side};
use super::{Host, MOST_CONTENT};
use crate::filter::{Direction, Release, Reply, ResponseView, Said, Step, TalkView};
use crate::format::Facts;
use crate::record::details;

#[derive(Debug)]
pub(super) struct Answering {
    host: Rc<Host>,
    machine: Rc<Machine>,
    side: Side,
    hold: Hold,
    pub(super) steps: VecDeque<Step>,
}

/// What is held.
#[derive(Debug)]
enum Hold {
    Nothing,
    /// The head, and content until its end.
    Whole(Vec<u8>),
    /// The same until the script goes on.
    Talk(Held),
}

#[derive(Debug, Default)]
struct Held {
    data: BytesMut,
    /// All is here, with these trailers.
    end: Option<Option<Head>>,
}

impl Answering {
    /// Runs the script of a response's route, if there is one.
    pub(super) fn begin(
        host: &Rc<Host>,
        response: &mut ResponseView<'_>,
    ) -> Option<(Self, Release)> {
        let machine = host.machine(response.route.first())?;
        let function = machine.on_response.clone()?;
        let shown = Shown::new(true, host.configured(response.route, response.facts));
        let (side, values) = Side::begin(host, &machine, &function, shown)?;
        let host = Rc::clone(host);
        let (hold, steps) = (Hold::Nothing, VecDeque::new());
        let mut this = Self { host, machine, side, hold, steps };
        let release = this.see_head(values, response);
        Some((this, release))
    }

    fn see_head(&mut self, values: MultiValue, response: &mut ResponseView<'_>) -> Release {
        let has = Has { ends: response.ends, waits: true, asks: self.machine.asks };
        let head = (&mut *response.head, response.facts.request);
        match self.run(values, has, head, response.facts) {
            Outcome::Ask(callout) => {
                let end = response.ends.then_some(None);
                self.hold = Hold::Talk(Held { data: BytesMut::new(), end });
                self.steps.push_back(Step::Ask(callout));
                Release::Later
            }
            Outcome::Wait if self.side.waits_for_body() && self.machine.asks => {
                self.hold = Hold::Talk(Held::default());
                Release::Later
            }
            Outcome::Wait if self.side.waits_for_body() => {
                self.hold = Hold::Whole(Vec::new());
                Release::AtEnd
            }
            Outcome::Wait | Outcome::Done | Outcome::Reply(_) => Release::Now,
        }
    }

    /// Another response takes the place of this one.
    pub(super) fn leave(&mut self) {
        self.side.forget();
        self.steps.clear();
        if matches!(self.hold, Hold::Talk(_)) {
            self.steps.push_back(Step::HangUp);
        }
        self.hold = Hold::Nothing;
    }

    pub(super) fn see_data(&mut self, data: &mut Bytes, facts: &Facts<'_>) -> Result<(), Reply> {
        let is_too_much = match &mut self.hold {
            Hold::Nothing => {
                self.side.see_piece(&self.host, &self.machine, data, facts);
                return Ok(());
            }
            Hold::Whole(whole) => {
                whole.extend_from_slice(&std::mem::take(data));
                whole.len() > MOST_CONTENT
            }
            Hold::Talk(held) => {
                held.data.extend_from_slice(&std::mem::take(data));
                self.side.waits_for_body() && held.data.len() > MOST_CONTENT
            }
        };
        if is_too_much {
            self.hold = Hold::Nothing;
            self.side.forget();
            return Err(too_large());
        }
        Ok(())
    }

    /// Whether it keeps the end.
    pub(super) fn keeps_end(&mut self, trailers: Option<&mut Head>) -> bool {
        let Hold::Talk(held) = &mut self.hold else { return false };
        held.end = Some(trailers.map(std::mem::take));
        if self.side.waits_for_body() {
            // The head is not at hand.
            self.steps.push_back(Step::Time(Direction::Response, Some(Duration::ZERO)));
        }
        true
    }

    pub(super) fn see_end(&mut self, trailers: Option<&mut Head>, facts: &Facts<'_>) {
        if matches!(self.hold, Hold::Nothing) {
            self.side.see_end(&self.host, &self.machine, trailers, facts);
        }
    }

    /// The end of what was held as a whole: answers all of the content.
    pub(super) fn release(
        &mut self,
        head: &mut Head,
        trailers: Option<&mut Head>,
        facts: &Facts<'_>,
    ) -> Bytes {
        let Hold::Whole(whole) = std::mem::replace(&mut self.hold, Hold::Nothing) else {
            return Bytes::new();
        };
        let mut trailers = trailers;
        if let Some(trailers) = trailers.as_deref_mut() {
            self.side.show_trailers(trailers);
        }
        let values = self.side.values_of_body(&self.machine, whole);
        let has = Has { ends: true, waits: false, asks: false };
        self.run(values, has, (&mut *head, facts.request), facts);
        if let Some(trailers) = trailers {
            self.side.hide_trailers(trailers);
        }
        self.content(head).unwrap_or_default()
    }

    /// It has the answer that it waited for, or all of the content.
    pub(super) fn on_said(&mut self, said: Said, stream: &mut TalkView<'_>) {
        let Hold::Talk(mut held) = std::mem::replace(&mut self.hold, Hold::Nothing) else { return };
        let values = match said {
            Said::Answer(answer) => self.side.values_of_answer(&self.machine, &answer),
            Said::Late(_) if self.side.waits_for_body() && held.end.is_some() => {
                self.side.values_of_body(&self.machine, std::mem::take(&mut held.data).into())
            }
            Said::Late(_) | Said::Message(_) | Said::Over(..) => {
                self.hold = Hold::Talk(held);
                return;
            }
        };
        match self.go_on(values, &mut held, stream) {
            Outcome::Ask(callout) => {
                self.steps.push_back(Step::Ask(callout));
                self.hold = Hold::Talk(held);
            }
            Outcome::Wait if self.side.waits_for_body() && held.data.len() > MOST_CONTENT => {
                self.side.forget();
                self.steps.push_back(Step::Answer(Box::new(too_large())));
            }
            Outcome::Wait if self.side.waits_for_body() => self.hold = Hold::Talk(held),
            Outcome::Wait | Outcome::Done | Outcome::Reply(_) => self.let_go(held, stream),
        }
    }

    /// Runs the script until it is through or waits for what is not here.
    fn go_on(&mut self, values: MultiValue, held: &mut Held, stream: &mut TalkView<'_>) -> Outcome {
        let mut values = values;
        loop {
            let is_whole = self.side.body().is_some();
            let ends = is_whole || (held.end.is_some() && held.data.is_empty());
            if let Some(Some(trailers)) = &mut held.end {
                self.side.show_trailers(trailers);
            }
            let has = Has { ends, waits: !ends, asks: true };
            let head = (&mut *stream.response, Some(&*stream.request));
            let outcome = self.run(values, has, head, stream.facts);
            if let Some(Some(trailers)) = &mut held.end {
                self.side.hide_trailers(trailers);
            }
            let is_here = held.end.is_some() && held.data.len() <= MOST_CONTENT;
            if !(self.side.waits_for_body() && is_here) {
                return outcome;
            }
            let whole = std::mem::take(&mut held.data).into();
            values = self.side.values_of_body(&self.machine, whole);
        }
    }

    /// What was held goes on, as the script leaves it.
    fn let_go(&mut self, held: Held, stream: &mut TalkView<'_>) {
        let Held { data, mut end } = held;
        let content = self.content(stream.response);
        let is_whole = content.is_some();
        let mut content = content.unwrap_or_else(|| data.freeze());
        if !is_whole {
            if !content.is_empty() {
                self.side.see_piece(&self.host, &self.machine, &mut content, stream.facts);
            }
            if let Some(trailers) = &mut end {
                let trailers = trailers.as_mut();
                self.side.see_end(&self.host, &self.machine, trailers, stream.facts);
            }
        }
        let end = end.map(|trailers| trailers.filter(|trailers| trailers.iter().len() > 0));
        let way = Direction::Response;
        let ends = content.is_empty() && matches!(end, Some(None));
        self.steps.push_back(Step::GoOn { way, ends });
        if !content.is_empty() {
            self.steps.push_back(Step::Pass(way, content));
        }
        if let Some(trailers) = end.filter(|_| !ends) {
            self.steps.push_back(Step::End(way, trailers));
        }
    }

    /// The whole content, if the script has seen it.
    fn content(&self, head: &mut Head) -> Option<Bytes> {
        let (bytes, is_changed) = self.side.body()?;
        if is_changed {
            head.set_number(Name::ContentLength, bytes.len() as u64);
        }
        Some(bytes.into())
    }

    fn run(
        &mut self,
        values: MultiValue,
        has: Has,
        head: (&mut Head, Option<&Head>),
        facts: &Facts<'_>,
    ) -> Outcome {
        self.side.run_response(&self.host, &self.machine, values, has, head, facts)
    }

    pub(super) fn held(&self) -> usize {
        match &self.hold {
            Hold::Nothing => 0,
            Hold::Whole(whole) => whole.len(),
            Hold::Talk(held) => held.data.len(),
        }
    }

    pub(super) fn is_full(&self) -> bool {
        matches!(&self.hold, Hold::Talk(held) if held.data.len() > MOST_CONTENT)
    }
}

fn too_large() -> Reply {
    Reply::new(500, b"Internal Server Error", details::RESPONSE_PAYLOAD_TOO_LARGE)
}
