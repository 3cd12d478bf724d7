//! `towpath get`: one request by the client library, explained.

mod content;
mod options;
mod progress;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use serde_json::{Value, json};
use towpath::cookies::Jar;
use towpath::hsts::Hosts;
use towpath::report::{Report, to_json};
use towpath::timeline::Entry;
use towpath::websocket::Message;
use towpath::{Cache, Error, Redirect, Response, WebSocket};

use content::Content;
use options::{ConnectOptions, RequestOptions};
use progress::Progress;

/// Make one request and say what happened to it.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Get {
    /// What to ask for, as http://HOST:PORT/PATH or https://…; the port may be left out
    url: String,
    /// The method; GET, or POST with a body
    #[arg(short = 'X', long, value_name = "METHOD")]
    request: Option<String>,
    #[command(flatten)]
    content: Content,
    /// A field to send, as "Name: value"; may be repeated
    #[arg(short = 'H', long, value_name = "FIELD")]
    header: Vec<String>,
    /// Cookies to send, as "name=value; …"; or, without a `=`, a file of cookies to begin with
    #[arg(short = 'b', long, value_name = "COOKIES|FILE")]
    cookie: Option<String>,
    /// Keep cookies, and write them to this file at the end (Netscape's format, as curl's)
    #[arg(short = 'c', long, value_name = "FILE")]
    cookie_jar: Option<PathBuf>,
    /// Keep responses in this folder, and take them from there where they may be (RFC 9111); what else is wanted of it
    /// a `cache-control` field says
    #[arg(long, value_name = "FOLDER")]
    cache: Option<PathBuf>,
    /// Bytes of responses that it keeps at most
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 20, requires = "cache")]
    cache_bytes: usize,
    /// Seconds by which a kept response may be stale that stands in for a server without an answer
    #[arg(long, value_name = "SECONDS", default_value_t = 0, requires = "cache")]
    stale_if_error: u64,
    /// Ask hosts under TLS alone that want it (RFC 6797): those of this file and what is learned, which is written
    /// there at the end
    #[arg(long, value_name = "FILE")]
    hsts: Option<PathBuf>,
    /// Say on the standard error what is sent and what comes
    #[arg(short, long)]
    verbose: bool,
    /// Say on the standard error every question, attempt, try and decision, with times
    #[arg(long)]
    timeline: bool,
    /// Write a JSON report in place of the body
    #[arg(long)]
    json: bool,
    /// Make the same request so often, on the same engine; the last one's body is shown
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    count: u64,
    /// Write a line for each request in place of the last one's body: `ok` or `fail`, its status or `-`, and its
    /// milliseconds
    #[arg(long, conflicts_with = "json")]
    each: bool,
    /// Read server-sent events, so many (0: all), and write each as a line of JSON; goes on when its connection breaks
    #[arg(long, value_name = "COUNT", conflicts_with_all = ["json", "each", "count", "output"])]
    events: Option<u64>,
    /// Open a WebSocket (ws:// or wss://), send what -d says as one message, and write so many that come (0: all), a
    /// line each; bytes that are no text in Base64, after `base64:`
    #[arg(long, value_name = "COUNT", conflicts_with_all = ["json", "each", "count", "output", "events", "request",
        "data_urlencode", "form"])]
    messages: Option<u64>,
    /// Say on the standard error how much of the body came, how fast, and how long the remainder takes
    #[arg(short = '#', long, conflicts_with_all = ["each", "events"])]
    progress_bar: bool,
    /// Milliseconds from the start of one request to the next
    #[arg(long, value_name = "MS", default_value_t = 0)]
    interval_ms: u64,
    /// Write the body (or the report) to a file
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    options: RequestOptions,
    #[command(flatten)]
    connect: ConnectOptions,
}

