//! Begins and ends, in the order of their times, become spans.

use std::collections::HashMap;
use std::io;

use super::super::sorter::{Key, Sorted, Sorter};
use super::{FileValue, Mark, Span, stored};

/// One event of a file, with what its names and tracks stand for.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Event {
    pub(super) ns: u64,
    pub(super) kind: u64,
    pub(super) track: u64,
    pub(super) name: String,
    pub(super) categories: Vec<String>,
    pub(super) values: Vec<(String, FileValue)>,
    pub(super) flows: Vec<u64>,
    pub(super) pid: u64,
    pub(super) is_thread: bool,
    /// The tracks that its track lies under, the nearest first.
    pub(super) ancestors: Vec<u64>,
}

/// Puts begins and ends together, on all tracks at once.
#[derive(Default)]
pub(super) struct Nest {
    /// What is open on each track, with whether it is a poll: then the number is that of the span it is a poll of.
    open: HashMap<u64, Vec<(usize, bool)>>,
    /// By their numbers in the order of their begins.
    spans: HashMap<usize, Open>,
    /// Spans on tracks by the flow that joins their polls to them.
    by_flow: HashMap<u64, usize>,
    begun: usize,
    /// Bytes that the open spans take.
    held: usize,
    marks: u64,
    beginless: u64,
    last: u64,
    ended: Sorter,
}

struct Open {
    span: Span,
    flows: Vec<u64>,
    bytes: usize,
}

/// All spans of a file.
pub(super) struct Nested {
    pub(super) marks: u64,
    pub(super) beginless: u64,
    pub(super) sorted: Sorted,
}

impl Nest {
    /// The next event, as it was stored.
    pub(super) fn event(&mut self, ((ns, _), record): (Key, Vec<u8>)) -> io::Result<()> {
        let event = stored::event(u64::try_from(ns).unwrap_or(u64::MAX), &record);
        self.last = event.ns;
        match event.kind {
            1 => self.begin(event),
            2 => self.end(event)?,
            3 => self.mark(event),
            _ => {}
        }
        Ok(())
    }

    /// What is open ends with the file.
    pub(super) fn finish(mut self) -> io::Result<Nested> {
        for (number, open) in std::mem::take(&mut self.spans) {
            let end_ns = self.last.max(open.span.begin_ns);
            self.keep(number, &Span { end_ns, ..open.span })?;
        }
        let Self { marks, beginless, ended, .. } = self;
        Ok(Nested { marks, beginless, sorted: ended.sorted()? })
    }

    /// More is open than there is room for.
    pub(super) const fn is_full(&self) -> bool {
        self.held > MOST_HELD
    }

    fn begin(&mut self, event: Event) {
        if event.is_thread
            && let Some(lifetime) = self.lifetime(&event)
        {
            self.open.entry(event.track).or_default().push((lifetime, true));
            return;
        }
        let number = self.begun;
        self.begun += 1;
        let parent = self.innermost(&event);
        let flows = if event.is_thread { Vec::new() } else { event.flows };
        for &flow in &flows {
            self.by_flow.entry(flow).or_insert(number);
        }
        let span = Span {
            name: event.name,
            categories: event.categories,
            parent,
            track: event.track,
            process: (String::new(), event.pid),
            begin_ns: event.ns,
            end_ns: event.ns,
            unfinished: true,
            values: event.values,
            marks: Vec::new(),
            marks_left_out: 0,
        };
        let texts = span.categories.iter().map(|it| TEXT + it.len()).sum::<usize>();
        let bytes =
            SPAN + span.name.len() + texts + size_of_values(&span.values) + 40 * flows.len();
        self.held += bytes;
        self.spans.insert(number, Open { span, flows, bytes });
        self.open.entry(event.track).or_default().push((number, false));
    }

    /// The asynchronous span that this is a poll of.
    fn lifetime(&self, event: &Event) -> Option<usize> {
        let mut of_flow = event.flows.iter().filter_map(|flow| self.by_flow.get(flow).copied());
        of_flow
            .find(|number| self.spans.get(number).is_some_and(|open| open.span.name == event.name))
    }

    /// The innermost open span of a track, or of those it lies under.
    fn innermost(&self, event: &Event) -> Option<usize> {
        let tracks = std::iter::once(&event.track).chain(&event.ancestors);
        let mut open = tracks.filter_map(|track| self.open.get(track)?.last());
        open.next().map(|&(number, _)| number)
    }

    fn end(&mut self, event: Event) -> io::Result<()> {
        let Some(stack) = self.open.get_mut(&event.track) else {
            self.beginless += 1;
            return Ok(());
        };
        let popped = stack.pop();
        if stack.is_empty() {
            self.open.remove(&event.track);
        }
        let Some((number, is_poll)) = popped else { return Ok(()) };
        let Some(open) = self.spans.get_mut(&number) else { return Ok(()) };
        let (marked, values): (Vec<_>, Vec<_>) =
            event.values.into_iter().partition(|(name, _)| name == "unfinished");
        let bytes = size_of_values(&values);
        self.held += bytes;
        open.bytes += bytes;
        for (name, value) in values {
            match open.span.values.iter_mut().find(|(known, _)| *known == name) {
                Some((_, known)) => *known = value,
                None => open.span.values.push((name, value)),
            }
        }
        if is_poll {
            return Ok(());
        }
        let Some(Open { span, flows, bytes }) = self.spans.remove(&number) else { return Ok(()) };
        self.held -= bytes;
        for flow in flows {
            if self.by_flow.get(&flow) == Some(&number) {
                self.by_flow.remove(&flow);
            }
        }
        self.keep(number, &Span { end_ns: event.ns, unfinished: !marked.is_empty(), ..span })
    }

    fn keep(&mut self, number: usize, span: &Span) -> io::Result<()> {
        self.ended.push((0, number as u64), &stored::of_span(span))
    }

    fn mark(&mut self, event: Event) {
        let number = self.innermost(&event);
        let Some(open) = number.and_then(|number| self.spans.get_mut(&number)) else {
            self.marks += 1;
            return;
        };
        if open.span.marks.len() >= MOST_MARKS {
            open.span.marks_left_out += 1;
            return;
        }
        let Event { name, ns, values, .. } = event;
        let bytes = MARK + name.len() + size_of_values(&values);
        self.held += bytes;
        open.bytes += bytes;
        open.span.marks.push(Mark { name, ns, values });
    }
}

fn size_of_values(values: &[(String, FileValue)]) -> usize {
    let text = |value: &FileValue| match value {
        FileValue::Text(text) => text.len(),
        FileValue::Bool(_) | FileValue::Integer(_) | FileValue::Float(_) => 0,
    };
    values.iter().map(|(name, value)| VALUE + name.len() + text(value)).sum()
}

const MOST_HELD: usize = 16 << 20;
/// Marks of one span that are kept.
const MOST_MARKS: usize = 1_000;
// What each takes in memory beside its texts, with what their allocations waste.
const SPAN: usize = 2 * size_of::<Open>() + 100;
const MARK: usize = 2 * size_of::<Mark>();
const VALUE: usize = 2 * size_of::<(String, FileValue)>();
const TEXT: usize = 2 * size_of::<String>();
