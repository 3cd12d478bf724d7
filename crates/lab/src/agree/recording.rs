//! When another generator sends: a listener in the server's place that notes the instant of each request.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::Pid;
use rustix::thread::{sched_getaffinity, sched_setaffinity};

use crate::poller::{Interest, Poller};

/// A listener that runs until it is asked what it has seen.
pub(super) struct Recorder {
    pub(super) address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<io::Result<Vec<Duration>>>,
}

impl Recorder {
    /// Listens on the processors that `server` runs on, so that the generator has those that it has beside it.
    pub(super) fn launch(server: u32) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let processors = sched_getaffinity(Pid::from_raw(server.cast_signed()))?;
            sched_setaffinity(None, &processors)?;
            record(&listener, &stopped)
        });
        Ok(Self { address, stop, thread })
    }

    /// The instants of the requests that came, from the first on.
    pub(super) fn finish(self) -> io::Result<Vec<Duration>> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| io::Error::other("the listener ended early"))?
    }
}

/// The listener's number; connections have theirs by their place.
const LISTENER: u64 = u64::MAX;

fn record(listener: &TcpListener, stopped: &AtomicBool) -> io::Result<Vec<Duration>> {
    listener.set_nonblocking(true)?;
    let mut poller = Poller::new()?;
    poller.add(listener, LISTENER, Interest::Read)?;
    let mut instants = Vec::new();
    let mut connections: Vec<Option<(TcpStream, usize)>> = Vec::new();
    while !stopped.load(Ordering::Relaxed) {
        poller.wait(Some(Duration::from_millis(20)))?;
        let mut at = 0;
        while let Some(ready) = poller.event(at) {
            at += 1;
            if ready.number == LISTENER {
                while let Ok((stream, _)) = listener.accept() {
                    stream.set_nonblocking(true)?;
                    poller.add(&stream, connections.len() as u64, Interest::Read)?;
                    connections.push(Some((stream, 0)));
                }
            } else if let Some(connection) = connections.get_mut(ready.number as usize)
                && !connection.as_mut().is_some_and(|it| answer(it, &mut instants))
            {
                *connection = None;
            }
        }
    }
    let Some(&first) = instants.first() else { return Ok(Vec::new()) };
    Ok(instants.into_iter().map(|at| at - first).collect())
}

/// Notes and answers each head that has come to its end; `false` when the connection is over.
fn answer((stream, matched): &mut (TcpStream, usize), instants: &mut Vec<Instant>) -> bool {
    let mut chunk = [0; 16 * 1024];
    let length = match stream.read(&mut chunk) {
        Ok(length @ 1..) => length,
        Ok(0) => return false,
        Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
    };
    let now = Instant::now();
    for &byte in &chunk[..length] {
        *matched = match (byte, *matched) {
            (byte, at) if byte == END[at] => at + 1,
            (b'\r', _) => 1,
            _ => 0,
        };
        if *matched == END.len() {
            *matched = 0;
            instants.push(now);
            if stream.write_all(ANSWER).is_err() {
                return false;
            }
        }
    }
    true
}

const END: &[u8] = b"\r\n\r\n";
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_has_its_instant_however_it_comes() {
        let recorder = Recorder::launch(std::process::id()).unwrap();
        let mut one = TcpStream::connect(recorder.address).unwrap();
        let mut other = TcpStream::connect(recorder.address).unwrap();
        let mut answer = [0; ANSWER.len()];
        let mut send = |stream: &mut TcpStream, parts: &[&str], answers: usize| {
            for part in parts {
                stream.write_all(part.as_bytes()).unwrap();
                std::thread::sleep(Duration::from_millis(5));
            }
            for _ in 0..answers {
                stream.read_exact(&mut answer).unwrap();
                assert_eq!(answer, ANSWER);
            }
        };
        send(&mut one, &["GET / HTTP/1.1\r\nhost: a\r\n\r\n"], 1);
        send(&mut other, &["GET / HTTP/1.1\r\nhost: a\r", "\n\r", "\n"], 1);
        send(&mut one, &["GET / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\nx: \r\r\n\r\n"], 2);
        let instants = recorder.finish().unwrap();
        assert_eq!(instants.len(), 4);
        assert!(instants[0].is_zero() && instants[1] >= Duration::from_millis(10));
        assert_eq!(instants[2], instants[3]);
    }
}
