//! Every page: where things lie, by computation, and in a real browser: each chart is drawn, no script fails, nothing
//! is asked of the network.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod browser;
mod layout;
mod style;

use std::time::Duration;

use browser::Browser;
use layout::{complaints, complaints_of_style};
use serde_json::Value;
use style::Medium;
use towpath_lab::compare::{Comparison, Conclusion, Experiment, Metric, MetricEffect, Run, Wire};
use towpath_lab::knee::{Search, search};
use towpath_lab::link::{Circumstances, Fate, Record, Report, Traffic};
use towpath_lab::load::{Arrivals, Outcome, Plan, run};
use towpath_lab::origin::{Origin, spawn};
use towpath_lab::replay::{Replay, Row};
use towpath_lab::report::{Axis, Curves, Page, Scale, Series};
use towpath_lab::stats::{Pair, Verdict, paired_effect};
use towpath_proto::time::Instant;
use towpath_sim::link::Direction;

#[test]
fn everything_is_in_sight_on_desktops_telephones_and_paper() {
    let mut all = Vec::new();
    for (name, page) in all_pages() {
        let html = page.to_html();
        for medium in MEDIA {
            let complaints = complaints(&html, medium).into_iter();
            all.extend(complaints.map(|it| format!("{name}, {medium:?}: {it}")));
        }
    }
    assert_eq!(all, Vec::<String>::new());
}

const MEDIA: [Medium; 3] = [Medium::Screen(1280.0), Medium::Screen(390.0), Medium::Paper];

/// Parts of the style, what stands there without a mend, and what is said then.
const MENDS: [(&str, &str, &str); 21] = [
    ("white-space:pre-wrap;", "", "a command is cut off"),
    ("overflow-wrap:anywhere", "", "a long word"),
    (".wide{display:none}", "", "charts"),
    (".narrow{display:none}", "", "charts"),
    (".narrow{display:block}", "", "charts"),
    (".t{overflow-x:auto;", ".t{", "cannot be scrolled to"),
    ("overflow:visible!important;", "", "a scroll bar on paper"),
    ("background:none!important;", "", "a shadow on paper"),
    ("break-inside:avoid}th,td{", "}th,td{", "a table is torn apart"),
    ("figure,tr{break-inside:avoid}", "", "a row is torn apart"),
    ("h2{break-after:avoid}", "", "a heading at the end"),
    ("summary{break-after:avoid;", "summary{", "a table's name at the end"),
    ("content-visibility:visible;", "", "a folded table"),
    ("table{font-size:.65rem!important}", "", "a table is cut off"),
    ("td.w{white-space:normal;", "td.w{", "a figure is not beside its name"),
    ("position:sticky;", "", "names scroll out of sight"),
    (".n{text-align:right;", ".n{", "figures do not stand"),
    (".i{white-space:nowrap}", "", "an interval is torn apart"),
    (".many .i,.many td.w{white-space:normal}", "", "a table is cut off"),
    (".many th,.many td{", ".x{", "a table is cut off"),
    ("main{max-width:66rem;", "main{max-width:50rem;", "a table is cut off"),
];

#[test]
fn what_the_style_mends_is_missed_when_it_is_gone() {
    let pages: Vec<String> = all_pages().into_iter().map(|(_, page)| page.to_html()).collect();
    let mut silent = Vec::new();
    for (mend, before, why) in MENDS {
        assert!(pages.iter().all(|html| html.contains(mend)), "the style has no {mend}");
        let says = |html: &String| {
            let html = html.replacen(mend, before, 1);
            MEDIA.iter().flat_map(|it| complaints_of_style(&html, *it)).any(|it| it.contains(why))
        };
        if !pages.iter().any(says) {
            silent.push(mend);
        }
    }
    assert_eq!(silent, Vec::<&str>::new(), "no page misses these");
}

