//! Scripted control planes, and random ones.

use std::collections::{BTreeMap, HashMap};

use super::*;
use crate::wire::{Any, Wrapped};

#[test]
fn first_request_has_node_and_wildcard() {
    let mut stream = connected(Form::Delta);
    stream.want(Type::Cluster, Wanted::All(None), at(0));
    let request = sent_delta(&mut stream, 0);
    assert_eq!(request.node.as_deref(), Some(&b"node"[..]));
    assert!(request.resource_names_subscribe.is_empty() && request.response_nonce.is_empty());
    assert_eq!(wait(&mut stream, 0), Instant::FAR_FUTURE);
}

#[test]
fn node_is_sent_once_where_that_is_asked_for() {
    for once in [true, false] {
        let mut stream = Stream::new(Settings { node_once: once, ..settings(Form::Delta) });
        stream.want(Type::Cluster, Wanted::All(None), at(0));
        assert_eq!(stream.poll(at(0)), Output::Connect);
        stream.connected();
        assert!(sent_delta(&mut stream, 0).node.is_some());
        stream.want(Type::Listener, Wanted::All(None), at(0));
        assert_eq!(sent_delta(&mut stream, 0).node.is_none(), once);
        stream.disconnected(at(0));
        assert_eq!(stream.poll(at(60)), Output::Connect);
        stream.connected();
        assert!(sent_delta(&mut stream, 60).node.is_some());
    }
}

#[test]
fn wishes_go_out_before_the_answer_that_caused_them() {
    let mut stream = connected(Form::Delta);
    stream.want(Type::Cluster, Wanted::All(None), at(0));
    sent_delta(&mut stream, 0);
    receive_delta(&mut stream, Type::Cluster, "n1", &[("a", "1")], &[]);
    update(&mut stream, 0);
    stream.want(Type::Endpoints, named(&["a"]), at(0));
    stream.answer(Type::Cluster, &[]);
    let eds = sent_delta(&mut stream, 0);
    assert_eq!(
        (eds.type_url, eds.resource_names_subscribe),
        (Type::Endpoints.url(), vec!["a".to_owned()])
    );
    let ack = sent_delta(&mut stream, 0);
    assert_eq!((ack.type_url, &*ack.response_nonce), (Type::Cluster.url(), "n1"));
    assert!(ack.error_detail.is_none());
}

#[test]
fn state_of_the_world_refuses_with_the_version_before() {
    let mut stream = connected(Form::StateOfTheWorld);
    stream.want(Type::Cluster, Wanted::All(None), at(0));
    sent_world(&mut stream, 0);
    receive_world(&mut stream, Type::Cluster, "v1", "n1", &["a", "b"]);
    update(&mut stream, 0);
    stream.answer(Type::Cluster, &[]);
    assert_eq!(sent_world(&mut stream, 0).version_info, "v1");
    receive_world(&mut stream, Type::Cluster, "v2", "n2", &["a", "c"]);
    let taken = update(&mut stream, 0);
    assert_eq!(taken.removed, ["b"]);
    stream.answer(Type::Cluster, &[rejected("c", "x: wrong")]);
    let nack = sent_world(&mut stream, 0);
    assert_eq!((&*nack.version_info, &*nack.response_nonce), ("v1", "n2"));
    assert_eq!(nack.error_detail.map(|it| it.message).as_deref(), Some("c: x: wrong"));
    // What is good then is accepted.
    receive_world(&mut stream, Type::Cluster, "v3", "n3", &["a", "c"]);
    update(&mut stream, 0);
    stream.answer(Type::Cluster, &[]);
    let ack = sent_world(&mut stream, 0);
    assert_eq!((&*ack.version_info, &*ack.response_nonce), ("v3", "n3"));
}

