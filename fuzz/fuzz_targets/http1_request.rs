//! Arbitrary bytes to a server. The first nine choose options and cuts.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((choice, bytes)) = data.split_first_chunk::<9>() else { return };
    let (seed, options) = (u64::from_le_bytes(*choice.first_chunk().unwrap_or(&[0; 8])), choice[8]);
    towpath_fuzz::check_requests(&towpath_fuzz::options(options), bytes, seed);
});
