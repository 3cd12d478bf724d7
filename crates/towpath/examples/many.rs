//! Many requests at once, and how long all of them took: `many URL COUNT http1|http2 [CONNECTIONS]`. Behind a bad
//! network: `towpath lab link --profile 3g --loss 10 -- target/release/examples/many http://HOST:PORT/ 100 http2`
#![expect(clippy::print_stdout, reason = "an example shows what it got")]

use std::process::ExitCode;
use std::time::Instant;

use towpath::{Engine, Error, HttpVersions, Settings};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let versions = match words.get(2).map(String::as_str) {
        Some("http1") => HttpVersions::Http1,
        Some("http2") => HttpVersions::Http2,
        _ => return usage(),
    };
    let (Some(url), Some(Ok(count))) = (words.first(), words.get(1).map(|word| word.parse()))
    else {
        return usage();
    };
    let connections = words.get(3).and_then(|word| word.parse().ok()).unwrap_or(6);
    match ask(url, count, versions, connections) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: many URL COUNT http1|http2 [CONNECTIONS]");
    ExitCode::FAILURE
}

fn ask(url: &str, count: usize, versions: HttpVersions, connections: usize) -> Result<(), Error> {
    let settings = Settings { max_connections: connections, ..Settings::default() };
    let engine = Engine::builder().settings(settings).start()?;
    let client = engine.client().http_versions(versions);
    let began = Instant::now();
    let threads: Vec<_> = (0..count)
        .map(|_| {
            let request = client.get(url);
            std::thread::spawn(move || {
                let mut response = request.send()?;
                response.body().bytes(16 << 20).map(|body| body.len())
            })
        })
        .collect();
    let ended: Vec<_> = threads.into_iter().map(std::thread::JoinHandle::join).collect();
    let whole = ended.iter().filter(|ended| matches!(ended, Ok(Ok(_)))).count();
    println!("{whole} of {count} in {:.0} ms", began.elapsed().as_secs_f64() * 1e3);
    Ok(())
}