#[test]
fn the_same_refusal_again_waits() {
    let mut stream = connected(Form::StateOfTheWorld);
    stream.want(Type::Cluster, Wanted::All(None), at(0));
    sent_world(&mut stream, 0);
    let mut now = at(0);
    let mut refuse = |version: &str, reason: &str| {
        let response = DiscoveryResponse {
            version_info: version.into(),
            resources: vec![any(Type::Cluster, "a")],
            type_url: Type::Cluster.url(),
            nonce: "n".into(),
        };
        let received = now;
        stream.received(encode(&response), now).expect("it is one");
        assert!(matches!(stream.poll(now), Output::Update(_)));
        stream.answer(Type::Cluster, &[rejected("a", reason)]);
        if let Output::Wait(until) = stream.poll(now) {
            now = until;
            assert!(matches!(stream.poll(now), Output::Send(_)));
        }
        (now - received).as_millis()
    };
    let waits: Vec<_> = (0..7).map(|_| refuse("1", "x: wrong")).collect();
    assert_eq!(waits, [0, 100, 200, 400, 800, 1000, 1000]);
    // Another version, or another reason, is told at once.
    assert_eq!(refuse("2", "x: wrong"), 0);
    assert_eq!(refuse("2", "y: wrong"), 0);
    assert_eq!(refuse("2", "y: wrong"), 100);
}

#[test]
fn a_refusal_that_waits_goes_with_a_new_wish_or_before_the_next_answer() {
    let mut stream = connected(Form::StateOfTheWorld);
    stream.want(Type::Routes, named(&["a"]), at(0));
    sent_world(&mut stream, 0);
    let refuse = |stream: &mut Stream, nonce: &str| {
        receive_world(stream, Type::Routes, "1", nonce, &["a"]);
        update(stream, 0);
        stream.answer(Type::Routes, &[rejected("a", "x: wrong")]);
    };
    refuse(&mut stream, "n1");
    assert_eq!(sent_world(&mut stream, 0).response_nonce, "n1");
    refuse(&mut stream, "n2");
    assert!(wait(&mut stream, 0) > at(0));
    stream.want(Type::Routes, named(&["a", "b"]), at(0));
    let request = sent_world(&mut stream, 0);
    assert_eq!((&*request.response_nonce, request.resource_names.len()), ("n2", 2));
    assert!(request.error_detail.is_some());
    refuse(&mut stream, "n3");
    assert!(wait(&mut stream, 0) > at(0));
    refuse(&mut stream, "n4");
    assert_eq!(sent_world(&mut stream, 0).response_nonce, "n3");
    // Nothing of it is left on the next connection.
    stream.disconnected(at(0));
    assert_eq!(stream.poll(at(60)), Output::Connect);
    stream.connected();
    sent_world(&mut stream, 60);
    assert_eq!(wait(&mut stream, 60), Instant::FAR_FUTURE);
}

#[test]
fn state_of_the_world_sends_all_names_each_time() {
    let mut stream = connected(Form::StateOfTheWorld);
    stream.want(Type::Routes, named(&["a"]), at(0));
    assert_eq!(sent_world(&mut stream, 0).resource_names, ["a"]);
    stream.want(Type::Routes, named(&["a", "b"]), at(0));
    assert_eq!(sent_world(&mut stream, 0).resource_names, ["a", "b"]);
    stream.want(Type::Routes, named(&[]), at(0));
    assert!(sent_world(&mut stream, 0).resource_names.is_empty());
}

#[test]
fn absence_removes_clusters_and_not_routes() {
    for (kind, wanted, gone) in
        [(Type::Cluster, Wanted::All(None), true), (Type::Routes, named(&["a", "b"]), false)]
    {
        let mut stream = connected(Form::StateOfTheWorld);
        stream.want(kind, wanted, at(0));
        sent_world(&mut stream, 0);
        receive_world(&mut stream, kind, "1", "n1", &["a", "b"]);
        update(&mut stream, 0);
        stream.answer(kind, &[]);
        sent_world(&mut stream, 0);
        receive_world(&mut stream, kind, "2", "n2", &["b"]);
        assert_eq!(update(&mut stream, 0).removed.is_empty(), !gone);
    }
}

