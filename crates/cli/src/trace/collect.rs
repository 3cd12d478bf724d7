//! `towpath trace collect`: what all processes still hold of one trace, as one file.

mod slow;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use towpath_trace::{TraceContext, file};

use super::with_source;

/// What flight recorders still hold of one trace, as one file
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Collect {
    /// Admin endpoints of sidecars that run with --trace-slow, as HOST:PORT or URLs; and Perfetto files of applications
    #[arg(required = true, value_name = "ADMIN|FILE")]
    sources: Vec<String>,
    /// The trace: 32 hexadecimal digits, or a whole traceparent
    #[arg(long, value_name = "ID", required_unless_present = "slow")]
    trace_id: Option<String>,
    /// Collect by itself, until interrupted: whenever a file of a slow request appears in this folder (of a sidecar
    /// with --trace-slow), the sources are asked at once for the trace of its longest request. Name the others only:
    /// what the folder's own sidecar holds is in its file already, and would be there twice
    #[arg(long, value_name = "FOLDER", conflicts_with = "trace_id")]
    slow: Option<PathBuf>,
    /// Where to write; with --slow a folder, which keeps the latest 64 files
    #[arg(short, long, value_name = "FILE|FOLDER")]
    output: PathBuf,
}

const EXAMPLES: &str = "\
A busy sidecar's rings reach back some tenths of a second: ask as soon as a request was slow. A source that holds
nothing of the trace is named and left out.

Example:
  towpath trace collect --trace-id 4bf92f3577b34da6a3ce929d0e0e4736 \\
    app.pftrace 10.0.0.1:9901 10.0.0.2:9901 -o slow.pftrace
  towpath trace collect --slow /var/lib/towpath/slow 10.0.0.2:9901 10.0.0.3:9901 -o whole";

impl Collect {
    pub(crate) fn run(&self) -> Result<String, String> {
        if let Some(folder) = &self.slow {
            return slow::watch(folder, |file| self.gather_slow(file));
        }
        let id = trace_id(self.trace_id.as_deref().unwrap_or_default())?;
        self.gather(&id, Vec::new(), &self.output)
    }

    /// What the sources hold of the trace that a file of a slow request is about.
    fn gather_slow(&self, file: &Path) -> Result<String, String> {
        let spans = file::spans(file).map_err(|error| with_source(&error))?;
        let id = slow::trace_of(&spans).map_err(|error| error.to_string())?;
        let id = id.ok_or_else(|| "its request has no trace id".to_owned())?;
        let name = file.file_name().unwrap_or_default();
        slow::make_room(&self.output).map_err(|error| error.to_string())?;
        let gathered = self.gather(&id, vec![file.to_owned()], &self.output.join(name))?;
        Ok(format!("{id}: {gathered}"))
    }

    /// Asks the sources, and merges what they answer with `files`.
    fn gather(&self, id: &str, mut files: Vec<PathBuf>, output: &Path) -> Result<String, String> {
        let folder = Scratch::new(output).map_err(|error| error.to_string())?;
        let sources: Vec<Result<PathBuf, String>> = std::thread::scope(|scope| {
            // All at once: what one holds is overwritten while another answers.
            let asked: Vec<_> = self
                .sources
                .iter()
                .enumerate()
                .map(|(index, source)| {
                    let path = folder.0.join(format!("{index}.pftrace"));
                    scope.spawn(move || obtain(source, id, path))
                })
                .collect();
            let lost = |_| Err("its thread ended early".to_owned());
            asked.into_iter().map(|asked| asked.join().unwrap_or_else(lost)).collect()
        });
        let mut said = String::new();
        let total = self.sources.len() + files.len();
        for (source, obtained) in self.sources.iter().zip(sources) {
            match obtained {
                Ok(path) => files.push(path),
                Err(why) => said += &format!("{source}: left out: {why}\n"),
            }
        }
        if files.is_empty() {
            return Err(format!("nothing of trace {id} is left\n{said}"));
        }
        let merged = file::merge(&files, output).map_err(|error| with_source(&error))?;
        Ok(format!("{} of {total} sources: {merged}{said}", files.len()))
    }
}

/// A file is taken as it is; an endpoint is asked.
fn obtain(source: &str, id: &str, path: PathBuf) -> Result<PathBuf, String> {
    if Path::new(source).is_file() {
        return Ok(source.into());
    }
    let address =
        if source.contains("://") { source.to_owned() } else { format!("http://{source}") };
    let url = format!("{}/trace?trace_id={id}", address.trim_end_matches('/'));
    let failed = |error: &dyn std::fmt::Display| error.to_string();
    let engine = towpath::Engine::new().map_err(|error| failed(&error))?;
    let request = engine.client().request("POST", &url).timeout(LONGEST);
    // It changes nothing there.
    let request = request.repeat(towpath::Repeat::Always);
    let mut response = request.send().map_err(|error| failed(&error))?;
    let status = response.status();
    let body = response.body().bytes(LARGEST).map_err(|error| failed(&error))?;
    if status != 200 {
        return Err(format!("{status} {}", String::from_utf8_lossy(&body).trim()));
    }
    let written = std::fs::File::create(&path).and_then(|mut file| file.write_all(&body));
    written.map(|()| path).map_err(|error| failed(&error))
}

const LONGEST: Duration = Duration::from_secs(30);
const LARGEST: usize = 256 << 20;

/// The trace's number, alone or in a `traceparent`.
fn trace_id(text: &str) -> Result<String, String> {
    let alone = || TraceContext::parse(&format!("00-{text}-0000000000000001-01"));
    TraceContext::parse(text)
        .or_else(alone)
        .map(|context| context.trace_id())
        .ok_or_else(|| format!("{text:?} is no trace id: 32 hexadecimal digits, not all zero"))
}

/// A folder beside the output, for what comes from elsewhere.
struct Scratch(PathBuf);

impl Scratch {
    fn new(output: &Path) -> std::io::Result<Self> {
        let mut name = output.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.parts", std::process::id()));
        let folder = output.with_file_name(name);
        std::fs::create_dir(&folder)?;
        Ok(Self(folder))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_named_alone_or_by_its_header() {
        let id = "4bf92f3577b34da6a3ce929d0e0e4736";
        assert_eq!(trace_id(id).as_deref(), Ok(id));
        assert_eq!(trace_id(&format!("00-{id}-00f067aa0ba902b7-01")).as_deref(), Ok(id));
        for text in ["", "xyz", &"0".repeat(32), "../../etc/passwd"] {
            assert!(trace_id(text).is_err(), "{text}");
        }
    }
}
