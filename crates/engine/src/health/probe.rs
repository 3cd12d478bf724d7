//! One check's conversation: what is sent, and what the answer means.
//!
//! Arrives: plain bytes of the host. Leaves: the question's bytes, and an [`Outcome`] once it is known.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use towpath_proto::bolt::{Command, Decoder, Kind, Message, Options, Status};
use towpath_proto::head::{Head, HeadPool};
use towpath_proto::http1::Client;
use towpath_proto::http2::{Arrival, Connection};
use towpath_proto::name::Name;
use towpath_proto::{Address, Instant};
use towpath_proto::{Event, Out};

use super::grpc::GrpcDialogue;
use crate::format::Facts;
use crate::header_ops::{Scratch, Subject};
use crate::record::Record;
use crate::snapshot::Cluster;
use crate::snapshot::health::{BoltProbe, HealthCheck, HttpProbe, Probe};

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The host is well.
    Success {
        /// It says that others would serve better.
        degraded: bool,
    },
    /// The host says that it is not well, which is believed at once.
    Refused,
    /// The same in a way that counts towards the threshold.
    Retriable,
    /// No connection, or one that ended.
    Broken,
    /// No answer in time.
    TimedOut,
}

/// What is spoken on a connection for checks.
#[derive(Debug)]
pub(super) enum Dialogue {
    Http {
        client: Box<Client>,
        answer: HttpAnswer,
    },
    /// The same over HTTP/2, and the request under way.
    Http2 {
        connection: Box<Connection>,
        request: Option<u32>,
        answer: HttpAnswer,
    },
    Tcp {
        pieces: Pieces,
        header: Vec<u8>,
    },
    Bolt {
        decoder: Decoder,
        asked: u32,
    },
    Grpc(GrpcDialogue),
}

/// An answer to a check by HTTP, as far as it came.
#[derive(Debug, Default)]
pub(super) struct HttpAnswer {
    /// What its head came to.
    said: Option<Outcome>,
    /// 0 until there is a head.
    status: u16,
    content: Pieces,
    /// How much of its content came.
    length: u64,
    /// What its server says whose it is was compared.
    compared: bool,
    /// And it is not the one that is wanted.
    strange: bool,
}

/// What came of the pieces that are wanted one behind the other.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    /// What came and was not matched yet.
    received: Vec<u8>,
    /// How many of the wanted pieces came.
    matched: usize,
}

impl Dialogue {
    /// For a fresh connection.
    pub(super) fn new(
        check: &HealthCheck,
        cluster: &Cluster,
        (local, peer): (&Address, &Address),
    ) -> Self {
        match &check.probe {
            Probe::Http(probe) if probe.is_http2 => {
                let options = cluster.http2.as_ref().map(|http2| Arc::clone(&http2.options));
                let connection = Box::new(Connection::client(options.unwrap_or_default()));
                Self::Http2 { connection, request: None, answer: HttpAnswer::default() }
            }
            Probe::Http(_) => {
                let client = Box::new(Client::new(Arc::clone(&cluster.http1)));
                Self::Http { client, answer: HttpAnswer::default() }
            }
            Probe::Tcp(probe) => Self::Tcp {
                pieces: Pieces::default(),
                header: match &probe.header {
                    Some(header) => header.write(None, (&[], &[]), local, peer).0,
                    None => Vec::new(),
                },
            },
            Probe::Bolt(_) => {
                let options = cluster.bolt.as_ref().map(|bolt| bolt.options.clone());
                Self::Bolt { decoder: Decoder::new(options.unwrap_or(ANSWER_OPTIONS)), asked: 0 }
            }
            Probe::Grpc(_) => {
                let options = cluster.http2.as_ref().map(|http2| Arc::clone(&http2.options));
                Self::Grpc(GrpcDialogue::new(options))
            }
        }
    }

