use towpath_proto::{Address, Head, Instant, Version};

use super::*;
use crate::record::{Attempted, ClientConnection, Flags, Record};
use crate::stream_info::{StateObject, StreamInfo, Value};

/// A request as Envoy 1.40 logged it; the expected texts below are what it printed.
fn record() -> Record {
    let at = |us: u64| Some(Instant::from_nanos(us * 1000));
    Record {
        start: Instant::from_nanos(1_000_000_000),
        request_end: at(1_000_500),
        upstream_first_sent: at(1_001_000),
        upstream_last_sent: at(1_002_000),
        upstream_first_received: at(1_005_000),
        upstream_last_received: at(1_006_000),
        response_start: at(1_005_500),
        response_end: at(1_007_000),
        end: at(1_008_999),
        bytes_sent: 2,
        status: 200,
        protocol: Some(Version::Http11),
        details: "via_upstream",
        attempts: 1,
        connection: 7,
        cluster: Some("c".into()),
        upstream_host: Some(Address::Ip("127.0.0.1:17002".parse().unwrap())),
        upstream_local: Some(Address::Ip("127.0.0.1:40000".parse().unwrap())),
        downstream_remote: Some(Address::Ip("[2001:db8::1]:52380".parse().unwrap())),
        downstream_local: Some(Address::Unix(std::path::Path::new("/run/x").into())),
        ..Record::default()
    }
}

/// As Envoy 1.40 logs the connection of a client under TLS, and a request on it.
#[test]
fn the_connection_of_a_client_is_told() {
    let at = |us: u64| Some(Instant::from_nanos(us * 1000));
    let of_request = Record {
        client: ClientConnection {
            opened: at(800_000),
            handshake_start: at(850_000),
            handshake_end: at(899_700),
            closed: at(1_008_999),
            failure: "",
        },
        upstream_content_start: at(1_005_700),
        route_lookups: 2,
        route_lookup_time: Some(std::time::Duration::from_nanos(8_900)),
        ..record()
    };
    let failed = Record {
        start: Instant::from_nanos(800_000_000),
        client: ClientConnection { failure: "TLS_error:|1:a b", ..of_request.client },
        ..Record::default()
    };
    let said = |record: &Record, text| {
        let mut out = Vec::new();
        let facts = Facts::new(record, Instant::ZERO);
        Format::text(text, &FormatOptions::default()).unwrap().write(&mut out, &facts);
        String::from_utf8(out).unwrap()
    };
    for (record, text, wanted) in [
        (&of_request, "%DOWNSTREAM_HANDSHAKE_DURATION%", "-100"),
        (&failed, "%DOWNSTREAM_HANDSHAKE_DURATION%", "99"),
        (&of_request, "%COMMON_DURATION(DS_CX_BEG:DS_HS_BEG)%", "50"),
        (&of_request, "%COMMON_DURATION(DS_HS_BEG:DS_HS_END:us)%", "49700"),
        (&of_request, "%COMMON_DURATION(DS_RX_BEG:DS_CX_END)%", "8"),
        (&of_request, "%COMMON_DURATION(DS_RX_BEG:DS_HS_END)%", "-"),
        (&of_request, "%COMMON_DURATION(DS_RX_BEG:US_RX_BODY_BEG:us)%", "5700"),
        (&of_request, "%ROUTE_RESOLUTION_COUNT% %ROUTE_RESOLUTION_TIME_US%", "2 8"),
        (&failed, "%ROUTE_RESOLUTION_COUNT% %ROUTE_RESOLUTION_TIME_US%", "0 -"),
        (&of_request, "%DOWNSTREAM_TRANSPORT_FAILURE_REASON% %DOWNSTREAM_CX_RTT%", "- 0"),
        (&failed, "%DOWNSTREAM_TRANSPORT_FAILURE_REASON%", "TLS_error:|1:a_b"),
    ] {
        assert_eq!(said(record, text), wanted, "{text}");
    }
    assert!(Format::parse("a %ROUTE_RESOLUTION_TIME_US%").unwrap().asks_route_time());
    let chosen = r#"%COALESCE({"operators": ["ROUTE_NAME", "ROUTE_RESOLUTION_TIME_US"]})%"#;
    assert!(Format::parse(chosen).unwrap().asks_route_time());
    assert!(!Format::parse("%ROUTE_RESOLUTION_COUNT%").unwrap().asks_route_time());
}

