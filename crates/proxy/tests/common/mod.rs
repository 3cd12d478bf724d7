//! The real program with real sockets, for the stories in this folder.
#![allow(dead_code, reason = "each story uses a part of it")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

/// How long anything may take before a test gives up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A directory that goes with its test.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Self {
        use std::sync::atomic::{AtomicU32, Ordering};
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("towpath-proxy-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        std::fs::write(self.path(name), text).unwrap();
        self.path(name)
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A bootstrap with one HTTP listener on a free port, in front of `origin`.
pub(crate) fn bootstrap(origin: SocketAddr) -> String {
    format!(
        r#"
node: {{ id: test, cluster: tests }}
admin: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: 0 }} }} }}
static_resources:
  listeners:
  - name: ingress
    traffic_direction: INBOUND
    address: {{ socket_address: {{ address: 127.0.0.1, port_value: 0 }} }}
    filter_chains:
    - filters:
      - name: http
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: ingress
          ACCESS_LOG
          route_config:
            name: table
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes: [ {{ match: {{ prefix: "/" }}, route: {{ cluster: origin }} }} ]
          http_filters:
          - name: router
            typed_config: {{ "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }}
  clusters:
  - name: origin
    connect_timeout: 1s
    CLUSTER_TYPE
    load_assignment:
      cluster_name: origin
      endpoints:
      - lb_endpoints: [ {{ endpoint: {{ address: {{ socket_address: {{ address: {}, port_value: {} }} }} }} }} ]
"#,
        origin.ip(),
        origin.port()
    )
    .replace("          ACCESS_LOG\n", "")
    .replace("CLUSTER_TYPE", "type: STATIC")
}

/// [`bootstrap`] with its listener under TLS, with a certificate of its own.
pub(crate) fn secured(bootstrap: &str, scratch: &Scratch) -> String {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()])
        .unwrap();
    let chain = scratch.write("chain.pem", &made.cert.pem());
    let key = scratch.write("key.pem", &made.signing_key.serialize_pem());
    let socket = format!(
        r#"    - transport_socket:
        name: tls
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext
          common_tls_context:
            alpn_protocols: [h2, http/1.1]
            tls_certificates:
            - certificate_chain: {{ filename: {} }}
              private_key: {{ filename: {} }}
      filters:"#,
        chain.display(),
        key.display()
    );
    bootstrap.replacen("    - filters:", &socket, 1)
}

/// In the place of `load_assignment` in [`bootstrap`]: its cluster speaks HTTP/2.
pub(crate) const OVER_HTTP2: &str = r#"    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: { http2_protocol_options: {} }
    load_assignment:"#;

/// [`bootstrap`] with an access log in this file.
pub(crate) fn with_access_log(bootstrap: &str, path: &Path) -> String {
    let log = format!(
        r#"          stat_prefix: ingress
          access_log:
          - name: file
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog
              path: {}
              log_format: {{ text_format_source: {{ inline_string: "%REQ(:PATH)%\n" }} }}"#,
        path.display()
    );
    bootstrap.replace("          stat_prefix: ingress", &log)
}

/// The program, running.
pub(crate) struct Proxy {
    pub(crate) child: Child,
    pub(crate) admin: String,
    pub(crate) scratch: Scratch,
}

impl Proxy {
    /// Starts it and waits until it is ready.
    pub(crate) fn start(bootstrap: &str, flags: &[&str]) -> Self {
        let proxy = Self::launch(Scratch::new(), bootstrap, flags);
        until("ready", || proxy.get("/ready").1 == "LIVE\n");
        proxy
    }

    /// Starts it and waits until its admin endpoint answers.
    pub(crate) fn launch(scratch: Scratch, bootstrap: &str, flags: &[&str]) -> Self {
        Self::run(program(), scratch, bootstrap, flags)
    }

    /// As [`Proxy::launch`], with so many descriptors and never more.
    pub(crate) fn launch_limited(
        scratch: Scratch,
        bootstrap: &str,
        flags: &[&str],
        descriptors: u32,
    ) -> Self {
        let mut command = Command::new("sh");
        let limit = format!("ulimit -n {descriptors} && exec \"$0\" \"$@\"");
        command.args(["-c", &limit, env!("CARGO_BIN_EXE_towpath-proxy")]).stdin(Stdio::null());
        Self::run(command, scratch, bootstrap, flags)
    }

