//! `towpath trace` as a user at a terminal, or a script, sees it.
#![expect(clippy::unwrap_used, reason = "a test's failure is its answer")]

use std::collections::{HashSet, VecDeque};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use tonic::Status;
use towpath_trace::{Category, Options, TraceContext, Track, async_span, mark, span};

fn trace(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_towpath")).arg("trace").args(words).output().unwrap()
}

fn succeeded(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("cli-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder.join(name)
}

/// There is one recording at a time.
static TURN: Mutex<()> = Mutex::new(());

/// A quick trace, a slow one and a failed one, in a file.
fn three_traces(path: &Path) -> [TraceContext; 3] {
    let _turn = TURN.lock().unwrap();
    let caller = TraceContext::new();
    let contexts = [TraceContext::new(), TraceContext::new(), caller.child()];
    let recording = Options::new().start().unwrap();
    for (context, name) in contexts.iter().zip(["quick", "slow", "failed"]) {
        let parent = (name == "failed").then(|| caller.span_id());
        let _request = async_span!(
            Category::REQUEST,
            "request",
            Track::unique(),
            trace_id = context.trace_id().as_str(),
            span_id = context.span_id().as_str(),
            parent_span_id = parent.as_deref(),
            status = if name == "failed" { 503 } else { 200 },
            route = name
        );
        let _inner = span!(
            Category::APP,
            "work",
            trace_id = context.trace_id().as_str(),
            parent_span_id = context.span_id().as_str()
        );
        drop(span!(Category::APP, "inside", bytes = 7));
        mark!(Category::APP, "half way", flag = true);
        if name == "slow" {
            std::thread::sleep(Duration::from_millis(60));
        }
    }
    drop(span!(Category::APP, "of no trace"));
    recording.stop().write_perfetto(std::fs::File::create(path).unwrap()).unwrap();
    contexts
}

/// The spans of what was sent, with their service.
fn decoded(bytes: &[u8]) -> Vec<(String, Span)> {
    let request = ExportTraceServiceRequest::decode(bytes).unwrap();
    let mut spans = Vec::new();
    for resource in request.resource_spans {
        let attributes = resource.resource.unwrap().attributes;
        let service = attributes.into_iter().find(|it| it.key == "service.name").unwrap();
        let Some(Value::StringValue(service)) = service.value.unwrap().value else {
            panic!("no text")
        };
        for scope in resource.scope_spans {
            assert_eq!(scope.scope.unwrap().name, "towpath-trace");
            spans.extend(scope.spans.into_iter().map(|span| (service.clone(), span)));
        }
    }
    spans
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_file_is_exported_with_all_it_carries() {
    let (path, out) = (scratch("all.pftrace"), scratch("all.otlp"));
    let contexts = three_traces(&path);
    let said = succeeded(&trace(&[
        "export",
        path.to_str().unwrap(),
        "--otlp",
        out.to_str().unwrap(),
        "--service",
        "shop",
    ]));
    assert!(
        said.starts_with("9 spans of 3 traces") && said.contains(" 1 span of no trace"),
        "{said}"
    );
    let spans = decoded(&std::fs::read(&out).unwrap());
    assert!(spans.iter().all(|(service, _)| service == "shop"));
    let named = |name: &str, context: &TraceContext| {
        let id = context.trace_id();
        spans.iter().map(|(_, span)| span).find(|it| it.name == name && hex(&it.trace_id) == id)
    };
    for context in &contexts {
        let request = named("request", context).unwrap();
        let (work, inside) = (named("work", context).unwrap(), named("inside", context).unwrap());
        assert_eq!(hex(&request.span_id), context.span_id());
        assert_eq!(
            (&work.parent_span_id, &inside.parent_span_id),
            (&request.span_id, &work.span_id)
        );
        assert!(request.start_time_unix_nano <= inside.start_time_unix_nano);
        assert!(inside.end_time_unix_nano <= request.end_time_unix_nano);
        assert_eq!(work.events[0].name, "half way");
        let bytes = inside.attributes.iter().find(|it| it.key == "bytes").unwrap();
        assert_eq!(bytes.value.as_ref().unwrap().value, Some(Value::IntValue(7)));
        let since_1970 = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
        assert!(since_1970 - request.start_time_unix_nano < 600_000_000_000, "the time of day");
    }
    let failed = named("request", &contexts[2]).unwrap();
    assert_eq!(failed.status.as_ref().unwrap().code, 2, "an error");
    assert!(!failed.parent_span_id.is_empty(), "the caller's span");
    assert!(named("request", &contexts[0]).unwrap().status.is_none());
}

#[test]
fn the_slow_and_the_failed_are_kept_and_sent_to_a_collector() {
    let path = scratch("some.pftrace");
    let contexts = three_traces(&path);
    let (collector, received) = collector("200 OK");
    let url = format!("http://{collector}");
    let file = path.to_str().unwrap();
    let words = ["export", file, "--otlp", &url, "--slow", "50ms", "--failed"];
    let said = succeeded(&trace(&words));
    assert!(
        said.starts_with("6 spans of 2 traces") && said.contains("; 1 trace dropped"),
        "{said}"
    );
    let (head, body) = received.recv().unwrap();
    assert!(head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{head}");
    assert!(head.to_ascii_lowercase().contains("content-type: application/x-protobuf"), "{head}");
    let sent: HashSet<String> =
        decoded(&body).iter().map(|(_, span)| hex(&span.trace_id)).collect();
    assert_eq!(sent, contexts[1..].iter().map(TraceContext::trace_id).collect());
    let none = scratch("none.otlp");
    let words = ["export", file, "--otlp", none.to_str().unwrap(), "--slow", "1.5h"];
    let said = succeeded(&trace(&words));
    assert!(said.starts_with("0 spans of 0 traces") && said.contains("3 traces dropped"), "{said}");
    // A collector that refuses is a failure.
    let (refusing, _received) = self::collector("503 Service Unavailable");
    let refused = trace(&["export", file, "--otlp", &format!("http://{refusing}/own/path")]);
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("503"));
}

/// What is recorded here takes 130 MB when it is held all at once.
#[test]
fn what_is_exported_is_never_all_in_memory() {
    const TRACES: u64 = 10_000;
    let path = scratch("many.pftrace");
    {
        let _turn = TURN.lock().unwrap();
        let recording = Options::new().ring_bytes(64 << 20).start().unwrap();
        for number in 1..=TRACES {
            let id = format!("{number:032x}");
            let _request = span!(Category::REQUEST, "request", trace_id = id.as_str(), number);
            for part in ["accept", "parse", "route", "send", "body", "record"] {
                drop(span!(Category::APP, "part", part, number));
            }
        }
        let account = recording.stop();
        assert_eq!(account.account().missing(), 0);
        account.write_perfetto(std::fs::File::create(&path).unwrap()).unwrap();
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let exporting = Command::new(env!("CARGO_BIN_EXE_towpath"))
        .args(["trace", "export", path.to_str().unwrap(), "--otlp"])
        .arg(format!("http://{}", listener.local_addr().unwrap()))
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let status = format!("/proc/{}/status", exporting.id());
    let received = Arc::new(Mutex::new((HashSet::new(), 0)));
    let receiving = received.clone();
    // What breaks off may come again on another connection.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (status, received) = (status.clone(), receiving.clone());
            std::thread::spawn(move || take_spans(&mut stream.unwrap(), &status, &received));
        }
    });
    let said = succeeded(&exporting.wait_with_output().unwrap());
    assert!(said.starts_with("70,000 spans of 10,000 traces"), "{said}");
    let (spans, peak) = &*received.lock().unwrap();
    assert_eq!(spans.len() as u64, 7 * TRACES);
    println!("{peak} KB");
    assert!(*peak > 0 && *peak < 64 << 10, "{peak} KB");
}

