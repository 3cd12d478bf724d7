//! A request's body in pieces.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use towpath_engine::local::message::Command;
use towpath_proto::head::Head;

use crate::call::{Call, State};
use crate::engine::Life;
use crate::leg::Leg;
use crate::redirect::{Current, RedirectChain};
use crate::request::begun;
use crate::{Error, Response};

/// A request whose head is on its way and whose body follows. No more than
/// [`Settings::window_bytes`](crate::Settings::window_bytes) of it waits here. Dropping it gives the request up.
pub struct Upload {
    call: Option<Arc<Call>>,
    life: Option<Arc<Life>>,
    /// What is left of the promised length.
    left: Option<u64>,
    /// A response has taken over: it decides whether the request goes on.
    answered: bool,
    /// Hears what the server says beside its answer.
    chain: RedirectChain,
    leg: Option<Leg>,
}

/// The app's hold on a request whose events go to a [`Handler`](crate::request::Handler): sends its body, and gives it
/// up. Nothing here blocks. Clones are the same request, with all that it is followed to.
#[derive(Clone)]
pub struct Sender {
    current: Current,
    /// What is left of the promised length.
    left: Arc<Mutex<Option<u64>>>,
}

impl Sender {
    pub(crate) fn new(current: Current, left: Option<u64>) -> Self {
        Self { current, left: Arc::new(Mutex::new(left)) }
    }

    /// Sends as much of a piece as there is room for, and answers how much that was. Where it is less than all,
    /// [`Handler::on_room`](crate::request::Handler::on_room) follows.
    ///
    /// # Errors
    /// When more is written than was promised, or the request has ended.
    pub fn write(&self, chunk: &[u8]) -> Result<usize, Error> {
        // Held to the end: pieces of two threads must not overtake each other on the way to the engine.
        let mut left = self.left();
        if left.is_some_and(|left| left < chunk.len() as u64) {
            return Err(Error::Upload("more was written than promised"));
        }
        let call = self.call()?;
        let taken = {
            let mut state = call.state();
            let room = room(&mut state).unwrap_or(Ok(0))?;
            let taken = room.min(chunk.len());
            state.room -= taken;
            state.wants_room = taken < chunk.len();
            taken
        };
        if taken > 0 {
            let chunk = Bytes::copy_from_slice(&chunk[..taken]);
            call.command(Command::Data { call: call.id, chunk })?;
        }
        if let Some(left) = &mut *left {
            *left -= taken as u64;
        }
        Ok(taken)
    }

    /// Ends the body.
    ///
    /// # Errors
    /// When less was written than was promised and no response has begun.
    pub fn finish(&self) -> Result<(), Error> {
        let left = self.left();
        finish(&*self.call()?, *left)
    }

    /// Gives it up, unless it has ended.
    pub fn cancel(&self) {
        self.current.cancel();
    }

    /// What is under way; nothing before it was sent.
    fn call(&self) -> Result<Arc<Call>, Error> {
        self.current.call().ok_or(Error::Upload("it has not begun"))
    }

    fn left(&self) -> MutexGuard<'_, Option<u64>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Upload {
    pub(crate) const fn new(
        call: Arc<Call>,
        length: Option<u64>,
        chain: RedirectChain,
        leg: Leg,
        life: Option<Arc<Life>>,
    ) -> Self {
        Self { call: Some(call), life, left: length, answered: false, chain, leg: Some(leg) }
    }

    /// Sends a piece. Blocks while there is no room for it.
    ///
    /// # Errors
    /// When more is written than was promised, or the request has ended: [`Upload::finish`] has its response, if it
    /// was answered early.
    pub fn write(&mut self, chunk: impl Into<Bytes>) -> Result<(), Error> {
        let mut chunk: Bytes = chunk.into();
        self.promise(chunk.len())?;
        let call = self.call()?;
        while !chunk.is_empty() {
            let room = call.wait(room)?;
            send(&call, chunk.split_to(room.min(chunk.len())))?;
        }
        Ok(())
    }

