//! Chunks in, whole frames out.

use bytes::{Bytes, BytesMut};

use super::error::Error;
use super::frame::{Command, Frame, Kind};
use super::layout::{CHECKSUM, CHECKSUM_LENGTH, COMMAND_VERSION, Layout, Version};
use super::options::{MAX_SHORT, Options};

/// Whether bytes are the begin of a Bolt connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detection {
    /// They are.
    Bolt,
    /// They are something else.
    Other,
    /// So far they could be.
    Undecided,
}

/// Judges the first bytes of a connection by protocol, version, type, command and command version.
#[must_use]
pub fn detect(bytes: &[u8]) -> Detection {
    let Ok(version) = version(bytes) else { return Detection::Other };
    let Some(version) = version else { return Detection::Undecided };
    let shift = version.shift();
    let kind = match bytes.get(1 + shift).map(|&number| Kind::from_number(number)) {
        None => return Detection::Undecided,
        Some(None) => return Detection::Other,
        Some(Some(kind)) => kind,
    };
    let layout = Layout::of(version, kind);
    let Some(command) = bytes.get(layout.command..layout.command + 2) else {
        // The high byte of all commands is zero.
        let high = bytes.get(layout.command);
        return if high.is_none_or(|&byte| byte == 0) {
            Detection::Undecided
        } else {
            Detection::Other
        };
    };
    let number = u16::from_be_bytes([command[0], command[1]]);
    match (Command::from_number(number, kind), bytes.get(layout.command_version)) {
        (Some(_), None) => Detection::Undecided,
        (Some(_), Some(&COMMAND_VERSION)) => Detection::Bolt,
        _ => Detection::Other,
    }
}

/// Cuts what arrives on one connection into frames.
#[derive(Debug)]
pub struct Decoder {
    options: Options,
    /// What has arrived and was not taken; it stands behind `partial`.
    input: Bytes,
    /// The begin of a frame of which the rest is in `input`, or has not come.
    partial: BytesMut,
    /// How long `partial` must be before another look is worth it.
    wanted: usize,
    failed: Option<Error>,
}

impl Decoder {
    /// A fresh connection.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self { options, input: Bytes::new(), partial: BytesMut::new(), wanted: 0, failed: None }
    }

    /// Takes what arrived.
    pub fn receive(&mut self, chunk: Bytes) {
        if self.failed.is_some() {
            return;
        }
        if self.input.is_empty() {
            self.input = chunk;
            return;
        }
        let mut both = BytesMut::with_capacity(self.input.len() + chunk.len());
        both.extend_from_slice(&self.input);
        both.extend_from_slice(&chunk);
        self.input = both.freeze();
    }

    /// The next whole frame; `None` when more bytes are needed.
    ///
    /// # Errors
    /// The same [`Error`] from then on: where the next frame begins is not known.
    pub fn poll(&mut self) -> Result<Option<Frame>, Error> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        self.next_frame().inspect_err(|&error| {
            self.failed = Some(error);
            (self.input, self.partial) = Default::default();
        })
    }

    /// Bytes held that are no whole frame yet, or were not asked for.
    #[must_use]
    pub fn buffered(&self) -> usize {
        self.input.len() + self.partial.len()
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.partial.capacity()
    }

    fn next_frame(&mut self) -> Result<Option<Frame>, Error> {
        // Only the frame that two chunks share is put together; those behind it stay where they are.
        while !self.partial.is_empty() {
            let missing = self.wanted.saturating_sub(self.partial.len());
            let more = self.input.split_to(missing.min(self.input.len()));
            self.partial.extend_from_slice(&more);
            if more.len() < missing {
                return Ok(None);
            }
            match measure(&self.partial, &self.options)? {
                Measure::Wants(wanted) => self.want(wanted),
                Measure::Whole(fixed) => {
                    return fixed.take(&mut self.partial.split().freeze()).map(Some);
                }
            }
        }
        match measure(&self.input, &self.options)? {
            Measure::Whole(fixed) => fixed.take(&mut self.input).map(Some),
            Measure::Wants(wanted) => {
                let rest = std::mem::take(&mut self.input);
                if !rest.is_empty() {
                    self.partial.extend_from_slice(&rest);
                    self.want(wanted);
                }
                Ok(None)
            }
        }
    }

    /// Memory is had as bytes come, not as a length promises: at most as much again as is there.
    fn want(&mut self, wanted: usize) {
        self.wanted = wanted;
        let missing = wanted.saturating_sub(self.partial.len());
        self.partial.reserve(missing.min(self.partial.len().max(AT_ONCE)));
    }
}