#[test]
fn new_stream_begins_where_the_last_one_ended() {
    let mut stream = connected(Form::Delta);
    stream.want(Type::Cluster, Wanted::All(None), at(0));
    stream.want(Type::Endpoints, named(&["a", "b"]), at(0));
    sent_delta(&mut stream, 0);
    sent_delta(&mut stream, 0);
    receive_delta(&mut stream, Type::Cluster, "n1", &[("a", "1"), ("bad", "1"), ("c", "1")], &[]);
    update(&mut stream, 0);
    stream.answer(Type::Cluster, &[rejected("bad", "is bad")]);
    sent_delta(&mut stream, 0);
    receive_delta(&mut stream, Type::Cluster, "n2", &[("a", "2")], &["c"]);
    update(&mut stream, 0);
    // The acknowledgement is lost.
    stream.disconnected(at(0));
    stream.answer(Type::Cluster, &[]);
    assert_eq!(stream.poll(at(60)), Output::Connect);
    stream.connected();
    let clusters = sent_delta(&mut stream, 60);
    assert_eq!(clusters.initial_resource_versions, HashMap::from([("a".into(), "2".into())]));
    assert!(clusters.response_nonce.is_empty());
    assert_eq!(sent_delta(&mut stream, 60).resource_names_subscribe, ["a", "b"]);
    assert_eq!(wait(&mut stream, 60), Instant::FAR_FUTURE);
}

#[test]
fn delta_says_what_else_and_what_no_more() {
    let mut stream = connected(Form::Delta);
    stream.want(Type::Endpoints, named(&["a", "b"]), at(0));
    sent_delta(&mut stream, 0);
    stream.want(Type::Endpoints, named(&["b", "c"]), at(0));
    let request = sent_delta(&mut stream, 0);
    assert_eq!(request.resource_names_subscribe, ["c"]);
    assert_eq!(request.resource_names_unsubscribe, ["a"]);
    // What is not wanted is not handed on.
    receive_delta(&mut stream, Type::Endpoints, "n", &[("a", "1"), ("c", "1")], &[]);
    let taken = update(&mut stream, 0);
    assert_eq!(taken.resources.iter().map(|it| &*it.name).collect::<Vec<_>>(), ["c"]);
}

#[test]
fn name_that_is_there_twice_is_refused_alone() {
    let mut stream = connected(Form::Delta);
    stream.want(Type::Cluster, Wanted::All(None), at(0));
    sent_delta(&mut stream, 0);
    receive_delta(&mut stream, Type::Cluster, "n", &[("a", "1"), ("b", "1"), ("a", "2")], &[]);
    let taken = update(&mut stream, 0);
    assert_eq!(taken.resources.iter().map(|it| &*it.name).collect::<Vec<_>>(), ["b"]);
    stream.answer(Type::Cluster, &[]);
    let error = sent_delta(&mut stream, 0).error_detail.map(|it| it.message);
    assert_eq!(error.as_deref(), Some("a: is there twice in one response"));
}

#[test]
fn what_does_not_come_in_time_is_told_once() {
    let mut stream = Stream::new(settings(Form::Delta));
    let second = Some(Duration::from_secs(1));
    stream.want(Type::Cluster, Wanted::All(second), at(0));
    stream.want(Type::Secret, Wanted::Names(BTreeMap::from([("s".to_owned(), second)])), at(0));
    assert_eq!(stream.poll(at(0)), Output::Connect);
    let out = |kind, names: &[&str]| Output::TimedOut {
        kind,
        names: names.iter().map(|it| (*it).into()).collect(),
    };
    assert_eq!(wait(&mut stream, 0), at(1));
    assert_eq!(stream.poll(at(1)), out(Type::Cluster, &[]));
    assert_eq!(stream.poll(at(1)), out(Type::Secret, &["s"]));
    assert_eq!(wait(&mut stream, 1), Instant::FAR_FUTURE);
}

