//! The upstreams' HTTP/2: requests are told field by field as they came, and answered by the same scripts as HTTP/1's.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::thread;

use bytes::Bytes;
use towpath_proto::head::{Head, HeadPool};
use towpath_proto::http2::hpack::{Decoder, Field, Limits};
use towpath_proto::http2::{Arrival, Code, Connection, Options};
use towpath_proto::{Event, Out, http1};

use crate::checks::{self, Last};
use crate::processor::{self, Deed};
use crate::script::{self, Step};
use crate::spans;
use crate::upstream::{Upstreams, end_by_reset};
use crate::wire::Message;

/// One connection.
pub(crate) struct Http2<'a> {
    upstreams: &'a Upstreams,
    name: &'a str,
    stream: TcpStream,
    connection: Connection,
    heads: HeadPool,
    tap: Tap,
    /// By the connection's numbers.
    requests: BTreeMap<u32, Request>,
    /// Checks by gRPC, with their streams.
    checks: BTreeMap<u32, u32>,
    seen: usize,
}

struct Request {
    /// Which of all requests it is.
    number: usize,
    /// Which stream of the connection.
    id: u32,
    method: Vec<u8>,
    steps: Vec<Step>,
    echoes: bool,
    /// What a processor answers, and how many messages it has seen.
    processor: Option<(Vec<String>, usize)>,
}

impl<'a> Http2<'a> {
    pub(crate) fn new(upstreams: &'a Upstreams, name: &'a str, stream: TcpStream) -> Self {
        let options = Options { allow_connect: true, ..Options::default() };
        Self {
            upstreams,
            name,
            stream,
            connection: Connection::server(Arc::new(options)),
            heads: HeadPool::default(),
            tap: Tap::default(),
            requests: BTreeMap::new(),
            checks: BTreeMap::new(),
            seen: 0,
        }
    }

    /// Serves until the connection ends.
    pub(crate) fn serve(mut self) {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(length @ 1..) = self.stream.read(&mut buffer) {
            self.tap.receive(&buffer[..length]);
            self.connection.receive(Bytes::copy_from_slice(&buffer[..length]));
            while let Ok(Some((number, arrival))) = self.connection.poll(&mut self.heads) {
                if !self.on_arrival(number, arrival) {
                    return;
                }
            }
            self.flush(Out::new());
        }
    }

    /// False if the script ends the connection.
    fn on_arrival(&mut self, number: u32, arrival: Arrival) -> bool {
        if self.is_check(number, &arrival) {
            return true;
        }
        let ended = match arrival {
            Arrival::Part(Event::Head { head, end }) => {
                let id = self.tap.order[self.seen];
                self.seen += 1;
                let (index, mut steps) = self.upstreams.next(self.name);
                if steps.is_empty() {
                    steps = script::parse("HTTP/1.1 200 OK\ncontent-length: 2\n\nok");
                }
                let early = matches!(steps.first(), Some(Step::OnHead));
                let method = head.method_bytes().to_vec();
                let processor = match &steps[..] {
                    [Step::Send(text)] => processor::script(text).map(|lines| (lines, 0)),
                    _ => None,
                };
                let talks = processor.is_some();
                let request =
                    Request { number: index, id, method, steps, echoes: false, processor };
                self.requests.insert(number, request);
                if talks {
                    let told = &self.tap.messages[&id];
                    let mut head = Message { start: told.start.clone(), ..Message::default() };
                    head.fields.clone_from(&told.fields);
                    self.upstreams.tell(index, self.name, &head);
                    return self.process(number);
                }
                end || early
            }
            Arrival::Part(Event::Data(data)) => {
                self.connection.consumed(number);
                if self.requests.get(&number).is_some_and(|request| request.processor.is_some()) {
                    return self.process(number);
                }
                if self.requests.get(&number).is_some_and(|request| request.echoes) {
                    self.connection.send_data(number, data);
                }
                self.has_entries(number)
            }
            Arrival::Part(Event::End | Event::Trailers(_))
                if self.requests.get(&number).is_some_and(|it| it.processor.is_some()) =>
            {
                return true;
            }
            Arrival::Part(Event::End | Event::Trailers(_)) => {
                if self.requests.get(&number).is_some_and(|request| request.echoes) {
                    self.connection.send_end(number);
                }
                true
            }
            Arrival::Part(Event::Informational(_)) => false,
            Arrival::Reset(_) | Arrival::Refused => {
                self.connection.release(number);
                self.requests.remove(&number);
                return true;
            }
        };
        let Some(request) = self.requests.get_mut(&number) else { return true };
        let told = &self.tap.messages[&request.id];
        self.upstreams.tell(request.number, self.name, told);
        let steps = if ended { std::mem::take(&mut request.steps) } else { Vec::new() };
        self.follow(number, steps)
    }

