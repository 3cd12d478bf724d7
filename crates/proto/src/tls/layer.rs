//! One connection's TLS: records in and out, plain bytes in and out.
//!
//! A layer holds the bytes of an incomplete record, and nothing else between two calls: an established connection
//! at rest owns no buffer.

use std::fmt;

use bytes::BytesMut;
use rustls::client::UnbufferedClientConnection;
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, EncryptError, UnbufferedStatus,
};

use super::fault::Fault;
use super::suites::{CipherSuite, Group, Version};

/// One connection's TLS.
pub struct Layer {
    connection: UnbufferedClientConnection,
    /// Records of which a part is missing.
    incoming: Vec<u8>,
    /// Records of our own that were not asked for: the handshake's, alerts.
    outgoing: Vec<u8>,
    stage: Stage,
    said_goodbye: bool,
    sealed_records: u64,
}

/// How far a layer is.
///
/// ```text
/// Handshake ──► Open ──► Ended
///     └───────────┴────────┴──► Failed
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Handshake,
    Open,
    /// The peer has sent `close_notify`.
    Ended,
    Failed(Fault),
}

/// What came of one step of rustls.
enum Step {
    /// There is more to do.
    Again,
    /// It waits for the peer, or for something to send.
    Idle,
}

impl Layer {
    pub(super) fn client(connection: UnbufferedClientConnection) -> Result<Self, Fault> {
        let mut layer = Self {
            connection,
            incoming: Vec::new(),
            outgoing: Vec::new(),
            stage: Stage::Handshake,
            said_goodbye: false,
            sealed_records: 0,
        };
        layer.advance(&mut BytesMut::new())?;
        Ok(layer)
    }

    /// Takes what arrived and appends what it says to `plain`. Afterwards [`Layer::take_output`] may have something.
    ///
    /// # Errors
    /// When the connection is of no more use. What was said before the fault is in `plain`, and an alert for the peer
    /// in the output.
    pub fn receive(&mut self, chunk: &[u8], plain: &mut BytesMut) -> Result<(), Fault> {
        if let Stage::Failed(fault) = self.stage {
            return Err(fault);
        }
        for piece in chunk.chunks(PIECE_BYTES) {
            // What follows `close_notify` is ignored (RFC 8446 §6.1).
            if self.stage == Stage::Ended {
                break;
            }
            self.incoming.extend_from_slice(piece);
            self.advance(plain)?;
        }
        if self.incoming.is_empty() {
            self.incoming = Vec::new();
        }
        Ok(())
    }

    /// Appends `plain` to `out` as records.
    ///
    /// # Errors
    /// When the handshake is not over, we have said goodbye, or the connection has failed.
    pub fn seal(&mut self, plain: &[u8], out: &mut BytesMut) -> Result<(), Fault> {
        match self.stage {
            Stage::Failed(fault) => Err(fault),
            Stage::Handshake => Err(Fault::Internal),
            Stage::Open | Stage::Ended if self.said_goodbye => Err(Fault::Internal),
            Stage::Open | Stage::Ended => {
                self.sealed_records += records(plain.len()) as u64;
                self.write(Wish::Seal(plain), out)
            }
        }
    }

    /// Tells the peer that nothing more comes (`close_notify`), once; nothing when the handshake is not over.
    pub fn say_goodbye(&mut self, out: &mut BytesMut) {
        if self.is_established() && !std::mem::replace(&mut self.said_goodbye, true) {
            // Without it the peer takes the end for a cut, which is all that is left then.
            let _ = self.write(Wish::Goodbye, out);
        }
    }

