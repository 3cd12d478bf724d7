//! What is sent on a connection that rests in its pool goes a shorter way than what waited for the connection. Whatever
//! the configuration says, both must leave alike, and so must their responses.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test that cannot go on has failed; a script answers to what it cares about"
)]

mod scene;

use std::sync::Arc;
use std::time::Duration;

use scene::bench::Bench;
use scene::{origin_address, retries};
use towpath_engine::filter::ChainFilter;
use towpath_engine::filter::header_mutation::{HeaderMutation, Mutations};
use towpath_engine::format::Format;
use towpath_engine::header_ops::{HeaderMutation as Mutation, HeaderMutations};
use towpath_engine::snapshot::Http;
use towpath_engine::snapshot::RouteTable;
use towpath_engine::snapshot::http::{EscapedSlashes, ServerHeader, StripPort};
use towpath_engine::snapshot::route::{
    Forward, GrpcTimeout, HeaderAction, HeaderOp, HeaderOps, HostRewrite, PathRewrite, RetryOn,
};
use towpath_proto::head::HeaderName;

type Adjustment = (fn(&mut Forward), fn(&mut Http));

const ADJUSTMENTS: &[Adjustment] = &[
    (|_| {}, |_| {}),
    (|forward| forward.host = HostRewrite::Auto, |_| {}),
    (|forward| forward.host = HostRewrite::Literal((*b"literal").into()), |_| {}),
    (|forward| forward.path = PathRewrite::Prefix((*b"/new").into()), |_| {}),
    (|forward| forward.timeout = None, |_| {}),
    (|forward| forward.timeout = Some(Duration::from_micros(1)), |_| {}),
    (|forward| forward.timeout = Some(Duration::from_secs(12_345)), |_| {}),
    (|forward| forward.idle_timeout = Some(None), |_| {}),
    (|forward| forward.max_stream_duration = Some(Some(Duration::from_secs(9))), |_| {}),
    (
        |forward| {
            let max = Some(Duration::from_secs(1));
            forward.grpc_timeout = GrpcTimeout::Stream { max, offset: Duration::ZERO };
        },
        |_| {},
    ),
    (|forward| forward.high_priority = true, |_| {}),
    (
        |forward| {
            let mut policy = retries(RetryOn::STATUS_5XX, 2);
            policy.per_try_timeout = Some(Duration::from_millis(70));
            policy.avoid_previous_hosts = true;
            forward.retry = Some(Arc::new(policy));
        },
        |_| {},
    ),
    (|_| {}, |http| http.chain.router.suppress_envoy_headers = true),
    (|_| {}, |http| http.use_remote_address = true),
    (|_| {}, |http| http.via = "here".into()),
    (|_| {}, |http| http.server_header = ServerHeader::PassThrough),
    (|_| {}, |http| http.log_on_new_request = true),
    (|_| {}, |http| http.max_requests_per_connection = 3),
    (
        |_| {},
        |http| {
            let host = &mut Arc::get_mut(&mut http.routes).unwrap().hosts[0];
            host.attempt_count_in_request = true;
            host.attempt_count_in_response = true;
        },
    ),
];

const REQUESTS: [&[u8]; 4] = [
    b"GET /a/b?c HTTP/1.1\r\nHost: one\r\nAccept: */*\r\nX-Own: 1\r\n\r\n",
    b"HEAD / HTTP/1.1\r\nHost: one:80\r\nx-envoy-upstream-rq-timeout-ms: 77\r\n\r\n",
    b"POST /post HTTP/1.1\r\nHost: one\r\nContent-Length: 3\r\n\r\nabc",
    b"GET / HTTP/1.1\r\nHost: one\r\nx-forwarded-for: 10.0.0.7, 10.0.0.8\r\nTE: trailers\r\n\r\n",
];

const RESPONSES: [&[u8]; 3] = [
    b"HTTP/1.1 200 OK\r\nDate: Fri, 20 Nov 2026 11:28:39 GMT\r\nServer: s\r\nContent-Length: 3\r\n\r\nxyz",
    b"HTTP/1.1 404 Not Found\r\nDate: Fri, 20 Nov 2026 11:28:39 GMT\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 204 No Content\r\nDate: Fri, 20 Nov 2026 11:28:39 GMT\r\n\r\n",
];

#[test]
fn what_finds_a_connection_leaves_as_what_waited_for_one() {
    for (number, (adjust_forward, adjust_http)) in ADJUSTMENTS.iter().copied().enumerate() {
        for request in REQUESTS {
            for response in RESPONSES {
                // HEAD has no content.
                let head = request.starts_with(b"HEAD");
                let end = response.windows(4).position(|it| it == b"\r\n\r\n").unwrap() + 4;
                let response = if head { &response[..end] } else { response };
                let mut bench = Bench::new(adjust_forward, adjust_http);
                let first = bench.exchange(request, response);
                for again in 1..3 {
                    let next = bench.exchange(request, response);
                    let text = |it: &[u8]| without_id(it).escape_ascii().to_string();
                    let case = format!("adjustment {number}, {}, {again}", text(request));
                    assert_eq!(text(&next.0), text(&first.0), "to the origin: {case}");
                    // The connection's last response says so.
                    let last = next.1.windows(17).any(|it| it == b"connection: close");
                    if !last {
                        assert_eq!(text(&next.1), text(&first.1), "to the client: {case}");
                    }
                }
                assert_eq!(bench.connects, 1, "one connection serves");
            }
        }
    }
}

