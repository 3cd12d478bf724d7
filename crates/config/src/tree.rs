//! Text to a tree of values with positions. What arrives: a [`Source`]. What leaves: a [`Node`] in which plain YAML
//! scalars mean what they mean to Envoy.
//!
//! The parser under `serde-saphyr` is used without its serde layer, because that layer decides what a plain scalar is
//! and keeps neither its text nor its quotes: `1.10` must reach a string field as `1.10`. Aliases are expanded here, so
//! the limits on nodes and depth hold for what they expand to.

mod scalar;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use granit_parser::{Event, Parser, ScalarStyle, ScanError, Span};

use crate::source::{Format, Source};

/// Nodes that one text may have, aliases expanded.
pub(crate) const MAX_NODES: usize = 2_000_000;
/// How deep they may nest. Envoy's own limit is protobuf's, also 100.
pub(crate) const MAX_DEPTH: usize = 100;

/// A line and column, from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pos {
    pub(crate) line: u32,
    pub(crate) column: u32,
}

/// A value in the text.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    pub(crate) pos: Pos,
    pub(crate) value: Value,
}

/// What a node is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    /// As JSON writes it.
    Number(String),
    String(String),
    List(Vec<Node>),
    /// In the order of the text.
    Map(Vec<(Key, Node)>),
}

/// A key of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) pos: Pos,
    pub(crate) name: String,
}

impl Node {
    /// The value of a key, if this is a map that has it.
    pub(crate) fn get(&self, name: &str) -> Option<&Self> {
        let Value::Map(entries) = &self.value else { return None };
        entries.iter().find(|(key, _)| key.name == name).map(|(_, node)| node)
    }

    /// The text of a string.
    pub(crate) fn text(&self) -> Option<&str> {
        if let Value::String(text) = &self.value { Some(text) } else { None }
    }

