//! Charts as SVG.

use std::fmt::Write as _;

use super::escape;

/// Horizontal bars, each made of parts: who paid how much.
#[derive(Clone, Debug, Default)]
pub struct Bars {
    /// What the numbers are.
    pub unit: String,
    /// The parts' names.
    pub parts: Vec<String>,
    /// Each bar's name and the size of its parts.
    pub bars: Vec<(String, Vec<f64>)>,
    /// How far each bar's end may be off, from and to, drawn as a whisker; empty for none.
    pub bands: Vec<(f64, f64)>,
}

/// Curves over two axes.
#[derive(Clone, Debug, Default)]
pub struct Curves {
    /// What is drawn to the right.
    pub x: Axis,
    /// What is drawn upwards.
    pub y: Axis,
    /// The curves.
    pub series: Vec<Series>,
    /// Vertical lines worth a name.
    pub marks: Vec<(f64, String)>,
}

/// One axis.
#[derive(Clone, Debug, Default)]
pub struct Axis {
    /// What it measures.
    pub name: String,
    /// How it is spaced.
    pub scale: Scale,
    /// Values that are shown even where nothing is drawn, so that charts above each other line up.
    pub span: Option<(f64, f64)>,
}

/// How an axis is spaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// Evenly.
    #[default]
    Linear,
    /// By factors: from one of 1, 2 and 5 times a power of ten to another.
    Log,
    /// Shares from 0 to just under 1, each nine as wide as the one before: for percentile curves.
    Nines,
}

/// One curve.
#[derive(Clone, Debug, Default)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// Its points.
    pub points: Vec<(f64, f64)>,
    /// Whether points are drawn as dots without a line.
    pub is_dotted: bool,
}

/// What happened when: marks on tracks, and spans across all of them.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    /// How many seconds are shown.
    pub seconds: f64,
    /// The tracks, from the top.
    pub tracks: Vec<Track>,
    /// Shaded spans and their names.
    pub spans: Vec<(f64, f64, String)>,
}

/// One line of a timeline.
#[derive(Clone, Debug, Default)]
pub struct Track {
    /// Its name.
    pub name: String,
    /// When something happened, in seconds; where much did, the mark is taller.
    pub dots: Vec<f64>,
}

impl Axis {
    /// An axis.
    pub fn new(name: &str, scale: Scale) -> Self {
        Self { name: name.to_owned(), scale, span: None }
    }

    /// An axis of time from zero to `seconds`.
    pub fn seconds(seconds: f64) -> Self {
        Self { span: Some((0.0, seconds.max(1e-3))), ..Self::new("seconds", Scale::Linear) }
    }
}

impl Bars {
    pub(super) fn draw(&self, screen: Screen) -> String {
        let (whole, margin) = (screen.width(), screen.margin());
        let sums = self.bars.iter().map(|(_, parts)| parts.iter().sum::<f64>());
        let longest = sums.chain(self.bands.iter().map(|band| band.1)).fold(0.0, f64::max);
        let names = self.bars.iter().map(|(name, _)| name.chars().count());
        let left = (names.max().unwrap_or(0) as f64 * CHARACTER + 16.0).clamp(margin, whole * 0.45);
        let length =
            |value: f64| if longest > 0.0 { value / longest * (whole - left - 90.0) } else { 0.0 };
        let legend = Legend::new(self.parts.iter().map(String::as_str), left, whole);
        let top = legend.height() + 12.0;
        let height = top + self.bars.len() as f64 * 26.0 + 8.0;
        let mut svg = open(screen, height, &format!("Bars in {}", self.unit));
        legend.draw(&mut svg);
        for (at, (name, parts)) in self.bars.iter().enumerate() {
            let y = top + at as f64 * 26.0;
            text(&mut svg, left - 8.0, y + 13.0, "end", "", &cut(name, left));
            let mut x = left;
            for (part, value) in parts.iter().enumerate() {
                let width = length(*value);
                let tip = format!(
                    "{}: {} {}",
                    self.parts.get(part).map_or("", String::as_str),
                    show(*value),
                    self.unit
                );
                let _ = write!(
                    svg,
                    "<rect data-series=\"{part}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"18\" \
                     fill=\"{}\"><title>{}</title></rect>",
                    color(part),
                    escape(&tip)
                );
                x += width;
            }
            let sum = format!("{} {}", show(parts.iter().sum()), self.unit);
            let end = match self.bands.get(at) {
                Some((from, to)) => {
                    let (from, to, middle) = (left + length(*from), left + length(*to), y + 9.0);
                    let _ = write!(
                        svg,
                        "<path d=\"M{from:.1} {middle}H{to:.1}M{from:.1} {y}v18M{to:.1} \
                         {y}v18\" stroke=\"var(--ink)\" fill=\"none\"/>"
                    );
                    x.max(to)
                }
                None => x,
            };
            text(&mut svg, end + 6.0, y + 13.0, "start", "", &sum);
        }
        svg + "</svg>"
    }
}

