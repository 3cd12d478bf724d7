use super::*;

fn who() -> Credentials {
    Credentials { user: "Aladdin".to_owned(), password: "open sesame".to_owned() }
}

fn open(bytes: &[u8]) -> Result<Progress, Refusal> {
    Ok(Progress::Open(bytes.to_vec()))
}

#[test]
fn connect_names_the_host_twice_and_the_credentials() {
    let fields = [("user-agent".to_owned(), "towpath".to_owned())];
    let mut asked = Handshake::connect("a.test:443", &fields, Some(&who()));
    // The credentials are RFC 7617 §2's.
    let expected = "CONNECT a.test:443 HTTP/1.1\r\nhost: a.test:443\r\n\
        proxy-authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==\r\nuser-agent: towpath\r\n\r\n";
    assert_eq!(String::from_utf8(asked.take_output()).unwrap(), expected);
    assert_eq!(asked.take_output(), b"");
}

#[test]
fn an_answer_to_connect_opens_the_tunnel_or_tells_why_not() {
    let cases: [(&str, Result<Progress, Refusal>); 14] = [
        ("HTTP/1.1 200 OK\r\n\r\n", open(b"")),
        ("HTTP/1.0 200\r\ncontent-length: 5\r\n\r\nhello", open(b"hello")),
        ("HTTP/1.1 299 \n\nx", open(b"x")),
        ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\na: b\r\n\r\n", open(b"")),
        ("HTTP/1.1 200 OK\r\na: b\r\n", Ok(Progress::Waiting)),
        ("", Ok(Progress::Waiting)),
        ("HTTP/1.1 407 \r\nproxy-authenticate: Basic\r\n\r\n", Err(Refusal::Credentials)),
        ("HTTP/1.1 403 Forbidden\r\n\r\n", Err(Refusal::Status(403))),
        ("HTTP/1.1 101 Switching\r\n\r\n", Err(Refusal::Status(101))),
        ("HTTP/2 200\r\n\r\n", Err(Refusal::Malformed)),
        ("HTTP/1.1 20\r\n\r\n", Err(Refusal::Malformed)),
        ("HTTP/1.1 2000\r\n\r\n", Err(Refusal::Malformed)),
        ("HTTP/1.1 2x0 \r\n\r\n", Err(Refusal::Malformed)),
        ("SSH-2.0\r\n\r\n", Err(Refusal::Malformed)),
    ];
    for (said, expected) in cases {
        let mut asked = Handshake::connect("a.test:443", &[], None);
        assert_eq!(asked.receive(said.as_bytes()), expected, "{said:?}");
        // The same byte by byte, but for what comes behind the head.
        let mut asked = Handshake::connect("a.test:443", &[], None);
        let mut came = Ok(Progress::Waiting);
        for byte in said.as_bytes() {
            came = asked.receive(&[*byte]);
            if !matches!(came, Ok(Progress::Waiting)) {
                break;
            }
        }
        let alike = match expected {
            Ok(Progress::Open(_)) => Ok(Progress::Open(Vec::new())),
            other => other,
        };
        assert_eq!(came, alike, "{said:?}");
    }
}

#[test]
fn an_endless_answer_to_connect_is_refused() {
    let mut asked = Handshake::connect("a.test:443", &[], None);
    assert_eq!(asked.receive(b"HTTP/1.1 200 OK\r\n"), Ok(Progress::Waiting));
    let line = [b'x'; 1024];
    let refused = (0..64).find_map(|_| asked.receive(&line).err());
    assert_eq!(refused, Some(Refusal::Malformed));
}

#[test]
fn socks_without_a_password() {
    let mut asked = Handshake::socks5("a.test", 443, None).unwrap();
    assert_eq!(asked.take_output(), [5, 1, 0]);
    assert_eq!(asked.receive(&[5]), Ok(Progress::Waiting));
    assert_eq!(asked.receive(&[0]), Ok(Progress::Waiting));
    assert_eq!(asked.take_output(), b"\x05\x01\x00\x03\x06a.test\x01\xbb");
    let reply = b"\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00";
    for byte in &reply[..9] {
        assert_eq!(asked.receive(&[*byte]), Ok(Progress::Waiting));
    }
    assert_eq!(asked.receive(b"\x00hi"), open(b"hi"));
}

