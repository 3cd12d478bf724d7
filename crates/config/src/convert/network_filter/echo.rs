//! All that comes goes back.

use towpath_engine::snapshot::listener::{Answer, Terminal};

use super::{Known, Read};
use crate::support::Entry;

const CONFIG: &str = "envoy.extensions.filters.network.echo.v3.Echo";

pub(super) const FILTER: Known = Known {
    config_type: CONFIG,
    read: Read::Last(|_, _| Some(Terminal::Answer(Answer::Echo))),
    support: SUPPORT,
};

const SUPPORT: &[Entry] = &[Entry { message: CONFIG, honoured: &[], harmless: &[], changes: &[] }];
