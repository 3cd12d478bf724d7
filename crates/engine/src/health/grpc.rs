//! A check by gRPC: `grpc.health.v1.Health/Check` over HTTP/2.
//!
//! Arrives: plain bytes of the host. Leaves: the call's bytes, what HTTP/2 itself has to say, and an [`Outcome`] once
//! it is known. What is answered but is not `SERVING` is believed at once, as in Envoy.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use towpath_proto::head::{Head, HeadPool};
use towpath_proto::http2::{Arrival, Connection, Options};
use towpath_proto::name::Name;
use towpath_proto::{Event, Instant, Out};

use super::probe::{Outcome, takes_more};
use crate::format::Facts;
use crate::grpc;
use crate::header_ops::{Scratch, Subject};
use crate::record::Record;
use crate::snapshot::health::GrpcProbe;

/// A connection for checks by gRPC.
#[derive(Debug)]
pub(super) struct GrpcDialogue {
    http2: Box<Connection>,
    /// The call under way.
    call: Option<u32>,
    /// What came of its message.
    message: Vec<u8>,
}

impl GrpcDialogue {
    pub(super) fn new(options: Option<Arc<Options>>) -> Self {
        let http2 = Box::new(Connection::client(options.unwrap_or_default()));
        Self { http2, call: None, message: Vec::new() }
    }

    /// Writes the call, which may take so long. On a connection that takes none nothing is asked, and the check's time
    /// runs out.
    pub(super) fn ask(
        &mut self,
        probe: &GrpcProbe,
        authority: &str,
        timeout: Duration,
        now: Instant,
        out: &mut Out,
    ) {
        self.message.clear();
        self.call = self.http2.open();
        if let Some(number) = self.call {
            let mut head = question(probe, authority, now);
            grpc::set_timeout(&mut head, timeout);
            self.http2.send_head(number, &head, false, out);
            self.http2.send_data(number, request(&probe.service));
            self.http2.send_end(number);
        }
        self.http2.flush(out);
    }

    /// Takes what came; answers the outcome of the call under way once it is known.
    pub(super) fn receive(
        &mut self,
        chunk: Bytes,
        heads: &mut HeadPool,
        out: &mut Out,
    ) -> Option<Outcome> {
        self.http2.receive(chunk);
        let mut outcome = None;
        loop {
            match self.http2.poll(heads) {
                Ok(Some((number, arrival))) if self.call == Some(number) => {
                    outcome = self.read(number, arrival, heads);
                    if outcome.is_some() {
                        self.http2.release(number);
                        self.call = None;
                    }
                }
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(_) => {
                    outcome = outcome.or(Some(Outcome::Broken));
                    break;
                }
            }
        }
        self.http2.flush(out);
        outcome
    }

    /// Whether the next check can use the connection.
    pub(super) fn is_reusable(&self) -> bool {
        takes_more(&self.http2)
    }

    fn read(&mut self, number: u32, arrival: Arrival, heads: &mut HeadPool) -> Option<Outcome> {
        match arrival {
            Arrival::Part(Event::Head { head, end }) => {
                let goes_on = !end && head.status() == 200 && grpc::is_grpc(&head);
                heads.give(head);
                (!goes_on).then_some(Outcome::Refused)
            }
            Arrival::Part(Event::Informational(head)) => {
                heads.give(head);
                None
            }
            Arrival::Part(Event::Data(chunk)) => {
                self.message.extend_from_slice(&chunk);
                self.http2.consumed(number);
                (self.message.len() > MOST_ANSWER).then_some(Outcome::Refused)
            }
            Arrival::Part(Event::Trailers(trailers)) => {
                let said = grpc::status_of(&trailers);
                heads.give(trailers);
                let serves = said == Some(0) && serving(&self.message) == Some(SERVING);
                let well = Outcome::Success { degraded: false };
                Some(if serves { well } else { Outcome::Refused })
            }
            Arrival::Part(Event::End) => Some(Outcome::Refused),
            Arrival::Reset(_) | Arrival::Refused => Some(Outcome::Broken),
        }
    }
}

