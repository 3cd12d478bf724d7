use towpath_proto::head::Version;
use towpath_proto::{Head, Instant};

use super::*;
use crate::record::{Flags, Record};
use crate::stream_info::{self, StreamInfo, Struct};

fn record() -> Record {
    Record {
        start: Instant::from_nanos(1_500_000_000),
        end: Some(Instant::from_nanos(1_502_500_000)),
        status: 503,
        flags: Flags::UPSTREAM_CONNECTION_FAILURE,
        details: "upstream_reset",
        bytes_received: 7,
        bytes_sent: 11,
        protocol: Some(Version::Http11),
        server_name: Some("sni.test".into()),
        attempts: 2,
        ..Record::default()
    }
}

/// What `%CEL(…)%` says of a stream; `-` where it has no value.
fn said(text: &str) -> String {
    let expression = Expression::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let mut request = Head::request(b"GET", b"http", b"a.test", b"/a/b?c=d");
    request.append_bytes(b"x-one", b"1");
    request.append_bytes(b"x-two", b"a");
    request.append_bytes(b"X-Two", b"b");
    let mut response = Head::response(503);
    response.append_bytes(b"x-said", b"no");
    let mut trailers = Head::default();
    trailers.append_bytes(b"x-after", b"yes");
    let (record, info) = (record(), StreamInfo::default());
    let inner = Struct::from([
        ("n".into(), stream_info::Value::Number(2.5)),
        ("t".into(), stream_info::Value::text(b"text")),
        ("l".into(), stream_info::Value::List(vec![stream_info::Value::Bool(true)])),
    ]);
    info.add_metadata("ns", inner).unwrap();
    let facts = Facts {
        info: Some(&info),
        request: Some(&request),
        response: Some(&response),
        trailers: Some(&trailers),
        cluster: "app",
        route: "named",
        epoch_unix_ns: 1_700_000_000_000_000_000,
        ..Facts::new(&record, Instant::FAR_FUTURE)
    };
    let mut out = Vec::new();
    match expression.value(&facts) {
        Some(value) => value.print(&mut out),
        None => out.push(b'-'),
    }
    String::from_utf8(out).unwrap()
}

#[track_caller]
fn check(cases: &[(&str, &str)]) {
    for (text, wanted) in cases {
        assert_eq!(said(text), *wanted, "{text}");
    }
}

#[test]
fn attributes_are_looked_up_by_their_names() {
    check(&[
        ("request.path", "/a/b?c=d"),
        ("request.url_path", "/a/b"),
        ("request.query", "c=d"),
        ("request.method", "GET"),
        ("request['host']", "a.test"),
        ("request.protocol", "HTTP/1.1"),
        ("request.headers['x-one']", "1"),
        ("request.headers['X-Two']", "a,b"),
        ("request.headers[':path']", "/a/b?c=d"),
        ("request.headers['x-three']", "-"),
        ("request.headers", "CelMap value"),
        ("request.size", "7"),
        ("request.duration", "2.5ms"),
        ("request.time", "2023-11-14T22:13:21.5+00:00"),
        ("request.referer", "-"),
        ("request.unheard_of", "-"),
        ("response.code", "503"),
        ("response.code_details", "upstream_reset"),
        ("response.flags", "32"),
        ("response.headers['x-said']", "no"),
        ("response.trailers['x-said']", "-"),
        ("response.trailers['x-after']", "yes"),
        ("response.total_size - response.size - response.headers_bytes", "10"),
        ("connection.requested_server_name", "sni.test"),
        ("connection.mtls", "false"),
        ("connection.tls_version", "-"),
        ("upstream.request_attempt_count", "2"),
        ("upstream.address", "-"),
        ("xds.cluster_name", "app"),
        ("xds.route_name", "named"),
        ("metadata.filter_metadata['ns']['n']", "2.5"),
        ("metadata.filter_metadata['ns'].t", "text"),
        ("metadata.filter_metadata.ns.l[0]", "true"),
        ("metadata.filter_metadata.ns.l[1]", "-"),
        ("metadata.filter_metadata['other']", "-"),
        ("filter_state['none']", "-"),
        ("unheard_of", "-"),
    ]);
}