const EXAMPLES: &str = "\
Examples:
  towpath get --timeline http://127.0.0.1:8080/
  towpath get -X PUT -H 'Content-Type: text/plain' -d hello http://127.0.0.1:8080/greeting
  towpath get --cacert roots.pem --resolve app.test:443:10.0.0.7 https://app.test/
  towpath get --json http://127.0.0.1:8080/ | jq .attempts

Exit codes: 0 a response came, whatever its status below 400; 1 its status is 400 or above; 2 the request cannot be
sent as it is; 3 no whole response came; 4 a limit on time passed.";

/// A request that came to its end.
struct Done {
    redirects: Vec<Redirect>,
    history: Vec<Entry>,
    status: Option<u16>,
    fields: Vec<(String, String)>,
    body: Vec<u8>,
    report: Option<Report>,
    error: Option<Error>,
}

impl Get {
    pub(crate) fn run(self) -> ExitCode {
        match self.make() {
            Ok(done) => self.show(&done),
            Err(error) => {
                eprintln!("towpath get: {error}");
                ExitCode::from(UNUSABLE)
            }
        }
    }

    fn make(&self) -> io::Result<Done> {
        let engine = self.connect.engine(&self.options)?;
        let (jar, cookies) = self.cookies()?;
        let mut client = engine.client().proxies(self.connect.proxies()?);
        if let Some(jar) = &jar {
            client = client.cookies(jar);
        }
        let cache = self.cache()?;
        if let Some(cache) = &cache {
            client = client.cache(cache);
        }
        let hosts = self.hsts.as_ref().map(|path| Hosts::load(path).map_err(|it| named(path, &it)));
        let hosts = hosts.transpose()?;
        if let Some(hosts) = &hosts {
            client = client.hsts(hosts);
        }
        let client = self.content.client(client, &self.url);
        let method = self.request.as_deref().unwrap_or_else(|| self.content.method());
        let mut request = self.options.apply(client.request(method, &self.url))?;
        for field in &self.header {
            let Some((name, value)) = field.split_once(':') else {
                return Err(io::Error::other(format!("{field:?} is not \"Name: value\"")));
            };
            request = request.header(name.trim(), value.trim());
        }
        if !self.header.iter().any(|field| field.to_ascii_lowercase().starts_with("user-agent:")) {
            request = request.header("user-agent", concat!("towpath/", env!("CARGO_PKG_VERSION")));
        }
        if let Some(cookies) = cookies {
            request = request.header("cookie", cookies);
        }
        request = self.content.apply(request, self.messages.is_none())?;
        if self.verbose {
            eprintln!("> {method} {}", self.url);
            self.header.iter().for_each(|field| eprintln!("> {field}"));
        }
        let started = std::time::Instant::now();
        let mut done = match (self.events, self.messages) {
            (Some(count), _) => listen(request.clone(), count),
            (None, Some(count)) => talk(request.clone(), self.content.message()?, count),
            (None, None) => self.one(&request),
        };
        for number in 1..self.count {
            let due = started + Duration::from_millis(self.interval_ms.saturating_mul(number));
            std::thread::sleep(due.saturating_duration_since(std::time::Instant::now()));
            done = self.one(&request);
        }
        if let Some(cache) = &cache {
            cache.flush();
        }
        self.connect.save(&engine)?;
        if let (Some(hosts), Some(path)) = (&hosts, &self.hsts) {
            hosts.save(path).map_err(|error| named(path, &error))?;
        }
        if let (Some(jar), Some(path)) = (&jar, &self.cookie_jar) {
            jar.save(path).map_err(|error| named(path, &error))?;
        }
        Ok(done)
    }

    /// A jar, where one is read or written; and what is sent without one.
    fn cookies(&self) -> io::Result<(Option<Jar>, Option<&str>)> {
        match &self.cookie {
            Some(cookies) if cookies.contains('=') => {
                Ok((self.cookie_jar.as_ref().map(|_| Jar::new()), Some(cookies)))
            }
            Some(path) => {
                let jar = Jar::load(path).map_err(|error| named(path.as_ref(), &error))?;
                Ok((Some(jar), None))
            }
            None => Ok((self.cookie_jar.as_ref().map(|_| Jar::new()), None)),
        }
    }

