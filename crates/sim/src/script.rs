//! A peer written as a closure: the small machines that stand around the one under test.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::Arc;

use bytes::Bytes;
use towpath_proto::{
    Address, AttemptId, Close, ConnectOptions, ConnectionId, Input, Instant, ListenOptions,
    ListenerId, Machine, Output, ReadInterest,
};

/// A machine whose behaviour is one closure, called with every input.
pub struct Script<T, F> {
    act: F,
    orders: Orders<T>,
}

/// What a script asks for.
pub struct Orders<T> {
    outputs: VecDeque<Output<T>>,
    deadline: Option<Instant>,
    listeners: u32,
    attempts: u64,
    message: PhantomData<T>,
}

impl<T, F> Script<T, F>
where
    F: FnMut(Input<T>, &mut Orders<T>, Instant),
{
    /// A script that begins with `start` and then answers every input with `act`.
    pub fn new(start: impl FnOnce(&mut Orders<T>), act: F) -> Self {
        let mut orders = Orders {
            outputs: VecDeque::new(),
            deadline: None,
            listeners: 0,
            attempts: 0,
            message: PhantomData,
        };
        start(&mut orders);
        Self { act, orders }
    }
}

impl<T, F> Machine for Script<T, F>
where
    F: FnMut(Input<T>, &mut Orders<T>, Instant),
{
    type Message = T;

    fn handle(&mut self, input: Input<T>, now: Instant) {
        if matches!(input, Input::Timeout) {
            self.orders.deadline = None;
        }
        (self.act)(input, &mut self.orders, now);
    }

    fn poll(&mut self, _now: Instant) -> Output<T> {
        match self.orders.outputs.pop_front() {
            Some(output) => output,
            None => self.orders.deadline.map_or(Output::Idle, Output::Wait),
        }
    }
}

impl<T> Orders<T> {
    /// Listens with default options.
    pub fn listen(&mut self, address: impl Into<Address>) {
        let listener = ListenerId(self.listeners);
        self.listeners += 1;
        let options = Arc::new(ListenOptions::default());
        self.push(Output::Listen { listener, address: address.into(), options });
    }

    /// Connects with default options. Attempts are numbered from 0.
    pub fn connect(&mut self, address: impl Into<Address>) {
        let attempt = AttemptId(self.attempts);
        self.attempts += 1;
        let options = Arc::new(ConnectOptions::default());
        self.push(Output::Connect { attempt, address: address.into(), options });
    }

    /// Sends, unless there is nothing to send.
    pub fn send(&mut self, connection: ConnectionId, bytes: impl Into<Bytes>) {
        let chunk = bytes.into();
        if !chunk.is_empty() {
            self.push(Output::Send { connection, chunk });
        }
    }

    /// Closes.
    pub fn close(&mut self, connection: ConnectionId, how: Close) {
        self.push(Output::Close { connection, how });
    }

    /// Reads or does not.
    pub fn read(&mut self, connection: ConnectionId, interest: ReadInterest) {
        self.push(Output::ReadInterest { connection, interest });
    }

    /// Says something to the world.
    pub fn message(&mut self, message: T) {
        self.push(Output::Message(message));
    }

    /// Wants [`Input::Timeout`] at that time; only the latest wish counts.
    pub fn wake_at(&mut self, deadline: Instant) {
        self.deadline = Some(deadline);
    }

    /// Asks for anything else.
    pub fn push(&mut self, output: Output<T>) {
        self.outputs.push_back(output);
    }
}
