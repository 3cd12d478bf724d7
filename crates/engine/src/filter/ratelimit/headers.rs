//! `x-ratelimit-*`: what a client is told of limits (draft-polli-ratelimit-headers-03).

use std::fmt::Write as _;

use towpath_proto::Head;

use super::wire::{OVER_LIMIT, Status};

/// Adds what the statuses of descriptors say; `tells` answers whether the client hears of the one at an index.
pub(super) fn add(head: &mut Head, statuses: &[Status], tells: impl Fn(usize) -> bool) {
    let limits = statuses.iter().enumerate().filter_map(|(index, status)| {
        status.current_limit.as_ref().map(|limit| (index, status, limit))
    });
    // Of equal ones the first.
    let tightest = limits.clone().min_by_key(|(_, status, _)| status.limit_remaining);
    let Some((_, status, limit)) = tightest.filter(|(index, ..)| tells(*index)) else { return };
    let mut text = limit.requests_per_unit.to_string();
    for (_, _, limit) in limits.filter(|(index, ..)| tells(*index)) {
        let window = limit.window();
        if window == 0 {
            continue;
        }
        let _ = write!(text, ", {};w={window}", limit.requests_per_unit);
        if !limit.name.is_empty() {
            let _ = write!(text, ";name=\"{}\"", limit.name);
        }
    }
    let reset = status.duration_until_reset.as_ref().map_or(0, |it| it.seconds);
    let remaining = status.limit_remaining.to_string();
    for (name, value) in [(LIMIT, text), (REMAINING, remaining), (RESET, reset.to_string())] {
        if is_value(value.as_bytes()) {
            head.append_bytes(name, value.as_bytes());
        }
    }
}

/// Adds when all limits that are used up begin anew, where the server has not said it itself.
pub(super) fn add_retry_after(head: &mut Head, statuses: &[Status]) {
    let over = statuses.iter().filter(|status| status.code == OVER_LIMIT);
    let seconds = over.map(|it| it.duration_until_reset.as_ref().map_or(0, |it| it.seconds)).max();
    if let Some(seconds) = seconds
        && head.get_bytes(RETRY_AFTER).is_none()
    {
        head.append_bytes(RETRY_AFTER, seconds.max(1).to_string().as_bytes());
    }
}

/// A value that can stand in a head.
pub(super) fn is_value(value: &[u8]) -> bool {
    !value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0))
}

const RETRY_AFTER: &[u8] = b"retry-after";
const LIMIT: &[u8] = b"x-ratelimit-limit";
const REMAINING: &[u8] = b"x-ratelimit-remaining";
const RESET: &[u8] = b"x-ratelimit-reset";