fn question(probe: &GrpcProbe, authority: &str, now: Instant) -> Head {
    let path = b"/grpc.health.v1.Health/Check";
    let mut head = Head::request(b"POST", b"http", authority.as_bytes(), path);
    head.set(Name::Te, b"trailers");
    head.set(Name::ContentType, b"application/grpc");
    head.set(Name::UserAgent, b"Envoy/HC");
    let record = Record::default();
    let facts = Facts::new(&record, now);
    probe.metadata.apply(&mut head, Subject::Request, &facts, &mut Scratch::default());
    head
}

/// `HealthCheckRequest` in its frame: the service is field 1.
fn request(service: &str) -> Bytes {
    let mut message = Vec::new();
    if !service.is_empty() {
        message.push(1 << 3 | LENGTH_DELIMITED);
        let mut length = service.len();
        while length >= 0x80 {
            message.push(length as u8 & 0x7f | 0x80);
            length >>= 7;
        }
        message.push(length as u8);
        message.extend_from_slice(service.as_bytes());
    }
    let mut frame = vec![0];
    frame.extend(u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes());
    frame.extend(message);
    frame.into()
}

/// The status of a `HealthCheckResponse`, which is field 1, in the only frame of an answer.
fn serving(frame: &[u8]) -> Option<u64> {
    let (start, mut message) = frame.split_at_checked(5)?;
    let length = u32::from_be_bytes([start[1], start[2], start[3], start[4]]);
    if start[0] != 0 || length as usize != message.len() {
        return None;
    }
    let mut status = 0;
    while !message.is_empty() {
        let key = varint(&mut message)?;
        let skipped = match (key & 7) as u8 {
            VARINT => {
                let value = varint(&mut message)?;
                if key >> 3 == 1 {
                    status = value;
                }
                0
            }
            FIXED_64 => 8,
            LENGTH_DELIMITED => usize::try_from(varint(&mut message)?).ok()?,
            FIXED_32 => 4,
            _ => return None,
        };
        message = message.get(skipped..)?;
    }
    Some(status)
}

