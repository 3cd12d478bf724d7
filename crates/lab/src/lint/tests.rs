use super::*;

fn texts(findings: &[Finding], level: Level, check: &str) -> Vec<String> {
    findings
        .iter()
        .filter(|it| it.level == level && it.check == check)
        .map(|it| it.text.clone())
        .collect()
}

#[test]
fn littles_law_finds_the_two_rows_that_cannot_be_true() {
    // Two of the HTTP/1.1 tables of SOFAMosn 0.1.0's performance report, as published.
    let report = " ### Concurrences - 20\n | Indicators | SOFAMosn | Envoy|\n| -------- | -------- | -------- |\n\
        | QPS | 5600 |5600 |\n|RT (mean) | 3.549ms |3.545ms |\n|RT (P99) | 4ms |4ms |\n| MEM | 24m |23m |\n| CPU | 40% \
        |20% |\n\
        \n ### Concurrences - 200\n | Indicators | SOFAMosn | Envoy|\n| -------- | -------- | -------- |\n\
        | QPS | 29670 |38800 |\n|RT (mean) | 5.715ms |5.068ms |\n|RT (P99) | 16ms |7ms |\n|RT (P95) | 11ms |6ms |\n| \
        CPU | 100% |95% |\n";
    let findings = lint(report);
    let failed = texts(&findings, Level::Fail, "little's law");
    assert_eq!(failed.len(), 1, "{findings:#?}");
    assert!(
        failed[0].starts_with("Concurrences - 200, SOFAMosn: 29670/s × 5.715 ms = 169.6"),
        "{}",
        failed[0]
    );
    assert_eq!(texts(&findings, Level::Pass, "little's law").len(), 3);
    let costs = texts(&findings, Level::Note, "per request");
    assert!(
        costs
            .iter()
            .any(|text| text.contains("20, SOFAMosn: 71.4 µs CPU per request (2.00 × Envoy)")),
        "{costs:?}"
    );
    assert_eq!(texts(&findings, Level::Warn, "spread").len(), 1);
    assert_eq!(texts(&findings, Level::Warn, "saturation").len(), 2);
}

#[test]
fn csv_with_units_in_the_header_is_read() {
    let rows = read(
        "name,connections,req/s,mean (us),p99 (us),max (us),cpu_cores\na,10,\"5000\",2000,1500,1000,0.5\n",
    );
    assert_eq!(rows.len(), 1);
    let row = &rows[0];
    assert_eq!((row.case.as_str(), row.concurrency, row.rate), ("a", Some(10.0), Some(5000.0)));
    assert_eq!((row.mean_s, row.cpus), (Some(0.002), Some(0.5)));
    let findings = lint(
        "name,connections,req/s,mean (us),p99 (us),max (us),cpu_cores\na,10,\"5000\",2000,1500,1000,0.5\n",
    );
    assert_eq!(texts(&findings, Level::Fail, "order"), ["a: p99 is 1.500 ms but p100 is 1.000 ms"]);
}

#[test]
fn streams_that_h2load_does_not_count_are_no_contradiction() {
    let said = include_str!("../../tests/results/h2load-streams.txt");
    let findings = lint(said);
    assert_eq!(texts(&findings, Level::Fail, "little's law"), [""; 0]);
    let noted = texts(&findings, Level::Note, "little's law");
    assert!(
        noted[0].contains("13.8 requests under way on 4 connections, 3.5 on each"),
        "{noted:?}"
    );
    // As many as the connections is still what it was.
    let findings = lint(include_str!("../../tests/results/h2load.txt"));
    assert_eq!(texts(&findings, Level::Pass, "little's law").len(), 1, "{findings:#?}");
}

#[test]
fn a_column_of_conns_is_how_many_were_under_way() {
    let findings = lint("| rate | mean | conns |\n|---|---|---|\n| 1.2e4 | 9 ms | 60 |\n");
    let failed = texts(&findings, Level::Fail, "little's law");
    assert!(failed[0].starts_with("12000/s × 9.000 ms = 108.0"), "{findings:#?}");
}

#[test]
fn a_rate_is_one_with_its_unit_in_a_table_with_decimal_commas_too() {
    for header in ["rate/s", "Rate (1/s)", "rate per second", "rate", "requests/s"] {
        let findings =
            lint(&format!("name;connections;{header};mean ms\na;10;1.200;100,5\nb;10;1.200;8,3\n"));
        let failed = texts(&findings, Level::Fail, "little's law");
        assert!(failed[0].starts_with("a: 1200/s × 100.500 ms = 120.6"), "{header}: {findings:#?}");
    }
    let errors = lint("| connections | error rate | mean ms |\n|---|---|---|\n| 10 | 3 | 8 |\n");
    assert_eq!(texts(&errors, Level::Fail, "little's law").len(), 0);
}