#[test]
#[ignore = "needs Chromium"]
fn every_page_is_drawn_whole_without_the_network() {
    let mut browser = Browser::launch();
    for (name, page, charts, width) in both([
        ("load", load_page(), 2),
        ("knee", knee_page(), 2),
        ("compare", comparison_page(), 7),
        ("link", link_page(), 4),
        ("replay", replay_page(), 2),
    ]) {
        browser.resize(width);
        let html = page.to_html();
        assert!(html.len() < 300_000, "{name}: {} bytes", html.len());
        let visit = browser.visit(name, &html, SURVEY);
        assert_eq!(visit.complaints, Vec::<String>::new(), "{name}");
        assert_eq!(
            visit.requests,
            std::slice::from_ref(&visit.address),
            "{name}: only the page itself"
        );
        let figures = visit.result["figures"].as_array().unwrap();
        assert_eq!(figures.len(), charts, "{name}");
        for figure in figures {
            let title = &figure["title"];
            assert!(figure["width"].as_f64().unwrap() > 300.0, "{name}: {title} has no room");
            assert!(figure["marks"].as_u64().unwrap() > 0, "{name}: {title} shows nothing");
            assert_eq!(figure["outside"], Value::Array(Vec::new()), "{name}: {title} is cut off");
        }
        assert_eq!(visit.result["hides"], true, "{name}: a click on a name hides its series");
        assert_eq!(visit.result["overflows"], false, "{name}: wider than {width}");
    }
}

#[test]
#[ignore = "needs Chromium"]
fn a_page_that_breaks_the_rules_is_noticed() {
    let mut browser = Browser::launch();
    let visit = browser.visit(
        "bad",
        "<!doctype html><img src=\"http://127.0.0.1:1/x.png\"><script>missing()</script>",
        "({})",
    );
    assert!(visit.complaints.iter().any(|text| text.contains("missing is not defined")));
    assert!(visit.requests.iter().any(|address| address.contains("127.0.0.1:1/x.png")));
}

/// Pages of every kind, with names and figures as long as those of real ones.
fn all_pages() -> Vec<(&'static str, Page)> {
    vec![
        ("load", load_page()),
        ("knee", knee_page()),
        ("compare", comparison_page()),
        ("link", link_page()),
        ("replay", replay_page()),
        ("a replay of many", replay_of_many()),
        ("curves", curves_page()),
    ]
}

/// Each page on a desktop and on a telephone.
fn both<const N: usize>(
    pages: [(&str, Page, usize); N],
) -> impl Iterator<Item = (&str, Page, usize, u32)> {
    pages.into_iter().flat_map(|(name, page, charts)| {
        [1280, 390].map(|width| (name, page.clone(), charts, width))
    })
}

/// What a reader would see of each chart.
const SURVEY: &str = r#"(() => {
  const figures = [...document.querySelectorAll('figure > svg')].filter(svg => svg.checkVisibility()).map(svg => {
    const box = svg.viewBox.baseVal;
    const drawn = [...svg.querySelectorAll('rect, path, polyline, circle')].filter(it => {
      if (it.closest('[data-key]')) return false;
      const size = it.getBBox();
      return size.width > 0 || size.height > 0 || it.getTotalLength?.() >= 0 && it.getAttribute('d');
    });
    const outside = [...svg.querySelectorAll('text')].filter(it => {
      const size = it.getBBox();
      return size.x < -1 || size.x + size.width > box.width + 1 || size.y + size.height > box.height + 1;
    }).map(it => it.textContent);
    return { title: svg.getAttribute('aria-label'), width: svg.getBoundingClientRect().width,
             marks: drawn.length, outside };
  });
  const key = [...document.querySelectorAll('svg [data-key]')].find(key => key.checkVisibility());
  const name = key.getAttribute('data-key');
  key.dispatchEvent(new MouseEvent('click', { bubbles: true }));
  const series = [...key.ownerSVGElement.querySelectorAll(`[data-series="${name}"]`)];
  const hides = series.length > 0 && series.every(it => it.style.display === 'none');
  return { figures, hides, overflows: document.documentElement.scrollWidth > window.innerWidth };
})()"#;

