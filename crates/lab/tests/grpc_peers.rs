//! The lab's gRPC beside Go's and Python's: our load on their servers, their client on our origin; and ghz beside our
//! load.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use towpath_lab::agree::{Likeness, Other, compare};
use towpath_lab::load::{Arrivals, Outcome, Plan, Protocol, run};
use towpath_lab::origin::{Origin, spawn};

#[test]
#[ignore = "needs go-peers"]
fn our_load_is_answered_by_gos_server() {
    let server = Server::launch(peer("go-peers").args(["serve", "grpc"]));
    let outcome = call(&server, "grpc.testing.TestService/EmptyCall", b"");
    assert_eq!((outcome.latency.count(), outcome.errors.total()), (200, 0), "{:?}", outcome.errors);
    // A SimpleRequest: response_size = 100,000.
    let outcome = call(&server, "grpc.testing.TestService/UnaryCall", b"\x10\xa0\x8d\x06");
    assert_eq!((outcome.latency.count(), outcome.errors.total()), (200, 0), "{:?}", outcome.errors);
    let outcome = call(&server, "grpc.testing.TestService/Absent", b"");
    assert_eq!(outcome.errors.of("grpc UNIMPLEMENTED"), 200, "{:?}", outcome.errors);
}

#[test]
#[ignore = "needs grpcio"]
fn our_load_is_answered_by_grpcios_server() {
    let server = Server::launch(peer("python").args(["-c", SERVER]));
    let outcome = call(&server, "hello.Greeter/SayHello", b"\x0a\x05world");
    assert_eq!((outcome.latency.count(), outcome.errors.total()), (200, 0), "{:?}", outcome.errors);
    // It answers with a status alone.
    let outcome = call(&server, "hello.Greeter/Fails", b"");
    assert_eq!(outcome.errors.of("grpc RESOURCE_EXHAUSTED"), 200, "{:?}", outcome.errors);
}

#[test]
#[ignore = "needs grpcio"]
fn grpcios_client_is_answered_by_our_origin() {
    let local = || "127.0.0.1:0".parse().unwrap();
    for (size, grpc_status, wanted) in
        [(100_000, 0, "100000\n"), (0, 0, "0\n"), (10, 8, "RESOURCE_EXHAUSTED\n")]
    {
        let origin = spawn(&Origin { grpc_status, ..Origin::http(local(), size) }).unwrap();
        let output = peer("python")
            .args(["-c", CLIENT])
            .arg(origin.address().to_string())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(said, wanted, "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(origin.served(), 1);
    }
}

#[test]
#[ignore = "needs go-peers and ghz"]
fn ghz_is_run_and_read_beside_our_load() {
    let server = Server::launch(peer("go-peers").args(["serve", "grpc"]));
    let ghz = PathBuf::from(peer("ghz").get_program());
    let agree = |method: &str, arrivals: Arrivals, likeness: Likeness| {
        let mut plan = plan(&server.url(method), b"");
        (plan.connections, plan.in_flight, plan.arrivals) = (2, 4, arrivals);
        (plan.duration, plan.pids) = (Duration::from_secs(1), vec![server.child.id()]);
        compare(Other::Ghz, &ghz, &plan, likeness, 3, &mut |_| ())
    };
    let unlike = Likeness::default();
    let likeness = Likeness { work: true, ..unlike };
    let empty = "grpc.testing.TestService/EmptyCall";
    for (arrivals, likeness) in
        [(Arrivals::Closed, unlike), (Arrivals::Paced { rate: 500.0 }, likeness)]
    {
        let agreement = agree(empty, arrivals, likeness).unwrap();
        let ratio = agreement.effect.ratio.estimate;
        // A count that was misread would be off by more than any machine is.
        assert!((0.1..10.0).contains(&ratio), "{ratio} {:?}", agreement.rounds);
        let field = |wanted: &str| {
            let found = agreement.fields.iter().find(|(name, _)| name == wanted);
            found.map(|(_, value)| value.as_str()).unwrap_or_default()
        };
        assert_eq!((field("content-type"), field("te")), ("application/grpc", "trailers"));
        assert!(field("user-agent").contains("grpc-go/"), "{:?}", agreement.fields);
        assert_eq!((agreement.rounds.len(), agreement.busy_ns.is_some()), (3, likeness.work));
    }
    let why = agree("grpc.testing.TestService/Absent", Arrivals::Closed, unlike).unwrap_err();
    assert!(why.to_string().starts_with("calls of ghz failed: "), "{why}");
    assert!(why.to_string().contains("\"Unimplemented\""), "{why}");
}

/// ghz reads what it is answered, and fails a call whose message it cannot read.
#[test]
#[ignore = "needs ghz"]
fn ghz_can_read_what_our_origin_answers() {
    let ghz = PathBuf::from(peer("ghz").get_program());
    for size in [130, 1024] {
        let origin = spawn(&Origin::http("127.0.0.1:0".parse().unwrap(), size)).unwrap();
        let mut plan = plan(&format!("http://{}/a.Service/Method", origin.address()), b"");
        (plan.connections, plan.in_flight) = (2, 4);
        // This process is the server and one of the generators: it is not compared, only counted.
        (plan.duration, plan.pids) = (Duration::from_secs(1), vec![std::process::id()]);
        let agreement = compare(Other::Ghz, &ghz, &plan, Likeness::default(), 3, &mut |_| ());
        assert!(agreement.is_ok(), "{size}: {}", agreement.unwrap_err());
    }
}

/// Answers with what it was sent, or not at all.
const SERVER: &str = r#"
import grpc, sys
from concurrent import futures

def fails(request, context):
    context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "no more")

class Methods(grpc.GenericRpcHandler):
    def service(self, details):
        work = {"/hello.Greeter/SayHello": lambda request, context: request, "/hello.Greeter/Fails": fails}
        return grpc.unary_unary_rpc_method_handler(work[details.method])

server = grpc.server(futures.ThreadPoolExecutor(2))
server.add_generic_rpc_handlers((Methods(),))
print(server.add_insecure_port("127.0.0.1:0"), flush=True)
server.start()
sys.stdin.read()
"#;

/// Prints the length of an answer or the name of its status.
const CLIENT: &str = r#"
import grpc, sys

with grpc.insecure_channel(sys.argv[1]) as channel:
    try:
        print(len(channel.unary_unary("/a.B/C")(b"x" * 70000, timeout=20)))
    except grpc.RpcError as error:
        print(error.code().name)
"#;

/// 200 calls in a second.
fn call(server: &Server, method: &str, message: &[u8]) -> Outcome {
    let mut plan = plan(&server.url(method), message);
    (plan.connections, plan.in_flight) = (2, 8);
    plan.arrivals = Arrivals::Paced { rate: 200.0 };
    (plan.warmup, plan.duration) = (Duration::ZERO, Duration::from_secs(1));
    run(&plan).unwrap()
}

fn plan(url: &str, message: &[u8]) -> Plan {
    let mut plan = Plan::new(url.parse().unwrap());
    plan.protocol = Protocol::Http2;
    plan.request.body = message.to_vec();
    plan.request.make_grpc();
    plan
}

/// A server that says its port and serves until its input ends.
struct Server {
    child: Child,
    port: u16,
}

impl Server {
    fn launch(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { child, port: line.trim().parse().unwrap() }
    }

    fn url(&self, method: &str) -> String {
        format!("http://127.0.0.1:{}/{method}", self.port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn peer(name: &str) -> Command {
    Command::new(std::env::var_os("TOWPATH_PEERS").map(PathBuf::from).unwrap().join(name))
}
