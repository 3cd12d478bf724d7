//! Requests that get a credential.

use std::sync::Arc;

use towpath_engine::filter::FilterConfig;
use towpath_engine::filter::credential_injector::{Credential, CredentialInjector};

use super::Known;
use crate::convert::Converter;
use crate::convert::extension::CREDENTIAL;
use crate::message::Message;
use crate::support::Entry;

const CONFIG: &str = "envoy.extensions.filters.http.credential_injector.v3.CredentialInjector";
const GENERIC: &str = "envoy.extensions.http.injected_credentials.generic.v3.Generic";

pub(super) const FILTER: Known =
    Known { config_type: CONFIG, convert, by_route: None, support: SUPPORT };

fn convert(converter: &mut Converter<'_>, config: &Message) -> Option<Arc<dyn FilterConfig>> {
    let (generic, _) =
        converter.extension(config.message("credential")?, CREDENTIAL, &[GENERIC])?;
    let named = generic.message("credential")?;
    let secret = converter.generic_secret(named, MOST_SECRET_BYTES)?;
    let prefix = generic.text("header_value_prefix");
    if let Some(at) = secret.iter().chain(prefix.as_bytes()).position(u8::is_ascii_control) {
        let text = "has a control character, and cannot stand in a header";
        converter.report.unsupported(&named.at, format!("byte {at} of the credential {text}"));
        return None;
    }
    let header = match generic.text("header") {
        "" => "authorization",
        header => header,
    };
    Some(Arc::new(CredentialInjector {
        overwrites: config.flag("overwrite"),
        passes_without: config.flag("allow_request_without_credential"),
        header: converter.header_name(header, generic.at("header"))?,
        value: Credential::new(prefix, &secret),
    }))
}

/// What a header can have.
const MOST_SECRET_BYTES: usize = 16 << 10;

const SUPPORT: &[Entry] = &[
    Entry {
        message: CONFIG,
        honoured: &["overwrite", "allow_request_without_credential", "credential"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: GENERIC,
        honoured: &["credential", "header", "header_value_prefix"],
        harmless: &[],
        changes: &[],
    },
];
