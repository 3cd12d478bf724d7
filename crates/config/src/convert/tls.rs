//! `UpstreamTlsContext`: how a cluster's hosts are spoken to under TLS; and what it has in common with
//! `DownstreamTlsContext`.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use towpath_engine::matcher::{AlternativeNameKind, AlternativeNameMatcher};
use towpath_engine::snapshot::http2::Choice;
use towpath_engine::snapshot::tls::{AskedName, Certificates, ShownCertificate};
use towpath_engine::snapshot::{Http2, UpstreamTls};
use towpath_proto::tls::object_id;
use towpath_proto::tls::{
    Certificate, ClientSettings, ClientTemplate, Identity, NameMatcher, Names, Revocations, Roots,
    ServerName, SettingsError, Trust, Version,
};

use super::Converter;
use super::extension::TRANSPORT_SOCKET;
use super::proxy_protocol::UPSTREAM_PROXY;
use crate::error::Rank;
use crate::message::{At, Message, Value, to_json};

pub(super) const RAW_BUFFER: &str = "envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer";
const UPSTREAM_TLS: &str = "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext";
pub(super) const INTERNAL_UPSTREAM: &str =
    "envoy.extensions.transport_sockets.internal_upstream.v3.InternalUpstreamTransport";
const UPSTREAM_QUIC: &str = "envoy.extensions.transport_sockets.quic.v3.QuicUpstreamTransport";
/// A file of trusted certificates: that of a platform has 200 KiB.
pub(super) const MAX_PEM_BYTES: usize = 4 * 1024 * 1024;

