//! `#[traced]`: functions with spans of their own.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use towpath_trace::{Category, Options, PlaceView, SpanView, Value, traced};

/// Doubles.
#[traced(Category::APP)]
fn doubled(number: u64) -> u64 {
    number * 2
}

#[traced(Category::NETWORK, "receive", bytes = data.len(), last)]
fn received<T>(data: &T, last: bool) -> Result<usize, String>
where
    T: ?Sized + Len + AsRef<[u8]>,
{
    let length = data.len();
    if last { Err("the end".to_owned()) } else { Ok(length) }
}

trait Len {
    fn len(&self) -> usize;
}

impl Len for [u8] {
    fn len(&self) -> usize {
        <[u8]>::len(self)
    }
}

struct Store(u64);

impl Store {
    #[traced(level = towpath_trace::Level::Debug, Category::APP, by)]
    pub(crate) fn r#move(&mut self, by: u64) -> &mut u64 {
        self.0 += by;
        &mut self.0
    }

    #[traced(Category::REQUEST, "fetch", id = self.0)]
    async fn fetched(&self) -> u64 {
        Pause(false).await;
        doubled(self.0)
    }

    #[traced(Category::REQUEST)]
    async fn unnamed(&self) {
        Pause(false).await;
    }
}

/// Is ready at the second poll.
struct Pause(bool);

impl Future for Pause {
    type Output = ();

    fn poll(mut self: std::pin::Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.0, true) { Poll::Ready(()) } else { Poll::Pending }
    }
}

fn named<'s>(spans: &'s [SpanView<'s>], name: &str) -> Vec<&'s SpanView<'s>> {
    spans.iter().filter(|span| span.name == name).collect()
}

#[test]
fn each_call_is_a_span_and_the_function_does_what_it_did() {
    let mut store = Store(21);
    assert_eq!(doubled(1), 2, "also while nothing is recorded");
    let recording = Options::new().level(towpath_trace::Level::Debug).start().unwrap();
    assert_eq!(doubled(4), 8);
    assert_eq!(received(&[1, 2, 3][..], false), Ok(3));
    assert_eq!(received(&[1, 2, 3][..], true), Err("the end".to_owned()));
    *store.r#move(1) += 1;
    assert_eq!(store.0, 23);
    let mut context = Context::from_waker(Waker::noop());
    {
        let mut fetching = pin!(store.fetched());
        assert!(fetching.as_mut().poll(&mut context).is_pending());
        assert_eq!(fetching.as_mut().poll(&mut context), Poll::Ready(46));
    }
    {
        let mut dropped = pin!(store.unnamed());
        assert!(dropped.as_mut().poll(&mut context).is_pending());
    }
    let capture = recording.stop();
    let spans = capture.spans();
    assert!(spans.iter().all(|span| !span.unfinished), "{spans:?}");
    assert_eq!(named(&spans, "doubled").len(), 2);
    let receive = named(&spans, "receive");
    assert_eq!(receive.len(), 2);
    assert_eq!(receive[1].values, [("bytes", Value::Unsigned(3)), ("last", Value::Bool(true))]);
    assert_eq!(receive[1].category, Category::NETWORK);
    let moved = named(&spans, "move");
    assert_eq!(moved[0].values, [("by", Value::Unsigned(1))]);
    assert_eq!(moved[0].level, Some(towpath_trace::Level::Debug));
    let fetch = named(&spans, "fetch");
    assert_eq!(fetch[0].values, [("id", Value::Unsigned(23))]);
    assert!(matches!(fetch[0].place, PlaceView::Track(_)), "it may go on on another thread");
    assert_eq!(named(&spans, "unnamed").len(), 1, "a future that is dropped ends its span");
}

#[test]
fn a_traced_future_may_be_sent() {
    fn sent<T: Send>(_: T) {}
    sent(Store(1).fetched());
}
