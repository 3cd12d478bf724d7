//! What the stories share.
#![allow(dead_code, reason = "each story takes what it needs")]

use bytes::BytesMut;
use towpath_proto::http1::Error;
use towpath_proto::{Event, Out};
use towpath_proto::{Head, HeadPool};

/// Everything that waits to be written.
pub(crate) fn collect(out: &mut Out) -> String {
    let all: BytesMut = out.drain().flatten().collect();
    String::from_utf8_lossy(&all).into_owned()
}

/// The head that was reported, which must say `end` or not.
pub(crate) fn head(event: Result<Option<Event>, Error>, expected_end: bool) -> Head {
    match event {
        Ok(Some(Event::Head { head, end })) if end == expected_end => head,
        other => panic!("{other:?}"),
    }
}

/// All events until there are none, or the error.
pub(crate) fn poll_all(
    pool: &mut HeadPool,
    mut poll: impl FnMut(&mut HeadPool) -> Result<Option<Event>, Error>,
) -> Result<Vec<Event>, Error> {
    let mut events = Vec::new();
    while let Some(event) = poll(pool)? {
        events.push(event);
    }
    Ok(events)
}

/// The bytes of a piece of a body.
pub(crate) fn data(event: &Event) -> Option<&[u8]> {
    match event {
        Event::Data(data) => Some(data),
        Event::Head { .. } | Event::Informational(_) | Event::Trailers(_) | Event::End => None,
    }
}