fn request() -> Head {
    let mut head = Head::request(b"GET", b"http", b"Host.x:80", b"/p%41/x?a=1&b=%41%zz&c");
    head.append_bytes(b"X-A", b"hello");
    head.append_bytes(b"X-A", b"second");
    head.append_bytes(b"X-Empty", b"");
    head.append_bytes(b"X-E", b"a\"b\\c\t\xe9\xc3\xa9<>&/");
    head
}

fn said(format: &Format) -> String {
    let (record, request) = (record(), request());
    let mut response = Head::response(200);
    response.append_bytes(b"x-up", b"a");
    let mut trailers = Head::default();
    trailers.append_bytes(b"x-end", b"b");
    let facts = Facts {
        request: Some(&request),
        response: Some(&response),
        trailers: Some(&trailers),
        cluster: "c",
        cluster_stat_name: "c",
        route: "rt2",
        epoch_unix_ns: 1_795_175_501_354_309_000,
        hostname: "vm",
        ..Facts::new(&record, Instant::from_nanos(2_000_000_000))
    };
    let mut out = Vec::new();
    format.write(&mut out, &facts);
    String::from_utf8_lossy(&out).into_owned()
}

fn text(format: &str) -> String {
    said(&Format::parse(format).unwrap())
}

#[test]
fn commands_say_what_envoy_says() {
    for (format, wanted) in [
        ("%REQ(X-A)% %REQ(x-a):2% %REQ(X-N?:PATH):3%", "hello he /p%"),
        ("a %REQ(x-a):18446744073709551615%", "a hello"),
        (
            "%REQ(:METHOD)% %REQ(:AUTHORITY)% %REQ(host)% %REQ(:SCHEME)%",
            "GET Host.x:80 Host.x:80 http",
        ),
        ("%REQ(X-NO)%|%REQ(X-EMPTY)%|%REQ(X-EMPTY?X-A)%", "-||"),
        ("%RESP(X-UP)% %RESP(:STATUS)% %RESP(x-no)% %TRAILER(x)%", "a 200 - -"),
        ("%TRAILER(x-end)% %RESPONSE_HEADERS_BYTES% %RESPONSE_TRAILERS_BYTES%", "b 15 6"),
        ("%REQ_WITHOUT_QUERY(X-N?:PATH)%", "/p%41/x"),
        ("%START_TIME% %START_TIME(%s.%3f)%", "2026-11-20T11:51:42.354Z 1795175502.354"),
        ("%EMIT_TIME(%s)%", "1795175503"),
        ("%DURATION% %REQUEST_DURATION% %REQUEST_TX_DURATION%", "8 0 2"),
        ("%RESPONSE_DURATION% %RESPONSE_TX_DURATION%", "5 2"),
        ("%COMMON_DURATION(DS_RX_BEG:DS_TX_END:us)%", "7000"),
        ("%COMMON_DURATION(US_TX_BEG:US_RX_BEG)% %COMMON_DURATION(US_CX_BEG:US_CX_END:ns)%", "4 -"),
        ("%RESPONSE_CODE% %RESPONSE_FLAGS% %RESPONSE_CODE_DETAILS%", "200 - via_upstream"),
        ("%UPSTREAM_HOST% %UPSTREAM_REMOTE_PORT% %UPSTREAM_CLUSTER%", "127.0.0.1:17002 17002 c"),
        ("%DOWNSTREAM_REMOTE_ADDRESS%", "[2001:db8::1]:52380"),
        ("%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%", "2001:db8::1"),
        ("%DOWNSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_LOCAL_PORT%", "/run/x -"),
        ("%DOWNSTREAM_LOCAL_ADDRESS_WITHOUT_PORT(8)%", "/run/x"),
        ("%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT(31)%", "2001:db8::/31"),
        ("%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT(0)%", "::/0"),
        ("%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT(128)%", "2001:db8::1/128"),
        ("%UPSTREAM_REMOTE_ADDRESS_WITHOUT_PORT(9)%", "127.0.0.0/9"),
        ("%UPSTREAM_REMOTE_ADDRESS_WITHOUT_PORT(0)%", "0.0.0.0/0"),
        ("%UPSTREAM_REMOTE_ADDRESS_WITHOUT_PORT(64)%", "127.0.0.1/32"),
        ("%UPSTREAM_HOST_NAME% %UPSTREAM_HOST_NAME_WITHOUT_PORT%", "127.0.0.1:17002 127.0.0.1"),
        (
            "%REQUESTED_SERVER_NAME(HOST_FIRST)% %REQUESTED_SERVER_NAME(SNI_FIRST:ORIG)%",
            "Host.x:80 -",
        ),
        ("%UPSTREAM_LOCAL_ADDRESS% %UPSTREAM_TRANSPORT_FAILURE_REASON%", "127.0.0.1:40000 -"),
        ("%PROTOCOL% %BYTES_SENT% %CONNECTION_ID% %ROUTE_NAME%", "HTTP/1.1 2 7 rt2"),
        ("%PATH% %PATH(NQ)% %PATH(WQ:ORIG)%", "/p%41/x?a=1&b=%41%zz&c /p%41/x -"),
        ("%QUERY_PARAM(b)% %QUERY_PARAM(no)% %QUERY_PARAMS%", "A%zz - a=1&b=%41%zz&c"),
        ("%GRPC_STATUS% %LOCAL_REPLY_BODY%|%HOSTNAME%", "- |vm"),
        ("100%% %PROTOCOL()%", "100% HTTP/1.1"),
        ("", ""),
    ] {
        assert_eq!(text(format), wanted, "{format}");
    }
}

