//! What connections between sidecars offer.

use std::sync::Arc;

use towpath_engine::filter::istio_alpn::IstioAlpn;
use towpath_engine::mesh::{AlpnOverride, Protocols};

use super::Known;
use crate::convert::Converter;
use crate::message::Message;
use crate::support::Entry;

const CONFIG: &str = "istio.envoy.config.filter.http.alpn.v2alpha1.FilterConfig";
const OVERRIDE: &str = "istio.envoy.config.filter.http.alpn.v2alpha1.AlpnOverride";

pub(super) const FILTER: Known = Known {
    config_type: CONFIG,
    convert: |converter, config| Some(Arc::new(IstioAlpn(Arc::new(read(converter, config))))),
    by_route: None,
    support: SUPPORT,
};

fn read(converter: &mut Converter<'_>, config: &Message) -> AlpnOverride {
    let mut found = AlpnOverride::default();
    for one in config.messages("alpn_override") {
        let names = one.texts("alpn_override");
        let list = names.map(|(name, at)| {
            if name.is_empty() || name.len() > 255 {
                converter.report.problem(at, "a protocol's name has 1 to 255 bytes (RFC 7301)");
            }
            Box::from(name.as_bytes())
        });
        let list: Protocols = list.collect();
        match one.choice("upstream_protocol").as_str() {
            "HTTP11" => found.http1 = list,
            "HTTP2" => found.http2 = list,
            // Nothing is spoken in HTTP/1.0 to servers.
            _ => {}
        }
    }
    found
}

const SUPPORT: &[Entry] = &[
    Entry { message: CONFIG, honoured: &["alpn_override"], harmless: &[], changes: &[] },
    Entry {
        message: OVERRIDE,
        honoured: &["upstream_protocol", "alpn_override"],
        harmless: &[],
        changes: &[],
    },
];
