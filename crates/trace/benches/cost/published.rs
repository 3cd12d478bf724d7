//! What the original published, and what our own cases may cost.

/// One case of libatrace_rust's benchmarks: medians in nanoseconds, on its authors' machine.
pub(crate) struct Published {
    pub(crate) name: &'static str,
    pub(crate) rust: f64,
    pub(crate) cpp: Option<f64>,
}

const fn both(name: &'static str, rust: f64, cpp: f64) -> Published {
    Published { name, rust, cpp: Some(cpp) }
}

const fn rust(name: &'static str, rust: f64) -> Published {
    Published { name, rust, cpp: None }
}

pub(crate) const CASES: [Published; 18] = [
    both("tracing_off_begin/10", 6.0382, 4.00),
    both("tracing_off_begin/1000", 6.0418, 4.05),
    both("tracing_off_end", 6.6801, 4.08),
    both("tracing_on_begin/10", 1292.9, 1119.0),
    both("tracing_on_begin/1000", 1547.6, 1151.0),
    both("tracing_on_end", 1120.8, 1076.0),
    rust("tracing_off_event", 47.945),
    rust("filtered_event", 26.942),
    rust("tracing_off_event_args", 80.997),
    rust("filtered_event_args", 26.782),
    rust("tracing_off_span", 317.72),
    rust("filtered_span", 27.959),
    rust("tracing_off_span_args", 367.57),
    rust("filtered_span_args", 27.919),
    rust("tracing_on_event", 1480.5),
    rust("tracing_on_event_args", 2019.7),
    rust("tracing_on_span", 2799.6),
    rust("tracing_on_span_args", 3699.2),
];

/// What a case of ours may cost.
pub(crate) enum Allowed {
    /// Nanoseconds over the empty loop.
    Over(f64),
    /// So many times `rdtsc`.
    Rdtsc(f64),
}

pub(crate) fn allowed(case: &str) -> Option<Allowed> {
    Some(match case {
        "macro off, event" | "macro off, span" | "tracing off, event" => Allowed::Over(0.5),
        "tracing off, span" => Allowed::Over(2.0),
        "macro on, event" => Allowed::Rdtsc(1.5),
        "macro on, span" => Allowed::Rdtsc(2.5),
        "tracing on, span" => Allowed::Rdtsc(3.0),
        "tracing on, span with two integers" => Allowed::Rdtsc(4.0),
        _ => return None,
    })
}
