//! One connection, as the app's threads, the engine's and the timer's share it.
//!
//! Arrives: the events of a request that becomes the connection, messages to send, moments. Leaves: messages, in their
//! order, and the end, exactly once. Received bytes that become no message yet stay what they came as, in the engine's
//! window: a server that sends faster than the app takes waits.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use towpath_engine::local::message::NetworkChange;
use towpath_proto::websocket::{Close, Opcode};

use super::handshake::{Expected, Opening};
use super::incoming::{Came, Fault, Reader};
use super::outgoing::Writer;
use super::pings::{Ping, Pings};
use super::{CloseReason, Listener, Message, Options, Received};
use crate::background::Background;
use crate::call::Shared;
use crate::request::Handler;
use crate::timeline::Entry;
use crate::{Chunk, Error, Failed, Layer, Report, Response, Sender};

pub(super) struct Session {
    state: Mutex<State>,
    changed: Condvar,
    shared: Arc<Shared>,
    options: Options,
}

pub(super) struct State {
    phase: Phase,
    sender: Option<Sender>,
    reader: Option<Reader>,
    writer: Writer,
    /// What came and became no message yet, and how much of the first piece did.
    raw: VecDeque<Chunk>,
    read: usize,
    ready: VecDeque<Message>,
    /// What the messages that the app has not taken count, and those that a listener has not let go of.
    ready_cost: usize,
    held_cost: usize,
    listener: Option<Box<dyn Listener>>,
    /// A thread is calling it.
    calls: bool,
    told: Told,
    /// It is to be told when there is room; and there is.
    wants_room: bool,
    has_room: bool,
    readers: Vec<Waker>,
    writers: Vec<Waker>,
    opening: Opening,
    closing: Closing,
    liveness: Liveness,
    pings: Pings,
    /// Why it failed, by our own decision.
    error: Option<Error>,
    /// How the connection ended, where that was no end after a close. What came before it is read first.
    broken: Option<Error>,
    report: Option<Arc<Report>>,
    began: Instant,
    history: Vec<Entry>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Connecting,
    Open,
    Over,
}

/// What a listener has heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Nothing,
    Open,
    End,
}

#[derive(Default)]
struct Closing {
    is_sent: bool,
    /// The server's.
    came: Option<CloseReason>,
    /// The app has closed.
    by_app: bool,
    /// It wants nothing more.
    is_abandoned: bool,
    /// When the connection is cut.
    due: Option<Instant>,
}

struct Liveness {
    /// When anything last came.
    heard: Instant,
    /// Since then something was sent, first at this time.
    spoke: Option<Instant>,
    /// A ping that nothing came after.
    asked: Option<Instant>,
    /// How long it may take.
    patience: Duration,
    /// When the timer looks.
    look: Option<Instant>,
}

/// What is to be told a listener.
enum Tell {
    Open,
    Message(Message, usize),
    Room,
    End(Result<CloseReason, Error>),
}

impl Session {
    pub(super) fn new(
        shared: Arc<Shared>,
        options: Options,
        listener: Option<Box<dyn Listener>>,
    ) -> Arc<Self> {
        let now = Instant::now();
        let patience = options.pong_timeout;
        let state = State {
            phase: Phase::Connecting,
            sender: None,
            reader: None,
            writer: Writer::new(),
            raw: VecDeque::new(),
            read: 0,
            ready: VecDeque::new(),
            ready_cost: 0,
            held_cost: 0,
            listener,
            calls: false,
            told: Told::Nothing,
            wants_room: false,
            has_room: false,
            readers: Vec::new(),
            writers: Vec::new(),
            opening: Opening::default(),
            closing: Closing::default(),
            liveness: Liveness { heard: now, spoke: None, asked: None, patience, look: None },
            pings: Pings::default(),
            error: None,
            broken: None,
            report: None,
            began: now,
            history: Vec::new(),
        };
        Arc::new(Self { state: Mutex::new(state), changed: Condvar::new(), shared, options })
    }