#[test]
fn resource_lives_as_long_as_its_heartbeats() {
    let mut stream = connected(Form::Delta);
    stream.want(Type::Endpoints, named(&["a"]), at(0));
    sent_delta(&mut stream, 0);
    let ttl = Some(wire::Duration { seconds: 5, nanos: 0 });
    let wrapped = |resource, version: &str| Wrapped {
        name: "a".into(),
        version: version.into(),
        resource,
        ttl,
    };
    let whole = wrapped(Some(any(Type::Endpoints, "a")), "1");
    send_delta(&mut stream, Type::Endpoints, "n1", vec![whole], &[], 0);
    update(&mut stream, 0);
    stream.answer(Type::Endpoints, &[]);
    sent_delta(&mut stream, 0);
    assert_eq!(wait(&mut stream, 0), at(5));
    send_delta(&mut stream, Type::Endpoints, "n2", vec![wrapped(None, "1")], &[], 4);
    assert!(update(&mut stream, 4).resources.is_empty());
    stream.answer(Type::Endpoints, &[]);
    sent_delta(&mut stream, 4);
    assert_eq!(wait(&mut stream, 4), at(9));
    // A heartbeat of something else is none.
    send_delta(&mut stream, Type::Endpoints, "n3", vec![wrapped(None, "2")], &[], 8);
    update(&mut stream, 8);
    stream.answer(Type::Endpoints, &[]);
    sent_delta(&mut stream, 8);
    let over = Output::Expired { kind: Type::Endpoints, names: vec!["a".into()] };
    assert_eq!(stream.poll(at(9)), over);
    assert_eq!(wait(&mut stream, 9), Instant::FAR_FUTURE);
}

#[test]
fn more_than_the_limit_is_refused_whole() {
    for form in [Form::Delta, Form::StateOfTheWorld] {
        for (max, fits) in [(3, true), (2, false)] {
            let mut stream = Stream::new(Settings { max_resources: max, ..settings(form) });
            stream.want(Type::Cluster, Wanted::All(None), at(0));
            assert_eq!(stream.poll(at(0)), Output::Connect);
            stream.connected();
            assert!(matches!(stream.poll(at(0)), Output::Send(_)));
            match form {
                Form::Delta => {
                    receive_delta(
                        &mut stream,
                        Type::Cluster,
                        "n",
                        &[("a", "1"), ("b", "1"), ("c", "1")],
                        &[],
                    );
                }
                Form::StateOfTheWorld => {
                    receive_world(&mut stream, Type::Cluster, "1", "n", &["a", "b", "c"])
                }
            }
            let taken = update(&mut stream, 0);
            assert_eq!(
                (taken.resources.len(), taken.rejected.is_empty()),
                (if fits { 3 } else { 0 }, fits)
            );
        }
    }
}

#[test]
fn what_is_no_message_ends_the_stream() {
    for form in [Form::Delta, Form::StateOfTheWorld] {
        let mut stream = connected(form);
        assert_eq!(stream.received(Bytes::from_static(b"\xff\xff\xff"), at(0)), Err(Malformed));
    }
}

#[test]
fn dead_server_is_tried_again_and_again_with_waits() {
    let mut stream = Stream::new(settings(Form::Delta));
    stream.want(Type::Cluster, Wanted::All(None), at(0));
    let (mut now, mut connects) = (at(0), 0);
    while now < at(120) {
        match stream.poll(now) {
            Output::Connect => {
                connects += 1;
                stream.disconnected(now);
            }
            Output::Wait(until) => now = until,
            output => panic!("{output:?}"),
        }
    }
    assert!((4..60).contains(&connects), "{connects}");
}