#[test]
fn the_default_line_is_envoys() {
    assert_eq!(said(&Format::default_access_log()), text(DEFAULT_ACCESS_LOG));
    assert_eq!(
        text(DEFAULT_ACCESS_LOG),
        "[2026-11-20T11:51:42.354Z] \"GET /p%41/x?a=1&b=%41%zz&c HTTP/1.1\" 200 - 0 2 8 - \"-\" \
         \"-\" \"-\" \"Host.x:80\" \"127.0.0.1:17002\"\n"
    );
}

#[test]
fn flags_are_written_short_or_long() {
    let mut record = record();
    record.flags = Flags::UPSTREAM_RETRY_LIMIT_EXCEEDED.with(Flags::UPSTREAM_CONNECTION_FAILURE);
    let mut out = Vec::new();
    Format::parse("%RESPONSE_FLAGS% %RESPONSE_FLAGS_LONG%")
        .unwrap()
        .write(&mut out, &Facts::new(&record, Instant::ZERO));
    assert_eq!(out, b"URX,UF UpstreamRetryLimitExceeded,UpstreamConnectionFailure");
}

#[test]
fn what_is_missing_can_be_left_out() {
    let options = FormatOptions { omit_empty_values: true, ..FormatOptions::default() };
    assert_eq!(said(&Format::text("[%REQ(no)%|%DURATION%]", &options).unwrap()), "[|8]");
}

