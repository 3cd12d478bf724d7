//! Where requests of OTLP go: to a file, or to a collector over HTTP or gRPC
//! (<https://opentelemetry.io/docs/specs/otlp/>).

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use prost::Message;

/// How a collector is spoken to, in the words of `OTEL_EXPORTER_OTLP_PROTOCOL`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Protocol {
    /// Protobuf in requests of HTTP
    #[value(name = "http/protobuf")]
    Http,
    /// Calls of gRPC
    Grpc,
}

/// Where requests go.
pub(super) enum Out<'a> {
    /// To the file's name once all are there.
    File {
        path: &'a Path,
        part: PathBuf,
        file: BufWriter<File>,
    },
    Collector(Box<Collector>),
}

pub(super) struct Collector {
    url: String,
    protocol: Protocol,
    engine: towpath::Engine,
    /// Spans that it did not take, and what it said last.
    rejected: i64,
    said: String,
}

impl<'a> Out<'a> {
    pub(super) fn to(otlp: &'a str, protocol: Protocol) -> Result<Self, String> {
        if !otlp.starts_with("http://") && !otlp.starts_with("https://") {
            if protocol == Protocol::Grpc {
                return Err(format!("{otlp}: gRPC needs a collector, as http://HOST:4317"));
            }
            let path = Path::new(otlp);
            let mut name = path.file_name().unwrap_or_default().to_owned();
            name.push(format!(".{}.part", std::process::id()));
            let part = path.with_file_name(name);
            let file = File::create(&part).map_err(|error| format!("{otlp}: {error}"))?;
            return Ok(Self::File { path, part, file: BufWriter::new(file) });
        }
        let has_path = otlp.splitn(4, '/').nth(3).is_some_and(|path| !path.is_empty());
        let root = otlp.trim_end_matches('/');
        let url = match protocol {
            Protocol::Grpc if has_path => {
                return Err(format!("{otlp}: a collector has no path of its own over gRPC"));
            }
            Protocol::Grpc => format!("{root}{EXPORT}"),
            Protocol::Http if has_path => otlp.to_owned(),
            Protocol::Http => format!("{root}/v1/traces"),
        };
        let engine = towpath::Engine::new().map_err(|error| error.to_string())?;
        let said = String::new();
        Ok(Self::Collector(Box::new(Collector { url, protocol, engine, rejected: 0, said })))
    }

    pub(super) fn send(&mut self, body: Vec<u8>) -> Result<(), String> {
        match self {
            // Messages behind each other are one message with the fields of all.
            Self::File { path, file, .. } => {
                file.write_all(&body).map_err(|error| format!("{}: {error}", path.display()))
            }
            Self::Collector(collector) => {
                let answer = match collector.protocol {
                    Protocol::Http => collector.post(body)?,
                    Protocol::Grpc => collector.call(&body)?,
                };
                collector.take(&answer)
            }
        }
    }

    /// What there is to say once all was taken.
    pub(super) fn finish(mut self) -> Result<String, String> {
        match &mut self {
            Self::File { path, part, file } => {
                let written = file.flush().and_then(|()| std::fs::rename(part, *path));
                written.map_err(|error| format!("{}: {error}", path.display()))?;
                Ok(String::new())
            }
            Self::Collector(collector) => collector.outcome(),
        }
    }
}

impl Collector {
    fn post(&self, body: Vec<u8>) -> Result<Vec<u8>, String> {
        let url = &self.url;
        let request = self.engine.client().request("POST", url);
        // Spans have numbers: a collector knows those that it has already.
        let request = request.repeat(towpath::Repeat::Always);
        let request = request.header("content-type", "application/x-protobuf").body(body);
        let mut response = request.send().map_err(|error| format!("{url}: {error}"))?;
        let status = response.status();
        let said = response.body().bytes(ANSWER_LIMIT);
        let said = said.map_err(|error| format!("{url}: {error}"))?;
        if (200..300).contains(&status) {
            return Ok(said.to_vec());
        }
        Err(format!("{url}: {status} {}", String::from_utf8_lossy(&said).trim()))
    }

    /// A unary call, and again after a status that the protocol calls retryable.
    fn call(&self, message: &[u8]) -> Result<Vec<u8>, String> {
        let length = u32::try_from(message.len()).map_err(|_| "a request of 4 GiB".to_owned())?;
        let framed = [&[0][..], &length.to_be_bytes(), message].concat();
        let mut pauses = PAUSES.into_iter();
        loop {
            let (status, why) = match self.call_once(framed.clone())? {
                Ok(answer) => return Ok(answer),
                Err(refused) => refused,
            };
            match pauses.next().filter(|_| RETRYABLE.contains(&status)) {
                Some(pause) => std::thread::sleep(pause),
                None => return Err(format!("{}: gRPC status {status} {why}", self.url)),
            }
        }
    }

