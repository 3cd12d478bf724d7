//! `envoy.filters.http.grpc_json_transcoder`: clients that speak JSON call servers that speak gRPC.
//!
//! Arrives: a request whose method and path a rule of `google.api.http` has, and its content. Leaves: a call by gRPC,
//! and its response in JSON. All else passes.
//!
//! Of the descriptors only the types of messages are kept ([`Schema`]); messages are never built, but written from JSON
//! and read from the wire. What is held of a stream is one message, or the response as a whole where its head depends
//! on its trailers; both are limited by the buffer of the client's connection, or by what the configuration says.

mod encode;
mod json;
mod path;
mod print;
mod request;
mod response;
mod scalar;
mod schema;
mod stats;
#[cfg(test)]
mod tests;
mod weave;
mod wire;

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use towpath_proto::head::Version;
use towpath_proto::{Head, Name};

pub use self::path::{BadTemplate, Paths, Unescape};
use self::request::{Body, Content, Items, Refused, Target};
use self::response::{Response, STATUS_DETAILS, Untold};
pub use self::schema::{EnumId, EnumType, Field, Kind, Known, MessageId, MessageType, Schema};
use self::stats::TranscoderStats;
use self::weave::Weave;
use super::{
    Direction, FilterConfig, FilterScope, HttpFilter, MANAGER, OnRequest, Release, Reply,
    RequestView, ResponseView, Room, RouteConfig, Step, StreamFilter,
};
use crate::format::Facts;
use crate::grpc;
use crate::record::details;
use crate::stats::FilterNames;

/// Envoy `grpc_json_transcoder.v3.GrpcJsonTranscoder` with services.
#[derive(Debug)]
pub struct Transcoder {
    /// The types that its methods speak of.
    pub schema: Schema,
    /// The methods of its services.
    pub methods: Vec<Method>,
    /// What requests are for them.
    pub rules: Vec<Rule>,
    /// How those are found.
    pub paths: Paths,
    /// `ignored_query_parameters`.
    pub ignored: Vec<Box<str>>,
    /// `print_options`.
    pub printing: Printing,
    /// What stands between the messages of a response.
    pub delimiter: Delimiter,
    /// `match_incoming_request_route`.
    pub keeps_route: bool,
    /// `ignore_unknown_query_parameters`.
    pub ignores_unknown: bool,
    /// `capture_unknown_query_parameters`.
    pub captures_unknown: bool,
    /// The type of `google.rpc.Status` for `convert_grpc_status`.
    pub status: Option<MessageId>,
    /// `reject_unknown_method`.
    pub rejects_methods: bool,
    /// `reject_unknown_query_parameters`.
    pub rejects_queries: bool,
    /// `reject_binding_body_field_collisions`.
    pub rejects_collisions: bool,
    /// `case_insensitive_enum_parsing`.
    pub in_any_case: bool,
    /// `max_request_body_size`, in bytes.
    pub most_request: Option<usize>,
    /// `max_response_body_size`, in bytes.
    pub most_response: Option<usize>,
}

/// A method of a service.
#[derive(Debug)]
pub struct Method {
    /// `/package.Service/Method`.
    pub path: Box<str>,
    /// What it is asked.
    pub input: MessageId,
    /// What it answers.
    pub output: MessageId,
    /// It takes several messages.
    pub client_streams: bool,
    /// It gives several.
    pub server_streams: bool,
    /// The fields to the one that is the content of requests.
    pub request_field: Vec<Field>,
    /// That is a `google.api.HttpBody`.
    pub request_is_body: bool,
    /// The numbers of the fields to the one that is the content of responses.
    pub response_field: Vec<u32>,
    /// That is a `google.api.HttpBody`.
    pub response_is_body: bool,
}

/// A binding of a method.
#[derive(Debug)]
pub struct Rule {
    /// The place of the method.
    pub method: usize,
    /// Names of the field that the content is for, with dots; empty or `*` for the message.
    pub body: Box<str>,
}

/// How JSON looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Printing {
    /// `add_whitespace`.
    pub whitespace: bool,
    /// `always_print_primitive_fields`.
    pub defaults: bool,
    /// `always_print_enums_as_ints`.
    pub enums_as_numbers: bool,
    /// `preserve_proto_field_names`.
    pub proto_names: bool,
}

/// How the messages of a response are told apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delimiter {
    /// They are items of an array.
    #[default]
    Array,
    /// Each has a line.
    Lines,
    /// Each is an event of the server (`text/event-stream`).
    Events,
}

