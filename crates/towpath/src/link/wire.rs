//! The link's connection as a machine: when to connect, what to send, which answer is whose, whether the peer is still
//! there.
//!
//! Arrives: orders of the app's threads, bytes, time. Leaves: frames, ends of calls, what the server sends on its own.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use towpath_engine::client::heartbeat::{Facts, Heartbeat, Saved};
use towpath_engine::client::progress::connect_options;
use towpath_engine::local::message::{Error as Failed, Found, NetworkChange};
use towpath_proto::bolt::{Command, Decoder, Frame, Kind, Message, Options, Version};
use towpath_proto::tls::Fault;
use towpath_proto::{AttemptId, Close, ConnectionId, Input, Instant, Machine, Output};

use super::channel::{Channel, Opened, Security};
use super::dial::{Attempt, Dial};
use super::{Answer, Error, Settings, State};

/// What passes between the link's thread and the app's.
#[derive(Debug)]
pub(super) enum LinkMessage {
    Order(Order),
    Event(Event),
}

#[derive(Debug)]
pub(super) enum Order {
    Call {
        id: u64,
        message: Message,
        timeout: Duration,
        waits: bool,
    },
    GiveUp(u64),
    /// To what came on this connection, counted from 1.
    Answer {
        connection: u64,
        message: Message,
    },
    Network(NetworkChange),
    Found(Found),
    Foreground(bool),
}

#[derive(Debug)]
pub(super) enum Event {
    Ended {
        id: u64,
        result: Result<Answer, Error>,
    },
    Pushed {
        connection: u64,
        frame: Frame,
    },
    Changed(State),
    /// Where is the server?
    Find {
        question: u64,
    },
    /// What is known of silences on the present network.
    Learned(Saved),
    /// What became of an attempt: how long it took to a usable connection.
    Attempted {
        address: SocketAddr,
        took: Option<Duration>,
    },
}

pub(super) struct Wire {
    host: Arc<str>,
    port: u16,
    security: Option<Security>,
    settings: Settings,
    heartbeat: Heartbeat,
    /// What was told of the present network.
    learned: Option<Facts>,
    random: u64,
    phase: Phase,
    /// Rounds of attempts in a row that came to nothing, and connections on which nothing came.
    failures: u32,
    round_began: Instant,
    offline: bool,
    calls: BTreeMap<u64, Call>,
    deadlines: BTreeSet<(Instant, u64)>,
    /// Whose the answer to each frame is.
    numbers: HashMap<u32, u64>,
    next_number: u32,
    next_attempt: u64,
    questions: u64,
    state: State,
    out: VecDeque<Output<LinkMessage>>,
}

struct Call {
    message: Message,
    deadline: Instant,
    /// Its number on the connection, since it was sent.
    sent: Option<(u32, Instant)>,
}

enum Phase {
    /// There is no network.
    Offline,
    Pausing(Instant),
    Dialling(Dial),
    Up(Up),
}

struct Up {
    connection: ConnectionId,
    loopback: bool,
    channel: Channel,
    decoder: Decoder,
    /// When anything last went over it, either way.
    moved: Instant,
    heard: Instant,
    /// The silence before the first frame to which nothing has come yet.
    silence: Option<Duration>,
    asked_at: Option<Instant>,
    unsent: usize,
    alive: bool,
    is_bolt: bool,
}

impl Wire {
    pub(super) fn new(
        (host, port): (Arc<str>, u16),
        security: Option<Security>,
        settings: Settings,
        seed: u64,
    ) -> Self {
        Self {
            host,
            port,
            security,
            heartbeat: Heartbeat::new(settings.heartbeat),
            learned: None,
            settings,
            random: seed,
            phase: Phase::Pausing(Instant::ZERO),
            failures: 0,
            round_began: Instant::ZERO,
            offline: false,
            calls: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            numbers: HashMap::new(),
            next_number: 0,
            next_attempt: 0,
            questions: 0,
            state: State::default(),
            out: VecDeque::new(),
        }
    }

    /// Begins with what was learned before, on the network that there is.
    pub(super) fn knowing(mut self, saved: Vec<Saved>, network: Option<&NetworkChange>) -> Self {
        self.heartbeat.restore(saved, Instant::ZERO);
        if let Some(network) = network {
            self.network_changed(network, Instant::ZERO);
        }
        self
    }

