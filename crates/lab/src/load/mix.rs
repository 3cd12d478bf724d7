//! Several requests: each one sent is drawn by weight, filled in where it has holes, and its answer checked.

use std::collections::BTreeMap;
use std::path::Path;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::request::encode;
use super::{LoadError, Plan, Request};
use crate::random::Random;

/// One of several requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// What it is called in reports.
    pub name: String,
    /// How often it is sent, relative to the others.
    pub weight: u32,
    /// The request target, unless it is the plan's.
    pub path: Option<String>,
    /// Method, headers, body.
    pub request: Request,
    /// What its answer must be.
    pub check: Check,
    /// What `{line}` stands for, one after the other.
    pub lines: Vec<String>,
}

/// What an answer must be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// This status; below 400 unless given.
    pub status: Option<u16>,
    /// These bytes, somewhere in the first MiB of the body.
    pub contains: Option<Vec<u8>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    request: Vec<EntryFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EntryFile {
    name: Option<String>,
    #[serde(default = "one")]
    weight: u32,
    method: Option<String>,
    path: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    body: Option<String>,
    body_file: Option<String>,
    lines: Option<String>,
    #[serde(default)]
    expect: CheckFile,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct CheckFile {
    status: Option<u16>,
    contains: Option<String>,
}

impl Entry {
    /// Reads a file of `[[request]]` tables; the files that it names lie beside it.
    pub fn read_all(path: &Path) -> Result<Vec<Self>, String> {
        let told = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let text = std::fs::read_to_string(path).map_err(|error| told(&error))?;
        let file: File = toml::from_str(&text).map_err(|error| told(&error))?;
        let beside = |name: &str| {
            let place = path.parent().unwrap_or_else(|| Path::new("")).join(name);
            std::fs::read(&place).map_err(|error| format!("{}: {error}", place.display()))
        };
        file.request.into_iter().enumerate().map(|(at, it)| it.read(at, &beside)).collect()
    }
}

impl EntryFile {
    fn read(
        self,
        at: usize,
        beside: &dyn Fn(&str) -> Result<Vec<u8>, String>,
    ) -> Result<Entry, String> {
        let path = self.path.clone().unwrap_or_default();
        if self.path.is_some() && (!path.starts_with('/') || path.contains([' ', '\r', '\n'])) {
            return Err(format!("request {}: '{path}' is no path", at + 1));
        }
        let all = self.headers.values().chain(self.path.iter()).chain(&self.body);
        if let Some(wrong) = all.filter_map(|text| malformed_hole(text)).next() {
            return Err(format!(
                "request {}: '{wrong}' is not {{random:A-B}} with A up to B",
                at + 1
            ));
        }
        if let Some(wrong) = unfilled(&path) {
            return Err(format!(
                "request {}: '{wrong}' in the path is none of {{number}}, {{random:A-B}} and {{line}}",
                at + 1
            ));
        }
        let is_line = |text: &String| !text.contains(['\r', '\n']);
        if !self
            .headers
            .iter()
            .all(|(name, value)| !name.is_empty() && is_line(name) && is_line(value))
        {
            return Err(format!("request {}: a header is not one line", at + 1));
        }
        let body = match (self.body, self.body_file) {
            (Some(_), Some(_)) => return Err(format!("request {}: body and body_file", at + 1)),
            (Some(text), None) => text.into_bytes(),
            (None, Some(name)) => beside(&name)?,
            (None, None) => Vec::new(),
        };
        let lines = self.lines.as_deref().map(beside).transpose()?.unwrap_or_default();
        let lines: Vec<String> =
            String::from_utf8_lossy(&lines).lines().map(str::to_owned).collect();
        let method = self
            .method
            .clone()
            .unwrap_or_else(|| if body.is_empty() { "GET" } else { "POST" }.to_owned());
        Ok(Entry {
            name: self.name.unwrap_or_else(|| format!("{method} {path}")),
            weight: self.weight,
            path: self.path,
            request: Request {
                method: self.method,
                headers: self.headers.into_iter().collect(),
                body,
            },
            check: Check {
                status: self.expect.status,
                contains: self.expect.contains.map(String::into_bytes),
            },
            lines,
        })
    }
}

/// How a protocol has its messages.
pub(super) trait Form: Sized {
    /// The message of an entry; with holes it is made when it is [filled](Form::fill).
    fn new(plan: &Plan, entry: &Entry, has_holes: bool) -> Result<Self, LoadError>;
    /// Makes the next message of an entry that has holes.
    fn fill(&mut self, values: &mut Values<'_>);
}

/// Which request comes next, and its message.
pub(super) struct Messages<F> {
    entries: Vec<Message<F>>,
    weights: u64,
    random: Random,
    number: u64,
    step: u64,
}

struct Message<F> {
    weight: u64,
    form: F,
    check: Check,
    is_head: bool,
    has_holes: bool,
    lines: Vec<String>,
    next_line: usize,
}

/// What stands in the holes of one message.
pub(super) struct Values<'a> {
    number: u64,
    line: &'a str,
    random: &'a mut Random,
}

impl Values<'_> {
    pub(super) fn fill(&mut self, pieces: &[Piece]) -> Vec<u8> {
        let mut text = Vec::new();
        for piece in pieces {
            match piece {
                Piece::Text(plain) => text.extend_from_slice(plain),
                Piece::Number => text.extend_from_slice(self.number.to_string().as_bytes()),
                Piece::Random(from, to) => {
                    let value = from + self.random.next() % (to - from + 1);
                    text.extend_from_slice(value.to_string().as_bytes());
                }
                Piece::Line => text.extend_from_slice(self.line.as_bytes()),
            }
        }
        text
    }
}

