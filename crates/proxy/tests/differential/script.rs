//! The little language of conversations: text to send and lines that begin with `!`.

use std::time::Duration;

/// One thing that a client or an upstream does.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Send(Vec<u8>),
    Wait(Duration),
    /// An upstream answers as soon as it has the head.
    OnHead,
    /// Sends back whatever comes until the peer ends.
    Echo,
    /// Reads so many bytes.
    Read(usize),
    /// Reads until the peer ends.
    ReadEnd,
    HalfClose,
    /// Closes the connection; a client goes on with the one that it had before, or with a new one.
    Close,
    /// A client opens another connection, and keeps this one.
    Another,
    Reset,
    /// Does nothing until the peer ends.
    Silent,
    /// Has a resource at this pressure.
    Pressure(String, String),
}

/// Text with `!` lines between its pieces. A line break right before such a line belongs to it, unless it ends a head.
pub(crate) fn parse(text: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut piece = String::new();
    for line in text.split_inclusive('\n') {
        let Some(order) = line.strip_prefix("! ") else {
            piece.push_str(line);
            continue;
        };
        if !piece.is_empty() {
            let end = piece.len() - usize::from(piece.ends_with('\n') && !piece.ends_with("\n\n"));
            steps.push(Step::Send(bytes(&piece[..end])));
            piece.clear();
        }
        steps.push(order_of(order.trim_end()));
    }
    if !piece.is_empty() {
        steps.push(Step::Send(bytes(&piece)));
    }
    steps
}

fn order_of(order: &str) -> Step {
    let (word, argument) = order.split_once(' ').unwrap_or((order, ""));
    match word {
        "wait" => Step::Wait(Duration::from_millis(argument.parse().unwrap())),
        "on-head" => Step::OnHead,
        "echo" => Step::Echo,
        "read" if argument == "end" => Step::ReadEnd,
        "read" => Step::Read(argument.parse().unwrap()),
        "half-close" => Step::HalfClose,
        "close" => Step::Close,
        "another" => Step::Another,
        "reset" => Step::Reset,
        "silent" => Step::Silent,
        "pressure" => {
            let (name, value) = argument.split_once(' ').unwrap();
            Step::Pressure(name.to_owned(), value.to_owned())
        }
        _ => panic!("no such order: {order}"),
    }
}

/// The bytes of a text: a line break is CRLF unless it is one already, `${N*text}` is N times the text, and `\xHH` a
/// byte, also within that.
pub(crate) fn bytes(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        if let Some((count, piece, after)) = repetition(rest) {
            bytes.extend(self::bytes(piece).repeat(count));
            rest = after;
            continue;
        }
        if let Some(hex) = rest.strip_prefix("\\x").and_then(|rest| rest.get(..2)) {
            bytes.push(u8::from_str_radix(hex, 16).unwrap());
            rest = &rest[4..];
            continue;
        }
        if next == '\n' && bytes.last() != Some(&b'\r') {
            bytes.push(b'\r');
        }
        let mut buffer = [0; 4];
        bytes.extend_from_slice(next.encode_utf8(&mut buffer).as_bytes());
        rest = &rest[next.len_utf8()..];
    }
    bytes
}

fn repetition(text: &str) -> Option<(usize, &str, &str)> {
    let (inner, after) = text.strip_prefix("${")?.split_once('}')?;
    let (count, piece) = inner.split_once('*')?;
    Some((count.parse().ok()?, piece, after))
}
