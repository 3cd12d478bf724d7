//! The question as a request of HTTP, and its answer.

use std::sync::Arc;
use std::time::Duration;

use towpath_proto::{Head, Name, http1};

use super::check::{Content, PARTIAL};
use super::shadow::Shown;
use super::{
    Change, CheckStatus, Decision, ExtAuthz, How, HttpService, ResponseAction, any, changeable,
};
use crate::filter::{Answer, Callout, CalloutSpan, RequestView, SpanName};
use crate::header_ops::Subject;
use crate::stream_info::{Struct, Value};

/// The request's own method, path and host, and those of its fields that the server sees.
pub(super) fn question(
    config: &ExtAuthz,
    service: &HttpService,
    timeout: Duration,
    request: &mut RequestView<'_>,
    content: Option<Content>,
) -> Callout {
    let of = &*request.head;
    let path = match &*service.path {
        "" => [service.path_prefix.as_bytes(), of.path()].concat(),
        path => path.as_bytes().to_vec(),
    };
    let mut head = Head::request(of.method_bytes(), b"http", of.authority(), &path);
    head.set(Name::ContentLength, b"0");
    let mut repeated = Vec::new();
    for field in of.iter() {
        let name = field.name_bytes.to_ascii_lowercase();
        if !config.shows(&name) || is_of_connection(&name) {
            continue;
        }
        if !config.raw_headers && head.get_bytes(&name).is_some() {
            repeated.extend(changeable(&name));
        }
        head.append_bytes(&name, field.value);
    }
    service.headers.apply(&mut head, Subject::Request, request.facts, request.scratch);
    for name in &repeated {
        let joined = head.get_all(name).collect::<Vec<_>>().join(&b","[..]);
        head.set_named(name, &joined);
    }
    crate::filter::callout::mark(&mut head, timeout);
    let body = content.map(|content| {
        head.set_bytes(PARTIAL, content.flag());
        content.bytes.into()
    });
    Callout {
        cluster: Arc::clone(&service.cluster),
        head,
        body: body.unwrap_or_default(),
        timeout,
        max_bytes: MOST_BYTES,
        joint: None,
        retry: service.retry.clone(),
        span: Some(CalloutSpan {
            tags,
            sampled: config.sampled(request),
            ..CalloutSpan::new(SpanName::Cluster)
        }),
    }
}

/// What the span of a question says of its answer.
fn tags(answer: &Answer) -> Vec<(&'static str, &'static str)> {
    let Answer::Response { head, .. } = answer else { return Vec::new() };
    let allows = head.status() == 200;
    vec![
        ("ext_authz_http_status", http1::reason(head.status())),
        ("ext_authz_status", if allows { "ext_authz_ok" } else { "ext_authz_unauthorized" }),
    ]
}

pub(super) fn decision(service: &HttpService, answer: &Answer) -> Decision {
    let Answer::Response { head, body, .. } = answer else { return Decision::default() };
    let status = head.status();
    if status >= 500 {
        return Decision::default();
    }
    let allows = status == 200;
    let mut decision = Decision::default();
    for field in head.iter() {
        let lower = field.name_bytes.to_ascii_lowercase();
        if lower == TO_REMOVE {
            let names = field.value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
            decision.changes.extend(names.map(|name| Change::new(How::Remove, name, b"")));
            continue;
        }
        let Some(name) = changeable(&lower).filter(|_| !is_of_connection(&lower)) else { continue };
        let value = field.value.to_vec();
        if any(&service.metadata, &lower) {
            add_metadata(&mut decision.metadata, &lower, &value);
        }
        if !allows && tells_client(service, &lower) {
            decision.set.push((name.clone(), value.clone()));
        }
        if allows && any(&service.upstream, &lower) {
            decision.changes.push(Change::new(How::Set, &lower, &value));
        }
        if allows && any(&service.appended, &lower) {
            decision.changes.push(Change::new(How::Add, &lower, &value));
        }
        if allows && any(&service.client_on_success, &lower) {
            decision.response.push((ResponseAction::Add, name, value));
        }
    }
    decision.kind = match allows {
        true => CheckStatus::Allowed,
        false => CheckStatus::Denied { status, body: body.to_vec() },
    };
    decision.changes.sort_by_key(|change| change.how);
    decision
}

/// What a refusal says to a client whose request goes on all the same (`shadow_mode`), beside the fields that it would
/// have had: Envoy has them as they came.
pub(super) fn shown(service: &HttpService, answer: &Answer) -> Vec<Shown> {
    let Answer::Response { head, .. } = answer else { return Vec::new() };
    let status = (b":status".to_vec(), head.status().to_string().into_bytes());
    let fields = head.iter().filter(|field| {
        let name = field.name_bytes.to_ascii_lowercase();
        name == b"content-length" || tells_client(service, &name)
    });
    let fields = fields.map(|field| (field.name_bytes.to_ascii_lowercase(), field.value.to_vec()));
    std::iter::once(status).chain(fields).collect()
}

/// Whether the client sees a field of a refusal.
fn tells_client(service: &HttpService, name: &[u8]) -> bool {
    let always: [&[u8]; 2] = [b"www-authenticate", b"location"];
    service.client.is_empty() || always.contains(&name) || any(&service.client, name)
}

fn add_metadata(metadata: &mut Struct, name: &[u8], value: &[u8]) {
    metadata.insert(String::from_utf8_lossy(name).into(), Value::text(value));
}

/// What is of a connection, or says how long a message is.
fn is_of_connection(name: &[u8]) -> bool {
    let own: [&[u8]; 9] = [
        b"connection",
        b"content-length",
        b"expect",
        b"host",
        b"keep-alive",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    ];
    own.contains(&name)
}

/// Names of fields that the request loses, divided by commas.
const TO_REMOVE: &[u8] = b"x-envoy-auth-headers-to-remove";
/// More than a client is shown of a refusal.
pub(super) const MOST_BYTES: usize = 1 << 20;
