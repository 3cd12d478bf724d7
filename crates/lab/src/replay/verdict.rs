//! What a replay shows, in one sentence: where Towpath is ahead, where it is behind, and where the figures do not tell.

use super::Row;
use super::page::distinct;

/// Where Towpath stands in one case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rank {
    /// Its interval lies on the better side of every peer's.
    Ahead,
    /// The best peer's interval lies on the better side of its own.
    Behind,
    /// Neither.
    Unclear,
}

/// Counts cases by rank, with the ratio of each to the best peer.
#[derive(Default)]
struct Tally {
    ahead: Vec<f64>,
    behind: Vec<f64>,
    unclear: Vec<f64>,
    /// Cases without an interval, in which nothing can be told apart.
    seldom: usize,
}

/// The sentence for all rows.
pub(super) fn verdict(rows: &[Row]) -> String {
    let mut tally = Tally::default();
    let mut words: Vec<&str> = Vec::new();
    for table in distinct(rows.iter().map(|row| row.table.as_str())) {
        let of_table: Vec<&Row> = rows.iter().filter(|row| row.table == table).collect();
        let Some((metric, name)) = LEADING.iter().find(|(metric, _)| {
            of_table.iter().any(|row| row.metric == *metric && rank(&of_table, row).is_some())
        }) else {
            continue;
        };
        if !words.contains(name) {
            words.push(name);
        }
        for row in of_table.iter().filter(|row| row.metric == *metric) {
            let Some((rank, ratio)) = rank(&of_table, row) else { continue };
            tally.seldom += usize::from(row.low.is_none() || row.high.is_none());
            // How many times one change is another says nothing.
            let ratio = if metric.ends_with("_change") { f64::NAN } else { ratio };
            match rank {
                Rank::Ahead => tally.ahead.push(ratio),
                Rank::Behind => tally.behind.push(ratio),
                Rank::Unclear => tally.unclear.push(ratio),
            }
        }
    }
    tally
        .sentence(&together(&words))
        .or_else(|| beside_published(rows))
        .unwrap_or_else(|| format!("{} figures, none of them beside a peer's", rows.len()))
}

/// "A, b and c".
fn together(words: &[&str]) -> String {
    let mut all = String::new();
    for (index, word) in words.iter().enumerate() {
        all += match index {
            0 => "",
            _ if index + 1 == words.len() => " and ",
            _ => ", ",
        };
        let is_abbreviation = word.chars().nth(1).is_some_and(char::is_uppercase);
        if index == 0 || is_abbreviation {
            all += word;
        } else {
            all += &word.to_lowercase();
        }
    }
    all
}

/// Without a peer: how many of our figures are better than the published ones.
fn beside_published(rows: &[Row]) -> Option<String> {
    let of = |metric: &str| -> Vec<(f64, f64)> {
        let ours = rows.iter().filter(|row| row.who.starts_with(OURS) && row.metric == metric);
        ours.filter_map(|row| Some((row.value, row.published?))).collect()
    };
    let (metric, name, pairs) = LEADING
        .iter()
        .map(|(metric, name)| (*metric, *name, of(metric)))
        .find(|it| !it.2.is_empty())?;
    let is_better = |&&(ours, published): &&(f64, f64)| match MORE_IS_BETTER.contains(&metric) {
        true => ours > published,
        false => ours < published,
    };
    let better = pairs.iter().filter(is_better).count();
    Some(format!(
        "{name}: no peer was run; {better} of {} figures are better than the published ones, which \
         another machine gave.",
        pairs.len()
    ))
}

/// Where one of our rows stands against its peers, and the ratio to the best of them; `None` for other rows, and
/// where there is no peer.
pub(super) fn rank(rows: &[&Row], ours: &Row) -> Option<(Rank, f64)> {
    if !ours.who.starts_with(OURS) {
        return None;
    }
    let is_more_better = MORE_IS_BETTER.contains(&ours.metric.as_str());
    // A client that keeps its connections is compared with others that do.
    let keeps = |who: &str| who == OURS_SHARED || who.ends_with("one client");
    // A marker is a system call: what writes one is compared with what writes one.
    let writes_markers = |who: &str| MARKERS.contains(&who);
    let peers = rows.iter().filter(|row| {
        row.table == ours.table
            && row.case == ours.case
            && row.metric == ours.metric
            && !row.who.starts_with(OURS)
            && !BASES.contains(&row.who.as_str())
            && keeps(&row.who) == keeps(&ours.who)
            && (!writes_markers(&ours.who) || writes_markers(&row.who))
    });
    let key = |row: &&&Row| if is_more_better { -row.value } else { row.value };
    let best = peers.min_by(|a, b| key(a).total_cmp(&key(b)))?;
    let apart = |lower: &Row, higher: &Row| {
        lower.high.zip(higher.low).is_some_and(|(high, low)| high < low)
    };
    let rank = match (apart(ours, best), apart(best, ours)) {
        (true, _) if is_more_better => Rank::Behind,
        (true, _) => Rank::Ahead,
        (_, true) if is_more_better => Rank::Ahead,
        (_, true) => Rank::Behind,
        (false, false) => Rank::Unclear,
    };
    Some((rank, ours.value / best.value))
}

