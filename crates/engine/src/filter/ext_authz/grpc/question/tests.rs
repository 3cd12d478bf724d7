use std::collections::BTreeMap;
use std::path::PathBuf;

use super::*;
use crate::filter::ext_authz::{Server, Service};
use crate::matcher::StringMatcher;
use crate::protobuf::{HeaderValue, in_frame};

/// `AttributeContext.HttpRequest`.
#[derive(Clone, PartialEq, prost::Message)]
struct HttpRequest {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(string, tag = "2")]
    method: String,
    #[prost(btree_map = "string, string", tag = "3")]
    headers: BTreeMap<String, String>,
    #[prost(string, tag = "4")]
    path: String,
    #[prost(string, tag = "5")]
    host: String,
    #[prost(string, tag = "6")]
    scheme: String,
    #[prost(int64, tag = "9")]
    size: i64,
    #[prost(string, tag = "10")]
    protocol: String,
    #[prost(string, tag = "11")]
    body: String,
    #[prost(bytes = "vec", tag = "12")]
    raw_body: Vec<u8>,
    #[prost(message, optional, tag = "13")]
    header_map: Option<HeaderMap>,
}

/// `config.core.v3.HeaderMap`.
#[derive(Clone, PartialEq, prost::Message)]
struct HeaderMap {
    #[prost(message, repeated, tag = "1")]
    headers: Vec<HeaderValue>,
}

/// `AttributeContext.Peer`.
#[derive(Clone, PartialEq, prost::Message)]
struct Peer {
    #[prost(message, optional, tag = "1")]
    address: Option<PeerAddress>,
    #[prost(btree_map = "string, string", tag = "3")]
    labels: BTreeMap<String, String>,
    #[prost(string, tag = "4")]
    principal: String,
}

/// `config.core.v3.Address`.
#[derive(Clone, PartialEq, prost::Message)]
struct PeerAddress {
    #[prost(message, optional, tag = "1")]
    socket: Option<SocketAddress>,
    #[prost(message, optional, tag = "2")]
    pipe: Option<Pipe>,
}

/// `config.core.v3.SocketAddress`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
struct SocketAddress {
    #[prost(string, tag = "2")]
    address: String,
    #[prost(uint32, tag = "3")]
    port: u32,
}

/// `config.core.v3.Pipe`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
struct Pipe {
    #[prost(string, tag = "1")]
    path: String,
}

fn read<M: prost::Message + Default>(put: impl FnOnce(&mut Writer)) -> M {
    let mut out = Writer::framed(0);
    put(&mut out);
    M::decode(in_frame(&out.into_frame()).unwrap()).unwrap()
}

fn config() -> ExtAuthz {
    let service = GrpcService::new("a");
    let server = Server { service: Service::Grpc(service), timeout: Duration::from_secs(1) };
    ExtAuthz::new(Arc::new(server), "".into())
}

fn http(config: &ExtAuthz, content: Option<&Content>) -> HttpRequest {
    let mut head = Head::request(b"GET", b"http", b"one.test", b"/");
    head.append_bytes(b"A", b"1");
    head.append_bytes(b"B", b"2");
    head.append_bytes(b"a", b"\xff");
    head.append_bytes(PARTIAL, b"true");
    read(|out| put_http(out, config, &head, 1 << 63, content))
}

#[test]
fn labels_of_the_node_are_told() {
    let labels = [("app", "one"), ("n", "")];
    let own = labels.map(|(name, value)| (name.into(), value.into()));
    let peer: Peer = read(|out| put_labels(out, &own));
    assert_eq!(peer.labels, labels.map(|(name, value)| (name.into(), value.into())).into());
}

#[test]
fn a_request_is_described() {
    let pairs = [
        (":authority", "one.test"),
        (":method", "GET"),
        (":path", "/"),
        (":scheme", "http"),
        ("a", "1,\u{fffd}"),
        ("b", "2"),
    ];
    let expected = HttpRequest {
        id: "9223372036854775808".into(),
        method: "GET".into(),
        headers: pairs.map(|(name, value)| (name.into(), value.into())).into(),
        path: "/".into(),
        host: "one.test".into(),
        scheme: "http".into(),
        protocol: "HTTP/1.1".into(),
        ..HttpRequest::default()
    };
    assert_eq!(http(&config(), None), expected);
}

