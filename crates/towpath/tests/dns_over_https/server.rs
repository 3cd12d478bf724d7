//! A server of DNS over HTTPS that says what a test wants, and one of plain DNS.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use rustls::{ServerConfig, ServerConnection, StreamOwned};
use towpath::DnsOverHttps;

use crate::authority::Authority;
use crate::server::read_head;

/// What is said to one question.
pub(crate) enum Say {
    /// Status, media type and body.
    Answer(u16, &'static str, Vec<u8>),
    /// A message that was in a cache for so many seconds.
    Aged(u64, Vec<u8>),
    /// A body without an end.
    Endless,
    /// Nothing, and the connection stays.
    Silence,
    /// Nothing, and the connection ends.
    Hangup,
}

/// What a question asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) head: String,
    pub(crate) message: Vec<u8>,
    pub(crate) name: String,
    pub(crate) is_four: bool,
    /// How many were asked before.
    pub(crate) number: usize,
}

type Sayer = dyn Fn(&Asked) -> Say + Send + Sync;

pub(crate) struct Doh {
    pub(crate) address: SocketAddr,
    pub(crate) asked: Arc<Mutex<Vec<Asked>>>,
    connections: Arc<AtomicUsize>,
}

impl Doh {
    /// One that is `dns.test`, and `localhost`.
    pub(crate) fn new(
        authority: &Authority,
        host: &str,
        protocols: &[&[u8]],
        say: impl Fn(&Asked) -> Say + Send + Sync + 'static,
    ) -> Self {
        let mut config = ServerConfig::clone(&authority.config(host));
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        let (config, say): (_, Arc<Sayer>) = (Arc::new(config), Arc::new(say));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (asked, connections) = (Arc::default(), Arc::<AtomicUsize>::default());
        let (list, count) = (Arc::clone(&asked), Arc::clone(&connections));
        thread::spawn(move || {
            for stream in listener.incoming() {
                count.fetch_add(1, Ordering::SeqCst);
                let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
                let stream = StreamOwned::new(connection, stream.unwrap());
                let (list, say) = (Arc::clone(&list), Arc::clone(&say));
                thread::spawn(move || serve(stream, &list, &*say));
            }
        });
        Self { address, asked, connections }
    }

    /// What an engine is told of it.
    pub(crate) fn options(&self) -> DnsOverHttps {
        let url = format!("https://dns.test:{}/dns-query", self.address.port());
        DnsOverHttps::new(&url).unwrap().addresses([[127, 0, 0, 1].into()])
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.asked.lock().unwrap().iter().map(|asked| asked.name.clone()).collect()
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

fn serve(
    mut stream: StreamOwned<ServerConnection, TcpStream>,
    list: &Mutex<Vec<Asked>>,
    say: &Sayer,
) -> Option<()> {
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock).ok()?;
    }
    #[cfg(feature = "http2")]
    if stream.conn.alpn_protocol() == Some(b"h2") {
        return crate::http2::speak_with(&mut stream, &|http2, number, request, body, out| {
            let head = format!("{:?} {:?}", request.method(), request.path());
            let body = asked_by_get(&String::from_utf8_lossy(request.path())).unwrap_or(body);
            let Say::Answer(status, media_type, body) = say(&note(list, head, body)) else {
                panic!("the others are HTTP/1.1's")
            };
            let mut head = towpath_proto::head::Head::response(status);
            head.append_bytes(b"content-type", media_type.as_bytes());
            http2.send_head(number, &head, false, out);
            http2.send_data(number, body.into());
            http2.send_end(number);
        });
    }
    loop {
        let head = read_head(&mut stream)?;
        let message = match asked_by_get(&head) {
            Some(message) => message,
            None => {
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: "))?;
                let mut message = vec![0; length.parse().ok()?];
                stream.read_exact(&mut message).ok()?;
                message
            }
        };
        match say(&note(list, head, message)) {
            Say::Answer(status, media_type, body) => {
                let length = body.len();
                let head = format!(
                    "HTTP/1.1 {status} X\r\ncontent-type: {media_type}\r\ncontent-length: {length}\r\n\r\n"
                );
                stream.write_all(&[head.as_bytes(), &body].concat()).ok()?;
            }
            Say::Aged(age, body) => {
                let length = body.len();
                let head = format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: {DNS}\r\nage: {age}\r\ncontent-length: {length}\r\n\r\n"
                );
                stream.write_all(&[head.as_bytes(), &body].concat()).ok()?;
            }
            Say::Endless => {
                let head = format!("HTTP/1.1 200 OK\r\ncontent-type: {DNS}\r\n\r\n");
                stream.write_all(head.as_bytes()).ok()?;
                while stream.write_all(&[0; 4096]).is_ok() {}
                return None;
            }
            Say::Silence => loop {
                thread::park();
            },
            Say::Hangup => return None,
        }
        stream.flush().ok()?;
    }
}

