//! One request and its response.
//!
//! Every call does what can be done. Where it has to wait, it blocks the thread, with Python's lock given back, or,
//! for an exchange of an event loop, says so and has the loop woken.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use towpath::report::to_json;
use towpath::{Body, Error, Failed, Request, Response, Upload, timeline};

use crate::failure::failure;
use crate::wake::{Wake, Woken};

/// One request and its response. Dropping it gives it up, unless it has ended.
#[pyclass(frozen, module = "towpath._towpath")]
pub(crate) struct Exchange {
    state: Mutex<State>,
    wake: Arc<Wake>,
    waker: Waker,
    process: Process,
}

struct State {
    stage: Stage,
    /// The request's body, if it follows in pieces and has not ended.
    upload: Option<Upload>,
}

enum Stage {
    /// Its body was sent with it.
    Asking(Asked),
    /// Its body is in [`State::upload`].
    Uploading,
    /// The response's head is there, and was not taken.
    Begun(Option<Response>),
    Answered(Box<Body>),
    /// It was given up, or failed before its response began.
    Over(Error),
}

type Asked = Pin<Box<dyn Future<Output = Result<Response, Error>> + Send>>;

/// A response's status, its fields, and what led to it: status and place.
type Head = (u16, Py<PyList>, Vec<(u16, String)>);

/// What happened: seconds since the request began, and what.
type Entries = Vec<(f64, String)>;

#[pymethods]
impl Exchange {
    /// Sends what there is room for of `piece` from `offset` on, and answers how much that was: never blocks. -1 when
    /// no more of the body is wanted.
    fn write(&self, piece: &[u8], offset: usize) -> isize {
        let mut sent = 0;
        let mut state = self.state();
        let Some(upload) = &mut state.upload else { return -1 };
        let mut context = Context::from_waker(&self.waker);
        let unsent = piece.get(offset..).unwrap_or_default();
        for part in unsent.chunks(PART_BYTES) {
            match upload.poll_write(&mut context, &Bytes::copy_from_slice(part)) {
                Poll::Ready(Ok(taken)) => sent += taken,
                Poll::Pending => break,
                // What the caller did wrong is told when it ends the body.
                Poll::Ready(Err(_)) => return -1,
            }
        }
        isize::try_from(sent).unwrap_or(isize::MAX)
    }

    /// Ends the body.
    fn finish(&self) -> PyResult<()> {
        let mut state = self.state();
        let Some(upload) = &state.upload else { return Ok(()) };
        upload.close().map_err(|error| failure(&error))?;
        if matches!(state.stage, Stage::Answered(_)) {
            state.upload = None;
        }
        Ok(())
    }

    /// The response's head. None where it would block: always for an event loop's, and where the body may go on
    /// (`room`).
    #[pyo3(signature = (room=false))]
    fn head(&self, py: Python<'_>, room: bool) -> PyResult<Option<Head>> {
        let Some(response) = self.wait(py, room, State::poll_head)? else { return Ok(None) };
        let fields = fields(py, response.headers())?;
        let status = response.status();
        let redirects = response.redirects();
        let redirects =
            redirects.iter().map(|from| (from.status(), from.url().to_owned())).collect();
        self.state().stage = Stage::Answered(Box::new(response.into_body()));
        Ok(Some((status, fields, redirects)))
    }

    /// The next piece of the response's body: None after the last, empty where it would block, as `head`.
    #[pyo3(signature = (room=false))]
    fn chunk<'py>(&self, py: Python<'py>, room: bool) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let chunk = self.wait(py, room, State::poll_chunk)?;
        Ok(match chunk {
            None => Some(PyBytes::new(py, b"")),
            Some(None) => None,
            Some(Some(chunk)) => Some(PyBytes::new(py, &chunk)),
        })
    }

    /// The fields after the body, once it has ended.
    fn trailers(&self, py: Python<'_>) -> PyResult<Py<PyList>> {
        match &self.state().stage {
            Stage::Answered(body) => fields(py, body.trailers()),
            Stage::Asking(_) | Stage::Uploading | Stage::Begun(_) | Stage::Over(_) => {
                Ok(PyList::empty(py).unbind())
            }
        }
    }

    /// What happened to the request as JSON, once it is over.
    fn report(&self) -> Option<String> {
        self.state().report().map(to_json)
    }

    /// What happened to the request in words, once it is over.
    fn timeline(&self) -> Entries {
        let state = self.state();
        let entries = state.report().map(timeline::entries).unwrap_or_default();
        entries.into_iter().map(|entry| (entry.at.as_secs_f64(), entry.what)).collect()
    }

    /// Gives it up, unless it has ended; who waits for it hears of that.
    fn cancel(&self) {
        if !self.process.is_this() {
            return;
        }
        let over = Stage::Over(Failed::Cancelled.into());
        let was = {
            let mut state = self.state();
            let ended = matches!(&state.stage, Stage::Answered(body) if body.report().is_some());
            let stage = if ended { None } else { Some(mem::replace(&mut state.stage, over)) };
            (stage, state.upload.take())
        };
        drop(was);
        self.waker.wake_by_ref();
    }
}

