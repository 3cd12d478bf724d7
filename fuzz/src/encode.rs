//! The encoder against one that is as simple as can be.

use bytes::Bytes;
use towpath_proto::http1::{Client, NameCase, Options, Server};
use towpath_proto::{Event, Head, HeadPool, Method, Name, Out};

/// Receives a head, changes it, and compares what our client writes for it with what it is to write.
pub fn check(changes: &[u8], bytes: &[u8]) {
    // The second time its lines are known.
    let mut pool = HeadPool::default();
    for case in [NameCase::Lower, NameCase::Lower, NameCase::Proper] {
        let options = Options { allow_custom_methods: true, name_case: case, ..Options::default() };
        let mut server = Server::new(options.clone().into());
        server.receive(Bytes::copy_from_slice(bytes));
        let Ok(Some(Event::Head { mut head, end })) = server.poll(&mut pool) else {
            return;
        };
        for change in changes.chunks_exact(3) {
            apply(&mut head, change[0], change[1], change[2]);
        }
        let mut out = Out::new();
        Client::new(options.into()).encode_head(&head, end, &mut out);
        let written = out.drain().fold(Vec::new(), |all, piece| [all, piece.to_vec()].concat());
        let expected = plain(&head, end);
        match case {
            NameCase::Lower => {
                assert_eq!(written.escape_ascii().to_string(), expected.escape_ascii().to_string());
            }
            NameCase::Proper => assert!(written.eq_ignore_ascii_case(&expected)),
        }
    }
}

fn apply(head: &mut Head, kind: u8, name: u8, value: u8) {
    const NAMES: [&[u8]; 8] = [
        b"x-a",
        b"X-A",
        b"Via",
        b"accept",
        b"content-length",
        b"Upgrade",
        b"te",
        b"X-Long-Name-Of-Some-Thing-0123456789",
    ];
    const VALUES: [&[u8]; 8] = [
        b"",
        b"a",
        b"trailers",
        b"12",
        b" b ",
        b"\r\nevil: \0",
        b"x: y",
        b"0123456789abcdef0123456789abcdef!",
    ];
    let known = Name::ALL[1 + usize::from(name) % (Name::ALL.len() - 1)];
    let name = NAMES[usize::from(name) % NAMES.len()];
    let value = VALUES[usize::from(value) % VALUES.len()];
    match kind % 8 {
        0 => _ = head.append_bytes(name, value),
        1 => _ = head.set_bytes(name, value),
        2 => _ = head.remove_bytes(name),
        3 => _ = head.append(known, value),
        4 => _ = head.set(known, value),
        5 => _ = head.remove(known),
        6 => head.set_path(value),
        _ => head.retain(|field| field.value != value),
    }
}

/// RFC 9112 §3 and §6, line by line.
fn plain(head: &Head, end: bool) -> Vec<u8> {
    let connect = head.method() == Method::Connect;
    let lengths: Vec<&[u8]> = head.values(Name::ContentLength).collect();
    let length = match lengths[..] {
        [digits] if !digits.is_empty() && digits.iter().all(u8::is_ascii_digit) => {
            std::str::from_utf8(digits).ok().and_then(|digits| digits.parse::<u64>().ok())
        }
        _ => None,
    };
    let chunked = !end && length.is_none() && !connect;
    let upgrade = head.get(Name::Upgrade).is_some();
    let target = match head.path() {
        _ if connect => head.authority(),
        b"" => b"/",
        path => path,
    };
    let mut text = [head.method_bytes(), b" ", target, b" HTTP/1.1\r\n"].concat();
    let mut line = |name: &[u8], value: &[u8]| {
        text.extend_from_slice(&[&name.to_ascii_lowercase(), &b": "[..], value, b"\r\n"].concat());
    };
    line(b"host", head.authority());
    for field in head.iter() {
        let leaves = match field.name {
            Name::ContentLength => length.is_some() && !connect,
            Name::Trailer => chunked,
            Name::Te => field.value.eq_ignore_ascii_case(b"trailers"),
            Name::Host
            | Name::Connection
            | Name::TransferEncoding
            | Name::KeepAlive
            | Name::ProxyConnection
            | Name::Http2Settings => false,
            _ => true,
        };
        if leaves {
            line(field.name_bytes, field.value);
        }
    }
    let may_have_content =
        matches!(head.method(), Method::Post | Method::Put | Method::Patch | Method::Other);
    if chunked {
        line(b"transfer-encoding", b"chunked");
    } else if end && length.is_none() && may_have_content {
        line(b"content-length", b"0");
    }
    if upgrade {
        line(b"connection", b"upgrade");
    }
    text.extend_from_slice(b"\r\n");
    text
}
