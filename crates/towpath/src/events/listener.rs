//! Events by callbacks.
//!
//! Arrives: what [`Events`] hears, on a thread that runs while something comes. Leaves: calls, one after the other. The
//! thread is neither the app's nor the engine's, so that a listener that takes its time holds up its own stream alone:
//! what it does not take stays with the server.

use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use super::{Change, Event, Events, Phase};
use crate::background::Background;
use crate::timeline::Entry;
use crate::{Error, Failed};

/// Is called as things happen, one call after the other, on a thread of the stream's own. It may block: the server is
/// held back then.
pub trait Listener: Send {
    /// There is a connection. Called again for each further one.
    fn on_open(&mut self) {}

    /// An event came.
    fn on_event(&mut self, event: Event);

    /// The connection broke or the server ended it, or there is none yet; it is asked for again, on its own.
    fn on_break(&mut self, why: &str) {
        let _ = why;
    }

    /// It is over: the server has no more (204), or why there is none. Called once, and nothing after it.
    fn on_end(&mut self, outcome: Result<(), Error>);
}

/// A stream whose events a [`Listener`] is told. Dropping it ends it.
#[must_use = "dropping it ends it"]
pub struct Listening {
    control: Arc<Control>,
    stream: Arc<Stream>,
}

/// What the app's threads and the stream's share.
#[derive(Default)]
struct Control(Mutex<State>);

#[derive(Default)]
struct State {
    is_closed: bool,
    is_over: bool,
    last_id: String,
    history: Vec<Entry>,
}

/// The work, which goes on whenever something came.
struct Stream {
    /// None when it is done.
    work: Mutex<Option<Work>>,
    thread: Background,
}

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Events {
    /// Has `listener` told what comes. It begins at once.
    ///
    /// ```no_run
    /// use towpath::events::{Event, Listener};
    /// struct News;
    /// impl Listener for News {
    ///     fn on_event(&mut self, event: Event) {
    ///         println!("{} {}", event.name(), event.data());
    ///     }
    ///     fn on_end(&mut self, outcome: Result<(), towpath::Error>) {
    ///         println!("no more: {outcome:?}");
    ///     }
    /// }
    /// let engine = towpath::Engine::new()?;
    /// let listening = engine.client().get("https://example.org/news").events().listen(News)?;
    /// // … until the app has enough.
    /// listening.close();
    /// # Ok::<(), towpath::Error>(())
    /// ```
    ///
    /// # Errors
    /// When it cannot be asked for as it is; then `listener` is not called.
    pub fn listen(self, listener: impl Listener + 'static) -> Result<Listening, Error> {
        self.request.check()?;
        let control = Arc::new(Control::default());
        self.last_event_id().clone_into(&mut control.lock().last_id);
        let thread = self.reconnects.timer();
        let work = tell(self, Box::new(listener), Arc::clone(&control));
        let stream = Arc::new(Stream { work: Mutex::new(Some(Box::pin(work))), thread });
        stream.wake_by_ref();
        Ok(Listening { control, stream })
    }
}

impl Listening {
    /// Ends it, unless it is over: [`Listener::on_end`] is told [`Failed::Cancelled`], and before that no more than the
    /// call that is under way. It does not wait for that.
    pub fn close(&self) {
        self.control.lock().is_closed = true;
        self.stream.wake_by_ref();
    }

    /// The id to go on from, in another life ([`Events::after`]); empty without one.
    #[must_use]
    pub fn last_event_id(&self) -> String {
        self.control.lock().last_id.clone()
    }

    /// As [`Events::history`].
    #[must_use]
    pub fn history(&self) -> Vec<Entry> {
        self.control.lock().history.clone()
    }

    /// Whether its end was told, or is being told.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.control.lock().is_over
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.close();
    }
}

impl Control {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes how far it has come.
    fn note(&self, events: &Events, change: Option<&Change>) {
        let mut state = self.lock();
        if state.last_id != events.last_event_id() {
            events.last_event_id().clone_into(&mut state.last_id);
        }
        if change.is_some() {
            state.history = events.history().to_vec();
        }
    }
}

impl Stream {
    /// Goes on as far as it can. Jobs of one thread come one after the other, so nothing waits for the lock.
    fn go_on(self: &Arc<Self>) {
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        let waker = Waker::from(Arc::clone(self));
        let done = match &mut *work {
            Some(work) => work.as_mut().poll(&mut Context::from_waker(&waker)).is_ready(),
            None => return,
        };
        if done {
            *work = None;
        }
    }
}

impl Wake for Stream {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let this = Arc::clone(self);
        self.thread.run(move || this.go_on());
    }
}

/// Tells everything, to the end.
async fn tell(mut events: Events, mut listener: Box<dyn Listener>, control: Arc<Control>) {
    let outcome = tell_until_end(&mut events, &mut *listener, &control).await;
    events.phase = Phase::Over;
    control.lock().is_over = true;
    // A listener that panics in its end has heard of it.
    let _ = catch_unwind(AssertUnwindSafe(|| listener.on_end(outcome)));
}

async fn tell_until_end(
    events: &mut Events,
    listener: &mut dyn Listener,
    control: &Control,
) -> Result<(), Error> {
    while !events.is_over() {
        let change = {
            let mut step = pin!(events.step_async());
            poll_fn(|context| match control.lock().is_closed {
                true => Poll::Ready(Err(Failed::Cancelled.into())),
                false => step.as_mut().poll(context),
            })
            .await?
        };
        control.note(events, change.as_ref());
        match change {
            Some(Change::Opened) => call(|| listener.on_open())?,
            Some(Change::Broken(why)) => call(|| listener.on_break(&why))?,
            None => {}
        }
        while let Some(event) = events.events.pop_front() {
            if control.lock().is_closed {
                return Err(Failed::Cancelled.into());
            }
            call(|| listener.on_event(event))?;
        }
    }
    Ok(())
}

/// A listener that panics hears its end, and harms no other.
fn call(tell: impl FnOnce()) -> Result<(), Error> {
    catch_unwind(AssertUnwindSafe(tell)).map_err(|_| Error::Handler)
}

impl fmt::Debug for Listening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listening").finish_non_exhaustive()
    }
}