    fn on_order(&mut self, order: Order, now: Instant) {
        match order {
            Order::Call { id, message, timeout, waits } => {
                self.call(id, message, timeout, waits, now);
            }
            Order::GiveUp(id) => drop(self.forget(id)),
            Order::Answer { connection, message } => {
                if connection == self.state.connections && matches!(self.phase, Phase::Up(_)) {
                    self.send(&message, now);
                }
            }
            Order::Network(change) => self.network_changed(&change, now),
            Order::Found(found) => self.found(found, now),
            Order::Foreground(in_foreground) => self.heartbeat.set_foreground(in_foreground),
        }
    }

    fn call(&mut self, id: u64, message: Message, timeout: Duration, waits: bool, now: Instant) {
        let up = matches!(self.phase, Phase::Up(_));
        if !up && !waits {
            return self.tell(id, Err(Error::NotConnected));
        }
        let deadline = now + timeout;
        self.calls.insert(id, Call { message, deadline, sent: None });
        self.deadlines.insert((deadline, id));
        if up {
            return self.send_call(id, now);
        }
        // Who waits shortens the pause, but not below the first.
        if let Phase::Pausing(until) = &mut self.phase {
            *until = (*until).min((self.round_began + self.settings.first_pause).max(now));
        }
    }

    fn send_call(&mut self, id: u64, now: Instant) {
        let Phase::Up(up) = &self.phase else { return };
        let overflows = up.unsent > self.settings.max_bytes;
        let number = self.number();
        let Some(call) = self.calls.get_mut(&id) else { return };
        call.message.id = number;
        call.sent = Some((number, now));
        let message = call.message.clone();
        call.message.content = Bytes::new();
        if message.kind == Kind::Oneway {
            self.forget(id);
            if overflows {
                return self.tell(id, Err(Error::Full));
            }
            self.send(&message, now);
            return self.tell(id, Ok(Answer::none()));
        }
        self.numbers.insert(number, id);
        self.send(&message, now);
    }

    /// A number that no call under way has. There are far fewer calls than numbers.
    fn number(&mut self) -> u32 {
        loop {
            self.next_number = self.next_number.wrapping_add(1);
            if !self.numbers.contains_key(&self.next_number) {
                return self.next_number;
            }
        }
    }

    fn send(&mut self, message: &Message, now: Instant) {
        let Phase::Up(up) = &mut self.phase else { return };
        // Its lengths were looked at when it was made.
        let Ok(frame) = message.frame() else { return };
        let Ok(chunk) = up.channel.seal(frame.bytes().clone()) else { return self.cut(now) };
        up.unsent += chunk.len();
        if message.kind == Kind::Request {
            up.silence.get_or_insert(now - up.moved);
        }
        up.moved = now;
        let overflows = up.unsent > self.settings.max_bytes.saturating_mul(2);
        let connection = up.connection;
        self.out.push_back(Output::Send { connection, chunk });
        if overflows {
            // It asks, and does not read what it is answered.
            self.cut(now);
        }
    }

    /// Ends the connection that is up, and everything on it.
    fn cut(&mut self, now: Instant) {
        if let Phase::Up(up) = &self.phase {
            self.out.push_back(Output::Close { connection: up.connection, how: Close::Abort });
            self.lost(Duration::ZERO, now);
        }
    }

    /// The connection is gone; the next one is opened after a time below `pause`, or later where nothing came on this
    /// one.
    fn lost(&mut self, pause: Duration, now: Instant) {
        let Phase::Up(up) = &self.phase else { return };
        let alive = up.alive;
        let why = if up.is_bolt { Failed::Disconnected } else { Failed::Protocol };
        let sent = self.calls.iter().filter(|(_, call)| call.sent.is_some());
        let sent: Vec<u64> = sent.map(|(id, _)| *id).collect();
        for id in sent {
            self.forget(id);
            self.tell(id, Err(Error::Lost));
        }
        self.state.connected = false;
        self.tell_state(now);
        self.phase = Phase::Offline;
        if alive {
            let share = self.share(pause);
            self.pause(share, now);
        } else {
            self.failed(why, now);
        }
    }

