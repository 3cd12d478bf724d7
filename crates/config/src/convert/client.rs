//! How a connection manager finds a request's client, and what it changes before it looks.

use towpath_engine::header_ops::HeaderMutations;
use towpath_engine::snapshot::client::{Detection, Trust};

use super::Converter;
use super::extension::{EARLY_MUTATION, IP_DETECTION};
use crate::message::{Message, Value};

impl Converter<'_> {
    /// `early_header_mutation_extensions`, one after the other.
    pub(super) fn early_mutations(&mut self, message: &Message) -> HeaderMutations {
        let holders: Vec<_> = message.messages("early_header_mutation_extensions").collect();
        let mut all = HeaderMutations::default();
        for holder in holders {
            if let Some((config, _)) = self.extension(holder, EARLY_MUTATION, &[MUTATION]) {
                all.0.extend(self.mutations(config, "mutations").0);
            }
        }
        all
    }

    /// `original_ip_detection_extensions`.
    pub(super) fn client_detections(&mut self, message: &Message) -> Vec<Detection> {
        const FIELD: &str = "original_ip_detection_extensions";
        let holders: Vec<_> = message.messages(FIELD).collect();
        let hops = message.number32("xff_num_trusted_hops").unwrap_or(0);
        for (is_set, name) in [
            (message.flag("use_remote_address"), "use_remote_address"),
            (hops > 0, "xff_num_trusted_hops"),
        ] {
            if is_set && !holders.is_empty() {
                let text = format!("original IP detection extensions and {name} may not be mixed");
                self.report.problem(message.at(FIELD), text);
            }
        }
        holders.into_iter().filter_map(|holder| self.client_detection(holder)).collect()
    }

    fn client_detection(&mut self, holder: &Message) -> Option<Detection> {
        let (config, at) = self.extension(holder, IP_DETECTION, &[FORWARDED, CUSTOM])?;
        if holder.any("typed_config")?.0.name == CUSTOM {
            let refusal = config.message("reject_with_status").map(|status| {
                match status.get("code").map(|code| &code.value) {
                    Some(Value::Enum(code @ 400..=511)) => {
                        u16::try_from(*code).unwrap_or(FORBIDDEN)
                    }
                    Some(_) | None => FORBIDDEN,
                }
            });
            return Some(Detection::Header {
                name: self.header_name(config.text("header_name"), config.at("header_name"))?,
                is_trusted: config.flag("allow_extension_to_set_address_as_trusted"),
                refusal,
            });
        }
        let hops = config.number32("xff_num_trusted_hops").unwrap_or(0);
        let ranges = config.message("xff_trusted_cidrs");
        if hops > 0 && ranges.is_some() {
            let text = "xff_num_trusted_hops and xff_trusted_cidrs cannot both be set";
            self.report.problem(at, text);
        }
        let ranges = ranges.map(|ranges| self.prefixes(ranges, "cidrs")).unwrap_or_default();
        let by = if ranges.is_empty() { Trust::Hops(hops) } else { Trust::Ranges(ranges) };
        let appends = !config.wrapped_flag("skip_xff_append").unwrap_or(true);
        Some(Detection::Forwarded { by, appends })
    }
}

const FORBIDDEN: u16 = 403;
const MUTATION: &str =
    "envoy.extensions.http.early_header_mutation.header_mutation.v3.HeaderMutation";
const FORWARDED: &str = "envoy.extensions.http.original_ip_detection.xff.v3.XffConfig";
const CUSTOM: &str =
    "envoy.extensions.http.original_ip_detection.custom_header.v3.CustomHeaderConfig";
