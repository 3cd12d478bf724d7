//! One function of a script at work on one side of a stream.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use mlua::{Function, IntoLua as _, Lua, MultiValue, Table, Thread, Value};
use towpath_proto::{Head, Name};

use super::entries::Configured;
use super::handle::{Content, Headers, Shared, Shown, StreamHandle, wrong};
use super::machine::{Asked, Machine, Question};
use super::{Host, values};
use crate::filter::{
    Answer, Callout, CalloutSpan, Failed, OnAnswer, Reply, RequestView, SpanName, WantedHost,
};
use crate::format::Facts;

/// What a script waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    Nothing,
    Body,
    Chunk,
    Trailers,
    Call { duplicates: bool },
}

#[derive(Debug)]
pub(super) struct Side {
    shared: Shared,
    thread: Thread,
    wait: Wait,
    /// The whole content, once the script has it.
    content: Option<Content>,
    /// Pieces of the content have gone by.
    streamed: bool,
    trailers: Option<Shared>,
    /// How often it has asked another server.
    calls: u32,
}

/// What there is of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Has {
    /// Nothing more comes.
    pub(super) ends: bool,
    /// What comes can be waited for.
    pub(super) waits: bool,
    /// Another server can be asked, and waited for.
    pub(super) asks: bool,
}

/// How far a script came.
#[derive(Debug)]
pub(super) enum Outcome {
    Done,
    Wait,
    Ask(Box<Callout>),
    Reply(Reply),
}

/// What becomes of a question.
enum Next {
    /// The script goes on with these.
    GoOn(MultiValue),
    Leave(Outcome),
}

impl Side {
    /// Begins a function; it runs with the values that are answered.
    pub(super) fn begin(
        host: &Rc<Host>,
        machine: &Rc<Machine>,
        function: &Function,
        shown: Shown,
    ) -> Option<(Self, MultiValue)> {
        host.stats.executions.inc();
        let shared = Rc::new(RefCell::new(shown));
        let budget = machine.budget();
        let handle = StreamHandle {
            shared: Rc::clone(&shared),
            notes: Rc::clone(&host.notes),
            name: host.name(),
            budget,
        };
        let begun = machine.begin(function, handle);
        let begun = begun.map_err(|error| host.fail(&error, machine)).ok();
        let (thread, handle) = begun?;
        let side = Self {
            shared,
            thread,
            wait: Wait::Nothing,
            content: None,
            streamed: false,
            trailers: None,
            calls: 0,
        };
        Some((side, MultiValue::from_iter([handle])))
    }

    /// Runs with a request at hand.
    pub(super) fn run_request(
        &mut self,
        host: &Rc<Host>,
        machine: &Rc<Machine>,
        values: MultiValue,
        has: Has,
        request: &mut RequestView<'_>,
    ) -> Outcome {
        self.shared.borrow_mut().show(request.head, request.facts, None);
        let outcome = self.run(host, machine, values, has);
        let keeps = self.waits_for_piece();
        let is_held = matches!(outcome, Outcome::Ask(_)) || self.waits_for_body();
        {
            let mut shown = self.shared.borrow_mut();
            shown.write_back(request.head);
            // A request that is held gets its route when it goes on.
            if !is_held {
                let changes = std::mem::take(&mut shown.is_changed) && host.config.clears_route;
                request.reroutes |= changes || std::mem::take(&mut shown.clears_route);
            }
            if keeps {
                shown.head.clone_from(request.head);
                shown.is_gone = true;
            }
        }
        if let Some(bytes) = self.content.as_ref().and_then(Content::taken_if_changed) {
            request.head.set_number(Name::ContentLength, bytes.len() as u64);
            *request.content = vec![bytes];
        }
        outcome
    }

    /// Runs with a response at hand.
    pub(super) fn run_response(
        &mut self,
        host: &Rc<Host>,
        machine: &Rc<Machine>,
        values: MultiValue,
        has: Has,
        (head, request): (&mut Head, Option<&Head>),
        facts: &Facts<'_>,
    ) -> Outcome {
        self.shared.borrow_mut().show(head, facts, request);
        let outcome = self.run(host, machine, values, has);
        let keeps = self.waits_for_piece();
        let mut shown = self.shared.borrow_mut();
        shown.write_back(head);
        if keeps {
            shown.head.clone_from(head);
            shown.is_gone = true;
        }
        outcome
    }

    /// Whether it waits for the next piece of a content that goes on, or its end.
    pub(super) fn waits_for_piece(&self) -> bool {
        matches!(self.wait, Wait::Chunk | Wait::Trailers)
    }

    /// Whether the script goes on later.
    pub(super) fn is_waiting(&self) -> bool {
        self.wait != Wait::Nothing
    }

