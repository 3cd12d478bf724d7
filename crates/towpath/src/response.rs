//! What comes back: a head, and a body in pieces.

use std::fmt;
use std::io::{self, Read};
use std::mem;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::{Buf, Bytes, BytesMut};
use towpath_engine::local::report::Report;
use towpath_proto::head::{Head, Version};

use crate::Error;
#[cfg(feature = "cache")]
use crate::cache::Filling;
use crate::call::{Call, State};
use crate::decode::Decoder;
use crate::engine::Life;
use crate::redirect::{Redirect, RedirectChain};
use crate::timeline::Entry;

/// A response whose head is there. Dropping it before its end gives the request up.
pub struct Response {
    head: Head,
    body: Body,
    redirects: Vec<Redirect>,
    history: Vec<Entry>,
}

/// A response's body. What is not read stays with the server: no more than
/// [`Settings::window_bytes`](crate::Settings::window_bytes) waits here.
pub struct Body {
    call: Option<Arc<Call>>,
    /// The engine runs until the body has ended.
    life: Option<Arc<Life>>,
    decoder: Option<Decoder>,
    /// As it would have come.
    #[cfg(feature = "interceptors")]
    stored: Option<Bytes>,
    #[cfg(feature = "cache")]
    filling: Option<Filling>,
    /// Bytes as they came, and those that will.
    received: u64,
    expected: Option<u64>,
    /// What was taken and not used by [`Read`].
    rest: Bytes,
    report: Option<Arc<Report>>,
    trailers: Option<Head>,
}

/// A piece of a response's body, in the engine's own memory. As long as it is held its bytes count as unused, and no
/// more than [`Settings::window_bytes`](crate::Settings::window_bytes) of one request are unused at a time.
pub struct Chunk {
    bytes: Bytes,
    held: Held,
}

/// What is told when a piece was used.
enum Held {
    Own(Arc<Call>),
    /// It came from no connection.
    Stored,
    /// It was decoded out of another, which is used when all that it became is.
    Decoded(Arc<Raw>),
}

/// A piece as it came.
pub(crate) struct Raw {
    chunk: Chunk,
    /// Bytes that it and others of its response became, and that are not used.
    unused: Arc<AtomicUsize>,
}

/// What a server says after a body.
#[derive(Debug)]
pub struct Trailers {
    head: Head,
}

impl Response {
    pub(crate) fn new(head: Head, call: Arc<Call>, life: Option<Arc<Life>>) -> Self {
        Self::of(head, Body::new(Some(call), life))
    }

    /// For callbacks, whose body comes by another way.
    pub(crate) fn headless(head: Head) -> Self {
        Self::of(head, Body::new(None, None))
    }

    const fn of(head: Head, body: Body) -> Self {
        Self { head, body, redirects: Vec::new(), history: Vec::new() }
    }

