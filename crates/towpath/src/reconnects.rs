//! Connections that are opened again whenever they break: how long the pauses are, and what happened.
//!
//! Arrives: that a connection broke or that something came on it. Leaves: when the next is opened.

use std::future::poll_fn;
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use crate::background::Background;
use crate::engine::random_seed;
use crate::timeline::Entry;
use crate::{Error, Failed};

/// Attempts to connect of one stream of events or messages, over its whole life.
pub(crate) struct Reconnects {
    /// What entries of the history begin with.
    name: &'static str,
    /// Attempts in a row after which nothing came.
    failures: u32,
    began: Instant,
    history: Vec<Entry>,
    /// Ends the pauses of futures, for which there is no timer; and tells listeners.
    timer: Background,
}

impl Reconnects {
    pub(crate) fn new(name: &'static str) -> Self {
        let (began, timer) = (Instant::now(), Background::default());
        Self { name, failures: 0, began, history: Vec::new(), timer }
    }

    pub(crate) fn history(&self) -> &[Entry] {
        &self.history
    }

    /// Something came: the next pause is a short one again.
    pub(crate) const fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// When to connect again after a failure. `retry` is what the server asked for; `broke`: not by the server's will.
    pub(crate) fn pause(
        &mut self,
        retry: Option<Duration>,
        broke: bool,
        why: &str,
    ) -> Option<Instant> {
        let pause = pause(retry, self.failures, broke, random_seed());
        self.failures = self.failures.saturating_add(1);
        self.note(&format!("again in {:.1} s: {why}", pause.as_secs_f64()));
        Instant::now().checked_add(pause)
    }

    pub(crate) fn note(&mut self, what: &str) {
        if self.history.len() == MOST_HISTORY {
            self.history.remove(0);
        }
        let what = format!("{}: {what}", self.name);
        self.history.push(Entry { at: self.began.elapsed(), what });
    }

    /// The thread that ends its pauses.
    pub(crate) fn timer(&self) -> Background {
        self.timer.clone()
    }

    /// Without a runtime's timer. What is given up meanwhile leaves its timer for no longer than a minute.
    pub(crate) async fn until(&self, due: Instant) {
        poll_fn(|context| {
            let now = Instant::now();
            if now >= due {
                return Poll::Ready(());
            }
            let waker = context.waker().clone();
            self.timer.run_at(due.min(now + LONGEST_TIMER), move || waker.wake());
            Poll::Pending
        })
        .await;
    }
}

/// Blocks.
pub(crate) fn sleep_until(due: Instant) {
    thread::sleep(due.saturating_duration_since(Instant::now()));
}

/// How long to wait after so many failures before this one.
fn pause(retry: Option<Duration>, failures: u32, broke: bool, chance: u64) -> Duration {
    if broke && failures == 0 {
        return retry.unwrap_or_default().min(LONGEST_RETRY);
    }
    let usual = retry.unwrap_or(PAUSE).min(LONGEST_RETRY);
    let most = usual.saturating_mul(1 << failures.min(10)).min(LONGEST_PAUSE.max(usual));
    if failures == 0 {
        return usual;
    }
    // What the server said is the least.
    let half = most / 2;
    let drawn = half + half.mul_f64((chance % 1024) as f64 / 1024.0);
    drawn.max(retry.unwrap_or_default().min(LONGEST_RETRY))
}

/// Whether it fails the next time as well.
pub(crate) fn is_final(error: &Error) -> bool {
    match error {
        Error::Failed(failed) => failed.why() == Failed::Cancelled,
        Error::Decoding(_) => false,
        Error::Url(_)
        | Error::NotAToken(_)
        | Error::Upload(_)
        | Error::Proxy(_)
        | Error::Redirect(_)
        | Error::Events(_)
        | Error::WebSocket(_)
        | Error::Status(_)
        | Error::Json(_)
        | Error::TooLarge(_)
        | Error::Tls(_)
        | Error::Engine(_)
        | Error::EngineThread
        | Error::Handler
        | Error::Stopped => true,
    }
}

const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// What a server may ask for.
const LONGEST_RETRY: Duration = Duration::from_secs(86_400);
const LONGEST_TIMER: Duration = Duration::from_secs(60);
const MOST_HISTORY: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_are_no_shorter_than_the_server_said() {
        let s = Duration::from_secs;
        assert_eq!(pause(None, 0, true, 7), s(0));
        assert_eq!(pause(None, 0, false, 7), s(1));
        assert_eq!(pause(Some(s(5)), 0, true, 7), s(5));
        for chance in [0, 512, 1023] {
            for failures in 1..40 {
                let most = s(1 << failures.min(10)).min(s(30));
                let drawn = pause(None, failures, failures % 2 == 0, chance);
                assert!(most / 2 <= drawn && drawn <= most, "{failures} {drawn:?}");
                assert!(pause(Some(s(5)), failures, true, chance) >= s(5));
            }
        }
        assert_eq!(pause(Some(Duration::MAX), 30, false, 0), LONGEST_RETRY);
    }

    #[test]
    fn the_history_keeps_its_last_entries() {
        let mut reconnects = Reconnects::new("events");
        (0..=MOST_HISTORY).for_each(|number| reconnects.note(&number.to_string()));
        let history = reconnects.history();
        assert_eq!((history.len(), history[0].what.as_str()), (64, "events: 1"));
    }
}
