//! Clients of Bolt when the proxy goes away.

use super::*;
use towpath_engine::message::{Drain, FromWorker};

#[test]
fn a_drain_answers_every_call_that_it_took_and_takes_no_more() {
    for_each_seed(30, |seed| {
        let mut story = Story::new(seed, Setting { hosts: 2, ..Setting::default() });
        let delay = Duration::from_millis(20);
        let origins = story.origins(2, Habits { delay, ..Habits::default() });
        // So many that none of them is ever without a call.
        let endings = story.clients(4, 5000);
        story.run(Duration::from_millis(300));
        drain(&mut story, None);
        story.run(Duration::from_secs(5));
        assert!(is_drained(&mut story), "busy clients do not hold it up");
        let (endings, seen) = (endings.borrow(), origins.seen.borrow());
        assert!(seen.times.len() > 100 && seen.times.len() < 20_000, "{}", seen.times.len());
        for id in seen.times.keys() {
            assert_eq!(endings[id], Ending::Answered(Status::SUCCESS), "{id}");
        }
        assert_eq!(story.number("http.rpc.downstream_rq_active"), 0);
        assert_eq!(story.number("http.rpc.downstream_cx_active"), 0);
    });
}

#[test]
fn a_client_that_understands_is_told_at_once_and_has_time_to_go() {
    let mut story = Story::new(1, Setting { go_away: true, ..Setting::default() });
    story.origins(1, Habits { delay: Duration::from_millis(300), ..Habits::default() });
    let (busy, idle) = (Rc::default(), Rc::default());
    story.world.add(sender(BOLT, written(&call(7)), &busy));
    story.world.add(sender(BOLT, Bytes::new(), &idle));
    story.run(Duration::from_millis(100));
    drain(&mut story, None);
    story.run(Duration::from_secs(5));
    let seen = frames(&busy);
    let sorts: Vec<_> = seen.iter().map(|frame| (frame.kind(), frame.command())).collect();
    assert_eq!(sorts, [(Kind::Request, Command::GoAway), (Kind::Response, Command::Rpc)]);
    assert_eq!((seen[1].id(), seen[1].status()), (7, Some(Status::SUCCESS)));
    let idle: Vec<Command> = frames(&idle).iter().map(bolt::Frame::command).collect();
    assert_eq!(idle, [Command::GoAway]);
    assert_eq!(story.number("bolt.rpc.downstream_go_aways"), 2);
    assert!(is_drained(&mut story));
}

#[test]
fn a_client_that_does_not_understand_is_told_nothing_that_it_could_stumble_over() {
    let mut story = Story::new(1, Setting::default());
    story.origins(1, Habits { delay: Duration::from_millis(300), ..Habits::default() });
    let received = Rc::default();
    story.world.add(sender(BOLT, written(&call(7)), &received));
    story.run(Duration::from_millis(100));
    drain(&mut story, None);
    story.run(Duration::from_secs(5));
    let seen: Vec<_> = frames(&received).iter().map(bolt::Frame::command).collect();
    assert_eq!(seen, [Command::Rpc]);
    assert!(is_drained(&mut story));
}

#[test]
fn calls_that_the_deadline_of_a_drain_ends_are_told_so() {
    let mut story = Story::new(1, Setting::default());
    story.origins(1, Habits { drop_every: 1, ..Habits::default() });
    let received = Rc::default();
    let both = [written(&call(7)), written(&call(8))].concat();
    story.world.add(sender(BOLT, both.into(), &received));
    story.run(Duration::from_millis(100));
    drain(&mut story, Some(Duration::from_secs(2)));
    story.run(Duration::from_secs(5));
    let told: HashSet<_> =
        frames(&received).iter().map(|frame| (frame.id(), frame.status().unwrap())).collect();
    assert_eq!(told, [(7, Status::CONNECTION_CLOSED), (8, Status::CONNECTION_CLOSED)].into());
    assert!(is_drained(&mut story));
}

#[test]
fn pipelined_calls_above_the_limit_are_taken_one_by_one() {
    let mut story = Story::new(1, Setting { client_in_flight: 1, ..Setting::default() });
    story.origins(1, Habits::default());
    let received = Rc::default();
    let all: Vec<Bytes> = (1..=5).map(|number| written(&call(number))).collect();
    story.world.add(sender(BOLT, all.concat().into(), &received));
    story.run(Duration::from_secs(1));
    let numbers: Vec<u32> = frames(&received).iter().map(bolt::Frame::id).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5]);
}

fn drain(story: &mut Story, deadline: Option<Duration>) {
    let drain = Drain::at_once(deadline);
    story.world.send(story.worker, Message::To(ToWorker::Drain(drain)));
}

fn is_drained(story: &mut Story) -> bool {
    let messages = story.world.take_messages(story.worker);
    messages.iter().any(|(_, message)| matches!(message, Message::From(FromWorker::Drained)))
}

fn call(number: u32) -> bolt::Message {
    let mut headers = BytesMut::new();
    write_header(&mut headers, b"service", b"com.example.Orders:1.0");
    write_header(&mut headers, b"id", number.to_string().as_bytes());
    bolt::Message { headers: headers.freeze(), ..bolt::Message::request(Version::V1, number) }
}
