//! `DataSource`: text or bytes from the file itself, another file or the environment.

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read as _};
use std::sync::Arc;

use super::Converter;
use crate::message::{At, Message, Value};
use crate::stamp::Stamp;

impl Converter<'_> {
    /// What a source holds, at most `limit` bytes.
    pub(super) fn data(&mut self, source: &Message, limit: usize) -> Option<Vec<u8>> {
        self.read(source, limit).map(|(bytes, _)| bytes)
    }

    /// The same of a certificate, a key or what goes with them: its file is looked at while it serves.
    pub(super) fn secret_data(&mut self, source: &Message, limit: usize) -> Option<Vec<u8>> {
        let (bytes, file) = self.read(source, limit)?;
        if let Some((path, stamp)) = file {
            // Another part may have it from before: that one wants to see what is there now.
            self.prints.secrets.entry(path).or_insert(stamp);
        }
        Some(bytes)
    }

    fn read(&mut self, source: &Message, limit: usize) -> Option<(Vec<u8>, Option<Read>)> {
        let field = source.oneof("specifier")?;
        let mut file = None;
        let is_of_secret = self.discovered.secret_texts.contains(&source.at.text);
        if let ("filename", Value::String(path)) = (field.descriptor.name(), &field.value)
            && is_of_secret
        {
            self.has_secret_file = true;
            self.secret_files.insert((source.at.text, Arc::from(path.as_str())));
        }
        let bytes = match (field.descriptor.name(), &field.value) {
            ("filename", Value::String(path)) => match read_file(path, limit) {
                Ok((bytes, stamp)) => {
                    file = Some((path.as_str().into(), stamp));
                    bytes
                }
                Err(error) => {
                    self.report.problem(&field.at, format!("{path}: {error}"));
                    return None;
                }
            },
            ("environment_variable", Value::String(name)) => match std::env::var(name) {
                Ok(text) => text.into_bytes(),
                Err(_) => {
                    self.report
                        .problem(&field.at, format!("environment variable {name} is not set"));
                    return None;
                }
            },
            (_, Value::String(text)) => text.clone().into_bytes(),
            (_, Value::Bytes(bytes)) => bytes.clone(),
            _ => return None,
        };
        if bytes.len() > limit {
            self.report
                .problem(&field.at, format!("has {} bytes; the limit is {limit}", bytes.len()));
            return None;
        }
        // Also of what stands in the file itself: keys are left out where a part of it is looked at as JSON.
        let digest = if is_of_secret { &mut self.rotating } else { &mut self.files };
        let mut hasher = DefaultHasher::new();
        (*digest, &bytes).hash(&mut hasher);
        *digest = hasher.finish();
        // A secret of a control plane is looked at with its name.
        Some((bytes, file.filter(|_| !is_of_secret)))
    }

    /// What a file holds that a field names, at most `limit` bytes.
    pub(super) fn file_data(&mut self, path: &str, at: &At, limit: usize) -> Option<Vec<u8>> {
        let wrong = match read_file(path, limit) {
            Ok((bytes, _)) if bytes.len() <= limit => {
                let mut hasher = DefaultHasher::new();
                (self.files, &bytes).hash(&mut hasher);
                self.files = hasher.finish();
                return Some(bytes);
            }
            Ok(_) => format!("{path}: has more than {limit} bytes"),
            Err(error) => format!("{path}: {error}"),
        };
        self.report.problem(at, wrong);
        None
    }

    /// The same as text.
    pub(super) fn text_data(&mut self, source: &Message, limit: usize) -> Option<String> {
        let bytes = self.data(source, limit)?;
        String::from_utf8(bytes).map_err(|_| self.report.problem(&source.at, "is not UTF-8")).ok()
    }
}

/// A file that was read, as it was before.
type Read = (Box<str>, Stamp);

/// A regular file, at most one byte more than the limit: a device or pipe might never end.
fn read_file(path: &str, limit: usize) -> io::Result<(Vec<u8>, Stamp)> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::other("is not a regular file"));
    }
    let file = File::open(path)?;
    // What is written from here on makes it another one.
    let stamp = Stamp::from(&file.metadata()?);
    let mut bytes = Vec::new();
    file.take(limit as u64 + 1).read_to_end(&mut bytes)?;
    Ok((bytes, stamp))
}