    /// It is not gone on with.
    pub(super) fn forget(&mut self) {
        self.wait = Wait::Nothing;
    }

    /// The host that it wants the request to go to, if it said so since this was last asked.
    pub(super) fn take_wanted(&self) -> Option<WantedHost> {
        self.shared.borrow_mut().wanted.take()
    }

    pub(super) fn waits_for_body(&self) -> bool {
        self.wait == Wait::Body
    }

    /// The whole content is here.
    pub(super) fn values_of_body(&mut self, machine: &Machine, bytes: Vec<u8>) -> MultiValue {
        let content = Content::new(bytes);
        self.content = Some(content.clone());
        answer(machine.lua(), content)
    }

    /// What the content of a response is, as the script has left it, and whether it has changed it.
    pub(super) fn body(&self) -> Option<(Vec<u8>, bool)> {
        self.content.as_ref().map(Content::bytes)
    }

    /// What came of a question to another server.
    pub(super) fn values_of_answer(&self, machine: &Machine, answer: &Answer) -> MultiValue {
        let Wait::Call { duplicates } = self.wait else { return MultiValue::new() };
        let table = response_table(machine.lua(), answer, duplicates);
        match table {
            Ok(values) => values,
            Err(error) => refused(machine.lua(), &error),
        }
    }

    /// A piece of a content that goes on, if the script waits for it: it may become another.
    pub(super) fn see_piece(
        &mut self,
        host: &Rc<Host>,
        machine: &Rc<Machine>,
        data: &mut bytes::Bytes,
        facts: &Facts<'_>,
    ) {
        self.streamed = true;
        if self.wait != Wait::Chunk {
            return;
        }
        let piece = Content::new(data.to_vec());
        let values = answer(machine.lua(), piece.clone());
        self.run_with(host, machine, values, Has { ends: false, waits: true, asks: false }, facts);
        if let Some(bytes) = piece.taken_if_changed() {
            *data = bytes;
        }
    }

    /// What has come of a request's content while the script waited for something else.
    pub(super) fn see_kept(
        &mut self,
        host: &Rc<Host>,
        machine: &Rc<Machine>,
        request: &mut RequestView<'_>,
    ) {
        for piece in request.content.iter_mut() {
            self.see_piece(host, machine, piece, request.facts);
        }
        if request.ends && self.waits_for_piece() {
            self.see_end(host, machine, None, request.facts);
        }
    }

    /// The message is all here.
    pub(super) fn see_end(
        &mut self,
        host: &Rc<Host>,
        machine: &Rc<Machine>,
        trailers: Option<&mut Head>,
        facts: &Facts<'_>,
    ) {
        let mut trailers = trailers;
        if let Some(trailers) = trailers.as_deref_mut() {
            self.show_trailers(trailers);
        }
        let values = match self.wait {
            Wait::Chunk => Some(MultiValue::new()),
            Wait::Trailers => Some(self.values_of_trailers(machine.lua())),
            Wait::Nothing | Wait::Body | Wait::Call { .. } => None,
        };
        if let Some(values) = values {
            self.run_with(
                host,
                machine,
                values,
                Has { ends: true, waits: false, asks: false },
                facts,
            );
        }
        if let Some(trailers) = trailers {
            self.hide_trailers(trailers);
        }
    }

    /// Lends it the trailers.
    pub(super) fn show_trailers(&mut self, trailers: &mut Head) {
        let mut shown = Shown::new(true, Configured::default());
        (shown.head, shown.is_trailers) = (std::mem::take(trailers), true);
        self.trailers = Some(Rc::new(RefCell::new(shown)));
    }

    /// Takes them back.
    pub(super) fn hide_trailers(&mut self, trailers: &mut Head) {
        if let Some(shared) = self.trailers.take() {
            *trailers = std::mem::take(&mut shared.borrow_mut().head);
        }
    }

    fn values_of_trailers(&self, lua: &Lua) -> MultiValue {
        match &self.trailers {
            Some(shared) => answer(lua, Headers(Rc::clone(shared))),
            None => MultiValue::new(),
        }
    }

    /// Runs with nothing but what is known of the stream.
    fn run_with(
        &mut self,
        host: &Rc<Host>,
        machine: &Rc<Machine>,
        values: MultiValue,
        has: Has,
        facts: &Facts<'_>,
    ) {
        self.shared.borrow_mut().show_info(facts);
        self.run(host, machine, values, has);
        self.shared.borrow_mut().info = None;
    }