impl Tally {
    fn sentence(&self, words: &str) -> Option<String> {
        let count = self.ahead.len() + self.behind.len() + self.unclear.len();
        if count == 0 {
            return None;
        }
        let range = |ratios: &[f64]| {
            let finite =
                || ratios.iter().copied().filter(|ratio| ratio.is_finite() && *ratio > 0.0);
            let low = finite().fold(f64::INFINITY, f64::min);
            let high = finite().fold(f64::NEG_INFINITY, f64::max);
            let (low, high) = (format!("{low:.2}"), format!("{high:.2}"));
            let range = if low == high { low } else { format!("{low} to {high}") };
            finite().next().map_or_else(String::new, |_| format!(" ({range} times)"))
        };
        if self.unclear.len() == count && count > 1 {
            let why = match self.seldom {
                0 => String::new(),
                all if all == count => ", for each was run too seldom for an interval".to_owned(),
                some => format!(", and {some} of them were run too seldom for an interval"),
            };
            return Some(format!(
                "{words}: none of {count} cases tells Towpath from the best peer{}{why}.",
                range(&self.unclear)
            ));
        }
        if count == 1 {
            let [ahead, behind, unclear] = [&self.ahead, &self.behind, &self.unclear];
            let where_it_is = match (ahead.is_empty(), behind.is_empty()) {
                (false, _) => format!("ahead of the best peer{}", range(ahead)),
                (_, false) => format!("behind the best peer{}", range(behind)),
                (true, true) => format!("not told apart from the best peer{}", range(unclear)),
            };
            return Some(format!("{words}: Towpath is {where_it_is}."));
        }
        let part = |ratios: &[f64], what: &str| {
            (!ratios.is_empty()).then(|| format!("{what} in {}{}", ratios.len(), range(ratios)))
        };
        let parts: Vec<String> = [
            part(&self.ahead, "ahead"),
            part(&self.behind, "behind"),
            part(&self.unclear, "not told apart"),
        ]
        .into_iter()
        .flatten()
        .collect();
        let parts = parts.join(", ");
        let seldom = match self.seldom {
            some if some > 0 => {
                format!("; {some} of them too seldom run for an interval")
            }
            _ => String::new(),
        };
        Some(format!("{words}: beside the best peer of {count} cases Towpath is {parts}{seldom}."))
    }
}

