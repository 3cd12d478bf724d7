//! The pages of `docs/filters`: there is one for each filter, and the configuration that it shows can be loaded.

use std::fs;
use std::path::{Path, PathBuf};

use crate::convert::filter::FILTERS;
use crate::load::{Options, load};
use crate::source::{Source, Sources};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/filters")
}

fn pages() -> Vec<(String, String)> {
    let entries = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let read = |path: PathBuf| {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        (name, fs::read_to_string(path).unwrap())
    };
    entries.map(read).filter(|(name, _)| name != "README").collect()
}

#[test]
fn each_http_filter_has_a_page() {
    let pages = pages();
    for filter in FILTERS.iter().map(|known| known.config_type) {
        let has = |page: &&(String, String)| page.1.contains(&format!("Type `{filter}`"));
        assert_eq!(pages.iter().filter(has).count(), 1, "a page about {filter}");
    }
    let index = fs::read_to_string(folder().join("README.md")).unwrap();
    for (name, _) in &pages {
        assert!(index.contains(&format!("({name}.md)")), "the index does not lead to {name}");
    }
}

#[test]
fn what_a_page_shows_can_be_loaded() {
    let mut shown = 0;
    for (name, text) in pages() {
        for part in text.split("```yaml\n").skip(1) {
            let (filter, _) = part.split_once("```").expect("a block has an end");
            shown += 1;
            let text = bootstrap(filter, text.contains("(network filter)"), name == "router");
            let loaded =
                load(&Sources::file(Source::yaml("page.yaml", &text)), &Options::default());
            if let Err(error) = loaded {
                panic!("{name}: {error}\n{text}");
            }
        }
    }
    assert!(shown >= 35, "only {shown} pages show a configuration");
}

/// A listener with a filter in its chain, and the clusters and secrets that pages name.
fn bootstrap(filter: &str, network: bool, is_router: bool) -> String {
    let indented = |columns: usize| {
        let blank = " ".repeat(columns);
        filter.lines().map(|line| format!("{blank}{line}\n")).collect::<String>()
    };
    let filters = if network {
        let mut filters = indented(6);
        if !["tcp_proxy.v3", "echo.v3", "direct_response.v3"].iter().any(|it| filter.contains(it)) {
            filters += "      - name: bytes
        typed_config:
          \"@type\": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy
          stat_prefix: bytes
          cluster: server
";
        }
        filters
    } else {
        let router = if is_router {
            ""
        } else {
            "          - name: router
            typed_config: { \"@type\": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }
"
        };
        format!(
            "      - name: http
        typed_config:
          \"@type\": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.\
          HttpConnectionManager
          stat_prefix: in
          route_config:
            virtual_hosts:
            - {{ name: all, domains: [\"*\"], routes: [ {{ match: {{ prefix: / }}, route: {{ cluster: app }} }} ] }}
          http_filters:
{}{router}",
            indented(10)
        )
    };
    let cluster = |name: &str, port: u16, more: &str| {
        format!(
            "  - name: {name}
    type: STATIC
    load_assignment:
      cluster_name: {name}
      endpoints: [ {{ lb_endpoints: [ {{ endpoint: {{ address: {{ socket_address: {{ address: 127.0.0.1, \
             port_value: {port} }} }} }} }} ] }} ]{more}
"
        )
    };
    let http2 = "
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        \"@type\": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: { http2_protocol_options: {} }";
    format!(
        "static_resources:
  listeners:
  - name: in
    address: {{ socket_address: {{ address: 127.0.0.1, port_value: 0 }} }}
    filter_chains:
    - filters:
{filters}  clusters:
{}{}  secrets:
  - {{ name: key, generic_secret: {{ secret: {{ inline_string: secret }} }} }}
",
        cluster("app", 1, ""),
        cluster("server", 2, http2)
    )
}
