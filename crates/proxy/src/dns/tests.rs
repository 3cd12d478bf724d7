use std::net::UdpSocket;
use std::sync::Mutex;

use towpath_engine::snapshot::cluster::Family;
use towpath_engine::snapshot::dns::DnsOptions;
use towpath_engine::snapshot::happy_eyeballs::HappyEyeballs;

use super::*;

#[test]
fn every_address_of_every_name_is_a_host_of_a_strict_cluster() {
    run(async {
        let server = Server::start();
        server.say("one.example.", Say::Addresses(vec![[10, 0, 0, 1], [10, 0, 0, 2]]));
        server.say("two.example.", Say::Addresses(vec![[10, 0, 0, 2], [10, 0, 0, 3]]));
        let (watcher, _updates) = watch(&server, &["one.example", "two.example"], false);
        assert!(watcher.warmed(BOUND).await);
        assert_eq!(addresses(&watcher), ["10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"]);
        let first = watcher.endpoints(ID).unwrap()[0].clone();
        assert_eq!((&*first.hostname, first.weight, first.priority), ("one.example", 7, 3));
        assert_eq!(watcher.names(), 2);
        assert_eq!(watcher.unready(), Vec::<Arc<str>>::new());
    });
}

#[test]
fn a_logical_cluster_has_the_first_address() {
    run(async {
        let server = Server::start();
        server.say("one.example.", Say::Addresses(vec![[10, 0, 0, 9], [10, 0, 0, 2]]));
        let (watcher, _updates) = watch(&server, &["one.example"], true);
        assert!(watcher.warmed(BOUND).await);
        assert_eq!(addresses(&watcher), ["10.0.0.9:80"]);
    });
}

#[test]
fn changes_are_told_and_repetitions_are_not() {
    run(async {
        let server = Server::start();
        server.say("one.example.", Say::Addresses(vec![[10, 0, 0, 1]]));
        let (watcher, mut updates) = watch(&server, &["one.example"], false);
        assert_eq!(told(updates.recv().await), ["10.0.0.1:80"]);
        let counts = watcher.clusters.borrow()[&ID].cluster.stats.clone();
        until(|| counts.update_no_rebuild.value() >= 3).await;
        assert!(updates.try_recv().is_err());
        server.say("one.example.", Say::Addresses(vec![[10, 0, 0, 2], [10, 0, 0, 1]]));
        assert_eq!(told(updates.recv().await), ["10.0.0.2:80", "10.0.0.1:80"]);
        assert_eq!(counts.update_failure.value(), 0);
        assert!(counts.update_attempt.value() >= counts.update_success.value());
    });
}

#[test]
fn a_failed_lookup_keeps_the_old_answer() {
    run(async {
        let server = Server::start();
        server.say("one.example.", Say::Addresses(vec![[10, 0, 0, 1]]));
        let (watcher, mut updates) = watch(&server, &["one.example"], false);
        assert_eq!(told(updates.recv().await), ["10.0.0.1:80"]);
        server.say("one.example.", Say::Failure);
        let counts = watcher.clusters.borrow()[&ID].cluster.stats.clone();
        until(|| counts.update_failure.value() >= 2).await;
        assert!(updates.try_recv().is_err());
        assert_eq!(addresses(&watcher), ["10.0.0.1:80"]);
    });
}

#[test]
fn a_name_that_is_gone_empties_a_strict_cluster_only() {
    run(async {
        let server = Server::start();
        server.say("one.example.", Say::Addresses(vec![[10, 0, 0, 1]]));
        let (strict, mut updates) = watch(&server, &["one.example"], false);
        let (logical, _updates) = watch(&server, &["one.example"], true);
        assert!(logical.warmed(BOUND).await);
        assert_eq!(told(updates.recv().await), ["10.0.0.1:80"]);
        server.say("one.example.", Say::NoSuchName);
        assert_eq!(told(updates.recv().await), Vec::<String>::new());
        let counts = logical.clusters.borrow()[&ID].cluster.stats.clone();
        until(|| counts.update_failure.value() >= 1).await;
        assert_eq!(addresses(&logical), ["10.0.0.1:80"]);
        assert_eq!(strict.clusters.borrow()[&ID].cluster.stats.update_failure.value(), 0);
    });
}

