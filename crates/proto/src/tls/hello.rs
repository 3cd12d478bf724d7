//! What of a client's first message decides how it is served: the name that it asks for and the protocols that it
//! offers (RFC 8446 §4.1.2; the form is the same in TLS 1.2).
//!
//! Arrives: the records of a connection from its first byte. Leaves: an [`Offer`], empty when they are no
//! `ClientHello`. Whether the message is fit is not judged here: the TLS library reads it again and refuses it with the
//! right alert.

/// What a connection's first bytes say of TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Greeting {
    /// More bytes are needed to tell.
    Incomplete,
    /// They are no `ClientHello`, or one that cannot be read.
    Plain,
    /// A `ClientHello`.
    Hello {
        /// The name of the server, as the client wrote it (RFC 6066 §3).
        server_name: Option<Box<str>>,
        /// The protocols that are offered, the client's favourite first (RFC 7301 §3.1).
        protocols: Vec<Box<[u8]>>,
    },
}

impl Greeting {
    /// Reads all that has arrived since a connection's first byte. As long as a record is not whole, that costs
    /// nothing.
    #[must_use]
    pub fn read(records: &[u8]) -> Self {
        match HelloReader::default().read(records) {
            None => Self::Incomplete,
            Some(offer) if offer.is_hello => {
                let mut rest = Reader(&offer.protocols);
                let protocols = std::iter::from_fn(|| rest.list8()).map(|name| name.0.into());
                Self::Hello { protocols: protocols.collect(), server_name: offer.server_name }
            }
            Some(_) => Self::Plain,
        }
    }
}

/// What a `ClientHello` offers.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Offer {
    /// The name of the server, as the client wrote it (RFC 6066 §3).
    pub(super) server_name: Option<Box<str>>,
    /// The list of protocols, each behind a byte with its length (RFC 7301 §3.1); empty when none is offered.
    pub(super) protocols: Vec<u8>,
    /// There was a `ClientHello`, and it could be read.
    pub(super) is_hello: bool,
    /// It asks what an authority says of the server's certificate (RFC 6066 §8).
    pub(super) asks_status: bool,
}

/// Puts the message together from records. Looks at every byte once, however they arrive.
#[derive(Debug, Default)]
pub(super) struct HelloReader {
    /// Bytes of whole records that are in `message`, with their headers.
    taken: usize,
    message: Vec<u8>,
}

impl HelloReader {
    /// Reads on in all that has arrived since the connection's first byte. `None` when more is needed.
    pub(super) fn read(&mut self, records: &[u8]) -> Option<Offer> {
        loop {
            let rest = records.get(self.taken..)?;
            let kind = *rest.first()?;
            if kind != HANDSHAKE || records.len() > MOST_HELLO_BYTES {
                return Some(Offer::default());
            }
            let length = usize::from(u16::from_be_bytes([*rest.get(3)?, *rest.get(4)?]));
            if length > MOST_RECORD_BYTES {
                return Some(Offer::default());
            }
            let end = RECORD_HEADER_BYTES + length;
            self.message.extend_from_slice(rest.get(RECORD_HEADER_BYTES..end)?);
            self.taken += end;
            if let Some(offer) = Offer::of_message(&self.message) {
                return Some(offer);
            }
        }
    }
}

impl Offer {
    /// `None` as long as the message is not whole.
    fn of_message(message: &[u8]) -> Option<Self> {
        if *message.first()? != CLIENT_HELLO {
            return Some(Self::default());
        }
        let (&[_, high, middle, low], rest) = message.split_first_chunk::<4>()?;
        let length = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        if length > MOST_HELLO_BYTES {
            return Some(Self::default());
        }
        let body = rest.get(..length)?;
        Some(Self::of_body(Reader(body)).unwrap_or_default())
    }

    fn of_body(mut body: Reader<'_>) -> Option<Self> {
        body.take(VERSION_BYTES + RANDOM_BYTES)?;
        let (_session_id, _cipher_suites, _compression) =
            (body.list8()?, body.list16()?, body.list8()?);
        let mut offer = Self { is_hello: true, ..Self::default() };
        if body.0.is_empty() {
            return Some(offer);
        }
        let mut extensions = body.list16()?;
        while !extensions.0.is_empty() {
            let kind = extensions.take(2)?;
            let mut content = extensions.list16()?;
            match kind {
                SERVER_NAME => offer.server_name = host_name(content.list16()?),
                STATUS_REQUEST => offer.asks_status = true,
                PROTOCOLS => offer.protocols = content.list16()?.0.to_vec(),
                _ => {}
            }
        }
        Some(offer)
    }

    /// Whether one of these protocols is offered.
    pub(super) fn has_any_of(&self, wanted: &[Vec<u8>]) -> bool {
        let mut rest = Reader(&self.protocols);
        std::iter::from_fn(|| rest.list8()).any(|name| wanted.iter().any(|wanted| wanted == name.0))
    }
}

/// The first name of the kind `host_name`.
fn host_name(mut names: Reader<'_>) -> Option<Box<str>> {
    while let Some(kind) = names.take(1) {
        let name = names.list16()?.0;
        if kind == HOST_NAME {
            return std::str::from_utf8(name).ok().filter(|name| name.is_ascii()).map(Box::from);
        }
    }
    None
}

/// What is left to read.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    /// What follows a byte with its length.
    fn list8(&mut self) -> Option<Self> {
        let length = self.take(1)?[0];
        self.take(length.into()).map(Self)
    }

    /// What follows two bytes with its length.
    fn list16(&mut self) -> Option<Self> {
        let length = u16::from_be_bytes(self.take(2)?.try_into().ok()?);
        self.take(length.into()).map(Self)
    }
}

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const VERSION_BYTES: usize = 2;
const RANDOM_BYTES: usize = 32;
const RECORD_HEADER_BYTES: usize = 5;
/// RFC 5246 §6.2.1; a `ClientHello` is never encrypted.
const MOST_RECORD_BYTES: usize = 16 * 1024;
/// What is longer is left to the TLS library, which refuses it.
const MOST_HELLO_BYTES: usize = 64 * 1024;
const SERVER_NAME: &[u8] = &[0, 0];
const STATUS_REQUEST: &[u8] = &[0, 5];
const PROTOCOLS: &[u8] = &[0, 16];
const HOST_NAME: &[u8] = &[0];
