use super::*;

fn report(rate: f64, cpu: f64) -> LoadReport {
    LoadReport { rps_fractional: rate, cpu_utilization: cpu, ..LoadReport::default() }
}

fn at(seconds: u64) -> Instant {
    Instant::from_nanos(seconds * 1_000_000_000)
}

fn rules() -> Rules {
    Rules { metrics: vec!["named_metrics.q".into(), "utilization.*".into()], ..Rules::default() }
}

#[test]
fn a_weight_is_the_rate_by_the_utilization() {
    assert_eq!(weight(&report(100.0, 0.5), &rules()), Some(200));
    assert_eq!(weight(&report(1.0, 3.0), &rules()), Some(0));
    assert_eq!(weight(&report(1e300, 0.1), &rules()), Some(u32::MAX));
    for (rate, cpu) in [(0.0, 0.5), (-1.0, 0.5), (1.0, 0.0), (1.0, -0.5)] {
        assert_eq!(weight(&report(rate, cpu), &rules()), None, "{rate} {cpu}");
    }
}

#[test]
fn named_metrics_come_before_the_application_s_and_that_before_the_processor_s() {
    let mut said = report(100.0, 1.0);
    said.application_utilization = 0.5;
    assert_eq!(weight(&said, &rules()), Some(200));
    said.utilization.insert("a".into(), 0.1);
    said.utilization.insert("b".into(), 0.25);
    assert_eq!(weight(&said, &rules()), Some(400));
    said.named_metrics.insert("q".into(), 4.0);
    assert_eq!(weight(&said, &rules()), Some(25));
    said.named_metrics.insert("r".into(), 100.0);
    assert_eq!(weight(&said, &rules()), Some(25));
    assert_eq!(weight(&said, &Rules::default()), Some(200));
}

#[test]
fn failures_count_as_utilization() {
    let said = LoadReport { eps: 10.0, ..report(100.0, 0.5) };
    assert_eq!(weight(&said, &rules()), Some(200));
    assert_eq!(weight(&said, &Rules { penalty: 5.0, ..rules() }), Some(100));
}

#[test]
fn who_says_nothing_has_the_median() {
    assert_eq!(median(vec![]), 1);
    assert_eq!(median(vec![7]), 7);
    assert_eq!(median(vec![9, 1, 4]), 4);
    assert_eq!(median(vec![u32::MAX, 1, u32::MAX - 2, 2]), (u32::MAX - 2) / 2 + 1);
    let hosts: [HostLoad; 4] = Default::default();
    for (host, rate) in hosts.iter().zip([10.0, 30.0, 0.5]) {
        host.take(&report(rate, 1.0), &rules(), at(1));
    }
    let hosts: Vec<&HostLoad> = hosts.iter().collect();
    assert_eq!(weights(&hosts, &rules(), at(5)), [1, 1, 1, 1], "it is too early");
    assert_eq!(weights(&hosts, &rules(), at(11)), [10, 30, 1, 10]);
    assert_eq!(weights(&hosts, &rules(), at(181)), [10, 30, 1, 10]);
    assert_eq!(weights(&hosts, &rules(), at(182)), [1, 1, 1, 1], "it is too late");
}

#[test]
fn who_was_silent_waits_again() {
    let host = HostLoad::default();
    host.take(&report(10.0, 1.0), &rules(), at(1));
    host.take(&report(20.0, 1.0), &rules(), at(8));
    assert_eq!(host.weight(&rules(), at(11)), Some(20));
    host.take(&report(30.0, 1.0), &rules(), at(500));
    assert_eq!(host.weight(&rules(), at(505)), None);
    assert_eq!(host.weight(&rules(), at(510)), Some(30));
    host.take(&report(0.0, 1.0), &rules(), at(700));
    assert_eq!(host.weight(&rules(), at(700)), None, "what says no weight is no sign of life");
}

#[test]
fn a_host_is_forgotten_with_the_last_that_has_it() {
    let reports = LoadReports::default();
    let address = Address::from(std::net::SocketAddr::from(([127, 0, 0, 1], 80)));
    let host = reports.of_host(&address);
    host.take(&report(10.0, 1.0), &rules(), at(1));
    assert_eq!(reports.of_host(&address).weight(&rules(), at(20)), Some(10));
    drop(host);
    assert_eq!(reports.of_host(&address).weight(&rules(), at(20)), None);
}

fn read(name: &str, value: &str) -> Option<LoadReport> {
    let mut head = towpath_proto::Head::default();
    head.append_bytes(name.as_bytes(), value.as_bytes());
    LoadReport::read(&head)
}

fn plain(value: &str) -> Option<(f64, f64)> {
    let report = read("endpoint-load-metrics", value)?;
    Some((report.rps_fractional, report.cpu_utilization))
}

#[test]
fn reports_are_read_in_all_forms() {
    let wanted = Some((100.0, 0.5));
    for text in [
        "TEXT rps_fractional=100,cpu_utilization=0.5",
        "TEXT cpu_utilization:0.5 , ,rps_fractional: 1e2, named_metrics.a=1, utilization.a=2",
        r#"JSON {"rps_fractional": 100, "cpu_utilization": 0.5}"#,
        r#"JSON {"rpsFractional": "100", "cpuUtilization": 0.5, "eps": null, "namedMetrics": {"a": 1}}"#,
        "BIN CQAAAAAAAOA/MQAAAAAAAFlA",
    ] {
        assert_eq!(plain(text), wanted, "{text}");
    }
    let report = read("endpoint-load-metrics-bin", "CQAAAAAAAOA/MQAAAAAAAFlA").unwrap();
    assert_eq!(weight(&report, &rules()), Some(200));
}

#[test]
fn what_is_no_report_is_passed() {
    for text in [
        "",
        "cpu_utilization=0.5",
        "text cpu_utilization=0.5",
        "TEXT cpu_utilization",
        "TEXT cpu_utilization=",
        "TEXT =1",
        "TEXT cpu_utilization=-1",
        "TEXT cpu_utilization=nan",
        "TEXT cpu_utilization=inf",
        "TEXT cpu_utilization=a",
        "TEXT cpu_utilization=1,cpu_utilization=1",
        "TEXT cpu_utilization =1",
        "TEXT unknown=1",
        "TEXT request_cost.a=1",
        "TEXT utilization.=1",
        "TEXT named_metrics.=1",
        "JSON ",
        "JSON []",
        r#"JSON {"unknown": 1}"#,
        r#"JSON {"cpu_utilization": {}}"#,
        r#"JSON {"utilization": 1}"#,
        "BIN ",
        "BIN !",
        "BIN CQ==",
    ] {
        assert_eq!(plain(text), None, "{text}");
    }
}