    fn cache(&self) -> io::Result<Option<Cache>> {
        let Some(folder) = &self.cache else { return Ok(None) };
        let opened =
            Cache::open(folder, self.cache_bytes).map_err(|error| named(folder, &error))?;
        Ok(Some(opened.stale_if_error(Duration::from_secs(self.stale_if_error))))
    }

    fn one(&self, request: &towpath::Request) -> Done {
        let started = std::time::Instant::now();
        let done = Done::of(request, self.progress_bar.then(Progress::new));
        if self.each {
            let milliseconds = started.elapsed().as_secs_f64() * 1e3;
            let outcome = if done.is_success() { "ok" } else { "fail" };
            let status = done.status.map_or_else(|| "-".to_owned(), |status| status.to_string());
            // A reader that has seen enough and closed the pipe is no failure.
            let _ = writeln!(io::stdout(), "{outcome} {status} {milliseconds:.3}");
        }
        done
    }

    fn show(&self, done: &Done) -> ExitCode {
        for redirect in &done.redirects {
            if let Some(report) = redirect.report().filter(|_| self.timeline) {
                towpath::timeline::entries(report).iter().for_each(|entry| eprintln!("{entry}"));
            }
            if self.verbose || self.timeline {
                eprintln!("* {}: go on at {}", redirect.status(), redirect.url());
            }
        }
        if self.verbose {
            if let Some(status) = done.status {
                eprintln!("< {status}");
            }
            done.fields.iter().for_each(|(name, value)| eprintln!("< {name}: {value}"));
        }
        if self.timeline {
            done.history.iter().for_each(|entry| eprintln!("{entry}"));
        }
        if self.timeline
            && let Some(report) = &done.report
        {
            towpath::timeline::entries(report).iter().for_each(|entry| eprintln!("{entry}"));
        }
        let shown = if self.each {
            Vec::new()
        } else if self.json {
            format!("{:#}\n", done.json(&self.url)).into_bytes()
        } else {
            done.body.clone()
        };
        if let Some(path) = &self.output {
            if let Err(error) = std::fs::write(path, shown) {
                eprintln!("towpath get: {}: {error}", path.display());
                return ExitCode::from(UNUSABLE);
            }
        } else {
            // A reader that has seen enough and closed the pipe is no failure.
            let _ = io::stdout().write_all(&shown);
        }
        match &done.error {
            None if done.status.is_some_and(|status| status >= 400) => ExitCode::from(REFUSED),
            None => ExitCode::SUCCESS,
            Some(error) => {
                eprintln!("towpath get: {}: {}", self.url, chain(error));
                ExitCode::from(match error {
                    error if error.is_caller_s() => UNUSABLE,
                    error if error.timed_out().is_some() => TIMED_OUT,
                    _ => FAILED,
                })
            }
        }
    }
}

impl Done {
    fn is_success(&self) -> bool {
        self.error.is_none() && self.status.is_some_and(|status| status < 400)
    }

    fn of(request: &towpath::Request, progress: Option<Progress>) -> Self {
        match request.clone().send() {
            Ok(response) => Self::read(response, progress),
            Err(error) => Self {
                redirects: Vec::new(),
                history: Vec::new(),
                status: None,
                fields: Vec::new(),
                body: Vec::new(),
                report: error.report().cloned(),
                error: Some(error),
            },
        }
    }

