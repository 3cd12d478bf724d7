//! One request as the app's threads and the engine's share it.
//!
//! Arrives: the engine's events, on its thread. Leaves: what a caller waits for, whichever way it waits.

use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use bytes::Bytes;
use towpath_engine::local::message::{
    CallId, Command, Error as Failed, Event, NetworkChange, Open, Outcome, Remembered,
};
use towpath_engine::local::report::Report;
use towpath_engine::message::{Message, ToWorker};
use towpath_io::{Handle, SendError};
use towpath_proto::head::Head;
use towpath_proto::tls::ClientTemplate;

use crate::background::Background;
use crate::dns_over_https::Server;
use crate::finder::Askers;
use crate::link::Silences;
use crate::network::Network;
use crate::request::Handler;
use crate::response::{Chunk, Response, Trailers};
use crate::tls::Tls;
use crate::turns::{Entered, Lost, Turns};
use crate::{Error, Settings};

/// What all users of one engine share.
#[derive(Default)]
pub(crate) struct Shared {
    handle: OnceLock<Handle<Message>>,
    /// Its own, on which events come and nothing may wait for them.
    thread: OnceLock<ThreadId>,
    calls: Mutex<Calls>,
    next: AtomicU64,
    pub(crate) window_bytes: usize,
    /// Identical requests are limited: bodies are told apart.
    pub(crate) hashes_bodies: bool,
    tls: Mutex<TlsState>,
    /// Where requests of one origin wait for one another, if they do.
    turns: Option<Turns>,
    /// Those of them that came to nothing, and whose handlers do not know.
    untold: Mutex<Vec<(Arc<Call>, Ended)>>,
    /// Who waits for what is remembered.
    memory: Mutex<Vec<mpsc::Sender<Remembered>>>,
    /// Why what was remembered could not be read.
    pub(crate) memory_failure: OnceLock<String>,
    pub(crate) network: Network,
    pub(crate) askers: Askers,
    pub(crate) silences: Silences,
    pub(crate) background: Background,
    /// Whom names are asked of in place of the system.
    pub(crate) dns_over_https: Option<Server>,
}

#[derive(Default)]
struct TlsState {
    tls: Tls,
    /// The engine knows. It is told when the first request wants it: reading the platform's roots takes milliseconds.
    told: bool,
}

#[derive(Default)]
struct Calls {
    open: HashMap<CallId, Arc<Call>>,
    stopped: bool,
}

/// One request.
pub(crate) struct Call {
    pub(crate) id: CallId,
    shared: Arc<Shared>,
    state: Mutex<State>,
    changed: Condvar,
}

/// What is known of a request, and what waits for it.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) head: Option<Head>,
    /// A head has come, whether or not it has been taken.
    pub(crate) answered: bool,
    pub(crate) chunks: VecDeque<Bytes>,
    pub(crate) trailers: Option<Head>,
    /// Bytes of the request's body that may still be sent.
    pub(crate) room: usize,
    /// A handler that found too little room is told when there is more.
    pub(crate) wants_room: bool,
    pub(crate) ended: Option<Ended>,
    reader: Option<Waker>,
    writer: Option<Waker>,
    handler: Option<Box<dyn Handler>>,
    /// Its handler panicked: it hears of the end alone.
    panicked: bool,
}

/// How a request ended.
#[derive(Clone)]
pub(crate) struct Ended {
    pub(crate) outcome: Result<(), Error>,
    pub(crate) report: Option<Arc<Report>>,
}

impl Shared {
    pub(crate) fn new(
        settings: &Settings,
        turns: Option<Turns>,
        tls: Tls,
        dns_over_https: Option<Server>,
    ) -> Self {
        let (window_bytes, hashes_bodies) = (settings.window_bytes, settings.max_identical > 0);
        Self {
            window_bytes,
            hashes_bodies,
            turns,
            tls: Mutex::new(TlsState { tls, told: false }),
            dns_over_https,
            ..Self::default()
        }
    }

    /// Tells the engine how TLS is spoken, once.
    pub(crate) fn prepare_tls(&self) -> Result<(), Error> {
        let mut state = self.tls();
        if !state.told {
            // What is offered follows from the versions of HTTP that each request wants.
            self.command(Command::Tls(state.tls.template(&[])?))?;
            state.told = true;
        }
        Ok(())
    }