/// Requests of a process, the ids in them, and the most memory that it had: while it waits for an answer it is there.
fn take_spans(stream: &mut TcpStream, status: &str, to: &Mutex<(HashSet<Vec<u8>>, u64)>) {
    while let Some((_, body)) = request_of(stream) {
        let spans = decoded(&body);
        assert!(spans.len() <= 2_000 && body.len() < 4 << 20);
        let status = std::fs::read_to_string(status).unwrap();
        let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        let most = most.trim().trim_end_matches(" kB").parse().unwrap();
        let mut to = to.lock().unwrap();
        to.0.extend(spans.into_iter().map(|(_, span)| [span.trace_id, span.span_id].concat()));
        to.1 = to.1.max(most);
        drop(to);
        if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").is_err() {
            return;
        }
    }
}

/// A collector made of OpenTelemetry's own service, over tonic: it gives these answers in turn, and then success.
fn grpc_collector(
    answers: Vec<Result<ExportTracePartialSuccess, Status>>,
) -> (std::net::SocketAddr, Receiver<ExportTraceServiceRequest>) {
    let (sender, receiver) = std::sync::mpsc::channel();
    let (told, address) = std::sync::mpsc::channel();
    let service = GrpcCollector { sender, answers: Mutex::new(answers.into_iter().collect()) };
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            told.send(listener.local_addr().unwrap()).unwrap();
            let server = tonic::transport::Server::builder();
            let incoming = tokio_stream::wrappers::TcpListenerStream::new(listener);
            let service = TraceServiceServer::new(service);
            server.serve_with_incoming(service, incoming).await.unwrap();
        });
    });
    (address.recv().unwrap(), receiver)
}

