//! `towpath-proxy`: a sidecar and gateway that runs Envoy's configuration.
#![forbid(unsafe_code)]

use std::process::ExitCode;

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    towpath_proxy::program::main(std::env::args_os())
}
