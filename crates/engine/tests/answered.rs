//! Connections that their filter chain answers: what comes back, how much waits, and what a new configuration leaves.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test that cannot go on has failed; a script answers to what it cares about"
)]

mod scene;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use scene::{HTTP, address, listener};
use towpath_engine::filter::local_ratelimit::Tokens;
use towpath_engine::message::{Message, ToWorker};
use towpath_engine::network_filter::local_ratelimit::ConnectionRate;
use towpath_engine::snapshot::listener::{Answer, FilterChain, Terminal};
use towpath_engine::snapshot::{BufferLimit, Snapshot};
use towpath_engine::stats::Registry;
use towpath_engine::worker::{Worker, WorkerOptions};
use towpath_proto::{
    Close, ConnectionId, Input, Instant, ListenerId, Machine as _, Output, ReadInterest,
};

const LIMIT: usize = 4096;

struct Rig {
    worker: Worker,
    listener: Option<ListenerId>,
    sent: Vec<u8>,
    reading: bool,
    closes: Vec<Close>,
}

impl Rig {
    fn new(answer: Answer, adjust: impl FnOnce(&mut FilterChain)) -> Self {
        let options = WorkerOptions {
            index: 0,
            workers: 1,
            seed: 7,
            registry: Arc::new(Registry::default()),
            hostname: "here".into(),
        };
        let worker = Worker::new(options);
        let mut rig =
            Self { worker, listener: None, sent: Vec::new(), reading: true, closes: Vec::new() };
        rig.configure(1, answer, adjust);
        rig
    }

    fn configure(
        &mut self,
        generation: u64,
        answer: Answer,
        adjust: impl FnOnce(&mut FilterChain),
    ) {
        let mut snapshot = Snapshot { generation, ..Snapshot::default() };
        let mut listener = listener(HTTP, Terminal::Answer(answer));
        listener.buffer_limit = BufferLimit::strict(LIMIT);
        adjust(Arc::get_mut(&mut listener.chains[0]).unwrap());
        snapshot.listeners.push(Arc::new(listener));
        self.give(Input::Message(Message::To(ToWorker::Snapshot(snapshot.into()))));
    }

    fn give(&mut self, input: Input<Message>) {
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            self.worker.handle(input, Instant::from_nanos(1_000_000));
            loop {
                match self.worker.poll(Instant::from_nanos(1_000_000)) {
                    Output::Wait(_) | Output::Idle => break,
                    Output::Listen { listener, address, .. } => {
                        self.listener.get_or_insert(listener);
                        inputs.push(Input::Listening { listener, outcome: Ok(address) });
                    }
                    Output::Send { chunk, .. } => self.sent.extend_from_slice(&chunk),
                    Output::ReadInterest { interest, .. } => {
                        self.reading = interest == ReadInterest::On;
                    }
                    Output::Close { how, .. } => self.closes.push(how),
                    _ => {}
                }
            }
        }
    }

    fn connect(&mut self, generation: u32) -> ConnectionId {
        let connection = ConnectionId::new(generation, generation);
        let (local, peer) = (address(HTTP), address(([10, 0, 9, 9], 999)));
        let listener = self.listener.unwrap();
        self.give(Input::Accepted { listener, connection, local, peer, original: None });
        connection
    }

    fn receive(&mut self, connection: ConnectionId, bytes: usize) {
        self.give(Input::Received { connection, chunk: Bytes::from(vec![b'x'; bytes]) });
    }
}

#[test]
fn who_does_not_take_an_echo_is_not_read() {
    let mut rig = Rig::new(Answer::Echo, |_| {});
    let connection = rig.connect(1);
    rig.receive(connection, LIMIT - 1);
    assert!(rig.reading, "there is room");
    rig.receive(connection, 2);
    assert!(!rig.reading, "{} bytes wait", rig.sent.len());
    rig.give(Input::Sent { connection, bytes: LIMIT + 1 });
    assert!(rig.reading, "all have left");
    rig.give(Input::Ended { connection });
    assert_eq!((rig.sent.len(), &rig.closes[..]), (LIMIT + 1, &[Close::Flush][..]));
}

#[test]
fn an_end_comes_back_behind_what_still_waits() {
    let mut rig = Rig::new(Answer::Echo, |_| {});
    let connection = rig.connect(1);
    rig.receive(connection, 10);
    rig.give(Input::Ended { connection });
    assert_eq!(rig.closes, [Close::Half], "ten bytes are on their way");
    rig.give(Input::Sent { connection, bytes: 10 });
    assert_eq!(rig.closes, [Close::Half, Close::Flush]);
}

#[test]
fn an_echo_goes_on_under_another_configuration() {
    let mut rig = Rig::new(Answer::Echo, |_| {});
    let connection = rig.connect(1);
    rig.configure(2, Answer::Echo, |chain| chain.transport_timeout = Some(Duration::from_secs(1)));
    rig.receive(connection, 10);
    assert_eq!((rig.sent.len(), rig.closes.len()), (10, 0));
}

#[test]
fn an_answer_is_all_that_there_is() {
    let mut rig = Rig::new(Answer::Fixed(Bytes::from_static(b"hello")), |_| {});
    rig.connect(1);
    assert_eq!((&rig.sent[..], &rig.closes[..]), (&b"hello"[..], &[Close::Half][..]));
}

#[test]
fn another_configuration_takes_no_token() {
    let tokens = Tokens { max: 2, per_fill: 1, interval: Duration::from_secs(3600) };
    let rate = Arc::new(ConnectionRate::new("r".into(), Some(tokens)));
    let limited = |chain: &mut FilterChain| chain.filters.list.push(rate.clone());
    let mut rig = Rig::new(Answer::Echo, limited);
    rig.connect(1);
    rig.configure(2, Answer::Echo, |chain| {
        limited(chain);
        chain.transport_timeout = Some(Duration::from_secs(1));
    });
    rig.connect(2);
    assert_eq!(rig.closes, [], "two are let in");
    rig.connect(3);
    assert_eq!(rig.closes, [Close::Now], "a third is not");
}
