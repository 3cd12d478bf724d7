//! The load generator.
//!
//! A [`Plan`] in, an [`Outcome`] out. One thread, one readiness loop, one pre-encoded request: two system
//! calls per request and a share of a wait, so that it is seldom what limits a measurement; when it is,
//! the outcome carries a warning.
//!
//! Latency is counted twice. *Service time* begins when the request was really sent. *Latency* begins
//! when the arrival process meant it to be sent, so that a server that freezes is charged for all
//! who would have come meanwhile ("coordinated omission"). In a closed loop the two are the same.

mod account;
pub mod agents;
mod bolt;
pub(crate) mod connection;
pub(crate) mod export;
mod generator;
mod glimpse;
pub(crate) mod http2;
mod mix;
mod multiplex;
mod outcome;
mod request;
pub(crate) mod response;
mod run;
mod schedule;
mod series;
mod side_by_side;
pub mod tls;
mod websocket;

use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use bolt::Bolt;
pub use generator::{run, run_observed};
pub use mix::{Check, Entry};
pub use outcome::{EntryOutcome, Errors, GeneratorCost, Noise, Outcome, Progress, TargetCost};
pub use request::Request;
pub use series::{Point, Series};
pub use side_by_side::Share;

use crate::address::{Address, Target};
use crate::cli::units::parse_milliseconds;

/// What to send, how, and for how long.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// Where to.
    pub target: Target,
    /// Further addresses of the same service: connections are spread evenly over all.
    pub also: Vec<Address>,
    /// In which protocol.
    pub protocol: Protocol,
    /// What each request is.
    pub request: Request,
    /// Several requests, of which each one sent is drawn; when empty, all are as `request` says.
    pub mix: Vec<Entry>,
    /// TLS on every connection, if any.
    pub tls: Option<tls::Tls>,
    /// When requests start.
    pub arrivals: Arrivals,
    /// What Bolt needs besides.
    pub bolt: Bolt,
    /// How many connections carry them.
    pub connections: usize,
    /// Requests in flight on each connection, of HTTP/2 and Bolt: 1 to 1024. An HTTP/2 server may allow fewer.
    pub in_flight: usize,
    /// Whether a connection carries more than one request.
    pub keep_alive: bool,
    /// How long is measured.
    pub duration: Duration,
    /// How long is run before that without being measured.
    pub warmup: Duration,
    /// Over which time the rate climbs from zero.
    pub rate_ramp: Duration,
    /// Over which time the connections are opened.
    pub connection_ramp: Duration,
    /// After which time an unanswered request is an error.
    pub timeout: Duration,
    /// The processes whose cost is accounted, with their descendants.
    pub pids: Vec<u32>,
    /// Other groups of processes whose cost is accounted, by name.
    pub payers: Vec<(String, Vec<u32>)>,
    /// Whether to count the system calls of those processes. Counting slows them down, so it is done in a
    /// short run of its own after the measured one.
    pub count_syscalls: bool,
    /// Makes random arrivals repeatable.
    pub seed: u64,
    /// Threads that generate the load, each with its share of connections and arrivals.
    pub threads: usize,
    /// How long this generator is busy over each request besides, half of it once the request is sent, while the server
    /// has it, and half after its answer, so that it stands for a slower one.
    pub busy: Duration,
    /// How long before an arrival this generator stops to sleep and looks at the clock: a sleeper is woken up late by
    /// tens of microseconds, and two arrivals that are closer than that would become one.
    pub awake: Duration,
    /// Which part of a larger plan this is: arrivals and connections are those of that part.
    pub share: Share,
}

/// The protocol spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Protocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2: by ALPN under TLS, else by prior knowledge. With `content-type: application/grpc` each request is a
    /// call of gRPC whose status is looked at.
    Http2,
    /// Bytes that come back as they are, or at least as many.
    Tcp,
    /// WebSocket: a message, and the next that comes back.
    WebSocket,
    /// Bolt.
    Bolt,
}

/// The arrival process. The same server costs up to three times as much under one as under another, so
/// every report names it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Arrivals {
    /// Each connection sends its next request when the previous one is answered.
    Closed,
    /// As [`Arrivals::Closed`], but each connection at most at this rate. A slow answer silently delays
    /// what would have followed.
    ClosedCapped {
        /// Requests per second on each connection.
        per_connection_rate: f64,
    },
    /// Each connection has a schedule and catches up with it after a slow answer.
    PerConnection {
        /// Requests per second on each connection.
        per_connection_rate: f64,
    },
    /// Open loop with even gaps, on any free connection.
    Paced {
        /// Requests per second altogether.
        rate: f64,
    },
    /// Open loop with exponential gaps, on any free connection.
    Poisson {
        /// Requests per second altogether.
        rate: f64,
    },
    /// Open loop with several requests at once, evenly spaced: as timers of connections that were started together.
    Bunched {
        /// Requests per second altogether.
        rate: f64,
        /// Requests at each instant.
        size: u32,
    },
    /// Open loop whose requests are due at even gaps and sent at the next tick of a clock: as generators do whose
    /// timers count milliseconds.
    Ticked {
        /// Requests per second altogether.
        rate: f64,
        /// From one tick to the next.
        tick: Duration,
    },
    /// Open loop at given instants from the start of the run, warm-up included.
    Recorded {
        /// Ascending.
        starts: Vec<Duration>,
    },
}