    /// Sends as much of a piece as there is room for, and answers how much that was; for futures.
    ///
    /// # Errors
    /// As [`Upload::write`].
    pub fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        chunk: &Bytes,
    ) -> Poll<Result<usize, Error>> {
        let call = match self.call() {
            Ok(call) => call,
            Err(error) => return Poll::Ready(Err(error)),
        };
        if chunk.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let mut state = call.state();
        let room = match room(&mut state) {
            None => {
                state.wake_writer(context.waker());
                return Poll::Pending;
            }
            Some(Err(error)) => return Poll::Ready(Err(error)),
            Some(Ok(room)) => room.min(chunk.len()),
        };
        drop(state);
        Poll::Ready(
            self.promise(room).and_then(|()| send(&call, chunk.slice(..room))).map(|()| room),
        )
    }

    /// Sends a piece, awaited.
    ///
    /// # Errors
    /// As [`Upload::write`].
    pub async fn write_async(&mut self, chunk: impl Into<Bytes>) -> Result<(), Error> {
        let mut chunk: Bytes = chunk.into();
        while !chunk.is_empty() {
            let sent = std::future::poll_fn(|context| self.poll_write(context, &chunk)).await?;
            let _ = chunk.split_to(sent);
        }
        Ok(())
    }

    /// Ends the body and blocks until the response's head is there.
    ///
    /// # Errors
    /// When less was written than was promised, or no response came.
    pub fn finish(mut self) -> Result<Response, Error> {
        let call = self.end()?;
        let head = call.wait(begun)?;
        self.begun(head, call)
    }

    /// Ends the body; the future is done when the response's head is there.
    ///
    /// # Errors
    /// As [`Upload::finish`].
    pub async fn finish_async(mut self) -> Result<Response, Error> {
        let call = self.end()?;
        let head = std::future::poll_fn(|context| call.poll(context, begun)).await?;
        self.begun(head, call)
    }

    /// Ends the body, and keeps the hold on the request: [`Upload::poll_response`] follows.
    ///
    /// # Errors
    /// When less was written than was promised and no response has begun.
    pub fn close(&self) -> Result<(), Error> {
        self.end().map(drop)
    }

    /// The response, as soon as its head is there: whether or not the body has ended. The hold on the request goes over
    /// to it.
    ///
    /// # Errors
    /// When no response came.
    pub fn poll_response(&mut self, context: &mut Context<'_>) -> Poll<Result<Response, Error>> {
        let call = self.call()?;
        call.poll(context, begun).map(|begun| {
            self.answered = true;
            begun.and_then(|head| self.response(head, call))
        })
    }

    fn begun(&mut self, head: Head, call: Arc<Call>) -> Result<Response, Error> {
        self.call = None;
        self.response(head, call)
    }

    fn response(&mut self, head: Head, call: Arc<Call>) -> Result<Response, Error> {
        let response = Response::new(head, call, self.life.take());
        let Some(leg) = self.leg.take() else { return Err(Error::Upload("it has ended")) };
        let mut response = self.chain.arrived(leg, Ok(response))?;
        // A body in pieces is not sent again: it is the last answer.
        self.chain.follow(&mut response)?;
        Ok(response.after(&mut self.chain))
    }

    fn end(&self) -> Result<Arc<Call>, Error> {
        let call = self.call()?;
        finish(&call, self.left)?;
        Ok(call)
    }

    fn promise(&mut self, bytes: usize) -> Result<(), Error> {
        let Some(left) = &mut self.left else { return Ok(()) };
        let Some(rest) = left.checked_sub(bytes as u64) else {
            return Err(Error::Upload("more was written than promised"));
        };
        *left = rest;
        Ok(())
    }

    fn call(&self) -> Result<Arc<Call>, Error> {
        self.call.clone().ok_or(Error::Upload("it has ended"))
    }
}

/// Room for some bytes; an error when there will be none.
fn room(state: &mut State) -> Option<Result<usize, Error>> {
    if let Some(ended) = &state.ended {
        let early = ended.outcome.clone().err();
        return Some(Err(early.unwrap_or(Error::Upload("it was answered early"))));
    }
    (state.room > 0).then_some(Ok(state.room))
}

/// Ends a body of which so much was promised and not written.
fn finish(call: &Call, left: Option<u64>) -> Result<(), Error> {
    let answered = {
        let state = call.state();
        state.answered || state.ended.is_some()
    };
    if !answered && left.is_some_and(|left| left > 0) {
        return Err(Error::Upload("less was written than promised"));
    }
    call.command(Command::End { call: call.id })
}

fn send(call: &Call, chunk: Bytes) -> Result<(), Error> {
    call.state().room -= chunk.len();
    call.command(Command::Data { call: call.id, chunk })
}

impl io::Write for Upload {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        Self::write(self, Bytes::copy_from_slice(buffer)).map_err(io::Error::other)?;
        Ok(buffer.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if let Some(call) = self.call.as_ref().filter(|_| !self.answered) {
            call.cancel();
        }
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("left", &self.left).finish_non_exhaustive()
    }
}

impl fmt::Debug for Upload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upload").field("left", &self.left).finish_non_exhaustive()
    }
}
