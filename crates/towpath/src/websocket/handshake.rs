//! The opening handshake (RFC 6455 §4.1; over HTTP/2 RFC 8441 §5): the request's fields, and what the answer must say.

use towpath_proto::websocket::{accept, key};

use super::deflate::{Agreed, OFFER};
use crate::engine::random_seed;
use crate::{Error, HttpVersions, Request, Response};

/// What is asked for.
#[derive(Clone, Debug, Default)]
pub(super) struct Wish {
    pub(super) subprotocols: Vec<String>,
    pub(super) compresses: bool,
}

/// What was agreed on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Opening {
    pub(super) subprotocol: Option<String>,
    pub(super) agreed: Option<Agreed>,
    /// The answer's fields.
    pub(super) headers: Vec<(Vec<u8>, Vec<u8>)>,
}

/// What the answer must say.
#[derive(Clone, Debug)]
pub(super) struct Expected {
    accept: String,
    wish: Wish,
}

impl Wish {
    /// The request for it, and what its answer must say.
    pub(super) fn ask(&self, request: Request) -> (Request, Expected) {
        let mut random = [0; 16];
        random[..8].copy_from_slice(&random_seed().to_ne_bytes());
        random[8..].copy_from_slice(&random_seed().to_ne_bytes());
        let key = key(random);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        // Over HTTP/1.1 unless the app says otherwise: a server of HTTP/2 need not take such (RFC 8441 §3).
        let versions = match request.options.http {
            HttpVersions::Negotiated => HttpVersions::Http1,
            chosen @ (HttpVersions::Http1 | HttpVersions::Http2) => chosen,
        };
        let own = ["upgrade", "connection", "sec-websocket-key", "sec-websocket-version"];
        let mut request = own.into_iter().fold(request, Request::without);
        request = request
            .http_versions(versions)
            .header("upgrade", "websocket")
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", &text(&key))
            .no_decode()
            .no_resume();
        if !self.subprotocols.is_empty() {
            let names = self.subprotocols.join(", ");
            request =
                request.without("sec-websocket-protocol").header("sec-websocket-protocol", &names);
        }
        if let Some(offer) = OFFER.filter(|_| self.compresses) {
            request = request
                .without("sec-websocket-extensions")
                .header("sec-websocket-extensions", offer);
        }
        request.options.upgrades = true;
        #[cfg(feature = "cache")]
        let request = request.no_cache();
        (request, Expected { accept: text(&accept(&key)), wish: self.clone() })
    }
}

impl Expected {
    /// What the answer agrees to.
    ///
    /// # Errors
    /// [`Error::Status`] where the server does not switch; [`Error::WebSocket`] where it does, and not as it must.
    pub(super) fn judge(&self, response: &Response) -> Result<Opening, Error> {
        if response.status() != 101 {
            return Err(Error::Status(response.status()));
        }
        let is = |name: &str, value: &str| {
            response.header(name).is_some_and(|it| it.eq_ignore_ascii_case(value))
        };
        if !is("upgrade", "websocket") {
            return Err(Error::WebSocket("the server switches to another protocol"));
        }
        if response.header("sec-websocket-accept") != Some(&self.accept) {
            return Err(Error::WebSocket("the server has not understood the handshake"));
        }
        let owned = |(name, value): (&[u8], &[u8])| (name.to_vec(), value.to_vec());
        Ok(Opening {
            subprotocol: self.subprotocol(response)?,
            agreed: self.agreed(response)?,
            headers: response.headers().map(owned).collect(),
        })
    }

    fn subprotocol(&self, response: &Response) -> Result<Option<String>, Error> {
        let Some(chosen) = only(response, "sec-websocket-protocol")? else { return Ok(None) };
        if self.wish.subprotocols.contains(&chosen) {
            return Ok(Some(chosen));
        }
        Err(Error::WebSocket("the server has chosen a subprotocol that was not offered"))
    }

    fn agreed(&self, response: &Response) -> Result<Option<Agreed>, Error> {
        let Some(field) = only(response, "sec-websocket-extensions")? else { return Ok(None) };
        if OFFER.is_none() || !self.wish.compresses {
            return Err(Error::WebSocket("the server has an extension that was not offered"));
        }
        Agreed::parse(&field).map(Some).map_err(Error::WebSocket)
    }
}

/// The value of a field that may be there once.
fn only(response: &Response, name: &str) -> Result<Option<String>, Error> {
    let of = |(it, value): (&[u8], &[u8])| {
        it.eq_ignore_ascii_case(name.as_bytes())
            .then(|| String::from_utf8_lossy(value).into_owned())
    };
    let mut values = response.headers().filter_map(of);
    let (first, second) = (values.next(), values.next());
    if second.is_some() {
        return Err(Error::WebSocket("the server has a field of the handshake twice"));
    }
    Ok(first)
}
