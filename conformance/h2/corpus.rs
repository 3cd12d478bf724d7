//! Reads the corpus of HTTP/2 requests beside it. The format is in `README.md`.
//!
//! Depends on nothing but the standard library, so that every test can take it by `#[path]`.

/// A request as it goes over the wire, and what must become of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Case {
    /// A short name, unique in its file.
    pub(crate) name: String,
    /// What is sent, in order.
    pub(crate) steps: Vec<Step>,
    /// Whether the last step ends the stream.
    pub(crate) ends: bool,
    /// What must become of it.
    pub(crate) expect: Expect,
    /// The rule and where it stands.
    pub(crate) why: String,
}

/// A part of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A header block: names and values, in order.
    Block(Fields),
    /// A DATA frame.
    Data(Vec<u8>),
}

/// Names and values.
pub(crate) type Fields = Vec<(Vec<u8>, Vec<u8>)>;

/// What must become of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expect {
    /// It is one whole request at the origin.
    Accept,
    /// Nothing of it reaches the origin.
    Reject,
    /// It is not one whole request at the origin: its head may have arrived before the mistake did.
    Cut,
}

impl Case {
    /// The first value of a field of the first block.
    pub(crate) fn field(&self, name: &str) -> Option<&[u8]> {
        let Some(Step::Block(fields)) = self.steps.first() else { return None };
        let found = fields.iter().find(|(it, _)| it == name.as_bytes());
        found.map(|(_, value)| value.as_slice())
    }

    /// Bytes of its body.
    pub(crate) fn body(&self) -> usize {
        let length = |step: &Step| match step {
            Step::Data(bytes) => bytes.len(),
            Step::Block(_) => 0,
        };
        self.steps.iter().map(length).sum()
    }
}

/// The cases of a corpus file, or the line that is wrong and why.
pub(crate) fn parse(text: &str) -> Result<Vec<Case>, String> {
    let mut cases: Vec<Case> = Vec::new();
    let lines: Vec<(usize, &str)> = text.lines().enumerate().collect();
    for block in lines.split(|(_, line)| line.trim().is_empty()) {
        let block: Vec<_> = block.iter().filter(|(_, line)| !line.starts_with('#')).collect();
        let Some((number, _)) = block.first() else { continue };
        let case = parse_case(block.iter().map(|(_, line)| *line))
            .map_err(|problem| format!("line {}: {problem}", number + 1))?;
        if cases.iter().any(|other| other.name == case.name) {
            return Err(format!("line {}: the name {} is taken", number + 1, case.name));
        }
        cases.push(case);
    }
    Ok(cases)
}

fn parse_case<'a>(lines: impl Iterator<Item = &'a str>) -> Result<Case, String> {
    let (mut name, mut why, mut expect) = (None, None, None);
    let (mut steps, mut ends) = (Vec::new(), true);
    for line in lines {
        let (key, value) =
            line.split_once(": ").unwrap_or_else(|| (line.trim_end_matches(':'), ""));
        match (key, steps.last_mut()) {
            ("name", _) => name = Some(value.to_owned()),
            ("why", _) => why = Some(value.to_owned()),
            ("head", _) => steps.push(Step::Block(usual(value)?)),
            ("trailers", Some(_)) => steps.push(Step::Block(Vec::new())),
            ("field", Some(Step::Block(fields))) => {
                let (name, value) = value.split_once("\" \"").ok_or("a field has two words")?;
                let name = name.strip_prefix('"').ok_or("a field stands in quotes")?;
                let value = value.strip_suffix('"').ok_or("a field stands in quotes")?;
                fields.push((unescape(name)?, unescape(value)?));
            }
            ("data", Some(_)) => {
                let quoted = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
                steps.push(Step::Data(unescape(quoted.ok_or("data stand in quotes")?)?));
            }
            ("then", _) if value == "open" => ends = false,
            ("expect", _) => {
                expect = Some(match value {
                    "accept" => Expect::Accept,
                    "reject" => Expect::Reject,
                    "cut" => Expect::Cut,
                    _ => return Err(format!("unknown expectation: {value}")),
                });
            }
            (_, _) => return Err(format!("unknown line, or out of place: {line}")),
        }
    }
    match (name, expect, why) {
        (Some(name), Some(expect), Some(why)) if !steps.is_empty() => {
            Ok(Case { name, steps, ends, expect, why })
        }
        (_, _, _) => Err("name, head, expect and why are needed".into()),
    }
}

/// `GET /x` stands for the four pseudo-fields of such a request; nothing for none.
fn usual(words: &str) -> Result<Fields, String> {
    if words.is_empty() {
        return Ok(Vec::new());
    }
    let (method, path) = words.split_once(' ').ok_or("a head has a method and a path")?;
    let fields = [(":method", method), (":scheme", "http"), (":authority", "a"), (":path", path)];
    Ok(fields.map(|(name, value)| (name.into(), value.into())).into())
}

fn unescape(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some((before, escape)) = rest.split_once('\\') {
        bytes.extend_from_slice(before.as_bytes());
        let character = escape.chars().next().ok_or("a lone backslash")?;
        rest = &escape[character.len_utf8()..];
        match character {
            'r' => bytes.push(b'\r'),
            'n' => bytes.push(b'\n'),
            't' => bytes.push(b'\t'),
            '0' => bytes.push(0),
            '\\' => bytes.push(b'\\'),
            'x' => {
                let digits = rest.get(..2).ok_or("\\x wants two digits")?;
                bytes.push(u8::from_str_radix(digits, 16).map_err(|_| "\\x wants two digits")?);
                rest = &rest[2..];
            }
            // `\{N:text}`: the text N times.
            '{' => {
                let (repeated, after) = rest.split_once('}').ok_or("\\{ wants a }")?;
                let (count, text) = repeated.split_once(':').ok_or("\\{ wants N:text")?;
                let count: usize = count.parse().map_err(|_| "\\{ wants a number")?;
                bytes.extend_from_slice(text.repeat(count).as_bytes());
                rest = after;
            }
            _ => return Err(format!("unknown escape: \\{character}")),
        }
    }
    bytes.extend_from_slice(rest.as_bytes());
    Ok(bytes)
}