    /// Records that are to be sent before anything that is sealed after this.
    pub fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.outgoing)
    }

    /// Whether the handshake is over, so that bytes can be sealed.
    #[must_use]
    pub const fn is_established(&self) -> bool {
        matches!(self.stage, Stage::Open | Stage::Ended)
    }

    /// Whether the peer has said that nothing more comes. An end of the connection without it may be anybody's
    /// doing (RFC 8446 §6.1).
    #[must_use]
    pub const fn is_ended(&self) -> bool {
        matches!(self.stage, Stage::Ended)
    }

    /// Bytes that are kept of an incomplete record.
    #[must_use]
    pub const fn buffered(&self) -> usize {
        self.incoming.capacity() + self.outgoing.capacity()
    }

    /// Whether its key has sealed so much that a connection which can be spared should end: TLS 1.2 cannot change it,
    /// and after 2^24 records it would have to stop in the middle (RFC 8446 §5.5 has the figures).
    #[must_use]
    pub fn is_worn(&self) -> bool {
        self.sealed_records > MOST_SEALED_RECORDS && self.version() == Some(Version::Tls12)
    }

    /// The version that is spoken, once that is known.
    #[must_use]
    pub fn version(&self) -> Option<Version> {
        self.connection.protocol_version().and_then(Version::of)
    }

    /// The cipher suite that is used, once that is known.
    #[must_use]
    pub fn cipher_suite(&self) -> Option<CipherSuite> {
        self.connection.negotiated_cipher_suite().map(CipherSuite::of)
    }

    /// The group whose keys were exchanged, once that is known; none when TLS 1.2 resumes.
    #[must_use]
    pub fn group(&self) -> Option<Group> {
        self.connection.negotiated_key_exchange_group().map(Group::of)
    }

    /// The protocol that the server chose, if it did.
    #[must_use]
    pub fn alpn(&self) -> Option<&[u8]> {
        self.connection.alpn_protocol()
    }

    /// Whether an earlier session was resumed.
    #[must_use]
    pub fn is_resumed(&self) -> bool {
        self.connection.handshake_kind() == Some(rustls::HandshakeKind::Resumed)
    }

    /// The peer's certificate (DER).
    #[must_use]
    pub fn peer_certificate(&self) -> Option<&[u8]> {
        Some(self.connection.peer_certificates()?.first()?)
    }

    /// Lets rustls work until it waits.
    fn advance(&mut self, plain: &mut BytesMut) -> Result<(), Fault> {
        loop {
            let UnbufferedStatus { mut discard, state } =
                self.connection.process_tls_records(&mut self.incoming);
            let step = match state {
                Ok(state) => {
                    take_step(state, &mut self.stage, &mut self.outgoing, plain, &mut discard)
                }
                Err(error) => Err(Fault::of(&error)),
            };
            self.incoming.drain(..discard.min(self.incoming.len()));
            match step {
                Ok(Step::Again) => {}
                Ok(Step::Idle) if self.incoming.len() > MOST_INCOMING_BYTES => {
                    return Err(self.fail(Fault::Violation));
                }
                Ok(Step::Idle) => return Ok(()),
                Err(fault) => return Err(self.fail(fault)),
            }
        }
    }

    /// Marks the layer as failed and fetches the alert that tells the peer.
    fn fail(&mut self, fault: Fault) -> Fault {
        let refused = fault == Fault::Alert(HANDSHAKE_FAILURE) && self.version().is_none();
        let fault = if refused { Fault::HelloRefused } else { fault };
        // One step brings the alert. A second one would read on, which rustls forbids (with an assertion).
        if !matches!(fault, Fault::Alert(_) | Fault::HelloRefused)
            && let Ok(ConnectionState::EncodeTlsData(data)) =
                self.connection.process_tls_records(&mut self.incoming).state
        {
            let _ = encode(data, &mut self.outgoing);
        }
        self.incoming = Vec::new();
        self.stage = Stage::Failed(fault);
        fault
    }

    fn write(&mut self, wish: Wish<'_>, out: &mut BytesMut) -> Result<(), Fault> {
        loop {
            let UnbufferedStatus { discard, state } =
                self.connection.process_tls_records(&mut self.incoming);
            let step =
                state.map_err(|error| Fault::of(&error)).and_then(|state| write(state, wish, out));
            self.incoming.drain(..discard.min(self.incoming.len()));
            match step {
                Ok(Step::Again) => {}
                Ok(Step::Idle) => return Ok(()),
                Err(fault) => return Err(self.fail(fault)),
            }
        }
    }
}

impl fmt::Debug for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Layer").field("stage", &self.stage).finish_non_exhaustive()
    }
}