    /// How TLS is spoken by what connects on its own: links.
    pub(crate) fn tls_template(&self) -> Result<ClientTemplate, Error> {
        self.tls().tls.template(&[])
    }

    fn tls(&self) -> MutexGuard<'_, TlsState> {
        self.tls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_handle(&self, handle: Handle<Message>) {
        let _ = self.handle.set(handle);
    }

    pub(crate) fn set_thread(&self, thread: ThreadId) {
        let _ = self.thread.set(thread);
    }

    /// Nothing comes while the thread waits on which it would come.
    pub(crate) fn may_wait(&self) -> Result<(), Error> {
        let own = self.thread.get().is_some_and(|own| *own == thread::current().id());
        if own { Err(Error::EngineThread) } else { Ok(()) }
    }

    pub(crate) fn handle(&self) -> Option<&Handle<Message>> {
        self.handle.get()
    }

    /// Hands a command to the engine.
    pub(crate) fn command(&self, command: Command) -> Result<(), Error> {
        let Some(handle) = self.handle.get() else { return Err(Error::Stopped) };
        handle.send(Message::To(ToWorker::Local(command))).map_err(|error| match error {
            SendError::Full(_) => Error::Engine("too much waits for it".to_owned()),
            SendError::Gone(_) => Error::Stopped,
        })
    }

    /// Tells the engine what network there is, and then all others who want to know.
    pub(crate) fn network_changed(&self, change: NetworkChange) -> Result<(), Error> {
        self.command(Command::Network(change.clone()))?;
        self.network.changed(&change);
        Ok(())
    }

    /// What is remembered. Blocks until the engine has told.
    pub(crate) fn ask_for_memory(&self) -> Result<Remembered, Error> {
        self.may_wait()?;
        let (sender, told) = mpsc::channel();
        self.memory().push(sender);
        self.command(Command::Save)?;
        told.recv().map_err(|_| Error::Stopped)
    }

    fn memory(&self) -> MutexGuard<'_, Vec<mpsc::Sender<Remembered>>> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new request; its number is used for nothing else.
    pub(crate) fn add(self: &Arc<Self>) -> Result<Arc<Call>, Error> {
        let id = CallId(self.next.fetch_add(1, Ordering::Relaxed));
        let state = State { room: self.window_bytes, ..State::default() };
        let call = Arc::new(Call {
            id,
            shared: Arc::clone(self),
            state: Mutex::new(state),
            changed: Condvar::new(),
        });
        let mut calls = self.calls();
        if calls.stopped {
            return Err(Error::Stopped);
        }
        calls.open.insert(id, Arc::clone(&call));
        Ok(call)
    }

    /// A request that did not come to the engine. Whether it had not ended: an engine that stops meanwhile has told its
    /// end.
    pub(crate) fn forget(&self, id: CallId) -> bool {
        let call = self.calls().open.remove(&id);
        // It may hold the request that holds it.
        call.is_some_and(|call| {
            let unused = call.state().handler.take();
            drop(unused);
            true
        })
    }

    /// Sends a request, or has it wait for its turn.
    pub(crate) fn begin(
        self: &Arc<Self>,
        open: Open,
        turn_limit: Option<Duration>,
    ) -> Result<(), Error> {
        let (id, open) = (open.call, Box::new(open));
        // A connection of its own, and what is to have no limits, holds up nothing.
        let is_free = open.options.upgrades || !open.options.limited;
        let Some(turns) = self.turns.as_ref().filter(|_| !is_free) else {
            return self.command(Command::Open(open));
        };
        match turns.enter(open, turn_limit, Instant::now()) {
            Entered::Full => Err(Failed::Overflow.into()),
            Entered::Waits(look) => {
                self.look_at(look);
                // An engine that has stopped meanwhile has ended what waited before.
                let is_late = self.calls().stopped && turns.withdraw(id);
                if is_late { Err(Error::Stopped) } else { Ok(()) }
            }
            Entered::Turn(open) => {
                let sent = self.command(Command::Open(open));
                if sent.is_err() {
                    self.leave(id);
                }
                sent
            }
        }
    }

    /// A request has ended: others may have their turn.
    fn leave(&self, id: CallId) {
        let Some(turns) = &self.turns else { return };
        let lost = turns.leave(id, Instant::now(), |command| self.command(command));
        self.end_waiting(lost);
    }

