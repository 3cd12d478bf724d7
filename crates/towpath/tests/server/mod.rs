//! A server whose every connection is one closure.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What the one server that counts has sent.
pub(crate) static SENT: AtomicUsize = AtomicUsize::new(0);

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl Server {
    /// Serves each connection with `serve`, which gets its number.
    pub(crate) fn new(serve: impl Fn(&mut TcpStream, usize) + Send + Sync + 'static) -> Self {
        Self::on("127.0.0.1:0", serve)
    }

    /// The same, on all addresses of this machine.
    pub(crate) fn anywhere(serve: impl Fn(&mut TcpStream, usize) + Send + Sync + 'static) -> Self {
        Self::on("0.0.0.0:0", serve)
    }

    fn on(address: &str, serve: impl Fn(&mut TcpStream, usize) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        let serve = Arc::new(serve);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let number = count.fetch_add(1, Ordering::SeqCst);
                let serve = Arc::clone(&serve);
                std::thread::spawn(move || serve(&mut stream, number));
            }
        });
        Self { address, connections }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// One head with its empty line; `None` when the client hangs up.
pub(crate) fn read_head(stream: &mut impl Read) -> Option<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        head.push(byte[0]);
    }
    String::from_utf8(head).ok()
}

/// One request, its body decoded; `None` when the client hangs up.
pub(crate) fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut request = read_head(stream)?;
    let length = |head: &str| -> Option<usize> {
        let line = head.lines().find(|line| line.starts_with("content-length: "))?;
        line["content-length: ".len()..].parse().ok()
    };
    if let Some(length) = length(&request) {
        let mut body = vec![0; length];
        stream.read_exact(&mut body).ok()?;
        request.push_str(&String::from_utf8_lossy(&body));
    } else if request.contains("transfer-encoding: chunked\r\n") {
        loop {
            let mut line = Vec::new();
            let mut byte = [0];
            while !line.ends_with(b"\r\n") {
                stream.read_exact(&mut byte).ok()?;
                line.push(byte[0]);
            }
            let size = usize::from_str_radix(std::str::from_utf8(&line).ok()?.trim(), 16).ok()?;
            let mut chunk = vec![0; size + 2];
            stream.read_exact(&mut chunk).ok()?;
            if size == 0 {
                break;
            }
            request.push_str(&String::from_utf8_lossy(&chunk[..size]));
        }
    }
    Some(request)
}

pub(crate) fn answer(stream: &mut TcpStream, status: &str, fields: &str, body: &[u8]) {
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n{fields}\r\n", body.len());
    let _ = stream.write_all(&[head.as_bytes(), body].concat());
}
