//! Any text as a bootstrap. What loads is dumped, and the dump loads as the same snapshot; nothing that does not load
//! is refused without a word.
#![no_main]

use towpath_config::{Format, Loaded, Options, Source, Sources, load};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((choice, bytes)) = data.split_first() else { return };
    let format = if choice & 1 == 0 { Format::Yaml } else { Format::Json };
    let options =
        Options { allow_unknown_static_fields: choice & 2 != 0, ..Options::default() };
    let source = Source { name: "fuzz".into(), bytes: bytes.to_vec(), format };
    match load(&Sources::file(source), &options) {
        Ok(loaded) => {
            let dump = Source::json("dump", &loaded.json.to_string());
            let again = load(&Sources::file(dump), &options).expect("the dump of what loads");
            assert_eq!(text(&loaded), text(&again));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});

fn text(loaded: &Loaded) -> String {
    format!("{:?} {:?} {:?}", loaded.snapshot.listeners, loaded.snapshot.clusters, loaded.json)
}
