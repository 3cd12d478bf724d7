//! The two ends of an opaque connection, and what each of them got.

use std::cell::RefCell;
use std::rc::Rc;

use bytes::Bytes;
use towpath_engine::message::Message;
use towpath_proto::{Address, Close, Input, Instant};
use towpath_sim::{Orders, Script};

/// What one end of a connection got.
#[derive(Debug, Default)]
pub(crate) struct Got {
    pub(crate) bytes: Vec<u8>,
    pub(crate) ended: bool,
    pub(crate) closed: bool,
}

pub(crate) type Shared = Rc<RefCell<Got>>;

/// Sends `up` when connected and half-closes; keeps what comes.
pub(crate) fn caller(
    at: Address,
    up: Bytes,
    got: Shared,
) -> Script<Message, impl FnMut(Input<Message>, &mut Orders<Message>, Instant)> {
    Script::new(
        |orders: &mut Orders<Message>| orders.wake_at(Instant::from_nanos(2_000_000)),
        move |input, orders: &mut Orders<Message>, _now| match input {
            Input::Timeout => orders.connect(at.clone()),
            Input::Connected { connection, .. } => {
                orders.send(connection, up.clone());
                orders.close(connection, Close::Half);
            }
            Input::Received { chunk, .. } => got.borrow_mut().bytes.extend_from_slice(&chunk),
            Input::Ended { connection } => {
                got.borrow_mut().ended = true;
                orders.close(connection, Close::Flush);
            }
            Input::Closed { .. } | Input::ConnectFailed { .. } => got.borrow_mut().closed = true,
            _ => {}
        },
    )
}

/// Answers with `down` once the caller has ended, and ends too.
pub(crate) fn callee(
    at: Address,
    down: Bytes,
    got: Shared,
) -> Script<Message, impl FnMut(Input<Message>, &mut Orders<Message>, Instant)> {
    Script::new(
        move |orders: &mut Orders<Message>| orders.listen(at),
        move |input, orders: &mut Orders<Message>, _now| match input {
            Input::Received { chunk, .. } => got.borrow_mut().bytes.extend_from_slice(&chunk),
            Input::Ended { connection } => {
                got.borrow_mut().ended = true;
                orders.send(connection, down.clone());
                orders.close(connection, Close::Flush);
            }
            Input::Closed { .. } => got.borrow_mut().closed = true,
            _ => {}
        },
    )
}