#[test]
fn operators_compare_choose_and_count() {
    check(&[
        ("response.code >= 400", "true"),
        ("response.code == 503.0", "true"),
        ("response.code == 503u", "true"),
        ("response.code == '503'", "false"),
        ("response.code < '503'", "-"),
        ("response.code in [500, 503]", "true"),
        ("'x-one' in request.headers", "true"),
        ("'x-three' in request.headers", "false"),
        ("has(request.headers.missing)", "false"),
        ("has(request.referer)", "false"),
        ("has(request.method)", "true"),
        ("request.headers['x-three'] == '1' || response.code == 503", "true"),
        ("response.code == 503 || request.headers['x-three'] == '1'", "true"),
        ("request.headers['x-three'] == '1' && response.code == 200", "false"),
        ("request.headers['x-three'] == '1' && response.code == 503", "-"),
        ("!(response.code == 503)", "false"),
        ("!response.code", "-"),
        ("response.code == 503 ? 'bad' : 'good'", "bad"),
        ("request.size + 5 * 2 - 10 / 3 % 2", "16"),
        ("-request.size", "-7"),
        ("request.size + 1.0", "-"),
        ("1 / 0", "-"),
        ("9223372036854775807 + 1", "-"),
        ("request.path + 'x'", "-"),
        ("request.duration > duration('2ms')", "true"),
        ("request.duration + duration('1h1m') > duration('3661s')", "false"),
        ("request.time - duration('500ms')", "2023-11-14T22:13:21+00:00"),
        ("0.1 + 0.2", "0.3"),
        ("1234567.0", "1.23457e+06"),
        ("0.00001", "1e-05"),
        ("null", "NULL"),
        ("[1, 2] == [1.0, 2u]", "true"),
        ("[1]", "CelList value"),
        ("b'ab' == 'ab'", "false"),
    ]);
}

#[test]
fn functions_look_into_texts() {
    check(&[
        ("request.path.startsWith('/a')", "true"),
        ("request.path.endsWith('/a')", "false"),
        ("request.path.contains('b?c')", "true"),
        ("request.path.matches('^/[ab]/[ab]')", "true"),
        ("matches(request.path, '^x')", "false"),
        ("response.code.startsWith('5')", "-"),
        ("size(request.method)", "3"),
        ("request.headers.size() > 1", "true"),
        ("size('äö')", "2"),
        ("int('12') + int(2.9) + int(3u)", "17"),
        ("uint(-1)", "-"),
        ("double('1.5')", "1.5"),
        (r"re.extract(request.path, '/(.)/(.)', r'\2-\1')", "b-a"),
        (r"re.extract(request.path, '/(.)', r'\2')", "-"),
        ("re.capture(request.path, '.*c=(.)')", "d"),
        ("re.capture(request.path, 'c=(.)')", "-"),
        ("request.headers['host']", "a.test"),
    ]);
}

#[test]
fn what_envoy_does_not_evaluate_or_is_not_known_is_refused() {
    let deep = format!("{}true{}", "!(".repeat(80), ")".repeat(80));
    let many = "1+".repeat(MAX_LENGTH / 2 - 1) + "1";
    let brackets = "(".repeat(MAX_LENGTH / 2) + &")".repeat(MAX_LENGTH / 2);
    let signs = "!".repeat(MAX_LENGTH - 4) + "true";
    let choices = "true?".repeat(MAX_LENGTH / 10) + &":1".repeat(MAX_LENGTH / 10);
    let lists = "[".repeat(MAX_LENGTH / 2) + &"]".repeat(MAX_LENGTH / 2);
    let long = format!("'{}'", "x".repeat(MAX_LENGTH));
    for (text, why) in [
        ("", "not an expression"),
        ("request.", "not an expression"),
        ("[1].exists(x, x > 0)", "comprehensions"),
        ("string(1)", "no function string"),
        ("request.path.lowerAscii()", "no function lowerAscii"),
        ("{'a': 1}", "cannot be made"),
        ("request.path.matches(request.method)", "a string in the expression"),
        ("request.path.matches('(')", "not a regular expression"),
        ("duration('1')", "not a duration"),
        ("size()", "takes 1 values"),
        ("upstream.locality", "upstream.locality is not known"),
        ("request", "asked for one of its attributes"),
        ("filter_state", "asked for one of its objects"),
        (&deep, ""),
        (&many, ""),
        (&brackets, ""),
        (&choices, ""),
        (&lists, ""),
        (&long, "at most"),
    ] {
        let error = Expression::parse(text).err().map(|error| error.to_string());
        let error = error.unwrap_or_else(|| panic!("{text} is taken"));
        assert!(error.contains(why), "{text}: {error}");
    }
    // An even number of signs is none.
    assert!(Expression::parse(&signs).is_ok());
    let all = vec!["response.code == 1"; 100].join(" || ");
    assert!(Expression::parse(&all).is_ok());
}

#[test]
fn json_keeps_types() {
    let record = record();
    let facts = Facts::new(&record, Instant::FAR_FUTURE);
    for (text, wanted) in [
        ("response.code", Some("503")),
        ("response.code > 1", Some("true")),
        ("xds.route_name", Some("\"\"")),
        ("'abcdef'", Some("\"abc\"")),
        ("request.duration", Some("\"0.002500s\"")),
        ("request.headers", Some("{}")),
        ("[1, 0.00001, 1e20, null]", Some("[1,1e-05,1e+20,null]")),
        ("null", None),
    ] {
        let mut out = Vec::new();
        let expression = Expression::parse(text).unwrap();
        let wrote = expression.value(&facts).unwrap().write_json(&mut out, Some(3));
        assert_eq!(wrote.then(|| String::from_utf8(out).unwrap()).as_deref(), wanted, "{text}");
    }
}
