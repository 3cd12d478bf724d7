//! Programs of `conformance/bolt` under Java.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Made of sofa-bolt alone.
pub(crate) const PEER: &str = "Peer.java";
/// Made of SOFARPC.
pub(crate) const RPC: &str = "Rpc.java";

/// A running program.
pub(crate) struct Java {
    pub(crate) child: Child,
    lines: BufReader<ChildStdout>,
    pub(crate) address: SocketAddr,
}

impl Java {
    pub(crate) fn server(program: &str) -> Self {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        Self::server_at(program, address)
    }

    pub(crate) fn server_at(program: &str, address: SocketAddr) -> Self {
        let mut server = Self::start(program, &["server".to_owned(), address.port().to_string()]);
        server.wait_for("listening");
        server.address = address;
        server
    }

    pub(crate) fn start(program: &str, words: &[String]) -> Self {
        let mut child =
            command(program, words).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines, address: SocketAddr::from(([0; 4], 0)) }
    }

    /// Runs a program to its end; what it said.
    pub(crate) fn run(program: &str, words: &[String]) -> String {
        let output = command(program, words).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        said
    }

    /// The next line that begins so.
    pub(crate) fn wait_for(&mut self, begin: &str) -> String {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let mut line = String::new();
            let count = self.lines.read_line(&mut line).unwrap();
            assert!(count > 0 && Instant::now() < deadline, "it never said '{begin}'");
            if line.starts_with(begin) {
                return line;
            }
        }
    }
}

impl Drop for Java {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(program: &str, words: &[String]) -> Command {
    let peers = std::env::var_os("TOWPATH_PEERS").map(PathBuf::from).unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance/bolt").join(program);
    let logs = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sofa-logs");
    let mut command = Command::new(peers.join("bolt"));
    // None of them lives long enough for the second compiler.
    command.args(["-Xmx256m", "-XX:TieredStopAtLevel=1", "-Dbolt.tcp.heartbeat.interval=500"]);
    command.arg(format!("-Dlogging.path={}", logs.display()));
    command.arg(source).args(words).stdin(Stdio::null());
    command
}
