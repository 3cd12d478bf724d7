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
        /// The bytes of its records.
        size: usize,
    },
}

impl Greeting {
    /// Reads all that has arrived since a connection's first byte. As long as a record is not whole, that costs
    /// nothing.
    #[must_use]
    pub fn read(records: &[u8]) -> Self {
        let mut reader = HelloReader::default();
        match reader.read(records) {
            None => Self::Incomplete,
            Some(offer) if offer.is_hello => {
                let mut rest = Reader(&offer.protocols);
                let protocols = std::iter::from_fn(|| rest.list8()).map(|name| name.0.into());
                let (server_name, size) = (offer.server_name, reader.taken);
                Self::Hello { protocols: protocols.collect(), server_name, size }
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
    /// What there is of the message.
    pub(super) fn message(&self) -> &[u8] {
        &self.message
    }

    /// The bytes of the records that it is made of.
    pub(super) const fn size(&self) -> usize {
        self.taken
    }

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

/// The body of a `ClientHello` (RFC 8446 §4.1.2), as far as it is looked at.
pub(super) struct Hello<'a> {
    /// `legacy_version`.
    pub(super) version: u16,
    /// `cipher_suites`.
    pub(super) suites: Reader<'a>,
    pub(super) extensions: Reader<'a>,
}

impl<'a> Hello<'a> {
    /// Reads a whole message.
    pub(super) fn of_message(message: &'a [u8]) -> Option<Self> {
        let mut body = Reader(message.get(MESSAGE_HEADER_BYTES..)?);
        let version = body.number()?;
        body.take(RANDOM_BYTES)?;
        let (_session_id, suites, _compression) = (body.list8()?, body.list16()?, body.list8()?);
        let extensions = if body.0.is_empty() { Reader(&[]) } else { body.list16()? };
        Some(Self { version, suites, extensions })
    }
}

impl Offer {
    /// `None` as long as the message is not whole.
    fn of_message(message: &[u8]) -> Option<Self> {
        if *message.first()? != CLIENT_HELLO {
            return Some(Self::default());
        }
        let (&[_, high, middle, low], rest) =
            message.split_first_chunk::<MESSAGE_HEADER_BYTES>()?;
        let length = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        if length > MOST_HELLO_BYTES {
            return Some(Self::default());
        }
        rest.get(..length)?;
        let whole = message.get(..MESSAGE_HEADER_BYTES + length)?;
        Some(Hello::of_message(whole).and_then(|hello| Self::of(&hello)).unwrap_or_default())
    }

    fn of(hello: &Hello<'_>) -> Option<Self> {
        let mut offer = Self { is_hello: true, ..Self::default() };
        let mut extensions = Reader(hello.extensions.0);
        while !extensions.0.is_empty() {
            let (kind, mut content) = extensions.extension()?;
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
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn number(&mut self) -> Option<u16> {
        self.take(2)?.try_into().ok().map(u16::from_be_bytes)
    }

    /// The next extension: its kind and its content.
    pub(super) fn extension(&mut self) -> Option<(u16, Self)> {
        Some((self.number()?, self.list16()?))
    }

    /// What follows a byte with its length.
    pub(super) fn list8(&mut self) -> Option<Self> {
        let length = self.take(1)?[0];
        self.take(length.into()).map(Self)
    }

    /// What follows two bytes with its length.
    pub(super) fn list16(&mut self) -> Option<Self> {
        let length = self.number()?;
        self.take(length.into()).map(Self)
    }
}

pub(super) const HANDSHAKE: u8 = 22;
pub(super) const CLIENT_HELLO: u8 = 1;
pub(super) const MESSAGE_HEADER_BYTES: usize = 4;
pub(super) const RANDOM_BYTES: usize = 32;
const RECORD_HEADER_BYTES: usize = 5;
/// RFC 5246 §6.2.1; a `ClientHello` is never encrypted.
const MOST_RECORD_BYTES: usize = 16 * 1024;
/// What is longer is left to the TLS library, which refuses it.
const MOST_HELLO_BYTES: usize = 64 * 1024;
pub(super) const SERVER_NAME: u16 = 0;
const STATUS_REQUEST: u16 = 5;
const PROTOCOLS: u16 = 16;
pub(super) const HOST_NAME: &[u8] = &[0];
