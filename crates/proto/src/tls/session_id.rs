//! The id of a session of TLS 1.2, read from what passes in clear text, for the cryptography library does not say it.
//!
//! Arrives: the records with which a server begins. Leaves: the id in its `ServerHello` or, of a ticket that it gives,
//! its digest, by which BoringSSL knows such sessions. Sessions of TLS 1.3 have none.

use super::verify::sha256;

/// The id in the `ServerHello` at the beginning of these records, if it has one. A session that is new and for which a
/// ticket is promised has none, as in BoringSSL.
pub(super) fn of_server_hello(records: &[u8], is_resumed: bool) -> Option<Box<[u8]>> {
    let message = records.strip_prefix(&[HANDSHAKE, 3]).and_then(|rest| rest.get(3..))?;
    let hello = message.strip_prefix(&[SERVER_HELLO]).and_then(|rest| rest.get(3..))?;
    let id = id_in_hello(hello)?;
    let promises = || promises_ticket(hello.get(HELLO_BEFORE_ID + 1 + id.len()..)?);
    (is_resumed || promises() != Some(true)).then_some(id)
}

/// Whether a ticket is promised (RFC 5077 §3.2) in what stands behind the id.
fn promises_ticket(rest: &[u8]) -> Option<bool> {
    // The suite, the compression, and how long the extensions are.
    let (&[high, low], rest) = rest.get(3..)?.split_first_chunk()?;
    let mut extensions = rest.get(..usize::from(u16::from_be_bytes([high, low])))?;
    while let Some((&[kind_high, kind_low, high, low], rest)) = extensions.split_first_chunk() {
        if u16::from_be_bytes([kind_high, kind_low]) == SESSION_TICKET {
            return Some(true);
        }
        extensions = rest.get(usize::from(u16::from_be_bytes([high, low]))..)?;
    }
    Some(false)
}

fn id_in_hello(hello: &[u8]) -> Option<Box<[u8]>> {
    let (length, rest) = hello.get(HELLO_BEFORE_ID..)?.split_first()?;
    let id = rest.get(..usize::from(*length))?;
    (!id.is_empty()).then(|| id.into())
}

/// What a server's first records say of the session.
#[derive(Debug, Default)]
pub(super) struct ServerFlight {
    /// Records until they are sealed, as they came.
    kept: Vec<u8>,
}

impl ServerFlight {
    /// Keeps what came. What is longer than any handshake of TLS 1.2 is cut off.
    pub(super) fn keep(&mut self, records: &[u8]) {
        let room = MOST_KEPT.saturating_sub(self.kept.len());
        self.kept.extend_from_slice(&records[..records.len().min(room)]);
    }

    /// The session's id.
    pub(super) fn session_id(&self) -> Option<Box<[u8]>> {
        let mut messages = Vec::new();
        let mut rest = &self.kept[..];
        while let Some((&[kind, _, _, high, low], after)) = rest.split_first_chunk() {
            let length = usize::from(u16::from_be_bytes([high, low]));
            let Some((record, after)) = after.split_at_checked(length) else { break };
            if kind != HANDSHAKE {
                break;
            }
            messages.extend_from_slice(record);
            rest = after;
        }
        let (mut id, mut rest) = (None, &messages[..]);
        while let Some((&[kind, high, middle, low], after)) = rest.split_first_chunk() {
            let length = u32::from_be_bytes([0, high, middle, low]) as usize;
            let Some((message, after)) = after.split_at_checked(length) else { break };
            match kind {
                SERVER_HELLO => id = id_in_hello(message),
                // RFC 5077 §3.3: the lifetime, and the ticket behind its length, which may be 0.
                NEW_SESSION_TICKET => {
                    let ticket = message.get(6..).filter(|ticket| !ticket.is_empty());
                    id = ticket.map(|ticket| Box::from(&sha256(ticket)[..])).or(id);
                }
                _ => {}
            }
            rest = after;
        }
        id
    }
}