impl Converter<'_> {
    /// A cluster's transport socket; `None` is plain text. `http2` says how it speaks HTTP/2, if it does.
    pub(super) fn upstream_socket(
        &mut self,
        socket: &Message,
        http2: Option<&Http2>,
    ) -> Option<UpstreamTls> {
        let known = [RAW_BUFFER, UPSTREAM_TLS, INTERNAL_UPSTREAM, UPSTREAM_PROXY];
        let (config, at) = self.extension(socket, TRANSPORT_SOCKET, &known)?;
        match config.descriptor.full_name() {
            RAW_BUFFER => return None,
            // How deep they go is limited where they are read.
            INTERNAL_UPSTREAM | UPSTREAM_PROXY => {
                return self.upstream_socket(config.message("transport_socket")?, http2);
            }
            _ => {}
        }
        self.upstream_tls(config, at, http2)
    }

    fn upstream_tls(
        &mut self,
        config: &Message,
        at: &At,
        http2: Option<&Http2>,
    ) -> Option<UpstreamTls> {
        let name = self.server_name(config.text("sni"), config);
        let others = std::mem::take(&mut self.files);
        self.awaits_secret = false;
        self.certificates = Certificates::default();
        let template = self.client_template(config, at, http2);
        let mut shape = DefaultHasher::new();
        (to_json(config).to_string(), self.files, self.secrets).hash(&mut shape);
        self.files ^= others.rotate_left(1);
        // Where there is another reason it was reported.
        let is_told = template.is_some() || self.awaits_secret;
        self.name_certificates(config.message("common_tls_context"));
        is_told.then_some(UpstreamTls {
            template,
            shape: Some(shape.finish()),
            name: name?,
            certificates: std::mem::take(&mut self.certificates),
        })
    }

    fn client_template(
        &mut self,
        config: &Message,
        at: &At,
        http2: Option<&Http2>,
    ) -> Option<ClientTemplate> {
        let common = config.message("common_tls_context");
        let sni = config.text("sni");
        let trust = self.upstream_trust(config, common, sni);
        let parameters = common.and_then(|common| common.message("tls_params"));
        let chosen = self.parameters(parameters, CLIENT_VERSIONS);
        let identity = common.map_or(Some(None), |common| self.identity(common));
        let chosen = chosen?;
        let settings = ClientSettings {
            versions: chosen.versions,
            cipher_suites: chosen.cipher_suites,
            groups: chosen.groups,
            signature_algorithms: chosen.signature_algorithms,
            alpn: upstream_alpn(common, http2),
            trust: trust?,
            identity: identity?,
            stored_sessions: config
                .number("max_session_keys")
                .map_or(1, |keys| usize::try_from(keys).unwrap_or(usize::MAX)),
            key_log: self.key_log(common),
        };
        settings.build().map_err(|error| self.unfit(at, &error)).ok()
    }

    /// Tells what is wrong with settings; some of it Envoy takes.
    pub(super) fn unfit(&mut self, at: &At, error: &SettingsError) {
        match error {
            SettingsError::RevocationList => self.report.unsupported(at, error.to_string()),
            error => self.report.problem(at, error.to_string()),
        }
    }

    fn server_name(&mut self, sni: &str, config: &Message) -> Option<AskedName> {
        let fixed = match sni {
            "" => ServerName::unnamed(),
            sni => {
                let Ok(name) = ServerName::verbatim(sni) else {
                    let text = "cannot be sent: a label has 1 to 63 bytes and no hyphen at its ends, all of them 240";
                    self.report.unsupported(config.at("sni"), text);
                    return None;
                };
                name
            }
        };
        let of_host = config.flag("auto_host_sni");
        Some(if of_host { AskedName::OfHost(fixed) } else { AskedName::Fixed(fixed) })
    }

    fn upstream_trust(
        &mut self,
        config: &Message,
        common: Option<&Message>,
        sni: &str,
    ) -> Option<Trust> {
        let contexts = self.validation_contexts(common)?;
        let by_sni = config.flag("auto_sni_san_validation");
        if by_sni && contexts.iter().all(|context| context.message("trusted_ca").is_none()) {
            self.report.problem(
                config.at("auto_sni_san_validation"),
                "'auto_sni_san_validation' was configured without configuring a trusted CA",
            );
        }
        if let Some(context) = contexts.iter().find(|it| it.has("max_verify_depth")) {
            let reason = "as in Envoy, a chain that a server shows may be longer";
            self.report.finding(context.at("max_verify_depth"), Rank::Harmless, reason);
        }
        let trust = self.trust(&contexts)?;
        // Envoy: with `auto_sni_san_validation` the name that is sent replaces all matchers, if one is sent.
        let sends_name = !sni.is_empty() || config.flag("auto_host_sni");
        let names = if by_sni && sends_name { Names::Server } else { trust.names };
        Some(Trust { names, ..trust })
    }

    /// What these `CertificateValidationContext`s say together: of one value the last, of lists all.
    pub(super) fn trust(&mut self, contexts: &[&Message]) -> Option<Trust> {
        let source = contexts.iter().rev().find_map(|context| context.message("trusted_ca"));
        let mut trust = Trust {
            ignores_dates: contexts.iter().any(|it| it.flag("allow_expired_certificate")),
            checks_key_usage: true,
            ..Trust::default()
        };
        if let Some(source) = source {
            (trust.roots, trust.revocations) = self.roots(source)?;
        }
        if let Some(source) = contexts.iter().rev().find_map(|context| context.message("crl")) {
            let lists = self.revocations(source, trust.roots.is_some())?;
            match &mut trust.revocations {
                Some(revocations) => revocations.extend(lists),
                None => trust.revocations = Some(lists),
            }
        }
        if let Some(revocations) = &mut trust.revocations {
            let leaf_only = |context: &&Message| context.flag("only_verify_leaf_cert_crl");
            revocations.leaf_only = contexts.iter().any(leaf_only);
        }
        let mut matchers = Vec::new();
        for context in contexts {
            matchers.extend(self.name_matchers(context)?);
            let spki = self.digests(context, "verify_certificate_spki", "base64", from_base64)?;
            trust.spki_sha256.extend(spki);
            let hashes = self.digests(context, "verify_certificate_hash", "hex", from_hex)?;
            trust.certificate_sha256.extend(hashes);
            trust.accept_untrusted |=
                context.choice("trust_chain_verification") == "ACCEPT_UNTRUSTED";
        }
        if let Some(context) = contexts.last().filter(|_| !matchers.is_empty())
            && trust.roots.is_none()
        {
            self.report.problem(
                &context.at,
                "SAN-based verification of peer certificates without trusted CA is insecure and not allowed",
            );
        }
        if !matchers.is_empty() {
            trust.names = Names::Matching(matchers);
        }
        Some(trust)
    }

    /// Trusted certificates, and revocation lists that stand among them.
    fn roots(&mut self, source: &Message) -> Option<(Option<Roots>, Option<Revocations>)> {
        let pem = self.secret_data(source, MAX_PEM_BYTES)?;
        let has_lists = pem.windows(CRL.len()).any(|window| window == CRL);
        let revocations = has_lists.then(|| Revocations::from_pem(&pem)).transpose();
        let roots = Roots::from_pem(&pem).and_then(|roots| Ok((Some(roots), revocations?)));
        let roots =
            roots.map_err(|error| self.report.problem(&source.at, error.to_string())).ok()?;
        let shown = self.shown(source, &pem);
        self.certificates.trusted.extend(shown);
        Some(roots)
    }

    fn revocations(&mut self, source: &Message, has_roots: bool) -> Option<Revocations> {
        let pem = self.secret_data(source, MAX_PEM_BYTES)?;
        if !has_roots {
            self.report.problem(&source.at, "Failed to load CRL without trusted CA");
            return None;
        }
        match Revocations::from_pem(&pem) {
            Ok(lists) => Some(lists),
            Err(error) => {
                self.report.problem(&source.at, error.to_string());
                None
            }
        }
    }

    /// The first certificate of a file, for people.
    fn shown(&mut self, source: &Message, pem: &[u8]) -> Option<ShownCertificate> {
        let found = Certificate::first_of(pem)?;
        let known = self.shared_certificates.get(&*found).cloned();
        let der = known.unwrap_or_else(|| {
            let der: Arc<[u8]> = Arc::from(found);
            self.shared_certificates.insert(Arc::clone(&der));
            der
        });
        Some(ShownCertificate { path: Arc::from(source.text("filename")), der })
    }

    fn name_matchers(&mut self, context: &Message) -> Option<Vec<Arc<dyn NameMatcher>>> {
        let mut matchers: Vec<Arc<dyn NameMatcher>> = Vec::new();
        for typed in context.messages("match_typed_subject_alt_names") {
            matchers.push(Arc::new(self.name_matcher(typed)?));
        }
        // The older list goes for names of every kind.
        for matcher in context.messages("match_subject_alt_names") {
            for kind in [
                AlternativeNameKind::Dns,
                AlternativeNameKind::Uri,
                AlternativeNameKind::Email,
                AlternativeNameKind::Ip,
            ] {
                matchers.push(Arc::new(self.name_matcher_of(kind, matcher)?));
            }
        }
        Some(matchers)
    }

    fn name_matcher(&mut self, typed: &Message) -> Option<AlternativeNameMatcher> {
        let kind = match typed.choice("san_type").as_str() {
            "EMAIL" => AlternativeNameKind::Email,
            "DNS" => AlternativeNameKind::Dns,
            "URI" => AlternativeNameKind::Uri,
            "IP_ADDRESS" => AlternativeNameKind::Ip,
            "OTHER_NAME" => match object_id(typed.text("oid")) {
                Some(octets) => AlternativeNameKind::Other(octets),
                // Envoy takes the names that its TLS library has for some of them.
                None if typed
                    .text("oid")
                    .starts_with(|first: char| first.is_ascii_alphabetic()) =>
                {
                    self.report.unsupported(typed.at("oid"), "write the identifier in digits");
                    return None;
                }
                None => {
                    let oid = typed.text("oid");
                    let text =
                        format!("Failed to create SAN matcher for OTHER_NAME with OID: {oid}");
                    self.report.problem(typed.at("oid"), text);
                    return None;
                }
            },
            other => {
                let text = format!("names of the kind {other} are not matched");
                self.report.unsupported(typed.at("san_type"), text);
                return None;
            }
        };
        self.name_matcher_of(kind, typed.message("matcher")?)
    }

    fn name_matcher_of(
        &mut self,
        kind: AlternativeNameKind,
        matcher: &Message,
    ) -> Option<AlternativeNameMatcher> {
        let exact = matcher.oneof("match_pattern").and_then(|field| match &field.value {
            Value::String(text) if field.descriptor.name() == "exact" => Some(text),
            _ => None,
        });
        match exact {
            Some(domain) if kind == AlternativeNameKind::Dns && !matcher.flag("ignore_case") => {
                Some(AlternativeNameMatcher::domain(domain))
            }
            _ => Some(AlternativeNameMatcher::new(kind, self.string_matcher(matcher)?)),
        }
    }

    fn digests(
        &mut self,
        context: &Message,
        field: &str,
        form: &str,
        read: fn(&str) -> Option<[u8; 32]>,
    ) -> Option<Vec<[u8; 32]>> {
        let mut digests = Vec::new();
        for (text, at) in context.texts(field) {
            let digest = read(text);
            if digest.is_none() {
                self.report.problem(at, format!("Invalid {form}-encoded SHA-256 {text}"));
            }
            digests.push(digest?);
        }
        Some(digests)
    }

    fn identity(&mut self, common: &Message) -> Option<Option<Identity>> {
        match &*self.certificates(common)? {
            [] => Some(None),
            [certificate] => self.identity_of(certificate).map(Some),
            [_, second, ..] => {
                self.report.problem(
                    &second.at,
                    "Multiple TLS certificates are not supported for client contexts",
                );
                None
            }
        }
    }

    /// What a `TlsCertificate` says.
    pub(super) fn identity_of(&mut self, certificate: &Message) -> Option<Identity> {
        let mut source = |field: &str| match certificate.message(field) {
            Some(source) => self.secret_data(source, MAX_PEM_BYTES),
            None => {
                self.report.problem(&certificate.at, format!("needs a `{field}`"));
                None
            }
        };
        let (chain, key) = (source("certificate_chain"), source("private_key"));
        let (chain, key) = (chain?, key?);
        let shown = certificate.message("certificate_chain").and_then(|it| self.shown(it, &chain));
        self.certificates.own.extend(shown);
        let identity = Identity::from_pem(&chain, &key).and_then(|identity| {
            // Of a secret it is the secret that is wrong, and not who makes use of it.
            if self.discovered.secret_texts.contains(&certificate.at.text) {
                identity.check()?;
            }
            Ok(identity)
        });
        identity.map_err(|error| self.report.problem(&certificate.at, error.to_string())).ok()
    }
}

