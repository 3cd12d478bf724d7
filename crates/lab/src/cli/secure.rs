//! What commands that speak TLS to a server ask.

use std::error::Error;
use std::path::PathBuf;

use clap::Args;

use crate::address::Target;
use crate::load::Protocol;
use crate::load::tls::{Tls, Trusted};

/// Whom to trust.
#[derive(Debug, Args)]
pub(super) struct Secure {
    /// Trust the root certificates in FILE (PEM), instead of the platform's
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Trust any server: its certificate is not checked
    #[arg(long, conflicts_with = "ca")]
    insecure: bool,
    /// Resume TLS sessions: of connections after the first, only the short handshake is measured
    #[arg(long)]
    tls_resume: bool,
}

impl Secure {
    /// TLS as a target's scheme wants it.
    pub(super) fn tls(
        &self,
        target: &Target,
        protocol: Protocol,
    ) -> Result<Option<Tls>, Box<dyn Error>> {
        if !target.is_tls {
            return Ok(None);
        }
        let trusted = match &self.ca {
            _ if self.insecure => Trusted::All,
            Some(path) => Trusted::Roots(
                std::fs::read(path)
                    .map_err(|error| super::usage(format!("{}: {error}", path.display())))?,
            ),
            None => Trusted::Platform,
        };
        let authority = &target.authority;
        let host = authority.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok());
        let host = host.map_or(authority.as_str(), |(host, _)| host).trim_matches(['[', ']']);
        let tls = Tls::new(host, &trusted, self.tls_resume, protocol);
        Ok(Some(tls.map_err(|error| super::usage(error.to_string()))?))
    }
}
