//! What is wrong with what a peer sends, and the codes that tell it.

use std::fmt;

/// An error code of RST_STREAM and GOAWAY (RFC 9113 §7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Code(pub u32);

impl Code {
    /// Nothing is wrong.
    pub const NO_ERROR: Self = Self(0);
    /// The peer broke the protocol.
    pub const PROTOCOL_ERROR: Self = Self(1);
    /// We failed.
    pub const INTERNAL_ERROR: Self = Self(2);
    /// The peer sent more than a window allows, or opened one too far.
    pub const FLOW_CONTROL_ERROR: Self = Self(3);
    /// SETTINGS were not acknowledged in time.
    pub const SETTINGS_TIMEOUT: Self = Self(4);
    /// A frame came for a stream that is over.
    pub const STREAM_CLOSED: Self = Self(5);
    /// A frame has a wrong size.
    pub const FRAME_SIZE_ERROR: Self = Self(6);
    /// Nothing was done for the stream: it may be tried again (RFC 9113 §8.7).
    pub const REFUSED_STREAM: Self = Self(7);
    /// The stream is not needed any more.
    pub const CANCEL: Self = Self(8);
    /// A header block cannot be decoded.
    pub const COMPRESSION_ERROR: Self = Self(9);
    /// The connection behind a CONNECT was reset.
    pub const CONNECT_ERROR: Self = Self(10);
    /// The peer makes too much work.
    pub const ENHANCE_YOUR_CALM: Self = Self(11);
    /// TLS is too weak.
    pub const INADEQUATE_SECURITY: Self = Self(12);
    /// The request is to be made over HTTP/1.1.
    pub const HTTP_1_1_REQUIRED: Self = Self(13);
}

/// Declares [`Error`] with its tables in one place.
macro_rules! errors {
    ($($variant:ident => $code:ident, $details:literal, $text:literal;)+) => {
        /// Why a connection is over. The peer is at fault; it is told by GOAWAY.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Error {
            $(#[doc = $text] $variant,)+
        }

        impl Error {
            /// Every variant.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// The code for GOAWAY.
            #[must_use]
            pub const fn code(self) -> Code {
                match self { $(Self::$variant => Code::$code,)+ }
            }

            /// What Envoy writes as `%RESPONSE_CODE_DETAILS%` of the streams that end with it.
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
    BadPreface => PROTOCOL_ERROR, "http2.protocol_error", "the connection does not begin with the preface \
        (RFC 9113 §3.4)";
    MissingSettings => PROTOCOL_ERROR, "http2.protocol_error", "the first frame is not SETTINGS (RFC 9113 §3.4)";
    FrameTooLarge => FRAME_SIZE_ERROR, "http2.protocol_error", "a frame is larger than allowed (RFC 9113 §4.2)";
    BadFrameSize => FRAME_SIZE_ERROR, "http2.protocol_error", "a frame has not the size of its type (RFC 9113 §4.2)";
    BadPadding => PROTOCOL_ERROR, "http2.protocol_error", "the padding is longer than its frame (RFC 9113 §6.1)";
    NoStream => PROTOCOL_ERROR, "http2.protocol_error", "a frame of a stream names none (RFC 9113 §6)";
    UnexpectedStream => PROTOCOL_ERROR, "http2.protocol_error", "a frame of the connection names a stream (RFC 9113 \
        §6)";
    BadStream => PROTOCOL_ERROR, "http2.protocol_error", "a stream has a number that it cannot have (RFC 9113 §5.1.1)";
    IdleStream => PROTOCOL_ERROR, "http2.protocol_error", "a frame is for a stream that has not begun (RFC 9113 §5.1)";
    StreamClosed => STREAM_CLOSED, "http2.protocol_error", "a frame came for a stream that is over (RFC 9113 §5.1)";
    BadBlock => COMPRESSION_ERROR, "http2.protocol_error", "a header block cannot be decoded (RFC 7541)";
    BlockInterrupted => PROTOCOL_ERROR, "http2.protocol_error", "another frame stands inside a header block (RFC 9113 \
        §4.3)";
    UnexpectedContinuation => PROTOCOL_ERROR, "http2.protocol_error", "CONTINUATION stands without a header block \
        (RFC 9113 §6.10)";
    BlockTooLarge => ENHANCE_YOUR_CALM, "http2.headers_too_large", "a header block is far larger than allowed, or \
        comes in too many frames (RFC 9113 §10.5)";
    BadSetting => PROTOCOL_ERROR, "http2.protocol_error", "a setting has a value that it cannot have (RFC 9113 \
        §6.5.2)";
    BadWindowSetting => FLOW_CONTROL_ERROR, "http2.protocol_error", "the initial window is above 2³¹ - 1 (RFC 9113 \
        §6.5.2)";
    UnexpectedPush => PROTOCOL_ERROR, "http2.protocol_error", "PUSH_PROMISE came and is not allowed (RFC 9113 §6.6)";
    WindowExceeded => FLOW_CONTROL_ERROR, "http2.flow_control_error", "more came than the connection's window allows \
        (RFC 9113 §6.9)";
    WindowOverflow => FLOW_CONTROL_ERROR, "http2.flow_control_error", "the connection's window is opened beyond 2³¹ - \
        1 (RFC 9113 §6.9.1)";
    EmptyWindowUpdate => PROTOCOL_ERROR, "http2.protocol_error", "a WINDOW_UPDATE opens the window by nothing (RFC \
        9113 §6.9)";
    Malformed => PROTOCOL_ERROR, "http2.violation.of.messaging.rule", "a message is malformed (RFC 9113 §8.1.1)";
    EmptyFrames => ENHANCE_YOUR_CALM, "http2.inbound_empty_frames_flood", "too many frames without content came (RFC \
        9113 §10.5)";
    PriorityFrames => ENHANCE_YOUR_CALM, "http2.inbound_priority_frames_flood", "too many PRIORITY frames came (RFC \
        9113 §10.5)";
    WindowUpdates => ENHANCE_YOUR_CALM, "http2.inbound_window_update_frames_flood", "too many WINDOW_UPDATE frames \
        came (RFC 9113 §10.5)";
    Resets => ENHANCE_YOUR_CALM, "http2.premature_resets", "too many streams were given up early (RFC 9113 §10.5)";
    OutboundFrames => ENHANCE_YOUR_CALM, "http2.outbound_frames_flood", "too many frames wait to be read by the peer \
        (RFC 9113 §10.5)";
    OutboundControlFrames => ENHANCE_YOUR_CALM, "http2.outbound_control_frames_flood", "too many answers wait to be \
        read by the peer (RFC 9113 §10.5)";
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl std::error::Error for Error {}