/// The filter in a chain; without services it does nothing.
#[derive(Clone, Debug)]
pub struct SharedTranscoder(pub Option<Arc<Transcoder>>);

impl RouteConfig for SharedTranscoder {}

impl FilterConfig for SharedTranscoder {
    fn start(&self, scope: &FilterScope) -> Rc<dyn HttpFilter> {
        let names = FilterNames::new("http", format!("http.{}", scope.prefix));
        let stats = scope.named(names.label(MANAGER, &scope.prefix));
        Rc::new(Instance { config: self.0.clone(), stats })
    }
}

#[derive(Debug)]
struct Instance {
    config: Option<Arc<Transcoder>>,
    stats: Arc<TranscoderStats>,
}

impl HttpFilter for Instance {
    fn on_request(&self, request: &mut RequestView<'_>) -> OnRequest {
        let of_route = request.route.first::<SharedTranscoder>().map(|it| &it.0);
        let Some(config) = of_route.unwrap_or(&self.config) else { return OnRequest::Pass };
        if grpc::is_grpc(request.head) {
            return OnRequest::Pass;
        }
        let call = match Call::find(config, request.head, &self.stats) {
            Ok(call) => call,
            Err(Unfound::Passes) => return OnRequest::Pass,
            Err(Unfound::Refused(reply)) => return OnRequest::Answer(reply),
        };
        call.begin(request)
    }
}

/// Why a request is not transcoded.
enum Unfound {
    Passes,
    Refused(Reply),
}

/// A call that is transcoded.
#[derive(Debug)]
struct Call {
    config: Arc<Transcoder>,
    method: usize,
    stats: Arc<TranscoderStats>,
    /// What gauges say of it: of the request and of the response.
    counted: [u64; 2],
    content: Content,
    response: Response,
    /// The response passes as it is.
    passes: bool,
    /// By HTTP/1 no trailers are announced.
    is_http2: bool,
    limit: usize,
    steps: VecDeque<Step>,
}

impl Call {
    fn find(
        config: &Arc<Transcoder>,
        head: &Head,
        stats: &Arc<TranscoderStats>,
    ) -> Result<Self, Unfound> {
        let text = |bytes| std::str::from_utf8(bytes).map_err(|_| Unfound::Passes);
        let (verb, target) = (text(head.method_bytes())?, text(head.path())?);
        let found = config.paths.find(verb, target, &config.ignored);
        let rule = found.as_ref().and_then(|it| config.rules.get(it.rule));
        let method = rule.and_then(|rule| config.methods.get(rule.method));
        let (Some(found), Some(rule), Some(method)) = (found, rule, method) else {
            let path = target.split('?').next().unwrap_or_default();
            let text = format!("Could not resolve {path} to a method.");
            return Err(match config.rejects_methods {
                true => Unfound::Refused(early(404, &text, "NOT_FOUND")),
                false => Unfound::Passes,
            });
        };
        let (weave, unknown) =
            config.bind(method, found.bindings).map_err(|text| match config.rejects_queries {
                true => Unfound::Refused(early(400, &text, "INVALID_ARGUMENT")),
                false => Unfound::Passes,
            })?;
        let content = config.content(method, rule, head, (weave, &unknown));
        let content = content.map_err(|text| {
            Unfound::Refused(failed(400, &text, "grpc_json_transcode_failure{INVALID_ARGUMENT}"))
        })?;
        Ok(Self {
            config: Arc::clone(config),
            method: rule.method,
            stats: Arc::clone(stats),
            counted: [0; 2],
            content,
            response: Response::default(),
            passes: false,
            is_http2: head.version() == Version::Http2,
            limit: 0,
            steps: VecDeque::new(),
        })
    }

    /// Makes the request a call.
    fn begin(mut self, request: &mut RequestView<'_>) -> OnRequest {
        let head = &mut *request.head;
        let (path, verb) = (head.path().to_vec(), head.method_bytes().to_vec());
        head.remove(Name::ContentLength);
        head.set(Name::ContentType, b"application/grpc");
        head.set(Name::XEnvoyOriginalPath, &path);
        head.append(Name::XEnvoyOriginalMethod, &verb);
        head.set_method(b"POST");
        head.set(Name::Te, b"trailers");
        head.set_path(self.method().path.as_bytes());
        if !request.is_empty {
            request.reroutes = !self.config.keeps_route;
            return OnRequest::Talk { watcher: Box::new(self), waits: false };
        }
        // All of its content is ours.
        let mut message = Vec::new();
        if let Err(refused) = self.content.end(&Arc::clone(&self.config), &mut message) {
            return OnRequest::Answer(refused.reply("early_grpc_json_transcode_failure"));
        }
        if !self.config.keeps_route {
            self.steps.push_back(Step::Reroute);
        }
        if !message.is_empty() {
            self.steps.push_back(Step::Pass(Direction::Request, message.into()));
        }
        self.steps.push_back(Step::GoOn { way: Direction::Request, ends: false });
        OnRequest::Talk { watcher: Box::new(self), waits: true }
    }