    /// Whether it is a part of a check by gRPC, which takes nothing from the script; answers the last part of one.
    fn is_check(&mut self, number: u32, arrival: &Arrival) -> bool {
        if let Arrival::Part(Event::Head { head, .. }) = arrival
            && head.path() == checks::PATH
        {
            self.checks.insert(number, self.tap.order[self.seen]);
            self.seen += 1;
        }
        let Some(id) = self.checks.get(&number) else { return false };
        match arrival {
            Arrival::Part(Event::Data(_)) => self.connection.consumed(number),
            Arrival::Part(Event::End) => {
                let answer = checks::answer(&self.tap.messages[id]);
                let is_head = matches!(answer.last, Last::Head);
                let mut out = Out::new();
                self.connection.send_head(number, &answer.head, is_head, &mut out);
                self.connection.send_data(number, answer.content.into());
                match answer.last {
                    Last::Head => {}
                    Last::Content => self.connection.send_end(number),
                    Last::Trailers(trailers) => self.connection.send_trailers(number, &trailers),
                    Last::Reset => self.connection.reset(number, Code::INTERNAL_ERROR),
                }
                self.flush(out);
            }
            Arrival::Reset(_) | Arrival::Refused => {
                self.connection.release(number);
                self.checks.remove(&number);
            }
            Arrival::Part(_) => {}
        }
        true
    }

    /// Answers what a processor is shown.
    fn process(&mut self, number: u32) -> bool {
        loop {
            let Some(request) = self.requests.get_mut(&number) else { return true };
            let Some((lines, seen)) = &mut request.processor else { return true };
            let body = &self.tap.messages[&request.id].body;
            let frames = spans::frames(body);
            let Some(frame) = frames.get(*seen) else { return true };
            let answer = lines.get(*seen).cloned().unwrap_or_else(|| "ok".to_owned());
            let is_first = *seen == 0;
            *seen += 1;
            self.upstreams.add(request.number, processor::line(frame));
            let deeds = processor::deeds(&answer, frame);
            if is_first {
                let mut head = Head::response(200);
                head.append_bytes(b"content-type", b"application/grpc");
                let mut out = Out::new();
                self.connection.send_head(number, &head, false, &mut out);
                self.flush(out);
            }
            for deed in deeds {
                match deed {
                    Deed::Send(frame) => self.connection.send_data(number, Bytes::from(frame)),
                    Deed::Wait(ms) => {
                        self.flush(Out::new());
                        thread::sleep(std::time::Duration::from_millis(ms));
                    }
                    Deed::End(status) => {
                        let mut trailers = Head::default();
                        let status = status.to_string();
                        trailers.append_bytes(b"grpc-status", status.as_bytes());
                        trailers.append_bytes(b"grpc-message", b"so it is");
                        self.connection.send_trailers(number, &trailers);
                    }
                    Deed::Reset => {
                        end_by_reset(&self.stream);
                        return false;
                    }
                }
                self.flush(Out::new());
            }
        }
    }

    /// A call that goes on has told something: it is ended, so that what comes next has a call of its own.
    fn has_entries(&self, number: u32) -> bool {
        let message = self.requests.get(&number).map(|request| &self.tap.messages[&request.id]);
        message.is_some_and(|message| {
            spans::is_entries(message) && !spans::frames(&message.body).is_empty()
        })
    }

    /// Answers as the script says.
    fn follow(&mut self, number: u32, steps: Vec<Step>) -> bool {
        let Some(request) = self.requests.get_mut(&number).filter(|_| !steps.is_empty()) else {
            return true;
        };
        request.echoes = steps.iter().any(|step| matches!(step, Step::Echo));
        let is_whole = !request.echoes && !steps.iter().any(|step| matches!(step, Step::Silent));
        let options = http1::Options { enable_trailers: true, ..http1::Options::default() };
        let mut script = http1::Client::new(Arc::new(options));
        let head = Head::request(&request.method, b"http", b"a", b"/");
        script.encode_head(&head, true, &mut Out::new());
        for step in steps {
            let mut out = Out::new();
            match step {
                Step::Send(text) => {
                    script.receive(Bytes::from(text));
                    self.say(number, &mut script, &mut out);
                }
                Step::Wait(duration) => {
                    self.flush(Out::new());
                    thread::sleep(duration);
                }
                Step::Close => return false,
                Step::Reset => {
                    end_by_reset(&self.stream);
                    return false;
                }
                Step::OnHead | Step::Echo | Step::Silent => {}
                Step::Read(_)
                | Step::ReadEnd
                | Step::HalfClose
                | Step::Another
                | Step::Pressure(..) => {
                    panic!("not over HTTP/2")
                }
            }
            self.flush(out);
        }
        if is_whole {
            script.ended();
            let mut out = Out::new();
            self.say(number, &mut script, &mut out);
            self.flush(out);
        }
        true
    }

