//! Pieces of a stream on their way through its filters.
//!
//! Arrives: content and ends. Leaves: the same as the filters leave them, or nothing.

use bytes::Bytes;
use towpath_proto::Head;

use crate::conn::context::{HttpContext, PlacedFilter};
use crate::exchange::filters::Filters;
use crate::exchange::forward::Item;
use crate::exchange::stream::{Routed, Stream};
use crate::filter::{Reply, RouteConfigs, joined};
use crate::format::Facts;
use crate::snapshot::route::Action;

/// Passes a piece of the request through the filters at these places.
pub(super) fn pass_request(
    filters: &mut Filters,
    (from, last): (usize, usize),
    (data, end): (&mut Bytes, &mut Option<Item>),
    facts: &Facts<'_>,
) -> Result<(), Reply> {
    let here = filters.watching.iter_mut().filter(|(place, _)| (from..=last).contains(place));
    for (_, watcher) in here {
        if !data.is_empty() {
            watcher.on_request_data(data, facts)?;
        }
        if let Some(item) = end
            && watcher.keeps_request_end(trailers_of(item), facts)
        {
            *end = None;
        }
        without_empty_trailers(end);
        if end.is_some() {
            let more = watcher.on_request_end(facts)?;
            *data = joined(std::mem::take(data), more);
            add_trailers(end, watcher.request_trailers());
        }
    }
    Ok(())
}

/// Passes a piece of the response through the filters below a place, down to the one that holds the head.
pub(super) fn pass_response(
    filters: &mut Filters,
    upper: usize,
    (data, end): (&mut Bytes, &mut Option<Item>),
    facts: &Facts<'_>,
) -> Result<(), Reply> {
    let held = filters.held;
    let floor = held.unwrap_or(0);
    let here = filters.watching.iter_mut().rev().filter(|(at, _)| (floor..upper).contains(at));
    for (place, watcher) in here {
        if !data.is_empty() {
            watcher.on_response_data(data, facts)?;
        }
        if let Some(item) = end
            && watcher.keeps_response_end(trailers_of(item), facts)
        {
            *end = None;
        }
        if held == Some(*place) {
            continue;
        }
        if let Some(item) = end {
            let more = watcher.on_response_end(trailers_of(item), facts);
            *data = joined(std::mem::take(data), more);
            without_empty_trailers(end);
            add_trailers(end, watcher.response_trailers());
        }
    }
    Ok(())
}

/// The data of an item, and the end.
pub(super) fn taken_apart(item: Item) -> (Bytes, Option<Item>) {
    match item {
        Item::Data(data) => (data, None),
        Item::Trailers(_) | Item::End => (Bytes::new(), Some(item)),
    }
}

fn trailers_of(item: &mut Item) -> Option<&mut Head> {
    match item {
        Item::Trailers(trailers) => Some(trailers),
        Item::Data(_) | Item::End => None,
    }
}

fn add_trailers(end: &mut Option<Item>, added: Option<Head>) {
    let Some(added) = added else { return };
    if let Some(Item::Trailers(trailers)) = end {
        for field in added.iter() {
            trailers.append_bytes(field.name_bytes, field.value);
        }
    } else {
        *end = Some(Item::Trailers(added));
    }
}

pub(super) fn without_empty_trailers(end: &mut Option<Item>) {
    if matches!(end, Some(Item::Trailers(trailers)) if is_empty(trailers)) {
        *end = Some(Item::End);
    }
}

fn is_empty(trailers: &Head) -> bool {
    trailers.iter().len() == 0
}

pub(super) fn length(item: &Item) -> u64 {
    match item {
        Item::Data(chunk) => chunk.len() as u64,
        Item::Trailers(_) | Item::End => 0,
    }
}

/// What the route of a stream says to filters.
pub(super) struct Levels<'a> {
    pub(super) routed: Option<Routed<'a>>,
    /// The route sends requests on.
    pub(super) forwards: bool,
}

impl<'a> Levels<'a> {
    pub(super) fn of(stream: &Stream, http: &'a HttpContext) -> Self {
        Self::in_table(stream, Some(http))
    }

    /// The same of a stream that may have no routes.
    pub(super) fn in_table(stream: &Stream, http: Option<&'a HttpContext>) -> Self {
        let routes = http.map(|http| &http.config.routes);
        let routed = routes.zip(stream.route).and_then(|(it, route)| Routed::in_table(it, route));
        let forwards = routed.is_some_and(|it| matches!(it.route.action, Action::Forward(_)));
        Self { routed, forwards }
    }

    pub(super) fn of_filter(&self, filter: &'a PlacedFilter) -> RouteConfigs<'a> {
        let routed = self.routed.filter(|_| filter.is_named);
        let levels =
            routed.map_or([&[][..]; 4], |Routed { route, host, table, weighted, .. }| {
                let weighted = weighted.map_or(&[][..], |weighted| &weighted.filters);
                [weighted, &route.filters, &host.filters, &table.filters]
            });
        RouteConfigs { filter: &filter.name, levels }
    }
}