#[test]
fn a_silent_server_does_not_hold_the_start_up_for_ever() {
    run(async {
        let server = Server::start();
        server.say("one.example.", Say::Nothing);
        let (watcher, _updates) = watch(&server, &["one.example"], false);
        assert!(!watcher.warmed(Duration::from_millis(100)).await);
        assert_eq!(watcher.unready(), [Arc::from("one.example")]);
        assert_eq!(addresses(&watcher), Vec::<String>::new());
    });
}

#[test]
fn a_server_that_refuses_is_not_waited_for() {
    run(async {
        let server = Server::start();
        // Nothing receives at this address: the kernel answers each query with "port unreachable".
        let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
        let absent = Server { address: taken.local_addr().unwrap(), answers: server.answers };
        drop(taken);
        let (watcher, _updates) = watch(&absent, &["one.example"], false);
        // A server that is silent is given up after 5 s and more.
        assert!(watcher.warmed(Duration::from_secs(4)).await);
        let counts = watcher.clusters.borrow()[&ID].cluster.stats.clone();
        assert!(counts.update_failure.value() >= 1);
        assert_eq!(addresses(&watcher), Vec::<String>::new());
    });
}

#[test]
fn other_names_take_the_place_of_those_before_when_all_were_looked_up() {
    run(async {
        let server = Server::start();
        server.say("one.example.", Say::Addresses(vec![[10, 0, 0, 1]]));
        server.say("two.example.", Say::Addresses(vec![[10, 0, 0, 2]]));
        server.say("three.example.", Say::Nothing);
        let registry = Registry::new();
        let (updates, mut told_of) = mpsc::unbounded_channel();
        let watcher =
            Watcher::start(vec![cluster(&server, &["one.example"], false)], &registry, &updates);
        assert_eq!(told(told_of.recv().await), ["10.0.0.1:80"]);
        watcher.update(vec![cluster(&server, &["two.example", "three.example"], false)], &registry);
        let counts = watcher.clusters.borrow()[&ID].cluster.clone();
        until(|| counts.answered.borrow()[0]).await;
        assert_eq!(addresses(&watcher), ["10.0.0.1:80"]);
        assert!(told_of.try_recv().is_err());
        server.say("three.example.", Say::NoSuchName);
        assert_eq!(told(told_of.recv().await), ["10.0.0.2:80"]);
        assert_eq!(addresses(&watcher), ["10.0.0.2:80"]);
    });
}

#[test]
fn an_address_needs_no_server() {
    run(async {
        let server = Server::start();
        let both = ["192.0.2.7:80", "[2001:db8::1]:80"];
        // As in Envoy, one of another family than is wanted is none.
        for (family, found) in [(Family::All, &both[..]), (Family::V4Only, &both[..1])] {
            let mut cluster = cluster(&server, &["192.0.2.7", "[2001:db8::1]"], false);
            cluster.dns.family = family;
            let (sender, _updates) = mpsc::unbounded_channel();
            let watcher = Watcher::start(vec![cluster], &Registry::new(), &sender);
            assert!(watcher.warmed(BOUND).await);
            assert_eq!(addresses(&watcher), found, "{family:?}");
        }
    });
}

#[test]
fn back_off_doubles_within_its_bounds() {
    let (base, most) = (Duration::from_millis(100), Duration::from_millis(350));
    let mut backoff = Backoff::new(Some((base, most)));
    for whole in [100, 200, 350, 350] {
        let pause = backoff.next(Duration::ZERO);
        let whole = Duration::from_millis(whole);
        assert!(pause >= whole / 2 && pause <= whole, "{pause:?} of {whole:?}");
    }
    backoff.reset();
    assert!(backoff.next(Duration::ZERO) <= base);
    assert_eq!(Backoff::new(None).next(Duration::from_secs(5)), Duration::from_secs(5));
    assert_eq!(jitter(Duration::ZERO), Duration::ZERO);
}

