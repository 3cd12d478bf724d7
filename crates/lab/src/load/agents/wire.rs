//! What an agent and its controller say to each other: JSON, one message a line.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::load::Plan;
use crate::load::outcome::{Outcome, Progress};

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
    Done(Box<Outcome>),
    /// It was not.
    Failed(String),
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
