//! A server for the filter `ext_proc`: what it is shown is told as lines, and answered as a script says.
//!
//! A script begins with `processor`. Each further line answers the next message: answers are divided by ` ; `, and an
//! answer is what it speaks of (`rh`, `sh`: heads; `rb`, `sb`: bodies; `rt`, `st`: trailers; `imm`: an answer for the
//! client) and what it says, word by word, where `_` is a blank and `^` a line
//! break:
//!
//! | Word | Means |
//! |---|---|
//! | `ok` | goes on: of what was shown; what comes after the last line too |
//! | `set:a=b`, `add:a=b`, `remove:a` | fields |
//! | `body:text`, `clear`, `streamed:text`, `eos` | content |
//! | `replace`, `reroute` | `CONTINUE_AND_REPLACE`, `clear_route_cache` |
//! | `status:N`, `details:text`, `grpc:N` | of `imm` |
//! | `mode:3=2` | field 3 of `mode_override` |
//! | `time:MS` | `override_message_timeout`, and nothing else |
//! | `meta:a.b=c` | dynamic metadata |
//! | `nothing`, `wait:MS`, `end:N` | no answer, time, the call's end with that status |
//! | `reset`, `raw:HEX` | the call's reset, bytes |

use std::fmt::Write;

use crate::spans::{Field, fields};

/// What is done after a message.
pub(crate) enum Deed {
    Send(Vec<u8>),
    Wait(u64),
    End(u32),
    Reset,
}

/// The lines of a script that is one for a processor.
pub(crate) fn script(text: &[u8]) -> Option<Vec<String>> {
    let text = String::from_utf8_lossy(text).replace('\r', "");
    let lines = text.strip_prefix("processor")?.trim_matches('\n');
    Some(lines.lines().map(str::to_owned).collect())
}

/// What a message shows, as one line.
pub(crate) fn line(message: &[u8]) -> String {
    let mut line = String::from("shown");
    let mut all = fields(message);
    all.sort_by_key(|(number, _)| *number);
    for (number, inner) in all {
        let _ = match number {
            2 => write!(line, " rh{}", headers(inner.bytes())),
            3 => write!(line, " sh{}", headers(inner.bytes())),
            4 => write!(line, " rb{}", body(inner.bytes())),
            5 => write!(line, " sb{}", body(inner.bytes())),
            6 => write!(line, " rt{}", headers(inner.bytes())),
            7 => write!(line, " st{}", headers(inner.bytes())),
            8 => write!(line, " metadata [{}]", texts(inner.bytes())),
            9 => write!(line, " attributes [{}]", texts(inner.bytes())),
            10 => write!(line, " watches {}", inner.number()),
            11 => {
                let parts = fields(inner.bytes());
                let parts: Vec<_> =
                    parts.iter().map(|(field, it)| format!("{field}={}", it.number())).collect();
                write!(line, " protocol [{}]", parts.join(" "))
            }
            _ => write!(line, " {number}"),
        };
    }
    line
}

/// All the printable text of a message, in order of its pieces. Two bytes are none: a port that is a number has them.
fn texts(message: &[u8]) -> String {
    let text = String::from_utf8_lossy(message);
    let mut words: Vec<String> = text
        .split(|it: char| !it.is_ascii_graphic() && it != ' ')
        .map(str::trim)
        .filter(|word| word.len() > 2)
        .map(str::to_owned)
        .collect();
    words.sort();
    words.join(" ")
}

fn headers(message: &[u8]) -> String {
    let (mut all, mut ends) = (Vec::new(), 0);
    for (number, inner) in fields(message) {
        if number == 3 {
            ends = inner.number();
            continue;
        }
        for (_, header) in fields(inner.bytes()) {
            let parts = fields(header.bytes());
            let part =
                |number| parts.iter().find(|(field, _)| *field == number).map(|(_, it)| it.text());
            let value = part(3).or_else(|| part(2)).unwrap_or_default();
            all.push(format!("{}={value}", part(1).unwrap_or_default()));
        }
    }
    all.retain(|field| {
        !["x-request-id=", "date=", "x-envoy-upstream-service-time="]
            .iter()
            .any(|name| field.starts_with(name))
    });
    all.sort();
    format!(" end={ends} [{}]", all.join(" | "))
}

fn body(message: &[u8]) -> String {
    let all = fields(message);
    let part = |number| all.iter().find(|(field, _)| *field == number).map(|(_, it)| it);
    let text = crate::wire::show(part(1).map(Field::bytes).unwrap_or_default());
    format!(" end={} {text}", part(2).map(Field::number).unwrap_or_default())
}

/// What a line of the script has the server do with a message.
pub(crate) fn deeds(line: &str, message: &[u8]) -> Vec<Deed> {
    line.split(" ; ").flat_map(|answer| deed(answer.trim(), message)).collect()
}

