//! What is wrong with a message, and what to answer.

use std::fmt;

/// Declares [`Error`] with its three tables in one place.
macro_rules! errors {
    ($($(#[$doc:meta])* $variant:ident => $status:literal, $details:literal, $text:literal;)+) => {
        /// Why a message is refused. The peer is at fault, and its connection cannot be used further.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Error {
            $(#[doc = $text] $(#[$doc])* $variant,)+
        }

        impl Error {
            /// Every variant.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// The status to answer when a client sent this. What an upstream sent is a 502 to the client.
            #[must_use]
            pub const fn status(self) -> u16 {
                match self { $(Self::$variant => $status,)+ }
            }

            /// What Envoy writes as `%RESPONSE_CODE_DETAILS%`.
            #[must_use]
            pub const fn details(self) -> &'static str {
                match self { $(Self::$variant => $details,)+ }
            }

            const fn text(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }
    };
}

errors! {
    BadRequestLine => 400, "http1.codec_error", "the request line is not `method SP target SP version` (RFC 9112 §3)";
    BadMethod => 400, "http1.codec_error", "the method is not a token (RFC 9110 §9.1)";
    UnknownMethod => 400, "http1.codec_error", "the method is not a registered one and custom methods are not allowed \
        (RFC 9110 §9.1)";
    BadTarget => 400, "http1.invalid_url", "the request target has none of the four forms (RFC 9112 §3.2)";
    FragmentInTarget => 400, "path_normalization_failed", "the request target has a fragment (RFC 9112 §3.2.1)";
    BadScheme => 400, "http1.invalid_scheme", "the scheme of the target is neither http nor https (RFC 9110 §4.2)";
    AbsoluteTargetNotAllowed => 400, "http1.invalid_url", "an absolute-form target is not allowed here (RFC 9112 \
        §3.2.2)";
    BadVersion => 400, "http1.codec_error", "the version is not `HTTP/` digit `.` digit (RFC 9112 §2.3)";
    UnsupportedVersion => 505, "http1.codec_error", "the version is neither HTTP/1.0 nor HTTP/1.1 (RFC 9110 §15.6.6)";
    LowVersion => 426, "low_version", "HTTP/1.0 is not accepted here (RFC 9110 §15.5.22)";
    MissingHost => 400, "missing_host_header", "there is no Host field (RFC 9112 §3.2)";
    DuplicateHost => 400, "http.invalid_authority", "there is more than one Host field (RFC 9112 §3.2)";
    BadHost => 400, "http.invalid_authority", "Host is not `uri-host [ \":\" port ]` (RFC 9110 §7.2)";
    BadStatusLine => 502, "http1.codec_error", "the status line is not `version SP 3DIGIT SP reason` (RFC 9112 §4)";
    BareCr => 400, "http1.codec_error", "a carriage return stands without a line feed (RFC 9112 §2.2)";
    BareLf => 400, "http1.codec_error", "a line ends in a line feed alone (RFC 9112 §2.2)";
    ControlCharacter => 400, "http1.invalid_characters", "a control character stands in the head (RFC 9110 §5.5)";
    ObsoleteFolding => 400, "http1.codec_error", "a field line begins with white space (RFC 9112 §5.2)";
    MissingColon => 400, "http1.codec_error", "a field line has no colon (RFC 9112 §5)";
    EmptyName => 400, "http1.codec_error", "a field has no name (RFC 9112 §5)";
    SpaceBeforeColon => 400, "http1.codec_error", "white space stands between a field name and its colon (RFC 9112 \
        §5.1)";
    BadName => 400, "http1.codec_error", "a field name is not a token (RFC 9110 §5.1)";
    Underscore => 400, "http1.unexpected_underscore", "a field name has an underscore and those are refused here";
    HeadTooLarge => 431, "http1.headers_too_large", "the head is larger than allowed (RFC 6585 §5)";
    TooManyFields => 431, "http1.too_many_headers", "the head has more fields than allowed (RFC 6585 §5)";
    BadContentLength => 400, "http1.codec_error", "Content-Length is not a decimal number below 2⁶³ (RFC 9110 §8.6)";
    DuplicateContentLength => 400, "http1.codec_error", "there is more than one Content-Length (RFC 9112 §6.3)";
    ContentLengthWithChunked => 400, "http1.content_length_and_chunked_not_allowed", "Content-Length and \
        Transfer-Encoding stand together (RFC 9112 §6.3)";
    BadTransferEncoding => 400, "http1.invalid_transfer_encoding", "chunked is not the last transfer coding, or stands \
        twice (RFC 9112 §6.3)";
    UnsupportedTransferEncoding => 501, "http1.invalid_transfer_encoding", "there is a transfer coding other than \
        chunked (RFC 9112 §6.1)";
    TransferEncodingNotAllowed => 400, "http1.transfer_encoding_not_allowed", "Transfer-Encoding stands where none may \
        (RFC 9112 §6.1)";
    ContentOnConnect => 400, "http1.body_disallowed", "CONNECT has content (RFC 9110 §9.3.6)";
    ContentLengthNotAllowed => 400, "http1.content_length_not_allowed", "Content-Length stands where none may (RFC \
        9110 §8.6)";
    BadConnectionOption => 400, "http1.connection_header_rejected", "Connection is not a list of tokens, or names a \
        field that is for every recipient (RFC 9110 §7.6.1)";
    BadChunkSize => 400, "http1.codec_error", "a chunk size is not a hexadecimal number followed by CRLF or an \
        extension (RFC 9112 §7.1)";
    ChunkTooLarge => 400, "http1.codec_error", "a chunk size is 2⁶³ or more (RFC 9112 §7.1)";
    ChunkExtensionTooLarge => 400, "http1.codec_error", "the chunk extensions are longer than allowed (RFC 9112 \
        §7.1.1)";
    BadChunkEnd => 400, "http1.codec_error", "a chunk does not end in CRLF (RFC 9112 §7.1)";
    Truncated => 400, "http1.codec_error", "the connection ended inside the message (RFC 9112 §8)";
    ClosedBeforeResponse => 502, "http1.codec_error", "the connection ended before a response began (RFC 9112 §9.5)";
    UnexpectedBytes => 502, "http1.codec_error", "bytes came that answer no request (RFC 9112 §9.2)";
    UnexpectedUpgrade => 502, "http1.codec_error", "the protocol was switched though that was not asked for (RFC 9110 \
        §7.8)";
}

impl Error {
    /// Whether the request is HTTP, and is refused for what it says or does not say.
    #[must_use]
    pub const fn is_formed(self) -> bool {
        matches!(self, Self::MissingHost | Self::FragmentInTarget)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl std::error::Error for Error {}
