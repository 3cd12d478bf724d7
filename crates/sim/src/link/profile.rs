//! Access networks by name.
//!
//! Rates in kbit/s, delays in milliseconds and losses in percent, each way. The figures are those that
//! Apple's Network Link Conditioner, Facebook's Augmented Traffic Control and WebPageTest publish for
//! networks of these names; they model the access link only, at a constant rate.

use std::sync::Arc;
use std::time::Duration;

use super::{Conditions, Loss, Rate, Trace};

/// A named access network.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Profile {
    /// Its name.
    pub name: &'static str,
    /// Whose figures they are.
    pub source: &'static str,
    /// Rate down and up, kbit/s; 0 is unlimited.
    rate: (f64, f64),
    /// Delay down and up, ms.
    delay: (f64, f64),
    /// Jitter, ms.
    jitter: f64,
    /// Loss down and up, percent.
    loss: (f64, f64),
    is_cellular_trace: bool,
}

/// Every profile.
pub const PROFILES: &[Profile] = &[
    Profile::new("3g", "link conditioner, 3G average", (780.0, 330.0), (100.0, 100.0)),
    Profile::new("3g-good", "link conditioner, 3G good", (850.0, 420.0), (100.0, 100.0)),
    Profile::new("3g-lossy", "link conditioner, 3G lossy", (780.0, 330.0), (100.0, 100.0))
        .losing(1.0, 0.0),
    Profile::new("edge", "link conditioner, EDGE average", (240.0, 200.0), (400.0, 440.0)),
    Profile::new("edge-good", "link conditioner, EDGE good", (250.0, 200.0), (350.0, 370.0)),
    Profile::new("edge-lossy", "link conditioner, EDGE lossy", (240.0, 200.0), (400.0, 440.0))
        .losing(1.0, 0.0),
    Profile::new("2g-rural", "traffic control, 2G developing rural", (20.0, 18.0), (650.0, 650.0))
        .losing(2.0, 2.0),
    Profile::new("2g-urban", "traffic control, 2G developing urban", (35.0, 32.0), (650.0, 650.0)),
    Profile::new("lte", "link conditioner, LTE", (50_000.0, 10_000.0), (50.0, 65.0)),
    Profile::new("4g", "WebPageTest, 4G", (9_000.0, 9_000.0), (85.0, 85.0)),
    Profile::new(
        "very-bad",
        "link conditioner, very bad network",
        (1_000.0, 1_000.0),
        (500.0, 500.0),
    )
    .losing(10.0, 10.0),
    Profile::new("dsl", "link conditioner, DSL", (2_000.0, 256.0), (5.0, 5.0)),
    Profile::new("cable", "link conditioner, cable", (6_000.0, 1_000.0), (2.0, 2.0)),
    Profile::new("wifi", "link conditioner, Wi-Fi", (40_000.0, 33_000.0), (1.0, 1.0)),
    Profile::new("wifi-ac", "link conditioner, 802.11ac", (250_000.0, 100_000.0), (1.0, 1.0)),
    Profile::new("wifi-bad", "patchbay, bad Wi-Fi", (20_000.0, 20_000.0), (40.0, 40.0))
        .shaking(15.0)
        .losing(2.0, 2.0),
    Profile::new("satellite", "patchbay, geostationary", (25_000.0, 25_000.0), (300.0, 300.0))
        .shaking(20.0)
        .losing(0.5, 0.5),
    Profile::new("leo", "patchbay, low orbit", (0.0, 0.0), (40.0, 40.0))
        .shaking(7.0)
        .losing(1.0, 1.0),
    Profile::new(
        "cellular-5",
        "made-up trace, 5 Mbit/s down and 1 up",
        (5_000.0, 1_000.0),
        (25.0, 25.0),
    )
    .tracing(),
    Profile::new(
        "cellular-12",
        "made-up trace, 12 Mbit/s down and 3 up",
        (12_000.0, 3_000.0),
        (25.0, 25.0),
    )
    .tracing(),
];

impl Profile {
    /// The profile of that name.
    pub fn find(name: &str) -> Option<&'static Self> {
        PROFILES.iter().find(|profile| profile.name.eq_ignore_ascii_case(name))
    }

    /// What packets to the near end meet.
    pub fn down(&self) -> Conditions {
        self.conditions(self.rate.0, self.delay.0, self.loss.0, 1)
    }

    /// What packets to the far end meet.
    pub fn up(&self) -> Conditions {
        self.conditions(self.rate.1, self.delay.1, self.loss.1, 2)
    }

    const fn new(
        name: &'static str,
        source: &'static str,
        rate: (f64, f64),
        delay: (f64, f64),
    ) -> Self {
        Self { name, source, rate, delay, jitter: 0.0, loss: (0.0, 0.0), is_cellular_trace: false }
    }

    const fn losing(self, down: f64, up: f64) -> Self {
        Self { loss: (down, up), ..self }
    }

    const fn shaking(self, jitter: f64) -> Self {
        Self { jitter, ..self }
    }

    const fn tracing(self) -> Self {
        Self { is_cellular_trace: true, ..self }
    }

    fn conditions(&self, kilobits: f64, delay_ms: f64, loss_percent: f64, seed: u64) -> Conditions {
        let rate = match kilobits * 1000.0 {
            0.0 => Rate::Unlimited,
            bits if self.is_cellular_trace => Rate::Trace(Arc::new(Trace::synthetic_cellular(
                bits,
                Duration::from_secs(120),
                seed,
            ))),
            bits => Rate::BitsPerSecond(bits),
        };
        Conditions {
            loss: if loss_percent > 0.0 {
                Loss::Bernoulli(loss_percent / 100.0)
            } else {
                Loss::None
            },
            rate,
            delay: Duration::from_secs_f64(delay_ms / 1000.0),
            jitter: Duration::from_secs_f64(self.jitter / 1000.0),
            ..Conditions::default()
        }
    }
}
