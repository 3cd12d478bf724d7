//! A replay as a page: for each table one picture and one matrix, with the published figures beside ours and the
//! peers'.

use super::verdict::{LEADING, Rank, rank};
use super::{Replay, Row};
use crate::about::Made;
use crate::report::{Dots, Mark, Page, Scale, Table};

impl Replay {
    /// The figures as a page.
    pub fn to_page(&self, title: &str, command: &str) -> Page {
        let mut page = Page::new(title, self.verdict());
        let mut names = distinct(self.rows.iter().map(|row| row.table.as_str()));
        // What the machine does by itself comes behind what the report is about.
        names.sort_by_key(|name| *name == super::atrace::RULERS);
        for name in names {
            let rows: Vec<&Row> = self.rows.iter().filter(|row| row.table == name).collect();
            add_table(&mut page, name, &rows);
        }
        if !self.notes.is_empty() {
            page.heading("What to know");
        }
        for note in &self.notes {
            page.text(note);
        }
        page.heading("Conditions");
        match &self.made {
            Some(made) => {
                page.text(format!(
                    "{} Drawn later, from the file of its figures.",
                    made.sentence()
                ));
                page.code(&made.command);
            }
            None => {
                page.text(Made::now(command).sentence());
                page.code(command);
            }
        }
        page
    }
}

/// One metric of one table.
struct Matrix<'r> {
    cases: Vec<&'r str>,
    whos: Vec<&'r str>,
    rows: Vec<&'r Row>,
}

fn add_table(page: &mut Page, name: &str, rows: &[&Row]) {
    page.heading(name);
    let mut metrics = distinct(rows.iter().map(|row| row.metric.as_str()));
    let place =
        |metric: &str| LEADING.iter().position(|(it, _)| *it == metric).unwrap_or(LEADING.len());
    // What the table is about comes first, the rest in its own order.
    metrics.sort_by_key(|metric| place(metric));
    for (at, metric) in metrics.into_iter().enumerate() {
        let matrix = Matrix::of(rows, metric);
        let unit = matrix.rows.first().map_or("", |row| row.unit.as_str());
        let comma = if unit.is_empty() { "" } else { ", " };
        let named = format!("{}{comma}{unit}", words(metric));
        if at == 0 {
            page.dots(matrix.caption(name, metric, unit), &matrix.picture(unit));
            page.table_of_chart(named, matrix.table(rows));
        } else {
            page.details(named, matrix.table(rows));
        }
    }
}

impl<'r> Matrix<'r> {
    fn of(rows: &[&'r Row], metric: &str) -> Self {
        let rows: Vec<&Row> = rows.iter().filter(|row| row.metric == metric).copied().collect();
        Self {
            cases: in_order(distinct(rows.iter().map(|row| row.case.as_str()))),
            whos: distinct(rows.iter().map(|row| row.who.as_str())),
            rows,
        }
    }

    fn find(&self, case: &str, who: &str) -> Option<&'r Row> {
        self.rows.iter().find(|row| row.case == case && row.who == who).copied()
    }

    /// Logarithmic where one value is thirty times another.
    fn scale(&self) -> Scale {
        let values = || self.rows.iter().flat_map(|row| [Some(row.value), row.published]).flatten();
        let (low, high) =
            values().fold((f64::INFINITY, 0.0_f64), |(low, high), it| (low.min(it), high.max(it)));
        if low > 0.0 && high / low >= 30.0 { Scale::Log } else { Scale::Linear }
    }

    /// Says what is in the picture, and nothing that is not.
    fn caption(&self, table: &str, metric: &str, unit: &str) -> String {
        let mut caption = format!("{} in {unit}. Filled: measured here", words(metric));
        let has_interval = |row: &&Row| row.low.is_some() && row.high.is_some();
        caption += match self.rows.iter().any(has_interval) {
            true if MEDIANS.contains(&table) => ", with quartiles of the windows.",
            true => ", with 95 % intervals.",
            false => ", too seldom for an interval.",
        };
        let published = self.whos_published();
        if !published.is_empty() {
            caption += " Hollow: published";
            if !self.has_one_published() && self.rows.iter().any(|row| row.published_of.is_some()) {
                for who in published {
                    caption += &format!(", {} in the colour of {who}", self.original(who));
                }
            }
            caption.push('.');
        }
        if self.scale() == Scale::Log {
            caption += " The axis is logarithmic.";
        }
        caption
    }

