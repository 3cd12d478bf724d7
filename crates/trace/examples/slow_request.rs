//! One slow request across an application, its sidecar and the kernel's scheduler, as one Perfetto file.
//!
//! `cargo run -p towpath-trace --example slow_request -- FOLDER` starts itself again as the sidecar and asks it for
//! five things, the third of which is slow. As root it has the kernel's scheduling, too.

#![allow(clippy::print_stdout, reason = "an example says what it did")]

use std::fs::File;
use std::io::{BufRead, BufReader, Error, Result, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use towpath_trace::file::{merge, stat};
use towpath_trace::{Category, Flow, Options, Track, async_span, mark, span};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    match &arguments[1..] {
        [folder] => app(Path::new(folder)),
        [role, file] if role == "--sidecar" => sidecar(Path::new(file)),
        _ => Err(Error::other("usage: slow_request FOLDER")),
    }
}

const REQUESTS: u64 = 5;
const SLOW: u64 = 2;

fn app(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    let path = |name: &str| folder.join(name);
    #[cfg(target_os = "linux")]
    let kernel = towpath_trace::kernel::KernelRecording::start(4096);
    let mut child = Command::new(std::env::current_exe()?);
    let mut child =
        child.arg("--sidecar").arg(path("sidecar.pftrace")).stdout(Stdio::piped()).spawn()?;
    let out = child.stdout.take().ok_or_else(|| Error::other("no output"))?;
    let mut address = String::new();
    BufReader::new(out).read_line(&mut address)?;

    let recording = Options::new().start().map_err(Error::other)?;
    for number in 0..REQUESTS {
        ask(address.trim(), number)?;
        std::thread::sleep(Duration::from_millis(1));
    }
    recording.stop().write_perfetto(File::create(path("app.pftrace"))?)?;
    child.wait()?;
    let mut files = vec![path("app.pftrace"), path("sidecar.pftrace")];
    #[cfg(target_os = "linux")]
    match kernel.and_then(|kernel| kernel.stop(File::create(path("kernel.pftrace"))?)) {
        Ok(()) => files.push(path("kernel.pftrace")),
        Err(error) => println!("without the kernel's part: {error}"),
    }
    merge(&files, path("request.pftrace")).map_err(Error::other)?;
    print!("{}", stat(&[path("request.pftrace")]).map_err(Error::other)?);
    Ok(())
}

/// The application's side of one request, with the id that travels in its `traceparent`.
fn ask(address: &str, number: u64) -> Result<()> {
    let id = 0xb7ad_6b71_6920_3331 + number;
    let _request = span!(Category::REQUEST, "request", number, flow = Flow::through(id));
    let mut stream = {
        let _connect = span!(Category::CONNECTION, "connect");
        TcpStream::connect(address)?
    };
    {
        let _send = span!(Category::NETWORK, "send");
        writeln!(stream, "00-0af7651916cd43dd8448eb211c80319c-{id:016x}-01 {number}")?;
    }
    let mut answer = String::new();
    let _wait = span!(Category::NETWORK, "wait for first byte");
    BufReader::new(stream).read_line(&mut answer)?;
    mark!(Category::NETWORK, "answered", bytes = answer.len());
    Ok(())
}

fn sidecar(file: &Path) -> Result<()> {
    let recording = Options::new().start().map_err(Error::other)?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?);
    for _ in 0..REQUESTS {
        let (stream, _) = listener.accept()?;
        // A thread for each, as in a program whose own queue is not the subject.
        let serving =
            std::thread::Builder::new().name("worker".to_owned()).spawn(move || serve(stream))?;
        serving.join().map_err(|_| Error::other("a worker panicked"))??;
    }
    recording.stop().write_perfetto(File::create(file)?)
}

/// The sidecar's side: the arrow from the application's span ends here.
fn serve(mut stream: TcpStream) -> Result<()> {
    let mut line = String::new();
    BufReader::new(stream.try_clone()?).read_line(&mut line)?;
    let mut words = line.split_whitespace();
    let flow = words.next().and_then(Flow::from_traceparent);
    let number: u64 = words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
    let track = Track::unique();
    let _whole = async_span!(Category::REQUEST, "sidecar request", track, number);
    let _here = span!(Category::REQUEST, "serve", flow = flow.map(|flow| Flow::last(flow.id)));
    {
        let _filters = span!(Category::PROTOCOL, "filters");
        busy(Duration::from_micros(if number == SLOW { 3_000 } else { 100 }));
    }
    {
        let _pool = span!(Category::UPSTREAM, "pool wait");
        std::thread::sleep(Duration::from_micros(if number == SLOW { 4_000 } else { 100 }));
    }
    let _upstream = span!(Category::UPSTREAM, "upstream");
    busy(Duration::from_micros(if number == SLOW { 2_000 } else { 200 }));
    writeln!(stream, "answer {number}")
}

fn busy(time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        std::hint::spin_loop();
    }
}