/// The protocols to offer or to choose from.
pub(super) fn alpn(common: Option<&Message>) -> Vec<Vec<u8>> {
    let names = common.into_iter().flat_map(|common| common.texts("alpn_protocols"));
    names.map(|(name, _)| name.as_bytes().to_vec()).collect()
}

/// What is offered to a cluster's hosts: what the file says, else what the cluster speaks.
fn upstream_alpn(common: Option<&Message>, http2: Option<&Http2>) -> Vec<Vec<u8>> {
    let names = alpn(common);
    match http2.map(|http2| http2.choice).filter(|_| names.is_empty()) {
        Some(Choice::Always) => vec![b"h2".to_vec()],
        Some(Choice::Negotiated) => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
        // Each pool offers its own.
        Some(Choice::AsDownstream) | None => names,
    }
}

/// Whether all hosts of a cluster are spoken to under TLS, as far as that can be told before it is converted.
fn is_under_tls(cluster: &Message) -> bool {
    let mut matches = cluster.messages("transport_socket_matches");
    is_tls(cluster) && matches.all(is_tls)
}

/// The same, or under what is not there and is reported as that.
pub(super) fn may_negotiate(cluster: &Message) -> bool {
    let is_quic = |holder: &Message| {
        let socket = holder.message("transport_socket");
        let config = socket.and_then(|socket| socket.any("typed_config"));
        config.is_some_and(|(any, _)| any.name == UPSTREAM_QUIC)
    };
    is_under_tls(cluster) || is_quic(cluster)
}

