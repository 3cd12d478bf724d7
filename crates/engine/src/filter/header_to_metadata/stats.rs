//! What it counts, by Envoy's names.

use crate::stats::stats;

stats! {
    /// `http_filter_name.<stat prefix>.…`
    pub(in crate::filter) HeaderToMetadataStats {
        Counter base64_decode_failed;
        Counter header_value_too_long;
        Counter regex_substitution_failed;
        Counter request_header_not_found;
        Counter request_metadata_added;
        Counter request_rules_processed;
        Counter response_header_not_found;
        Counter response_metadata_added;
        Counter response_rules_processed;
    }
}
