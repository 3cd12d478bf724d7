#![expect(clippy::wildcard_enum_match_arm, reason = "a test looks at the steps that it is about")]

use std::sync::Arc;
use std::time::Duration;

use towpath_proto::{Instant, Name};

use super::super::wire::{
    Answer, BodyMutation, Changed, CommonResponse, HeaderMutation, ImmediateResponse, Mutation,
};
use super::super::{ExtProc, GrpcService, MutationRules};
use super::*;
use crate::filter::ext_proc::stats::ExtProcStats;
use crate::filter::head_limits::HeadLimits;
use crate::protobuf::HeaderValueOption;
use crate::record::Record;

fn config(body: BodyMode) -> ExtProc {
    ExtProc {
        mode: ProcessingMode { request_body: body, response_body: body, ..Default::default() },
        max_message_timeout: Duration::from_secs(1),
        ..ExtProc::new(GrpcService::new("a"))
    }
}

/// A conversation about a request with this head, whose head is shown.
struct Scene {
    talk: Conversation,
    request: Head,
    response: Head,
    record: Record,
}

impl Scene {
    fn new(config: ExtProc, has_body: bool) -> Self {
        let shared = Rc::new(Shared {
            config: Arc::new(config),
            stats: Arc::new(ExtProcStats::default()),
            limits: HeadLimits::default(),
        });
        let config = Arc::clone(&shared.config);
        let merged = Merged {
            mode: config.mode,
            service: &config.service,
            failure_mode_allow: config.failure_mode_allow,
            forwarded: &[],
            received: &[],
        };
        let callout = Callout {
            cluster: "a".into(),
            head: Head::default(),
            body: Bytes::new(),
            timeout: Duration::ZERO,
            max_bytes: 0,
            joint: None,
            retry: None,
            span: None,
        };
        let mut talk = Conversation::new(shared, &merged, callout);
        talk.begin(Room { flow: 10, whole: 10 });
        let mut request = Head::request(b"POST", b"http", b"one.test", b"/a");
        request.append_bytes(b"content-length", b"5");
        talk.request.has_no_body = !has_body;
        let record = Record::default();
        let facts = Facts::new(&record, Instant::ZERO);
        talk.show_head(Direction::Request, &request, None, &facts);
        let mut scene = Self { talk, request, response: Head::default(), record };
        let steps = scene.steps();
        assert!(matches!(steps[..], [Step::Begin(_), Step::Say(_), Step::Time(..)]), "{steps:?}");
        scene
    }

    fn steps(&mut self) -> Vec<Step> {
        std::iter::from_fn(|| self.talk.next_step()).collect()
    }

    fn hear(&mut self, said: Said) -> Vec<Step> {
        let facts = Facts::new(&self.record, Instant::ZERO);
        let mut view =
            TalkView { request: &mut self.request, response: &mut self.response, facts: &facts };
        self.talk.on_said(said, &mut view);
        self.steps()
    }

    fn answer(&mut self, answer: Answer) -> Vec<Step> {
        let response = ProcessingResponse { answer: Some(answer), ..Default::default() };
        self.hear(Said::Message(response.encode_to_vec().into()))
    }

    fn data(&mut self, data: &'static [u8]) -> Result<Bytes, Reply> {
        let facts = Facts::new(&self.record, Instant::ZERO);
        let mut data = Bytes::from_static(data);
        self.talk.on_request_data(&mut data, &facts).map(|()| data)
    }

    fn end(&mut self) -> bool {
        let facts = Facts::new(&self.record, Instant::ZERO);
        self.talk.keeps_request_end(None, &facts)
    }
}

fn changed(response: CommonResponse) -> Changed {
    Changed { response: Some(response) }
}

fn set(name: &str, value: &[u8]) -> CommonResponse {
    let header = HeaderValue { key: name.into(), value: String::new(), raw_value: value.to_vec() };
    let option = HeaderValueOption { header: Some(header), ..Default::default() };
    let mutation = HeaderMutation { set_headers: vec![option], ..Default::default() };
    CommonResponse { header_mutation: Some(mutation), ..Default::default() }
}

