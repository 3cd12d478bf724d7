//! Reads the corpus of HTTP/1 messages beside it. The format is in `README.md`.
//!
//! Depends on nothing but the standard library, so that every test can take it by `#[path]`.

/// One message, or several in a row, and what must become of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Case {
    /// A short name, unique in its file.
    pub(crate) name: String,
    /// What goes over the wire.
    pub(crate) bytes: Vec<u8>,
    /// Leniencies that the receiver has for this case (`with:`), by name.
    pub(crate) with: Vec<String>,
    /// What a response answers (`to:`): a method, or `upgrade`; `GET` when the case does not say.
    pub(crate) to: String,
    /// Whether the sender closes after the bytes (`then: close`).
    pub(crate) close: bool,
    /// What must become of it.
    pub(crate) expect: Expect,
    /// The rule and where it stands.
    pub(crate) why: String,
}

/// What must become of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expect {
    /// Exactly so many whole messages are understood, the last of them final.
    Accept(usize),
    /// An error; a request is answered with this status (0 in responses), and the connection closes.
    Reject(u16),
    /// Neither: more bytes are needed, and none of it may count as a whole message.
    Wait,
}

/// The cases of a corpus file, or the line that is wrong and why.
pub(crate) fn parse(text: &str) -> Result<Vec<Case>, String> {
    let mut cases = Vec::new();
    for (number, block) in blocks(text) {
        let case = parse_case(&block).map_err(|problem| format!("line {number}: {problem}"))?;
        if cases.iter().any(|other: &Case| other.name == case.name) {
            return Err(format!("line {number}: the name {} is taken", case.name));
        }
        cases.push(case);
    }
    Ok(cases)
}

/// Runs of lines between empty ones, without comments, with the number of their first line.
fn blocks(text: &str) -> Vec<(usize, Vec<&str>)> {
    let mut blocks: Vec<(usize, Vec<&str>)> = Vec::new();
    let mut fresh = true;
    for (index, line) in text.lines().enumerate() {
        if line.trim().is_empty() {
            fresh = true;
        } else if !line.starts_with('#') {
            match blocks.last_mut() {
                Some((_, block)) if !fresh => block.push(line),
                _ => blocks.push((index + 1, vec![line])),
            }
            fresh = false;
        }
    }
    blocks
}

fn parse_case(lines: &[&str]) -> Result<Case, String> {
    let mut case = Case {
        name: String::new(),
        bytes: Vec::new(),
        with: Vec::new(),
        to: "GET".into(),
        close: false,
        expect: Expect::Wait,
        why: String::new(),
    };
    let mut expected = false;
    for line in lines {
        let (key, value) =
            line.split_once(": ").ok_or_else(|| format!("no `key: value`: {line}"))?;
        match key {
            "name" => case.name = value.into(),
            "bytes" => {
                let quoted = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
                unescape(quoted.ok_or("bytes stand in quotes")?, &mut case.bytes)?;
            }
            "with" => case.with = value.split(' ').map(str::to_owned).collect(),
            "to" => case.to = value.into(),
            "then" if value == "close" => case.close = true,
            "expect" => {
                case.expect = parse_expect(value)?;
                expected = true;
            }
            "why" => case.why = value.into(),
            _ => return Err(format!("unknown line: {line}")),
        }
    }
    if case.name.is_empty() || case.why.is_empty() || !expected {
        return Err("name, expect and why are needed".into());
    }
    Ok(case)
}

fn parse_expect(value: &str) -> Result<Expect, String> {
    let (word, number) = value.split_once(' ').unwrap_or((value, "0"));
    match (word, number.parse::<u16>()) {
        ("accept", Ok(count)) if count > 0 => Ok(Expect::Accept(count.into())),
        ("reject", Ok(status)) => Ok(Expect::Reject(status)),
        ("wait", Ok(0)) => Ok(Expect::Wait),
        _ => Err(format!("unknown expectation: {value}")),
    }
}

/// `\r \n \t \0 \\ \xHH`, and `\{N:text}` for N times the text, which may have escapes itself.
fn unescape(text: &str, bytes: &mut Vec<u8>) -> Result<(), String> {
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        if character != '\\' {
            bytes.extend_from_slice(&rest.as_bytes()[..character.len_utf8()]);
            rest = &rest[character.len_utf8()..];
            continue;
        }
        let escape = rest.chars().nth(1).ok_or("a backslash ends the line")?;
        rest = &rest[1 + escape.len_utf8()..];
        match escape {
            'r' => bytes.push(b'\r'),
            'n' => bytes.push(b'\n'),
            't' => bytes.push(b'\t'),
            '0' => bytes.push(0),
            '\\' => bytes.push(b'\\'),
            'x' => {
                let digits = rest.get(..2).ok_or("\\x wants two digits")?;
                bytes.push(u8::from_str_radix(digits, 16).map_err(|error| error.to_string())?);
                rest = &rest[2..];
            }
            '{' => {
                let (count, body) = rest.split_once(':').ok_or("\\{ wants a count")?;
                let count: usize = count.parse().map_err(|_| format!("not a count: {count}"))?;
                let end = closing(body).ok_or("\\{ is not closed")?;
                let mut piece = Vec::new();
                unescape(&body[..end], &mut piece)?;
                (0..count).for_each(|_| bytes.extend_from_slice(&piece));
                rest = &body[end + 1..];
            }
            other => return Err(format!("unknown escape \\{other}")),
        }
    }
    Ok(())
}

/// Where the brace stands that closes an open `\{`.
fn closing(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let (mut depth, mut at) = (0, 0);
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => {
                depth += usize::from(bytes.get(at + 1) == Some(&b'{'));
                at += 1;
            }
            b'}' if depth == 0 => return Some(at),
            b'}' => depth -= 1,
            _ => {}
        }
        at += 1;
    }
    None
}
