//! The agent: carries out parts of plans for the programs that connect, one at a time.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::net::sockopt;

use super::wire::{Order, Reply, Wire, write};
use crate::about::Machine;
use crate::load::outcome::Progress;
use crate::load::side_by_side::{self, Meeting};
use crate::load::{LoadError, Plan};

/// An agent on threads of its own; it ends when this is dropped.
#[derive(Debug)]
pub struct Agent {
    address: SocketAddr,
    is_ending: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Agent {
    /// Listens on `address`; when this returns, it can be reached.
    ///
    /// # Errors
    /// When the address cannot be listened on.
    pub fn spawn(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let is_ending = Arc::new(AtomicBool::new(false));
        let ending = Arc::clone(&is_ending);
        let thread = std::thread::Builder::new().name("agent".to_owned());
        let thread = thread.spawn(move || accept(&listener, &ending))?;
        Ok(Self { address, is_ending, thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.is_ending.store(true, Ordering::Relaxed);
        // The connection wakes it.
        let woken = TcpStream::connect(self.address);
        if let (Ok(_), Some(thread)) = (woken, self.thread.take()) {
            let _ = thread.join();
        }
    }
}

/// Serves on the calling thread, for ever; `ready` learns the address.
///
/// # Errors
/// When the address cannot be listened on.
pub fn serve(address: SocketAddr, ready: impl FnOnce(SocketAddr)) -> io::Result<()> {
    let listener = TcpListener::bind(address)?;
    ready(listener.local_addr()?);
    accept(&listener, &AtomicBool::new(false));
    Ok(())
}

fn accept(listener: &TcpListener, is_ending: &AtomicBool) {
    let is_busy = Arc::new(AtomicBool::new(false));
    while !is_ending.load(Ordering::Relaxed) {
        let Ok((stream, _)) = listener.accept() else { continue };
        if is_ending.load(Ordering::Relaxed) {
            return;
        }
        if is_busy.swap(true, Ordering::Relaxed) {
            // It is told, if it listens.
            let _ = write(&stream, &Reply::Failed("is busy with another load".to_owned()));
            continue;
        }
        let busy = Busy(Arc::clone(&is_busy));
        std::thread::spawn(move || {
            let _busy = busy;
            let told = attend(&stream);
            if let Err(error) = told {
                let _ = write(&stream, &Reply::Failed(error));
            }
            let _ = stream.shutdown(Shutdown::Both);
        });
    }
}

/// One load at a time, or both would be wrong.
struct Busy(Arc<AtomicBool>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Does what a program that connected asks for.
fn attend(stream: &TcpStream) -> Result<(), String> {
    let told = |error: io::Error| error.to_string();
    keep_watch(stream).map_err(|error| error.to_string())?;
    let machine = Machine::here();
    let machine = format!("{} × {}, Linux {}", machine.cpus, machine.cpu, machine.kernel);
    write(stream, &Reply::Hello { version: VERSION.to_owned(), machine }).map_err(told)?;
    let mut wire = Wire::new(stream.try_clone().map_err(told)?);
    let order = wire.read(Some(PATIENCE)).map_err(told)?;
    let plan = match order {
        Some(Order::Prepare(plan)) => *plan,
        Some(Order::Clock | Order::Start { .. }) => {
            return Err("was not told what to prepare".to_owned());
        }
        None => return Ok(()),
    };
    check(&plan).map_err(|error| error.to_string())?;
    let (starts, start) = mpsc::channel();
    let speaker = Arc::new(Mutex::new(stream.try_clone().map_err(told)?));
    let clock = Instant::now();
    let meeting = Meeting::of(plan.threads, Some(signal(&speaker, start, clock)));
    let (over, is_over) = mpsc::channel::<()>();
    let listening = {
        let (speaker, meeting) = (Arc::clone(&speaker), Arc::clone(&meeting));
        std::thread::spawn(move || {
            let _over = over;
            listen(wire, &speaker, &starts, &meeting, clock);
        })
    };
    let mut show = |progress: &Progress| {
        let _ = say(&speaker, &Reply::Progress(*progress));
    };
    let reply = match side_by_side::run(&plan, &meeting, Some(&mut show)) {
        Ok(outcome) => Reply::Done(Box::new(outcome)),
        Err(error) => Reply::Failed(error.to_string()),
    };
    let said = say(&speaker, &reply);
    // Its clock is asked for once more; then the other side hangs up.
    let _ = is_over.recv_timeout(AFTERWARDS);
    let _ = stream.shutdown(Shutdown::Both);
    let _ = listening.join();
    said.map_err(told)
}

/// A machine that is gone is noticed, and what it asked for ends.
fn keep_watch(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, Duration::from_secs(10))?;
    sockopt::set_tcp_keepintvl(stream, Duration::from_secs(5))?;
    sockopt::set_tcp_keepcnt(stream, 3)?;
    Ok(())
}

fn check(plan: &Plan) -> Result<(), LoadError> {
    if plan.threads > THREAD_LIMIT || !plan.pids.is_empty() || !plan.payers.is_empty() {
        return Err(LoadError::Plan(
            "an agent has at most 1,024 threads, and watches no processes",
        ));
    }
    plan.check()
}

/// Says that all is ready, and waits to be told when to start.
fn signal(
    speaker: &Arc<Mutex<TcpStream>>,
    start: Receiver<u64>,
    clock: Instant,
) -> side_by_side::Signal {
    let speaker = Arc::clone(speaker);
    Box::new(move || {
        say(&speaker, &Reply::Ready).ok()?;
        start.recv_timeout(PATIENCE).ok().map(|at_ns| clock + Duration::from_nanos(at_ns))
    })
}

/// Answers for the clock at once, whatever the generator does; stops it when the other side has gone.
fn listen(
    mut wire: Wire,
    speaker: &Mutex<TcpStream>,
    starts: &Sender<u64>,
    meeting: &Meeting,
    clock: Instant,
) {
    loop {
        let is_told = match wire.read(None) {
            Ok(Some(Order::Clock)) => {
                say(speaker, &Reply::Clock { now_ns: clock.elapsed().as_nanos() as u64 }).is_ok()
            }
            Ok(Some(Order::Start { at_ns })) => {
                let is_soon =
                    at_ns < clock.elapsed().as_nanos() as u64 + PATIENCE.as_nanos() as u64;
                is_soon && starts.send(at_ns).is_ok()
            }
            Ok(Some(Order::Prepare(_)) | None) | Err(_) => false,
        };
        if !is_told {
            return meeting.stop();
        }
    }
}

fn say(speaker: &Mutex<TcpStream>, reply: &Reply) -> io::Result<()> {
    write(&speaker.lock().unwrap_or_else(PoisonError::into_inner), reply)
}

pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");
/// How long a word of the other side is waited for.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long after the end it may still be asked for its clock.
const AFTERWARDS: Duration = Duration::from_secs(10);
const THREAD_LIMIT: usize = 1024;
