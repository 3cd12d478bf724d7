//! One connection's TLS: records in and out, plain bytes in and out.
//!
//! A layer holds the bytes of an incomplete record, and nothing else between two calls: an established connection
//! at rest owns no buffer.

use std::fmt;

use bytes::BytesMut;
use rustls::CommonState;
use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::CertificateDer;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, EncryptError, UnbufferedStatus, WriteTraffic,
};

use super::any_name::{restore_record, spelled_records};
use super::client::ServerName;
use super::fault::Fault;
use super::hello::HelloReader;
use super::identities::{Choice, Chosen};
use super::server::{Guard, Server};
use super::session_id::{self, ServerFlight};
use super::staple::Stapling;
use super::suites::{CipherSuite, Group, Version};

/// One connection's TLS.
pub struct Layer {
    side: Side,
    /// Records of which a part is missing.
    incoming: Vec<u8>,
    /// Records of our own that were not asked for: the handshake's, alerts.
    outgoing: Vec<u8>,
    stage: Stage,
    sent_close_notify: bool,
    sealed_records: u64,
    /// What is known of the session: of a server's, where it has an id (TLS 1.2), of a client's where that is wanted.
    session: Option<Box<Session>>,
    /// The layer that carries its records, where it is not the transport itself.
    below: Option<Box<Self>>,
}

/// What is known of a connection's session.
#[derive(Default)]
struct Session {
    id: Box<[u8]>,
    /// What a server says in clear text, until the handshake is over.
    flight: Option<ServerFlight>,
    /// The name that is sent to the server.
    asked: Option<Box<str>>,
}

/// Which side of the connection this is.
enum Side {
    Client(UnbufferedClientConnection),
    Server(UnbufferedServerConnection, Accepted),
    /// A server that has not read the whole `ClientHello`, by which its settings are chosen.
    Hello(Server, HelloReader),
}

/// What a server knows of a connection beside its records.
struct Accepted {
    /// The name by which the client asked for it.
    server_name: Option<Box<str>>,
    /// That name has another spelling for rustls.
    has_spelled_name: bool,
    /// Judges the client's certificate.
    guard: Guard,
    /// It asks what an authority says of the certificate.
    asks_status: bool,
    /// The certificate that it is shown, once that is chosen.
    chosen: Option<Chosen>,
    /// Where the choice is told.
    choice: Choice,
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
    /// The peer has sent `close_notify`.
    Ended,
    /// It waits for the peer, or for something to send.
    Idle,
}

impl Layer {
    pub(super) fn client(connection: UnbufferedClientConnection) -> Result<Self, Fault> {
        let mut layer = Self::new(Side::Client(connection));
        layer.advance(&mut BytesMut::new())?;
        Ok(layer)
    }

    pub(super) fn server(server: Server) -> Self {
        Self::new(Side::Hello(server, HelloReader::default()))
    }

    const fn new(side: Side) -> Self {
        Self {
            side,
            incoming: Vec::new(),
            outgoing: Vec::new(),
            stage: Stage::Handshake,
            sent_close_notify: false,
            sealed_records: 0,
            session: None,
            below: None,
        }
    }

    /// The same inside another, whose handshake is over: what this one sends is sealed twice (a tunnel through a proxy
    /// that is spoken to under TLS).
    #[must_use]
    pub fn over(self, below: Box<Self>) -> Self {
        Self { below: Some(below), ..self }
    }

    /// Takes what arrived and appends what it says to `plain`. Afterwards [`Layer::take_output`] may have something.
    ///
    /// # Errors
    /// When the connection is of no more use. What was said before the fault is in `plain`, and an alert for the peer
    /// in the output.
    pub fn receive(&mut self, chunk: &[u8], plain: &mut BytesMut) -> Result<(), Fault> {
        let Some(below) = &mut self.below else { return self.receive_records(chunk, plain) };
        let mut records = BytesMut::new();
        let carried = below.receive(chunk, &mut records);
        self.receive_records(&records, plain)?;
        carried
    }