    fn run(
        &mut self,
        host: &Rc<Host>,
        machine: &Rc<Machine>,
        mut values: MultiValue,
        has: Has,
    ) -> Outcome {
        self.wait = Wait::Nothing;
        loop {
            let asked = match machine.resume(&self.thread, std::mem::take(&mut values)) {
                Ok(asked) => asked,
                Err(error) => {
                    host.fail(&error, machine);
                    return Outcome::Done;
                }
            };
            match self.answer(asked, host, machine.lua(), has) {
                Ok(Next::GoOn(next)) => values = next,
                Ok(Next::Leave(outcome)) => return outcome,
                Err(error) => values = refused(machine.lua(), &error),
            }
        }
    }

    fn answer(&mut self, asked: Asked, host: &Host, lua: &Lua, has: Has) -> mlua::Result<Next> {
        let (is_response, is_gone) = {
            let shown = self.shared.borrow();
            (shown.is_response, shown.is_gone)
        };
        match asked {
            Asked::Done => Ok(Next::Leave(Outcome::Done)),
            Asked::Body { always } => self.answer_body(always, lua, has),
            Asked::Chunk if has.ends => Ok(Next::GoOn(MultiValue::new())),
            Asked::Chunk if self.content.is_some() => {
                Err(wrong("cannot call bodyChunks after body processing has begun"))
            }
            Asked::Chunk | Asked::Trailers if !(has.ends || has.waits) => {
                Err(wrong("content is not there for this stream"))
            }
            Asked::Chunk => Ok(self.waits(Wait::Chunk)),
            Asked::Trailers if has.ends => Ok(Next::GoOn(self.values_of_trailers(lua))),
            Asked::Trailers => Ok(self.waits(Wait::Trailers)),
            Asked::Respond { .. } if is_response => {
                Err(wrong("respond not currently supported in the response path"))
            }
            Asked::Respond { .. } if is_gone => {
                Err(wrong("respond() cannot be called if headers have been continued"))
            }
            Asked::Respond { headers, body } => {
                Ok(Next::Leave(Outcome::Reply(reply(&headers, &body)?)))
            }
            Asked::Call { .. } if !has.asks || is_gone => {
                Err(wrong("httpCall() cannot be waited for here"))
            }
            Asked::Call { request, duplicates } => {
                let callout = self.callout(&request, host)?;
                self.wait = Wait::Call { duplicates };
                Ok(Next::Leave(Outcome::Ask(Box::new(callout))))
            }
            Asked::Send(request) => {
                let callout = self.callout(&request, host)?;
                let of = self.shared.borrow().traced;
                if !host.notes.send(Callout { max_bytes: 0, ..callout }, of) {
                    return Err(wrong("too many calls at once"));
                }
                Ok(Next::GoOn(MultiValue::new()))
            }
        }
    }

    /// A request to another server, if there is such and this is not one too many.
    fn callout(&mut self, request: &Question, host: &Host) -> mlua::Result<Callout> {
        self.calls += 1;
        if self.calls > MOST_CALLS {
            return Err(wrong("too many calls of one stream"));
        }
        if !host.notes.knows_cluster(&values::text(&request.cluster)?.to_string_lossy()) {
            return Err(wrong("http call cluster invalid. Must be configured"));
        }
        callout(request)
    }

    fn answer_body(&mut self, always: bool, lua: &Lua, has: Has) -> mlua::Result<Next> {
        if let Some(content) = &self.content {
            return Ok(Next::GoOn(answer(lua, content.clone())));
        }
        if self.streamed {
            return Err(wrong("cannot call body() after body streaming has started"));
        }
        if has.ends && !always {
            return Ok(Next::GoOn(MultiValue::new()));
        }
        if has.ends {
            let content = self.content.insert(Content::new(Vec::new())).clone();
            return Ok(Next::GoOn(answer(lua, content)));
        }
        if !has.waits {
            return Err(wrong("body() is not there for this stream"));
        }
        Ok(self.waits(Wait::Body))
    }

    fn waits(&mut self, wait: Wait) -> Next {
        self.wait = wait;
        Next::Leave(Outcome::Wait)
    }
}

impl Outcome {
    /// Of a request that has waited.
    pub(super) fn on_answer(self) -> OnAnswer {
        match self {
            Self::Done | Self::Wait => OnAnswer::GoOn,
            Self::Ask(callout) => OnAnswer::Ask(callout),
            Self::Reply(reply) => OnAnswer::Reply(reply),
        }
    }
}

/// No error, and a value.
fn answer(lua: &Lua, value: impl mlua::IntoLua) -> MultiValue {
    match value.into_lua(lua) {
        Ok(value) => MultiValue::from_iter([Value::Nil, value]),
        Err(error) => refused(lua, &error),
    }
}

