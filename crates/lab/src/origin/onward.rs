//! A service that asks another one before it answers: one connection onward for each client.

use std::collections::VecDeque;

use bytes::Bytes;

use super::peer::Due;
use super::{Origin, Server, Step, number};
use crate::address::Target;
use crate::load::connection::{Connection, Event, InFlight};
use crate::load::response::Expect;
use crate::poller::{Interest, Ready};

/// Where a service asks.
pub(super) struct Next {
    /// Where, and the request to make there.
    targets: Vec<(Target, Bytes)>,
    lines: Vec<Line>,
}

/// One client's connection onward and the answers that wait for it.
struct Line {
    connection: Connection,
    waiting: VecDeque<Due>,
}

impl Next {
    pub(super) fn new(origin: &Origin) -> Option<Self> {
        let encode = |target: &Target| {
            let request =
                format!("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", target.path, target.authority);
            (target.clone(), Bytes::from(request))
        };
        let targets: Vec<(Target, Bytes)> = origin.next.iter().map(encode).collect();
        (!targets.is_empty()).then_some(Self { targets, lines: Vec::new() })
    }

    /// A client has come to this place: what its predecessor waited for is dropped.
    pub(super) fn begin(&mut self, index: u32) {
        let line = || Line { connection: Connection::new(Expect::Http), waiting: VecDeque::new() };
        let index = index as usize;
        match self.lines.get_mut(index) {
            Some(place) => *place = line(),
            None => self.lines.resize_with(index + 1, line),
        }
    }
}

impl Server {
    /// A client's request is complete: asks onward, or waits until the question before is answered.
    pub(super) fn ask(&mut self, index: u32, answer: Due) {
        let Some(line) = self.next.as_mut().and_then(|next| next.lines.get_mut(index as usize))
        else {
            return;
        };
        line.waiting.push_back(answer);
        if line.waiting.len() == 1 {
            self.ask_next(index);
        }
    }

    /// A connection onward is ready.
    pub(super) fn handle_onward(&mut self, index: u32, ready: Ready) {
        let is_current = self.peers.get(index as usize).is_some_and(|peer| {
            peer.as_ref().is_some_and(|peer| u64::from(peer.generation) == ready.number >> 32)
        });
        let Some(next) = self.next.as_mut().filter(|_| is_current) else { return };
        let Some(line) = next.lines.get_mut(index as usize) else { return };
        if ready.writable {
            let event = line.connection.on_writable();
            if event == Event::Nothing {
                self.watch_onward(index, Interest::Read);
            }
            self.on_onward(index, event);
        }
        let Some(line) = self.next.as_mut().and_then(|next| next.lines.get_mut(index as usize))
        else {
            return;
        };
        if ready.readable && line.connection.is_connected() {
            let event = line.connection.on_readable(&mut self.scratch);
            self.on_onward(index, event);
        }
    }

    fn on_onward(&mut self, index: u32, event: Event) {
        let Some(line) = self.next.as_mut().and_then(|next| next.lines.get_mut(index as usize))
        else {
            return;
        };
        let is_good = match event {
            Event::Nothing => return,
            Event::Blocked => return self.watch_onward(index, Interest::ReadWrite),
            Event::ClosedIdle => return line.connection.close(),
            Event::Answered(answer) => {
                if !answer.reusable {
                    line.connection.close();
                }
                answer.status < 400
            }
            Event::Failed(_) => {
                line.connection.close();
                false
            }
        };
        line.connection.request = None;
        let Some(answer) = line.waiting.pop_front() else { return };
        let has_more = !line.waiting.is_empty();
        self.reply(index, if is_good { answer } else { answer.into_failure() });
        if has_more {
            self.ask_next(index);
        }
    }

    fn ask_next(&mut self, index: u32) {
        let Some(next) = self.next.as_mut() else { return };
        let Some(line) = next.lines.get_mut(index as usize) else { return };
        let (target, request) = &next.targets[index as usize % next.targets.len()];
        let in_flight = InFlight { intended_ns: 0, started_ns: 0, entry: 0 };
        let started = line.connection.start(in_flight, request.clone(), Expect::Http, false);
        if line.connection.is_connected() {
            let event = if started == Event::Nothing { line.connection.write() } else { started };
            return self.on_onward(index, event);
        }
        let Some(Some(peer)) = self.peers.get(index as usize) else { return };
        let opened = line.connection.open(&target.address, None, None);
        let event = match (opened, line.connection.socket()) {
            (Ok(()), Some(socket)) => {
                match self.poller.add(
                    socket,
                    number(index | ONWARD, peer.generation),
                    Interest::Write,
                ) {
                    Ok(()) => Event::Nothing,
                    Err(error) => Event::Failed(crate::load::connection::Failure::Connect(error)),
                }
            }
            (Ok(()), None) => Event::Nothing,
            (Err(failure), _) => Event::Failed(failure),
        };
        self.on_onward(index, event);
    }

    fn watch_onward(&mut self, index: u32, interest: Interest) {
        let Some(line) = self.next.as_ref().and_then(|next| next.lines.get(index as usize)) else {
            return;
        };
        let Some(Some(peer)) = self.peers.get(index as usize) else { return };
        if let Some(socket) = line.connection.socket() {
            // A failure shows itself when the socket is next used.
            let _ = self.poller.modify(socket, number(index | ONWARD, peer.generation), interest);
        }
    }

    fn reply(&mut self, index: u32, answer: Due) {
        let Some(Some(peer)) = self.peers.get_mut(index as usize) else { return };
        let step = peer.answer(&answer, &self.answers);
        if step == Step::Closed
            && let Some(line) =
                self.next.as_mut().and_then(|next| next.lines.get_mut(index as usize))
        {
            line.connection.close();
            line.waiting.clear();
        }
        self.settle(index, step);
    }
}

/// Marks a connection onward among the numbers of sockets.
pub(super) const ONWARD: u32 = 1 << 31;
