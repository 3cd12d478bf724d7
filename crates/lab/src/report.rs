//! Reports: one HTML file that opens anywhere, and Markdown for a pull request.
//!
//! A [`Page`] is a list of sections; charts are SVG drawn here, so that a page needs no network, no script
//! library and no font, and prints as it looks.

mod chart;
mod dots;

use std::fmt::Write as _;

use chart::Screen;

pub use chart::{Axis, Bars, Curves, Scale, Series, Timeline, Track};
pub use dots::{Dots, Mark};

/// A report.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// What it is about.
    pub title: String,
    /// The one sentence that a hurried reader takes home.
    pub verdict: String,
    sections: Vec<Section>,
}

#[derive(Clone, Debug)]
enum Section {
    Heading(String),
    Text(String),
    Table(Table),
    /// A table below the chart that says what it has; without the chart its name does.
    Below(String, Table),
    /// A table that is folded away behind its name.
    Details(String, Table),
    /// A chart and what it shows.
    Chart {
        caption: String,
        svg: String,
    },
    Code(String),
}

/// A table; cells that begin with a digit are set to the right, but for those of the first column.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// The first row.
    pub header: Vec<String>,
    /// The others.
    pub rows: Vec<Vec<String>>,
    /// Cells (row, column) that are better than what they are compared with.
    pub ahead: Vec<(usize, usize)>,
    /// Cells that are worse: they are marked, and say so.
    pub behind: Vec<(usize, usize)>,
}

impl Page {
    /// An empty page.
    pub fn new(title: impl Into<String>, verdict: impl Into<String>) -> Self {
        Self { title: title.into(), verdict: verdict.into(), sections: Vec::new() }
    }

    /// Adds a heading.
    pub fn heading(&mut self, text: impl Into<String>) {
        self.sections.push(Section::Heading(text.into()));
    }

    /// Adds a paragraph.
    pub fn text(&mut self, text: impl Into<String>) {
        self.sections.push(Section::Text(text.into()));
    }

    /// Adds a table.
    pub fn table(&mut self, table: Table) {
        self.sections.push(Section::Table(table));
    }

    /// Adds a table with the figures of the chart above; its name is said where the chart is not.
    pub fn table_of_chart(&mut self, name: impl Into<String>, table: Table) {
        self.sections.push(Section::Below(name.into(), table));
    }

    /// Adds a table that is folded away behind its name, but not in print.
    pub fn details(&mut self, name: impl Into<String>, table: Table) {
        self.sections.push(Section::Details(name.into(), table));
    }

    /// Adds dots on lines.
    pub fn dots(&mut self, caption: impl Into<String>, dots: &Dots) {
        self.chart(caption.into(), |screen| dots.draw(screen));
    }

    /// Adds preformatted text, such as the command that repeats a run.
    pub fn code(&mut self, text: impl Into<String>) {
        self.sections.push(Section::Code(text.into()));
    }

    /// Adds bars.
    pub fn bars(&mut self, caption: impl Into<String>, bars: &Bars) {
        self.chart(caption.into(), |screen| bars.draw(screen));
    }

    /// Adds curves.
    pub fn curves(&mut self, caption: impl Into<String>, curves: &Curves) {
        self.chart(caption.into(), |screen| curves.draw(screen));
    }

    /// Adds a timeline.
    pub fn timeline(&mut self, caption: impl Into<String>, timeline: &Timeline) {
        self.chart(caption.into(), |screen| timeline.draw(screen));
    }

    fn chart(&mut self, caption: String, draw: impl Fn(Screen) -> String) {
        let svg = draw(Screen::Wide) + &draw(Screen::Narrow);
        self.sections.push(Section::Chart { caption, svg });
    }

    /// The page as one HTML document.
    pub fn to_html(&self) -> String {
        let mut html = format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
             script-src 'unsafe-inline'\">\n\
             <title>{}</title>\n<style>{STYLE}</style></head><body><main>\n<h1>{}</h1>\n<p class=\"verdict\">{}</p>\n",
            escape(&self.title),
            escape(&self.title),
            in_sentences(&self.verdict)
        );
        for section in &self.sections {
            // Writing to a string does not fail.
            let _ = match section {
                Section::Heading(text) => writeln!(html, "<h2>{}</h2>", escape(text)),
                Section::Text(text) => writeln!(html, "<p>{}</p>", in_sentences(text)),
                Section::Code(text) => writeln!(html, "<pre>{}</pre>", escape(text)),
                Section::Chart { caption, svg } => {
                    writeln!(
                        html,
                        "<figure>{svg}<figcaption>{}</figcaption></figure>",
                        in_sentences(caption)
                    )
                }
                Section::Table(table) | Section::Below(_, table) => {
                    write!(html, "{}", table.to_html())
                }
                Section::Details(name, table) => writeln!(
                    html,
                    "<details><summary>{}</summary>{}</details>",
                    escape(name),
                    table.to_html()
                ),
            };
        }
        let _ = writeln!(html, "</main><script>{SCRIPT}</script></body></html>");
        html
    }

    /// The page as Markdown, without its charts.
    pub fn to_markdown(&self) -> String {
        let mut text = format!("## {}\n\n**{}**\n", self.title, self.verdict);
        for (at, section) in self.sections.iter().enumerate() {
            let _ = match section {
                Section::Heading(_) if !self.has_words(at + 1) => Ok(()),
                Section::Heading(heading) => writeln!(text, "\n### {heading}"),
                Section::Text(words) => writeln!(text, "\n{words}"),
                Section::Code(code) => writeln!(text, "\n```\n{code}\n```"),
                Section::Chart { .. } => Ok(()),
                Section::Table(table) => write!(text, "\n{}", table.to_markdown()),
                Section::Below(name, table) | Section::Details(name, table) => {
                    write!(text, "\n{name}:\n\n{}", table.to_markdown())
                }
            };
        }
        text
    }
}