    /// The connection is gone after a silence, which may be why.
    fn lost_after(&mut self, silence: Duration, pause: Duration, now: Instant) {
        self.heartbeat.lost(silence, now);
        // Nothing is learned unless the server is reached anew soon; and silences are pauses enough.
        if let Phase::Up(up) = &mut self.phase {
            up.alive |= silence >= self.settings.heartbeat.shortest;
        }
        self.lost(pause, now);
    }

    fn failed(&mut self, why: Failed, now: Instant) {
        self.state.failure = Some(why);
        self.tell_state(now);
        let bound = self.settings.first_pause.saturating_mul(1 << self.failures.min(20));
        let bound = bound.min(self.settings.longest_pause);
        self.failures = self.failures.saturating_add(1);
        let pause = bound / 2 + self.share(bound / 2);
        self.pause(pause, now);
    }

    fn pause(&mut self, pause: Duration, now: Instant) {
        if let Phase::Dialling(dial) = &mut self.phase {
            dial.give_up(&mut self.out);
        }
        let until = now + pause;
        self.phase = if self.offline { Phase::Offline } else { Phase::Pausing(until) };
    }

    fn network_changed(&mut self, change: &NetworkChange, now: Instant) {
        let stays = |up: &Up| up.loopback && change.spares_loopback;
        self.heartbeat.set_network(&change.label);
        self.learned = None;
        self.offline = !change.online && !self.is_loopback();
        match &self.phase {
            Phase::Up(up) if stays(up) => return,
            Phase::Up(_) => self.cut(now),
            Phase::Offline | Phase::Pausing(_) | Phase::Dialling(_) => {}
        }
        self.failures = 0;
        self.state.failure = None;
        self.pause(Duration::ZERO, now);
    }

    fn is_loopback(&self) -> bool {
        &*self.host == "localhost" || self.host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
    }

    fn begin(&mut self, now: Instant) {
        self.round_began = now;
        self.phase = Phase::Dialling(match self.host.parse() {
            Ok(ip) => Dial::to(SocketAddr::new(ip, self.port), now),
            Err(_) => {
                self.questions += 1;
                let question = self.questions;
                self.out.push_back(Output::Message(LinkMessage::Event(Event::Find { question })));
                Dial::asking(question, now)
            }
        });
        self.advance(now);
    }

    fn found(&mut self, found: Found, now: Instant) {
        if let Phase::Dialling(dial) = &mut self.phase
            && dial.asking == Some(found.question)
        {
            dial.found(found, now);
            self.advance(now);
        }
    }

    /// Begins the attempts that are due; when there are none left the round is over.
    fn advance(&mut self, now: Instant) {
        let Phase::Dialling(dial) = &mut self.phase else { return };
        while let Some(address) = dial.due(now) {
            let attempt = AttemptId(self.next_attempt);
            self.next_attempt += 1;
            dial.started(attempt, address, now);
            let options = Arc::new(connect_options());
            self.out.push_back(Output::Connect { attempt, address: address.into(), options });
        }
        if let Some(why) = dial.is_over() {
            self.failed(why, now);
        }
    }

    fn connected(&mut self, attempt: AttemptId, connection: ConnectionId, now: Instant) {
        let Phase::Dialling(dial) = &mut self.phase else {
            return self.out.push_back(Output::Close { connection, how: Close::Abort });
        };
        match self.security.as_ref().map(|security| security.begin()) {
            None => self.usable(attempt, connection, now),
            Some(Ok(mut layer)) => {
                let hello = layer.take_output().into();
                dial.secures(attempt, connection, layer);
                self.out.push_back(Output::Send { connection, chunk: hello });
            }
            Some(Err(fault)) => {
                self.out.push_back(Output::Close { connection, how: Close::Abort });
                self.attempt_failed(attempt, Failed::Tls(fault), now);
            }
        }
    }