    fn picture(&self, unit: &str) -> Dots {
        let one = self.has_one_published();
        let marks = |case: &str| {
            let mut marks = Vec::new();
            if one {
                let value = self.whos.iter().find_map(|who| self.find(case, who)?.published);
                let subject = self.whos.len();
                marks.extend(value.map(|value| Mark {
                    subject,
                    value,
                    band: None,
                    is_published: true,
                }));
            }
            for (subject, who) in self.whos.iter().enumerate() {
                let Some(row) = self.find(case, who) else { continue };
                let band = row.low.zip(row.high);
                marks.push(Mark { subject, value: row.value, band, is_published: false });
                let published = row.published.filter(|_| !one);
                marks.extend(published.map(|value| Mark {
                    subject,
                    value,
                    band: None,
                    is_published: true,
                }));
            }
            marks
        };
        Dots {
            unit: unit.to_owned(),
            scale: self.scale(),
            subjects: self
                .whos
                .iter()
                .map(|who| (*who).to_owned())
                .chain(one.then(|| self.one_published()))
                .collect(),
            rows: self.cases.iter().map(|case| ((*case).to_owned(), marks(case))).collect(),
        }
    }

    /// Those whose figures the report has.
    fn whos_published(&self) -> Vec<&'r str> {
        let has =
            |who: &&&str| self.rows.iter().any(|row| row.who == **who && row.published.is_some());
        self.whos.iter().filter(has).copied().collect()
    }

    /// What the only published figures are called.
    fn one_published(&self) -> String {
        match self.whos_published().as_slice() {
            [who] if self.rows.iter().any(|row| row.published_of.is_some()) => {
                format!("{PUBLISHED}, {}", self.original(who))
            }
            _ => PUBLISHED.to_owned(),
        }
    }

    /// Whose published figures stand beside a subject's.
    fn original(&self, who: &'r str) -> &'r str {
        let mut names = self
            .rows
            .iter()
            .filter(|row| row.who == who)
            .filter_map(|row| row.published_of.as_deref());
        names.next().unwrap_or(if who == "towpath" { "its subject" } else { who })
    }

    /// Whether the report has one figure for all subjects of each case.
    fn has_one_published(&self) -> bool {
        let published = self.whos_published();
        let differ = |case: &&str| {
            let mut values = published.iter().filter_map(|who| self.find(case, who)?.published);
            values.next().is_some_and(|first| values.any(|it| it != first))
        };
        !published.is_empty() && !self.cases.iter().any(differ)
    }

    /// Cases down, subjects across, each subject's published figures beside it.
    fn table(&self, all: &[&Row]) -> Table {
        let published = self.whos_published();
        // Where the report has one figure for all, one column holds it.
        let is_one = self.has_one_published();
        let mut header: Vec<String> = vec!["case".to_owned()];
        for who in &self.whos {
            header.push((*who).to_owned());
            if !is_one && published.contains(who) {
                header.push(format!("{PUBLISHED}, {}", self.original(who)));
            }
        }
        if is_one {
            header.push(self.one_published());
        }
        let mut table = Table { header, ..Table::default() };
        for case in &self.cases {
            let mut cells = vec![(*case).to_owned()];
            for who in &self.whos {
                let row = self.find(case, who);
                let rank = row.and_then(|row| rank(all, row));
                match rank {
                    Some((Rank::Behind, _)) => table.behind.push((table.rows.len(), cells.len())),
                    Some((Rank::Ahead, _)) => table.ahead.push((table.rows.len(), cells.len())),
                    Some((Rank::Unclear, _)) | None => {}
                }
                cells.push(row.map_or_else(String::new, cell));
                if !is_one && published.contains(who) {
                    cells.push(row.and_then(|row| row.published).map_or_else(String::new, show));
                }
            }
            if is_one {
                let value = published.iter().find_map(|who| self.find(case, who)?.published);
                cells.push(value.map_or_else(String::new, show));
            }
            table.row(cells);
        }
        table
    }
}

/// `0.18 (0.17 – 0.20)`.
fn cell(row: &Row) -> String {
    match row.low.zip(row.high) {
        Some((low, high)) if low.is_finite() && high.is_finite() && low < high => {
            format!("{} ({} – {})", show(row.value), show(low), show(high))
        }
        _ if COUNTS.contains(&row.unit.as_str()) && row.value.fract() == 0.0 => {
            format!("{:.0}", row.value)
        }
        _ => show(row.value),
    }
}