fn body(new: &'static [u8]) -> CommonResponse {
    let mutation = Some(Mutation::Body(Bytes::from_static(new)));
    CommonResponse { body_mutation: Some(BodyMutation { mutation }), ..Default::default() }
}

fn refusal(steps: &[Step]) -> (u16, &'static str) {
    let reply = steps.iter().find_map(|step| match step {
        Step::Answer(reply) => Some(reply),
        _ => None,
    });
    reply.map(|reply| (reply.head.status(), reply.details)).expect("it is answered")
}

#[test]
fn a_head_goes_on_when_it_is_answered() {
    let mut scene = Scene::new(config(BodyMode::None), false);
    let steps = scene.answer(Answer::RequestHeaders(changed(set("x-a", b"1"))));
    assert_eq!(scene.request.get_bytes(b"x-a"), Some(&b"1"[..]));
    assert!(matches!(steps[..], [Step::Time(_, None), Step::GoOn { way: Direction::Request, .. }]));
}

#[test]
fn a_length_that_a_server_makes_up_is_not_told() {
    for mode in [BodyMode::None, BodyMode::Buffered] {
        let mut scene = Scene::new(config(mode), true);
        assert!(scene.data(b"hello").unwrap().is_empty());
        scene.answer(Answer::RequestHeaders(changed(set("content-length", b"3"))));
        if mode == BodyMode::Buffered {
            assert!(scene.end());
            scene.answer(Answer::RequestBody(Changed::default()));
        }
        assert_eq!(scene.request.get(Name::ContentLength), Some(&b"5"[..]), "{mode:?}");
    }
}

#[test]
fn whole_content_is_as_long_as_its_head_says() {
    let mut scene = Scene::new(config(BodyMode::Buffered), true);
    scene.answer(Answer::RequestHeaders(Changed::default()));
    assert!(scene.data(b"hello").unwrap().is_empty());
    assert!(scene.end());
    let steps = scene.answer(Answer::RequestBody(changed(body(b"longer"))));
    let why = "mismatch_between_content_length_and_the_length_of_the_mutated_body";
    assert_eq!(refusal(&steps), (500, why));
}

#[test]
fn what_would_end_a_line_is_refused() {
    for (name, value) in [
        ("x-a", &b"1\r\nx-b: 2"[..]),
        ("x-a", b"1\n"),
        ("x-a", b"\0"),
        ("x a", b"1"),
        ("x-a:", b"1"),
        ("", b"1"),
        (":path", b"/a HTTP/1.1"),
        (":path", b""),
        (":path", b"/\x7f"),
    ] {
        let mut scene = Scene::new(config(BodyMode::None), false);
        let steps = scene.answer(Answer::RequestHeaders(changed(set(name, value))));
        let why = "header_mutation_set_contains_invalid_character";
        assert_eq!(refusal(&steps), (500, why), "{name} {}", value.escape_ascii());
    }
}

#[test]
fn what_says_where_a_request_goes_needs_leave() {
    for allow_all_routing in [false, true] {
        for (name, value) in [
            (":method", &b"GET"[..]),
            ("host", b"two.test"),
            (":authority", b"two.test"),
            (":scheme", b"https"),
        ] {
            let rules = MutationRules { allow_all_routing, ..MutationRules::default() };
            let mut scene = Scene::new(ExtProc { rules, ..config(BodyMode::None) }, false);
            let before = scene.request.clone();
            let steps = scene.answer(Answer::RequestHeaders(changed(set(name, value))));
            assert!(steps.iter().any(|step| matches!(step, Step::GoOn { .. })));
            let parts = |head: &Head| {
                [head.method_bytes(), head.authority(), head.scheme()].map(<[u8]>::to_vec)
            };
            let is_changed = parts(&scene.request) != parts(&before);
            assert_eq!(is_changed, allow_all_routing, "{name}");
        }
    }
}

