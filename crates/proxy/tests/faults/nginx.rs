//! A real origin that can be killed, frozen and started again.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use crate::common::{Scratch, until};

/// nginx on a port that stays the same.
pub struct Nginx {
    pub address: SocketAddr,
    program: std::path::PathBuf,
    child: Child,
    scratch: Scratch,
}

impl Nginx {
    /// None, with a word about it, where there is no nginx; a failure under `CI`.
    pub fn start() -> Option<Self> {
        Self::start_with("", &[])
    }

    /// The same under TLS.
    pub fn start_secure(chain: &str, key: &str) -> Option<Self> {
        let options = " ssl;\n        ssl_protocols TLSv1.2 TLSv1.3;\n        ssl_certificate ROOT/chain.pem;\n        \
            ssl_certificate_key ROOT/key.pem";
        Self::start_with(options, &[("chain.pem", chain), ("key.pem", key)])
    }

    fn start_with(options: &str, files: &[(&str, &str)]) -> Option<Self> {
        let folder = std::env::var_os("TOWPATH_PEERS").unwrap_or_default();
        let program = std::path::Path::new(&folder).join("nginx");
        if !program.exists() {
            assert!(
                std::env::var_os("CI").is_none(),
                "no nginx: TOWPATH_PEERS does not lead to it"
            );
            eprintln!("left out, there is no nginx: TOWPATH_PEERS does not lead to it");
            return None;
        }
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let scratch = Scratch::new();
        let root = scratch.path("").display().to_string();
        for (name, text) in files {
            scratch.write(name, text);
        }
        let config =
            include_str!("nginx.conf").replace(" reuseport", &[" reuseport", options].concat());
        let config = config.replace("ROOT/", &root);
        scratch.write("nginx.conf", &config.replace("ADDRESS", &address.to_string()));
        let child = launch(&program, &scratch, address);
        Some(Self { address, program, child, scratch })
    }

    /// Ends it without a chance to say close_notify.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again after [`Nginx::kill`].
    pub fn restart(&mut self) {
        self.child = launch(&self.program, &self.scratch, self.address);
    }

    pub fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").arg(signal).arg(pid).status().unwrap().success());
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn launch(program: &std::path::Path, scratch: &Scratch, address: SocketAddr) -> Child {
    let child = Command::new(program)
        .arg("-p")
        .arg(scratch.path(""))
        .arg("-c")
        .arg(scratch.path("nginx.conf"))
        .args(["-e", "/dev/null"])
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    until("nginx listens", || TcpStream::connect(address).is_ok());
    child
}
