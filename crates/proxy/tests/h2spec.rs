//! Every case of h2spec, in the clear and over TLS, through the program to an origin of HTTP/1.1; and those of h2specd,
//! which is a server that breaks the rules.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test that cannot go on has failed")]

mod common;
#[path = "smuggling2/origin.rs"]
mod origin;
#[path = "smuggling/origins.rs"]
#[allow(dead_code, reason = "this story has an origin of its own")]
mod origins;
#[path = "../../../conformance/h2spec/servers.rs"]
mod servers;
#[path = "../../../conformance/h1/wire.rs"]
#[allow(dead_code, reason = "answers are read elsewhere")]
mod wire;

use std::process::Command;

use common::{Proxy, Scratch, bootstrap};

#[test]
#[ignore = "needs h2spec"]
fn every_case_passes_in_the_clear_and_over_tls() {
    let Some(h2spec) = origins::peer("h2spec") else { return };
    let origin = origin::strict();
    for is_tls in [false, true] {
        let scratch = Scratch::new();
        let text = bootstrap(([127, 0, 0, 1], 1).into());
        let address = "{ socket_address: { address: 127.0.0.1, port_value: 1 } }";
        let text = text.replacen(address, &origin.endpoint, 1);
        // A listener that may speak both answers what is no preface in HTTP/1.1.
        let codec = "codec_type: HTTP2\n          stat_prefix: ingress";
        let text = text.replacen("stat_prefix: ingress", codec, 1);
        let text = if is_tls { common::secured(&text, &scratch) } else { text };
        let proxy = Proxy::start(&text, &["--concurrency", "1"]);
        let listener = proxy.listener("ingress");
        let (host, port) = listener.rsplit_once(':').unwrap();
        let mut command = Command::new(&h2spec);
        // A busy machine may take a while over what is to be closed or answered.
        command.args(["--host", host, "--port", port, "--timeout", "10"]);
        if is_tls {
            command.args(["--tls", "--insecure"]);
        }
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let count = said.lines().rev().find(|line| line.contains(" passed")).unwrap_or_default();
        assert_eq!(count, ALL_PASS, "TLS: {is_tls}\n{said}");
    }
}

/// All that h2spec has without its strict cases, which are more than RFC 9113 asks.
const ALL_PASS: &str = "145 tests, 145 passed, 0 skipped, 0 failed";

/// A request to each of its servers, which the program finds by the request's authority.
#[test]
#[ignore = "needs h2specd and curl"]
fn every_case_of_a_server_that_breaks_the_rules_is_met() {
    let (Some(h2specd), Some(curl)) = (origins::peer("h2specd"), origins::tool("curl")) else {
        return;
    };
    let text = bootstrap(([127, 0, 0, 1], 1).into());
    let (before, _) = text.split_once("    type: STATIC").unwrap();
    let proxy = Proxy::start(&format!("{before}{TO_AUTHORITY}"), &["--concurrency", "1"]);
    let listener = proxy.listener("ingress");
    let command = format!("{} -s --noproxy * --connect-to ::{listener}", curl.display());
    servers::meet(&h2specd, &command);
    common::until("no request is left", || {
        proxy.stat("cluster.origin.upstream_rq_active") == Some(0)
    });
}

const TO_AUTHORITY: &str = r#"    type: ORIGINAL_DST
    lb_policy: CLUSTER_PROVIDED
    original_dst_lb_config: { use_http_header: true, http_header_name: ":authority" }
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: { http2_protocol_options: {} }
"#;
