use super::*;

fn parse(words: &[&str]) -> Result<Flags, clap::Error> {
    Flags::try_parse_from(std::iter::once("towpath-proxy").chain(words.iter().copied()))
}

#[test]
fn istios_launcher_is_understood() {
    let flags = parse(&[
        "-c",
        "etc/istio/proxy/envoy-rev.json",
        "--drain-time-s",
        "45",
        "--drain-strategy",
        "immediate",
        "--local-address-ip-version",
        "v4",
        "--file-flush-interval-msec",
        "1000",
        "--disable-hot-restart",
        "--allow-unknown-static-fields",
        "-l",
        "warning",
        "--component-log-level",
        "misc:error",
        "--concurrency",
        "2",
        "--config-yaml",
        "{}",
        "--skip-deprecated-logs",
    ])
    .unwrap();
    assert_eq!(flags.drain_time(), Duration::from_secs(45));
    assert_eq!(flags.drain_strategy, DrainStrategy::Immediate);
    assert_eq!(flags.flush_interval(), Duration::from_secs(1));
    assert_eq!(flags.flush_size(), 65536);
    assert_eq!(flags.log_level, Level::Warning);
    assert_eq!(
        flags.component_log_level.levels,
        [(Component::parse("misc").unwrap(), Level::Error)]
    );
    assert_eq!(flags.workers(), 2);
    assert_eq!(flags.check().unwrap(), Vec::<&str>::new());
}

#[test]
fn zero_workers_are_one() {
    assert_eq!(parse(&["--concurrency", "0"]).unwrap().workers(), 1);
    assert_eq!(parse(&["--concurrency", "4294967295"]).unwrap().workers(), MAX_WORKERS);
    assert!(parse(&["--concurrency", "-1"]).is_err());
    assert!(parse(&[]).unwrap().workers() >= 1);
}

#[test]
fn what_cannot_be_honoured_is_refused() {
    let refused = |words: &[&str]| parse(words).unwrap().check().unwrap_err();
    assert!(refused(&["--restart-epoch", "1"]).contains("hot restart"));
    assert!(refused(&["--disable-extensions", "envoy.filters.http.lua"]).contains("lua"));
    assert!(refused(&["--stats-tag", "a:1", "--stats-tag", "a:2"]).contains("twice"));
    assert!(
        refused(&["--reject-unknown-dynamic-fields", "--ignore-unknown-dynamic-fields"])
            .contains("contradicts")
    );
    assert!(parse(&["--enable-mutex-tracing"]).unwrap().check().unwrap().len() == 2);
}

#[test]
fn what_is_slow_is_a_duration_and_a_folder() {
    let slow = |text| parse(&["--trace-slow", text]).unwrap().trace_slow.unwrap();
    assert_eq!(
        slow("50ms=out"),
        SlowTrace { after: Duration::from_millis(50), folder: "out".into() }
    );
    assert_eq!(slow("250us=/a=b").folder, PathBuf::from("/a=b"));
    assert_eq!(slow("2s=.").after, Duration::from_secs(2));
    for text in
        ["50ms", "50ms=", "=out", "50=out", "ms=out", "1m=out", "-1ms=out", "0ms=out", "1.5s=out"]
    {
        assert!(parse(&["--trace-slow", text]).is_err(), "{text}");
    }
    assert!(parse(&["--trace", "a.pftrace", "--trace-slow", "50ms=out"]).is_err(), "one at a time");
}

#[test]
fn malformed_values_are_refused() {
    for words in [
        ["--component-log-level", "upstream"],
        ["--component-log-level", "nonsense:debug"],
        ["--component-log-level", "upstream:loud"],
        ["--log-level", "loud"],
        ["--mode", "play"],
        ["--drain-strategy", "later"],
        ["--local-address-ip-version", "v5"],
        ["--stats-tag", "a"],
        ["--stats-tag", "a.b:c"],
        ["--stats-tag", "a:b.c"],
        ["--file-flush-interval-msec", "x"],
    ] {
        assert!(parse(&words).is_err(), "{words:?}");
    }
}

#[test]
fn the_version_has_five_fields() {
    let line = version_line("towpath-proxy");
    let version = line.trim().strip_prefix("towpath-proxy  version: ").unwrap();
    let fields: Vec<&str> = version.split('/').collect();
    assert_eq!(fields.len(), 5, "{version}");
    assert_eq!(fields[0].len(), 40);
    assert_eq!(fields[1], env!("CARGO_PKG_VERSION"));
}