    /// Records for a connection in its handshake.
    fn handshake(&mut self, connection: ConnectionId, chunk: &[u8], now: Instant) {
        let (Phase::Dialling(dial), Some(security)) = (&mut self.phase, &self.security) else {
            return;
        };
        security.tell_time();
        let Some((attempt, layer)) = dial.handshake(connection) else { return };
        let mut early = BytesMut::new();
        let received = layer.receive(chunk, &mut early);
        let (reply, established) = (layer.take_output(), layer.is_established());
        let ended = layer.is_ended();
        if !reply.is_empty() {
            self.out.push_back(Output::Send { connection, chunk: reply.into() });
        }
        match received {
            Err(fault) => {
                // The alert goes out first.
                self.out.push_back(Output::Close { connection, how: Close::Flush });
                self.attempt_failed(attempt, Failed::Tls(fault), now);
            }
            Ok(()) if established => {
                self.usable(attempt, connection, now);
                self.hear(Opened { plain: early.freeze(), reply: Bytes::new(), ended }, now);
            }
            Ok(()) => {}
        }
    }

    fn attempt_failed(&mut self, attempt: AttemptId, why: Failed, now: Instant) {
        let Phase::Dialling(dial) = &mut self.phase else { return };
        let Some(failed) = dial.failed(attempt, why, now) else { return };
        self.tell_attempt(&failed, None);
        self.advance(now);
    }

    /// A connection that frames can be sent on: the others are given up.
    fn usable(&mut self, attempt: AttemptId, connection: ConnectionId, now: Instant) {
        let Phase::Dialling(dial) = &mut self.phase else { return };
        let Some(won) = dial.take(attempt) else {
            return self.out.push_back(Output::Close { connection, how: Close::Abort });
        };
        let losers = dial.give_up(&mut self.out);
        self.tell_attempt(&won, Some(now - won.began));
        let overtaken = losers.iter().filter(|loser| loser.began < won.began);
        overtaken.for_each(|loser| self.tell_attempt(loser, None));
        self.phase = Phase::Up(Up {
            connection,
            loopback: won.address.ip().is_loopback(),
            channel: Channel::new(won.into_layer()),
            decoder: Decoder::new(Options { max_frame: self.settings.max_frame }),
            moved: now,
            heard: now,
            silence: None,
            asked_at: None,
            unsent: 0,
            alive: false,
            is_bolt: true,
        });
        self.heartbeat.reached(now);
        self.tell_learned(now);
        self.state.connected = true;
        self.state.connections += 1;
        self.tell_state(now);
        let waiting: Vec<u64> = self.calls.keys().copied().collect();
        waiting.into_iter().for_each(|id| self.send_call(id, now));
    }

    fn received(&mut self, chunk: Bytes, now: Instant) {
        let Phase::Up(up) = &mut self.phase else { return };
        if let Some(security) = &self.security {
            security.tell_time();
        }
        let opened = up.channel.open(chunk);
        self.hear(opened, now);
    }

    /// What arrived, as the peer said it.
    fn hear(&mut self, opened: Opened, now: Instant) {
        let Phase::Up(up) = &mut self.phase else { return };
        let Opened { plain, reply, ended } = opened;
        let connection = up.connection;
        if !reply.is_empty() {
            up.unsent += reply.len();
            self.out.push_back(Output::Send { connection, chunk: reply });
        }
        // A connection on which a server has said nothing but TLS is none that works.
        if !plain.is_empty() {
            self.hear_frames(plain, now);
        }
        if ended {
            self.ended(connection, now);
        }
    }

    fn hear_frames(&mut self, plain: Bytes, now: Instant) {
        let Phase::Up(up) = &mut self.phase else { return };
        let silence = up.silence.take().unwrap_or(now - up.moved);
        self.heartbeat.survived(silence, now);
        self.tell_learned(now);
        let Phase::Up(up) = &mut self.phase else { return };
        (up.moved, up.heard, up.asked_at, up.alive) = (now, now, None, true);
        self.failures = 0;
        self.state.failure = None;
        up.decoder.receive(plain);
        loop {
            let Phase::Up(up) = &mut self.phase else { return };
            match up.decoder.poll() {
                Ok(Some(frame)) => self.on_frame(frame, now),
                Ok(None) => break,
                Err(_) => {
                    // It is no Bolt: no better the next time, perhaps.
                    (up.alive, up.is_bolt) = (false, false);
                    return self.cut(now);
                }
            }
        }
        self.tell_state(now);
    }

