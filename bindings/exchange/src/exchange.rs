//! One request and its response.

use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use towpath::{Body, Error, Failed, Report, Request, Response, Upload};

/// One request and its response, usable from any thread. Nothing here waits: what cannot be done yet is
/// [`Poll::Pending`], and the waker that it was made with is woken when it can. Dropping it gives it up, unless it
/// has ended.
pub struct Exchange {
    state: Mutex<State>,
    waker: Waker,
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
    Begun(Option<Box<Response>>),
    Answered(Box<Body>),
    /// It was given up, or failed before its response began.
    Over(Error),
}

type Asked = Pin<Box<dyn Future<Output = Result<Response, Error>> + Send>>;

impl Exchange {
    /// Sends a request whose body goes with it.
    ///
    /// # Errors
    /// When it cannot be sent as it is; why it came to nothing is told in place of its head.
    pub fn asking(request: Request, waker: Waker) -> Result<Self, Error> {
        let mut asked: Asked = Box::pin(request.send_async());
        // Nothing is sent before it is polled.
        let stage = match asked.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(Ok(response)) => Stage::Begun(Some(Box::new(response))),
            Poll::Ready(Err(error)) if error.is_caller_s() => return Err(error),
            // As later: it is the head that there is none of.
            Poll::Ready(Err(error)) => Stage::Over(error),
            Poll::Pending => Stage::Asking(asked),
        };
        Ok(Self { state: Mutex::new(State { stage, upload: None }), waker })
    }

    /// Sends a request whose body follows by [`Exchange::write`]: of `length` bytes, if that is known.
    ///
    /// # Errors
    /// When it cannot be sent as it is, or has a body already.
    pub fn uploading(request: Request, length: Option<u64>, waker: Waker) -> Result<Self, Error> {
        let upload = request.upload(length)?;
        let state = State { stage: Stage::Uploading, upload: Some(upload) };
        Ok(Self { state: Mutex::new(state), waker })
    }

    /// Sends what there is room for of a piece, and answers how much that was; none when no more of the body is wanted.
    pub fn write(&self, piece: &[u8]) -> Option<usize> {
        let mut sent = 0;
        let mut state = self.state();
        let upload = state.upload.as_mut()?;
        let mut context = Context::from_waker(&self.waker);
        for part in piece.chunks(PART_BYTES) {
            match upload.poll_write(&mut context, &Bytes::copy_from_slice(part)) {
                Poll::Ready(Ok(taken)) => sent += taken,
                Poll::Pending => break,
                // What the caller did wrong is told when it ends the body.
                Poll::Ready(Err(_)) => return None,
            }
        }
        Some(sent)
    }

    /// Ends the body.
    ///
    /// # Errors
    /// When less was written than was promised and no response has begun.
    pub fn finish(&self) -> Result<(), Error> {
        let mut state = self.state();
        let Some(upload) = &state.upload else { return Ok(()) };
        upload.close()?;
        if matches!(state.stage, Stage::Answered(_)) {
            state.upload = None;
        }
        Ok(())
    }

    /// The response, once its head is there: its body is read here, after [`Exchange::begin_body`].
    ///
    /// # Errors
    /// When there is none.
    pub fn poll_head(&self) -> Poll<Result<Response, Error>> {
        self.state().poll_head(&mut Context::from_waker(&self.waker))
    }

    /// The response's body is read from here on.
    pub fn begin_body(&self, body: Body) {
        self.state().stage = Stage::Answered(Box::new(body));
    }

    /// The next piece of the response's body; none after the last.
    ///
    /// # Errors
    /// When the response ended before it was whole.
    pub fn poll_chunk(&self) -> Poll<Result<Option<Bytes>, Error>> {
        self.state().poll_chunk(&mut Context::from_waker(&self.waker))
    }

    /// The fields after the body, once it has ended.
    #[must_use]
    pub fn trailers(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let state = self.state();
        let Stage::Answered(body) = &state.stage else { return Vec::new() };
        body.trailers().map(|(name, value)| (name.to_vec(), value.to_vec())).collect()
    }

    /// What `read` finds in the report, once the request is over.
    pub fn with_report<T>(&self, read: impl FnOnce(&Report) -> T) -> Option<T> {
        self.state().report().map(read)
    }

    /// Gives it up, unless it has ended; who waits for it hears of that.
    pub fn cancel(&self) {
        let dropped = {
            let mut state = self.state();
            let ended = matches!(&state.stage, Stage::Answered(body) if body.report().is_some());
            let over = Stage::Over(Failed::Cancelled.into());
            let stage = if ended { None } else { Some(mem::replace(&mut state.stage, over)) };
            (stage, state.upload.take())
        };
        drop(dropped);
        self.waker.wake_by_ref();
    }

    /// Leaves everything as it is, for ever: in a process that was forked, where the engine has no thread and its
    /// locks may be held.
    pub fn forget(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        mem::forget(mem::replace(&mut state.stage, Stage::Over(Error::Stopped)));
        mem::forget(state.upload.take());
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
            (Stage::Begun(response), _) => {
                Poll::Ready(response.take().map(|response| *response).ok_or(NO_HEAD))
            }
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

    fn report(&self) -> Option<&Report> {
        match &self.stage {
            Stage::Answered(body) => body.report(),
            Stage::Over(error) => error.report(),
            Stage::Asking(_) | Stage::Uploading | Stage::Begun(_) => None,
        }
    }
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exchange").finish_non_exhaustive()
    }
}

/// What is copied at a time of a body.
const PART_BYTES: usize = 64 * 1024;
const NO_HEAD: Error = Error::Upload("the head is taken once, and the body after it");