struct GrpcCollector {
    sender: Sender<ExportTraceServiceRequest>,
    answers: Mutex<VecDeque<Result<ExportTracePartialSuccess, Status>>>,
}

#[tonic::async_trait]
impl TraceService for GrpcCollector {
    async fn export(
        &self,
        request: tonic::Request<ExportTraceServiceRequest>,
    ) -> Result<tonic::Response<ExportTraceServiceResponse>, Status> {
        self.sender.send(request.into_inner()).unwrap();
        let partial_success = self.answers.lock().unwrap().pop_front().transpose()?;
        Ok(tonic::Response::new(ExportTraceServiceResponse { partial_success }))
    }
}

#[test]
fn a_collector_takes_spans_by_grpc() {
    let path = scratch("grpc.pftrace");
    let contexts = three_traces(&path);
    let file = path.to_str().unwrap();
    // What is unavailable is asked again.
    let (collector, received) = grpc_collector(vec![Err(Status::unavailable("not yet"))]);
    let url = format!("http://{collector}");
    let words = ["export", file, "--protocol", "grpc", "--otlp", &url];
    let said = succeeded(&trace(&words));
    assert!(said.starts_with("9 spans of 3 traces") && said.lines().count() == 1, "{said}");
    let requests: Vec<_> = received.try_iter().collect();
    assert_eq!(requests.len(), 2, "the same twice");
    let sent: HashSet<String> =
        decoded(&requests[1].encode_to_vec()).iter().map(|(_, span)| hex(&span.trace_id)).collect();
    assert_eq!(sent, contexts.iter().map(TraceContext::trace_id).collect());

    let warning = |rejected_spans, said: &str| {
        Ok(ExportTracePartialSuccess { rejected_spans, error_message: said.to_owned() })
    };
    let (collector, _received) = grpc_collector(vec![warning(0, "soon full"), warning(3, "full")]);
    let url = format!("http://{collector}");
    let words = ["export", file, "--protocol", "grpc", "--otlp", &url];
    assert!(succeeded(&trace(&words)).ends_with("warns: soon full\n"));
    let failed = |words: &[&str]| {
        let output = trace(words);
        assert!(!output.status.success(), "{words:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let said = failed(&words);
    assert!(said.contains("did not take 3 of the spans: full"), "{said}");

    let (collector, received) = grpc_collector(vec![Err(Status::invalid_argument("no such span"))]);
    let url = format!("http://{collector}");
    let said = failed(&["export", file, "--protocol", "grpc", "--otlp", &url]);
    assert!(said.contains("gRPC status 3 no such span"), "{said}");
    assert_eq!(received.try_iter().count(), 1, "what is wrong stays wrong");
    let said =
        failed(&["export", file, "--protocol", "grpc", "--otlp", &format!("{url}/v1/traces")]);
    assert!(said.contains("has no path of its own"), "{said}");
    let said = failed(&["export", file, "--protocol", "grpc", "--otlp", "app.otlp"]);
    assert!(said.contains("needs a collector"), "{said}");
}

#[test]
fn spans_that_a_collector_does_not_take_are_told() {
    let path = scratch("partial.pftrace");
    three_traces(&path);
    let partial = ExportTracePartialSuccess { rejected_spans: 2, error_message: "too old".into() };
    let answer = ExportTraceServiceResponse { partial_success: Some(partial) }.encode_to_vec();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        request_of(&mut stream).unwrap();
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", answer.len());
        stream.write_all(&[head.as_bytes(), &answer].concat()).unwrap();
    });
    let output = trace(&["export", path.to_str().unwrap(), "--otlp", &url]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && said.contains("did not take 2 of the spans: too old"),
        "{said}"
    );
}

