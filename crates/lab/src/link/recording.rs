//! A real path, measured from outside: what an emulated one needs to resemble it.
//!
//! Connection attempts to a port that answers, whether it accepts or refuses, take one round trip each: their shortest
//! is the path's delay, their spread its jitter. The kernel repeats a lost SYN after a second, so an attempt that takes
//! that long lost one. A download fills the path, and gives the rate.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde::Serialize;

/// What a path is like, seen from one end.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Recording {
    /// Attempts made.
    pub attempts: usize,
    /// Attempts that nothing answered.
    pub unanswered: usize,
    /// Milliseconds each way: half of the shortest round trip.
    pub delay_ms: f64,
    /// Milliseconds each way that are added to it, evenly: half of the 90th percentile above the shortest.
    pub jitter_ms: f64,
    /// Share of packets lost each way.
    pub loss: f64,
    /// Bits per second down, where something was downloaded.
    pub down_bits_per_s: Option<f64>,
}

/// Tries to connect for `duration`, ten times a second.
pub fn round_trips(address: SocketAddr, duration: Duration) -> Vec<Option<Duration>> {
    let started = Instant::now();
    let mut all = Vec::new();
    while started.elapsed() < duration {
        let begun = Instant::now();
        let answered = match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(_) => true,
            // A refusal is an answer.
            Err(error) => error.kind() == ErrorKind::ConnectionRefused,
        };
        let taken = begun.elapsed();
        all.push(answered.then_some(taken));
        std::thread::sleep(EVERY.saturating_sub(taken));
    }
    all
}

/// Bits per second of a plain HTTP answer: all after its first second, which belongs to slow start.
pub fn download(address: SocketAddr, request: &str, duration: Duration) -> io::Result<f64> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(|error| {
        io::Error::new(
            error.kind(),
            format!("cannot connect to {address} for the download: {error}"),
        )
    })?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(request.as_bytes())?;
    let (started, mut counted_from, mut bytes) = (Instant::now(), None, 0_u64);
    let mut buffer = vec![0; 256 * 1024];
    while started.elapsed() < duration {
        let count = stream.read(&mut buffer)?;
        if count == 0 {
            break;
        }
        if started.elapsed() < SLOW_START {
            continue;
        }
        // What one read brings was on its way before.
        match counted_from {
            None => counted_from = Some(Instant::now()),
            Some(_) => bytes += count as u64,
        }
    }
    let seconds = counted_from.map_or(0.0, |from: Instant| from.elapsed().as_secs_f64());
    if seconds < 0.5 {
        return Err(io::Error::other(
            "the download ended within its first second and a half: take a larger one",
        ));
    }
    Ok(bytes as f64 * 8.0 / seconds)
}

impl Recording {
    /// What attempts and a download say; `None` when nothing was answered.
    pub fn of(attempts: &[Option<Duration>], down_bits_per_s: Option<f64>) -> Option<Self> {
        let mut answered: Vec<Duration> = attempts.iter().flatten().copied().collect();
        answered.sort_unstable();
        // An attempt whose SYN was repeated says nothing of the path's delay.
        let prompt: Vec<f64> =
            answered.iter().filter(|it| **it < REPEATED).map(|it| it.as_secs_f64() * 1e3).collect();
        let (shortest, high) =
            (*prompt.first()?, prompt[(prompt.len() * 9 / 10).min(prompt.len() - 1)]);
        let both_ways = 1.0 - prompt.len() as f64 / attempts.len() as f64;
        Some(Self {
            attempts: attempts.len(),
            unanswered: attempts.len() - answered.len(),
            delay_ms: shortest / 2.0,
            jitter_ms: (high - shortest) / 2.0,
            loss: 1.0 - (1.0 - both_ways).sqrt(),
            down_bits_per_s,
        })
    }

    /// The options of `towpath lab link` that emulate it.
    pub fn options(&self) -> String {
        let mut text = format!("--delay {:.2}ms --jitter {:.2}ms", self.delay_ms, self.jitter_ms);
        if self.loss > 0.0 {
            text += &format!(" --loss {:.2}", self.loss * 100.0);
        }
        if let Some(rate) = self.down_bits_per_s {
            text += &format!(" --rate {:.0}kbit", rate / 1e3);
        }
        text
    }
}

const EVERY: Duration = Duration::from_millis(100);
/// The initial retransmission time-out is a second (RFC 6298 §2).
const REPEATED: Duration = Duration::from_millis(950);
const PATIENCE: Duration = Duration::from_secs(5);
const SLOW_START: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_does_not_take_the_download_is_named() {
        let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let error = download(address, "", Duration::from_secs(1)).unwrap_err();
        assert!(error.to_string().contains(&address.to_string()), "{error}");
    }

    #[test]
    fn the_shortest_is_the_delay_and_what_took_a_second_was_lost() {
        let ms = |value: u64| Some(Duration::from_millis(value));
        let mut attempts: Vec<Option<Duration>> = (0..90).map(|at| ms(40 + at % 10)).collect();
        attempts.extend([ms(1042); 8]);
        attempts.extend([None, None]);
        let it = Recording::of(&attempts, Some(8e6)).unwrap();
        assert_eq!((it.attempts, it.unanswered), (100, 2));
        assert!((it.delay_ms - 20.0).abs() < 1e-9 && (it.jitter_ms - 4.5).abs() < 0.6, "{it:?}");
        // A tenth of the round trips is a twentieth each way.
        assert!((it.loss - 0.0513).abs() < 0.001, "{it:?}");
        assert!(
            it.options().starts_with("--delay 20.00ms --jitter 4.50ms --loss 5.13 --rate 8000kbit"),
            "{}",
            it.options()
        );
        assert_eq!(Recording::of(&[None, ms(2000)], None), None);
    }
}