/// The bytes of a message of HTTP/1.1, TCP or WebSocket.
pub(super) struct Encoded {
    bytes: Bytes,
    /// A head without its length, and a body.
    head: Vec<Piece>,
    body: Vec<Piece>,
    has_length: bool,
}

impl Encoded {
    pub(super) fn bytes(&self) -> Bytes {
        self.bytes.clone()
    }
}

/// A part of a text that may have holes.
pub(super) enum Piece {
    Text(Vec<u8>),
    /// `{number}`: how many requests there were before it.
    Number,
    /// `{random:1-10}`, both included.
    Random(u64, u64),
    /// `{line}`: the next line of the entry's file.
    Line,
}

impl<F: Form> Messages<F> {
    pub(super) fn new(plan: &Plan) -> Result<Self, LoadError> {
        let alone = [Entry { weight: 1, request: plan.request.clone(), ..Entry::default() }];
        let entries = if plan.mix.is_empty() { &alone[..] } else { &plan.mix };
        if entries.iter().map(|it| u64::from(it.weight)).sum::<u64>() == 0 {
            return Err(LoadError::Plan("no request has a weight"));
        }
        // What was asked for on the command line is sent as it is.
        let may_have_holes = !plan.mix.is_empty();
        let messages: Vec<Message<F>> = entries
            .iter()
            .map(|it| Message::new(plan, it, may_have_holes))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            weights: messages.iter().map(|it| it.weight).sum(),
            entries: messages,
            random: Random::new(plan.seed.wrapping_mul(31).wrapping_add(plan.share.index as u64)),
            number: plan.share.index as u64,
            step: plan.share.of as u64,
        })
    }

    /// Draws the next request: which, and its message.
    pub(super) fn next(&mut self) -> (usize, &F) {
        let at = self.draw();
        let number = self.number;
        self.number += self.step;
        let Message { form, has_holes, lines, next_line, .. } = &mut self.entries[at];
        if *has_holes {
            let line = lines.get(*next_line % lines.len().max(1)).map_or("", String::as_str);
            *next_line += 1;
            form.fill(&mut Values { number, line, random: &mut self.random });
        }
        (at, form)
    }

    /// An entry's latest message.
    pub(super) fn latest(&self, entry: usize) -> &F {
        &self.entries[entry].form
    }

    pub(super) fn check(&self, entry: usize) -> &Check {
        &self.entries[entry].check
    }

    /// Whether its answers have no body whatever they announce.
    pub(super) fn is_head(&self, entry: usize) -> bool {
        self.entries[entry].is_head
    }

    fn draw(&mut self) -> usize {
        if self.entries.len() == 1 {
            return 0;
        }
        let mut left = self.random.next() % self.weights;
        for (at, entry) in self.entries.iter().enumerate() {
            if left < entry.weight {
                return at;
            }
            left -= entry.weight;
        }
        0
    }
}

