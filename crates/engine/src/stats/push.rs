//! Statistics that are sent away once in an interval, to each in its own words.

use super::metrics_service::MetricsService;
use super::otlp::OpenTelemetry;
use super::registry::Reading;
use super::samples::Samples;
use super::statsd::{self, Datagram};

/// What a server is told, and how.
#[derive(Clone, Debug)]
pub enum Sink {
    /// Lines for statsd.
    Statsd(statsd::Sink),
    /// Messages for Envoy's metrics service.
    MetricsService(MetricsService),
    /// Requests of OTLP.
    OpenTelemetry(OpenTelemetry),
}

/// All sinks, and what they were told so far.
#[derive(Debug)]
pub struct Push {
    sinks: Vec<Sink>,
    samples: Samples,
}

/// What is being written for one of them.
enum Page<'a> {
    Statsd(Datagram<'a>),
    MetricsService(super::metrics_service::Page<'a>),
    OpenTelemetry(super::otlp::Page<'a>),
}

impl Push {
    /// Nothing was told yet.
    #[must_use]
    pub fn new(sinks: Vec<Sink>) -> Self {
        Self { sinks, samples: Samples::default() }
    }

    /// Makes what is sent of all that was ever written, with the number of the sink that each piece is for. `unix_ns`
    /// is the time, in nanoseconds since 1970.
    pub fn flush(&mut self, reading: &Reading, unix_ns: u64, mut send: impl FnMut(usize, &[u8])) {
        let mut pages: Vec<Page<'_>> = self
            .sinks
            .iter()
            .map(|sink| match sink {
                Sink::Statsd(sink) => Page::Statsd(Datagram::new(sink)),
                Sink::MetricsService(sink) => Page::MetricsService(sink.page(unix_ns)),
                Sink::OpenTelemetry(sink) => Page::OpenTelemetry(sink.page(unix_ns)),
            })
            .collect();
        self.samples.walk(reading, &mut |sample| {
            for (to, page) in pages.iter_mut().enumerate() {
                let mut send = |bytes: &[u8]| send(to, bytes);
                match page {
                    Page::Statsd(datagram) => datagram.take(sample, &mut send),
                    Page::MetricsService(page) => page.take(sample, &mut send),
                    Page::OpenTelemetry(page) => page.take(sample, &mut send),
                }
            }
        });
        for (to, page) in pages.into_iter().enumerate() {
            let mut send = |bytes: &[u8]| send(to, bytes);
            match page {
                Page::Statsd(mut datagram) => datagram.finish(&mut send),
                Page::MetricsService(page) => page.finish(&mut send),
                Page::OpenTelemetry(page) => page.finish(&mut send),
            }
        }
        for sink in &mut self.sinks {
            if let Sink::OpenTelemetry(sink) = sink {
                sink.told(unix_ns);
            }
        }
    }
}