#[test]
fn wrong_formats_are_refused_with_command_and_position() {
    for (format, position, command, reason) in [
        ("ab%", 2, "", FormatReason::Syntax),
        ("100% sure", 3, "", FormatReason::Syntax),
        ("%req(a)%", 0, "", FormatReason::Syntax),
        ("%REQ(a", 0, "", FormatReason::Syntax),
        ("%REQ(a):x%", 0, "", FormatReason::Syntax),
        ("%REQ(a):%", 0, "", FormatReason::Syntax),
        ("%%%NOPE%", 2, "NOPE", FormatReason::Unknown),
        ("%CEL(xds.node)%", 0, "CEL", FormatReason::Unsupported),
        ("%REQ%", 0, "REQ", FormatReason::MissingParameter),
        ("%REQ()%", 0, "REQ", FormatReason::MissingParameter),
        ("%DURATION(x)%", 0, "DURATION", FormatReason::UnexpectedParameter),
        ("%PROTOCOL:4%", 0, "PROTOCOL", FormatReason::UnexpectedLength),
    ] {
        let error = Format::parse(format).unwrap_err();
        assert_eq!((error.position, &*error.command, &error.reason), (position, command, &reason));
        assert!(error.to_string().contains(&position.to_string()));
    }
    for format in [
        "%REQ(a?b?c)%",
        "%REQ(b c)%",
        "%START_TIME(%Q)%",
        "%GRPC_STATUS(X)%",
        "%PATH(X)%",
        "%PATH(NQ:X)%",
        "%COMMON_DURATION(DS_RX_BEG:FOO)%",
        "%COMMON_DURATION(DS_RX_BEG:DS_RX_END:h)%",
        "%REQUESTED_SERVER_NAME(HOST)%",
        "%REQUESTED_SERVER_NAME(SNI_FIRST:PATH)%",
        "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT(129)%",
        "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT(x)%",
    ] {
        let error = Format::parse(format).unwrap_err();
        assert!(matches!(error.reason, FormatReason::Parameter(_)), "{format}: {error}");
    }
    assert!(Format::header("a\nb", &FormatOptions::default()).is_err());
}

#[test]
fn the_environment_is_asked_once() {
    let home = |name: &str| (name == "HOME").then(|| "/root".to_owned());
    let options = FormatOptions { environment: Some(&home), ..FormatOptions::default() };
    let format =
        Format::text("%ENVIRONMENT(HOME)%%ENVIRONMENT(NO)%%ENVIRONMENT(HOME):2%", &options)
            .unwrap();
    let mut out = Vec::new();
    format.write(&mut out, &Facts::new(&Record::default(), Instant::ZERO));
    assert_eq!(out, b"/root-/r");
}

fn template() -> JsonTemplate {
    let text = |text: &str| JsonTemplate::Text(text.to_owned());
    let object = |fields: Vec<(&str, JsonTemplate)>| {
        JsonTemplate::Object(fields.into_iter().map(|(key, v)| (key.to_owned(), v)).collect())
    };
    object(vec![
        ("z", JsonTemplate::Number(1.0)),
        ("b", JsonTemplate::Bool(true)),
        ("nul", JsonTemplate::Null),
        ("list", JsonTemplate::List(vec![text("%PROTOCOL%"), text("%REQ(no)%"), object(vec![])])),
        (
            "a",
            object(vec![
                ("x", text("%REQ(no)%")),
                ("y", text("a%REQ(no)%b")),
                ("d", text("%DURATION%")),
                ("dd", text("%DURATION%%DURATION%")),
                ("e", text("%REQ(X-E)%")),
                ("p", text("100%%")),
                ("q", text("")),
            ]),
        ),
        ("only", object(vec![("x", text("%REQ(no)%"))])),
        ("es", text("%REQ(X-EMPTY)%")),
        ("short", text("%REQ(X-A):3%")),
        ("n", JsonTemplate::Number(-1.5)),
        ("x\"y\u{e9}", text("<\"\u{e9}\n")),
    ])
}