impl Exchange {
    pub(crate) fn uploading(upload: Upload, wake: Arc<Wake>) -> Self {
        Self::new(State { stage: Stage::Uploading, upload: Some(upload) }, wake)
    }

    /// Sends a request whose body goes with it.
    pub(crate) fn asking(request: Request, wake: Arc<Wake>) -> Result<Self, Error> {
        let mut asked: Asked = Box::pin(request.send_async());
        let waker = Waker::from(Arc::clone(&wake));
        // Nothing is sent before it is polled.
        let stage = match asked.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(response) => Stage::Begun(Some(response?)),
            Poll::Pending => Stage::Asking(asked),
        };
        Ok(Self::new(State { stage, upload: None }, wake))
    }

    fn new(state: State, wake: Arc<Wake>) -> Self {
        let waker = Waker::from(Arc::clone(&wake));
        Self { state: Mutex::new(state), wake, waker, process: Process::this() }
    }

    /// What `poll` finds; none where it is not to be waited for.
    fn wait<T: Send>(
        &self,
        py: Python<'_>,
        room: bool,
        poll: fn(&mut State, &mut Context<'_>) -> Poll<Result<T, Error>>,
    ) -> PyResult<Option<T>> {
        loop {
            let found = py.detach(|| {
                loop {
                    let mut context = Context::from_waker(&self.waker);
                    if let Poll::Ready(found) = poll(&mut self.state(), &mut context) {
                        return Some(found.map(Some));
                    }
                    let Wake::Thread(sleep) = &*self.wake else { return Some(Ok(None)) };
                    if sleep.sleep() == Woken::BySignal {
                        return None;
                    }
                    if room {
                        return Some(Ok(None));
                    }
                }
            });
            match found {
                Some(found) => return found.map_err(|error| failure(&error)),
                None => py.check_signals()?,
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn poll_head(&mut self, context: &mut Context<'_>) -> Poll<Result<Response, Error>> {
        let polled = match (&mut self.stage, &mut self.upload) {
            (Stage::Asking(asked), _) => asked.as_mut().poll(context),
            (Stage::Uploading, Some(upload)) => upload.poll_response(context),
            (Stage::Begun(response), _) => Poll::Ready(response.take().ok_or(NO_HEAD)),
            (Stage::Uploading | Stage::Answered(_), _) => Poll::Ready(Err(NO_HEAD)),
            (Stage::Over(error), _) => Poll::Ready(Err(error.clone())),
        };
        if let Poll::Ready(Err(error)) = &polled {
            *self = Self { stage: Stage::Over(error.clone()), upload: None };
        }
        polled
    }

    fn poll_chunk(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Error>> {
        match &mut self.stage {
            Stage::Answered(body) => body.poll_chunk(context),
            Stage::Over(error) => Poll::Ready(Err(error.clone())),
            Stage::Asking(_) | Stage::Uploading | Stage::Begun(_) => Poll::Ready(Err(NO_HEAD)),
        }
    }

    fn report(&self) -> Option<&towpath::Report> {
        match &self.stage {
            Stage::Answered(body) => body.report(),
            Stage::Over(error) => error.report(),
            Stage::Asking(_) | Stage::Uploading | Stage::Begun(_) => None,
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if !self.process.is_this() {
            // The engine's locks may be held for ever by a thread that is not in this process.
            let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
            mem::forget(mem::replace(&mut state.stage, Stage::Over(Error::Stopped)));
            mem::forget(state.upload.take());
        }
    }
}

fn fields<'a>(
    py: Python<'_>,
    fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
) -> PyResult<Py<PyList>> {
    let list = PyList::empty(py);
    for (name, value) in fields {
        list.append((PyBytes::new(py, name), PyBytes::new(py, value)))?;
    }
    Ok(list.unbind())
}

/// A process, by which one is told from those that were forked from it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process(u32);

impl Process {
    pub(crate) fn this() -> Self {
        Self(std::process::id())
    }

    pub(crate) fn is_this(self) -> bool {
        self == Self::this()
    }
}

/// What is copied at a time of a body.
const PART_BYTES: usize = 64 * 1024;
const NO_HEAD: Error = Error::Upload("the head is taken once, and the body after it");
