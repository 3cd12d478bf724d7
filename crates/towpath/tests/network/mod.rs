//! What the kernel tells of the network, in a network namespace that the test makes: interfaces, addresses and routes
//! come and go.

use std::process::Command;
use std::time::{Duration, Instant};

use towpath::{Engine, Error, Report};
use towpath_engine::local::message::Error as Failed;

use crate::server::{Server, answer, read_request};

#[cfg(all(target_os = "linux", not(feature = "portable")))]
#[test]
fn the_kernel_s_word_on_the_network_is_followed() {
    let permitted =
        Command::new("unshare").args(["--map-root-user", "--net", "ip", "link"]).output();
    if !permitted.as_ref().is_ok_and(|output| output.status.success()) {
        let why = format!("no network namespace, or no iproute2: {permitted:?}");
        assert!(std::env::var_os("CI").is_none(), "CI promises both: {why}");
        eprintln!("not tested here: {why}");
        return;
    }
    let test = ["--exact", "network::what_happens_in_a_namespace", "--nocapture"];
    let status = Command::new("unshare")
        .args(["--map-root-user", "--net"])
        .arg(std::env::current_exe().unwrap())
        .args(test)
        .env(INSIDE, "yes")
        .status()
        .unwrap();
    assert!(status.success());
}

/// What the test above runs in a namespace of its own; nothing by itself.
#[test]
fn what_happens_in_a_namespace() {
    if std::env::var(INSIDE).is_err() {
        return;
    }
    ip("link set lo up");
    let server = Server::anywhere(|stream, _| {
        while read_request(stream).is_some() {
            answer(stream, "200 OK", "", b"");
        }
    });
    let port = server.address.port();
    let (here, there) = (format!("http://127.0.0.1:{port}/"), format!("http://10.7.0.1:{port}/"));
    let engine = Engine::builder().watch_network().start().unwrap();
    // There is nothing but this machine.
    assert_eq!(get(&engine, &there).unwrap_err(), Error::from(Failed::Offline));
    assert_eq!(&*get(&engine, &here).unwrap().network, "");
    assert!(!get(&engine, &here).unwrap().tries.is_empty());
    // A request that waits for a network is answered when there is one.
    let waiting = engine.client().get(&there).wait_for_network().timeout(PATIENCE);
    let waiting = std::thread::spawn(move || waiting.send().unwrap().status());
    ip("link add e0 type veth peer name e1");
    ip("link set e0 up");
    ip("link set e1 up");
    ip("address add 10.7.0.1/24 dev e0");
    assert_eq!(waiting.join().unwrap(), 200);
    wait_for_label(&engine, &here, "e0");
    ip("route add default via 10.7.0.254");
    wait_for_label(&engine, &here, "e0 10.7.0.254");
    ip("route replace default via 10.7.0.253");
    wait_for_label(&engine, &here, "e0 10.7.0.253");
    assert!(get(&engine, &here).unwrap().tries[0].reused, "this machine is not concerned");
    assert!(get(&engine, &there).is_ok());
    wait_for_sleep(&engine);
    // With its address the interface loses its routes.
    ip("address del 10.7.0.1/24 dev e0");
    wait_for_label(&engine, &here, "");
    assert_eq!(get(&engine, &there).unwrap_err(), Error::from(Failed::Offline));
    assert!(get(&engine, &here).is_ok());
    ip("address add 10.7.0.1/24 dev e0");
    ip("route add default via 10.7.0.253");
    wait_for_label(&engine, &here, "e0 10.7.0.253");
    // A cable that is pulled at the other end.
    ip("link set e1 down");
    wait_for_label(&engine, &here, "");
    drop(engine);
    until_nothing_watches();
    // By default the kernel tells of changes, and not that there is no network.
    let engine = Engine::new().unwrap();
    let quick = engine.client().get("http://10.9.9.9/").timeout(Duration::from_millis(300));
    assert_ne!(quick.send().unwrap_err(), Error::from(Failed::Offline));
    ip("link set e1 up");
    wait_for_label(&engine, &here, "e0 10.7.0.253");
    // Until the app has told.
    engine.network_changed("home", towpath::NetworkKind::Fixed, true).unwrap();
    ip("route del default");
    until_nothing_watches();
    assert_eq!(&*get(&engine, &here).unwrap().network, "home");
    drop(engine);
    let _engine = Engine::builder().no_watch_network().start().unwrap();
    assert_eq!(watching_thread(), None);
}

fn until_nothing_watches() {
    let began = Instant::now();
    while watching_thread().is_some() {
        assert!(began.elapsed() < PATIENCE, "its thread ends with the engine");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn get(engine: &Engine, url: &str) -> Result<Report, Error> {
    let mut response = engine.client().get(url).send()?;
    response.body().bytes(100)?;
    Ok(response.body().report().unwrap().clone())
}

fn wait_for_label(engine: &Engine, url: &str, label: &str) {
    let began = Instant::now();
    loop {
        let network = get(engine, url).unwrap().network;
        if &*network == label {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{network:?} is not {label:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Until nothing wakes up for a while: the kernel itself has something to tell of new interfaces for some seconds.
fn wait_for_sleep(engine: &Engine) {
    let began = Instant::now();
    loop {
        let before = (switches(), engine.wakeups());
        std::thread::sleep(Duration::from_millis(300));
        if (switches(), engine.wakeups()) == before {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "it never sleeps");
    }
}

fn ip(words: &str) {
    let output = Command::new("ip").args(words.split(' ')).output().unwrap();
    assert!(output.status.success(), "{words}: {output:?}");
}

/// How often the watching thread has gone to sleep.
fn switches() -> String {
    let task = watching_thread().unwrap();
    let status = std::fs::read_to_string(task.join("status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches"));
    line.unwrap().to_owned()
}

fn watching_thread() -> Option<std::path::PathBuf> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let mut tasks = tasks.map(|task| task.unwrap().path());
    // Names of threads are cut at 15 bytes.
    tasks.find(|task| {
        std::fs::read_to_string(task.join("comm")).is_ok_and(|name| name == "towpath-network\n")
    })
}

const INSIDE: &str = "TOWPATH_TEST_NAMESPACE";
const PATIENCE: Duration = Duration::from_secs(60);