    /// Looks then for requests that have waited for too long.
    fn look_at(self: &Arc<Self>, look: Option<Instant>) {
        let Some(look) = look else { return };
        let this = Arc::downgrade(self);
        self.background.run_at(look, move || {
            let Some(shared) = this.upgrade() else { return };
            let Some(turns) = &shared.turns else { return };
            let (lost, next) = turns.look(Instant::now());
            shared.end_waiting(lost);
            shared.look_at(next);
        });
    }

    /// Requests that waited for their turn come to nothing.
    fn end_waiting(&self, lost: Lost) {
        for (id, error) in lost {
            let Some(call) = self.calls().open.remove(&id) else { continue };
            let ended = Ended { outcome: Err(error), report: None };
            let has_handler = call.state().handler.is_some();
            if !has_handler {
                call.end(ended);
                continue;
            }
            // Handlers are called on the engine's thread: an event brings it there.
            let mut untold = self.untold();
            let is_first = untold.is_empty();
            untold.push((call, ended));
            drop(untold);
            if is_first {
                let _ = self.command(Command::Save);
            }
        }
    }

    /// Tells handlers of requests that came to nothing while they waited.
    fn tell_untold(&self) {
        let untold = std::mem::take(&mut *self.untold());
        untold.into_iter().for_each(|(call, ended)| call.end(ended));
    }

    fn untold(&self) -> MutexGuard<'_, Vec<(Arc<Call>, Ended)>> {
        self.untold.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An event of the engine, on its thread.
    pub(crate) fn on_event(&self, event: Event) {
        let id = match &event {
            Event::Head { call, .. }
            | Event::Data { call, .. }
            | Event::Trailers { call, .. }
            | Event::Room { call, .. }
            | Event::Ended { call, .. } => *call,
            Event::Saved(saved) => {
                self.tell_untold();
                for waiting in self.memory().drain(..) {
                    let _ = waiting.send(saved.clone());
                }
                return;
            }
            Event::Found(found) => return self.askers.tell(found.clone()),
            Event::Resolve { .. } => return,
        };
        let ends = matches!(event, Event::Ended { .. });
        let call = {
            let mut calls = self.calls();
            if ends { calls.open.remove(&id) } else { calls.open.get(&id).cloned() }
        };
        if ends {
            self.leave(id);
        }
        if let Some(call) = call {
            call.on_event(event);
        }
    }

