//! The released programs, compiled for what they do most (profile-guided optimisation).
//!
//! Our own crates are compiled once with counters, traffic of the lab runs through them, and what they counted decides
//! how they are compiled again.
//!
//! Only our crates are compiled three times: cargo keeps what a workspace wrapper makes apart from the rest, so this
//! program puts itself in rustc's place for them and adds the flags.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::shell::{Result, cargo, output, run as run_command, target, terminate};
use crate::{peers, versus};

/// Set for the copies of this program that cargo runs in the place of rustc; holds the flags for our crates.
pub(crate) const WRAPS_RUSTC: &str = "TOWPATH_DIST_FLAGS";

const PROGRAMS: [&str; 2] = ["towpath-proxy", "towpath"];

/// How long each kind of traffic runs.
const TRAINING: &str = "3s";
const STOP: Duration = Duration::from_secs(60);

/// Without words.
pub(crate) fn run(words: &[String]) -> Result<()> {
    if !words.is_empty() {
        return Err("usage: cargo xtask dist".into());
    }
    let profdata = profdata()?;
    let folder = target().join("dist");
    fs::create_dir_all(&folder)?;
    println!("building the release programs…");
    let plain = build(&folder, "plain", None)?;
    println!("building them with counters…");
    let raw = folder.join("raw");
    let _ = fs::remove_dir_all(&raw);
    let flags = format!("-Cprofile-generate={}", raw.display());
    let counting = build(&folder, "counting", Some(&flags))?;
    println!("training…");
    train(&folder, &plain, &counting, &raw)?;
    let profile = folder.join("towpath.profdata");
    merge(&profdata, &raw, &profile)?;
    println!("building them with the profile…");
    let flags = format!("-Cprofile-use={}", profile.display());
    let trained = build(&folder, "trained", Some(&flags))?;

    let proxy = |folder: &Path| versus::instructions(&folder.join("towpath-proxy"));
    let (before, after) = (proxy(&plain)?, proxy(&trained)?);
    println!("user instructions of the proxy for one request, without the profile and with it");
    for ((job, before), (_, after)) in before.into_iter().zip(after) {
        let change = (after as f64 / before as f64 - 1.0) * 100.0;
        println!("{job:<8}{before:>10}{after:>10}{change:>+9.1} %");
    }
    println!("the programs are in {}", trained.display());
    Ok(())
}

/// Runs rustc as cargo wants it, with the flags for our own libraries and programs (build scripts have other names).
///
/// Cargo's metadata depends on the wrapper's path, and the names of functions on the metadata: those of the program
/// that counted would not be found again. So ours follow from the crate alone.
pub(crate) fn wrap_rustc(words: &[String]) -> std::io::Error {
    let Some((rustc, words)) = words.split_first() else {
        return std::io::Error::other("cargo named no rustc");
    };
    let value = |flag: &str| words.windows(2).find(|pair| pair[0] == flag).map(|pair| &*pair[1]);
    let name = value("--crate-name").filter(|name| name.starts_with("towpath"));
    let mut command = Command::new(rustc);
    match name {
        Some(_) => {
            let metadata = format!("metadata={}", value("--crate-type").unwrap_or_default());
            let named =
                |word: &String| if is_metadata(word) { metadata.clone() } else { word.clone() };
            command.args(words.iter().map(named));
            command.arg(std::env::var(WRAPS_RUSTC).unwrap_or_default());
        }
        None => {
            command.args(words);
        }
    }
    command.exec()
}

/// The value of cargo's `-C metadata`.
fn is_metadata(word: &str) -> bool {
    word.starts_with("metadata=")
}

/// Builds the programs with these flags for our crates, and puts them into a folder of that name.
fn build(folder: &Path, name: &str, flags: Option<&str>) -> Result<PathBuf> {
    let mut command = cargo();
    command.args(["build", "--quiet", "--release", "--bins"]);
    command.args(["--package", "towpath-proxy", "--package", "towpath-cli"]);
    if let Some(flags) = flags {
        let wrapper = wrapper(folder, flags)?;
        command.env("RUSTC_WORKSPACE_WRAPPER", wrapper).env(WRAPS_RUSTC, flags);
    }
    run_command(&mut command)?;
    let place = folder.join(name);
    fs::create_dir_all(&place)?;
    for program in PROGRAMS {
        fs::copy(target().join("release").join(program), place.join(program))?;
    }
    Ok(place)
}

/// A copy of this program. Cargo tells wrappers apart by their paths, so the path follows from what the program does,
/// from the flags and from the profile that they name.
fn wrapper(folder: &Path, flags: &str) -> Result<PathBuf> {
    let program = std::env::current_exe()?;
    let mut hash = DefaultHasher::new();
    fs::read(&program)?.hash(&mut hash);
    flags.hash(&mut hash);
    if let Some(profile) = flags.strip_prefix("-Cprofile-use=") {
        fs::read(profile)?.hash(&mut hash);
    }
    let wrapper = folder.join(format!("rustc-{:016x}", hash.finish()));
    fs::copy(program, &wrapper)?;
    Ok(wrapper)
}

