//! How deep the stack gets is not for peers to decide.

use towpath_proto::{Failure, Machine, Output};

use super::*;

const CALLS: usize = 100_000;
/// A client may have no more calls that wait for a connection.
const OF_ONE_CLIENT: usize = 16;
const STACK_BYTES: usize = 256 * 1024;

#[test]
fn as_many_oneway_calls_as_wait_leave_on_one_connection_whatever_the_stack() {
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
    thread.spawn(all_leave_at_once).unwrap().join().unwrap();
}

#[test]
fn as_many_oneway_calls_as_wait_fail_with_one_connect_whatever_the_stack() {
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
    thread.spawn(all_fail_at_once).unwrap().join().unwrap();
}

fn all_leave_at_once() {
    let (mut waiting, now) = (Waiting::new(), Instant::from_nanos(1_000_000));
    let connection = ConnectionId::new(u32::try_from(CALLS).unwrap(), 1);
    let (attempt, local) = (waiting.attempt, address(BOLT));
    let mut decoder = Decoder::new(Options::default());
    let mut left = 0;
    waiting.give(Input::Connected { attempt, connection, local }, now, |chunk| {
        decoder.receive(chunk);
        while let Some(frame) = decoder.poll().unwrap() {
            assert_eq!(frame.kind(), Kind::Oneway);
            left += 1;
        }
    });
    assert_eq!(left, CALLS);
    assert_eq!(waiting.worker.streams(), 0);
}

fn all_fail_at_once() {
    let (mut waiting, now) = (Waiting::new(), Instant::from_nanos(1_000_000));
    let attempt = waiting.attempt;
    waiting.give(Input::ConnectFailed { attempt, failure: Failure::Refused }, now, |_| {});
    assert_eq!(waiting.worker.streams(), 0);
}

/// A worker with all the calls waiting for one connect.
struct Waiting {
    worker: Worker,
    attempt: towpath_proto::AttemptId,
}

impl Waiting {
    fn new() -> Self {
        let now = Instant::from_nanos(1_000_000);
        let mut worker = Worker::new(WorkerOptions {
            index: 0,
            workers: 1,
            seed: 1,
            registry: Arc::new(Registry::default()),
            hostname: "here".into(),
        });
        let mut snapshot = snapshot(&Setting::default());
        let many = u32::try_from(CALLS).unwrap();
        let cluster = Arc::get_mut(snapshot.clusters[0].as_mut().unwrap()).unwrap();
        (cluster.limits.pending, cluster.limits.requests) = (many, many);
        cluster.buffer_limit = towpath_engine::snapshot::BufferLimit::strict(64 << 20);
        worker.handle(Input::Message(Message::To(ToWorker::Snapshot(Arc::new(snapshot)))), now);
        let (mut listener, mut attempts) = (None, Vec::new());
        let call = bolt::Message { kind: Kind::Oneway, ..request() };
        let calls: Bytes = written(&call).repeat(OF_ONE_CLIENT).into();
        for client in 0..=CALLS / OF_ONE_CLIENT {
            loop {
                match worker.poll(now) {
                    Output::Listen { listener: id, .. } => listener = Some(id),
                    Output::Connect { attempt, .. } => attempts.push(attempt),
                    Output::Wait(_) | Output::Idle => break,
                    _ => {}
                }
            }
            if client == CALLS / OF_ONE_CLIENT {
                break;
            }
            let connection = ConnectionId::new(u32::try_from(client).unwrap(), 1);
            let (local, peer) = (address(BOLT), address(BOLT));
            let listener = listener.unwrap();
            worker
                .handle(Input::Accepted { listener, connection, local, peer, original: None }, now);
            worker.handle(Input::Received { connection, chunk: calls.clone() }, now);
        }
        assert_eq!(worker.streams(), CALLS);
        let [attempt] = attempts[..] else { panic!("{} connects", attempts.len()) };
        Self { worker, attempt }
    }

    fn give(&mut self, input: Input<Message>, now: Instant, mut sent: impl FnMut(Bytes)) {
        self.worker.handle(input, now);
        loop {
            match self.worker.poll(now) {
                Output::Send { chunk, .. } => sent(chunk),
                Output::Wait(_) | Output::Idle => return,
                _ => {}
            }
        }
    }
}

fn request() -> bolt::Message {
    let mut block = BytesMut::new();
    write_header(&mut block, b"service", b"com.example.Orders:1.0");
    bolt::Message { headers: block.freeze(), ..bolt::Message::request(Version::V1, 1) }
}
