//! Upstreams that do as they are told and remember what they got.

use std::collections::VecDeque;
use std::io::{BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustix::net::RecvFlags;

use crate::http2::Http2;
use crate::script::{self, Step};
use crate::spans;
use crate::wire::{Framing, Message, show};

/// All upstreams of one proxy: they share a script.
#[derive(Debug, Default)]
pub(crate) struct Upstreams {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    script: VecDeque<Vec<Step>>,
    seen: Vec<Vec<String>>,
}

impl Upstreams {
    /// Opens one; it lives as long as the process.
    pub(crate) fn open(self: &Arc<Self>, name: &str) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (upstreams, name) = (Arc::clone(self), name.to_owned());
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (upstreams, name) = (Arc::clone(&upstreams), name.clone());
                let stream = stream.unwrap();
                thread::spawn(move || {
                    if name.starts_with("raw") {
                        upstreams.follow(stream, &name)
                    } else if is_http2(&stream) {
                        Http2::new(&upstreams, &name, stream).serve()
                    } else {
                        upstreams.serve(stream, &name)
                    }
                });
            }
        });
        address
    }

    /// A new case begins.
    pub(crate) fn begin(&self, script: &[String]) {
        let mut state = self.state.lock().unwrap();
        state.script = script.iter().map(|text| script::parse(text)).collect();
        state.seen.clear();
    }

    /// What came since then.
    pub(crate) fn seen(&self) -> Vec<String> {
        let mut seen = self.state.lock().unwrap().seen.clone();
        // Copies come whenever they come.
        seen.sort_by_key(|lines| lines.first().is_some_and(|line| line.starts_with("copy")));
        seen.concat()
    }

    /// HTTP requests, each answered by the next entry of the script.
    fn serve(&self, stream: TcpStream, name: &str) {
        let mut writer = stream.try_clone().unwrap();
        let mut reader = BufReader::new(stream);
        while let Some(mut message) = Message::head(&mut reader) {
            let (number, mut steps) = self.next(name);
            let framing = message.framing(Framing::Empty);
            let early = matches!(steps.first(), Some(Step::OnHead));
            self.tell(number, name, &message);
            if !early {
                message.read_body(&mut reader, framing);
                self.tell(number, name, &message);
            }
            if steps.is_empty() {
                steps = script::parse("HTTP/1.1 200 OK\ncontent-length: 2\n\nok");
            }
            for step in steps {
                match step {
                    Step::Read(_) if early => {
                        message.read_body(&mut reader, framing);
                        self.tell(number, name, &message);
                    }
                    step => {
                        if !self.obey(step, number, &mut reader, &mut writer) {
                            return;
                        }
                    }
                }
            }
        }
    }

    /// One entry of the script for the whole connection.
    fn follow(&self, stream: TcpStream, name: &str) {
        let mut writer = stream.try_clone().unwrap();
        let mut reader = BufReader::new(stream);
        let (number, steps) = self.next(name);
        for step in steps {
            if !self.obey(step, number, &mut reader, &mut writer) {
                return;
            }
        }
    }

    /// One step; false at the end of the connection.
    fn obey(
        &self,
        step: Step,
        number: usize,
        reader: &mut BufReader<TcpStream>,
        writer: &mut TcpStream,
    ) -> bool {
        match step {
            Step::Send(bytes) => return writer.write_all(&bytes).is_ok(),
            Step::Wait(duration) => thread::sleep(duration),
            Step::OnHead => {}
            Step::Pressure(..) | Step::Another => panic!("not for upstreams"),
            Step::Echo => {
                let mut all = Vec::new();
                let mut buffer = [0; 16 * 1024];
                while let Ok(length @ 1..) = reader.read(&mut buffer) {
                    all.extend_from_slice(&buffer[..length]);
                    if writer.write_all(&buffer[..length]).is_err() {
                        break;
                    }
                }
                self.add(number, format!("bytes {}", show(&all)));
                return false;
            }
            Step::Read(length) => {
                let mut bytes = vec![0; length];
                let complete = reader.read_exact(&mut bytes).is_ok();
                self.add(
                    number,
                    if complete {
                        format!("bytes {}", show(&bytes))
                    } else {
                        "too few bytes".to_owned()
                    },
                );
            }
            Step::ReadEnd => {
                let mut bytes = Vec::new();
                let how = if reader.read_to_end(&mut bytes).is_ok() { "end" } else { "reset" };
                self.add(number, format!("bytes {} and {how}", show(&bytes)));
            }
            Step::HalfClose => return writer.shutdown(Shutdown::Write).is_ok(),
            Step::Close => {
                let _ = writer.shutdown(Shutdown::Both);
                return false;
            }
            Step::Reset => {
                end_by_reset(writer);
                return false;
            }
            Step::Silent => {
                let _ = reader.read_to_end(&mut Vec::new());
                return false;
            }
        }
        true
    }

    /// The number of a request, and what its script is.
    pub(crate) fn next(&self, name: &str) -> (usize, Vec<Step>) {
        let mut state = self.state.lock().unwrap();
        let number = state.seen.len();
        if name.starts_with("spans") {
            state.seen.push(Vec::new());
            return (number, script::parse("HTTP/1.1 202 Accepted\ncontent-length: 0\n\n"));
        }
        if name.starts_with("copies") {
            state.seen.push(vec![format!("copy: to {name}")]);
            return (number, Vec::new());
        }
        let named = state.requests();
        state.seen.push(vec![format!("upstream {named}: to {name}")]);
        (number, state.script.pop_front().unwrap_or_default())
    }

    /// Replaces what is known of a request.
    pub(crate) fn tell(&self, number: usize, name: &str, message: &Message) {
        let mut state = self.state.lock().unwrap();
        let who = match name.starts_with("copies") {
            true => "copy".to_owned(),
            false => format!("upstream {}", state.number(number)),
        };
        let mut told = vec![format!("{who}: to {name}")];
        if name.starts_with("spans") {
            told = spans::lines(message);
        } else {
            message.tell(&who, &mut told);
        }
        if let Some(place) = state.seen.get_mut(number) {
            *place = told;
        }
    }

    pub(crate) fn add(&self, number: usize, line: String) {
        let mut state = self.state.lock().unwrap();
        let named = state.number(number);
        if let Some(place) = state.seen.get_mut(number) {
            place.push(format!("upstream {named}: {line}"));
        }
    }
}

impl State {
    /// What a request is called: reports of spans, which come whenever they come, are not counted.
    fn number(&self, index: usize) -> usize {
        let is_request =
            |lines: &&Vec<String>| lines.first().is_some_and(|line| line.starts_with("upstream "));
        self.seen.iter().take(index + 1).filter(is_request).count()
    }

    fn requests(&self) -> usize {
        self.number(self.seen.len()) + 1
    }
}

/// What is closed next is reset.
pub(crate) fn end_by_reset(stream: &TcpStream) {
    rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO)).unwrap();
}

/// Whether a client begins with HTTP/2's preface. Waits for its first bytes, and leaves them.
fn is_http2(stream: &TcpStream) -> bool {
    let (mut first, flags) = ([0; 3], RecvFlags::PEEK | RecvFlags::WAITALL);
    rustix::net::recv(stream, &mut first, flags).is_ok() && &first == b"PRI"
}
