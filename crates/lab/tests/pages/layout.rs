//! Where things lie on a page, computed from what is written, without a browser.
//!
//! Characters are as wide as in the widest of the usual fonts (DejaVu Sans), so that what fits here fits in others.

use std::sync::LazyLock;

use regex::Regex;

use crate::style::{Element, Medium, Style, length};

/// What is wrong with a page on a medium; nothing when all is in sight.
pub(crate) fn complaints(html: &str, medium: Medium) -> Vec<String> {
    let mut all = complaints_of_style(html, medium);
    let style = Style::of(html, medium);
    for drawing in shown(html, &style) {
        check_drawing(drawing, &mut all);
    }
    all
}

/// The drawings that are shown.
fn shown<'h>(html: &'h str, style: &Style) -> impl Iterator<Item = &'h str> {
    parts(html, "svg").filter(|drawing| {
        let element = Element::new("svg", attribute(drawing, "class"), false);
        style.is(element, "display", "block")
    })
}

/// The same, without what lies within the drawings.
pub(crate) fn complaints_of_style(html: &str, medium: Medium) -> Vec<String> {
    let style = Style::of(html, medium);
    let mut all = Vec::new();
    words(&style, medium, &mut all);
    for table in parts(html, "table") {
        check_table(table, &style, medium, &mut all);
    }
    let (shown, figures) = (shown(html, &style).count(), parts(html, "figure").count());
    if shown != figures {
        all.push(format!("of {figures} charts {shown} are shown"));
    }
    all
}

/// What holds for whole elements.
fn words(style: &Style, medium: Medium, all: &mut Vec<String>) {
    let of = |tag: &'static str, class: &'static str| Element::new(tag, class, false);
    let mut must = |element: Element<'_>, property: &str, value: &str, why: &str| {
        if !style.is(element, property, value) {
            all.push(format!("{why}: {property} of {} .{}", element.tag, element.class));
        }
    };
    must(of("pre", ""), "white-space", "pre-wrap", "a command is cut off");
    must(of("pre", ""), "overflow-wrap", "anywhere", "a long word of a command is cut off");
    must(of("svg", "wide"), "width", "100%", "a chart is wider than the page");
    if medium == Medium::Paper {
        must(of("div", "t"), "overflow", "visible", "a scroll bar on paper");
        must(of("div", "t"), "background", "none", "a shadow on paper");
        must(of("div", "t"), "break-inside", "avoid", "a table is torn apart");
        must(of("tr", ""), "break-inside", "avoid", "a row is torn apart");
        must(of("figure", ""), "break-inside", "avoid", "a chart is torn apart");
        must(of("h2", ""), "break-after", "avoid", "a heading at the end of a sheet");
        must(of("summary", ""), "break-after", "avoid", "a table's name at the end of a sheet");
        must(
            of("details::details-content", ""),
            "content-visibility",
            "visible",
            "a folded table is not printed",
        );
    } else {
        must(of("div", "t"), "overflow-x", "auto", "what is too wide cannot be scrolled to");
    }
}

fn check_table(table: &str, style: &Style, medium: Medium, all: &mut Vec<String>) {
    let font = style.pixels(Element::new("table", "", false), "font-size", FONT).unwrap_or(FONT);
    let head = table.split('>').next().unwrap_or("");
    let within = attribute(head, "class");
    let interval = Element { within, ..Element::new("span", "i", false) };
    let is_whole = style.is(interval, "white-space", "nowrap");
    let rows: Vec<Vec<Cell<'_>>> =
        parts(table, "tr").map(|row| cells(row, style, font, interval).collect()).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<f64> = (0..columns)
        .map(|at| {
            rows.iter().filter_map(|row| row.get(at)).fold(0.0, |most, it| it.width.max(most))
        })
        .collect();
    let room = page_width(style, medium);
    let needed: f64 = widths.iter().sum();
    let name = rows.first().map_or("", |row| row.last().map_or("", |cell| cell.text));
    match medium {
        Medium::Screen(width) if width < 600.0 => {
            let first = widths.first().copied().unwrap_or(0.0);
            let widest = widths.iter().skip(1).fold(0.0_f64, |most, width| most.max(*width));
            if first + widest > room {
                all.push(format!(
                    "a figure is not beside its name: {first:.0} and {widest:.0} of {room:.0}, {name}"
                ));
            }
            let cell = Element::new("td", "", true);
            if needed > room && !style.is(cell, "position", "sticky") {
                all.push(format!("names scroll out of sight: {name}"));
            }
        }
        Medium::Screen(_) | Medium::Paper => {
            if needed > room {
                all.push(format!("a table is cut off: {needed:.0} of {room:.0}, {name}"));
            }
        }
    }
    for (at, head) in rows.first().into_iter().flatten().enumerate().skip(1) {
        let below = rows[1..].iter().filter_map(|row| row.get(at));
        let is_right = |cell: &Cell<'_>| {
            style.is(Element::new(cell.tag, cell.class, false), "text-align", "right")
        };
        let has_figures = below.clone().any(|cell| cell.class.starts_with('n'));
        if below.clone().filter(|it| it.class.starts_with('n')).any(|it| !is_right(it)) {
            all.push(format!("figures do not stand below each other: {}", head.text));
        }
        if has_figures && !is_right(head) {
            all.push(format!("a name does not stand over its figures: {}", head.text));
        }
        if medium == Medium::Paper {
            continue;
        }
        for cell in below.filter(|cell| cell.text.contains("class=\"i\"")) {
            if !is_whole && within != "many" {
                all.push(format!("an interval is torn apart: {}", cell.text));
            }
        }
    }
}

