//! The server of a link, in a few bytes of Bolt version 1: it does what the content of a request says.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

/// Serves as long as the process lives; where.
pub(super) fn serve() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || while answer(&mut stream).is_some() {});
        }
    });
    format!("tcp://{address}")
}

fn answer(stream: &mut TcpStream) -> Option<()> {
    let asked = Frame::read(stream)?;
    let reply = |status: u16, content: &[u8]| response(asked.id, asked.command, status, content);
    let bytes = match &asked.content[..] {
        _ if asked.command == HEARTBEAT => reply(0, b""),
        b"hello" => reply(0, b"re hello"),
        b"busy" => reply(4, b""),
        b"silent" | b"told" => return Some(()),
        b"push" => {
            stream.write_all(&push()).ok()?;
            let pushed = Frame::read(stream)?;
            assert_eq!((pushed.kind, pushed.id), (RESPONSE, PUSHED));
            reply(0, &pushed.content)
        }
        // It is lost with the connection.
        _ => return None,
    };
    stream.write_all(&bytes).ok()
}

struct Frame {
    kind: u8,
    command: u16,
    id: u32,
    content: Vec<u8>,
}

impl Frame {
    fn read(stream: &mut TcpStream) -> Option<Self> {
        let mut head = [0; 20];
        stream.read_exact(&mut head).ok()?;
        let kind = head[1];
        // A request has four bytes of a timeout where a response has two of a status.
        let mut rest = [0; 2];
        if kind != RESPONSE {
            stream.read_exact(&mut rest).ok()?;
        }
        let all = [&head[..], &rest[..]].concat();
        let lengths = &all[if kind == RESPONSE { 12 } else { 14 }..];
        let short = |at: usize| usize::from(u16::from_be_bytes([lengths[at], lengths[at + 1]]));
        let long = u32::from_be_bytes([lengths[4], lengths[5], lengths[6], lengths[7]]);
        let around = short(0) + short(2);
        let mut parts = vec![0; around + usize::try_from(long).unwrap()];
        stream.read_exact(&mut parts).ok()?;
        let command = u16::from_be_bytes([head[2], head[3]]);
        let id = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        Some(Self { kind, command, id, content: parts.split_off(around) })
    }
}

fn response(id: u32, asked: u16, status: u16, content: &[u8]) -> Vec<u8> {
    let command = if asked == HEARTBEAT { HEARTBEAT } else { 2 };
    let mut bytes = begin(RESPONSE, command, id);
    bytes.extend(status.to_be_bytes());
    bytes.extend(parts(content));
    bytes
}

/// A request of the server's.
fn push() -> Vec<u8> {
    let mut bytes = begin(1, 1, PUSHED);
    bytes.extend(3000_u32.to_be_bytes());
    bytes.extend(parts(b"news"));
    bytes
}

fn begin(kind: u8, command: u16, id: u32) -> Vec<u8> {
    let mut bytes = vec![1, kind];
    bytes.extend(command.to_be_bytes());
    bytes.push(1);
    bytes.extend(id.to_be_bytes());
    bytes.push(1);
    bytes
}

/// Lengths, a class, a header and the content.
fn parts(content: &[u8]) -> Vec<u8> {
    let class = b"a.Class";
    let header = [&3_u32.to_be_bytes()[..], b"key", &5_u32.to_be_bytes()[..], b"value"].concat();
    let mut bytes = vec![0, 7, 0, 16];
    bytes.extend(u32::try_from(content.len()).unwrap().to_be_bytes());
    bytes.extend([class, &header[..], content].concat());
    bytes
}

const RESPONSE: u8 = 0;
const HEARTBEAT: u16 = 0;
const PUSHED: u32 = 77;