#[test]
fn json_is_envoys() {
    let format = Format::json(&template(), &FormatOptions::default()).unwrap();
    assert_eq!(
        said(&format),
        concat!(
            r#"{"a":{"d":8,"dd":"88","e":"a\u0022b\u005cc\u0009\u00e9\u00c3\u00a9<>&/","p":"100%","q":"","#,
            r#""x":null,"y":"a-b"},"b":true,"es":"","list":["HTTP/1.1",null,{}],"n":-1.5,"nul":null,"#,
            r#""only":{"x":null},"short":"hel","x\"yé":"<\"é\n","z":1}"#,
            "\n"
        )
    );
}

#[test]
fn json_leaves_out_what_is_empty() {
    let options = FormatOptions { omit_empty_values: true, ..FormatOptions::default() };
    let format = Format::json(&template(), &options).unwrap();
    assert_eq!(
        said(&format),
        concat!(
            r#"{"a":{"d":8,"dd":"88","e":"a\u0022b\u005cc\u0009\u00e9\u00c3\u00a9<>&/","p":"100%","q":"","#,
            r#""y":"ab"},"b":true,"es":"","list":["HTTP/1.1"],"n":-1.5,"short":"hel","#,
            r#""x\"yé":"<\"é\n","z":1}"#,
            "\n"
        )
    );
    let nothing = JsonTemplate::Object(vec![("a".into(), JsonTemplate::Null)]);
    assert_eq!(said(&Format::json(&nothing, &options).unwrap()), "{}\n");
}

#[test]
fn control_bytes_are_escaped() {
    let mut out = Vec::new();
    crate::json::json_string(&mut out, b"\x00\x08\x0c\r\x1f\x7f");
    assert_eq!(out, b"\"\\u0000\\b\\f\\r\\u001f\x7f\"");
}

#[test]
fn a_header_has_no_line_end_not_even_one_that_a_time_makes() {
    let options = FormatOptions::default();
    assert!(Format::header("%START_TIME(%Y%n)%", &options).is_err());
    assert!(Format::header("100%%n", &options).is_ok());
    assert!(Format::text("%START_TIME(%Y%n)%", &options).is_ok());
}

