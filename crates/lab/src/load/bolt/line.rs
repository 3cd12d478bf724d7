//! One Bolt connection: what is in flight on it, what it has to write, and whether each answer is the right one.

use std::collections::HashSet;
use std::os::fd::OwnedFd;

use bytes::{Bytes, BytesMut};
use rustix::io::Errno;
use rustix::net::{self, RecvFlags, SendFlags, sockopt};
use towpath_proto::Out;
use towpath_proto::bolt::{Command, Decoder, Frame, Kind, Message, Options, Status, write_header};

use crate::address::Address;
use crate::load::connection::{Failure, InFlight};
use crate::load::multiplex::{self, Event, Verdict};
use crate::load::{LoadError, Plan};

/// The request, encoded once; number and stamp are put in for each.
pub(in crate::load) struct Template {
    bytes: Vec<u8>,
    id_at: usize,
    content_at: usize,
    content_end: usize,
}

/// A connection.
pub(in crate::load) struct Line {
    index: u32,
    socket: Option<OwnedFd>,
    generation: u32,
    connected: bool,
    decoder: Decoder,
    unsent: Vec<u8>,
    sent: usize,
    /// By the low bits of the number.
    slots: Vec<Option<Slot>>,
    vacant: Vec<u32>,
    serial: u32,
    given_up: HashSet<u32>,
}

#[derive(Clone, Copy)]
struct Slot {
    id: u32,
    request: InFlight,
}

impl Template {
    pub(in crate::load) fn new(plan: &Plan) -> Result<Self, LoadError> {
        let bolt = &plan.bolt;
        let mut headers = BytesMut::new();
        for (name, value) in &plan.request.headers {
            write_header(&mut headers, name.as_bytes(), value.as_bytes());
        }
        let mut content = plan.request.body.clone();
        if content.len() < STAMP {
            content.resize(STAMP, b' ');
        }
        let length = content.len();
        let message = Message {
            codec: bolt.codec,
            timeout: Some(plan.timeout),
            class: Bytes::copy_from_slice(bolt.class.as_bytes()),
            headers: headers.freeze(),
            content: content.into(),
            checksum: true,
            ..Message::request(bolt.version, 0)
        };
        let mut out = Out::new();
        message
            .write(&mut out)
            .map_err(|_| LoadError::Plan("class, headers or body are too long for Bolt"))?;
        let bytes = out.drain().collect::<Vec<_>>().concat();
        let mut decoder = Decoder::new(Options { max_frame: usize::MAX });
        decoder.receive(Bytes::copy_from_slice(&bytes));
        let frame = decoder.poll().ok().flatten();
        let checksum = if frame.is_some_and(|frame| frame.has_checksum()) { CHECKSUM } else { 0 };
        let content_end = bytes.len() - checksum;
        let id_at = if bolt.version.protocol() == 1 { 5 } else { 6 };
        Ok(Self { id_at, content_at: content_end - length, content_end, bytes })
    }

    fn write(&self, id: u32, stamp: [u8; STAMP], out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&self.bytes);
        let frame = &mut out[start..];
        frame[self.id_at..self.id_at + 4].copy_from_slice(&id.to_be_bytes());
        frame[self.content_at..self.content_at + STAMP].copy_from_slice(&stamp);
        if self.content_end < frame.len() {
            let checksum = crc32fast::hash(&frame[..self.content_end]);
            frame[self.content_end..].copy_from_slice(&checksum.to_be_bytes());
        }
    }

    /// Whether a content is that of the request with this stamp: all of it where it is as long, else its begin.
    fn is_answer(&self, stamp: [u8; STAMP], content: &[u8]) -> bool {
        let asked = &self.bytes[self.content_at..self.content_end];
        let Some((first, rest)) = content.split_at_checked(STAMP) else { return false };
        first == stamp && (content.len() != asked.len() || rest == &asked[STAMP..])
    }
}

impl multiplex::Line for Line {
    type Template = Template;

    fn new(index: u32) -> Self {
        Self {
            index,
            socket: None,
            generation: 0,
            connected: false,
            decoder: Decoder::new(Options::default()),
            unsent: Vec::new(),
            sent: 0,
            slots: Vec::new(),
            vacant: Vec::new(),
            // Numbers wrap around in the middle of a run.
            serial: u32::MAX >> SLOT_BITS,
            given_up: HashSet::new(),
        }
    }

    fn open(&mut self, address: &Address, _: &Template) -> Result<(), Failure> {
        self.generation = self.generation.wrapping_add(1);
        self.connected = false;
        self.decoder = Decoder::new(Options::default());
        self.socket = Some(address.connect().map_err(Failure::Connect)?);
        Ok(())
    }

    fn close(&mut self) -> Vec<InFlight> {
        self.socket = None;
        self.connected = false;
        self.generation = self.generation.wrapping_add(1);
        self.unsent.clear();
        self.sent = 0;
        self.given_up.clear();
        self.abandon()
    }

    fn abandon(&mut self) -> Vec<InFlight> {
        self.vacant.clear();
        self.slots.drain(..).flatten().map(|slot| slot.request).collect()
    }