impl Curves {
    pub(super) fn draw(&self, screen: Screen) -> String {
        let (whole, margin) = (screen.width(), screen.margin());
        let legend =
            Legend::new(self.series.iter().map(|series| series.name.as_str()), margin, whole);
        let top = legend.height() + 26.0;
        let height = top + 300.0;
        let bottom = height - 42.0;
        let mut svg = open(screen, height, &format!("{} over {}", self.y.name, self.x.name));
        legend.draw(&mut svg);
        let all = || self.series.iter().flat_map(|series| &series.points);
        let x_range = Range::of(
            all()
                .map(|point| point.0)
                .chain(self.marks.iter().map(|mark| mark.0))
                .chain(self.x.span.iter().flat_map(|(from, to)| [*from, *to])),
            self.x.scale,
        );
        let y_range = Range::of(all().map(|point| point.1), self.y.scale);
        let x_at = |value: f64| margin + x_range.share(value) * (whole - margin - RIGHT);
        let y_at = |value: f64| bottom - y_range.share(value) * (bottom - top);
        let mut end = 0.0;
        for (value, label) in x_range.ticks() {
            let x = x_at(value);
            let _ = write!(
                svg,
                "<line class=\"ax\" x1=\"{x:.1}\" y1=\"{top}\" x2=\"{x:.1}\" y2=\"{bottom}\"/>"
            );
            tick(&mut svg, (x, bottom + 15.0), whole, &label, &mut end);
        }
        for (value, label) in y_range.ticks() {
            let y = y_at(value);
            let _ = write!(
                svg,
                "<line class=\"ax\" x1=\"{margin}\" y1=\"{y:.1}\" x2=\"{:.1}\" y2=\"{y:.1}\"/>",
                whole - RIGHT
            );
            text(&mut svg, margin - 6.0, y + 4.0, "end", "sx", &label);
        }
        for (value, name) in &self.marks {
            let x = x_at(*value);
            let _ = write!(
                svg,
                "<line x1=\"{x:.1}\" y1=\"{top}\" x2=\"{x:.1}\" y2=\"{bottom}\" stroke=\"var(--bad)\" \
                 stroke-dasharray=\"4 3\"/>"
            );
            let is_right = x + 8.0 + name.chars().count() as f64 * CHARACTER > whole;
            let (x, anchor) = if is_right { (x - 4.0, "end") } else { (x + 4.0, "start") };
            text(&mut svg, x, top + 12.0, anchor, "", name);
        }
        for (at, series) in self.series.iter().enumerate() {
            let points: Vec<(f64, f64)> = series
                .points
                .iter()
                .filter(|point| point.0.is_finite() && point.1.is_finite())
                .map(|point| (x_at(point.0), y_at(point.1)))
                .collect();
            if series.is_dotted || points.len() == 1 {
                let dots: String =
                    points.iter().map(|(x, y)| format!("M{x:.1} {y:.1}h0")).collect();
                let _ = write!(
                    svg,
                    "<path data-series=\"{at}\" d=\"{dots}\" stroke=\"{}\" stroke-width=\"6\" \
                     stroke-linecap=\"round\" fill=\"none\"/>",
                    color(at)
                );
            } else {
                let path: Vec<String> =
                    points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
                let _ = write!(
                    svg,
                    "<polyline data-series=\"{at}\" points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>",
                    path.join(" "),
                    color(at)
                );
            }
        }
        text(&mut svg, whole - RIGHT, height - 6.0, "end", "sx", &self.x.name);
        text(&mut svg, 4.0, top - 10.0, "start", "sx", &self.y.name);
        svg + "</svg>"
    }
}

