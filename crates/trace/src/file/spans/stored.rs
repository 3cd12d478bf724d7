//! Events and spans as bytes, while they wait to be put in order.

use super::nest::Event;
use super::{FileValue, Mark, Span};
use crate::wire::{Field, Fields, bytes, fixed64, message, uint};

/// An event; its time is the key that it is sorted by.
pub(super) fn of_event(event: &Event) -> Vec<u8> {
    let mut out = Vec::with_capacity(128);
    uint(&mut out, 1, event.kind);
    fixed64(&mut out, 2, event.track);
    bytes(&mut out, 3, event.name.as_bytes());
    event.categories.iter().for_each(|category| bytes(&mut out, 4, category.as_bytes()));
    put_values(&mut out, 5, &event.values);
    event.flows.iter().for_each(|&flow| fixed64(&mut out, 6, flow));
    uint(&mut out, 7, event.pid);
    uint(&mut out, 8, event.is_thread.into());
    event.ancestors.iter().for_each(|&track| fixed64(&mut out, 9, track));
    out
}

pub(super) fn event(ns: u64, record: &[u8]) -> Event {
    let mut event = Event { ns, ..Event::default() };
    for (field, value) in Fields::of(record) {
        match (field, value) {
            (1, Field::Number(kind)) => event.kind = kind,
            (2, Field::Fixed64(track)) => event.track = track,
            (3, Field::Bytes(name)) => event.name = text(name),
            (4, Field::Bytes(category)) => event.categories.push(text(category)),
            (5, Field::Bytes(value)) => event.values.extend(named_value(value)),
            (6, Field::Fixed64(flow)) => event.flows.push(flow),
            (7, Field::Number(pid)) => event.pid = pid,
            (8, Field::Number(is_thread)) => event.is_thread = is_thread != 0,
            (9, Field::Fixed64(track)) => event.ancestors.push(track),
            _ => {}
        }
    }
    event
}

pub(super) fn of_span(span: &Span) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    bytes(&mut out, 1, span.name.as_bytes());
    span.categories.iter().for_each(|category| bytes(&mut out, 2, category.as_bytes()));
    span.parent.iter().for_each(|&parent| uint(&mut out, 3, parent as u64));
    fixed64(&mut out, 4, span.track);
    uint(&mut out, 5, span.process.1);
    uint(&mut out, 6, span.begin_ns);
    uint(&mut out, 7, span.end_ns);
    uint(&mut out, 8, span.unfinished.into());
    put_values(&mut out, 9, &span.values);
    for mark in &span.marks {
        message(&mut out, 10, |out| {
            bytes(out, 1, mark.name.as_bytes());
            uint(out, 2, mark.ns);
            put_values(out, 3, &mark.values);
        });
    }
    uint(&mut out, 11, span.marks_left_out);
    out
}

/// A span; its process has a number and no name.
pub(super) fn span(record: &[u8]) -> Span {
    let mut span = Span::default();
    for (field, value) in Fields::of(record) {
        match (field, value) {
            (1, Field::Bytes(name)) => span.name = text(name),
            (2, Field::Bytes(category)) => span.categories.push(text(category)),
            (3, Field::Number(parent)) => span.parent = usize::try_from(parent).ok(),
            (4, Field::Fixed64(track)) => span.track = track,
            (5, Field::Number(pid)) => span.process.1 = pid,
            (6, Field::Number(ns)) => span.begin_ns = ns,
            (7, Field::Number(ns)) => span.end_ns = ns,
            (8, Field::Number(unfinished)) => span.unfinished = unfinished != 0,
            (9, Field::Bytes(value)) => span.values.extend(named_value(value)),
            (10, Field::Bytes(bytes)) => span.marks.push(mark(bytes)),
            (11, Field::Number(count)) => span.marks_left_out = count,
            _ => {}
        }
    }
    span
}

fn mark(record: &[u8]) -> Mark {
    let mut mark = Mark { name: String::new(), ns: 0, values: Vec::new() };
    for (field, value) in Fields::of(record) {
        match (field, value) {
            (1, Field::Bytes(name)) => mark.name = text(name),
            (2, Field::Number(ns)) => mark.ns = ns,
            (3, Field::Bytes(value)) => mark.values.extend(named_value(value)),
            _ => {}
        }
    }
    mark
}

fn put_values(out: &mut Vec<u8>, field: u32, values: &[(String, FileValue)]) {
    for (name, value) in values {
        message(out, field, |out| {
            bytes(out, 1, name.as_bytes());
            match value {
                FileValue::Bool(value) => uint(out, 2, (*value).into()),
                FileValue::Integer(value) => uint(out, 3, *value as u64),
                FileValue::Float(value) => fixed64(out, 4, value.to_bits()),
                FileValue::Text(value) => bytes(out, 5, value.as_bytes()),
            }
        });
    }
}

fn named_value(record: &[u8]) -> Option<(String, FileValue)> {
    let mut fields = Fields::of(record);
    let name = text(fields.next()?.1.bytes()?);
    let value = match fields.next()? {
        (2, Field::Number(value)) => FileValue::Bool(value != 0),
        (3, Field::Number(value)) => FileValue::Integer(value as i64),
        (4, Field::Fixed64(bits)) => FileValue::Float(f64::from_bits(bits)),
        (5, Field::Bytes(value)) => FileValue::Text(text(value)),
        _ => return None,
    };
    Some((name, value))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_comes_back() {
        let values: Vec<(String, FileValue)> = vec![
            ("flag".to_owned(), FileValue::Bool(false)),
            ("least".to_owned(), FileValue::Integer(i64::MIN)),
            ("half".to_owned(), FileValue::Float(0.5)),
            (String::new(), FileValue::Text("ü".repeat(300))),
        ];
        let event = Event {
            ns: 7,
            kind: 2,
            track: u64::MAX,
            name: "name".to_owned(),
            categories: vec!["app".to_owned(), String::new()],
            values: values.clone(),
            flows: vec![0, 3],
            pid: 9,
            is_thread: true,
            ancestors: vec![4, 5],
        };
        assert_eq!(super::event(7, &of_event(&event)), event);
        let mark = Mark { name: "mark".to_owned(), ns: 8, values: values.clone() };
        let whole = Span {
            name: "span".to_owned(),
            categories: vec!["app".to_owned()],
            parent: Some(0),
            track: 1,
            process: (String::new(), 2),
            begin_ns: 3,
            end_ns: u64::MAX,
            unfinished: true,
            values,
            marks: vec![mark.clone(), mark],
            marks_left_out: 5,
        };
        for span in [whole, Span::default()] {
            assert_eq!(super::span(&of_span(&span)), span);
        }
    }
}