#[test]
fn socks_with_a_password() {
    let mut asked = Handshake::socks5("192.0.2.1", 80, Some(&who())).unwrap();
    assert_eq!(asked.take_output(), [5, 2, 0, 2]);
    assert_eq!(asked.receive(&[5, 2]), Ok(Progress::Waiting));
    assert_eq!(asked.take_output(), b"\x01\x07Aladdin\x0bopen sesame");
    assert_eq!(asked.receive(&[1, 0]), Ok(Progress::Waiting));
    assert_eq!(asked.take_output(), b"\x05\x01\x00\x01\xc0\x00\x02\x01\x00\x50");
    assert_eq!(asked.receive(b"\x05\x00\x00\x03\x02ab\x00"), Ok(Progress::Waiting));
    assert_eq!(asked.receive(b"\x50"), open(b""));
}

#[test]
fn socks_names_an_ipv6_address_as_one() {
    let mut asked = Handshake::socks5("2001:db8::1", 80, None).unwrap();
    asked.take_output();
    assert_eq!(asked.receive(&[5, 0]), Ok(Progress::Waiting));
    assert_eq!(asked.take_output()[..6], [5, 1, 0, 4, 0x20, 0x01]);
    let reply = [&[5, 0, 0, 4][..], &[0; 18]].concat();
    assert_eq!(asked.receive(&reply), open(b""));
}

#[test]
fn socks_that_refuses_tells_why() {
    let cases: [(Option<Credentials>, &[u8], Refusal); 9] = [
        (None, &[5, 0xff], Refusal::Credentials),
        (None, &[5, 2], Refusal::Credentials),
        (Some(who()), &[5, 2, 1, 1], Refusal::Credentials),
        (None, &[4], Refusal::Malformed),
        (None, &[5, 9], Refusal::Malformed),
        (None, b"HTTP/1.1 400", Refusal::Malformed),
        (None, &[5, 0, 5, 5], Refusal::Socks(5)),
        (None, &[5, 0, 5, 200], Refusal::Socks(200)),
        (None, &[5, 0, 5, 0, 0, 9, 9], Refusal::Malformed),
    ];
    for (who, said, refusal) in cases {
        let mut asked = Handshake::socks5("a.test", 443, who.as_ref()).unwrap();
        assert_eq!(asked.receive(said), Err(refusal), "{said:?}");
        assert!(!refusal.to_string().is_empty());
    }
}

#[test]
fn socks_has_no_room_for_long_names() {
    let long = "a".repeat(256);
    assert_eq!(Handshake::socks5(&long, 1, None).err(), Some(Refusal::TooLong));
    let who = Credentials { user: "a".to_owned(), password: long };
    assert_eq!(Handshake::socks5("a", 1, Some(&who)).err(), Some(Refusal::TooLong));
    assert!(Handshake::socks5(&"a".repeat(255), 1, None).is_ok());
}

#[test]
fn what_a_proxy_wants_to_know_is_kept() {
    let mut asked = Handshake::connect("a.test:443", &[], None);
    assert!(asked.challenges().is_empty());
    let said = "HTTP/1.1 407 Who\r\nproxy-authenticate: Basic realm=\"x\"\r\nx: proxy-authenticate: y\r\n\
        PROXY-Authenticate:Negotiate\nProxy-Authenticate: \u{e9}\r\ncontent-length: 0\r\n\r\n";
    for byte in &said.as_bytes()[..said.len() - 1] {
        assert_eq!(asked.receive(&[*byte]), Ok(Progress::Waiting));
    }
    assert_eq!(asked.receive(b"\n"), Err(Refusal::Credentials));
    assert_eq!(asked.challenges(), ["Basic realm=\"x\"", "Negotiate", "\u{e9}"]);
    let mut socks = Handshake::socks5("a.test", 443, None).unwrap();
    assert_eq!(socks.receive(&[5, 255]), Err(Refusal::Credentials));
    assert!(socks.challenges().is_empty());
}