impl<F: Form> Message<F> {
    fn new(plan: &Plan, entry: &Entry, may_have_holes: bool) -> Result<Self, LoadError> {
        let has_holes = may_have_holes && has_holes(entry);
        let needs_lines = has_holes && bytes_of(entry).iter().any(|it| contains(it, b"{line}"));
        if needs_lines && entry.lines.is_empty() {
            return Err(LoadError::Plan("a request has {line} but no lines"));
        }
        Ok(Self {
            weight: entry.weight.into(),
            form: F::new(plan, entry, has_holes)?,
            check: entry.check.clone(),
            is_head: entry.request.is_head(),
            has_holes,
            lines: entry.lines.clone(),
            next_line: plan.share.index,
        })
    }
}

impl Check {
    /// What is wrong with an answer, in the word of the counts.
    pub(super) fn problem(&self, status: u16, body: &[u8]) -> Option<&'static str> {
        let is_good = self.status.map_or(status < 400, |wanted| status == wanted);
        let has = |wanted: &Vec<u8>| contains(body, wanted);
        match (is_good, &self.contains) {
            (false, _) => Some("status"),
            (true, Some(wanted)) if !has(wanted) => Some("check"),
            (true, _) => None,
        }
    }
}

impl Form for Encoded {
    fn new(plan: &Plan, entry: &Entry, has_holes: bool) -> Result<Self, LoadError> {
        if !has_holes {
            let bytes = Bytes::from(encode(plan, entry));
            return Ok(Self { bytes, head: Vec::new(), body: Vec::new(), has_length: false });
        }
        // The body's length is known once it is filled in.
        let (head, has_length) = match entry.request.body.is_empty() {
            true => (encode(plan, entry), false),
            false => {
                let bare = Request { body: Vec::new(), ..entry.request.clone() };
                let method = bare.method.clone().unwrap_or_else(|| "POST".to_owned());
                let bare = Request { method: Some(method), ..bare };
                let head = encode(plan, &Entry { request: bare, ..entry.clone() });
                (without_length(&head), true)
            }
        };
        let (head, body) = (pieces(&head), pieces(&entry.request.body));
        Ok(Self { bytes: Bytes::new(), head, body, has_length })
    }

    fn fill(&mut self, values: &mut Values<'_>) {
        let (mut bytes, content) = (values.fill(&self.head), values.fill(&self.body));
        if self.has_length {
            bytes.truncate(bytes.len() - 2);
            bytes
                .extend_from_slice(format!("Content-Length: {}\r\n\r\n", content.len()).as_bytes());
        }
        bytes.extend_from_slice(&content);
        self.bytes = bytes.into();
    }
}

/// Everything in which holes are looked for.
fn bytes_of(entry: &Entry) -> Vec<&[u8]> {
    let headers = entry.request.headers.iter().map(|(_, value)| value.as_bytes());
    headers
        .chain([entry.path.as_deref().unwrap_or_default().as_bytes(), &entry.request.body])
        .collect()
}

fn has_holes(entry: &Entry) -> bool {
    bytes_of(entry)
        .iter()
        .any(|text| pieces(text).iter().any(|piece| !matches!(piece, Piece::Text(_))))
}

fn contains(text: &[u8], wanted: &[u8]) -> bool {
    memchr::memmem::find(text, wanted).is_some()
}

