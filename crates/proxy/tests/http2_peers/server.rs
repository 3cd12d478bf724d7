//! Servers that others wrote, for as long as a test asks them.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use crate::common::{Scratch, until};
use crate::origins::peer;

/// A server of another project, running.
pub(crate) struct Server {
    process: Child,
    pub(crate) address: SocketAddr,
    _scratch: Option<Scratch>,
}

impl Server {
    /// One that says its port.
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut port = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut port).unwrap();
        let address = ([127, 0, 0, 1], port.trim().parse().unwrap()).into();
        Self { process, address, _scratch: None }
    }

    /// A proxy of another project in front of a server.
    #[allow(dead_code, reason = "not every test has one")]
    pub(crate) fn between(
        name: &str,
        words: &[&str],
        config: &str,
        behind: SocketAddr,
    ) -> Option<Self> {
        let (program, scratch) = (peer(name)?, Scratch::new());
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let folder = scratch.path("").display().to_string();
        let config = config
            .replace("SCRATCH", folder.trim_end_matches('/'))
            .replace("FRONT", &address.port().to_string())
            .replace("BEHIND", &behind.port().to_string());
        let config = scratch.write("config.yaml", &config).display().to_string();
        let words =
            words.iter().map(|word| word.replace("CONFIG", &config).replace("SCRATCH", &folder));
        let process = Command::new(program).args(words).spawn().unwrap();
        until("it listens", || TcpStream::connect(address).is_ok());
        Some(Self { process, address, _scratch: Some(scratch) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
