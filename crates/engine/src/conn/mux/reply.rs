//! Answers that need no stream: to heartbeats, and to calls that nothing here serves.

use towpath_proto::bolt::{Command, Frame, Message, Status, Version};

/// An answer that needs no stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reply {
    pub(crate) version: Version,
    pub(crate) number: u32,
    pub(crate) command: Command,
}

impl Reply {
    pub(crate) fn to(asked: &Frame) -> Self {
        Self { version: asked.version(), number: asked.id(), command: asked.command() }
    }

    /// That we are there; or, to a call, that it is not served here.
    pub(crate) fn message(self) -> Message {
        let (version, number) = (self.version, self.number);
        match self.command {
            Command::Heartbeat => Message::heartbeat_answer(version, number),
            Command::Rpc | Command::GoAway => {
                Message::response(version, number, Status::NO_PROCESSOR)
            }
        }
    }
}
