use super::*;

const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/results");

fn figures(name: &str) -> Figures {
    let text = std::fs::read_to_string(format!("{DIRECTORY}/{name}")).unwrap();
    read(&text).unwrap_or_else(|| panic!("{name} is not recognised"))
}

/// What each file says: tool, connections, rate, requests, errors, mean in ms, and one percentile in ms.
type Expected = (&'static str, Tool, Option<f64>, f64, f64, Option<f64>, Option<f64>, (f64, f64));

#[test]
fn real_outputs_are_read() {
    let expected: &[Expected] = &[
        (
            "wrk.txt",
            Tool::Wrk,
            Some(20.0),
            81_971.64,
            165_867.0,
            Some(0.0),
            Some(0.357_82),
            (99.0, 5.81),
        ),
        (
            "wrk-plain.txt",
            Tool::Wrk,
            Some(8.0),
            50_088.59,
            50_490.0,
            Some(0.0),
            Some(1.24),
            (100.0, 39.75),
        ),
        (
            "h2load.txt",
            Tool::H2load,
            Some(20.0),
            20_472.5,
            40_945.0,
            Some(0.0),
            Some(0.976),
            (100.0, 72.3),
        ),
        (
            "h2load-count.txt",
            Tool::H2load,
            Some(4.0),
            2191.12,
            1000.0,
            Some(0.0),
            Some(1.82),
            (100.0, 33.85),
        ),
        (
            "h2load-streams.txt",
            Tool::H2load,
            Some(4.0),
            8571.62,
            2000.0,
            Some(0.0),
            Some(1.61),
            (100.0, 24.19),
        ),
        ("hey.txt", Tool::Hey, None, 17_627.011_9, 35_268.0, Some(0.0), Some(1.1), (99.0, 14.7)),
        (
            "k6.txt",
            Tool::K6,
            Some(5.0),
            18_673.663_5,
            37_423.0,
            Some(0.0),
            Some(0.246_67),
            (99.0, 2.42),
        ),
        (
            "k6.json",
            Tool::K6,
            Some(5.0),
            18_673.663_5,
            37_423.0,
            Some(0.0),
            Some(0.246_674),
            (50.0, 0.142_343),
        ),
        (
            "k6-open.txt",
            Tool::K6,
            Some(4.0),
            98.956_822,
            198.0,
            Some(0.0),
            Some(0.3914),
            (95.0, 0.473_98),
        ),
        ("lab.hlog", Tool::HdrLog, None, 500.0, 500.0, None, Some(36.112_169), (100.0, 89.849_855)),
        (
            "oha.txt",
            Tool::Oha,
            None,
            21_385.756_8,
            42_821.0,
            Some(0.0),
            Some(0.4628),
            (99.9, 5.8755),
        ),
        (
            "oha.json",
            Tool::Oha,
            None,
            499.942_518,
            1000.0,
            Some(0.0),
            Some(0.158_776),
            (99.0, 0.970_658),
        ),
        (
            "ghz.json",
            Tool::Ghz,
            Some(4.0),
            7_335.292_9,
            7333.0,
            Some(0.0),
            Some(0.453_23),
            (99.0, 4.322_977),
        ),
        ("wrk2.txt", Tool::Wrk2, Some(10.0), 998.69, 2992.0, Some(0.0), Some(1.09), (99.9, 11.42)),
        (
            "fortio.txt",
            Tool::Fortio,
            Some(4.0),
            499.9,
            1000.0,
            Some(0.0),
            Some(0.469_197_06),
            (99.0, 5.5),
        ),
        (
            "fortio-full.txt",
            Tool::Fortio,
            Some(4.0),
            48_782.1,
            48_806.0,
            Some(0.0),
            Some(0.081_759_993),
            (99.9, 3.255_39),
        ),
        (
            "fortio-errors.txt",
            Tool::Fortio,
            Some(2.0),
            399.5,
            400.0,
            Some(72.0),
            Some(0.215_752_94),
            (100.0, 4.389_017),
        ),
        (
            "fortio.json",
            Tool::Fortio,
            Some(4.0),
            499.876_014,
            1000.0,
            Some(0.0),
            Some(0.469_197_06),
            (100.0, 77.236_478),
        ),
        ("vegeta.txt", Tool::Vegeta, None, 500.88, 1000.0, Some(0.0), Some(1.447), (95.0, 4.94)),
        (
            "vegeta.json",
            Tool::Vegeta,
            None,
            500.876_702,
            1000.0,
            Some(0.0),
            Some(1.446_832),
            (99.0, 39.547_644),
        ),
    ];
    for (name, tool, connections, rate, requests, errors, mean_ms, (share, ms)) in expected {
        let it = figures(name);
        assert_eq!((it.tool, it.connections), (*tool, *connections), "{name}");
        let near = |value: Option<f64>, wanted: f64| {
            let value = value.unwrap_or(f64::NAN);
            assert!((value - wanted).abs() <= wanted.abs() * 1e-5, "{name}: {value}, not {wanted}");
        };
        near(it.rate, *rate);
        near(it.requests, *requests);
        assert_eq!(it.errors, *errors, "{name}");
        assert_eq!(it.mean_s.is_some(), mean_ms.is_some(), "{name}");
        near(it.mean_s.map(|s| s * 1e3), mean_ms.unwrap_or(f64::NAN));
        near(it.percentile(*share).map(|s| s * 1e3), *ms);
        assert!(it.percentiles.is_sorted_by(|a, b| a.0 < b.0), "{name}: {:?}", it.percentiles);
        assert!(it.duration_s.is_some_and(|s| s > 0.1 && s < 60.0), "{name}: {:?}", it.duration_s);
    }
}

#[test]
fn percentiles_within_a_wide_bucket_are_guesses() {
    let shares = |name: &str| -> Vec<f64> {
        figures(name).guessed.iter().map(|(share, _)| *share).collect()
    };
    assert_eq!(shares("fortio-full.txt"), [50.0, 75.0, 90.0, 99.0, 99.9]);
    assert_eq!(figures("fortio-full.txt").guessed[4].1, [0.003, 0.004]);
    // -quiet leaves the buckets out: the first is taken for what it usually is.
    assert_eq!(shares("fortio.txt"), [50.0, 75.0, 90.0]);
    assert_eq!(shares("fortio.json"), [50.0, 75.0, 90.0, 99.0, 99.9]);
    for name in ["wrk2.txt", "vegeta.json", "oha.json", "lab.hlog"] {
        assert!(shares(name).is_empty(), "{name}");
    }
}

#[test]
fn what_no_tool_printed_is_no_result() {
    for text in [
        "",
        "{}",
        "[1]",
        "Requests/sec: 5",
        "#[StartTime: 1]\n",
        "finished in 1s",
        "{\"latency_ns\":3}",
    ] {
        assert_eq!(read(text), None, "{text}");
    }
}

#[test]
fn failures_are_counted_and_missing_latencies_stay_missing() {
    let refused = figures("oha-refused.txt");
    assert_eq!(
        (refused.tool, refused.requests, refused.errors),
        (Tool::Oha, Some(0.0), Some(20.0))
    );
    assert_eq!((refused.mean_s, refused.percentiles.len()), (None, 0));
    // wrk2 prints wrk's summary after a line for each thread's calibration.
    let wrk2 = read(
        "Running 5s test @ http://127.0.0.1:80/\n  2 threads and 100 connections\n  \
         Thread calibration: mean lat.: 1.100ms, rate sampling interval: 10ms\n  \
         Thread Stats   Avg      Stdev     Max   +/- Stdev\n    Latency     1.15ms  520.00us   6.40ms   70.10%\n  \
         Latency Distribution (HdrHistogram - Recorded Latency)\n 50.000%    1.10ms\n 99.900%    4.20ms\n100.000%    \
         6.41ms\n\
         9998 requests in 5.00s, 3.00MB read\n  Socket errors: connect 0, read 3, write 0, timeout 2\n  \
         Non-2xx or 3xx responses: 4\nRequests/sec:   1999.60\n",
    )
    .unwrap();
    assert_eq!((wrk2.tool, wrk2.connections, wrk2.errors), (Tool::Wrk2, Some(100.0), Some(9.0)));
    assert!(wrk2.percentile(99.9).is_some_and(|s| (s - 0.0042).abs() < 1e-9));
    assert!(wrk2.percentile(100.0).is_some_and(|s| (s - 0.00641).abs() < 1e-9));
    let fortio = read(
        r#"{"ActualQPS":999.5,"ActualDuration":2000000000,"NumThreads":4,"RetCodes":{"200":1990,"503":8,"-1":1},
            "DurationHistogram":{"Count":1999,"Avg":0.001,"Max":0.02,
            "Percentiles":[{"Percentile":99,"Value":0.004}]}}"#,
    )
    .unwrap();
    assert_eq!(
        (fortio.tool, fortio.errors, fortio.duration_s),
        (Tool::Fortio, Some(9.0), Some(2.0))
    );
    assert_eq!((fortio.percentile(99.0), fortio.percentile(100.0)), (Some(0.004), Some(0.02)));
    let lab = read(
        r#"{"schema":1,"achieved_rps":500.0,"answered":500,"connections":10,"duration_ns":1000000000,
            "errors":{"status":2,"reset":1},"latency_ns":{"mean":1500000,"p50":1000000,"p999":9000000,"max":9500000}}"#,
    )
    .unwrap();
    assert_eq!((lab.tool, lab.errors, lab.mean_s), (Tool::Lab, Some(3.0), Some(0.0015)));
    assert_eq!(lab.percentile(99.9), Some(0.009));
}

#[test]
fn a_series_of_seconds_is_the_run_that_they_make() {
    let text = "from_s,length_s,requests_per_s,errors,p50_ms,p99_ms,max_ms\n\
        0.000,1.000,300.0,0,0.0758,0.1085,1.7777\n1.000,1.000,0.0,4,,,\n2.000,0.500,200.0,1,0.0681,3.0966,6.4553\n";
    let run = read(text).unwrap();
    assert_eq!((run.tool, run.requests, run.errors), (Tool::Lab, Some(400.0), Some(5.0)));
    assert_eq!((run.duration_s, run.rate), (Some(2.5), Some(160.0)));
    assert_eq!(run.percentiles.len(), 1, "the others do not follow from the seconds'");
    assert!(run.percentile(100.0).is_some_and(|s| (s - 0.006_455_3).abs() < 1e-9));
    for cut in [
        "2.000,0.500",
        "2.000,0.500,200.0,1,0.0681,3.0966,6.4553,",
        "2.000,0.500,inf,1,0.0681,3.0966,6.4",
    ] {
        assert_eq!(read(&format!("{text}{cut}\n")), None, "{cut}");
    }
}
