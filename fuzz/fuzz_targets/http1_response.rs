//! Arbitrary bytes to a client. The first nine choose options, what was asked, and cuts.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((choice, bytes)) = data.split_first_chunk::<9>() else { return };
    let (seed, options) = (u64::from_le_bytes(*choice.first_chunk().unwrap_or(&[0; 8])), choice[8]);
    let method: &[u8] = match options >> 5 {
        0..3 => b"GET",
        3 | 4 => b"POST",
        5 | 6 => b"HEAD",
        _ => b"CONNECT",
    };
    towpath_fuzz::check_responses(&towpath_fuzz::options(options), method, bytes, seed);
});