/// Does what one state of rustls asks for on the way in.
fn take_step<Data>(
    state: ConnectionState<'_, '_, Data>,
    stage: &mut Stage,
    outgoing: &mut Vec<u8>,
    plain: &mut BytesMut,
    discard: &mut usize,
) -> Result<Step, Fault> {
    match state {
        ConnectionState::ReadTraffic(mut traffic) => {
            while let Some(record) = traffic.next_record() {
                let record = record.map_err(|error| Fault::of(&error))?;
                *discard += record.discard;
                plain.extend_from_slice(record.payload);
            }
            Ok(Step::Again)
        }
        ConnectionState::EncodeTlsData(data) => encode(data, outgoing).map(|()| Step::Again),
        ConnectionState::TransmitTlsData(data) => {
            // The layer's owner sends its output in order.
            data.done();
            Ok(Step::Again)
        }
        ConnectionState::PeerClosed => {
            if *stage == Stage::Handshake {
                return Err(Fault::Ended);
            }
            *stage = Stage::Ended;
            Ok(Step::Again)
        }
        ConnectionState::WriteTraffic(_) => {
            if *stage == Stage::Handshake {
                *stage = Stage::Open;
            }
            Ok(Step::Idle)
        }
        ConnectionState::BlockedHandshake | ConnectionState::Closed => Ok(Step::Idle),
        // Early data is neither sent nor accepted.
        ConnectionState::ReadEarlyData(_) | _ => Err(Fault::Internal),
    }
}

/// Appends records that rustls has made.
fn encode<Data>(mut data: EncodeTlsData<'_, Data>, outgoing: &mut Vec<u8>) -> Result<(), Fault> {
    let start = outgoing.len();
    let size = match data.encode(&mut []) {
        Err(EncodeError::InsufficientSize(size)) => size.required_size,
        Ok(_) | Err(EncodeError::AlreadyEncoded) => return Err(Fault::Internal),
    };
    outgoing.resize(start + size, 0);
    data.encode(&mut outgoing[start..]).map(drop).map_err(|_| Fault::Internal)
}

/// What is to be written.
#[derive(Clone, Copy)]
enum Wish<'a> {
    Seal(&'a [u8]),
    Goodbye,
}

/// Does what one state of rustls asks for on the way out.
fn write<Data>(
    state: ConnectionState<'_, '_, Data>,
    wish: Wish<'_>,
    out: &mut BytesMut,
) -> Result<Step, Fault> {
    let ConnectionState::WriteTraffic(mut traffic) = state else { return Err(Fault::Internal) };
    let start = out.len();
    let mut room = match wish {
        Wish::Seal(plain) => sealed_bytes(plain.len()),
        Wish::Goodbye => RECORD_OVERHEAD_BYTES,
    };
    loop {
        out.resize(start + room, 0);
        let written = match wish {
            Wish::Seal(plain) => traffic.encrypt(plain, &mut out[start..]),
            Wish::Goodbye => traffic.queue_close_notify(&mut out[start..]),
        };
        match written {
            Ok(written) => {
                out.truncate(start + written);
                return Ok(Step::Idle);
            }
            // Something of rustls's own goes before it, such as a new key.
            Err(EncryptError::InsufficientSize(size)) if size.required_size > room => {
                room = size.required_size;
            }
            Err(EncryptError::InsufficientSize(_) | EncryptError::EncryptExhausted) => {
                out.truncate(start);
                return Err(Fault::Internal);
            }
        }
    }
}

/// At most how many bytes so many plain ones become.
const fn sealed_bytes(plain: usize) -> usize {
    plain + records(plain) * RECORD_OVERHEAD_BYTES
}

/// In how many records so many bytes go.
const fn records(plain: usize) -> usize {
    plain / MOST_RECORD_BYTES + 1
}

/// Plain bytes of a record (RFC 8446 §5.1).
const MOST_RECORD_BYTES: usize = 16 * 1024;
/// Header, nonce, content type and tag take at most 30 bytes; an alert two more.
const RECORD_OVERHEAD_BYTES: usize = 32;
/// RFC 8446 §6.
const HANDSHAKE_FAILURE: u8 = 40;
const MOST_SEALED_RECORDS: u64 = 1 << 23;
/// What arrives is looked at in pieces, so that what is kept of an incomplete record stays small.
const PIECE_BYTES: usize = 32 * 1024;
/// A handshake's message has at most 64 KiB (rustls refuses longer ones), in records with as much again in headers.
const MOST_INCOMING_BYTES: usize = 2 * 64 * 1024;
