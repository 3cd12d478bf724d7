//! What a response says about its request.

use std::fmt;

/// The status of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Status(pub u16);

/// Declares the statuses that sofa-bolt's `ResponseStatus` has.
macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $text:literal;)+) => {
        impl Status {
            $($(#[$doc])* pub const $name: Self = Self($code);)+

            /// What it means in a word or two; `None` for one that sofa-bolt does not know and cannot decode.
            #[must_use]
            pub const fn text(self) -> Option<&'static str> {
                match self.0 {
                    $($code => Some($text),)+
                    _ => None,
                }
            }
        }
    };
}

statuses! {
    /// Everything went well.
    SUCCESS = 0, "success";
    /// It did not.
    ERROR = 1, "error";
    /// The service threw something.
    SERVER_EXCEPTION = 2, "server exception";
    /// Unknown.
    UNKNOWN = 3, "unknown";
    /// The server's threads are all taken.
    SERVER_BUSY = 4, "server thread pool busy";
    /// The connection failed.
    COMMUNICATION_ERROR = 5, "communication error";
    /// This class is not served.
    NO_PROCESSOR = 6, "no processor";
    /// It took too long.
    TIMEOUT = 7, "timeout";
    /// The client could not send.
    CLIENT_SEND_ERROR = 8, "client send error";
    /// The frame could not be understood.
    CODEC_EXCEPTION = 9, "codec exception";
    /// The connection was closed.
    CONNECTION_CLOSED = 0x10, "connection closed";
    /// The answer could not be serialised.
    SERVER_SERIALIZE = 0x11, "server serialise exception";
    /// The request could not be deserialised.
    SERVER_DESERIALIZE = 0x12, "server deserialise exception";
}

impl Status {
    /// The HTTP status that stands for it in counters and bridges.
    #[must_use]
    pub const fn to_http(self) -> u16 {
        match self {
            Self::SUCCESS => 200,
            Self::SERVER_BUSY => 503,
            Self::TIMEOUT => 504,
            Self::CONNECTION_CLOSED => 502,
            Self(_) => 500,
        }
    }

    /// The status that says what an HTTP status says.
    #[must_use]
    pub const fn from_http(status: u16) -> Self {
        match status {
            200..300 => Self::SUCCESS,
            400 => Self::CODEC_EXCEPTION,
            401 | 403 => Self::SERVER_EXCEPTION,
            404 => Self::NO_PROCESSOR,
            408 | 504 => Self::TIMEOUT,
            429 | 503 => Self::SERVER_BUSY,
            502 => Self::CONNECTION_CLOSED,
            500..600 => Self::ERROR,
            _ => Self::UNKNOWN,
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.text() {
            Some(text) => f.write_str(text),
            None => write!(f, "status {:#x}", self.0),
        }
    }
}