    /// One that no server gave, for [`interceptors`](crate::intercept). Its body, whose length it says, is here as a
    /// whole. Feature `interceptors`.
    ///
    /// # Errors
    /// When the status is not 200 to 599, or a field's name is no token. Ends of lines in values become spaces.
    #[cfg(feature = "interceptors")]
    pub fn local<'a>(
        status: u16,
        fields: impl IntoIterator<Item = (&'a str, &'a str)>,
        body: impl Into<Bytes>,
    ) -> Result<Self, Error> {
        if !(200..600).contains(&status) {
            return Err(Error::NotAToken(status.to_string()));
        }
        let body = body.into();
        let mut response = Self::of(Head::response(status), Body::new(None, None));
        for (name, value) in fields {
            let name = name.to_ascii_lowercase();
            if !response.head.append_bytes(name.as_bytes(), value.as_bytes()) {
                return Err(Error::NotAToken(name));
            }
        }
        response.set_header("content-length", &body.len().to_string())?;
        response.body.stored = Some(body);
        Ok(response)
    }

    /// Says something in a field, in the place of all of that name. Feature `interceptors`.
    ///
    /// # Errors
    /// When the name is no token. Ends of lines in the value become spaces.
    #[cfg(feature = "interceptors")]
    pub fn set_header(&mut self, name: &str, value: &str) -> Result<(), Error> {
        let name = name.to_ascii_lowercase();
        let is_set = self.head.set_bytes(name.as_bytes(), value.as_bytes());
        if is_set { Ok(()) } else { Err(Error::NotAToken(name)) }
    }

    /// Takes away the fields of this name, whatever its case. Feature `interceptors`.
    #[cfg(feature = "interceptors")]
    pub fn remove_header(&mut self, name: &str) {
        self.head.remove_bytes(name.to_ascii_lowercase().as_bytes());
    }

    /// One that is whole here, perhaps in the place of another: that has no body to come, or it is given up.
    #[cfg(feature = "cache")]
    pub(crate) fn stored(head: Head, bytes: Bytes, of: Option<Self>, decodes: bool) -> Self {
        let has_ended = of.as_ref().is_some_and(|of| of.status() == 304);
        let body = of.filter(|_| has_ended).map_or_else(|| Body::new(None, None), |of| of.body);
        let mut response = Self::of(head, body).decoded(decodes);
        response.body.stored = Some(bytes);
        response
    }

    #[cfg(feature = "cache")]
    pub(crate) const fn head(&self) -> &Head {
        &self.head
    }

    /// What is kept of its body goes there.
    #[cfg(feature = "cache")]
    pub(crate) fn filling(mut self, filling: Filling) -> Self {
        self.body.filling = Some(filling);
        self
    }

    #[cfg(feature = "cache")]
    pub(crate) const fn take_filling(&mut self) -> Option<Filling> {
        self.body.filling.take()
    }

    /// The body, where it is here.
    #[cfg(feature = "interceptors")]
    pub(crate) const fn take_stored(&mut self) -> Option<Bytes> {
        self.body.stored.take()
    }

    pub(crate) const fn take_decoder(&mut self) -> Option<Decoder> {
        self.body.decoder.take()
    }

    /// What is compressed is handed out as it was, if that was asked for.
    pub(crate) fn decoded(mut self, decodes: bool) -> Self {
        let length = self.header("content-length");
        self.body.expected = length.and_then(|length| length.parse().ok());
        self.body.decoder = self.take_coding(decodes);
        self
    }

    /// What decodes the body, of which the head then says no more.
    fn take_coding(&mut self, decodes: bool) -> Option<Decoder> {
        let coding = self.header("content-encoding").filter(|_| decodes)?;
        let decoder = Decoder::of(coding)?;
        self.head.remove_bytes(b"content-encoding");
        self.head.remove_bytes(b"content-length");
        Some(decoder)
    }

    pub(crate) fn after(self, chain: &mut RedirectChain) -> Self {
        let (redirects, history) = (mem::take(&mut chain.redirects), mem::take(&mut chain.history));
        Self { redirects, history, ..self }
    }

    /// What was decided about it beside the engine, with times since it was asked for: by a cache, say. The engine's
    /// own decisions are in the [`Body::report`].
    #[must_use]
    pub fn history(&self) -> &[Entry] {
        &self.history
    }

    /// The answers that led here, in their order.
    #[must_use]
    pub fn redirects(&self) -> &[Redirect] {
        &self.redirects
    }

    /// What the server spoke.
    #[must_use]
    pub fn version(&self) -> Version {
        self.head.version()
    }

    /// The status: 200 to 599.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.head.status()
    }

    /// Itself, unless its status says that the request failed.
    ///
    /// # Errors
    /// [`Error::Status`] where it is 400 or more.
    pub fn error_for_status(self) -> Result<Self, Error> {
        match self.status() {
            status @ 400.. => Err(Error::Status(status)),
            _ => Ok(self),
        }
    }

    /// The first field of this name, whatever its case, if its value is text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let name = name.to_ascii_lowercase();
        self.head.get_bytes(name.as_bytes()).and_then(|value| std::str::from_utf8(value).ok())
    }

    /// All fields in their order: names as they came, values as bytes.
    pub fn headers(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        fields(&self.head)
    }

    /// The body.
    pub const fn body(&mut self) -> &mut Body {
        &mut self.body
    }

    /// The body alone.
    #[must_use]
    pub fn into_body(self) -> Body {
        self.body
    }
}

impl Chunk {
    pub(crate) const fn new(bytes: Bytes, call: Arc<Call>) -> Self {
        Self { bytes, held: Held::Own(call) }
    }

    /// One that counts for nothing.
    pub(crate) const fn stored(bytes: Bytes) -> Self {
        Self { bytes, held: Held::Stored }
    }

    /// A piece of what another becomes.
    pub(crate) fn decoded(bytes: Bytes, raw: &Arc<Raw>) -> Self {
        raw.unused.fetch_add(bytes.len(), Ordering::Relaxed);
        Self { bytes, held: Held::Decoded(Arc::clone(raw)) }
    }

    /// The bytes, which count as used from here on.
    #[must_use]
    pub fn into_bytes(mut self) -> Bytes {
        self.used()
    }

    fn used(&mut self) -> Bytes {
        let bytes = mem::take(&mut self.bytes);
        match &self.held {
            Held::Own(call) if !bytes.is_empty() => call.consumed(bytes.len()),
            Held::Own(_) | Held::Stored => {}
            Held::Decoded(raw) => drop(raw.unused.fetch_sub(bytes.len(), Ordering::Relaxed)),
        }
        bytes
    }
}