#[test]
fn what_filters_have_left_is_written() {
    let info = StreamInfo::default();
    let inner = [("b".into(), Value::Number(1.0)), ("t".into(), Value::text(b"<x"))];
    let entries = [
        ("s".into(), Value::text(b"text")),
        ("z".into(), Value::Null),
        ("m".into(), Value::Struct(inner.into_iter().collect())),
    ];
    info.add_metadata("n", entries.into_iter().collect()).unwrap();
    let object = StateObject { value: b"a".as_slice().into(), ..StateObject::default() };
    info.set_state("o", object).unwrap();
    let record = record();
    let said = |format: &Format, info| {
        let facts = Facts { info, ..Facts::new(&record, Instant::from_nanos(2_000_000_000)) };
        let mut out = Vec::new();
        format.write(&mut out, &facts);
        String::from_utf8(out).unwrap()
    };
    for (text, wanted) in [
        ("%DYNAMIC_METADATA(n:s)%", "text"),
        ("%DYNAMIC_METADATA(n:s):2%", "te"),
        ("%DYNAMIC_METADATA(n:m)%", r#"{"b":1,"t":"<x"}"#),
        ("%DYNAMIC_METADATA(n:m:b)%", "1"),
        ("%DYNAMIC_METADATA(n:z)%", "-"),
        ("%DYNAMIC_METADATA(n:s:x)%", "-"),
        ("%DYNAMIC_METADATA(other)%", "-"),
        ("%FILTER_STATE(o)%", "\"a\""),
        ("%FILTER_STATE(o:PLAIN)%", "a"),
        ("%FILTER_STATE(none)%", "-"),
    ] {
        let format = Format::parse(text).unwrap();
        assert_eq!(said(&format, Some(&info)), wanted, "{text}");
        assert_eq!(said(&format, None), "-", "{text}");
    }
    let text = |text: &str| JsonTemplate::Text(text.to_owned());
    let template = JsonTemplate::Object(vec![
        ("all".to_owned(), text("%DYNAMIC_METADATA(n)%")),
        ("cut".to_owned(), text("%DYNAMIC_METADATA(n:s):2%")),
        ("none".to_owned(), text("%DYNAMIC_METADATA(x)%")),
        ("state".to_owned(), text("%FILTER_STATE(o:PLAIN)%")),
    ]);
    let json = Format::json(&template, &FormatOptions::default()).unwrap();
    assert_eq!(
        said(&json, Some(&info)),
        r#"{"all":{"m":{"b":1,"t":"<x"},"s":"text","z":null},"cut":"te","none":null,"state":"a"}"#
            .to_owned()
            + "\n"
    );
}

#[test]
fn hosts_of_all_tries_are_listed() {
    let mut record = record();
    let said = |record: &Record| {
        let facts = Facts { upstream_hostname: "b.test:2", ..Facts::new(record, Instant::ZERO) };
        let mut out = Vec::new();
        let all = "%UPSTREAM_HOSTS_ATTEMPTED_WITHOUT_PORT% %UPSTREAM_HOST_NAMES_ATTEMPTED% \
                   %UPSTREAM_HOST_NAMES_ATTEMPTED_WITHOUT_PORT% %UPSTREAM_CONNECTION_IDS_ATTEMPTED%";
        Format::parse(all).unwrap().write(&mut out, &facts);
        String::from_utf8(out).unwrap()
    };
    record.upstream_connection = 9;
    assert_eq!(said(&record), "127.0.0.1 b.test:2 b.test 9");
    let one = |host: &str, hostname: &str, connection| Attempted {
        host: Address::Ip(host.parse().unwrap()),
        hostname: hostname.into(),
        connection,
    };
    // To the second there was no connection.
    record.attempted =
        Some(Box::new(vec![one("10.0.0.1:80", "a.test", 3), one("10.0.0.2:80", "", 0)]));
    assert_eq!(
        said(&record),
        "10.0.0.1,10.0.0.2,127.0.0.1 a.test,10.0.0.2:80,b.test:2 a.test,10.0.0.2,b.test 3,9"
    );
}

#[test]
fn ids_of_a_stream_and_its_trace() {
    let record = record();
    let said = |text: &str, trace| {
        let facts = Facts { trace, ..Facts::new(&record, Instant::ZERO) };
        let mut out = Vec::new();
        Format::parse(text).unwrap().write(&mut out, &facts);
        String::from_utf8(out).unwrap()
    };
    assert_eq!(said("%TRACE_ID% %SPAN_ID%", None), "- -");
    assert_eq!(said("%TRACE_ID% %SPAN_ID%", Some((0x1f, 2))), "000000000000001f 0000000000000002");
    assert_eq!(said("%TRACE_ID%", Some((1 << 64, 2))), "00000000000000010000000000000000");
    let (one, other) = (said("%UNIQUE_ID%", None), said("%UNIQUE_ID%", None));
    assert_eq!((one.len(), other.len()), (36, 36));
    assert_ne!(one, other);
}

#[test]
fn what_stands_in_a_time_is_escaped_in_json() {
    let record = record();
    let said = |text: &str| {
        let template = JsonTemplate::Object(vec![("a".into(), JsonTemplate::Text(text.into()))]);
        let mut out = Vec::new();
        let format = Format::json(&template, &FormatOptions::default()).unwrap();
        format.write(&mut out, &Facts::new(&record, Instant::ZERO));
        String::from_utf8(out).unwrap()
    };
    assert_eq!(said("%EMIT_TIME(%Y)%"), "{\"a\":\"1970\"}\n");
    assert_eq!(said("%EMIT_TIME(\"%Y\\)%"), "{\"a\":\"\\\"1970\\\\\"}\n");
    assert_eq!(said("%EMIT_TIME(%Y)%é"), "{\"a\":\"1970é\"}\n");
}