    fn expire(&mut self, limit_ns: u64) -> Vec<InFlight> {
        let mut expired = Vec::new();
        for (index, place) in self.slots.iter_mut().enumerate() {
            if let Some(slot) = place.filter(|slot| slot.request.started_ns < limit_ns) {
                *place = None;
                self.vacant.push(index as u32);
                self.given_up.insert(slot.id);
                expired.push(slot.request);
            }
        }
        expired
    }

    fn start(&mut self, request: InFlight, template: &mut Template) {
        let slot = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() as u32 - 1
        });
        self.serial = self.serial.wrapping_add(1);
        let id = self.serial << SLOT_BITS | slot;
        self.slots[slot as usize] = Some(Slot { id, request });
        template.write(id, self.stamp(id, request), &mut self.unsent);
    }

    fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    fn flush(&mut self) -> Event {
        let Some(socket) = &self.socket else { return Event::Fine };
        while self.sent < self.unsent.len() {
            match net::send(socket, &self.unsent[self.sent..], SendFlags::NOSIGNAL) {
                Ok(count) => self.sent += count,
                Err(Errno::AGAIN) => return Event::Blocked,
                Err(Errno::INTR) => {}
                Err(_) => return Event::Failed(Failure::Reset),
            }
        }
        self.unsent.clear();
        self.sent = 0;
        Event::Fine
    }

    fn on_writable(&mut self) -> Event {
        let Some(socket) = &self.socket else { return Event::Fine };
        if !self.connected {
            match sockopt::socket_error(socket) {
                Ok(Ok(())) => self.connected = true,
                Ok(Err(error)) | Err(error) => return Event::Failed(Failure::Connect(error)),
            }
        }
        self.flush()
    }

    fn on_readable(
        &mut self,
        scratch: &mut [u8],
        template: &Template,
        verdicts: &mut Vec<Verdict>,
    ) -> Event {
        let Some(socket) = self.socket.as_ref().filter(|_| self.connected) else {
            return Event::Fine;
        };
        match net::recv(socket, &mut *scratch, RecvFlags::empty()) {
            Ok((0, _)) => return Event::Failed(Failure::Closed),
            Ok((count, _)) => self.decoder.receive(Bytes::copy_from_slice(&scratch[..count])),
            Err(Errno::AGAIN | Errno::INTR) => return Event::Fine,
            Err(_) => return Event::Failed(Failure::Reset),
        }
        loop {
            match self.decoder.poll() {
                Ok(Some(frame)) => match (frame.kind(), frame.command()) {
                    (Kind::Response, Command::Rpc) => {
                        let verdict = self.judge(&frame, template);
                        verdicts.push(verdict);
                    }
                    (Kind::Response, _) => verdicts.push(Verdict::Unasked),
                    (Kind::Request | Kind::Oneway, Command::Heartbeat) => self.beat(&frame),
                    (Kind::Request | Kind::Oneway, Command::Rpc | Command::GoAway) => {
                        return Event::Failed(Failure::Malformed);
                    }
                },
                Ok(None) => return Event::Fine,
                Err(_) => return Event::Failed(Failure::Malformed),
            }
        }
    }

    fn socket(&self) -> Option<&OwnedFd> {
        self.socket.as_ref()
    }

    fn is_connected(&self) -> bool {
        self.connected
    }

    fn generation(&self) -> u32 {
        self.generation
    }

    fn capacity(&self) -> usize {
        usize::MAX
    }

    fn in_flight(&self) -> usize {
        self.slots.len() - self.vacant.len()
    }
}

impl Line {
    fn judge(&mut self, frame: &Frame, template: &Template) -> Verdict {
        let id = frame.id();
        let place = self.slots.get_mut((id & SLOT_MASK) as usize);
        let Some(slot) = place.as_deref().copied().flatten().filter(|slot| slot.id == id) else {
            return if self.given_up.remove(&id) { Verdict::Late } else { Verdict::Unasked };
        };
        if let Some(place) = place {
            *place = None;
        }
        self.vacant.push(id & SLOT_MASK);
        if frame.status() != Some(Status::SUCCESS) {
            return Verdict::Wrong("status", slot.request);
        }
        if template.is_answer(self.stamp(id, slot.request), &frame.content()) {
            Verdict::Right(slot.request)
        } else {
            Verdict::Crossed(slot.request)
        }
    }

    /// Answers a heartbeat, with the next write.
    fn beat(&mut self, frame: &Frame) {
        let mut out = Out::new();
        // A frame without parts is never too long.
        let _ = Message::heartbeat_answer(frame.version(), frame.id()).write(&mut out);
        out.drain().for_each(|part| self.unsent.extend_from_slice(&part));
    }

    /// Says which request a content belongs to: connection, number and start together are never the same twice.
    fn stamp(&self, id: u32, request: InFlight) -> [u8; STAMP] {
        let mut stamp = [0; STAMP];
        stamp[..4].copy_from_slice(&self.index.to_be_bytes());
        stamp[4..8].copy_from_slice(&id.to_be_bytes());
        stamp[8..].copy_from_slice(&request.started_ns.to_be_bytes());
        stamp
    }
}

/// Bytes at the begin of each content that say whose it is.
const STAMP: usize = 16;
const CHECKSUM: usize = 4;
const SLOT_BITS: u32 = 10;
const SLOT_MASK: u32 = (1 << SLOT_BITS) - 1;
