//! Flags, exit codes and what is said when it cannot start.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed; a script answers to what it cares about"
)]

mod common;

use common::{Proxy, Scratch, bootstrap, origin, run};
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

#[test]
fn the_version_is_one_line_that_tools_can_split() {
    let output = run(&["--version"]);
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let (_, version) = text.trim().split_once("  version: ").unwrap();
    assert_eq!(version.split('/').count(), 5, "{version}");
}

#[test]
fn hot_restart_is_disabled() {
    let output = run(&["--hot-restart-version", "--disable-hot-restart"]);
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "disabled\n");
}

#[test]
fn help_has_an_example_and_nonsense_is_refused() {
    let help = run(&["--help"]);
    assert!(help.status.success());
    assert!(String::from_utf8(help.stdout).unwrap().contains("Example:"));
    assert_eq!(run(&["--nonsense"]).status.code(), Some(1));
    assert_eq!(run(&["--restart-epoch", "1", "--config-yaml", "{}"]).status.code(), Some(1));
    assert_eq!(run(&[]).status.code(), Some(1));
}

#[test]
fn a_good_file_is_validated() {
    let scratch = Scratch::new();
    let path = scratch.write("good.yaml", &bootstrap(nowhere()));
    let output = run(&["--mode", "validate", "-c", path.to_str().unwrap()]);
    assert!(output.status.success());
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        format!("configuration '{}' OK\n", path.display())
    );
}

#[test]
fn a_bad_file_is_named_with_line_and_field() {
    let scratch = Scratch::new();
    let text = bootstrap(nowhere()).replace("connect_timeout: 1s", "connect_timeout: soon");
    let line = text.lines().position(|line| line.contains("soon")).unwrap() + 1;
    let path = scratch.write("bad.yaml", &text);
    for flags in [&["--mode", "validate"][..], &[]] {
        let output = run(&[flags, &["-c", path.to_str().unwrap()]].concat());
        assert_eq!(output.status.code(), Some(1));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains(&format!("bad.yaml:{line}:")), "{said}");
        assert!(said.contains("static_resources.clusters[0].connect_timeout"), "{said}");
    }
}

#[test]
fn a_missing_file_is_named() {
    let output = run(&["-c", "no/such/file.yaml"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("no/such/file.yaml"));
}

#[test]
fn an_address_that_is_taken_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let scratch = Scratch::new();
    let listener = "address: 127.0.0.1, port_value: 0 } }\n    filter_chains";
    let text = bootstrap(nowhere());
    assert!(text.contains(listener));
    let text =
        text.replace(listener, &listener.replace("port_value: 0", &format!("port_value: {port}")));
    let path = scratch.write("taken.yaml", &text);
    let output = run(&["-c", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("'ingress'")
            && said.contains(&format!("127.0.0.1:{port}: address already in use")),
        "{said}"
    );
}

#[test]
fn a_socket_option_that_the_kernel_refuses_is_named() {
    let scratch = Scratch::new();
    for (level, name, state) in [(6, 9999, "STATE_PREBIND"), (1, 9998, "STATE_BOUND")] {
        let path = scratch.write("option.yaml", &with_socket_option(level, name, state));
        let output = run(&["-c", path.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(1));
        let said = String::from_utf8(output.stderr).unwrap();
        let words = format!(
            "listener 'ingress': cannot bind 127.0.0.1:0: the kernel refuses socket option level {level}, \
             name {name} (`socket_options[0]`, value 17): Protocol not available"
        );
        assert!(said.contains(&words), "{said}");
    }
}

#[test]
fn a_listener_that_lacks_an_option_of_listening_sockets_is_left_out() {
    let proxy = Proxy::start(&with_socket_option(6, 9999, "STATE_LISTENING"), &[]);
    assert_eq!(proxy.get("/ready"), (200, "LIVE\n".to_owned()));
    assert!(!proxy.get("/listeners").1.contains("ingress"));
    assert_eq!(proxy.stat("listener_manager.listener_create_failure"), Some(1));
    assert_eq!(proxy.stat("listener_manager.total_listeners_active"), Some(0));
}

/// A bootstrap whose listener wants an option that no kernel has.
fn with_socket_option(level: i32, name: i32, state: &str) -> String {
    let text = bootstrap(nowhere());
    let option = format!(
        "socket_options: [{{ level: {level}, name: {name}, int_value: 17, state: {state} }}]"
    );
    let place = "    filter_chains";
    assert!(text.contains(place));
    text.replacen(place, &format!("    {option}\n{place}"), 1)
}

#[test]
fn an_access_log_that_cannot_be_opened_is_named() {
    let scratch = Scratch::new();
    let text = common::with_access_log(&bootstrap(nowhere()), &scratch.path("no/such/log"));
    let path = scratch.write("log.yaml", &text);
    let output = run(&["-c", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("no/such/log"));
}

#[test]
fn initializing_only_ends_by_itself() {
    let scratch = Scratch::new();
    let path = scratch.write("good.yaml", &bootstrap(origin(Duration::ZERO)));
    assert!(run(&["--mode", "init_only", "-c", path.to_str().unwrap()]).status.success());
}

#[test]
fn text_from_the_command_line_is_merged_over_the_file() {
    let scratch = Scratch::new();
    let proxy = Proxy::launch(
        scratch,
        &bootstrap(nowhere()),
        &["--config-yaml", "{node: {cluster: merged}}", "--service-node", "given"],
    );
    let (_, info) = proxy.get("/server_info");
    assert!(
        info.contains("\"cluster\": \"merged\"") && info.contains("\"id\": \"given\""),
        "{info}"
    );
}

fn nowhere() -> SocketAddr {
    "127.0.0.1:9".parse().unwrap()
}