#[test]
fn headers_are_joined_or_raw() {
    let mut config = ExtAuthz {
        allowed: Some(vec![StringMatcher::exact("a", false), StringMatcher::exact(":path", false)]),
        ..config()
    };
    let joined = [(":path".to_owned(), "/".to_owned()), ("a".to_owned(), "1,\u{fffd}".to_owned())];
    assert_eq!(http(&config, None).headers, BTreeMap::from(joined));
    config.raw_headers = true;
    let shown = http(&config, None);
    assert!(shown.headers.is_empty());
    let raw = shown.header_map.unwrap().headers;
    let raw: Vec<_> = raw.iter().map(|it| (it.key.as_str(), &it.raw_value[..])).collect();
    assert_eq!(raw, [(":path", &b"/"[..]), ("a", b"1"), ("a", b"\xff")]);
}

#[test]
fn content_says_so_among_the_headers() {
    let content = Content { bytes: b"ab".to_vec(), is_partial: true, as_bytes: false };
    let joined = http(&config(), Some(&content));
    assert_eq!(joined.headers["x-envoy-auth-partial-body"], "true");
    assert_eq!((joined.size, &joined.body[..], joined.raw_body.len()), (2, "ab", 0));
    let content = Content { is_partial: false, as_bytes: true, ..content };
    let raw = http(&ExtAuthz { raw_headers: true, ..config() }, Some(&content));
    assert_eq!(raw.header_map.unwrap().headers.last().unwrap().raw_value, b"false");
    assert_eq!((raw.size, &raw.body[..], &raw.raw_body[..]), (2, "", &b"ab"[..]));
}

#[test]
fn peers_have_addresses_of_all_kinds() {
    let address = |address: Option<Address>| {
        read::<Peer>(|out| put_peer(out, address.as_ref(), None)).address
    };
    let socket = |text: &str, ip: &str, port| {
        let of = address(Some(Address::Ip(text.parse().unwrap()))).unwrap();
        assert_eq!(of.socket, Some(SocketAddress { address: ip.into(), port }));
    };
    socket("127.0.0.1:80", "127.0.0.1", 80);
    socket("[fd00::1]:65535", "fd00::1", 65_535);
    let path = PathBuf::from("/run/a.sock");
    let pipe = address(Some(Address::Unix(path.into()))).unwrap().pipe;
    assert_eq!(pipe, Some(Pipe { path: "/run/a.sock".into() }));
    assert_eq!(address(None), None);
}

#[test]
fn a_certificate_is_named_by_its_first_uri_domain_or_subject() {
    let shown = |uris: &[&str], domains: &[&str]| ShownCertificate {
        uris: uris.iter().map(|it| it.as_bytes().into()).collect(),
        domains: domains.iter().map(|it| it.as_bytes().into()).collect(),
        subject: "CN=a".into(),
        ..ShownCertificate::default()
    };
    let principal =
        |shown: &ShownCertificate| read::<Peer>(|out| put_peer(out, None, Some(shown))).principal;
    assert_eq!(principal(&shown(&["spiffe://a", "b"], &["c"])), "spiffe://a");
    assert_eq!(principal(&shown(&[], &["c"])), "c");
    assert_eq!(principal(&shown(&[], &[])), "CN=a");
}

#[test]
fn what_a_route_says_of_itself_is_shown_by_namespace() {
    let entries = |name: &str| {
        let mut entries = Struct::new();
        entries.insert(name.into(), Value::text(b"1"));
        Value::Struct(entries)
    };
    let mut told = Struct::new();
    told.insert("a".into(), entries("x"));
    told.insert("b".into(), entries("y"));
    let config = ExtAuthz { route_namespaces: vec!["b".into(), "c".into()], ..config() };
    let shown = route_metadata(&config, Some(&Arc::new(told))).filter_metadata;
    assert_eq!(shown.len(), 1);
    assert!(shown["b"].fields.contains_key("y"));
    assert!(route_metadata(&config, None).filter_metadata.is_empty());
}
