//! What a server streams by the Connect protocol: messages in frames like those of gRPC, and a last frame in JSON that
//! says how the call went ([Connect Protocol, Streaming-Response](https://connectrpc.com/docs/protocol)).

use super::super::calls::Frames;
use crate::stream_info::read_json;

/// Counts the messages of an answer, and reads its last frame.
#[derive(Debug, Default)]
pub(super) struct Streamed {
    frames: Frames,
    /// The content of the last frame, once it has begun; none where that is too long.
    last: Option<Option<Vec<u8>>>,
    /// How the call went, once that is known.
    succeeds: bool,
}

impl Streamed {
    /// How many messages begin in a piece.
    pub(super) fn count(&mut self, mut data: &[u8]) -> u64 {
        let mut messages = 0;
        while let Some(&flags) = data.first() {
            if self.frames.is_between() {
                match self.last {
                    // Nothing comes behind it.
                    Some(_) => break,
                    None if flags & END_OF_STREAM != 0 => self.last = Some(Some(Vec::new())),
                    None => messages += 1,
                }
            }
            let start = self.frames.start_left();
            let (length, is_over) = self.frames.advance(data);
            if let Some(last) = &mut self.last {
                let content = data.get(start..length).unwrap_or_default();
                last.take_if(|last| last.len() + content.len() > LONGEST_END);
                if let Some(last) = last {
                    last.extend_from_slice(content);
                    self.succeeds = is_over && is_success(last);
                }
            }
            data = &data[length..];
        }
        messages
    }

    /// The last frame is here and tells of no error.
    pub(super) const fn succeeds(&self) -> bool {
        self.succeeds
    }
}

fn is_success(last: &[u8]) -> bool {
    read_json(last).is_some_and(|said| !said.contains_key("error"))
}

/// The flag of the last frame.
const END_OF_STREAM: u8 = 2;
/// A last frame that is longer tells nothing.
const LONGEST_END: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    /// Messages, and whether the call succeeded, wherever the answer is cut.
    fn heard(answer: &[u8]) -> (u64, bool) {
        let mut all = (0..=answer.len()).map(|cut| {
            let mut streamed = Streamed::default();
            let messages = streamed.count(&answer[..cut]) + streamed.count(&answer[cut..]);
            (messages, streamed.succeeds())
        });
        let first = all.next().expect("there is one cut at least");
        all.for_each(|other| assert_eq!(other, first));
        first
    }

    #[test]
    fn the_last_frame_says_how_it_went() {
        assert_eq!(heard(b"\0\0\0\0\x03abc\x02\0\0\0\x02{}"), (1, true));
        assert_eq!(heard(b"\0\0\0\0\0\0\0\0\0\x01a\x02\0\0\0\x02{}more"), (2, true));
        assert_eq!(heard(b"\x02\0\0\0\x0c{\"error\":{}}"), (0, false));
        assert_eq!(heard(b"\x02\0\0\0\x02[]"), (0, false));
        assert_eq!(heard(b"\x02\0\0\0\x03{}"), (0, false));
        assert_eq!(heard(b"\0\0\0\0\x03abc"), (1, false));
    }

    #[test]
    fn a_last_frame_that_is_too_long_tells_nothing() {
        let mut answer = b"\x02\0\x01\0\x01{}".to_vec();
        answer.resize(5 + LONGEST_END + 1, b' ');
        let mut streamed = Streamed::default();
        assert_eq!((streamed.count(&answer), streamed.succeeds()), (0, false));
        answer[4] = 0;
        answer.pop();
        let mut streamed = Streamed::default();
        assert_eq!((streamed.count(&answer), streamed.succeeds()), (0, true));
    }
}
