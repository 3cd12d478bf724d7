use super::*;
use crate::message::{UnknownFields, decode};
use crate::schema::{BOOTSTRAP, Schema};
use crate::source::Source;
use crate::tree;

#[test]
fn numbers_have_limits() {
    assert_eq!(said(&cluster("connect_timeout: 0s")), ["must be greater than 0s"]);
    assert_eq!(
        said(&cluster("least_request_lb_config: {choice_count: 1}")),
        ["must be at least 2"]
    );
    assert_eq!(
        said(&cluster("common_lb_config: {healthy_panic_threshold: {value: 100.5}}")),
        ["must be at most 100"]
    );
    assert_eq!(said("stats_flush_interval: 300s"), ["must be less than 300s"]);
}

#[test]
fn limits_themselves_hold() {
    assert_eq!(said(&cluster("least_request_lb_config: {choice_count: 2}")), [""; 0]);
    assert_eq!(
        said(&cluster("common_lb_config: {healthy_panic_threshold: {value: 100}}")),
        [""; 0]
    );
    assert_eq!(said("stats_flush_interval: 0.001s"), [""; 0]);
}

#[test]
fn what_is_required_is_missed() {
    assert_eq!(said("static_resources: {clusters: [{}]}"), ["`name`: must not be empty"]);
    assert_eq!(
        said(&cluster("upstream_bind_config: {source_address: {address: a}}")),
        ["needs one of port_value, named_port"]
    );
    assert_eq!(said("overload_manager: {}"), ["`resource_monitors`: needs at least 1 item(s)"]);
}

#[test]
fn negative_durations_are_refused_without_a_rule() {
    assert_eq!(said(&cluster("cleanup_interval: -1s")), ["must be greater than 0s"]);
    assert_eq!(
        said(&cluster("common_lb_config: {update_merge_window: -1s}")),
        ["must not be negative"]
    );
}

#[test]
fn rules_reach_into_lists_and_maps() {
    let text = cluster("load_assignment: {cluster_name: a, endpoints: [{}, {priority: 129}]}");
    assert_eq!(said(&text), ["must be at most 128"]);
}

fn cluster(fields: &str) -> String {
    format!("static_resources: {{clusters: [{{name: a, {fields}}}]}}")
}

fn said(text: &str) -> Vec<String> {
    let mut report = Report::default();
    let number = report.text(&"t".into());
    let schema = Schema::with([]);
    let tree = tree::parse(&Source::yaml("t", text)).unwrap().root;
    let message =
        decode(&schema, &mut report, UnknownFields::Refuse, BOOTSTRAP, &tree, number).unwrap();
    assert_eq!(report.problems, []);
    Rules::new(message.descriptor.parent_pool()).check(&message, &mut report);
    report.problems.into_iter().map(|problem| problem.message).collect()
}
