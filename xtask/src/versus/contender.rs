//! One proxy: how it is started for a job.

use std::fs;
use std::path::{Path, PathBuf};

use crate::peers;
use crate::shell::{Result, output};

use super::configs::{self, Extras, Kind};
use super::process::{Process, await_port, pinned};

/// In the order of the table: the first is what the others are compared with.
pub(super) const NAMES: &[&str] = &["floor", "towpath", "nginx", "haproxy", "envoy", "nghttpx"];

/// Another build of Towpath, of `--before`.
pub(super) const BEFORE: &str = "before";

pub(super) struct Contender {
    pub(super) name: &'static str,
    pub(super) program: PathBuf,
}

/// A contender that listens.
pub(super) struct Running {
    pub(super) name: &'static str,
    pub(super) port: u16,
    pub(super) process: Process,
}

/// The proxy's core; everything else runs on the other.
const PROXY_CORE: usize = 0;

impl Contender {
    pub(super) fn before(program: PathBuf) -> Self {
        Self { name: BEFORE, program }
    }

    /// Starts it before `upstream` and waits until it listens. Where it needs a certificate, that is in `folder`.
    pub(super) fn start(
        &self,
        kind: Kind,
        extras: &Extras,
        upstream: u16,
        folder: &Path,
    ) -> Result<Running> {
        let (port, command) = self.command(kind, extras, upstream, folder)?;
        let mut process = Process::start(PROXY_CORE, &command)?;
        await_port(port, &mut process, self.name)?;
        Ok(Running { name: self.name, port, process })
    }

    /// Writes its configuration; answers where it is going to listen, and the command that starts it.
    pub(super) fn command(
        &self,
        kind: Kind,
        extras: &Extras,
        upstream: u16,
        folder: &Path,
    ) -> Result<(u16, Vec<String>)> {
        let port = free_port()?;
        let own = folder.join(format!("{}-{}", self.name, kind.name()));
        fs::create_dir_all(&own)?;
        let config = own.join("config.yaml");
        let mut command = vec![self.program.display().to_string()];
        let mut more = |words: &[&str]| command.extend(words.iter().map(|&word| word.to_owned()));
        let path = config.display().to_string();
        let text = match self.name {
            "floor" => {
                let listen = format!("127.0.0.1:{port}");
                more(&[kind.name(), &listen, &format!("127.0.0.1:{upstream}")]);
                String::new()
            }
            "nginx" => {
                more(&["-p", &own.display().to_string(), "-c", &path]);
                let modules = peers::debian_root("nginx").join("usr/lib/nginx/modules");
                let module = modules.join("ngx_stream_module.so");
                configs::nginx(kind, extras, &own, &module, port, upstream)
            }
            "haproxy" => {
                more(&["-db", "-f", &path]);
                configs::haproxy(kind, extras, descriptors()?, folder, port, upstream)
            }
            "nghttpx" => {
                more(&[&format!("--conf={path}")]);
                configs::nghttpx(kind, folder, port, upstream)
            }
            "envoy" => {
                more(&["-c", &path, "--concurrency", "1", "--log-level", "error"]);
                more(&["--disable-hot-restart"]);
                configs::envoy(kind, extras, folder, port, upstream)
            }
            _ => {
                more(&["-c", &path, "--concurrency", "1", "--log-level", "error"]);
                configs::envoy(kind, extras, folder, port, upstream)
            }
        };
        fs::write(&config, text)?;
        Ok((port, command))
    }
}

/// How many a pinned program may have.
fn descriptors() -> Result<usize> {
    let command = ["sh", "-c", "ulimit -n"].map(str::to_owned);
    Ok(output(&mut pinned(PROXY_CORE, &command))?.trim().parse()?)
}

/// A port that is free at the moment.
pub(crate) fn free_port() -> Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
