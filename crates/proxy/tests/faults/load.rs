//! Clients that ask and ask, and what became of each request.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::wire;

/// What became of the requests of all clients.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub statuses: BTreeMap<u16, u64>,
    /// Connections that ended before a whole answer was there.
    pub broken: u64,
    /// Connections that the kernel reset before anything came over them: they may never have been accepted.
    pub unaccepted: u64,
    /// Connects that were refused.
    pub refused: u64,
    /// Requests that nothing came of in [`HANG`].
    pub hung: u64,
    pub slowest: Duration,
}

impl Tally {
    pub fn count(&self, status: u16) -> u64 {
        self.statuses.get(&status).copied().unwrap_or(0)
    }

    pub fn answered(&self) -> u64 {
        self.statuses.values().sum()
    }

    /// Requests and connects that nothing came of.
    pub fn lost(&self) -> u64 {
        self.hung + self.broken + self.unaccepted + self.refused
    }

    fn add(&mut self, other: Self) {
        for (status, count) in other.statuses {
            *self.statuses.entry(status).or_default() += count;
        }
        self.broken += other.broken;
        self.unaccepted += other.unaccepted;
        self.refused += other.refused;
        self.hung += other.hung;
        self.slowest = self.slowest.max(other.slowest);
    }
}

/// Longer than any deadline in the tests' configurations.
const HANG: Duration = Duration::from_secs(10);

/// Clients at work.
pub struct Load {
    stop: Arc<AtomicBool>,
    clients: Vec<JoinHandle<Tally>>,
}

/// How a client asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Habit {
    /// One connection for as long as it lasts.
    KeepAlive,
    /// A connection for each request.
    Fresh,
}

impl Load {
    /// So many clients, each asking again as soon as it has its answer.
    pub fn start(listener: &str, clients: usize, habit: Habit) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let clients = (0..clients)
            .map(|_| {
                let (listener, stop) = (listener.to_owned(), Arc::clone(&stop));
                std::thread::spawn(move || client(&listener, habit, &stop))
            })
            .collect();
        Self { stop, clients }
    }

    /// Lets every client finish the request it has begun.
    pub fn stop(self) -> Tally {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = Tally::default();
        self.clients.into_iter().for_each(|client| all.add(client.join().unwrap()));
        all
    }
}

fn client(listener: &str, habit: Habit, stop: &AtomicBool) -> Tally {
    let mut tally = Tally::default();
    let mut connection: Option<TcpStream> = None;
    while !stop.load(Ordering::Relaxed) {
        let fresh = connection.is_none();
        let connected = connection.take().map_or_else(|| TcpStream::connect(listener), Ok);
        let Ok(stream) = connected else {
            tally.refused += 1;
            std::thread::sleep(Duration::from_millis(5));
            continue;
        };
        let start = Instant::now();
        match ask(stream, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n") {
            Ok((answer, stream)) => {
                *tally.statuses.entry(answer.status).or_default() += 1;
                connection = (habit == Habit::KeepAlive && answer.keeps_alive()).then_some(stream);
                if answer.status != 200 {
                    // An origin that is away shall not turn the clients into a flood.
                    std::thread::sleep(Duration::from_millis(2));
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => tally.hung += 1,
            Err(error) if fresh && error.kind() == ErrorKind::ConnectionReset => {
                tally.unaccepted += 1;
            }
            Err(_) => tally.broken += 1,
        }
        tally.slowest = tally.slowest.max(start.elapsed());
    }
    tally
}

/// One request and its answer.
pub fn ask(mut stream: TcpStream, request: &[u8]) -> std::io::Result<(wire::Answer, TcpStream)> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(HANG))?;
    stream.write_all(request)?;
    let mut received = Vec::new();
    let mut buffer = vec![0; 65_536];
    loop {
        let length = stream.read(&mut buffer)?;
        received.extend_from_slice(&buffer[..length]);
        let mut answers = wire::answers(&received, &[], length == 0);
        if let Some(answer) = answers.whole.pop() {
            return Ok((answer, stream));
        }
        if length == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
    }
}