/// The tool that merges what programs counted: of the toolchain if it has one, else Debian's.
fn profdata() -> Result<PathBuf> {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let version = output(Command::new(&rustc).arg("-vV"))?;
    let field =
        |name: &str| version.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let host = field("host: ").ok_or("rustc names no host")?;
    let llvm = field("LLVM version: ").ok_or("rustc names no LLVM")?;
    let root = output(Command::new(&rustc).args(["--print", "sysroot"]))?;
    let own = Path::new(root.trim()).join("lib/rustlib").join(host).join("bin/llvm-profdata");
    if own.is_file() {
        return Ok(own);
    }
    let major = major(llvm);
    let debian = peers::ensure("llvm-profdata").and_then(|program| {
        let said = output(Command::new(&program).arg("--version"))?;
        let found = said.lines().find_map(|line| line.trim().split("LLVM version ").nth(1));
        match found.map(self::major) {
            Some(found) if found == major => Ok(program),
            found => Err(format!("Debian's is of LLVM {}", found.unwrap_or("?")).into()),
        }
    });
    debian.map_err(|error| {
        format!(
            "an llvm-profdata of LLVM {major} is needed, as the compiler's: `rustup component add llvm-tools`, or \
             Debian's \
             package llvm-{major} ({error})"
        )
        .into()
    })
}

fn major(version: &str) -> &str {
    version.split('.').next().unwrap_or(version)
}

fn merge(profdata: &Path, raw: &Path, profile: &Path) -> Result<()> {
    let mut merge = Command::new(profdata);
    merge.args(["merge", "-o"]).arg(profile).arg(raw);
    output(&mut merge).map(drop)
}

/// Sends every kind of traffic through a proxy that counts.
fn train(folder: &Path, plain: &Path, counting: &Path, raw: &Path) -> Result<()> {
    let lab = plain.join("towpath");
    let ports: Vec<u16> = (0..7).map(|_| versus::free_port()).collect::<Result<_>>()?;
    let [http, rpc, tls, plainly, edge, secure, calls] = ports[..] else {
        return Err("no ports".into());
    };
    let address = |port: u16| format!("127.0.0.1:{port}");
    let mut origins = Vec::new();
    for (port, protocol) in [(http, "h1"), (rpc, "bolt")] {
        let mut origin = Command::new(&lab);
        origin.args(["lab", "origin", "--protocol", protocol, "--listen", &address(port)]);
        origins.push(Running::start(&mut origin, port)?);
    }
    origins.push(Running::start(&mut tls_origin(folder, tls)?, tls)?);
    let config = folder.join("training.yaml");
    let log = folder.join("training.log");
    let listeners = [
        listener("plain", plainly, &http_filter("http", "")),
        listener("edge", edge, &http_filter("http", &edge_options(&log))),
        listener("secure", secure, &http_filter("tls", "")),
        listener("rpc", calls, BOLT_FILTER),
    ];
    let clusters = [cluster("http", http, ""), cluster("tls", tls, TLS), cluster("rpc", rpc, BOLT)];
    let text = format!(
        "static_resources:\n  listeners:{}\n  clusters:{}\n",
        listeners.concat(),
        clusters.concat()
    );
    fs::write(&config, text)?;
    let mut proxy = Command::new(counting.join("towpath-proxy"));
    proxy.args(["--concurrency", "1", "--log-level", "error", "-c"]).arg(&config);
    proxy.env("LLVM_PROFILE_FILE", raw.join("proxy-%p.profraw"));
    let proxy = Running::start(&mut proxy, plainly)?;
    for (port, words) in [
        (plainly, &["--connections=16"][..]),
        (edge, &["--connections=16", "-H", "accept-language: en", "-H", "x-session: 0123456789"]),
        (secure, &["--connections=8"]),
        (calls, &["--connections=8", "--protocol=bolt", "--in-flight=16"]),
    ] {
        let url = if words.contains(&"--protocol=bolt") {
            address(port)
        } else {
            format!("http://{}/api/v1/items/42?q=1", address(port))
        };
        let mut load = Command::new(&lab);
        load.args(["lab", "load", "--closed", "--duration", TRAINING]).args(words).arg(url);
        output(&mut load)?;
    }
    proxy.stop()?;
    let _ = fs::remove_file(log);
    Ok(())
}