    /// The answer's message, or the call's status and what it says.
    fn call_once(&self, framed: Vec<u8>) -> Result<Result<Vec<u8>, (u32, String)>, String> {
        let url = &self.url;
        let request = self.engine.client().request("POST", url);
        let request = request.repeat(towpath::Repeat::Always);
        let request = request.http_versions(towpath::HttpVersions::Http2);
        let request = request.header("content-type", "application/grpc").header("te", "trailers");
        let mut response =
            request.body(framed).send().map_err(|error| format!("{url}: {error}"))?;
        let http_status = response.status();
        let told = |response: &towpath::Response, name| response.header(name).map(str::to_owned);
        let (early, early_why) = (told(&response, "grpc-status"), told(&response, "grpc-message"));
        let said = response.body().bytes(ANSWER_LIMIT);
        let said = said.map_err(|error| format!("{url}: {error}"))?;
        let body = response.body();
        let status = body.trailer("grpc-status").map(str::to_owned).or(early);
        let why = body.trailer("grpc-message").map(str::to_owned).or(early_why);
        match status.as_deref().map(str::parse) {
            Some(Ok(0)) => {}
            Some(Ok(status)) => {
                return Ok(Err((status, percent_decoded(&why.unwrap_or_default()))));
            }
            Some(Err(_)) | None => {
                return Err(format!("{url}: {http_status} without a status of gRPC"));
            }
        }
        let message = said.split_first_chunk().and_then(|(prefix, message)| {
            let [flag, length @ ..]: &[u8; 5] = prefix;
            let is_whole = u32::from_be_bytes(*length) as usize == message.len();
            (*flag == 0 && is_whole).then(|| message.to_vec())
        });
        message.map(Ok).ok_or_else(|| format!("{url}: the answer is no message of gRPC"))
    }

    /// A collector may take a part of a request alone, and says how many spans it did not take.
    fn take(&mut self, answer: &[u8]) -> Result<(), String> {
        let answer = ExportTraceServiceResponse::decode(answer)
            .map_err(|error| format!("{}: the answer is not one of OTLP: {error}", self.url))?;
        if let Some(partial) = answer.partial_success {
            self.rejected += partial.rejected_spans.max(0);
            if !partial.error_message.is_empty() {
                self.said = partial.error_message;
            }
        }
        Ok(())
    }

    fn outcome(&self) -> Result<String, String> {
        let Self { url, rejected, said, .. } = self;
        match (rejected, said.as_str()) {
            (0, "") => Ok(String::new()),
            (0, said) => Ok(format!("{url} warns: {said}\n")),
            (rejected, said) => Err(format!("{url}: did not take {rejected} of the spans: {said}")),
        }
    }
}

impl Drop for Out<'_> {
    /// What is not whole is not kept.
    fn drop(&mut self) {
        if let Self::File { part, .. } = self {
            let _ = std::fs::remove_file(part);
        }
    }
}

/// What `grpc-message` says (`grpc/grpc: doc/PROTOCOL-HTTP2.md`); what is no code stays as it is.
fn percent_decoded(text: &str) -> String {
    let mut decoded = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        let digits = behind.get(..2).filter(|_| byte == b'%');
        let digits = digits.filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        let code = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        decoded.push(code.unwrap_or(byte));
        rest = if code.is_some() { &behind[2..] } else { behind };
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

const EXPORT: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
const ANSWER_LIMIT: usize = 64 << 10;
/// CANCELLED, DEADLINE_EXCEEDED, ABORTED, OUT_OF_RANGE, UNAVAILABLE and DATA_LOSS.
const RETRYABLE: [u32; 6] = [1, 4, 10, 11, 14, 15];
/// How long is waited before a call is made again.
const PAUSES: [Duration; 3] =
    [Duration::from_millis(200), Duration::from_millis(800), Duration::from_millis(3200)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_status_says_is_decoded() {
        for (text, said) in [
            ("no%20such%20span", "no such span"),
            ("50 %, %zz %+4 %4", "50 %, %zz %+4 %4"),
            ("%C3%BCber", "über"),
            ("%", "%"),
            ("", ""),
        ] {
            assert_eq!(percent_decoded(text), said);
        }
    }
}
