//! One request of a [`Trail`], and what stands between it and the engine.
//!
//! Arrives: the request that is next. Leaves: the request to send, or its answer where none has to be sent; and after
//! the server's answer, or a failure, the response that goes on.

use crate::redirect::Trail;
#[cfg(any(feature = "cache", feature = "hsts"))]
use crate::timeline::Entry;
use crate::{Error, Response};

#[cfg(feature = "cache")]
use crate::cache::{Answer, Outcome, Pending, Refresh, Strategy};
#[cfg(feature = "cache")]
use crate::request::{Caching, Handler};

/// What is done next.
pub(crate) enum Step {
    Send(crate::Request, Leg),
    /// It has an answer.
    #[cfg(feature = "cache")]
    Answer(Response),
}

/// What is done with a response.
pub(crate) struct Leg {
    /// What was asked for is decoded.
    decodes: bool,
    #[cfg(feature = "cache")]
    pending: Option<Box<Pending>>,
}

impl Leg {
    pub(crate) const fn new(decodes: bool) -> Self {
        Self {
            decodes,
            #[cfg(feature = "cache")]
            pending: None,
        }
    }
}

impl Trail {
    /// What is done next.
    pub(crate) fn step(&mut self) -> Result<Step, Error> {
        let (request, decodes) = self.request()?.asking_for_codings();
        #[cfg(feature = "cache")]
        if let Some(cache) =
            request.defaults.cache.clone().filter(|_| request.caching != Caching::Off)
        {
            let refreshes = request.caching == Caching::Refreshes;
            return Ok(match cache.strategy(request, refreshes) {
                Strategy::Pass(request) => Step::Send(request, Leg::new(decodes)),
                Strategy::Send(request, pending) => {
                    pending.what().into_iter().for_each(|what| self.tell(what));
                    Step::Send(request, Leg { decodes, pending: Some(pending) })
                }
                Strategy::Answer(mut answer) => {
                    if let Some(refresh) = answer.refresh.take() {
                        self.ask_meanwhile(refresh);
                    }
                    Step::Answer(self.answered(answer, None, decodes))
                }
            });
        }
        Ok(Step::Send(request, Leg::new(decodes)))
    }

    /// What came, or did not: the response that goes on.
    pub(crate) fn arrived(
        &mut self,
        leg: Leg,
        answered: Result<Response, Error>,
    ) -> Result<Response, Error> {
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
    #[cfg(any(feature = "cache", feature = "hsts"))]
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