/// The message in a URL (RFC 8484 §4.1).
fn asked_by_get(head: &str) -> Option<Vec<u8>> {
    let text = head.split("dns=").nth(1)?.split([' ', '&']).next()?;
    let (mut bits, mut count, mut bytes) = (0_u32, 0, Vec::new());
    for digit in text.bytes() {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'-' => 62,
            b'_' => 63,
            _ => panic!("no digit of base64url: {text}"),
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    Some(bytes)
}

fn note(list: &Mutex<Vec<Asked>>, head: String, message: Vec<u8>) -> Asked {
    let (mut name, mut at) = (String::new(), 12);
    while message[at] != 0 {
        let end = at + 1 + usize::from(message[at]);
        name.push_str(std::str::from_utf8(&message[at + 1..end]).unwrap());
        name.push('.');
        at = end;
    }
    name.pop();
    let mut list = list.lock().unwrap();
    let (is_four, number) = (message[at + 2] == 1, list.len());
    list.push(Asked { head, message, name, is_four, number });
    list[number].clone()
}

/// An answer to a question, with this response code (and other bits of the header) and these addresses.
pub(crate) fn answer(question: &[u8], flags: u16, addresses: &[IpAddr]) -> Vec<u8> {
    answer_for(question, flags, addresses, 60)
}

/// The same, which holds for so many seconds.
pub(crate) fn answer_for(question: &[u8], flags: u16, addresses: &[IpAddr], ttl: u8) -> Vec<u8> {
    let end = question[12..].iter().position(|byte| *byte == 0).unwrap() + 12 + 5;
    let mut message = question[..end].to_vec();
    message[2..4].copy_from_slice(&(0x8180 | flags).to_be_bytes());
    message[6..12].copy_from_slice(&[0, u8::try_from(addresses.len()).unwrap(), 0, 0, 0, 0]);
    for address in addresses {
        let (kind, bytes) = match address {
            IpAddr::V4(ip) => (1, ip.octets().to_vec()),
            IpAddr::V6(ip) => (28, ip.octets().to_vec()),
        };
        let length = u8::try_from(bytes.len()).unwrap();
        message.extend_from_slice(&[0xc0, 12, 0, kind, 0, 1, 0, 0, 0, ttl, 0, length]);
        message.extend_from_slice(&bytes);
    }
    message
}

/// That there are no addresses, for so many seconds as the start of the zone says.
pub(crate) fn deny_for(question: &[u8], code: u16, seconds: u8) -> Vec<u8> {
    let mut message = answer(question, code, &[]);
    message[9] = 1;
    message.extend_from_slice(&[0xc0, 12, 0, 6, 0, 1, 0, 0, 1, 0, 0, 24, 0xc0, 12, 0xc0, 12]);
    message.extend_from_slice(&[0; 19]);
    message.push(seconds);
    message
}

/// This machine, by IPv4 alone.
pub(crate) fn here(asked: &Asked) -> Say {
    let addresses: &[IpAddr] =
        if asked.is_four { &[IpAddr::V4([127, 0, 0, 1].into())] } else { &[] };
    Say::Answer(200, DNS, answer(&asked.message, 0, addresses))
}

/// A server of plain DNS that says this to all questions for IPv4, and how many questions came.
pub(crate) fn plain(flags: u16, addresses: &'static [IpAddr]) -> (SocketAddr, Arc<AtomicUsize>) {
    plain_that(move |question, is_four| {
        answer(question, flags, if is_four { addresses } else { &[] })
    })
}

/// One that says what this makes of a question, and whether that is for IPv4.
pub(crate) fn plain_that(
    say: impl Fn(&[u8], bool) -> Vec<u8> + Send + 'static,
) -> (SocketAddr, Arc<AtomicUsize>) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (address, asked) = (socket.local_addr().unwrap(), Arc::<AtomicUsize>::default());
    let count = Arc::clone(&asked);
    thread::spawn(move || {
        let mut question = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut question) {
            count.fetch_add(1, Ordering::SeqCst);
            let question = &question[..length];
            let end = question[12..].iter().position(|byte| *byte == 0).unwrap() + 12;
            socket.send_to(&say(question, question[end + 2] == 1), from).unwrap();
        }
    });
    (address, asked)
}

pub(crate) const DNS: &str = "application/dns-message";