/// RFC 5246 §6.2.1 and §7.4.
const HANDSHAKE: u8 = 22;
const SERVER_HELLO: u8 = 2;
const NEW_SESSION_TICKET: u8 = 4;
/// RFC 5077 §8.
const SESSION_TICKET: u16 = 35;
/// Its version and its random bytes.
const HELLO_BEFORE_ID: usize = 2 + 32;
const MOST_KEPT: usize = 128 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(id: &[u8]) -> Vec<u8> {
        hello_with(id, &[])
    }

    fn hello_with(id: &[u8], extensions: &[u8]) -> Vec<u8> {
        let mut body = vec![3, 3];
        body.extend([7; 32]);
        body.push(id.len() as u8);
        body.extend(id);
        body.extend([0xc0, 0x2b, 0, 0, extensions.len() as u8]);
        body.extend(extensions);
        message(SERVER_HELLO, &body)
    }

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        [&[kind, 0, 0, body.len() as u8], body].concat()
    }

    fn record(kind: u8, content: &[u8]) -> Vec<u8> {
        [&[kind, 3, 3, 0, content.len() as u8], content].concat()
    }

    #[test]
    fn the_id_of_a_server_hello_is_found() {
        let records = record(HANDSHAKE, &hello(&[1, 2, 3]));
        assert_eq!(of_server_hello(&records, false).as_deref(), Some(&[1, 2, 3][..]));
        for end in 0..records.len() - 5 {
            assert_eq!(of_server_hello(&records[..end], false), None, "cut at {end}");
        }
        assert_eq!(of_server_hello(&record(HANDSHAKE, &hello(&[])), false), None);
        assert_eq!(of_server_hello(&record(21, &[2, 40]), false), None);
        let promised = [0xff, 1, 0, 1, 0, 0, 35, 0, 0];
        let records = record(HANDSHAKE, &hello_with(&[1, 2], &promised));
        assert_eq!(of_server_hello(&records, false), None);
        assert_eq!(of_server_hello(&records, true).as_deref(), Some(&[1, 2][..]));
        let other = record(HANDSHAKE, &hello_with(&[1, 2], &promised[..5]));
        assert_eq!(of_server_hello(&other, false).as_deref(), Some(&[1, 2][..]));
    }

    #[test]
    fn a_ticket_stands_for_its_session() {
        let ticket = message(NEW_SESSION_TICKET, &[0, 0, 1, 0, 0, 2, 8, 9]);
        let records = [
            record(HANDSHAKE, &hello(&[1, 2])),
            // A message in two records, and two messages in one.
            record(HANDSHAKE, &message(11, &[5; 9])[..6]),
            record(HANDSHAKE, &[&message(11, &[5; 9])[6..], &ticket].concat()),
            record(20, &[1]),
            record(HANDSHAKE, &[0xaa; 40]),
        ];
        let whole = records.concat();
        let mut flight = ServerFlight::default();
        flight.keep(&whole);
        assert_eq!(flight.session_id().as_deref(), Some(&sha256(&[8, 9])[..]));
        let mut split = ServerFlight::default();
        whole.iter().for_each(|byte| split.keep(&[*byte]));
        assert_eq!(split.session_id(), flight.session_id());
        for end in 0..whole.len() {
            let mut cut = ServerFlight::default();
            cut.keep(&whole[..end]);
            let _ = cut.session_id();
        }
        let mut without = ServerFlight::default();
        without.keep(&records[..2].concat());
        assert_eq!(without.session_id().as_deref(), Some(&[1, 2][..]));
        let empty = message(NEW_SESSION_TICKET, &[0, 0, 1, 0, 0, 0]);
        without.keep(&record(HANDSHAKE, &[&message(11, &[5; 9])[6..], &empty].concat()));
        assert_eq!(without.session_id().as_deref(), Some(&[1, 2][..]));
    }

    #[test]
    fn what_is_kept_has_a_limit() {
        let mut flight = ServerFlight::default();
        for _ in 0..3 {
            flight.keep(&[0; MOST_KEPT / 2 + 1]);
        }
        assert_eq!(flight.kept.len(), MOST_KEPT);
    }
}