/// Whatever a control plane does: what is acknowledged is what it sent last, and a new stream says exactly what was
/// accepted.
#[test]
fn random_control_planes() {
    for seed in 0..60 {
        let mut random =
            Backoff::new(Duration::from_nanos(u64::MAX), Duration::from_nanos(u64::MAX), seed);
        let mut chance =
            |below: u64| u64::try_from(random.next_wait().as_nanos()).unwrap_or(0) % below;
        let mut stream = connected(Form::Delta);
        stream.want(Type::Cluster, Wanted::All(None), at(0));
        // What the server has, and what the client accepted of it.
        let (mut accepted, mut version): (HashMap<String, String>, u64) = (HashMap::new(), 0);
        let mut judged: VecDeque<Sent> = VecDeque::new();
        let mut expected: VecDeque<(String, bool)> = VecDeque::new();
        for step in 0..200 {
            match chance(6) {
                0 | 1 if stream.is_connected() => {
                    version += 1;
                    let names: Vec<String> =
                        (0..=chance(3)).map(|_| format!("c{}", chance(5))).collect();
                    let mut names: Vec<String> = names;
                    names.sort_unstable();
                    names.dedup();
                    let version = version.to_string();
                    let gone: Vec<String> = vec![format!("c{}", chance(5))];
                    let gone: Vec<String> =
                        gone.into_iter().filter(|it| !names.contains(it)).collect();
                    let resources: Vec<_> = names.iter().map(|name| (&**name, &*version)).collect();
                    let gone_names: Vec<&str> = gone.iter().map(|it| &**it).collect();
                    receive_delta(&mut stream, Type::Cluster, &version, &resources, &gone_names);
                    let is_good = chance(3) > 0;
                    let of = |name: &String| (name.clone(), version.clone());
                    judged.push_back((
                        version.clone(),
                        is_good,
                        names.iter().map(of).collect(),
                        gone,
                    ));
                }
                2 | 3 => {
                    if let Some((nonce, is_good, resources, gone)) = judged.pop_front() {
                        let bad =
                            resources.first().filter(|_| !is_good).map(|(name, _)| name.clone());
                        let rejected: Vec<_> =
                            bad.iter().map(|name| rejected(name, "bad")).collect();
                        stream.answer(Type::Cluster, &rejected);
                        let good =
                            resources.into_iter().filter(|(name, _)| Some(name) != bad.as_ref());
                        accepted.extend(good);
                        gone.iter().for_each(|name| drop(accepted.remove(name)));
                        if !nonce.is_empty() {
                            expected.push_back((nonce, is_good));
                        }
                    }
                }
                4 if chance(4) == 0 && stream.is_connected() => {
                    stream.disconnected(at(step));
                    expected.clear();
                    judged.iter_mut().for_each(|it| it.0.clear());
                }
                _ => {}
            }
            loop {
                match stream.poll(at(step)) {
                    Output::Connect => stream.connected(),
                    Output::Send(message) => {
                        let request = DeltaRequest::decode(message).expect("it wrote it");
                        if request.response_nonce.is_empty() {
                            assert_eq!(request.initial_resource_versions, accepted, "seed {seed}");
                        } else {
                            let (nonce, is_good) = expected.pop_front().expect("an answer is owed");
                            let is_ack = request.error_detail.is_none();
                            assert_eq!(
                                (request.response_nonce, is_ack),
                                (nonce, is_good),
                                "seed {seed}"
                            );
                        }
                    }
                    Output::Update(_) => {}
                    Output::Wait(_) => break,
                    output => panic!("seed {seed}: {output:?}"),
                }
            }
        }
    }
}

/// A response of a random control plane: its nonce, whether all of it is good, its resources, and what is gone.
type Sent = (String, bool, Vec<(String, String)>, Vec<String>);

fn settings(form: Form) -> Settings {
    let backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(30), 1);
    Settings {
        form,
        node: Bytes::from_static(b"node"),
        node_once: true,
        backoff,
        max_resources: 1000,
        limit: None,
    }
}

fn connected(form: Form) -> Stream {
    let mut stream = Stream::new(settings(form));
    stream.connected();
    stream
}

fn at(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}

fn named(names: &[&str]) -> Wanted {
    Wanted::Names(names.iter().map(|name| ((*name).to_owned(), None)).collect())
}

fn rejected(name: &str, reason: &str) -> Rejected {
    Rejected { name: name.to_owned(), reason: reason.to_owned() }
}