/// How the requests of a common rate are spaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum Spacing {
    /// Evenly.
    #[default]
    Paced,
    /// At random, as independent users do.
    Poisson,
    /// So many at once, evenly.
    Bunched(u32),
    /// What is due by then, at each tick.
    Ticked(Duration),
}

impl Spacing {
    /// The arrival process at this rate.
    pub fn at(self, rate: f64) -> Arrivals {
        match self {
            Self::Paced => Arrivals::Paced { rate },
            Self::Poisson => Arrivals::Poisson { rate },
            Self::Bunched(size) => Arrivals::Bunched { rate, size },
            Self::Ticked(tick) => Arrivals::Ticked { rate, tick },
        }
    }
}

impl FromStr for Spacing {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "paced" => Ok(Self::Paced),
            None if text == "poisson" => Ok(Self::Poisson),
            Some(("bunched", size)) => match size.parse() {
                Ok(size @ 1..=1_000_000) => Ok(Self::Bunched(size)),
                Ok(_) | Err(_) => {
                    Err(format!("'{size}' is no number of requests between 1 and 1,000,000"))
                }
            },
            Some(("ticks", tick)) => match parse_milliseconds(tick)? {
                tick if tick.is_zero() || tick > LONGEST_TICK => {
                    Err(format!("'{text}': a tick is above zero and at most a second"))
                }
                tick => Ok(Self::Ticked(tick)),
            },
            None | Some(_) => {
                Err(format!("'{text}' is none of paced, poisson, bunched:N and ticks:DURATION"))
            }
        }
    }
}

