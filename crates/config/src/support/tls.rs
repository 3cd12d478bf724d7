//! TLS towards clusters and clients.

use super::Entry;

pub(super) const ENTRIES: &[Entry] = &[
    Entry {
        message: "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
        honoured: &[
            "common_tls_context",
            "sni",
            "auto_host_sni",
            "auto_sni_san_validation",
            "max_session_keys",
        ],
        harmless: &[(
            "enforce_rsa_key_usage",
            "as in Envoy 1.40, the keyUsage of a certificate is always looked at",
        )],
        changes: &[("allow_renegotiation", "a server that wants to renegotiate is left")],
    },
    Entry {
        message: "envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
        honoured: &[
            "common_tls_context",
            "require_client_certificate",
            "session_ticket_keys",
            "session_ticket_keys_sds_secret_config",
            "disable_stateless_session_resumption",
            "disable_stateful_session_resumption",
            "session_timeout",
            "ocsp_staple_policy",
            "full_scan_certs_on_sni_mismatch",
            "prefer_client_ciphers",
        ],
        harmless: &[],
        changes: &[("require_sni", "reserved in Envoy's API: no version of Envoy reads it")],
    },
    Entry {
        message: "envoy.extensions.transport_sockets.tls.v3.TlsSessionTicketKeys",
        honoured: &["keys"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.extensions.transport_sockets.tls.v3.CommonTlsContext",
        honoured: &[
            "tls_params",
            "tls_certificates",
            "tls_certificate_sds_secret_configs",
            "validation_context",
            "validation_context_sds_secret_config",
            "combined_validation_context",
            "alpn_protocols",
            "key_log",
        ],
        harmless: &[],
        changes: &[
            ("tls_certificate_provider_instance", PROVIDER),
            ("tls_certificate_certificate_provider", PROVIDER),
            ("tls_certificate_certificate_provider_instance", PROVIDER),
            ("validation_context_certificate_provider", PROVIDER),
            ("validation_context_certificate_provider_instance", PROVIDER),
            ("custom_tls_certificate_selector", "TLS extensions are not there"),
            ("custom_handshaker", "TLS extensions are not there"),
        ],
    },
    Entry {
        message: "envoy.extensions.transport_sockets.tls.v3.TlsKeyLog",
        honoured: &["path", "local_address_range", "remote_address_range"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.extensions.transport_sockets.tls.v3.CommonTlsContext.CombinedCertificateValidationContext",
        honoured: &["default_validation_context", "validation_context_sds_secret_config"],
        harmless: &[],
        changes: &[
            ("validation_context_certificate_provider", PROVIDER),
            ("validation_context_certificate_provider_instance", PROVIDER),
        ],
    },
    Entry {
        message: "envoy.extensions.transport_sockets.tls.v3.SdsSecretConfig",
        honoured: &["name", "sds_config"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.extensions.transport_sockets.tls.v3.Secret",
        honoured: &[
            "name",
            "tls_certificate",
            "session_ticket_keys",
            "validation_context",
            "generic_secret",
        ],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.extensions.transport_sockets.tls.v3.GenericSecret",
        honoured: &["secret"],
        harmless: &[],
        changes: &[("secrets", "what reads one reads `secret` alone")],
    },
    Entry {
        message: "envoy.extensions.transport_sockets.tls.v3.TlsParameters",
        honoured: &[
            "tls_minimum_protocol_version",
            "tls_maximum_protocol_version",
            "cipher_suites",
            "ecdh_curves",
            "signature_algorithms",
            "compliance_policies",
        ],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.extensions.transport_sockets.tls.v3.TlsCertificate",
        honoured: &["certificate_chain", "private_key", "ocsp_staple"],
        harmless: &[
            ("watched_directory", WATCHED),
            ("signed_certificate_timestamp", "Envoy does not read it"),
        ],
        changes: &[
            ("pkcs12", "write certificate_chain and private_key as PEM"),
            ("private_key_provider", "TLS extensions are not there"),
            ("password", "private keys are read without a password"),
            ("tls_params", "write the parameters in the context"),
        ],
    },
    Entry {
        message: "envoy.extensions.transport_sockets.tls.v3.CertificateValidationContext",
        honoured: &[
            "trusted_ca",
            "verify_certificate_spki",
            "verify_certificate_hash",
            "match_typed_subject_alt_names",
            "match_subject_alt_names",
            "trust_chain_verification",
            "suppress_client_ca_list",
            "crl",
            "only_verify_leaf_cert_crl",
            "allow_expired_certificate",
            "max_verify_depth",
        ],
        harmless: &[("watched_directory", WATCHED)],
        changes: &[
            ("ca_certificate_provider_instance", PROVIDER),
            (
                "system_root_certs",
                "no version of Envoy reads it: write a trusted_ca with the platform's file",
            ),
            (
                "require_signed_certificate_timestamp",
                "reserved in Envoy's API: no version of Envoy reads it",
            ),
            ("custom_validator_config", "TLS extensions are not there"),
        ],
    },
    Entry {
        message: "envoy.extensions.transport_sockets.tls.v3.SubjectAltNameMatcher",
        honoured: &["san_type", "matcher", "oid"],
        harmless: &[],
        changes: &[],
    },
];

const WATCHED: &str = "files are read again when they change, wherever they are";
const PROVIDER: &str = "certificate providers are not there";
