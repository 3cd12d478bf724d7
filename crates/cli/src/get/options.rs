//! What `towpath get` lets its user decide of one request, and of the engine that carries it. Names are curl's where
//! curl has them.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::{Args, ValueEnum};
use towpath::{
    DnsOverHttps, Engine, HttpVersions, Priority, Proxies, Proxy, Question, Request, Settings, Tls,
};

/// How the request is treated.
#[derive(Debug, Args)]
#[command(next_help_heading = "Time, repetition and priority")]
pub(super) struct RequestOptions {
    /// Seconds for everything; 0 is without limit. By default what moves may take its time
    #[arg(short, long, value_name = "SECONDS")]
    max_time: Option<f64>,
    /// Seconds until the response begins, with all repetitions, counted anew while a body is sent: 60
    #[arg(long, value_name = "SECONDS", conflicts_with = "max_time")]
    answer_timeout: Option<f64>,
    /// Seconds for one attempt until the response begins, counted anew while a body is sent; by formula if not given
    #[arg(long, value_name = "SECONDS")]
    attempt_timeout: Option<f64>,
    /// Seconds from the request's last byte to the response's first, in one attempt; by formula and history if not
    /// given
    #[arg(long, value_name = "SECONDS")]
    first_byte_timeout: Option<f64>,
    /// Seconds between two pieces of the response: 8, on mobile networks 12
    #[arg(long, value_name = "SECONDS")]
    gap_timeout: Option<f64>,
    /// How often to try again where that is allowed
    #[arg(long, visible_alias = "retry", value_name = "COUNT", default_value_t = 2)]
    retries: u32,
    /// Whether it may be sent again when it is not known whether it was processed
    #[arg(long, value_name = "WHEN", default_value = "by-method")]
    repeat: Repeat,
    /// A key by which the server knows a repetition: any method may be repeated then
    #[arg(long, value_name = "KEY", conflicts_with = "repeat")]
    idempotency_key: Option<String>,
    /// Send it a second time when it is late for what is known of its server; the first answer counts
    #[arg(long)]
    hedge: bool,
    /// Follow answers that name another place (301, 302, 303, 307, 308)
    #[arg(short = 'L', long)]
    location: bool,
    /// Ask for a compressed response, and decode it
    #[arg(long)]
    compressed: bool,
    /// How many redirects
    #[arg(long, value_name = "COUNT", default_value_t = 50, requires = "location")]
    max_redirs: usize,
    /// HTTP/2 where the server chooses it under TLS, else HTTP/1.1: as without a word on it
    #[arg(long, group = "http")]
    http2: bool,
    /// HTTP/2 alone, in plain text without asking whether the server speaks it
    #[arg(long, group = "http")]
    http2_prior_knowledge: bool,
    /// HTTP/1.1 alone
    #[arg(long = "http1.1", group = "http")]
    http1: bool,
    /// Let a response that breaks off fail, in place of asking for its rest
    #[arg(long)]
    no_resume: bool,
    /// How urgent it is among those that wait for a connection (of use with programs that make many)
    #[arg(long, value_name = "PRIORITY", default_value = "normal")]
    priority: Urgency,
    /// Watch the kernel's word on the network, and wait while there is none (Linux)
    #[arg(long)]
    wait_for_network: bool,
    /// Fail while the server wants to be left alone (429, 503), in place of waiting
    #[arg(long)]
    fail_at_rest: bool,
}

