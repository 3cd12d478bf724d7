//! An origin of HTTP/1.1 within a test, which takes nothing that is not one request in every eye.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use crate::origins::Origin;
use crate::wire;

/// Listens on a free port, each connection on a thread of its own.
pub(crate) fn strict() -> Origin {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (origin, say) = Origin::within("strict", listener.local_addr().unwrap().port());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, say) = (stream.unwrap(), say.clone());
            std::thread::spawn(move || serve(stream, say));
        }
    });
    origin
}

fn serve(mut stream: TcpStream, say: impl Fn(&str)) {
    let mut received = Vec::new();
    let mut chunk = [0; 16 * 1024];
    loop {
        match wire::request(&received) {
            Ok(Some((request, rest))) => {
                let whole = &received[..received.len() - rest.len()];
                if let Some(name) = forbidden_trailer(whole) {
                    eprintln!("the origin got {name} as a trailer");
                    return say("refused");
                }
                received = rest.to_vec();
                if stream.write_all(&answer(&request, &say)).is_err() {
                    return;
                }
            }
            Ok(None) => match stream.read(&mut chunk) {
                Ok(length @ 1..) => received.extend_from_slice(&chunk[..length]),
                Ok(0) | Err(_) => return,
            },
            Err(problem) => {
                eprintln!("the origin got {problem}: {:?}", String::from_utf8_lossy(&received));
                return say("refused");
            }
        }
    }
}

fn answer(request: &wire::Request, say: &impl Fn(&str)) -> Vec<u8> {
    let field = |wanted: &str| {
        let found = request.fields.iter().find(|(name, _)| name == wanted);
        found.map_or("-", |(_, value)| value.as_str())
    };
    let (id, target) = (field("x-request-id"), &request.target);
    say(&format!(
        "head {} {id} {} {target} {} {}",
        field("x-client"),
        request.method,
        field("content-length"),
        field("transfer-encoding"),
    ));
    say(&format!("whole {id} {}", request.body.len()));
    let canary = field("x-canary");
    let content = if target == "/large" { "x".repeat(1 << 18) } else { "hello".to_owned() };
    let length = content.len();
    let content = if request.method == "HEAD" { String::new() } else { content };
    format!(
        "HTTP/1.1 200 OK\r\nx-origin: 1\r\nx-canary: {canary}\r\ncontent-length: {length}\r\n\r\n{content}"
    )
    .into_bytes()
}

/// A field that says how a message is framed or where it goes, behind the last chunk (RFC 9110 §6.5.1).
fn forbidden_trailer(request: &[u8]) -> Option<&'static str> {
    let text = String::from_utf8_lossy(request).to_ascii_lowercase();
    let trailers = &text[text.rfind("\r\n0\r\n")? + 5..];
    ["content-length", "transfer-encoding", "host", "te", "trailer", "connection"]
        .into_iter()
        .find(|name| trailers.lines().any(|line| line.starts_with(&format!("{name}:"))))
}