/// `cpu_per_request` as it is read.
fn words(metric: &str) -> String {
    if let Some((_, words)) = LEADING.iter().find(|(it, _)| *it == metric) {
        let change = if metric.ends_with("_change") { ", change against none" } else { "" };
        return format!("{words}{change}");
    }
    let known = |word: &str| match word {
        "cpu" => "CPU".to_owned(),
        "lte" => "LTE".to_owned(),
        "3g" => "3G".to_owned(),
        "wifi" => "Wi-Fi".to_owned(),
        other => other.to_owned(),
    };
    let words = metric.split('_').map(known).collect::<Vec<_>>().join(" ");
    // A percentile is written small everywhere.
    let is_percentile =
        words.starts_with('p') && words[1..].starts_with(|c: char| c.is_ascii_digit());
    let mut characters = words.chars();
    match characters.next() {
        Some(first) if !is_percentile => first.to_uppercase().chain(characters).collect(),
        Some(_) | None => words,
    }
}

/// Cases that differ in a number stand in its order, whatever order they were run in.
fn in_order(mut cases: Vec<&str>) -> Vec<&str> {
    let key = |case: &str| {
        let words: Vec<String> = case
            .split_whitespace()
            .map(|word| {
                word.parse::<f64>().map_or_else(|_| word.to_owned(), |it| format!("{it:012.3}"))
            })
            .collect();
        words.join(" ")
    };
    cases.sort_by_cached_key(|case| key(case));
    cases
}

pub(super) fn distinct<'t>(names: impl Iterator<Item = &'t str>) -> Vec<&'t str> {
    let mut all = Vec::new();
    for name in names {
        if !all.contains(&name) {
            all.push(name);
        }
    }
    all
}

/// A number with three digits that matter.
pub(super) fn show(value: f64) -> String {
    match value.abs() {
        zero if zero < 5e-7 => "0".to_owned(),
        large if large >= 100.0 => format!("{value:.0}"),
        medium if medium >= 10.0 => format!("{value:.1}"),
        small if small >= 1.0 => format!("{value:.2}"),
        less => {
            let zeros = (-less.log10()).ceil() as usize;
            format!("{value:.*}", zeros + 2)
        }
    }
}