    fn read(mut response: Response, mut progress: Option<Progress>) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let fields = response.headers().map(|(name, value)| (text(name), text(value))).collect();
        let status = Some(response.status());
        let redirects = response.redirects().to_vec();
        let history = response.history().to_vec();
        let mut body = Vec::new();
        let error = loop {
            match response.body().chunk() {
                Ok(Some(chunk)) => body.extend_from_slice(&chunk),
                Ok(None) => break None,
                Err(error) => break Some(error),
            }
            if let Some(progress) = &mut progress {
                progress.tell(response.body().received(), response.body().expected());
            }
        };
        if let Some(progress) = progress {
            progress.end(response.body().received(), response.body().expected());
        }
        let report = response.body().report().cloned();
        Self { redirects, history, status, fields, body, report, error }
    }

    fn json(&self, url: &str) -> Value {
        let report = self.report.as_ref().map(to_json);
        let mut value = report
            .and_then(|report| serde_json::from_str(&report).ok())
            .unwrap_or_else(|| json!({ "schema": 1 }));
        value["url"] = url.into();
        let hop = |one: &Redirect| json!({ "status": one.status(), "url": one.url() });
        value["redirects"] = self.redirects.iter().map(hop).collect();
        let told =
            |entry: &Entry| json!({ "at_ms": entry.at.as_secs_f64() * 1e3, "what": entry.what });
        value["history"] = self.history.iter().map(told).collect();
        value["status"] = self.status.into();
        value["error"] = self.error.as_ref().map(|error| chain(error)).into();
        value["body_bytes"] = self.body.len().into();
        value
    }
}

/// Writes so many events, or all of them.
fn listen(request: towpath::Request, count: u64) -> Done {
    let mut events = request.events();
    let most = if count == 0 { usize::MAX } else { usize::try_from(count).unwrap_or(usize::MAX) };
    let mut error = None;
    for event in events.by_ref().take(most) {
        match event {
            Ok(event) => {
                let line = json!({ "name": event.name(), "id": event.id(), "data": event.data() });
                if writeln!(io::stdout(), "{line}").is_err() {
                    break;
                }
            }
            Err(why) => error = Some(why),
        }
    }
    let status = error.is_none().then_some(200);
    let (redirects, fields, body, report) = Default::default();
    Done { redirects, history: events.history().to_vec(), status, fields, body, report, error }
}

/// Sends a message, writes so many that come, or all of them, and closes.
fn talk(request: towpath::Request, message: Option<Message>, count: u64) -> Done {
    let (redirects, fields, body) = Default::default();
    let mut done = Done {
        redirects,
        history: Vec::new(),
        status: None,
        fields,
        body,
        report: None,
        error: None,
    };
    let socket = match request.websocket().open() {
        Ok(socket) => socket,
        Err(error) => {
            done.report = error.report().cloned();
            done.error = Some(error);
            return done;
        }
    };
    done.status = Some(101);
    done.error = exchange(&socket, message, count).err();
    done.history = socket.history();
    done
}

fn exchange(socket: &WebSocket, message: Option<Message>, count: u64) -> Result<(), Error> {
    if let Some(message) = message {
        socket.send(message)?;
    }
    let most = if count == 0 { u64::MAX } else { count };
    let mut written = 0;
    while written < most
        && let Some(message) = socket.receive()?
    {
        written += 1;
        let line = match message {
            Message::Text(text) => text,
            Message::Binary(bytes) => format!("base64:{}", STANDARD.encode(bytes)),
        };
        // A reader that has seen enough and closed the pipe is no failure.
        if writeln!(io::stdout(), "{line}").is_err() {
            break;
        }
    }
    socket.close(1000, "")?;
    // What the server had sent is passed over, up to its close.
    while socket.receive()?.is_some() {}
    Ok(())
}

/// A file's error, with its name.
fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// An error and what led to it.
fn chain(error: &dyn std::error::Error) -> String {
    let why = error.source().map_or_else(String::new, |source| format!(": {}", chain(source)));
    format!("{error}{why}")
}

const REFUSED: u8 = 1;
const UNUSABLE: u8 = 2;
const FAILED: u8 = 3;
const TIMED_OUT: u8 = 4;
