use super::*;
use crate::head::HEAD_LIMIT;

/// Feeds `bytes` in two parts, split at every place, and expects the same answer each time.
fn answer_at_every_split(expect: Expect, bytes: &[u8]) -> Answer {
    let whole = Reader::new(expect).receive(bytes).unwrap().unwrap();
    for split in 0..bytes.len() {
        let mut reader = Reader::new(expect);
        assert_eq!(reader.receive(&bytes[..split]), Ok(None), "split at {split}");
        assert_eq!(reader.receive(&bytes[split..]), Ok(Some(whole)), "split at {split}");
    }
    let mut reader = Reader::new(expect);
    let (last, before) = bytes.split_last().unwrap();
    assert!(before.iter().all(|byte| reader.receive(&[*byte]) == Ok(None)));
    assert_eq!(reader.receive(&[*last]), Ok(Some(whole)));
    whole
}

#[test]
fn fixed_chunked_and_empty_bodies_end_where_they_should() {
    let fixed = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc";
    assert_eq!(answer_at_every_split(Expect::Http, fixed), Answer { status: 200, reusable: true });
    let chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: \
        chunked\r\n\r\n3;x=y\r\nabc\r\n0A\r\n0123456789\r\n0\r\nTrailer: a\r\n\r\n";
    assert_eq!(
        answer_at_every_split(Expect::Http, chunked),
        Answer { status: 200, reusable: true }
    );
    let empty = b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n";
    assert_eq!(answer_at_every_split(Expect::Http, empty), Answer { status: 204, reusable: false });
    let interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 500 No\r\nContent-Length: 1\r\n\r\nx";
    assert_eq!(
        answer_at_every_split(Expect::Http, interim),
        Answer { status: 500, reusable: true }
    );
    let head = b"HTTP/1.0 200 OK\r\nContent-Length: 30\r\nConnection: keep-alive\r\n\r\n";
    assert_eq!(
        answer_at_every_split(Expect::HttpHead, head),
        Answer { status: 200, reusable: true }
    );
    assert_eq!(
        answer_at_every_split(Expect::Bytes(5), b"abcde"),
        Answer { status: 200, reusable: true }
    );
}

#[test]
fn a_repeated_head_is_recognised_and_a_changed_one_parsed() {
    let mut reader = Reader::new(Expect::Http);
    for (length, body) in [(2, "ab"), (2, "cd"), (3, "efg"), (2, "hi")] {
        let bytes = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}");
        assert_eq!(
            reader.receive(bytes.as_bytes()),
            Ok(Some(Answer { status: 200, reusable: true }))
        );
    }
}

#[test]
fn an_answer_may_be_delimited_by_the_close() {
    let mut reader = Reader::new(Expect::Http);
    assert_eq!(reader.receive(b"HTTP/1.1 200 OK\r\n\r\nanything"), Ok(None));
    assert_eq!(reader.close(), Some(Answer { status: 200, reusable: false }));
    assert_eq!(reader.receive(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\na"), Ok(None));
    assert_eq!(reader.close(), None);
}

#[test]
fn what_is_no_answer_is_refused() {
    for bytes in [
        "HTTP/2 200 OK\r\n\r\n",
        "HTTP/1.1 20 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab",
    ] {
        assert_eq!(
            Reader::new(Expect::Http).receive(bytes.as_bytes()),
            Err(Malformed),
            "{bytes:?}"
        );
    }
}

#[test]
fn a_head_may_be_as_large_as_the_limit_and_no_larger() {
    let line = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX: ";
    let fill = |length: usize| format!("{line}{}\r\n\r\n", "x".repeat(length - line.len() - 4));
    let mut reader = Reader::new(Expect::Http);
    let bytes = fill(HEAD_LIMIT);
    let (a, b) = bytes.as_bytes().split_at(9);
    assert_eq!(reader.receive(a), Ok(None));
    assert!(matches!(reader.receive(b), Ok(Some(_))));
    let endless = vec![b'x'; HEAD_LIMIT];
    let mut reader = Reader::new(Expect::Http);
    assert_eq!(reader.receive(&endless[..HEAD_LIMIT - 1]), Ok(None));
    assert_eq!(reader.receive(&endless[..1]), Err(Malformed));
}
