//! Secrets of the bootstrap, which TLS contexts may name.

use std::collections::HashSet;
use std::sync::Arc;

use towpath_proto::tls;

use super::Converter;
use crate::message::{Message, Value};

/// What of a `Secret` is read, as its field and as Envoy says it.
const KINDS: [(&str, &str); 4] = [
    (CERTIFICATE, "TlsCertificate"),
    (VALIDATION, "CertificateValidationContext"),
    (TICKET_KEYS, "TlsSessionTicketKeys"),
    (GENERIC, "GenericSecret"),
];
const NOTHING: &str = "a secret holds one of tls_certificate, session_ticket_keys, validation_context, generic_secret";
pub(super) const CERTIFICATE: &str = "tls_certificate";
pub(super) const VALIDATION: &str = "validation_context";
pub(super) const TICKET_KEYS: &str = "session_ticket_keys";
const GENERIC: &str = "generic_secret";

impl<'a> Converter<'a> {
    /// Each secret holds something, and each name is given once for a kind.
    pub(super) fn check_secrets(&mut self) {
        let mut known = HashSet::new();
        for secret in &self.named_secrets {
            if !secret.fields.iter().any(|field| field.descriptor.containing_oneof().is_some()) {
                self.report.problem(&secret.at, NOTHING);
            }
            let held = KINDS.iter().find(|(field, _)| secret.has(field));
            let Some((field, kind)) = held else { continue };
            let name = secret.text("name");
            if !known.insert((field, name)) {
                let text = format!("Duplicate static {kind} secret name {name}");
                self.report.problem(&secret.at, text);
            }
        }
    }

    /// What a `SdsSecretConfig` names, which has to be of this kind: a secret of the bootstrap, or one that is asked
    /// for.
    pub(super) fn secret(&mut self, named: &Message, kind: &str) -> Option<&'a Message> {
        if let Some(source) = named.message("sds_config") {
            return self.discovered_secret(named, source, kind);
        }
        let name = named.text("name");
        let mut secrets = self.named_secrets.iter().filter(|secret| secret.text("name") == name);
        let found = secrets.find_map(|secret| secret.message(kind));
        if found.is_none() {
            self.report.problem(&named.at, format!("no secret `{name}` has a `{kind}`"));
        }
        found
    }

    /// The bytes of a secret of no other kind, which a `SdsSecretConfig` names, at most `limit`.
    pub(super) fn generic_secret(&mut self, named: &Message, limit: usize) -> Option<Vec<u8>> {
        let secret = self.secret(named, GENERIC)?;
        match secret.message("secret") {
            Some(source) => self.secret_data(source, limit),
            None => Some(Vec::new()),
        }
    }

    /// The certificates of a TLS context: its own, else those that it names.
    pub(super) fn certificates<'m>(&mut self, common: &'m Message) -> Option<Vec<&'m Message>>
    where
        'a: 'm,
    {
        let own: Vec<_> = common.messages("tls_certificates").collect();
        if !own.is_empty() {
            return Some(own);
        }
        let named = common.messages("tls_certificate_sds_secret_configs");
        // All are asked for, whichever is there.
        let found: Vec<_> = named.map(|named| self.secret(named, CERTIFICATE)).collect();
        found.into_iter().map(|found| found.map(|it| it as &Message)).collect()
    }

    /// What Envoy's statistics call the certificates of a TLS context and what it trusts: the secret's name, else a
    /// digest of the bytes that stand in the configuration as such (of a text or a file it is that of nothing).
    pub(super) fn name_certificates(&mut self, common: Option<&Message>) {
        let Some(common) = common else { return };
        let digest = |source: Option<&Message>| {
            let mut digest = match &source?.get("inline_bytes").map(|field| &field.value) {
                Some(Value::Bytes(bytes)) => tls::sha256_text(bytes),
                _ => tls::sha256_text(b""),
            };
            digest.truncate(8);
            Some(digest)
        };
        let inline = common.messages("tls_certificates").map(|certificate| {
            let digest = digest(certificate.message("certificate_chain"));
            Arc::from(format!("unnamed_cert_{}", digest.unwrap_or_default()))
        });
        let named = common.messages("tls_certificate_sds_secret_configs");
        let named = named.map(|named| Arc::from(named.text("name")));
        self.certificates.own_names = inline.chain(named).collect();
        let combined = common.message("combined_validation_context").unwrap_or(common);
        let secret = combined.message("validation_context_sds_secret_config");
        let own = common.message("validation_context").and_then(|it| it.message("trusted_ca"));
        self.certificates.trusted_name = match secret {
            Some(secret) => Arc::from(secret.text("name")),
            None => Arc::from(match digest(own) {
                Some(digest) => format!("unnamed_ca_cert_{digest}"),
                None => "unnamed_ca_cert".to_owned(),
            }),
        };
    }

    /// What peers' certificates are judged by: a context of its own or one that is named; or both, of which the named
    /// one says more.
    pub(super) fn validation_contexts<'m>(
        &mut self,
        common: Option<&'m Message>,
    ) -> Option<Vec<&'m Message>>
    where
        'a: 'm,
    {
        let Some(common) = common else { return Some(Vec::new()) };
        let combined = common.message("combined_validation_context");
        let own = common.message("validation_context");
        let default = combined.and_then(|it| it.message("default_validation_context"));
        let mut contexts: Vec<&Message> = own.or(default).into_iter().collect();
        let named = combined.unwrap_or(common).message("validation_context_sds_secret_config");
        if let Some(named) = named {
            contexts.push(self.secret(named, VALIDATION)?);
        }
        Some(contexts)
    }
}