    /// Writes the question.
    pub(super) fn ask(
        &mut self,
        check: &HealthCheck,
        (scheme, authority): (&[u8], &str),
        now: Instant,
        out: &mut Out,
    ) {
        match (self, &check.probe) {
            (Self::Http { client, answer }, Probe::Http(probe)) => {
                *answer = HttpAnswer::default();
                let is_empty = probe.send.is_empty();
                client.encode_head(&question(probe, (scheme, authority), now), is_empty, out);
                if !is_empty {
                    client.encode_data(Bytes::copy_from_slice(&probe.send), out);
                    client.encode_end(out);
                }
            }
            // On a connection that takes none nothing is asked, and the check's time runs out.
            (Self::Http2 { connection, request, answer }, Probe::Http(probe)) => {
                *answer = HttpAnswer::default();
                *request = connection.open();
                if let Some(number) = *request {
                    let is_empty = probe.send.is_empty();
                    let head = question(probe, (scheme, authority), now);
                    connection.send_head(number, &head, is_empty, out);
                    if !is_empty {
                        connection.send_data(number, Bytes::copy_from_slice(&probe.send));
                        connection.send_end(number);
                    }
                }
                connection.flush(out);
            }
            (Self::Tcp { pieces, header }, Probe::Tcp(probe)) => {
                pieces.clear();
                out.push(Bytes::copy_from_slice(header));
                out.push(Bytes::copy_from_slice(&probe.send));
            }
            (Self::Bolt { asked, .. }, Probe::Bolt(BoltProbe { version })) => {
                *asked = asked.wrapping_add(1);
                // A heartbeat has nothing that could be too long.
                let _ = Message::heartbeat(*version, *asked).write(out);
            }
            (Self::Grpc(dialogue), Probe::Grpc(probe)) => {
                dialogue.ask(probe, authority, check.timeout, now, out);
            }
            (
                Self::Http { .. }
                | Self::Http2 { .. }
                | Self::Tcp { .. }
                | Self::Bolt { .. }
                | Self::Grpc(_),
                _,
            ) => {}
        }
    }

    /// Takes what came; answers the outcome once it is known.
    pub(super) fn receive(
        &mut self,
        chunk: Bytes,
        check: &HealthCheck,
        heads: &mut HeadPool,
        out: &mut Out,
    ) -> Option<Outcome> {
        match (self, &check.probe) {
            (Self::Http { client, answer }, Probe::Http(probe)) => {
                client.receive(chunk);
                answer.read(client, probe, heads)
            }
            (Self::Http2 { connection, request, answer }, Probe::Http(probe)) => {
                connection.receive(chunk);
                let outcome = read_http2(connection, request, Some((answer, probe)), heads);
                connection.flush(out);
                outcome
            }
            (Self::Tcp { pieces, .. }, Probe::Tcp(probe)) => {
                let is_whole = pieces.take(&chunk, &probe.receive);
                is_whole.then_some(Outcome::Success { degraded: false })
            }
            (Self::Bolt { decoder, asked }, Probe::Bolt(_)) => {
                decoder.receive(chunk);
                read_bolt(decoder, *asked)
            }
            (Self::Grpc(dialogue), Probe::Grpc(_)) => dialogue.receive(chunk, heads, out),
            (
                Self::Http { .. }
                | Self::Http2 { .. }
                | Self::Tcp { .. }
                | Self::Bolt { .. }
                | Self::Grpc(_),
                _,
            ) => Some(Outcome::Broken),
        }
    }

    /// The host sends nothing more: an answer that nothing else ends is over.
    pub(super) fn ended(&mut self, check: &HealthCheck, heads: &mut HeadPool) -> Outcome {
        match (self, &check.probe) {
            (Self::Http { client, answer }, Probe::Http(probe)) => {
                client.ended();
                answer.read(client, probe, heads).unwrap_or(Outcome::Broken)
            }
            (
                Self::Http { .. }
                | Self::Http2 { .. }
                | Self::Tcp { .. }
                | Self::Bolt { .. }
                | Self::Grpc(_),
                _,
            ) => Outcome::Broken,
        }
    }

    /// The status of the answer, 0 where there is none.
    pub(super) const fn http_status(&self) -> u16 {
        match self {
            Self::Http { answer, .. } | Self::Http2 { answer, .. } => answer.status,
            Self::Tcp { .. } | Self::Bolt { .. } | Self::Grpc(_) => 0,
        }
    }

    /// Whether it was compared whose the host says that it is.
    pub(super) const fn has_compared(&self) -> bool {
        match self {
            Self::Http { answer, .. } | Self::Http2 { answer, .. } => answer.compared,
            Self::Tcp { .. } | Self::Bolt { .. } | Self::Grpc(_) => false,
        }
    }

