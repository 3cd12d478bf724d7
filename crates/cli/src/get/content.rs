//! What `towpath get` sends: a body in one of its forms, names and values, credentials.

use std::io::{self, Read};
use std::path::Path;

use clap::Args;
use towpath::auth::Credentials;
use towpath::form::Form;
use towpath::websocket::Message;
use towpath::{Client, Request};

use super::named;

/// What is sent.
#[derive(Debug, Args)]
#[command(next_help_heading = "What is sent")]
pub(super) struct Content {
    /// A body to send; `@-` reads it from the standard input, `@FILE` from a file
    #[arg(short, long, value_name = "BODY", conflicts_with_all = ["data_urlencode", "form"])]
    data: Option<String>,
    /// A name and its value for a body as `application/x-www-form-urlencoded`; may be repeated
    #[arg(long, value_name = "NAME=VALUE", conflicts_with = "form", value_parser = pair)]
    data_urlencode: Vec<(String, String)>,
    /// A name and its value for a body as `multipart/form-data`; `NAME=@FILE` sends a file; may be repeated
    #[arg(short = 'F', long, value_name = "NAME=VALUE", value_parser = pair)]
    form: Vec<(String, String)>,
    /// A name and its value to add to the URL's query; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    url_query: Vec<(String, String)>,
    /// User and password (Basic); without a colon the password is empty
    #[arg(short, long, value_name = "USER:PASSWORD", conflicts_with = "oauth2_bearer")]
    user: Option<String>,
    /// Send them by the best scheme that the server offers (Digest, Basic), once it asks for them
    #[arg(long, requires = "user")]
    anyauth: bool,
    /// Authenticate by a token (Bearer)
    #[arg(long, value_name = "TOKEN")]
    oauth2_bearer: Option<String>,
}

impl Content {
    /// The method where none is said.
    pub(super) const fn method(&self) -> &'static str {
        let none = self.data.is_none() && self.data_urlencode.is_empty() && self.form.is_empty();
        if none { "GET" } else { "POST" }
    }

    /// The request with what is said of it; with its body, where it has one.
    pub(super) fn apply(&self, request: Request, has_body: bool) -> io::Result<Request> {
        let mut request = request.query(self.url_query.iter().map(|(name, value)| (name, value)));
        if let Some((user, password)) = self.user().filter(|_| !self.anyauth) {
            request = request.basic_auth(user, password);
        }
        if let Some(token) = &self.oauth2_bearer {
            request = request.bearer_auth(token);
        }
        if let Some(data) = self.data.as_ref().filter(|_| has_body) {
            request = request.body(content(data)?);
        }
        if !self.data_urlencode.is_empty() {
            request = request.form(self.data_urlencode.iter().map(|(name, value)| (name, value)));
        }
        if !self.form.is_empty() {
            request = request.multipart(&self.multipart()?);
        }
        Ok(request)
    }

    /// What is sent as a message: a text where it is one.
    pub(super) fn message(&self) -> io::Result<Option<Message>> {
        let Some(data) = &self.data else { return Ok(None) };
        Ok(Some(match String::from_utf8(content(data)?) {
            Ok(text) => text.into(),
            Err(bytes) => bytes.into_bytes().into(),
        }))
    }

    /// A client that sends credentials when the server asks for them, to the origin of the URL alone.
    pub(super) fn client(&self, client: Client, url: &str) -> Client {
        let Some((user, password)) = self.user().filter(|_| self.anyauth) else { return client };
        let (credentials, url) = (Credentials::password(user, password), url.to_owned());
        client.authenticate(move |challenge| challenge.is_of(&url).then(|| credentials.clone()))
    }

    fn user(&self) -> Option<(&str, &str)> {
        self.user.as_deref().map(|user| user.split_once(':').unwrap_or((user, "")))
    }

    fn multipart(&self) -> io::Result<Form> {
        let mut form = Form::new();
        for (name, value) in &self.form {
            form = match value.strip_prefix('@') {
                None => form.text(name, value),
                Some(path) => {
                    let file = Path::new(path).file_name().unwrap_or_default().to_string_lossy();
                    form.file(name, &file, "application/octet-stream", content(value)?)
                }
            };
        }
        Ok(form)
    }
}

/// The text itself, or what it names.
fn content(data: &str) -> io::Result<Vec<u8>> {
    match data.strip_prefix('@') {
        Some("-") => {
            let mut body = Vec::new();
            io::stdin().lock().read_to_end(&mut body)?;
            Ok(body)
        }
        Some(path) => std::fs::read(path).map_err(|error| named(path.as_ref(), &error)),
        None => Ok(data.as_bytes().to_vec()),
    }
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) =
        text.split_once('=').ok_or_else(|| format!("{text:?} is not NAME=VALUE"))?;
    Ok((name.to_owned(), value.to_owned()))
}