fn outcome(delay: Duration) -> (Plan, Outcome) {
    let local = "127.0.0.1:0".parse().unwrap();
    let server = spawn(&Origin { delay, ..Origin::http(local, 100) }).unwrap();
    let mut plan = Plan::new(server.address().clone().into());
    plan.arrivals = Arrivals::Poisson { rate: 500.0 };
    plan.duration = Duration::from_millis(400);
    plan.pids = vec![std::process::id()];
    plan.payers = vec![("a service with a long name".to_owned(), plan.pids.clone())];
    let outcome = run(&plan).unwrap();
    (plan, outcome)
}

fn load_page() -> Page {
    let (plan, outcome) = outcome(Duration::ZERO);
    outcome.to_page(&plan, "towpath lab load")
}

fn knee_page() -> Page {
    let delay = Duration::from_millis(5);
    let local = "127.0.0.1:0".parse().unwrap();
    let server = spawn(&Origin { delay, ..Origin::http(local, 100) }).unwrap();
    let mut plan = Plan::new(server.address().clone().into());
    (plan.connections, plan.duration) = (2, Duration::from_millis(100));
    let it = Search {
        plan,
        percentile: 0.9,
        objective: Duration::from_millis(20),
        from: 50.0,
        to: 1600.0,
        precision: 0.5,
    };
    search(&it, &mut |_| ()).unwrap().to_page(&it, "towpath lab knee")
}

fn comparison_page() -> Page {
    let file = include_str!("experiment.toml");
    let experiment = Experiment::parse(file).unwrap();
    let (a, b) = (outcome(Duration::ZERO).1, outcome(Duration::from_millis(2)).1);
    let run_of = |pair, arm, outcome: &Outcome| Run {
        pair,
        arm,
        values: Metric::ALL.map(|metric| (metric, metric.of(outcome))).into(),
        errors: 0,
        warnings: Vec::new(),
    };
    let runs = (0..3).flat_map(|pair| [run_of(pair, "a", &a), run_of(pair, "b", &b)]);
    let pairs = [1.1, 1.2, 1.15].map(|b| Pair { a: 1.0, b, is_b_first: false });
    let effect = paired_effect(&pairs, 1).unwrap();
    let wire = || Wire { packets: packets(), duration: Duration::from_secs(20) };
    let comparison = Comparison {
        conclusion: Conclusion::Inconclusive,
        effects: Metric::ALL
            .map(|metric| MetricEffect {
                metric,
                effect,
                p_corrected: 0.2,
                verdict: Verdict::Inconclusive,
            })
            .into(),
        noise: Some(effect),
        noise_verdict: Some(Verdict::Inconclusive),
        runs: runs.collect(),
        merged: (a, b),
        wires: Some((wire(), wire())),
    };
    comparison.to_page(&experiment, "towpath lab compare")
}

fn link_page() -> Page {
    let (up, down) = packets().into_iter().partition(|packet| packet.direction == Direction::Up);
    let report = Report {
        up: traffic(Direction::Up, up),
        down: traffic(Direction::Down, down),
        calibration: None,
        hidden_drops: 1,
        is_realtime: false,
        backend: "tun",
    };
    report.to_page(&Circumstances {
        duration: Duration::from_secs(20),
        spans: vec![(Duration::from_secs(5), Duration::from_secs(8), "outage".to_owned())],
        conditions: "Down: 780 kbit/s.".to_owned(),
        command: "towpath lab link".to_owned(),
    })
}

fn replay_page() -> Page {
    let row = |table: &str, case: usize, who: &str| Row {
        table: table.to_owned(),
        case: format!("a chain of three services, replication {case}, unthrottled"),
        who: who.to_owned(),
        metric: "cpu_per_request".to_owned(),
        value: 100.0 * case as f64,
        unit: "µs".to_owned(),
        low: Some(90.0 * case as f64),
        high: Some(120.0 * case as f64),
        published: Some(105.0),
        published_of: None,
    };
    let rows = ["one", "two"].iter().flat_map(|table| {
        (1..4).flat_map(move |case| ["towpath", "envoy"].map(|who| row(table, case, who)))
    });
    let replay = Replay { rows: rows.collect(), notes: vec!["A note.".to_owned()], made: None };
    replay.to_page("Replay: test", "towpath lab replay")
}

