use bytes::Bytes;
use prost::Message as _;
use towpath_proto::{Head, Name};

use super::*;
use crate::filter::ext_authz::check::Verdict;
use crate::filter::ext_authz::wire::{Allowed, Denied, HttpStatus};
use crate::filter::ext_authz::{Fields, MutationRules};
use crate::protobuf::{HeaderValue, Status};

fn answer(response: &CheckResponse, status: &[u8]) -> Answer {
    let message = response.encode_to_vec();
    let mut body = vec![0];
    body.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
    body.extend(message);
    let mut trailers = Head::default();
    trailers.set(Name::GrpcStatus, status);
    Answer::Response { head: Head::response(200), body: body.into(), trailers: Some(trailers) }
}

fn option(key: &str, value: &str, append: Option<bool>) -> HeaderValueOption {
    HeaderValueOption {
        header: Some(HeaderValue { key: key.into(), value: value.into(), raw_value: Vec::new() }),
        append: append.map(|value| BoolValue { value }),
        append_action: 0,
    }
}

fn names(fields: &Fields) -> Vec<(&str, &[u8])> {
    fields.iter().map(|(name, value)| (name.as_str(), &value[..])).collect()
}

#[test]
fn what_is_allowed_changes_the_request() {
    let ok = Allowed {
        headers: vec![option("a", "1", None), option("b", "2", Some(true))],
        headers_to_remove: vec!["c".into(), ":path".into()],
        response_headers_to_add: vec![option("d", "3", None)],
        query_parameters_to_set: vec![
            QueryParameter { key: "e".into(), value: "%20".into() },
            QueryParameter { key: "f".into(), value: " HTTP/1.1".into() },
        ],
        query_parameters_to_remove: vec!["g".into()],
        ..Default::default()
    };
    let decision = decision(&answer(&CheckResponse { ok: Some(ok), ..Default::default() }, b"0"));
    assert!(matches!(decision.kind, CheckStatus::Allowed));
    let changes = [
        Change::new(How::Set, b"a", b"1"),
        Change::new(How::Append, b"b", b"2"),
        Change::new(How::Remove, b"c", b""),
        Change::new(How::Remove, b":path", b""),
    ];
    assert_eq!(decision.changes, changes);
    assert_eq!(decision.response.len(), 1);
    assert_eq!(decision.set_query, [(b"e".to_vec(), b"%20".to_vec())]);
    assert_eq!((decision.remove_query.len(), decision.is_invalid), (1, true));
}

#[test]
fn what_is_denied_says_so_in_its_own_words() {
    let denied = Denied {
        status: Some(HttpStatus { code: 401 }),
        headers: vec![option("www-authenticate", "Basic", None)],
        body: "no".into(),
    };
    let response = CheckResponse {
        status: Some(Status { code: 16 }),
        denied: Some(denied),
        ..Default::default()
    };
    let decision = decision(&answer(&response, b"0"));
    let CheckStatus::Denied { status: 401, body } = decision.kind else { panic!("{decision:?}") };
    assert_eq!((&body[..], decision.set.len()), (&b"no"[..], 1));
}

#[test]
fn a_refusal_without_a_status_is_403() {
    let response = CheckResponse { status: Some(Status { code: 7 }), ..Default::default() };
    let decision = decision(&answer(&response, b"0"));
    assert!(matches!(decision.kind, CheckStatus::Denied { status: 403, .. }), "{decision:?}");
}

#[test]
fn what_cannot_stand_in_a_head_is_left_out() {
    let headers = vec![
        option("a", "1\r\nb: 2", None),
        option("a b", "1", None),
        option(":status", "200", None),
        option("", "1", None),
    ];
    let response = CheckResponse {
        status: Some(Status { code: 16 }),
        denied: Some(Denied { headers: headers.clone(), ..Default::default() }),
        ..Default::default()
    };
    assert_eq!(names(&decision(&answer(&response, b"0")).set), []);
    let ok = Allowed { headers, ..Default::default() };
    let decision = decision(&answer(&CheckResponse { ok: Some(ok), ..Default::default() }, b"0"));
    assert_eq!(decision.changes.len(), 4);
    for change in &decision.changes {
        assert_eq!(change.judge(None, false), Verdict::LeftOut);
        assert_eq!(change.judge(None, true), Verdict::Invalid);
    }
}

#[test]
fn what_rules_forbid_is_left_out_or_an_error() {
    let change = Change::new(How::Set, b"X-Envoy-A", b"1");
    for (is_error, verdict) in [(false, Verdict::LeftOut), (true, Verdict::Invalid)] {
        let rules = MutationRules { is_error, ..MutationRules::default() };
        assert_eq!(change.judge(Some(&rules), false), verdict);
        let host = Change::new(How::Remove, b"host", b"");
        assert_eq!(host.judge(Some(&rules), false), verdict);
        let path = Change::new(How::Set, b":path", b"/a");
        assert_eq!(path.judge(Some(&rules), false), Verdict::Made);
    }
}

#[test]
fn no_answer_and_a_broken_one_are_errors() {
    let whole = answer(&CheckResponse::default(), b"0");
    assert!(matches!(decision(&whole).kind, CheckStatus::Allowed));
    let failed = answer(&CheckResponse::default(), b"14");
    assert!(matches!(decision(&failed).kind, CheckStatus::Error));
    for body in [&b""[..], b"\0\0\0\0", b"\0\0\0\0\x01", b"\x01\0\0\0\0", b"\0\0\0\0\x02\x0a\xff"] {
        let mut trailers = Head::default();
        trailers.set(Name::GrpcStatus, b"0");
        let (head, body) = (Head::response(200), Bytes::copy_from_slice(body));
        let answer = Answer::Response { head, body, trailers: Some(trailers) };
        assert!(matches!(decision(&answer).kind, CheckStatus::Error));
    }
    let none = Answer::Failed(crate::filter::Failed::TimedOut);
    assert!(matches!(decision(&none).kind, CheckStatus::Error));
}