    pub(crate) fn run(
        mut command: Command,
        scratch: Scratch,
        bootstrap: &str,
        flags: &[&str],
    ) -> Self {
        let config = scratch.write("bootstrap.yaml", bootstrap);
        let address = scratch.path("admin");
        let workers =
            if flags.contains(&"--concurrency") { &[][..] } else { &["--concurrency", "2"] };
        let child = command
            .args(workers)
            .args(["--file-flush-interval-msec", "50", "-l", "warning", "-c"])
            .arg(config)
            .arg("--admin-address-path")
            .arg(&address)
            .args(flags)
            .spawn()
            .unwrap();
        let mut proxy = Self { child, admin: String::new(), scratch };
        until("the admin endpoint is bound", || {
            let text = proxy.scratch.read("admin");
            assert!(proxy.child.try_wait().unwrap().is_none(), "the proxy ended");
            proxy.admin.clone_from(&text);
            !text.is_empty()
        });
        proxy
    }

    /// Where the listener with this name is bound.
    pub(crate) fn listener(&self, name: &str) -> String {
        let (_, text) = self.get("/listeners");
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name}::")));
        line.unwrap_or_else(|| panic!("no listener {name} in {text}")).to_owned()
    }

    /// An admin request.
    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        exchange(&self.admin, "GET", path).unwrap_or((0, String::new()))
    }

    /// An admin order.
    pub(crate) fn post(&self, path: &str) -> (u16, String) {
        exchange(&self.admin, "POST", path).unwrap()
    }

    /// One statistic.
    pub(crate) fn stat(&self, name: &str) -> Option<u64> {
        let (_, text) = self.get(&format!("/stats?filter=^{name}$"));
        text.trim().rsplit(' ').next()?.parse().ok()
    }

    /// How nice its threads of this name are (proc(5), `stat`), and how nice the process is.
    pub(crate) fn niceness(&self, thread: &str) -> (Vec<i32>, i32) {
        let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
        let nice = |stat: &str| {
            let (_, fields) = stat.rsplit_once(") ")?;
            fields.split(' ').nth(19 - 3)?.parse::<i32>().ok()
        };
        let process = PathBuf::from(format!("/proc/{}", self.child.id()));
        let all = std::fs::read_dir(process.join("task")).unwrap().flatten().map(|it| it.path());
        let named = all.filter(|it| read(&it.join("comm")).trim() == thread);
        let threads = named.filter_map(|it| nice(&read(&it.join("stat")))).collect();
        (threads, nice(&read(&process.join("stat"))).unwrap())
    }

    pub(crate) fn signal(&self, signal: &str) {
        let sent = Command::new("kill")
            .arg(format!("-{signal}"))
            .arg(self.child.id().to_string())
            .status();
        assert!(sent.unwrap().success());
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(start.elapsed() < PATIENCE, "the proxy does not end");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The program, not running yet.
pub(crate) fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_towpath-proxy"));
    command.stdin(Stdio::null());
    command
}

/// Runs it to its end.
pub(crate) fn run(arguments: &[&str]) -> Output {
    program().args(arguments).output().unwrap()
}

/// One request on a connection of its own: status and body.
pub(crate) fn exchange(address: &str, method: &str, path: &str) -> std::io::Result<(u16, String)> {
    let answer = exchange_whole(address, method, path)?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    let body = if chunked { unchunk(body) } else { body.to_owned() };
    Ok((status, body))
}

/// One request on a connection of its own: everything that comes back.
pub(crate) fn exchange_whole(address: &str, method: &str, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
    )?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

fn unchunk(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        whole.push_str(&rest[..size]);
        body = rest[size..].trim_start_matches("\r\n");
    }
    whole
}

/// An origin that answers every request on a connection with `hello`, after `delay`.
pub(crate) fn origin(delay: Duration) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            std::thread::spawn(move || serve(stream, delay));
        }
    });
    address
}

fn serve(stream: TcpStream, delay: Duration) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut writer = stream;
    loop {
        let mut line = String::new();
        while !matches!(line.as_str(), "\r\n") {
            line.clear();
            if !reader.read_line(&mut line).is_ok_and(|length| length > 0) {
                return;
            }
        }
        std::thread::sleep(delay);
        if writer.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello").is_err() {
            return;
        }
    }
}

/// Waits for something.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
