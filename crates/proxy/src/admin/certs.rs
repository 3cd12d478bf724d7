//! `/certs`: the certificates of all TLS contexts, as Envoy's `Certificates`.

use std::time::{Duration, SystemTime};

use serde_json::{Map, Value, json};
use towpath_engine::snapshot::Snapshot;
use towpath_engine::snapshot::tls::{Certificates, ShownCertificate};
use towpath_proto::tls::{AlternativeName, Certificate};

use super::reply::Reply;
use crate::control::Control;
use crate::logger::format::Civil;

pub(super) fn certs(control: &Control) -> Reply {
    let snapshot = control.snapshot.borrow();
    super::json(&json!({ "certificates": all(&snapshot, SystemTime::now()) }))
}

fn all(snapshot: &Snapshot, now: SystemTime) -> Vec<Value> {
    let chains = snapshot
        .listeners
        .iter()
        .flat_map(|listener| listener.chains.iter().chain(&listener.default_chain));
    let downstream = chains.filter_map(|chain| chain.tls.as_ref()).map(|tls| &tls.certificates);
    let clusters = snapshot.shown_clusters();
    let upstream = clusters
        .flat_map(|cluster| cluster.sockets.iter().chain([&cluster.tls]).flatten())
        .map(|tls| &tls.certificates);
    let contexts = downstream.chain(upstream);
    let shown = contexts.filter(|it| !it.trusted.is_empty() || !it.own.is_empty());
    shown.map(|certificates| context(certificates, now)).collect()
}

fn context(certificates: &Certificates, now: SystemTime) -> Value {
    let Certificates { trusted, own, .. } = certificates;
    let lists = [("ca_cert", trusted), ("cert_chain", own)];
    let lists = lists.into_iter().filter(|(_, list)| !list.is_empty());
    let details = |list: &[ShownCertificate]| -> Value {
        list.iter().filter_map(|shown| details(shown, now)).collect()
    };
    lists.map(|(name, list)| (name.to_owned(), details(list))).collect::<Map<_, _>>().into()
}

/// Envoy's `CertificateDetails`.
fn details(shown: &ShownCertificate, now: SystemTime) -> Option<Value> {
    let certificate = Certificate::parse(&shown.der)?;
    let (from, until) = certificate.validity();
    let path = if shown.path.is_empty() { "<inline>" } else { &*shown.path };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let name = |name| match name {
        AlternativeName::Dns(name) => Some((0, json!({ "dns": text(name) }))),
        AlternativeName::Uri(name) => Some((1, json!({ "uri": text(name) }))),
        AlternativeName::Ip(address) => Some((2, json!({ "ip_address": address.to_string() }))),
        AlternativeName::Email(_) | AlternativeName::Other { .. } => None,
    };
    // Envoy's order.
    let mut names: Vec<_> = certificate.alternative_names().filter_map(name).collect();
    names.sort_by_key(|(order, _)| *order);
    let names: Vec<Value> = names.into_iter().map(|(_, name)| name).collect();
    let left = instant(until).duration_since(now).map_or(0, |left| left.as_secs() / DAY);
    Some(json!({
        "path": path,
        "serial_number": certificate.serial(),
        "subject_alt_names": names,
        "days_until_expiration": left.to_string(),
        "valid_from": Civil::of(instant(from)).rfc3339(),
        "expiration_time": Civil::of(instant(until)).rfc3339(),
    }))
}

fn instant(seconds: i64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}

const DAY: u64 = 24 * 60 * 60;
