//! The receipt as a page that needs nothing else.

use std::fmt::Write;

use towpath_lab::report::escape;

use super::receipt::{QUANTILES, Receipt, Totals, megabytes, micros, spread};

/// The page.
pub(super) fn page(receipt: &Receipt) -> String {
    let Receipt { straight, through, .. } = receipt;
    let mut rows = String::new();
    for ((name, quantile), added) in QUANTILES.iter().zip(&receipt.added) {
        let at = |totals: &Totals| {
            format!("{:.0} µs", micros(totals.latency.quantile(*quantile) as f64))
        };
        row(
            &mut rows,
            &format!("latency {name}"),
            [
                &at(straight),
                &at(through),
                &format!("{:.0} µs", micros(added.estimate)),
                &spread(added),
            ],
        );
    }
    for (name, cost) in
        [("CPU client", Totals::client as fn(&Totals) -> f64), ("CPU origin", Totals::origin)]
    {
        let (a, b) = (cost(straight), cost(through));
        row(
            &mut rows,
            name,
            [
                &format!("{a:.1} µs"),
                &format!("{b:.1} µs"),
                &format!("{:.1} µs", b - a),
                "for each request",
            ],
        );
    }
    let cpu = through.sidecar_cpu_ns as f64 / through.answered.max(1) as f64;
    row(
        &mut rows,
        "CPU sidecar",
        ["", &format!("{:.1} µs", micros(cpu)), "", &spread(&receipt.sidecar_cpu)],
    );
    let idle =
        format!("{:.1} MB before the first request", megabytes(receipt.run.idle_memory.rss_bytes));
    row(
        &mut rows,
        "memory sidecar",
        ["", &format!("{:.1} MB", megabytes(through.sidecar_rss)), "", &idle],
    );
    let conditions: String =
        receipt.conditions().iter().map(|line| format!("<li>{}</li>\n", escape(line))).collect();
    format!(
        "<!DOCTYPE html>\n<html lang=en><meta charset=utf-8><title>Towpath receipt</title>\n<style>{STYLE}</style>\n\
         <h1>What this sidecar costs</h1>\n<p>{}</p>\n\
         <p class=big>{:.3} vCPU at 1,000 requests/s, {:.0} µs added at the median</p>\n\
         <table><tr><th></th><th>straight</th><th>sidecar</th><th>added</th><th>95 % \
         interval</th></tr>\n{rows}</table>\n{}\n\
         <ul>\n{conditions}</ul></html>\n",
        escape(&receipt.title()),
        receipt.vcpu_at_1000(),
        micros(receipt.added[0].estimate),
        chart(straight, through),
    )
}

fn row(rows: &mut String, name: &str, cells: [&str; 4]) {
    let cells: String = cells.iter().map(|cell| format!("<td>{}</td>", escape(cell))).collect();
    let _ = writeln!(rows, "<tr><th>{name}</th>{cells}</tr>");
}

/// Latency over the share of requests, both axes logarithmic: 0, 90, 99, 99.9 % stand at even steps.
fn chart(straight: &Totals, through: &Totals) -> String {
    let shares: Vec<f64> = (0..=60).map(|step| 1.0 - 10f64.powf(-f64::from(step) / 20.0)).collect();
    let values = |totals: &Totals| -> Vec<f64> {
        shares.iter().map(|share| micros(totals.latency.quantile(*share) as f64).max(1.0)).collect()
    };
    let (a, b) = (values(straight), values(through));
    let low = a.iter().chain(&b).copied().fold(f64::INFINITY, f64::min);
    let high = a.iter().chain(&b).copied().fold(1.0, f64::max).max(low * 1.1);
    let y = |value: f64| HEIGHT - (value / low).ln() / (high / low).ln() * HEIGHT;
    let line = |values: &[f64], class: &str| {
        let points: String = values
            .iter()
            .enumerate()
            .map(|(step, value)| format!("{:.1},{:.1} ", step as f64 / 60.0 * WIDTH, y(*value)))
            .collect();
        format!("<polyline class={class} points='{points}'/>")
    };
    let ticks: String = ["0", "90", "99", "99.9"]
        .iter()
        .enumerate()
        .map(|(index, name)| {
            let x = index as f64 / 3.0 * WIDTH;
            format!(
                "<line x1={x:.0} x2={x:.0} y1=0 y2={HEIGHT} /><text x={x:.0} y={}>{name} %</text>",
                HEIGHT + 16.0
            )
        })
        .collect();
    let levels: String = [low, (low * high).sqrt(), high]
        .iter()
        .map(|value| {
            format!("<text x=-8 y={:.0} text-anchor=end>{value:.0} µs</text>", y(*value) + 4.0)
        })
        .collect();
    format!(
        "<svg viewBox='-80 -10 {} {}' width=760 role=img aria-label='latency by percentile'>{ticks}{levels}{}{}\
         <text class=a x=8 y=14>straight</text><text class=b x=8 y=30>through the sidecar</text></svg>",
        WIDTH + 120.0,
        HEIGHT + 40.0,
        line(&a, "a"),
        line(&b, "b"),
    )
}

const WIDTH: f64 = 600.0;
const HEIGHT: f64 = 220.0;

const STYLE: &str = "\
body{font:15px/1.5 system-ui,sans-serif;max-width:50rem;margin:2rem auto;padding:0 1rem;color:#222}\
h1{font-size:1.4rem}.big{font-size:1.2rem;font-weight:600}table{border-collapse:collapse;margin:1rem 0}\
td,th{padding:.2rem .8rem;text-align:right;border-bottom:1px solid #ddd}th:first-child{text-align:left}\
svg line{stroke:#ddd}svg text{font-size:11px;fill:#666}polyline{fill:none;stroke-width:2}\
polyline.a{stroke:#2b7}polyline.b{stroke:#26c}svg text.a{fill:#2b7}svg text.b{fill:#26c}li{color:#555}";

#[cfg(test)]
mod tests {
    use super::*;

    /// An attribute without quotes takes a slash for its own, and then nothing behind the tag is drawn (HTML
    /// §13.1.2.3).
    #[test]
    fn the_charts_tags_end() {
        let svg = chart(&Totals::of(&[]), &Totals::of(&[]));
        let ends: Vec<&str> = svg.split("/>").collect();
        let (_, before) = ends.split_last().unwrap();
        assert!(!before.is_empty());
        assert!(before.iter().all(|text| text.ends_with([' ', '\'', '"'])), "{svg}");
    }
}
