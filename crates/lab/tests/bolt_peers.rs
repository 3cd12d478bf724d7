//! The lab's Bolt beside sofa-bolt's: our load on the Java server, the Java client on our origin.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use towpath_lab::address::Address;
use towpath_lab::load::{Plan, Protocol, Request, run};
use towpath_lab::origin::{Origin, spawn};
use towpath_proto::bolt::Version;

#[test]
#[ignore = "needs sofa-bolt"]
fn our_load_is_answered_by_sofa_bolt_in_all_versions() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut server = command(&["server".to_owned(), address.port().to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .map(Server)
        .unwrap();
    let lines = BufReader::new(server.0.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line == "listening"));
    for version in [Version::V1, Version::V2 { checksums: false }, Version::V2 { checksums: true }]
    {
        let mut plan = Plan::new(Address::Tcp(address).into());
        plan.protocol = Protocol::Bolt;
        plan.request = Request::with_body(1024);
        plan.connections = 4;
        plan.duration = Duration::from_secs(2);
        plan.bolt.version = version;
        plan.in_flight = 16;
        let outcome = run(&plan).unwrap();
        assert_eq!(outcome.errors.total(), 0, "{version:?}: {:?}", outcome.errors);
        assert!(outcome.answered > 1000, "{version:?}: {}", outcome.answered);
    }
}

#[test]
#[ignore = "needs sofa-bolt"]
fn sofa_bolts_client_is_answered_by_our_origin() {
    let origin = spawn(&Origin::bolt("127.0.0.1:0".parse().unwrap(), 0)).unwrap();
    let mut words = vec!["echo".to_owned()];
    for version in ["_PROTOCOL=1&_VERSION=1", "_PROTOCOL=2&_VERSION=1", "_PROTOCOL=2&_VERSION=2"] {
        words.push(format!("{}?{version}", origin.address()));
    }
    let output = command(&words).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(said.lines().filter(|line| line.starts_with("passed ")).count(), 18, "{said}");
}

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn command(words: &[String]) -> Command {
    let peers = std::env::var_os("TOWPATH_PEERS").map(PathBuf::from).unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance/bolt/Peer.java");
    let mut command = Command::new(peers.join("bolt"));
    command.args(["-Xmx256m", "-Dbolt.tcp.heartbeat.interval=500"]).arg(source).args(words);
    command.stdin(Stdio::null()).stderr(Stdio::piped());
    command
}
