//! One request, awaited by blocking: `cargo run -p towpath --example get -- http://127.0.0.1:8080/`
#![expect(clippy::print_stdout, reason = "an example shows what it got")]

use std::process::ExitCode;

use towpath::{Engine, Error};

fn main() -> ExitCode {
    let Some(url) = std::env::args().nth(1) else {
        eprintln!("usage: get URL");
        return ExitCode::FAILURE;
    };
    match get(&url) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{url}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn get(url: &str) -> Result<(), Error> {
    let engine = Engine::new()?;
    let mut response = engine.client().get(url).send()?;
    let status = response.status();
    let body = response.body().bytes(16 << 20)?;
    println!("{status}: {} bytes", body.len());
    if let Some(report) = response.body().report() {
        towpath::timeline::entries(report).iter().for_each(|entry| println!("{entry}"));
    }
    Ok(())
}
