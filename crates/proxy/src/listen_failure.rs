//! Why a listener is not open, in words that name what to change, and whether the program can start without it.

use std::fmt::Write as _;
use std::io;
use std::sync::Arc;

use towpath_engine::snapshot::{Listener, Snapshot};
use towpath_proto::{Address, Failure, ListenOptions, SocketOption, SocketState};

use crate::control::find;

/// One line for the file's author.
pub(crate) fn describe(
    listener: Option<&Arc<Listener>>,
    name: &str,
    address: &Address,
    failure: Failure,
) -> String {
    let reason = refused_option(listener, failure).unwrap_or_else(|| failure.to_string());
    format!("listener '{name}': cannot bind {address}: {reason}")
}

/// The reason where it is an option: which, from which field, and what the kernel says.
fn refused_option(listener: Option<&Arc<Listener>>, failure: Failure) -> Option<String> {
    let Failure::SocketOption { level, name: option, code } = failure else { return None };
    let field = listener.and_then(|listener| {
        let of = |options: &ListenOptions| {
            Some(fields(options, level, option)).filter(|text| !text.is_empty())
        };
        listener.all_options().find_map(of)
    });
    let field = field.unwrap_or_default();
    let error = io::Error::from_raw_os_error(code);
    Some(format!("the kernel refuses socket option level {level}, name {option}{field}: {error}"))
}

/// Whether the program does not start. Envoy starts without a listener that only lacks an option of `STATE_LISTENING`.
pub(crate) fn is_fatal(snapshot: &Snapshot, name: &str, failure: Failure) -> bool {
    let Failure::SocketOption { level, name: option, .. } = failure else { return true };
    let Some(listener) = find(snapshot, name) else { return true };
    listener.all_options().any(|options| {
        let mut states = written(options, level, option).map(|(_, option)| option.state);
        !states.all(|state| state == SocketState::Listening)
            || foreign_address_field(options, level, option).is_some()
    })
}

/// Which fields set the option: in brackets, nothing when it is none of the file's.
fn fields(options: &ListenOptions, level: i32, name: i32) -> String {
    let mut fields: Vec<String> = foreign_address_field(options, level, name)
        .into_iter()
        .map(|field| format!("`{field}`"))
        .collect();
    fields.extend(written(options, level, name).map(|(index, option)| field(index, option)));
    if fields.is_empty() { String::new() } else { format!(" ({})", fields.join(", ")) }
}

/// The entries for one option, by their place in the list.
fn written(
    options: &ListenOptions,
    level: i32,
    name: i32,
) -> impl Iterator<Item = (usize, &SocketOption)> {
    let entries = options.socket_options.iter().enumerate();
    entries.filter(move |(_, option)| (option.level, option.name) == (level, name))
}

fn field(index: usize, option: &SocketOption) -> String {
    let field = match (option.level, option.name, option.state) {
        // What `tcp_fast_open_queue_length` becomes.
        (6, 23, SocketState::Listening) => "`tcp_fast_open_queue_length`".to_owned(),
        _ => format!("`socket_options[{index}]`"),
    };
    format!("{field}, value {}", value(&option.value))
}

/// The field that makes a socket take foreign addresses by this option (ip(7), ipv6(7)).
fn foreign_address_field(options: &ListenOptions, level: i32, name: i32) -> Option<&'static str> {
    match (level, name) {
        (0, 15) | (41, 78) if options.freebind => Some("freebind"),
        (0, 19) | (41, 75) if options.transparent => Some("transparent"),
        _ => None,
    }
}

/// A number where it is one, else hexadecimal bytes.
fn value(bytes: &[u8]) -> String {
    if let Ok(number) = bytes.try_into() {
        return i32::from_ne_bytes(number).to_string();
    }
    bytes.iter().fold(String::from("0x"), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_numbers_or_bytes() {
        assert_eq!(value(&(-7_i32).to_ne_bytes()), "-7");
        assert_eq!(value(b"\x01\xab"), "0x01ab");
    }

    #[test]
    fn fields_are_found_by_what_they_set() {
        let option = |level, name, state| SocketOption {
            level,
            name,
            value: 5_i32.to_ne_bytes().to_vec(),
            state,
            only: None,
        };
        let options = ListenOptions {
            freebind: true,
            socket_options: vec![
                option(1, 9999, SocketState::Bound),
                option(6, 23, SocketState::Listening),
            ],
            ..ListenOptions::default()
        };
        assert_eq!(fields(&options, 1, 9999), " (`socket_options[0]`, value 5)");
        assert_eq!(fields(&options, 6, 23), " (`tcp_fast_open_queue_length`, value 5)");
        assert_eq!(fields(&options, 0, 15), " (`freebind`)");
        assert_eq!(fields(&options, 0, 19), "", "`transparent` is not set");
    }
}