    fn on_frame(&mut self, frame: Frame, now: Instant) {
        match (frame.kind(), frame.command()) {
            (Kind::Response, Command::Rpc) => {
                let Some(id) = self.numbers.get(&frame.id()).copied() else { return };
                self.forget(id);
                self.tell(id, Ok(Answer::new(&frame)));
            }
            (Kind::Request, Command::Heartbeat) => {
                let answer = Message::heartbeat_answer(frame.version(), frame.id());
                self.send(&answer, now);
            }
            (Kind::Request | Kind::Oneway, Command::Rpc) => {
                let connection = self.state.connections;
                let event = Event::Pushed { connection, frame };
                self.out.push_back(Output::Message(LinkMessage::Event(event)));
            }
            // That it came is what a heartbeat asks for. A server that goes away closes.
            (Kind::Response | Kind::Oneway, Command::Heartbeat)
            | (Kind::Request | Kind::Oneway | Kind::Response, Command::GoAway) => {}
        }
    }

    /// The peer says no more.
    fn ended(&mut self, connection: ConnectionId, now: Instant) {
        if self.owns(connection) {
            self.out.push_back(Output::Close { connection, how: Close::Abort });
            self.closed(connection, Fault::Ended, now);
        }
    }

    /// Whether a connection is in use, or in its handshake.
    fn owns(&mut self, connection: ConnectionId) -> bool {
        match &mut self.phase {
            Phase::Up(up) => up.connection == connection,
            Phase::Dialling(dial) => dial.handshake(connection).is_some(),
            Phase::Offline | Phase::Pausing(_) => false,
        }
    }

    fn closed(&mut self, connection: ConnectionId, fault: Fault, now: Instant) {
        if let Phase::Dialling(dial) = &mut self.phase {
            if let Some((attempt, _)) = dial.handshake(connection) {
                self.attempt_failed(attempt, Failed::Tls(fault), now);
            }
            return;
        }
        let Phase::Up(up) = &self.phase else { return };
        if up.connection != connection {
            return;
        }
        let silence = up.silence.unwrap_or(now - up.moved);
        // All clients of a server that restarts come back; not all at once.
        self.lost_after(silence, self.settings.first_pause, now);
    }

    fn on_time(&mut self, now: Instant) {
        while let Some(&(deadline, id)) = self.deadlines.first() {
            if deadline > now {
                break;
            }
            let sent = self.forget(id).and_then(|call| call.sent);
            self.tell(id, Err(Error::TimedOut { sent: sent.is_some() }));
            if let (Some((_, at)), Phase::Up(up)) = (sent, &self.phase)
                && up.heard < at
                && up.asked_at.is_none()
            {
                self.send_heartbeat(now);
            }
        }
        match &self.phase {
            Phase::Pausing(until) if *until <= now => self.begin(now),
            Phase::Dialling(_) if self.round_ends() <= now => self.end_round(now),
            Phase::Dialling(_) => self.advance(now),
            Phase::Up(up) => match up.asked_at {
                Some(at) if at + self.settings.beat_timeout <= now => self.found_dead(now),
                None if up.heard + self.heartbeat.interval(now) <= now => self.send_heartbeat(now),
                Some(_) | None => {}
            },
            Phase::Offline | Phase::Pausing(_) => {}
        }
    }

    /// Its time is over.
    fn end_round(&mut self, now: Instant) {
        let Phase::Dialling(dial) = &mut self.phase else { return };
        let (running, why) = (dial.give_up(&mut self.out), dial.failure());
        running.iter().for_each(|attempt| self.tell_attempt(attempt, None));
        self.failed(why, now);
    }

    fn send_heartbeat(&mut self, now: Instant) {
        let number = self.number();
        self.send(&Message::heartbeat(Version::V1, number), now);
        if let Phase::Up(up) = &mut self.phase {
            up.asked_at = Some(now);
        }
        self.state.heartbeats += 1;
    }

    fn found_dead(&mut self, now: Instant) {
        if let Phase::Up(up) = &self.phase {
            let (connection, silence) = (up.connection, up.silence.unwrap_or_default());
            self.out.push_back(Output::Close { connection, how: Close::Abort });
            self.lost_after(silence, Duration::ZERO, now);
        }
    }