const ID: ClusterId = ClusterId(4);
const BOUND: Duration = Duration::from_secs(10);

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async { tokio::time::timeout(3 * BOUND, test).await.unwrap() });
}

async fn until(holds: impl Fn() -> bool) {
    while !holds() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn watch(
    server: &Server,
    names: &[&str],
    logical: bool,
) -> (Watcher, mpsc::UnboundedReceiver<Update>) {
    let (sender, updates) = mpsc::unbounded_channel();
    let cluster = cluster(server, names, logical);
    (Watcher::start(vec![cluster], &Registry::new(), &sender), updates)
}

fn cluster(server: &Server, names: &[&str], logical: bool) -> DnsCluster {
    let template = Endpoint { weight: 7, priority: 3, ..Endpoint::new(Address::unspecified()) };
    let names = names
        .iter()
        .map(|name| DnsName { name: Arc::from(*name), port: 80, template: template.clone() })
        .collect();
    let dns = Dns {
        logical,
        names,
        refresh: Duration::from_millis(20),
        failure_refresh: None,
        respect_ttl: false,
        jitter: Duration::ZERO,
        family: Family::V4Only,
        eyeballs: HappyEyeballs::default(),
        least_refresh: Duration::ZERO,
        resolver: DnsOptions::of(vec![server.address]),
    };
    DnsCluster { id: ID, name: Arc::from("c"), stat_name: Arc::from("c"), dns }
}

fn addresses(watcher: &Watcher) -> Vec<String> {
    watcher.endpoints(ID).unwrap().iter().map(|endpoint| endpoint.address.to_string()).collect()
}

fn told(update: Option<Update>) -> Vec<String> {
    update.unwrap().endpoints.iter().map(|endpoint| endpoint.address.to_string()).collect()
}

#[derive(Clone)]
enum Say {
    Addresses(Vec<[u8; 4]>),
    NoSuchName,
    Failure,
    Nothing,
}

/// A name server that says what it is told to.
struct Server {
    address: SocketAddr,
    answers: Arc<Mutex<HashMap<String, Say>>>,
}

impl Server {
    fn start() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let answers: Arc<Mutex<HashMap<String, Say>>> = Arc::default();
        let known = answers.clone();
        std::thread::spawn(move || {
            let mut packet = [0; 1024];
            while let Ok((length, peer)) = socket.recv_from(&mut packet) {
                let say = known
                    .lock()
                    .unwrap()
                    .get(&question(&packet))
                    .cloned()
                    .unwrap_or(Say::NoSuchName);
                if let Some(answer) = respond(&packet[..length], &say) {
                    socket.send_to(&answer, peer).unwrap();
                }
            }
        });
        Self { address, answers }
    }

    fn say(&self, name: &str, say: Say) {
        self.answers.lock().unwrap().insert(name.into(), say);
    }
}

/// The name in a query's question, RFC 1035 §4.1.2.
fn question(packet: &[u8]) -> String {
    let (mut name, mut at) = (String::new(), 12);
    while packet[at] != 0 {
        let end = at + 1 + usize::from(packet[at]);
        name.push_str(&String::from_utf8_lossy(&packet[at + 1..end]).to_lowercase());
        name.push('.');
        at = end;
    }
    name
}

fn respond(query: &[u8], say: &Say) -> Option<Vec<u8>> {
    let (code, addresses) = match say {
        Say::Addresses(addresses) => (0, addresses.as_slice()),
        Say::NoSuchName => (3, &[][..]),
        Say::Failure => (2, &[][..]),
        Say::Nothing => return None,
    };
    let question_end = 12 + query[12..].iter().position(|byte| *byte == 0)? + 5;
    let mut answer = query[..2].to_vec();
    answer.extend([0x81, 0x80 | code, 0, 1, 0, u8::try_from(addresses.len()).ok()?, 0, 0, 0, 0]);
    answer.extend(&query[12..question_end]);
    for address in addresses {
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 30, 0, 4]);
        answer.extend(address);
    }
    Some(answer)
}