/// What stands in braces and is no hole stays as it is: JSON is full of them.
pub(super) fn pieces(text: &[u8]) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let (mut rest, mut plain) = (text, Vec::new());
    while let Some(open) = memchr::memchr(b'{', rest) {
        plain.extend_from_slice(&rest[..open]);
        rest = &rest[open..];
        let hole =
            memchr::memchr(b'}', rest).and_then(|close| Some((hole(&rest[1..close])?, close)));
        match hole {
            Some((hole, close)) => {
                pieces.push(Piece::Text(std::mem::take(&mut plain)));
                pieces.push(hole);
                rest = &rest[close + 1..];
            }
            None => {
                plain.push(b'{');
                rest = &rest[1..];
            }
        }
    }
    plain.extend_from_slice(rest);
    pieces.push(Piece::Text(plain));
    pieces
}

fn hole(name: &[u8]) -> Option<Piece> {
    match std::str::from_utf8(name).ok()? {
        "number" => Some(Piece::Number),
        "line" => Some(Piece::Line),
        name => {
            let (from, to) = name.strip_prefix("random:")?.split_once('-')?;
            let (from, to): (u64, u64) = (from.parse().ok()?, to.parse().ok()?);
            (from <= to && to - from < u64::MAX).then_some(Piece::Random(from, to))
        }
    }
}

/// The first `{random:…}` that cannot be filled in.
fn malformed_hole(text: &str) -> Option<&str> {
    text.match_indices("{random:").find_map(|(at, _)| {
        let end = text[at..].find('}').map_or(text.len(), |close| at + close + 1);
        let name = text[at..end].strip_prefix('{')?.trim_end_matches('}');
        hole(name.as_bytes()).is_none().then_some(&text[at..end])
    })
}

/// The first word in braces that is no hole: no path holds a brace (RFC 3986 §3.3).
fn unfilled(path: &str) -> Option<&str> {
    path.match_indices('{').find_map(|(at, _)| {
        let end = path[at..].find('}').map_or(path.len(), |close| at + close + 1);
        let name = path[at + 1..end].trim_end_matches('}');
        hole(name.as_bytes()).is_none().then_some(&path[at..end])
    })
}

/// A head of which the length is not known yet.
fn without_length(head: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(head);
    text.split_inclusive("\r\n")
        .filter(|line| *line != "Content-Length: 0\r\n")
        .collect::<String>()
        .into_bytes()
}