impl Timeline {
    pub(super) fn draw(&self, screen: Screen) -> String {
        let (whole, margin) = (screen.width(), screen.margin());
        // Names that do not fit in front of their tracks stand above them.
        let is_cut = |track: &Track| cut(&track.name, margin) != track.name;
        let above = if self.tracks.iter().any(is_cut) { LINE } else { 0.0 };
        let height = 30.0 + self.tracks.len() as f64 * (26.0 + above) + 34.0;
        let bottom = height - 34.0;
        let mut svg = open(screen, height, "What happened when");
        let range = Range::of([0.0, self.seconds.max(1e-3)].into_iter(), Scale::Linear);
        let x_at = |value: f64| margin + range.share(value) * (whole - margin - RIGHT);
        let mut end = 0.0;
        for (from, to, name) in &self.spans {
            let (x, width) = (x_at(*from), x_at(to.min(self.seconds)) - x_at(*from));
            let _ = write!(
                svg,
                "<rect x=\"{x:.1}\" y=\"18\" width=\"{:.1}\" height=\"{:.1}\" fill=\"var(--bad)\" opacity=\"0.15\">\
                 <title>{}</title></rect>",
                width.max(0.5),
                bottom - 18.0,
                escape(name)
            );
            // A name that would run into the one before, or out of the picture, is in the title alone.
            let wide = name.chars().count() as f64 * CHARACTER;
            let left = x.min(whole - wide);
            if left > end {
                text(&mut svg, left, 14.0, "start", "sx", name);
                end = left + wide + 5.0;
            }
        }
        let mut end = 0.0;
        for (value, label) in range.ticks() {
            let x = x_at(value);
            let _ = write!(
                svg,
                "<line class=\"ax\" x1=\"{x:.1}\" y1=\"20\" x2=\"{x:.1}\" y2=\"{bottom}\"/>"
            );
            tick(&mut svg, (x, bottom + 14.0), whole, &label, &mut end);
        }
        for (at, track) in self.tracks.iter().enumerate() {
            let y = 38.0 + at as f64 * (26.0 + above) + above;
            if above > 0.0 {
                text(&mut svg, 4.0, y - LINE + 4.0, "start", "", &cut(&track.name, whole));
            } else {
                text(&mut svg, margin - 8.0, y + 4.0, "end", "", &track.name);
            }
            let bins = bins(&track.dots, self.seconds, whole);
            let most = bins.iter().map(|(_, count)| *count).max().unwrap_or(1) as f64;
            let marks: String = bins
                .iter()
                .map(|(place, count)| {
                    let tall = 4.0 + 16.0 * *count as f64 / most;
                    format!("M{:.1} {:.0}v-{tall:.0}", x_at(*place), y + 10.0)
                })
                .collect();
            let _ = write!(svg, "<path d=\"{marks}\" stroke=\"{}\" fill=\"none\"/>", color(at));
        }
        text(&mut svg, whole - RIGHT, height - 4.0, "end", "sx", "seconds");
        svg + "</svg>"
    }
}

/// The part of an axis that is shown.
pub(super) struct Range {
    low: f64,
    high: f64,
    scale: Scale,
}