#[test]
fn changes_in_sentences_are_put_per_request() {
    let text = "## Unthrottled\n* Replication of 1: p95 latency increased by 90%, RPS was cut by 44%\n\
        * Replication of 1: CPU usage increased 15%, Memory decreased 5% (due to lower RPS)\n## Throttled\n\
        * Replication of 1: CPU usage increased 99% (this is a good thing), Memory increased 2%\n";
    let findings = lint(text);
    let notes = texts(&findings, Level::Note, "per request");
    assert_eq!(
        notes,
        ["Replication of 1 (section 1): CPU +15 % at -44 % requests is 2.05 × the CPU per request"]
    );
    assert_eq!(texts(&findings, Level::Warn, "per request").len(), 1);
}

#[test]
fn repeats_totals_and_estimates_are_checked() {
    let text = "Config | A VS B R1 | A VS B R2 | A VS B R3 |\n---|---|---|---|\n15s | 3.07 | 3.06 | 3.07 |\n5s | 1.0 | \
        0.9 | 1.3 |\n\
        A | B | |\n---|---|---|\n3G | 平均耗时:2.4秒 总耗时:120秒 | 平均耗时:2.44 总耗时:122 |\n2G | 平均耗时:6.0 \
        总耗时:400 \
        | \
        平均耗时:6.74 \
        总耗时:337秒 |\n\n\
        x_off_y time: [6.0 ns 6.1 ns 6.2 ns]\nx_on_y time: [6.1 ns 6.2 ns 6.3 ns]\nz_off time: [6.0 ns 5.9 ns 6.2 \
        ns]\n";
    let findings = lint(text);
    assert_eq!(texts(&findings, Level::Warn, "repeats").len(), 1);
    let totals = texts(&findings, Level::Fail, "total");
    assert_eq!(totals.len(), 1, "{totals:?}");
    assert!(totals[0].contains("66.7 requests, elsewhere 50"), "{totals:?}");
    assert_eq!(texts(&findings, Level::Fail, "off and on").len(), 1);
    assert_eq!(texts(&findings, Level::Fail, "interval").len(), 1);
}

#[test]
fn a_text_without_figures_says_so_and_nonsense_does_not_panic() {
    assert_eq!(lint("hello\n")[0].check, "read");
    for text in [
        "|||\n|-|\n",
        "| QPS |\n| 1",
        "|\n",
        "QPS,RT,CPU\n,,\n0,0,0\n",
        "time: [",
        "x time: [1 s]",
        "a: - CPU: %",
        "| RT (P) |\n| ms |",
    ] {
        let _ = lint(text);
    }
}

#[test]
fn numbers_with_exponents_are_read_whole() {
    let table = "tool,connections,req/s,mean (ms)\na,10,1.2e4,0.8333\nb,10,12000,0.8333\n";
    let findings = lint(table);
    assert_eq!(texts(&findings, Level::Fail, "little's law"), Vec::<String>::new());
    assert_eq!(texts(&findings, Level::Pass, "little's law").len(), 2);
}

#[test]
fn findings_name_the_line_they_are_about() {
    let csv = "tool,connections,req/s,mean (ms)\nright,10,1000,10\nwrong,10,1000,20\n";
    let wrong =
        |text: &str| lint(text).into_iter().find(|it| it.level == Level::Fail).unwrap().line;
    assert_eq!(wrong(csv), 3);
    let markdown = "| tool | connections | req/s | mean (ms) |\n|---|---|---|---|\n| wrong | 10 | 1000 | 20 |\n";
    assert_eq!(wrong(markdown), 3);
    assert_eq!(wrong(&format!("# Title\n\nText.\n\n{csv}")), 7);
}

#[test]
fn semicolons_separate_where_the_comma_is_a_point() {
    let rows = read("tool;connections;req/s;mean (ms)\na;10;1.234,5;8,1\nb;10;1234;8.1\n");
    assert_eq!((rows[0].rate, rows[1].rate), (Some(1234.5), Some(1234.0)));
    assert!(
        rows.iter().all(|row| row.mean_s.is_some_and(|s| (s - 0.0081).abs() < 1e-9)),
        "{rows:?}"
    );
    let quoted = read("tool,connections,req/s\n\"a, b\",10,\"1,234,567\"\n");
    assert_eq!((quoted[0].case.as_str(), quoted[0].rate), ("a, b", Some(1_234_567.0)));
    let bare = read("tool,connections,rate,error rate\na,10,1.2e4,0.1\n");
    assert_eq!(bare[0].rate, Some(12_000.0));
}

#[test]
fn the_length_of_a_run_is_no_latency() {
    let row = |duration: &str, mean: &str| {
        lint(&format!(
            "| tool | requests/s | connections | {mean} | {duration} |\n|---|---|---|---|---|\n\
             | a | 12000 | 12 | 1.0 | 10 |\n"
        ))
    };
    for duration in ["duration s", "test duration", "Duration (s)"] {
        let findings = row(duration, "mean ms");
        assert_eq!(texts(&findings, Level::Pass, "little's law").len(), 1, "{findings:#?}");
    }
}

