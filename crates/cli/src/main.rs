//! The `towpath` command.
#![forbid(unsafe_code)]

mod demo;
mod get;
mod trace;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// One network engine, used three ways, and a lab that says what it costs
#[derive(Debug, Parser)]
#[command(name = "towpath", version)]
struct Towpath {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// The whole product in half a minute: origin, sidecar, client and a receipt
    Demo(demo::Demo),
    /// Run the sidecar: the same program as towpath-proxy
    #[command(disable_help_flag = true)]
    Proxy {
        /// Envoy's flags; see `towpath proxy --help`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        flags: Vec<OsString>,
    },
    /// What of an Envoy configuration is not honoured
    Check(towpath_proxy::check::Check),
    /// One request by the client library, explained
    Get(Box<get::Get>),
    /// Load, bad networks and receipts
    #[command(subcommand)]
    Lab(towpath_lab::cli::Command),
    /// What a control plane sends: written down, compared, sent again
    #[command(subcommand)]
    Xds(towpath_proxy::xds::Xds),
    /// What trace files hold, and one file out of several
    #[command(subcommand)]
    Trace(trace::Trace),
}

fn main() -> ExitCode {
    match Towpath::parse().command {
        Command::Demo(demo) => demo.run(),
        Command::Proxy { flags } => towpath_proxy::program::main(
            std::iter::once(OsString::from("towpath proxy")).chain(flags),
        ),
        Command::Check(check) => check.run(),
        Command::Get(get) => get.run(),
        Command::Xds(xds) => xds.run(),
        Command::Trace(trace) => trace.run(),
        Command::Lab(command) => towpath_lab::cli::run(command),
    }
}
