//! Automation: tests, checks and comparisons. `cargo xtask help` lists what there is.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a command line tool talks to its terminal")]

mod bindings;
mod client;
mod dist;
mod fuzz;
mod instructions;
mod marks;
mod miri;
mod package;
mod peers;
mod sanitize;
mod shell;
mod sizes;
mod test;
mod tidy;
mod toolchains;
mod versus;
mod xds;

use std::process::ExitCode;

use shell::Result;

const HELP: &str = "\
cargo xtask COMMAND

  test [--quick | --long]           all that must hold before a change lands; --quick without fuzzing and peers, \
  --long for a night: thousands of seeds
  tidy                              the house rules that a machine can check: floors, names, lengths, unsafe
  bindings [python|jvm]             the client library in other languages, tested where it is used
  bindings python|jvm bench [--quick]
                                    the same job for httpx, requests or OkHttp and this library: CPU, memory, start
  fuzz [--seconds N] [TARGET…]      every fuzz target for N seconds (10)
  instructions [--bless]            instructions of one operation by callgrind, held against what is recorded
  marks [CALLS]                     calls of Bolt (1,000,000) through the proxy, each answer held against its own call
  miri                              the tracing crate's unit tests under Miri; needs a nightly toolchain that has it
  client [--quick] [--mars FILE] [--mobile FILE]
                                    every figure that the client library is to reach, in one report, what is missed \
                                    included
  dist                              the released programs, optimised for the lab's traffic, and what that gained
  sizes                             what the client library costs an app: bytes, time to the first byte, memory, \
  wake-ups
  package                           what is released is complete and can be packed: metadata, pages, versions, files
  sanitize                          the tracing crate's unit tests under the address sanitizer
  toolchains [--all]                the tracing crate with the oldest compiler promised, and for other systems; --all: \
  none may be absent
  versus [--quick] […]              the same job for Towpath, nginx, HAProxy, Envoy and the floor: CPU, latency, memory
  versus --count […]                user instructions of each of these proxies for one request, by callgrind
  xds [--quick] [--rounds N] [--programs FOLDER]
                                    many clusters, routes and updates of endpoints by ADS, beside Envoy: time, memory, \
  CPU
  peers [NAME…]                     install the programs that we are compared with, under target/peers
";

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    if std::env::var_os(dist::WRAPS_RUSTC).is_some() {
        eprintln!("xtask: {}", dist::wrap_rustc(&words.collect::<Vec<_>>()));
        return ExitCode::FAILURE;
    }
    if std::env::var_os(fuzz::WRAPS_RUSTC).is_some() {
        eprintln!("xtask: {}", fuzz::wrap_rustc(&words.collect::<Vec<_>>()));
        return ExitCode::FAILURE;
    }
    let command = words.next().unwrap_or_else(|| "help".to_owned());
    let rest: Vec<String> = words.collect();
    match run(&command, &rest) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask {command}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: &str, rest: &[String]) -> Result<()> {
    match command {
        "test" => test::run(rest),
        "bindings" => bindings::run(rest),
        "dist" => dist::run(rest),
        "client" => client::run(rest),
        "fuzz" => fuzz::run(rest),
        "instructions" => instructions::run(rest),
        "marks" => marks::run(rest),
        "miri" => miri::run(rest),
        "sanitize" => sanitize::run(rest),
        "sizes" => sizes::run(rest),
        "versus" => versus::run(rest),
        "package" => package::run(rest),
        "peers" => peers::run(rest),
        "tidy" => tidy::run(rest),
        "xds" => xds::run(rest),
        "toolchains" => toolchains::run(rest),
        "help" | "--help" | "-h" => {
            print!("{HELP}");
            Ok(())
        }
        other => Err(format!("there is no command '{other}'\n\n{HELP}").into()),
    }
}