#[test]
fn pieces_wait_for_their_answers_in_order() {
    let mut scene = Scene::new(config(BodyMode::Streamed), true);
    scene.answer(Answer::RequestHeaders(Changed::default()));
    for piece in [&b"one"[..], b"two"] {
        assert!(scene.data(piece).unwrap().is_empty());
    }
    assert!(!scene.talk.is_full(Direction::Request));
    assert!(scene.data(b"three").unwrap().is_empty());
    assert!(scene.talk.is_full(Direction::Request), "11 bytes of 10");
    assert!(scene.end());
    scene.steps();
    let mut passed = Vec::new();
    for new in [body(b"1"), CommonResponse::default(), body(b"3"), CommonResponse::default()] {
        for step in scene.answer(Answer::RequestBody(changed(new))) {
            match step {
                Step::Pass(Direction::Request, data) => passed.push(data.to_vec()),
                Step::End(Direction::Request, None) => passed.push(b"end".to_vec()),
                _ => {}
            }
        }
    }
    assert_eq!(passed, [&b"1"[..], b"two", b"3", b"end"]);
    let steps = scene.answer(Answer::RequestBody(Changed::default()));
    assert_eq!(refusal(&steps), (500, "spurious_message"), "no message waited");
}

#[test]
fn more_than_may_be_held_as_a_whole_is_answered() {
    let mut scene = Scene::new(config(BodyMode::Buffered), true);
    assert!(scene.data(b"0123456789").is_ok());
    let reply = scene.data(b"0").unwrap_err();
    assert_eq!((reply.head.status(), reply.details), (413, details::REQUEST_PAYLOAD_TOO_LARGE));
    assert!(scene.data(b"more").unwrap().is_empty(), "what still comes goes nowhere");
    assert!(scene.end());
}

#[test]
fn nothing_is_heard_after_the_end() {
    let mut scene = Scene::new(config(BodyMode::Streamed), true);
    let steps = scene.answer(Answer::Immediate(ImmediateResponse::default()));
    assert_eq!(refusal(&steps).0, 200);
    for answer in [
        Answer::Immediate(ImmediateResponse::default()),
        Answer::RequestHeaders(changed(set("x-a", b"1"))),
        Answer::ResponseBody(Changed::default()),
    ] {
        assert!(scene.answer(answer).is_empty());
    }
    assert!(scene.hear(Said::Over(14, Vec::new())).is_empty());
    assert!(scene.hear(Said::Late(Direction::Request)).is_empty());
    let stats = &scene.talk.shared.stats;
    assert_eq!((stats.streams_closed.value(), stats.streams_started.value()), (1, 1));
}

#[test]
fn a_call_that_fails_lets_go_or_refuses() {
    for failure_mode_allow in [true, false] {
        let config = ExtProc { failure_mode_allow, ..config(BodyMode::Streamed) };
        let mut scene = Scene::new(config, true);
        assert!(scene.data(b"hello").unwrap().is_empty());
        let steps = scene.hear(Said::Over(14, b"so".to_vec()));
        if failure_mode_allow {
            let passed =
                matches!(&steps[..], [Step::Pass(_, data), Step::GoOn { .. }] if data == "hello");
            assert!(passed, "{steps:?}");
            assert_eq!(scene.data(b"more").unwrap(), "more", "the rest passes by");
            assert!(!scene.end());
        } else {
            assert_eq!(refusal(&steps), (500, "ext_proc_error_gRPC_error_14{so}"));
        }
    }
}

#[test]
fn more_time_is_given_once_and_within_limits() {
    let mut scene = Scene::new(config(BodyMode::None), false);
    let mut ask = |seconds, nanos| {
        let override_message_timeout = Some(super::super::wire::Duration { seconds, nanos });
        let response = ProcessingResponse { override_message_timeout, ..Default::default() };
        scene.hear(Said::Message(response.encode_to_vec().into())).len()
    };
    for (seconds, nanos) in [(0, 0), (-1, 0), (0, -5), (i64::MAX, i32::MAX), (1, 1), (0, 999_999)] {
        assert_eq!(ask(seconds, nanos), 0, "{seconds} {nanos}");
    }
    assert_eq!((ask(1, 0), ask(1, 0)), (1, 0));
}
