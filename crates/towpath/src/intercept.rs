//! What stands between an app and the network, written by the app: interceptors. Feature `interceptors`.
//!
//! ```no_run
//! use towpath::intercept::{Before, Interceptor};
//! use towpath::{Error, Request, Response};
//!
//! struct Signed;
//!
//! impl Interceptor for Signed {
//!     fn before(&self, request: Request) -> Result<Before, Error> {
//!         let signature = format!("{} {}", request.method(), request.url()?);
//!         Ok(Before::Send(request.header("x-signature", &signature)))
//!     }
//!
//!     fn after(&self, _: &Request, response: &mut Response) -> Result<(), Error> {
//!         response.set_header("x-checked", "yes")
//!     }
//! }
//!
//! let client = towpath::Engine::new()?.client().intercept(Signed);
//! # Ok::<(), Error>(())
//! ```
//!
//! There are two places, as in OkHttp:
//!
//! | Place | OkHttp's | Is asked |
//! |---|---|---|
//! | [`Client::intercept`] | application interceptors | once for what the app asks, before caches and redirects |
//! | [`Client::intercept_network`] | network interceptors | for each request that goes to a server |
//!
//! The first kind comes before cookies too, and has the last answer, decoded. The second sees all fields of a request,
//! and its answer as it came, before caches and decoding; 304s are among them.
//!
//! Neither sees the engine's repetitions, hedges and resumptions, which are one request here. Requests pass in the
//! order in which interceptors were added, answers in the other. One that answers by itself is heard by those before
//! it, and not by those behind it. They are called on the thread that sends, or on the engine's, and must not block. A
//! panic is [`Error::Handler`]. What they answer to a body in pieces of [`Request::upload`] is an error. Requests of an
//! outbox have those of [`outbox::Builder::client`](crate::outbox::Builder::client).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::{Client, Error, Request, Response};

/// Sees requests before they are sent, and their answers. See [`crate::intercept`].
pub trait Interceptor: Send + Sync {
    /// What becomes of a request: it goes on, perhaps changed, or has an answer.
    ///
    /// # Errors
    /// Those with which it is to fail.
    fn before(&self, request: Request) -> Result<Before, Error> {
        Ok(Before::Send(request))
    }

    /// The answer to a request, as that was behind this interceptor. It may be changed, or another be put in its place.
    ///
    /// # Errors
    /// Those with which the request is to fail.
    fn after(&self, request: &Request, response: &mut Response) -> Result<(), Error> {
        let _ = (request, response);
        Ok(())
    }
}

/// What becomes of a request.
#[derive(Debug)]
pub enum Before {
    /// It goes on.
    Send(Request),
    /// It has an answer ([`Response::local`]), and is not sent.
    Answer(Response),
}

/// Those of one place, in their order.
#[derive(Clone, Default)]
pub(crate) struct Chain(Vec<Arc<dyn Interceptor>>);

/// Those that saw a request, each with how it went on: their answers are theirs to see.
#[derive(Default)]
pub(crate) struct Seen(Vec<(Arc<dyn Interceptor>, Request)>);

impl Chain {
    pub(crate) fn add(&mut self, interceptor: impl Interceptor + 'static) {
        self.0.push(Arc::new(interceptor));
    }

    /// What becomes of a request, and who has seen it.
    pub(crate) fn before(&self, mut request: Request) -> Result<(Before, Seen), Error> {
        let mut seen = Seen::default();
        for interceptor in &self.0 {
            match guarded(|| interceptor.before(request))? {
                Before::Send(next) => {
                    seen.0.push((Arc::clone(interceptor), next.clone()));
                    request = next;
                }
                answer @ Before::Answer(_) => return Ok((answer, seen)),
            }
        }
        Ok((Before::Send(request), seen))
    }
}

impl Seen {
    /// Shows an answer to those that saw its request, the last first. They see one.
    pub(crate) fn after(&mut self, response: &mut Response) -> Result<(), Error> {
        while let Some((interceptor, request)) = self.0.pop() {
            guarded(|| interceptor.after(&request, response))?;
        }
        Ok(())
    }
}

impl Client {
    /// One whose requests this sees, after those that were added before: each once, with its last answer.
    #[must_use]
    pub fn intercept(&self, interceptor: impl Interceptor + 'static) -> Self {
        self.with(|defaults| defaults.interceptors.add(interceptor))
    }

    /// One whose requests to servers this sees, those of redirects and validations among them.
    #[must_use]
    pub fn intercept_network(&self, interceptor: impl Interceptor + 'static) -> Self {
        self.with(|defaults| defaults.network_interceptors.add(interceptor))
    }
}

fn guarded<T>(ask: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    catch_unwind(AssertUnwindSafe(ask)).unwrap_or(Err(Error::Handler))
}
