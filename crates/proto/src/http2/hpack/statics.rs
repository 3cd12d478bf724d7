//! The table that all have (RFC 7541 Appendix A).

use super::field::{FieldName, Pseudo};
use crate::name::Name;

/// The fields in the order of their index, the first of which is 1.
pub(super) static FIELDS: [(FieldName<'static>, &[u8]); 61] = [
    (pseudo(Pseudo::Authority), b""),
    (pseudo(Pseudo::Method), b"GET"),
    (pseudo(Pseudo::Method), b"POST"),
    (pseudo(Pseudo::Path), b"/"),
    (pseudo(Pseudo::Path), b"/index.html"),
    (pseudo(Pseudo::Scheme), b"http"),
    (pseudo(Pseudo::Scheme), b"https"),
    (pseudo(Pseudo::Status), b"200"),
    (pseudo(Pseudo::Status), b"204"),
    (pseudo(Pseudo::Status), b"206"),
    (pseudo(Pseudo::Status), b"304"),
    (pseudo(Pseudo::Status), b"400"),
    (pseudo(Pseudo::Status), b"404"),
    (pseudo(Pseudo::Status), b"500"),
    (other(b"accept-charset"), b""),
    (known(Name::AcceptEncoding), b"gzip, deflate"),
    (known(Name::AcceptLanguage), b""),
    (other(b"accept-ranges"), b""),
    (known(Name::Accept), b""),
    (other(b"access-control-allow-origin"), b""),
    (other(b"age"), b""),
    (other(b"allow"), b""),
    (known(Name::Authorization), b""),
    (known(Name::CacheControl), b""),
    (other(b"content-disposition"), b""),
    (known(Name::ContentEncoding), b""),
    (other(b"content-language"), b""),
    (known(Name::ContentLength), b""),
    (other(b"content-location"), b""),
    (other(b"content-range"), b""),
    (known(Name::ContentType), b""),
    (known(Name::Cookie), b""),
    (known(Name::Date), b""),
    (known(Name::Etag), b""),
    (known(Name::Expect), b""),
    (known(Name::Expires), b""),
    (other(b"from"), b""),
    (known(Name::Host), b""),
    (other(b"if-match"), b""),
    (known(Name::IfModifiedSince), b""),
    (known(Name::IfNoneMatch), b""),
    (other(b"if-range"), b""),
    (other(b"if-unmodified-since"), b""),
    (known(Name::LastModified), b""),
    (other(b"link"), b""),
    (known(Name::Location), b""),
    (other(b"max-forwards"), b""),
    (known(Name::ProxyAuthenticate), b""),
    (known(Name::ProxyAuthorization), b""),
    (known(Name::Range), b""),
    (known(Name::Referer), b""),
    (other(b"refresh"), b""),
    (known(Name::RetryAfter), b""),
    (known(Name::Server), b""),
    (known(Name::SetCookie), b""),
    (other(b"strict-transport-security"), b""),
    (known(Name::TransferEncoding), b""),
    (known(Name::UserAgent), b""),
    (known(Name::Vary), b""),
    (known(Name::Via), b""),
    (other(b"www-authenticate"), b""),
];

const fn known(name: Name) -> FieldName<'static> {
    FieldName::Known(name)
}

const fn pseudo(pseudo: Pseudo) -> FieldName<'static> {
    FieldName::Pseudo(pseudo)
}

const fn other(name: &'static [u8]) -> FieldName<'static> {
    FieldName::Other(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_resolved() {
        for (name, _) in FIELDS {
            assert_eq!(FieldName::resolve(name.as_bytes()), name);
        }
    }
}