/// So much memory a promised length gets without a byte to show for it.
const AT_ONCE: usize = 64 * 1024;

/// What the fixed part says.
struct Fixed {
    version: Version,
    kind: Kind,
    command: Command,
    class: u16,
    headers: u16,
    has_checksum: bool,
    whole: usize,
}

enum Measure {
    /// It is all there.
    Whole(Fixed),
    /// So many bytes must be there before more can be said.
    Wants(usize),
}

/// Judges each byte of the fixed part as soon as it is there.
fn measure(bytes: &[u8], options: &Options) -> Result<Measure, Error> {
    let Some(version) = version(bytes)? else { return Ok(Measure::Wants(bytes.len() + 1)) };
    let Some(&kind) = bytes.get(1 + version.shift()) else {
        return Ok(Measure::Wants(2 + version.shift()));
    };
    let kind = Kind::from_number(kind).ok_or(Error::UnknownKind(kind))?;
    let layout = Layout::of(version, kind);
    let Some(fixed) = bytes.get(..layout.fixed) else { return Ok(Measure::Wants(layout.fixed)) };
    let short = |at: usize| u16::from_be_bytes([fixed[at], fixed[at + 1]]);
    let command = short(layout.command);
    let command = Command::from_number(command, kind).ok_or(Error::UnknownCommand(command))?;
    if fixed[layout.command_version] != COMMAND_VERSION {
        return Err(Error::UnknownVersion(fixed[layout.command_version]));
    }
    let has_checksum = has_checksum(version, fixed, &layout)?;
    let (class, headers) = (short(layout.class_length), short(layout.header_length));
    if usize::from(class) > MAX_SHORT {
        return Err(Error::ClassTooLong(class.into()));
    }
    if usize::from(headers) > MAX_SHORT {
        return Err(Error::HeadersTooLong(headers.into()));
    }
    let at = layout.content_length;
    let content = u32::from_be_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]]);
    let trailer = if has_checksum { CHECKSUM_LENGTH } else { 0 };
    let whole = (layout.fixed + usize::from(class) + usize::from(headers) + trailer)
        .saturating_add(usize::try_from(content).unwrap_or(usize::MAX));
    if whole > options.max_frame {
        return Err(Error::FrameTooLarge(whole));
    }
    if bytes.len() < whole {
        return Ok(Measure::Wants(whole));
    }
    Ok(Measure::Whole(Fixed { version, kind, command, class, headers, has_checksum, whole }))
}

/// The version that the first bytes name; none when there are too few.
fn version(bytes: &[u8]) -> Result<Option<Version>, Error> {
    match bytes {
        [] | [2] => Ok(None),
        [1, ..] => Ok(Some(Version::V1)),
        [2, 1, ..] => Ok(Some(Version::V2 { checksums: false })),
        [2, 2, ..] => Ok(Some(Version::V2 { checksums: true })),
        [2, other, ..] => Err(Error::UnknownVersion(*other)),
        [other, ..] => Err(Error::UnknownProtocol(*other)),
    }
}

fn has_checksum(version: Version, fixed: &[u8], layout: &Layout) -> Result<bool, Error> {
    match (version, fixed[layout.switch]) {
        (Version::V1, _) | (Version::V2 { .. }, 0) => Ok(false),
        // sofa-bolt's client wishes for a checksum by default, and writes none where there is no room for it.
        (Version::V2 { checksums: false }, CHECKSUM) => Ok(false),
        (Version::V2 { checksums: true }, CHECKSUM) => Ok(true),
        (Version::V2 { .. }, switch) => Err(Error::UnknownSwitch(switch)),
    }
}

impl Fixed {
    /// Takes the frame off the front.
    fn take(self, input: &mut Bytes) -> Result<Frame, Error> {
        let Self { version, kind, command, class, headers, has_checksum, whole } = self;
        let bytes = input.split_to(whole);
        if has_checksum {
            let (covered, checksum) = bytes.split_at(whole - CHECKSUM_LENGTH);
            if crc32fast::hash(covered).to_be_bytes() != *checksum {
                return Err(Error::WrongChecksum);
            }
        }
        Ok(Frame { bytes, version, kind, command, class, headers, has_checksum })
    }
}
