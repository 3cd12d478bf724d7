//! What an agent and the one who asks it say to each other: JSON, one message a line.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::histogram::Nanoseconds;
use crate::load::outcome::{EntryOutcome, Errors, GeneratorCost, Noise, Outcome, Progress};
use crate::load::{Plan, Series};

/// To an agent. When the connection ends, so does what it does.
#[derive(Serialize, Deserialize)]
pub(super) enum Order {
    /// Open the connections of this part of a plan.
    Prepare(Box<Plan>),
    /// Tell what the clock says.
    Clock,
    /// Begin when the clock says this.
    Start { at_ns: u64 },
}

/// From an agent.
#[derive(Serialize, Deserialize)]
pub(super) enum Reply {
    /// The first word.
    Hello { version: String, machine: String },
    /// The connections are open.
    Ready,
    /// Nanoseconds of a clock that only goes forward.
    Clock { now_ns: u64 },
    /// A glimpse at the run.
    Progress(Progress),
    /// The part was carried out.
    Done(Box<Done>),
    /// It was not.
    Failed(String),
}

/// What an agent counted.
#[derive(Serialize, Deserialize)]
pub(super) struct Done {
    sent: u64,
    pub(super) answered: u64,
    pub(super) errors: Errors,
    connections: usize,
    connections_wanted: usize,
    reconnects: u64,
    waited_for_connection: u64,
    series: Series,
    latency: Nanoseconds,
    service: Nanoseconds,
    entries: Vec<EntryOutcome>,
    pub(super) generator: GeneratorCost,
    pub(super) noise: Noise,
}

impl From<Outcome> for Done {
    fn from(it: Outcome) -> Self {
        Self {
            sent: it.sent,
            answered: it.answered,
            errors: it.errors,
            connections: it.connections,
            connections_wanted: it.connections_wanted,
            reconnects: it.reconnects,
            waited_for_connection: it.waited_for_connection,
            series: it.series,
            latency: it.latency,
            service: it.service,
            entries: it.entries,
            generator: it.generator,
            noise: it.noise,
        }
    }
}

impl From<Done> for Outcome {
    fn from(it: Done) -> Self {
        Self {
            sent: it.sent,
            answered: it.answered,
            errors: it.errors,
            connections: it.connections,
            connections_wanted: it.connections_wanted,
            reconnects: it.reconnects,
            waited_for_connection: it.waited_for_connection,
            series: it.series,
            latency: it.latency,
            service: it.service,
            entries: it.entries,
            generator: it.generator,
            noise: it.noise,
            ..Self::default()
        }
    }
}

/// Reads messages.
pub(super) struct Wire(BufReader<TcpStream>);

impl Wire {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self(BufReader::new(stream))
    }

    /// The next message; `None` at the end. No limit of time: waits as long as the peer's machine is there.
    pub(super) fn read<T: DeserializeOwned>(
        &mut self,
        patience: Option<Duration>,
    ) -> io::Result<Option<T>> {
        self.0.get_ref().set_read_timeout(patience)?;
        let mut line = Vec::new();
        self.0.by_ref().take(MESSAGE_LIMIT).read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Ok(None);
        }
        serde_json::from_slice(&line).map(Some).map_err(io::Error::from)
    }
}

/// Sends one message.
pub(super) fn write<T: Serialize>(mut stream: &TcpStream, message: &T) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// Bodies and lines of requests are in the largest message.
const MESSAGE_LIMIT: u64 = 64 << 20;
