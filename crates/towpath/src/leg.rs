//! One request of a [`RedirectChain`], and what stands between it and the engine.
//!
//! Arrives: the request that is next. Leaves: the request to send, or its answer where none has to be sent; and after
//! the server's answer, or a failure, the response that goes on.

use crate::redirect::RedirectChain;
#[cfg(any(feature = "interceptors", feature = "hsts"))]
use crate::timeline::Entry;
use crate::{Error, Response};

#[cfg(feature = "cache")]
use crate::cache::{Answer, Outcome, Pending, Refresh, Strategy};
#[cfg(feature = "interceptors")]
use crate::intercept::{Before, Seen};
#[cfg(feature = "cache")]
use crate::request::{Caching, Handler};

/// What is done next.
pub(crate) enum Step {
    Send(crate::Request, Leg),
    /// It has an answer.
    #[cfg(feature = "interceptors")]
    Answer(Response),
}

/// What is done with a response.
pub(crate) struct Leg {
    /// What was asked for is decoded.
    decodes: bool,
    #[cfg(feature = "interceptors")]
    seen: Seen,
    #[cfg(feature = "cache")]
    pending: Option<Box<Pending>>,
}

impl Leg {
    fn new(decodes: bool) -> Self {
        Self {
            decodes,
            #[cfg(feature = "interceptors")]
            seen: Seen::default(),
            #[cfg(feature = "cache")]
            pending: None,
        }
    }
}

impl RedirectChain {
    /// What is done next.
    pub(crate) fn step(&mut self) -> Result<Step, Error> {
        #[cfg(feature = "interceptors")]
        if !std::mem::replace(&mut self.is_asked, true) {
            let (next, seen) = self.request.defaults.interceptors.before(self.request.clone())?;
            self.seen = seen;
            match next {
                Before::Send(request) => self.request = request,
                Before::Answer(response) => {
                    self.is_local = true;
                    self.tell("an interceptor answers");
                    return Ok(Step::Answer(response));
                }
            }
        }
        let (request, decodes) = self.request()?.asking_for_codings();
        let leg = Leg::new(decodes);
        #[cfg(feature = "cache")]
        if let Some(cache) =
            request.defaults.cache.clone().filter(|_| request.caching != Caching::Off)
        {
            let refreshes = request.caching == Caching::Refreshes;
            return match cache.strategy(request, refreshes) {
                Strategy::Pass(request) => self.send(request, leg),
                Strategy::Send(request, pending) => {
                    pending.what().into_iter().for_each(|what| self.tell(what));
                    self.send(request, Leg { pending: Some(pending), ..leg })
                }
                Strategy::Answer(mut answer) => {
                    if let Some(refresh) = answer.refresh.take() {
                        self.ask_meanwhile(refresh);
                    }
                    Ok(Step::Answer(self.answered(answer, None, decodes)))
                }
            };
        }
        self.send(request, leg)
    }

    /// To the server, unless an interceptor is nearer.
    #[cfg(feature = "interceptors")]
    fn send(&mut self, request: crate::Request, mut leg: Leg) -> Result<Step, Error> {
        let (next, seen) = request.defaults.network_interceptors.before(request.clone())?;
        leg.seen = seen;
        match next {
            Before::Send(request) => Ok(Step::Send(request, leg)),
            Before::Answer(response) => {
                self.tell("an interceptor answers for the server");
                Ok(Step::Answer(self.arrived(leg, Ok(response))?))
            }
        }
    }

    #[cfg(not(feature = "interceptors"))]
    #[expect(
        clippy::unused_self,
        clippy::unnecessary_wraps,
        reason = "with interceptors it does more"
    )]
    const fn send(&mut self, request: crate::Request, leg: Leg) -> Result<Step, Error> {
        Ok(Step::Send(request, leg))
    }

    /// What came, or did not: the response that goes on.
    pub(crate) fn arrived(
        &mut self,
        leg: Leg,
        answered: Result<Response, Error>,
    ) -> Result<Response, Error> {
        #[cfg(feature = "interceptors")]
        let (mut leg, mut answered) = (leg, answered);
        #[cfg(feature = "interceptors")]
        if let Ok(response) = &mut answered {
            leg.seen.after(response)?;
        }
        if let Ok(response) = &answered {
            self.hear(response);
        }
        #[cfg(feature = "cache")]
        if let Some(pending) = leg.pending {
            return match answered {
                Err(error) => match pending.failed(&error) {
                    Some(answer) => Ok(self.answered(answer, None, leg.decodes)),
                    None => Err(error),
                },
                Ok(response) => Ok(match pending.answered(response.head()) {
                    Outcome::Pass => response.decoded(leg.decodes),
                    Outcome::Fill(filling) => response.filling(filling).decoded(leg.decodes),
                    Outcome::Replace(answer) => self.answered(answer, Some(response), leg.decodes),
                }),
            };
        }
        answered.map(|response| response.decoded(leg.decodes))
    }

    /// Notes what was decided, for the app.
    #[cfg(any(feature = "interceptors", feature = "hsts"))]
    pub(crate) fn tell(&mut self, what: impl Into<String>) {
        self.history.push(Entry { at: self.began.elapsed(), what: what.into() });
    }

    /// A stored answer, in the place of a response.
    #[cfg(feature = "cache")]
    fn answered(&mut self, answer: Answer, of: Option<Response>, decodes: bool) -> Response {
        self.tell(answer.what);
        Response::stored(answer.head, answer.body, of, decodes)
    }

    /// Asks the server for an answer that the cache then has.
    #[cfg(feature = "cache")]
    fn ask_meanwhile(&self, refresh: Refresh) {
        let mut request = self.request.clone().redirects(0);
        request.caching = Caching::Refreshes;
        // Where it cannot be sent the next request finds so out.
        let _ = crate::redirect::start(request, |_| Discarding { _refresh: refresh });
    }
}

/// Hears of a request that nothing waits for.
#[cfg(feature = "cache")]
struct Discarding {
    _refresh: Refresh,
}

#[cfg(feature = "cache")]
impl Handler for Discarding {
    fn on_head(&mut self, _: Response) {}

    fn on_data(&mut self, _: crate::Chunk) {}

    fn on_end(&mut self, _: Result<(), Error>, _: Option<&crate::Report>) {}
}