    fn receive_records(&mut self, chunk: &[u8], plain: &mut BytesMut) -> Result<(), Fault> {
        if let Stage::Failed(fault) = self.stage {
            return Err(fault);
        }
        for piece in chunk.chunks(PIECE_BYTES) {
            // What follows `close_notify` is ignored (RFC 8446 §6.1).
            if self.stage == Stage::Ended {
                break;
            }
            self.incoming.extend_from_slice(piece);
            let is_whole = match &self.side {
                Side::Hello(..) => self.read_hello()?,
                Side::Server(_, accepted) if accepted.has_spelled_name => self.spell_next_hello(),
                Side::Server(..) | Side::Client(_) => true,
            };
            if !is_whole {
                continue;
            }
            let (was_open, before) = (self.is_established(), plain.len());
            if let Some(flight) = self.session.as_deref_mut().and_then(|it| it.flight.as_mut()) {
                flight.keep(piece);
            }
            let is_choosing = !was_open && self.begin_choice();
            let advanced = self.advance(plain);
            if let Side::Server(_, accepted) = &mut self.side
                && is_choosing
            {
                accepted.chosen = accepted.choice.take();
            }
            advanced?;
            if !was_open {
                self.note_session();
            }
            if !was_open && self.is_established() {
                // What it says may have come with the end of its handshake.
                self.judge_resumed().inspect_err(|_| plain.truncate(before))?;
            }
        }
        if self.incoming.is_empty() {
            self.incoming = Vec::new();
        }
        Ok(())
    }

    /// Appends `plain` to `out` as records.
    ///
    /// # Errors
    /// When the handshake is not over, we have sent close_notify, or the connection has failed.
    pub fn seal(&mut self, plain: &[u8], out: &mut BytesMut) -> Result<(), Fault> {
        match self.stage {
            Stage::Failed(fault) => Err(fault),
            Stage::Handshake => Err(Fault::Internal),
            Stage::Open | Stage::Ended if self.sent_close_notify => Err(Fault::Internal),
            Stage::Open | Stage::Ended => {
                self.sealed_records += records(plain.len()) as u64;
                self.send(Wish::Seal(plain), out)
            }
        }
    }

    /// Tells the peer that nothing more comes (`close_notify`), once; nothing when the handshake is not over.
    pub fn send_close_notify(&mut self, out: &mut BytesMut) {
        if self.is_established() && !std::mem::replace(&mut self.sent_close_notify, true) {
            // Without it the peer takes the end for a cut, which is all that is left then.
            let _ = self.send(Wish::CloseNotify, out);
            if let Some(below) = &mut self.below {
                below.send_close_notify(out);
            }
        }
    }

    /// Records that are to be sent before anything that is sealed after this.
    pub fn take_output(&mut self) -> Vec<u8> {
        let own = std::mem::take(&mut self.outgoing);
        let Some(below) = &mut self.below else { return own };
        let mut output = below.take_output();
        if !own.is_empty() {
            let mut sealed = BytesMut::new();
            // What cannot be sealed any more has no way to the peer.
            if below.seal(&own, &mut sealed).is_ok() {
                output.extend_from_slice(&sealed);
            }
        }
        output
    }

    /// Whether the handshake is over, so that bytes can be sealed.
    #[must_use]
    pub const fn is_established(&self) -> bool {
        matches!(self.stage, Stage::Open | Stage::Ended)
    }

    /// Whether the peer has said that nothing more comes. An end of the connection without it may be an attacker's
    /// doing (RFC 8446 §6.1).
    #[must_use]
    pub const fn is_ended(&self) -> bool {
        matches!(self.stage, Stage::Ended)
    }

    /// Bytes that are kept of an incomplete record.
    #[must_use]
    pub fn buffered(&self) -> usize {
        let below = self.below.as_ref().map_or(0, |below| below.buffered());
        self.incoming.capacity() + self.outgoing.capacity() + below
    }

