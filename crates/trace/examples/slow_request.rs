//! A traced application: sends five requests to a sidecar, each with the id of its span as `traceparent`, and leaves
//! `app.pftrace`. As root it records the kernel's scheduling meanwhile, in `kernel.pftrace`.
//!
//! `cargo run -p towpath-trace --example slow_request -- HOST:PORT FOLDER`; docs/tracing.md has the sidecar's side.

#![expect(clippy::print_stdout, reason = "an example says what it did")]

use std::fs::File;
use std::io::{BufRead, BufReader, Error, Read, Result, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use towpath_trace::{Category, Flow, Options, mark, span};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, address, folder] = &arguments[..] else {
        return Err(Error::other("usage: slow_request HOST:PORT FOLDER"));
    };
    let path = |name: &str| Path::new(folder).join(name);
    std::fs::create_dir_all(folder)?;
    #[cfg(target_os = "linux")]
    let kernel = towpath_trace::kernel::KernelRecording::start(4096);
    let recording = Options::new().start_file(path("app.pftrace")).map_err(Error::other)?;
    let mut stream = TcpStream::connect(address.as_str())?;
    for number in 0..REQUESTS {
        call(&mut stream, number)?;
        std::thread::sleep(Duration::from_millis(1));
    }
    let account = recording.finish()?;
    println!("{}: {} events", path("app.pftrace").display(), account.events);
    #[cfg(target_os = "linux")]
    match kernel.and_then(|kernel| kernel.stop(File::create(path("kernel.pftrace"))?)) {
        Ok(()) => println!("{}", path("kernel.pftrace").display()),
        Err(error) => println!("without the kernel's part: {error}"),
    }
    Ok(())
}

const REQUESTS: u64 = 5;
const BODY: [u8; 16 << 10] = [b'x'; 16 << 10];

/// One request. The first half of its body is there at once; the other takes a while to make.
fn call(stream: &mut TcpStream, number: u64) -> Result<()> {
    let id = 0xb7ad_6b71_6920_3331 + number;
    let _call = span!(Category::APP, "call", number, flow = Flow::through(id));
    {
        let _send = span!(Category::NETWORK, "send");
        let (head, body) = (head(id), BODY.split_at(BODY.len() / 2));
        stream.write_all(&[head.as_bytes(), body.0].concat())?;
        work(Duration::from_millis(1));
        stream.write_all(body.1)?;
    }
    let _wait = span!(Category::NETWORK, "wait for answer");
    let length = read_answer(stream)?;
    mark!(Category::NETWORK, "answered", bytes = length);
    Ok(())
}

fn head(id: u64) -> String {
    let traceparent = format!("00-0af7651916cd43dd8448eb211c80319c-{id:016x}-01");
    let length = BODY.len();
    format!(
        "POST /orders HTTP/1.1\r\nhost: app\r\ntraceparent: {traceparent}\r\ncontent-length: {length}\r\n\r\n"
    )
}

fn work(time: Duration) {
    let _work = span!(Category::APP, "make the rest");
    let begun = Instant::now();
    while begun.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// Reads an answer with a `content-length`; answers how long its body was.
fn read_answer(stream: &mut TcpStream) -> Result<usize> {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Err(Error::other("the connection ended"));
        }
        let line = line.trim_end().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().map_err(Error::other)?;
        }
    }
    reader.read_exact(&mut vec![0; length])?;
    Ok(length)
}