/// nginx with a certificate of its own.
fn tls_origin(folder: &Path, port: u16) -> Result<Command> {
    let place = folder.join("origin");
    fs::create_dir_all(place.join("temp"))?;
    let own = place.display();
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]);
    openssl.args(["-nodes", "-days", "2", "-subj", "/CN=app.test"]);
    openssl.args(["-keyout", &format!("{own}/key.pem"), "-out", &format!("{own}/chain.pem")]);
    output(&mut openssl)?;
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("  {name}_temp_path {own}/temp;\n"))
        .concat();
    let text = format!(
        "daemon off; master_process off; pid {own}/nginx.pid; error_log {own}/nginx.log crit;
events {{ worker_connections 1024; }}
http {{
  access_log off; keepalive_requests 1000000;
{temporary}
  server {{
    listen 127.0.0.1:{port} ssl; ssl_certificate {own}/chain.pem; ssl_certificate_key {own}/key.pem;
    location / {{ return 200 \"{}\"; }}
  }}
}}
",
        "x".repeat(1000)
    );
    let config = place.join("nginx.conf");
    fs::write(&config, text)?;
    let mut nginx = Command::new(peers::ensure("nginx")?);
    nginx.arg("-p").arg(&place).arg("-c").arg(config);
    Ok(nginx)
}

fn listener(name: &str, port: u16, filter: &str) -> String {
    format!(
        "
  - name: {name}
    address: {{ socket_address: {{ address: 127.0.0.1, port_value: {port} }} }}
    filter_chains:
    - filters:
      - {filter}"
    )
}

fn http_filter(cluster: &str, options: &str) -> String {
    format!(
        r#"name: http
        typed_config:
          "@type": {TYPES}.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: {cluster}
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes: [ {{ match: {{ prefix: / }}, route: {{ cluster: {cluster} }} }} ]
          http_filters:
          - name: router
            typed_config: {{ "@type": {TYPES}.filters.http.router.v3.Router }}{options}"#
    )
}

fn edge_options(log: &Path) -> String {
    format!(
        r#"
          use_remote_address: true
          access_log:
          - name: file
            typed_config: {{ "@type": {TYPES}.access_loggers.file.v3.FileAccessLog, path: {} }}"#,
        log.display()
    )
}

fn cluster(name: &str, port: u16, more: &str) -> String {
    format!(
        "
  - name: {name}
    type: STATIC
    connect_timeout: 5s
    load_assignment:
      cluster_name: {name}
      endpoints:
      - lb_endpoints:
        - endpoint: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: {port} }} }} }}{more}"
    )
}

const TYPES: &str = "type.googleapis.com/envoy.extensions";

const TLS: &str = r#"
    transport_socket:
      name: tls
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
        sni: app.test
        common_tls_context: { tls_params: { tls_maximum_protocol_version: TLSv1_3 } }"#;

const BOLT: &str = r#"
    typed_extension_protocol_options:
      towpath.extensions.bolt.v1.BoltProtocolOptions:
        "@type": type.googleapis.com/xds.type.v3.TypedStruct
        type_url: type.googleapis.com/towpath.extensions.bolt.v1.BoltProtocolOptions
        value: {}"#;

const BOLT_FILTER: &str = r#"name: towpath.filters.network.bolt_proxy
        typed_config:
          "@type": type.googleapis.com/xds.type.v3.TypedStruct
          type_url: type.googleapis.com/towpath.extensions.bolt.v1.BoltProxy
          value: { stat_prefix: rpc, routes: [ { route: { cluster: rpc } } ] }"#;

/// A program that listens; killed when dropped.
struct Running(Child);

impl Running {
    fn start(command: &mut Command, port: u16) -> Result<Self> {
        let program = command.get_program().to_string_lossy().into_owned();
        let child =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut running = Self(child.map_err(|error| format!("cannot start {program}: {error}"))?);
        let end = Instant::now() + STOP;
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            if running.0.try_wait()?.is_some() || Instant::now() > end {
                return Err(format!("{program} does not listen on port {port}").into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(running)
    }

    /// Ends it in good order: only then it writes what it counted.
    fn stop(mut self) -> Result<()> {
        terminate(&mut self.0, STOP)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrappers_are_told_apart_by_flags_and_profile() {
        let folder = std::env::temp_dir().join(format!("towpath-dist-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let profile = folder.join("profile");
        let using = format!("-Cprofile-use={}", profile.display());
        let mut seen = vec![wrapper(&folder, "-Cprofile-generate=a").unwrap()];
        for text in ["one", "two"] {
            fs::write(&profile, text).unwrap();
            seen.push(wrapper(&folder, &using).unwrap());
            assert_eq!(wrapper(&folder, &using).unwrap(), seen[seen.len() - 1]);
        }
        seen.dedup();
        assert_eq!(seen.len(), 3);
        fs::remove_dir_all(&folder).unwrap();
    }
}
