//! `google.api.HttpRule`: which requests are for a method (`google/api/http.proto`).

use prost::Message as _;
use prost_reflect::MethodDescriptor;

/// A rule as options of methods have it.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct HttpRule {
    #[prost(oneof = "Pattern", tags = "2, 3, 4, 5, 6, 8")]
    pub(super) pattern: Option<Pattern>,
    #[prost(string, tag = "7")]
    pub(super) body: String,
    #[prost(string, tag = "12")]
    pub(super) response_body: String,
    #[prost(message, repeated, tag = "11")]
    pub(super) additional_bindings: Vec<Self>,
}

/// Method and path template.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum Pattern {
    #[prost(string, tag = "2")]
    Get(String),
    #[prost(string, tag = "3")]
    Put(String),
    #[prost(string, tag = "4")]
    Post(String),
    #[prost(string, tag = "5")]
    Delete(String),
    #[prost(string, tag = "6")]
    Patch(String),
    #[prost(message, tag = "8")]
    Custom(Custom),
}

/// Any other method.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Custom {
    #[prost(string, tag = "1")]
    kind: String,
    #[prost(string, tag = "2")]
    path: String,
}

/// The options of a method, of which one counts here.
#[derive(Clone, PartialEq, prost::Message)]
struct Options {
    /// `google.api.http`.
    #[prost(message, optional, tag = "72295728")]
    http: Option<HttpRule>,
}

impl HttpRule {
    /// The rule of a method, if it has one.
    pub(super) fn of(method: &MethodDescriptor) -> Option<Self> {
        // The extension need not be among the descriptors to be there.
        let options = method.options().encode_to_vec();
        Options::decode(options.as_slice()).ok()?.http
    }

    /// The rule of a method that has none (`auto_mapping`).
    pub(super) fn mapped(path: &str) -> Self {
        let pattern = Some(Pattern::Post(path.into()));
        Self { pattern, body: "*".into(), ..Self::default() }
    }

    /// Method and path template.
    pub(super) fn pattern(&self) -> Option<(&str, &str)> {
        Some(match self.pattern.as_ref()? {
            Pattern::Get(path) => ("GET", path),
            Pattern::Put(path) => ("PUT", path),
            Pattern::Post(path) => ("POST", path),
            Pattern::Delete(path) => ("DELETE", path),
            Pattern::Patch(path) => ("PATCH", path),
            Pattern::Custom(custom) => (&custom.kind, &custom.path),
        })
    }
}