struct Cell<'c> {
    tag: &'c str,
    class: &'c str,
    text: &'c str,
    /// The least that it needs.
    width: f64,
}

fn cells<'c>(
    row: &'c str,
    style: &'c Style,
    font: f64,
    interval: Element<'c>,
) -> impl Iterator<Item = Cell<'c>> {
    let found: Vec<_> = CELL.captures_iter(row).collect();
    found.into_iter().enumerate().map(move |(at, it)| {
        let part = |index: usize| it.get(index).map_or("", |part| part.as_str());
        let (tag, class, text) = (part(1), part(2), part(3));
        let element = Element { within: interval.within, ..Element::new(tag, class, at == 0) };
        let may_break = style.is(element, "white-space", "normal");
        // A figure's interval stays in one piece.
        let pieces: Vec<String> = if may_break {
            let whole = style.is(interval, "white-space", "nowrap");
            match text.split_once("<span class=\"i\">").filter(|_| whole) {
                Some((figure, interval)) => vec![plain(figure), plain(interval)],
                None => plain(text).split([' ', '-']).map(str::to_owned).collect(),
            }
        } else {
            vec![plain(text)]
        };
        let bold = tag == "th" || style.get(element, "font-weight").is_some();
        let letters = pieces.iter().map(|piece| text_width(piece, font, bold)).fold(0.0, f64::max);
        let padding = style.get(element, "padding").unwrap_or("0 0");
        let sides = padding.split(' ').nth(1).unwrap();
        let least = style.pixels(element, "min-width", font).unwrap_or(0.0);
        let width = (letters + 2.0 * length(sides, font)).max(least);
        Cell { tag, class, text, width }
    })
}

/// What is left of the medium between the page's margins.
fn page_width(style: &Style, medium: Medium) -> f64 {
    let main = Element::new("main", "", false);
    let most = style.pixels(main, "max-width", FONT).unwrap();
    // A scroll bar takes some of a desktop's screen.
    let bar = if medium == Medium::Paper { 0.0 } else { 15.0 };
    let padding = style.get(main, "padding").unwrap();
    let sides = padding.split(' ').nth(1).unwrap_or(padding);
    (medium.width() - bar).min(most) - 2.0 * length(sides, FONT)
}