impl Page {
    /// Whether anything but charts stands between a section and the next heading.
    fn has_words(&self, from: usize) -> bool {
        let mut below =
            self.sections[from..].iter().take_while(|it| !matches!(it, Section::Heading(_)));
        below.any(|it| !matches!(it, Section::Chart { .. }))
    }
}

impl Table {
    /// A table with this first row.
    pub fn new(header: &[&str]) -> Self {
        Self { header: header.iter().map(|&cell| cell.to_owned()).collect(), ..Self::default() }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = impl Into<String>>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// The table as Markdown.
    pub fn to_markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | ").replace('\n', " "));
        let rule = format!("|{}\n", "---|".repeat(self.header.len()));
        let said = |(at, row): (usize, &Vec<String>)| {
            let cells: Vec<String> = row
                .iter()
                .enumerate()
                .map(|(column, cell)| self.said(cell, (at, column)))
                .collect();
            line(&cells)
        };
        let rows: String = self.rows.iter().enumerate().map(said).collect();
        format!("{}{rule}{rows}", line(&self.header))
    }

    fn to_html(&self) -> String {
        let starts_a_figure = |c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '−' | '–');
        let is_figures = |at: usize| {
            self.rows
                .iter()
                .any(|row| row.get(at).is_some_and(|cell| cell.starts_with(starts_a_figure)))
        };
        let row = |tag: &str, number: Option<usize>, cells: &[String]| {
            let cells: String = cells
                .iter()
                .enumerate()
                .map(|(at, cell)| {
                    let place = number.map(|number| (number, at));
                    // The name of a column stands over its figures.
                    let is_figure = at > 0
                        && match number {
                            Some(_) => cell.starts_with(starts_a_figure),
                            None => is_figures(at),
                        };
                    let is_in = |list: &[_]| place.is_some_and(|place| list.contains(&place));
                    let class = match is_figure {
                        true if is_in(&self.behind) => " class=\"n lost\"",
                        true if is_in(&self.ahead) => " class=\"n won\"",
                        true => " class=\"n\"",
                        false if at == 0 && cell.chars().count() > SHORT_NAME => " class=\"w\"",
                        false => "",
                    };
                    let cell = place.map_or_else(|| cell.clone(), |place| self.said(cell, place));
                    // A line may break between a figure and its interval, and nowhere else.
                    let cell = match cell.split_once(" (").filter(|_| is_figure) {
                        Some((figure, rest)) => {
                            format!("{} <span class=\"i\">({}</span>", escape(figure), escape(rest))
                        }
                        None => escape(&cell),
                    };
                    format!("<{tag}{class}>{cell}</{tag}>")
                })
                .collect();
            format!("<tr>{cells}</tr>\n")
        };
        let body: String =
            self.rows.iter().enumerate().map(|(at, cells)| row("td", Some(at), cells)).collect();
        // Of very many columns each interval may take several lines.
        let many = if self.header.len() > MANY { " class=\"many\"" } else { "" };
        format!(
            "<div class=\"t\"><table{many}><thead>{}</thead><tbody>\n{body}</tbody></table></div>\n",
            row("th", None, &self.header)
        )
    }

    /// A cell with its mark in words: colour alone does not tell all readers.
    fn said(&self, cell: &str, place: (usize, usize)) -> String {
        if self.behind.contains(&place) { format!("{cell}, behind") } else { cell.to_owned() }
    }
}

/// Makes text safe inside HTML.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Safe inside HTML, with each number on one line with its unit.
fn in_sentences(text: &str) -> String {
    UNITS.iter().fold(escape(text).replace("± ", "±&nbsp;"), |text, unit| {
        let with = format!(" {unit}");
        let mut pieces = text.split(with.as_str());
        let mut whole = pieces.next().unwrap_or_default().to_owned();
        for piece in pieces {
            let is_unit = whole.ends_with(|c: char| c.is_ascii_digit())
                && !piece.starts_with(|c: char| c.is_alphanumeric() || c == '/');
            whole += if is_unit { "&nbsp;" } else { " " };
            whole += unit;
            whole += piece;
        }
        whole
    })
}

