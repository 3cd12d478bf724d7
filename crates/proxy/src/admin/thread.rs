//! The thread of the admin endpoint: reads requests, asks the control thread, and makes and sends what is long.
//!
//! Statistics are written here while they are sent, in pieces, as fast as the client takes them. With thousands of
//! clusters that is a tenth of a second of work, so the thread lets others go first ([`bulk`]).

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Instant, SystemTime};

use bytes::Bytes;
use hyper::body::{Body, Incoming};
use hyper::header::{HOST, HeaderName, USER_AGENT};
use hyper::{Request, Response, StatusCode};
use tokio::sync::{mpsc, oneshot};
use tokio::task::LocalSet;
use towpath_engine::stats::Registry;

use super::Asked;
use super::counted::{CountedRequest, Counts};
use super::reply::{Reply, ReplyBody};
use super::server::{AdminSocket, MAX_CONNECTIONS, Peer};
use crate::access_log::LogSender;
use crate::bulk;
use crate::log;
use crate::logger::format::Civil;

/// The thread, which ends with this.
pub(crate) struct AdminThread {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl AdminThread {
    /// Starts it. What is asked goes to the receiver; access-log lines go to these targets.
    pub(crate) fn start(
        socket: AdminSocket,
        registry: &Registry,
        logs: LogSender,
        log_targets: Vec<usize>,
    ) -> io::Result<(Self, mpsc::Receiver<Asked>)> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel::<()>();
        // Each connection has one request.
        let (asks, asked) = mpsc::channel(MAX_CONNECTIONS);
        let counts = Arc::new(Counts::new(registry));
        let run = move || {
            bulk::give_way();
            LocalSet::new().block_on(&runtime, async {
                tokio::select! {
                    Err(error) = serve(socket, counts, asks, logs, log_targets) => {
                        log!(Admin, Critical, "the admin endpoint cannot serve: {error}");
                    }
                    // Either way the process ends.
                    _ = stopped => {}
                }
                // Answers that are here leave before the connections end.
                for _ in 0..LAST_ROUNDS {
                    tokio::task::yield_now().await;
                }
            });
        };
        let thread = std::thread::Builder::new().name("admin".to_owned()).spawn(run)?;
        Ok((Self { stop: Some(stop), thread: Some(thread) }, asked))
    }
}

impl Drop for AdminThread {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // Its panic was reported when it happened.
            let _ = thread.join();
        }
    }
}

/// How often all that can go on does so at the end. One suffices for an answer that has come.
const LAST_ROUNDS: usize = 8;

async fn serve(
    socket: AdminSocket,
    counts: Arc<Counts>,
    asks: mpsc::Sender<Asked>,
    logs: LogSender,
    log_targets: Vec<usize>,
) -> io::Result<()> {
    let log_targets: Rc<[usize]> = log_targets.into();
    let of_requests = Arc::clone(&counts);
    let handle = move |request: Request<Incoming>, peer| {
        let (asks, logs, log_targets) = (asks.clone(), logs.clone(), Rc::clone(&log_targets));
        let mut counted = CountedRequest::begin(&of_requests);
        async move {
            let line = (!log_targets.is_empty()).then(|| LogLine::begin(&request, peer));
            let mut reply = ask(&asks, &request).await;
            counted.status = reply.status.as_u16();
            reply.body.keep(counted);
            let response = reply.into_response();
            if let Some(line) = line {
                let text = Bytes::from(line.end(&response));
                log_targets.iter().for_each(|target| logs.write(*target, text.clone()));
            }
            response
        }
    };
    socket.serve(counts, handle).await
}

async fn ask(asks: &mpsc::Sender<Asked>, request: &Request<Incoming>) -> Reply {
    let (teller, told) = oneshot::channel();
    let (method, uri) = (request.method().clone(), request.uri().clone());
    // The receiver is gone only when the process ends.
    let _ = asks.send(Asked { method, uri, teller }).await;
    let ends = || Reply::refused(StatusCode::SERVICE_UNAVAILABLE, "the program ends\n");
    told.await.unwrap_or_else(|_| ends())
}

/// One line of the admin access log, in Envoy's default format.
struct LogLine {
    began: Instant,
    at: SystemTime,
    request: String,
    headers: [String; 4],
    peer: Peer,
}

impl LogLine {
    fn begin(request: &Request<Incoming>, peer: Peer) -> Self {
        let header = |name: HeaderName| {
            let value =
                request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or("-");
            value.replace('"', "\\\"")
        };
        let target = request.uri().path_and_query().map_or("/", |target| target.as_str());
        Self {
            began: Instant::now(),
            at: SystemTime::now(),
            request: format!("{} {target} {:?}", request.method(), request.version()),
            headers: [
                HeaderName::from_static("x-forwarded-for"),
                USER_AGENT,
                HeaderName::from_static("x-request-id"),
                HOST,
            ]
            .map(header),
            peer,
        }
    }

    fn end(self, response: &Response<ReplyBody>) -> String {
        let Self { began, at, request, headers: [forwarded, agent, id, authority], peer } = self;
        let forwarded = if forwarded == "-" { peer.remote } else { forwarded };
        format!(
            "[{}] \"{request}\" {} - 0 {} {} - \"{forwarded}\" \"{agent}\" \"{id}\" \"{authority}\" \"-\"\n",
            Civil::of(at).rfc3339_millis(),
            response.status().as_u16(),
            response.body().size_hint().exact().unwrap_or(0),
            began.elapsed().as_millis(),
        )
    }
}
