//! Several agents carry out one plan, and what they count is one report.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::Duration;

use towpath_lab::load::agents::{Agent, run};
use towpath_lab::load::{Arrivals, Entry, LoadError, Plan, Request};
use towpath_lab::origin::{Origin, Running, spawn};

fn agents(count: usize) -> (Vec<Agent>, Vec<String>) {
    let agents: Vec<Agent> =
        (0..count).map(|_| Agent::spawn("127.0.0.1:0".parse().unwrap()).unwrap()).collect();
    let addresses = agents.iter().map(|agent| agent.address().to_string()).collect();
    (agents, addresses)
}

fn origin() -> Running {
    spawn(&Origin::http("127.0.0.1:0".parse().unwrap(), 100)).unwrap()
}

fn plan(server: &Running) -> Plan {
    let mut plan = Plan::new(server.address().clone().into());
    (plan.duration, plan.connections) = (Duration::from_millis(500), 10);
    plan
}

fn why(error: LoadError) -> String {
    let LoadError::Agent { why, .. } = error else { panic!("{error}") };
    why
}

#[test]
fn the_schedule_is_divided_and_every_answer_is_in_the_report_once() {
    let (_agents, addresses) = agents(3);
    let starts: Vec<Duration> = (0..500).map(Duration::from_millis).collect();
    for arrivals in [
        Arrivals::Paced { rate: 1000.0 },
        Arrivals::Bunched { rate: 1000.0, size: 10 },
        Arrivals::PerConnection { per_connection_rate: 100.0 },
        Arrivals::Recorded { starts },
        Arrivals::Closed,
    ] {
        let server = origin();
        let mut plan = plan(&server);
        (plan.threads, plan.pids) = (2, vec![std::process::id()]);
        plan.arrivals = arrivals.clone();
        let mut glimpses = 0;
        let outcome = run(&plan, &addresses, Some(&mut |_| glimpses += 1)).unwrap();
        let name = outcome.arrivals;
        assert_eq!(outcome.errors.total(), 0, "{name}: {:?}", outcome.errors);
        assert_eq!((outcome.connections, outcome.connections_wanted), (10, 10), "{name}");
        if arrivals != Arrivals::Closed {
            assert_eq!(outcome.sent, 500, "{name}");
        }
        assert_eq!(server.served(), outcome.sent, "{name}");
        assert_eq!(
            (outcome.latency.count(), outcome.service.count()),
            (outcome.sent, outcome.sent)
        );
        assert_eq!(outcome.agents.len(), 3);
        assert_eq!(outcome.agents.iter().map(|it| it.answered).sum::<u64>(), outcome.answered);
        assert!(outcome.agents.iter().all(|it| it.answered > 0), "{name}: {:?}", outcome.agents);
        let target = outcome.target.unwrap();
        assert_eq!(target.answered, outcome.answered, "the cost is for all answers");
        assert!(target.cost.cpu_ns > 0, "the processes are of this machine");
        // All read one clock here, so whatever they seem to differ by is the reading's error.
        for it in &outcome.agents {
            assert!(
                it.clock_drift_ns.unsigned_abs() <= 2_000_000 + 2 * it.clock_error_ns,
                "{it:?}"
            );
        }
        assert!(glimpses > 0 || name != "closed");
    }
}

#[test]
fn several_requests_travel_with_the_plan() {
    let (_agents, addresses) = agents(2);
    let server = origin();
    let request = Request { body: b"{\"id\": {number}}".to_vec(), ..Request::default() };
    let mut wrong = Entry { name: "wrong".to_owned(), weight: 1, ..Entry::default() };
    wrong.check.status = Some(404);
    let mut plan = plan(&server);
    plan.arrivals = Arrivals::Paced { rate: 400.0 };
    plan.mix =
        vec![Entry { name: "order".to_owned(), weight: 1, request, ..Entry::default() }, wrong];
    let outcome = run(&plan, &addresses, None).unwrap();
    assert_eq!(outcome.sent, 200);
    let [order, wrong] = &outcome.entries[..] else { panic!("{:?}", outcome.entries) };
    assert_eq!(order.latency.count() + wrong.errors, 200, "{:?}", outcome.entries);
    assert_eq!((order.errors, outcome.errors.of("status")), (0, wrong.errors));
}

#[test]
fn an_agent_that_fails_ends_the_run_and_is_named() {
    let server = origin();
    let (busy, mut addresses) = agents(1);
    // It waits for its order.
    let holder = TcpStream::connect(busy[0].address()).unwrap();
    let mut hello = String::new();
    BufReader::new(&holder).read_line(&mut hello).unwrap();
    assert!(hello.contains("Hello"), "{hello}");
    let error = run(&plan(&server), &addresses, None).unwrap_err();
    assert_eq!(why(error), "is busy with another load");
    drop(holder);
    // One that is of another version, one that talks nonsense, one that hangs up, one that is not there.
    for (answer, expected) in [
        ("{\"Hello\":{\"version\":\"0.0.1\",\"machine\":\"\"}}\n", "is version 0.0.1"),
        ("HTTP/1.1 400 Bad Request\r\n\r\n", "no `towpath lab agent` answers there (expected"),
        ("", "no `towpath lab agent` answers there (hung up)"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let answering = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
        });
        let error = why(run(&plan(&server), &[address], None).unwrap_err());
        answering.join().unwrap();
        assert!(error.contains(expected), "{error}");
    }
    // Nothing listens there, and nothing else can be given it: a connection has it.
    let open = TcpListener::bind("127.0.0.1:0").unwrap();
    let connected = TcpStream::connect(open.local_addr().unwrap()).unwrap();
    let gone = connected.local_addr().unwrap();
    addresses = vec![gone.to_string()];
    assert!(why(run(&plan(&server), &addresses, None).unwrap_err()).contains("refused"));
    // The target is not there.
    let (_agents, addresses) = agents(2);
    let mut nowhere = plan(&server);
    nowhere.target.address = towpath_lab::address::Address::Tcp(gone);
    assert!(why(run(&nowhere, &addresses, None).unwrap_err()).contains("cannot connect"));
    // More agents than connections, or none.
    let mut few = plan(&server);
    few.connections = 1;
    for addresses in [&addresses[..], &[]] {
        assert!(matches!(run(&few, addresses, None), Err(LoadError::Plan(_))));
    }
    assert_eq!(server.served(), 0);
}

#[test]
fn an_agent_stops_when_the_one_who_asked_is_gone() {
    let server = origin();
    let (agents, _) = agents(1);
    let mut plan = plan(&server);
    plan.duration = Duration::from_secs(3600);
    let mut stream = TcpStream::connect(agents[0].address()).unwrap();
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().contains("Hello"));
    let order = serde_json::json!({ "Prepare": plan });
    writeln!(stream, "{order}").unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "\"Ready\"");
    writeln!(stream, "{{\"Start\":{{\"at_ns\":0}}}}").unwrap();
    assert!(lines.next().unwrap().unwrap().contains("Progress"));
    stream.shutdown(Shutdown::Write).unwrap();
    // It hangs up, which it does only when the hour's load has ended.
    let last = lines.map_while(Result::ok).last().unwrap();
    assert!(last.contains("Failed"), "{last}");
}