impl Raw {
    pub(crate) const fn new(chunk: Chunk, unused: Arc<AtomicUsize>) -> Self {
        Self { chunk, unused }
    }

    pub(crate) fn bytes(&self) -> Bytes {
        self.chunk.bytes.clone()
    }
}

impl Deref for Chunk {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        self.used();
    }
}

impl Trailers {
    pub(crate) const fn new(head: Head) -> Self {
        Self { head }
    }

    /// All of them in their order: names as they came, values as bytes.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        fields(&self.head)
    }
}

impl Body {
    const fn new(call: Option<Arc<Call>>, life: Option<Arc<Life>>) -> Self {
        Self {
            call,
            life,
            decoder: None,
            #[cfg(feature = "interceptors")]
            stored: None,
            #[cfg(feature = "cache")]
            filling: None,
            received: 0,
            expected: None,
            rest: Bytes::new(),
            report: None,
            trailers: None,
        }
    }

    /// The next piece; `None` after the last. Blocks until there is one.
    ///
    /// # Errors
    /// When the response ended before it was whole, or there is nothing yet and this is the engine's own thread.
    pub fn chunk(&mut self) -> Result<Option<Bytes>, Error> {
        if !self.rest.is_empty() {
            return Ok(Some(mem::take(&mut self.rest)));
        }
        loop {
            if let Some(piece) = self.ready()? {
                return Ok(Some(piece));
            }
            let Some(call) = self.call.clone() else { return self.finish() };
            let next = call.wait(|state| look(state).map(Ok))?;
            if let Some(piece) = self.took(&call, next)? {
                return Ok(Some(piece));
            }
        }
    }

    /// The next piece, for futures: as [`Body::chunk`], but answers [`Poll::Pending`] where that blocks.
    ///
    /// # Errors
    /// As [`Body::chunk`].
    pub fn poll_chunk(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Error>> {
        if !self.rest.is_empty() {
            return Poll::Ready(Ok(Some(mem::take(&mut self.rest))));
        }
        loop {
            if let Some(piece) = self.ready()? {
                return Poll::Ready(Ok(Some(piece)));
            }
            let Some(call) = self.call.clone() else { return Poll::Ready(self.finish()) };
            let next = std::task::ready!(call.poll(context, look));
            if let Some(piece) = self.took(&call, next)? {
                return Poll::Ready(Ok(Some(piece)));
            }
        }
    }

    /// The next piece, awaited.
    ///
    /// # Errors
    /// As [`Body::chunk`].
    pub async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        std::future::poll_fn(|context| self.poll_chunk(context)).await
    }

    /// All of it. Blocks.
    ///
    /// # Errors
    /// When it is larger than `limit` bytes, and as [`Body::chunk`].
    pub fn bytes(&mut self, limit: usize) -> Result<Bytes, Error> {
        let mut all = BytesMut::new();
        while let Some(chunk) = self.chunk()? {
            gather(&mut all, &chunk, limit)?;
        }
        Ok(all.freeze())
    }

    /// All of it, awaited.
    ///
    /// # Errors
    /// As [`Body::bytes`].
    pub async fn bytes_async(&mut self, limit: usize) -> Result<Bytes, Error> {
        let mut all = BytesMut::new();
        while let Some(chunk) = self.next().await? {
            gather(&mut all, &chunk, limit)?;
        }
        Ok(all.freeze())
    }

    /// All of it as text in UTF-8. Blocks.
    ///
    /// # Errors
    /// As [`Body::bytes`], and when it is not UTF-8.
    pub fn text(&mut self, limit: usize) -> Result<String, Error> {
        let all = self.bytes(limit)?;
        String::from_utf8(all.into()).map_err(|_| Error::Decoding("it is not UTF-8"))
    }

    /// All of it, as what its JSON stands for. Blocks. Feature `json`.
    ///
    /// # Errors
    /// As [`Body::bytes`], and [`Error::Json`] when it is not what was expected.
    #[cfg(feature = "json")]
    pub fn json<T: serde::de::DeserializeOwned>(&mut self, limit: usize) -> Result<T, Error> {
        read_json(&self.bytes(limit)?)
    }

    /// All of it, as what its JSON stands for, awaited. Feature `json`.
    ///
    /// # Errors
    /// As [`Body::json`].
    #[cfg(feature = "json")]
    pub async fn json_async<T: serde::de::DeserializeOwned>(
        &mut self,
        limit: usize,
    ) -> Result<T, Error> {
        read_json(&self.bytes_async(limit).await?)
    }