/// Units of what is counted.
const COUNTS: [&str; 3] = ["requests", "outages", "of 1"];
const PUBLISHED: &str = "published";
/// Tables whose figures are medians of windows.
const MEDIANS: [&str; 2] = [super::atrace::TABLE, super::atrace::RULERS];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_a_whole_number() {
        let counted =
            Row { low: None, high: None, unit: "requests".to_owned(), ..row("", "", 10.0, None) };
        assert_eq!(cell(&counted), "10");
        assert_eq!(cell(&Row { value: 9.5, ..counted.clone() }), "9.50");
        assert_eq!(cell(&Row { unit: "s".to_owned(), ..counted }), "10.0");
    }

    fn row(case: &str, who: &str, value: f64, published: Option<f64>) -> Row {
        Row {
            table: "Forwarding".to_owned(),
            case: case.to_owned(),
            who: who.to_owned(),
            metric: "cpu_per_request".to_owned(),
            value,
            unit: "µs".to_owned(),
            low: Some(value * 0.95),
            high: Some(value * 1.05),
            published,
            published_of: None,
        }
    }

    #[test]
    fn figures_have_three_digits_and_metrics_are_named_as_they_are_read() {
        assert_eq!(
            [0.0178, 0.369, 0.000_25, 0.0, -0.05].map(show),
            ["0.0178", "0.369", "0.000250", "0", "-0.0500"]
        );
        assert_eq!(
            ["battery_lte_modelled", "battery_wifi_modelled", "p99", "packets"].map(words),
            ["Battery LTE modelled", "Battery Wi-Fi modelled", "p99", "Packets"]
        );
    }

    #[test]
    fn a_table_is_a_matrix_with_the_published_figures_and_marked_losses() {
        let replay = Replay {
            rows: vec![
                row("20", "towpath", 24.0, Some(71.0)),
                row("20", "nginx", 20.0, None),
                Row {
                    published_of: Some("Envoy 1.7".to_owned()),
                    ..row("20", "envoy", 42.0, Some(36.0))
                },
                row("200", "towpath", 18.0, Some(34.0)),
                row("200", "nginx", 21.0, None),
                row("200", "envoy", 900.0, Some(25.0)),
            ],
            notes: vec!["A note.".to_owned()],
            made: None,
        };
        let page = replay.to_page("Replay", "towpath lab replay mosn");
        let markdown = page.to_markdown();
        assert!(
            markdown.contains(
                "| case | towpath | published, its subject | nginx | envoy | published, Envoy 1.7 |"
            ),
            "{markdown}"
        );
        assert!(
            markdown.contains("| 20 | 24.0 (22.8 – 25.2), behind | 71.0 | 20.0 (19.0 – 21.0) |"),
            "{markdown}"
        );
        let html = page.to_html();
        assert_eq!(html.matches("<figure").count(), 1, "one picture for the table");
        assert!(html.contains("class=\"n lost\"") && html.contains("class=\"n won\""));
        assert!(html.contains("The axis is logarithmic."));
        // A hollow dot is not the figure of the subject whose colour it has.
        let whose = "Hollow: published, its subject in the colour of towpath, Envoy 1.7 in the colour of envoy.";
        assert!(html.contains(whose), "{html}");
        assert!(
            html.find("A note.") > html.find("<figure"),
            "the picture comes before the small print"
        );
    }

    #[test]
    fn a_caption_tells_of_intervals_and_published_figures_where_there_are_any() {
        let measured = row("20", "towpath", 24.0, None);
        let once = Row { low: None, high: None, ..measured.clone() };
        let metric = measured.metric.clone();
        let caption = |row: &Row| Matrix::of(&[row], &metric).caption("a table", &metric, "µs");
        assert!(caption(&measured).ends_with("Filled: measured here, with 95 % intervals."));
        assert!(caption(&once).ends_with("Filled: measured here, too seldom for an interval."));
        let published = Row { published: Some(20.0), ..once };
        assert!(caption(&published).ends_with("for an interval. Hollow: published."));
    }

    #[test]
    fn a_page_of_a_files_figures_says_who_made_them() {
        let made = Made {
            command: "towpath lab replay mosn --json it.json".to_owned(),
            date: "2026-11-20T12:21:59Z".to_owned(),
            ..Made::now("")
        };
        let of = |command: &str| {
            Replay { made: None, ..Replay::default() }.to_page("", command).to_markdown()
        };
        assert!(of("the command").contains("the command"));
        let text = serde_json::to_string(&crate::about::describe(
            "replay",
            &made,
            Replay::default().to_json(),
        ));
        let read: Replay = serde_json::from_str(&text.unwrap()).unwrap();
        assert_eq!(read.made.as_ref(), Some(&made));
        let markdown = read.to_page("", "another command").to_markdown();
        assert!(
            markdown.contains(&made.command)
                && markdown.contains("2026-11-20T12:21:59Z. Drawn later")
        );
        assert!(!markdown.contains("another command"), "{markdown}");
    }

    #[test]
    fn cases_stand_in_the_order_of_their_numbers() {
        assert_eq!(
            in_order(vec!["20 % loss", "3G", "5 % loss", "100 % loss"]),
            ["5 % loss", "20 % loss", "100 % loss", "3G"]
        );
    }

    #[test]
    fn a_table_whose_rows_lie_apart_is_shown_and_counted_once() {
        let other = Row { table: "other".to_owned(), ..row("a", "none", 1.0, None) };
        let rows = vec![row("a", "towpath", 8.0, None), other, row("a", "envoy", 74.0, None)];
        let table = rows[0].table.clone();
        let markdown = Replay { rows, notes: Vec::new(), made: None }.to_page("", "").to_markdown();
        assert_eq!(markdown.matches(&format!("### {table}\n")).count(), 1, "{markdown}");
        assert!(markdown.contains("Towpath is ahead of the best peer"), "{markdown}");
    }

    #[test]
    fn rulers_stand_behind_what_they_measure() {
        let table = |table: &str| Row { table: table.to_owned(), ..row("a", "towpath", 8.0, None) };
        let rows = vec![table("rulers"), table("libatrace_rust")];
        let markdown = Replay { rows, ..Replay::default() }.to_page("", "").to_markdown();
        assert!(markdown.find("### rulers") > markdown.find("### libatrace_rust"), "{markdown}");
    }

    #[test]
    fn one_published_figure_for_all_has_one_column() {
        let rows =
            vec![row("a", "towpath", 8.0, Some(105.0)), row("a", "envoy", 74.0, Some(105.0))];
        let markdown = Replay { rows: rows.clone(), notes: Vec::new(), made: None }
            .to_page("", "")
            .to_markdown();
        let first = "\nCPU per request, µs:\n\n| case | towpath | envoy | published |";
        assert!(markdown.contains(first), "{markdown}");
        let html = Replay { rows, notes: Vec::new(), made: None }.to_page("", "").to_html();
        let hollow = html.matches("published: 105").count();
        assert_eq!(hollow, 2, "once, for each of the two screens");
    }
}
