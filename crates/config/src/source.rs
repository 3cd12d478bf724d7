//! The text of a configuration: a file, and what the command line adds to it.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use crate::error::Error;

/// The largest text that is read. Sidecar bootstraps have 20 kB.
pub const MAX_SOURCE_BYTES: u64 = 32 << 20;

/// One text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// How errors name it.
    pub name: Arc<str>,
    /// What is in it.
    pub bytes: Vec<u8>,
    /// How to read it.
    pub format: Format,
}

/// How a text is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// YAML 1.2 with the scalars that Envoy reads.
    Yaml,
    /// JSON, strictly.
    Json,
}

impl Source {
    /// Reads a file. As in Envoy, a name that ends in `.json` holds JSON and all else YAML.
    ///
    /// # Errors
    /// When the file cannot be read, or is larger than [`MAX_SOURCE_BYTES`].
    pub fn read(path: &Path) -> Result<Self, Error> {
        let name = path.display().to_string();
        let refused = |reason: String| Error::Read { file: name.clone(), reason };
        let extension =
            path.extension().map(std::ffi::OsStr::to_ascii_lowercase).unwrap_or_default();
        if let Some("pb" | "pb_text" | "pb_length_delimited") = extension.to_str() {
            return Err(refused("is a protobuf file; convert it to YAML or JSON".to_owned()));
        }
        let mut bytes = Vec::new();
        let file = std::fs::File::open(path).map_err(|error| refused(error.to_string()))?;
        // The file may be a pipe, whose length is not known.
        file.take(MAX_SOURCE_BYTES + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| refused(error.to_string()))?;
        if bytes.len() as u64 > MAX_SOURCE_BYTES {
            return Err(refused(format!("has more than {MAX_SOURCE_BYTES} bytes")));
        }
        let format = if extension == "json" { Format::Json } else { Format::Yaml };
        Ok(Self { name: Arc::from(name.as_str()), bytes, format })
    }

    /// YAML from elsewhere.
    #[must_use]
    pub fn yaml(name: &str, text: &str) -> Self {
        Self { name: Arc::from(name), bytes: text.as_bytes().to_vec(), format: Format::Yaml }
    }

    /// JSON from elsewhere.
    #[must_use]
    pub fn json(name: &str, text: &str) -> Self {
        Self { name: Arc::from(name), bytes: text.as_bytes().to_vec(), format: Format::Json }
    }
}

/// All that makes up one bootstrap. At least one must be there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    /// `--config-path`.
    pub file: Option<Source>,
    /// `--config-yaml`, merged over the file.
    pub yaml: Option<Source>,
}

impl Sources {
    /// A file and nothing else.
    #[must_use]
    pub const fn file(source: Source) -> Self {
        Self { file: Some(source), yaml: None }
    }
}