    /// Whether the next check can use the connection.
    pub(super) fn is_reusable(&self) -> bool {
        match self {
            Self::Http { client, .. } => client.reusable(),
            Self::Http2 { connection, .. } => takes_more(connection),
            Self::Tcp { .. } | Self::Bolt { .. } => true,
            Self::Grpc(dialogue) => dialogue.is_reusable(),
        }
    }

    /// What comes while nothing is asked: answers whether the connection stays.
    pub(super) fn receive_unasked(
        &mut self,
        chunk: Bytes,
        heads: &mut HeadPool,
        out: &mut Out,
    ) -> bool {
        match self {
            Self::Grpc(dialogue) => {
                dialogue.receive(chunk, heads, out);
                dialogue.is_reusable()
            }
            Self::Http2 { connection, request, .. } => {
                connection.receive(chunk);
                read_http2(connection, request, None, heads);
                connection.flush(out);
                takes_more(connection)
            }
            // It would be misunderstood at the next check.
            Self::Http { .. } | Self::Tcp { .. } | Self::Bolt { .. } => false,
        }
    }
}

impl HealthCheck {
    /// Whether a connection alone is an answer.
    pub(super) fn wants_no_answer(&self) -> bool {
        match &self.probe {
            Probe::Tcp(probe) => probe.receive.is_empty(),
            Probe::Http(_) | Probe::Bolt(_) | Probe::Grpc(_) => false,
        }
    }
}

fn question(probe: &HttpProbe, (scheme, authority): (&[u8], &str), now: Instant) -> Head {
    let mut head =
        Head::request(probe.method.as_bytes(), scheme, authority.as_bytes(), probe.path.as_bytes());
    head.set(Name::UserAgent, b"Envoy/HC");
    if !probe.send.is_empty() {
        head.set_number(Name::ContentLength, probe.send.len() as u64);
    }
    let record = Record::default();
    let facts = Facts::new(&record, now);
    probe.headers.apply(&mut head, Subject::Request, &facts, &mut Scratch::default());
    head
}

impl HttpAnswer {
    /// Reads on until it is whole.
    fn read(
        &mut self,
        client: &mut Client,
        probe: &HttpProbe,
        heads: &mut HeadPool,
    ) -> Option<Outcome> {
        loop {
            match client.poll(heads) {
                Ok(Some(event)) => {
                    if let Some(outcome) = self.take(event, probe, heads) {
                        return Some(outcome);
                    }
                }
                Ok(None) => return None,
                Err(_) => return Some(Outcome::Broken),
            }
        }
    }

    /// One part of it: the outcome if it is the last.
    fn take(&mut self, event: Event, probe: &HttpProbe, heads: &mut HeadPool) -> Option<Outcome> {
        match event {
            Event::Head { head, end } => {
                (self.said, self.status) = (Some(judge(&head, probe)), head.status());
                self.strange = probe.service.as_ref().is_some_and(|service| {
                    let name = head.get(Name::XEnvoyUpstreamHealthCheckedCluster);
                    !service.matches(name.unwrap_or_default())
                });
                heads.give(head);
                if end { self.outcome(probe) } else { None }
            }
            Event::Informational(head) => {
                heads.give(head);
                None
            }
            Event::Trailers(trailers) => {
                heads.give(trailers);
                self.outcome(probe)
            }
            Event::End => self.outcome(probe),
            Event::Data(chunk) => {
                let left = match probe.looked_at {
                    0 => u64::MAX,
                    most => most.saturating_sub(self.length),
                };
                let seen = usize::try_from(left).unwrap_or(usize::MAX).min(chunk.len());
                self.content.take(&chunk[..seen], &probe.receive);
                self.length = self.length.saturating_add(chunk.len() as u64);
                None
            }
        }
    }

    /// No status is good without the content, nor from a server that is another's.
    fn outcome(&mut self, probe: &HttpProbe) -> Option<Outcome> {
        if self.content.matched < probe.receive.len() {
            return Some(Outcome::Refused);
        }
        let is_good = matches!(self.said, Some(Outcome::Success { .. }));
        self.compared = is_good && probe.service.is_some();
        if is_good && self.strange { Some(Outcome::Refused) } else { self.said }
    }
}

