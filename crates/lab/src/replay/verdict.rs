//! The sentence at the head of a replay's page: where Towpath is cheaper, where dearer, where nobody can tell.

use super::Row;

/// How Towpath did beside one other subject, over the cases of one metric.
#[derive(Default)]
struct Score {
    less: Vec<f64>,
    more: Vec<f64>,
    unclear: Vec<f64>,
}

/// One sentence for each metric that decides; where none was measured of Towpath, how much there is to read.
pub(super) fn verdict(rows: &[Row]) -> String {
    let sentences: Vec<String> =
        DECIDING.iter().filter_map(|(metric, words)| sentence(rows, metric, words)).collect();
    if sentences.is_empty() {
        let count = rows.iter().filter(|row| row.published.is_some()).count();
        return format!("{} figures, {count} of them beside the published ones", rows.len());
    }
    sentences.join(" ")
}

fn sentence(rows: &[Row], metric: &str, words: &str) -> Option<String> {
    let chosen: Vec<&Row> = rows.iter().filter(|row| row.metric == metric).collect();
    let mut others: Vec<&str> = Vec::new();
    for row in &chosen {
        let is_ours = row.who.starts_with(OURS);
        if !is_ours
            && !["none", "direct"].contains(&row.who.as_str())
            && !others.contains(&&*row.who)
        {
            others.push(&row.who);
        }
    }
    let parts: Vec<String> = others
        .into_iter()
        .filter_map(|other| Some(score(&chosen, other)?.in_words(other)))
        .collect();
    (!parts.is_empty()).then(|| format!("{words}, Towpath beside {}.", parts.join("; ")))
}

fn score(rows: &[&Row], other: &str) -> Option<Score> {
    let mut score = Score::default();
    // Who keeps connections is compared with whom.
    let ours = if other.ends_with("one client") { OURS_SHARED } else { OURS };
    for ours in rows.iter().filter(|row| row.who == ours) {
        let is_same =
            |row: &&&Row| row.who == other && row.case == ours.case && row.table == ours.table;
        let Some(theirs) = rows.iter().find(is_same).filter(|row| row.value > 0.0) else {
            continue;
        };
        let ratio = ours.value / theirs.value;
        let apart = |lower: &Row, higher: &Row| {
            lower.high.zip(higher.low).is_some_and(|(high, low)| high < low)
        };
        match () {
            () if apart(ours, theirs) => score.less.push(ratio),
            () if apart(theirs, ours) => score.more.push(ratio),
            () => score.unclear.push(ratio),
        }
    }
    (score.count() > 0).then_some(score)
}

impl Score {
    fn count(&self) -> usize {
        self.less.len() + self.more.len() + self.unclear.len()
    }

    fn in_words(&self, other: &str) -> String {
        let part = |ratios: &[f64], what: &str| {
            let low = ratios.iter().copied().fold(f64::INFINITY, f64::min);
            let high = ratios.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            (!ratios.is_empty())
                .then(|| format!("{what} in {} ({low:.2} to {high:.2} times)", ratios.len()))
        };
        let parts: Vec<String> = [
            part(&self.less, "less"),
            part(&self.more, "more"),
            part(&self.unclear, "not told apart"),
        ]
        .into_iter()
        .flatten()
        .collect();
        let count = self.count();
        let cases = if count == 1 { "case" } else { "cases" };
        format!("{other}, of {count} {cases}: {}", parts.join(", "))
    }
}

const OURS: &str = "towpath";
const OURS_SHARED: &str = "towpath, one engine";
/// Less is better in each of these.
const DECIDING: [(&str, &str); 3] = [
    ("cpu_per_request", "CPU per request"),
    ("after_recovery", "Time after the network returned"),
    ("time_per_success", "Time for each success"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn row(case: &str, who: &str, metric: &str, value: f64, spread: Option<f64>) -> Row {
        Row {
            table: "t".to_owned(),
            case: case.to_owned(),
            who: who.to_owned(),
            metric: metric.to_owned(),
            value,
            unit: "µs".to_owned(),
            low: spread.map(|spread| value - spread),
            high: spread.map(|spread| value + spread),
            published: None,
        }
    }

    #[test]
    fn it_says_where_we_win_lose_and_cannot_tell() {
        let metric = "cpu_per_request";
        let rows = [
            row("20", "towpath", metric, 10.0, Some(1.0)),
            row("20", "envoy", metric, 20.0, Some(1.0)),
            row("20", "nginx", metric, 10.5, Some(1.0)),
            row("200", "towpath", metric, 12.0, Some(1.0)),
            row("200", "envoy", metric, 30.0, Some(1.0)),
            row("200", "nginx", metric, 8.0, Some(1.0)),
            row("200", "none", metric, 1.0, Some(1.0)),
        ];
        assert_eq!(
            verdict(&rows),
            "CPU per request, Towpath beside envoy, of 2 cases: less in 2 (0.40 to 0.50 times); \
             nginx, of 2 cases: more in 1 (1.50 to 1.50 times), not told apart in 1 (0.95 to 0.95 times)."
        );
    }

    #[test]
    fn without_intervals_nothing_is_claimed() {
        let rows = [
            row("5 s", "towpath", "after_recovery", 0.4, None),
            row("5 s", "curl", "after_recovery", 8.0, None),
        ];
        assert!(
            verdict(&rows).contains("curl, of 1 case: not told apart in 1 (0.05 to 0.05 times)")
        );
        assert_eq!(verdict(&rows[1..]), "1 figures, 0 of them beside the published ones");
    }
}