/// A text of a drawing: what it covers.
struct Label {
    text: String,
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

fn check_drawing(drawing: &str, all: &mut Vec<String>) {
    let title = attribute(drawing, "aria-label");
    let numbers: Vec<f64> =
        attribute(drawing, "viewBox").split(' ').map(|it| it.parse().unwrap()).collect();
    let (width, height) = (numbers[2], numbers[3]);
    let labels: Vec<Label> = labels(drawing).collect();
    for (at, label) in labels.iter().enumerate() {
        let is_inside = label.left >= -0.5
            && label.right <= width + 0.5
            && label.top >= -0.5
            && label.bottom <= height + 0.5;
        if !is_inside {
            all.push(format!("{title}: '{}' is cut off at {width:.0} px", label.text));
        }
        for other in &labels[..at] {
            let apart = label.left >= other.right
                || other.left >= label.right
                || label.top >= other.bottom
                || other.top >= label.bottom;
            if !apart {
                all.push(format!(
                    "{title}: '{}' lies on '{}' at {width:.0} px",
                    label.text, other.text
                ));
            }
        }
    }
    for (x, y) in corners(drawing) {
        if !(-0.5..=width + 0.5).contains(&x) || !(-0.5..=height + 0.5).contains(&y) {
            all.push(format!("{title}: a mark at {x:.0}, {y:.0} is outside of {width:.0} px"));
        }
    }
}

fn labels(drawing: &str) -> impl Iterator<Item = Label> {
    let found: Vec<Label> = LABEL
        .captures_iter(drawing)
        .map(|it| {
            let number = |at: usize| it[at].parse::<f64>().unwrap();
            let (x, y, text) = (number(1), number(2), plain(&it[4]));
            let width = text_width(&text, DRAWN_FONT, false);
            let left = match &it[3] {
                "start" => x,
                "middle" => x - width / 2.0,
                _ => x - width,
            };
            let below = if text.contains(DESCENDING) { 0.22 } else { 0.02 };
            let (top, bottom) = (y - DRAWN_FONT * 0.76, y + DRAWN_FONT * below);
            Label { text, left, right: left + width, top, bottom }
        })
        .collect();
    found.into_iter()
}

/// Corners of what is drawn: rectangles, lines, circles, and the points of curves and paths.
fn corners(drawing: &str) -> Vec<(f64, f64)> {
    let mut corners = Vec::new();
    for it in MARK.captures_iter(drawing) {
        let of = |name: &str| -> f64 { attribute(&it[2], name).parse().unwrap() };
        match &it[1] {
            "rect" => {
                corners.push((of("x"), of("y")));
                corners.push((of("x") + of("width"), of("y") + of("height")));
            }
            "line" => corners.extend([(of("x1"), of("y1")), (of("x2"), of("y2"))]),
            "circle" => {
                let (x, y, r) = (of("cx"), of("cy"), of("r"));
                corners.extend([(x - r, y - r), (x + r, y + r)]);
            }
            "polyline" => corners.extend(attribute(&it[2], "points").split(' ').filter_map(point)),
            _ => corners.extend(path_points(attribute(&it[2], "d"))),
        }
    }
    corners
}

fn point(text: &str) -> Option<(f64, f64)> {
    let (x, y) = text.split_once(',')?;
    Some((x.parse().ok()?, y.parse().ok()?))
}

/// Where the pen is after each command of a path: `M`, `H`, `h` and `v` are all that is written.
fn path_points(path: &str) -> Vec<(f64, f64)> {
    let (mut at, mut points) = ((0.0, 0.0), Vec::new());
    for it in COMMAND.captures_iter(path) {
        let first: f64 = it[2].parse().unwrap();
        at = match &it[1] {
            "M" => (first, it[3].parse().unwrap()),
            "H" => (first, at.1),
            "h" => (at.0 + first, at.1),
            _ => (at.0, at.1 + first),
        };
        points.push(at);
    }
    points
}

/// The elements of this name with what is in them; none lies in another.
fn parts<'h>(html: &'h str, tag: &str) -> impl Iterator<Item = &'h str> {
    let pattern = Regex::new(&format!(r"(?s)<{tag}[ >].*?</{tag}>")).unwrap();
    pattern.find_iter(html).map(|it| it.as_str()).collect::<Vec<_>>().into_iter()
}

fn attribute<'t>(tag: &'t str, name: &str) -> &'t str {
    let begin = format!("{name}=\"");
    let at = [format!(" {begin}"), begin].into_iter().find_map(|begin| {
        let at = tag.find(&begin)?;
        (at == 0 || begin.starts_with(' ')).then_some(at + begin.len())
    });
    at.and_then(|at| tag[at..].split('"').next()).unwrap_or("")
}

/// Text without tags and references.
fn plain(html: &str) -> String {
    let text = TAG.replace_all(html, "");
    text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&")
}

pub(crate) fn text_width(text: &str, font: f64, bold: bool) -> f64 {
    let em: u32 = text.chars().map(width_of).sum();
    f64::from(em) / 1000.0 * font * if bold { 1.1 } else { 1.0 }
}

/// Thousandths of the font size.
fn width_of(c: char) -> u32 {
    match c {
        'i' | 'j' | 'l' => 278,
        'f' | 't' | ' ' | '.' | ',' | '·' | 'I' | 'J' | '|' => 392,
        'r' | '-' | '(' | ')' | '/' | ':' | ';' => 411,
        's' | '_' | '–' => 521,
        'm' | '…' => 974,
        'w' | '%' | '+' | '=' | '<' | '>' | '≤' | '≥' | '−' => 840,
        'M' | 'W' | '→' => 989,
        'O' | 'Q' | 'G' | 'D' | 'N' | 'H' => 787,
        'c' | 'k' | 'v' | 'x' | 'y' | 'z' => 592,
        'A'..='Z' => 700,
        _ => 636,
    }
}

/// Characters that reach below their line.
const DESCENDING: [char; 12] = ['g', 'j', 'p', 'q', 'y', ',', ';', '(', ')', '/', '_', 'Q'];
fn pattern(text: &str) -> Regex {
    Regex::new(text).unwrap()
}

static CELL: LazyLock<Regex> =
    LazyLock::new(|| pattern(r#"(?s)<(t[dh])(?: class="([^"]*)")?>(.*?)</t[dh]>"#));
static LABEL: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r#"<text x="([-0-9.]+)" y="([-0-9.]+)" text-anchor="(\w+)"[^>]*>([^<]*)</text>"#)
});
static MARK: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"<(rect|line|circle|polyline|path) ([^>]*)>"));
static COMMAND: LazyLock<Regex> = LazyLock::new(|| pattern(r"([MHhv])([-0-9.]+)(?: ([-0-9.]+))?"));
static TAG: LazyLock<Regex> = LazyLock::new(|| pattern("<[^>]*>"));

/// The size of texts in drawings, in the drawing's own units.
const DRAWN_FONT: f64 = 12.0;
/// The size of texts on the page.
const FONT: f64 = 15.0;