impl TryFrom<String> for Spacing {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// Why a plan was not carried out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The plan makes no sense; the text says why.
    #[error("{0}")]
    Plan(&'static str),
    /// This generator was ready, but another of the same plan was not.
    #[error("another load generator of the same plan could not start")]
    Aside,
    /// A generator on another machine did not do its part.
    #[error("agent {address}: {why}")]
    Agent {
        /// Which.
        address: String,
        /// What it said, or what became of it.
        why: String,
    },
    /// This process may not have so many files open.
    #[error(
        "{connections} connections are more than the limit of {limit} open files allows (ulimit -n)"
    )]
    Files {
        /// Connections of the plan.
        connections: usize,
        /// What the system allows.
        limit: u64,
    },
    /// No connection could be opened.
    #[error("cannot connect to {target}: {error}")]
    Connect {
        /// Where to.
        target: String,
        /// Why not.
        error: std::io::Error,
    },
    /// The operating system refused something the generator needs.
    #[error("the load generator failed: {0}")]
    System(#[from] std::io::Error),
    /// A process to be accounted does not exist or may not be looked at.
    #[error(transparent)]
    Meter(#[from] crate::meter::MeterError),
}

impl Plan {
    /// Closed loop, HTTP/1.1 GET, ten connections, ten seconds.
    pub fn new(target: Target) -> Self {
        Self {
            target,
            also: Vec::new(),
            protocol: Protocol::Http1,
            request: Request::default(),
            arrivals: Arrivals::Closed,
            bolt: Bolt::default(),
            connections: 10,
            in_flight: 1,
            keep_alive: true,
            duration: Duration::from_secs(10),
            warmup: Duration::ZERO,
            rate_ramp: Duration::ZERO,
            connection_ramp: Duration::ZERO,
            timeout: Duration::from_secs(10),
            pids: Vec::new(),
            payers: Vec::new(),
            count_syscalls: false,
            seed: 1,
            mix: Vec::new(),
            tls: None,
            threads: 1,
            busy: Duration::ZERO,
            awake: Duration::ZERO,
            share: Share::default(),
        }
    }

    /// The target with its scheme; of a socket in the file system, `unix:` and its path.
    pub fn url(&self) -> String {
        let scheme = match self.protocol {
            _ if matches!(self.target.address, Address::Unix(_)) => return self.target.to_string(),
            Protocol::Http1 | Protocol::Http2 if self.target.is_tls => "https",
            Protocol::Http1 | Protocol::Http2 => "http",
            Protocol::WebSocket if self.target.is_tls => "wss",
            Protocol::WebSocket => "ws",
            Protocol::Bolt => "bolt",
            Protocol::Tcp => "tcp",
        };
        format!("{scheme}://{}", self.target)
    }

    /// Requests per second that the arrivals intend over the measured time; `None` for a closed loop without a cap.
    pub fn intended_rps(&self) -> Option<f64> {
        let connections = self.connections as f64;
        match &self.arrivals {
            Arrivals::Closed => None,
            Arrivals::ClosedCapped { per_connection_rate }
            | Arrivals::PerConnection { per_connection_rate } => {
                Some(per_connection_rate * connections)
            }
            Arrivals::Paced { rate }
            | Arrivals::Poisson { rate }
            | Arrivals::Bunched { rate, .. }
            | Arrivals::Ticked { rate, .. } => Some(*rate),
            Arrivals::Recorded { starts } => {
                let window = self.warmup..self.warmup + self.duration;
                let count = starts.iter().filter(|start| window.contains(*start)).count();
                Some(count as f64 / self.duration.as_secs_f64())
            }
        }
    }

    /// Requests that can be under way at once.
    pub(crate) fn concurrency(&self) -> usize {
        match self.protocol {
            Protocol::Http1 | Protocol::Tcp | Protocol::WebSocket => self.connections,
            Protocol::Http2 | Protocol::Bolt => self.connections * self.in_flight,
        }
    }

    /// Where connection `index` of this part goes.
    fn address(&self, index: usize) -> &Address {
        match self.share.number(index) % (self.also.len() + 1) {
            0 => &self.target.address,
            other => &self.also[other - 1],
        }
    }

    fn check(&self) -> Result<(), LoadError> {
        let rate = match &self.arrivals {
            Arrivals::ClosedCapped { per_connection_rate }
            | Arrivals::PerConnection { per_connection_rate } => *per_connection_rate,
            Arrivals::Bunched { size: 0, .. } => {
                return Err(LoadError::Plan("a bunch has at least one request"));
            }
            Arrivals::Ticked { tick, .. } if tick.is_zero() || *tick > LONGEST_TICK => {
                return Err(LoadError::Plan("a tick is above zero and at most a second"));
            }
            Arrivals::Paced { rate }
            | Arrivals::Poisson { rate }
            | Arrivals::Bunched { rate, .. }
            | Arrivals::Ticked { rate, .. } => *rate,
            Arrivals::Closed => 1.0,
            Arrivals::Recorded { starts } if starts.is_sorted() => 1.0,
            Arrivals::Recorded { .. } => {
                return Err(LoadError::Plan("the recorded arrivals are not in ascending order"));
            }
        };
        if !(rate.is_finite() && rate > 0.0) {
            return Err(LoadError::Plan("the rate must be a number above zero"));
        }
        if self.connections == 0 || self.connections > CONNECTION_LIMIT {
            return Err(LoadError::Plan(
                "the number of connections must be between 1 and 1,000,000",
            ));
        }
        if self.threads == 0 || self.threads > self.connections {
            return Err(LoadError::Plan("there is at least one thread, and a connection for each"));
        }
        if !self.mix.is_empty() && !matches!(self.protocol, Protocol::Http1 | Protocol::Http2) {
            return Err(LoadError::Plan("only HTTP has several requests"));
        }
        if self.tls.is_some() && matches!(self.protocol, Protocol::Tcp | Protocol::Bolt) {
            return Err(LoadError::Plan("only HTTP and WebSocket have TLS"));
        }
        if self.share.of == 0
            || self.share.of > CONNECTION_LIMIT
            || self.share.index >= self.share.of
        {
            return Err(LoadError::Plan("a part is one of so many"));
        }
        if self.busy > LONGEST_TICK {
            return Err(LoadError::Plan("the generator is busy for a second at most"));
        }
        if self.duration.is_zero() {
            return Err(LoadError::Plan("the duration must be above zero"));
        }
        if self.protocol == Protocol::Tcp && self.request.body.is_empty() {
            return Err(LoadError::Plan("a TCP request needs at least one byte"));
        }
        if matches!(self.protocol, Protocol::Http2 | Protocol::Bolt) {
            multiplex::check(self)?;
        }
        Ok(())
    }
}

impl Arrivals {
    /// The word for it in reports.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::ClosedCapped { .. } => "closed-capped",
            Self::PerConnection { .. } => "per-connection",
            Self::Paced { .. } => "paced",
            Self::Poisson { .. } => "poisson",
            Self::Bunched { .. } => "bunched",
            Self::Ticked { .. } => "ticked",
            Self::Recorded { .. } => "recorded",
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        match self {
            Self::Closed | Self::ClosedCapped { .. } => false,
            Self::PerConnection { .. }
            | Self::Paced { .. }
            | Self::Poisson { .. }
            | Self::Bunched { .. }
            | Self::Ticked { .. }
            | Self::Recorded { .. } => true,
        }
    }
}

const LONGEST_TICK: Duration = Duration::from_secs(1);
const CONNECTION_LIMIT: usize = 1_000_000;
