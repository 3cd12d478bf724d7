//! HTTP/2 through two programs, one behind the other, under a load of nghttp2's: towards clients, between proxies and
//! down to HTTP/1.1.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test that cannot go on has failed")]

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use common::{Proxy, bootstrap, origin};

#[test]
#[ignore = "needs h2load"]
fn every_request_of_a_load_is_answered_by_either_protocol() {
    let Some(h2load) = h2load() else { return };
    let behind = Proxy::start(&bootstrap(origin(Duration::ZERO)), &[]);
    let address = behind.listener("ingress").parse().unwrap();
    let front = bootstrap(address);
    let speaks = r#"    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: { http2_protocol_options: {} }
    load_assignment:"#;
    let front = Proxy::start(&front.replacen("    load_assignment:", speaks, 1), &[]);
    let listener = front.listener("ingress");
    for (options, protocol) in [(&[][..], "h2c"), (&["--h1"][..], "http/1.1")] {
        let load = Command::new(&h2load)
            .args(["-n", "2000", "-c", "4", "-m", "10"])
            .args(options)
            .arg(format!("http://{listener}/"))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&load.stdout).into_owned();
        assert!(said.contains(&format!("Application protocol: {protocol}")), "{said}");
        assert!(said.contains("2000 succeeded, 0 failed, 0 errored, 0 timeout"), "{said}");
        assert!(said.contains("status codes: 2000 2xx"), "{said}");
    }
    assert_eq!(front.stat("http.ingress.downstream_rq_http2_total"), Some(2000));
    assert_eq!(front.stat("http.ingress.downstream_rq_http1_total"), Some(2000));
    assert_eq!(behind.stat("http.ingress.downstream_rq_http2_total"), Some(4000));
    let connections = behind.stat("http.ingress.downstream_cx_http2_total").unwrap();
    assert!((1..=16).contains(&connections), "streams share connections: {connections}");
}

/// What `cargo xtask peers` brought.
fn h2load() -> Option<PathBuf> {
    let folder = std::env::var_os("TOWPATH_PEERS").unwrap_or_default();
    let program = Path::new(&folder).join("h2load");
    if program.exists() {
        return Some(program);
    }
    assert!(std::env::var_os("CI").is_none(), "no h2load: TOWPATH_PEERS does not lead to it");
    eprintln!("left out, there is no h2load: TOWPATH_PEERS does not lead to it");
    None
}
