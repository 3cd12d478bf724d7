//! Origins under TLS that are killed and started again.

use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use crate::common::{Proxy, bootstrap};
use crate::load::{Habit, Load};
use crate::nginx::Nginx;
use crate::nothing_is_left;

#[test]
#[ignore = "needs nginx"]
fn an_origin_under_tls_is_answered_for_until_it_is_back() {
    let (chain, key, root) = certificates();
    let Some(mut origin) = Nginx::start_secure(&chain, &key) else { return };
    let config = bootstrap(origin.address).replace("type: STATIC", &secured(&root));
    let proxy = Proxy::start(&config, &[]);
    let load = Load::start(&proxy.listener("ingress"), 8, Habit::KeepAlive);
    std::thread::sleep(Duration::from_millis(300));
    for _ in 0..2 {
        origin.kill();
        std::thread::sleep(Duration::from_millis(150));
        origin.restart();
        std::thread::sleep(Duration::from_millis(300));
    }
    let tally = load.stop();
    eprintln!("killed under TLS: {tally:?}");
    assert_eq!(tally.lost(), 0, "{tally:?}");
    assert!(tally.count(200) > 100 && tally.count(503) > 0, "{tally:?}");
    assert_eq!(tally.answered(), tally.count(200) + tally.count(503), "{tally:?}");
    // It works as before.
    let load = Load::start(&proxy.listener("ingress"), 4, Habit::KeepAlive);
    std::thread::sleep(Duration::from_millis(100));
    let after = load.stop();
    assert_eq!(after.answered(), after.count(200), "{after:?}");
    nothing_is_left(&proxy);
    assert!(proxy.stat("cluster.origin.ssl.handshake") > Some(8));
    assert_eq!(
        proxy.stat("cluster.origin.ssl.versions.TLSv1.3"),
        proxy.stat("cluster.origin.ssl.handshake")
    );
}

/// Chain and key of a server, and the root that vouches for it.
fn certificates() -> (String, String, String) {
    let (key, mut params) = (KeyPair::generate().unwrap(), CertificateParams::default());
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let root = params.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec!["app.test".to_owned()]).unwrap();
    (leaf.signed_by(&key, &issuer).unwrap().pem(), key.serialize_pem(), root)
}

/// Fields of a cluster that speaks TLS to servers that this root vouches for.
fn secured(root: &str) -> String {
    let root = serde_json::Value::from(root);
    format!(
        r#"type: STATIC
    transport_socket:
      name: tls
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
        sni: app.test
        auto_sni_san_validation: true
        common_tls_context:
          tls_params: {{ tls_maximum_protocol_version: TLSv1_3 }}
          validation_context: {{ trusted_ca: {{ inline_string: {root} }} }}"#
    )
}
