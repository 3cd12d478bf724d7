//! `DownstreamTlsContext`: how the clients of a filter chain are spoken to under TLS.

use std::time::Duration;

use towpath_engine::snapshot::listener::Terminal;
use towpath_engine::snapshot::tls::Certificates;
use towpath_engine::snapshot::{DownstreamTls, Http};
use towpath_proto::tls::{
    Identity, Names, ServerSettings, ServerTemplate, SettingsError, Staple, StaplePolicy,
    TicketKey, Tickets, Trust, Version,
};

use super::Converter;
use super::extension::TRANSPORT_SOCKET;
use super::secret::TICKET_KEYS;
use super::tls::{RAW_BUFFER, alpn};
use crate::error::Rank;
use crate::message::{At, Message};

const DOWNSTREAM_TLS: &str = "envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext";

/// Which clients have to show a certificate.
#[derive(Debug)]
struct ClientCertificates {
    trust: Option<Trust>,
    are_required: bool,
    hides_roots: bool,
}

impl Converter<'_> {
    /// A filter chain's transport socket; `None` is plain text, or something that is reported. The chain's last filter
    /// decides which protocols can be negotiated.
    pub(super) fn downstream_socket(
        &mut self,
        socket: &Message,
        terminal: Option<&Terminal>,
    ) -> Option<DownstreamTls> {
        let (config, at) =
            self.extension(socket, TRANSPORT_SOCKET, &[RAW_BUFFER, DOWNSTREAM_TLS])?;
        if config.descriptor.full_name() == RAW_BUFFER {
            return None;
        }
        let http = match terminal {
            Some(Terminal::Http(http)) => Some(&**http),
            _ => None,
        };
        self.awaits_secret = false;
        self.certificates = Certificates::default();
        let template = self.server_template(config, at, http);
        // Where there is another reason it was reported.
        let is_told = template.is_some() || self.awaits_secret;
        self.name_certificates(config.message("common_tls_context"));
        let certificates = std::mem::take(&mut self.certificates);
        is_told.then_some(DownstreamTls { template, certificates })
    }

    fn server_template(
        &mut self,
        config: &Message,
        at: &At,
        http: Option<&Http>,
    ) -> Option<ServerTemplate> {
        let common = config.message("common_tls_context");
        let identities = self.server_identities(config, common);
        let clients = self.client_certificates(config, common);
        let parameters = common.and_then(|common| common.message("tls_params"));
        let chosen = self.parameters(parameters, SERVER_VERSIONS);
        let alpn = match http {
            Some(http) if http.http2.is_none() => self.http1_alpn(common),
            _ => alpn(common),
        };
        let tickets = self.tickets(config);
        let ClientCertificates { trust, are_required, hides_roots } = clients?;
        let defaults = ServerSettings::default();
        let chosen = chosen?;
        let settings = ServerSettings {
            versions: chosen.versions,
            cipher_suites: chosen.cipher_suites,
            prefers_client_ciphers: config.flag("prefer_client_ciphers"),
            groups: chosen.groups,
            signature_algorithms: chosen.signature_algorithms,
            alpn,
            identities: identities?,
            staple_policy: match config.choice("ocsp_staple_policy").as_str() {
                "STRICT_STAPLING" => StaplePolicy::Strict,
                "MUST_STAPLE" => StaplePolicy::Must,
                _ => StaplePolicy::Lenient,
            },
            scans_all_identities: config.flag("full_scan_certs_on_sni_mismatch"),
            trust,
            requires_certificate: are_required,
            hides_roots,
            tickets: tickets?,
            stored_sessions: match config.flag("disable_stateful_session_resumption") {
                true => 0,
                false => defaults.stored_sessions,
            },
            // To BoringSSL 0 means its default.
            session_lifetime: config
                .duration("session_timeout")
                .filter(|timeout| *timeout >= Duration::from_secs(1))
                .unwrap_or(defaults.session_lifetime),
            key_log: self.key_log(common),
        };
        settings.build().map_err(|error| self.unfit(at, &error)).ok()
    }

    fn server_identities(
        &mut self,
        config: &Message,
        common: Option<&Message>,
    ) -> Option<Vec<Identity>> {
        let certificates = match common {
            Some(common) => self.certificates(common)?,
            None => Vec::new(),
        };
        let is_elsewhere =
            common.is_some_and(|common| ELSEWHERE.iter().any(|field| common.has(field)));
        if certificates.is_empty() && !is_elsewhere {
            self.report.problem(&config.at, "No TLS certificates found for server context");
        }
        // Each is looked at, so that one run says what is wrong with all.
        let identities: Vec<_> =
            certificates.into_iter().map(|certificate| self.server_identity(certificate)).collect();
        let identities = identities.into_iter().collect::<Option<Vec<_>>>()?;
        let must_staple = config.choice("ocsp_staple_policy") == "MUST_STAPLE";
        if must_staple && identities.iter().any(|identity| identity.staple.is_none()) {
            self.report
                .problem(config.at("ocsp_staple_policy"), SettingsError::NoStaple.to_string());
            return None;
        }
        Some(identities).filter(|found| !found.is_empty())
    }

    fn server_identity(&mut self, certificate: &Message) -> Option<Identity> {
        let staple = match certificate.message("ocsp_staple") {
            Some(source) => self.staple(source),
            None => Some(None),
        };
        let mut identity = self.identity_of(certificate)?;
        identity.staple = staple?;
        Some(identity)
    }

    /// What an authority says of a certificate; nothing is none.
    fn staple(&mut self, source: &Message) -> Option<Option<Staple>> {
        if source.has("inline_string") {
            self.report.problem(&source.at, "OCSP staple cannot be provided via inline_string");
            return None;
        }
        let der = self.secret_data(source, MAX_STAPLE_BYTES)?;
        if der.is_empty() {
            return Some(None);
        }
        let staple = Staple::from_der(&der);
        staple.map_err(|error| self.report.problem(&source.at, error.to_string())).ok().map(Some)
    }

    /// Envoy asks for a certificate where it has something to judge it by. Names and digests make one necessary, roots
    /// only with `require_client_certificate`.
    fn client_certificates(
        &mut self,
        config: &Message,
        common: Option<&Message>,
    ) -> Option<ClientCertificates> {
        let contexts = self.validation_contexts(common)?;
        let is_required = config.flag("require_client_certificate");
        let depth = contexts.iter().rev().find_map(|context| context.number("max_verify_depth"));
        // With 0, too, Envoy 1.40 takes a certificate that a trusted one has signed.
        let max_depth = depth.map(|depth| u32::try_from(depth).unwrap_or(u32::MAX).max(1));
        let trust = Trust { max_depth, ..self.trust(&contexts)? };
        let pins = trust.spki_sha256.len() + trust.certificate_sha256.len();
        let is_particular = pins > 0 || !matches!(trust.names, Names::Any);
        let is_asked = trust.roots.is_some() || is_particular || trust.accept_untrusted;
        if is_required && trust.roots.is_none() && !is_particular {
            self.report.finding(
                config.at("require_client_certificate"),
                Rank::Harmless,
                "as in Envoy, clients are not asked for a certificate without a `trusted_ca`",
            );
        }
        let are_required =
            (is_required && trust.roots.is_some()) || (is_particular && !trust.accept_untrusted);
        Some(ClientCertificates {
            trust: is_asked.then_some(trust),
            are_required,
            hides_roots: contexts.iter().any(|context| context.flag("suppress_client_ca_list")),
        })
    }

    /// HTTP/2 is not spoken, so it is not negotiated: a client that offers both speaks HTTP/1.1.
    fn http1_alpn(&mut self, common: Option<&Message>) -> Vec<Vec<u8>> {
        let mut names = alpn(common);
        let all = names.len();
        names.retain(|name| name != b"h2");
        if let Some(common) = common
            && names.len() < all
        {
            let at = common.at("alpn_protocols");
            if names.is_empty() {
                self.report.unsupported(at, "HTTP/2 does not come in; see codec_type");
            } else {
                let reason = "HTTP/2 does not come in (see codec_type); HTTP/1.1 is chosen";
                self.report.finding(at, Rank::Harmless, reason);
            }
        }
        names
    }

    fn tickets(&mut self, config: &Message) -> Option<Tickets> {
        if config.flag("disable_stateless_session_resumption") {
            return Some(Tickets::None);
        }
        let own = config.message("session_ticket_keys");
        let named = config.message("session_ticket_keys_sds_secret_config");
        let given = match (own, named) {
            (Some(own), _) => own,
            (None, Some(named)) => self.secret(named, TICKET_KEYS)?,
            (None, None) => return Some(Tickets::Own),
        };
        let mut keys = Vec::new();
        for source in given.messages("keys") {
            let bytes = self.secret_data(source, MAX_KEY_BYTES)?;
            let key = TicketKey::from_bytes(&bytes);
            if key.is_err() {
                let length = bytes.len();
                self.report.problem(
                    &source.at,
                    format!("Incorrect TLS session ticket key length. Length {length}, expected length 80."),
                );
            }
            keys.push(key.ok()?);
        }
        // The protos' rules want at least one, and have said so.
        (!keys.is_empty()).then_some(Tickets::Given(keys))
    }
}

/// Where certificates may be beside `tls_certificates`; all of it is refused by the table of support.
const ELSEWHERE: [&str; 4] = [
    "tls_certificate_provider_instance",
    "tls_certificate_certificate_provider",
    "tls_certificate_certificate_provider_instance",
    "custom_tls_certificate_selector",
];
/// Envoy's for servers.
const SERVER_VERSIONS: (Version, Version) = (Version::Tls12, Version::Tls13);
/// An OCSP response has some hundred bytes, and as many as a certificate more where it brings that of its signer.
const MAX_STAPLE_BYTES: usize = 64 * 1024;
/// A file that is longer is none with a key; how long it is can still be told.
const MAX_KEY_BYTES: usize = 4096;
