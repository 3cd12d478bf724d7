//! Any text as a format string. What compiles can be written of a stream of which nothing is known, and as a header it
//! has no line end in it.
#![no_main]

use towpath_engine::format::{Facts, Format, FormatOptions, JsonTemplate};
use towpath_engine::record::Record;
use towpath_proto::Instant;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let options = FormatOptions::default();
    let template =
        JsonTemplate::Object(vec![(text.to_owned(), JsonTemplate::Text(text.to_owned()))]);
    let compiled = Format::text(text, &options);
    let json = Format::json(&template, &options);
    assert_eq!(compiled.is_ok(), json.is_ok());
    if let (Ok(compiled), Ok(json)) = (compiled, json) {
        written(&compiled);
        let line = written(&json);
        assert!(line.starts_with(b"{") && line.ends_with(b"}\n"));
    }
    if let Ok(header) = Format::header(text, &options) {
        assert!(!written(&header).iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)));
    }
});

fn written(format: &Format) -> Vec<u8> {
    let (record, mut out) = (Record::default(), Vec::new());
    format.write(&mut out, &Facts::new(&record, Instant::ZERO));
    out
}