/// Takes requests, each on a connection of its own: what is refused with 503 comes again.
fn collector(status: &'static str) -> (std::net::SocketAddr, Receiver<(String, Vec<u8>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let Some(request) = request_of(&mut stream) else { continue };
            stream.write_all(answer.as_bytes()).unwrap();
            let _ = sender.send(request);
        }
    });
    (address, receiver)
}

#[test]
fn what_is_left_of_a_trace_is_collected() {
    let (app, out) = (scratch("app.pftrace"), scratch("collected.pftrace"));
    let contexts = three_traces(&app);
    let other = scratch("other.pftrace");
    three_traces(&other);
    // A sidecar's answer, and one of a sidecar that knows nothing.
    let answer = std::fs::read(&other).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let id = contexts[1].trace_id();
    let wanted = format!("POST /trace?trace_id={id} HTTP/1.1\r\n");
    let sidecar = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let head = head_of(&mut stream);
        assert!(head.starts_with(&wanted), "{head}");
        let length = answer.len();
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n").unwrap();
        stream.write_all(&answer).unwrap();
    });
    let (ignorant, _received) = not_found();
    let said = succeeded(&trace(&[
        "collect",
        app.to_str().unwrap(),
        &address.to_string(),
        &format!("http://{ignorant}"),
        "--trace-id",
        &contexts[1].to_string(),
        "-o",
        out.to_str().unwrap(),
    ]));
    sidecar.join().unwrap();
    assert!(said.starts_with("2 of 3 sources") && said.contains("404"), "{said}");
    let stat = towpath_trace::file::stat(&[&out]).unwrap();
    assert_eq!(stat.accounts.len(), 2, "both files are in it");
    let (ignorant, _received) = not_found();
    let nothing = trace(&["collect", &ignorant.to_string(), "--trace-id", &id, "-o", "unused"]);
    assert!(!nothing.status.success() && !Path::new("unused").exists());
}

#[test]
fn a_slow_request_is_collected_by_itself() {
    let (folder, out) = (scratch("slow"), scratch("whole"));
    std::fs::create_dir_all(&folder).unwrap();
    let unfinished = folder.join("slow-1.part");
    let contexts = three_traces(&unfinished);
    // The next sidecar holds something of the slow one of the three, and is asked for no other.
    let other = scratch("next.pftrace");
    three_traces(&other);
    let (answer, id) = (std::fs::read(&other).unwrap(), contexts[1].trace_id());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let mut collecting = Command::new(env!("CARGO_BIN_EXE_towpath"))
        .args(["trace", "collect", "--slow", folder.to_str().unwrap(), &address])
        .args(["-o", out.to_str().unwrap()])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(collecting.stdout.take().unwrap()).lines();
    assert!(said.next().unwrap().unwrap().starts_with("watching "));
    // What is no trace is named and passed over.
    std::fs::write(folder.join("broken.pftrace"), "nonsense, and no trace").unwrap();
    assert!(said.next().unwrap().unwrap().contains("broken.pftrace: "));
    std::fs::rename(&unfinished, folder.join("slow-1.pftrace")).unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    let head = head_of(&mut stream);
    assert!(head.starts_with(&format!("POST /trace?trace_id={id} HTTP/1.1\r\n")), "{head}");
    write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", answer.len()).unwrap();
    stream.write_all(&answer).unwrap();
    let line = said.next().unwrap().unwrap();
    assert!(line.starts_with(&format!("{id}: 2 of 2 sources")), "{line}");
    let stat = towpath_trace::file::stat(&[&out.join("slow-1.pftrace")]).unwrap();
    assert_eq!(stat.accounts.len(), 2, "both files are in it");
    collecting.kill().unwrap();
    collecting.wait().unwrap();
}

fn request_of(stream: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let head = read_head(stream)?;
    let lines = head.to_ascii_lowercase();
    let length = lines.lines().find_map(|line| line.strip_prefix("content-length:")).unwrap();
    let mut body = vec![0; length.trim().parse().unwrap()];
    stream.read_exact(&mut body).ok()?;
    Some((head, body))
}

fn head_of(stream: &mut TcpStream) -> String {
    read_head(stream).unwrap()
}

/// A request's head, in however many pieces it comes.
fn read_head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        head.extend(byte);
    }
    Some(String::from_utf8(head).unwrap())
}

/// Knows no trace.
fn not_found() -> (std::net::SocketAddr, std::thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let answering = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        head_of(&mut stream);
        write!(stream, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n").unwrap();
    });
    (address, answering)
}