const OURS: &str = "towpath";
const MARKERS: [&str; 2] = ["towpath ATrace", "libatrace-like"];
const OURS_SHARED: &str = "towpath, one engine";
/// Not peers: nothing is in their place.
const BASES: [&str; 4] = ["none", "direct", "the link's arithmetic", "published"];
const MORE_IS_BETTER: [&str; 4] = ["rate", "rate_change", "successes", "throughput"];
/// What a table is about: the first of these that it has.
pub(super) const LEADING: [(&str, &str); 6] = [
    ("cpu_per_request_change", "CPU per request"),
    ("cpu_per_request", "CPU per request"),
    ("after_recovery", "Time after the network returned"),
    ("time_per_success", "Time for each success"),
    ("time_per_request", "Time for each request"),
    ("time", "Time"),
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
            published_of: None,
        }
    }

    #[test]
    fn it_says_where_we_win_lose_and_cannot_tell() {
        let metric = "cpu_per_request";
        let rows = [
            row("20", "towpath", metric, 10.0, Some(1.0)),
            row("20", "envoy", metric, 20.0, Some(1.0)),
            row("40", "towpath", metric, 10.0, Some(1.0)),
            row("40", "nginx", metric, 10.5, Some(1.0)),
            row("200", "towpath", metric, 12.0, Some(1.0)),
            row("200", "envoy", metric, 30.0, Some(1.0)),
            row("200", "nginx", metric, 8.0, Some(1.0)),
            row("200", "none", metric, 1.0, Some(0.1)),
            row("200", "towpath", "rate", 12.0, Some(1.0)),
        ];
        assert_eq!(
            verdict(&rows),
            "CPU per request: beside the best peer of 3 cases Towpath is ahead in 1 (0.50 times), behind in 1 \
             (1.50 times), not told apart in 1 (0.95 times)."
        );
    }

    #[test]
    fn what_the_tables_are_about_reads_as_one_sentence() {
        assert_eq!(together(&["Time for each success"]), "Time for each success");
        let three = ["Time for each success", "CPU per request", "Time after the network returned"];
        let read = "Time for each success, CPU per request and time after the network returned";
        assert_eq!(together(&three), read);
    }

    #[test]
    fn nothing_told_apart_is_said_once_and_why() {
        let rows = ["5 s", "10 s"].map(|case| {
            [("towpath", 0.4), ("curl", 8.0)]
                .map(|(who, value)| row(case, who, "after_recovery", value, None))
        });
        assert_eq!(
            verdict(&rows.concat()),
            "Time after the network returned: none of 2 cases tells Towpath from the best peer (0.05 times), for \
             each was run too seldom for an interval."
        );
    }

    #[test]
    fn cases_that_were_run_too_seldom_are_counted() {
        let metric = "cpu_per_request";
        let case = |name, spread| {
            [("towpath", 10.0), ("envoy", 10.2)]
                .map(|(who, value)| row(name, who, metric, value, spread))
        };
        let told = verdict(&[case("20", Some(1.0)), case("40", None), case("80", None)].concat());
        assert!(
            told.ends_with("(0.98 times), and 2 of them were run too seldom for an interval."),
            "{told}"
        );
        let far = [("towpath", 1.0), ("envoy", 9.0)]
            .map(|(who, value)| row("a", who, metric, value, Some(0.5)));
        let told = verdict(&[far, case("40", None)].concat());
        assert!(told.ends_with("; 1 of them too seldom run for an interval."), "{told}");
    }

    #[test]
    fn more_requests_are_better_and_kept_connections_meet_their_like() {
        let rows = [
            row("a", "towpath", "rate", 100.0, Some(1.0)),
            row("a", "envoy", "rate", 50.0, Some(1.0)),
            row("b", "towpath, one engine", "time_per_success", 2.0, Some(0.1)),
            row("b", "okhttp", "time_per_success", 1.0, Some(0.1)),
            row("b", "okhttp, one client", "time_per_success", 3.0, Some(0.1)),
        ];
        let all: Vec<&Row> = rows.iter().collect();
        assert_eq!(rank(&all, &rows[0]).map(|it| it.0), Some(Rank::Ahead));
        assert_eq!(rank(&all, &rows[2]).map(|it| it.0), Some(Rank::Ahead));
        assert_eq!(rank(&all, &rows[1]), None, "only ours stand somewhere");
    }

    #[test]
    fn markers_are_compared_with_markers() {
        let rows = [
            row("on", "towpath ATrace", "time", 300.0, Some(1.0)),
            row("on", "libatrace-like", "time", 500.0, Some(1.0)),
            row("on", "Tracy", "time", 30.0, Some(1.0)),
            row("on", "towpath ring", "time", 10.0, Some(1.0)),
        ];
        let all: Vec<&Row> = rows.iter().collect();
        assert_eq!(rank(&all, &rows[0]), Some((Rank::Ahead, 0.6)));
        assert_eq!(rank(&all, &rows[3]).map(|it| it.0), Some(Rank::Ahead));
    }

    #[test]
    fn without_intervals_nothing_is_claimed() {
        let rows = [
            row("5 s", "towpath", "after_recovery", 0.4, None),
            row("5 s", "curl", "after_recovery", 8.0, None),
        ];
        assert!(
            verdict(&rows).contains("Towpath is not told apart from the best peer (0.05 times)")
        );
        assert_eq!(verdict(&rows[1..]), "1 figures, none of them beside a peer's");
        let published =
            |value| Row { published: Some(5.0), ..row("on", "towpath", "time", value, None) };
        assert_eq!(
            verdict(&[published(1.0), published(6.0)]),
            "Time: no peer was run; 1 of 2 figures are better than the published ones, which another machine gave."
        );
    }
}
