//! The protocol's messages, as far as a client reads and writes them. `envoy/service/discovery/v3/discovery.proto`.

use std::collections::HashMap;

use bytes::Bytes;

/// `DiscoveryRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DiscoveryRequest {
    /// The last version that was accepted.
    #[prost(string, tag = "1")]
    pub version_info: String,
    /// A `Node`, encoded.
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub node: Option<Bytes>,
    /// All names; empty is the wildcard of listeners and clusters.
    #[prost(string, repeated, tag = "3")]
    pub resource_names: Vec<String>,
    /// The kind.
    #[prost(string, tag = "4")]
    pub type_url: String,
    /// Which response this answers.
    #[prost(string, tag = "5")]
    pub response_nonce: String,
    /// Why it was not accepted.
    #[prost(message, optional, tag = "6")]
    pub error_detail: Option<Status>,
}

/// `DiscoveryResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DiscoveryResponse {
    /// The version of all that is in it.
    #[prost(string, tag = "1")]
    pub version_info: String,
    /// The resources, some of them in a [`Wrapped`].
    #[prost(message, repeated, tag = "2")]
    pub resources: Vec<Any>,
    /// The kind.
    #[prost(string, tag = "4")]
    pub type_url: String,
    /// What an answer names.
    #[prost(string, tag = "5")]
    pub nonce: String,
}

/// `DeltaDiscoveryRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DeltaRequest {
    /// A `Node`, encoded.
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub node: Option<Bytes>,
    /// The kind.
    #[prost(string, tag = "2")]
    pub type_url: String,
    /// What else is wanted.
    #[prost(string, repeated, tag = "3")]
    pub resource_names_subscribe: Vec<String>,
    /// What is not wanted any more.
    #[prost(string, repeated, tag = "4")]
    pub resource_names_unsubscribe: Vec<String>,
    /// What is known from an earlier stream.
    #[prost(map = "string, string", tag = "5")]
    pub initial_resource_versions: HashMap<String, String>,
    /// Which response this answers.
    #[prost(string, tag = "6")]
    pub response_nonce: String,
    /// Why it was not accepted.
    #[prost(message, optional, tag = "7")]
    pub error_detail: Option<Status>,
}

/// `DeltaDiscoveryResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DeltaResponse {
    /// For people.
    #[prost(string, tag = "1")]
    pub system_version_info: String,
    /// What is new.
    #[prost(message, repeated, tag = "2")]
    pub resources: Vec<Wrapped>,
    /// The kind.
    #[prost(string, tag = "4")]
    pub type_url: String,
    /// What an answer names.
    #[prost(string, tag = "5")]
    pub nonce: String,
    /// What is gone.
    #[prost(string, repeated, tag = "6")]
    pub removed_resources: Vec<String>,
}

/// `Resource`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Wrapped {
    /// Its version.
    #[prost(string, tag = "1")]
    pub version: String,
    /// What it is; a heartbeat has nothing.
    #[prost(message, optional, tag = "2")]
    pub resource: Option<Any>,
    /// Its name.
    #[prost(string, tag = "3")]
    pub name: String,
    /// How long it is good for.
    #[prost(message, optional, tag = "6")]
    pub ttl: Option<Duration>,
}

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Any {
    /// The type.
    #[prost(string, tag = "1")]
    pub type_url: String,
    /// The message.
    #[prost(bytes = "bytes", tag = "2")]
    pub value: Bytes,
}

/// `google.protobuf.Duration`.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Duration {
    /// Whole seconds.
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    /// What is beyond.
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

impl Duration {
    /// As a duration; what is negative is none, and what is longer than protobuf allows is as long as it allows, so
    /// that any clock can take it.
    #[must_use]
    pub fn duration(self) -> std::time::Duration {
        let seconds = u64::try_from(self.seconds).unwrap_or(0).min(LONGEST);
        let seconds = std::time::Duration::from_secs(seconds);
        seconds + std::time::Duration::from_nanos(u64::try_from(self.nanos).unwrap_or(0))
    }
}

/// Seconds of the longest `google.protobuf.Duration`.
const LONGEST: u64 = 315_576_000_000;

/// `google.rpc.Status`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Status {
    /// A gRPC status.
    #[prost(int32, tag = "1")]
    pub code: i32,
    /// What is wrong.
    #[prost(string, tag = "2")]
    pub message: String,
}

/// What [`Wrapped`] is called in a `type_url`.
pub(crate) const WRAPPED: &str = "envoy.service.discovery.v3.Resource";

/// The name of a resource: each kind has it as a string in its first field.
#[must_use]
pub fn name_of(resource: &Bytes) -> Option<String> {
    #[derive(Clone, PartialEq, prost::Message)]
    struct Named {
        #[prost(string, tag = "1")]
        name: String,
    }
    prost::Message::decode(resource.clone()).ok().map(|Named { name }| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_one_that_any_clock_can_take() {
        let of = |seconds, nanos| Duration { seconds, nanos }.duration();
        assert_eq!(of(1, 5), std::time::Duration::new(1, 5));
        assert_eq!(of(-1, -5), std::time::Duration::ZERO);
        let longest = of(i64::MAX, i32::MAX);
        assert_eq!(longest.as_secs(), LONGEST + 2);
        assert!(std::time::Instant::now().checked_add(longest).is_some());
    }
}