    /// Sends what the script's text comes to.
    fn say(&mut self, number: u32, script: &mut http1::Client, out: &mut Out) {
        while let Ok(Some(event)) = script.poll(&mut self.heads) {
            match event {
                Event::Informational(head) => {
                    self.connection.send_informational(number, &head, out);
                }
                Event::Head { head, end } => {
                    let is_tunnel = self.requests.get(&number).is_some_and(|it| it.echoes);
                    self.connection.send_head(number, &head, end && !is_tunnel, out);
                }
                Event::Data(data) => {
                    self.connection.send_data(number, data);
                    if script.take_end() {
                        self.connection.send_end(number);
                    }
                }
                Event::Trailers(head) => self.connection.send_trailers(number, &head),
                Event::End => self.connection.send_end(number),
            }
        }
    }

    fn flush(&mut self, mut out: Out) {
        self.connection.flush(&mut out);
        for chunk in out.drain() {
            // A client that is gone needs no answer.
            let _ = self.stream.write_all(&chunk);
        }
        self.connection.sent(0);
    }
}

/// What came, as it stands in the frames.
struct Tap {
    bytes: Vec<u8>,
    decoder: Decoder,
    /// A header block whose end has not come.
    block: Vec<u8>,
    messages: BTreeMap<u32, Message>,
    order: Vec<u32>,
    /// What SETTINGS said that RFC 9113 does not know, to be told with the first message.
    settings: Vec<(String, String)>,
}

impl Default for Tap {
    fn default() -> Self {
        Self {
            bytes: Vec::new(),
            decoder: Decoder::new(4096),
            block: Vec::new(),
            messages: BTreeMap::new(),
            order: Vec::new(),
            settings: Vec::new(),
        }
    }
}

impl Tap {
    fn receive(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        if let Some(behind) = self.bytes.strip_prefix(towpath_proto::http2::PREFACE) {
            self.bytes = behind.to_vec();
        }
        while let Some([a, b, c, kind, flags, d, e, f, g]) = self.bytes.first_chunk::<9>().copied()
        {
            let whole = 9 + u32::from_be_bytes([0, a, b, c]) as usize;
            if self.bytes.len() < whole {
                return;
            }
            let frame: Vec<u8> = self.bytes.drain(..whole).collect();
            self.on_frame(kind, flags, u32::from_be_bytes([d, e, f, g]), &frame[9..]);
        }
    }

    fn on_frame(&mut self, kind: u8, flags: u8, id: u32, mut payload: &[u8]) {
        const DATA: u8 = 0;
        const HEADERS: u8 = 1;
        const SETTINGS: u8 = 4;
        const CONTINUATION: u8 = 9;
        if matches!(kind, DATA | HEADERS) && flags & 0x8 != 0 {
            payload = &payload[1..payload.len() - usize::from(payload[0])];
        }
        if kind == HEADERS && flags & 0x20 != 0 {
            payload = &payload[5..];
        }
        match kind {
            DATA => self.messages.get_mut(&id).unwrap().body.extend_from_slice(payload),
            HEADERS | CONTINUATION => {
                self.block.extend_from_slice(payload);
                if flags & 0x4 != 0 {
                    self.on_block(id);
                }
            }
            SETTINGS => {
                let (parameters, _) = payload.as_chunks::<6>();
                for &[high, low, a, b, c, d] in parameters {
                    let (id, value) =
                        (u16::from_be_bytes([high, low]), u32::from_be_bytes([a, b, c, d]));
                    if id > 8 {
                        self.settings.push((format!("(parameter {id})"), value.to_string()));
                    }
                }
            }
            _ => {}
        }
    }

    fn on_block(&mut self, id: u32) {
        let mut fields = Vec::new();
        let limits = Limits { max_list_size: 1 << 20, max_fields: 1000 };
        let text = |bytes: &[u8]| bytes.escape_ascii().to_string().replace("\\\"", "\"");
        let mut add = |field: Field<'_>| {
            // What must enter no table on its way (RFC 7541 §7.1.3).
            let mark = if field.never_indexed { " (never indexed)" } else { "" };
            let value = text(field.value).replace("\\'", "'") + mark;
            fields.push((text(field.name.as_bytes()), value));
        };
        self.decoder.decode(&std::mem::take(&mut self.block), &limits, &mut add).unwrap();
        match self.messages.get_mut(&id) {
            Some(message) => message.trailers = fields,
            None => {
                let start = "HTTP/2".to_owned();
                fields.append(&mut self.settings);
                self.messages.insert(id, Message { start, fields, ..Message::default() });
                self.order.push(id);
            }
        }
    }
}