impl Range {
    pub(super) fn of(values: impl Iterator<Item = f64>, scale: Scale) -> Self {
        let (low, high) = values
            .filter(|value| value.is_finite())
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
                (low.min(value), high.max(value))
            });
        let (low, high) = if low <= high { (low, high) } else { (0.0, 1.0) };
        let (low, high) = match scale {
            Scale::Linear => (low.min(0.0), if high > low.min(0.0) { high } else { low + 1.0 }),
            Scale::Log => {
                let (low, high) = (step_below(low.max(1e-9)), step_above(high.max(1e-8)));
                (low, if high > low { high } else { low * 10.0 })
            }
            Scale::Nines => (0.0, high.clamp(0.9, 0.999_999)),
        };
        Self { low, high, scale }
    }

    pub(super) fn share(&self, value: f64) -> f64 {
        let place = |value: f64| match self.scale {
            Scale::Linear => value,
            Scale::Log => value.max(1e-9).log10(),
            Scale::Nines => -(1.0 - value.clamp(0.0, 0.999_999)).log10(),
        };
        ((place(value) - place(self.low)) / (place(self.high) - place(self.low))).clamp(0.0, 1.0)
    }

    pub(super) fn ticks(&self) -> Vec<(f64, String)> {
        match self.scale {
            Scale::Linear => {
                let rough = (self.high - self.low) / 6.0;
                let power = 10f64.powf(rough.log10().floor());
                let step = [1.0, 2.0, 5.0, 10.0]
                    .map(|factor| factor * power)
                    .into_iter()
                    .find(|step| *step >= rough)
                    .unwrap_or(rough);
                let first = (self.low / step).ceil() as i64;
                (first..)
                    .map(|at| at as f64 * step)
                    .take_while(|value| *value <= self.high * 1.0001)
                    .take(20)
                    .map(|value| (value, show(value)))
                    .collect()
            }
            Scale::Log => {
                let is_short = self.high / self.low < 101.0;
                let steps: &[f64] = if is_short { &STEPS } else { &STEPS[..1] };
                let powers = self.low.log10().floor() as i32..=self.high.log10().ceil() as i32;
                let is_shown =
                    |value: &f64| *value > self.low * 0.999 && *value < self.high * 1.001;
                powers
                    .flat_map(|power| steps.iter().map(move |step| step * 10f64.powi(power)))
                    .filter(is_shown)
                    .map(|value| (value, show(value)))
                    .collect()
            }
            Scale::Nines => [
                (0.0, "0"),
                (0.5, "50 %"),
                (0.9, "90 %"),
                (0.99, "99 %"),
                (0.999, "99.9 %"),
                (0.9999, "99.99 %"),
                (0.99999, "99.999 %"),
            ]
            .into_iter()
            .filter(|(share, _)| *share <= self.high)
            .map(|(share, label)| (share, label.to_owned()))
            .collect(),
        }
    }
}

/// Where logarithmic axes begin and end, and have their numbers: these times powers of ten.
const STEPS: [f64; 3] = [1.0, 2.0, 5.0];

fn step_below(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    let steps = STEPS.into_iter().rev().map(|step| step * power);
    steps.into_iter().find(|step| *step <= value * 1.000_001).unwrap_or(power)
}

fn step_above(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    let steps = STEPS.into_iter().map(|step| step * power);
    steps.into_iter().find(|step| *step >= value * 0.999_999).unwrap_or(power * 10.0)
}

/// Places and how much happened there, one for each pixel: a page must not grow with the number of packets.
fn bins(dots: &[f64], seconds: f64, count: f64) -> Vec<(f64, usize)> {
    let width = seconds.max(1e-3) / count;
    let mut places: Vec<u64> = dots
        .iter()
        .filter(|dot| (0.0..=seconds).contains(*dot))
        .map(|dot| (dot / width) as u64)
        .collect();
    places.sort_unstable();
    let runs = places.chunk_by(|a, b| a == b);
    runs.map(|run| ((run[0] as f64 + 0.5) * width, run.len())).collect()
}

pub(super) fn open(screen: Screen, height: f64, title: &str) -> String {
    format!(
        "<svg class=\"{}\" viewBox=\"0 0 {} {height}\" role=\"img\" aria-label=\"{}\" \
         xmlns=\"http://www.w3.org/2000/svg\">",
        if screen == Screen::Wide { "wide" } else { "narrow" },
        screen.width(),
        escape(title)
    )
}

/// What a chart is drawn for. A page holds both, and its style shows the one that fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Screen {
    /// A desktop, or paper.
    Wide,
    /// A telephone.
    Narrow,
}