/// Nine subjects, long names, and figures over seven powers of ten, as a replay with all of its peers has.
fn replay_of_many() -> Page {
    const WHOS: [&str; 9] = [
        "towpath",
        "towpath, layer",
        "towpath, markers",
        "libatrace-like",
        "fastrace",
        "Tracy",
        "perfetto-recorder",
        "tracing-chrome",
        "opentelemetry",
    ];
    let row = |table: &str, metric: &str, case: String, at: usize| Row {
        table: table.to_owned(),
        case,
        who: WHOS[at].to_owned(),
        metric: metric.to_owned(),
        value: 0.0123 * 6.1_f64.powi(at as i32),
        unit: "ns".to_owned(),
        low: Some(0.0119 * 6.1_f64.powi(at as i32)),
        high: Some(0.0131 * 6.1_f64.powi(at as i32)),
        published: (at == 0).then_some(1480.5),
        published_of: (at == 0).then(|| "libatrace_rust".to_owned()),
    };
    let cases = ["tracing_on_begin/1000", "tracing_off_span_args, an average of cases", "end"];
    let tables =
        [("A table of the report", "time"), ("Another", "p99"), ("Another", "lost_requests")];
    let rows = tables.iter().flat_map(|(table, metric)| {
        let cases = cases.iter().enumerate();
        cases.flat_map(move |(number, case)| {
            (0..WHOS.len()).map(move |at| row(table, metric, format!("{case} {number}"), at))
        })
    });
    let replay = Replay { rows: rows.collect(), notes: Vec::new(), made: None };
    replay
        .to_page("Replay: many", "towpath lab replay atrace --json figures.json --report page.html")
}

/// Axes whose last numbers are long and stand at the edge.
fn curves_page() -> Page {
    let mut page = Page::new("Curves", "None is cut off.");
    let points = [(0.0, 0.02), (0.9, 3.0), (0.9999, 40_000.0)];
    for (name, scale) in [("percentile", Scale::Nines), ("requests per second", Scale::Linear)] {
        let at = if scale == Scale::Nines { 1.0 } else { 1e6 };
        let points: Vec<_> = points.iter().map(|(x, y)| (x * at, *y)).collect();
        let series = ["A, as it was", "B, with the change that is asked about"];
        let series = series.map(|name| Series {
            name: name.to_owned(),
            points: points.clone(),
            is_dotted: false,
        });
        let (x, y) = (Axis::new(name, scale), Axis::new("milliseconds", Scale::Log));
        let marks = vec![(0.9999 * at, "the knee".to_owned())];
        page.curves(name, &Curves { x, y, series: series.into(), marks });
    }
    page
}

/// As many packets as a busy run has, some of them lost: too much for a radio of the third generation, and no other.
fn packets() -> Vec<Record> {
    let packet = |number: u64| {
        let at = Instant::from_nanos(number * 200_000);
        let fate = match number % 50 {
            0 => Fate::Lost,
            1 => Fate::QueueFull,
            _ => Fate::Delivered(at + Duration::from_millis(20 + number % 30)),
        };
        let (direction, size) = match number % 3 {
            0 => (Direction::Up, 400),
            _ => (Direction::Down, 1000),
        };
        Record { at, direction, size, fate }
    };
    (0..100_000).map(packet).collect()
}

fn traffic(direction: Direction, log: Vec<Record>) -> Traffic {
    let delivered = log.iter().filter(|it| matches!(it.fate, Fate::Delivered(_))).count() as u64;
    let packets = log.len() as u64;
    Traffic {
        packets,
        bytes: packets * 1000,
        delivered,
        delivered_bytes: delivered * 1000,
        lost: packets - delivered,
        log,
        ..Traffic::new(direction)
    }
}
