//! SOFARPC through the proxy, routed by what it says in its headers.

use crate::common::{Proxy, until};
use crate::config::{routed, server};
use crate::java::{Java, RPC};

#[test]
#[ignore = "needs SOFARPC"]
fn sofarpc_is_routed_by_service_and_method_and_logged() {
    let origin = Java::server(RPC);
    let scratch = crate::common::Scratch::new();
    let log = scratch.path("access.log");
    let routes = r"
        { match: { service: { exact: 'Rpc$Words:1.0' }, method: { exact: nowhere } }, route: { cluster: empty } },
        { match: { service: { exact: 'Rpc$Words:1.0' } }, route: { cluster: server, timeout: 30s } }";
    let access_log = format!(
        r#"{{ name: file, typed_config: {{
            "@type": type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog, path: {},
            log_format: {{ text_format_source: {{
              inline_string: "%REQ(:PATH)% %REQ(sofa_head_method_name)% %RESPONSE_CODE% %RESP(none)%\n" }} }} }} }}"#,
        log.display()
    );
    let absent = server("empty", origin.address, "", "");
    let absent = absent.replace("endpoints: [", "endpoints: [] #");
    let clusters = [server("server", origin.address, "", ""), absent];
    let proxy = Proxy::start(&routed(routes, &access_log, &clusters), &["--concurrency", "1"]);
    let said = Java::run(RPC, &["client".to_owned(), proxy.listener("ingress")]);
    assert_eq!(said.lines().filter(|line| line.starts_with("passed ")).count(), 7, "{said}");
    assert!(said.ends_with("done\n"), "{said}");
    let nowhere = said.lines().find(|line| line.starts_with("nowhere ")).unwrap();
    assert!(!nowhere.contains("answered"), "{nowhere}");
    assert_eq!(proxy.stat("bolt.rpc.downstream_rq_oneway"), Some(10));
    assert_eq!(proxy.stat("cluster.server.bolt.unasked_answers"), Some(0));
    let lines =
        |wanted: &str| scratch.read("access.log").lines().filter(|line| *line == wanted).count();
    // 100 in turn, the long one, 20 futures, 20 callbacks, and one after the timeout.
    until("all echoes are logged", || lines("/Rpc$Words:1.0/echo echo 200 -") == 142);
    until("the rest too", || lines("/Rpc$Words:1.0/nowhere nowhere 503 -") == 1);
    assert_eq!(lines("/Rpc$Words:1.0/oneway oneway 200 -"), 10);
    assert_eq!(lines("/Rpc$Words:1.0/sleep sleep 504 -"), 1);
}