fn sent(stream: &mut Stream, seconds: u64) -> Bytes {
    match stream.poll(at(seconds)) {
        Output::Send(message) => message,
        output => panic!("{output:?}"),
    }
}

fn sent_delta(stream: &mut Stream, seconds: u64) -> DeltaRequest {
    DeltaRequest::decode(sent(stream, seconds)).expect("it wrote it")
}

fn sent_world(stream: &mut Stream, seconds: u64) -> DiscoveryRequest {
    DiscoveryRequest::decode(sent(stream, seconds)).expect("it wrote it")
}

fn update(stream: &mut Stream, seconds: u64) -> Update {
    match stream.poll(at(seconds)) {
        Output::Update(update) => update,
        output => panic!("{output:?}"),
    }
}

fn wait(stream: &mut Stream, seconds: u64) -> Instant {
    match stream.poll(at(seconds)) {
        Output::Wait(until) => until,
        output => panic!("{output:?}"),
    }
}

/// A resource that has nothing but a name.
fn any(kind: Type, name: &str) -> Any {
    let mut body = vec![0x0a, u8::try_from(name.len()).expect("short")];
    body.extend_from_slice(name.as_bytes());
    Any { type_url: kind.url(), value: body.into() }
}

fn receive_world(stream: &mut Stream, kind: Type, version: &str, nonce: &str, names: &[&str]) {
    let response = DiscoveryResponse {
        version_info: version.into(),
        resources: names.iter().map(|name| any(kind, name)).collect(),
        type_url: kind.url(),
        nonce: nonce.into(),
    };
    stream.received(encode(&response), at(0)).expect("it is one");
}

fn receive_delta(
    stream: &mut Stream,
    kind: Type,
    nonce: &str,
    resources: &[(&str, &str)],
    removed: &[&str],
) {
    let wrapped = |(name, version): &(&str, &str)| Wrapped {
        version: (*version).into(),
        resource: Some(any(kind, name)),
        name: (*name).into(),
        ttl: None,
    };
    send_delta(stream, kind, nonce, resources.iter().map(wrapped).collect(), removed, 0);
}

fn send_delta(
    stream: &mut Stream,
    kind: Type,
    nonce: &str,
    resources: Vec<Wrapped>,
    removed: &[&str],
    seconds: u64,
) {
    let response = DeltaResponse {
        system_version_info: String::new(),
        resources,
        type_url: kind.url(),
        nonce: nonce.into(),
        removed_resources: removed.iter().map(|name| (*name).into()).collect(),
    };
    stream.received(encode(&response), at(seconds)).expect("it is one");
}

#[test]
fn requests_wait_where_their_number_is_limited() {
    let limit = Some(Limit { tokens: 1, interval: Duration::from_secs(10) });
    let mut stream = Stream::new(Settings { limit, ..settings(Form::Delta) });
    stream.want(Type::Cluster, Wanted::All(Some(Duration::from_secs(5))), at(0));
    stream.want(Type::Secret, Wanted::Names([("a".to_owned(), None)].into()), at(0));
    assert_eq!(stream.poll(at(0)), Output::Connect);
    stream.connected();
    assert_eq!(sent_delta(&mut stream, 0).type_url, Type::Cluster.url());
    assert_eq!(stream.poll(at(0)), Output::Wait(at(5)), "other timers go on");
    assert!(matches!(stream.poll(at(5)), Output::TimedOut { kind: Type::Cluster, .. }));
    assert_eq!(stream.poll(at(5)), Output::Wait(at(10)));
    assert_eq!(sent_delta(&mut stream, 10).type_url, Type::Secret.url());
    assert_eq!(stream.held_up(), 1);
}