const UNITS: [&str; 8] = ["%", "µs", "ms", "s", "W", "J", "kbit/s", "Mbit/s"];

/// More columns do not fit beside each other with their intervals in one piece.
const MANY: usize = 8;

/// Longer names may take several lines on a narrow screen, so that figures stay in sight.
const SHORT_NAME: usize = 10;

const STYLE: &str = "\
:root{--ink:#1b2733;--soft:#5c6b7a;--line:#d5dce3;--paper:#fff;--wash:#f3f6f9;--c0:#0b6fb8;--c1:#d1600a;--c2:#2f8f4e;\
--c3:#8a4fb0;--c4:#b8860b;--c5:#c23b5e;--bad:#c0392b}\
@media(prefers-color-scheme:dark){:root{--ink:#e4e9ee;--soft:#9aa8b5;--line:#36414c;--paper:#12181e;--wash:#1b232b;\
--c0:#5fb3f2;--c1:#f09a54;--c2:#6fcf8d;--c3:#c497e6;--c4:#e0b84c;--c5:#f0839f;--bad:#f07167}}\
@media print{:root{--ink:#000;--soft:#444;--line:#ccc;--paper:#fff;--wash:#fff}main{padding:0!important}figure,\
tr{break-inside:avoid}h2{\
break-after:avoid}details::details-content{content-visibility:visible;block-size:auto}summary{break-after:avoid;\
list-style:none}\
.t{overflow:visible!important;background:none!important;break-inside:avoid}th,td{\
white-space:normal!important;min-width:0!important;padding:.15rem .2rem!important}td:first-child{\
min-width:6.4rem!important}table{font-size:.65rem!important}.many th,.many td{\
padding:.15rem .12rem!important}}\
*{box-sizing:border-box}body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,sans-serif}\
main{max-width:66rem;margin:0 auto;padding:2rem 1.2rem 4rem}h1{font-size:1.6rem;margin:0 0 .6rem}h2{font-size:1.15rem;\
margin:2.4rem 0 .6rem;border-bottom:1px solid var(--line);padding-bottom:.3rem}\
.verdict{font-size:1.15rem;background:var(--wash);border-left:4px solid var(--c0);padding:.8rem 1rem;margin:0 0 1.5rem}\
.t{overflow-x:auto;background:linear-gradient(var(--paper),var(--paper)) right/1.5rem no-repeat local,\
linear-gradient(to left,var(--line),transparent) right/.8rem no-repeat \
scroll}table{border-collapse:collapse;font-size:.85rem;margin:.6rem 0}th,td{padding:.28rem .5rem;\
text-align:left;border-bottom:1px solid var(--line);white-space:nowrap}th{color:var(--soft);font-weight:600;\
white-space:normal;min-width:4.5rem;vertical-align:bottom}.n{text-align:right;font-variant-numeric:tabular-nums;\
white-space:normal}.i{white-space:nowrap}.many .i,.many td.w{white-space:normal}.many td.w{\
min-width:9rem}.many th,.many td{padding:.28rem .35rem}\
.won{font-weight:600}.lost{color:var(--bad);font-weight:600}details{margin:.4rem 0}summary{cursor:pointer;\
color:var(--soft)}\
figure{margin:1rem 0}.narrow{display:none}@media screen and (max-width:36rem){.wide{display:none}.narrow{\
display:block}table{font-size:.74rem}th{min-width:0}th,td{padding:.28rem .15rem}td.w{white-space:normal;\
min-width:7.2rem}th:first-child,td:first-child{position:sticky;left:0;background:var(--paper)}}figcaption{\
color:var(--soft);font-size:.85rem}svg{display:block;width:100%;max-width:62rem;height:auto;\
font:12px system-ui,sans-serif}svg text{fill:var(--ink)}.ax{stroke:var(--line)}.sx{fill:var(--soft)}\
pre{background:var(--wash);padding:.8rem 1rem;font-size:.85rem;white-space:pre-wrap;overflow-wrap:anywhere}";

/// Clicking a series' name hides it; without a script everything is shown.
const SCRIPT: &str = "\
document.querySelectorAll('svg \
[data-key]').forEach(function(k){k.style.cursor='pointer';k.addEventListener('click',function(){\
var s=k.ownerSVGElement,n=k.getAttribute('data-key');s.querySelectorAll('[data-series=\"'+n+'\"]').forEach(function(e){\
e.style.display=e.style.display==='none'?'':'none'});k.style.opacity=k.style.opacity==='0.35'?'':'0.35'})})";

#[cfg(test)]
mod tests;
