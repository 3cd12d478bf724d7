//! What the generator counts is what the server and other generators count. Whether it also charges the server
//! the same depends on the machine's quiet: `towpath lab agree` measures that.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use towpath_lab::address::Address;
use towpath_lab::agree::{Bunching, Likeness, Other, compare};
use towpath_lab::experiment::{Program, Running, free_addresses};
use towpath_lab::load::{Arrivals, Plan, Protocol, run};

#[test]
#[ignore = "needs nginx and h2load"]
fn counts_agree_with_nginx_and_h2load_at_the_same_rate() {
    let server = Server::launch();
    let mut plan = server.plan();
    plan.arrivals = Arrivals::Paced { rate: 1000.0 };
    let outcome = run(&plan).unwrap();
    assert_eq!((outcome.sent, outcome.errors.total()), (2000, 0));
    assert_eq!(server.requests_since_asked(), outcome.sent);

    let text = server.load_with("h2load", &["--h1", "-c", "20", "--rps", "50", "-D", "2"]);
    let done = number_before(&text, " done");
    let served = server.requests_since_asked();
    // What is under way at the end, one request on each connection at most, is counted by nginx alone.
    assert!((done..=done + 20).contains(&served), "nginx {served}, h2load {done}");
    // What h2load could not send in time on a machine that was held up, it does not send later.
    let most = outcome.sent + 100;
    assert!((outcome.sent / 2..=most).contains(&done), "h2load {done}, towpath {}", outcome.sent);
}

#[test]
#[ignore = "needs nginx and h2load"]
fn counts_agree_with_nginx_and_h2load_over_http_2() {
    let server = Server::launch();
    let mut plan = server.plan();
    (plan.protocol, plan.connections, plan.in_flight) = (Protocol::Http2, 4, 5);
    plan.target = Address::Tcp(server.http2).into();
    plan.arrivals = Arrivals::Paced { rate: 1000.0 };
    let outcome = run(&plan).unwrap();
    assert_eq!((outcome.sent, outcome.errors.total()), (2000, 0), "{:?}", outcome.errors);
    assert_eq!(server.requests_since_asked(), outcome.sent);

    plan.arrivals = Arrivals::Closed;
    let outcome = run(&plan).unwrap();
    assert_eq!(outcome.errors.total(), 0, "{:?}", outcome.errors);
    assert_eq!(server.requests_since_asked(), outcome.sent);
    let url = format!("http://{}/", server.http2);
    let text = server.load_at("h2load", &["-c4", "-m5", "-t1", "-D2"], &url);
    let done = number_before(&text, " done");
    let served = server.requests_since_asked();
    // What is under way at the end is counted by nginx alone.
    assert!((done..=done + 20).contains(&served), "nginx {served}, h2load {done}");
}

#[test]
#[ignore = "needs nginx and wrk"]
fn counts_agree_with_nginx_and_wrk_in_a_closed_loop() {
    let server = Server::launch();
    let outcome = run(&server.plan()).unwrap();
    assert_eq!(outcome.errors.total(), 0);
    let served = server.requests_since_asked();
    assert!((outcome.answered..=outcome.answered + 20).contains(&served), "{served} {outcome:?}");

    let text = server.load_with("wrk", &["-t1", "-c20", "-d2s"]);
    let done = number_before(&text, " requests in");
    let served = server.requests_since_asked();
    assert!((done..=done + 40).contains(&served), "nginx {served}, wrk {done}");
}

