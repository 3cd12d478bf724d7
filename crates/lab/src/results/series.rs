//! The series that `towpath lab load --csv` writes: one line for each second of a run.

use super::{Figures, Tool};

/// One line of a series.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Stretch {
    /// Line of the text.
    pub line: usize,
    /// Seconds from the beginning of the run.
    pub from_s: f64,
    /// Seconds that it lasts.
    pub length_s: f64,
    /// Answers per second.
    pub rate: f64,
    /// Requests that failed.
    pub errors: f64,
    /// Percentiles (100 for the slowest) and their latency in seconds; none where nothing was answered.
    pub percentiles: Vec<(f64, f64)>,
}

/// The whole run: its rate, its errors and its slowest answer. Percentiles of a run do not follow from those of its
/// seconds.
pub(super) fn read(text: &str) -> Option<Figures> {
    let stretches = stretches(text)?;
    let sum = |of: fn(&Stretch) -> f64| stretches.iter().map(of).sum::<f64>();
    let (seconds, answers) = (sum(|it| it.length_s), sum(|it| it.rate * it.length_s));
    let mut it = Figures::of(Tool::Lab);
    it.duration_s = Some(seconds);
    it.rate = (seconds > 0.0).then(|| answers / seconds);
    it.requests = Some(answers.round());
    it.errors = Some(sum(|it| it.errors));
    let slowest = stretches.iter().flat_map(|it| &it.percentiles).filter(|it| it.0 >= 100.0);
    it.percentiles.extend(slowest.copied().max_by(|a, b| a.1.total_cmp(&b.1)));
    Some(it)
}

/// The lines of a series, if this text is one.
pub(crate) fn stretches(text: &str) -> Option<Vec<Stretch>> {
    let mut lines = text.lines().enumerate();
    let header = lines.next().filter(|(_, line)| line.trim() == HEADER);
    header?;
    lines
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(at, line)| stretch(at + 1, line))
        .collect()
}

fn stretch(line: usize, text: &str) -> Option<Stretch> {
    let cells: Vec<&str> = text.trim().split(',').collect();
    let [from_s, length_s, rate, errors, p50, p99, max] = cells[..] else { return None };
    let number = |cell: &str| cell.parse::<f64>().ok().filter(|it| it.is_finite());
    let latencies = [(50.0, p50), (99.0, p99), (100.0, max)];
    let given = latencies.into_iter().filter(|(_, cell)| !cell.is_empty());
    let percentiles = given.map(|(share, cell)| Some((share, number(cell)? / 1e3)));
    Some(Stretch {
        line,
        from_s: number(from_s)?,
        length_s: number(length_s)?,
        rate: number(rate)?,
        errors: number(errors)?,
        percentiles: percentiles.collect::<Option<_>>()?,
    })
}

/// What the columns are called.
pub(crate) const HEADER: &str = "from_s,length_s,requests_per_s,errors,p50_ms,p99_ms,max_ms";