    /// Whether its key has sealed so much that a connection which can be spared should end: TLS 1.2 cannot change it,
    /// and after 2^24 records it would have to stop in the middle (RFC 8446 §5.5 has the figures).
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        self.sealed_records > MOST_SEALED_RECORDS && self.version() == Some(Version::Tls12)
    }

    /// The version that is spoken, once that is known.
    #[must_use]
    pub fn version(&self) -> Option<Version> {
        self.common()?.protocol_version().and_then(Version::of)
    }

    /// The cipher suite that is used, once that is known.
    #[must_use]
    pub fn cipher_suite(&self) -> Option<CipherSuite> {
        self.common()?.negotiated_cipher_suite().map(CipherSuite::of)
    }

    /// The group whose keys were exchanged, once that is known; none when TLS 1.2 resumes.
    #[must_use]
    pub fn group(&self) -> Option<Group> {
        self.common()?.negotiated_key_exchange_group().map(Group::of)
    }

    /// The protocol that the server chose, if it did.
    #[must_use]
    pub fn alpn(&self) -> Option<&[u8]> {
        self.common()?.alpn_protocol()
    }

    /// The name by which the client asked for this server (RFC 6066 §3), as it wrote it; on the server's side only,
    /// once its first message is there.
    #[must_use]
    pub fn server_name(&self) -> Option<&str> {
        match &self.side {
            Side::Server(_, accepted) => accepted.server_name.as_deref(),
            Side::Client(_) | Side::Hello(..) => None,
        }
    }

    /// Keeps the id of the session and the name that the server is asked for, of a client's layer that has received
    /// nothing yet.
    #[must_use]
    pub fn remembering(self, asked: &ServerName) -> Self {
        let flight = Some(ServerFlight::default());
        let session = Session { id: Box::default(), flight, asked: asked.sent() };
        Self { session: Some(Box::new(session)), ..self }
    }

    /// The name that a client's server is asked for, if one is sent; after [`Layer::remembering`].
    #[must_use]
    pub fn asked_name(&self) -> Option<&str> {
        self.session.as_deref()?.asked.as_deref()
    }

    /// The id of the session, where it has one: of TLS 1.2, as its server says it or, where that gives a ticket, the
    /// ticket's SHA-256. On the client's side only after [`Layer::remembering`].
    #[must_use]
    pub fn session_id(&self) -> Option<&[u8]> {
        let session = self.session.as_deref()?;
        (!session.id.is_empty()).then_some(&*session.id)
    }

    /// Reads the id of the session from what is in clear text.
    fn note_session(&mut self) {
        let is_old = self.version() == Some(Version::Tls12);
        let (is_open, is_resumed) = (self.is_established(), self.is_resumed());
        match (&self.side, &mut self.session) {
            (Side::Server(..), session @ None) if is_old => {
                let id = session_id::of_server_hello(&self.outgoing, is_resumed);
                *session = id.map(|id| Box::new(Session { id, ..Session::default() }));
            }
            (Side::Client(_), Some(session)) if is_open => {
                let id = session.flight.take().and_then(|flight| flight.session_id());
                session.id = id.filter(|_| is_old).unwrap_or_default();
            }
            (Side::Server(..) | Side::Client(_) | Side::Hello(..), _) => {}
        }
    }

    /// Whether an earlier session was resumed.
    #[must_use]
    pub fn is_resumed(&self) -> bool {
        let kind = self.common().and_then(CommonState::handshake_kind);
        kind == Some(rustls::HandshakeKind::Resumed)
    }

    /// The peer's certificate (DER).
    #[must_use]
    pub fn peer_certificate(&self) -> Option<&[u8]> {
        self.peer_certificates().next()
    }

    /// The peer's certificate and those that it sent to lead to a root (DER).
    pub fn peer_certificates(&self) -> impl Iterator<Item = &[u8]> {
        self.peer_chain().iter().map(AsRef::as_ref)
    }

    pub(super) fn peer_chain(&self) -> &[CertificateDer<'static>] {
        self.common().and_then(CommonState::peer_certificates).unwrap_or_default()
    }

    /// Whether the client has shown a certificate in this handshake that is a good one, though any is taken. One of a
    /// session that was resumed was shown before.
    #[must_use]
    pub fn is_peer_validated(&self) -> bool {
        let Side::Server(_, accepted) = &self.side else { return false };
        let chain = self.peer_chain();
        !chain.is_empty() && !self.is_resumed() && accepted.guard.approves(chain)
    }

    /// The certificate that has signed the client's (DER), where a chain was found good in this handshake.
    #[must_use]
    pub fn peer_issuer(&self) -> Option<&[u8]> {
        let Side::Server(_, accepted) = &self.side else { return None };
        if !self.is_peer_validated() {
            return None;
        }
        accepted.guard.issuer(self.peer_chain())
    }

    /// The certificate that this server has shown (DER); on the server's side only, once it is chosen.
    #[must_use]
    pub fn own_certificate(&self) -> Option<&[u8]> {
        match &self.side {
            Side::Server(_, accepted) => {
                let certified = accepted.chosen.as_ref()?.certified.as_ref()?;
                certified.cert.first().map(AsRef::as_ref)
            }
            Side::Client(_) | Side::Hello(..) => None,
        }
    }

    /// What became of the client's question what an authority says of the certificate, if it asked and one was to be
    /// shown; on the server's side only.
    #[must_use]
    pub fn stapling(&self) -> Option<Stapling> {
        match &self.side {
            Side::Server(_, accepted) => accepted.chosen.as_ref()?.stapling,
            Side::Client(_) | Side::Hello(..) => None,
        }
    }

    /// Whether this is a server that has not chosen its certificate yet; then what it chooses by is said.
    fn begin_choice(&self) -> bool {
        let Side::Server(_, accepted) = &self.side else { return false };
        if accepted.chosen.is_none() {
            accepted.choice.begin(accepted.asks_status);
        }
        accepted.chosen.is_none()
    }

    fn common(&self) -> Option<&CommonState> {
        match &self.side {
            Side::Client(connection) => Some(connection),
            Side::Server(connection, _) => Some(connection),
            Side::Hello(..) => None,
        }
    }

    /// Begins the server's side as soon as the `ClientHello` is whole, or can be none. Whether it is fit is left to
    /// rustls, which reads it again.
    fn read_hello(&mut self) -> Result<bool, Fault> {
        let Side::Hello(server, reader) = &mut self.side else { return Ok(true) };
        let Some(offer) = reader.read(&self.incoming) else { return Ok(false) };
        match UnbufferedServerConnection::new(server.config_for(&offer)) {
            Ok(connection) => {
                let spelled = spelled_records(reader.message());
                let has_spelled_name = spelled.is_some();
                if let Some(records) = spelled {
                    self.incoming.splice(..reader.size(), records);
                }
                let accepted = Accepted {
                    has_spelled_name,
                    server_name: offer.server_name,
                    guard: server.guard().clone(),
                    asks_status: offer.asks_status,
                    chosen: None,
                    choice: server.choice().clone(),
                };
                self.side = Side::Server(connection, accepted);
            }
            Err(error) => return Err(self.fail(Fault::of(&error))),
        }
        Ok(true)
    }

    /// Spells the name in the `ClientHello` that answers a `HelloRetryRequest`, where the first one's was. `false` as
    /// long as a record is not whole.
    fn spell_next_hello(&mut self) -> bool {
        if self.stage != Stage::Handshake {
            return true;
        }
        // RFC 8446 §D.4: it may come before.
        let before = if self.incoming.starts_with(CHANGE_CIPHER_SPEC) {
            CHANGE_CIPHER_SPEC.len()
        } else {
            0
        };
        let mut reader = HelloReader::default();
        let Some(offer) = reader.read(&self.incoming[before..]) else { return false };
        if offer.is_hello
            && let Some(records) = spelled_records(reader.message())
        {
            self.incoming.splice(before..before + reader.size(), records);
        }
        true
    }

    /// A session that is resumed brings the client's certificate along, which was judged when the session began: it may
    /// have expired since, and each resumption makes the session last longer.
    fn judge_resumed(&mut self) -> Result<(), Fault> {
        let Side::Server(connection, accepted) = &self.side else { return Ok(()) };
        let Some(chain) = connection.peer_certificates().filter(|_| self.is_resumed()) else {
            return Ok(());
        };
        let Err(fault) = accepted.guard.judge(chain) else { return Ok(()) };
        // There is a ticket in it, by which the client would come back.
        self.outgoing = Vec::new();
        self.incoming = Vec::new();
        self.stage = Stage::Failed(fault);
        Err(fault)
    }

    /// Lets rustls work until it waits.
    fn advance(&mut self, plain: &mut BytesMut) -> Result<(), Fault> {
        loop {
            let Self { side, incoming, outgoing, stage, .. } = self;
            let (discard, step) = match side {
                Side::Client(connection) => {
                    take_step(connection.process_tls_records(incoming), stage, outgoing, plain)
                }
                Side::Server(connection, _) => {
                    take_step(connection.process_tls_records(incoming), stage, outgoing, plain)
                }
                Side::Hello(..) => (0, Ok(Step::Idle)),
            };
            self.incoming.drain(..discard.min(self.incoming.len()));
            match step {
                Ok(Step::Again) => {}
                // It may come with the last message of the handshake.
                Ok(Step::Ended) if self.common().is_some_and(|it| !it.is_handshaking()) => {
                    self.stage = Stage::Ended;
                }
                Ok(Step::Ended) => return Err(self.fail(Fault::Ended)),
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
        let refused = fault == Fault::Alert(HANDSHAKE_FAILURE)
            && self.version().is_none()
            && matches!(self.side, Side::Client(_));
        let fault = if refused { Fault::HelloRefused } else { fault };
        if !matches!(fault, Fault::Alert(_) | Fault::HelloRefused) {
            let Self { side, incoming, outgoing, .. } = self;
            match side {
                Side::Client(connection) => {
                    encode_alert(connection.process_tls_records(incoming), outgoing);
                }
                Side::Server(connection, _) => {
                    encode_alert(connection.process_tls_records(incoming), outgoing);
                }
                Side::Hello(..) => {}
            }
        }
        self.incoming = Vec::new();
        self.stage = Stage::Failed(fault);
        fault
    }

    /// Writes through the layer below, where there is one.
    fn send(&mut self, wish: Wish<'_>, out: &mut BytesMut) -> Result<(), Fault> {
        let Some(mut below) = self.below.take() else { return self.write(wish, out) };
        let mut records = BytesMut::new();
        let written = self.write(wish, &mut records);
        let carried = below.seal(&records, out);
        self.below = Some(below);
        written.and(carried)
    }

    fn write(&mut self, wish: Wish<'_>, out: &mut BytesMut) -> Result<(), Fault> {
        loop {
            let (discard, step) = match &mut self.side {
                Side::Client(connection) => {
                    write(connection.process_tls_records(&mut self.incoming), wish, out)
                }
                Side::Server(connection, _) => {
                    write(connection.process_tls_records(&mut self.incoming), wish, out)
                }
                Side::Hello(..) => (0, Err(Fault::Internal)),
            };
            self.incoming.drain(..discard.min(self.incoming.len()));
            match step {
                Ok(Step::Again) => {}
                Ok(Step::Idle | Step::Ended) => return Ok(()),
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

/// Does what rustls's state asks for on the way in. Also says how many of the incoming bytes are done with.
fn take_step<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    stage: &mut Stage,
    outgoing: &mut Vec<u8>,
    plain: &mut BytesMut,
) -> (usize, Result<Step, Fault>) {
    let UnbufferedStatus { mut discard, state } = status;
    let step = match state {
        Ok(ConnectionState::ReadTraffic(mut traffic)) => loop {
            match traffic.next_record() {
                Some(Ok(record)) => {
                    discard += record.discard;
                    plain.extend_from_slice(record.payload);
                }
                Some(Err(error)) => break Err(Fault::of(&error)),
                None => break Ok(Step::Again),
            }
        },
        Ok(ConnectionState::EncodeTlsData(data)) => encode(data, outgoing).map(|()| Step::Again),
        Ok(ConnectionState::TransmitTlsData(data)) => {
            // The layer's owner sends its output in order.
            data.done();
            Ok(Step::Again)
        }
        Ok(ConnectionState::PeerClosed) => Ok(Step::Ended),
        Ok(ConnectionState::WriteTraffic(_)) => {
            if *stage == Stage::Handshake {
                *stage = Stage::Open;
            }
            Ok(Step::Idle)
        }
        Ok(ConnectionState::BlockedHandshake | ConnectionState::Closed) => Ok(Step::Idle),
        // Early data is neither sent nor accepted.
        Ok(ConnectionState::ReadEarlyData(_) | _) => Err(Fault::Internal),
        Err(error) => Err(Fault::of(&error)),
    };
    (discard, step)
}

/// Appends the alert that tells the peer of an error. One step brings it. A second one would read on, which rustls
/// forbids (with an assertion).
fn encode_alert<Data>(status: UnbufferedStatus<'_, '_, Data>, outgoing: &mut Vec<u8>) {
    if let Ok(ConnectionState::EncodeTlsData(data)) = status.state {
        // Without it the peer takes the end for a cut, which is all that is left then.
        let _ = encode(data, outgoing);
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
    data.encode(&mut outgoing[start..]).map_err(|_| Fault::Internal)?;
    restore_record(outgoing, start);
    Ok(())
}

/// What is to be written.
#[derive(Clone, Copy)]
enum Wish<'a> {
    Seal(&'a [u8]),
    CloseNotify,
}

/// Does what rustls's state asks for on the way out. Also says how many of the incoming bytes are done with.
fn write<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    wish: Wish<'_>,
    out: &mut BytesMut,
) -> (usize, Result<Step, Fault>) {
    let step = match status.state {
        Ok(ConnectionState::WriteTraffic(traffic)) => write_traffic(traffic, wish, out),
        Ok(_) => Err(Fault::Internal),
        Err(error) => Err(Fault::of(&error)),
    };
    (status.discard, step)
}

fn write_traffic<Data>(
    mut traffic: WriteTraffic<'_, Data>,
    wish: Wish<'_>,
    out: &mut BytesMut,
) -> Result<Step, Fault> {
    let start = out.len();
    let mut room = match wish {
        Wish::Seal(plain) => sealed_bytes(plain.len()),
        Wish::CloseNotify => RECORD_OVERHEAD_BYTES,
    };
    loop {
        out.resize(start + room, 0);
        let written = match wish {
            Wish::Seal(plain) => traffic.encrypt(plain, &mut out[start..]),
            Wish::CloseNotify => traffic.queue_close_notify(&mut out[start..]),
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
const CHANGE_CIPHER_SPEC: &[u8] = &[20, 3, 3, 0, 1, 1];
/// RFC 8446 §6.
const HANDSHAKE_FAILURE: u8 = 40;
const MOST_SEALED_RECORDS: u64 = 1 << 23;
/// What arrives is looked at in pieces, so that what is kept of an incomplete record stays small.
const PIECE_BYTES: usize = 32 * 1024;
/// A handshake's message has at most 64 KiB (rustls refuses longer ones), in records with as much again in headers.
const MOST_INCOMING_BYTES: usize = 2 * 64 * 1024;