fn deed(answer: &str, message: &[u8]) -> Vec<Deed> {
    let (word, argument) = answer.split_once(':').unwrap_or((answer, ""));
    match word {
        "nothing" => return Vec::new(),
        "wait" => return vec![Deed::Wait(argument.parse().unwrap())],
        "end" => return vec![Deed::End(argument.parse().unwrap())],
        "reset" => return vec![Deed::Reset],
        "raw" => {
            let byte = |at| u8::from_str_radix(&argument[at..at + 2], 16).unwrap();
            return vec![Deed::Send((0..argument.len()).step_by(2).map(byte).collect())];
        }
        _ => {}
    }
    let mut words: Vec<&str> = answer.split(' ').collect();
    // The parts of an answer have the numbers of what they answer, less one.
    let shown = fields(message).into_iter().map(|(number, _)| number).find(|it| *it < 8);
    let of = match words[0] {
        "rh" => 1,
        "sh" => 2,
        "rb" => 3,
        "sb" => 4,
        "rt" => 5,
        "st" => 6,
        "imm" => 7,
        "none" => 0,
        _ => shown.unwrap_or(2) - 1,
    };
    if ["rh", "sh", "rb", "sb", "rt", "st", "imm", "none", "ok"].contains(&words[0]) {
        words.remove(0);
    }
    vec![Deed::Send(response(of, &words))]
}

fn response(of: u64, words: &[&str]) -> Vec<u8> {
    let (mut mutation, mut common, mut all) = (Vec::new(), Vec::new(), Vec::new());
    let (mut mode, mut metadata, mut immediate) = (Vec::new(), Vec::new(), Vec::new());
    let (mut streamed, mut mutates, mut extends) = (None::<Vec<u8>>, false, false);
    for word in words {
        let (name, value) = word.split_once(':').unwrap_or((word, ""));
        let value = value.replace('_', " ").replace('^', "\r\n");
        let pair = || value.split_once('=').unwrap_or((&value, ""));
        match name {
            "set" | "add" => {
                let (key, value) = pair();
                let mut header = Vec::new();
                bytes(&mut header, 1, key.as_bytes());
                bytes(&mut header, 3, &crate::script::bytes(value));
                let mut option = Vec::new();
                bytes(&mut option, 1, &header);
                if name == "add" {
                    bytes(&mut option, 2, &[8, 1]);
                }
                bytes(&mut mutation, 1, &option);
                mutates = true;
            }
            "remove" => {
                bytes(&mut mutation, 2, value.as_bytes());
                mutates = true;
            }
            "replace" => number(&mut common, 1, 1),
            "reroute" => number(&mut common, 5, 1),
            "body" if of == 7 => bytes(&mut immediate, 3, value.as_bytes()),
            "body" | "clear" => {
                let mut body = Vec::new();
                match name {
                    "body" => bytes(&mut body, 1, &crate::script::bytes(&value)),
                    _ => number(&mut body, 2, 1),
                }
                bytes(&mut common, 3, &body);
            }
            "streamed" => bytes(streamed.get_or_insert_default(), 1, value.as_bytes()),
            "eos" => number(streamed.get_or_insert_default(), 2, 1),
            "status" => {
                let mut status = Vec::new();
                number(&mut status, 1, value.parse().unwrap());
                bytes(&mut immediate, 1, &status);
            }
            "details" => bytes(&mut immediate, 5, value.as_bytes()),
            "grpc" => {
                let mut status = Vec::new();
                number(&mut status, 1, value.parse().unwrap());
                bytes(&mut immediate, 4, &status);
            }
            "mode" => {
                let (field, value) = pair();
                number(&mut mode, field.parse().unwrap(), value.parse().unwrap());
            }
            "time" => {
                let ms: u64 = value.parse().unwrap();
                let mut time = Vec::new();
                number(&mut time, 1, ms / 1000);
                number(&mut time, 2, ms % 1000 * 1_000_000);
                bytes(&mut all, 10, &time);
                extends = true;
            }
            "meta" => {
                let (path, value) = pair();
                let (namespace, key) = path.split_once('.').unwrap();
                let entry = |key: &str, kind: u64, value: &[u8]| {
                    let (mut inner, mut entry) = (Vec::new(), Vec::new());
                    bytes(&mut inner, kind, value);
                    bytes(&mut entry, 1, key.as_bytes());
                    bytes(&mut entry, 2, &inner);
                    entry
                };
                let mut fields = Vec::new();
                bytes(&mut fields, 1, &entry(key, 3, value.as_bytes()));
                bytes(&mut metadata, 1, &entry(namespace, 5, &fields));
            }
            _ => panic!("no such word: {word}"),
        }
    }
    if let Some(streamed) = streamed {
        let mut body = Vec::new();
        bytes(&mut body, 3, &streamed);
        bytes(&mut common, 3, &body);
    }
    let mut part = Vec::new();
    match of {
        5 | 6 if mutates => bytes(&mut part, 1, &mutation),
        5 | 6 => {}
        7 => {
            part = immediate;
            if mutates {
                bytes(&mut part, 2, &mutation);
            }
        }
        _ => {
            if mutates {
                bytes(&mut common, 2, &mutation);
            }
            if !common.is_empty() {
                bytes(&mut part, 1, &common);
            }
        }
    }
    if of != 0 && !extends {
        bytes(&mut all, of, &part);
    }
    if !metadata.is_empty() {
        bytes(&mut all, 8, &metadata);
    }
    if !mode.is_empty() {
        bytes(&mut all, 9, &mode);
    }
    let mut frame = vec![0];
    frame.extend(u32::try_from(all.len()).unwrap().to_be_bytes());
    frame.extend(all);
    frame
}

fn number(out: &mut Vec<u8>, field: u64, value: u64) {
    varint(out, field << 3);
    varint(out, value);
}

fn bytes(out: &mut Vec<u8>, field: u64, value: &[u8]) {
    varint(out, field << 3 | 2);
    varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(u8::try_from(value & 0x7f).unwrap() | 0x80);
        value >>= 7;
    }
    out.push(u8::try_from(value).unwrap());
}