    /// What gives the request up, and sends; before it is sent itself.
    pub(super) fn begin(self: &Arc<Self>, sender: Sender) {
        self.lock().sender = Some(sender);
        let this = Arc::downgrade(self);
        self.shared.network.listen(move |change| {
            let open = this.upgrade();
            open.is_some_and(|session| session.on_network(change))
        });
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits on this thread until `look` finds something.
    pub(super) fn wait<T>(
        &self,
        mut look: impl FnMut(&mut State) -> Option<T>,
    ) -> Result<T, Error> {
        let mut state = self.lock();
        loop {
            if let Some(found) = look(&mut state) {
                return Ok(found);
            }
            self.shared.may_wait()?;
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// What `look` finds. While it finds nothing, the task is woken when something changes.
    pub(super) fn poll<T>(
        &self,
        context: &Context<'_>,
        wakers: impl FnOnce(&mut State) -> &mut Vec<Waker>,
        look: impl FnOnce(&mut State) -> Option<T>,
    ) -> Poll<T> {
        let mut state = self.lock();
        if let Some(found) = look(&mut state) {
            return Poll::Ready(found);
        }
        let wakers = wakers(&mut state);
        if !wakers.iter().any(|waker| waker.will_wake(context.waker())) {
            wakers.push(context.waker().clone());
        }
        Poll::Pending
    }

    /// The next message; nothing after the close. Room that this makes is used.
    pub(super) fn take(
        self: &Arc<Self>,
        state: &mut State,
    ) -> Option<Result<Option<Message>, Error>> {
        if let Some(message) = state.ready.pop_front() {
            state.ready_cost -= cost(&message);
            self.read(state);
            return Some(Ok(Some(message)));
        }
        if let Some(error) = &state.error {
            return Some(Err(error.clone()));
        }
        if state.closing.came.is_some() {
            return Some(Ok(None));
        }
        (state.phase == Phase::Over).then(|| state.broken.clone().map_or(Ok(None), Err))
    }

    /// Sends a message, where there is room for one; whatever its length it is taken as a whole.
    pub(super) fn send(
        self: &Arc<Self>,
        state: &mut State,
        kind: Opcode,
        payload: &[u8],
    ) -> Option<Result<(), Error>> {
        if let Some(error) = state.error.as_ref().or(state.broken.as_ref()) {
            return Some(Err(error.clone()));
        }
        if state.phase != Phase::Open || state.closing.is_sent || state.closing.came.is_some() {
            return Some(Err(Error::WebSocket("it is closed")));
        }
        if state.writer.waiting() > MOST_WAITING {
            return None;
        }
        state.writer.message(kind, payload);
        state.liveness.spoke.get_or_insert_with(Instant::now);
        self.flush(state);
        self.arm(state);
        Some(Ok(()))
    }

    /// How long a ping has taken, once it is answered; the first call sends it.
    pub(super) fn ping(
        &self,
        state: &mut State,
        ping: &mut Option<Ping>,
    ) -> Option<Result<Duration, Error>> {
        if let Some(took) = ping.as_ref().and_then(|ping| state.pings.took(ping)) {
            return Some(Ok(took));
        }
        if let Some(error) = state.error.as_ref().or(state.broken.as_ref()) {
            return Some(Err(error.clone()));
        }
        if state.phase != Phase::Open || state.closing.is_sent || state.closing.came.is_some() {
            return Some(Err(Error::WebSocket("it is closed")));
        }
        ping.get_or_insert_with(|| self.send_ping(state, Instant::now()));
        None
    }

    fn send_ping(&self, state: &mut State, now: Instant) -> Ping {
        let (ping, payload) = state.pings.send(now);
        state.writer.control(Opcode::Ping, &payload);
        self.flush(state);
        ping
    }

    /// Begins the closing handshake, unless it has begun.
    pub(super) fn close(self: &Arc<Self>, reason: &CloseReason) {
        let mut state = self.lock();
        state.closing.by_app |= !state.closing.is_sent;
        match state.phase {
            Phase::Connecting => {
                state.closing.is_sent = true;
                state.cancel();
            }
            Phase::Open => self.say_close(&mut state, reason),
            Phase::Over => {}
        }
    }

    /// The app has let go of it: what comes is dropped, and the server is told.
    pub(super) fn abandon(self: &Arc<Self>) {
        let mut state = self.lock();
        state.closing.is_abandoned = true;
        state.ready.clear();
        (state.raw, state.read) = (VecDeque::new(), 0);
        match state.phase {
            Phase::Open => {
                let reason = CloseReason { code: GOING_AWAY, reason: String::new() };
                self.say_close(&mut state, &reason);
                self.cut_after(&mut state, LINGERS);
            }
            Phase::Connecting => state.cancel(),
            Phase::Over => {}
        }
    }

    fn say_close(self: &Arc<Self>, state: &mut State, reason: &CloseReason) {
        if std::mem::replace(&mut state.closing.is_sent, true) {
            return;
        }
        state.tell(format!("WebSocket: close with {}", reason.code));
        let close = Close { code: reason.code, reason: &reason.reason };
        state.writer.control(Opcode::Close, &close.payload());
        self.flush(state);
        self.cut_after(state, self.options.close_timeout);
    }

    /// The connection is cut then, if it is still there.
    fn cut_after(self: &Arc<Self>, state: &mut State, limit: Duration) {
        let due = Instant::now() + limit;
        let earlier = state.closing.due.map_or(due, |before| before.min(due));
        state.closing.due = Some(earlier);
        self.arm(state);
    }

    /// Hands over as much as there is room for.
    fn flush(&self, state: &mut State) {
        let Some(sender) = state.sender.clone() else { return };
        let before = state.writer.waiting();
        while let Some(front) = state.writer.front() {
            let length = front.len();
            // What cannot be sent any more ends by its request's end.
            let Ok(taken) = sender.write(front) else { break };
            state.writer.advance(taken);
            if taken < length {
                break;
            }
        }
        if before > MOST_WAITING && state.writer.waiting() <= MOST_WAITING {
            state.has_room = std::mem::take(&mut state.wants_room);
            self.wake(state);
        }
    }

    /// Turns what came into messages, as far as there is room for them.
    fn read(self: &Arc<Self>, state: &mut State) {
        while state.ready_cost + state.held_cost < MOST_READY
            && !state.closing.is_abandoned
            && state.closing.came.is_none()
            && state.error.is_none()
        {
            let Some(chunk) = state.raw.pop_front() else { return };
            let (Some(reader), mut rest) = (&mut state.reader, &chunk[state.read..]) else {
                return;
            };
            let came = reader.next(&mut rest);
            state.read = chunk.len() - rest.len();
            match came {
                Ok(None) => state.read = 0,
                Ok(Some(came)) => {
                    state.raw.push_front(chunk);
                    self.came(state, came);
                }
                Err(fault) => self.fail(state, fault),
            }
        }
    }

    fn came(self: &Arc<Self>, state: &mut State, came: Came) {
        match came {
            Came::Message(message) => {
                state.ready_cost += cost(&message);
                state.ready.push_back(message);
            }
            Came::Ping(payload) if !state.closing.is_sent => {
                state.writer.control(Opcode::Pong, &payload);
                self.flush(state);
            }
            Came::Ping(_) => {}
            Came::Pong(payload) => {
                if state.pings.answer(payload, Instant::now()) {
                    self.wake(state);
                }
            }
            Came::Close(reason) => {
                state.tell(format!("WebSocket: the server closes with {}", reason.code));
                // What came behind it is nothing (§5.5.1).
                (state.raw, state.read) = (VecDeque::new(), 0);
                let answer = CloseReason { code: reason.code, reason: String::new() };
                state.closing.came = Some(reason);
                if !state.closing.is_sent {
                    state.writer.forget();
                }
                self.say_close(state, &answer);
                // The server ends the connection (§7.1.1), and is not waited for for long.
                self.cut_after(state, LINGERS);
            }
        }
    }

    /// The server does not keep to the protocol: it is told, and nothing of it is read any more (§7.1.7).
    fn fail(self: &Arc<Self>, state: &mut State, fault: Fault) {
        (state.raw, state.read) = (VecDeque::new(), 0);
        state.error = Some(Error::WebSocket(fault.why));
        state.tell(format!("WebSocket: {}", fault.why));
        if !state.closing.is_sent {
            state.writer.forget();
        }
        let reason = CloseReason { code: fault.code, reason: fault.why.to_owned() };
        self.say_close(state, &reason);
        self.cut_after(state, LINGERS);
    }

    /// Has the timer look when the next thing is due.
    fn arm(self: &Arc<Self>, state: &mut State) {
        let Some(due) = self.due(state) else { return };
        if state.liveness.look.is_some_and(|look| look <= due) {
            return;
        }
        state.liveness.look = Some(due);
        let this = Arc::downgrade(self);
        self.background().run_at(due, move || {
            if let Some(session) = this.upgrade() {
                session.on_time();
            }
        });
    }

    fn due(&self, state: &State) -> Option<Instant> {
        if state.phase != Phase::Open {
            return None;
        }
        if state.closing.due.is_some() {
            return state.closing.due;
        }
        let Liveness { heard, spoke, asked, patience, .. } = state.liveness;
        if let Some(asked) = asked {
            return Some(asked + patience);
        }
        let interval = self.options.ping_interval;
        if interval.is_zero() {
            return None;
        }
        let quiet = spoke.map(|spoke| spoke + QUIET);
        Some((heard + interval).min(quiet.unwrap_or(heard + interval)))
    }

    fn on_time(self: &Arc<Self>) {
        let mut state = self.lock();
        state.liveness.look = None;
        let now = Instant::now();
        let Some(due) = self.due(&state) else { return };
        if now < due {
            return self.arm(&mut state);
        }
        if state.closing.due.is_some() {
            if state.closing.came.is_none() && state.error.is_none() {
                state.tell("WebSocket: the server does not answer the close".to_owned());
                state.error = Some(Failed::TimedOut(Layer::Gap).into());
            }
            return state.cancel();
        }
        let Some(asked) = state.liveness.asked else {
            self.ask(&mut state, now);
            self.arm(&mut state);
            drop(state);
            return self.call_listener();
        };
        // What came is read once the app has taken what came before; and where this thread was held up, so was the one
        // that would have heard.
        if !state.raw.is_empty() || now.duration_since(due) > LATE {
            state.liveness.asked = Some(now);
            state.liveness.patience =
                if state.raw.is_empty() { LATE } else { self.options.pong_timeout };
            return self.arm(&mut state);
        }
        let waited = now.duration_since(asked).as_secs_f64();
        state.tell(format!("WebSocket: nothing came for {waited:.1} s after a ping"));
        state.error.get_or_insert_with(|| Failed::TimedOut(Layer::Gap).into());
        state.cancel();
        self.wake(&mut state);
        drop(state);
        self.call_listener();
    }

    fn ask(&self, state: &mut State, now: Instant) {
        state.liveness.asked = Some(now);
        self.send_ping(state, now);
    }

    /// Another network: whether the connection goes on there shows at once. False when it is over.
    fn on_network(self: &Arc<Self>, change: &NetworkChange) -> bool {
        let mut state = self.lock();
        if state.phase == Phase::Over {
            return false;
        }
        if state.phase == Phase::Open && change.online && !self.options.ping_interval.is_zero() {
            state.liveness.patience = self.options.pong_timeout.min(AFTER_CHANGE);
            if state.liveness.asked.is_none() {
                self.ask(&mut state, Instant::now());
            }
            state.liveness.look = None;
            self.arm(&mut state);
        }
        true
    }

    /// A listener lets go of a message.
    pub(super) fn release(self: &Arc<Self>, cost: usize) {
        let mut state = self.lock();
        state.held_cost -= cost;
        if state.raw.is_empty() {
            return;
        }
        drop(state);
        let this = Arc::clone(self);
        // Not here: it may be within the listener, or hold a lock that the listener wants.
        self.background().run(move || {
            let mut state = this.lock();
            this.read(&mut state);
            drop(state);
            this.call_listener();
        });
    }

    fn background(&self) -> &Background {
        &self.shared.background
    }

    fn wake(&self, state: &mut State) {
        self.changed.notify_all();
        state.readers.drain(..).chain(state.writers.drain(..)).for_each(Waker::wake);
    }

    /// Tells the listener what there is to tell, one thread at a time, with nothing locked.
    fn call_listener(self: &Arc<Self>) {
        loop {
            let mut state = self.lock();
            if state.calls {
                return;
            }
            let Some(tell) = state.next_to_tell() else { return };
            let Some(mut listener) = state.listener.take() else { return };
            state.calls = true;
            let is_end = matches!(tell, Tell::End(_));
            let subprotocol = state.opening.subprotocol.clone();
            drop(state);
            let call = || match tell {
                Tell::Open => listener.on_open(subprotocol.as_deref()),
                Tell::Message(message, cost) => {
                    listener.on_message(Received::new(message, Arc::clone(self), cost));
                }
                Tell::Room => listener.on_room(),
                Tell::End(outcome) => listener.on_end(outcome),
            };
            let told = catch_unwind(AssertUnwindSafe(call));
            let mut state = self.lock();
            state.calls = false;
            if !is_end {
                state.listener = Some(listener);
            }
            if told.is_err() && !is_end {
                state.error = Some(Error::Handler);
                state.ready.clear();
                state.told = Told::Open;
                state.cancel();
            }
            self.read(&mut state);
        }
    }
}

impl State {
    pub(super) const fn opening(&self) -> &Opening {
        &self.opening
    }

    pub(super) const fn waiting(&self) -> usize {
        self.writer.waiting()
    }

    pub(super) const fn close_reason(&self) -> Option<&CloseReason> {
        self.closing.came.as_ref()
    }

    pub(super) const fn is_closed_by_app(&self) -> bool {
        self.closing.by_app
    }

    pub(super) const fn report(&self) -> Option<&Arc<Report>> {
        self.report.as_ref()
    }

    pub(super) fn history(&self) -> &[Entry] {
        &self.history
    }

    pub(super) const fn readers(&mut self) -> &mut Vec<Waker> {
        &mut self.readers
    }

    pub(super) const fn writers(&mut self) -> &mut Vec<Waker> {
        &mut self.writers
    }

    /// Whether it is open, or why it will not be.
    pub(super) fn is_open(&self) -> Option<Result<(), Error>> {
        let was_open = self.reader.is_some();
        match (self.phase, self.error.as_ref().or(self.broken.as_ref())) {
            (Phase::Connecting, None) => None,
            (Phase::Open, _) | (Phase::Over, None) => Some(Ok(())),
            (Phase::Over, Some(_)) if was_open => Some(Ok(())),
            (Phase::Connecting | Phase::Over, Some(error)) => Some(Err(error.clone())),
        }
    }

    /// Whether the connection itself is gone.
    pub(super) fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    fn next_to_tell(&mut self) -> Option<Tell> {
        self.listener.as_ref()?;
        if self.told == Told::Nothing && self.phase == Phase::Open {
            self.told = Told::Open;
            return Some(Tell::Open);
        }
        if std::mem::take(&mut self.has_room) {
            return Some(Tell::Room);
        }
        if let Some(message) = self.ready.pop_front() {
            let cost = cost(&message);
            self.ready_cost -= cost;
            self.held_cost += cost;
            return Some(Tell::Message(message, cost));
        }
        if self.phase != Phase::Over || !self.raw.is_empty() && self.error.is_none() {
            return None;
        }
        self.told = Told::End;
        let outcome = match (&self.error, &self.closing.came) {
            (Some(error), _) => Err(error.clone()),
            (None, Some(reason)) => Ok(reason.clone()),
            (None, None) => Err(self.broken.clone().unwrap_or_else(|| Failed::Disconnected.into())),
        };
        Some(Tell::End(outcome))
    }

    /// A message was not taken: its listener is told when there is room.
    pub(super) const fn want_room(&mut self) {
        self.wants_room = true;
    }

    fn cancel(&self) {
        if let Some(sender) = &self.sender {
            sender.cancel();
        }
    }

    fn tell(&mut self, what: String) {
        if self.history.len() == MOST_HISTORY {
            self.history.remove(0);
        }
        self.history.push(Entry { at: self.began.elapsed(), what });
    }
}

/// The request that becomes the connection, on the engine's thread.
pub(super) struct Ear {
    session: Arc<Session>,
    expected: Expected,
}

impl Ear {
    pub(super) const fn new(session: Arc<Session>, expected: Expected) -> Self {
        Self { session, expected }
    }
}

impl Handler for Ear {
    fn on_head(&mut self, response: Response) {
        let session = &self.session;
        let mut state = session.lock();
        state.liveness.heard = Instant::now();
        match self.expected.judge(&response) {
            Ok(opening) => {
                let coding = if opening.agreed.is_some() { ", compressed" } else { "" };
                state.tell(format!("WebSocket: open{coding}"));
                let limit = session.options.max_message_bytes;
                state.reader = Some(Reader::new(limit, opening.agreed));
                state.writer.agree(opening.agreed);
                state.opening = opening;
                state.phase = Phase::Open;
                session.arm(&mut state);
                if state.closing.is_abandoned {
                    state.cancel();
                }
            }
            Err(error) => {
                state.error.get_or_insert(error);
                state.cancel();
            }
        }
        session.wake(&mut state);
        drop(state);
        session.call_listener();
    }

    fn on_data(&mut self, chunk: Chunk) {
        let session = &self.session;
        let mut state = session.lock();
        let Liveness { heard, spoke, asked, patience, .. } = &mut state.liveness;
        (*heard, *spoke, *asked) = (Instant::now(), None, None);
        *patience = session.options.pong_timeout;
        let is_read = state.closing.came.is_none() && !state.closing.is_abandoned;
        if state.error.is_none() && is_read {
            state.raw.push_back(chunk);
            session.read(&mut state);
        }
        session.arm(&mut state);
        session.wake(&mut state);
        drop(state);
        session.call_listener();
    }

    fn on_room(&mut self) {
        let mut state = self.session.lock();
        self.session.flush(&mut state);
        drop(state);
        self.session.call_listener();
    }

    fn on_end(&mut self, outcome: Result<(), Error>, report: Option<&Report>) {
        let session = &self.session;
        let mut state = session.lock();
        state.report = report.map(|report| Arc::new(report.clone()));
        // After its close it does not matter how the connection ends.
        if state.closing.came.is_none() {
            state.broken = Some(outcome.err().unwrap_or_else(|| Failed::Disconnected.into()));
        }
        state.phase = Phase::Over;
        session.wake(&mut state);
        drop(state);
        session.call_listener();
    }
}

/// What a message counts among those that wait.
const fn cost(message: &Message) -> usize {
    message.len() + size_of::<Message>()
}

/// Messages that wait for the app count so much at most, beyond one.
const MOST_READY: usize = 256 * 1024;
/// While more than this waits for the network, the next message does.
const MOST_WAITING: usize = 256 * 1024;
/// Something was sent and nothing came since for so long: the server is asked.
const QUIET: Duration = Duration::from_secs(5);
/// How long an answer may take on another network.
const AFTER_CHANGE: Duration = Duration::from_secs(3);
/// How long a connection of no more use may stay: its server is to end it.
const LINGERS: Duration = Duration::from_secs(2);
/// A timer that is so late was held up, by a frozen process say.
const LATE: Duration = Duration::from_secs(1);
const GOING_AWAY: u16 = 1001;
const MOST_HISTORY: usize = 64;

/// Lets go of what a listener had.
pub(super) struct Credit {
    session: Weak<Session>,
    cost: usize,
}

impl Credit {
    pub(super) fn new(session: &Arc<Session>, cost: usize) -> Self {
        Self { session: Arc::downgrade(session), cost }
    }
}

impl Drop for Credit {
    fn drop(&mut self) {
        if let Some(session) = self.session.upgrade() {
            session.release(self.cost);
        }
    }
}