    fn method(&self) -> &Method {
        &self.config.methods[self.method]
    }

    fn count(&mut self, way: Direction) {
        let (at, gauge, held) = match way {
            Direction::Request => {
                (0, &self.stats.transcoder_request_buffer_bytes, self.content.held())
            }
            Direction::Response => {
                let held = self.response.messages.held() + self.response.content.len();
                (1, &self.stats.transcoder_response_buffer_bytes, held)
            }
        };
        let held = held as u64;
        let before = std::mem::replace(&mut self.counted[at], held);
        match held.checked_sub(before) {
            Some(0) => {}
            Some(more) => gauge.add(more),
            None => gauge.sub(before - held),
        }
    }

    /// Completes the head of a response that is not a stream, or has no content, by how the call ended.
    fn settle(&self, head: &mut Head, trailers: Option<&Head>) {
        let said = trailers.unwrap_or(&*head);
        let status = response::status_of(said);
        let message = said.get(Name::GrpcMessage).map(<[u8]>::to_vec);
        match status {
            None => head.set_status(503),
            Some(status) => {
                head.set_status(response::http_status(status));
                if trailers.is_some() {
                    head.set_number(Name::GrpcStatus, status.into());
                }
            }
        }
        if let (Some(message), true) = (message, trailers.is_some()) {
            head.set(Name::GrpcMessage, &message);
        }
        self.without_announcement(head);
    }

    fn without_announcement(&self, head: &mut Head) {
        if !self.is_http2 {
            head.remove(Name::Trailer);
        }
    }

    /// The head of a response whose content is the status of the call.
    fn tell_status(&self, head: &mut Head, status: u32, content: &str) {
        head.set_status(response::http_status(status));
        self.without_announcement(head);
        head.set(Name::ContentType, JSON);
        head.set_number(Name::ContentLength, content.len() as u64);
    }

    /// A response that is a head alone. What is answered is its content.
    fn end_at_head(&self, head: &mut Head) -> Bytes {
        let method = self.method();
        if method.server_streams {
            head.set(Name::ContentType, self.streamed_type());
            head.remove(Name::ContentLength);
        }
        if let Some((status, content)) = response::status_as_json(&self.config, head) {
            self.tell_status(head, status, &content);
            head.remove(Name::GrpcStatus);
            head.remove(Name::GrpcMessage);
            head.remove_bytes(STATUS_DETAILS);
            return content.into();
        }
        self.settle(head, None);
        if !method.server_streams {
            head.set_number(Name::ContentLength, 0);
        }
        Bytes::from_static(self.response.ending(&self.config, method))
    }

    fn streamed_type(&self) -> &'static [u8] {
        match self.config.delimiter {
            Delimiter::Events if self.method().server_streams => b"text/event-stream",
            Delimiter::Events | Delimiter::Array | Delimiter::Lines => JSON,
        }
    }

    fn untold(&mut self, (text, status): Untold) -> Reply {
        self.passes = true;
        failed(502, &text, details::told(&format!("{FAILED}{{{status}}}"), FAILED))
    }

    /// What has come of a response whose head waits for it.
    fn hold(&mut self, out: Vec<u8>) -> Bytes {
        if !self.method().server_streams {
            self.response.content.extend(out);
            return Bytes::new();
        }
        if self.response.went_on {
            return out.into();
        }
        let Some(content_type) = self.response.content_type.take() else { return Bytes::new() };
        let content_type = content_type.into();
        self.response.went_on = true;
        self.steps.push_back(Step::Field(Name::ContentType, content_type));
        self.steps.push_back(Step::GoOn { way: Direction::Response, ends: false });
        self.steps.push_back(Step::Pass(Direction::Response, out.into()));
        Bytes::new()
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.stats.transcoder_request_buffer_bytes.sub(self.counted[0]);
        self.stats.transcoder_response_buffer_bytes.sub(self.counted[1]);
    }
}

impl StreamFilter for Call {
    fn begin(&mut self, room: Room) {
        self.limit = room.whole;
    }

    fn next_step(&mut self) -> Option<Step> {
        self.steps.pop_front()
    }