/// Reads what came over HTTP/2: the outcome of the request under way once it is known. Without an answer to fill there
/// is no request.
fn read_http2(
    connection: &mut Connection,
    request: &mut Option<u32>,
    mut asked: Option<(&mut HttpAnswer, &HttpProbe)>,
    heads: &mut HeadPool,
) -> Option<Outcome> {
    let mut outcome = None;
    loop {
        match connection.poll(heads) {
            Ok(Some((number, arrival))) if *request == Some(number) => {
                let Some((answer, probe)) = asked.as_mut() else { continue };
                if let Arrival::Part(Event::Data(_)) = arrival {
                    connection.consumed(number);
                }
                outcome = match arrival {
                    Arrival::Part(event) => answer.take(event, probe, heads),
                    Arrival::Reset(_) | Arrival::Refused => Some(Outcome::Broken),
                };
                if outcome.is_some() {
                    connection.release(number);
                    *request = None;
                }
            }
            Ok(Some(_)) => {}
            Ok(None) => return outcome,
            Err(_) => return outcome.or(Some(Outcome::Broken)),
        }
    }
}

/// Whether the next check can use a connection.
pub(super) fn takes_more(http2: &Connection) -> bool {
    http2.is_open() && !http2.is_exhausted() && http2.capacity() > 0
}

fn judge(head: &Head, probe: &HttpProbe) -> Outcome {
    let within = |ranges: &[Range<u16>]| ranges.iter().any(|range| range.contains(&head.status()));
    if within(&probe.expected) {
        Outcome::Success { degraded: head.get(Name::XEnvoyDegraded).is_some() }
    } else if within(&probe.retriable) {
        Outcome::Retriable
    } else {
        Outcome::Refused
    }
}

impl Pieces {
    fn clear(&mut self) {
        self.received.clear();
        self.matched = 0;
    }

    /// Finds the wanted pieces one behind the other; what is between them does not matter. Whether all have come.
    fn take(&mut self, chunk: &[u8], wanted: &[Arc<[u8]>]) -> bool {
        if self.matched < wanted.len() {
            self.received.extend_from_slice(chunk);
        }
        while let Some(piece) = wanted.get(self.matched) {
            let Some(at) = find(&self.received, piece) else {
                // A piece may begin at the end of what came; nothing before that is of use.
                let keep = piece.len().saturating_sub(1).min(self.received.len());
                self.received.drain(..self.received.len() - keep);
                return false;
            };
            self.received.drain(..at + piece.len());
            self.matched += 1;
        }
        true
    }
}

fn find(bytes: &[u8], piece: &[u8]) -> Option<usize> {
    if piece.is_empty() {
        return Some(0);
    }
    bytes.windows(piece.len()).position(|window| window == piece)
}

fn read_bolt(decoder: &mut Decoder, asked: u32) -> Option<Outcome> {
    loop {
        match decoder.poll() {
            Ok(Some(frame)) => {
                let answers = frame.kind() == Kind::Response
                    && frame.command() == Command::Heartbeat
                    && frame.id() == asked;
                if !answers {
                    continue;
                }
                return Some(match frame.status() {
                    None | Some(Status::SUCCESS) => Outcome::Success { degraded: false },
                    Some(_) => Outcome::Refused,
                });
            }
            Ok(None) => return None,
            Err(_) => return Some(Outcome::Refused),
        }
    }
}

/// A cluster that does not speak Bolt has no options for it.
const ANSWER_OPTIONS: Options = Options { max_frame: 64 * 1024 };

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether all pieces were found in what came, chunk by chunk.
    fn found(chunks: &[&[u8]], wanted: &[&[u8]]) -> bool {
        let wanted: Vec<Arc<[u8]>> = wanted.iter().map(|piece| Arc::from(*piece)).collect();
        let mut pieces = Pieces::default();
        let longest = wanted.iter().map(|piece| piece.len()).max().unwrap_or(0);
        let mut all = wanted.is_empty();
        for chunk in chunks {
            all = pieces.take(chunk, &wanted);
            assert!(pieces.received.len() < longest.max(1) || all, "what is of no use is kept");
        }
        all
    }

    #[test]
    fn pieces_are_found_in_their_order_wherever_chunks_are_cut() {
        let text = b"-one--two-";
        for at in 0..=text.len() {
            let (one, other) = text.split_at(at);
            assert!(found(&[one, other], &[b"one", b"two"]), "{at}");
            assert!(!found(&[one, other], &[b"two", b"one"]), "{at}");
            assert!(!found(&[one, other], &[b"one", b"one"]), "{at}");
        }
        assert!(found(&[b"a"], &[]));
        assert!(!found(&[b""], &[b"a"]));
    }
}
