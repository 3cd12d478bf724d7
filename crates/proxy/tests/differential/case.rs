//! A suite as its file has it.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Cases that share a bootstrap.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Suite {
    #[serde(default)]
    pub(crate) http: BTreeMap<String, Http>,
    #[serde(default)]
    pub(crate) tcp: BTreeMap<String, Tcp>,
    #[serde(default)]
    pub(crate) cluster: BTreeMap<String, Cluster>,
    /// Upstreams under TLS, by name.
    #[serde(default)]
    pub(crate) secure: BTreeMap<String, Secure>,
    /// Further fields of the bootstrap.
    #[serde(default)]
    pub(crate) bootstrap: String,
    /// Secrets that TLS contexts name, a list.
    #[serde(default)]
    pub(crate) secrets: String,
    /// What differs on purpose in any case of the suite.
    #[serde(default)]
    pub(crate) differs: Vec<Difference>,
    #[serde(rename = "case")]
    pub(crate) cases: Vec<Case>,
}

/// What differs on purpose in any suite.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct General {
    pub(crate) differs: Vec<Difference>,
}

/// An HTTP listener; each text is YAML.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Http {
    /// Fields of the connection manager.
    #[serde(default)]
    pub(crate) manager: String,
    /// Fields of the listener.
    #[serde(default)]
    pub(crate) listener: String,
    /// Fields of the filter chain.
    #[serde(default)]
    pub(crate) chain: String,
    /// Network filters before the connection manager, a list.
    #[serde(default)]
    pub(crate) filters: String,
    /// Fields of the route table.
    #[serde(default)]
    pub(crate) table: String,
    /// The virtual hosts; everything to the cluster `app` when missing.
    pub(crate) hosts: Option<String>,
}

/// A TCP listener.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tcp {
    /// Fields of the TCP proxy, as YAML.
    #[serde(default)]
    pub(crate) proxy: String,
    /// Another filter in the place of the TCP proxy, a list of one.
    #[serde(default)]
    pub(crate) last: String,
    /// Fields of the listener.
    #[serde(default)]
    pub(crate) listener: String,
    /// Fields of the filter chain.
    #[serde(default)]
    pub(crate) chain: String,
    /// Network filters before the TCP proxy, a list.
    #[serde(default)]
    pub(crate) filters: String,
}

/// A cluster with its endpoints.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Cluster {
    /// Names of upstreams: `raw…` follow their script from the first byte, `closed` refuses, others speak HTTP.
    #[serde(default)]
    pub(crate) to: Vec<String>,
    /// Further fields, as YAML.
    #[serde(default)]
    pub(crate) fields: String,
}

/// TLS in front of an upstream of the same name.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Secure {
    /// Which certificate it shows.
    pub(crate) certificate: String,
    /// The only version that it speaks: `1.2` or `1.3`.
    pub(crate) versions: Option<String>,
    /// It wants a certificate of ours.
    #[serde(default)]
    pub(crate) asks_client: bool,
    /// Protocols that it speaks.
    #[serde(default)]
    pub(crate) alpn: Vec<String>,
    /// It lets clients resume their sessions.
    #[serde(default)]
    pub(crate) resumes: bool,
    /// What it does wrong.
    pub(crate) breaks: Option<Breaks>,
}

/// How a server under TLS is broken.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Breaks {
    /// It answers nothing.
    Stall,
    /// It ends the connection in the handshake.
    Close,
    /// It resets the connection in the handshake.
    Reset,
    /// It answers in plain text.
    Garbage,
    /// It refuses with `handshake_failure`.
    Alert,
    /// It refuses with `unrecognized_name`.
    OtherAlert,
    /// It ends connections without `close_notify`.
    CloseNotify,
}

/// One conversation.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Case {
    pub(crate) name: String,
    /// The listener; `main` when missing, `admin` for the admin endpoint.
    #[serde(default = "main")]
    pub(crate) to: String,
    /// One request, answered by one response.
    pub(crate) ask: Option<String>,
    /// Connections of OpenSSL's client, by its options; each asks `ask`.
    #[serde(default)]
    pub(crate) openssl: Vec<String>,
    /// Runs of curl, by their options.
    #[serde(default)]
    pub(crate) curl: Vec<String>,
    /// What the client does instead.
    #[serde(default)]
    pub(crate) talk: Vec<String>,
    /// What upstreams do with each request (or connection), in the order of arrival; 200 with `ok` after that.
    #[serde(default)]
    pub(crate) upstream: Vec<String>,
    /// How many lines the access logs get, when that is not the number of responses.
    pub(crate) logs: Option<usize>,
    /// Compare which keys the JSON has, not its values.
    #[serde(default)]
    pub(crate) shape: bool,
    /// Lines that are not compared: a pattern.
    pub(crate) ignore: Option<String>,
    #[serde(default)]
    pub(crate) differs: Vec<Difference>,
}

/// Something that differs on purpose: patterns of whole lines.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Difference {
    /// Only Envoy has it.
    #[serde(default)]
    pub(crate) envoy: Vec<String>,
    /// Only Towpath has it.
    #[serde(default)]
    pub(crate) towpath: Vec<String>,
    /// The reason, for readers of the case.
    #[expect(dead_code, reason = "every difference must give one; it is for people")]
    pub(crate) why: String,
}

fn main() -> String {
    "main".to_owned()
}
