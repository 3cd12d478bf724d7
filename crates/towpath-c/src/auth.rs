//! Challenges: the app is asked for credentials.

use std::ffi::c_void;
#[cfg(feature = "auth")]
use std::sync::{Mutex, PoisonError};

use towpath::Client;
#[cfg(feature = "auth")]
use towpath::auth::{Credentials, Scheme};

use crate::abi;
#[cfg(feature = "auth")]
use crate::engine::call_app;
#[cfg(feature = "auth")]
use crate::failure::c_text;
use crate::failure::{Failure, Result};
use crate::foreign::User;

/// Whom to ask for credentials.
pub(crate) struct Asked {
    pub(crate) on_challenge: abi::OnChallenge,
    pub(crate) user: User,
}

/// What is behind a `towpath_challenge`.
#[derive(Debug)]
pub struct Challenge {
    #[cfg(feature = "auth")]
    challenge: towpath::auth::Challenge,
    /// What the app says.
    #[cfg(feature = "auth")]
    credentials: Mutex<Option<Credentials>>,
    #[cfg(not(feature = "auth"))]
    never: std::convert::Infallible,
}

/// What the app says to a challenge.
pub(crate) enum Answer<'a> {
    Password { user: &'a str, password: &'a str },
    Field(&'a str),
}

/// A client that asks the app for credentials, if it wants to be asked.
#[cfg(not(feature = "auth"))]
pub(crate) fn asking(client: Client, asked: Option<Asked>) -> Result<Client> {
    let Some(Asked { on_challenge, user }) = asked else { return Ok(client) };
    let (_, _) = (on_challenge, user.0);
    Err(Failure::argument("this library was built without auth"))
}

#[cfg(not(feature = "auth"))]
impl Challenge {
    pub(crate) fn scheme(&self, _: usize) -> Option<&str> {
        match self.never {}
    }

    pub(crate) fn parameter(&self, _: usize, _: &str) -> Option<&str> {
        match self.never {}
    }

    pub(crate) fn answer(&self, answer: Answer<'_>) -> Result<()> {
        let (Answer::Password { user: _said, password: _also } | Answer::Field(_said @ _also)) =
            answer;
        match self.never {}
    }
}

/// A client that asks the app for credentials, if it wants to be asked.
#[cfg(feature = "auth")]
pub(crate) fn asking(client: Client, asked: Option<Asked>) -> Result<Client> {
    let Some(asked) = asked else { return Ok(client) };
    let asked = std::sync::Arc::new(asked);
    let of_proxies = std::sync::Arc::clone(&asked);
    let client = client.authenticate(move |challenge| asked.ask(challenge));
    Ok(client.authenticate_proxy(move |challenge| of_proxies.ask(challenge)))
}

#[cfg(feature = "auth")]
impl Asked {
    fn ask(&self, challenge: &towpath::auth::Challenge) -> Option<Credentials> {
        let host = c_text(challenge.host());
        let own = Challenge { challenge: challenge.clone(), credentials: Mutex::default() };
        let told = abi::Challenge {
            size: size_of::<abi::Challenge>(),
            user: self.user.0,
            host: host.as_ptr(),
            own: &raw const own,
            port: challenge.port().into(),
            is_of_proxy: challenge.is_of_proxy().into(),
            is_secure: challenge.is_secure().into(),
            attempt: u32::try_from(challenge.attempt()).unwrap_or(u32::MAX),
        };
        call_app(|| (self.on_challenge)(&raw const told));
        own.credentials.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(feature = "auth")]
impl Challenge {
    pub(crate) fn scheme(&self, index: usize) -> Option<&str> {
        self.challenge.schemes().get(index).map(Scheme::name)
    }

    pub(crate) fn parameter(&self, index: usize, name: &str) -> Option<&str> {
        self.challenge.schemes().get(index)?.parameter(name)
    }

    /// The last answer counts.
    pub(crate) fn answer(&self, answer: Answer<'_>) -> Result<()> {
        let credentials = match answer {
            Answer::Password { user, .. } if user.contains(':') => {
                return Err(Failure::argument("a user's name has no colon"));
            }
            Answer::Password { user, password } => Credentials::password(user, password),
            Answer::Field(value) => Credentials::field(value),
        };
        *self.credentials.lock().unwrap_or_else(PoisonError::into_inner) = Some(credentials);
        Ok(())
    }
}

/// The app's own pointer of a challenge, and where it is asked.
pub(crate) const fn asked(
    on_challenge: Option<abi::OnChallenge>,
    user: *mut c_void,
) -> Option<Asked> {
    match on_challenge {
        Some(on_challenge) => Some(Asked { on_challenge, user: User(user) }),
        None => None,
    }
}