impl Screen {
    /// Of the whole chart, in its own units: about the pixels that it is shown on.
    pub(super) fn width(self) -> f64 {
        match self {
            Self::Wide => 760.0,
            Self::Narrow => 350.0,
        }
    }

    /// Left of an axis, for its numbers and names.
    fn margin(self) -> f64 {
        match self {
            Self::Wide => 96.0,
            Self::Narrow => 64.0,
        }
    }
}

/// A name that fits in front of the axis.
pub(super) fn cut(name: &str, left: f64) -> String {
    let most = ((left - 14.0) / CHARACTER) as usize;
    if name.chars().count() <= most {
        return name.to_owned();
    }
    name.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

/// The number below a line of the axis: within the chart also where the line is its edge, and left out where it
/// would touch the one before, which ends at `end`.
pub(super) fn tick(svg: &mut String, at: (f64, f64), whole: f64, label: &str, end: &mut f64) {
    let half = label.chars().count() as f64 * CHARACTER / 2.0;
    let x = at.0.min(whole - half);
    if x - half > *end + 5.0 {
        text(svg, x, at.1, "middle", "sx", label);
        *end = x + half;
    }
}

/// Names and their colours, in as many lines as they need.
pub(super) struct Legend<'n> {
    /// Each name and where it stands.
    places: Vec<(&'n str, f64, f64)>,
    lines: f64,
    /// How many of them, from the first, are drawn as dots.
    pub(super) rounds: usize,
}

impl<'n> Legend<'n> {
    pub(super) fn new(names: impl Iterator<Item = &'n str>, left: f64, whole: f64) -> Self {
        let names: Vec<(&str, f64)> =
            names.map(|name| (name, 34.0 + name.chars().count() as f64 * CHARACTER)).collect();
        // Above the axis, unless a name needs the whole width.
        let longest = names.iter().fold(0.0, |longest, (_, width)| width.max(longest));
        let left = if left + longest > whole { 4.0 } else { left };
        let (mut x, mut y) = (left, 4.0);
        let mut places = Vec::new();
        for (name, width) in names {
            if x > left && x + width > whole {
                (x, y) = (left, y + LINE);
            }
            places.push((name, x, y));
            x += width;
        }
        Self { places, lines: y / LINE, rounds: 0 }
    }

    pub(super) fn height(&self) -> f64 {
        (self.lines + 1.0).floor() * LINE
    }

    pub(super) fn draw(&self, svg: &mut String) {
        for (at, (name, x, y)) in self.places.iter().enumerate() {
            let _ = write!(
                svg,
                "<g data-key=\"{at}\"><rect \
                 x=\"{x:.1}\" y=\"{y:.1}\" width=\"11\" height=\"11\" rx=\"{}\" fill=\"{}\"/>",
                if self.rounds > at { 5.5 } else { 0.0 },
                color(at)
            );
            text(svg, x + 16.0, y + 10.0, "start", "", name);
            svg.push_str("</g>");
        }
    }
}

pub(super) fn text(svg: &mut String, x: f64, y: f64, anchor: &str, class: &str, content: &str) {
    let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
    let _ = write!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\"{class}>{}</text>",
        escape(content)
    );
}

pub(super) fn color(at: usize) -> String {
    format!("var(--c{})", at % 6)
}

/// A number with as many digits as matter.
pub(super) fn show(value: f64) -> String {
    match value.abs() {
        zero if zero < 1e-12 => "0".to_owned(),
        large if large >= 10_000.0 => format!("{:.0}k", value / 1000.0),
        medium if medium >= 100.0 => format!("{value:.0}"),
        small if small >= 1.0 => trim(format!("{value:.1}")),
        tiny if tiny >= 0.001 => trim(format!("{value:.3}")),
        _ => format!("{value:.0e}"),
    }
}

fn trim(number: String) -> String {
    number.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Right of an axis.
const RIGHT: f64 = 20.0;
/// A character's width, on the safe side: numbers in DejaVu Sans, the widest of the usual fonts, need no more.
pub(super) const CHARACTER: f64 = 7.2;
pub(super) const LINE: f64 = 18.0;
