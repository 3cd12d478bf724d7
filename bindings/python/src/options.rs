//! How requests are treated.

use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use towpath::{HttpVersions, Priority, Proxies, Proxy, Repeat, Request};

use crate::failure::failure;

/// How requests are treated: made once, used for many.
#[pyclass(frozen, module = "towpath._towpath")]
pub(crate) struct Options {
    total: Option<Duration>,
    answer: Option<Duration>,
    connect: Option<Duration>,
    first_byte: Option<Duration>,
    gap: Option<Duration>,
    retries: Option<u32>,
    repeat: Repeat,
    redirects: usize,
    redirects_to_http: bool,
    decode: bool,
    resume: bool,
    hedge: bool,
    wait_for_network: bool,
    fail_at_rest: bool,
    unlimited: bool,
    priority: Priority,
    http_versions: HttpVersions,
    turn: Option<Duration>,
    proxies: Option<Proxies>,
}

#[pymethods]
impl Options {
    #[new]
    #[pyo3(signature = (*, total=None, answer=None, connect=None, first_byte=None, gap=None, retries=None,
        repeat="by-method", redirects=0, redirects_to_http=false, decode=false, resume=true, hedge=false,
        wait_for_network=false, fail_at_rest=false, unlimited=false, priority="normal", http_versions="negotiated",
        turn_timeout=None, proxy=None))]
    #[expect(
        clippy::too_many_arguments,
        reason = "each is an argument in Python, which names them"
    )]
    fn new(
        total: Option<f64>,
        answer: Option<f64>,
        connect: Option<f64>,
        first_byte: Option<f64>,
        gap: Option<f64>,
        retries: Option<u32>,
        repeat: &str,
        redirects: usize,
        redirects_to_http: bool,
        decode: bool,
        resume: bool,
        hedge: bool,
        wait_for_network: bool,
        fail_at_rest: bool,
        unlimited: bool,
        priority: &str,
        http_versions: &str,
        turn_timeout: Option<f64>,
        proxy: Option<&Bound<'_, Through>>,
    ) -> PyResult<Self> {
        Ok(Self {
            total: duration(total)?,
            answer: duration(answer)?,
            connect: duration(connect)?,
            first_byte: duration(first_byte)?,
            gap: duration(gap)?,
            retries,
            repeat: parse_repeat(repeat)?,
            redirects,
            redirects_to_http,
            decode,
            resume,
            hedge,
            wait_for_network,
            fail_at_rest,
            unlimited,
            priority: parse_priority(priority)?,
            http_versions: parse_http_versions(http_versions)?,
            turn: duration(turn_timeout)?,
            proxies: proxy.map(|proxy| proxy.get().0.clone()),
        })
    }
}

/// Proxies that requests go through.
#[pyclass(frozen, module = "towpath._towpath", name = "Proxies")]
pub(crate) struct Through(Proxies);

#[pymethods]
impl Through {
    /// One before all places, or those that the environment has at this moment: `environment`.
    #[new]
    fn new(word: &str) -> PyResult<Self> {
        let proxies = match word {
            "environment" => Proxies::from_environment(),
            url => Proxy::new(url).map(Proxies::all),
        };
        proxies.map(Self).map_err(|error| failure(&error))
    }
}

impl Options {
    pub(crate) fn apply(&self, request: Request, url: &str) -> Request {
        let request = request.redirects(self.redirects).priority(self.priority).repeat(self.repeat);
        let request = request.http_versions(self.http_versions);
        let with = |request: Request, is: bool, change: fn(Request) -> Request| {
            if is { change(request) } else { request }
        };
        let request = with(request, self.redirects_to_http, Request::redirects_to_http);
        let request = with(request, !self.decode, Request::no_decode);
        let request = with(request, !self.resume, Request::no_resume);
        let request = with(request, self.hedge, Request::hedge);
        let request = with(request, self.wait_for_network, Request::wait_for_network);
        let request = with(request, self.fail_at_rest, Request::fail_at_rest);
        let proxy = self.proxies.as_ref().and_then(|proxies| proxies.before(url));
        let request = proxy.into_iter().fold(request, |it, proxy| it.proxy(Some(proxy.clone())));
        self.limit(with(request, self.unlimited, Request::unlimited))
    }

    fn limit(&self, mut request: Request) -> Request {
        if let Some(total) = self.total {
            request = request.timeout(total);
        }
        if let Some(answer) = self.answer {
            request = request.answer_timeout(answer);
        }
        if let Some(turn) = self.turn {
            request = request.turn_timeout(turn);
        }
        if let Some(connect) = self.connect {
            request = request.connect_timeout(connect);
        }
        if let Some(first_byte) = self.first_byte {
            request = request.first_byte_timeout(first_byte).attempt_timeout(first_byte);
        }
        if let Some(gap) = self.gap {
            request = request.gap_timeout(gap);
        }
        if let Some(retries) = self.retries {
            request = request.retries(retries);
        }
        request
    }
}

/// Seconds, at most [`LONGEST_S`].
pub(crate) fn duration(seconds: Option<f64>) -> PyResult<Option<Duration>> {
    let Some(seconds) = seconds else { return Ok(None) };
    if seconds.is_nan() || seconds < 0.0 {
        return Err(PyValueError::new_err(format!("{seconds} s is no limit on time")));
    }
    Ok(Some(Duration::from_secs_f64(seconds.min(LONGEST_S))))
}

/// Two years: what is longer is no limit.
const LONGEST_S: f64 = 2.0 * 365.0 * 86_400.0;

fn parse_repeat(word: &str) -> PyResult<Repeat> {
    match word {
        "by-method" => Ok(Repeat::ByMethod),
        "always" => Ok(Repeat::Always),
        "never" => Ok(Repeat::Never),
        _ => Err(PyValueError::new_err(format!("repeat is by-method, always or never: {word}"))),
    }
}

fn parse_priority(word: &str) -> PyResult<Priority> {
    match word {
        "high" => Ok(Priority::High),
        "normal" => Ok(Priority::Normal),
        "low" => Ok(Priority::Low),
        _ => Err(PyValueError::new_err(format!("priority is high, normal or low: {word}"))),
    }
}

fn parse_http_versions(word: &str) -> PyResult<HttpVersions> {
    match word {
        "negotiated" => Ok(HttpVersions::Negotiated),
        "http1" => Ok(HttpVersions::Http1),
        "http2" => Ok(HttpVersions::Http2),
        _ => {
            let wanted = "http_versions is negotiated, http1 or http2";
            Err(PyValueError::new_err(format!("{wanted}: {word}")))
        }
    }
}