#[test]
fn a_collection_is_asked_for_by_its_name_and_has_what_is_in_it() {
    const CLUSTERS: &str = "xdstp://a/envoy.config.cluster.v3.Cluster";
    let [one, two] = ["one", "two"].map(|name| format!("{CLUSTERS}/x/{name}?a=1&b=2"));
    let mut stream = connected(Form::Delta);
    let wanted =
        Wanted::Collection(format!("{CLUSTERS}/x/*?b=2&a=1"), Some(Duration::from_secs(9)));
    stream.want(Type::Cluster, wanted.clone(), at(0));
    let request = sent_delta(&mut stream, 0);
    assert_eq!(request.resource_names_subscribe, [format!("{CLUSTERS}/x/*?a=1&b=2")]);
    // The same wish is no other, and has the time that it had.
    stream.want(Type::Cluster, wanted, at(5));
    assert_eq!(wait(&mut stream, 0), at(9));
    let other = format!("{CLUSTERS}/y/one?a=1&b=2");
    let swapped = format!("{CLUSTERS}/x/two?b=2&a=1");
    let all = [(&*one, "1"), (&*swapped, "1"), (&*other, "1"), ("plain", "1")];
    receive_delta(&mut stream, Type::Cluster, "n1", &all, &[]);
    let taken = update(&mut stream, 0);
    assert_eq!(taken.resources.iter().map(|it| &*it.name).collect::<Vec<_>>(), [&*one, &*two]);
    stream.answer(Type::Cluster, &[]);
    assert_eq!(sent_delta(&mut stream, 0).response_nonce, "n1");
    receive_delta(&mut stream, Type::Cluster, "n2", &[], &[&swapped]);
    assert_eq!(update(&mut stream, 0).removed, [&*two]);
    stream.answer(Type::Cluster, &[]);
    // A new stream says what is here.
    stream.disconnected(at(0));
    assert_eq!(stream.poll(at(60)), Output::Connect);
    stream.connected();
    let again = sent_delta(&mut stream, 60);
    assert_eq!(again.resource_names_subscribe, [format!("{CLUSTERS}/x/*?a=1&b=2")]);
    assert_eq!(again.initial_resource_versions, HashMap::from([(one, "1".into())]));
    // Another collection is another wish.
    stream.want(Type::Cluster, Wanted::Collection(format!("{CLUSTERS}/y/*"), None), at(60));
    let request = sent_delta(&mut stream, 60);
    assert_eq!(request.resource_names_subscribe, [format!("{CLUSTERS}/y/*")]);
    assert_eq!(request.resource_names_unsubscribe, [format!("{CLUSTERS}/x/*?a=1&b=2")]);
}

#[test]
fn a_name_is_asked_for_in_one_way_and_told_as_it_was_written() {
    const ENDPOINTS: &str = "xdstp://a/envoy.config.endpoint.v3.ClusterLoadAssignment";
    let [raw, sorted] = ["b=2&a=1", "a=1&b=2"].map(|query| format!("{ENDPOINTS}/x?{query}"));
    for form in [Form::Delta, Form::StateOfTheWorld] {
        let mut stream = connected(form);
        stream.want(Type::Endpoints, named(&[&raw, "plain"]), at(0));
        if form == Form::Delta {
            assert_eq!(sent_delta(&mut stream, 0).resource_names_subscribe, ["plain", &*sorted]);
            receive_delta(&mut stream, Type::Endpoints, "n1", &[(&sorted, "1")], &[]);
        } else {
            assert_eq!(sent_world(&mut stream, 0).resource_names, ["plain", &*sorted]);
            receive_world(&mut stream, Type::Endpoints, "1", "n1", &[&sorted]);
        }
        let taken = update(&mut stream, 0);
        assert_eq!(taken.resources.iter().map(|it| &*it.name).collect::<Vec<_>>(), [&*raw]);
        stream.answer(Type::Endpoints, &[rejected(&raw, "is bad")]);
        if form == Form::Delta {
            let error = sent_delta(&mut stream, 0).error_detail.map(|it| it.message);
            assert_eq!(error, Some(format!("{raw}: is bad")));
            stream.disconnected(at(0));
            assert_eq!(stream.poll(at(60)), Output::Connect);
            stream.connected();
            // What was refused is not here.
            assert!(sent_delta(&mut stream, 60).initial_resource_versions.is_empty());
        }
    }
}
