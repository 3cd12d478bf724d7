//! An origin that speaks HTTP/1 or HTTP/2 on each connection, as the client's first bytes say.

use std::collections::HashMap;

use towpath_engine::message::Message;
use towpath_proto::http2::PREFACE;
use towpath_proto::{ConnectionId, Input, Instant, Machine, Output};

/// Two origins at one address.
pub struct Either<A, B> {
    http1: A,
    http2: B,
    /// Whose a connection is; its opening is kept until that is known.
    connections: HashMap<ConnectionId, Choice>,
}

enum Choice {
    /// What came so far, and its bytes.
    Open(Vec<Input<Message>>, Vec<u8>),
    Http1,
    Http2,
}

impl<A, B> Either<A, B> {
    pub fn new(http1: A, http2: B) -> Self {
        Self { http1, http2, connections: HashMap::new() }
    }
}

impl<A, B> Either<A, B>
where
    A: Machine<Message = Message>,
    B: Machine<Message = Message>,
{
    /// Tells one of the two all that came on a connection, once it is known which.
    fn choose(&mut self, id: ConnectionId, now: Instant) {
        let Some(Choice::Open(inputs, bytes)) = self.connections.get_mut(&id) else { return };
        // Methods of HTTP/1 may begin with the same letter.
        let Some(first) = bytes.get(..2) else { return };
        let (is_http2, inputs) = (PREFACE.starts_with(first), std::mem::take(inputs));
        let choice = if is_http2 { Choice::Http2 } else { Choice::Http1 };
        self.connections.insert(id, choice);
        for input in inputs {
            if is_http2 {
                self.http2.handle(input, now);
            } else {
                self.http1.handle(input, now);
            }
        }
    }
}

impl<A, B> Machine for Either<A, B>
where
    A: Machine<Message = Message>,
    B: Machine<Message = Message>,
{
    type Message = Message;

    fn handle(&mut self, input: Input<Message>, now: Instant) {
        let id = match &input {
            Input::Accepted { connection, .. } => {
                let id = *connection;
                self.connections.insert(id, Choice::Open(vec![input], Vec::new()));
                return;
            }
            Input::Received { connection, .. } => *connection,
            Input::Ended { connection }
            | Input::Closed { connection, .. }
            | Input::Sent { connection, .. } => *connection,
            _ => {
                self.http1.handle(Input::Timeout, now);
                return self.http2.handle(Input::Timeout, now);
            }
        };
        match self.connections.get_mut(&id) {
            Some(Choice::Http1) => self.http1.handle(input, now),
            Some(Choice::Http2) => self.http2.handle(input, now),
            Some(Choice::Open(inputs, bytes)) => {
                if let Input::Received { chunk, .. } = &input {
                    bytes.extend_from_slice(chunk);
                }
                inputs.push(input);
                self.choose(id, now);
            }
            None => {}
        }
    }

    fn poll(&mut self, now: Instant) -> Output<Message> {
        let first = self.http1.poll(now);
        if !matches!(first, Output::Idle | Output::Wait(_)) {
            return first;
        }
        match (first, self.http2.poll(now)) {
            // The HTTP/1 half has the address.
            (_, Output::Listen { .. }) => self.poll(now),
            (Output::Wait(one), Output::Wait(other)) => Output::Wait(one.min(other)),
            (wait @ Output::Wait(_), Output::Idle) => wait,
            (_, second) => second,
        }
    }
}
