//! Dots on lines: one line for each case, one dot for each subject, published figures hollow.

use std::fmt::Write as _;

use super::chart::{
    CHARACTER, LINE, Legend, Range, Scale, Screen, color, cut, open, show, text, tick,
};
use super::escape;

/// Figures of several subjects in several cases.
#[derive(Clone, Debug, Default)]
pub struct Dots {
    /// What the numbers are.
    pub unit: String,
    /// How the axis is spaced.
    pub scale: Scale,
    /// Whose figures they are.
    pub subjects: Vec<String>,
    /// Each case and its figures.
    pub rows: Vec<(String, Vec<Mark>)>,
}

/// One figure.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    /// Whose, as a place in [`Dots::subjects`].
    pub subject: usize,
    /// The figure.
    pub value: f64,
    /// How far it may be off, from and to.
    pub band: Option<(f64, f64)>,
    /// Whether it is a published figure, not a measured one.
    pub is_published: bool,
}

impl Dots {
    pub(super) fn draw(&self, screen: Screen) -> String {
        let whole = screen.width();
        let longest = self.rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
        let wanted = longest as f64 * CHARACTER + 16.0;
        // A name that does not fit in front of its line stands above it.
        let above = if wanted > whole * 0.5 { LINE } else { 0.0 };
        let left = if above > 0.0 { 12.0 } else { wanted.max(80.0) };
        let mut legend = Legend::new(self.subjects.iter().map(String::as_str), left, whole);
        legend.rounds = COLORS;
        // Subjects of one case lie a little below each other, so that equal figures do not hide.
        let step = 5.0;
        let height = (self.subjects.len() as f64 * step + 12.0).max(22.0) + above;
        let top = legend.height() + 8.0;
        let bottom = top + self.rows.len() as f64 * height;
        let mut svg = open(screen, bottom + 38.0, &format!("Figures in {}", self.unit));
        legend.draw(&mut svg);
        let marks = || self.rows.iter().flat_map(|(_, marks)| marks);
        let values = marks().flat_map(|mark| {
            let (low, high) = mark.band.unwrap_or((mark.value, mark.value));
            [mark.value, low, high]
        });
        let is_shown = |value: &f64| self.scale != Scale::Log || *value > 0.0;
        let range = Range::of(values.filter(is_shown), self.scale);
        let x_at = |value: f64| left + range.share(value) * (whole - left - 24.0);
        let mut end = 0.0;
        for (value, label) in range.ticks() {
            let x = x_at(value);
            let _ = write!(
                svg,
                "<line class=\"ax\" x1=\"{x:.1}\" y1=\"{top:.1}\" x2=\"{x:.1}\" y2=\"{bottom:.1}\"/>"
            );
            tick(&mut svg, (x, bottom + 15.0), whole, &label, &mut end);
        }
        for (at, (name, marks)) in self.rows.iter().enumerate() {
            let y = top + at as f64 * height;
            if at > 0 {
                let _ = write!(
                    svg,
                    "<line class=\"ax\" x1=\"0\" y1=\"{y:.1}\" x2=\"{whole}\" y2=\"{y:.1}\"/>"
                );
            }
            if above > 0.0 {
                text(&mut svg, 4.0, y + LINE - 3.0, "start", "", &cut(name, whole));
            } else {
                text(&mut svg, left - 8.0, y + height / 2.0 + 4.0, "end", "", &cut(name, left));
            }
            for mark in marks {
                let offset =
                    (mark.subject as f64 + 0.5) * step - self.subjects.len() as f64 * step / 2.0;
                self.draw_mark(&mut svg, mark, &x_at, y + (height + above) / 2.0 + offset);
            }
        }
        text(&mut svg, whole - 24.0, bottom + 32.0, "end", "sx", &self.unit);
        svg + "</svg>"
    }

    fn draw_mark(&self, svg: &mut String, mark: &Mark, x_at: &dyn Fn(f64) -> f64, y: f64) {
        let (x, paint) = (x_at(mark.value), color(mark.subject));
        let name = self.subjects.get(mark.subject).map_or("", String::as_str);
        let tip = match (mark.band, mark.is_published) {
            // The name of those that stand by themselves says it already.
            (_, true) if name.starts_with("published") => {
                format!("{name}: {} {}", show(mark.value), self.unit)
            }
            (_, true) => format!("{name}, published: {} {}", show(mark.value), self.unit),
            (Some((low, high)), _) => {
                format!(
                    "{name}: {} {} ({} – {})",
                    show(mark.value),
                    self.unit,
                    show(low),
                    show(high)
                )
            }
            (None, _) => format!("{name}: {} {}", show(mark.value), self.unit),
        };
        let _ = write!(svg, "<g data-series=\"{}\"><title>{}</title>", mark.subject, escape(&tip));
        if let Some((low, high)) =
            mark.band.filter(|(low, high)| low.is_finite() && high.is_finite())
        {
            let _ = write!(
                svg,
                "<path d=\"M{:.1} {y:.1}H{:.1}\" stroke=\"{paint}\" stroke-width=\"2\" opacity=\"0.5\"/>",
                x_at(low),
                x_at(high)
            );
        }
        let (fill, radius) =
            if mark.is_published { ("var(--paper)", 4.2) } else { (paint.as_str(), 4.0) };
        // More subjects than colours: the next ones are squares.
        let _ = if mark.subject < COLORS {
            write!(
                svg,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" fill=\"{fill}\" stroke=\"{paint}\" \
                 stroke-width=\"1.5\"/></g>"
            )
        } else {
            write!(
                svg,
                "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"7\" height=\"7\" fill=\"{fill}\" stroke=\"{paint}\" \
                 stroke-width=\"1.5\"/></g>",
                x - 3.5,
                y - 3.5
            )
        };
    }
}

const COLORS: usize = 6;