fn one() -> u32 {
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(mix: Vec<Entry>) -> Plan {
        Plan { mix, ..Plan::new("http://127.0.0.1:1/all".parse().unwrap()) }
    }

    fn entry(weight: u32, path: &str, body: &str) -> Entry {
        let request = Request { body: body.as_bytes().to_vec(), ..Request::default() };
        Entry {
            name: path.to_owned(),
            weight,
            path: Some(path.to_owned()),
            request,
            ..Entry::default()
        }
    }

    #[test]
    fn requests_are_drawn_by_weight() {
        let plan = plan(vec![entry(3, "/a", ""), entry(1, "/b", ""), entry(0, "/c", "")]);
        let mut messages = Messages::<Encoded>::new(&plan).unwrap();
        let mut counts = [0; 3];
        for _ in 0..10_000 {
            counts[messages.next().0] += 1;
        }
        assert!((7300..7700).contains(&counts[0]) && counts[2] == 0, "{counts:?}");
        assert!(Messages::<Encoded>::new(&Plan { mix: vec![entry(0, "/", "")], ..plan }).is_err());
    }

    #[test]
    fn holes_are_filled_and_the_length_is_the_filled_bodys() {
        let mut it =
            entry(1, "/items/{number}", "{\"id\": {random:7-9}, \"who\": \"{line}\", \"x\": {y}}");
        it.lines = vec!["anna".to_owned(), "bo".to_owned()];
        let mut messages = Messages::<Encoded>::new(&plan(vec![it])).unwrap();
        for (number, who) in ["anna", "bo", "anna"].into_iter().enumerate() {
            let bytes = messages.next().1.bytes();
            let text = String::from_utf8(bytes.to_vec()).unwrap();
            let (head, body) = text.split_once("\r\n\r\n").unwrap();
            assert!(head.starts_with(&format!("POST /items/{number} HTTP/1.1\r\n")), "{head}");
            assert!(head.ends_with(&format!("\r\nContent-Length: {}", body.len())), "{text}");
            assert_eq!(head.matches("Content-Length").count(), 1);
            let id = body["{\"id\": ".len()..].split(',').next().unwrap();
            assert!(["7", "8", "9"].contains(&id), "{body}");
            assert!(body.ends_with(&format!(", \"who\": \"{who}\", \"x\": {{y}}}}")), "{body}");
        }
    }

    #[test]
    fn what_looks_like_a_hole_and_is_none_is_refused() {
        let read = |text: &str| {
            let file: File = toml::from_str(text).unwrap();
            let none = |name: &str| Err(name.to_owned());
            file.request.into_iter().map(|it| it.read(0, &none)).collect::<Result<Vec<_>, _>>()
        };
        let refused = |line: &str| read(&format!("[[request]]\n{line}")).unwrap_err();
        assert!(refused("path = '/{random:9-1}'").contains("'{random:9-1}' is not"));
        assert!(refused("path = '/{random:a-b'").contains("'{random:a-b' is not"));
        assert!(refused("path = '/{nunber}'").contains("'{nunber}' in the path"));
        assert!(refused("body = '{\"a\": {random:5}}'").contains("'{random:5}' is not"));
        assert!(refused("headers = { x-id = '{random:}' }").contains("'{random:}' is not"));
        let ok = "path = '/{number}/{random:1-9}'\nbody = '{\"x\": {y}, \"n\": {random:0-0}}'";
        assert_eq!(read(&format!("[[request]]\n{ok}")).unwrap().len(), 1);
    }

    #[test]
    fn parts_of_a_plan_number_their_requests_differently() {
        let mut numbers = Vec::new();
        for index in 0..2 {
            let share = super::super::Share::new(index, 2);
            let mut messages =
                Messages::<Encoded>::new(&Plan { share, ..plan(vec![entry(1, "/{number}", "")]) })
                    .unwrap();
            for _ in 0..3 {
                let text = String::from_utf8(messages.next().1.bytes().to_vec()).unwrap();
                numbers.push(text[5..6].parse::<u32>().unwrap());
            }
        }
        numbers.sort_unstable();
        assert_eq!(numbers, [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn a_file_is_read_with_what_it_names_and_mistakes_are_told() {
        let folder = std::env::temp_dir().join(format!("towpath-mix-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("order.json"), "{}").unwrap();
        let read = |text: &str| {
            std::fs::write(folder.join("mix.toml"), text).unwrap();
            Entry::read_all(&folder.join("mix.toml"))
        };
        let entries = read(
            "[[request]]\npath = \"/a\"\nweight = 3\n[[request]]\nname = \"order\"\nmethod = \"PUT\"\npath = \"/b\"\n\
             body_file = \"order.json\"\nheaders = { content-type = \"application/json\" }\nexpect = \
             { status = 201, contains = \"id\" }\n",
        )
        .unwrap();
        assert_eq!((entries[0].name.as_str(), entries[0].weight), ("GET /a", 3));
        assert_eq!(
            (entries[1].request.body.as_slice(), entries[1].check.status),
            (&b"{}"[..], Some(201))
        );
        for (text, reason) in [
            ("[[request]]\npath = \"a\"\n", "is no path"),
            ("[[request]]\nwait = 3\n", "unknown field"),
            ("[[request]]\nbody = \"a\"\nbody_file = \"b\"\n", "body and body_file"),
            ("[[request]]\nbody_file = \"nowhere\"\n", "nowhere"),
            ("[[request]]\nheaders = { a = \"b\\r\\nc\" }\n", "not one line"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
        let mut hungry = entry(1, "/{line}", "");
        assert!(Messages::<Encoded>::new(&plan(vec![hungry.clone()])).is_err());
        hungry.lines.push("x".to_owned());
        assert!(Messages::<Encoded>::new(&plan(vec![hungry])).is_ok());
    }
}
