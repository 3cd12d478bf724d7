//! A machine without a will: it does what the test orders and reports all it is told.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use towpath_io::Handle;
use towpath_proto::{Input, Instant, Machine, Output};

/// To the puppet: an order. From the puppet: what it was told, and when.
#[derive(Debug)]
pub enum Wire {
    /// All in one round.
    Do(Vec<Output<()>>),
    Told(Box<Input<()>>, Instant),
}

#[derive(Default)]
pub struct Puppet {
    outputs: VecDeque<Output<Wire>>,
    deadline: Option<Instant>,
}

impl Machine for Puppet {
    type Message = Wire;

    fn handle(&mut self, input: Input<Wire>, now: Instant) {
        let told = match input {
            Input::Message(Wire::Do(orders)) => {
                return orders.into_iter().for_each(|order| self.obey(order));
            }
            Input::Message(Wire::Told(..)) => return,
            Input::Timeout => {
                self.deadline = None;
                Input::Timeout
            }
            Input::Listening { listener, outcome } => Input::Listening { listener, outcome },
            Input::Accepted { listener, connection, local, peer, original } => {
                Input::Accepted { listener, connection, local, peer, original }
            }
            Input::Connected { attempt, connection, local } => {
                Input::Connected { attempt, connection, local }
            }
            Input::ConnectFailed { attempt, failure } => Input::ConnectFailed { attempt, failure },
            Input::Received { connection, chunk } => Input::Received { connection, chunk },
            Input::Sent { connection, bytes } => Input::Sent { connection, bytes },
            Input::Ended { connection } => Input::Ended { connection },
            Input::Closed { connection, failure } => Input::Closed { connection, failure },
            Input::Resolved { query, outcome, lifetime } => {
                Input::Resolved { query, outcome, lifetime }
            }
            Input::Inspected { connection, facts } => Input::Inspected { connection, facts },
        };
        self.outputs.push_back(Output::Message(Wire::Told(Box::new(told), now)));
    }

    fn poll(&mut self, _now: Instant) -> Output<Wire> {
        match self.outputs.pop_front() {
            Some(output) => output,
            None => self.deadline.map_or(Output::Idle, Output::Wait),
        }
    }
}

impl Puppet {
    fn obey(&mut self, order: Output<()>) {
        let output = match order {
            Output::Wait(deadline) => {
                self.deadline = Some(deadline);
                return;
            }
            Output::Idle => {
                self.deadline = None;
                return;
            }
            Output::Message(()) => return,
            Output::Listen { listener, address, options } => {
                Output::Listen { listener, address, options }
            }
            Output::Unlisten { listener } => Output::Unlisten { listener },
            Output::Hold { listener, is_held } => Output::Hold { listener, is_held },
            Output::Connect { attempt, address, options } => {
                Output::Connect { attempt, address, options }
            }
            Output::CancelConnect { attempt } => Output::CancelConnect { attempt },
            Output::Send { connection, chunk } => Output::Send { connection, chunk },
            Output::Push { connection } => Output::Push { connection },
            Output::ReadInterest { connection, interest } => {
                Output::ReadInterest { connection, interest }
            }
            Output::ReadLimit { connection, bytes, grows } => {
                Output::ReadLimit { connection, bytes, grows }
            }
            Output::Close { connection, how } => Output::Close { connection, how },
            Output::Resolve { query, name } => Output::Resolve { query, name },
            Output::Inspect { connection } => Output::Inspect { connection },
            Output::LimitFlow { connection, limit } => Output::LimitFlow { connection, limit },
        };
        self.outputs.push_back(output);
    }
}

/// What the puppet was told, and when.
pub type Told = (Input<()>, Instant);

/// The test's end of a puppet's strings.
pub struct Strings {
    pub handle: Handle<Wire>,
    told: Receiver<Told>,
}

impl Strings {
    pub fn mailbox() -> (impl FnMut(Wire) + Send + 'static, Receiver<Told>) {
        let (sender, receiver): (Sender<Told>, _) = channel();
        let mailbox = move |wire| {
            if let Wire::Told(input, at) = wire {
                let _ = sender.send((*input, at));
            }
        };
        (mailbox, receiver)
    }

    pub fn new(handle: Handle<Wire>, told: Receiver<Told>) -> Self {
        Self { handle, told }
    }

    /// Orders the puppet to ask its driver for something.
    pub fn order(&self, output: Output<()>) {
        self.order_all(vec![output]);
    }

    /// Orders several things for one round.
    pub fn order_all(&self, outputs: Vec<Output<()>>) {
        self.handle.send(Wire::Do(outputs)).unwrap();
    }

    /// The next thing the puppet was told.
    pub fn told(&self) -> Input<()> {
        self.told_at().0
    }

    pub fn told_at(&self) -> (Input<()>, Instant) {
        self.told.recv_timeout(Duration::from_secs(10)).expect("nothing came for ten seconds")
    }

    /// What the puppet is told within `time`, if anything.
    pub fn told_within(&self, time: Duration) -> Option<Input<()>> {
        self.told.recv_timeout(time).ok().map(|(input, _)| input)
    }
}