    fn on_request_data(&mut self, data: &mut Bytes, _facts: &Facts<'_>) -> Result<(), Reply> {
        let limit = self.config.most_request.unwrap_or(self.limit);
        let mut out = Vec::new();
        let piece = std::mem::take(data);
        let pushed = self.content.push(&self.config, &piece, limit, &mut out);
        self.count(Direction::Request);
        pushed.map_err(|refused| refused.reply(FAILED))?;
        *data = out.into();
        Ok(())
    }

    fn on_request_end(&mut self, _facts: &Facts<'_>) -> Result<Bytes, Reply> {
        let mut out = Vec::new();
        let ended = self.content.end(&self.config, &mut out);
        self.count(Direction::Request);
        ended.map_err(|refused| refused.reply(FAILED))?;
        Ok(out.into())
    }

    fn on_response_head(&mut self, response: &mut ResponseView<'_>) -> Release {
        let head = &mut *response.head;
        let is_call = if response.ends {
            head.get(Name::GrpcStatus).is_some()
        } else {
            head.status() == 200 && grpc::is_grpc(head)
        };
        if self.passes || !is_call {
            self.passes = true;
            return Release::Now;
        }
        if response.ends {
            self.passes = true;
            let content = self.end_at_head(head);
            if content.is_empty() {
                return Release::Now;
            }
            self.steps.push_back(Step::GoOn { way: Direction::Response, ends: false });
            self.steps.push_back(Step::Pass(Direction::Response, content));
            self.steps.push_back(Step::End(Direction::Response, None));
            return Release::Later;
        }
        head.set(Name::ContentType, self.streamed_type());
        // It would be that of the messages.
        head.remove(Name::ContentLength);
        let method = self.method();
        match (method.server_streams, method.response_is_body) {
            (true, false) => Release::Now,
            (true, true) => Release::Later,
            (false, _) => Release::AtEnd,
        }
    }

    fn on_response_data(&mut self, data: &mut Bytes, _facts: &Facts<'_>) -> Result<(), Reply> {
        if self.passes {
            return Ok(());
        }
        self.response.has_body = true;
        let limit = self.config.most_response.unwrap_or(self.limit);
        let piece = std::mem::take(data);
        let (config, mut out) = (Arc::clone(&self.config), Vec::new());
        let method = &config.methods[self.method];
        let held = self.response.messages.held() + self.response.content.len() + piece.len();
        if held > limit {
            self.passes = true;
            return Err(failed(500, TOO_LARGE_RESPONSE, LIMIT_OF_RESPONSE));
        }
        let pushed = self.response.push((&config, method), &piece, &mut out);
        if let Err(untold) = pushed {
            return Err(self.untold(untold));
        }
        *data = if method.server_streams && !method.response_is_body {
            out.into()
        } else {
            self.hold(out)
        };
        self.count(Direction::Response);
        Ok(())
    }

    fn keeps_response_end(&mut self, _trailers: Option<&mut Head>, _facts: &Facts<'_>) -> bool {
        if self.passes {
            return false;
        }
        let Err(untold) = self.response.end(self.method()) else { return false };
        let reply = self.untold(untold);
        self.steps.push_back(Step::Answer(Box::new(reply)));
        true
    }

    fn on_response_end(&mut self, trailers: Option<&mut Head>, _facts: &Facts<'_>) -> Bytes {
        if self.passes {
            return Bytes::new();
        }
        let said = trailers.filter(|_| !self.response.has_body);
        if let Some((_, content)) = said.and_then(|it| response::status_as_json(&self.config, it)) {
            return content.into();
        }
        Bytes::from_static(self.response.ending(&self.config, self.method()))
    }

    fn release(
        &mut self,
        head: &mut Head,
        trailers: Option<&mut Head>,
        _facts: &Facts<'_>,
    ) -> Bytes {
        let content = std::mem::take(&mut self.response.content);
        self.count(Direction::Response);
        if let Some(content_type) = self.response.content_type.take() {
            head.set(Name::ContentType, &content_type);
            head.set_number(Name::ContentLength, content.len() as u64);
        }
        let Some(trailers) = trailers else { return content.into() };
        let status = if self.response.has_body {
            None
        } else {
            response::status_as_json(&self.config, trailers)
        };
        if let Some((status, content)) = status {
            self.tell_status(head, status, &content);
            return content.into();
        }
        if !self.method().server_streams {
            self.settle(head, Some(&*trailers));
            head.set_number(Name::ContentLength, content.len() as u64);
        }
        content.into()
    }
}

