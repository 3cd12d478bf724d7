//! Addresses, address ranges and socket options.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use towpath_engine::snapshot::listener::Prefix;
use towpath_proto::{Address, IpVersion, Keepalive, SocketOption, SocketState};

use super::Converter;
use crate::message::{Message, Value};

/// An address as it is written, before it is known whether names are allowed.
#[derive(Clone, Debug)]
pub(super) enum Written {
    /// An IP address and port, or a path.
    Address(Address),
    /// A name and port.
    Name(String, u16),
}

impl Converter<'_> {
    /// An address that must not be a name.
    pub(super) fn address(&mut self, message: &Message) -> Option<Address> {
        match self.written(message)? {
            Written::Address(address) if address.internal().is_some() => {
                let text =
                    "nothing can be bound there; a listener inside is an `internal_listener`";
                self.report.problem(&message.at, text);
                None
            }
            Written::Address(address) => Some(address),
            Written::Name(name, _) => {
                self.report.problem(&message.at, format!("malformed IP address: {name}"));
                None
            }
        }
    }

    /// An address or a name.
    pub(super) fn written(&mut self, message: &Message) -> Option<Written> {
        if let Some(pipe) = message.message("pipe") {
            let path = pipe.text("path");
            // `sun_path` has 108 bytes, one of them for the end.
            if path.len() > 107 {
                self.report.problem(
                    pipe.at("path"),
                    "is longer than 107 bytes, which is all that a unix socket's path may have",
                );
                return None;
            }
            return Some(Written::Address(Address::Unix(Arc::from(Path::new(path)))));
        }
        if let Some(internal) = message.message("envoy_internal_address") {
            let name = internal.text("server_listener_name");
            let address = format!("{name}/{}", internal.text("endpoint_id"));
            return Some(Written::Address(Address::Internal(Arc::from(address))));
        }
        let socket = message.message("socket_address")?;
        if socket.choice("protocol") != "TCP" {
            self.report.unsupported(socket.at("protocol"), "UDP is not there");
            return None;
        }
        self.socket_address(socket)
    }

    /// A `SocketAddress`.
    pub(super) fn socket_address(&mut self, socket: &Message) -> Option<Written> {
        if socket.has("named_port") {
            self.report.problem(
                socket.at("named_port"),
                "a port by name needs a resolver, and the default one takes \
                none; write `port_value`",
            );
            return None;
        }
        let port = u16::try_from(socket.number("port_value")?).ok()?;
        let address = socket.text("address");
        Some(match address.parse::<IpAddr>() {
            Ok(ip) => Written::Address(Address::Ip(SocketAddr::new(ip, port))),
            Err(_) => Written::Name(address.to_owned(), port),
        })
    }

    /// A list of `CidrRange`s.
    pub(super) fn prefixes(&mut self, message: &Message, name: &str) -> Vec<Prefix> {
        let ranges: Vec<_> = message.messages(name).collect();
        ranges.into_iter().filter_map(|range| self.prefix(range)).collect()
    }

    pub(super) fn prefix(&mut self, range: &Message) -> Option<Prefix> {
        let text = range.text("address_prefix");
        let Ok(address) = text.parse::<IpAddr>() else {
            self.report
                .problem(range.at("address_prefix"), format!("malformed IP address: {text}"));
            return None;
        };
        let longest = if address.is_ipv4() { 32 } else { 128 };
        let length = range.number("prefix_len").unwrap_or(0);
        if length > longest {
            self.report.problem(
                range.at("prefix_len"),
                format!("{length} is more than the {longest} bits of {text}"),
            );
            return None;
        }
        Some(Prefix::new(address, u8::try_from(length).ok()?))
    }

    /// A list of `SocketOption`s.
    pub(super) fn socket_options(&mut self, message: &Message, name: &str) -> Vec<SocketOption> {
        let options: Vec<_> = message.messages(name).collect();
        options.into_iter().filter_map(|option| self.socket_option(option)).collect()
    }

    fn socket_option(&mut self, option: &Message) -> Option<SocketOption> {
        // It is for sockets of datagrams alone, and there are none.
        let kinds = option.message("type").map(|kind| (kind.has("stream"), kind.has("datagram")));
        if kinds == Some((false, true)) {
            return None;
        }
        let value = match &option.oneof("value")?.value {
            Value::Int(number) => {
                i32::try_from(*number).map(|number| number.to_ne_bytes().to_vec()).ok()
            }
            Value::Bytes(bytes) => Some(bytes.clone()),
            _ => None,
        };
        let narrow = |name: &str| {
            option.get(name).map_or(Some(0), |field| match field.value {
                Value::Int(number) => i32::try_from(number).ok(),
                _ => None,
            })
        };
        let (Some(level), Some(name), Some(value)) = (narrow("level"), narrow("name"), value)
        else {
            self.report.problem(&option.at, "level, name and value must fit an int");
            return None;
        };
        let state = match option.choice("state").as_str() {
            "STATE_BOUND" => SocketState::Bound,
            "STATE_LISTENING" => SocketState::Listening,
            _ => SocketState::PreBind,
        };
        let only = match option.choice("ip_version").as_str() {
            "SOCKET_IP_VERSION_IPV4" => Some(IpVersion::V4),
            "SOCKET_IP_VERSION_IPV6" => Some(IpVersion::V6),
            _ => None,
        };
        Some(SocketOption { level, name, value, state, only })
    }
}

/// A `TcpKeepalive`; none where one of its numbers is 0.
pub(super) fn keepalive(message: &Message) -> Option<Keepalive> {
    let numbers = ["keepalive_time", "keepalive_interval", "keepalive_probes"];
    let [time, interval, probes] = numbers.map(|name| message.number32(name));
    let seconds = |number: Option<u32>| number.map(|it| Duration::from_secs(it.into()));
    let is_off = [time, interval, probes].contains(&Some(0));
    (!is_off).then_some(Keepalive { time: seconds(time), interval: seconds(interval), probes })
}

/// An option with an `int` value.
pub(super) fn int_option(level: i32, name: i32, value: i32, state: SocketState) -> SocketOption {
    SocketOption { level, name, value: value.to_ne_bytes().to_vec(), state, only: None }
}
