//! A text that all connections are answered with.

use towpath_engine::snapshot::listener::{Answer, Terminal};

use super::{Known, Read};
use crate::support::Entry;

const CONFIG: &str = "envoy.extensions.filters.network.direct_response.v3.Config";

pub(super) const FILTER: Known = Known {
    config_type: CONFIG,
    read: Read::Last(|converter, config| {
        let text = config.message("response");
        let text = text.and_then(|text| converter.data(text, MAX_ANSWER_BYTES));
        Some(Terminal::Answer(Answer::Fixed(text.unwrap_or_default().into())))
    }),
    support: SUPPORT,
};

/// What a chain answers at most; Envoy has no limit.
const MAX_ANSWER_BYTES: usize = 1024 * 1024;

const SUPPORT: &[Entry] =
    &[Entry { message: CONFIG, honoured: &["response"], harmless: &[], changes: &[] }];
