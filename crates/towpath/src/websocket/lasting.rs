//! A connection that is opened again whenever it breaks.

use std::fmt;
use std::time::Instant;

use super::{CloseReason, Connect, Message, WebSocket};
use crate::reconnects::{Reconnects, is_final, sleep_until};
use crate::timeline::Entry;
use crate::{Error, Failed};

/// What happens over several connections. An [`Iterator`] for those that block; after an error nothing comes.
///
/// What breaks is opened again at once, and then after pauses that are doubled up to 30 s and drawn from their upper
/// half, while the server cannot be reached; the same where it answers the handshake with 429, 500, 502, 503 or 504, or
/// closes with 1001, 1006 or 1011 to 1014 (then after a second). It ends when the app or the server closes otherwise,
/// or the server refuses the handshake. What was sent on a connection that broke may be lost: nothing is sent twice.
#[must_use = "nothing is sent until something is asked for"]
pub struct Lasting {
    connect: Connect,
    phase: Phase,
    reconnects: Reconnects,
}

/// What happened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Incident {
    /// There is a connection: what is to be sent on each goes here.
    Opened(WebSocket),
    /// A message came.
    Message(Message),
    /// The connection broke, or the server closed it for now. The next is opened.
    Lost,
}

enum Phase {
    /// It is opened then.
    Closed {
        due: Option<Instant>,
    },
    Open(WebSocket),
    Over,
}

impl Lasting {
    pub(super) fn new(mut connect: Connect) -> Self {
        connect.request = connect.request.wait_for_network();
        Self {
            connect,
            phase: Phase::Closed { due: None },
            reconnects: Reconnects::new("WebSocket"),
        }
    }

    /// When it was opened, broke and was opened again: the last 64 of such, with times since it was made.
    #[must_use]
    pub fn history(&self) -> &[Entry] {
        self.reconnects.history()
    }

    /// What happens next, awaited; nothing after the end. Any executor will do.
    ///
    /// # Errors
    /// When the handshake is refused, or the server does not keep to the protocol. Failures of the network are none.
    pub async fn next_async(&mut self) -> Result<Option<Incident>, Error> {
        loop {
            let incident = match &self.phase {
                Phase::Over => return Ok(None),
                Phase::Closed { due } => {
                    if let Some(due) = *due {
                        self.reconnects.until(due).await;
                    }
                    let opened = self.connect.clone().open_async().await;
                    self.opened(opened)?
                }
                Phase::Open(socket) => {
                    let socket = socket.clone();
                    let received = socket.receive_async().await;
                    self.received(&socket, received)?
                }
            };
            if incident.is_some() {
                return Ok(incident);
            }
        }
    }

    fn next_blocking(&mut self) -> Result<Option<Incident>, Error> {
        loop {
            let incident = match &self.phase {
                Phase::Over => return Ok(None),
                Phase::Closed { due } => {
                    due.iter().copied().for_each(sleep_until);
                    let opened = self.connect.clone().open();
                    self.opened(opened)?
                }
                Phase::Open(socket) => {
                    let socket = socket.clone();
                    let received = socket.receive();
                    self.received(&socket, received)?
                }
            };
            if incident.is_some() {
                return Ok(incident);
            }
        }
    }

    fn opened(&mut self, opened: Result<WebSocket, Error>) -> Result<Option<Incident>, Error> {
        match opened {
            Ok(socket) => {
                self.reconnects.note("open");
                self.phase = Phase::Open(socket.clone());
                Ok(Some(Incident::Opened(socket)))
            }
            Err(Error::Status(429 | 500 | 502 | 503 | 504)) => {
                self.break_off(false, "the server has no time");
                Ok(None)
            }
            Err(error) if ends(&error) => {
                self.phase = Phase::Over;
                Err(error)
            }
            Err(error) => {
                self.break_off(true, &error.to_string());
                Ok(None)
            }
        }
    }

    fn received(
        &mut self,
        socket: &WebSocket,
        received: Result<Option<Message>, Error>,
    ) -> Result<Option<Incident>, Error> {
        match received {
            Ok(Some(message)) => {
                self.reconnects.succeeded();
                return Ok(Some(Incident::Message(message)));
            }
            Ok(None) => match socket.close_reason().filter(|_| !socket.is_closed_by_app()) {
                Some(CloseReason { code: code @ (1001 | 1006 | 1011..=1014), .. }) => {
                    self.break_off(false, &format!("the server closed with {code}"));
                }
                Some(_) | None => {
                    self.phase = Phase::Over;
                    return Ok(None);
                }
            },
            Err(error) if ends(&error) => {
                self.phase = Phase::Over;
                return Err(error);
            }
            Err(error) => self.break_off(true, &error.to_string()),
        }
        Ok(Some(Incident::Lost))
    }

    fn break_off(&mut self, broke: bool, why: &str) {
        self.phase = Phase::Closed { due: self.reconnects.pause(None, broke, why) };
    }
}

impl Iterator for Lasting {
    type Item = Result<Incident, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_blocking().transpose()
    }
}

/// Whether it fails the next time as well.
fn ends(error: &Error) -> bool {
    matches!(error, Error::Failed(failed) if failed.why() == Failed::NoUpgrade) || is_final(error)
}

impl fmt::Debug for Lasting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lasting").field("connect", &self.connect).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_go_well_the_next_time_is_tried_again() {
        assert!(!ends(&Failed::Disconnected.into()));
        assert!(!ends(&Failed::Connect(towpath_proto::Failure::Refused).into()));
        assert!(ends(&Failed::Cancelled.into()), "the app has closed it");
        assert!(ends(&Failed::NoUpgrade.into()));
        assert!(ends(&Error::WebSocket("")));
        assert!(ends(&Error::Status(404)));
    }
}