/// How the server is found, and believed.
#[derive(Debug, Args)]
#[command(next_help_heading = "Addresses and TLS")]
pub(super) struct ConnectOptions {
    /// Addresses of a name, in place of the resolver's; the port is there for curl's sake. May be repeated
    #[arg(long, value_name = "HOST:PORT:ADDRESS[,ADDRESS]")]
    resolve: Vec<String>,
    /// DNS servers to ask in place of the system's, for names with a dot; port 53 where none is given
    #[arg(long, value_name = "ADDRESS[:PORT][,…]", value_delimiter = ',', value_parser = dns_server)]
    dns_servers: Vec<SocketAddr>,
    /// Ask the system for every name (getaddrinfo), and no DNS server directly
    #[arg(long, conflicts_with = "dns_servers")]
    system_resolver: bool,
    /// Ask this server of DNS over HTTPS for names with a dot (`https://HOST[:PORT]/PATH`); the system for its own name
    #[arg(long, value_name = "URL", conflicts_with_all = ["dns_servers", "system_resolver"])]
    doh_url: Option<String>,
    /// The addresses of that server, in place of the system's word on its name
    #[arg(long, value_name = "ADDRESS[,…]", value_delimiter = ',', requires = "doh_url")]
    doh_addresses: Vec<IpAddr>,
    /// Ask the system for names that it does not answer
    #[arg(long, requires = "doh_url")]
    doh_or_system: bool,
    /// Ask the server of `--doh-url` by GET, which caches may answer, in place of POST.
    #[arg(long, requires = "doh_url")]
    doh_by_get: bool,
    /// Go through this proxy: http, https (TLS with it) or socks5, which resolves names; without a port 1080, under
    /// https 443. An empty one is none. Without a word on it those of the environment hold (http_proxy, HTTPS_PROXY,
    /// ALL_PROXY, NO_PROXY), as with curl
    #[arg(short = 'x', long, value_name = "[SCHEME://]HOST[:PORT]")]
    proxy: Option<String>,
    /// Who we are, for the proxy
    #[arg(short = 'U', long, value_name = "USER:PASSWORD", requires = "proxy")]
    proxy_user: Option<String>,
    /// A field for the proxy, as "Name: value"; may be repeated
    #[arg(long, value_name = "FIELD", requires = "proxy")]
    proxy_header: Vec<String>,
    /// Ask the proxy for a tunnel under http as well
    #[arg(short = 'p', long, requires = "proxy")]
    proxytunnel: bool,
    /// Go through a SOCKS proxy that resolves names: as --proxy socks5h://…
    #[arg(long, value_name = "HOST[:PORT]", conflicts_with = "proxy")]
    socks5_hostname: Option<String>,
    /// Hosts that are asked without a proxy: names with what is below them, addresses, networks, or * for all
    #[arg(long, value_name = "HOST[,HOST]")]
    noproxy: Option<String>,
    /// A new connection for each request (of use with --count)
    #[arg(long)]
    no_reuse: bool,
    /// A connection of its own for each name, also where an HTTP/2 connection is open whose certificate has it (of use
    /// with --location)
    #[arg(long)]
    no_coalescing: bool,
    /// Begin with what is remembered of addresses and names in this file, and save it there at the end
    #[arg(long, value_name = "FILE")]
    memory: Option<PathBuf>,
    /// Believe those that these certificates have signed (PEM), not the platform's
    #[arg(long, value_name = "FILE")]
    cacert: Option<PathBuf>,
    /// Who we are, for servers that ask: a certificate with its chain (PEM)
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// Its private key (PEM)
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// The SHA-256 of a public key (SubjectPublicKeyInfo) that the server must have, or another of them; divided by `;`
    #[arg(long, value_name = "sha256//BASE64")]
    pinnedpubkey: Option<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Repeat {
    /// As its method says (RFC 9110 §9.2.2)
    ByMethod,
    Always,
    Never,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Urgency {
    High,
    Normal,
    Low,
}

impl RequestOptions {
    pub(super) fn apply(&self, request: Request) -> io::Result<Request> {
        let mut request = request;
        if let Some(limit) = self.max_time {
            request = request.timeout(seconds(limit, "max-time")?);
        }
        if let Some(limit) = self.answer_timeout {
            request = request.answer_timeout(seconds(limit, "answer-timeout")?);
        }
        if let Some(limit) = self.attempt_timeout {
            request = request.attempt_timeout(seconds(limit, "attempt-timeout")?);
        }
        if let Some(limit) = self.first_byte_timeout {
            request = request.first_byte_timeout(seconds(limit, "first-byte-timeout")?);
        }
        if let Some(limit) = self.gap_timeout {
            request = request.gap_timeout(seconds(limit, "gap-timeout")?);
        }
        request = request.retries(self.retries).repeat(match self.repeat {
            Repeat::ByMethod => towpath::Repeat::ByMethod,
            Repeat::Always => towpath::Repeat::Always,
            Repeat::Never => towpath::Repeat::Never,
        });
        request = request.priority(match self.priority {
            Urgency::High => Priority::High,
            Urgency::Normal => Priority::Normal,
            Urgency::Low => Priority::Low,
        });
        if let Some(key) = &self.idempotency_key {
            request = request.idempotency_key(key);
        }
        if self.hedge {
            request = request.hedge();
        }
        request = request.redirects(if self.location { self.max_redirs } else { 0 });
        if !self.compressed {
            request = request.no_decode();
        }
        request = request.http_versions(self.versions());
        if self.no_resume {
            request = request.no_resume();
        }
        if self.wait_for_network {
            request = request.wait_for_network();
        }
        if self.fail_at_rest {
            request = request.fail_at_rest();
        }
        Ok(request)
    }
}

impl RequestOptions {
    const fn versions(&self) -> HttpVersions {
        match (self.http1, self.http2_prior_knowledge) {
            (true, _) => HttpVersions::Http1,
            (false, true) => HttpVersions::Http2,
            (false, false) => HttpVersions::Negotiated,
        }
    }
}

impl ConnectOptions {
    pub(super) fn engine(&self, request: &RequestOptions) -> io::Result<Engine> {
        let settings = Settings {
            requests_per_connection: u32::from(self.no_reuse),
            coalesces: !self.no_coalescing,
            ..Settings::default()
        };
        let mut builder = Engine::builder().settings(settings).tls(self.tls()?);
        if let Some(path) = &self.memory {
            builder = builder.memory(path);
        }
        builder = if self.system_resolver {
            builder.system_resolver()
        } else {
            builder.dns_servers(self.dns_servers.iter().copied())
        };
        if let Some(url) = &self.doh_url {
            builder = builder.dns_over_https(self.dns_over_https(url)?);
        }
        if request.wait_for_network {
            builder = builder.watch_network();
        }
        if !self.resolve.is_empty() {
            let known =
                self.resolve.iter().map(|text| resolved(text)).collect::<io::Result<Vec<_>>>()?;
            builder = builder.questions(move |question| answer(question, &known));
        }
        let engine = builder.start().map_err(io::Error::other)?;
        if let Some(why) = engine.memory_failure() {
            eprintln!("towpath get: begins without what was remembered: {why}");
        }
        Ok(engine)
    }

    fn dns_over_https(&self, url: &str) -> io::Result<DnsOverHttps> {
        let server = DnsOverHttps::new(url)
            .map_err(|error| io::Error::other(format!("--doh-url: {error}")))?
            .addresses(self.doh_addresses.iter().copied());
        let server = if self.doh_by_get { server.by_get() } else { server };
        Ok(if self.doh_or_system { server.or_system() } else { server })
    }

    /// Those that are named, or those of the environment.
    pub(super) fn proxies(&self) -> io::Result<Proxies> {
        let socks = self.socks5_hostname.as_ref().map(|host| format!("socks5h://{host}"));
        let proxies = match self.proxy.as_ref().or(socks.as_ref()) {
            None => Proxies::from_environment().map_err(io::Error::other)?,
            Some(url) if url.trim().is_empty() => Proxies::default(),
            Some(url) => Proxies::all(self.proxy(url)?),
        };
        Ok(proxies.except(self.noproxy.as_deref().unwrap_or_default()))
    }

    fn proxy(&self, url: &str) -> io::Result<Proxy> {
        let mut proxy = Proxy::new(url).map_err(io::Error::other)?;
        if let Some(who) = &self.proxy_user {
            let (user, password) = who.split_once(':').unwrap_or((who, ""));
            proxy = proxy.credentials(user, password);
        }
        for field in &self.proxy_header {
            let Some((name, value)) = field.split_once(':') else {
                return Err(io::Error::other(format!("{field:?} is not \"Name: value\"")));
            };
            proxy = proxy.header(name.trim(), value.trim());
        }
        Ok(if self.proxytunnel { proxy.tunnel() } else { proxy })
    }

    /// What was learned outlives the process, if that is wanted.
    pub(super) fn save(&self, engine: &Engine) -> io::Result<()> {
        match &self.memory {
            Some(path) => engine.save_memory(path).map_err(io::Error::other),
            None => Ok(()),
        }
    }

    fn tls(&self) -> io::Result<Tls> {
        let mut tls = Tls::new();
        if let Some(path) = &self.cacert {
            tls = tls.roots(read(path)?);
        }
        if let (Some(cert), Some(key)) = (&self.cert, &self.key) {
            tls = tls.identity(read(cert)?, read(key)?);
        }
        for pin in self.pinnedpubkey.iter().flat_map(|pins| pins.split(';')) {
            let bytes = pin.strip_prefix("sha256//").and_then(|text| STANDARD.decode(text).ok());
            let digest = bytes.and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
            tls = tls.pin(digest.ok_or_else(|| {
                io::Error::other(format!(
                    "--pinnedpubkey: {pin:?} is not sha256// and 32 bytes in Base64"
                ))
            })?);
        }
        Ok(tls)
    }
}

/// A name in lower case and its addresses.
fn resolved(text: &str) -> io::Result<(String, Vec<IpAddr>)> {
    let parse = || {
        let (host, rest) = text.split_once(':')?;
        let (port, addresses) = rest.split_once(':')?;
        port.parse::<u16>().ok()?;
        let one = |text: &str| text.trim_matches(['[', ']']).parse().ok();
        Some((host.to_ascii_lowercase(), addresses.split(',').map(one).collect::<Option<_>>()?))
    };
    parse().ok_or_else(|| io::Error::other(format!("--resolve: {text:?} is not HOST:PORT:ADDRESS")))
}

/// A server's address, with or without its port.
fn dns_server(text: &str) -> Result<SocketAddr, String> {
    let bare = text.trim_matches(['[', ']']).parse().map(|ip: IpAddr| SocketAddr::new(ip, 53));
    bare.or_else(|_| text.parse()).map_err(|_| format!("{text:?} is not an address"))
}

/// Names that are not given are asked of others.
fn answer(question: Question, known: &[(String, Vec<IpAddr>)]) {
    match known.iter().find(|(host, _)| host == question.name()) {
        Some((_, addresses)) => question.answer(Ok(addresses.clone())),
        None => question.pass_on(),
    }
}

fn seconds(number: f64, what: &str) -> io::Result<Duration> {
    if number.is_finite() && (0.0..1e9).contains(&number) {
        return Ok(Duration::from_secs_f64(number));
    }
    Err(io::Error::other(format!("--{what} is not a number of seconds")))
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    std::fs::read(path)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}
