//! `towpath lab link record`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::json;

use crate::address::{Address, Target};
use crate::cli::units::parse_seconds;
use crate::cli::{Outcome, print, usage, write_result};
use crate::link::recording::{self, Recording};

/// Measure a real path, and print the options that emulate it
#[derive(Debug, Args)]
#[command(after_help = "\
Ten times a second a connection is attempted: whether the port accepts or refuses, an answer takes one round trip.
Delay, jitter and loss are half of what both directions have together. A download's rate is that of one TCP connection,
which losses hold below what the path could carry.

Example: towpath lab link record example.org:443 --for 1m")]
pub(super) struct Record {
    /// HOST or HOST:PORT, a port that answers, if only by a refusal; 80 unless given
    #[arg(value_name = "HOST[:PORT]", value_parser = parse_host)]
    host: Address,
    /// Measure the rate by this download (plain HTTP, some seconds long)
    #[arg(long, value_name = "URL")]
    download: Option<Target>,
    /// How long to attempt connections, and to download at most
    #[arg(long = "for", value_name = "D", default_value = "20s", value_parser = parse_seconds)]
    duration: Duration,
    /// Write what was found with schema 1; - is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl Record {
    pub(super) fn run(self) -> Outcome {
        let Address::Tcp(address) = self.host else {
            return Err(usage("a path has a host and a port"));
        };
        // Of the two only this one can fail for what is at the other end, so it does so before the long part.
        let down = match &self.download {
            Some(target) => {
                let Address::Tcp(from) = target.address else {
                    return Err(usage("a download has a host and a port"));
                };
                let request =
                    format!("GET {} HTTP/1.0\r\nHost: {}\r\n\r\n", target.path, target.authority);
                Some(recording::download(from, &request, self.duration)?)
            }
            None => None,
        };
        let attempts = recording::round_trips(address, self.duration);
        let Some(found) = Recording::of(&attempts, down) else {
            return Err(format!("nothing at {address} answered within a second").into());
        };
        if let Some(path) = &self.json {
            let value = json!({ "recording": found, "options": found.options() });
            write_result(path, "link-recording", value)?;
        }
        if self.json.as_deref() != Some(Path::new("-")) {
            print(&format!("{}\n", found.options()));
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn parse_host(text: &str) -> Result<Address, String> {
    let host = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let is_bare = host.is_some() || !text.contains(':');
    let text = if is_bare { format!("{text}:80") } else { text.to_owned() };
    text.parse().map_err(|error: crate::address::AddressError| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_may_be_left_out() {
        for (text, wanted) in [
            ("127.0.0.1", "127.0.0.1:80"),
            ("127.0.0.1:81", "127.0.0.1:81"),
            ("[::1]", "[::1]:80"),
            ("[::1]:81", "[::1]:81"),
        ] {
            assert_eq!(parse_host(text).map(|it| it.to_string()), Ok(wanted.to_owned()));
        }
        assert!(parse_host("127.0.0.1:").is_err() && parse_host("").is_err());
    }
}