    /// The engine is gone: what is still open ends.
    pub(crate) fn stop(&self) {
        let open = {
            let mut calls = self.calls();
            calls.stopped = true;
            std::mem::take(&mut calls.open)
        };
        self.memory().clear();
        if let Some(turns) = &self.turns {
            turns.clear();
        }
        self.tell_untold();
        for call in open.into_values() {
            call.end(Ended { outcome: Err(Error::Stopped), report: None });
        }
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Call {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its handler, before anything can happen to it. An engine that has stopped meanwhile ended it without.
    pub(crate) fn listen(&self, mut handler: Box<dyn Handler>) {
        let mut state = self.state();
        let Some(ended) = state.ended.clone() else {
            state.handler = Some(handler);
            return;
        };
        drop(state);
        handler.on_end(ended.outcome, ended.report.as_deref());
    }

    /// Waits on this thread until `look` finds something.
    pub(crate) fn wait<T>(
        &self,
        mut look: impl FnMut(&mut State) -> Option<Result<T, Error>>,
    ) -> Result<T, Error> {
        let mut state = self.state();
        loop {
            if let Some(found) = look(&mut state) {
                return found;
            }
            self.shared.may_wait()?;
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// What `look` finds. While it finds nothing, the task is woken when something comes.
    pub(crate) fn poll<T>(
        &self,
        context: &Context<'_>,
        look: impl FnOnce(&mut State) -> Option<T>,
    ) -> Poll<T> {
        let mut state = self.state();
        let found = look(&mut state);
        if found.is_none() {
            state.reader = Some(context.waker().clone());
        }
        found.map_or(Poll::Pending, Poll::Ready)
    }

    pub(crate) fn command(&self, command: Command) -> Result<(), Error> {
        let Some(turns) = &self.shared.turns else { return self.shared.command(command) };
        turns.say(self.id, command).map_or(Ok(()), |command| self.shared.command(command))
    }

    /// Gives the request up, unless it has ended. What comes then is dropped.
    pub(crate) fn cancel(&self) {
        if self.state().ended.is_some() {
            return;
        }
        let waits = self.shared.turns.as_ref().is_some_and(|turns| turns.withdraw(self.id));
        if waits {
            return self.shared.end_waiting(vec![(self.id, Failed::Cancelled.into())]);
        }
        let _ = self.command(Command::Cancel { call: self.id });
    }

    /// The app has used bytes of the response.
    pub(crate) fn consumed(&self, bytes: usize) {
        let _ = self.command(Command::Consumed { call: self.id, bytes });
    }

    fn on_event(self: &Arc<Self>, event: Event) {
        if self.state().handler.is_some() {
            return self.call_back(event);
        }
        match event {
            Event::Head { head, .. } => self.change(|state| {
                state.answered = true;
                state.head = Some(head);
            }),
            Event::Data { chunk, .. } => self.change(|state| state.chunks.push_back(chunk)),
            Event::Trailers { trailers, .. } => {
                self.change(|state| state.trailers = Some(trailers));
            }
            Event::Room { bytes, .. } => self.change(|state| state.room += bytes),
            Event::Ended { outcome, report, .. } => self.end(Ended::new(outcome, report)),
            Event::Resolve { .. } | Event::Found(_) | Event::Saved(_) => {}
        }
    }

    /// The same for handlers, which are called: on the engine's thread, with nothing locked.
    fn call_back(self: &Arc<Self>, event: Event) {
        let Some(mut handler) = self.state().handler.take() else { return };
        if let Event::Ended { outcome, report, .. } = event {
            return self.end_with(Some(handler), Ended::new(outcome, report));
        }
        let panicked = self.state().panicked;
        let tell = || {
            if !panicked {
                self.tell(&mut *handler, event);
            }
        };
        let told = catch_unwind(AssertUnwindSafe(tell));
        let mut state = self.state();
        state.handler = Some(handler);
        if told.is_err() {
            state.panicked = true;
            drop(state);
            self.cancel();
        }
    }

    fn tell(self: &Arc<Self>, handler: &mut dyn Handler, event: Event) {
        match event {
            Event::Head { head, .. } => {
                self.change(|state| state.answered = true);
                handler.on_head(Response::headless(head));
            }
            Event::Data { chunk, .. } => handler.on_data(Chunk::new(chunk, Arc::clone(self))),
            Event::Room { bytes, .. } => {
                let mut wanted = false;
                self.change(|state| {
                    state.room += bytes;
                    wanted = std::mem::take(&mut state.wants_room);
                });
                if wanted {
                    handler.on_room();
                }
            }
            Event::Trailers { trailers, .. } => handler.on_trailers(Trailers::new(trailers)),
            Event::Ended { .. } | Event::Resolve { .. } | Event::Found(_) | Event::Saved(_) => {}
        }
    }

    fn end(&self, ended: Ended) {
        let handler = self.state().handler.take();
        self.end_with(handler, ended);
    }

    /// A handler that hears of the end finds that it has ended.
    fn end_with(&self, handler: Option<Box<dyn Handler>>, mut ended: Ended) {
        self.change(|state| {
            if state.panicked {
                ended.outcome = Err(Error::Handler);
            }
            state.ended = Some(ended.clone());
        });
        if let Some(mut handler) = handler {
            let tell = || handler.on_end(ended.outcome, ended.report.as_deref());
            // Nothing follows for this request, and the others go on.
            let _ = catch_unwind(AssertUnwindSafe(tell));
        }
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state();
        change(&mut state);
        let wakers = [state.reader.take(), state.writer.take()];
        drop(state);
        self.changed.notify_all();
        wakers.into_iter().flatten().for_each(Waker::wake);
    }
}

impl State {
    /// Wants to be woken when there is room.
    pub(crate) fn wake_writer(&mut self, waker: &Waker) {
        self.writer = Some(waker.clone());
    }
}

impl Ended {
    fn new(outcome: Outcome, report: Box<Report>) -> Self {
        let report = Arc::new(*report);
        let outcome = match outcome {
            Outcome::Complete => Ok(()),
            Outcome::Failed(error) => Err(Error::failed(error, Some(Arc::clone(&report)))),
        };
        Self { outcome, report: Some(report) }
    }

    /// Why there is no response, where none has begun.
    pub(crate) fn error(&self) -> Error {
        self.outcome.clone().err().unwrap_or_else(|| Failed::Disconnected.into())
    }
}