/// An error.
fn refused(lua: &Lua, error: &mlua::Error) -> MultiValue {
    let text = super::text_of(error).into_lua(lua);
    MultiValue::from_iter([text.unwrap_or(Value::Boolean(true))])
}

fn reply(headers: &Value, body: &Value) -> mlua::Result<Reply> {
    let (fields, pseudo) = values::fields(table(headers)?)?;
    let status = pseudo.iter().find(|(name, _)| name == ":status");
    let status = status.and_then(|(_, value)| std::str::from_utf8(value).ok()?.parse().ok());
    let Some(status) = status.filter(|status| (200..600).contains(status)) else {
        return Err(wrong(":status must be between 200-599"));
    };
    let body = match body {
        Value::Nil => Vec::new(),
        body => values::text(body)?.as_bytes().to_vec(),
    };
    let mut reply = Reply::new(status, &body, "lua_response");
    for field in fields.iter().filter(|field| field.name_bytes != b"content-length") {
        reply.head.append_bytes(field.name_bytes, field.value);
    }
    Ok(reply)
}

fn callout(request: &Question) -> mlua::Result<Callout> {
    let Question { cluster, headers, body, timeout, sampled } = request;
    let (fields, pseudo) = values::fields(table(headers)?)?;
    let of = |name: &str| {
        let found = pseudo.iter().find(|(known, _)| known == name);
        let needs = "http call headers must include ':path', ':method', and ':authority'";
        found.map(|(_, value)| &value[..]).ok_or_else(|| wrong(needs))
    };
    let mut head = Head::request(of(":method")?, b"http", of(":authority")?, of(":path")?);
    for field in fields.iter() {
        head.append_bytes(field.name_bytes, field.value);
    }
    let body = match body {
        Value::Nil => Vec::new(),
        body => {
            let body = values::text(body)?.as_bytes().to_vec();
            head.set_number(Name::ContentLength, body.len() as u64);
            body
        }
    };
    // 0 means no limit.
    let timeout = match timeout {
        Value::Integer(milliseconds) if *milliseconds > 0 => {
            Some(Duration::from_millis(milliseconds.unsigned_abs()))
        }
        _ => None,
    };
    // As Lua has it, any value but nil and false is true.
    let sampled = match sampled {
        Value::Nil => None,
        value => Some(value != &Value::Boolean(false)),
    };
    crate::filter::callout::mark(&mut head, timeout);
    Ok(Callout {
        cluster: (&*values::text(cluster)?.to_string_lossy()).into(),
        head,
        body: body.into(),
        timeout: timeout.unwrap_or(LONGEST).min(LONGEST),
        max_bytes: super::MOST_CONTENT,
        joint: None,
        retry: None,
        span: Some(CalloutSpan { sampled, ..CalloutSpan::new(SpanName::Cluster) }),
    })
}

/// Of one side of a stream.
const MOST_CALLS: u32 = 1000;
/// A call without a limit ends after this.
const LONGEST: Duration = Duration::from_secs(3600);

fn table(value: &Value) -> mlua::Result<&Table> {
    value.as_table().ok_or_else(|| wrong(&format!("table expected, got {}", value.type_name())))
}

/// No error, a table of a response's head, and its content.
fn response_table(lua: &Lua, answer: &Answer, duplicates: bool) -> mlua::Result<MultiValue> {
    let made;
    let (head, body): (&Head, &[u8]) = match answer {
        Answer::Response { head, body, .. } => (head, body),
        Answer::Failed(Failed::NoCluster) => {
            return Err(wrong("http call cluster invalid. Must be configured"));
        }
        Answer::Failed(failed) => {
            let (status, text) = match failed {
                Failed::TimedOut => (504, "upstream request timeout"),
                Failed::NoCluster | Failed::Reset | Failed::TooLong => (503, "upstream failure"),
            };
            let mut head = Head::response(status);
            head.set(Name::ContentType, b"text/plain");
            head.set_number(Name::ContentLength, text.len() as u64);
            made = head;
            (&made, text.as_bytes())
        }
    };
    let headers = lua.create_table()?;
    headers.set(":status", head.status().to_string())?;
    for field in head.iter() {
        let name = lua.create_string(field.name_bytes.to_ascii_lowercase())?;
        let value = lua.create_string(field.value)?;
        match headers.get::<Value>(&name)? {
            Value::Table(list) if duplicates => list.push(value)?,
            Value::String(first) if duplicates => {
                headers.set(name, lua.create_sequence_from([first, value])?)?;
            }
            _ => headers.set(name, value)?,
        }
    }
    let body = if body.is_empty() { Value::Nil } else { Value::String(lua.create_string(body)?) };
    Ok(MultiValue::from_iter([Value::Nil, Value::Table(headers), body]))
}