    /// The first trailer of this name, whatever its case, once the body has ended.
    #[must_use]
    pub fn trailer(&self, name: &str) -> Option<&str> {
        let name = name.to_ascii_lowercase();
        let value = self.trailers.as_ref()?.get_bytes(name.as_bytes())?;
        std::str::from_utf8(value).ok()
    }

    /// All trailers in their order, once the body has ended: names as they came, values as bytes.
    pub fn trailers(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.trailers.iter().flat_map(fields)
    }

    /// How many bytes of it have come, in the coding in which they came: with `content-length`, how far it is.
    /// [`Body::expected`] is how many there will be.
    #[must_use]
    pub const fn received(&self) -> u64 {
        self.received
    }

    /// How many bytes there will be, where the server said so, in the coding in which they come.
    #[must_use]
    pub const fn expected(&self) -> Option<u64> {
        self.expected
    }

    /// What happened to the request, once it is over.
    #[must_use]
    pub fn report(&self) -> Option<&Report> {
        self.report.as_deref()
    }

    pub(crate) fn into_report(mut self) -> Option<Arc<Report>> {
        self.report.take()
    }

    /// What is here already.
    fn ready(&mut self) -> Result<Option<Bytes>, Error> {
        #[cfg(feature = "interceptors")]
        if let Some(stored) = self.stored.take().filter(|stored| !stored.is_empty()) {
            #[cfg(feature = "cache")]
            if let Some(filling) = &mut self.filling {
                filling.push(&stored);
            }
            match &mut self.decoder {
                Some(decoder) => decoder.feed(stored),
                None => return Ok(Some(stored)),
            }
        }
        self.decoder.as_mut().map_or(Ok(None), Decoder::next)
    }

    /// What is left of what came compressed, once it has all come.
    fn finish(&mut self) -> Result<Option<Bytes>, Error> {
        let left = self.decoder.take().map(|mut decoder| decoder.finish()).transpose()?.flatten();
        #[cfg(feature = "cache")]
        if let Some(filling) = self.filling.take() {
            filling.commit();
        }
        Ok(left)
    }

    /// The end of a request goes to the report, a piece to the account of what was used.
    fn took(&mut self, call: &Arc<Call>, next: Next) -> Result<Option<Bytes>, Error> {
        match next {
            Next::Chunk(chunk) => {
                call.consumed(chunk.len());
                self.received += chunk.len() as u64;
                #[cfg(feature = "cache")]
                if let Some(filling) = &mut self.filling {
                    filling.push(&chunk);
                }
                let Some(decoder) = &mut self.decoder else { return Ok(Some(chunk)) };
                decoder.feed(chunk);
                Ok(None)
            }
            Next::End(outcome, report) => {
                self.report = report;
                self.trailers = call.state().trailers.take();
                (self.call, self.life) = (None, None);
                if let Err(error) = outcome {
                    #[cfg(feature = "cache")]
                    drop(self.filling.take());
                    self.decoder = None;
                    return Err(error);
                }
                self.finish()
            }
        }
    }
}

#[cfg(feature = "json")]
fn read_json<T: serde::de::DeserializeOwned>(all: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(all).map_err(|error| Error::Json(error.to_string()))
}

fn fields(head: &Head) -> impl Iterator<Item = (&[u8], &[u8])> {
    head.iter().map(|field| (field.name_bytes, field.value))
}

enum Next {
    Chunk(Bytes),
    End(Result<(), Error>, Option<Arc<Report>>),
}

fn look(state: &mut State) -> Option<Next> {
    if let Some(chunk) = state.chunks.pop_front() {
        return Some(Next::Chunk(chunk));
    }
    let ended = state.ended.as_ref()?;
    Some(Next::End(ended.outcome.clone(), ended.report.clone()))
}

fn gather(all: &mut BytesMut, chunk: &[u8], limit: usize) -> Result<(), Error> {
    if all.len() + chunk.len() > limit {
        return Err(Error::TooLarge(limit));
    }
    all.extend_from_slice(chunk);
    Ok(())
}

impl Read for Body {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.rest.is_empty() {
            match self.chunk().map_err(io::Error::other)? {
                Some(chunk) => self.rest = chunk,
                None => return Ok(0),
            }
        }
        let bytes = buffer.len().min(self.rest.len());
        self.rest.copy_to_slice(&mut buffer[..bytes]);
        Ok(bytes)
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        if let Some(call) = &self.call {
            call.cancel();
        }
    }
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response").field("status", &self.status()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chunk").field("bytes", &self.bytes.len()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Body").field("ended", &self.call.is_none()).finish_non_exhaustive()
    }
}