#[test]
fn what_load_generators_print_is_checked_as_such() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/results");
    for entry in std::fs::read_dir(directory).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        let findings = lint(&std::fs::read_to_string(entry.path()).unwrap());
        let failed: Vec<&Finding> = findings.iter().filter(|it| it.level == Level::Fail).collect();
        assert_eq!(failed, Vec::<&Finding>::new(), "{name}");
        assert_ne!(findings[0].check, "read", "{name}");
        let has_guesses = findings.iter().any(|it| it.check == "resolution");
        assert_eq!(has_guesses, name.starts_with("fortio"), "{name}");
    }
    // Part of hey's output that is no result by itself.
    let details = "Details (average, fastest, slowest):\n  DNS+dialup:\t0.0000 secs, 0.0000 secs, 0.0539 secs\n  \
        req write:\t0.0000 secs, 0.0000 secs, 0.0266 secs\n  resp wait:\t0.0011 secs, 0.0000 secs, 0.0539 secs\n";
    assert_eq!(lint(details)[0].check, "read");
}

#[test]
fn the_lab_s_own_series_is_read_second_by_second() {
    let text = "from_s,length_s,requests_per_s,errors,p50_ms,p99_ms,max_ms\n\
        0.000,1.000,300.0,0,0.0758,0.1085,1.7777\n1.000,1.000,300.0,0,0.0876,0.0437,5.7999\n2.000,1.000,0.0,9,,,\n";
    let findings = lint(text);
    let failed: Vec<_> = findings.iter().filter(|it| it.level == Level::Fail).collect();
    assert_eq!(failed.len(), 1, "{findings:#?}");
    assert_eq!((failed[0].line, failed[0].check), (3, "order"));
    assert_eq!(failed[0].text, "from 1 s: p50 is 0.088 ms but p99 is 0.044 ms");
    assert_eq!(texts(&findings, Level::Warn, "spread").len(), 1);
    // As a table of another's.
    let rows = read("who,requests_per_s,bytes_per_s\na,300,9\nb,200,8\n");
    assert_eq!((rows[0].rate, rows[1].rate, rows[0].count), (Some(300.0), Some(200.0), None));
}

#[test]
fn one_row_is_not_several() {
    for (rows, words) in [(1, "1 row carries no interval"), (2, "2 rows carry no interval")] {
        let text = format!("| rate | mean |\n|---|---|\n{}", "| 100/s | 5 ms |\n".repeat(rows));
        let findings = lint(&text);
        assert!(texts(&findings, Level::Warn, "spread")[0].starts_with(words), "{findings:?}");
    }
}

#[test]
fn percentiles_of_different_things_are_not_held_against_each_other() {
    let table = "| | a | b |\n|---|---|---|\n| a route applied after (median) | 100 ms | 27 ms |\n\
        | request p99 without changes, with them | 0.21 ms, 2.2 ms | 0.26 ms, 0.50 ms |\n";
    let settings = "| Setting | Default | Unit |\n|---|---|---|\n| `max_stream_window` | 4194304 | bytes |\n\
        | `max_repetitions` | 10 | repetitions |\n";
    for text in [table, settings] {
        let failed: Vec<Finding> =
            lint(text).into_iter().filter(|it| it.level == Level::Fail).collect();
        assert_eq!(failed, [], "{text}");
    }
    // Of one thing they still are, whatever words say that it is a time.
    for header in [
        "p50 | p99 (ms)",
        "RT p50 | p99",
        "latency p50 in ms | p99 response time",
        "median | 99th percentile",
    ] {
        let text = format!("| tool | {header} |\n|---|---|---|\n| a | 5 ms | 2 ms |\n");
        assert_eq!(texts(&lint(&text), Level::Fail, "order").len(), 1, "{text}");
    }
}

#[test]
fn cpu_for_a_request_is_no_share_and_a_rate_with_its_number_no_column() {
    for text in [
        "| at 2,000 requests/s | server CPU-µs per request |\n|---|---|\n| `lab load --rate 2000` | 42 |\n| h2load | \
        16.5 |\n",
        "| 5,000 requests/s, open loop | p50 | p99 | CPU-µs/request |\n|---|---|---|---|\n| 155–244 | 91 µs | 177 µs \
        | 53.4 |\n",
        "| rate | CPU (ms) |\n|---|---|\n| 100/s | 3 |\n",
        "| rate | cpu per request |\n|---|---|\n| 100/s | 3 |\n",
    ] {
        assert_eq!(texts(&lint(text), Level::Note, "per request"), [""; 0], "{text}");
    }
    let share = "| req/s | CPU (%) | cpu per cent |\n|---|---|---|\n| 1000 | 50 | 50 |\n";
    assert_eq!(texts(&lint(share), Level::Note, "per request"), ["500.0 µs CPU per request"]);
}