/// A stream of a chain without logs has a record all the same where an operation on heads may ask for it.
#[test]
fn operations_on_heads_know_the_stream_that_no_log_asks_for() {
    const PLACES: [fn(&mut Http); 4] = [
        |http| table_of(http).request_headers = ops("x-from", CLIENT),
        |http| table_of(http).hosts[0].request_headers = ops("x-from", CLIENT),
        |http| {
            let route = &mut table_of(http).hosts[0].routes[0];
            Arc::get_mut(route).unwrap().request_headers = ops("x-from", CLIENT);
        },
        |http| {
            let add = ops("x-from", CLIENT).add.into_iter().map(Mutation::Add);
            let (request, response) = (HeaderMutations(add.collect()), HeaderMutations::default());
            let own = Mutations { request, query: Vec::new(), response, trailers: None };
            let config = Arc::new(HeaderMutation { own, route_is_last: false });
            http.chain.filters.push(ChainFilter {
                name: "mutates".into(),
                disabled: false,
                config,
            });
        },
    ];
    for adjust in PLACES {
        let (sent, _) = Bench::new(|_| {}, adjust).exchange(REQUESTS[0], RESPONSES[0]);
        assert!(has_line(&sent, b"x-from: 10.0.9.9\r\n"), "{}", sent.escape_ascii());
    }
    let adjust: fn(&mut Http) = |http| {
        table_of(http).response_headers = ops("x-of", "%UPSTREAM_HOST% %RESPONSE_CODE_DETAILS%");
    };
    let (_, answered) = Bench::new(|_| {}, adjust).exchange(REQUESTS[0], RESPONSES[0]);
    let wanted = format!("x-of: {} via_upstream\r\n", origin_address(1));
    assert!(has_line(&answered, wanted.as_bytes()), "{}", answered.escape_ascii());
}

/// Before a request is routed; what a client said is not what a route sees.
#[test]
fn authority_and_path_are_made_canonical() {
    let wants: fn(&mut Http) = |http| {
        (http.strip_trailing_dot, http.strip_port) = (true, StripPort::Matching);
        (http.normalize_path, http.merge_slashes) = (true, true);
        http.escaped_slashes = EscapedSlashes::UnescapeAndRedirect;
    };
    let ask = |target: &str, host: &str| {
        let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        Bench::new(|_| {}, wants).ask(request.as_bytes())
    };
    let sent = ask("/x/..//y?q=../", "a.test.:80");
    assert!(sent.starts_with(b"GET /y?q=../ HTTP/1.1\r\n"), "{}", sent.escape_ascii());
    assert!(has_line(&sent, b"host: a.test\r\n"), "{}", sent.escape_ascii());
    let sent = ask("/", "a.test:81");
    assert!(has_line(&sent, b"host: a.test:81\r\n"), "{}", sent.escape_ascii());
    let sent = ask("/x/..%2Fy?q", "a.test");
    assert!(sent.starts_with(b"HTTP/1.1 307 "), "{}", sent.escape_ascii());
    assert!(has_line(&sent, b"location: /y?q\r\n"), "{}", sent.escape_ascii());
    let sent = ask("/%00", "a.test");
    assert!(sent.starts_with(b"HTTP/1.1 400 "), "{}", sent.escape_ascii());
}

const CLIENT: &str = "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%";

fn table_of(http: &mut Http) -> &mut RouteTable {
    Arc::get_mut(&mut http.routes).unwrap()
}

/// One operation, which sets a header to what a format says.
fn ops(name: &str, format: &str) -> HeaderOps {
    let value = Format::parse(format).unwrap();
    let name = HeaderName::new(name).unwrap();
    let add = HeaderOp { name, value, action: HeaderAction::Overwrite, keep_empty: false };
    HeaderOps { remove: Vec::new(), add: vec![add] }
}

fn has_line(bytes: &[u8], line: &[u8]) -> bool {
    bytes.windows(line.len()).any(|it| it == line)
}

/// Each request has an id of its own.
fn without_id(bytes: &[u8]) -> Vec<u8> {
    const NAME: &[u8] = b"x-request-id: ";
    let mut bytes = bytes.to_vec();
    if let Some(at) = bytes.windows(NAME.len()).position(|it| it == NAME) {
        bytes[at + NAME.len()..][..36].fill(b'i');
    }
    bytes
}
