//! One check's conversation: what is sent, and what the answer means.
//!
//! Arrives: plain bytes of the host. Leaves: the question's bytes, and an [`Outcome`] once it is known.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use towpath_proto::Instant;
use towpath_proto::bolt::{Command, Decoder, Kind, Message, Options, Status};
use towpath_proto::head::{Head, HeadPool};
use towpath_proto::http1::Client;
use towpath_proto::name::Name;
use towpath_proto::{Event, Out};

use super::grpc::GrpcDialogue;
use crate::format::Facts;
use crate::header_ops::{Scratch, Subject};
use crate::record::Record;
use crate::snapshot::Cluster;
use crate::snapshot::health::{BoltProbe, HealthCheck, HttpProbe, Probe, TcpProbe};

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
        /// What the head of the answer came to.
        said: Option<Outcome>,
    },
    Tcp {
        /// What came and was not matched yet.
        received: Vec<u8>,
        /// How many of the wanted pieces came.
        matched: usize,
    },
    Bolt {
        decoder: Decoder,
        asked: u32,
    },
    Grpc(GrpcDialogue),
}

impl Dialogue {
    /// For a fresh connection.
    pub(super) fn new(check: &HealthCheck, cluster: &Cluster) -> Self {
        match &check.probe {
            Probe::Http(_) => {
                Self::Http { client: Box::new(Client::new(Arc::clone(&cluster.http1))), said: None }
            }
            Probe::Tcp(_) => Self::Tcp { received: Vec::new(), matched: 0 },
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
        authority: &str,
        now: Instant,
        out: &mut Out,
    ) {
        match (self, &check.probe) {
            (Self::Http { client, said }, Probe::Http(probe)) => {
                *said = None;
                client.encode_head(&question(probe, authority, now), true, out);
            }
            (Self::Tcp { received, matched }, Probe::Tcp(probe)) => {
                received.clear();
                *matched = 0;
                out.push(Bytes::copy_from_slice(&probe.send));
            }
            (Self::Bolt { asked, .. }, Probe::Bolt(BoltProbe { version })) => {
                *asked = asked.wrapping_add(1);
                // A heartbeat has nothing that could be too long.
                let _ = Message::heartbeat(*version, *asked).write(out);
            }
            (Self::Grpc(dialogue), Probe::Grpc(probe)) => dialogue.ask(probe, authority, now, out),
            (Self::Http { .. } | Self::Tcp { .. } | Self::Bolt { .. } | Self::Grpc(_), _) => {}
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
            (Self::Http { client, said }, Probe::Http(probe)) => {
                client.receive(chunk);
                read_http(client, said, probe, heads)
            }
            (Self::Tcp { received, matched }, Probe::Tcp(probe)) => {
                received.extend_from_slice(&chunk);
                match_pieces(received, matched, probe)
            }
            (Self::Bolt { decoder, asked }, Probe::Bolt(_)) => {
                decoder.receive(chunk);
                read_bolt(decoder, *asked)
            }
            (Self::Grpc(dialogue), Probe::Grpc(_)) => dialogue.receive(chunk, heads, out),
            (Self::Http { .. } | Self::Tcp { .. } | Self::Bolt { .. } | Self::Grpc(_), _) => {
                Some(Outcome::Broken)
            }
        }
    }

    /// The host sends nothing more: an answer that nothing else ends is over.
    pub(super) fn ended(&mut self, check: &HealthCheck, heads: &mut HeadPool) -> Outcome {
        match (self, &check.probe) {
            (Self::Http { client, said }, Probe::Http(probe)) => {
                client.ended();
                read_http(client, said, probe, heads).unwrap_or(Outcome::Broken)
            }
            (Self::Http { .. } | Self::Tcp { .. } | Self::Bolt { .. } | Self::Grpc(_), _) => {
                Outcome::Broken
            }
        }
    }

    /// Whether the next check can use the connection.
    pub(super) fn is_reusable(&self) -> bool {
        match self {
            Self::Http { client, .. } => client.reusable(),
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

fn question(probe: &HttpProbe, authority: &str, now: Instant) -> Head {
    let mut head = Head::request(
        probe.method.as_bytes(),
        b"http",
        authority.as_bytes(),
        probe.path.as_bytes(),
    );
    head.set(Name::UserAgent, b"Envoy/HC");
    let record = Record::default();
    let facts = Facts::new(&record, now);
    probe.headers.apply(&mut head, Subject::Request, &facts, &mut Scratch::default());
    head
}

/// Reads on until the answer is whole.
fn read_http(
    client: &mut Client,
    said: &mut Option<Outcome>,
    probe: &HttpProbe,
    heads: &mut HeadPool,
) -> Option<Outcome> {
    loop {
        match client.poll(heads) {
            Ok(Some(Event::Head { head, end })) => {
                let outcome = judge(&head, probe);
                heads.give(head);
                *said = Some(outcome);
                if end {
                    return Some(outcome);
                }
            }
            Ok(Some(Event::Informational(head))) => heads.give(head),
            Ok(Some(Event::Trailers(trailers))) => {
                heads.give(trailers);
                return *said;
            }
            Ok(Some(Event::End)) => return *said,
            Ok(Some(Event::Data(_))) => {}
            Ok(None) => return None,
            Err(_) => return Some(Outcome::Broken),
        }
    }
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

/// Finds the wanted pieces one behind the other; what is between them does not matter.
fn match_pieces(received: &mut Vec<u8>, matched: &mut usize, probe: &TcpProbe) -> Option<Outcome> {
    while let Some(piece) = probe.receive.get(*matched) {
        let Some(at) = find(received, piece) else {
            // A piece may begin at the end of what came; nothing before that is of use.
            let keep = piece.len().saturating_sub(1).min(received.len());
            received.drain(..received.len() - keep);
            return None;
        };
        received.drain(..at + piece.len());
        *matched += 1;
    }
    Some(Outcome::Success { degraded: false })
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