    fn round_ends(&self) -> Instant {
        self.round_began + self.settings.connect_timeout
    }

    fn deadline(&self, now: Instant) -> Instant {
        let phase = match &self.phase {
            Phase::Offline => Instant::FAR_FUTURE,
            Phase::Pausing(until) => *until,
            Phase::Dialling(dial) => dial.deadline().min(self.round_ends()),
            Phase::Up(up) => match up.asked_at {
                Some(at) => at + self.settings.beat_timeout,
                None => up.heard + self.heartbeat.interval(now),
            },
        };
        self.deadlines.first().map_or(phase, |&(at, _)| phase.min(at))
    }

    fn forget(&mut self, id: u64) -> Option<Call> {
        let call = self.calls.remove(&id)?;
        self.deadlines.remove(&(call.deadline, id));
        if let Some((number, _)) = call.sent {
            self.numbers.remove(&number);
        }
        Some(call)
    }

    fn tell(&mut self, id: u64, result: Result<Answer, Error>) {
        self.out.push_back(Output::Message(LinkMessage::Event(Event::Ended { id, result })));
    }

    fn tell_attempt(&mut self, attempt: &Attempt, took: Option<Duration>) {
        let event = Event::Attempted { address: attempt.address, took };
        self.out.push_back(Output::Message(LinkMessage::Event(event)));
    }

    fn tell_learned(&mut self, now: Instant) {
        let facts = self.heartbeat.facts();
        let facts = facts.map(|facts| Facts { updated: Instant::ZERO, ..*facts });
        if facts != std::mem::replace(&mut self.learned, facts)
            && let Some(saved) = self.heartbeat.saved(now)
        {
            self.out.push_back(Output::Message(LinkMessage::Event(Event::Learned(saved))));
        }
    }

    fn tell_state(&mut self, now: Instant) {
        self.state.interval = self.heartbeat.interval(now);
        self.out.push_back(Output::Message(LinkMessage::Event(Event::Changed(self.state))));
    }

    /// A random part of a time.
    fn share(&mut self, of: Duration) -> Duration {
        // xorshift64 (Marsaglia, 2003).
        self.random |= u64::from(self.random == 0);
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        of.mul_f64((self.random >> 11) as f64 / (1u64 << 53) as f64)
    }
}

impl Machine for Wire {
    type Message = LinkMessage;

    fn handle(&mut self, input: Input<LinkMessage>, now: Instant) {
        match input {
            Input::Message(LinkMessage::Order(order)) => self.on_order(order, now),
            Input::Connected { attempt, connection, .. } => {
                self.connected(attempt, connection, now);
            }
            Input::ConnectFailed { attempt, failure } => {
                self.attempt_failed(attempt, Failed::Connect(failure), now);
            }
            Input::Received { connection, chunk } => match &self.phase {
                Phase::Up(up) if up.connection == connection => self.received(chunk, now),
                Phase::Dialling(_) => self.handshake(connection, &chunk, now),
                Phase::Up(_) | Phase::Offline | Phase::Pausing(_) => {}
            },
            Input::Sent { connection, bytes } => match &mut self.phase {
                Phase::Up(up) if up.connection == connection => up.unsent -= bytes.min(up.unsent),
                Phase::Up(_) | Phase::Offline | Phase::Pausing(_) | Phase::Dialling(_) => {}
            },
            Input::Ended { connection } => self.ended(connection, now),
            Input::Closed { connection, .. } => self.closed(connection, Fault::Reset, now),
            // The round's end looks at the time.
            Input::Timeout => {}
            // Nothing of this is asked for.
            Input::Message(LinkMessage::Event(_))
            | Input::Listening { .. }
            | Input::Accepted { .. }
            | Input::Resolved { .. }
            | Input::Inspected { .. } => {}
        }
    }

    fn poll(&mut self, now: Instant) -> Output<LinkMessage> {
        if self.out.is_empty() {
            self.on_time(now);
        }
        if let Some(output) = self.out.pop_front() {
            return output;
        }
        match self.deadline(now) {
            Instant::FAR_FUTURE => Output::Idle,
            at => Output::Wait(at),
        }
    }
}
