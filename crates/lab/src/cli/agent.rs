//! `towpath lab agent`.

use std::net::{SocketAddr, ToSocketAddrs};
use std::process::ExitCode;

use clap::Args;

use crate::load::agents;

/// Generate load for a `towpath lab load --agents` elsewhere, until interrupted
#[derive(Debug, Args)]
#[command(after_help = "\
An agent sends what it is told to where it is told to, without asking who tells it: let it listen only where all
others are trusted. It carries out one plan at a time, and stops when the command that asked for it ends.

Example: towpath lab agent --listen 10.0.0.7:7070
         towpath lab load --agents 10.0.0.7:7070,10.0.0.8:7070 --rate 50000 -c 200 http://10.0.0.1:8080/")]
pub struct Agent {
    /// Where to listen; port 0 lets the kernel choose
    #[arg(long, value_name = "HOST:PORT", value_parser = address)]
    listen: SocketAddr,
}

impl Agent {
    pub(super) fn run(self) -> super::Outcome {
        let ready = |address| super::print(&format!("listening on {address}\n"));
        agents::serve(self.listen, ready)
            .map_err(|error| format!("cannot listen on {}: {error}", self.listen))?;
        Ok(ExitCode::SUCCESS)
    }
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let mut found = text.to_socket_addrs().map_err(|error| error.to_string())?;
    found.next().ok_or_else(|| "no address".to_owned())
}
