//! One of the two proxies, running.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use regex::{Captures, Regex};

use crate::bootstrap;
use crate::case::Suite;
use crate::secure;
use crate::upstream::Upstreams;

/// How long a proxy may take to start.
const PATIENCE: Duration = Duration::from_secs(40);

/// Which one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Envoy,
    Towpath,
}

/// A proxy with its upstreams and everything it has said so far.
#[derive(Debug)]
pub(crate) struct Peer {
    child: Child,
    pub(crate) folder: PathBuf,
    pub(crate) admin: String,
    /// Listeners by name.
    pub(crate) listeners: BTreeMap<String, String>,
    pub(crate) upstreams: Arc<Upstreams>,
    /// Ports and what to call them.
    pub(crate) ports: BTreeMap<u16, String>,
    /// How much of the log was told, in bytes.
    pub(crate) logged: usize,
    /// Every counter and gauge that was there at the start.
    names: BTreeSet<String>,
    /// Counters and gauges when the last case was over.
    pub(crate) before: BTreeMap<String, i64>,
}

/// Whether a name was asked for that was not answered yet.
fn asks_names(stats: &BTreeMap<String, i64>) -> bool {
    stats.iter().any(|(name, attempts)| {
        let of = |end: &str| {
            name.strip_suffix("attempt").and_then(|start| stats.get(&format!("{start}{end}")))
        };
        name.ends_with(".dns_query_attempt")
            && of("success").unwrap_or(&0) + of("failure").unwrap_or(&0) != *attempts
    })
}

impl Peer {
    pub(crate) fn start(kind: Kind, suite: &Suite) -> Self {
        let folder = fresh_folder(kind);
        let upstreams = Arc::new(Upstreams::default());
        let names =
            suite.cluster.values().flat_map(|cluster| &cluster.to).filter(|name| *name != "closed");
        let addresses: BTreeMap<String, SocketAddr> =
            names.map(|name| (name.clone(), open(suite, &upstreams, name))).collect();
        let file = folder.join("bootstrap.yaml");
        std::fs::write(&file, bootstrap::write(suite, &addresses, &folder.join("log"))).unwrap();
        std::fs::write(folder.join("log"), "").unwrap();
        let said = std::fs::File::create(folder.join("said")).unwrap();
        let child = Command::new(program(kind))
            .args([
                "--concurrency",
                "1",
                "--disable-hot-restart",
                "--file-flush-interval-msec",
                "10",
                "-l",
                "warning",
            ])
            .args(["--drain-time-s", "1", "-c"])
            .arg(file)
            .arg("--admin-address-path")
            .arg(folder.join("admin"))
            .stdin(Stdio::null())
            .stdout(said.try_clone().unwrap())
            .stderr(said)
            .spawn()
            .unwrap();
        let ports =
            addresses.iter().map(|(name, address)| (address.port(), name.clone())).collect();
        let mut peer = Self {
            child,
            folder,
            admin: String::new(),
            listeners: BTreeMap::new(),
            upstreams,
            ports,
            logged: 0,
            names: BTreeSet::new(),
            before: BTreeMap::new(),
        };
        peer.wait_until_live(kind);
        peer
    }

    fn wait_until_live(&mut self, kind: Kind) {
        let start = Instant::now();
        loop {
            self.admin = std::fs::read_to_string(self.folder.join("admin")).unwrap_or_default();
            if !self.admin.is_empty() && self.get("/ready").is_ok_and(|text| text == "LIVE\n") {
                break;
            }
            let said = || {
                std::fs::read_to_string(self.folder.join("said"))
                    .unwrap_or_default()
                    .chars()
                    .take(700)
                    .collect::<String>()
            };
            assert!(self.child.try_wait().unwrap().is_none(), "{kind:?} ended: {}", said());
            assert!(start.elapsed() < PATIENCE, "{kind:?} does not start: {}", said());
            std::thread::sleep(Duration::from_millis(10));
        }
        for line in self.get("/listeners").unwrap().lines() {
            if let Some((name, address)) = line.split_once("::") {
                self.listeners.insert(name.to_owned(), address.to_owned());
                // One inside the process has no port.
                if let Ok(port) = address.rsplit(':').next().unwrap().parse() {
                    self.ports.insert(port, name.to_owned());
                }
            }
        }
        self.ports
            .insert(self.admin.rsplit(':').next().unwrap().parse().unwrap(), "admin".to_owned());
        self.ports.insert(bootstrap::CLOSED_PORT, "closed".to_owned());
        self.names = self.stats_at("/stats").into_keys().collect();
        self.before = self.settled_stats();
    }