#[test]
#[ignore = "needs nginx, wrk, h2load and vegeta"]
fn every_other_generator_is_run_and_read() {
    let server = Server::launch();
    let agree = |other: Other, arrivals: Arrivals, likeness: Likeness| {
        let mut plan = server.plan();
        (plan.arrivals, plan.pids) = (arrivals, vec![server.pid()]);
        plan.duration = Duration::from_secs(1);
        let agreement = compare(other, &peer(other.name()), &plan, likeness, 3, &mut |_| ());
        let agreement = agreement.unwrap();
        assert_eq!(agreement.rounds.len(), 3, "{}", other.name());
        let ratio = agreement.effect.ratio.estimate;
        // A count that was misread would be off by more than any machine is.
        assert!((0.1..10.0).contains(&ratio), "{}: {ratio} {:?}", other.name(), agreement.rounds);
        let is_named = |(name, _): &(String, String)| name.eq_ignore_ascii_case("user-agent");
        assert!(other == Other::Wrk || agreement.fields.iter().any(is_named), "{}", other.name());
        assert_eq!(agreement.busy_ns.is_some(), likeness.work);
        let is_open = plan.arrivals != Arrivals::Closed;
        assert_eq!(agreement.bunching.is_some(), is_open, "{}", other.name());
        // A server sleeps at most once for a request, but for what others on the machine let it wait for.
        let is_share = |sleeps: f64| (0.0..1.5).contains(&sleeps);
        let (theirs, ours) = agreement.sleeps;
        assert!(is_share(theirs) && is_share(ours), "{}: {theirs} {ours}", other.name());
        let is_as_many = |count: usize| (1000..=2001).contains(&count);
        assert_eq!(agreement.recorded.map(is_as_many), likeness.arrivals.then_some(true));
        agreement
    };
    let unlike = Likeness::default();
    let (rate, size) = (2000.0, 20);
    agree(Other::Wrk, Arrivals::Closed, unlike);
    let h2load = agree(Other::H2load, Arrivals::Bunched { rate, size }, unlike);
    let (theirs, ours) = h2load.bunching.unwrap();
    // Twenty timers that go off together, and twenty requests at one instant; a machine that is held up tears bunches
    // apart and joins them, but makes no even gaps of them.
    let several = |it: &Bunching| 1.0 - it.share(1);
    assert!(several(&theirs) > 0.5 && several(&ours) > 0.5, "{theirs:?} {ours:?}");
    let vegeta = Likeness { arrivals: true, work: true, place: true };
    let vegeta = agree(Other::Vegeta, Arrivals::Paced { rate }, vegeta);
    let (theirs, ours) = vegeta.bunching.unwrap();
    for it in [&theirs, &ours] {
        assert!((1000..=2001).contains(&it.requests) && it.share(1) < 1.0, "{theirs:?} {ours:?}");
    }
    // It takes minutes to build, and is not built unless it is asked for.
    if peer("oha").is_file() {
        agree(Other::Oha, Arrivals::Ticked { rate, tick: Duration::from_millis(1) }, unlike);
    }
}

/// nginx, which counts its requests itself.
struct Server {
    running: Running,
    address: SocketAddr,
    http2: SocketAddr,
    asked: std::cell::Cell<u64>,
    // One test at a time: they share the processors with what they measure.
    _alone: MutexGuard<'static, ()>,
}

impl Server {
    fn launch() -> Self {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let addresses = free_addresses("127.0.0.1", 2).unwrap();
        let (address, http2) = (addresses[0], addresses[1]);
        let program = Program {
            name: "nginx".to_owned(),
            role: "server".to_owned(),
            command: [&peer("nginx").display().to_string(), "-p", "{dir}", "-c", "{config}"]
                .map(str::to_owned)
                .into(),
            config: Some(
                CONFIG
                    .replace("LISTEN_HTTP2", &http2.to_string())
                    .replace("LISTEN", &address.to_string()),
            ),
            listens: vec![address],
        };
        let running = Running::launch(&[program], None).unwrap();
        let server =
            Self { running, address, http2, asked: std::cell::Cell::new(0), _alone: alone };
        server.requests_since_asked();
        server
    }

    fn pid(&self) -> u32 {
        self.running.pids("server")[0]
    }

    fn plan(&self) -> Plan {
        let mut plan = Plan::new(Address::Tcp(self.address).into());
        plan.connections = 20;
        plan.duration = Duration::from_secs(2);
        plan
    }

    fn load_with(&self, name: &str, words: &[&str]) -> String {
        self.load_at(name, words, &format!("http://{}/", self.address))
    }

    fn load_at(&self, name: &str, words: &[&str], url: &str) -> String {
        let output = Command::new(peer(name)).args(words).arg(url).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{text}");
        text
    }

    /// Requests that nginx has counted since this was last called; asking is not one of them.
    fn requests_since_asked(&self) -> u64 {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.write_all(b"GET /status HTTP/1.0\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let line = text.lines().skip_while(|line| !line.contains("handled")).nth(1).unwrap();
        let count: u64 = line.split_ascii_whitespace().nth(2).unwrap().parse().unwrap();
        count - self.asked.replace(count) - 1
    }
}

/// The last number before `words` in a text.
fn number_before(text: &str, words: &str) -> u64 {
    let end = text.find(words).unwrap_or_else(|| panic!("no '{words}' in {text}"));
    let start = text[..end].rfind(|c: char| !c.is_ascii_digit()).map_or(0, |at| at + 1);
    text[start..end].parse().unwrap()
}

fn peer(name: &str) -> PathBuf {
    let folder = std::env::var_os("TOWPATH_PEERS").expect("cargo xtask peers says where");
    Path::new(&folder).join(name)
}

const CONFIG: &str = "\
daemon off;
master_process off;
pid {dir}/pid;
error_log {dir}/error.log crit;
events { worker_connections 1024; }
http {
  access_log off;
  keepalive_requests 100000000;
  client_body_temp_path {dir}/b; proxy_temp_path {dir}/p; fastcgi_temp_path {dir}/f; uwsgi_temp_path {dir}/u; \
  scgi_temp_path {dir}/s;
  server {
    listen LISTEN;
    listen LISTEN_HTTP2 http2;
    location / { return 200 \"0123456789012345678901234567890123456789012345678901234567890123\"; }
    location /status { stub_status; }
  }
}
";
