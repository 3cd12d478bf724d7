//! SIGTERM under load: who has asked is answered, and the program ends by itself; then it starts again in the
//! same place.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use crate::common::{Proxy, bootstrap, origin};
use crate::load::{Habit, Load};

#[test]
fn a_drain_loses_no_request() {
    for (habit, clients) in [(Habit::KeepAlive, 16), (Habit::Fresh, 32)] {
        for round in 0..4 {
            let mut proxy = Proxy::start(&bootstrap(origin(Duration::ZERO)), &[]);
            let load = Load::start(&proxy.listener("ingress"), clients, habit);
            std::thread::sleep(Duration::from_millis(150));
            proxy.signal("TERM");
            let start = Instant::now();
            assert!(proxy.wait().success());
            let took = start.elapsed();
            let tally = load.stop();
            eprintln!("{habit:?} {round}: ended after {took:?}, {tally:?}");
            assert!(tally.count(200) > 0, "{tally:?}");
            assert_eq!(tally.answered(), tally.count(200), "{habit:?}: {tally:?}");
            let lost = (tally.hung, tally.broken, tally.unaccepted);
            assert_eq!(lost, (0, 0, 0), "{habit:?}: {tally:?}");
            assert!(took < Duration::from_secs(5), "{took:?}");
        }
    }
}

#[test]
fn it_starts_again_where_it_was() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let fixed = format!(
        "name: ingress\n    traffic_direction: INBOUND\n    address: \
         {{ socket_address: {{ address: 127.0.0.1, port_value: {port} }} }}"
    );
    let config = bootstrap(origin(Duration::ZERO)).replace(
        "name: ingress\n    traffic_direction: INBOUND\n    address: \
         { socket_address: { address: 127.0.0.1, port_value: 0 } }",
        &fixed,
    );
    assert!(config.contains(&fixed));
    let listener = format!("127.0.0.1:{port}");
    let load = {
        let mut first = Proxy::start(&config, &[]);
        let load = Load::start(&listener, 8, Habit::KeepAlive);
        std::thread::sleep(Duration::from_millis(100));
        first.signal("TERM");
        assert!(first.wait().success());
        load
    };
    let second = Proxy::start(&config, &[]);
    std::thread::sleep(Duration::from_millis(300));
    let tally = load.stop();
    eprintln!("restarted: {tally:?}");
    // While nothing listens connects are refused; nothing that was asked is lost.
    assert_eq!(tally.answered(), tally.count(200), "{tally:?}");
    assert_eq!((tally.hung, tally.broken, tally.unaccepted), (0, 0, 0), "{tally:?}");
    assert!(second.stat("http.ingress.downstream_rq_2xx") > Some(0));
}
