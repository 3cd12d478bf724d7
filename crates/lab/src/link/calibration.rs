//! What the emulator can do on this machine at this moment.

use std::io;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use serde::Serialize;
use towpath_sim::link::{Conditions, Loss, Timeline};

use super::{FAR, Link};
use crate::histogram::{Nanoseconds, Percentiles};

/// What the emulator did when it was asked for something known.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Calibration {
    /// Round trips over a link without any condition: what the emulator itself adds.
    pub null_rtt_ns: Percentiles,
    /// How much longer than 10 ms round trips were that should take 10 ms.
    pub delay_error_ns: Percentiles,
    /// The share of packets lost when a tenth should be.
    pub loss: f64,
    /// Packets sent to find that out.
    pub loss_sample: u64,
}

/// Measures `link`, which must be open and unused.
pub(super) fn measure(link: &Link) -> io::Result<Calibration> {
    let echo = link.far().run(|| {
        let socket = UdpSocket::bind((FAR, PORT))?;
        socket.set_read_timeout(Some(SILENCE))?;
        let sink = UdpSocket::bind((FAR, PORT + 1))?;
        sink.set_read_timeout(Some(SILENCE / 4))?;
        Ok::<_, io::Error>((std::thread::spawn(move || reflect(&socket)), sink))
    });
    let (reflector, sink) = echo?;
    link.follow(
        &Conditions::default(),
        &Conditions::default(),
        &Timeline::default(),
        CALIBRATION_SEED,
        false,
    );
    let null = link.near().run(|| ping(200))?;
    let slow = Conditions { delay: Duration::from_millis(5), ..Conditions::default() };
    link.follow(&slow, &slow, &Timeline::default(), CALIBRATION_SEED, false);
    let delayed = link.near().run(|| ping(25))?;
    let lossy = Conditions { loss: Loss::Bernoulli(0.1), ..Conditions::default() };
    link.follow(&Conditions::default(), &lossy, &Timeline::default(), CALIBRATION_SEED, false);
    let counting = std::thread::spawn(move || count(&sink));
    link.near().run(burst)?;
    let received = counting.join().unwrap_or(0);
    link.near().run(|| UdpSocket::bind(("0.0.0.0", 0))?.send_to(STOP, (FAR, PORT)))?;
    let _ = reflector.join();
    let mut errors = Nanoseconds::new();
    for rtt in delayed {
        errors.record((rtt.as_nanos() as u64).saturating_sub(10_000_000));
    }
    let mut round_trips = Nanoseconds::new();
    for rtt in null {
        round_trips.record(rtt.as_nanos() as u64);
    }
    Ok(Calibration {
        null_rtt_ns: round_trips.percentiles(),
        delay_error_ns: errors.percentiles(),
        loss: 1.0 - received as f64 / BURST as f64,
        loss_sample: BURST,
    })
}

impl Calibration {
    /// Reasons to doubt the emulator.
    pub(super) fn complaints(&self) -> Vec<String> {
        let mut complaints = Vec::new();
        if self.null_rtt_ns.p50 > 500_000 {
            complaints.push(format!(
                "the emulator adds {:.2} ms to a round trip",
                self.null_rtt_ns.p50 as f64 / 1e6
            ));
        }
        if self.delay_error_ns.p90 > 1_000_000 {
            complaints.push(format!(
                "delays are up to {:.1} ms too long (p90)",
                self.delay_error_ns.p90 as f64 / 1e6
            ));
        }
        // Four standard deviations of a tenth of the sample.
        let tolerance = 4.0 * (0.09 / self.loss_sample as f64).sqrt();
        if (self.loss - 0.1).abs() > tolerance {
            complaints.push(format!(
                "{:.1} % of packets were lost where 10 % should have been",
                self.loss * 100.0
            ));
        }
        complaints
    }
}

fn reflect(socket: &UdpSocket) {
    let mut buffer = [0; 64];
    while let Ok((length, from)) = socket.recv_from(&mut buffer) {
        if &buffer[..length] == STOP {
            return;
        }
        let _ = socket.send_to(&buffer[..length], from);
    }
}

fn ping(count: u32) -> io::Result<Vec<Duration>> {
    let socket = UdpSocket::bind(("0.0.0.0", 0))?;
    socket.connect((FAR, PORT))?;
    socket.set_read_timeout(Some(SILENCE))?;
    let mut round_trips = Vec::new();
    for number in 0..count {
        let started = Instant::now();
        socket.send(&number.to_be_bytes())?;
        socket.recv(&mut [0; 64])?;
        round_trips.push(started.elapsed());
    }
    Ok(round_trips)
}

fn burst() -> io::Result<()> {
    let socket = UdpSocket::bind(("0.0.0.0", 0))?;
    socket.connect((FAR, PORT + 1))?;
    for number in 0..BURST {
        socket.send(&[0; 100])?;
        // In small portions, so that no buffer on the way overflows.
        if number % 50 == 49 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    Ok(())
}

fn count(sink: &UdpSocket) -> u64 {
    let mut received = 0;
    while sink.recv(&mut [0; 128]).is_ok() {
        received += 1;
    }
    received
}

const PORT: u16 = 7;
const BURST: u64 = 2000;
const SILENCE: Duration = Duration::from_secs(1);
const STOP: &[u8] = b"stop";
const CALIBRATION_SEED: u64 = 0x0ca1_1b4a;
