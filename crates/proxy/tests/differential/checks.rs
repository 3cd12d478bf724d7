//! What a server answers to checks by gRPC (`grpc.health.v1.Health/Check`): the name of the service says it.

use towpath_proto::head::Head;

use crate::wire::Message;

pub(crate) const PATH: &[u8] = b"/grpc.health.v1.Health/Check";

/// One answer.
pub(crate) struct Answer {
    pub(crate) head: Head,
    pub(crate) content: Vec<u8>,
    pub(crate) last: Last,
}

/// How it ends.
pub(crate) enum Last {
    /// With its head.
    Head,
    Content,
    Trailers(Head),
    Reset,
}

/// The answer to a check.
pub(crate) fn answer(asked: &Message) -> Answer {
    const SERVING: &[u8] = b"\0\0\0\0\x02\x08\x01";
    let service = asked.body.get(7..).unwrap_or_default();
    let (head, content, last) = match service {
        b"well" => (grpc(), SERVING, trailers("0")),
        b"" if asked.body == [0; 5] => (grpc(), SERVING, trailers("0")),
        b"asked" if has_fields(asked, "here", "1000m") => (grpc(), SERVING, trailers("0")),
        b"by_name" if has_fields(asked, "by_name", "1500m") => (grpc(), SERVING, trailers("0")),
        b"patient" if has_fields(asked, "here", "100000S") => (grpc(), SERVING, trailers("0")),
        b"unwell" => (grpc(), &b"\0\0\0\0\x02\x08\x02"[..], trailers("0")),
        b"unknown" => (grpc(), &b"\0\0\0\0\x02\x08\0"[..], trailers("0")),
        b"service_unknown" => (grpc(), &b"\0\0\0\0\x02\x08\x03"[..], trailers("0")),
        b"strange" => (grpc(), &b"\0\0\0\0\x02\x08\x09"[..], trailers("0")),
        b"empty" => (grpc(), &b"\0\0\0\0\0"[..], trailers("0")),
        b"more" => (grpc(), &b"\0\0\0\0\x06\x08\x01\x12\x02ok"[..], trailers("0")),
        b"twice" => (grpc(), &b"\0\0\0\0\x02\x08\x01\0\0\0\0\x02\x08\x01"[..], trailers("0")),
        b"cut" => (grpc(), &b"\0\0\0\0\x03\x08\x01"[..], trailers("0")),
        b"compressed" => (grpc(), &b"\x01\0\0\0\x02\x08\x01"[..], trailers("0")),
        b"broken" => (grpc(), &b"\0\0\0\0\x02\x08\xff"[..], trailers("0")),
        b"failed" => (grpc(), SERVING, trailers("14")),
        b"no_status" => (grpc(), SERVING, Last::Trailers(Head::default())),
        b"no_trailers" => (grpc(), SERVING, Last::Content),
        b"at_once" => (ended("14"), &b""[..], Last::Head),
        b"unimplemented" => (ended("12"), &b""[..], Last::Head),
        b"nothing" => (ended("0"), &b""[..], Last::Head),
        b"no_message" => (grpc(), &b""[..], trailers("0")),
        b"of_http" => (typed(200, "text/plain"), &b"ok"[..], Last::Content),
        b"of_proto" => (typed(200, "application/grpc+proto"), SERVING, trailers("0")),
        b"status_503" => (typed(503, "application/grpc"), SERVING, trailers("0")),
        b"reset" => (grpc(), &b""[..], Last::Reset),
        _ => (ended("5"), &b""[..], Last::Head),
    };
    Answer { head, content: content.to_vec(), last }
}

/// Whether a check has all the fields that Envoy gives it, one of its configuration among them, and no others.
fn has_fields(asked: &Message, authority: &str, timeout: &str) -> bool {
    let fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":authority", authority),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
        ("user-agent", "Envoy/HC"),
        ("said", "first"),
        ("grpc-timeout", timeout),
    ];
    fields.iter().all(|&(name, value)| asked.fields.contains(&(name.to_owned(), value.to_owned())))
        && asked.fields.len() == fields.len() + 1
}

fn grpc() -> Head {
    typed(200, "application/grpc")
}

fn typed(status: u16, content_type: &str) -> Head {
    let mut head = Head::response(status);
    head.append_bytes(b"content-type", content_type.as_bytes());
    head
}

/// Trailers alone, which are the head.
fn ended(status: &str) -> Head {
    let mut head = grpc();
    head.append_bytes(b"grpc-status", status.as_bytes());
    head
}

fn trailers(status: &str) -> Last {
    let mut head = Head::default();
    head.append_bytes(b"grpc-status", status.as_bytes());
    Last::Trailers(head)
}
