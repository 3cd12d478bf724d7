use super::chart::{Axis, Range, Scale, Screen};
use super::*;

fn page() -> Page {
    let mut page = Page::new("A <b> & \"c\"", "B costs more");
    page.heading("Cost");
    page.bars(
        "who paid",
        &Bars {
            unit: "µs".to_owned(),
            parts: vec!["client".to_owned(), "proxy".to_owned()],
            bars: vec![("A".to_owned(), vec![1.0, 2.0])],
            bands: vec![(2.5, 4.0)],
        },
    );
    let curve = |scale| Curves {
        x: Axis::new("share", scale),
        y: Axis::new("ms", Scale::Log),
        series: vec![Series {
            name: "A".to_owned(),
            points: vec![(0.0, 0.1), (0.5, 1.0), (0.999, 30.0)],
            is_dotted: false,
        }],
        marks: vec![(0.9, "knee".to_owned())],
    };
    for scale in [Scale::Linear, Scale::Log, Scale::Nines] {
        page.curves("curve", &curve(scale));
    }
    let dots = (0..100_000).map(|at| f64::from(at) / 1e4).collect();
    page.timeline(
        "wire",
        &Timeline {
            seconds: 10.0,
            tracks: vec![Track { name: "up".to_owned(), dots }],
            spans: vec![(1.0, 2.0, "outage".to_owned())],
        },
    );
    let mut table = Table::new(&["metric", "A|B"]);
    table.row(["p50", "1.0"]);
    page.table(table);
    page.code("towpath lab load");
    page
}

#[test]
fn a_page_is_one_small_file_that_loads_nothing_else() {
    let html = page().to_html();
    assert!(html.len() < 300_000, "{}", html.len());
    assert!(html.contains("A &lt;b&gt; &amp; &quot;c&quot;") && !html.contains("A <b>"));
    for address in ["src=", "href=", "url(", "@import", "fetch("] {
        assert!(!html.contains(address), "{address}");
    }
    assert_eq!(html.matches("<svg").count(), 2 * 5);
    assert_eq!(html.matches("<svg").count(), html.matches("</svg>").count());
    assert!(!html.contains("NaN") && !html.contains("inf"), "a chart has a hole");
}

#[test]
fn names_of_spans_do_not_run_into_each_other_or_out_of_the_picture() {
    let span = |from: f64, name: &str| (from, from, name.to_owned());
    let timeline = Timeline {
        seconds: 10.0,
        tracks: vec![Track { name: "up".to_owned(), dots: vec![1.0] }],
        spans: vec![
            span(2.0, "first"),
            span(2.1, "second"),
            span(5.0, "third"),
            span(9.99, "at the end"),
        ],
    };
    let svg = timeline.draw(Screen::Wide);
    let drawn = |name: &str| svg.contains(&format!(">{name}</text>"));
    assert_eq!(["first", "second", "third"].map(drawn), [true, false, true]);
    assert!(svg.contains("<title>second</title>"), "it is told all the same");
    let end = svg.split("<text x=\"").find(|text| text.contains(">at the end<")).unwrap();
    let x: f64 = end.split('"').next().unwrap().parse().unwrap();
    assert!(x < Screen::Wide.width() - 60.0, "{x}");
}

#[test]
fn charts_survive_nothing_and_nonsense() {
    for points in
        [vec![], vec![(f64::NAN, 1.0)], vec![(0.0, 0.0)], vec![(1.0, f64::INFINITY), (2.0, -1.0)]]
    {
        for scale in [Scale::Linear, Scale::Log, Scale::Nines] {
            let series = vec![Series { points: points.clone(), ..Series::default() }];
            let svg = Curves {
                x: Axis::new("x", scale),
                y: Axis::new("y", scale),
                series,
                marks: Vec::new(),
            }
            .draw(Screen::Narrow);
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{points:?} {scale:?}");
        }
    }
    assert!(!Bars::default().draw(Screen::Wide).contains("NaN"));
    assert!(!Timeline::default().draw(Screen::Wide).contains("NaN"));
}

#[test]
fn a_logarithmic_axis_ends_near_what_it_shows() {
    let axis = |values: &[f64]| {
        let range = Range::of(values.iter().copied(), Scale::Log);
        let labels = range.ticks().into_iter().map(|(_, label)| label);
        (range.share(values[0]), labels.collect::<Vec<_>>().join(" "))
    };
    assert_eq!(axis(&[50.0, 59.0, 100.0]), (0.0, "50 100".to_owned()));
    assert_eq!(axis(&[1.0, 1.0]), (0.0, "1 2 5 10".to_owned()));
    assert_eq!(axis(&[0.2, 18.0]).1, "0.2 0.5 1 2 5 10 20");
    assert_eq!(axis(&[0.2, 180.0]).1, "1 10 100");
    let (share, labels) = axis(&[0.3, 0.4]);
    assert!(labels == "0.2 0.5" && (0.4..0.5).contains(&share), "{share} {labels}");
}

#[test]
fn markdown_keeps_the_words_and_the_numbers() {
    let text = page().to_markdown();
    assert!(
        text.starts_with("## A <b>")
            && text.contains("| p50 | 1.0 |")
            && text.contains("```\ntowpath lab load\n```")
    );
}

#[test]
fn markdown_has_no_heading_over_nothing() {
    let text = page().to_markdown();
    assert!(text.contains("### Cost"), "its table follows the charts: {text}");
    let mut page = Page::new("Title", "verdict");
    page.heading("Drawn");
    page.bars("only drawn", &Bars::default());
    page.heading("Said");
    page.text("words");
    let text = page.to_markdown();
    assert!(!text.contains("Drawn") && text.contains("### Said"), "{text}");
}

#[test]
fn a_long_command_is_whole_in_print() {
    assert!(page().to_html().contains(
        "pre{background:var(--wash);padding:.8rem 1rem;font-size:.85rem;white-space:pre-wrap;"
    ));
}

#[test]
fn a_number_and_its_unit_are_on_one_line() {
    assert_eq!(
        in_sentences("+66.0 % (+50 to 80.6 %) in 3 s, at 5 Mbit/s"),
        "+66.0&nbsp;% (+50 to 80.6&nbsp;%) in 3&nbsp;s, at 5&nbsp;Mbit/s"
    );
    assert_eq!(in_sentences("each bit ± 30 %"), "each bit ±&nbsp;30&nbsp;%");
    assert_eq!(in_sentences("2 services < 3 s/day, a %"), "2 services &lt; 3 s/day, a %");
}