    /// What kind of value it is, for messages.
    pub(crate) const fn kind(&self) -> &'static str {
        match self.value {
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Number(_) => "a number",
            Value::String(_) => "a string",
            Value::List(_) => "a list",
            Value::Map(_) => "a map",
        }
    }

    /// How many lists and maps nest in it.
    fn height(&self) -> usize {
        match &self.value {
            Value::List(items) => 1 + items.iter().map(Self::height).max().unwrap_or(0),
            Value::Map(entries) => {
                1 + entries.iter().map(|(_, item)| item.height()).max().unwrap_or(0)
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
        }
    }

    /// Calls `visit` with every string in it, keys not included.
    pub(crate) fn strings<'a>(&'a self, visit: &mut impl FnMut(&'a str)) {
        match &self.value {
            Value::String(text) => visit(text),
            Value::List(items) => items.iter().for_each(|item| item.strings(visit)),
            Value::Map(entries) => entries.iter().for_each(|(_, item)| item.strings(visit)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

/// Why a text is not a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SyntaxError {
    pub(crate) pos: Pos,
    pub(crate) message: String,
}

fn refuse<T>(pos: Pos, message: impl Into<String>) -> Result<T, SyntaxError> {
    Err(SyntaxError { pos, message: message.into() })
}

/// A whole text.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Parsed {
    pub(crate) root: Node,
    /// Keys that a map has again, and the line of the one that is left out for that.
    pub(crate) repeated: Vec<(Key, u32)>,
}

/// Reads a whole text.
pub(crate) fn parse(source: &Source) -> Result<Parsed, SyntaxError> {
    let text = std::str::from_utf8(&source.bytes).or_else(|error| {
        let before = &source.bytes[..error.valid_up_to()];
        refuse(position_after(before), "not UTF-8")
    })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if source.format == Format::Json {
        check_json(text)?;
    }
    let options = granit_parser::options! {
        emit_comments: false,
        flow_nesting_limit: MAX_DEPTH,
        block_nesting_limit: MAX_DEPTH,
    };
    let parser = Parser::new_from_str_with_options(text, options);
    let mut reader = Reader {
        parser,
        format: source.format,
        anchors: HashMap::new(),
        repeated: Vec::new(),
        nodes: 0,
        depth: 0,
    };
    let root = reader.document()?;
    Ok(Parsed { root, repeated: reader.repeated })
}

/// JSON is a subset of the YAML that the tree is read from; this refuses the rest of YAML.
fn check_json(text: &str) -> Result<(), SyntaxError> {
    serde_json::from_str::<serde::de::IgnoredAny>(text).map(|_| ()).map_err(|error| SyntaxError {
        pos: Pos { line: cast(error.line()), column: cast(error.column()) },
        message: format!("not JSON: {}", strip_position(&error.to_string())),
    })
}

fn strip_position(message: &str) -> &str {
    message.split(" at line ").next().unwrap_or(message)
}

fn position_after(bytes: &[u8]) -> Pos {
    let line_start = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    let lines = bytes.iter().filter(|&&byte| byte == b'\n').count();
    Pos {
        line: cast(lines + 1),
        column: cast(String::from_utf8_lossy(&bytes[line_start..]).chars().count() + 1),
    }
}

fn cast(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

struct Reader<'a> {
    parser: Parser<'a, granit_parser::StrInput<'a>>,
    format: Format,
    /// Finished anchors with their number of nodes. A kept copy counts as nodes too.
    anchors: HashMap<usize, (Node, usize)>,
    repeated: Vec<(Key, u32)>,
    nodes: usize,
    depth: usize,
}

impl<'a> Reader<'a> {
    fn document(&mut self) -> Result<Node, SyntaxError> {
        let mut root = None;
        loop {
            let (event, pos) = self.next()?;
            match event {
                Event::StreamStart | Event::DocumentEnd => {}
                Event::DocumentStart(..) if root.is_some() => {
                    return refuse(pos, "only one document is read");
                }
                Event::DocumentStart(..) => {
                    let (event, pos) = self.next()?;
                    root = Some(self.node(event, pos)?);
                }
                Event::StreamEnd => return Ok(root.unwrap_or(Node { pos, value: Value::Null })),
                _ => return refuse(pos, "unexpected content"),
            }
        }
    }

    fn next(&mut self) -> Result<(Event<'a>, Pos), SyntaxError> {
        match self.parser.next_event() {
            Some(Ok((event, span))) => Ok((event, position(&span))),
            Some(Err(error)) => Err(syntax(&error)),
            None => refuse(Pos::default(), "the text ends too early"),
        }
    }

    fn node(&mut self, event: Event<'a>, pos: Pos) -> Result<Node, SyntaxError> {
        self.count(1, pos)?;
        let before = self.nodes;
        let (anchor, value) = match event {
            Event::Alias(id) => return self.alias(id, pos),
            Event::Scalar(text, style, anchor, tag) => {
                let string =
                    style != ScalarStyle::Plain || tag.is_some_and(|tag| tag.original() == "!");
                let value = if string {
                    Value::String(text.into_owned())
                } else {
                    scalar::plain(&text, self.format)
                };
                (anchor, value)
            }
            Event::SequenceStart(_, anchor, _) => (anchor, self.nested(pos, Self::list)?),
            Event::MappingStart(_, anchor, _) => (anchor, self.nested(pos, Self::map)?),
            _ => return refuse(pos, "a value is missing"),
        };
        let node = Node { pos, value };
        if anchor != 0 {
            let size = self.nodes - before + 1;
            self.count(size, pos)?;
            self.anchors.insert(anchor, (node.clone(), size));
        }
        Ok(node)
    }

    fn alias(&mut self, id: usize, pos: Pos) -> Result<Node, SyntaxError> {
        let Some(size) = self.anchors.get(&id).map(|(_, size)| *size) else {
            return refuse(pos, "an alias inside its own anchor");
        };
        self.count(size, pos)?;
        let node = Node { pos, ..self.anchors[&id].0.clone() };
        if self.depth + node.height() > MAX_DEPTH {
            return refuse(pos, format!("nested deeper than {MAX_DEPTH}"));
        }
        Ok(node)
    }

    fn count(&mut self, more: usize, pos: Pos) -> Result<(), SyntaxError> {
        self.nodes += more;
        if self.nodes > MAX_NODES {
            return refuse(pos, format!("more than {MAX_NODES} values, aliases expanded"));
        }
        Ok(())
    }

    fn nested(
        &mut self,
        pos: Pos,
        read: fn(&mut Self) -> Result<Value, SyntaxError>,
    ) -> Result<Value, SyntaxError> {
        if self.depth == MAX_DEPTH {
            return refuse(pos, format!("nested deeper than {MAX_DEPTH}"));
        }
        self.depth += 1;
        let value = read(self);
        self.depth -= 1;
        value
    }

    fn list(&mut self) -> Result<Value, SyntaxError> {
        let mut items = Vec::new();
        loop {
            let (event, pos) = self.next()?;
            if event == Event::SequenceEnd {
                return Ok(Value::List(items));
            }
            items.push(self.node(event, pos)?);
        }
    }

    fn map(&mut self) -> Result<Value, SyntaxError> {
        let mut entries: Vec<(Key, Node)> = Vec::new();
        let mut seen = HashMap::new();
        loop {
            let (event, key_pos) = self.next()?;
            let (name, ignored) = match event {
                Event::MappingEnd => return Ok(Value::Map(entries)),
                // Envoy leaves out entries whose key has this tag; they are there to hold anchors.
                Event::Scalar(name, _, _, tag) => {
                    (name.into_owned(), tag.is_some_and(|tag| tag.original() == "!ignore"))
                }
                _ => return refuse(key_pos, "a key must be a scalar"),
            };
            self.count(1, key_pos)?;
            let (event, pos) = self.next()?;
            let node = self.node(event, pos)?;
            if ignored {
                continue;
            }
            let key = Key { pos: key_pos, name };
            // Envoy takes the last one.
            match seen.entry(key.name.clone()) {
                Entry::Occupied(place) => {
                    let entry: &mut (Key, Node) = &mut entries[*place.get()];
                    self.repeated.push((key.clone(), entry.0.pos.line));
                    *entry = (key, node);
                }
                Entry::Vacant(place) => {
                    place.insert(entries.len());
                    entries.push((key, node));
                }
            }
        }
    }
}

fn position(span: &Span) -> Pos {
    Pos { line: cast(span.start.line()), column: cast(span.start.col() + 1) }
}

fn syntax(error: &ScanError) -> SyntaxError {
    let marker = error.marker();
    SyntaxError {
        pos: Pos { line: cast(marker.line()), column: cast(marker.col() + 1) },
        message: error.info(),
    }
}
