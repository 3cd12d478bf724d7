//! `towpath lab origin`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::units::{parse_milliseconds, parse_size};
use crate::address::{Address, Target};
use crate::origin;

/// Serve a test origin until interrupted
#[derive(Debug, Args)]
#[command(after_help = "\
A call of gRPC, of whatever method, is answered with a message of --size bytes, in its field 1, and status 0.

Example: towpath lab origin --listen 127.0.0.1:8080 --size 1k --delay 2.5ms")]
pub struct Origin {
    /// Where to listen: HOST:PORT or unix:PATH; port 0 lets the kernel choose
    #[arg(long, value_name = "ADDR")]
    listen: Address,
    /// What to speak
    #[arg(long, value_enum, default_value = "http")]
    protocol: Protocol,
    /// Bytes in the body of each answer
    #[arg(long, default_value = "1k", value_parser = parse_size)]
    size: usize,
    /// How long to hold back each answer, in ms unless a unit is given
    #[arg(long, default_value = "0", value_parser = parse_milliseconds)]
    delay: Duration,
    /// How long to keep the processor busy for each request, in ms unless a unit is given
    #[arg(long, default_value = "0", value_parser = parse_milliseconds)]
    work: Duration,
    /// Status of each answer
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u16).range(200..600))]
    status: u16,
    /// Status of each answer to a call of gRPC; any but 0 comes without a message
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(..=16))]
    grpc_status: u8,
    /// Give answers an entity tag, and all that is behind the first N bytes of them on request (`Range: bytes=N-`)
    #[arg(long)]
    ranges: bool,
    /// Ask this service before each answer: one hop of a chain; may be repeated to spread questions
    #[arg(long, value_name = "URL")]
    next: Vec<Target>,
    /// Serve over TLS with the certificates in FILE (PEM); clients that offer it get HTTP/2 by ALPN
    #[arg(long, value_name = "FILE", requires = "key")]
    certificate: Option<PathBuf>,
    /// The certificate's private key (PEM)
    #[arg(long, value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Protocol {
    /// HTTP/1.1, and HTTP/2 with gRPC to clients that begin with it
    #[value(alias = "h1", alias = "h2")]
    Http,
    /// Echo
    Tcp,
    /// WebSocket: echo of messages
    Ws,
    /// Bolt: each request's content, cut or filled to --size; 0 leaves it as it is
    Bolt,
}

impl Origin {
    pub(super) fn run(self) -> super::Outcome {
        let read = |path: &Path| {
            std::fs::read(path)
                .map_err(|error| super::usage(format!("{}: {error}", path.display())))
        };
        let tls = match (&self.certificate, &self.key) {
            (Some(chain), Some(key)) => Some((read(chain)?, read(key)?)),
            (_, _) => None,
        };
        let origin = origin::Origin {
            tls,
            listen: self.listen,
            protocol: match self.protocol {
                Protocol::Http => origin::Protocol::Http,
                Protocol::Tcp => origin::Protocol::Tcp,
                Protocol::Ws => origin::Protocol::WebSocket,
                Protocol::Bolt => origin::Protocol::Bolt,
            },
            size: self.size,
            delay: self.delay,
            work: self.work,
            status: self.status,
            grpc_status: self.grpc_status,
            has_ranges: self.ranges,
            next: self.next,
        };
        let listen = origin.listen.to_string();
        origin::serve(&origin, |address| super::print(&format!("listening on {address}\n")))
            .map_err(|error| format!("cannot serve on {listen}: {error}"))?;
        Ok(ExitCode::SUCCESS)
    }
}
