//! SOCKS version 5 (RFC 1928), with names and passwords (RFC 1929).

use std::net::IpAddr;

use super::{Credentials, Progress, Refusal};

/// Where a SOCKS handshake is.
///
/// ```text
/// Method ──► Password ──► Reply
///   └──────────────────────┘
/// ```
#[derive(Debug)]
pub(super) struct Socks5 {
    stage: Stage,
    /// What the proxy has said and is not complete.
    incoming: Vec<u8>,
    /// Sent when the proxy has taken the password, or wants none.
    request: Vec<u8>,
    /// Sent when the proxy wants it.
    password: Option<Vec<u8>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Method,
    Password,
    Reply,
}

impl Socks5 {
    pub(super) fn new(
        host: &str,
        port: u16,
        who: Option<&Credentials>,
    ) -> Result<(Self, Vec<u8>), Refusal> {
        let mut request = vec![VERSION, CONNECT, 0];
        match host.parse() {
            Ok(IpAddr::V4(ip)) => {
                request.push(IPV4);
                request.extend_from_slice(&ip.octets());
            }
            Ok(IpAddr::V6(ip)) => {
                request.push(IPV6);
                request.extend_from_slice(&ip.octets());
            }
            Err(_) => {
                request.push(NAME);
                append(host, &mut request)?;
            }
        }
        request.extend_from_slice(&port.to_be_bytes());
        let password = match who {
            Some(who) => {
                let mut password = vec![PASSWORD_VERSION];
                append(&who.user, &mut password)?;
                append(&who.password, &mut password)?;
                Some(password)
            }
            None => None,
        };
        let hello = match password {
            Some(_) => vec![VERSION, 2, NO_PASSWORD, PASSWORD],
            None => vec![VERSION, 1, NO_PASSWORD],
        };
        let incoming = Vec::new();
        Ok((Self { stage: Stage::Method, incoming, request, password }, hello))
    }

    pub(super) fn receive(
        &mut self,
        chunk: &[u8],
        output: &mut Vec<u8>,
    ) -> Result<Progress, Refusal> {
        self.incoming.extend_from_slice(chunk);
        loop {
            match (self.stage, self.incoming.as_slice()) {
                (Stage::Method, [VERSION, NO_PASSWORD, ..]) => {
                    self.incoming.drain(..2);
                    self.ask(output);
                }
                (Stage::Method, [VERSION, PASSWORD, ..]) => {
                    let password = self.password.take().ok_or(Refusal::Credentials)?;
                    output.extend_from_slice(&password);
                    self.incoming.drain(..2);
                    self.stage = Stage::Password;
                }
                (Stage::Method, [VERSION, NO_METHOD, ..]) => return Err(Refusal::Credentials),
                (Stage::Password, [_, 0, ..]) => {
                    self.incoming.drain(..2);
                    self.ask(output);
                }
                (Stage::Password, [_, _, ..]) => return Err(Refusal::Credentials),
                (Stage::Method, [_, _, ..]) => return Err(Refusal::Malformed),
                (Stage::Reply, [VERSION, 0, _, kind, rest @ ..]) => {
                    let bytes = match *kind {
                        IPV4 => 4,
                        IPV6 => 16,
                        NAME => match rest {
                            [length, ..] => 1 + usize::from(*length),
                            [] => return Ok(Progress::Waiting),
                        },
                        _ => return Err(Refusal::Malformed),
                    };
                    // Where it connects from is of no use to us.
                    let end = 4 + bytes + 2;
                    if self.incoming.len() < end {
                        return Ok(Progress::Waiting);
                    }
                    return Ok(Progress::Open(self.incoming.split_off(end)));
                }
                (Stage::Reply, [VERSION, code, ..]) if *code != 0 => {
                    return Err(Refusal::Socks(*code));
                }
                (Stage::Method | Stage::Reply, [first, ..]) if *first != VERSION => {
                    return Err(Refusal::Malformed);
                }
                (Stage::Method | Stage::Password | Stage::Reply, _) => {
                    return Ok(Progress::Waiting);
                }
            }
        }
    }

    fn ask(&mut self, output: &mut Vec<u8>) {
        output.append(&mut self.request);
        self.stage = Stage::Reply;
    }
}

/// What a code says (RFC 1928 §6).
pub(super) const fn reason(code: u8) -> &'static str {
    match code {
        1 => "it failed",
        2 => "its rules forbid it",
        3 => "the network cannot be reached from it",
        4 => "the host cannot be reached from it",
        5 => "the host refused its connection",
        6 => "the time to live passed",
        7 => "it does not take this command",
        8 => "it does not take this kind of address",
        _ => "it refused for an unknown reason",
    }
}

/// A text behind its length.
fn append(text: &str, to: &mut Vec<u8>) -> Result<(), Refusal> {
    to.push(u8::try_from(text.len()).map_err(|_| Refusal::TooLong)?);
    to.extend_from_slice(text.as_bytes());
    Ok(())
}

const VERSION: u8 = 5;
const CONNECT: u8 = 1;
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;
const NO_PASSWORD: u8 = 0;
const PASSWORD: u8 = 2;
const NO_METHOD: u8 = 0xff;
const PASSWORD_VERSION: u8 = 1;
