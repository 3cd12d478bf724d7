//! `TlsParameters`: versions, cipher suites, groups and signatures of either side.

use towpath_proto::tls::{CipherSuite, Group, SignatureAlgorithm, Version};

use super::Converter;
use crate::error::Rank;
use crate::message::Message;

/// What either side speaks.
#[derive(Debug)]
pub(super) struct Parameters {
    pub(super) versions: (Version, Version),
    pub(super) cipher_suites: Vec<CipherSuite>,
    pub(super) groups: Vec<Group>,
    pub(super) signature_algorithms: Vec<SignatureAlgorithm>,
}

impl Parameters {
    /// What BoringSSL's policy of that name allows, after NIST SP 800-52 revision 2.
    fn fips() -> Self {
        Self {
            versions: (Version::Tls12, Version::Tls13),
            cipher_suites: FIPS_SUITES.into_iter().filter_map(CipherSuite::named).collect(),
            groups: FIPS_GROUPS.into_iter().filter_map(Group::named).collect(),
            signature_algorithms: FIPS_SIGNATURES
                .into_iter()
                .filter_map(SignatureAlgorithm::named)
                .collect(),
        }
    }
}

impl Converter<'_> {
    /// `default` are the versions that stand for `TLS_AUTO`.
    pub(super) fn parameters(
        &mut self,
        parameters: Option<&Message>,
        default: (Version, Version),
    ) -> Option<Parameters> {
        let versions = self.versions(parameters, default);
        let cipher_suites = self.cipher_suites(parameters);
        let groups = self.groups(parameters);
        let signature_algorithms = self.signature_algorithms(parameters);
        let chosen = Parameters {
            versions: versions?,
            cipher_suites: cipher_suites?,
            groups: groups?,
            signature_algorithms: signature_algorithms?,
        };
        // The policy comes last, and replaces all that.
        let has_policy = parameters.is_some_and(|it| it.has("compliance_policies"));
        Some(if has_policy { Parameters::fips() } else { chosen })
    }

    /// `default` is what stands for `TLS_AUTO`.
    fn versions(
        &mut self,
        parameters: Option<&Message>,
        default: (Version, Version),
    ) -> Option<(Version, Version)> {
        let Some(parameters) = parameters else { return Some(default) };
        let mut version = |field: &str, default| match parameters.choice(field).as_str() {
            "TLSv1_2" => Some(Version::Tls12),
            "TLSv1_3" => Some(Version::Tls13),
            "TLSv1_0" | "TLSv1_1" => {
                self.report
                    .unsupported(parameters.at(field), "versions of TLS before 1.2 are not spoken");
                None
            }
            _ => Some(default),
        };
        let least = version("tls_minimum_protocol_version", default.0);
        let most = version("tls_maximum_protocol_version", default.1);
        Some((least?, most?))
    }

    /// BoringSSL's lists: names behind each other, or between `[`, `|` and `]` when they are equally good. A client has
    /// no use for that, and a server here goes by their order.
    fn cipher_suites(&mut self, parameters: Option<&Message>) -> Option<Vec<CipherSuite>> {
        let mut found = Vec::new();
        let mut missed = None;
        let texts = parameters.into_iter().flat_map(|it| it.texts("cipher_suites"));
        for (text, at) in texts {
            for name in text.split([':', '|', '[', ']']).filter(|name| !name.is_empty()) {
                match CipherSuite::named(name) {
                    Some(suite) => found.push(suite),
                    None if OLD_SUITES.contains(&name) => {
                        let text = format!("`{name}` is not offered: it is too weak");
                        self.report.finding(at, Rank::Harmless, text);
                        missed = Some(at);
                    }
                    None => {
                        self.report.unsupported(at, format!("`{name}` is not there"));
                        return None;
                    }
                }
            }
        }
        if let Some(at) = missed.filter(|_| found.is_empty()) {
            self.report.unsupported(at, "none of these cipher suites is there");
            return None;
        }
        Some(found)
    }

    pub(super) fn groups(&mut self, parameters: Option<&Message>) -> Option<Vec<Group>> {
        let mut groups = Vec::new();
        let texts = parameters.into_iter().flat_map(|it| it.texts("ecdh_curves"));
        for (text, at) in texts {
            for name in text.split(':').filter(|name| !name.is_empty()) {
                let group = Group::named(name);
                if group.is_none() {
                    self.report.unsupported(at, format!("`{name}` is not there"));
                }
                groups.push(group?);
            }
        }
        let default = || DEFAULT_GROUPS.into_iter().filter_map(Group::named).collect();
        Some(if groups.is_empty() { default() } else { groups })
    }

    /// Names as in RFC 8446. One that is twice in the list, or that BoringSSL does not know, spoils it.
    fn signature_algorithms(
        &mut self,
        parameters: Option<&Message>,
    ) -> Option<Vec<SignatureAlgorithm>> {
        let mut found: Vec<SignatureAlgorithm> = Vec::new();
        let mut missed = None;
        let texts = parameters.into_iter().flat_map(|it| it.texts("signature_algorithms"));
        for (text, at) in texts {
            for name in text.split(':') {
                match SignatureAlgorithm::named(name) {
                    Some(algorithm) if !found.contains(&algorithm) => found.push(algorithm),
                    None if OLD_SIGNATURES.contains(&name) => {
                        let text = format!("`{name}` is not offered: it is too weak");
                        self.report.finding(at, Rank::Harmless, text);
                        missed = Some(at);
                    }
                    None if name.contains('+') => {
                        let text = format!("write `{name}` as RFC 8446 does");
                        self.report.unsupported(at, text);
                        return None;
                    }
                    Some(_) | None => {
                        let text = format!("Failed to initialize TLS signature algorithms {text}");
                        self.report.problem(at, text);
                        return None;
                    }
                }
            }
        }
        if let Some(at) = missed.filter(|_| found.is_empty()) {
            self.report.unsupported(at, "none of these signature algorithms is there");
            return None;
        }
        Some(found)
    }
}

/// Suites without forward secrecy, or with CBC or 3DES, which no client needs that knows another of a list.
const OLD_SUITES: [&str; 9] = [
    "AES128-GCM-SHA256",
    "AES256-GCM-SHA384",
    "AES128-SHA",
    "AES256-SHA",
    "DES-CBC3-SHA",
    "ECDHE-ECDSA-AES128-SHA",
    "ECDHE-ECDSA-AES256-SHA",
    "ECDHE-RSA-AES128-SHA",
    "ECDHE-RSA-AES256-SHA",
];
/// What Envoy 1.40 offers.
const DEFAULT_GROUPS: [&str; 3] = ["X25519MLKEM768", "X25519", "P-256"];
/// With SHA-1.
const OLD_SIGNATURES: [&str; 2] = ["rsa_pkcs1_sha1", "ecdsa_sha1"];
const FIPS_SUITES: [&str; 6] = [
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "ECDHE-ECDSA-AES128-GCM-SHA256",
    "ECDHE-RSA-AES128-GCM-SHA256",
    "ECDHE-ECDSA-AES256-GCM-SHA384",
    "ECDHE-RSA-AES256-GCM-SHA384",
];
const FIPS_GROUPS: [&str; 2] = ["P-256", "P-384"];
const FIPS_SIGNATURES: [&str; 8] = [
    "rsa_pkcs1_sha256",
    "rsa_pkcs1_sha384",
    "rsa_pkcs1_sha512",
    "ecdsa_secp256r1_sha256",
    "ecdsa_secp384r1_sha384",
    "rsa_pss_rsae_sha256",
    "rsa_pss_rsae_sha384",
    "rsa_pss_rsae_sha512",
];
