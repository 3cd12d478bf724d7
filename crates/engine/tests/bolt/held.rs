//! What one client's calls may hold.

use std::time::Duration;

use std::sync::Arc;

use bytes::Bytes;
use towpath_engine::message::Message;
use towpath_engine::snapshot::route::RetryOn;
use towpath_proto::Input;
use towpath_proto::bolt::{self, Status, Version};
use towpath_sim::{Faults, Orders, Script};

use super::{Ask, BOLT, Ending, Habits, Setting, Story, address, retries, written};

#[test]
fn a_client_whose_calls_are_too_long_together_is_read_as_they_are_answered() {
    for (max_held, most) in [(16 << 20, 40), (5000, 5)] {
        let mut story = Story::new(1, Setting { max_held, ..Setting::default() });
        story.origins(1, Habits { delay: Duration::from_millis(50), ..Habits::default() });
        let endings =
            story.client((0..40).map(|at| Ask::new(&format!("call{at}"), 1000)).collect());
        let mut peak = 0;
        for _ in 0..3000 {
            story.run(Duration::from_millis(1));
            peak = peak.max(story.number("http.rpc.downstream_rq_active"));
        }
        assert_eq!(endings.borrow().len(), 40);
        assert!(endings.borrow().values().all(|it| *it == Ending::Answered(Status::SUCCESS)));
        assert!(peak <= most && peak > most / 2, "{peak} with {max_held}");
    }
}

#[test]
fn a_frame_is_let_go_when_it_is_sent_unless_a_policy_may_want_it_again() {
    let mut story = Story::new(1, Setting::default());
    assert!(is_let_go(&mut story));
    let mut story = Story::new(
        1,
        Setting {
            adjust: |forward| {
                forward.retry = Some(Arc::new(retries(RetryOn::RESET, 1)));
            },
            ..Setting::default()
        },
    );
    assert!(!is_let_go(&mut story));
}

/// Whether the bytes of a call are not held any more while its server has it.
fn is_let_go(story: &mut Story) -> bool {
    // What is in one piece is not copied.
    let size = 65_536..=65_536;
    let (segment_bytes, read_bytes) = (size.clone(), size);
    story.world.set_faults(Faults {
        segment_bytes,
        read_bytes,
        partial_permille: 0,
        ..Faults::none()
    });
    story.origins(1, Habits { delay: Duration::from_secs(10), ..Habits::default() });
    let mut block = bytes::BytesMut::new();
    for (key, value) in [(&b"service"[..], &b"com.example.Orders:1.0"[..]), (b"id", b"only")] {
        bolt::write_header(&mut block, key, value);
    }
    let call = bolt::Message { headers: block.freeze(), ..bolt::Message::request(Version::V1, 1) };
    let bytes: Bytes = written(&call);
    let mut sent = Some(bytes.clone());
    story.world.add(Script::new(
        |orders: &mut Orders<Message>| orders.connect(address(BOLT)),
        move |input, orders: &mut Orders<Message>, _| {
            if let Input::Connected { connection, .. } = input {
                orders.send(connection, sent.take().unwrap());
            }
        },
    ));
    story.run(Duration::from_secs(1));
    assert_eq!(story.number("cluster.app.upstream_rq_active"), 1);
    bytes.is_unique()
}