/// A number in groups of seven bits, the lowest first.
fn varint(message: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for at in 0..10 {
        let (&byte, behind) = message.split_first()?;
        *message = behind;
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

const VARINT: u8 = 0;
const FIXED_64: u8 = 1;
const LENGTH_DELIMITED: u8 = 2;
const FIXED_32: u8 = 5;
const SERVING: u64 = 1;
/// A longer answer is none.
const MOST_ANSWER: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use towpath_proto::http2::Code;

    use super::*;
    use crate::snapshot::route::HeaderOps;

    /// What a server answers: head, message, trailers.
    type Answer = (&'static [(Name, &'static [u8])], &'static [u8], Option<&'static [u8]>);

    const GRPC: &[(Name, &[u8])] = &[(Name::ContentType, b"application/grpc")];
    const WELL: &[u8] = b"\0\0\0\0\x02\x08\x01";

    struct Peer {
        server: Connection,
        dialogue: GrpcDialogue,
        heads: HeadPool,
        asked: Vec<Head>,
        sent: Vec<u8>,
    }

    impl Peer {
        fn new() -> Self {
            Self {
                server: Connection::server(Arc::default()),
                dialogue: GrpcDialogue::new(None),
                heads: HeadPool::default(),
                asked: Vec::new(),
                sent: Vec::new(),
            }
        }

        fn check(&mut self, service: &str, answer: Answer) -> Option<Outcome> {
            let probe = GrpcProbe {
                service: service.into(),
                authority: "".into(),
                metadata: HeaderOps::default(),
            };
            let mut out = Out::new();
            self.sent.clear();
            let timeout = Duration::from_millis(1500);
            self.dialogue.ask(&probe, "app.test", timeout, Instant::ZERO, &mut out);
            out.drain().for_each(|chunk| self.server.receive(chunk));
            let mut back = Out::new();
            while let Some((number, arrival)) = self.server.poll(&mut self.heads).unwrap() {
                match arrival {
                    Arrival::Part(Event::Head { head, .. }) => self.asked.push(head),
                    Arrival::Part(Event::Data(chunk)) => self.sent.extend_from_slice(&chunk),
                    Arrival::Part(Event::End) => self.answer(number, answer, &mut back),
                    // What is refused is not heard to its end.
                    Arrival::Reset(code) => assert_eq!(code, Code::CANCEL),
                    Arrival::Part(_) | Arrival::Refused => panic!("nothing else was sent"),
                }
            }
            self.server.flush(&mut back);
            let chunks: Vec<Bytes> = back.drain().collect();
            let mut out = Out::new();
            let outcomes = chunks
                .into_iter()
                .filter_map(|chunk| self.dialogue.receive(chunk, &mut self.heads, &mut out));
            let outcome = outcomes.last();
            out.drain().for_each(|chunk| self.server.receive(chunk));
            outcome
        }

        fn answer(&mut self, number: u32, (head, message, said): Answer, out: &mut Out) {
            let mut response = Head::response(200);
            head.iter().for_each(|(name, value)| {
                response.set(*name, value);
            });
            let is_all = message.is_empty() && said.is_none();
            self.server.send_head(number, &response, is_all, out);
            if is_all {
                return;
            }
            self.server.send_data(number, Bytes::copy_from_slice(message));
            match said {
                Some(said) => {
                    let mut trailers = Head::default();
                    trailers.set(Name::GrpcStatus, said);
                    self.server.send_trailers(number, &trailers);
                }
                None => self.server.send_end(number),
            }
        }
    }

    const SUCCESS: Option<Outcome> = Some(Outcome::Success { degraded: false });
    const REFUSED: Option<Outcome> = Some(Outcome::Refused);

    #[test]
    fn a_host_that_serves_is_well_and_asked_again_on_the_same_connection() {
        let mut peer = Peer::new();
        for service in ["", "a.B"] {
            assert_eq!(peer.check(service, (GRPC, WELL, Some(b"0"))), SUCCESS);
            assert!(peer.dialogue.is_reusable());
        }
        let head = &peer.asked[1];
        assert_eq!((head.method_bytes(), head.authority()), (&b"POST"[..], &b"app.test"[..]));
        assert_eq!(head.path(), b"/grpc.health.v1.Health/Check");
        assert_eq!(head.get(Name::Te), Some(&b"trailers"[..]));
        assert_eq!(head.get(Name::GrpcTimeout), Some(&b"1500m"[..]));
        assert_eq!(peer.sent, b"\0\0\0\0\x05\x0a\x03a.B");
    }

    #[test]
    fn whatever_is_not_serving_is_refused() {
        let answers: [Answer; 8] = [
            (GRPC, b"\0\0\0\0\x02\x08\x02", Some(b"0")),
            (GRPC, b"\0\0\0\0\0", Some(b"0")),
            (GRPC, b"\0\0\0\0\x03\x08\x01", Some(b"0")),
            (GRPC, b"\x01\0\0\0\x02\x08\x01", Some(b"0")),
            (GRPC, WELL, Some(b"14")),
            (GRPC, WELL, None),
            (&[], WELL, Some(b"0")),
            (&[(Name::GrpcStatus, b"12")], b"", None),
        ];
        for answer in answers {
            let mut peer = Peer::new();
            assert_eq!(peer.check("", answer), REFUSED, "{answer:?}");
            assert_eq!(peer.check("", (GRPC, WELL, Some(b"0"))), SUCCESS, "{answer:?}");
        }
    }

    #[test]
    fn what_is_no_http2_is_broken() {
        let mut dialogue = GrpcDialogue::new(None);
        let mut out = Out::new();
        let chunk = Bytes::from_static(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        let outcome = dialogue.receive(chunk, &mut HeadPool::default(), &mut out);
        assert_eq!(outcome, Some(Outcome::Broken));
        assert!(!dialogue.is_reusable());
    }

    #[test]
    fn the_status_stands_among_fields_of_any_kind() {
        let fields =
            b"\0\0\0\0\x18\x12\x02ab\x19\0\0\0\0\0\0\0\0\x25\0\0\0\0\x08\xac\x02\x08\x01\x30\x01";
        let mut fields = fields.to_vec();
        let length = fields.len() - 5;
        fields[4] = u8::try_from(length).unwrap();
        assert_eq!(serving(&fields), Some(1));
        fields.push(0);
        assert_eq!(serving(&fields), None, "the length lies");
        assert_eq!(serving(&[0; 4]), None);
    }

    #[test]
    fn a_long_name_has_a_long_length() {
        let frame = request(&"x".repeat(300));
        assert_eq!(frame[..8], [0, 0, 0, 1, 47, 0x0a, 0xac, 0x02]);
    }
}