impl Refused {
    fn reply(self, what: &str) -> Reply {
        match self {
            Self::TooLarge => failed(413, TOO_LARGE_REQUEST, LIMIT_OF_REQUEST),
            Self::Invalid(text) => {
                failed(400, &text, details::told(&format!("{what}{{INVALID_ARGUMENT}}"), FAILED))
            }
        }
    }
}

impl Transcoder {
    /// What path and query say of the request, and what of them is no field of it.
    #[expect(clippy::type_complexity, reason = "both are taken apart at once")]
    fn bind(
        &self,
        method: &Method,
        bindings: Vec<path::Binding>,
    ) -> Result<(Weave, Vec<(String, Vec<u8>)>), String> {
        let (mut weave, mut unknown) = (Weave::default(), Vec::new());
        for binding in bindings {
            let names: Vec<&str> = binding.field.iter().map(String::as_str).collect();
            let field = match self.schema.resolve(method.input, &names) {
                Ok(field) => field,
                Err(_) if self.captures_unknown => {
                    unknown.push((binding.field.join("."), binding.value));
                    continue;
                }
                Err(_) if self.ignores_unknown => continue,
                Err(text) => return Err(text),
            };
            let body = &method.request_field;
            let is_inside = method.request_is_body
                && body.len() <= field.len()
                && body.iter().zip(&field).all(|(one, other)| one.number == other.number);
            if is_inside {
                continue;
            }
            let value = String::from_utf8(binding.value)
                .map_err(|_| "Encountered non UTF-8 code points.".to_owned())?;
            weave.bind(&field, value);
        }
        Ok((weave, unknown))
    }

    fn content(
        &self,
        method: &Method,
        rule: &Rule,
        head: &Head,
        (weave, unknown): (Weave, &[(String, Vec<u8>)]),
    ) -> Result<Content, String> {
        let into = |weave, streams: bool| Target {
            message: method.input,
            field: match &*rule.body {
                "" | "*" => Vec::new(),
                body => body.split('.').filter(|it| !it.is_empty()).map(Into::into).collect(),
            },
            weave,
            in_any_case: self.in_any_case && !streams,
            is_strict: self.rejects_collisions && !streams,
        };
        if method.request_is_body {
            let mut content = json::Json::Object(Vec::new());
            let mut before = Vec::new();
            let Target { field, weave, .. } = into(weave, true);
            for name in field.into_iter().rev() {
                content = json::Json::Object(vec![(name, content)]);
            }
            weave.weave(&mut content, false)?;
            encode::encode(&self.schema, method.input, &content, self.in_any_case, &mut before)?;
            return Ok(Content::Body(Body {
                before,
                field: request::numbers(&method.request_field),
                content_type: head.get(Name::ContentType).unwrap_or_default().to_vec(),
                unknown: request::unknown(unknown),
                streams: method.client_streams,
                ..Body::default()
            }));
        }
        Ok(match method.client_streams {
            true => Content::Several { items: Items::default(), into: into(weave, true) },
            false => Content::One { text: Vec::new(), into: into(weave, false) },
        })
    }
}

/// The message that a text in JSON stands for.
///
/// # Errors
/// What is wrong with it, as clients are told.
pub fn to_message(schema: &Schema, id: MessageId, text: &[u8]) -> Result<Vec<u8>, String> {
    let value = json::parse(text, 100)?;
    let mut message = Vec::new();
    encode::encode(schema, id, &value, false, &mut message).map(|()| message)
}

/// A message in JSON.
///
/// # Errors
/// What is wrong with it, as clients are told.
pub fn to_json(
    schema: &Schema,
    id: MessageId,
    message: &Bytes,
    how: Printing,
) -> Result<String, String> {
    let mut text = String::new();
    print::print(schema, id, message, how, &mut text).map(|()| text)
}

fn early(status: u16, text: &str, code: &str) -> Reply {
    let details = details::told(&format!("early_grpc_json_transcode_failure{{{code}}}"), FAILED);
    failed(status, text, details)
}

fn failed(status: u16, text: &str, details: &'static str) -> Reply {
    Reply::new(status, text.as_bytes(), details)
}

const FAILED: &str = "grpc_json_transcode_failure";
const LIMIT_OF_REQUEST: &str = "grpc_json_transcode_failure{request_buffer_size_limit_reached}";
const LIMIT_OF_RESPONSE: &str = "grpc_json_transcode_failure{response_buffer_size_limit_reached}";
const TOO_LARGE_REQUEST: &str =
    "Request rejected because the transcoder's internal buffer size exceeds the configured limit.";
const TOO_LARGE_RESPONSE: &str = "Response not transcoded because the transcoder's internal buffer size exceeds the \
configured limit.";
const JSON: &[u8] = b"application/json";
