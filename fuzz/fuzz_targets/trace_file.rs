//! Any bytes as a trace file: they are read to the end or refused, and what was read can be printed.
#![no_main]

use towpath_trace::file::stat_bytes;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Ok(stat) = stat_bytes(data) {
        assert_eq!(stat.bytes, data.len() as u64);
        assert!(!stat.to_string().is_empty());
    }
    // Two halves of a file that is a trace are not more than the whole.
    for cut in [data.len() / 2, data.len() / 3] {
        let _ = stat_bytes(&data[..cut]);
    }
});