/// Whether the `transport_socket` of a cluster, or of one of its matches, is TLS.
fn is_tls(holder: &Message) -> bool {
    let socket = holder.message("transport_socket").and_then(|socket| socket.any("typed_config"));
    socket.is_some_and(|(any, _)| match &*any.name {
        UPSTREAM_TLS => true,
        INTERNAL_UPSTREAM | UPSTREAM_PROXY => any.message.as_ref().is_some_and(is_tls),
        _ => false,
    })
}

fn from_base64(text: &str) -> Option<[u8; 32]> {
    STANDARD.decode(text).ok()?.try_into().ok()
}

/// 64 digits, or the form with a colon between all bytes that tools print.
fn from_hex(text: &str) -> Option<[u8; 32]> {
    let digits = if text.len() == 95 { text.replace(':', "") } else { text.to_owned() };
    let mut digest = [0; 32];
    let whole = digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    for (byte, at) in digest.iter_mut().zip((0..64).step_by(2)) {
        *byte = u8::from_str_radix(digits.get(at..at + 2)?, 16).ok()?;
    }
    whole.then_some(digest)
}

/// Envoy's for clients.
const CLIENT_VERSIONS: (Version, Version) = (Version::Tls12, Version::Tls12);
const CRL: &[u8] = b"-----BEGIN X509 CRL-----";