    /// The statistics once a start is over: what it asks of name servers is answered, and nothing follows from that.
    fn settled_stats(&self) -> BTreeMap<String, i64> {
        let start = Instant::now();
        let mut before = self.stats();
        while asks_names(&before) {
            assert!(start.elapsed() < PATIENCE, "names are asked for and never answered");
            std::thread::sleep(Duration::from_millis(10));
            before = self.stats();
        }
        if !before.keys().any(|name| name.ends_with(".dns_query_attempt")) {
            return before;
        }
        loop {
            std::thread::sleep(Duration::from_millis(100));
            let now = self.stats();
            if now == before || start.elapsed() > PATIENCE {
                return now;
            }
            before = now;
        }
    }

    /// The address of a listener, or of the admin endpoint.
    pub(crate) fn address(&self, name: &str) -> &str {
        if name == "admin" {
            &self.admin
        } else {
            self.listeners.get(name).expect("no such listener")
        }
    }

    /// Counters and gauges of clusters, listeners, connection managers and TCP proxies that were ever touched.
    pub(crate) fn stats(&self) -> BTreeMap<String, i64> {
        self.stats_at("/stats?usedonly")
    }

    /// The names of all that it keeps.
    pub(crate) fn names(&self) -> BTreeSet<String> {
        self.stats().into_keys().chain(self.names.iter().cloned()).collect()
    }

    fn stats_at(&self, path: &str) -> BTreeMap<String, i64> {
        let text = self.get(path).unwrap();
        let values = text.lines().filter_map(|line| line.rsplit_once(": "));
        let values =
            values.filter_map(|(name, value)| Some((self.with_names(name), value.parse().ok()?)));
        values.filter(|(name, _)| is_compared(name)).collect()
    }

    /// The name of a statistic; that of a host, and of a cluster that requests had made, has the port of an upstream in
    /// it.
    fn with_names(&self, name: &str) -> String {
        static PORT: LazyLock<Regex> = LazyLock::new(|| {
            Regex::new(r"^(cluster\.(?:DFPCluster_|.+\.endpoint\.).+_)(\d+)\.").unwrap()
        });
        let named = PORT.replace(name, |found: &Captures<'_>| {
            let port = found[2].parse().ok().and_then(|port: u16| self.ports.get(&port));
            format!("{}{}.", &found[1], port.map_or(&found[2], String::as_str))
        });
        named.into_owned()
    }

    /// Lines of the access log that were not told yet.
    pub(crate) fn log(&self) -> (Vec<String>, usize) {
        let text = std::fs::read(self.folder.join("log")).unwrap();
        let end =
            text.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1).max(self.logged);
        let text = String::from_utf8_lossy(&text[self.logged..end]).into_owned();
        (text.lines().map(str::to_owned).collect(), end)
    }

    fn get(&self, path: &str) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(&self.admin)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        write!(stream, "GET {path} HTTP/1.1\r\nhost: admin\r\nconnection: close\r\n\r\n")?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        let answer = String::from_utf8_lossy(&answer);
        let (head, mut body) = answer.split_once("\r\n\r\n").unwrap_or_default();
        if !head.to_ascii_lowercase().contains("transfer-encoding: chunked") {
            return Ok(body.to_owned());
        }
        let mut whole = String::new();
        while let Some((size, rest)) = body.split_once("\r\n") {
            let size = usize::from_str_radix(size, 16).unwrap_or(0);
            whole.push_str(&rest[..size]);
            body = rest[size..].trim_start_matches("\r\n");
        }
        Ok(whole)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::env::var_os("TOWPATH_KEEP").is_none() {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

fn open(suite: &Suite, upstreams: &Arc<Upstreams>, name: &str) -> SocketAddr {
    let plain = upstreams.open(name);
    suite.secure.get(name).map_or(plain, |secure| secure::open(secure, plain))
}

fn is_compared(name: &str) -> bool {
    let scopes = [
        "access_logs.grpc",
        "cluster.",
        "connection_limit.",
        "dns_cache.",
        "envoy.overload_actions.reset_high_memory_stream.count",
        "grpc.",
        "http.",
        "http1.",
        "http2.",
        "listener.",
        "listener_local_ratelimit.",
        "local_rate_limit.",
        "overload.",
        "tcp.",
        "tracing.",
    ];
    let other = ["http.admin.", "listener.admin."];
    // How often that was tried is up to time.
    let is_timed = name.ends_with(".failed_updates");
    !is_timed
        && scopes.iter().any(|scope| name.starts_with(scope))
        && !other.iter().any(|scope| name.starts_with(scope))
}

fn program(kind: Kind) -> PathBuf {
    match kind {
        Kind::Towpath => env!("CARGO_BIN_EXE_towpath-proxy").into(),
        Kind::Envoy => {
            let folder = std::env::var_os("TOWPATH_PEERS")
                .expect("TOWPATH_PEERS names the folder that has envoy");
            Path::new(&folder).join("envoy")
        }
    }
}

fn fresh_folder(kind: Kind) -> PathBuf {
    use std::sync::atomic::{AtomicU32, Ordering};
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir()
        .join(format!("towpath-differential-{}-{number}-{kind:?}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}
