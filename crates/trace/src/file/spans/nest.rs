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
    /// What began at this instant.
    at: (u64, Vec<usize>),
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
    is_thread: bool,
    /// It was polled: it has the parent that it has.
    is_polled: bool,
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
        if self.at.0 != event.ns {
            self.at = (event.ns, Vec::new());
        }
        if event.is_thread {
            if let Some(lifetime) = self.lifetime(&event) {
                return self.poll(lifetime, &event);
            }
        } else if let Some(polled) = self.began_with(&event) {
            return self.outlive(polled, event);
        }
        let number = self.begun;
        self.begun += 1;
        let parent = self.innermost(&event);
        let is_thread = event.is_thread;
        let flows = if is_thread { Vec::new() } else { event.flows };
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
        self.spans.insert(number, Open { span, is_thread, is_polled: false, flows, bytes });
        self.open.entry(event.track).or_default().push((number, false));
        if self.at.1.len() < MOST_AT_ONCE {
            self.at.1.push(number);
        }
    }

    /// The asynchronous span that this is a poll of.
    fn lifetime(&self, event: &Event) -> Option<usize> {
        let mut of_flow = event.flows.iter().filter_map(|flow| self.by_flow.get(flow).copied());
        of_flow
            .find(|number| self.spans.get(number).is_some_and(|open| open.span.name == event.name))
            .or_else(|| self.began_with(event))
    }

    /// The other half of a lifetime that was told when its first poll was over: it began with that poll, which has no
    /// flow.
    fn began_with(&self, event: &Event) -> Option<usize> {
        let is_half = |open: &Open| {
            let span = &open.span;
            open.is_thread != event.is_thread
                && !open.is_polled
                && (&span.name, &span.categories) == (&event.name, &event.categories)
                && span.process.1 == event.pid
        };
        self.at.1.iter().copied().find(|number| self.spans.get(number).is_some_and(is_half))
    }

    fn poll(&mut self, number: usize, event: &Event) {
        // Whose parent is of one thread alone lies in it by its first poll.
        let parent = self.innermost(event).filter(|&parent| parent < number);
        if let Some(open) = self.spans.get_mut(&number).filter(|open| !open.is_polled) {
            open.is_polled = true;
            open.span.parent = open.span.parent.or(parent);
        }
        self.open.entry(event.track).or_default().push((number, true));
    }

    /// A span of a thread turns out to be the first poll of this lifetime.
    fn outlive(&mut self, number: usize, event: Event) {
        let Some(open) = self.spans.get_mut(&number) else { return };
        let bytes = size_of_values(&event.values) + 40 * event.flows.len();
        open.bytes += bytes;
        self.held += bytes;
        (open.is_polled, open.is_thread) = (true, false);
        let thread = std::mem::replace(&mut open.span.track, event.track);
        put(&mut open.span.values, event.values);
        for &flow in &event.flows {
            self.by_flow.entry(flow).or_insert(number);
        }
        open.flows.extend(event.flows);
        let polls = self.open.get_mut(&thread).into_iter().flatten();
        polls.filter(|poll| poll.0 == number).for_each(|poll| poll.1 = true);
        self.open.entry(event.track).or_default().push((number, false));
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
        put(&mut open.span.values, values);
        if is_poll {
            return Ok(());
        }
        let Some(Open { span, flows, bytes, .. }) = self.spans.remove(&number) else {
            return Ok(());
        };
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

/// The latest value of each name.
fn put(known: &mut Vec<(String, FileValue)>, values: Vec<(String, FileValue)>) {
    for (name, value) in values {
        match known.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = value,
            None => known.push((name, value)),
        }
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
/// What of one instant is looked at.
const MOST_AT_ONCE: usize = 64;
/// Marks of one span that are kept.
const MOST_MARKS: usize = 1_000;
// What each takes in memory beside its texts, with what their allocations waste.
const SPAN: usize = 2 * size_of::<Open>() + 100;
const MARK: usize = 2 * size_of::<Mark>();
const VALUE: usize = 2 * size_of::<(String, FileValue)>();
const TEXT: usize = 2 * size_of::<String>();
